// SPDX-License-Identifier: Apache-2.0
// Shows one trace: the waterfall above, the selected span below.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { url, useResponse } from "../api";
import type { Trace } from "../openapi";
import { count, day, clock, duration, isolate, zoneName } from "../format";
import { useKeys } from "../keys";
import { Cut, Empty, Failed, Icon, Loading, Name, SearchField, Skeleton } from "../parts/basics";
import { traceFile } from "../parts/export";
import {
  carried,
  go,
  href,
  remember,
  remembered,
  set,
  useDark,
  useOwnTime,
  type Query,
} from "../state";
import { Details } from "../trace/details";
import { cpuByService, grow, matching, rowsOf, type Node, type Tree } from "../trace/model";
import { Waterfall } from "../trace/waterfall";

/** Number of services whose CPU time the header shows. */
const CPU_SERVICES = 4;

export function TraceView({ id, query }: { id: string; query: Query }) {
  const { data, error, loading } = useResponse<Trace>(url(`traces/${encodeURIComponent(id)}`));
  if (error)
    return (
      <main class="view" id="main">
        <h1 class="hidden">Trace</h1>
        <Failed error={error} />
      </main>
    );
  if (!data)
    return (
      <main class="view" id="main">
        <h1 class="hidden">Trace</h1>
        <Loading on={loading} />
        <Skeleton rows={16} />
      </main>
    );
  if (!data.spans.length)
    return (
      <main class="view" id="main">
        <h1 class="hidden">Trace</h1>
        <Empty title="An empty trace" icon="search">
          The store contains this trace, but none of its spans.
        </Empty>
      </main>
    );
  return <Loaded trace={data} query={query} loading={loading} />;
}

function Loaded({ trace, query, loading }: { trace: Trace; query: Query; loading: boolean }) {
  const dark = useDark();
  const clocks = query.clocks !== "0";
  const tree = useMemo(() => grow(trace, clocks), [trace, clocks]);
  const matches = useMemo(
    () => matching(tree, trace, query.search ?? ""),
    [tree, trace, query.search],
  );
  const [collapsed, setOnly] = useState<Set<string>>(() => readCollapsed(tree, query.closed));
  const setCollapsed = (next: Set<string>): void => {
    setOnly(next);
    set({ closed: writeCollapsed(tree, next) }, true);
  };
  const rows = useMemo(() => rowsOf(tree, collapsed), [tree, collapsed]);
  const chosen = tree.byId.get(query.span ?? "") ?? tree.busiest;
  const critical = query.critical !== "0";
  const [from, to] = useMemo(() => {
    const [a, b] = (query.part ?? "").split("-").map(Number);
    return b > a ? [a, Math.min(b, tree.duration)] : [0, tree.duration];
  }, [query.part, tree]);

  const choose = (node: Node): void => {
    const hidden = new Set(collapsed);
    for (let up = node.parent; up; up = up.parent) hidden.delete(up.span.span_id);
    if (hidden.size !== collapsed.size) setCollapsed(hidden);
    // Zoom and selection of the previous span's profile do not apply to this one.
    set(
      {
        span: node.span.span_id,
        zoom: "",
        of: "",
        ...(node === chosen ? {} : { scope: query.scope === "trace" ? "trace" : "" }),
      },
      true,
    );
  };
  const toggle = (node: Node, open?: boolean): void => {
    const next = new Set(collapsed);
    const close = open === undefined ? !next.has(node.span.span_id) : !open;
    if (close && node.children.length) next.add(node.span.span_id);
    else next.delete(node.span.span_id);
    setCollapsed(next);
  };
  const next = (step: number, wanted: (node: Node) => boolean): void => {
    const n = tree.nodes.length;
    for (let i = 1; i <= n; i++) {
      const node = tree.nodes[(chosen.index + step * i + n * i) % n];
      if (wanted(node)) {
        choose(node);
        return;
      }
    }
  };
  const isMatch = (node: Node): boolean =>
    matches ? matches.has(node) : node.span.status === "error";
  useKeys({
    "/": () => document.getElementById("search")?.focus(),
    ArrowDown: () => (
      document.querySelector<HTMLElement>(".waterfall")?.focus(),
      choose(rows[Math.min(rows.length - 1, rows.indexOf(chosen) + 1)])
    ),
    ArrowUp: () => (
      document.querySelector<HTMLElement>(".waterfall")?.focus(),
      choose(rows[Math.max(0, rows.indexOf(chosen) - 1)])
    ),
    n: () => next(1, isMatch),
    p: () => next(-1, isMatch),
    b: () => next(1, (node) => (node.span.profile?.samples ?? 0) > 0),
    c: () => set({ critical: critical ? "0" : "" }, true),
    Escape: () => {
      if (query.search) set({ search: "" }, true);
      else if (query.of) set({ of: "" }, true);
      else if (query.zoom) set({ zoom: "" }, true);
      else if (query.part) set({ part: "" }, true);
      else go("spans", carried(query));
    },
  });
  const { root } = tree;
  const cpu = useMemo(() => cpuByService(tree), [tree]);
  const allCollapsed = collapsed.size > 0;
  const profileOf = (service: string): string =>
    href("profile", {
      trace: trace.trace_id,
      span: root.span.span_id,
      scope: "trace",
      service,
      of_service: root.span.service,
      of_name: root.span.name,
    });
  const startMs = Number(tree.startUnixNs / 1000000n);
  useOwnTime(startMs, startMs + Math.ceil(tree.duration / 1e6) + 1);
  return (
    <main class="view trace-view" id="main">
      <Loading on={loading} />
      <header class="title">
        <h1>
          <bdi class="quiet">{root.span.service}</bdi> <bdi>{root.span.name}</bdi>
          {root.span.parent_id && <span class="quiet"> (the root span is missing)</span>}
        </h1>
        <dl>
          <div>
            <dt>Duration</dt>
            <dd>{duration(tree.duration)}</dd>
          </div>
          <div>
            <dt>Spans</dt>
            <dd>{count(tree.nodes.length)}</dd>
          </div>
          <div>
            <dt>Services</dt>
            <dd>{tree.services.length}</dd>
          </div>
          <div class={tree.errors ? "failed" : ""}>
            <dt>Errors</dt>
            <dd>{count(tree.errors)}</dd>
          </div>
          <div>
            <dt>With samples</dt>
            <dd>{count(tree.withSamples)}</dd>
          </div>
          {cpu.length > 0 && (
            <div class="trace-cpu">
              <dt>CPU of its spans</dt>
              <dd>
                <a href={profileOf("")}>{duration(cpu.reduce((sum, [, ns]) => sum + ns, 0))}</a>
                {cpu.slice(0, CPU_SERVICES).map(([service, ns]) => (
                  <a
                    key={service}
                    href={profileOf(service)}
                    title={`CPU time of ${isolate(service)}`}
                  >
                    <Name text={service} /> {duration(ns)}
                  </a>
                ))}
                {cpu.length > CPU_SERVICES && (
                  <span class="quiet">and {cpu.length - CPU_SERVICES} more</span>
                )}
              </dd>
            </div>
          )}
          <div>
            <dt>Began</dt>
            <dd>
              {day(startMs)} {clock(startMs)} <small>{zoneName(startMs)}</small>
            </dd>
          </div>
        </dl>
        <span class="mono trace-id" title="Trace id">
          {trace.trace_id}
        </span>
      </header>
      <div class="toolbar">
        <SearchField
          id="search"
          label="Find a span: name, service, attribute"
          value={query.search ?? ""}
          onInput={(search) => set({ search }, true)}
          found={matches && `${count(matches.size)} of ${count(tree.nodes.length)}`}
          onKey={(key) => key === "Enter" && next(1, isMatch)}
        />
        <button
          type="button"
          class="button"
          aria-pressed={critical}
          title="Critical path: spans that determined the duration of the trace (c)"
          onClick={() => set({ critical: critical ? "0" : "" }, true)}
        >
          <i class="critical-key" /> Critical path
        </button>
        {(tree.moved > 0 || !clocks) && (
          <button
            type="button"
            class="button"
            aria-pressed={clocks}
            title="Moves spans whose host has another clock into their parents"
            onClick={() => set({ clocks: clocks ? "0" : "" }, true)}
          >
            <Icon name="clock" /> Correct clocks
            {tree.moved > 0 && <small class="count">{count(tree.moved)}</small>}
          </button>
        )}
        <button
          type="button"
          class="button"
          onClick={() => setCollapsed(allCollapsed ? new Set() : allBelowRoots(tree))}
        >
          {allCollapsed ? "Expand all" : "Collapse all"}
        </button>
        {tree.errors > 0 && (
          <button
            type="button"
            class="button"
            onClick={() => next(1, (node) => node.span.status === "error")}
            title="Next error (n)"
          >
            <span class="mark-error">!</span> Next error
          </button>
        )}
        {tree.withSamples > 0 && (
          <button
            type="button"
            class="button"
            onClick={() => next(1, (node) => (node.span.profile?.samples ?? 0) > 0)}
            title="Next span with samples (b)"
          >
            <span class="badge">
              <Icon name="flame" />
            </span>{" "}
            Next profile
          </button>
        )}
        <div class="toolbar-rest">
          <a class="button" href={profileOf("")}>
            Profile of the trace
          </a>
          <a
            class="button square"
            href={traceFile(trace.trace_id)}
            download
            aria-label="Export the trace as OTLP JSON"
            title="Export the trace as OTLP JSON"
          >
            <Icon name="export" />
          </a>
        </div>
      </div>
      <Cut text={trace.cut} />
      {tree.orphans > 0 && (
        <Cut
          text={`${count(tree.orphans)} spans name a parent that is not here; they stand at the top.`}
        />
      )}
      <Split
        above={
          <Waterfall
            tree={tree}
            rows={rows}
            chosen={chosen}
            matches={matches}
            collapsed={collapsed}
            critical={critical}
            dark={dark}
            from={from}
            to={to}
            onChoose={choose}
            onToggle={toggle}
            onRange={(a, b) =>
              set(
                { part: a <= 0 && b >= tree.duration ? "" : `${Math.round(a)}-${Math.round(b)}` },
                true,
              )
            }
            onOpen={() => document.querySelector<HTMLElement>(".details .flame")?.focus()}
          />
        }
        rows={rows.length}
        below={<Details node={chosen} trace={trace} query={query} />}
      />
    </main>
  );
}

const allBelowRoots = (tree: Tree): Set<string> =>
  new Set(
    tree.nodes
      .filter((node) => node.children.length && node.depth >= 1)
      .map((node) => node.span.span_id),
  );

const readCollapsed = (tree: Tree, text = ""): Set<string> =>
  text === "all"
    ? allBelowRoots(tree)
    : new Set(text.split(",").filter((id) => tree.byId.get(id)?.children.length));

/** Returns the collapsed spans for the link, or nothing if the link would become too long. */
function writeCollapsed(tree: Tree, collapsed: Set<string>): string {
  if (collapsed.size <= 40) return [...collapsed].join(",");
  return collapsed.size === allBelowRoots(tree).size ? "all" : "";
}

/** Two parts with a border that can be moved with the mouse or the keyboard. */
function Split({
  above,
  below,
  rows,
}: {
  above: preact.ComponentChildren;
  below: preact.ComponentChildren;
  rows: number;
}) {
  const box = useRef<HTMLDivElement>(null);
  const fit = Math.min(46, Math.max(24, 9 + rows * 2.6));
  const [share, setShare] = useState(Number(remembered("split")) || fit);
  const choose = (value: number): void => {
    const next = Math.min(80, Math.max(15, value));
    setShare(next);
    remember("split", next.toFixed(1));
  };
  useEffect(() => {
    box.current?.style.setProperty("--above", `${share}%`);
  }, [share]);
  return (
    <div class="split" ref={box}>
      {above}
      <div
        class="splitter"
        role="separator"
        aria-orientation="horizontal"
        aria-label="Height of the waterfall"
        aria-valuenow={Math.round(share)}
        aria-valuemin={15}
        aria-valuemax={80}
        tabIndex={0}
        onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
        onPointerMove={(event) => {
          if (!event.currentTarget.hasPointerCapture(event.pointerId) || !box.current) return;
          const place = box.current.getBoundingClientRect();
          choose(((event.clientY - place.top) / place.height) * 100);
        }}
        onKeyDown={(event) => {
          const step = event.key === "ArrowUp" ? -4 : event.key === "ArrowDown" ? 4 : 0;
          if (!step) return;
          event.preventDefault();
          event.stopPropagation();
          choose(share + step);
        }}
      />
      {below}
    </div>
  );
}
