// SPDX-License-Identifier: Apache-2.0
// Lists slow spans, with filters and a chart over time. Each row links to the span's flame graph.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, url, useResponse } from "../api";
import type { Services, Span, Timeline, Spans as SpanList } from "../openapi";
import { serviceColor } from "../color";
import { clock, count, day, duration, milliseconds, percent } from "../format";
import { useKeys } from "../keys";
import {
  Cut,
  Empty,
  Failed,
  Icon,
  Loading,
  Segments,
  Select,
  Skeleton,
  TextField,
  useWindow,
} from "../parts/basics";
import { NoData } from "../parts/nodata";
import { Strip } from "../parts/strip";
import { carried, go, href, range, set, useDark, useRefreshed, type Query } from "../state";

const rowHeight = 30;
const page = 1000; // most spans per response of the server
const most = 100000; // most spans in the list
const kept = 5000; // most spans in the live tail

const lengths: [string, string][] = [
  ["", "Any"],
  ["1ms", "1 ms"],
  ["10ms", "10 ms"],
  ["50ms", "50 ms"],
  ["100ms", "100 ms"],
  ["250ms", "250 ms"],
  ["500ms", "500 ms"],
  ["1s", "1 s"],
  ["5s", "5 s"],
];

export function Spans({ query }: { query: Query }) {
  const times = range(query);
  const services = useResponse<Services>(url("services", times));
  const list = services.data?.services ?? [];
  const service = list.find(({ name }) => name === query.service);
  const filter: Query = {
    service: query.service ?? "",
    name: query.name ?? "",
    q: query.q ?? "",
    min_duration: query.min ?? "",
    status: query.status ?? "",
  };
  const sort = query.sort === "start" || query.sort === "cpu" ? query.sort : "duration";
  const live = query.live === "1";
  const params = { ...filter, ...times, roots: query.roots ?? "", sort, limit: String(page) };
  const found = useResponse<SpanList>(live ? "" : url("spans", params));
  const long = useMore(found.data?.spans ?? none, params);
  const line = useResponse<Timeline>(
    url("timeline", { service: filter.service, name: filter.name, ...times, points: "120" }),
  );
  const tail = useTail(live, { ...filter, roots: query.roots ?? "" });
  const spans = live ? tail.spans : long.spans;
  const invalid = query.q ? found.error || tail.refused : "";

  useKeys({
    "/": () => document.getElementById("traceql")?.focus(),
    l: () => set({ live: live ? "" : "1" }),
    t: () =>
      query.service &&
      query.name &&
      go("compare/slow", { service: query.service, name: query.name, ...carried(query) }),
    Escape: () => set({ service: "", name: "", q: "", min: "", status: "", roots: "" }),
  });
  const filtered = Object.values(filter).some(Boolean);
  return (
    <main class="view spans-view" id="main">
      <h1 class="hidden">Spans</h1>
      <div class="filters">
        <Select
          hide
          label="Service"
          value={query.service ?? ""}
          onChange={(name) => set({ service: name, name: "" })}
          options={[
            { value: "", text: "All services" },
            ...list.map(({ name, spans: n }) => ({ value: name, text: name, note: count(n) })),
          ]}
        />
        <Select
          hide
          label="Operation"
          value={query.name ?? ""}
          disabled={!query.service}
          onChange={(name) => set({ name })}
          options={[
            { value: "", text: query.service ? "All operations" : "All operations" },
            ...(service?.operations ?? []).map(({ name, spans: n }) => ({
              value: name,
              text: name,
              note: count(n),
            })),
          ]}
        />
        <Select
          label="At least"
          value={query.min ?? ""}
          onChange={(min) => set({ min })}
          options={lengths.map(([value, text]) => ({ value, text }))}
        />
        <Segments
          label="Status"
          value={query.status ?? ""}
          onChange={(status) => set({ status })}
          options={[
            ["", "All"],
            ["error", "Errors"],
            ["ok", "Ok"],
          ]}
        />
        <Segments
          label="Spans to list"
          value={query.roots ?? ""}
          onChange={(roots) => set({ roots })}
          options={[
            ["", "Spans"],
            ["true", "Roots"],
          ]}
        />
        <TextField
          id="traceql"
          label="TraceQL"
          hidden
          value={query.q ?? ""}
          onCommit={(q) => set({ q })}
          placeholder='TraceQL: { name = "order.place" && duration > 500ms }'
          wide
          invalid={invalid}
        />
        <button
          type="button"
          class={`button${live ? " live" : ""}`}
          aria-pressed={live}
          title="Live: show spans as they arrive (l)"
          onClick={() => set({ live: live ? "" : "1" })}
        >
          <Icon name={live ? "pause" : "play"} />
          Live
        </button>
      </div>
      <div class="strip-box">
        {line.data ? (
          <Strip
            data={line.data}
            onRange={(start, end) => set({ start: String(start), end: String(end) })}
          />
        ) : line.error ? (
          <p class="quiet strip-empty">{line.error}</p>
        ) : (
          <div class="strip-empty" />
        )}
      </div>
      {query.service && query.name && (
        <p class="offer">
          <Icon name="compare" />
          <a
            href={href("compare/slow", {
              service: query.service,
              name: query.name,
              ...carried(query),
            })}
          >
            Why are slow ones slow? Compare the slowest 5% of <b>{query.name}</b> with typical ones
          </a>
          <kbd>t</kbd>
        </p>
      )}
      <Loading on={found.loading && !live} />
      {live && tail.error && <Cut text={tail.error} />}
      {live && tail.refused && <Failed error={tail.refused} />}
      <Cut text={found.data?.cut} />
      {found.error && !live ? (
        <Failed error={found.error} />
      ) : !found.data && !live ? (
        <Skeleton rows={14} />
      ) : spans.length === 0 ? (
        live && tail.refused ? null : live ? (
          <Empty title="Waiting for spans" icon="clock">
            They appear here as they come{filtered ? " and fit the filters" : ""}.
          </Empty>
        ) : (
          <NoData
            onClear={
              filtered
                ? () => set({ service: "", name: "", q: "", min: "", status: "", roots: "" })
                : undefined
            }
          />
        )
      ) : (
        <SpanList
          spans={spans}
          query={query}
          sort={live ? "" : sort}
          onEnd={long.load}
          more={!live && long.more}
        />
      )}
    </main>
  );
}

const none: Span[] = [];

/**
 * Loads further pages of a long list while the user scrolls: spans that are shorter, or started
 * earlier, than the last one. Several spans can have the last one's value, so the next page starts
 * with that value and omits known spans.
 */
function useMore(first: Span[], params: Query): { spans: Span[]; more: boolean; load: () => void } {
  const [more, setMore] = useState<{ after: Span[]; spans: Span[]; end: boolean }>({
    after: none,
    spans: none,
    end: false,
  });
  const under = useRef(false);
  const current = more.after === first ? more : { after: first, spans: none, end: false };
  const spans = useMemo(
    () => (current.spans.length ? [...first, ...current.spans] : first),
    [first, current.spans],
  );
  const open = first.length >= page && !current.end && spans.length < most && params.sort !== "cpu";
  return {
    spans,
    more: open,
    load: () => {
      if (!open || under.current) return;
      under.current = true;
      const last = spans[spans.length - 1];
      const next =
        params.sort === "start"
          ? { ...params, end: String(BigInt(last.start_unix_ns) + 1n) }
          : { ...params, max_duration: `${last.duration_ns}ns` };
      get<SpanList>(url("spans", next))
        .then(
          (answer) => {
            const known = new Set(spans.slice(-page).map((span) => span.trace_id + span.span_id));
            const fresh = answer.spans.filter((span) => !known.has(span.trace_id + span.span_id));
            setMore({
              after: first,
              spans: [...current.spans, ...fresh].slice(0, most - first.length),
              end: fresh.length === 0,
            });
          },
          () => setMore({ ...current, end: true }),
        )
        .finally(() => (under.current = false));
    },
  };
}

function useTail(on: boolean, filter: Query): { spans: Span[]; error: string; refused: string } {
  const [spans, setSpans] = useState<Span[]>([]);
  const [error, setError] = useState("");
  const [refused, setRefused] = useState("");
  const address = url("tail", filter);
  const refreshed = useRefreshed();
  useEffect(() => {
    setSpans([]);
    setError("");
    setRefused("");
    if (!on) return undefined;
    const source = new EventSource(address);
    let waiting: Span[] = [];
    let timer = 0;
    source.addEventListener("spans", (event) => {
      try {
        const come = JSON.parse((event as MessageEvent<string>).data) as Span[];
        waiting.push(...come);
        if (performance.getEntriesByName("tail").length > 500) performance.clearMeasures("tail");
        performance.measure("tail", { start: performance.now(), detail: come.length });
      } catch {
        return;
      }
      // Faster updates than four per second cannot be read.
      if (waiting.length > kept) waiting = waiting.slice(-kept);
      timer ||= window.setTimeout(() => {
        timer = 0;
        const come = waiting.reverse();
        waiting = [];
        setSpans((old) => [...come, ...old].slice(0, kept));
      }, 250);
    });
    source.onopen = () => setError("");
    source.onerror = () => {
      const ended = source.readyState === EventSource.CLOSED;
      setError(ended ? "The live tail has ended." : "The live tail was interrupted; reconnecting.");
      // An EventSource does not report the error of the server, so request a list with the same
      // filters to get the message.
      if (ended)
        get(url("spans", { ...filter, limit: "1" })).catch((why: unknown) => {
          setError("");
          setRefused(String((why as Error).message));
        });
    };
    return () => {
      clearTimeout(timer);
      source.close();
    };
  }, [on, address, refreshed]);
  return { spans, error, refused };
}

const columns: [string, string, string][] = [
  ["service", "Service", ""],
  ["operation", "Operation", ""],
  ["duration", "Duration", "duration"],
  ["cpu", "CPU", "cpu"],
  ["status", "Status", ""],
  ["start", "Began", "start"],
];

function SpanList({
  spans,
  query,
  sort,
  onEnd,
  more,
}: {
  spans: Span[];
  query: Query;
  sort: string;
  onEnd: () => void;
  more: boolean;
}) {
  const dark = useDark();
  const view = useWindow(spans.length, rowHeight);
  const [chosen, setChosen] = useState(-1);
  const body = useRef<HTMLDivElement>(null);
  const longest = useMemo(
    () => spans.reduce((most, span) => Math.max(most, span.duration_ns), 1),
    [spans],
  );
  const today = day(Date.now());
  useLayoutEffect(() => setChosen(-1), [query.service, query.name, sort]);
  useEffect(() => {
    if (view.to >= spans.length - 20 && view.from > 0) onEnd();
  }, [view.to >= spans.length - 20, spans.length]);
  const placeOf = (span: Span): [string, Query] => [
    `trace/${span.trace_id}`,
    { span: span.span_id, ...carried(query) },
  ];
  const linkOf = (span: Span): string => href(...placeOf(span));
  const open = (span: Span): void => go(...placeOf(span));
  const move = (to: number): void => {
    const next = Math.min(spans.length - 1, Math.max(0, to));
    setChosen(next);
    view.reveal(next);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "ArrowDown" || event.key === "j") move(chosen + 1);
    else if (event.key === "ArrowUp" || event.key === "k") move(chosen - 1);
    else if (event.key === "PageDown") move(chosen + 20);
    else if (event.key === "PageUp") move(chosen - 20);
    else if (event.key === "Home") move(0);
    else if (event.key === "End") move(spans.length - 1);
    else if (event.key === "Enter" && chosen >= 0 && event.target === body.current)
      open(spans[chosen]);
    else return;
    event.preventDefault();
  };
  useKeys({
    ArrowDown: () => (body.current?.focus(), move(chosen + 1)),
    ArrowUp: () => (body.current?.focus(), move(chosen - 1)),
    Enter: () => chosen >= 0 && open(spans[chosen]),
  });
  return (
    <>
      <div
        class="table spans"
        role="grid"
        aria-label="Spans"
        aria-rowcount={spans.length + 1}
        ref={body}
        tabIndex={0}
        onKeyDown={onKeyDown}
        aria-activedescendant={chosen >= view.from && chosen < view.to ? `row${chosen}` : undefined}
      >
        <div class="table-head" role="row">
          {columns.map(([id, text, by]) => (
            <div
              role="columnheader"
              class={`col-${id}`}
              key={id}
              aria-sort={by && sort === by ? "descending" : undefined}
            >
              {by && sort ? (
                <button
                  type="button"
                  class="plain"
                  onClick={() => set({ sort: by === "duration" ? "" : by })}
                >
                  {text}
                  {sort === by && <span aria-hidden="true"> ↓</span>}
                </button>
              ) : (
                text
              )}
            </div>
          ))}
        </div>
        <div class="table-body" role="rowgroup" ref={view.box} onScroll={view.onScroll}>
          <div style={{ height: `${spans.length * rowHeight}px` }} role="presentation">
            <div
              style={{ transform: `translateY(${view.from * rowHeight}px)` }}
              role="presentation"
            >
              {spans.slice(view.from, view.to).map((span, i) => {
                const at = view.from + i;
                const samples = span.profile?.samples ?? 0;
                const share = samples
                  ? (span.profile?.cpu_ns ?? 0) / Math.max(1, span.duration_ns)
                  : 0;
                const ms = milliseconds(span.start_unix_ns);
                // A square root, so that other spans remain visible next to a very long one.
                const wide = Math.max(0.5, Math.sqrt(span.duration_ns / longest) * 100);
                return (
                  <div
                    key={`${span.trace_id}${span.span_id}`}
                    id={`row${at}`}
                    role="row"
                    class={`row${at === chosen ? " row-focus" : ""}`}
                    aria-rowindex={at + 2}
                    aria-selected={at === chosen}
                    onClick={(event) => !(event.target as HTMLElement).closest("a") && open(span)}
                  >
                    <div role="gridcell" class="col-service">
                      <i
                        class="service-mark"
                        style={{ background: serviceColor(span.service, dark) }}
                      />
                      <span>{span.service}</span>
                    </div>
                    <div role="gridcell" class="col-operation">
                      <a href={linkOf(span)} tabIndex={-1}>
                        {span.name}
                      </a>
                      {span.kind !== "internal" && span.kind !== "unspecified" && (
                        <small>{span.kind}</small>
                      )}
                    </div>
                    <div role="gridcell" class="col-duration">
                      <span class="meter">
                        <b style={{ width: `${wide}%` }} />
                        {share > 0 && <i style={{ width: `${wide * Math.min(1, share)}%` }} />}
                      </span>
                      <span class="number">{duration(span.duration_ns)}</span>
                    </div>
                    <div role="gridcell" class="col-cpu">
                      {samples > 0 ? (
                        <a
                          class="badge"
                          href={linkOf(span)}
                          tabIndex={-1}
                          title={
                            `${count(samples)} samples, ` +
                            `${duration(span.profile.cpu_ns)} on CPU: open the flame graph`
                          }
                        >
                          <Icon name="flame" />
                          {percent(share)}
                        </a>
                      ) : (
                        <span class="quiet">–</span>
                      )}
                    </div>
                    <div role="gridcell" class="col-status">
                      {span.status !== "unset" ? (
                        <span class={`status status-${span.status}`}>{span.status}</span>
                      ) : (
                        <span class="quiet">unset</span>
                      )}
                    </div>
                    <div role="gridcell" class="col-start">
                      {day(ms) !== today && <small>{day(ms)} </small>}
                      {clock(ms)}
                    </div>
                  </div>
                );
              })}
            </div>
          </div>
        </div>
      </div>
      <p class="foot" role="status">
        {count(spans.length)} spans{more ? " and more: scroll on" : ""}
      </p>
    </>
  );
}
