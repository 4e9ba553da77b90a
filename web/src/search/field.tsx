// SPDX-License-Identifier: Apache-2.0
// The search field: conditions as chips, words, trace ids, and TraceQL, with suggestions.
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { isolate } from "../format";
import { Icon } from "../parts/basics";
import { carried, go, set, useRemembered, type Query } from "../state";
import { add, condition, format, parse, shownKey, textOf, traceId, type Chip } from "./query";
import { earlier, enter, stored, suggestions, toggleSaved, type Suggestion } from "./suggest";

/** Shows the line of a query that the server has rejected, with a caret below the column. */
function Rejected({ query, error }: { query: string; error: string }) {
  const place = /(\d+):(\d+): /.exec(error);
  const line = place && query.split("\n")[Number(place[1]) - 1];
  return (
    <div class="search-error" role="alert">
      {line && <pre aria-hidden="true">{`${line}\n${" ".repeat(Number(place[2]) - 1)}^`}</pre>}
      <p>
        <bdi>{error}</bdi>
      </p>
    </div>
  );
}

/** Requests the suggestions for a text while the field has the focus. */
function useSuggestions(text: string, q: string, times: Query, open: boolean): Suggestion[] {
  const [list, setList] = useState<Suggestion[]>([]);
  useEffect(() => {
    if (!open) return undefined;
    if (!text.trim()) {
      setList(earlier());
      return undefined;
    }
    let current = true;
    suggestions(text, parse(q) ?? [], times).then(
      (found) => current && setList(found),
      () => current && setList([]), // without suggestions, the field works as well
    );
    return () => void (current = false);
  }, [text, q, open, times.start, times.end]);
  return open ? list : [];
}

export function Search({ query, error, times }: { query: Query; error: string; times: Query }) {
  const q = query.q ?? "";
  const parsed = parse(q);
  const chips = parsed ?? [];
  const raw = parsed ? "" : q;
  const [text, setText] = useState(raw);
  const [open, setOpen] = useState(false);
  const [chosen, setChosen] = useState(-1);
  const input = useRef<HTMLInputElement>(null);
  const id = useId();
  useRemembered("saved"); // the button shows whether the query is saved
  const next = useRef<string | null>(null); // text that the field gets together with the next query
  useEffect(() => {
    setText(next.current ?? raw);
    next.current = null;
  }, [q]);
  const list = useSuggestions(text, q, times, open);
  useEffect(() => setChosen(-1), [list]);
  useEffect(
    () => document.getElementById(`${id}${chosen}`)?.scrollIntoView({ block: "nearest" }),
    [chosen],
  );
  const search = (to: string): void => {
    enter(to);
    setText(parse(to) ? "" : to);
    set({ q: to });
  };
  const put = (to: Chip[]): void => search(format(to));
  const commit = (): void => {
    const typed = text.trim();
    const trace = traceId(typed);
    setOpen(false);
    if (trace) go(`trace/${trace}`, carried(query));
    else if (/^[{(]/.test(typed)) search(typed);
    else if (!typed) {
      if (raw) search("");
    } else put(add(chips, condition(typed) ?? { key: "name", op: "contains", value: typed }));
  };
  const take = (one: Suggestion): void => {
    if (one.type !== undefined) {
      setText(one.type);
      input.current?.focus();
      return;
    }
    setOpen(false);
    if (one.query !== undefined) search(one.query);
    else if (one.chip) put(add(chips, one.chip));
    else commit();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) {
      event.preventDefault();
      setOpen(true);
      // -1 is the text itself
      if (list.length) setChosen(((chosen + 1 + step + list.length + 1) % (list.length + 1)) - 1);
    } else if (event.key === "Enter") {
      if (open && list[chosen]) take(list[chosen]);
      else commit();
    } else if (event.key === "Backspace" && !text && chips.length) {
      event.preventDefault();
      const last = chips[chips.length - 1];
      next.current = last.op === "contains" ? last.value : textOf(last);
      set({ q: format(chips.slice(0, -1)) });
    } else if (event.key === "Escape") {
      event.stopPropagation();
      if (open && list.length) setOpen(false);
      else if (text !== raw) setText(raw);
      else input.current?.blur();
    }
  };
  const saved = q !== "" && stored("saved").includes(q);
  return (
    <>
      <div
        class="search-box"
        onFocusOut={(event) =>
          !event.currentTarget.contains(event.relatedTarget as Node | null) && setOpen(false)
        }
      >
        <div class="search-chips" role="search" aria-label="Spans">
          {chips.map((chip) => (
            <span class="search-chip" key={textOf(chip)} title={isolate(format([chip]))}>
              {chip.op === "contains" && <small>name contains </small>}
              <span class="search-chip-text">
                {chip.op !== "contains" && (
                  <>
                    <bdi>{shownKey(chip.key)}</bdi> {chip.op}{" "}
                  </>
                )}
                <bdi>{chip.value}</bdi>
              </span>
              <button
                type="button"
                class="plain"
                aria-label={`Remove ${isolate(textOf(chip))}`}
                onClick={() => {
                  set({ q: format(chips.filter((one) => one !== chip)) });
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
            role="combobox"
            aria-label="Search: trace id, name, condition or TraceQL"
            aria-expanded={list.length > 0}
            aria-controls={`${id}list`}
            aria-autocomplete="list"
            aria-activedescendant={chosen >= 0 ? `${id}${chosen}` : undefined}
            placeholder="Trace id, name, http.route = /cart, or { TraceQL }"
            value={text}
            autocomplete="off"
            spellcheck={false}
            aria-invalid={error ? "true" : undefined}
            onFocus={() => setOpen(true)}
            onInput={(event) => {
              setText(event.currentTarget.value);
              setOpen(true);
            }}
            onKeyDown={onKeyDown}
          />
          {q && (
            <button
              type="button"
              class="plain search-save"
              aria-pressed={saved}
              title={saved ? "Remove from the saved queries" : "Save this query in the browser"}
              onClick={() => toggleSaved(q)}
            >
              {saved ? "Saved" : "Save"}
            </button>
          )}
        </div>
        <ul
          class="search-list"
          id={`${id}list`}
          role="listbox"
          aria-label="Suggestions"
          hidden={!list.length}
        >
          {list.map((one, i) => (
            <li
              key={`${one.note} ${one.text}`}
              id={`${id}${i}`}
              role="option"
              aria-selected={i === chosen}
              title={isolate(one.text)}
              onMouseDown={(event) => event.preventDefault()} // keeps the focus in the field
              onClick={() => take(one)}
            >
              <bdi>{one.text}</bdi> <small>{one.note}</small>
            </li>
          ))}
        </ul>
      </div>
      {error && <Rejected query={q} error={error} />}
    </>
  );
}
