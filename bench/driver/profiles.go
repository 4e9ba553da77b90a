// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
)

const (
	functions       = 600
	threads         = 8
	samplesPerStack = 4
	minDepth        = 6
	maxDepth        = 42
	period          = 10 * time.Millisecond
	window          = 10 * time.Second
)

// table is a dictionary under construction. Entry 0 of every table is empty, as OTLP requires.
type table struct {
	pprofile.ProfilesDictionary
}

func newTable(d pprofile.ProfilesDictionary) table {
	d.MappingTable().AppendEmpty()
	d.LocationTable().AppendEmpty()
	d.FunctionTable().AppendEmpty()
	d.LinkTable().AppendEmpty()
	d.StringTable().Append("")
	d.AttributeTable().AppendEmpty()
	d.StackTable().AppendEmpty()
	return table{d}
}

func (t table) str(s string) int32 {
	t.StringTable().Append(s)
	return int32(t.StringTable().Len() - 1)
}

// addCode enters the application's functions, with one location each. Profilers that write the
// whole symbol table use the same order in every request; others write functions as they occur,
// here shuffled.
func (t table) addCode(rng *rand.Rand, shuffled bool) {
	m := t.MappingTable().AppendEmpty()
	m.SetMemoryStart(0x5500_0000_0000)
	m.SetMemoryLimit(0x5500_0200_0000)
	m.SetFilenameStrindex(t.str("/usr/lib/library/server.so"))
	source := t.str("src/library/server.cc")
	order := make([]int, functions)
	for i := range order {
		order[i] = i
	}
	if shuffled {
		rng.Shuffle(functions, func(i, k int) { order[i], order[k] = order[k], order[i] })
	}
	for _, f := range order {
		fn := t.FunctionTable().AppendEmpty()
		fn.SetNameStrindex(t.str(fmt.Sprintf("library::module_%02d::Handler::operation_%03d(Request const&)", f%40, f)))
		fn.SetFilenameStrindex(source)
		l := t.LocationTable().AppendEmpty()
		l.SetMappingIndex(1)
		l.SetAddress(0x5500_0000_0000 + uint64(f)*96)
		line := l.Lines().AppendEmpty()
		line.SetFunctionIndex(int32(t.FunctionTable().Len() - 1))
		line.SetLine(int64(20 + 7*f))
	}
}

func (t table) addThreads() {
	key := t.str("thread.name")
	for i := range threads {
		a := t.AttributeTable().AppendEmpty()
		a.SetKeyStrindex(key)
		a.Value().SetStr(fmt.Sprintf("executor-%d", i))
	}
}

// addStacks enters n stacks, each with a random start and a fixed step through the functions.
func (t table) addStacks(n int, rng *rand.Rand) {
	for range n {
		depth := minDepth + rng.IntN(maxDepth-minDepth+1)
		at, step := rng.IntN(functions), 1+rng.IntN(7)
		indices := t.StackTable().AppendEmpty().LocationIndices()
		indices.EnsureCapacity(depth)
		for i := range depth {
			indices.Append(int32(1 + (at+i*step)%functions))
		}
	}
}

func (t table) addLink(seed, n uint64) int32 {
	l := t.LinkTable().AppendEmpty()
	trace, span := spanIDs(seed, n)
	l.SetTraceID(trace)
	l.SetSpanID(span)
	return int32(t.LinkTable().Len() - 1)
}

// profileRequests returns ExportProfilesServiceRequests with one CPU profile and one dictionary each.
func profileRequests(s shape) ([][]byte, error) {
	rng := newRand(s)
	start := time.Now().Add(-window)
	corpus := make([][]byte, s.requests)
	for i := range corpus {
		pd := pprofile.NewProfiles()
		rp := pd.ResourceProfiles().AppendEmpty()
		fillResource(rp.Resource(), services[rng.IntN(len(services))], rng)
		sp := rp.ScopeProfiles().AppendEmpty()
		sp.Scope().SetName("library.profiler")
		fillProfile(sp.Profiles().AppendEmpty(), newTable(pd.Dictionary()), s, i, start, rng)
		body, err := pprofileotlp.NewExportRequestFromProfiles(pd).MarshalProto()
		if err != nil {
			return nil, err
		}
		corpus[i] = body
	}
	return corpus, nil
}

func fillProfile(p pprofile.Profile, t table, s shape, request int, start time.Time, rng *rand.Rand) {
	cpu, ns := t.str("cpu"), t.str("nanoseconds")
	t.addCode(rng, s.shuffled)
	t.addThreads()
	stacks := s.items/samplesPerStack + 1
	t.addStacks(stacks, rng)
	p.SampleType().SetTypeStrindex(cpu)
	p.SampleType().SetUnitStrindex(ns)
	p.PeriodType().SetTypeStrindex(cpu)
	p.PeriodType().SetUnitStrindex(ns)
	p.SetPeriod(int64(period))
	p.SetTime(timestamp(start))
	p.SetDurationNano(uint64(window))
	var id pprofile.ProfileID
	binary.BigEndian.PutUint64(id[:8], mix(s.seed))
	binary.BigEndian.PutUint64(id[8:], mix(uint64(request)+1))
	p.SetProfileID(id)
	p.Samples().EnsureCapacity(s.items)
	for k := range s.items {
		sm := p.Samples().AppendEmpty()
		sm.SetStackIndex(int32(1 + rng.IntN(stacks)))
		sm.AttributeIndices().Append(int32(1 + rng.IntN(threads)))
		sm.Values().Append(int64(period) * int64(1+rng.IntN(3)))
		if s.linked {
			sm.SetLinkIndex(t.addLink(s.seed, uint64(request*s.items+k)))
		}
	}
}
