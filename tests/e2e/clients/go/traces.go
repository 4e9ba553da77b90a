// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"os"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// sendTraces sends the scene described in ../README.md.
func sendTraces(ctx context.Context, endpoint string, gzip bool) error {
	options := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(endpoint), otlptracegrpc.WithInsecure()}
	if gzip {
		options = append(options, otlptracegrpc.WithCompressor("gzip"))
	}
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return err
	}
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(exporter, sdk.WithMaxExportBatchSize(40)),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "shop-go"), attribute.String("service.version", "1.2.3"))))
	tracer := provider.Tracer("scene", trace.WithInstrumentationVersion("0.1"))

	linked := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{15: 1}, SpanID: trace.SpanID{7: 2}, TraceFlags: trace.FlagsSampled})
	ctx, root := tracer.Start(ctx, "POST /checkout", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithLinks(trace.Link{SpanContext: linked,
			Attributes: []attribute.KeyValue{attribute.String("link.kind", "batch")}}),
		trace.WithAttributes(attribute.String("http.route", "/checkout"),
			attribute.Int("http.response.status_code", 503), attribute.Float64("cart.total", 12.5),
			attribute.Bool("cart.paid", true), attribute.StringSlice("cart.items", []string{"apple", "pear"}),
			attribute.String("note", "naïve ✓")))
	_, charge := tracer.Start(ctx, "charge card", trace.WithSpanKind(trace.SpanKindClient))
	charge.AddEvent("retry", trace.WithAttributes(attribute.Int("attempt", 2)))
	charge.SetStatus(codes.Error, "card declined")
	charge.End()
	sent := []trace.Span{root, charge}
	for n := range 100 {
		_, tick := tracer.Start(ctx, "tick", trace.WithAttributes(attribute.Int("n", n)))
		tick.End()
		sent = append(sent, tick)
	}
	root.SetStatus(codes.Ok, "")
	root.End()
	if err := provider.Shutdown(ctx); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for _, span := range sent {
		id := span.SpanContext()
		if err := out.Encode([]string{id.TraceID().String(), id.SpanID().String()}); err != nil {
			return err
		}
	}
	return nil
}
