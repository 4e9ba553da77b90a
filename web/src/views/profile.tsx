// SPDX-License-Identifier: Apache-2.0
// Shows the profile of a span, of a trace, or of the series that a label selector matches in a time range.
import { useEffect } from "preact/hooks";
import { url, useResponse } from "../api";
import type { Profile, Service, Services } from "../openapi";
import { FlamePanel } from "../flame/panel";
import { amount, count, isolate } from "../format";
import {
  Cut,
  Empty,
  Failed,
  Loading,
  Named,
  namedText,
  Segments,
  Select,
  Skeleton,
  TextField,
} from "../parts/basics";
import { Export } from "../parts/export";
import { carried, href, range, set, type Query } from "../state";
import { selector, Types } from "../trace/details";
import { pin } from "./compare";

/** Returns the service and the operation of a selector, and whether it contains nothing else. */
export function readSelector(text: string): { service: string; name: string; plain: boolean } {
  const value = (label: string): string => {
    const found = new RegExp(`${label}\\s*=\\s*"((?:[^"\\\\]|\\\\.)*)"`).exec(text);
    return found ? found[1].replace(/\\(.)/g, (_, c: string) => (c === "n" ? "\n" : c)) : "";
  };
  const service = value("service_name");
  const name = value("span_name");
  return { service, name, plain: text === selector(service, name) };
}

/** Returns the service with profiles that has the most spans, as the default. */
export const busiest = (services: Service[]): Service | undefined =>
  services.filter((one) => one.profile_types.length).sort((a, b) => b.spans - a.spans)[0];

/** Fields for the service, the operation and the selector. */
export function SelectorFields({
  value,
  times,
  onChange,
  title = "",
}: {
  value: string;
  times: { start: string; end: string };
  onChange: (selector: string) => void;
  title?: string;
}) {
  const services = useResponse<Services>(url("services", times));
  const list = services.data?.services ?? [];
  const { service, name } = readSelector(value);
  const known = list.find((entry) => entry.name === service);
  useEffect(() => {
    if (value || !list.length) return;
    const first = busiest(list) ?? list[0];
    onChange(selector(first.name));
  }, [services.data]);
  return (
    <>
      <Select
        hide
        label={`${title}Service`}
        value={service}
        onChange={(to) => onChange(selector(to))}
        options={list.map((entry) => ({
          value: entry.name,
          text: entry.name,
          note: entry.profile_types.length ? "" : "no profiles",
        }))}
      />
      <Select
        hide
        label={`${title}Operation`}
        value={name}
        onChange={(to) => onChange(selector(service, to))}
        options={[
          { value: "", text: "All operations" },
          ...(known?.operations ?? []).map((operation) => ({
            value: operation.name,
            text: operation.name,
            note: count(operation.spans),
          })),
        ]}
      />
      <TextField
        label={`${title}Label selector`}
        hidden
        value={value}
        onCommit={onChange}
        placeholder='{service_name="checkout",version="2.1"}'
        wide
      />
    </>
  );
}

export function ProfileView({ query }: { query: Query }) {
  const ofSpan = Boolean(query.trace);
  const times = range(query);
  const type = query.type ?? "";
  const scope = query.scope || "self";
  const path = ofSpan
    ? `spans/${encodeURIComponent(query.trace)}/${encodeURIComponent(query.span)}/profile`
    : "profile";
  const spans = scope === "trace" ? (query.service ?? "") : "";
  const params: Query = ofSpan
    ? { scope, type, service: spans }
    : { query: query.query ?? "", ...times, type };
  const { data, error, loading, at } = useResponse<Profile>(
    ofSpan || query.query ? url(path, { ...params, max_nodes: query.nodes ?? "" }) : "",
  );
  const selection: Query = ofSpan
    ? {
        trace: query.trace,
        span: query.span,
        scope,
        service: spans,
        of_service: query.of_service ?? "",
        of_name: query.of_name ?? "",
      }
    : { query: query.query ?? "", ...times };
  const { service, name } = readSelector(query.query ?? "");
  const label = ofSpan
    ? query.of_name
      ? namedText(query.of_service ?? "", query.of_name)
      : `span ${query.span}`
    : service || name
      ? namedText(service, name)
      : isolate(query.query ?? "");
  return (
    <main class="view profile-view" id="main">
      <Loading on={loading} />
      <h1 class="hidden">Profile</h1>
      <div class="filters">
        {ofSpan ? (
          <>
            <p class="selection">
              {scope === "trace" && spans ? (
                <>
                  The spans of <bdi>{spans}</bdi> in{" "}
                </>
              ) : scope === "trace" ? (
                "All of "
              ) : scope === "subtree" ? (
                "A span and its descendants in "
              ) : (
                "A span of "
              )}
              <a
                class="mono"
                href={href(`trace/${query.trace}`, { span: query.span, ...carried(query) })}
              >
                trace {query.trace.slice(0, 8)}…
              </a>
              {query.of_name && scope !== "trace" && (
                <>
                  : <Named service={query.of_service ?? ""} name={query.of_name} />
                </>
              )}
            </p>
            <Segments
              label="Samples of"
              value={scope}
              onChange={(value) => set({ scope: value, service: "", zoom: "", of: "" }, true)}
              options={[
                ["self", "This span"],
                ["subtree", "With descendants"],
                ["trace", "Whole trace"],
              ]}
            />
          </>
        ) : (
          <SelectorFields
            value={query.query ?? ""}
            times={times}
            onChange={(to) => set({ query: to, zoom: "", of: "" }, !query.query)}
          />
        )}
      </div>
      <div class="scopes">
        {data && data.types.length > 0 && <Types data={data} />}
        {data && data.samples > 0 && (
          <p class="sum">
            <b>{amount(data.flamebearer.numTicks, data.unit)}</b>{" "}
            {data.average ? "on average over this time" : `in ${count(data.samples)} samples`}
          </p>
        )}
        <div class="toolbar-rest">
          {!ofSpan && service && name && (
            <a
              class="button"
              href={href("compare/slow", { service, name, type, ...carried(query) })}
            >
              Slow against typical
            </a>
          )}
          {(ofSpan || query.query) && (
            <Export path={path} params={params} trace={query.trace} empty={data?.samples === 0} />
          )}
        </div>
      </div>
      <Cut text={data?.cut} />
      {error ? (
        <Failed error={error} />
      ) : !data ? (
        <Skeleton rows={16} />
      ) : data.samples === 0 ? (
        <Empty title="No samples">
          <p>
            <bdi>{data.why_empty ?? "No samples match this selection in this time range."}</bdi>
          </p>
          {ofSpan && scope !== "trace" && (
            <button
              type="button"
              class="button"
              onClick={() => set({ scope: scope === "self" ? "subtree" : "trace" }, true)}
            >
              {scope === "self" ? "Include its descendants" : "Show the whole trace"}
            </button>
          )}
        </Empty>
      ) : (
        <FlamePanel
          bearer={data.flamebearer}
          unit={data.unit}
          query={query}
          since={at}
          expandable
          samples={data.average ? 0 : data.samples}
          label={`Flame graph of ${label}`}
          onCompare={() => pin(selection, label)}
        />
      )}
    </main>
  );
}
