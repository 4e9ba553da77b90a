// SPDX-License-Identifier: Apache-2.0
// A mock of the query API with generated data, for development and tests of the page.
//   node mock/server.js [--port 3200] [--hostile] [--empty] [--now 2026-11-22T15:00:00Z]
import { createServer } from "node:http";
import { readFileSync, existsSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { join, normalize, extname, dirname } from "node:path";
import { fileURLToPath } from "node:url";
import {
  shop,
  largeTrace,
  largeStacks,
  stacksOfSpan,
  trieOf,
  flamebearer,
  flamebearerOfDifference,
  functionsOf,
  partsOf,
  splitName,
  randomOf,
} from "./data.js";

const cpuType = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const types = {
  [cpuType]: { id: cpuType, name: "cpu", unit: "nanoseconds", short: "cpu", scale: 10e6 },
  "memory:alloc_space:bytes:space:bytes": {
    id: "memory:alloc_space:bytes:space:bytes",
    name: "alloc_space",
    unit: "bytes",
    short: "alloc",
    scale: 524288,
  },
  "mutex:delay:nanoseconds:contentions:count": {
    id: "mutex:delay:nanoseconds:contentions:count",
    name: "delay",
    unit: "nanoseconds",
    short: "lock",
    scale: 1.3e6,
  },
};
export const csp =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
  "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
const mime = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

const payloads = [
  `<img src=x onerror="window.xss=1">`,
  `"><script>window.xss=1</script>`,
  `<svg/onload=window.xss=1>`,
  `javascript:window.xss=1//`,
  `'-window.xss=1-'`,
  `{{constructor.constructor('window.xss=1')()}}`,
  `</script><script>window.xss=1</script>`,
  `\u202eexe.fdp`,
  `<iframe srcdoc="<script>parent.xss=1</script>">`,
];

/** Starts a mock server. Returns {port, url, close, requests}. */
// A subset of Braid's kinds.
const privacyKinds = [
  {
    name: "secret, by its key",
    option: "blocked_key_patterns",
    pattern: "(?i)passw|secret|session[._-]?id",
  },
  {
    name: "person, by its key",
    option: "blocked_key_patterns",
    pattern: "(?i)^(?:enduser|user)\\.|e-?mail|^client\\.address$",
  },
  {
    name: "statement or query, by its key",
    option: "blocked_key_patterns",
    pattern: "^(?:db\\.query\\.text|url\\.full)$",
  },
  { name: "mail address", option: "blocked_values", pattern: "[\\w.+-]+@[\\w-]+(?:\\.[\\w-]+)+" },
  { name: "home folder", option: "blocked_values", pattern: "(?:/home|/Users)/[^/\\s:]+" },
];

export async function startMock({
  port = 0,
  host = "127.0.0.1",
  now = Date.now(),
  dist,
  hostile = false,
  empty = false,
  traces = 6000,
  delayMs = 0,
  tailSpans = 8,
  tailMs = 250,
  around = null, // texts before and behind each name, for example to make names long
  merged = "", // function that is named "other" in a request without max_nodes
  equal = 0, // number of spans whose duration is 900 s
} = {}) {
  dist ??= join(dirname(fileURLToPath(import.meta.url)), "../dist");
  const store = empty ? { spans: [], byTrace: new Map() } : shop({ traces, endMs: now });
  if (!empty) {
    const big = largeTrace(now);
    store.byTrace.set(big.id, big);
    store.spans.push(...big.spans.slice(0, 1));
  }
  store.spans.sort((a, b) => a.startMs - b.startMs);
  for (const span of store.spans.slice(0, equal)) span.durationMs = 900e3;
  let sorted = { key: "", spans: [] }; // all pages of a list come from the same sorted list
  let evil = 0;
  const render = (text) =>
    around
      ? `${around[0]}${text}${around[1]}`
      : hostile
        ? `${payloads[evil++ % payloads.length]}${text}`
        : text;
  const plain = (text) => {
    // Plain text of a value that the client sends back.
    if (around && text.startsWith(around[0]) && text.endsWith(around[1]))
      return text.slice(around[0].length, text.length - around[1].length);
    for (const payload of payloads) if (text.startsWith(payload)) return text.slice(payload.length);
    return text;
  };
  const ns = (ms) => BigInt(Math.round(ms * 1e6)).toString();
  const figures = (samples) => {
    if (!samples) return { samples: 0, cpu_ns: 0, types: {} };
    const out = { samples, cpu_ns: samples * 10e6, types: {} };
    for (const type of Object.values(types)) {
      const n =
        type.short === "cpu" ? samples : Math.ceil(samples * (type.short === "alloc" ? 1.7 : 0.2));
      out.types[type.id] = { samples: n, value: n * type.scale };
    }
    return out;
  };
  const briefOf = (span) => ({
    trace_id: span.trace.id,
    span_id: span.id,
    parent_id: span.parent?.id ?? "",
    service: render(span.service),
    name: render(span.name),
    kind: span.kind,
    status: span.error ? "error" : "unset",
    start_unix_ns: ns(span.startMs),
    duration_ns: Math.round(span.durationMs * 1e6),
    profile: figures(span.samples),
  });
  const time = (text, otherwise) => {
    if (!text) return otherwise;
    const relative = /^now(?:-(\d+)([smhd]))?$/.exec(text);
    if (relative)
      return (
        now -
        (relative[1] ? relative[1] * { s: 1e3, m: 60e3, h: 3600e3, d: 86400e3 }[relative[2]] : 0)
      );
    let value = Number(text);
    if (!Number.isFinite(value))
      throw new Error(`start: "${text}" is no time; a unix time or now-1h would be`);
    while (value > 1e14) value /= 1000;
    return value < 1e11 ? value * 1000 : value;
  };
  const length = (text) => {
    const match = /^([\d.]+)(ns|us|µs|ms|s|m|h)$/.exec(text);
    if (!match) throw new Error(`min_duration: "${text}" is no duration; 100ms would be`);
    return match[1] * { ns: 1e-6, us: 1e-3, µs: 1e-3, ms: 1, s: 1e3, m: 60e3, h: 3600e3 }[match[2]];
  };
  const select = (q) => {
    const start = time(q.start, now - 3600e3),
      end = time(q.end, now);
    let spans = store.spans.filter((s) => s.startMs >= start && s.startMs <= end);
    const service = q.service && plain(q.service),
      name = q.name && plain(q.name);
    if (service) spans = spans.filter((s) => s.service === service);
    if (name) spans = spans.filter((s) => s.name === name);
    if (q.min_duration) {
      const least = length(q.min_duration);
      spans = spans.filter((s) => s.durationMs >= least);
    }
    if (q.max_duration) {
      const longest = length(q.max_duration) * 1e6;
      spans = spans.filter((s) => Math.round(s.durationMs * 1e6) <= Math.round(longest));
    }
    if (q.status) spans = spans.filter((s) => (s.error ? "error" : "unset") === q.status);
    if (q.roots === "true") spans = spans.filter((s) => !s.parent);
    if (q.q) {
      if (!/^\s*\{.*\}\s*$/s.test(q.q))
        throw new Error(
          `TraceQL 1:1: "${q.q.slice(0, 20)}" is no span selector; { resource.service.name = "web" } would be`,
        );
      const wanted = /name\s*=\s*"([^"]*)"/.exec(q.q);
      if (wanted) spans = spans.filter((s) => s.name === wanted[1] || s.service === wanted[1]);
      if (/status\s*=\s*error/.test(q.q)) spans = spans.filter((s) => s.error);
      const longer = /duration\s*>=?\s*([\d.]+\w+)/.exec(q.q);
      if (longer) {
        const least = length(longer[1]);
        spans = spans.filter((s) => s.durationMs >= least);
      }
    }
    return { spans, start, end };
  };
  /** Returns whether a span is in the box that the parameters selection_* describe; null without a box. */
  const inBox = (q) => {
    if (!q.selection_start && !q.selection_end && !q.selection_min_duration) return null;
    const [start, end] = [BigInt(q.selection_start || 0), BigInt(q.selection_end || 2n ** 63n)];
    const least = Math.round(length(q.selection_min_duration || "0ns") * 1e6);
    const most = q.selection_max_duration
      ? Math.round(length(q.selection_max_duration) * 1e6)
      : Infinity;
    return (s) => {
      const [at, lasted] = [BigInt(ns(s.startMs)), Math.round(s.durationMs * 1e6)];
      return at >= start && at <= end && lasted >= least && lasted <= most;
    };
  };
  const merge = (flame, q) => {
    if (merged && !q.max_nodes)
      flame.names = flame.names.map((name) => (name === merged ? "other" : name));
  };
  const stacksOf = (selection, type) => {
    const into = new Map();
    for (const span of selection) if (span.samples) stacksOfSpan(span, types[type].short, into);
    if (around)
      return new Map(
        [...into].map(([stack, n]) => [
          stack
            .split(";")
            .map((f) => splitName(f).map(render).join(">"))
            .join(";"),
          n,
        ]),
      );
    if (!hostile) return into;
    return new Map(
      [...into].map(([stack, n]) => [
        stack
          .split(";")
          .map((f) => {
            const [file, name] = splitName(f);
            return `${file.replaceAll(/[;>]/g, "")}${payloads[0].replaceAll(/[;>]/g, "")}>${name}${payloads[n % 3].replaceAll(";", "")}`;
          })
          .join(";"),
        n,
      ]),
    );
  };
  const within = (span) => {
    const inside = new Set([span]);
    for (const s of span.trace.spans) if (inside.has(s.parent)) inside.add(s);
    return [...inside];
  };
  const localOf = (span) => {
    const inside = new Set([span]);
    for (const s of span.trace.spans)
      if (inside.has(s.parent) && s.service === span.service) inside.add(s);
    return [...inside];
  };
  const selectionOf = (q) => {
    if (q.trace) {
      const trace = store.byTrace.get(q.trace);
      const span = trace?.spans.find((s) => s.id === q.span) ?? trace?.spans[0];
      if (!span)
        throw Object.assign(new Error(`There is no trace ${q.trace} in the store.`), {
          status: 404,
        });
      return {
        spans: q.scope === "trace" ? trace.spans : q.scope === "subtree" ? within(span) : [span],
        span,
      };
    }
    const of = (label) => {
      const m = new RegExp(`${label}="((?:[^"\\\\]|\\\\.)*)"`).exec(q.query ?? "");
      return m && m[1].replaceAll(/\\(.)/g, "$1");
    };
    if (!/^\s*([\w.-]+)?\s*\{.*\}\s*$/s.test(q.query ?? ""))
      throw new Error(`query 1:1: a label selector is expected, as {service_name="checkout"}`);
    return {
      spans: select({ ...q, service: of("service_name"), name: of("span_name"), q: "" }).spans,
    };
  };
  const whyEmpty = (span) =>
    !span
      ? "No samples in this range."
      : unknownService(span.service)
        ? `Profiles of ${render(span.service)} come without span ids. Add the Pyroscope SDK's span bridge, or turn "infer" on in the join.`
        : `This span lasted ${span.durationMs.toFixed(1)} ms, and one sampling interval is 10 ms: most spans this short have no sample. Try the span with its descendants, or all spans of ${render(span.name)}.`;
  const unknownService = (service) => service === "cart" || service === "mail";
  // A type whose name the page does not know.
  const ownType = around && `${render("app")}:${render("requests")}:count:app:count`;
  const allTypes = [
    ...Object.values(types),
    ...(ownType ? [{ id: ownType, name: "requests", unit: "count", short: "own", scale: 1 }] : []),
  ];
  const typesOf = (spans) => {
    const samples = spans.reduce((all, s) => all + s.samples, 0);
    return samples === 0
      ? []
      : allTypes.map((t) => {
          const n =
            t.short === "cpu" ? samples : Math.ceil(samples * (t.short === "alloc" ? 1.7 : 0.2));
          return { id: t.id, name: t.name, unit: t.unit, samples: n, total: n * t.scale };
        });
  };
  const profile = (q) => {
    const { spans, span } = selectionOf(q);
    const type = types[q.type] ? q.type : cpuType;
    const big = q.query?.includes("stock.reconcile-all");
    const trie = big
      ? largeStacks(20000, types[type].scale)
      : trieOf(stacksOf(spans, type), types[type].scale);
    const flame = flamebearer(trie);
    merge(flame, q);
    const samples = Math.round(flame.numTicks / types[type].scale);
    return {
      types: big ? [{ ...types[cpuType], samples, total: flame.numTicks }] : typesOf(spans),
      type,
      unit: types[type].unit,
      average: false,
      flamebearer: flame,
      samples,
      why_empty: flame.numTicks ? null : whyEmpty(span),
      why_span: null,
      cut: null,
    };
  };
  const formats = {
    folded: ["text/plain", "folded.txt"],
    pprof: ["application/octet-stream", "pprof.pb.gz"],
    speedscope: ["application/json", "speedscope.json"],
  };
  const answers = {
    status: () => ({
      version: "0.1.0",
      started_unix_ns: ns(now - 5400e3),
      now_unix_ns: ns(now),
      generation: 1,
      store: {
        bytes: 183500800,
        max_bytes: 2147483648,
        partitions: 3,
        damaged: 0,
        unread: 0,
        spans: store.spans.length,
        samples: 412345,
        oldest_unix_ns: ns(now - 3600e3),
        newest_unix_ns: ns(now),
      },
    }),
    services: (q) => {
      const { spans } = select({ start: q.start, end: q.end });
      const services = new Map();
      for (const s of spans) {
        const entry = services.get(s.service) ?? services.set(s.service, new Map()).get(s.service);
        entry.set(s.name, (entry.get(s.name) ?? 0) + 1);
      }
      return {
        services: [...services].sort().map(([name, ops]) => ({
          name: render(name),
          spans: [...ops.values()].reduce((a, b) => a + b, 0),
          operations: [...ops]
            .sort((a, b) => b[1] - a[1])
            .map(([op, n]) => ({ name: render(op), spans: n })),
          profile_types: unknownService(name) ? [] : allTypes.map(({ id }) => id),
        })),
        cut: null,
      };
    },
    operations: (q) => {
      const { start, end } = select({ start: q.start, end: q.end });
      const before = start - (end - start);
      const points = 30;
      const rows = new Map();
      const row = (kind, service, name) => {
        const key = `${kind}\n${service}\n${name}`;
        if (!rows.has(key))
          rows.set(key, { kind, service, name, now: [], before: [], cpu: [0, 0], subtree: [0, 0] });
        return rows.get(key);
      };
      for (const s of store.spans)
        if (s.startMs >= before && s.startMs <= end) {
          const late = s.startMs >= start;
          const entry = row("operation", s.service, s.name);
          entry[late ? "now" : "before"].push(s);
          entry.cpu[late ? 0 : 1] += s.samples;
          const seen = new Set();
          for (let up = s; up?.service === s.service; up = up.parent) {
            const above = row("operation", up.service, up.name);
            if (!seen.has(above)) above.subtree[late ? 0 : 1] += s.samples;
            seen.add(above);
          }
        }
      // Two services also have samples outside of spans.
      for (const [service, samples] of empty
        ? []
        : [
            ["web", 40],
            ["stock", 7],
          ])
        for (const sums of ["cpu", "subtree"]) row("outside", service, "")[sums][0] = samples;
      const sums = (spans, samples) => ({
        spans: spans.length,
        errors: spans.filter((s) => s.error).length,
        samples,
        cpu_ns: samples * 10e6,
      });
      const period = (spans, samples, subtree) => {
        const d = spans.map((s) => Math.round(s.durationMs * 1e6)).sort((a, b) => a - b);
        const at = (p) => d[Math.max(0, Math.ceil(p * d.length) - 1)] ?? 0;
        const percentiles = { p50_ns: at(0.5), p95_ns: at(0.95), p99_ns: at(0.99), max_ns: at(1) };
        return { ...sums(spans, samples), subtree_cpu_ns: subtree * 10e6, ...percentiles };
      };
      const all = [...rows.values()];
      const total = (side, i) =>
        sums(
          all.flatMap((r) => r[side]),
          all.reduce((sum, r) => sum + r.cpu[i], 0),
        );
      const step = (end - start) / points;
      const words = plain(q.filter ?? "")
        .toLowerCase()
        .split(" ");
      const list = all
        .filter((r) => words.every((w) => `${r.service}\n${r.name}`.toLowerCase().includes(w)))

        .sort(
          (a, b) =>
            b.subtree[0] - a.subtree[0] || a.cpu[0] - b.cpu[0] || b.now.length - a.now.length,
        );
      const limit = Number(q.limit || 1000);
      return {
        start_unix_ns: ns(start),
        end_unix_ns: ns(end),
        step_ns: Math.round(step * 1e6),
        before_unix_ns: ns(before),
        before_complete: before >= now - 3600e3,
        percentile_error: 0.015625,
        total: total("now", 0),
        total_before: total("before", 1),
        operations: list.slice(0, limit).map((r) => {
          const steps = new Array(points).fill(0);
          for (const s of r.now)
            steps[Math.min(points - 1, Math.floor((s.startMs - start) / step))]++;
          return {
            kind: r.kind,
            service: render(r.service),
            name: r.kind === "operation" ? render(r.name) : "",
            ...period(r.now, r.cpu[0], r.subtree[0]),
            steps: r.now.length ? steps : [],
            before: period(r.before, r.cpu[1], r.subtree[1]),
          };
        }),
        left_out: Math.max(0, list.length - limit),
        cut: null,
      };
    },
    spans: (q) => {
      const key = JSON.stringify({ ...q, limit: "", after: "" });
      if (sorted.key !== key) {
        const order =
          { start: (a, b) => b.startMs - a.startMs, cpu: (a, b) => b.samples - a.samples }[
            q.sort
          ] ?? ((a, b) => b.durationMs - a.durationMs);
        sorted = { key, spans: [...select(q).spans].sort(order) };
      }
      let { spans } = sorted;
      const limit = Math.min(Number(q.limit ?? 100), 1000);
      const from = Number(q.after || 0);
      const next = from + limit < spans.length ? String(from + limit) : null;
      return { spans: spans.slice(from, from + limit).map(briefOf), next, cut: null };
    },
    heat: (q) => {
      const { spans, start, end } = select(q);
      const steps = Math.min(Number(q.points ?? 100), 200);
      const first = BigInt(ns(start));
      const step = Number((BigInt(ns(end)) - first) / BigInt(steps)) + 1;
      // Two ranges per power of ten, from the shortest to the longest span.
      const rangeOf = (s) =>
        Math.floor(2 * Math.log10(Math.max(1, Math.round(s.durationMs * 1e6))));
      const edge = (i) => Math.ceil(10 ** (i / 2));
      const ranges = spans.map(rangeOf);
      const [low, high] = [Math.min(...ranges), Math.max(...ranges) + 1];
      const empties = () => new Array(spans.length ? (high - low) * steps : 0).fill(0);
      const out = { spans: empties(), errors: empties(), cpu: empties() };
      spans.forEach((s, i) => {
        const column = Math.min(steps - 1, Number((BigInt(ns(s.startMs)) - first) / BigInt(step)));
        const cell = (ranges[i] - low) * steps + column;
        out.spans[cell]++;
        out.errors[cell] += s.error ? 1 : 0;
        out.cpu[cell] += s.samples * 10e6;
      });
      return {
        start_unix_ns: ns(start),
        end_unix_ns: ns(end),
        step_ns: step,
        steps,
        total: { spans: spans.length, errors: spans.filter((s) => s.error).length },
        durations_ns: spans.length
          ? Array.from({ length: high - low + 1 }, (_, i) => edge(low + i))
          : [],
        spans: out.spans,
        errors: out.errors,
        cpu_ns: q.cpu === "true" ? out.cpu : null,
        why_no_cpu: null,
        cut: null,
      };
    },
    differences: (q) => {
      const { spans } = select(q);
      const within = inBox(q);
      const sides = [spans.filter(within), spans.filter((s) => !within(s))];
      const counts = new Map();
      sides.forEach((list, side) => {
        for (const s of list)
          for (const [attribute, value, condition] of [
            ["name", s.name, `name = ${JSON.stringify(s.name)}`],
            ["resource.service.name", s.service, `resource.service.name = "${s.service}"`],
            ["status", s.error ? "error" : "unset", `status = ${s.error ? "error" : "unset"}`],
          ]) {
            if (!counts.has(condition))
              counts.set(condition, { attribute, value, condition, n: [0, 0] });
            counts.get(condition).n[side]++;
          }
      });
      const share = (n, i) => (sides[i].length ? n[i] / sides[i].length : 0);
      const list = [...counts.values()].map(({ attribute, value, condition, n }) => ({
        attribute,
        value: render(value),
        condition,
        selected: n[0],
        rest: n[1],
        selected_share: share(n, 0),
        rest_share: share(n, 1),
      }));
      const far = (one) => Math.abs(one.selected_share - one.rest_share);
      const [selected, rest] = sides.map(({ length: n }) => ({ spans: n, read: n }));
      return {
        selected,
        rest,
        values: list.length,
        attributes: list.sort((a, b) => far(b) - far(a)).slice(0, Number(q.limit || 40)),
        cut: null,
      };
    },
    timeline: (q) => {
      const { spans, start, end } = select(q);
      const points = Math.min(Number(q.points ?? 120), 1000);
      const step = (end - start) / points;
      const buckets = Array.from({ length: points }, () => []);
      for (const s of spans)
        buckets[Math.min(points - 1, Math.floor((s.startMs - start) / step))]?.push(s);
      return {
        step_ns: Math.round(step * 1e6),
        start_unix_ns: ns(start),
        cut: null,
        buckets: buckets.map((list) => {
          const d = list.map((s) => s.durationMs * 1e6).sort((a, b) => a - b);
          const at = (p) => Math.round(d[Math.min(d.length - 1, Math.floor(p * d.length))] ?? 0);
          return {
            spans: list.length,
            errors: list.filter((s) => s.error).length,
            p50_ns: at(0.5),
            p95_ns: at(0.95),
            max_ns: at(1),
            cpu_ns: list.reduce((all, s) => all + s.samples * 10e6, 0),
          };
        }),
      };
    },
    profile: (q) => profile(q),
    top: (q) => {
      const { spans } = selectionOf(q);
      const type = types[q.type] ? q.type : cpuType;
      const trie = trieOf(stacksOf(spans, type), types[type].scale);
      const rows = [...functionsOf(trie)].map(([full, v]) => {
        const [file, name] = splitName(full);
        return { name, file, ...v };
      });
      return {
        type,
        unit: types[type].unit,
        average: false,
        total: trie.total,
        functions: rows.sort((a, b) => b.self - a.self).slice(0, Number(q.limit ?? 20)),
        cut: null,
      };
    },
    diff: (q) => {
      const type = types[q.type] ? q.type : cpuType;
      const side = (text) =>
        trieOf(
          stacksOf(selectionOf(Object.fromEntries(new URLSearchParams(text))).spans, type),
          types[type].scale,
        );
      const flame = flamebearerOfDifference(side(q.left), side(q.right));
      merge(flame, q);
      const n = (ticks) => ({ total: ticks, samples: Math.round(ticks / types[type].scale) });
      return {
        type,
        unit: types[type].unit,
        average: false,
        flamebearer: flame,
        left: n(flame.leftTicks),
        right: n(flame.rightTicks),
        cut: null,
      };
    },
    slow: (q) => {
      const { spans } = select({
        ...q,
        service: q.of_service || q.service,
        name: q.of_name || q.name,
        q: inBox(q) ? q.q : "",
      });
      const chosen = inBox(q);
      const sorted = [...spans].sort((a, b) => a.durationMs - b.durationMs);
      const type = types[q.type] ? q.type : cpuType;
      const cut = (a, b) =>
        sorted.slice(Math.floor(sorted.length * a), Math.max(Math.floor(sorted.length * b), 0));
      const key = `${plain(q.service ?? "")}/${plain(q.name ?? "")}`;
      const below = (list) =>
        q.of_name ? list.flatMap((s) => within(s).filter((one) => one.key === key)) : list;
      const typical = below(chosen ? sorted.filter((s) => !chosen(s)) : cut(0.4, 0.6)),
        slow = below(chosen ? sorted.filter(chosen) : cut(0.95, 1));
      const trie = (list) =>
        trieOf(stacksOf(list.flatMap(localOf), type), types[type].scale / Math.max(1, list.length));
      const [l, r] = [trie(typical), trie(slow)];
      const ms = (value) => Math.round(value * 1e6);
      const mean = (list, of) => list.reduce((all, s) => all + of(s), 0) / Math.max(1, list.length);
      const describe = (list) => ({
        spans: list.length,
        min_duration_ns: ms(list[0]?.durationMs ?? 0),
        median_duration_ns: ms(list[list.length >> 1]?.durationMs ?? 0),
        compared: list.length,
        mean_duration_ns: ms(mean(list, (s) => s.durationMs)),
        cpu_ns_per_span: ms(
          mean(list, (s) => localOf(s).reduce((all, one) => all + one.samples * 10, 0)),
        ),
        examples: [...list]
          .sort((x, y) => y.durationMs - x.durationMs)
          .slice(0, 5)
          .map((s) => ({
            trace_id: s.trace.id,
            span_id: s.id,
            duration_ns: ms(s.durationMs),
          })),
      });
      const divided = [typical, slow].map((list) => list.map(partsOf));
      const fewest = Math.max(1, Math.min(typical.length, slow.length));
      const part = (kind, [service, name], of, callsOf = () => 0, least = 0) => {
        const values = divided.map((list) => list.map(of));
        const [before, after] = values.map((list) => ms(mean(list, (v) => v)));
        const error = values.reduce((all, list) => {
          const middle = mean(list, (v) => v);
          const squares = list.reduce((sum, v) => sum + (v - middle) ** 2, 0);
          return all + squares / Math.max(1, list.length - 1) / Math.max(1, list.length);
        }, 0);
        return {
          kind,
          service: service && render(service),
          name: name && render(name),
          typical_ns: before,
          slow_ns: after,
          delta_ns: after - before,
          noise_ns: Math.max(ms(2 * Math.sqrt(error)), ms(least)),
          typical_calls: mean(divided[0], callsOf),
          slow_calls: mean(divided[1], callsOf),
        };
      };
      const keys = [...new Set(divided.flat().flatMap(({ parts }) => [...parts.keys()]))];
      const cpuOf = (d) => Math.min(d.samples * 10, d.restMs);
      const few = (3 * 10) / fewest;
      const parts = keys
        .map((k) =>
          part(
            "operation",
            [k.slice(0, k.indexOf("/")), k.slice(k.indexOf("/") + 1)],
            (d) => d.parts.get(k)?.[0] ?? 0,
            (d) => d.parts.get(k)?.[1] ?? 0,
          ),
        )
        .sort((x, y) => Math.abs(y.delta_ns) - Math.abs(x.delta_ns));
      parts.push(
        part("cpu", ["", ""], cpuOf, undefined, few),
        part("unexplained", ["", ""], (d) => d.restMs - cpuOf(d), undefined, few),
      );
      const sample = (list) => types[type].scale / Math.max(1, list.length);
      const noise = (a, b) =>
        Math.ceil(
          Math.max(
            3 * Math.max(sample(typical), sample(slow)),
            2 * Math.sqrt(a * sample(typical) + b * sample(slow)),
          ),
        );
      const [a, b] = [functionsOf(l), functionsOf(r)];
      const functions = [...new Set([...a.keys(), ...b.keys()])]
        .map((full) => ({
          name: splitName(full)[1],
          typical_per_span: Math.round(a.get(full)?.self ?? 0),
          slow_per_span: Math.round(b.get(full)?.self ?? 0),
        }))
        .map((f) => ({
          ...f,
          delta: f.slow_per_span - f.typical_per_span,
          noise: noise(f.typical_per_span, f.slow_per_span),
        }))
        .sort((x, y) => Math.abs(y.delta) - Math.abs(x.delta))
        .slice(0, 50);
      const flame = flamebearerOfDifference(l, r);
      merge(flame, q);
      return {
        slow: describe(slow),
        typical: describe(typical),
        parts,
        type,
        unit: types[type].unit,
        sample: { typical: sample(typical), slow: sample(slow) },
        flamebearer: flame,
        functions,
        why_empty: flame.numTicks
          ? null
          : `The spans of this operation have no samples: ${render(q.service ?? "the service")} sends profiles without span ids, or none at all.`,
        cut: null,
      };
    },
    join: () => ({
      cut: null,
      services: [...new Set(store.spans.map((s) => s.service))].sort().map((name, i) => {
        const list = store.spans.filter((s) => s.service === name);
        const samples = list.reduce((all, s) => all + s.samples, 0);
        const row = {
          name: render(name),
          spans: list.length,
          spans_with_samples: list.filter((s) => s.samples).length,
          samples,
          samples_with_span: samples,
          samples_of_unknown_span: 0,
          samples_ambiguous: 0,
          median_skew_ns: i ? (i * 7919) % 400000 : null,
          hint: null,
        };
        if (name === "cart")
          Object.assign(row, {
            samples: 18230,
            hint: `Profiles of ${row.name} come without span ids: add the Pyroscope SDK's span bridge, or turn "infer" on in the join.`,
          });
        if (name === "mail")
          row.hint = `No profile of ${row.name} has come in this range: start a profiler beside it.`;
        if (name === "payment")
          Object.assign(row, {
            samples: samples + 960,
            samples_with_span: samples + 930,
            samples_of_unknown_span: 930,
            median_skew_ns: 184e6,
            hint: "A tenth of the samples name spans that never came: is the tracer sampling more than the profiler?",
          });
        return row;
      }),
    }),
  };
  answers.privacy = (q) => {
    const { spans } = select({ start: q.start, end: q.end });
    const mask = "[REDACTED]";
    const of = (key) => spans.find((s) => s.key === key);
    const found = (place, key, kind, span, n, example) =>
      span && {
        place,
        key: render(key),
        kind,
        service: render(span.service),
        example: render(example),
        count: n,
        ...(["resource", "label", "path"].includes(place)
          ? {}
          : { trace_id: span.trace.id, span_id: span.id }),
      };
    const web = spans.filter((s) => s.kind === "server" && s.service === "web"),
      failed = spans.filter((s) => s.error),
      db = spans.filter((s) => /^(SELECT|UPDATE)/.test(s.name));
    const order = of("checkout/order.calculate_totals");
    return {
      kinds: privacyKinds,
      found: [
        web.length &&
          found("span", "client.address", "person, by its key", web[0], web.length, mask),
        db.length &&
          found("span", "db.query.text", "statement or query, by its key", db[0], db.length, mask),
        failed.length &&
          found(
            "event",
            "exception.message",
            "mail address",
            failed[0],
            Math.ceil(failed.length / 3),
            `no account for ${mask}`,
          ),
        order && found("label", "session_id", "secret, by its key", order, 3, mask),
        order && found("path", "", "home folder", order, 4, `${mask}/shop/rules/engine.py`),
      ].filter(Boolean),
      looked_at: {
        spans: Math.min(spans.length, 5000),
        series: spans.length ? 14 : 0,
        functions: spans.length ? 812 : 0,
      },
      processors: spans.length ? ["redaction"] : [],
      masked: spans.length
        ? [
            [
              "span",
              "payment.card",
              "blocked_values: 4[0-9]{12}(?:[0-9]{3})?",
              `card ${mask}, valid`,
              4711,
            ],
            [
              "span",
              "db.password",
              "blocked_key_words: password, secret, credential, token",
              mask,
              96,
            ],
            ["resource", "host.ip", "allowed_keys", "", 312],
            [
              "function",
              "",
              "function_names.words: acme_internal",
              `com.${mask}.pricing.Margin.of`,
              28,
            ],
          ].map(([place, key, rule, became, n], i) => ({
            processor: "redaction",
            place,
            key: render(key),
            rule: render(rule),
            became: render(became),
            count: n,
            last_unix_ns: ns(now - 1000 * (i * 37 + 2)),
          }))
        : [],
      masked_left_out: 0,
      cut: null,
    };
  };
  const attributesOf = (span) => {
    const random = randomOf(parseInt(span.id.slice(0, 8), 16));
    const out = [];
    if (span.kind === "server" && span.service === "web")
      out.push(
        ["http.request.method", span.name.split(" ")[0]],
        ["url.path", span.name.split(" ")[1]],
        ["http.response.status_code", span.error ? 500 : 200],
        ["client.address", `10.3.${Math.floor(random() * 255)}.${Math.floor(random() * 255)}`],
        ["user_agent.original", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"],
        ["http.request.header.accept", ["text/html", "application/json"]],
      );
    else if (/^(SELECT|UPDATE|HGETALL)/.test(span.name))
      out.push(
        ["db.system.name", span.name.startsWith("HG") ? "redis" : "postgresql"],
        ["db.query.text", `${span.name} WHERE customer_id = $1 AND valid_to > now()`],
        ["db.response.returned_rows", Math.floor(random() * 900)],
      );
    else
      out.push(
        ["rpc.system", "grpc"],
        ["rpc.method", span.name],
        ["order.items", 1 + Math.floor(random() * 12)],
        ["customer.vip", random() < 0.2],
        ["discount.rules", span.isSlow ? 1204 : 12],
      );
    if (span.samples)
      out.push(
        ["profile.sample_count", span.samples],
        ["profile.type", "cpu"],
        ["pyroscope.profile.id", span.id],
      );
    return out.map(([key, value]) => ({
      key: render(key),
      value: typeof value === "string" ? render(value) : value,
    }));
  };
  const traceAnswer = (trace) => {
    const services = [...new Set(trace.spans.map((s) => s.service))];
    return {
      trace_id: trace.id,
      cut: null,
      resources: services.map((name) => ({
        service: render(name),
        attributes: [
          ["service.name", name],
          ["service.version", "2.14.0"],
          ["host.name", `${name}-7c9d-x2kql`],
          ["process.pid", 17],
          ["telemetry.sdk.language", { checkout: "python", payment: "java" }[name] ?? "go"],
        ].map(([key, value]) => ({
          key: render(key),
          value: typeof value === "string" ? render(value) : value,
        })),
      })),
      spans: trace.spans.map((s) => {
        const { trace_id: _, ...brief } = briefOf(s);
        return {
          ...brief,
          resource: services.indexOf(s.service),
          status_message: s.error ? render("acquirer refused: card_declined (do not honour)") : "",
          scope: render(`shop/${s.service}`),
          attributes: attributesOf(s),
          events: s.error
            ? [
                {
                  time_unix_ns: ns(s.startMs + s.durationMs * 0.8),
                  name: render("exception"),
                  attributes: [
                    { key: render("exception.type"), value: render("CardDeclined") },
                    { key: "exception.message", value: render("do not honour") },
                    {
                      key: "exception.stacktrace",
                      value: render(
                        'Traceback (most recent call last):\n  File "/srv/shop/orders.py", line 214, in place\n  File "/srv/shop/payments.py", line 88, in charge\nCardDeclined: do not honour',
                      ),
                    },
                  ],
                },
              ]
            : [],
          links:
            s.name === "mail.Send"
              ? [
                  {
                    trace_id: [...store.byTrace.keys()][1],
                    span_id: "b7ad6b7169203331",
                    attributes: [{ key: render("messaging.operation"), value: render("send") }],
                  },
                ]
              : [],
        };
      }),
    };
  };

  const otlpOf = (trace) => ({
    resourceSpans: trace.spans.map((s) => ({
      resource: {
        attributes: [{ key: "service.name", value: { stringValue: render(s.service) } }],
      },
      scopeSpans: [
        {
          scope: { name: render(`shop/${s.service}`) },
          spans: [
            {
              traceId: trace.id,
              spanId: s.id,
              ...(s.parent ? { parentSpanId: s.parent.id } : {}),
              name: render(s.name),
              startTimeUnixNano: ns(s.startMs),
              endTimeUnixNano: String(
                BigInt(ns(s.startMs)) + BigInt(Math.round(s.durationMs * 1e6)),
              ),
            },
          ],
        },
      ],
    })),
  });

  const requests = [];
  const tails = new Set();
  // Tags, and the values of some of them, as Tempo's API returns them.
  const tagsOf = () => [
    { name: "span", tags: ["http.route", "http.method", "db.statement", 'a "quoted" name'] },
    { name: "resource", tags: ["service.name", "host.name"] },
    { name: "intrinsic", tags: ["name", "status", "duration"] },
  ];
  const valuesOf = (tag, q) => {
    const { spans } = select({ start: q.start, end: q.end });
    const of = {
      name: (s) => s.name,
      "resource.service.name": (s) => s.service,
      status: (s) => (s.error ? "error" : "unset"),
      "span.http.route": () => '/a "quoted" \\ route',
      "span.http.method": () => "GET",
    }[tag];
    const type = tag === "status" ? "keyword" : "string";
    const values = of ? [...new Set(spans.map(of))] : [];
    return { tagValues: values.sort().map((value) => ({ type, value: render(value) })) };
  };
  const server = createServer(async (request, response) => {
    const url = new URL(request.url, "http://localhost");
    const q = Object.fromEntries(url.searchParams);
    requests.push(url.pathname + url.search);
    const send = (status, type, body, headers = {}) => {
      const zip =
        Buffer.byteLength(body) > 1000 && /gzip/.test(request.headers["accept-encoding"] ?? "");
      response.writeHead(status, {
        "content-type": type,
        ...(zip ? { "content-encoding": "gzip" } : {}),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        ...headers,
      });
      response.end(zip ? gzipSync(body) : body);
    };
    try {
      const tempo = /^\/api\/v2\/search\/(?:tags|tag\/([^/]+)\/values)$/.exec(url.pathname);
      if (tempo) {
        const answer = tempo[1] ? valuesOf(decodeURIComponent(tempo[1]), q) : { scopes: tagsOf() };
        return send(200, "application/json", JSON.stringify(answer));
      }
      if (!url.pathname.startsWith("/api/braid/")) {
        const path = normalize(url.pathname === "/" ? "/index.html" : url.pathname);
        const file = join(dist, path);
        if (path.includes("..") || !existsSync(file)) return send(404, "text/plain", "not found");
        return send(200, mime[extname(file)] ?? "application/octet-stream", readFileSync(file), {
          "content-security-policy": csp,
          "cache-control": "no-cache",
        });
      }
      if (delayMs) await new Promise((done) => setTimeout(done, delayMs));
      const path = url.pathname.slice("/api/braid/".length);
      if (path === "session")
        return send(200, "application/json", JSON.stringify({ required: false, session: false }));
      if (path === "slice")
        return send(200, "application/x-tar", "made up by the mock\n", {
          "content-disposition": 'attachment; filename="braid-20261122-150000.tar"',
        });
      if (path === "tail") {
        const fit = select({ ...q, start: "0" }).spans;
        response.writeHead(200, {
          "content-type": "text/event-stream",
          "cache-control": "no-store",
        });
        let i = 0;
        const timer = setInterval(() => {
          const list = Array.from(
            { length: Math.min(tailSpans, fit.length) },
            (_, at) => fit[(i * 977 + at * 13) % fit.length],
          );
          i++;
          response.write(
            `event: spans\ndata: ${JSON.stringify(list.map((s) => ({ ...briefOf(s), start_unix_ns: ns(now + i * 500) })))}\n\n`,
          );
        }, tailMs);
        tails.add(response);
        response.on("close", () => {
          clearInterval(timer);
          tails.delete(response);
        });
        return;
      }
      const ofOtlp = /^traces\/(\w+)\/otlp$/.exec(path);
      if (ofOtlp)
        return send(200, "application/json", JSON.stringify(otlpOf(store.byTrace.get(ofOtlp[1]))), {
          "content-disposition": `attachment; filename="${ofOtlp[1]}.json"`,
        });
      const ofSpan = /^spans\/(\w+)\/(\w+)\/profile$/.exec(path);
      const ofTrace = /^traces\/(\w+)$/.exec(path);
      let answer;
      if (ofSpan)
        answer = profile({ ...q, trace: ofSpan[1], span: ofSpan[2], scope: q.scope ?? "self" });
      else if (ofTrace) {
        const trace = store.byTrace.get(ofTrace[1]);
        if (!trace)
          return send(
            404,
            "application/json",
            JSON.stringify({
              error: `There is no trace ${ofTrace[1]} in the store: its spans never came, or retention removed them.`,
            }),
          );
        answer = traceAnswer(trace);
      } else if (answers[path]) answer = answers[path](q);
      else
        return send(
          404,
          "application/json",
          JSON.stringify({ error: `There is no ${url.pathname}.` }),
        );
      if (q.format && formats[q.format])
        return send(200, formats[q.format][0], "made up by the mock\n", {
          "content-disposition": `attachment; filename="profile.${formats[q.format][1]}"`,
        });
      send(200, "application/json", JSON.stringify(answer));
    } catch (error) {
      send(error.status ?? 400, "application/json", JSON.stringify({ error: error.message }));
    }
  });
  await new Promise((done) => server.listen(port, host, done));
  const bound = server.address().port;
  return {
    port: bound,
    url: `http://${host === "127.0.0.1" ? "localhost" : host}:${bound}/`,
    store,
    requests,
    tails,
    close: () => {
      server.closeAllConnections();
      return new Promise((done) => server.close(done));
    },
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const option = (name) => {
    const i = process.argv.indexOf(name);
    return i < 0 ? undefined : process.argv[i + 1];
  };
  const mock = await startMock({
    port: Number(option("--port") ?? 3200),
    hostile: process.argv.includes("--hostile"),
    empty: process.argv.includes("--empty"),
    now: option("--now") ? Date.parse(option("--now")) : Date.now(),
  });
  console.log(mock.url);
}
