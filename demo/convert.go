// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/hex"
	"fmt"

	"github.com/google/pprof/profile"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

// table numbers distinct things from 1 on; 0 is "none" in every table of an OTLP dictionary.
type table[K comparable] map[K]int32

// index returns the number of a key, after calling add when the key is new.
func (t table[K]) index(key K, add func()) int32 {
	if _, known := t[key]; !known {
		add()
		t[key] = int32(len(t) + 1)
	}
	return t[key]
}

type link struct {
	trace pcommon.TraceID
	span  pcommon.SpanID
}

// converter fills the dictionary of an OTLP profile from a pprof profile.
type converter struct {
	to        pprofile.ProfilesDictionary
	strings   table[string]
	functions table[*profile.Function]
	mappings  table[*profile.Mapping]
	locations table[*profile.Location]
	links     table[link]
}

func newConverter(to pprofile.ProfilesDictionary) *converter {
	to.StringTable().Append("")
	to.MappingTable().AppendEmpty()
	to.LocationTable().AppendEmpty()
	to.FunctionTable().AppendEmpty()
	to.LinkTable().AppendEmpty()
	to.AttributeTable().AppendEmpty()
	to.StackTable().AppendEmpty()
	return &converter{to, table[string]{}, table[*profile.Function]{}, table[*profile.Mapping]{},
		table[*profile.Location]{}, table[link]{}}
}

func (c *converter) str(text string) int32 {
	if text == "" {
		return 0
	}
	return c.strings.index(text, func() { c.to.StringTable().Append(text) })
}

func (c *converter) function(from *profile.Function) int32 {
	return c.functions.index(from, func() {
		function := c.to.FunctionTable().AppendEmpty()
		function.SetNameStrindex(c.str(from.Name))
		function.SetSystemNameStrindex(c.str(from.SystemName))
		function.SetFilenameStrindex(c.str(from.Filename))
		function.SetStartLine(from.StartLine)
	})
}

func (c *converter) mapping(from *profile.Mapping) int32 {
	if from == nil {
		return 0
	}
	return c.mappings.index(from, func() {
		mapping := c.to.MappingTable().AppendEmpty()
		mapping.SetMemoryStart(from.Start)
		mapping.SetMemoryLimit(from.Limit)
		mapping.SetFileOffset(from.Offset)
		mapping.SetFilenameStrindex(c.str(from.File))
	})
}

func (c *converter) location(from *profile.Location) int32 {
	return c.locations.index(from, func() {
		mapping := c.mapping(from.Mapping)
		location := c.to.LocationTable().AppendEmpty()
		location.SetMappingIndex(mapping)
		location.SetAddress(from.Address)
		for _, each := range from.Line {
			line := location.Lines().AppendEmpty()
			line.SetFunctionIndex(c.function(each.Function))
			line.SetLine(each.Line)
			line.SetColumn(each.Column)
		}
	})
}

// link makes an OTLP link of the labels that traced set.
func (c *converter) link(labels map[string][]string) (int32, error) {
	if len(labels["trace_id"]) != 1 || len(labels["span_id"]) != 1 {
		return 0, nil
	}
	var to link
	if _, err := hex.Decode(to.trace[:], []byte(labels["trace_id"][0])); err != nil {
		return 0, fmt.Errorf("label trace_id: %w", err)
	}
	if _, err := hex.Decode(to.span[:], []byte(labels["span_id"][0])); err != nil {
		return 0, fmt.Errorf("label span_id: %w", err)
	}
	return c.links.index(to, func() {
		entry := c.to.LinkTable().AppendEmpty()
		entry.SetTraceID(to.trace)
		entry.SetSpanID(to.span)
	}), nil
}

func (c *converter) valueType(from *profile.ValueType, to pprofile.ValueType) {
	to.SetTypeStrindex(c.str(from.Type))
	to.SetUnitStrindex(c.str(from.Unit))
}

// toOTLP converts the CPU time, the last of the two values that Go's profiler counts.
func toOTLP(from *profile.Profile) (pprofile.Profiles, error) {
	all := pprofile.NewProfiles()
	c := newConverter(all.Dictionary())
	resource := all.ResourceProfiles().AppendEmpty()
	resource.Resource().Attributes().PutStr("service.name", serviceName)
	to := resource.ScopeProfiles().AppendEmpty().Profiles().AppendEmpty()
	value := len(from.SampleType) - 1
	c.valueType(from.SampleType[value], to.SampleType())
	c.valueType(from.PeriodType, to.PeriodType())
	to.SetPeriod(from.Period)
	to.SetTime(pcommon.Timestamp(from.TimeNanos))
	to.SetDurationNano(uint64(from.DurationNanos))
	for _, each := range from.Sample {
		stack := c.to.StackTable().AppendEmpty()
		for _, location := range each.Location {
			stack.LocationIndices().Append(c.location(location))
		}
		index, err := c.link(each.Label)
		if err != nil {
			return all, err
		}
		sample := to.Samples().AppendEmpty()
		sample.SetStackIndex(int32(c.to.StackTable().Len() - 1))
		sample.SetLinkIndex(index)
		sample.Values().Append(each.Value[value])
	}
	return all, nil
}
