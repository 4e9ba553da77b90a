// SPDX-License-Identifier: Apache-2.0
// Converts the conditions of the search field to TraceQL and back.
import type { Json } from "../openapi";

/**
 * A condition. All three parts are TraceQL source text. The operator "contains" is the exception:
 * the key is "name", and the value is plain text that the name of the span or service contains.
 */
export interface Chip {
  key: string;
  op: string;
  value: string;
}

export const service = "resource.service.name";
const escapes: Record<string, string> = { '"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r" };

/** Returns a TraceQL string. */
export const quote = (text: string): string =>
  // Other control characters may stand in a string as they are.
  `"${text.replace(/["\\\n\r]/g, (letter) => escapes[letter])}"`;

const names: Record<string, string> = {
  a: "\x07",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};

/** Returns the text of a TraceQL string, and other literals as they are written. */
export function unquote(literal: string): string {
  if (literal[0] === "`") return literal.slice(1, -1);
  if (literal[0] !== '"') return literal;
  return literal
    .slice(1, -1)
    .replace(
      /\\(?:x([\da-f]{2})|u([\da-f]{4})|U([\da-f]{8})|([0-7]{3})|([^]))/gi,
      (_, x?: string, u?: string, long?: string, octal?: string, letter?: string) => {
        if (letter) return names[letter] ?? letter;
        const code = octal ? parseInt(octal, 8) : parseInt(x ?? u ?? long ?? "", 16);
        return code <= 0x10ffff ? String.fromCodePoint(code) : "\ufffd";
      },
    );
}

/** Returns an attribute as it is written in TraceQL, with quotes if its name needs them. */
export const keyOf = (scope: string, name: string): string =>
  `${scope}.${/^[\w.\-/:@]+$/.test(name) ? name : quote(name)}`;

/** Returns the TraceQL literal of an attribute's value, or "" if TraceQL cannot compare the value. */
export function literalOf(value: Json): string {
  if (typeof value === "string") return quote(value);
  if (typeof value === "boolean" || (typeof value === "number" && Number.isFinite(value)))
    // Integers that a number of JavaScript cannot contain exactly would find other spans.
    return Number.isInteger(value) && !Number.isSafeInteger(value) ? "" : String(value);
  return "";
}

// --- Tokens

export interface Token {
  kind: "string" | "key" | "word" | "number" | "op" | "other";
  text: string;
  at: number;
}

const stringSource = '"(?:[^"\\\\\\n]|\\\\[^])*"|`[^`]*`';
const kinds: [Token["kind"], RegExp][] = [
  ["string", new RegExp(stringSource, "y")],
  ["number", /-?(?:\d|\.\d)(?:[eE][+-]?\d|[\w.\u00b5\u03bc])*/y],
  [
    "key",
    /(?:span|resource|event|link|instrumentation)?\.(?:[^\s{}()=~!<>&|^,"]|"(?:[^"\\\n]|\\[^])*")+/y,
  ],
  ["word", /[A-Za-z_]\w*(?::\w*)?/y],
  ["op", /&&|\|\||=~|!~|!=|>=|<=|=|>|</y],
  ["other", /[^\s]/y],
];

/** Splits TraceQL into tokens. An unfinished string is a token of the kind "other". */
export function tokens(text: string): Token[] {
  const out: Token[] = [];
  const blank = /\s*/y;
  for (let at = 0; ;) {
    blank.lastIndex = at;
    blank.exec(text);
    at = blank.lastIndex;
    if (at >= text.length) return out;
    const [kind, pattern] = kinds.find(([, one]) => ((one.lastIndex = at), one.test(text)))!;
    const end = kind === "other" && /["`]/.test(text[at]) ? text.length : pattern.lastIndex;
    out.push({ kind, text: text.slice(at, end), at });
    at = end;
  }
}

// --- Conditions and TraceQL

const constants =
  /^(?:nil|unset|ok|error|unspecified|internal|server|client|producer|consumer|true|false)$/;
const before = "(?is).*";
const after = ".*";
const escaped = (text: string): string => text.replace(/[\\^$.|?*+()[\]{}]/g, "\\$&");

const traceqlOf = ({ key, op, value }: Chip): string => {
  if (op !== "contains") return `${key} ${op} ${value}`;
  const pattern = quote(before + escaped(value) + after);
  return `(name =~ ${pattern} || ${service} =~ ${pattern})`;
};

export const format = (chips: Chip[]): string =>
  chips.length ? `{ ${chips.map(traceqlOf).join(" && ")} }` : "";

/** Returns the text whose pattern traceqlOf writes, or null for another pattern. */
function contained(pattern: string): string | null {
  const text = unquote(pattern);
  if (!text.startsWith(before) || !text.endsWith(after)) return null;
  const middle = text.slice(before.length, -after.length).replace(/\\([^\w\s])/g, "$1");
  return before + escaped(middle) + after === text ? middle : null;
}

/** Returns the conditions of a query, or null if the query is not a conjunction of comparisons. */
export function parse(query: string): Chip[] | null {
  if (!query.trim()) return [];
  const list = tokens(query);
  const chips: Chip[] = [];
  let i = 0;
  const take = (text: string): boolean => list[i]?.text === text && ++i > 0;
  const comparison = (): Chip | null => {
    const [key, op, value] = list.slice(i, i + 3);
    if (!value || op.kind !== "op" || /^(?:&&|\|\|)$/.test(op.text)) return null;
    if (key.kind !== "key" && (key.kind !== "word" || constants.test(key.text))) return null;
    if (!/^(?:string|number)$/.test(value.kind) && !constants.test(value.text)) return null;
    i += 3;
    return { key: key.text, op: op.text, value: value.text };
  };
  const words = (): Chip | null => {
    const first = comparison();
    const second = take("||") ? comparison() : null;
    if (first?.key !== "name" || second?.key !== service || !take(")")) return null;
    if (first.op !== "=~" || second.op !== "=~" || first.value !== second.value) return null;
    const value = contained(first.value);
    return value === null ? null : { key: "name", op: "contains", value };
  };
  if (!take("{")) return null;
  if (take("}")) return i === list.length ? [] : null;
  do {
    const chip = take("(") ? words() : comparison();
    if (!chip) return null;
    chips.push(chip);
  } while (take("&&"));
  return take("}") && i === list.length ? chips : null;
}

export const same = (a: Chip, b: Chip): boolean =>
  a.key === b.key && a.op === b.op && a.value === b.value;

/** Adds a condition once. */
export const add = (chips: Chip[], chip: Chip): Chip[] => [
  ...chips.filter((one) => !same(one, chip)),
  chip,
];

// --- Typed text

/** Short names that the user may type. */
const aliases: Record<string, string> = { service, operation: "name" };
const strings = new RegExp(
  String.raw`^(?:name|statusMessage|rootName|rootServiceName|resource\.service\.name|` +
    String.raw`\w+:\w*(?:name|Name|rootService|version|ID|id|statusMessage))$`,
);
const keywords = /^(?:span:)?(?:status|kind)$/;

/** Returns the literal of a typed value. */
function typed(key: string, op: string, text: string): string {
  const only = tokens(text);
  if (only.length === 1 && only[0].kind === "string") return text;
  if (op.endsWith("~") || strings.test(key)) return quote(text);
  if (keywords.test(key) && constants.test(text.toLowerCase())) return text.toLowerCase();
  if (/^(?:true|false|nil)$/.test(text)) return text;
  const number = /^-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+|[a-z\u00b5]+)?$/.exec(text);
  // With "=", a text such as 5ms is probably a text.
  if (number && (/^-?[\d.eE+-]+$/.test(text) || key.endsWith("uration") || /[<>]/.test(op)))
    return text;
  return quote(text);
}

/** Splits text such as `http.route = /cart` at its operator; null if it does not begin so. */
export function split(text: string): Chip | null {
  const found =
    /^\s*((?:[^\s{}()=~!<>&|^,"]|"(?:[^"\\\n]|\\[^])*")+)\s*(=~|!~|!=|>=|<=|=|>|<)\s*([^]*)$/.exec(
      text,
    );
  if (!found) return null;
  const [, name, op, value] = found;
  const first = tokens(name)[0];
  const intrinsic = /^[A-Za-z]+:\w+$/.test(name) || intrinsics.includes(name);
  const key =
    aliases[name] ??
    (first.kind === "key" && first.text === name ? name : intrinsic ? name : keyOf("", name));
  return { key, op, value: value.trim() };
}

/** Returns the condition that the user has typed, or null. */
export function condition(text: string): Chip | null {
  const parts = split(text);
  if (!parts?.value) return null;
  return { ...parts, value: typed(parts.key, parts.op, parts.value) };
}

/** Intrinsics without a colon. */
export const intrinsics = [
  "name",
  "status",
  "duration",
  "kind",
  "statusMessage",
  "rootName",
  "rootServiceName",
  "traceDuration",
  "childCount",
];

/** Returns how the key of a condition is shown. */
export const shownKey = (key: string): string => (key === service ? "service" : key);

/** Returns how a condition is shown. */
export const textOf = ({ key, op, value }: Chip): string =>
  op === "contains" ? value : `${shownKey(key)} ${op} ${value}`;

/** Returns the trace id that a text is, with 32 digits, or "". */
export const traceId = (text: string): string =>
  /^[\da-f]{16,32}$/i.test(text) ? text.toLowerCase().padStart(32, "0") : "";
