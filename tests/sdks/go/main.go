// SPDX-License-Identifier: Apache-2.0

// Runs Go's profiler and tracer, connected by Grafana's bridge, with one slow request or many short
// ones.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	otelpyroscope "github.com/grafana/otel-profiling-go"
	"github.com/grafana/pyroscope-go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

var sink int

func burn(done func() bool) {
	for !done() {
		for i := 0; i < 100000; i++ {
			sink += i * i
		}
	}
}

//go:noinline
func root_work(done func() bool) { burn(done) }

//go:noinline
func child_work(done func() bool) { burn(done) }

func say(span trace.Span, name string) {
	c := span.SpanContext()
	line, _ := json.Marshal([]string{c.TraceID().String(), c.SpanID().String(), name})
	fmt.Println(string(line))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// lasting returns a function that reports whether that much time has passed.
func lasting(d time.Duration) func() bool {
	until := time.Now().Add(d)
	return func() bool { return !time.Now().Before(until) }
}

// push returns the function that ends the profiler, and the one that reports when a part of the
// work is done. uploads is the number of uploads, 0: the SDK's interval.
func push(uploads time.Duration) (func(), func() func() bool) {
	seconds, err := strconv.ParseFloat(os.Getenv("SECONDS"), 64)
	must(err)
	profiler, err := pyroscope.Start(pyroscope.Config{
		ApplicationName: "shop",
		ServerAddress:   os.Getenv("PYROSCOPE"),
		Tags:            map[string]string{"env": "test", "region": "eu west"},
		UploadRate:      uploads,
		ProfileTypes: append(append([]pyroscope.ProfileType{}, pyroscope.DefaultProfileTypes...),
			pyroscope.ProfileGoroutines, pyroscope.ProfileMutexCount, pyroscope.ProfileMutexDuration,
			pyroscope.ProfileBlockCount, pyroscope.ProfileBlockDuration),
	})
	must(err)
	end := func() {
		profiler.Flush(true)
		must(profiler.Stop())
	}
	return end, func() func() bool { return lasting(time.Duration(seconds / 2 * float64(time.Second))) }
}

// serve replaces push in a program whose profiles are fetched: each part of the work is done after
// one more fetch of its CPU profile.
func serve(address string) (func(), func() func() bool) {
	var fetched atomic.Int32
	listener, err := net.Listen("tcp", address)
	must(err)
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/profile", func(w http.ResponseWriter, r *http.Request) {
		pprof.Profile(w, r)
		fetched.Add(1)
	})
	go http.Serve(listener, mux)
	return func() {}, func() func() bool {
		before := fetched.Load()
		return func() bool { return fetched.Load() > before }
	}
}

// request makes a span and a child, which work for that long, and prints them.
func request(tracer trace.Tracer, own, below func() func() bool) {
	in, root := tracer.Start(context.Background(), "POST /checkout", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("http.route", "/checkout")))
	root_work(own())
	_, child := tracer.Start(in, "charge card")
	child_work(below())
	child.End()
	root.End()
	defer say(child, "charge card")
	say(root, "POST /checkout")
}

// requests makes short requests, some of which are shorter than the profiler's interval.
func requests(tracer trace.Tracer, n int) {
	for i := range n {
		tick := func(k int) func() func() bool {
			return func() func() bool { return lasting(time.Duration(k%4) * 20 * time.Millisecond) }
		}
		request(tracer, tick(i), tick(i/4))
		time.Sleep(200 * time.Millisecond)
	}
}

func main() {
	ctx := context.Background()
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(os.Getenv("OTLP")+"/v1/traces"))
	must(err)
	spans := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(
		resource.NewSchemaless(attribute.String("service.name", "shop"))))
	tracer := otelpyroscope.NewTracerProvider(spans).Tracer("scene")
	var end func()
	var part func() func() bool
	n, _ := strconv.Atoi(os.Getenv("REQUESTS"))
	if address := os.Getenv("SERVE"); address != "" {
		end, part = serve(address)
	} else if n > 0 {
		end, part = push(0)
	} else {
		end, part = push(time.Second)
	}
	if n > 0 {
		requests(tracer, n)
	} else {
		request(tracer, part, part)
	}
	end()
	must(spans.Shutdown(ctx))
}
