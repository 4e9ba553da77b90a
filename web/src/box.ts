// SPDX-License-Identifier: Apache-2.0
// A box of the heat map: bounds of the start time and of the duration. The key `box` of the URL contains it.
import { duration } from "./format";
import type { Query } from "./state";

/** Bounds in ns; all are inclusive. Times are Unix times, as strings because they exceed exact numbers. */
export interface Box {
  start: string;
  end: string;
  min: number;
  /** Infinity: no bound. */
  max: number;
}

export const boxText = (box: Box): string =>
  [box.start, box.end, box.min, Number.isFinite(box.max) ? box.max : ""].join("-");

/** Returns the box of a query, or null. */
export function boxOf(query: Query): Box | null {
  const parts = /^(\d{1,19})-(\d{1,19})-(\d{1,16})-(\d{0,16})$/.exec(query.box ?? "");
  if (!parts) return null;
  const [, start, end, min, max] = parts;
  return { start, end, min: Number(min), max: max ? Number(max) : Infinity };
}

const longest = (box: Box): string => (Number.isFinite(box.max) ? `${box.max}ns` : "");

/** Returns the parameters that select a box in a comparison. */
export const selectionOf = (box: Box): Query => ({
  selection_start: box.start,
  selection_end: box.end,
  selection_min_duration: `${box.min}ns`,
  selection_max_duration: longest(box),
});

const units: Record<string, number> = {
  ns: 1,
  us: 1e3,
  µs: 1e3,
  ms: 1e6,
  s: 1e9,
  m: 60e9,
  h: 3600e9,
};

/** Returns a duration of a filter in ns, or 0 for a text that the server would reject. */
function parsed(text: string): number {
  const parts = /^([\d.]+)(ns|us|µs|ms|s|m|h)$/.exec(text);
  return parts ? Number(parts[1]) * units[parts[2]] : 0;
}

/** Narrows the parameters of a list of spans to a box. */
export const narrowed = (params: Query, box: Box | null): Query =>
  box
    ? {
        ...params,
        start: box.start,
        end: box.end,
        min_duration:
          parsed(params.min_duration ?? "") > box.min ? params.min_duration : `${box.min}ns`,
        max_duration: longest(box),
      }
    : params;

/** Describes the durations of a box. */
export const lengthsOf = (box: Box): string =>
  Number.isFinite(box.max)
    ? `${duration(box.min)} to ${duration(box.max)}`
    : `at least ${duration(box.min)}`;
