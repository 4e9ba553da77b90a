// SPDX-License-Identifier: Apache-2.0
// Suggestions for the search field: attributes, their values, and earlier queries.
import { get } from "../api";
import { encode, remember, remembered, type Query } from "../state";
import { format, intrinsics, keyOf, quote, split, tokens, traceId, type Chip } from "./query";

export interface Suggestion {
  text: string;
  /** Description: the kind of the suggestion, or its effect. */
  note: string;
  /** The new text of the field, to type on; or the condition that is added; or the whole query. */
  type?: string;
  chip?: Chip;
  query?: string;
}

/** Largest number of suggestions. */
const most = 12;

interface Tags {
  scopes?: { name: string; tags?: string[] }[];
}
interface Values {
  tagValues?: { type: string; value: string | number | boolean }[];
}

// Responses of the last minute, by address, so that each key that is pressed does not cause a request.
const cache = new Map<string, { at: number; answer: Promise<unknown> }>();

function cached<T>(address: string): Promise<T> {
  const known = cache.get(address);
  if (known && Date.now() - known.at < 60e3) return known.answer as Promise<T>;
  if (cache.size > 50) cache.clear();
  const answer = get<T>(address).catch((error: unknown) => {
    cache.delete(address);
    throw error;
  });
  cache.set(address, { at: Date.now(), answer });
  return answer;
}

/** Returns all attributes as they are written in TraceQL, and the intrinsics. */
async function keys(times: Query): Promise<string[]> {
  const { scopes = [] } = await cached<Tags>(`/api/v2/search/tags?${encode(times)}`);
  const scoped = scopes
    .filter(({ name }) => name === "span" || name === "resource")
    .flatMap(({ name, tags = [] }) => tags.map((tag) => keyOf(name, tag)));
  return [...intrinsics, ...scoped];
}

/** Orders texts that begin with the wanted text before those that contain it, and leaves out the others. */
function ranked<T>(list: T[], textOf: (one: T) => string, wanted: string): T[] {
  const text = wanted.toLowerCase();
  const at = (one: T): number => textOf(one).toLowerCase().indexOf(text);
  const place = (one: T): number =>
    at(one) === 0 ? 0 : /[.:]$/.test(textOf(one).slice(0, at(one))) ? 1 : 2;
  return list
    .filter((one) => at(one) >= 0)
    .sort((a, b) => place(a) - place(b))
    .slice(0, most);
}

/** Returns values of the spans that fulfil the other conditions. With a query, the server returns exact types. */
async function valuesOf(typed: Chip, chips: Chip[], times: Query): Promise<Suggestion[]> {
  const wanted = typed.value.replace(/^["`]/, "").replace(/["`]$/, "");
  const tag = encodeURIComponent(typed.key);
  const { tagValues = [] } = await cached<Values>(
    `/api/v2/search/tag/${tag}/values?${encode({ ...times, q: format(chips) || "{ true }" })}`,
  );
  return ranked(tagValues, ({ value }) => String(value), wanted).map(({ type, value }) => ({
    text: String(value),
    note: type === "keyword" ? "" : type,
    chip: {
      key: typed.key,
      op: typed.op,
      value: type === "string" || typed.op.endsWith("~") ? quote(String(value)) : String(value),
    },
  }));
}

/** Completes the last word of TraceQL. */
async function completed(text: string, times: Query): Promise<Suggestion[]> {
  const last = tokens(text).at(-1);
  if (!last || !/^(?:key|word)$/.test(last.kind) || last.at + last.text.length !== text.length)
    return [];
  const list = ranked(await keys(times), (key) => key, last.text);
  return list
    .filter((key) => key !== last.text)
    .map((key) => ({ text: key, note: "attribute", type: `${text.slice(0, last.at)}${key} ` }));
}

/** Returns suggestions for the text of the field. */
export async function suggestions(
  text: string,
  chips: Chip[],
  times: Query,
): Promise<Suggestion[]> {
  const typed = text.trim();
  if (!typed) return [];
  if (/^[{(]/.test(typed)) return completed(text, times);
  const parts = split(text);
  if (parts) return valuesOf(parts, chips, times);
  const first: Suggestion[] = traceId(typed)
    ? [{ text: typed, note: "open this trace" }]
    : [
        {
          text: typed,
          note: "part of a name",
          chip: { key: "name", op: "contains", value: typed },
        },
      ];
  const list = ranked(await keys(times), (key) => key, typed);
  return [...first, ...list.map((key) => ({ text: key, note: "attribute", type: `${key} = ` }))];
}

// --- Earlier queries, which the browser stores

const limits = { recent: 8, saved: 30 };
type Kind = keyof typeof limits;

/** Returns the stored queries, the last one first. */
export function stored(kind: Kind): string[] {
  try {
    const list: unknown = JSON.parse(remembered(kind) || "[]");
    return Array.isArray(list) ? list.filter((one): one is string => typeof one === "string") : [];
  } catch {
    return [];
  }
}

const store = (kind: Kind, list: string[]): void =>
  remember(kind, list.length ? JSON.stringify(list.slice(0, limits[kind])) : "");

/** Remembers a query that the user has entered. */
export function enter(query: string): void {
  if (query) store("recent", [query, ...stored("recent").filter((one) => one !== query)]);
}

/** Saves a query, or removes it from the saved ones. */
export function toggleSaved(query: string): void {
  const list = stored("saved");
  store("saved", list.includes(query) ? list.filter((one) => one !== query) : [query, ...list]);
}

export const earlier = (): Suggestion[] => {
  const saved = stored("saved");
  return [
    ...saved.map((query) => ({ text: query, note: "saved", query })),
    ...stored("recent")
      .filter((query) => !saved.includes(query))
      .map((query) => ({ text: query, note: "recent", query })),
  ];
};
