// SPDX-License-Identifier: Apache-2.0
// Corrects the differences between the clocks of hosts, by the rules of Jaeger (clock skew adjustment).
import type { Trace } from "../openapi";
import { duration } from "../format";
import type { Node } from "./model";

/** Resource attributes that identify a host, the first that exists. All spans of one host have one clock. */
const hostKeys = [
  "host.id",
  "host.name",
  "k8s.pod.uid",
  "k8s.pod.name",
  "container.id",
  "service.instance.id",
];

/** Returns the host of each resource of a trace. Without such an attribute, each service counts as a separate host. */
export const hostsOf = (trace: Trace): string[] =>
  trace.resources.map((resource) => {
    const attributes = resource.attributes ?? [];
    const of = (key: string): string => {
      const found = attributes.find((one) => one.key === key);
      return found ? String(found.value) : "";
    };
    return hostKeys.map(of).find(Boolean) ?? `of ${resource.service}`;
  });

/**
 * Returns by how many ns a span on another host than its parent must be moved. A span that fits into its parent was
 * called by it, so it is centred: the times of the request and of the response are assumed to be equal. A span that is
 * longer than its parent only must not begin before it.
 */
function offsetOf(child: Node, parent: Node): number {
  const [wall, parentWall] = [child.end - child.start, parent.end - parent.start];
  if (wall > parentWall) return Math.max(0, parent.start - child.start);
  if (child.start >= parent.start && child.end <= parent.end) return 0;
  return Math.round(parent.start + (parentWall - wall) / 2 - child.start);
}

/**
 * Moves the spans whose host has another clock than the host of the trace's root. Spans of one host keep their
 * distances. A consumer is not moved, because its producer does not wait for it. Returns the number of moved spans.
 */
export function correctClocks(roots: Node[], hosts: string[]): number {
  let moved = 0;
  const stack = [...roots];
  while (stack.length) {
    const parent = stack.pop()!;
    for (const child of parent.children) {
      if (hosts[child.span.resource] === hosts[parent.span.resource]) child.moved = parent.moved;
      else if (child.span.kind !== "consumer") child.moved = offsetOf(child, parent);
      child.start += child.moved;
      child.end += child.moved;
      if (child.moved) moved++;
      stack.push(child);
    }
  }
  return moved;
}

/** Describes by how much a span was moved. */
export const movedText = ({ moved }: Node): string =>
  `Moved by ${moved > 0 ? "+" : "−"}${duration(Math.abs(moved))}: the clock of its host differs`;
