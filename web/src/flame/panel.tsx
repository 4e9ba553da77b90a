// SPDX-License-Identifier: Apache-2.0
// A profile with its controls: search, zoom and its path, tables, callers and callees, colours, flip, export.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { hash } from "../color";
import { amount, count, percent, shortName } from "../format";
import { useKeys } from "../keys";
import { Icon, isFocusLost, SearchField, Segments } from "../parts/basics";
import { copy, remember, showMessage, set, useDark, useRemembered, type Query } from "../state";
import { FlameGraph, type Coloring } from "./graph";
import {
  calleesOf,
  callersOf,
  change,
  decode,
  fileOf,
  isInvalid,
  nameOf,
  pathTo,
  search,
  type Flame,
  type Sample,
} from "./model";
import type { Flamebearer } from "../openapi";
import { CallTree, FunctionTable } from "./tables";

/** Returns a hash per bar that depends only on its path, so that a link still finds the bar in
 * newer data. */
function pathHashes(flame: Flame): Uint32Array {
  const names = Uint32Array.from(flame.names, (name) => hash(name));
  const out = new Uint32Array(flame.n);
  for (let i = 0; i < flame.n; i++) {
    const above = flame.parent[i] >= 0 ? out[flame.parent[i]] : 1;
    out[i] = (Math.imul(above, 0x9e3779b1) ^ names[flame.name[i]]) >>> 0;
  }
  return out;
}

export interface PanelProps {
  bearer: Flamebearer;
  unit: string;
  query: Query;
  label: string;
  since?: number;
  /** True if the view requests `nodes` of the query as the maximum number of bars. */
  expandable?: boolean;
  /** Number of samples of the profile, for the sampling error. */
  samples?: number;
  /** Names of the sides A and B of a comparison. */
  sides?: [string, string];
  /** Action of the key `d`: compare this selection with another one. */
  onCompare?: () => void;
  /** Default scale of a comparison, if the query does not contain one. */
  scale?: "relative" | "absolute";
  /** Values of one sample on each side of a comparison, so that differences of a few samples are grey. */
  sample?: Sample | null;
  /** Show only the flame graph, without the table. */
  small?: boolean;
}

const other = "other"; // name of the bars that the server has merged
const mostNodes = "1048576"; // largest max_nodes of the server

type Show = "flame" | "both" | "table" | "tree";

export function FlamePanel({
  bearer,
  unit,
  query,
  label,
  since,
  sides,
  onCompare,
  small,
  expandable,
  samples,
  scale = "relative",
  sample = null,
}: PanelProps) {
  const dark = useDark();
  const blind = useRemembered("palette") === "blue";
  const relative = (query.scale || scale) !== "absolute";
  const decoded = useMemo(() => decode(bearer, relative, sample), [bearer, relative]);
  const collapse = query.collapse === "1";
  const flame = useMemo(() => {
    const focus = query.focus ? decoded.names.indexOf(query.focus) : -1;
    const hiddenNames = new Set((query.hide ?? "").split("\n"));
    const hidden = new Set<number>();
    if (query.hide) decoded.names.forEach((name, i) => hiddenNames.has(name) && hidden.add(i));
    return focus >= 0 || hidden.size || collapse
      ? change(decoded, { focus, hidden, collapse })
      : decoded;
  }, [decoded, query.focus, query.hide, collapse]);
  const [target, setTarget] = useState<{ bar: number } | null>(null);
  const [menu, setMenu] = useState<{ bar: number; x: number; y: number } | null>(null);
  const two = flame.sides !== null;
  // The key `zoom` contains the bar, and behind a ~ the range that the user has chosen by wheel or drag.
  const [zoomed, part = ""] = (query.zoom ?? "").split("~");
  const hashes = useMemo(() => (zoomed ? pathHashes(flame) : null), [flame, zoomed !== ""]);
  const zoom = useMemo(
    () => (hashes && zoomed ? hashes.indexOf(parseInt(zoomed, 16)) : -1),
    [hashes, zoomed],
  );
  const matches = useMemo(() => search(flame, query.find ?? ""), [flame, query.find]);
  const show = (query.show as Show) || (small ? "flame" : "both");
  const flip = query.flip === "1";
  const coloring: Coloring = query.color === "value" ? "value" : "package";
  const of = query.of ? flame.names.indexOf(query.of) : -1;

  const onZoom = (bar: number): void =>
    set({ zoom: bar > 0 ? pathHashes(flame)[bar].toString(16) : "" }, true);
  /** Zooms to a bar. The server merges the smallest functions to bars named "other", which are requested instead. */
  const onBar = (bar: number): void => {
    const isOther = bar > 0 && nameOf(flame, bar) === other && flame.first[bar] === flame.last[bar];
    if (!isOther || !expandable) onZoom(bar);
    else if (!query.nodes) set({ nodes: mostNodes });
    else showMessage(`The page shows at most ${count(Number(mostNodes))} bars of a profile.`);
  };
  const onSandwich = (name: string): void => set({ of: name, show: "" });
  // The graph that had the focus is replaced when the callers and callees are opened or closed.
  const panel = useRef<HTMLDivElement>(null);
  const wasOpen = useRef(of >= 0);
  useLayoutEffect(() => {
    if (wasOpen.current === of >= 0) return;
    wasOpen.current = of >= 0;
    if (!isFocusLost()) return;
    const graphs = panel.current?.querySelectorAll<HTMLElement>(
      ".flame, .tree, .functions .table-body",
    );
    // The last graph of the two is that of the callees.
    graphs?.[graphs.length - 1]?.focus({ preventScroll: true });
  }, [of >= 0]);
  useLayoutEffect(() => (setTarget(null), setMenu(null)), [flame, query.find]);
  /** Moves to the next or previous bar that matches the search, from the top left to the bottom right. */
  const toMatch = (step: number): boolean => {
    if (!matches?.bars || of >= 0) return false;
    let bar = target ? target.bar : step > 0 ? -1 : flame.n;
    do bar = (bar + step + flame.n) % flame.n;
    while (!matches.names[flame.name[bar]]);
    setTarget({ bar });
    return true;
  };
  useKeys({
    "/": () => {
      if (small && !document.activeElement?.closest(".details")) return false;
      document.getElementById("find")?.focus();
      return true;
    },
    z: () => onZoom(-1),
    f: () => set({ flip: flip ? "" : "1" }, true),
    v: () => set({ color: coloring === "value" ? "" : "value" }, true),
    s: () => {
      const bar = zoom > 0 ? zoom : -1;
      if (of >= 0) set({ of: "" });
      else if (bar > 0) onSandwich(nameOf(flame, bar));
      else showMessage("Select a bar first; s then shows its callers and callees.");
    },
    d: () => onCompare?.(),
    n: () => toMatch(1),
    p: () => toMatch(-1),
    Escape: () => {
      if (query.of) set({ of: "" });
      else if (zoom > 0) onZoom(flame.parent[zoom] > 0 ? flame.parent[zoom] : -1);
      else if (query.find) set({ find: "" }, true);
      else if (collapse) set({ collapse: "" });
      else if (query.hide) set({ hide: "" });
      else if (query.focus) set({ focus: "" });
      else return false;
      return true;
    },
  });

  // Number of the match that the user has moved to.
  const place = useMemo(() => {
    if (!target || !matches) return "";
    let n = 0;
    for (let i = 0; i <= target.bar && i < flame.n; i++) n += matches.names[flame.name[i]];
    return `${n} of `;
  }, [target, matches]);

  const graph = { unit, dark, blind, relative, coloring, matches, onSandwich };
  const choose = (name: string): void => set({ find: name }, true);
  const layout = of >= 0 ? "sandwich" : show;
  return (
    <div
      ref={panel}
      class={`profile profile-${layout}${two ? " profile-two" : ""}${small ? " profile-small" : ""}`}
    >
      <div class="toolbar">
        <SearchField
          id="find"
          label="Find a function"
          value={query.find ?? ""}
          onInput={(find) => set({ find }, true)}
          onKey={(key, event) => {
            if (key === "Enter") toMatch(event.shiftKey ? -1 : 1);
          }}
          found={
            matches &&
            (matches.bars
              ? `${percent(matches.total / (flame.width || 1))} in ${place}${matches.bars}`
              : isInvalid(query.find ?? "")
                ? "invalid expression"
                : "none")
          }
        />
        <Segments<Show>
          label="Display"
          value={of >= 0 ? ("" as Show) : show}
          onChange={(value) =>
            set({ show: value === (small ? "flame" : "both") ? "" : value, of: "" }, true)
          }
          options={[
            ...((small ? [] : [["both", "Both", "Functions and flame graph"]]) as [
              Show,
              string,
              string,
            ][]),
            ["flame", "Flame", "Flame graph"],
            ["table", "Top", "Functions by self and total"],
            ["tree", "Tree", "Calls with time and percentage"],
          ]}
        />
        <div class="toolbar-rest">
          {two ? (
            <>
              <Segments
                label="Widths"
                value={relative ? "relative" : "absolute"}
                onChange={(value) => set({ scale: value === scale ? "" : value }, true)}
                options={[
                  ["relative", "Normalised", "Each side as a share of its own total"],
                  ["absolute", "Absolute", "As measured"],
                ]}
              />
              <Segments
                label="Palette"
                value={blind ? "blue" : "red"}
                onChange={(value) => remember("palette", value === "blue" ? value : "")}
                options={[
                  ["red", <Swatch blind={false} />, "Green is less, red is more"],
                  ["blue", <Swatch blind />, "Blue is less, orange is more: for the colour-blind"],
                ]}
              />
            </>
          ) : (
            <Segments<Coloring>
              label="Colour by"
              value={coloring}
              onChange={(value) => set({ color: value === "value" ? value : "" }, true)}
              options={[
                ["package", "Package", "A colour for each package"],
                ["value", "Value", "Stronger for more self time"],
              ]}
            />
          )}
          <button
            type="button"
            class="button square"
            aria-pressed={flip}
            aria-label="Flip"
            title="Flip: root at the bottom (f)"
            onClick={() => set({ flip: flip ? "" : "1" }, true)}
          >
            <Icon name="flip" />
          </button>
          {onCompare && (
            <button
              type="button"
              class="button square"
              aria-label="Compare"
              title="Compare with another selection (d)"
              onClick={onCompare}
            >
              <Icon name="compare" />
            </button>
          )}
        </div>
      </div>
      {of >= 0 ? (
        <Sandwich flame={flame} name={of} graph={graph} onClose={() => set({ of: "" })} />
      ) : (
        <>
          {(show === "flame" || show === "both") && (
            <Path flame={flame} zoom={Math.max(0, zoom)} unit={unit} onZoom={onZoom} />
          )}
          <div class="profile-body">
            {(show === "both" || show === "table") && (
              <FunctionTable
                sides={sides}
                relative={relative}
                flame={flame}
                unit={unit}
                dark={dark}
                matches={matches}
                chosen={query.find ?? ""}
                onChoose={choose}
              />
            )}
            {show === "tree" && (
              <CallTree
                relative={relative}
                flame={flame}
                unit={unit}
                dark={dark}
                matches={matches}
                chosen={query.find ?? ""}
                onChoose={choose}
              />
            )}
            {(show === "flame" || show === "both") && (
              <FlameGraph
                {...graph}
                flame={flame}
                flip={flip}
                zoom={zoom}
                label={label}
                since={since}
                samples={samples}
                target={target}
                part={part}
                onPart={(to) => set({ zoom: zoomed + (to && `~${to}`) }, true)}
                onZoom={onBar}
                onMenu={(bar, x, y) => setMenu({ bar, x, y })}
              />
            )}
          </div>
        </>
      )}
      {menu && menu.bar < flame.n && (
        <Menu
          {...menu}
          key={menu.bar}
          flame={flame}
          query={query}
          onSandwich={onSandwich}
          onClose={() => setMenu(null)}
        />
      )}
    </div>
  );
}

interface MenuProps {
  flame: Flame;
  bar: number;
  x: number;
  y: number;
  query: Query;
  onSandwich: (name: string) => void;
  onClose: () => void;
}

/** The actions for one bar. */
function Menu({ flame, bar, x, y, query, onSandwich, onClose }: MenuProps) {
  const panel = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = panel.current;
    if (!element) return;
    const before = document.activeElement;
    element.showPopover();
    element.style.left = `${Math.max(8, Math.min(x, window.innerWidth - element.offsetWidth - 8))}px`;
    element.style.top = `${Math.max(8, Math.min(y, window.innerHeight - element.offsetHeight - 8))}px`;
    element.querySelector("button")?.focus();
    return () => {
      // A click elsewhere may have moved the focus.
      const inside = isFocusLost() || element.contains(document.activeElement);
      if (inside && before instanceof HTMLElement) before.focus({ preventScroll: true });
    };
  }, []);
  const name = nameOf(flame, bar);
  const file = fileOf(flame, bar);
  const hidden = [...(query.hide ? query.hide.split("\n") : []), name].join("\n");
  const actions: [string, () => void, ComponentChildren?][] = [
    ["Copy the name", () => copy(name, "Name copied.")],
    ...(file
      ? ([
          [
            "Copy the file",
            () => copy(file, "File copied."),
            <>
              Copy <bdi>{file}</bdi>
            </>,
          ],
        ] as [string, () => void, ComponentChildren][])
      : []),
    ...(bar > 0
      ? ([
          ["Callers and callees", () => onSandwich(name)],
          ["Only stacks with this function", () => set({ focus: name, zoom: "" })],
          ["Hide this function", () => set({ hide: hidden, zoom: "" })],
        ] as [string, () => void][])
      : []),
    [
      query.collapse === "1" ? "Show recursive calls" : "Collapse recursive calls",
      () => set({ collapse: query.collapse === "1" ? "" : "1", zoom: "" }),
    ],
    ...(query.focus || query.hide
      ? ([["Show everything", () => set({ focus: "", hide: "" })]] as [string, () => void][])
      : []),
  ];
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const items = [...(panel.current?.querySelectorAll("button") ?? [])];
    const at = items.indexOf(document.activeElement as HTMLButtonElement);
    items[(at + step + items.length) % items.length]?.focus();
  };
  return (
    <div
      class="panel bar-menu"
      ref={panel}
      popover="auto"
      role="menu"
      aria-label={name}
      onKeyDown={onKeyDown}
      onToggle={(event) => event.newState === "closed" && onClose()}
    >
      <p class="mono">
        <bdi>{name}</bdi>
      </p>
      <ul class="menu" role="presentation">
        {actions.map(([text, act, shown = text]) => (
          <li key={text} role="presentation">
            <button type="button" role="menuitem" onClick={() => (onClose(), act())}>
              {shown}
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

const Swatch = ({ blind }: { blind: boolean }) => (
  <span class={`swatch ${blind ? "swatch-blue" : "swatch-red"}`}>
    <i />
    <i />
    <i />
    <span class="hidden">{blind ? "blue and orange" : "green and red"}</span>
  </span>
);

/** The bars from the root to the zoomed bar, as buttons that zoom out. */
function Path({
  flame,
  zoom,
  unit,
  onZoom,
}: {
  flame: Flame;
  zoom: number;
  unit: string;
  onZoom: (bar: number) => void;
}) {
  const path = pathTo(flame, zoom);
  const shown = path.length > 5 ? [path[0], -1, ...path.slice(-3)] : path;
  const total = flame.sides ? flame.sides.right[zoom] : flame.total[zoom];
  return (
    <nav class="path" aria-label="Zoom">
      <ol>
        {shown.map((bar) => (
          <li key={bar}>
            {bar < 0 ? (
              <span>…</span>
            ) : (
              <button
                type="button"
                class="plain"
                aria-current={bar === zoom ? "location" : undefined}
                onClick={() => onZoom(bar === 0 ? -1 : bar)}
              >
                <bdi>{shortName(nameOf(flame, bar))}</bdi>
              </button>
            )}
          </li>
        ))}
      </ol>
      <span class="path-figure">
        {amount(total, unit)} <small>{percent(flame.total[zoom] / (flame.width || 1))}</small>
      </span>
      <button
        type="button"
        class="plain"
        aria-label="Zoom out"
        title="Zoom out (z)"
        disabled={zoom <= 0}
        onClick={() => onZoom(-1)}
      >
        <Icon name="close" />
      </button>
    </nav>
  );
}

interface GraphBase {
  unit: string;
  dark: boolean;
  blind: boolean;
  relative: boolean;
  coloring: Coloring;
  matches: ReturnType<typeof search>;
  onSandwich: (name: string) => void;
}

function Sandwich({
  flame,
  name,
  graph,
  onClose,
}: {
  flame: Flame;
  name: number;
  graph: GraphBase;
  onClose: () => void;
}) {
  const callers = useMemo(() => callersOf(flame, name), [flame, name]);
  const callees = useMemo(() => calleesOf(flame, name), [flame, name]);
  const { unit } = graph;
  return (
    <div
      class="sandwich"
      style={{
        gridTemplateRows: `auto minmax(120px, ${callers.depth + 2}fr) minmax(120px, ${callees.depth + 2}fr)`,
      }}
    >
      <div class="path">
        <strong class="mono">
          <bdi>{shortName(flame.names[name])}</bdi>
        </strong>
        <span class="path-figure">
          total {amount(callees.width, flame.sides ? "" : unit)}{" "}
          <small>{percent(callees.width / (flame.width || 1))}</small>
          {!flame.sides && (
            <>
              {" "}
              · self {amount(callees.n ? callees.self[0] : 0, unit)}{" "}
              <small>{percent((callees.n ? callees.self[0] : 0) / (flame.width || 1))}</small>
            </>
          )}
        </span>
        <button
          type="button"
          class="plain"
          aria-label="Close callers and callees"
          title="Back (Esc)"
          onClick={onClose}
        >
          <Icon name="close" />
        </button>
      </div>
      <section>
        <h2>Callers</h2>
        <FlameGraph
          {...graph}
          flame={callers}
          flip
          zoom={-1}
          label="Callers"
          onZoom={(bar) => bar > 0 && graph.onSandwich(nameOf(callers, bar))}
        />
      </section>
      <section>
        <h2>Callees</h2>
        <FlameGraph
          {...graph}
          flame={callees}
          flip={false}
          zoom={-1}
          label="Callees"
          onZoom={(bar) => bar > 0 && graph.onSandwich(nameOf(callees, bar))}
        />
      </section>
    </div>
  );
}
