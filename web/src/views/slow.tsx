// SPDX-License-Identifier: Apache-2.0
// Compares slow spans of an operation with typical ones, or the spans of a box of the heat map with all others: in
// words, by the parts of their durations, and by functions.
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { url, useResponse } from "../api";
import type { Services, Slow, SlowPart } from "../openapi";
import { boxOf, lengthsOf, selectionOf } from "../box";
import { serviceColor } from "../color";
import { FlamePanel } from "../flame/panel";
import { amount, count, duration, percent, shortName, typeName } from "../format";
import {
  Cut,
  Empty,
  Failed,
  Loading,
  Name,
  Named,
  namedText,
  Select,
  Skeleton,
} from "../parts/basics";
import { carried, href, range, set, useDark, type Query } from "../state";
import { busiest } from "./profile";
import { timesOf } from "./selection";

const commonTypes = [
  "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
  "memory:alloc_space:bytes:space:bytes",
  "mutex:delay:nanoseconds:contentions:count",
  "block:delay:nanoseconds:contentions:count",
  "wall:wall:nanoseconds:wall:nanoseconds",
];

export function TypeSelect({ value, types }: { value: string; types?: string[] }) {
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

const typesOf: Partial<Record<SlowPart["kind"], RegExp>> = {
  cpu: /^[^:]+:cpu:nanoseconds:/,
  lock: /^mutex:delay:/,
  off_cpu: /^(off_cpu:|block:delay:)/,
};

/** Returns the profile type that contains the functions of a part of the compared spans themselves. */
const typeOf = (part: SlowPart, types: string[]): string =>
  types.find((id) => typesOf[part.kind]?.test(id)) ?? "";

/** Returns the part of a query that chooses the two sides: the time range, and the selection with its filter. */
function sidesOf(query: Query): Query {
  const { q = "", status = "", roots = "", min = "", box = "" } = query;
  return { ...carried(query), ...(box && { q, status, roots, min, box }) };
}

/** Returns the address of the comparison of a part's operation, below the same spans of both sides. */
const below = (part: SlowPart, query: Query): string =>
  href("compare/slow", {
    service: part.service,
    name: part.name,
    of_service: query.of_service || query.service,
    of_name: query.of_name || query.name,
    ...sidesOf(query),
  });

/** A link to the comparison of a part's operation. A selection of several operations has none. */
const Below = ({
  part,
  query,
  children,
}: {
  part: SlowPart;
  query: Query;
  children: ComponentChildren;
}) => (query.name ? <a href={below(part, query)}>{children}</a> : <span>{children}</span>);

/** The compared operation. */
const Compared = ({ query }: { query: Query }) => (
  <Named service={query.service ?? ""} name={query.name ?? ""} />
);

/** Names of both sides. */
const names = (query: Query) =>
  boxOf(query)
    ? { slow: "Selected", typical: "Rest", slowOnes: "selected", typicalOnes: "other" }
    : { slow: "Slow", typical: "Typical", slowOnes: "slow", typicalOnes: "typical" };

const titleOf = (query: Query): string =>
  boxOf(query) ? "Selected spans against the rest of" : "Slow against typical spans of";

export function SlowView({ query }: { query: Query }) {
  const times = range(query);
  const services = useResponse<Services>(url("services", times));
  const list = services.data?.services ?? [];
  const service = list.find((entry) => entry.name === query.service);
  useEffect(() => {
    const first = busiest(list) ?? list[0];
    if (boxOf(query)) return;
    if (first && !query.service)
      set({ service: first.name, name: first.operations[0]?.name ?? "" }, true);
    else if (service && !query.name) set({ name: service.operations[0]?.name ?? "" }, true);
  }, [services.data, query.service, query.name]);
  const { service: of, name, type = "", of_service = "", of_name = "" } = query;
  const box = boxOf(query);
  const selected: Query = box
    ? {
        q: query.q ?? "",
        status: query.status ?? "",
        roots: query.roots ?? "",
        min_duration: query.min ?? "",
        ...selectionOf(box),
      }
    : {};
  const { data, error, loading, at } = useResponse<Slow>(
    box || (of && name)
      ? url("slow", {
          service: of ?? "",
          name: name ?? "",
          type,
          of_service,
          of_name,
          max_nodes: query.nodes ?? "",
          ...times,
          ...selected,
        })
      : "",
  );
  const text = namedText(of ?? "", name ?? "");
  const choose = (changes: Query): void =>
    set({ of_service: "", of_name: "", zoom: "", nodes: "", ...changes });
  return (
    <>
      <Loading on={loading} />
      <div class="filters">
        <Select
          hide
          label="Service"
          value={query.service ?? ""}
          onChange={(to) => choose({ service: to, name: "" })}
          options={[
            ...(box ? [{ value: "", text: "All services" }] : []),
            ...list.map((entry) => ({ value: entry.name, text: entry.name })),
          ]}
        />
        <Select
          hide
          label="Operation"
          value={query.name ?? ""}
          onChange={(to) => choose({ name: to })}
          options={[
            ...(box ? [{ value: "", text: "All operations" }] : []),
            ...(service?.operations ?? []).map((operation) => ({
              value: operation.name,
              text: operation.name,
              note: count(operation.spans),
            })),
          ]}
        />
        <TypeSelect value={data?.type ?? query.type ?? ""} types={service?.profile_types} />
        {of_name && (
          <p class="below">
            in the {names(query).slowOnes} and the {names(query).typicalOnes} requests of{" "}
            <a
              href={href("compare/slow", {
                service: of_service,
                name: of_name,
                ...sidesOf(query),
              })}
            >
              <Named service={of_service} name={of_name} />
            </a>
          </p>
        )}
        {box && (
          <p class="below">
            <a
              href={href("spans", {
                service: of_service || (of ?? ""),
                name: of_name || (name ?? ""),
                ...sidesOf(query),
              })}
            >
              Selection: {timesOf(box)}, {lengthsOf(box)}
            </a>
            {query.q && (
              <code>
                {" "}
                <bdi>{query.q}</bdi>
              </code>
            )}
          </p>
        )}
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
      ) : data.slow.compared + data.typical.compared === 0 ? (
        <Empty title="Nothing to compare">
          <p>
            <Compared query={query} />
          </p>
          {data.why_empty && <bdi>{data.why_empty}</bdi>}
        </Empty>
      ) : (
        <>
          <Answer data={data} query={query} types={service?.profile_types ?? []} />
          {data.flamebearer.numTicks !== 0 && (
            <FlamePanel
              bearer={data.flamebearer}
              unit={data.unit}
              query={query}
              expandable
              scale="absolute"
              sample={{ left: data.sample.typical, right: data.sample.slow }}
              since={at}
              sides={[`${names(query).typical}: ${text}`, `${names(query).slow}: ${text}`]}
              label={`${titleOf(query)} ${text}`}
            />
          )}
        </>
      )}
    </>
  );
}

const isNoise = (part: SlowPart): boolean =>
  part.delta_ns !== 0 && Math.abs(part.delta_ns) <= part.noise_ns;

/** Returns the name of a part as text. */
function nameOf(part: SlowPart, hasSamples: boolean): string {
  if (part.kind === "operation") return namedText(part.service, part.name);
  if (part.kind === "cpu") return "own CPU time";
  if (part.kind === "lock") return "waiting for locks";
  if (part.kind === "off_cpu") return "off CPU";
  if (part.kind === "other") return "other operations";
  return hasSamples ? "waiting" : "unexplained";
}

/** The name of a part. */
const Part = ({ part, hasSamples }: { part: SlowPart; hasSamples: boolean }) =>
  part.kind === "operation" ? (
    <Named service={part.service} name={part.name} />
  ) : (
    <>{nameOf(part, hasSamples)}</>
  );

const signed = (ns: number): string =>
  `${ns > 0 ? "+" : ns < 0 ? "−" : ""}${duration(Math.abs(ns))}`;

/** True if samples of CPU time exist, so that the time that nothing explains was spent waiting. */
const hasCpu = (data: Slow): boolean =>
  data.slow.cpu_ns_per_span + data.typical.cpu_ns_per_span > 0;

interface PartsProps {
  data: Slow;
  query: Query;
  /** Profile types of the service. */
  types: string[];
}

/** The difference in words: its size, and the parts that cause it. */
function Words({ data, query }: { data: Slow; query: Query }) {
  const total = data.slow.mean_duration_ns - data.typical.mean_duration_ns;
  const size = Math.max(1, Math.abs(total));
  const causes = data.parts
    .filter((part) => !isNoise(part) && Math.abs(part.delta_ns) >= size * 0.005)
    .sort((a, b) => Math.abs(b.delta_ns) - Math.abs(a.delta_ns))
    .slice(0, 3);
  const few = Math.min(data.slow.compared, data.typical.compared) < 3;
  const onlyOn = data.slow.compared === 0 ? "typical" : data.typical.compared === 0 ? "slow" : "";
  if (onlyOn)
    return (
      <h2 class="answer">
        Only {names(query)[`${onlyOn}Ones`]} requests have spans of <Compared query={query} />:{" "}
        {count(data[onlyOn].compared)}, of {duration(data[onlyOn].mean_duration_ns)} on average
      </h2>
    );
  return (
    <>
      <h2 class="answer">
        <em>{signed(total)}</em>
        {causes.length > 0 && ": "}
        {causes.map((part, i) => (
          <span key={`${part.kind} ${part.service} ${part.name}`}>
            {i > 0 && ", "}
            {part.delta_ns * total < 0 && "−"}
            {duration(Math.abs(part.delta_ns))}
            {part.kind === "operation" || part.kind === "other" ? " in " : " "}
            {part.kind === "operation" ? (
              <Below part={part} query={query}>
                <Part part={part} hasSamples />
              </Below>
            ) : (
              nameOf(part, hasCpu(data))
            )}
            {i === 0 && part.delta_ns * total > 0 && ` (${percent(part.delta_ns / total)})`}
          </span>
        ))}
        {causes.length === 0 && "; no part differs by more than chance"}
      </h2>
      <p class="quiet">
        Mean of {count(data.slow.compared)} {names(query).slowOnes}
        {data.slow.compared < data.slow.spans && ` (of ${count(data.slow.spans)})`} against{" "}
        {count(data.typical.compared)} {names(query).typicalOnes} spans
        {data.typical.compared < data.typical.spans && ` (of ${count(data.typical.spans)})`}.
        {few && " These are few spans, so the difference may be chance."}
      </p>
    </>
  );
}

/** A bar of parts. The table below contains the same figures as text, and the same links. */
function Bar({
  title,
  letter,
  side,
  data,
  query,
  types,
}: PartsProps & { title: string; letter: string; side: "typical" | "slow" }) {
  const dark = useDark();
  const most = Math.max(1, data.slow.mean_duration_ns, data.typical.mean_duration_ns);
  const { mean_duration_ns, cpu_ns_per_span, examples = [] } = data[side];
  return (
    <div class="stack">
      <p title={`${title} ${namedText(query.service ?? "", query.name ?? "")}`}>
        <b class={`letter letter-${letter}`}>{letter}</b> {title}{" "}
        <b>{duration(mean_duration_ns)}</b>
      </p>
      <div class="stack-bar" aria-hidden="true">
        {data.parts.map((part) => {
          const ns = part[`${side}_ns`];
          if (ns <= 0) return null;
          const text = nameOf(part, hasCpu(data));
          const more = {
            key: `${part.kind} ${part.service} ${part.name}`,
            class: `part part-${part.kind}`,
            title: `${text}: ${duration(ns)} of ${duration(mean_duration_ns)}`,
            style: {
              width: `${(ns / most) * 100}%`,
              ...(part.kind === "operation" && { background: serviceColor(part.service, dark) }),
            },
          };
          const type = typeOf(part, types);
          return part.kind === "operation" && query.name ? (
            <a {...more} href={below(part, query)} tabIndex={-1}>
              {ns > most * 0.15 && <Part part={part} hasSamples />}
            </a>
          ) : (
            <span {...more} onClick={() => type && set({ type }, true)} />
          );
        })}
      </div>
      <p class="examples">
        <span class="quiet">
          {cpu_ns_per_span > 0 && `${duration(cpu_ns_per_span)} CPU; `}
          {examples.length > 0 && "traces:"}
        </span>
        {examples.slice(0, 3).map((example) => (
          <a
            key={example.span_id}
            title="Open the trace of this span"
            href={href(`trace/${example.trace_id}`, { span: example.span_id, ...carried(query) })}
          >
            {duration(example.duration_ns)}
          </a>
        ))}
      </p>
    </div>
  );
}

const calls = (value: number): string => (value >= 1.05 ? ` ×${amount(value, "")}` : "");

const Titles = ({ of }: { of: string[] }) => (
  <tr>
    {of.map((title) => (
      <th key={title} scope="col">
        {title}
      </th>
    ))}
  </tr>
);

function Parts({ data, query, types }: PartsProps) {
  const dark = useDark();
  const shown = data.parts.filter((part) => part.slow_ns > 0 || part.typical_ns > 0);
  return (
    <table class="deltas parts">
      <caption>
        Parts of the mean duration of <Compared query={query} />
      </caption>
      <thead>
        <Titles of={["Part", names(query).typical, names(query).slow, "Difference"]} />
      </thead>
      <tbody>
        {shown.map((part) => {
          const text = nameOf(part, hasCpu(data));
          const noise = isNoise(part);
          const type = typeOf(part, types);
          return (
            <tr key={`${part.kind} ${part.service} ${part.name}`}>
              <th scope="row" title={text}>
                <i
                  class={`mark part-${part.kind}`}
                  style={
                    part.kind === "operation"
                      ? { background: serviceColor(part.service, dark) }
                      : {}
                  }
                />
                {part.kind === "operation" ? (
                  <Below part={part} query={query}>
                    <Part part={part} hasSamples />
                  </Below>
                ) : type ? (
                  <button
                    type="button"
                    class="plain"
                    title={`Show functions by ${typeName(type)}`}
                    onClick={() => set({ type }, true)}
                  >
                    {text}
                  </button>
                ) : (
                  text
                )}
              </th>
              <td class="number quiet">
                {duration(part.typical_ns)}
                {calls(part.typical_calls)}
              </td>
              <td class="number quiet">
                {duration(part.slow_ns)}
                {calls(part.slow_calls)}
              </td>
              <Delta
                text={signed(part.delta_ns)}
                more={part.delta_ns > 0}
                noise={noise ? duration(part.noise_ns) : ""}
              />
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

/** A cell with a difference. `noise`: the size up to which differences may be chance, if this one is smaller. */
function Delta({ text, more, noise }: { text: string; more: boolean; noise: string }) {
  return noise ? (
    <td class="number quiet" title={`Differences up to ${noise} may be chance`}>
      {text} <small>noise</small>
    </td>
  ) : (
    <td class={`number ${text === "0" ? "quiet" : more ? "more" : "less"}`}>{text}</td>
  );
}

function Functions({ data, query }: { data: Slow; query: Query }) {
  const { unit } = data;
  const functions = data.functions.filter((row) => row.slow_per_span || row.typical_per_span);
  const most = Math.max(1e-9, ...functions.slice(0, 6).map((row) => Math.abs(row.delta)));
  const guilty = functions[0];
  if (data.flamebearer.numTicks === 0) {
    const first = data.parts[0];
    return (
      <div class="slow-why">
        <h2>
          No samples of <Compared query={query} />
        </h2>
        <p class="quiet">
          <bdi>{data.why_empty ?? "The spans of neither side have samples of this type."}</bdi>
        </p>
        {first?.kind === "operation" && query.name && (
          <p>
            <Below part={first} query={query}>
              Functions of <Part part={first} hasSamples />
            </Below>
          </p>
        )}
      </div>
    );
  }
  const clear = !data.why_empty && guilty && guilty.delta > guilty.noise;
  const chance = functions.length > 0 && functions.every((row) => Math.abs(row.delta) <= row.noise);
  return (
    <div class="slow-why">
      <h2>
        {clear ? (
          <>
            A {names(query).slowOnes} span of <Compared query={query} /> spends{" "}
            <em>{amount(guilty.delta, unit)}</em> more in{" "}
            <code>
              <Name text={shortName(guilty.name)} />
            </code>
          </>
        ) : chance ? (
          <>
            No function of <Compared query={query} /> differs by more than chance
          </>
        ) : (
          <>
            Functions of <Compared query={query} /> by difference
          </>
        )}
      </h2>
      <table class="deltas">
        <caption class="hidden">
          Functions of <Compared query={query} /> by difference per span
        </caption>
        <thead class="hidden">
          <Titles of={["Function", "Bar", names(query).typical, names(query).slow, "Difference"]} />
        </thead>
        <tbody>
          {functions.slice(0, 6).map((row) => {
            const noise = row.delta !== 0 && Math.abs(row.delta) <= row.noise;
            return (
              <tr key={row.name}>
                <th scope="row">
                  <button
                    type="button"
                    class="plain"
                    title={row.name}
                    onClick={() => set({ find: query.find === row.name ? "" : row.name }, true)}
                  >
                    <bdi>{shortName(row.name)}</bdi>
                  </button>
                </th>
                <td class="delta-bar">
                  <b
                    class={noise ? "delta-noise" : row.delta > 0 ? "delta-more" : "delta-less"}
                    style={{ width: `${(Math.abs(row.delta) / most) * 100}%` }}
                  />
                </td>
                <td class="number quiet">{amount(row.typical_per_span, unit)}</td>
                <td class="number quiet">{amount(row.slow_per_span, unit)}</td>
                <Delta
                  text={`${row.delta > 0 ? "+" : row.delta < 0 ? "−" : ""}${amount(Math.abs(row.delta), unit)}`}
                  more={row.delta > 0}
                  noise={noise ? amount(row.noise, unit) : ""}
                />
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Answer({ data, query, types }: PartsProps) {
  return (
    <div class="slow">
      <div class="slow-answer">
        <h2 class="compared">
          {query.of_name ? (
            <>
              <Compared query={query} /> in {names(query).slowOnes} against{" "}
              {names(query).typicalOnes} requests of{" "}
              <Named service={query.of_service ?? ""} name={query.of_name} />
            </>
          ) : (
            <>
              {titleOf(query)} <Compared query={query} />
            </>
          )}
        </h2>
        <Words data={data} query={query} />
        <div class="stacks">
          {(["typical", "slow"] as const).map((side, i) => (
            <Bar
              key={side}
              title={names(query)[side]}
              letter={"AB"[i]}
              side={side}
              data={data}
              query={query}
              types={types}
            />
          ))}
        </div>
      </div>
      <div class="slow-parts" tabIndex={0} role="group" aria-label="Parts">
        <Parts data={data} query={query} types={types} />
      </div>
      <Functions data={data} query={query} />
    </div>
  );
}
