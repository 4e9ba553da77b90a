// SPDX-License-Identifier: Apache-2.0
// Sends the shop's data to a real server as OTLP/JSON: spans, and samples linked to their spans.
import { splitName, stacksOfSpan } from "./data.js";

const ns = (ms) => BigInt(Math.round(ms * 1e6));
const text = (key, value) => ({ key, value: { stringValue: value } });
const kinds = { internal: 1, server: 2, client: 3, producer: 4, consumer: 5 };

function byService(spans) {
  const out = new Map();
  for (const span of spans)
    (out.get(span.service) ?? out.set(span.service, []).get(span.service)).push(span);
  return out;
}

/** Returns an export request of spans. */
export function tracesRequest(spans) {
  return {
    resourceSpans: [...byService(spans)].map(([service, list]) => ({
      resource: { attributes: [text("service.name", service), text("service.version", "2.14.0")] },
      scopeSpans: [
        {
          scope: { name: `shop/${service}` },
          spans: list.map((span) => ({
            traceId: span.trace.id,
            spanId: span.id,
            ...(span.parent ? { parentSpanId: span.parent.id } : {}),
            name: span.name,
            kind: kinds[span.kind],
            startTimeUnixNano: String(ns(span.startMs)),
            endTimeUnixNano: String(ns(span.startMs) + ns(span.durationMs)),
            attributes: [
              text("rpc.method", span.name),
              { key: "order.items", value: { intValue: "3" } },
              text("customer.email", "anna@example.com"),
            ],
            events: span.error
              ? [
                  {
                    timeUnixNano: String(ns(span.startMs + span.durationMs / 2)),
                    name: "exception",
                    attributes: [text("exception.type", "CardDeclined")],
                  },
                ]
              : [],
            status: span.error ? { code: 2, message: "acquirer refused: card_declined" } : {},
          })),
        },
      ],
    })),
  };
}

/** Returns an export request of CPU samples, 100 per second, each linked to its span. */
export function profilesRequest(spans) {
  const strings = new Map([["", 0]]);
  const string = (value) => strings.get(value) ?? strings.set(value, strings.size).get(value);
  const functions = new Map(),
    stacks = new Map([["", 0]]);
  const functionTable = [{}],
    locationTable = [{}],
    stackTable = [{}],
    linkTable = [{}];
  const location = (full) => {
    if (!functions.has(full)) {
      const [file, name] = splitName(full);
      functions.set(full, functionTable.length);
      functionTable.push({ nameStrindex: string(name), filenameStrindex: string(file) });
      locationTable.push({ lines: [{ functionIndex: functionTable.length - 1, line: "10" }] });
    }
    return functions.get(full);
  };
  const stack = (path) => {
    if (!stacks.has(path)) {
      stacks.set(path, stackTable.length);
      stackTable.push({ locationIndices: path.split(";").reverse().map(location) });
    }
    return stacks.get(path);
  };
  const cpu = { typeStrindex: string("cpu"), unitStrindex: string("nanoseconds") };
  const resourceProfiles = [...byService(spans.filter((span) => span.samples))].map(
    ([service, list]) => {
      const samples = [];
      for (const span of list) {
        linkTable.push({ traceId: span.trace.id, spanId: span.id });
        let i = 0;
        for (const [path, n] of stacksOfSpan(span)) {
          const times = Array.from({ length: n }, () =>
            String(ns(span.startMs + (++i / (span.samples + 1)) * span.durationMs)),
          );
          samples.push({
            stackIndex: stack(path),
            linkIndex: linkTable.length - 1,
            values: times.map(() => "10000000"),
            timestampsUnixNano: times,
          });
        }
      }
      const begin = Math.min(...list.map((span) => span.startMs));
      const end = Math.max(...list.map((span) => span.startMs + span.durationMs));
      return {
        resource: { attributes: [text("service.name", service)] },
        scopeProfiles: [
          {
            profiles: [
              {
                sampleType: cpu,
                periodType: cpu,
                period: "10000000",
                timeUnixNano: String(ns(begin)),
                durationNano: String(ns(end - begin)),
                samples,
              },
            ],
          },
        ],
      };
    },
  );
  return {
    resourceProfiles,
    dictionary: {
      mappingTable: [{}],
      locationTable,
      functionTable,
      linkTable,
      stringTable: [...strings.keys()],
      attributeTable: [{}],
      stackTable,
    },
  };
}

/** Sends spans and samples to a server's OTLP/HTTP address, in requests of at most `size` spans. */
export async function send(address, spans, size = 2000) {
  for (let at = 0; at < spans.length; at += size) {
    const part = spans.slice(at, at + size);
    for (const [path, body] of [
      ["v1/traces", tracesRequest(part)],
      ["v1development/profiles", profilesRequest(part)],
    ]) {
      const answer = await fetch(`${address}${path}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
    }
  }
}
