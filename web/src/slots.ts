// SPDX-License-Identifier: Apache-2.0
// Limits the number of streams of all tabs. A browser opens at most six HTTP/1.1 connections to a server, for all tabs
// together. If streams used all of them, no other request would be sent.

const slots = ["1", "2", "3", "4"].map((n) => `braid-stream-${n}`);

/**
 * Calls `start` when one of the slots is free, and `wait` if none is free now. `start` returns a function that ends the
 * stream. Returns a function that ends the stream, or the waiting, and frees the slot.
 */
export function inSlot(start: () => () => void, wait: () => void): () => void {
  // Only pages from https or localhost have locks.
  if (!("locks" in navigator)) return start();
  const abort = new AbortController();
  let end: (() => void) | null = null;
  let ended = false;
  let free = (): void => {};
  const used = new Promise<void>((resolve) => (free = resolve));
  const timer = window.setTimeout(wait, 500);
  for (const slot of slots)
    navigator.locks
      .request(slot, { signal: abort.signal }, () => {
        if (end || ended) return undefined;
        clearTimeout(timer);
        end = start();
        abort.abort(); // the requests for the other slots
        return used;
      })
      .catch(() => {}); // aborted
  return () => {
    ended = true;
    clearTimeout(timer);
    abort.abort();
    end?.();
    free();
  };
}
