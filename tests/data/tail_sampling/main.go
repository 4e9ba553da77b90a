package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/tailsamplingprocessor"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"
)

func main() {
	data, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 1<<20)
	for in.Scan() {
		if strings.HasPrefix(in.Text(), "#") {
			continue
		}
		var line map[string]any
		var policies []any
		extra := map[string]any{}
		if strings.HasPrefix(in.Text(), "{") {
			if err := json.Unmarshal([]byte(in.Text()), &line); err != nil {
				panic(err)
			}
			extra = line
		} else {
			if err := json.Unmarshal([]byte(in.Text()), &policies); err != nil {
				panic(err)
			}
			extra["policies"] = policies
		}
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(data)
		if err != nil {
			panic(err)
		}
		f := tailsamplingprocessor.NewFactory()
		cfg := f.CreateDefaultConfig()
		if err := confmap.NewFromStringMap(extra).Unmarshal(cfg); err != nil {
			fmt.Printf("%s\terror: %v\n", in.Text(), err)
			continue
		}
		sink := new(consumertest.TracesSink)
		p, err := f.CreateTraces(context.Background(), processortest.NewNopSettings(component.MustNewType("tail_sampling")), cfg, sink)
		if err == nil {
			err = p.Start(context.Background(), componenttest.NewNopHost())
		}
		if err != nil {
			fmt.Printf("%s\terror: %v\n", in.Text(), err)
			continue
		}
		if err := p.ConsumeTraces(context.Background(), td); err != nil {
			panic(err)
		}
		if err := p.Shutdown(context.Background()); err != nil {
			panic(err)
		}
		var names []string
		for _, t := range sink.AllTraces() {
			for _, rs := range t.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					for _, s := range ss.Spans().All() {
						names = append(names, s.Name())
					}
				}
			}
		}
		sort.Strings(names)
		fmt.Printf("%s\t%s\n", in.Text(), strings.Join(names, ""))
	}
}
