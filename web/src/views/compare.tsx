// SPDX-License-Identifier: Apache-2.0
// Compares two selections (spans, time ranges or labels), or the slow spans of an operation with its typical ones.
import { useEffect } from "preact/hooks";
import { url, useResponse } from "../api";
import type { Diff, Services, Slow } from "../openapi";
import { FlamePanel } from "../flame/panel";
import { amount, count, duration, percent, shortName, typeName } from "../format";
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
} from "../parts/basics";
import {
  carried,
  encode,
  go,
  href,
  range,
  remember,
  remembered,
  showMessage,
  set,
  type Query,
} from "../state";
import { busiest, SelectorFields } from "./profile";

/** Keeps the first selection as A. The next call, with another selection, opens the comparison. */
export function pin(selection: Query, label: string): void {
  const text = encode(selection);
  const left = remembered("pinned");
  if (left && left !== text) {
    remember("pinned", "");
    go("compare", { left, right: text });
    return;
  }
  remember("pinned", text);
  showMessage(`${label} is selection A. Open another profile and press d there to select B.`);
}

const asQuery = (text: string): Query => Object.fromEntries(new URLSearchParams(text));

export function CompareView({ kind, query }: { kind: string; query: Query }) {
  return (
    <main class="view compare-view" id="main">
      <h1 class="hidden">Compare</h1>
      <div class="subnav">
        <Segments
          label="Comparison"
          value={kind === "slow" ? "slow" : "two"}
          onChange={(value) => go(value === "slow" ? "compare/slow" : "compare", carried(query))}
          options={[
            ["slow", "Slow against typical"],
            ["two", "Two selections"],
          ]}
        />
      </div>
      {kind === "slow" ? <SlowView query={query} /> : <TwoView query={query} />}
    </main>
  );
}

const commonTypes = [
  "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
  "memory:alloc_space:bytes:space:bytes",
  "mutex:delay:nanoseconds:contentions:count",
  "block:delay:nanoseconds:contentions:count",
  "wall:wall:nanoseconds:wall:nanoseconds",
];

function TypeSelect({ value, types }: { value: string; types?: string[] }) {
  const list = types?.length ? types : commonTypes;
  return (
    <Select
      label="Profile type"
      value={value || list[0]}
      onChange={(type) => set({ type }, true)}
      options={list.map((id) => ({ value: id, text: typeName(id) }))}
    />
  );
}

function TwoView({ query }: { query: Query }) {
  const left = query.left ?? "";
  const right = query.right ?? "";
  const services = useResponse<Services>(left && right ? "" : url("services", range(query)));
  useEffect(() => {
    // The default compares the last hour with the hour before.
    const first = busiest(services.data?.services ?? []);
    if (!first || (left && right)) return;
    const selected = `{service_name="${first.name.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"}`;
    set(
      {
        left: left || encode({ query: selected, start: "now-1h", end: "now-30m" }),
        right: right || encode({ query: selected, start: "now-30m", end: "now" }),
      },
      true,
    );
  }, [services.data, left, right]);
  const { data, error, loading, at } = useResponse<Diff>(
    left && right ? url("diff", { left, right, type: query.type ?? "" }) : "",
  );
  return (
    <>
      <Loading on={loading} />
      {left && right && (
        <div class="sides">
          <Side
            title="A"
            value={left}
            onChange={(to) => set({ left: to, zoom: "" })}
            figures={data ? sideFigures(data.left, data) : ""}
          />
          <button
            type="button"
            class="button square swap"
            aria-label="Swap A and B"
            title="Swap A and B"
            onClick={() => set({ left: right, right: left, zoom: "" })}
          >
            <Icon name="swap" />
          </button>
          <Side
            title="B"
            value={right}
            onChange={(to) => set({ right: to, zoom: "" })}
            figures={data ? sideFigures(data.right, data) : ""}
          />
        </div>
      )}
      <div class="scopes">
        <TypeSelect value={data?.type ?? query.type ?? ""} />
        <Legend query={query} less="less in B" more="more in B" />
      </div>
      <Cut text={data?.cut} />
      {error || services.error ? (
        <Failed error={error || services.error} />
      ) : services.data && !services.data.services.some((entry) => entry.profile_types.length) ? (
        <Empty title="Nothing to compare yet">No service has profiles in this time range.</Empty>
      ) : !data ? (
        <Skeleton rows={14} />
      ) : data.left.samples + data.right.samples === 0 ? (
        <Empty title="No samples on either side">
          Select other samples, or a longer time range.
        </Empty>
      ) : (
        <FlamePanel
          bearer={data.flamebearer}
          unit={data.unit}
          query={query}
          since={at}
          label="Difference of A and B"
        />
      )}
    </>
  );
}

export function Legend({ query, less, more }: { query: Query; less: string; more: string }) {
  return (
    <p class="legend" data-scale={query.scale}>
      <i class="legend-less" /> {less}
      <i class="legend-more" /> {more}
    </p>
  );
}

const sideFigures = (side: Diff["left"], { unit, average }: Diff): string =>
  `${amount(side.total, unit)} ${average ? "on average" : `in ${count(side.samples)} samples`}`;

function Side({
  title,
  value,
  onChange,
  figures,
}: {
  title: string;
  value: string;
  onChange: (value: string) => void;
  figures: string;
}) {
  const side = asQuery(value);
  const isSpan = side.trace !== undefined;
  const change = (changes: Query): void => onChange(encode({ ...side, ...changes }));
  return (
    <fieldset class="side">
      <legend>
        <b class={`letter letter-${title}`}>{title}</b> <span>{figures}</span>
      </legend>
      <Segments
        label={`Kind of ${title}`}
        value={isSpan ? "span" : "range"}
        onChange={(kind) =>
          onChange(
            kind === "span"
              ? encode({ trace: "0", span: "0", scope: "self" })
              : encode({ query: "{}", start: "now-1h", end: "now" }),
          )
        }
        options={[
          ["range", "Labels and time"],
          ["span", "Span"],
        ]}
      />
      {isSpan ? (
        <>
          <TextField
            label="Trace id"
            value={side.trace}
            onCommit={(trace) => change({ trace })}
            wide
          />
          <TextField
            label="Span id"
            value={side.span ?? ""}
            onCommit={(span) => change({ span })}
          />
          <Select
            label="Samples of"
            value={side.scope ?? "self"}
            onChange={(scope) => change({ scope })}
            options={[
              { value: "self", text: "This span" },
              { value: "subtree", text: "With descendants" },
              { value: "trace", text: "Whole trace" },
            ]}
          />
          {side.trace.length > 8 && (
            <a class="button" href={href(`trace/${side.trace}`, { span: side.span ?? "" })}>
              Open
            </a>
          )}
        </>
      ) : (
        <>
          <SelectorFields
            value={side.query ?? ""}
            times={range(side)}
            onChange={(to) => change({ query: to })}
            title={`${title}: `}
          />
          <TextField
            label="From"
            value={side.start ?? "now-1h"}
            onCommit={(start) => change({ start })}
          />
          <TextField label="To" value={side.end ?? "now"} onCommit={(end) => change({ end })} />
        </>
      )}
    </fieldset>
  );
}

function SlowView({ query }: { query: Query }) {
  const times = range(query);
  const services = useResponse<Services>(url("services", times));
  const list = services.data?.services ?? [];
  const service = list.find((entry) => entry.name === query.service);
  useEffect(() => {
    const first = busiest(list) ?? list[0];
    if (first && !query.service)
      set({ service: first.name, name: first.operations[0]?.name ?? "" }, true);
    else if (service && !query.name) set({ name: service.operations[0]?.name ?? "" }, true);
  }, [services.data, query.service, query.name]);
  const { data, error, loading, at } = useResponse<Slow>(
    query.service && query.name
      ? url("slow", { service: query.service, name: query.name, type: query.type ?? "", ...times })
      : "",
  );
  return (
    <>
      <Loading on={loading} />
      <div class="filters">
        <Select
          hide
          label="Service"
          value={query.service ?? ""}
          onChange={(name) => set({ service: name, name: "", zoom: "" })}
          options={list.map((entry) => ({ value: entry.name, text: entry.name }))}
        />
        <Select
          hide
          label="Operation"
          value={query.name ?? ""}
          onChange={(name) => set({ name, zoom: "" })}
          options={(service?.operations ?? []).map((operation) => ({
            value: operation.name,
            text: operation.name,
            note: count(operation.spans),
          }))}
        />
        <TypeSelect value={data?.type ?? query.type ?? ""} types={service?.profile_types} />
      </div>
      <Cut text={data?.cut} />
      {error || services.error ? (
        <Failed error={error || services.error} />
      ) : !data ? (
        services.data && list.length === 0 ? (
          <Empty title="No spans in this time range">Select a longer time range.</Empty>
        ) : (
          <Skeleton rows={14} />
        )
      ) : (
        <>
          <SlowFigures data={data} query={query} />
          {data.why_empty || data.flamebearer.numTicks === 0 ? (
            <Empty title="Nothing to compare">
              {data.why_empty ?? "Neither the slow nor the typical spans have samples."}
            </Empty>
          ) : (
            <FlamePanel
              bearer={data.flamebearer}
              unit={data.unit}
              query={query}
              scale="absolute"
              since={at}
              label="Slow against typical"
            />
          )}
        </>
      )}
    </>
  );
}

function SlowFigures({ data, query }: { data: Slow; query: Query }) {
  const { slow, typical, functions, unit } = data;
  const most = Math.max(1e-9, ...functions.slice(0, 6).map((row) => Math.abs(row.delta)));
  const guilty = functions[0];
  const cpu = slow.cpu_ns_per_span - typical.cpu_ns_per_span;
  const wall = slow.median_duration_ns - typical.median_duration_ns;
  const side = (title: string, which: typeof slow, letter: string) => (
    <div class="slow-side">
      <h2>
        <b class={`letter letter-${letter}`}>{letter}</b> {title}
      </h2>
      <dl>
        <div>
          <dt>Spans</dt>
          <dd>{count(which.spans)}</dd>
        </div>
        <div>
          <dt>Median</dt>
          <dd>{duration(which.median_duration_ns)}</dd>
        </div>
        <div>
          <dt>CPU per span</dt>
          <dd>{duration(which.cpu_ns_per_span)}</dd>
        </div>
      </dl>
      {which.examples && which.examples.length > 0 && (
        <p class="examples">
          {which.examples.slice(0, 4).map((example) => (
            <a
              key={example.span_id}
              href={href(`trace/${example.trace_id}`, { span: example.span_id, ...carried(query) })}
            >
              {duration(example.duration_ns)}
            </a>
          ))}
        </p>
      )}
    </div>
  );
  return (
    <div class="slow">
      {side("Typical", typical, "A")}
      {side("Slow", slow, "B")}
      <div class="slow-why">
        <h2>
          {data.why_empty || !guilty || guilty.delta <= 0 ? (
            "Functions by difference"
          ) : (
            <>
              A slow one spends <em>{amount(guilty.delta, unit)}</em> more in{" "}
              <code>{shortName(guilty.name)}</code>
            </>
          )}
        </h2>
        {wall > 0 && (
          <p class="quiet">
            It lasts {duration(wall)} longer;{" "}
            {cpu > 0
              ? `${percent(Math.min(1, cpu / wall))} of that is CPU time`
              : "none of that is CPU time"}
            .
          </p>
        )}
        <table class="deltas">
          <caption class="hidden">Functions by difference per span</caption>
          <thead class="hidden">
            <tr>
              <th scope="col">Function</th>
              <th scope="col">Bar</th>
              <th scope="col">Typical</th>
              <th scope="col">Slow</th>
              <th scope="col">Difference</th>
            </tr>
          </thead>
          <tbody>
            {functions.slice(0, 6).map((row) => (
              <tr key={row.name}>
                <th scope="row">
                  <button
                    type="button"
                    class="plain"
                    title={row.name}
                    onClick={() => set({ find: query.find === row.name ? "" : row.name }, true)}
                  >
                    {shortName(row.name)}
                  </button>
                </th>
                <td class="delta-bar">
                  <b
                    class={row.delta > 0 ? "delta-more" : "delta-less"}
                    style={{ width: `${(Math.abs(row.delta) / most) * 100}%` }}
                  />
                </td>
                <td class="number quiet">{amount(row.typical_per_span, unit)}</td>
                <td class="number quiet">{amount(row.slow_per_span, unit)}</td>
                <td class={`number ${row.delta > 0 ? "more" : "less"}`}>
                  {row.delta > 0 ? "+" : "−"}
                  {amount(Math.abs(row.delta), unit)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}
