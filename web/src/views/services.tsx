// SPDX-License-Identifier: Apache-2.0
// Lists services and operations with rate, errors, durations and CPU time. Rows link to spans.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { url, useResponse } from "../api";
import { serviceColor } from "../color";
import { change, count, duration, percent, rate } from "../format";
import { useKeys } from "../keys";
import type { Operation, OperationPeriod, Operations, OperationSums } from "../openapi";
import {
  Cut,
  Empty,
  Failed,
  Icon,
  Loading,
  Name,
  SearchField,
  Skeleton,
  useWindow,
  useRowKeys,
} from "../parts/basics";
import { NoData } from "../parts/nodata";
import { carried, go, href, range, set, useDark, type Query } from "../state";
import { selector } from "../trace/details";

const rowHeight = 34;
const most = 5000; // most rows per response
const least = 20; // fewest spans whose 95th percentiles are compared

interface Column {
  id: string;
  text: string;
  title: string;
  value: (row: Operation, all: Operations) => number | string;
}

/** The CPU time of spans, with the spans below them in the same service if the server knows it. */
const cpuOf = (figures: OperationPeriod): number => figures.subtree_cpu_ns ?? figures.cpu_ns;
const perSpan = (figures: OperationPeriod): number =>
  figures.spans ? cpuOf(figures) / figures.spans : 0;
const share = (cpu: number, all: Operations): number =>
  all.total.cpu_ns > 0 ? cpu / all.total.cpu_ns : 0;
const failed = (figures: OperationSums): number =>
  figures.spans ? figures.errors / figures.spans : 0;
const seconds = (all: Operations): number =>
  Number(BigInt(all.end_unix_ns) - BigInt(all.start_unix_ns)) / 1e9;

/** Returns the relative change of the 95th percentile; NaN if a side has too few spans. */
function slower(row: Operation, all: Operations): number {
  const enough = row.spans >= least && row.before.spans >= least && row.before.p95_ns > 0;
  return all.before_complete && enough ? row.p95_ns / row.before.p95_ns - 1 : NaN;
}

const columns: Column[] = [
  { id: "service", text: "Service", title: "Service", value: (row) => row.service },
  { id: "operation", text: "Operation", title: "Name of the spans", value: (row) => nameOf(row) },
  { id: "rate", text: "Rate", title: "Spans per second, over time", value: (row) => row.spans },
  { id: "errors", text: "Errors", title: "Spans with status error", value: (row) => failed(row) },
  { id: "p50", text: "p50", title: "Median duration", value: (row) => row.p50_ns },
  { id: "p95", text: "p95", title: "95th percentile of durations", value: (row) => row.p95_ns },
  { id: "p99", text: "p99", title: "99th percentile of durations", value: (row) => row.p99_ns },
  {
    id: "each",
    text: "CPU per span",
    title: "CPU time per span, with the spans below it in the same service",
    value: (row) => perSpan(row),
  },
  {
    id: "cpu",
    text: "Share of CPU",
    title: "Share of the CPU time of all services, with the spans below in the same service",
    value: (row) => cpuOf(row),
  },
  {
    id: "change",
    text: "p95 change",
    title: "Change of the 95th percentile against the equally long time range before",
    value: (row, all) => slower(row, all),
  },
];

function nameOf(row: Operation): string {
  if (row.kind === "outside") return "outside of spans";
  if (row.kind === "unknown") return "spans that were not found";
  return row.kind === "rest" ? "all other operations" : row.name;
}

const kindTitles: Record<Operation["kind"], string> = {
  operation: "",
  outside: "Samples that name no span",
  unknown: "Samples that name a span which is not in the store",
  rest: "Operations beyond the limit of one response",
};

/** Returns the rows that contain each word, in the chosen order. */
function arrange(all: Operations, text: string, sort: string, up: boolean): Operation[] {
  const words = text.toLowerCase().split(" ").filter(Boolean);
  const column = columns.find(({ id }) => id === sort) ?? columns[8];
  const rows = all.operations
    .filter((row) => {
      const names = `${row.service}\n${nameOf(row)}`.toLowerCase();
      return words.every((word) => names.includes(word));
    })
    .map((row): [Operation, number | string] => [row, column.value(row, all)]);
  const order = (a: number | string, b: number | string): number => {
    if (typeof a === "string" || typeof b === "string")
      return String(a).localeCompare(String(b)) * (up ? 1 : -1);
    // Rows without a value are last in both directions.
    if (Number.isNaN(a) || Number.isNaN(b))
      return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
    return up ? a - b : b - a;
  };
  return rows.sort((a, b) => order(a[1], b[1])).map(([row]) => row);
}

const profileOf = (row: Operation, query: Query): [string, Query] => [
  "profile",
  { query: selector(row.service, row.kind === "operation" ? row.name : ""), ...carried(query) },
];

function placeOf(row: Operation, query: Query): [string, Query] {
  if (row.kind === "rest") return ["spans", carried(query)];
  if (row.kind !== "operation") return profileOf(row, query);
  return ["spans", { service: row.service, name: row.name, ...carried(query) }];
}

export function ServicesView({ query }: { query: Query }) {
  const times = range(query);
  const text = query.find ?? "";
  // The server filters only if it has more rows than one response.
  const [many, setMany] = useState(false);
  const params = { ...times, limit: String(most), filter: many ? text : "" };
  const { data, error, loading } = useResponse<Operations>(url("operations", params));
  useEffect(() => (data && data.left_out > 0 ? setMany(true) : undefined), [data]);
  const sort = columns.some(({ id }) => id === query.sort) ? query.sort : "cpu";
  const up = query.order === "up";
  const rows = useMemo(() => (data ? arrange(data, text, sort, up) : []), [data, text, sort, up]);
  useKeys({
    "/": () => document.getElementById("find-operation")?.focus(),
    Escape: () => (text ? set({ find: "" }) : false),
  });
  return (
    <main class="view services-view" id="main">
      <h1 class="hidden">Services and operations</h1>
      <div class="filters">
        <SearchField
          id="find-operation"
          label="Filter services and operations"
          value={text}
          onInput={(find) => set({ find }, true)}
          found={`${count(rows.length)} rows`}
        />
        {data && <Busiest all={data} query={query} />}
      </div>
      <Loading on={loading} />
      <Cut text={data?.cut} />
      {error ? (
        <Failed error={error} />
      ) : !data ? (
        <Skeleton rows={14} />
      ) : rows.length ? (
        <List rows={rows} all={data} query={query} sort={sort} up={up} />
      ) : text ? (
        <Empty title="No operation has this name" icon="search">
          <button type="button" class="button" onClick={() => set({ find: "" })}>
            Remove the filter
          </button>
        </Empty>
      ) : (
        <NoData />
      )}
    </main>
  );
}

/** States which operation uses the most CPU time, and in which operation below most of it is used. */
function Busiest({ all, query }: { all: Operations; query: Query }) {
  const named = all.operations.filter(({ kind, samples }) => kind === "operation" && samples > 0);
  // The server's order: of two operations with equal sums, the one above the other is first.
  const row = all.operations.find((one) => one.kind === "operation" && cpuOf(one) > 0);
  const inner = named.reduce((best, one) => (one.cpu_ns > best.cpu_ns ? one : best), named[0]);
  if (!row || !inner) return <p class="quiet">No samples of CPU time are linked to spans here.</p>;
  // The CPU time that both have is at least their sum minus all CPU time of the service.
  const ofService = named.reduce(
    (sum, one) => sum + (one.service === row.service ? one.cpu_ns : 0),
    0,
  );
  const both = inner.service === row.service ? cpuOf(row) + inner.cpu_ns - ofService : 0;
  const below = inner !== row && both * 2 > cpuOf(row);
  const profiled = below ? inner : row.cpu_ns * 2 > cpuOf(row) ? row : null;
  return (
    <p class="busiest">
      <Icon name="flame" />
      <span>
        <b>
          <Name text={row.name} />
        </b>{" "}
        of <Name text={row.service} /> uses <b>{percent(share(cpuOf(row), all))}</b> of all CPU time
        {below && (
          <>
            , most of it in{" "}
            <b>
              <Name text={inner.name} />
            </b>
          </>
        )}
        :{" "}
        {profiled ? (
          <a href={href(...profileOf(profiled, query))}>see its functions</a>
        ) : (
          <a href={href(...placeOf(row, query))}>see its spans</a>
        )}
      </span>
    </p>
  );
}

function List({
  rows,
  all,
  query,
  sort,
  up,
}: {
  rows: Operation[];
  all: Operations;
  query: Query;
  sort: string;
  up: boolean;
}) {
  const dark = useDark();
  const view = useWindow(rows.length, rowHeight);
  const [chosen, setChosen] = useState(-1);
  const body = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => setChosen(-1), [rows]);
  const move = (to: number): void => {
    setChosen(to);
    view.reveal(to);
  };
  const open = (row: Operation): void => go(...placeOf(row, query));
  const onKeyDown = useRowKeys(body, rows.length, chosen, move, (row) => open(rows[row]));
  const sortBy = (id: string): void => {
    const first = id === "service" || id === "operation"; // texts begin with A, numbers with the largest
    const next = sort === id ? !up : first;
    set({ sort: id === "cpu" ? "" : id, order: next ? "up" : "" });
  };
  return (
    <>
      <div
        class="table operations"
        role="grid"
        aria-label="Services and operations"
        aria-rowcount={rows.length + 1}
        ref={body}
        tabIndex={0}
        onKeyDown={onKeyDown}
        aria-activedescendant={
          chosen >= view.from && chosen < view.to ? `operation${chosen}` : undefined
        }
      >
        <div class="table-head" role="row">
          {columns.map(({ id, text, title }) => (
            <div
              role="columnheader"
              class={`of-${id}`}
              key={id}
              aria-sort={sort === id ? (up ? "ascending" : "descending") : undefined}
            >
              <button type="button" class="plain" title={title} onClick={() => sortBy(id)}>
                {text}
                {sort === id && <span aria-hidden="true">{up ? "↑" : "↓"}</span>}
              </button>
            </div>
          ))}
        </div>
        <div class="table-body" role="rowgroup" ref={view.box} onScroll={view.onScroll}>
          <div style={{ height: `${rows.length * rowHeight}px` }} role="presentation">
            <div
              style={{ transform: `translateY(${view.from * rowHeight}px)` }}
              role="presentation"
            >
              {rows.slice(view.from, view.to).map((row, i) => (
                <Row
                  key={`${row.kind}\n${row.service}\n${row.name}`}
                  row={row}
                  all={all}
                  at={view.from + i}
                  chosen={chosen === view.from + i}
                  color={serviceColor(row.service, dark)}
                  link={href(...placeOf(row, query))}
                  onOpen={() => open(row)}
                />
              ))}
            </div>
          </div>
        </div>
      </div>
      <p class="foot" role="status">
        {count(rows.length)} rows.{" "}
        {all.left_out > 0 &&
          `${count(all.left_out)} more rows, with the least CPU time, are not listed: filter by name. `}
        Percentiles are within {percent(all.percentile_error)}.
        {all.operations.some((row) => row.subtree_cpu_ns === null) &&
          " CPU time is without the spans below a span: choose a shorter time range to include them."}
        {!all.before_complete &&
          " There are no changes, because the store does not contain the whole time range before."}
      </p>
    </>
  );
}

const dash = <span class="quiet">–</span>;

function Row({
  row,
  all,
  at,
  chosen,
  color,
  link,
  onOpen,
}: {
  row: Operation;
  all: Operations;
  at: number;
  chosen: boolean;
  color: string;
  link: string;
  onOpen: () => void;
}) {
  const name = nameOf(row);
  const part = share(cpuOf(row), all);
  const own = share(row.cpu_ns, all);
  const errors = failed(row);
  return (
    <div
      id={`operation${at}`}
      role="row"
      class={`row${chosen ? " row-focus" : ""}`}
      aria-rowindex={at + 2}
      aria-selected={chosen}
      onClick={(event) => !(event.target as HTMLElement).closest("a") && onOpen()}
    >
      <div role="gridcell" class="of-service" title={row.service}>
        <i class="service-mark" style={{ background: color }} />
        <bdi>{row.service}</bdi>
      </div>
      <div role="gridcell" class="of-operation" title={kindTitles[row.kind] || name}>
        <a href={link} tabIndex={-1} class={row.kind === "operation" ? "" : "aside"}>
          <bdi>{name}</bdi>
        </a>
      </div>
      <div role="gridcell" class="of-rate">
        <Spark steps={row.steps} stepNs={all.step_ns} />
        <span class="number">{row.spans ? rate(row.spans / seconds(all)) : dash}</span>
      </div>
      <div role="gridcell" class={`of-errors${errors > 0 ? " more" : " quiet"}`}>
        {row.spans ? percent(errors) : dash}
      </div>
      {(["p50", "p95", "p99"] as const).map((id) => (
        <div role="gridcell" class={`of-${id}`} key={id}>
          {row.spans ? duration(row[`${id}_ns`]) : dash}
        </div>
      ))}
      <div role="gridcell" class="of-each">
        {perSpan(row) ? duration(perSpan(row)) : dash}
      </div>
      <div
        role="gridcell"
        class="of-cpu"
        title={`${duration(cpuOf(row))} of CPU time. Without the spans below: ${percent(own)}, ${duration(
          row.cpu_ns,
        )}, ${count(row.samples)} samples`}
      >
        {part > 0 ? (
          <>
            <span class="cpu-share">
              <i style={{ width: `${part * 100}%` }} />
              <b style={{ width: `${own * 100}%` }} />
            </span>
            <span class="number">{percent(part)}</span>
          </>
        ) : (
          dash
        )}
      </div>
      <Change row={row} all={all} />
    </div>
  );
}

/** The change of the 95th percentile. Changes below a tenth are quiet. */
function Change({ row, all }: { row: Operation; all: Operations }) {
  const { before } = row;
  const by = slower(row, all);
  const span = seconds(all);
  const look = Math.abs(by) > 0.1 ? (by > 0 ? " more" : " less") : " quiet";
  const fresh = all.before_complete && row.spans > 0 && before.spans === 0;
  const title = !all.before_complete
    ? "The store does not contain the whole time range before"
    : fresh
      ? "No spans in the time range before"
      : `Before and now: p95 ${duration(before.p95_ns)}, ${duration(row.p95_ns)}; rate ${rate(
          before.spans / span,
        )}, ${rate(row.spans / span)}; errors ${percent(failed(before))}, ${percent(
          failed(row),
        )}; CPU per span ${duration(perSpan(before))}, ${duration(perSpan(row))}`;
  return (
    <div role="gridcell" class={`of-change${look}`} title={title}>
      {Number.isNaN(by) ? (fresh ? "new" : dash) : change(by)}
    </div>
  );
}

/** The number of spans over time, as a small area. */
function Spark({ steps, stepNs }: { steps: number[]; stepNs: number }) {
  if (steps.length < 2) return <span class="spark" />;
  const top = Math.max(1, ...steps);
  const line = steps
    .map(
      (n, i) =>
        `${((i / (steps.length - 1)) * 100).toFixed(1)} ${(19 - (n / top) * 18).toFixed(1)}`,
    )
    .join("L");
  const each = stepNs / 1e9;
  return (
    <svg
      class="spark"
      viewBox="0 0 100 20"
      preserveAspectRatio="none"
      role="img"
      aria-label={`Rate over time: lowest ${rate(Math.min(...steps) / each)}, highest ${rate(
        top / each,
      )}, last ${rate(steps[steps.length - 1] / each)}`}
    >
      <path d={`M0 20L${line}L100 20Z`} class="spark-area" />
      <path d={`M${line}`} class="spark-line" />
    </svg>
  );
}
