// SPDX-License-Identifier: Apache-2.0
// The details of one span: values, how its time was spent, profile, attributes, events, links.
import type { ComponentChildren } from "preact";
import { url, useResponse } from "../api";
import type { Attribute, Profile, Trace, TraceSpan } from "../openapi";
import { serviceColor } from "../color";
import { FlamePanel } from "../flame/panel";
import { clock, count, day, duration, isolate, milliseconds, percent, typeName } from "../format";
import {
  Cut,
  Empty,
  Failed,
  Icon,
  Loading,
  Name,
  namedText,
  Segments,
  Skeleton,
  Tabs,
} from "../parts/basics";
import { Export } from "../parts/export";
import { AttributeActions } from "../search/actions";
import { carried, copy, href, set, useDark, type Query } from "../state";
import { spent, written, type Node } from "./model";
import { movedText } from "./skew";
import { pin } from "../views/compare";

const unexplainedHelp =
  "Wall time that is neither on a CPU nor in a child span: waiting for locks, I/O, the scheduler, " +
  "or calls that are not traced.";

const afterBegin = (time: string, span: TraceSpan): number =>
  Number(BigInt(time) - BigInt(span.start_unix_ns));

export function Details({ node, trace, query }: { node: Node; trace: Trace; query: Query }) {
  const dark = useDark();
  const { span } = node;
  const resource = trace.resources[span.resource];
  const tab = query.tab || "profile";
  const n = (list: unknown[] | undefined): string => (list?.length ? ` ${list.length}` : "");
  return (
    <section class="details" aria-label="Selected span">
      <aside class="facts">
        <header>
          <h2>
            <i class="service-mark" style={{ background: serviceColor(span.service, dark) }} />
            <bdi>{span.name}</bdi>
          </h2>
          <p>
            <bdi>{span.service}</bdi> · {span.kind}
            {span.status !== "unset" && (
              <span class={`status status-${span.status}`}>{span.status}</span>
            )}
          </p>
          {span.status_message && (
            <p class="status-message">
              <bdi>{span.status_message}</bdi>
            </p>
          )}
        </header>
        <TimeSpent node={node} />
        <dl class="figures">
          <div>
            <dt>Began</dt>
            <dd title={day(milliseconds(span.start_unix_ns))}>
              {clock(milliseconds(span.start_unix_ns))}
            </dd>
          </div>
          <div>
            <dt>After</dt>
            <dd>{duration(node.start)}</dd>
          </div>
          {node.moved !== 0 && (
            <div class="figures-wide">
              <dt>Clock</dt>
              <dd>
                {movedText(node)}. <i>Began</i> is the time that the host reported.
              </dd>
            </div>
          )}
          <div>
            <dt>Samples</dt>
            <dd>{count(span.profile?.samples ?? 0)}</dd>
          </div>
          <div>
            <dt>Below</dt>
            <dd>{count(node.below)} spans</dd>
          </div>
          <div class="figures-wide">
            <dt>Span id</dt>
            <dd class="mono">
              {span.span_id}{" "}
              <button
                type="button"
                class="plain"
                aria-label="Copy the span's id"
                onClick={() => copy(span.span_id, "Span id copied.")}
              >
                <Icon name="link" />
              </button>
            </dd>
          </div>
        </dl>
        <p class="facts-links">
          <a
            href={href("compare/slow", {
              service: span.service,
              name: span.name,
              ...carried(query),
            })}
          >
            Slow against typical <Name text={span.name} />
          </a>
          <a
            href={href("profile", { query: selector(span.service, span.name), ...carried(query) })}
          >
            Profile of all <Name text={span.name} />
          </a>
        </p>
      </aside>
      <div class="details-main">
        <Tabs
          label="Span details"
          value={tab}
          onChange={(value) => set({ tab: value === "profile" ? "" : value }, true)}
          tabs={[
            ["profile", "Profile"],
            ["attributes", `Attributes${n(span.attributes)}`],
            ["events", `Events${n(span.events)}`],
            ["links", `Links${n(span.links)}`],
          ]}
        />
        <div class="details-panel" role="tabpanel" aria-label={tab} key={tab}>
          {tab === "profile" && <SpanProfile node={node} trace={trace} query={query} />}
          {tab === "attributes" && (
            <div class="attributes" tabIndex={0} role="region" aria-label="Attributes">
              <Attributes title="Span" list={span.attributes} scope="span" query={query} />
              <Attributes
                title={
                  <>
                    Resource <bdi>{resource?.service}</bdi>
                  </>
                }
                list={resource?.attributes}
                scope="resource"
                query={query}
              />
              {span.scope && (
                <Attributes title="Scope" list={[{ key: "name", value: span.scope }]} />
              )}
            </div>
          )}
          {tab === "events" && (
            <div class="attributes" tabIndex={0} role="region" aria-label="Events">
              {span.events?.length ? (
                span.events.map((event, i) => (
                  <Attributes
                    key={i}
                    title={
                      <>
                        <bdi>{event.name}</bdi> · {duration(afterBegin(event.time_unix_ns, span))}{" "}
                        after the begin
                      </>
                    }
                    list={event.attributes ?? []}
                  />
                ))
              ) : (
                <Empty title="No events" icon="clock">
                  The span has no events.
                </Empty>
              )}
            </div>
          )}
          {tab === "links" && (
            <div class="attributes" tabIndex={0} role="region" aria-label="Links">
              {span.links?.length ? (
                span.links.map((link, i) => (
                  <div key={i}>
                    <p>
                      <a class="mono" href={href(`trace/${link.trace_id}`, { span: link.span_id })}>
                        <bdi>{link.trace_id}</bdi> / <bdi>{link.span_id}</bdi>
                      </a>
                    </p>
                    <Attributes title="Link" list={link.attributes} />
                  </div>
                ))
              ) : (
                <Empty title="No links" icon="link">
                  The span links to no other.
                </Empty>
              )}
            </div>
          )}
        </div>
      </div>
    </section>
  );
}

export const selector = (service: string, name = ""): string => {
  const quote = (text: string): string =>
    `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n")}"`;
  return `{service_name=${quote(service)}${name ? `,span_name=${quote(name)}` : ""}}`;
};

// ns; a longer average means that samples were merged before they arrived
const longestInterval = 100e6;

/** Returns why a span has more CPU time than wall-clock time. */
function excess(over: number, cpu: number, samples: number): string {
  const each = samples ? cpu / samples : 0;
  if (over > each) return "More CPU than wall time: several threads worked for this span.";
  const error =
    each <= longestInterval
      ? ` (${samples} ${samples === 1 ? "sample" : "samples"}, ±${duration(each)})`
      : "";
  return `More CPU than wall time, within the sampling error${error}.`;
}

/** A bar of the time on a CPU, in children, and other time. */
function TimeSpent({ node }: { node: Node }) {
  const time = spent(node);
  const all = Math.max(1, time.wall);
  const cpu = Math.min(time.cpu, Math.max(0, all - time.children));
  const share = (part: number): string => `${(Math.min(all, part) / all) * 100}%`;
  return (
    <div class="spent">
      <div class="spent-total">
        <b>{duration(time.wall)}</b>
        <span>{duration(time.self)} self</span>
      </div>
      <div
        class="spent-bar"
        role="img"
        aria-label={
          `${percent(time.cpu / all)} on CPU, ${percent(time.children / all)} in child spans, ` +
          `${percent(time.unexplained / all)} unexplained`
        }
      >
        <i class="spent-cpu" style={{ width: share(cpu) }} />
        <i class="spent-children" style={{ width: share(time.children) }} />
        <i class="spent-unexplained" style={{ width: share(time.unexplained) }} />
      </div>
      <dl class="spent-legend">
        <div>
          <dt class="spent-cpu">On CPU</dt>
          <dd>{duration(time.cpu)}</dd>
          <dd>{percent(time.cpu / all)}</dd>
        </div>
        <div>
          <dt class="spent-children">In child spans</dt>
          <dd>{duration(time.children)}</dd>
          <dd>{percent(time.children / all)}</dd>
        </div>
        <div title={unexplainedHelp}>
          <dt class="spent-unexplained">Unexplained</dt>
          <dd>{duration(time.unexplained)}</dd>
          <dd>{percent(time.unexplained / all)}</dd>
        </div>
      </dl>
      {time.cpu > all * 1.02 && (
        <p class="note">{excess(time.cpu - all, time.cpu, node.span.profile?.samples ?? 0)}</p>
      )}
    </div>
  );
}

function SpanProfile({ node, trace, query }: { node: Node; trace: Trace; query: Query }) {
  const { span } = node;
  const own = span.profile?.samples ?? 0;
  const subtree = span.profile?.subtree?.samples ?? own + node.samplesBelow;
  const scope = query.scope || (own === 0 && subtree > 0 ? "subtree" : "self");
  const wider =
    scope === "self" && subtree > own
      ? "subtree"
      : scope !== "trace" && trace.spans.some((one) => one.profile?.samples)
        ? "trace"
        : "";
  const path = `spans/${trace.trace_id}/${span.span_id}/profile`;
  const params = { scope, type: query.type ?? "" };
  const { data, error, loading, at } = useResponse<Profile>(
    url(path, { ...params, max_nodes: query.nodes ?? "" }),
  );
  const compareWith = {
    trace: trace.trace_id,
    span: span.span_id,
    scope,
    of_service: span.service,
    of_name: span.name,
  };
  return (
    <div class="span-profile">
      <Loading on={loading} />
      <div class="scopes">
        <Segments
          label="Samples of"
          value={scope}
          onChange={(value) => set({ scope: value, zoom: "", of: "" }, true)}
          options={[
            ["self", "This span", "Samples of exactly this span"],
            [
              "subtree",
              "With descendants",
              "Samples of this span and its descendants in the same service",
            ],
            ["trace", "Whole trace", "Samples of every span of the trace"],
          ]}
        />
        {data && data.types.length > 0 && <Types data={data} />}
        <div class="toolbar-rest">
          <a
            class="button"
            href={href("profile", {
              ...compareWith,
              type: query.type ?? "",
              find: query.find ?? "",
            })}
            title="Open as a separate view"
          >
            Open
          </a>
          <Export path={path} params={params} trace={trace.trace_id} empty={data?.samples === 0} />
        </div>
      </div>
      {error ? (
        <Failed error={error} />
      ) : !data ? (
        <Skeleton />
      ) : data.samples === 0 ? (
        <Empty title="No samples">
          <p>
            <bdi>{data.why_empty ?? "No profile contains samples of this span."}</bdi>
          </p>
          {data.why_span && (
            <button
              type="button"
              class="button"
              onClick={() => set({ span: data.why_span! }, true)}
            >
              Show the first span of the service
            </button>
          )}
          {wider && (
            <button type="button" class="button" onClick={() => set({ scope: wider }, true)}>
              {wider === "subtree"
                ? `Show the ${count(subtree)} samples of its descendants`
                : "Show the samples of the whole trace"}
            </button>
          )}
        </Empty>
      ) : (
        <>
          <Cut text={data.cut} />
          <FlamePanel
            bearer={data.flamebearer}
            unit={data.unit}
            query={query}
            since={at}
            expandable
            samples={data.average ? 0 : data.samples}
            label={`Flame graph of ${isolate(span.name)}`}
            onCompare={() =>
              pin(
                compareWith,
                `${namedText(span.service, span.name)}, ${duration(span.duration_ns)}`,
              )
            }
            small
          />
        </>
      )}
    </div>
  );
}

export function Types({ data }: { data: Profile }) {
  return (
    <Segments
      label="Profile type"
      value={data.type}
      onChange={(type) => set({ type, zoom: "" }, true)}
      options={data.types.map((type): [string, ComponentChildren, string] => [
        type.id,
        <Name text={typeName(type.id)} />,
        `${count(type.samples)} samples`,
      ])}
    />
  );
}

function Attributes({
  title,
  list,
  scope,
  query = {},
}: {
  title: ComponentChildren;
  list?: Attribute[];
  /** Scope in TraceQL; missing if the list has no actions. */
  scope?: string;
  query?: Query;
}) {
  if (!list) return null;
  return (
    <table>
      <caption>{title}</caption>
      <tbody>
        {list.length ? (
          [...list]
            .sort((a, b) => (a.key < b.key ? -1 : 1))
            .map((attribute) => (
              <tr key={attribute.key}>
                <th scope="row">
                  <bdi>{attribute.key}</bdi>
                </th>
                <td class={`value-${typeof attribute.value}`}>
                  <bdi>{written(attribute.value)}</bdi>
                  {scope && (
                    <AttributeActions
                      scope={scope}
                      attribute={attribute}
                      shown={written(attribute.value)}
                      query={query}
                    />
                  )}
                </td>
              </tr>
            ))
        ) : (
          <tr>
            <td class="quiet">no attributes</td>
          </tr>
        )}
      </tbody>
    </table>
  );
}
