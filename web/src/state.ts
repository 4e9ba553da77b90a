// SPDX-License-Identifier: Apache-2.0
// The state of the page is the URL's fragment: #/view/id?key=value. A link therefore shows the same view to every user.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export type Query = Record<string, string>;

export interface Route {
  view: string;
  ids: string[];
  query: Query;
}

export function parse(hash: string): Route {
  const text = hash.replace(/^#\/?/, "");
  const cut = text.indexOf("?");
  const path = cut < 0 ? text : text.slice(0, cut);
  const query: Query = Object.create(null) as Query;
  if (cut >= 0)
    for (const [key, value] of new URLSearchParams(text.slice(cut + 1))) query[key] = value;
  const [view = "", ...ids] = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { view: view || "services", ids, query };
}

/** Returns a query string of the non-empty values. Its order depends only on the keys. */
export function encode(query: Query): string {
  const kept = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined);
  return new URLSearchParams(kept.sort(([a], [b]) => (a < b ? -1 : 1))).toString();
}

export function href(path: string, query: Query = {}): string {
  const text = encode(query);
  return `#/${path}${text ? `?${text}` : ""}`;
}

// The page uses `here`, and the address bar follows with a delay. Browsers ignore or reject changes
// of the history that are too frequent (Chromium: 200 in ten seconds), for example while a key is
// held down. The next key must already see the new state.
let here = location.hash;
let written = -1000;
let writing = 0;
const routed = new Set<() => void>();
const told = (): void => routed.forEach((listener) => listener());

/** Writes the current state to the address bar. */
export function flush(): void {
  clearTimeout(writing);
  writing = 0;
  written = performance.now();
  if (here !== location.hash) history.replaceState(history.state, "", here);
}

const leaving = new Set<() => void>();

/** Writes everything that going back to the current entry of the history needs. */
function leave(): void {
  if (writing) flush();
  for (const listener of leaving) listener();
}

/** Calls a function before the user leaves the current entry of the history, except by the browser's own buttons. */
export function useLeave(listener: () => void): void {
  const current = useRef(listener);
  current.current = listener;
  useLayoutEffect(() => {
    const onLeave = (): void => current.current();
    leaving.add(onLeave);
    return () => void leaving.delete(onLeave);
  }, []);
}

/** Stores a value in the current entry of the history, for kept(). */
export const keep = (value: object): void => history.replaceState(value, "", here);

/** Returns the value that keep() stored in the current entry of the history, also after going back or reloading. */
export const kept = (): unknown => history.state as unknown;

// Before a link is followed, so that going back leads to the current state.
window.addEventListener(
  "click",
  (event) => {
    if (writing || (event.target instanceof Element && event.target.closest("a"))) leave();
  },
  true,
);
window.addEventListener("pagehide", leave);
window.addEventListener("hashchange", () => {
  clearTimeout(writing);
  writing = 0;
  here = location.hash;
  told();
});

export function go(path: string, query: Query = {}, replace = false): void {
  const to = href(path, query);
  if (to === here) return;
  if (!replace) {
    leave();
    history.pushState(null, "", to);
  }
  here = to;
  if (replace && performance.now() - written > 100) flush();
  else if (replace) writing ||= window.setTimeout(flush, 100);
  told();
}

const pathOf = (route: Route): string =>
  [route.view, ...route.ids].map(encodeURIComponent).join("/");

/** Changes keys of the query and keeps the others; an empty value removes a key. */
export function set(changes: Query, replace = false): void {
  const route = parse(here);
  go(pathOf(route), { ...route.query, ...changes }, replace);
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parse(here));
  useLayoutEffect(() => {
    const onChange = (): void => setRoute(parse(here));
    routed.add(onChange);
    return () => void routed.delete(onChange);
  }, []);
  return route;
}

/** Returns the time range of a query in the server's syntax. */
export const range = (query: Query): { start: string; end: string } => ({
  start: query.start || "now-1h",
  end: query.end || "now",
});

const units: Record<string, number> = { s: 1e3, m: 60e3, h: 3600e3, d: 86400e3 };

/** Returns the time range in Unix ms, relative to now. It is NaN for a text that the server would
 * reject. */
export function fixed(query: Query): { start: number; end: number } {
  const { start, end } = range(query);
  const at = (text: string): number => {
    const back = /^now(?:-(\d+)([smhd]))?$/.exec(text);
    return back ? Date.now() - Number(back[1] ?? 0) * (units[back[2]] ?? 0) : Number(text);
  };
  return { start: at(start), end: at(end) };
}

// Views with their own time range set it here, so that saving uses that range.
let own: { start: number; end: number } | null = null;

export function useOwnTime(start: number, end: number): void {
  useLayoutEffect(() => {
    own = { start, end };
    return () => void (own = null);
  }, [start, end]);
}

/** Returns the current view, its query and its time range in Unix ms. */
export const shown = (): { path: string; query: Query; start: number; end: number } => {
  const route = parse(here);
  return { path: pathOf(route), query: route.query, ...(own ?? fixed(route.query)) };
};

/** Returns the part of a query that other views also use. */
export function carried(query: Query): Query {
  const out: Query = {};
  if (query.start) out.start = query.start;
  if (query.end) out.end = query.end;
  return out;
}

// State that is not part of a link: theme, palette, and the selection pinned for a comparison.

type Listener = () => void;
const listeners = new Set<Listener>();

export function remembered(key: string): string {
  try {
    return localStorage.getItem(`braid.${key}`) ?? "";
  } catch {
    return "";
  }
}

export function remember(key: string, value: string): void {
  try {
    if (value) localStorage.setItem(`braid.${key}`, value);
    else localStorage.removeItem(`braid.${key}`);
  } catch {
    // Without storage, a choice lasts until the page is closed.
  }
  for (const listener of listeners) listener();
}

export function useRemembered(key: string): string {
  const [value, setValue] = useState(() => remembered(key));
  useLayoutEffect(() => {
    const onChange = (): void => setValue(remembered(key));
    listeners.add(onChange);
    return () => void listeners.delete(onChange);
  }, [key]);
  return value;
}

const darkQuery = window.matchMedia("(prefers-color-scheme: dark)");

export function useDark(): boolean {
  const theme = useRemembered("theme");
  const [system, setSystem] = useState(darkQuery.matches);
  useEffect(() => {
    const onChange = (): void => setSystem(darkQuery.matches);
    darkQuery.addEventListener("change", onChange);
    return () => darkQuery.removeEventListener("change", onChange);
  }, []);
  return theme ? theme === "dark" : system;
}

/** Incremented when the user requests fresh data. */
let refreshed = 0;

export function refresh(): void {
  refreshed++;
  for (const listener of listeners) listener();
}

export function useRefreshed(): number {
  const [value, setValue] = useState(refreshed);
  useLayoutEffect(() => {
    const onChange = (): void => setValue(refreshed);
    listeners.add(onChange);
    return () => void listeners.delete(onChange);
  }, []);
  return value;
}

// Shows a message at the bottom of the page for a few seconds.

let showNow: ((text: string) => void) | null = null;
export const onSay = (listener: (text: string) => void): void => void (showNow = listener);
export const showMessage = (text: string): void => showNow?.(text);

export function copy(text: string, done: string): void {
  navigator.clipboard.writeText(text).then(
    () => showMessage(done),
    () => showMessage("The browser does not allow copying."),
  );
}
