// SPDX-License-Identifier: Apache-2.0
// Lists slow spans, with filters and a heat map. Each row links to the span's flame graph.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, url, useResponse } from "../api";
import type { Heat, Services, Span, Spans as SpanList } from "../openapi";
import { boxOf, boxText, narrowed } from "../box";
import { inSlot } from "../slots";
import { serviceColor } from "../color";
import { clock, count, day, duration, milliseconds, percent } from "../format";
import { useKeys } from "../keys";
import {
  Cut,
  Empty,
  Failed,
  Icon,
  Loading,
  Name,
  Segments,
  Select,
  Skeleton,
  useWindow,
  useRowKeys,
} from "../parts/basics";
import { NoData } from "../parts/nodata";
import { HeatMap, type Shade } from "../parts/heat";
import { Search } from "../search/field";
import { Selection } from "./selection";
import {
  carried,
  go,
  href,
  keep,
  kept,
  range,
  set,
  useDark,
  useLeave,
  useRefreshed,
  type Query,
} from "../state";

const rowHeight = 30;
const page = 1000; // most spans per response of the server
const most = 100000; // most spans in the list
const keptSpans = 5000; // most spans in the live tail

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
  const known = services.data?.services ?? [];
  const service = known.find(({ name }) => name === query.service);
  const filter: Query = {
    service: query.service ?? "",
    name: query.name ?? "",
    q: query.q ?? "",
    min_duration: query.min ?? "",
    status: query.status ?? "",
  };
  const sort = query.sort === "start" || query.sort === "cpu" ? query.sort : "duration";
  const live = query.live === "1";
  const all = { ...filter, ...times, roots: query.roots ?? "" };
  const box = live ? null : boxOf(query);
  const params = narrowed({ ...all, sort, limit: String(page) }, box);
  const list = url("spans", params);
  const found = useResponse<SpanList>(live ? "" : list);
  const long = useMore(found.data, params);
  const shade: Shade = query.heat === "errors" || query.heat === "cpu" ? query.heat : "";
  const heat = useResponse<Heat>(
    url("heat", { ...all, points: "100", rows: "20", cpu: shade === "cpu" ? "true" : "" }),
  );
  const [chosen, setChosen] = useState("");
  const [reading, setReading] = useState(false);
  const tail = useTail(live, { ...filter, roots: query.roots ?? "" }, reading || chosen !== "");
  const spans = live ? tail.spans : long.spans;
  // Errors at a place of the query are shown below the search field.
  const failure = query.q ? found.error || tail.refused : "";
  const invalid = /\d+:\d+: /.test(failure) ? failure : "";

  useKeys({
    "/": () => document.getElementById("traceql")?.focus(),
    l: () => set({ live: live ? "" : "1" }),
    t: () =>
      query.service &&
      query.name &&
      go("compare/slow", { service: query.service, name: query.name, ...carried(query) }),
    Escape: () => {
      if (chosen) {
        setChosen("");
        return true;
      }
      const key = ["box", "q", "status", "roots", "min", "name", "service"].find(
        (one) => query[one],
      );
      if (key) set({ [key]: "" });
      return key !== undefined;
    },
  });
  useLayoutEffect(() => setChosen(""), [live ? "live" : list]);
  const filtered = box !== null || Object.values(filter).some(Boolean);
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
            ...known.map(({ name, spans: n }) => ({ value: name, text: name, note: count(n) })),
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
        <Search query={query} error={invalid} times={times} />
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
      <div class="heat-frame" hidden={invalid !== ""}>
        {heat.data ? (
          <HeatMap
            data={heat.data}
            shade={shade}
            onShade={(to) => set({ heat: to }, true)}
            box={box}
            onBox={(to) => set({ box: to ? boxText(to) : "", live: "" })}
          />
        ) : (
          heat.error &&
          !invalid && (
            <p class="quiet heat-empty">
              <bdi>{heat.error}</bdi>
            </p>
          )
        )}
      </div>
      <Cut text={heat.data?.cut} />
      {box && <Selection box={box} query={query} filter={all} />}
      {query.service && query.name && !box && (
        <p class="offer">
          <Icon name="compare" />
          <a
            href={href("compare/slow", {
              service: query.service,
              name: query.name,
              ...carried(query),
            })}
          >
            <span>
              Why are slow ones slow? Compare the slowest 5% of <Name text={query.service} />{" "}
              <b>
                <Name text={query.name} />
              </b>{" "}
              with typical ones
            </span>
          </a>
          <kbd>t</kbd>
        </p>
      )}
      <Loading on={found.loading && !live} />
      {live && tail.error && <Cut text={tail.error} />}
      {live && tail.refused && !invalid && <Failed error={tail.refused} />}
      <Cut text={found.data?.cut} />
      {found.error && !live ? (
        !invalid && <Failed error={found.error} />
      ) : !found.data && !live ? (
        <Skeleton rows={14} />
      ) : spans.length === 0 ? (
        live && tail.refused ? null : live ? (
          <Empty title={tail.open ? "Waiting for spans" : "Connecting"} icon="clock">
            They appear here as they come{filtered ? " and fit the filters" : ""}.
          </Empty>
        ) : (
          <NoData
            onClear={
              filtered
                ? () =>
                    set({ service: "", name: "", q: "", min: "", status: "", roots: "", box: "" })
                : undefined
            }
          />
        )
      ) : (
        <SpanRows
          key={live ? "live" : list}
          spans={spans}
          query={query}
          sort={live ? "" : sort}
          list={list}
          fresh={found.address === list}
          chosenId={chosen}
          onChoose={setChosen}
          onEnd={long.load}
          more={!live && long.more}
          tail={live ? tail : null}
          onHold={setReading}
        />
      )}
    </main>
  );
}

const none: Span[] = [];

/** Loads further pages of a long list while the user scrolls. */
function useMore(
  first: SpanList | null,
  params: Query,
): { spans: Span[]; more: boolean; load: () => void } {
  const [more, setMore] = useState<{ first: SpanList | null; spans: Span[]; next: string | null }>({
    first: null,
    spans: none,
    next: null,
  });
  const under = useRef(false);
  const current = more.first === first ? more : { first, spans: none, next: first?.next ?? null };
  const spans = useMemo(
    () =>
      current.spans.length ? [...(first?.spans ?? none), ...current.spans] : (first?.spans ?? none),
    [first, current.spans],
  );
  const open = current.next !== null && spans.length < most;
  return {
    spans,
    more: open,
    load: () => {
      if (!open || under.current) return;
      under.current = true;
      get<SpanList>(url("spans", { ...params, after: current.next ?? "" }))
        .then(
          (answer) =>
            setMore({ first, spans: [...current.spans, ...answer.spans], next: answer.next }),
          () => setMore({ ...current, next: null }),
        )
        .finally(() => (under.current = false));
    },
  };
}

/** Returns whether the tab is visible. */
function useVisible(): boolean {
  const [visible, setVisible] = useState(!document.hidden);
  useEffect(() => {
    const onChange = (): void => setVisible(!document.hidden);
    document.addEventListener("visibilitychange", onChange);
    return () => document.removeEventListener("visibilitychange", onChange);
  }, []);
  return visible;
}

interface Tail {
  spans: Span[];
  /** Whether the server sends each new span. Spans that it stored before are not sent. */
  open: boolean;
  /** Number of spans that arrived while the list was paused, and that are not in the list. */
  held: number;
  error: string;
  refused: string;
  /** Adds the spans that arrived while the list was paused. */
  release: () => void;
}

/**
 * Follows new spans. The stream is closed while the tab is hidden, so that another tab can have its slot.
 */
function useTail(on: boolean, filter: Query, paused: boolean): Tail {
  const [spans, setSpans] = useState<Span[]>([]);
  const [open, setOpen] = useState(false);
  const [held, setHeld] = useState(0);
  const [error, setError] = useState("");
  const [refused, setRefused] = useState("");
  const waiting = useRef<Span[]>([]);
  const timer = useRef(0);
  const stopped = useRef(paused);
  stopped.current = paused;
  const address = url("tail", filter);
  const refreshed = useRefreshed();
  const visible = useVisible();
  const release = (): void => {
    const come = waiting.current.reverse();
    waiting.current = [];
    setHeld(0);
    if (come.length) setSpans((old) => [...come, ...old].slice(0, keptSpans));
  };
  useLayoutEffect(() => {
    waiting.current = [];
    setSpans([]);
    setHeld(0);
    setError("");
    setRefused("");
  }, [on, address, refreshed]);
  useEffect(() => {
    if (!on || !visible) return undefined;
    const start = (): (() => void) => {
      setError("");
      const source = new EventSource(address);
      source.addEventListener("spans", (event) => {
        let come: Span[];
        try {
          come = JSON.parse((event as MessageEvent<string>).data) as Span[];
        } catch {
          return;
        }
        waiting.current.push(...come);
        if (performance.getEntriesByName("tail").length > 500) performance.clearMeasures("tail");
        performance.measure("tail", { start: performance.now(), detail: come.length });
        if (waiting.current.length > keptSpans) waiting.current = waiting.current.slice(-keptSpans);
        // Faster updates than four per second cannot be read.
        timer.current ||= window.setTimeout(() => {
          timer.current = 0;
          if (stopped.current) setHeld(waiting.current.length);
          else release();
        }, 250);
      });
      source.onopen = () => {
        setError("");
        setOpen(true);
      };
      source.onerror = () => {
        setOpen(false);
        const ended = source.readyState === EventSource.CLOSED;
        setError(
          ended ? "The live tail has ended." : "The live tail was interrupted; reconnecting.",
        );
        // An EventSource does not report the error of the server, so request a list with the same
        // filters to get the message.
        if (ended)
          get(url("spans", { ...filter, limit: "1" })).catch((why: unknown) => {
            setError("");
            setRefused(String((why as Error).message));
          });
      };
      return () => {
        clearTimeout(timer.current);
        timer.current = 0;
        source.close();
        setOpen(false);
      };
    };
    const text =
      "Four other tabs show spans live. This one begins when one of them is closed or hidden.";
    return inSlot(start, () => setError(text));
  }, [on, address, refreshed, visible]);
  useEffect(() => {
    if (!paused) release();
  }, [paused]);
  return { spans, open, held, error, refused, release };
}

/** Place in a list, which is stored in the entry of the history. */
interface Place {
  list: string;
  rows: number;
  top: number;
  chosen: string;
}

const idOf = (span: Span): string => `${span.trace_id}${span.span_id}`;

/** Returns the place that was stored for a list, or null. */
function placeIn(list: string): Place | null {
  const place = kept() as Place | null;
  return place?.list === list ? place : null;
}

const columns: [string, string, string][] = [
  ["service", "Service", ""],
  ["operation", "Operation", ""],
  ["duration", "Duration", "duration"],
  ["cpu", "CPU", "cpu"],
  ["status", "Status", ""],
  ["start", "Began", "start"],
];

function SpanRows({
  spans,
  query,
  sort,
  list,
  fresh,
  chosenId,
  onChoose,
  onEnd,
  more,
  tail,
  onHold,
}: {
  spans: Span[];
  query: Query;
  sort: string;
  /** Address of the list, which identifies its place in the history. */
  list: string;
  /** False while the rows are those of another list. */
  fresh: boolean;
  chosenId: string;
  onChoose: (id: string) => void;
  onEnd: () => void;
  more: boolean;
  /** The live tail, if the list shows it. */
  tail: Tail | null;
  /** Called when the user begins or ends to read the list: scrolls, hovers, or selects text. */
  onHold: (held: boolean) => void;
}) {
  const dark = useDark();
  const view = useWindow(spans.length, rowHeight);
  const body = useRef<HTMLDivElement>(null);
  const chosen = useMemo(
    () => (chosenId ? spans.findIndex((span) => idOf(span) === chosenId) : -1),
    [spans, chosenId],
  );
  const held = useRef({ hover: false, scrolled: false, selected: false });
  const hold = (change: Partial<typeof held.current>): void => {
    Object.assign(held.current, change);
    onHold(Object.values(held.current).some(Boolean));
  };
  useEffect(() => {
    const onSelect = (): void => {
      const selection = document.getSelection();
      const inside = body.current?.contains(selection?.anchorNode ?? null) ?? false;
      hold({ selected: inside && selection?.isCollapsed === false });
    };
    document.addEventListener("selectionchange", onSelect);
    return () => {
      document.removeEventListener("selectionchange", onSelect);
      onHold(false);
    };
  }, []);
  const showHeld = (): void => {
    onChoose("");
    document.getSelection()?.removeAllRanges();
    if (view.box.current) view.box.current.scrollTop = 0;
    view.onScroll();
    hold({ scrolled: false, selected: false });
    body.current?.focus({ preventScroll: true }); // the button disappears
    tail?.release();
  };

  const wanted = useRef(tail ? null : placeIn(list));
  // The place is stored when the user leaves the list, and a moment after the last scrolling, for
  // the browser's buttons.
  const timer = useRef(0);
  const store = (): void => {
    clearTimeout(timer.current);
    if (tail || wanted.current) return;
    const top = view.box.current?.scrollTop ?? 0;
    keep({ list, rows: spans.length, top, chosen: chosenRef.current } satisfies Place);
  };
  const chosenRef = useRef(chosenId);
  chosenRef.current = chosenId;
  useLeave(store);
  useEffect(() => () => clearTimeout(timer.current), []);
  useLayoutEffect(() => {
    const place = wanted.current;
    if (!place || !fresh) return;
    if (spans.length < place.rows && more) {
      onEnd();
      return;
    }
    wanted.current = null;
    onChoose(place.chosen);
    if (view.box.current) view.box.current.scrollTop = place.top;
    view.onScroll();
    const at = spans.findIndex((span) => idOf(span) === place.chosen);
    if (at >= 0) view.reveal(at);
    if (document.activeElement === document.body) body.current?.focus({ preventScroll: true });
  }, [spans, more, fresh]);
  const longest = useMemo(
    () => spans.reduce((most, span) => Math.max(most, span.duration_ns), 1),
    [spans],
  );
  const today = day(Date.now());
  useEffect(() => {
    if (view.to >= spans.length - 20 && view.from > 0) onEnd();
  }, [view.to >= spans.length - 20, spans.length]);
  const placeOf = (span: Span): [string, Query] => [
    `trace/${span.trace_id}`,
    { span: span.span_id, ...carried(query) },
  ];
  const linkOf = (span: Span): string => href(...placeOf(span));
  const choose = (span: Span): void => {
    chosenRef.current = idOf(span);
    onChoose(chosenRef.current);
  };
  const open = (span: Span): void => {
    choose(span);
    go(...placeOf(span));
  };
  const move = (to: number): void => {
    choose(spans[to]);
    view.reveal(to);
  };
  const onKeyDown = useRowKeys(body, spans.length, chosen, move, (row) => open(spans[row]));
  useKeys({
    // not on a link or a button, which has its own action
    Enter: ({ target }) =>
      chosen >= 0 && !(target as HTMLElement).closest?.("a, button") && open(spans[chosen]),
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
        <div
          class="table-body"
          role="rowgroup"
          ref={view.box}
          onScroll={() => {
            view.onScroll();
            hold({ scrolled: (view.box.current?.scrollTop ?? 0) > 0 });
            clearTimeout(timer.current);
            timer.current = window.setTimeout(store, 300);
          }}
          onPointerEnter={(event) => event.pointerType === "mouse" && hold({ hover: true })}
          onPointerLeave={() => hold({ hover: false })}
        >
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
                    key={idOf(span)}
                    id={`row${at}`}
                    role="row"
                    class={`row${at === chosen ? " row-focus" : ""}`}
                    aria-rowindex={at + 2}
                    aria-selected={at === chosen}
                    onClickCapture={() => choose(span)}
                    onClick={(event) => {
                      const selection = document.getSelection();
                      if (
                        selection?.isCollapsed === false &&
                        event.currentTarget.contains(selection.anchorNode)
                      )
                        return; // the click ends a selection of text
                      if (!(event.target as HTMLElement).closest("a")) open(span);
                    }}
                  >
                    <div role="gridcell" class="col-service">
                      <i
                        class="service-mark"
                        style={{ background: serviceColor(span.service, dark) }}
                      />
                      <span>
                        <bdi>{span.service}</bdi>
                      </span>
                    </div>
                    <div role="gridcell" class="col-operation">
                      <a href={linkOf(span)} tabIndex={-1}>
                        <bdi>{span.name}</bdi>
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
      <div class="foot">
        <span role="status">
          {count(spans.length)} spans{more ? " and more: scroll on" : ""}
        </span>
        {tail && tail.held > 0 && (
          <button type="button" class="plain held" onClick={showHeld}>
            {"Paused: show "}
            {count(tail.held)} new spans
          </button>
        )}
      </div>
    </>
  );
}
