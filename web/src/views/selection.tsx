// SPDX-License-Identifier: Apache-2.0
// The spans of a box of the heat map against the other spans of the list: links, and the attributes that differ most.
import { useRef } from "preact/hooks";
import { url, useResponse } from "../api";
import type { Difference, Differences } from "../openapi";
import { lengthsOf, selectionOf, type Box } from "../box";
import { clock, count, day, isolate, percent } from "../format";
import { Cut, Icon, Loading, Named, useFocusReturn } from "../parts/basics";
import { add, format, parse } from "../search/query";
import { carried, href, set, type Query } from "../state";

const shown = 12;

/** Returns the times of a box in words. */
export function timesOf(box: Box): string {
  const [start, end] = [Number(box.start) / 1e6, (Number(box.end) + 1) / 1e6];
  const fraction = end - start < 10000 ? 3 : 0;
  const first = day(start) === day(Date.now()) ? "" : `${day(start)} `;
  return `${first}${clock(start, fraction)} to ${clock(end, fraction)}`;
}

/** Adds a condition to a query. Returns null if the query is not a list of conditions. */
function added(q: string, condition: string): string | null {
  const [old, more] = [parse(q), parse(`{ ${condition} }`)];
  return old && more ? format(more.reduce(add, old)) : null;
}

/** Returns whether the difference of two shares may be chance: it is below twice its standard error, or concerns
 * fewer than three spans. */
function isChance({ selected, rest }: Difference, data: Differences): boolean {
  const [n, m] = [data.selected.read, data.rest.read];
  if (!n || !m) return true;
  const share = (selected + rest) / (n + m);
  const error = Math.sqrt(share * (1 - share) * (1 / n + 1 / m));
  return Math.abs(selected / n - rest / m) <= 2 * error || Math.max(selected, rest) < 3;
}

function Share({
  share,
  of,
  read,
  letter,
}: {
  share: number;
  of: number;
  read: number;
  letter: string;
}) {
  return (
    <td class="portion" title={`${count(of)} of ${count(read)} spans`}>
      <span class="portion-bar" aria-hidden="true">
        <i class={`portion-${letter}`} style={{ width: `${Math.min(1, share) * 100}%` }} />
      </span>
      <span class="number">{percent(share)}</span>
    </td>
  );
}

function Row({ one, data, q }: { one: Difference; data: Differences; q: string }) {
  const chance = isChance(one, data);
  const to = added(q, one.condition);
  const text = (
    <>
      <bdi>{one.attribute}</bdi>
      {"\u00a0=\u00a0"}
      <b>
        <bdi>{one.value === "" ? "(empty)" : one.value}</bdi>
      </b>
    </>
  );
  return (
    <tr class={chance ? "chance" : ""}>
      <th scope="row" title={`${isolate(one.attribute)} = ${isolate(one.value)}`}>
        {to === null ? (
          text
        ) : (
          <button
            type="button"
            class="plain"
            title="List only spans with this value"
            onClick={() => set({ q: to })}
          >
            {text}
          </button>
        )}
        {chance && <small> may be chance</small>}
      </th>
      <Share share={one.selected_share} of={one.selected} read={data.selected.read} letter="b" />
      <Share share={one.rest_share} of={one.rest} read={data.rest.read} letter="a" />
    </tr>
  );
}

function Attributes({ data, query }: { data: Differences; query: Query }) {
  const { q = "", service = "", name = "" } = query;
  const list = data.attributes.filter((one) => one.selected_share !== one.rest_share);
  const part = ({ spans, read }: Differences["rest"]): string =>
    read < spans ? `${count(read)} of ${count(spans)}` : count(spans);
  if (!data.selected.spans || !data.rest.spans)
    return (
      <p class="quiet">
        {data.selected.spans
          ? "All spans are in the selection"
          : "There are no spans in the selection"}
        , so there is nothing to compare.
      </p>
    );
  return (
    <table class="differing">
      <caption>
        {list.length ? "Attributes that differ most" : "No attribute differs"}
        <span class="quiet">
          {" "}
          of {part(data.selected)} selected and {part(data.rest)} other spans of{" "}
          <Named service={service} name={name} />
        </span>
      </caption>
      {list.length > 0 && (
        <thead>
          <tr>
            <th scope="col">Attribute</th>
            <th scope="col">Selected</th>
            <th scope="col">Rest</th>
          </tr>
        </thead>
      )}
      <tbody>
        {list.slice(0, shown).map((one) => (
          <Row key={one.condition} one={one} data={data} q={q} />
        ))}
      </tbody>
    </table>
  );
}

export function Selection({
  box,
  query,
  filter,
}: {
  box: Box;
  query: Query;
  /** Parameters of the list without the box. */
  filter: Query;
}) {
  const { data, error, loading } = useResponse<Differences>(
    url("differences", { ...filter, ...selectionOf(box), limit: "60" }),
  );
  const { service = "", name = "", q = "", status = "", roots = "", min = "" } = query;
  const part = useRef<HTMLElement>(null);
  useFocusReturn(part, ".heat");
  return (
    <section class="selection" aria-label="Selection" ref={part}>
      <Loading on={loading} />
      <p class="offer">
        <span>
          <b>{data ? count(data.selected.spans) : "…"}</b> of{" "}
          {data ? count(data.selected.spans + data.rest.spans) : "…"} spans of{" "}
          <Named service={service} name={name} />: {timesOf(box)}, {lengthsOf(box)}
        </span>
        <a
          href={href("compare/slow", {
            ...{ service, name, q, status, roots, min, box: query.box },
            ...carried(query),
          })}
        >
          <Icon name="compare" />
          Compare with the rest
        </a>
        <button
          type="button"
          class="plain"
          onClick={() =>
            set({
              start: String(Math.floor(Number(box.start) / 1e6)),
              end: String(Math.ceil(Number(box.end) / 1e6)),
              box: "",
            })
          }
        >
          Zoom to this time
        </button>
        <button type="button" class="plain" onClick={() => set({ box: "" })}>
          Clear <kbd>Esc</kbd>
        </button>
      </p>
      <Cut text={data?.cut} />
      {error ? (
        <p class="quiet">
          <bdi>{error}</bdi>
        </p>
      ) : (
        data && (
          <div
            class="differing-frame"
            tabIndex={0}
            role="group"
            aria-label="Attributes that differ"
          >
            <Attributes data={data} query={query} />
          </div>
        )
      )}
    </section>
  );
}
