// SPDX-License-Identifier: Apache-2.0

// Stores pushes with Pyroscope's code: pushes as JSON on stdin. On stdout, as JSON, the
// contribution of each sample to a profile type, and to the span that it is indexed under.
package main

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sort"

	"github.com/go-kit/log"
	profilev1 "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
	"github.com/grafana/pyroscope/pkg/distributor/model"
	phlaremodel "github.com/grafana/pyroscope/pkg/model"
	"github.com/grafana/pyroscope/pkg/model/pprof_split"
	"github.com/grafana/pyroscope/pkg/phlaredb/labels"
	"github.com/grafana/pyroscope/pkg/pprof"
)

type push struct {
	Labels map[string]string // labels of the series
	Pprof  []byte
}

type row struct {
	Type  string   `json:"type"`
	Span  string   `json:"span"`  // or empty
	Stack []string `json:"stack"` // functions, the leaf first
	Value int64    `json:"value"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// take processes a push as the distributor does (PushParsed, extractSampleSeries).
func take(p push) []row {
	profile, err := pprof.RawFromBytes(p.Pprof)
	check(err)
	series := &model.ProfileSeries{}
	for name, value := range p.Labels {
		series.Labels = append(series.Labels, &typesv1.LabelPair{Name: name, Value: value})
	}
	sort.Sort(phlaremodel.Labels(series.Labels))
	language := series.GetLanguage()
	if language == "" {
		language = pprof.GetLanguage(profile, log.NewNopLogger())
	}
	if language == "go" {
		profile.Profile = pprof.FixGoProfile(profile.Profile)
	}
	profile.Normalize()
	withoutTraces(profile.Profile)
	v := &visitor{profile: profile.Profile}
	pprof_split.VisitSampleSeries(profile.Profile, series.Labels, nil, v)
	return v.rows
}

// withoutTraces removes labels that do not create series since Pyroscope 2.0, which the version
// here does not know.
func withoutTraces(p *profilev1.Profile) {
	for _, sample := range p.Sample {
		sample.Label = slices.DeleteFunc(sample.Label, func(l *profilev1.Label) bool {
			return p.StringTable[l.Key] == "trace_id"
		})
	}
}

// visitor receives the series into which a profile is split, each with a separate profile, like the
// distributor's.
type visitor struct {
	profile  *profilev1.Profile
	exporter *pprof.SampleExporter
	rows     []row
}

func (v *visitor) VisitProfile(of []*typesv1.LabelPair) { v.ingest(v.profile, of) }

func (v *visitor) VisitSampleSeries(of []*typesv1.LabelPair, samples []*profilev1.Sample) {
	if v.exporter == nil {
		v.exporter = pprof.NewSampleExporter(v.profile)
	}
	// the exporter changes the labels; the profile must not refer to them any more
	own := slices.Clone(samples)
	clear(samples)
	profile := pprof.NewProfile()
	v.exporter.ExportSamples(profile.Profile, own)
	v.ingest(profile.Profile, of)
}

func (v *visitor) Discarded(profiles, bytes int) {}

// ingest processes the profile of a series as the head does (Ingest, WriteProfileSymbols, Compact).
// It requests the spans of all samples once, and keeps positive values.
func (v *visitor) ingest(p *profilev1.Profile, of phlaremodel.Labels) {
	types, _ := labels.CreateProfileLabels(true, p, of...)
	spans := pprof.ProfileSpans(p)
	for i, sample := range p.Sample {
		span, stack := "", stackOf(p, sample)
		if spans != nil && spans[i] != 0 {
			span = hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, spans[i]))
		}
		for kind, value := range sample.Value {
			if value > 0 && len(stack) > 0 { // samples without a stack are not in any flame graph
				v.rows = append(v.rows, row{types[kind].Get(phlaremodel.LabelNameProfileType), span, stack, value})
			}
		}
	}
}

// stackOf resolves identifiers, which are indices, from one, in the normalised profile.
func stackOf(p *profilev1.Profile, sample *profilev1.Sample) (names []string) {
	for _, location := range sample.LocationId {
		for _, line := range p.Location[location-1].Line {
			names = append(names, p.StringTable[p.Function[line.FunctionId-1].Name])
		}
	}
	return names
}

func main() {
	var pushes []push
	check(json.NewDecoder(os.Stdin).Decode(&pushes))
	rows := []row{}
	for _, p := range pushes {
		rows = append(rows, take(p)...)
	}
	check(json.NewEncoder(os.Stdout).Encode(rows))
}
