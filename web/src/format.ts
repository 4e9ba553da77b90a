// SPDX-License-Identifier: Apache-2.0
// Formats all numbers and times of the page.

const units: [number, string][] = [
  [3600e9, "h"],
  [60e9, "min"],
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

/** Formats a number with three significant digits, without trailing zeros. */
function digits(value: number): string {
  const size = Math.abs(value);
  const text = size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

export function duration(ns: number): string {
  if (!(Math.abs(ns) > 0)) return "0";
  for (const [size, unit] of units) {
    if (Math.abs(ns) >= size) return `${digits(ns / size)} ${unit}`;
  }
  return `${digits(ns)} ns`;
}

export function bytes(value: number): string {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (Math.abs(value) >= 1024 && i < names.length - 1) {
    value /= 1024;
    i++;
  }
  return `${digits(value)} ${names[i]}`;
}

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
export const count = (value: number): string => whole.format(value);

export function compact(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e9) return `${digits(value / 1e9)} G`;
  if (size >= 1e6) return `${digits(value / 1e6)} M`;
  if (size >= 1e4) return `${digits(value / 1e3)} k`;
  return size >= 100 || Number.isInteger(value) ? whole.format(value) : digits(value);
}

export function percent(share: number): string {
  if (!Number.isFinite(share)) return "–";
  const value = share * 100;
  if (value === 0) return "0%";
  if (Math.abs(value) < 0.01) return "<0.01%";
  const digits = Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${value.toFixed(digits)}%`;
}

/** Formats a number of events per second. A low rate is per minute or per hour. */
export function rate(perSecond: number): string {
  if (!(perSecond > 0)) return "0 /s";
  if (perSecond >= 1) return `${compact(perSecond)} /s`;
  return perSecond * 60 >= 1
    ? `${digits(perSecond * 60)} /min`
    : `${digits(Math.max(0.01, perSecond * 3600))} /h`;
}

/** Formats a relative change with its sign: 0.25 is +25%. */
export function change(by: number): string {
  const text = Math.abs(by) >= 10 ? `${digits(1 + by)}×` : `${Math.round(Math.abs(by) * 100)}%`;
  if (Math.abs(by) >= 10) return text;
  return text === "0%" ? text : `${by > 0 ? "+" : "−"}${text}`;
}

/** Formats a value of a profile in its unit. */
export function amount(value: number, unit: string): string {
  if (unit === "nanoseconds") return duration(value);
  if (unit === "microseconds") return duration(value * 1e3);
  if (unit === "milliseconds") return duration(value * 1e6);
  if (unit === "bytes") return bytes(value);
  return compact(value);
}

/** Formats the difference of two sides: of their shares in percentage points (pp), or of the
 * values. */
export function difference(
  left: number,
  right: number,
  leftAll: number,
  rightAll: number,
  unit: string,
  relative: boolean,
): string {
  const share = (value: number, all: number): number => (all > 0 ? value / all : 0);
  const delta = relative ? share(right, rightAll) - share(left, leftAll) : right - left;
  const sign = delta > 0 ? "+" : delta < 0 ? "−" : "";
  return `${sign}${relative ? `${(Math.abs(delta) * 100).toFixed(2)} pp` : amount(Math.abs(delta), unit)}`;
}

/** Returns a readable name for a type such as "process_cpu:cpu:nanoseconds:cpu:nanoseconds". */
export function typeName(id: string): string {
  const [family = id, kind = ""] = id.split(":");
  const known: Record<string, string> = {
    "process_cpu:cpu": "CPU",
    "process_cpu:samples": "CPU samples",
    "memory:alloc_space": "Allocated bytes",
    "memory:alloc_objects": "Allocations",
    "memory:inuse_space": "Heap bytes",
    "memory:inuse_objects": "Heap objects",
    "mutex:delay": "Lock delay",
    "mutex:contentions": "Contentions",
    "block:delay": "Block delay",
    "block:contentions": "Blocks",
    "goroutines:goroutine": "Goroutines",
    "wall:wall": "Wall time",
    "off_cpu:off_cpu": "Off-CPU",
    "off_cpu:events": "Off-CPU",
  };
  return known[`${family}:${kind}`] ?? (kind || family);
}

export const milliseconds = (unixNs: string): number => Number(unixNs) / 1e6;

const two = (value: number): string => String(value).padStart(2, "0");

// The time zone of all times: that of the browser, or UTC.
let inUtc = false;
export const setUtc = (on: boolean): void => void (inUtc = on);

/** Returns by how many minutes the clocks of the zone are ahead of UTC at a time. */
export const zoneMinutes = (ms: number): number => (inUtc ? 0 : -new Date(ms).getTimezoneOffset());

/** Returns the name of the zone at a time, such as UTC+5:30. */
export function zoneName(ms: number): string {
  const minutes = Math.abs(zoneMinutes(ms));
  const rest = minutes % 60 ? `:${two(minutes % 60)}` : "";
  const sign = zoneMinutes(ms) < 0 ? "−" : "+";
  return minutes ? `UTC${sign}${Math.floor(minutes / 60)}${rest}` : "UTC";
}

/** Returns a date whose fields in UTC are those of a time in the zone. */
const zoned = (ms: number): Date => new Date(ms + zoneMinutes(ms) * 60e3);

export function day(ms: number): string {
  const date = zoned(ms);
  return `${date.getUTCFullYear()}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())}`;
}

export function clock(ms: number, fraction = 3): string {
  const date = zoned(ms);
  const text = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}:${two(date.getUTCSeconds())}`;
  return fraction
    ? `${text}.${String(date.getUTCMilliseconds()).padStart(3, "0").slice(0, fraction)}`
    : text;
}

/** Returns a time in Unix ms for a text such as 2026-11-22T15:00:00 in the zone; NaN for other texts. */
export const timeOf = (text: string): number => Date.parse(inUtc ? `${text}Z` : text);

/** Returns a function's name without its package path. */
export function shortName(name: string): string {
  const paren = name.indexOf("(");
  const slash = name.lastIndexOf("/", paren < 0 ? name.length : paren);
  return slash > 0 && slash < name.length - 1 ? name.slice(slash + 1) : name;
}

/** Returns the file of a function whose name alone is not clear. */
export function fileHint(name: string, file: string): string {
  return file && /^[\w<>]+$/.test(shortName(name)) && name !== "total"
    ? file.slice(file.lastIndexOf("/") + 1)
    : "";
}

export function labelOf(name: string, file: string): string {
  const hint = fileHint(name, file);
  return hint ? `${isolate(shortName(name))}  ${isolate(hint)}` : shortName(name);
}

/** Letters that are written from right to left, and characters that change the direction of a text. */
const turning = /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefc]/;

/** Returns a name for a text without markup, such as a tooltip. Its direction does not affect the rest of the text. */
export const isolate = (name: string): string =>
  turning.test(name) ? `\u2068${name.replace(/[\u2066-\u2069]/g, "")}\u2069` : name;

const go = /^((?:[\w.~-]+\/)*[\w~-]+)\./;
const dotted = /^((?:[a-z_$][\w$]*\.)+)[A-Z$<]/;

/** Returns the Go package, Java package, Python module or library of a function. */
export function packageOf(name: string, file: string): string {
  const java = dotted.exec(name);
  if (java && name.split(".").length > 2)
    return java[1].split(".").slice(0, 3).join(".").replace(/\.$/, "");
  if (file && !file.endsWith(".go") && !file.endsWith(".java")) {
    const library = /(?:site-packages|dist-packages|node_modules|gems)\/((?:@[^/]+\/)?[^/]+)/.exec(
      file,
    );
    if (library) return library[1].replace(/\.py$/, "");
    const standard = /\/lib\/python[\d.]+\/([^/.]+)/.exec(file);
    if (standard) return standard[1];
    const parts = file.split("/").filter(Boolean);
    return parts.length > 1 ? parts.slice(0, -1).slice(-2).join("/") : (parts[0] ?? name);
  }
  const path = go.exec(name);
  if (path) return path[1];
  const scope = name.indexOf("::");
  if (scope > 0) return name.slice(0, scope);
  return file || name;
}
