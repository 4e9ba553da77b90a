// SPDX-License-Identifier: Apache-2.0
// Compares two selections (spans, time ranges or labels), or the slow spans of an operation with its typical ones.
import { useEffect } from "preact/hooks";
import { url, useResponse } from "../api";
import type { Diff, Services } from "../openapi";
import { FlamePanel } from "../flame/panel";
import { amount, count, isolate } from "../format";
import {
  Cut,
  Empty,
  Failed,
  Icon,
  Loading,
  Name,
  Named,
  namedText,
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
import { busiest, readSelector, SelectorFields } from "./profile";
import { SlowView, TypeSelect } from "./slow";

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

/** Returns the service and the operation of a side. Sides of spans have them if they were selected in the page. */
function nameOf(side: Query): { service: string; name: string } | null {
  const { service, name } =
    side.trace === undefined
      ? readSelector(side.query ?? "")
      : { service: side.of_service ?? "", name: side.of_name ?? "" };
  return service || name ? { service, name } : null;
}

/** Returns the description of a side without a service and an operation. */
const restOf = (side: Query): string =>
  side.trace === undefined ? (side.query ?? "") : `span ${side.span || "?"}`;

function sideText(value: string): string {
  const side = asQuery(value);
  const named = nameOf(side);
  return named ? namedText(named.service, named.name) : isolate(restOf(side));
}

function SideName({ value }: { value: string }) {
  const side = asQuery(value);
  const named = nameOf(side);
  return named ? <Named {...named} /> : <Name text={restOf(side)} />;
}

/** Returns a side as the server reads it. */
const sideOf = (value: string): string =>
  encode({ ...asQuery(value), of_service: "", of_name: "" });

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
    left && right
      ? url("diff", {
          left: sideOf(left),
          right: sideOf(right),
          type: query.type ?? "",
          max_nodes: query.nodes ?? "",
        })
      : "",
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
      {left && right && (
        <h2 class="compared">
          <b class="letter">B</b> <SideName value={right} /> against <b class="letter">A</b>{" "}
          <SideName value={left} />
        </h2>
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
          expandable
          since={at}
          sample={data.average ? null : { left: sampleOf(data.left), right: sampleOf(data.right) }}
          sides={[sideText(left), sideText(right)]}
          label={`Difference of A, ${sideText(left)}, and B, ${sideText(right)}`}
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

/** Returns the value of one sample. */
const sampleOf = ({ total, samples }: Diff["left"]): number => (samples > 0 ? total / samples : 0);

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
  const toSpan = (ids: Query): void => change({ ...ids, of_service: "", of_name: "" });
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
            onCommit={(trace) => toSpan({ trace })}
            wide
          />
          <TextField
            label="Span id"
            value={side.span ?? ""}
            onCommit={(span) => toSpan({ span })}
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
