// SPDX-License-Identifier: Apache-2.0

// Sends the scene of ../README.md with the official Node SDK as OTLP/JSON: node scene.js ENDPOINT
// none|gzip
import { ROOT_CONTEXT, SpanKind, SpanStatusCode, TraceFlags, trace } from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BasicTracerProvider, BatchSpanProcessor } from "@opentelemetry/sdk-trace-base";

const [endpoint, compression] = process.argv.slice(2);
const exporter = new OTLPTraceExporter({ url: `http://${endpoint}/v1/traces`, compression });
const provider = new BasicTracerProvider({
  resource: resourceFromAttributes({ "service.name": "shop-node", "service.version": "1.2.3" }),
  spanProcessors: [new BatchSpanProcessor(exporter, { maxExportBatchSize: 40 })],
});
const tracer = provider.getTracer("scene", "0.1");

const linked = {
  traceId: "1".padStart(32, "0"),
  spanId: "2".padStart(16, "0"),
  traceFlags: TraceFlags.SAMPLED,
};
const root = tracer.startSpan(
  "POST /checkout",
  {
    kind: SpanKind.SERVER,
    links: [{ context: linked, attributes: { "link.kind": "batch" } }],
    attributes: {
      "http.route": "/checkout",
      "http.response.status_code": 503,
      "cart.total": 12.5,
      "cart.paid": true,
      "cart.items": ["apple", "pear"],
      note: "naïve ✓",
    },
  },
  ROOT_CONTEXT,
);
const inside = trace.setSpan(ROOT_CONTEXT, root);
const charge = tracer.startSpan("charge card", { kind: SpanKind.CLIENT }, inside);
charge.addEvent("retry", { attempt: 2 });
charge.setStatus({ code: SpanStatusCode.ERROR, message: "card declined" });
charge.end();
const sent = [root, charge];
for (let n = 0; n < 100; n++) {
  const tick = tracer.startSpan("tick", { attributes: { n } }, inside);
  tick.end();
  sent.push(tick);
}
root.setStatus({ code: SpanStatusCode.OK });
root.end();
await provider.shutdown();
for (const span of sent) {
  const { traceId, spanId } = span.spanContext();
  console.log(JSON.stringify([traceId, spanId]));
}
