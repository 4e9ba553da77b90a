// SPDX-License-Identifier: Apache-2.0
// Buttons next to an attribute in the details of a span.
import type { Attribute } from "../openapi";
import { isolate } from "../format";
import { carried, copy, href, type Query } from "../state";
import { format, keyOf, literalOf } from "./query";

/** Links that list the spans with, or without, the value of an attribute, and a button that copies the value. */
export function AttributeActions({
  scope,
  attribute,
  shown,
  query,
}: {
  /** Scope of the attribute in TraceQL: span, resource, event or link. */
  scope: string;
  attribute: Attribute;
  shown: string;
  query: Query;
}) {
  const name = attribute.key;
  const spoken = isolate(name);
  const literal = literalOf(attribute.value);
  const to = (op: string): string =>
    href("spans", {
      ...carried(query),
      q: format([{ key: keyOf(scope, name), op, value: literal }]),
    });
  return (
    <span class="attribute-actions">
      {literal && (
        <>
          <a
            href={to("=")}
            aria-label={`Filter by ${spoken}`}
            title="List the spans with this value"
          >
            =
          </a>
          <a
            href={to("!=")}
            aria-label={`Exclude ${spoken}`}
            title="List the spans with another value"
          >
            ≠
          </a>
        </>
      )}
      <button
        type="button"
        class="plain"
        aria-label={`Copy ${spoken}`}
        onClick={() => copy(shown, "Value copied.")}
      >
        Copy
      </button>
    </span>
  );
}
