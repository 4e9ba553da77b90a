// SPDX-License-Identifier: Apache-2.0
// The flame graph view: a canvas, a tooltip, keyboard control, and a tree for screen readers.
import { useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { changeColor, flameColors, packageColor, valueColor } from "../color";
import { amount, difference, packageOf, percent } from "../format";
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
  onZoom: (bar: number) => void;
  onSandwich: (name: string) => void;
}

const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

/** Returns the description of a bar as pairs of label and value. */
export function describe(
  flame: Flame,
  bar: number,
  unit: string,
  relative = true,
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
  return [
    ["total", `${amount(flame.total[bar], unit)}, ${percent(flame.total[bar] / all)}`],
    ["self", `${amount(flame.self[bar], unit)}, ${percent(flame.self[bar] / all)}`],
  ];
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
  const frame = useRef(0);
  const wanted: [number, number] =
    zoom >= 0 && zoom < flame.n
      ? [flame.start[zoom], flame.start[zoom] + flame.total[zoom]]
      : [0, flame.width];

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
      focus: focused ? focus : -1,
      matches: matches?.names ?? null,
      colorOf,
      colors: flameColors(dark),
    });
  };

  // A new profile appears without an animation. The attribute is for measurements.
  const drawn = useRef<Flame | null>(null);
  useLayoutEffect(() => {
    if (drawn.current !== flame) {
      range.current = wanted;
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
    if (from === wanted[0] && to === wanted[1]) {
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
    else if (event.key === "s" && at > 0) props.onSandwich(nameOf(flame, at));
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
          onMouseMove={(event) => {
            const bar = barOf(event);
            setHover(bar >= 0 ? { bar, x: event.clientX, y: event.clientY } : null);
          }}
          onMouseLeave={() => setHover(null)}
          onClick={(event) => {
            const bar = barOf(event);
            if (bar < 0) return;
            setFocus(bar);
            setHover(null);
            props.onZoom(bar === 0 || bar === zoom ? -1 : bar);
          }}
          onDblClick={(event) => {
            const bar = barOf(event);
            if (bar > 0) props.onSandwich(nameOf(flame, bar));
          }}
        />
      </div>
      <Twin
        flame={flame}
        unit={unit}
        relative={props.relative}
        focus={activeBar >= 0 ? activeBar : 0}
        id={id}
        active={focused}
      />
      {shown && (
        <Tip
          flame={flame}
          unit={unit}
          relative={props.relative}
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
  focus,
  id,
  active,
}: {
  flame: Flame;
  unit: string;
  relative: boolean;
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
            {nameOf(flame, bar)},{" "}
            {describe(flame, bar, unit, relative)
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
  bar,
  x,
  y,
}: {
  flame: Flame;
  unit: string;
  relative: boolean;
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
      <div class="tip-name">{nameOf(flame, bar)}</div>
      {file && <div class="tip-file">{file}</div>}
      <dl>
        {describe(flame, bar, unit, relative).map(([key, value]) => (
          <div key={key}>
            <dt>{key}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}
