// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Pdata is the reference: it must read as many records as requested and as the sink counts.
func TestCorpusHoldsWhatWasAskedFor(t *testing.T) {
	s := shape{requests: 5, items: 37, seed: 3}
	for _, kind := range []signalKind{traces, profiles} {
		corpus, err := kind.corpus(s)
		for _, body := range must(t, corpus, err) {
			n := 0
			if kind.name == "traces" {
				r := ptraceotlp.NewExportRequest()
				must(t, r, r.UnmarshalProto(body))
				n = r.Traces().SpanCount()
			} else {
				r := pprofileotlp.NewExportRequest()
				must(t, r, r.UnmarshalProto(body))
				n = r.Profiles().SampleCount()
			}
			if walked := count(body, kind.itemPath); n != s.items || walked != s.items {
				t.Errorf("%s: pdata reads %d items, the sink counts %d, want %d", kind.name, n, walked, s.items)
			}
		}
	}
}

// `-requests 6000 -items 200` must give more than a million different spans.
func TestSpanIDsDiffer(t *testing.T) {
	const n = 1_200_000
	seen := make(map[pcommon.SpanID]bool, n)
	for i := range uint64(n) {
		_, span := spanIDs(1, i)
		seen[span] = true
	}
	if len(seen) != n {
		t.Errorf("%d different ids among %d", len(seen), n)
	}
}

func TestLinkedSamplesNameTheSpansOfTheTracesCorpus(t *testing.T) {
	s := shape{requests: 3, items: 20, seed: 9, linked: true}
	spans := map[[24]byte]bool{}
	key := func(trace pcommon.TraceID, span pcommon.SpanID) [24]byte {
		return [24]byte(append(trace[:], span[:]...))
	}
	corpus, err := traceRequests(s)
	for _, body := range must(t, corpus, err) {
		r := ptraceotlp.NewExportRequest()
		must(t, r, r.UnmarshalProto(body))
		all := r.Traces().ResourceSpans().At(0).ScopeSpans().At(0).Spans()
		for i := range all.Len() {
			spans[key(all.At(i).TraceID(), all.At(i).SpanID())] = true
		}
	}
	corpus, err = profileRequests(s)
	for _, body := range must(t, corpus, err) {
		r := pprofileotlp.NewExportRequest()
		must(t, r, r.UnmarshalProto(body))
		links := r.Profiles().Dictionary().LinkTable()
		for i := 1; i < links.Len(); i++ {
			if !spans[key(links.At(i).TraceID(), links.At(i).SpanID())] {
				t.Fatal("a link names no span")
			}
		}
	}
	if len(spans) != s.requests*s.items {
		t.Errorf("%d spans, want %d", len(spans), s.requests*s.items)
	}
}

func freeAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	defer must(t, l, err).Close()
	return l.Addr().String()
}

// With the sink as the server, every acknowledged record must have been counted.
func TestLoadStraightIntoTheSink(t *testing.T) {
	for _, kind := range []signalKind{traces, profiles} {
		for _, http := range []bool{false, true} {
			o := options{signal: kind, http: http, sinkGRPC: freeAddr(t), sinkHTTP: freeAddr(t),
				sinkCompression: "none", shape: shape{requests: 4, items: 10, seed: 1}, conns: 2, inflight: 2,
				duration: 30 * time.Second, count: 100, drain: time.Second}
			o.target = map[bool]string{false: o.sinkGRPC, true: o.sinkHTTP}[http]
			r, err := measure(context.Background(), o)
			must(t, r, err)
			if r.Acked != 1000 || r.Arrived != 1000 || r.Refused != 0 || r.P99 <= 0 {
				t.Errorf("%s, http %v: %+v", kind.name, http, r)
			}
		}
	}
}

func TestSinkRefusesOtherCompression(t *testing.T) {
	for _, http := range []bool{false, true} {
		o := options{signal: traces, http: http, sinkGRPC: freeAddr(t), sinkHTTP: freeAddr(t),
			sinkCompression: "gzip", shape: shape{requests: 1, items: 1, seed: 1}, conns: 1, inflight: 1,
			duration: 30 * time.Second, count: 3, drain: time.Second}
		o.target = map[bool]string{false: o.sinkGRPC, true: o.sinkHTTP}[http]
		r, err := measure(context.Background(), o)
		must(t, r, err)
		if r.Acked != 0 || r.Refused != 3 || r.Arrived != 0 {
			t.Errorf("http %v: %+v", http, r)
		}
	}
}

func TestServerThatEndsIsReported(t *testing.T) {
	o := options{signal: traces, sinkGRPC: freeAddr(t), sinkHTTP: freeAddr(t), target: freeAddr(t),
		shape: shape{requests: 1, items: 1, seed: 1}, conns: 1, inflight: 1, server: []string{"/bin/false"}}
	if _, err := measure(context.Background(), o); err == nil {
		t.Error("no error though the server never listened")
	}
}
