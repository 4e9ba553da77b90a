// SPDX-License-Identifier: Apache-2.0

import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.context.Context;
import io.opentelemetry.exporter.otlp.http.trace.OtlpHttpSpanExporter;
import io.opentelemetry.sdk.resources.Resource;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.export.BatchSpanProcessor;
import io.pyroscope.javaagent.PyroscopeAgent;
import io.pyroscope.labels.v2.Pyroscope;
import io.pyroscope.vendor.one.profiler.AsyncProfiler;

/**
 * The Pyroscope agent at work on one slow request. What its span processor does when a local root begins
 * and ends is done here: the span's ids go to the profiler's thread context.
 */
public final class Scene {
    private static long sum;

    private static void burn(double seconds) {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            for (int i = 0; i < 10000; i++) {
                sum += (long) i * i;
            }
        }
    }

    private static void rootWork(double seconds) {
        burn(seconds);
    }

    private static void childWork(double seconds) {
        burn(seconds);
    }

    private static void enter(Span span, String name) {
        SpanContext c = span.getSpanContext();
        AsyncProfiler profiler = AsyncProfiler.getInstance();
        profiler.setTracingContext(Long.parseUnsignedLong(c.getSpanId(), 16), Pyroscope.LabelsWrapper.registerConstant(name));
        profiler.setTraceId(Long.parseUnsignedLong(c.getTraceId().substring(0, 16), 16),
            Long.parseUnsignedLong(c.getTraceId().substring(16), 16));
    }

    private static void leave() {
        AsyncProfiler profiler = AsyncProfiler.getInstance();
        profiler.setTracingContext(0, 0);
        profiler.setTraceId(0, 0);
    }

    private static void say(Span span, String name) {
        SpanContext c = span.getSpanContext();
        System.out.printf("[\"%s\",\"%s\",\"%s\"]%n", c.getTraceId(), c.getSpanId(), name);
    }

    public static void main(String[] args) throws Exception {
        double seconds = Double.parseDouble(System.getenv("SECONDS"));
        OtlpHttpSpanExporter exporter = OtlpHttpSpanExporter.builder().setEndpoint(System.getenv("OTLP") + "/v1/traces").build();
        SdkTracerProvider provider = SdkTracerProvider.builder()
            .setResource(Resource.create(Attributes.of(AttributeKey.stringKey("service.name"), "shop")))
            .addSpanProcessor(BatchSpanProcessor.builder(exporter).build()).build();
        Tracer tracer = provider.get("scene");
        while (!PyroscopeAgent.isStarted()) {
            Thread.sleep(10);
        }
        Span root = tracer.spanBuilder("POST /checkout").setSpanKind(SpanKind.SERVER)
            .setAttribute("http.route", "/checkout").startSpan();
        enter(root, "POST /checkout");
        rootWork(seconds / 2);
        Span child = tracer.spanBuilder("charge card").setParent(Context.root().with(root)).startSpan();
        childWork(seconds / 2);
        child.end();
        leave();
        root.end();
        Thread.sleep(2500); // the agent sends once a second
        PyroscopeAgent.stop();
        provider.shutdown().join(10, java.util.concurrent.TimeUnit.SECONDS);
        say(root, "POST /checkout");
        say(child, "charge card");
        System.exit(0);
    }
}
