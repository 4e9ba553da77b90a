// SPDX-License-Identifier: Apache-2.0
// Keyboard shortcuts of the page and of the open view. They are inactive while the user types in a field.
import { useLayoutEffect, useRef } from "preact/hooks";

/** An action that returns false leaves the key to other handlers. */
export type Keys = Record<string, (event: KeyboardEvent) => unknown>;

export const isWriting = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement &&
  (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));

export function useKeys(keys: Keys): void {
  const current = useRef(keys);
  current.current = keys;
  // Handlers are added together with the view, not one frame later, so that a key pressed
  // immediately is not lost.
  useLayoutEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (
        event.defaultPrevented ||
        event.ctrlKey ||
        event.metaKey ||
        event.altKey ||
        isWriting(event.target)
      )
        return;
      // the browser closes dialogs and popovers itself
      if (document.querySelector("dialog[open]")) return;
      if (event.key === "Escape" && document.querySelector(":popover-open")) return;
      const action = current.current[event.key];
      if (action && action(event) !== false) event.preventDefault();
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
}

/** Contents of the help dialog. */
export const help: { title: string; keys: [string, string][] }[] = [
  {
    title: "Everywhere",
    keys: [
      ["?", "this help"],
      ["/", "search"],
      ["1 … 6", "services, spans, profiles, compare, join health, privacy"],
      ["r", "refresh"],
      ["u", "show times in UTC, or in the time zone of the browser"],
      ["Esc", "close one thing: the selection, the search or a filter, the zoom, the trace"],
    ],
  },
  {
    title: "Services",
    keys: [
      ["↑ ↓", "choose an operation"],
      ["Enter", "list its spans"],
    ],
  },
  {
    title: "Spans",
    keys: [
      ["↑ ↓", "choose a span"],
      ["Enter", "open its trace"],
      ["t", "compare slow and typical spans of the operation"],
      ["l", "live tail"],
    ],
  },
  {
    title: "Trace",
    keys: [
      ["↑ ↓", "previous, next span"],
      ["← →", "collapse, expand"],
      ["n p", "next, previous match or error"],
      ["c", "critical path"],
      ["b", "next span with samples"],
    ],
  },
  {
    title: "Flame graph",
    keys: [
      ["↑ ↓ ← →", "move to the caller, callee or neighbours"],
      ["Enter", "zoom to the bar"],
      ["z", "zoom out"],
      ["s", "sandwich: callers and callees"],
      ["d", "compare this selection with another"],
      ["f", "flip"],
      ["v", "colour by package or by value"],
      ["n p", "next, previous match"],
      ["Menu", "actions for the bar"],
    ],
  },
];
