// SPDX-License-Identifier: Apache-2.0
// Shows data that may be private, data that redaction has removed, and a configuration that removes the rest.
import { useState } from "preact/hooks";
import { url, useResponse } from "../api";
import type { Found, Masked, Privacy } from "../openapi";
import { clock, count, day, milliseconds } from "../format";
import { Cut, Empty, Failed, Icon, Loading, Skeleton } from "../parts/basics";
import { carried, copy, href, range, type Query } from "../state";

const places: Record<string, string> = {
  resource: "resource",
  scope: "scope",
  span: "span",
  event: "event",
  link: "link",
  name: "name or message of a span",
  label: "profile label",
  profile: "profile attribute",
  function: "function",
  path: "file path",
};

/** Returns the options of the `redaction` processor that remove these kinds, as YAML. */
export function configOf(kinds: Privacy["kinds"]): string {
  const options = new Map<string, string[]>();
  for (const { option, pattern } of kinds)
    options.set(option, [
      ...(options.get(option) ?? []),
      `      - '${pattern.replaceAll("'", "''")}'`,
    ]);
  return [
    "processors:",
    "  redaction:",
    ...[...options].flatMap(([option, lines]) => [`    ${option}:`, ...lines]),
  ].join("\n");
}

export function PrivacyView({ query }: { query: Query }) {
  const { data, error, loading } = useResponse<Privacy>(url("privacy", range(query)));
  return (
    <main class="view health-view privacy-view" id="main">
      <Loading on={loading} />
      <header class="title">
        <h1>Privacy</h1>
        <p class="quiet">
          Values that may be personal or secret, and values that redaction removes before they are
          stored or forwarded.
        </p>
      </header>
      <Cut text={data?.cut} />
      {error ? (
        <Failed error={error} />
      ) : !data ? (
        <Skeleton />
      ) : (
        <Loaded data={data} query={query} />
      )}
    </main>
  );
}

function Loaded({ data, query }: { data: Privacy; query: Query }) {
  const { found, looked_at: at, masked } = data;
  return (
    <>
      <h2>
        Values that may be private{" "}
        <small class="quiet">
          in {count(at.spans)} spans, {count(at.series)} series and {count(at.functions)} functions
          of this time
        </small>
      </h2>
      {found.length ? (
        <>
          <FoundTable rows={found} query={query} />
          <Suggestion data={data} />
        </>
      ) : at.spans + at.series ? (
        <Empty title="Nothing found" icon="check">
          No mail or IP addresses, card numbers, tokens or home directories, and no keys with
          private names. Names of persons and free text are not detected.
        </Empty>
      ) : (
        <Empty title="No data to search" icon="search">
          The store has no spans or profiles in this time range. Select a longer one.
        </Empty>
      )}
      <h2>
        Values removed by redaction{" "}
        <small class="quiet">
          since the start
          {data.processors.length > 0 && (
            <>
              , by <bdi>{data.processors.join(", ")}</bdi>
            </>
          )}
        </small>
      </h2>
      {masked.length ? (
        <MaskedTable rows={masked} />
      ) : data.processors.length ? (
        <Empty title="Nothing removed yet" icon="check">
          No rule of <bdi>{data.processors.join(", ")}</bdi> has matched anything.
        </Empty>
      ) : (
        <Empty title="No redaction processor in this configuration" icon="warn">
          <p>
            Data is stored and forwarded unchanged. Add the <code>redaction</code> processor to the
            pipelines; it masks values by key, pattern or word.
          </p>
        </Empty>
      )}
      {data.masked_left_out > 0 && (
        <Cut text={`${count(data.masked_left_out)} more were removed than the table can show.`} />
      )}
    </>
  );
}

function FoundTable({ rows, query }: { rows: Found[]; query: Query }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Values that may be private">
      <table class="health">
        <thead>
          <tr>
            <th scope="col">Where</th>
            <th scope="col">Looks like</th>
            <th scope="col" class="number">
              Times
            </th>
            <th scope="col">Without it</th>
            <th scope="col">Example</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={`${row.place} ${row.key} ${row.kind}`}>
              <Where place={row.place} name={row.key} />
              <td>{row.kind}</td>
              <td class="number">{count(row.count)}</td>
              <Text text={row.example} />
              <td class="found-in" title={row.service}>
                {row.trace_id ? (
                  <a
                    href={href(`trace/${row.trace_id}`, {
                      span: row.span_id ?? "",
                      tab:
                        row.place === "event"
                          ? "events"
                          : row.place === "link"
                            ? "links"
                            : "attributes",
                      ...carried(query),
                    })}
                  >
                    <bdi>{row.service}</bdi>
                  </a>
                ) : (
                  <bdi class="quiet">{row.service || "–"}</bdi>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function MaskedTable({ rows }: { rows: Masked[] }) {
  const many = new Set(rows.map((row) => row.processor)).size > 1;
  const today = day(Date.now());
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Values removed by redaction">
      <table class="health">
        <thead>
          <tr>
            <th scope="col">Where</th>
            <th scope="col">Rule</th>
            <th scope="col" class="number">
              Times
            </th>
            <th scope="col">Became</th>
            <th scope="col">Last</th>
          </tr>
        </thead>
        <tbody>
          {[...rows]
            .sort((a, b) => b.count - a.count)
            .map((row) => {
              const last = milliseconds(row.last_unix_ns);
              return (
                <tr key={`${row.processor} ${row.rule} ${row.place} ${row.key} ${row.became}`}>
                  <Where place={row.place} name={row.key} />
                  <td class="rule mono">
                    {many && (
                      <>
                        <bdi class="quiet">{row.processor}</bdi>{" "}
                      </>
                    )}
                    <bdi>{row.rule}</bdi>
                  </td>
                  <td class="number">{count(row.count)}</td>
                  {row.became ? (
                    <Text text={row.became} />
                  ) : (
                    <td class="quiet">removed, with its key</td>
                  )}
                  <td>
                    {day(last) !== today && <small>{day(last)} </small>}
                    {clock(last, 0)}
                  </td>
                </tr>
              );
            })}
        </tbody>
      </table>
    </div>
  );
}

function Where({ place, name }: { place: string; name: string }) {
  const what = places[place] ?? place;
  return (
    <th scope="row" class="where">
      {name ? (
        <>
          <bdi class="mono">{name}</bdi> <small class="quiet">{what}</small>
        </>
      ) : (
        what
      )}
    </th>
  );
}

const mask = "[REDACTED]";

/** A text with its masked parts highlighted. */
const Text = ({ text }: { text: string }) => (
  <td class="left mono">
    <bdi>
      {text.split(mask).map((part, i) => (
        <>
          {i > 0 && <b>{mask}</b>}
          {part}
        </>
      ))}
    </bdi>
  </td>
);

function Suggestion({ data }: { data: Privacy }) {
  const named = [...new Set(data.found.map((row) => row.kind))];
  const [excluded, setExcluded] = useState<string[]>([]);
  const kinds = data.kinds.filter(({ name }) => named.includes(name) && !excluded.includes(name));
  const text = configOf(kinds);
  return (
    <details class="suggestion">
      <summary>Configuration that removes these values</summary>
      <div class="filters">
        {named.map((name) => (
          <label key={name} class="check">
            <input
              type="checkbox"
              checked={!excluded.includes(name)}
              onChange={(event) =>
                setExcluded(
                  event.currentTarget.checked
                    ? excluded.filter((one) => one !== name)
                    : [...excluded, name],
                )
              }
            />
            {name}
          </label>
        ))}
      </div>
      {kinds.length > 0 && (
        <>
          <pre tabIndex={0}>{text}</pre>
          <div class="filters">
            <button
              type="button"
              class="button"
              onClick={() =>
                copy(text, "Configuration copied. Also add redaction to the pipelines.")
              }
            >
              <Icon name="link" /> Copy
            </button>
            <span class="quiet">
              Then name <code>redaction</code> in <code>processors</code> of each pipeline whose
              exporters it is to stand before.
            </span>
          </div>
        </>
      )}
    </details>
  );
}
