// SPDX-License-Identifier: Apache-2.0
// A trace as OTLP/JSON, made of what the page has: opentelemetry-proto's JSON mapping, ids in hex, 64 bits as text.
import type { Attribute, Json, Trace } from "../api";

const kinds = ["unspecified", "internal", "server", "client", "producer", "consumer"];
const codes = ["unset", "ok", "error"];

function valueOf(value: Json): object {
  if (typeof value === "string") return { stringValue: value };
  if (typeof value === "boolean") return { boolValue: value };
  if (typeof value === "number") return Number.isInteger(value) ? { intValue: String(value) } : { doubleValue: value };
  if (Array.isArray(value)) return { arrayValue: { values: value.map(valueOf) } };
  if (value === null) return {};
  return { kvlistValue: { values: Object.entries(value).map(([key, one]) => ({ key, value: valueOf(one) })) } };
}

const attributesOf = (list?: Attribute[]): object[] => (list ?? []).map(({ key, value }) => ({ key, value: valueOf(value) }));

export function otlpOf(trace: Trace): object {
  return {
    resourceSpans: trace.resources.map((resource, index) => {
      const spans = trace.spans.filter((span) => span.resource === index);
      const scopes = [...new Set(spans.map((span) => span.scope ?? ""))];
      return {
        resource: { attributes: attributesOf(resource.attributes) },
        scopeSpans: scopes.map((scope) => ({
          scope: { name: scope },
          spans: spans
            .filter((span) => (span.scope ?? "") === scope)
            .map((span) => ({
              traceId: trace.trace_id,
              spanId: span.span_id,
              ...(span.parent_id ? { parentSpanId: span.parent_id } : {}),
              name: span.name,
              kind: Math.max(0, kinds.indexOf(span.kind)),
              startTimeUnixNano: span.start_unix_ns,
              endTimeUnixNano: String(BigInt(span.start_unix_ns) + BigInt(Math.round(span.duration_ns))),
              attributes: attributesOf(span.attributes),
              events: (span.events ?? []).map((event) => ({ timeUnixNano: event.time_unix_ns, name: event.name, attributes: attributesOf(event.attributes) })),
              links: (span.links ?? []).map((link) => ({ traceId: link.trace_id, spanId: link.span_id, attributes: attributesOf(link.attributes) })),
              status: { code: Math.max(0, codes.indexOf(span.status)), ...(span.status_message ? { message: span.status_message } : {}) },
            })),
        })),
      };
    }),
  };
}

export function saveTrace(trace: Trace): void {
  const address = URL.createObjectURL(new Blob([JSON.stringify(otlpOf(trace))], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = `${trace.trace_id}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
