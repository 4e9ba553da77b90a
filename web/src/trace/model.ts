// SPDX-License-Identifier: Apache-2.0
// A trace as a tree: order of rows, how each span spent its time, and the critical path.
import type { Json, Trace, TraceSpan } from "../openapi";
import { correctClocks, hostsOf } from "./skew";

export interface Node {
  span: TraceSpan;
  index: number; // index in the order of rows with all spans expanded
  depth: number;
  parent: Node | null;
  children: Node[];
  start: number; // ns since the start of the trace
  end: number;
  moved: number; // ns by which the span was moved because of its host's clock
  below: number; // number of descendants
  errorBelow: boolean;
  samplesBelow: number;
  /** Parts of the critical path that this span spent outside its children, as [from, to] in ns. */
  critical: [number, number][];
}

export interface Tree {
  nodes: Node[];
  roots: Node[];
  duration: number;
  startUnixNs: bigint;
  services: string[];
  errors: number;
  withSamples: number;
  byId: Map<string, Node>;
  /** Number of spans whose parent is missing. */
  orphans: number;
  /** Number of spans that were moved because of the clocks of their hosts. */
  moved: number;
  /** The first span without a parent id. If all spans have one, the first whose parent is missing. */
  root: Node;
  /** The span on the critical path that spent most time outside its children, or most CPU time. */
  busiest: Node;
}

/** Builds the tree. `clocks`: whether differences between the clocks of hosts are corrected. */
export function grow(trace: Trace, clocks: boolean): Tree {
  let startUnixNs = trace.spans.reduce(
    (least, span) => (BigInt(span.start_unix_ns) < least ? BigInt(span.start_unix_ns) : least),
    trace.spans.length ? BigInt(trace.spans[0].start_unix_ns) : 0n,
  );
  const byId = new Map<string, Node>();
  const all = trace.spans.map((span): Node => {
    const start = Number(BigInt(span.start_unix_ns) - startUnixNs);
    const node: Node = {
      span,
      index: 0,
      depth: 0,
      parent: null,
      children: [],
      start,
      end: start + span.duration_ns,
      moved: 0,
      below: 0,
      errorBelow: false,
      samplesBelow: 0,
      critical: [],
    };
    byId.set(span.span_id, node);
    return node;
  });
  const roots: Node[] = [];
  let orphans = 0;
  for (const node of all) {
    const parent = node.span.parent_id ? byId.get(node.span.parent_id) : undefined;
    if (parent && parent !== node && !isBelow(parent, node)) {
      node.parent = parent;
      parent.children.push(node);
    } else {
      if (node.span.parent_id) orphans++;
      roots.push(node);
    }
  }
  const moved = clocks ? correctClocks(roots, hostsOf(trace)) : 0;
  if (moved) {
    // The first span may have been moved.
    const first = all.reduce((least, node) => Math.min(least, node.start), Infinity);
    startUnixNs += BigInt(first);
    for (const node of all) {
      node.start -= first;
      node.end -= first;
    }
  }
  const byStart = (a: Node, b: Node): number => a.start - b.start || b.end - a.end;
  roots.sort(byStart);
  const nodes: Node[] = [];
  const stack = [...roots].reverse();
  while (stack.length) {
    const node = stack.pop()!;
    node.index = nodes.length;
    node.depth = node.parent ? node.parent.depth + 1 : 0;
    nodes.push(node);
    node.children.sort(byStart);
    for (let i = node.children.length - 1; i >= 0; i--) stack.push(node.children[i]);
  }
  for (let i = nodes.length - 1; i >= 0; i--) {
    const { parent, span, below, errorBelow, samplesBelow } = nodes[i];
    if (!parent) continue;
    parent.below += below + 1;
    parent.errorBelow ||= errorBelow || span.status === "error";
    parent.samplesBelow += samplesBelow + (span.profile?.samples ?? 0);
  }
  if (roots.length)
    criticalPath(
      roots.reduce((longest, node) =>
        node.end - node.start > longest.end - longest.start ? node : longest,
      ),
    );
  return {
    nodes,
    roots,
    byId,
    startUnixNs,
    orphans,
    moved,
    root: roots.find((node) => !node.span.parent_id) ?? roots[0],
    busiest: busiestOf(nodes),
    duration: nodes.reduce((most, node) => Math.max(most, node.end), 0) || 1,
    services: [...new Set(trace.spans.map((span) => span.service))],
    errors: nodes.filter((node) => node.span.status === "error").length,
    withSamples: nodes.filter((node) => node.span.profile?.samples).length,
  };
}

/** Returns the first node of a tree without a critical path. */
function busiestOf(nodes: Node[]): Node {
  let best = nodes[0];
  let most = -1;
  for (const node of nodes) {
    if (!node.critical.length) continue;
    const self = node.critical.reduce((sum, [from, to]) => sum + to - from, 0);
    const spentHere = Math.max(self, node.span.profile?.cpu_ns ?? 0);
    if (spentHere > most) [best, most] = [node, spentHere];
  }
  return best;
}

/** The CPU time of the spans of each service that used any, the largest first. */
export function cpuByService(tree: Tree): [string, number][] {
  const sums = new Map<string, number>();
  for (const { span } of tree.nodes)
    if (span.profile?.cpu_ns)
      sums.set(span.service, (sums.get(span.service) ?? 0) + span.profile.cpu_ns);
  return [...sums].sort((a, b) => b[1] - a[1]);
}

/** Returns true if a span is below another one. Broken tracers produce cycles of parents. */
function isBelow(node: Node, above: Node): boolean {
  for (let at: Node | null = node; at; at = at.parent) if (at === above) return true;
  return false;
}

/**
 * Finds the critical path backwards from the end of the trace. A span waited for the child that
 * ended last, before that for the child that ended last before its start, and so on. The time
 * between them is the span's.
 */
function criticalPath(root: Node): void {
  const stack: [Node, number][] = [[root, root.end]];
  while (stack.length) {
    const [node, until] = stack.pop()!;
    let at = Math.min(node.end, until);
    const children = [...node.children].sort(
      (a, b) => Math.min(b.end, node.end) - Math.min(a.end, node.end),
    );
    for (const child of children) {
      const end = Math.min(child.end, node.end);
      // no span waited for this child
      if (end > at || end <= node.start || child.start >= end) continue;
      if (at > end) node.critical.push([end, at]);
      stack.push([child, end]);
      at = Math.max(child.start, node.start);
    }
    if (at > node.start) node.critical.push([node.start, at]);
  }
}

export interface Spent {
  wall: number;
  cpu: number;
  children: number;
  unexplained: number;
  self: number; // wall-clock time without children
}

/** Returns how a span spent its time: on a CPU, in children, or unknown. */
export function spent(node: Node): Spent {
  const wall = node.end - node.start;
  const parts = node.children
    .map((child): [number, number] => [
      Math.max(child.start, node.start),
      Math.min(child.end, node.end),
    ])
    .filter(([from, to]) => to > from)
    .sort((a, b) => a[0] - b[0]);
  let children = 0;
  let reached = node.start;
  for (const [from, to] of parts) {
    if (to <= reached) continue;
    children += to - Math.max(from, reached);
    reached = to;
  }
  const cpu = node.span.profile?.cpu_ns ?? 0;
  return {
    wall,
    cpu,
    children,
    self: wall - children,
    unexplained: Math.max(0, wall - children - cpu),
  };
}

/** The text of an attribute's value: JSON unless the value is a string. */
export const written = (value: Json): string =>
  typeof value === "string" ? value : JSON.stringify(value);

/** Finds a text in spans, their events and links, and their resources. */
export function matching(tree: Tree, trace: Trace, text: string): Set<Node> | null {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return null;
  const has = (part?: string): boolean => !!part && part.toLowerCase().includes(wanted);
  const inside = (attributes?: { key: string; value: Json }[]): boolean =>
    !!attributes?.some(({ key, value }) => has(key) || has(written(value)));
  // Many spans have the same resource.
  const resources = trace.resources.map((each) => inside(each.attributes));
  const found = new Set<Node>();
  for (const node of tree.nodes) {
    const { span } = node;
    if (
      has(span.name) ||
      has(span.service) ||
      has(span.status_message) ||
      has(span.scope) ||
      span.span_id.startsWith(wanted) ||
      resources[span.resource] ||
      inside(span.attributes) ||
      span.events?.some((event) => has(event.name) || inside(event.attributes)) ||
      span.links?.some(
        (link) =>
          link.trace_id.startsWith(wanted) ||
          link.span_id.startsWith(wanted) ||
          inside(link.attributes),
      )
    )
      found.add(node);
  }
  return found;
}

/** Returns the visible rows when some spans are collapsed. */
export function rowsOf(tree: Tree, collapsed: Set<string>): Node[] {
  if (!collapsed.size) return tree.nodes;
  const rows: Node[] = [];
  for (let i = 0; i < tree.nodes.length; i++) {
    const node = tree.nodes[i];
    rows.push(node);
    if (collapsed.has(node.span.span_id)) i += node.below;
  }
  return rows;
}
