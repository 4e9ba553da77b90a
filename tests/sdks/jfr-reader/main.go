// SPDX-License-Identifier: Apache-2.0

// Converts a recording with Pyroscope's reader, as its /ingest does: a request as JSON on stdin,
// the series as JSON on stdout.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/grafana/jfr-parser/pprof"
	"github.com/grafana/jfr-parser/pprof/pyroscope"
)

type request struct {
	JFR, Labels []byte            // the recording and the LabelsSnapshot, plain
	App, Spy    string            // the name's application, the query's spyName
	Series      map[string]string // the name's labels
	Rate        int64             // the query's sampleRate
	From, Until int64             // in seconds
}

type series struct {
	Labels map[string]string `json:"labels"`
	Pprof  []byte            `json:"pprof"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var r request
	check(json.NewDecoder(os.Stdin).Decode(&r))
	snapshot := new(pprof.LabelsSnapshot)
	check(snapshot.UnmarshalVT(r.Labels))
	input := &pprof.ParseInput{StartTime: time.Unix(r.From, 0), EndTime: time.Unix(r.Until, 0), SampleRate: r.Rate}
	profiles, err := pprof.ParseJFR(r.JFR, input, snapshot)
	check(err)
	all := []series{}
	for _, p := range profiles.Profiles {
		s := series{Labels: map[string]string{}}
		for _, l := range pyroscope.Labels(r.Series, profiles.JFREvent, p.Metric, r.App, r.Spy) {
			s.Labels[l.Name] = l.Value
		}
		s.Pprof, err = p.Profile.MarshalVT()
		check(err)
		all = append(all, s)
	}
	check(json.NewEncoder(os.Stdout).Encode(all))
}
