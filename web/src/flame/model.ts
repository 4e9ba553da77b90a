// SPDX-License-Identifier: Apache-2.0
// A flame graph in typed arrays: decoding Pyroscope's flamebearer, search, callers and callees, tables.
import type { Flamebearer } from "../openapi";

/**
 * Bars sorted by level, then from left to right. `start` and `total` are in the profile's unit; in
 * a comparison they are the drawn values, and `left` and `right` are the two sides. The children of
 * bar i are the bars from first[i] up to last[i].
 */
export interface Flame {
  n: number;
  depth: number;
  names: string[];
  files: string[];
  start: Float64Array;
  total: Float64Array;
  self: Float64Array;
  name: Int32Array;
  level: Int32Array;
  parent: Int32Array;
  first: Int32Array;
  last: Int32Array;
  levels: Int32Array; // first bar of each level, and the number of bars at the end
  width: number;
  sides: Sides | null;
}

export interface Sides {
  left: Float64Array;
  right: Float64Array;
  leftSelf: Float64Array;
  rightSelf: Float64Array;
  leftTotal: number;
  rightTotal: number;
  /** Values of one sample on each side; null if unknown. */
  sample: Sample | null;
}

export interface Sample {
  left: number;
  right: number;
}

function empty(n: number, depth: number, names: string[], files: string[]): Flame {
  return {
    n,
    depth,
    names,
    files,
    start: new Float64Array(n),
    total: new Float64Array(n),
    self: new Float64Array(n),
    name: new Int32Array(n),
    level: new Int32Array(n),
    parent: new Int32Array(n).fill(-1),
    first: new Int32Array(n),
    last: new Int32Array(n),
    levels: new Int32Array(depth + 1),
    width: 0,
    sides: null,
  };
}

/** Sets parents and children by walking each two neighbouring levels side by side. */
function link(flame: Flame): Flame {
  const { start, total, levels, parent, first, last } = flame;
  for (let d = 0; d < flame.depth; d++) {
    let child = levels[d + 1];
    const end = d + 2 <= flame.depth ? levels[d + 2] : child;
    for (let i = levels[d]; i < levels[d + 1]; i++) {
      const right = start[i] + total[i];
      const slack = 1e-9 * (Math.abs(right) + 1);
      first[i] = child;
      while (child < end && start[child] < right - slack) parent[child++] = i;
      // A bar without width may start at the end of its parent, but only that of the last bar of a
      // level.
      while (
        child < end &&
        total[child] <= slack &&
        start[child] <= right + slack &&
        i + 1 === levels[d + 1]
      )
        parent[child++] = i;
      last[i] = child;
    }
  }
  flame.width = flame.n ? flame.total[0] : 0;
  return flame;
}

/**
 * Decodes data from the server. In a comparison, `relative` draws each side as a share of its own
 * total, so that selections of different sizes can be compared. Otherwise the values are drawn.
 */
export function decode(bearer: Flamebearer, relative = true, sample: Sample | null = null): Flame {
  const two = bearer.leftTicks !== undefined;
  const step = two ? 7 : 4;
  const levels = bearer.levels;
  let n = 0;
  for (const level of levels) n += Math.floor(level.length / step);
  const flame = empty(n, levels.length, bearer.names, bearer.files);
  const sides: Sides | null = two
    ? {
        left: new Float64Array(n),
        right: new Float64Array(n),
        leftSelf: new Float64Array(n),
        rightSelf: new Float64Array(n),
        leftTotal: bearer.leftTicks ?? 0,
        rightTotal: bearer.rightTicks ?? 0,
        sample,
      }
    : null;
  flame.sides = sides;
  const scaleLeft = sides && relative ? 1 / Math.max(sides.leftTotal, 1e-9) : 1;
  const scaleRight = sides && relative ? 1 / Math.max(sides.rightTotal, 1e-9) : 1;
  let i = 0;
  for (let d = 0; d < levels.length; d++) {
    const level = levels[d];
    flame.levels[d] = i;
    let at = 0;
    let atRight = 0;
    for (let k = 0; k + step <= level.length; k += step, i++) {
      flame.level[i] = d;
      if (sides) {
        at += level[k];
        atRight += level[k + 3];
        sides.left[i] = level[k + 1];
        sides.right[i] = level[k + 4];
        sides.leftSelf[i] = level[k + 2];
        sides.rightSelf[i] = level[k + 5];
        flame.start[i] = at * scaleLeft + atRight * scaleRight;
        flame.total[i] = level[k + 1] * scaleLeft + level[k + 4] * scaleRight;
        flame.self[i] = level[k + 2] * scaleLeft + level[k + 5] * scaleRight;
        flame.name[i] = level[k + 6];
        at += level[k + 1];
        atRight += level[k + 4];
      } else {
        at += level[k];
        flame.start[i] = at;
        flame.total[i] = level[k + 1];
        flame.self[i] = level[k + 2];
        flame.name[i] = level[k + 3];
        at += level[k + 1];
      }
    }
  }
  flame.levels[levels.length] = i;
  return link(flame);
}

export const nameOf = (flame: Flame, i: number): string => flame.names[flame.name[i]] ?? "";
export const fileOf = (flame: Flame, i: number): string => flame.files[flame.name[i]] ?? "";

/** Returns the bars from the root to a bar, both included. */
export function pathTo(flame: Flame, i: number): number[] {
  const path: number[] = [];
  for (let at = i; at >= 0; at = flame.parent[at]) path.push(at);
  return path.reverse();
}

/**
 * Returns how much the right side differs. Relative: the change of the bar's share, from -1 (gone)
 * to 1 (new). Absolute: the bar's part of the total difference, so that its causes are visible.
 */
export function changeOf(flame: Flame, i: number, relative: boolean): number {
  const sides = flame.sides;
  if (!sides) return 0;
  if (!relative)
    return (
      (sides.right[i] - sides.left[i]) /
      Math.max(Math.abs(sides.rightTotal - sides.leftTotal), 1e-9)
    );
  const left = sides.left[i] / Math.max(sides.leftTotal, 1e-9);
  const right = sides.right[i] / Math.max(sides.rightTotal, 1e-9);
  const most = Math.max(left, right);
  return most > 0 ? (right - left) / most : 0;
}

/**
 * Returns true if the difference between two values may be chance: it is smaller than three
 * samples, or than twice the standard error of two counts of samples (Poisson distribution).
 * Relative: the difference between the shares of both values.
 */
export function isNoise(flame: Flame, left: number, right: number, relative: boolean): boolean {
  const { sides } = flame;
  if (!sides?.sample) return false;
  const scaleLeft = relative ? 1 / Math.max(sides.leftTotal, 1e-9) : 1;
  const scaleRight = relative ? 1 / Math.max(sides.rightTotal, 1e-9) : 1;
  const oneLeft = sides.sample.left * scaleLeft;
  const oneRight = sides.sample.right * scaleRight;
  const delta = Math.abs(right * scaleRight - left * scaleLeft);
  const error = Math.sqrt(left * scaleLeft * oneLeft + right * scaleRight * oneRight);
  return delta < Math.max(3 * oneLeft, 3 * oneRight, 2 * error);
}

export interface Matches {
  names: Uint8Array;
  bars: number;
  total: number;
}

/** Returns a function that tests for a text, ignoring case, or for a regular expression between slashes; null if the
 * regular expression is invalid. */
function testOf(text: string): ((value: string) => boolean) | null {
  const expression = /^\/(.+)\/$/.exec(text)?.[1];
  if (!expression) {
    const wanted = text.toLowerCase();
    return (value) => value.toLowerCase().includes(wanted);
  }
  try {
    const compiled = new RegExp(expression, "i");
    return (value) => compiled.test(value);
  } catch {
    return null;
  }
}

/** Returns true for a regular expression between slashes that is invalid. */
export const isInvalid = (text: string): boolean => testOf(text.trim()) === null;

/** Returns the bars whose name or file contains the text, ignoring case, or matches the regular expression between
 * slashes. An invalid expression matches nothing. `total` counts a match below another match once. */
export function search(flame: Flame, text: string): Matches | null {
  const wanted = text.trim();
  if (!wanted) return null;
  const matches = testOf(wanted) ?? (() => false);
  const names = new Uint8Array(flame.names.length);
  for (let i = 0; i < names.length; i++) {
    if (matches(flame.names[i]) || matches(flame.files[i] ?? "")) names[i] = 1;
  }
  const covered = new Uint8Array(flame.n);
  let bars = 0;
  let total = 0;
  for (let i = 0; i < flame.n; i++) {
    const match = names[flame.name[i]];
    const above = i > 0 && covered[flame.parent[i]] === 1;
    bars += match;
    if (match && !above) total += flame.total[i];
    covered[i] = match || above ? 1 : 0;
  }
  return { names, bars, total };
}

export interface FunctionRow {
  name: number;
  self: number;
  total: number;
  left: number;
  right: number;
}

/** Returns self and total by function. A recursive call counts once. */
export function functionsOf(flame: Flame): FunctionRow[] {
  const rows = new Map<number, FunctionRow>();
  const open = new Int32Array(flame.names.length);
  const stack: number[] = flame.n ? [0] : [];
  const leaving: number[] = [];
  while (stack.length) {
    const i = stack.pop()!;
    while (leaving.length && flame.level[leaving[leaving.length - 1]] >= flame.level[i])
      open[flame.name[leaving.pop()!]]--;
    const name = flame.name[i];
    if (flame.parent[i] >= 0) {
      let row = rows.get(name);
      if (!row) rows.set(name, (row = { name, self: 0, total: 0, left: 0, right: 0 }));
      row.self += flame.self[i];
      if (flame.sides) {
        row.left += flame.sides.leftSelf[i];
        row.right += flame.sides.rightSelf[i];
      }
      if (!open[name]) row.total += flame.total[i];
    }
    open[name]++;
    leaving.push(i);
    for (let child = flame.last[i] - 1; child >= flame.first[i]; child--) stack.push(child);
  }
  return [...rows.values()];
}

interface Tree {
  name: number;
  total: number;
  self: number;
  left: number;
  right: number;
  leftSelf: number;
  rightSelf: number;
  children: Map<number, Tree>;
}

const tree = (name: number): Tree => ({
  name,
  total: 0,
  self: 0,
  left: 0,
  right: 0,
  leftSelf: 0,
  rightSelf: 0,
  children: new Map(),
});

function childOf(parent: Tree, name: number): Tree {
  let child = parent.children.get(name);
  if (!child) parent.children.set(name, (child = tree(name)));
  return child;
}

function flatten(root: Tree, like: Flame): Flame {
  const rows: { node: Tree; start: number }[][] = [[{ node: root, start: 0 }]];
  for (let d = 0; rows[d].length; d++) {
    const next: { node: Tree; start: number }[] = [];
    for (const { node, start } of rows[d]) {
      let at = start;
      for (const child of [...node.children.values()].sort((a, b) => b.total - a.total)) {
        next.push({ node: child, start: at });
        at += child.total;
      }
    }
    rows.push(next);
  }
  rows.pop();
  const n = rows.reduce((all, level) => all + level.length, 0);
  const flame = empty(n, rows.length, like.names, like.files);
  if (like.sides) {
    const make = (): Float64Array => new Float64Array(n);
    flame.sides = {
      ...like.sides,
      left: make(),
      right: make(),
      leftSelf: make(),
      rightSelf: make(),
    };
  }
  let i = 0;
  for (let d = 0; d < rows.length; d++) {
    flame.levels[d] = i;
    for (const { node, start } of rows[d]) {
      flame.level[i] = d;
      flame.start[i] = start;
      flame.total[i] = node.total;
      flame.self[i] = node.self;
      flame.name[i] = node.name;
      if (flame.sides) {
        flame.sides.left[i] = node.left;
        flame.sides.right[i] = node.right;
        flame.sides.leftSelf[i] = node.leftSelf;
        flame.sides.rightSelf[i] = node.rightSelf;
      }
      i++;
    }
  }
  flame.levels[rows.length] = i;
  return link(flame);
}

function add(node: Tree, flame: Flame, i: number): void {
  node.total += flame.total[i];
  if (flame.sides) {
    node.left += flame.sides.left[i];
    node.right += flame.sides.right[i];
  }
}

/** Returns the outermost bars of a function. */
function occurrences(flame: Flame, name: number): number[] {
  const covered = new Uint8Array(flame.n);
  const found: number[] = [];
  for (let i = 0; i < flame.n; i++) {
    const above = i > 0 && flame.parent[i] >= 0 && covered[flame.parent[i]] === 1;
    if (flame.name[i] === name && !above) found.push(i);
    covered[i] = above || flame.name[i] === name ? 1 : 0;
  }
  return found;
}

/** Returns the merged callers of a function as a flame graph with the function as the root. */
export function callersOf(flame: Flame, name: number): Flame {
  const root = tree(name);
  for (const i of occurrences(flame, name)) {
    add(root, flame, i);
    let at = root;
    for (let up = flame.parent[i]; up > 0; up = flame.parent[up]) {
      at = childOf(at, flame.name[up]);
      at.total += flame.total[i];
      if (flame.sides) {
        at.left += flame.sides.left[i];
        at.right += flame.sides.right[i];
      }
    }
  }
  return flatten(root, flame);
}

/** Returns the merged callees of a function as a flame graph. */
export function calleesOf(flame: Flame, name: number): Flame {
  const root = tree(name);
  const stack: [number, Tree][] = occurrences(flame, name).map((i) => [i, root]);
  while (stack.length) {
    const [i, node] = stack.pop()!;
    add(node, flame, i);
    node.self += flame.self[i];
    for (let child = flame.first[i]; child < flame.last[i]; child++)
      stack.push([child, childOf(node, flame.name[child])]);
  }
  return flatten(root, flame);
}

export interface Changes {
  /** Show only the stacks that contain this function; -1: all. */
  focus: number;
  /** Functions whose callees are shown as callees of their callers. */
  hidden: Set<number>;
  /** Show consecutive calls of a function by itself as one. */
  collapse: boolean;
}

/** Returns the part of each bar that is in stacks with the function, as a function of the bar's own values. */
function weigh(flame: Flame, focus: number, values: Float64Array): Float64Array {
  if (focus < 0) return values;
  const inside = new Uint8Array(flame.n);
  for (let i = 0; i < flame.n; i++)
    inside[i] =
      flame.name[i] === focus || (flame.parent[i] >= 0 && inside[flame.parent[i]]) ? 1 : 0;
  const out = new Float64Array(flame.n);
  for (let i = flame.n - 1; i >= 0; i--) {
    if (inside[i]) out[i] = values[i];
    const parent = flame.parent[i];
    if (parent >= 0 && !inside[parent]) out[parent] += out[i];
  }
  return out;
}

/** Returns the flame graph with some functions hidden or merged. */
export function change(flame: Flame, { focus, hidden, collapse }: Changes): Flame {
  if (!flame.n) return flame;
  const zero = new Float64Array(flame.n);
  const total = weigh(flame, focus, flame.total);
  const left = weigh(flame, focus, flame.sides?.left ?? zero);
  const right = weigh(flame, focus, flame.sides?.right ?? zero);
  const root = tree(flame.name[0]);
  const nodes: Tree[] = new Array<Tree>(flame.n);
  for (let i = 0; i < flame.n; i++) {
    const above = i > 0 ? nodes[flame.parent[i]] : undefined;
    const name = flame.name[i];
    const merged = above && (hidden.has(name) || (collapse && above.name === name));
    const node = !above ? root : merged ? above : total[i] > 0 ? childOf(above, name) : tree(name);
    nodes[i] = node;
    if (!merged) {
      node.total += total[i];
      node.left += left[i];
      node.right += right[i];
    }
    // Outside of the focus, a bar's own time is omitted.
    if (total[i] === flame.total[i]) {
      node.self += flame.self[i];
      node.leftSelf += flame.sides?.leftSelf[i] ?? 0;
      node.rightSelf += flame.sides?.rightSelf[i] ?? 0;
    }
  }
  const out = flatten(root, flame);
  if (out.sides && focus >= 0) {
    out.sides.leftTotal = left[0];
    out.sides.rightTotal = right[0];
  }
  return out;
}

/** Returns the bar at a value of a level, or -1. */
export function barAt(flame: Flame, level: number, value: number): number {
  if (level < 0 || level >= flame.depth) return -1;
  let low = flame.levels[level];
  let high = flame.levels[level + 1] - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (value < flame.start[middle]) high = middle - 1;
    else if (value >= flame.start[middle] + flame.total[middle]) low = middle + 1;
    else return middle;
  }
  return -1;
}

/** Returns the first bar of a level that ends after a value. */
export function firstEndingBehind(flame: Flame, level: number, value: number): number {
  let low = flame.levels[level];
  let high = flame.levels[level + 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (flame.start[middle] + flame.total[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}
