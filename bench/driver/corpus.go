// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"google.golang.org/protobuf/encoding/protowire"
)

// shape describes a corpus of export requests.
type shape struct {
	requests, items  int
	services         int // number of different names; 0: those of `services`
	seed             uint64
	linked, shuffled bool
}

// signalKind holds the differences between traces and profiles.
type signalKind struct {
	name     string
	method   string             // gRPC method
	path     string             // HTTP path
	itemPath []protowire.Number // field numbers from the export request down to a span or a sample
	corpus   func(shape) ([][]byte, error)
}

var traces = signalKind{
	name:     "traces",
	method:   "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
	path:     "/v1/traces",
	itemPath: []protowire.Number{1, 2, 2}, // resource_spans, scope_spans, spans
	corpus:   traceRequests,
}

var profiles = signalKind{
	name:     "profiles",
	method:   "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
	path:     "/v1development/profiles",
	itemPath: []protowire.Number{1, 2, 2, 2}, // resource_profiles, scope_profiles, profiles, samples
	corpus:   profileRequests,
}

const spansPerTrace = 16

// service is one application of the fictional library that sends all requests.
type service struct {
	name, route, table string
}

var services = []service{
	{"catalogue", "/v1/books/{isbn}", "books"},
	{"lending", "/v1/loans", "loans"},
	{"members", "/v1/members/{id}", "members"},
	{"search", "/v1/search", "titles"},
	{"fines", "/v1/members/{id}/fines", "fines"},
	{"shelves", "/v1/shelves/{id}", "shelves"},
	{"reading-room", "/v1/desks/{id}/booking", "bookings"},
	{"reminders", "/v1/reminders", "outbox"},
}

// pick returns the service of a request; the first `s.services` services alternate.
func pick(s shape, request int, rng *rand.Rand) service {
	from := services[rng.IntN(len(services))]
	if s.services > 0 {
		from.name = fmt.Sprintf("%s-%05d", from.name, request%s.services)
	}
	return from
}

func newRand(s shape) *rand.Rand { return rand.New(rand.NewPCG(s.seed, 0x62726169642d)) }

// mix is a bijection that spreads numbers over all 64 bits (the finalizer of splitmix64), so that
// identifiers are different, look random, and can be computed from their number.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// spanIDs returns the ids of the n-th span of the corpus with this seed, the same for both signals.
func spanIDs(seed, n uint64) (trace pcommon.TraceID, span pcommon.SpanID) {
	number := n/spansPerTrace + 1
	binary.BigEndian.PutUint64(trace[:8], mix(number+seed<<40))
	binary.BigEndian.PutUint64(trace[8:], mix(^number))
	binary.BigEndian.PutUint64(span[:], mix(n+1+seed<<48))
	return trace, span
}

// fillResource writes the attributes that an SDK in a Kubernetes pod reports.
func fillResource(r pcommon.Resource, s service, rng *rand.Rand) {
	a := r.Attributes()
	a.PutStr("service.name", s.name)
	a.PutStr("service.namespace", "library")
	a.PutStr("service.version", "4.12.0")
	a.PutStr("service.instance.id", fmt.Sprintf("%016x", rng.Uint64()))
	a.PutStr("host.name", fmt.Sprintf("worker-%02d", rng.IntN(64)))
	a.PutStr("k8s.pod.name", fmt.Sprintf("%s-%06x", s.name, rng.IntN(1<<24)))
	a.PutStr("telemetry.sdk.name", "opentelemetry")
	a.PutStr("telemetry.sdk.language", "java")
}

func timestamp(t time.Time) pcommon.Timestamp { return pcommon.NewTimestampFromTime(t) }

func totalBytes(corpus [][]byte) int {
	n := 0
	for _, body := range corpus {
		n += len(body)
	}
	return n
}
