// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// used is the CPU time of a span: in all, and by the innermost function of our own.
type used struct {
	total      time.Duration
	byFunction map[string]time.Duration
}

func (u *used) hottest() string {
	best, most := "-", time.Duration(0)
	for name, cpu := range u.byFunction {
		if cpu > most {
			best, most = name, cpu
		}
	}
	return best
}

// report reads the OTLP/JSON lines that a file exporter wrote and prints the slowest spans with their
// CPU time and the function that burned it.
func report(out io.Writer, dir string, n int) error {
	var spans []ptrace.Span
	err := eachLine(filepath.Join(dir, "traces.json"), func(line []byte) error {
		traces, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(line)
		if err == nil {
			spans = append(spans, spansOf(traces)...)
		}
		return err
	})
	if err != nil {
		return err
	}
	cpu, samples, linked, named := map[link]*used{}, 0, 0, 0
	err = eachLine(filepath.Join(dir, "profiles.json"), func(line []byte) error {
		profiles, err := new(pprofile.JSONUnmarshaler).UnmarshalProfiles(line)
		if err == nil {
			samples += profiles.SampleCount()
			linked += addCPU(cpu, profiles)
			named += namedSamples(profiles)
		}
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d spans and %d profile samples came out, %d of them with a link to a span.\n",
		len(spans), samples, linked)
	fmt.Fprintf(out, "Joined: %d samples carry the name of their span, %d spans the CPU time of their samples.\n",
		named, countFigures(spans))
	if len(spans) == 0 || linked == 0 {
		return fmt.Errorf("nothing to join in %s", dir)
	}
	return printSlowest(out, spans, cpu, n)
}

// namedSamples counts the samples that a join gave the name of their span.
func namedSamples(profiles pprofile.Profiles) (n int) {
	dic := profiles.Dictionary()
	for _, resource := range profiles.ResourceProfiles().All() {
		for _, scope := range resource.ScopeProfiles().All() {
			for _, profile := range scope.Profiles().All() {
				for _, sample := range profile.Samples().All() {
					for _, index := range sample.AttributeIndices().All() {
						key := dic.AttributeTable().At(int(index)).KeyStrindex()
						if dic.StringTable().At(int(key)) == "span.name" {
							n++
						}
					}
				}
			}
		}
	}
	return n
}

// countFigures counts the spans that a join gave the figures of their samples.
func countFigures(spans []ptrace.Span) (n int) {
	for _, span := range spans {
		if _, has := span.Attributes().Get("profile.duration_us"); has {
			n++
		}
	}
	return n
}

func eachLine(path string, use func(line []byte) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 256<<20)
	for n := 1; lines.Scan(); n++ {
		if err := use(lines.Bytes()); err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	return lines.Err()
}

func spansOf(traces ptrace.Traces) (spans []ptrace.Span) {
	for _, resource := range traces.ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			for _, span := range scope.Spans().All() {
				spans = append(spans, span)
			}
		}
	}
	return spans
}

// addCPU adds the samples' time to the spans that they link to and returns how many did.
func addCPU(cpu map[link]*used, profiles pprofile.Profiles) (linked int) {
	dic := profiles.Dictionary()
	for _, resource := range profiles.ResourceProfiles().All() {
		for _, scope := range resource.ScopeProfiles().All() {
			for _, profile := range scope.Profiles().All() {
				for _, sample := range profile.Samples().All() {
					if sample.LinkIndex() == 0 {
						continue
					}
					linked++
					entry := dic.LinkTable().At(int(sample.LinkIndex()))
					to := link{entry.TraceID(), entry.SpanID()}
					if cpu[to] == nil {
						cpu[to] = &used{byFunction: map[string]time.Duration{}}
					}
					spent := time.Duration(sample.Values().At(0))
					cpu[to].total += spent
					cpu[to].byFunction[ownFunction(dic, sample)] += spent
				}
			}
		}
	}
	return linked
}

// ownFunction is the innermost function of package main on a sample's stack.
func ownFunction(dic pprofile.ProfilesDictionary, sample pprofile.Sample) string {
	for _, index := range dic.StackTable().At(int(sample.StackIndex())).LocationIndices().All() {
		for _, line := range dic.LocationTable().At(int(index)).Lines().All() {
			function := dic.FunctionTable().At(int(line.FunctionIndex()))
			name := dic.StringTable().At(int(function.NameStrindex()))
			if strings.HasPrefix(name, "main.") {
				return name
			}
		}
	}
	return "the runtime"
}

func printSlowest(out io.Writer, spans []ptrace.Span, cpu map[link]*used, n int) error {
	took := func(span ptrace.Span) time.Duration {
		return span.EndTimestamp().AsTime().Sub(span.StartTimestamp().AsTime())
	}
	sort.SliceStable(spans, func(a, b int) bool { return took(spans[a]) > took(spans[b]) })
	columns := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "\nSLOWEST SPANS\tTOOK\tON CPU\tMOSTLY IN\tTRACE")
	for _, span := range spans[:min(n, len(spans))] {
		spent := cpu[link{span.TraceID(), span.SpanID()}]
		if spent == nil {
			spent = &used{}
		}
		fmt.Fprintf(columns, "%s\t%v\t%v\t%s\t%s\n", span.Name(), took(span).Round(100*time.Microsecond),
			spent.total, spent.hottest(), span.TraceID())
	}
	return columns.Flush()
}
