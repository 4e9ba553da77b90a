// SPDX-License-Identifier: Apache-2.0
// The flame graph view: a canvas, a tooltip, keyboard control, and a tree for screen readers.
import { useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { changeColor, flameColors, packageColor, valueColor } from "../color";
import { amount, compact, difference, packageOf, percent } from "../format";
import { useKeys } from "../keys";
import { useSize } from "../parts/basics";
import {
  barAt,
  changeOf,
  fileOf,
  isNoise,
  nameOf,
  pathTo,
  type Flame,
  type Matches,
} from "./model";
import { barHeight, draw, levelAt } from "./draw";

export type Coloring = "package" | "value";

export interface GraphProps {
  flame: Flame;
  unit: string;
  dark: boolean;
  blind: boolean;
  relative: boolean;
  coloring: Coloring;
  flip: boolean;
  zoom: number;
  matches: Matches | null;
  label: string;
  /** Time at which the data arrived (performance.now), to measure the time until it is drawn. */
  since?: number;
  /** Number of samples of the whole graph, for the sampling error. */
  samples?: number;
  /** A bar to move to, in a new object for each move. */
  target?: { bar: number } | null;
  /** The visible range as text: its ends as shares of the whole graph. Empty: the range of the zoom. */
  part?: string;
  /** Called a moment after the user has changed the visible range by wheel or drag. */
  onPart?: (part: string) => void;
  onZoom: (bar: number) => void;
  onSandwich: (name: string) => void;
  onMenu?: (bar: number, x: number, y: number) => void;
}

const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

/** Returns the description of a bar as pairs of label and value. */
export function describe(
  flame: Flame,
  bar: number,
  unit: string,
  relative = true,
  samples = 0,
): [string, string][] {
  const sides = flame.sides;
  if (sides) {
    const left = sides.leftTotal ? sides.left[bar] / sides.leftTotal : 0;
    const right = sides.rightTotal ? sides.right[bar] / sides.rightTotal : 0;
    return [
      ["A", `${amount(sides.left[bar], unit)}, ${percent(left)}`],
      ["B", `${amount(sides.right[bar], unit)}, ${percent(right)}`],
      [
        "change",
        difference(
          sides.left[bar],
          sides.right[bar],
          sides.leftTotal,
          sides.rightTotal,
          unit,
          relative,
        ) + (isNoise(flame, sides.left[bar], sides.right[bar], relative) ? ", may be chance" : ""),
      ],
    ];
  }
  const all = flame.width || 1;
  const rows: [string, string][] = [
    ["total", `${amount(flame.total[bar], unit)}, ${percent(flame.total[bar] / all)}`],
    ["self", `${amount(flame.self[bar], unit)}, ${percent(flame.self[bar] / all)}`],
  ];
  // The standard error of a count of independent samples is its square root.
  const count = samples * (flame.total[bar] / all);
  if (count > 0)
    rows.push([
      "samples",
      `${compact(Math.max(1, Math.round(count)))}, ±${percent(1 / Math.sqrt(Math.max(1, count)))}`,
    ]);
  return rows;
}

function useColors(
  flame: Flame,
  dark: boolean,
  blind: boolean,
  relative: boolean,
  coloring: Coloring,
): (bar: number) => string {
  return useMemo(() => {
    const palette = flameColors(dark);
    const { sides } = flame;
    if (sides)
      return (bar) =>
        flame.level[bar] === 0 || isNoise(flame, sides.left[bar], sides.right[bar], relative)
          ? palette.root
          : changeColor(changeOf(flame, bar, relative), blind, dark);
    if (coloring === "value") {
      const steps = Array.from({ length: 65 }, (_, i) => valueColor(i / 64, dark));
      const all = flame.width || 1;
      return (bar) =>
        flame.level[bar] === 0
          ? palette.root
          : steps[Math.round((flame.self[bar] / all) ** 0.5 * 64)];
    }
    const byName: string[] = [];
    const byPackage = new Map<string, string>();
    return (bar) => {
      if (flame.level[bar] === 0) return palette.root;
      const name = flame.name[bar];
      let color = byName[name];
      if (!color) {
        const owner = packageOf(flame.names[name] ?? "", flame.files[name] ?? "");
        color = byPackage.get(owner) ?? packageColor(owner, dark);
        byPackage.set(owner, color);
        byName[name] = color;
      }
      return color;
    };
  }, [flame, dark, blind, relative, coloring]);
}

export function FlameGraph(props: GraphProps) {
  const { flame, unit, dark, flip, zoom, matches } = props;
  const [box, width, boxHeight] = useSize<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [scroll, setScroll] = useState(0);
  const [hover, setHover] = useState<{ bar: number; x: number; y: number } | null>(null);
  const [focus, setFocus] = useState(-1);
  const [focused, setFocused] = useState(false);
  const id = useId();
  const colorOf = useColors(flame, dark, props.blind, props.relative, props.coloring);
  const content = flame.depth * barHeight;
  const height = Math.min(boxHeight || content, Math.max(content, barHeight));
  const range = useRef<[number, number]>([0, flame.width]);
  // True after the user has zoomed or moved the graph by wheel or drag.
  const [moved, setMoved] = useState(false);
  const drag = useRef<{
    x: number;
    y: number;
    top: number;
    range: [number, number];
    far: boolean;
  } | null>(null);
  const part = props.part ?? "";
  const toldPart = useRef(part);
  const telling = useRef(0);
  const clicked = useRef<{ flame: Flame; bar: number } | null>(null);
  const frame = useRef(0);
  const wanted: [number, number] =
    zoom >= 0 && zoom < flame.n
      ? [flame.start[zoom], flame.start[zoom] + flame.total[zoom]]
      : [0, flame.width];

  /** Returns the range that the URL describes. */
  const chosen = (): [number, number] => {
    const [from, to] = part.split("-").map((share) => Number(share) * flame.width);
    return from >= 0 && to > from && to <= flame.width ? [from, to] : wanted;
  };

  const paint = useRef(() => {});
  paint.current = () => {
    const element = canvas.current;
    if (!element || !width || !height) return;
    const ratio = window.devicePixelRatio || 1;
    const w = Math.round(width * ratio);
    const h = Math.round(height * ratio);
    if (element.width !== w || element.height !== h) {
      element.width = w;
      element.height = h;
      element.style.width = `${width}px`;
      element.style.height = `${height}px`;
    }
    // for tests: the first value and the number of values that are visible, as shares of the whole graph
    element.dataset.range = range.current
      .map((value) => (value / (flame.width || 1)).toFixed(6))
      .join(" ");
    const context = element.getContext("2d", { alpha: false });
    if (!context) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw(context, flame, {
      width,
      height,
      scroll: Math.min(scroll, Math.max(0, content - height)),
      from: range.current[0],
      to: range.current[1],
      flip,
      zoom,
      hover: hover?.bar ?? -1,
      focus: focused || props.target ? focus : -1,
      matches: matches?.names ?? null,
      colorOf,
      colors: flameColors(dark),
    });
  };

  // A new profile appears without an animation. The attribute is for measurements.
  const drawn = useRef<Flame | null>(null);
  const zoomed = useRef(zoom);
  useLayoutEffect(() => {
    if (drawn.current !== flame) {
      range.current = chosen();
      zoomed.current = zoom;
      if (width && height) {
        paint.current();
        drawn.current = flame;
        setFocus(-1);
        if (props.since)
          performance.measure("flame drawn", { start: props.since, detail: flame.n });
      }
      return undefined;
    }
    const [from, to] = range.current;
    const same = zoomed.current === zoom;
    zoomed.current = zoom;
    if (same || (from === wanted[0] && to === wanted[1])) {
      paint.current();
      return undefined;
    }
    const begin = performance.now();
    const length = calm.matches ? 0 : 160;
    const step = (): void => {
      const t = length ? Math.min(1, (performance.now() - begin) / length) : 1;
      const ease = 1 - (1 - t) ** 3;
      range.current = [from + (wanted[0] - from) * ease, to + (wanted[1] - to) * ease];
      paint.current();
      if (t < 1) frame.current = requestAnimationFrame(step);
    };
    cancelAnimationFrame(frame.current);
    step();
    return () => cancelAnimationFrame(frame.current);
  }, [flame, zoom, width, height]);
  useLayoutEffect(() => paint.current(), [scroll, hover, focus, focused, matches, colorOf, flip]);

  // The root of a flame graph is at the bottom, so the view starts there.
  useEffect(() => {
    if (box.current) box.current.scrollTop = flip ? content : 0;
  }, [flip, flame]);

  /** Shows a range of values, and keeps it within the graph. */
  const show = (from: number, length: number): void => {
    const kept = Math.min(flame.width, Math.max(length, flame.width * 1e-6));
    const begin = Math.min(flame.width - kept, Math.max(0, from));
    cancelAnimationFrame(frame.current);
    range.current = [begin, begin + kept];
    setMoved(begin !== wanted[0] || begin + kept !== wanted[1]);
    setHover(null);
    paint.current();
    clearTimeout(telling.current);
    telling.current = window.setTimeout(() => {
      const shares = range.current.map((value) => (value / (flame.width || 1)).toFixed(7));
      toldPart.current =
        range.current[0] === wanted[0] && range.current[1] === wanted[1] ? "" : shares.join("-");
      props.onPart?.(toldPart.current);
    }, 200);
  };
  const showAll = (): boolean => {
    if (!moved) return false;
    show(wanted[0], wanted[1] - wanted[0]);
    return true;
  };
  useLayoutEffect(() => {
    clearTimeout(telling.current);
    setMoved(part !== "");
  }, [flame, zoom]);
  useEffect(() => () => clearTimeout(telling.current), []);
  // Another range from the URL, for example after going back.
  useLayoutEffect(() => {
    if (part === toldPart.current) return;
    toldPart.current = part;
    if (zoomed.current !== zoom || drawn.current !== flame || part === "") return;
    range.current = chosen();
    setMoved(true);
    paint.current();
  }, [part]);
  useKeys({ z: showAll, Escape: showAll });

  // Preact adds wheel listeners that cannot prevent the browser's own zoom.
  const wheel = useRef<(event: WheelEvent) => void>(() => {});
  wheel.current = (event) => {
    const place = canvas.current?.getBoundingClientRect();
    if (!event.ctrlKey || !place || !width) return;
    event.preventDefault();
    const [from, to] = range.current;
    const at = Math.min(1, Math.max(0, (event.clientX - place.left) / width));
    const length = Math.min(
      flame.width,
      (to - from) * Math.exp(Math.max(-100, Math.min(100, event.deltaY)) / 250),
    );
    show(from + at * (to - from - length), length);
  };
  useEffect(() => {
    const element = box.current;
    const onWheel = (event: WheelEvent): void => wheel.current(event);
    element?.addEventListener("wheel", onWheel, { passive: false });
    return () => element?.removeEventListener("wheel", onWheel);
  }, []);

  const onDrag = (event: PointerEvent): void => {
    const begun = drag.current;
    if (!begun || !width) return;
    const [x, y] = [event.clientX - begun.x, event.clientY - begun.y];
    if (!begun.far && Math.hypot(x, y) < 5) return;
    if (!begun.far) canvas.current?.setPointerCapture(event.pointerId);
    begun.far = true;
    const length = begun.range[1] - begun.range[0];
    show(begun.range[0] - (x / width) * length, length);
    if (box.current) box.current.scrollTop = begun.top - y;
  };

  const barOf = (event: MouseEvent): number => {
    const place = canvas.current?.getBoundingClientRect();
    if (!place) return -1;
    const y = event.clientY - place.top + Math.min(scroll, Math.max(0, content - height));
    const value =
      range.current[0] +
      ((event.clientX - place.left) / width) * (range.current[1] - range.current[0]);
    return barAt(flame, levelAt(flame, flip, y), value);
  };

  const reveal = (bar: number): void => {
    setFocus(bar);
    const element = box.current;
    if (!element) return;
    const y = (flip ? flame.depth - 1 - flame.level[bar] : flame.level[bar]) * barHeight;
    if (y < element.scrollTop) element.scrollTop = y;
    else if (y + barHeight > element.scrollTop + element.clientHeight)
      element.scrollTop = y + barHeight - element.clientHeight;
    // A bar outside of the zoom cannot be selected; zoom out to an ancestor that contains it.
    if (
      zoom >= 0 &&
      (flame.start[bar] < wanted[0] || flame.start[bar] + flame.total[bar] > wanted[1]) &&
      flame.level[bar] >= flame.level[zoom]
    )
      props.onZoom(flame.parent[zoom] > 0 ? flame.parent[zoom] : -1);
  };

  useLayoutEffect(() => {
    const bar = props.target?.bar ?? -1;
    if (bar >= 0 && bar < flame.n) reveal(bar);
  }, [props.target]);

  const beside = (bar: number, step: number): number => {
    const next = bar + step;
    return next >= flame.levels[flame.level[bar]] && next < flame.levels[flame.level[bar] + 1]
      ? next
      : bar;
  };
  const widestChild = (bar: number): number => {
    let best = bar;
    for (let i = flame.first[bar]; i < flame.last[bar]; i++)
      if (best === bar || flame.total[i] > flame.total[best]) best = i;
    return best;
  };

  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = focus >= 0 ? focus : zoom >= 0 ? zoom : 0;
    const up = flip ? "ArrowDown" : "ArrowUp";
    const down = flip ? "ArrowUp" : "ArrowDown";
    if (event.key === up) reveal(Math.max(0, flame.parent[at]));
    else if (event.key === down) reveal(focus < 0 ? at : widestChild(at));
    else if (event.key === "ArrowLeft") reveal(beside(at, -1));
    else if (event.key === "ArrowRight") reveal(beside(at, 1));
    else if (event.key === "Home") reveal(0);
    else if (event.key === "Enter") props.onZoom(at === zoom ? -1 : at === 0 ? -1 : at);
    else if (
      (event.key === "ContextMenu" || (event.key === "F10" && event.shiftKey)) &&
      props.onMenu
    ) {
      const place = canvas.current?.getBoundingClientRect();
      const row = flip ? flame.depth - 1 - flame.level[at] : flame.level[at];
      const [from, to] = range.current;
      const x = Math.min(1, Math.max(0, (flame.start[at] - from) / (to - from || 1)));
      if (place)
        props.onMenu(at, place.left + x * width, place.top + (row + 1) * barHeight - scroll);
    } else if (event.key === "s" && at > 0) props.onSandwich(nameOf(flame, at));
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const shown = hover && hover.bar >= 0 && hover.bar < flame.n ? hover : null;
  const activeBar = focused && focus >= 0 && focus < flame.n ? focus : -1;
  return (
    <div
      class={`flame${flip ? " flame-flip" : ""}`}
      ref={box}
      tabIndex={0}
      role="tree"
      aria-label={`${props.label}. Arrow keys move, Enter zooms, s shows callers and callees.`}
      aria-activedescendant={activeBar >= 0 ? `${id}${activeBar}` : undefined}
      onScroll={(event) => setScroll(event.currentTarget.scrollTop)}
      onKeyDown={onKeyDown}
      onContextMenu={(event) => event.target === box.current && event.preventDefault()}
      onFocus={() => {
        setFocused(true);
        if (focus < 0) setFocus(zoom >= 0 ? zoom : 0);
      }}
      onBlur={() => setFocused(false)}
    >
      <div class="flame-content" style={{ height: `${content}px` }} role="presentation">
        <canvas
          ref={canvas}
          aria-hidden="true"
          onPointerDown={(event) => {
            drag.current =
              event.button === 0 && event.pointerType === "mouse"
                ? {
                    x: event.clientX,
                    y: event.clientY,
                    top: box.current?.scrollTop ?? 0,
                    range: [...range.current],
                    far: false,
                  }
                : null;
          }}
          onPointerMove={(event) => (event.buttons & 1 ? onDrag(event) : (drag.current = null))}
          onMouseMove={(event) => {
            if (drag.current?.far) return;
            const bar = barOf(event);
            setHover(bar >= 0 ? { bar, x: event.clientX, y: event.clientY } : null);
          }}
          onMouseLeave={() => setHover(null)}
          onContextMenu={(event) => {
            const bar = barOf(event);
            if (bar < 0 || !props.onMenu) return;
            event.preventDefault();
            setHover(null);
            const [x, y] = [event.clientX, event.clientY];
            const openMenu = (): void => props.onMenu?.(bar, x, y);
            // Releasing the button would close a menu that is already open.
            if (event.buttons)
              window.addEventListener("pointerup", () => setTimeout(openMenu), { once: true });
            else openMenu();
          }}
          onClick={(event) => {
            const far = drag.current?.far;
            drag.current = null;
            // The second click of a double click would hit another bar, because the first has zoomed.
            if (far || event.detail > 1) return;
            const bar = barOf(event);
            clicked.current = { flame, bar };
            if (bar < 0) return;
            setFocus(bar);
            setHover(null);
            const next = bar === 0 || bar === zoom ? -1 : bar;
            if (next === zoom) showAll();
            else props.onZoom(next);
          }}
          onDblClick={() => {
            const first = clicked.current;
            if (first?.flame === flame && first.bar > 0) props.onSandwich(nameOf(flame, first.bar));
          }}
        />
      </div>
      <Twin
        flame={flame}
        unit={unit}
        relative={props.relative}
        samples={props.samples ?? 0}
        focus={activeBar >= 0 ? activeBar : 0}
        id={id}
        active={focused}
      />
      {shown && (
        <Tip
          flame={flame}
          unit={unit}
          relative={props.relative}
          samples={props.samples ?? 0}
          bar={shown.bar}
          x={shown.x}
          y={shown.y}
        />
      )}
    </div>
  );
}

/** The tree around the focused bar, for screen readers: callers, neighbours and callees. */
function Twin({
  flame,
  unit,
  relative,
  samples,
  focus,
  id,
  active,
}: {
  flame: Flame;
  unit: string;
  relative: boolean;
  samples: number;
  focus: number;
  id: string;
  active: boolean;
}) {
  if (!flame.n) return null;
  const items: number[] = active ? pathTo(flame, focus) : [0];
  if (active) {
    const parent = flame.parent[focus];
    const siblings: number[] = [];
    if (parent >= 0)
      for (
        let i = Math.max(flame.first[parent], focus - 20);
        i < Math.min(flame.last[parent], focus + 20);
        i++
      )
        if (i !== focus) siblings.push(i);
    for (let i = flame.first[focus]; i < Math.min(flame.last[focus], flame.first[focus] + 40); i++)
      siblings.push(i);
    items.push(...siblings);
  }
  return (
    <div class="hidden" role="presentation">
      {items.map((bar) => {
        const parent = flame.parent[bar];
        return (
          <div
            key={bar}
            id={`${id}${bar}`}
            role="treeitem"
            aria-level={flame.level[bar] + 1}
            aria-posinset={parent >= 0 ? bar - flame.first[parent] + 1 : 1}
            aria-setsize={parent >= 0 ? flame.last[parent] - flame.first[parent] : 1}
            aria-expanded={flame.last[bar] > flame.first[bar] ? true : undefined}
            aria-selected={bar === focus}
          >
            <bdi>{nameOf(flame, bar)}</bdi>,{" "}
            {describe(flame, bar, unit, relative, samples)
              .map(([key, value]) => `${key} ${value}`)
              .join("; ")}
          </div>
        );
      })}
    </div>
  );
}

function Tip({
  flame,
  unit,
  relative,
  samples,
  bar,
  x,
  y,
}: {
  flame: Flame;
  unit: string;
  relative: boolean;
  samples: number;
  bar: number;
  x: number;
  y: number;
}) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const left =
      x + 14 + element.offsetWidth > window.innerWidth - 8 ? x - 14 - element.offsetWidth : x + 14;
    const top =
      y + 16 + element.offsetHeight > window.innerHeight - 8
        ? y - 12 - element.offsetHeight
        : y + 16;
    element.style.left = `${Math.max(8, left)}px`;
    element.style.top = `${Math.max(8, top)}px`;
  });
  const file = fileOf(flame, bar);
  return (
    <div class="tip" ref={box} role="presentation" aria-hidden="true">
      <div class="tip-name">
        <bdi>{nameOf(flame, bar)}</bdi>
      </div>
      {file && (
        <div class="tip-file">
          <bdi>{file}</bdi>
        </div>
      )}
      <dl>
        {describe(flame, bar, unit, relative, samples).map(([key, value]) => (
          <div key={key}>
            <dt>{key}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}
