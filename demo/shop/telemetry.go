// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"time"

	otelpyroscope "github.com/grafana/otel-profiling-go"
	"github.com/grafana/pyroscope-go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const serviceName = "shop"

type telemetry struct {
	spans    *sdk.TracerProvider
	profiler *pyroscope.Profiler
}

func startTelemetry(ctx context.Context, otlp, server string) (*telemetry, error) {
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(otlp+"/v1/traces"))
	if err != nil {
		return nil, err
	}
	spans := sdk.NewTracerProvider(sdk.WithBatcher(exporter, sdk.WithBatchTimeout(time.Second)), sdk.WithResource(
		resource.NewSchemaless(attribute.String("service.name", serviceName), attribute.String("service.version", "1.4.0"))))
	profiler, err := pyroscope.Start(pyroscope.Config{
		ApplicationName: serviceName,
		ServerAddress:   server,
		UploadRate:      5 * time.Second,
		ProfileTypes:    []pyroscope.ProfileType{pyroscope.ProfileCPU, pyroscope.ProfileAllocSpace},
	})
	if err != nil {
		return nil, err
	}
	return &telemetry{spans: spans, profiler: profiler}, nil
}

// tracer returns the SDK's tracer with Grafana's bridge, which adds the id of the current span to CPU samples. Without
// the option, samples contain the id of the first span of the request in this service.
func (t *telemetry) tracer() trace.Tracer {
	return otelpyroscope.NewTracerProvider(t.spans,
		otelpyroscope.WithSpanIDLabelScope(otelpyroscope.ScopeAllSpans)).Tracer("shop")
}

func (t *telemetry) stop(ctx context.Context) error {
	t.profiler.Flush(true)
	if err := t.profiler.Stop(); err != nil {
		return err
	}
	return t.spans.Shutdown(ctx)
}

// traced adds a server span to every request.
func traced(tracer trace.Tracer, mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, route := mux.Handler(r)
		ctx, span := tracer.Start(r.Context(), route, trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("http.request.method", r.Method), attribute.String("url.path", r.URL.Path)))
		defer span.End()
		mux.ServeHTTP(w, r.WithContext(ctx))
	})
}

// inject writes the context of the current span to the headers of an outgoing request.
func inject(ctx context.Context, header http.Header) {
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
}
