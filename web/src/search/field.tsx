// SPDX-License-Identifier: Apache-2.0
// The search field: conditions as chips, words, trace ids, and TraceQL.
import { useEffect, useRef, useState } from "preact/hooks";
import { Icon } from "../parts/basics";
import { carried, go, set, type Query } from "../state";
import { add, condition, format, parse, textOf, traceId, type Chip } from "./query";

/** Shows the line of a query that the server has rejected, with a caret below the column. */
function Rejected({ query, error }: { query: string; error: string }) {
  const place = /(\d+):(\d+): /.exec(error);
  const line = place && query.split("\n")[Number(place[1]) - 1];
  return (
    <div class="search-error" role="alert">
      {line && <pre aria-hidden="true">{`${line}\n${" ".repeat(Number(place[2]) - 1)}^`}</pre>}
      <p>{error}</p>
    </div>
  );
}

export function Search({ query, error }: { query: Query; error: string }) {
  const q = query.q ?? "";
  const parsed = parse(q);
  const chips = parsed ?? [];
  const raw = parsed ? "" : q;
  const [text, setText] = useState(raw);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => setText(raw), [q]);
  const put = (list: Chip[]): void => {
    setText("");
    set({ q: format(list) });
  };
  const commit = (): void => {
    const typed = text.trim();
    const trace = traceId(typed);
    if (trace) go(`trace/${trace}`, carried(query));
    else if (/^[{(]/.test(typed)) set({ q: typed });
    else if (!typed) raw && set({ q: "" });
    else put(add(chips, condition(typed) ?? { key: "name", op: "contains", value: typed }));
  };
  return (
    <>
      <div class="search-chips" role="search" aria-label="Spans">
        {chips.map((chip) => (
          <span class="search-chip" key={textOf(chip)} title={format([chip])}>
            <bdi>{textOf(chip)}</bdi>
            <button
              type="button"
              class="plain"
              aria-label={`Remove ${textOf(chip)}`}
              onClick={() => {
                put(chips.filter((one) => one !== chip));
                input.current?.focus();
              }}
            >
              <Icon name="close" />
            </button>
          </span>
        ))}
        <input
          id="traceql"
          ref={input}
          type="text"
          aria-label="Search: trace id, name, condition or TraceQL"
          placeholder="Trace id, name, http.route = /cart, or { TraceQL }"
          value={text}
          autocomplete="off"
          spellcheck={false}
          aria-invalid={error ? "true" : undefined}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter") commit();
            else if (event.key === "Backspace" && !text && chips.length) {
              event.preventDefault();
              const last = chips[chips.length - 1];
              put(chips.slice(0, -1));
              setText(textOf(last));
            } else if (event.key === "Escape") {
              setText(raw);
              event.currentTarget.blur();
            }
          }}
        />
      </div>
      {error && <Rejected query={q} error={error} />}
    </>
  );
}
