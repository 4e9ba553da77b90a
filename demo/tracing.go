// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"runtime/pprof"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const serviceName = "shop"

func newTracing(ctx context.Context, endpoint string) (*sdk.TracerProvider, error) {
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(endpoint), otlptracegrpc.WithInsecure())
	if err != nil {
		return nil, err
	}
	return sdk.NewTracerProvider(sdk.WithBatcher(exporter, sdk.WithBatchTimeout(time.Second)), sdk.WithResource(
		resource.NewSchemaless(attribute.String("service.name", serviceName)))), nil
}

// traced gives every request a span, and every CPU sample taken meanwhile the span's ids as labels.
func traced(tracer trace.Tracer, mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, route := mux.Handler(r)
		ctx, span := tracer.Start(r.Context(), route, trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("http.request.method", r.Method),
				attribute.String("url.path", r.URL.Path)))
		defer span.End()
		ids := span.SpanContext()
		labels := pprof.Labels("trace_id", ids.TraceID().String(), "span_id", ids.SpanID().String())
		pprof.Do(ctx, labels, func(ctx context.Context) { mux.ServeHTTP(w, r.WithContext(ctx)) })
	})
}
