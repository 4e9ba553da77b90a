// SPDX-License-Identifier: Apache-2.0

// What Pyroscope's own reader makes of a recording, as the text of tests/support/profile_view.h:
//
//	go run . RECORDING.jfr[.gz] [LABELS.pb[.gz]] > RECORDING.expected
//
// At 100 Hz, as tests/unit/profile/test_jfr.c has it.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/grafana/jfr-parser/pprof"
	profilev1 "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(path string) []byte {
	data, err := os.ReadFile(path)
	check(err)
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(data))
		check(err)
		data, err = io.ReadAll(z)
		check(err)
	}
	return data
}

func key(p *profilev1.Profile, s *profilev1.Sample) string {
	text := func(i int64) string { return p.StringTable[i] }
	var frames, labels []string
	for _, id := range s.LocationId {
		line := p.Location[id-1].Line[0]
		frames = append(frames, fmt.Sprintf("%s:%d", text(p.Function[line.FunctionId-1].Name), line.Line))
	}
	for _, l := range s.Label {
		labels = append(labels, text(l.Key)+"="+text(l.Str))
	}
	sort.Strings(labels)
	out := strings.Join(frames, ";")
	if len(labels) > 0 {
		out += "|" + strings.Join(labels, ",")
	}
	return out
}

func block(metric string, p *profilev1.Profile, which int) string {
	text := func(i int64) string { return p.StringTable[i] }
	periodType, periodUnit := "-", "-"
	if p.PeriodType != nil {
		periodType, periodUnit = text(p.PeriodType.Type), text(p.PeriodType.Unit)
	}
	t := p.SampleType[which]
	var out strings.Builder
	fmt.Fprintf(&out, "# %s %s %s %s %s\n", metric, text(t.Type), text(t.Unit), periodType, periodUnit)
	sums := map[string]int64{}
	for _, s := range p.Sample {
		sums[key(p, s)] += s.Value[which]
	}
	var keys []string
	for k := range sums {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		fmt.Fprintf(&out, "%s %d\n", k, sums[k])
	}
	return out.String()
}

func main() {
	data := read(os.Args[1])
	labels := new(pprof.LabelsSnapshot)
	if len(os.Args) > 2 {
		check(labels.UnmarshalVT(read(os.Args[2])))
	}
	input := &pprof.ParseInput{StartTime: time.Unix(1, 0), EndTime: time.Unix(11, 0), SampleRate: 100}
	res, err := pprof.ParseJFR(data, input, labels)
	check(err)
	var blocks []string
	for _, p := range res.Profiles {
		for i := range p.Profile.SampleType {
			if len(p.Profile.Sample) > 0 {
				blocks = append(blocks, block(p.Metric, p.Profile, i))
			}
		}
	}
	if len(blocks) == 0 {
		return
	}
	sort.Strings(blocks)
	fmt.Printf("jfr_event=%s\n%s", res.JFREvent, strings.Join(blocks, ""))
}
