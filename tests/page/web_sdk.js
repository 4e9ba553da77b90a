// SPDX-License-Identifier: Apache-2.0
// What a page does with OpenTelemetry's web SDK, of whichever version.
export function offer({ OTLPTraceExporter }, { WebTracerProvider, SimpleSpanProcessor }) {
  window.sendSpan = async (url, name) => {
    const provider = new WebTracerProvider({
      spanProcessors: [new SimpleSpanProcessor(new OTLPTraceExporter({ url }))],
    });
    provider.getTracer("page").startSpan(name).end();
    await provider.forceFlush();
  };
}
