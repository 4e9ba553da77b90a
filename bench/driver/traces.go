// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

const failedEvery = 50

// traceRequests returns ExportTraceServiceRequests, each from one service, in traces of 16 spans: a
// server span and the calls below it.
func traceRequests(s shape) ([][]byte, error) {
	rng := newRand(s)
	now := time.Now().Add(-time.Minute)
	corpus := make([][]byte, s.requests)
	n := uint64(0)
	for i := range corpus {
		td := ptrace.NewTraces()
		from := pick(s, i, rng)
		rs := td.ResourceSpans().AppendEmpty()
		fillResource(rs.Resource(), from, rng)
		ss := rs.ScopeSpans().AppendEmpty()
		ss.Scope().SetName("io.opentelemetry.tomcat-10.0")
		ss.Scope().SetVersion("2.21.0-alpha")
		ss.Spans().EnsureCapacity(s.items)
		for range s.items {
			fillSpan(ss.Spans().AppendEmpty(), s.seed, n, from, now.Add(time.Duration(n)*time.Microsecond), rng)
			n++
		}
		body, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
		if err != nil {
			return nil, err
		}
		corpus[i] = body
	}
	return corpus, nil
}

func fillSpan(sp ptrace.Span, seed, n uint64, from service, start time.Time, rng *rand.Rand) {
	trace, id := spanIDs(seed, n)
	sp.SetTraceID(trace)
	sp.SetSpanID(id)
	sp.SetStartTimestamp(timestamp(start))
	sp.SetEndTimestamp(timestamp(start.Add(time.Duration(rng.ExpFloat64() * float64(30*time.Millisecond)))))
	a := sp.Attributes()
	a.PutInt("thread.id", int64(rng.IntN(200)))
	if n%spansPerTrace == 0 {
		sp.SetKind(ptrace.SpanKindServer)
		sp.SetName("POST " + from.route)
		a.PutStr("http.request.method", "POST")
		a.PutStr("http.route", from.route)
		a.PutInt("http.response.status_code", 200)
		a.PutStr("url.scheme", "https")
		a.PutStr("server.address", from.name+".library.svc.cluster.local")
		a.PutStr("client.address", fmt.Sprintf("10.%d.%d.%d", rng.IntN(256), rng.IntN(256), rng.IntN(256)))
		a.PutStr("user_agent.original", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0)")
	} else {
		_, parent := spanIDs(seed, n-n%spansPerTrace)
		sp.SetParentSpanID(parent)
		sp.SetKind(ptrace.SpanKindClient)
		sp.SetName("SELECT " + from.table)
		a.PutStr("db.system.name", "postgresql")
		a.PutStr("db.namespace", "library")
		a.PutStr("db.operation.name", "SELECT")
		a.PutStr("db.query.text", "SELECT id, state FROM "+from.table+" WHERE owner = $1 ORDER BY id LIMIT 50")
		a.PutStr("server.address", "postgres-primary.library.svc.cluster.local")
		a.PutInt("server.port", 5432)
	}
	if rng.IntN(failedEvery) == 0 {
		sp.Status().SetCode(ptrace.StatusCodeError)
		e := sp.Events().AppendEmpty()
		e.SetName("exception")
		e.SetTimestamp(sp.EndTimestamp())
		e.Attributes().PutStr("exception.type", "java.util.concurrent.TimeoutException")
	}
}
