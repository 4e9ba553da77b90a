// SPDX-License-Identifier: Apache-2.0
// Pyroscope's SDK for Node (new or old, by the first argument), whose labels are set by hand, and the
// OpenTelemetry SDK, at work on one slow request.
import { SpanKind, context, trace } from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BasicTracerProvider, BatchSpanProcessor } from "@opentelemetry/sdk-trace-base";
const { default: Pyroscope } = await import(
  process.argv[2] === "old" ? "pyroscope-old" : "pyroscope-new"
);

const seconds = Number(process.env.SECONDS);

function burn(ms) {
  let sum = 0;
  const end = Date.now() + ms;
  while (Date.now() < end) for (let i = 0; i < 100000; i++) sum += i * i;
  return sum;
}
function root_work() {
  burn(seconds * 500);
}
function child_work() {
  burn(seconds * 500);
}

// Works in slices, since the profiler reads the labels of its samples at the end of a loop
// iteration.
async function labelled(span, work) {
  const { traceId, spanId } = span.spanContext();
  Pyroscope.wrapWithLabels({ trace_id: traceId, span_id: spanId }, work);
  await new Promise((done) => setTimeout(done, 20));
}

Pyroscope.init({
  serverAddress: process.env.PYROSCOPE,
  appName: "shop",
  flushIntervalMs: 1000,
  tags: { env: "test", region: "eu west" },
  wall: { collectCpuTime: true },
});
Pyroscope.start();
const provider = new BasicTracerProvider({
  resource: resourceFromAttributes({ "service.name": "shop" }),
  spanProcessors: [
    new BatchSpanProcessor(new OTLPTraceExporter({ url: `${process.env.OTLP}/v1/traces` })),
  ],
});
const tracer = provider.getTracer("scene");
const root = tracer.startSpan("POST /checkout", {
  kind: SpanKind.SERVER,
  attributes: { "http.route": "/checkout" },
});
await labelled(root, root_work);
const child = tracer.startSpan("charge card", {}, trace.setSpan(context.active(), root));
await labelled(child, child_work);
child.end();
root.end();
await Pyroscope.stop();
await new Promise((done) => setTimeout(done, 500));
await provider.shutdown();
for (const [span, name] of [
  [root, "POST /checkout"],
  [child, "charge card"],
]) {
  const { traceId, spanId } = span.spanContext();
  console.log(JSON.stringify([traceId, spanId, name]));
}
process.exit(0);
