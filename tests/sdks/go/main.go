// SPDX-License-Identifier: Apache-2.0

// Go's profiler and tracer, joined by Grafana's bridge, at work on one slow request.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
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

func burn(until time.Time) {
	for time.Now().Before(until) {
		for i := 0; i < 100000; i++ {
			sink += i * i
		}
	}
}

//go:noinline
func root_work(d time.Duration) { burn(time.Now().Add(d)) }

//go:noinline
func child_work(d time.Duration) { burn(time.Now().Add(d)) }

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

func main() {
	ctx := context.Background()
	seconds, err := strconv.ParseFloat(os.Getenv("SECONDS"), 64)
	must(err)
	part := time.Duration(seconds / 2 * float64(time.Second))
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(os.Getenv("OTLP")+"/v1/traces"))
	must(err)
	spans := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(
		resource.NewSchemaless(attribute.String("service.name", "shop"))))
	tracer := otelpyroscope.NewTracerProvider(spans).Tracer("scene")
	profiler, err := pyroscope.Start(pyroscope.Config{
		ApplicationName: "shop",
		ServerAddress:   os.Getenv("PYROSCOPE"),
		Tags:            map[string]string{"env": "test", "region": "eu west"},
		UploadRate:      time.Second,
		ProfileTypes: append(append([]pyroscope.ProfileType{}, pyroscope.DefaultProfileTypes...),
			pyroscope.ProfileGoroutines, pyroscope.ProfileMutexCount, pyroscope.ProfileMutexDuration,
			pyroscope.ProfileBlockCount, pyroscope.ProfileBlockDuration),
	})
	must(err)
	in, root := tracer.Start(ctx, "POST /checkout", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("http.route", "/checkout")))
	root_work(part)
	_, child := tracer.Start(in, "charge card")
	child_work(part)
	child.End()
	root.End()
	profiler.Flush(true)
	must(profiler.Stop())
	must(spans.Shutdown(ctx))
	say(root, "POST /checkout")
	say(child, "charge card")
}
