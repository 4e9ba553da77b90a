// SPDX-License-Identifier: Apache-2.0
// A heat map of spans by time and duration. A box of cells can be selected with the mouse, or with Shift and the
// arrow keys.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Heat } from "../openapi";
import { type Box } from "../box";
import { clock, compact, count, duration, percent, zoneMinutes } from "../format";
import { useDark, useRemembered } from "../state";
import { Segments, useSize } from "./basics";

const height = 136;
const inset = { left: 60, right: 8, top: 8, bottom: 20 };

export type Shade = "" | "errors" | "cpu";

type Rgb = [number, number, number];

/** Colours of cells, from the lowest to the highest value. */
const scales = (dark: boolean): Record<Shade, [Rgb, Rgb]> =>
  dark
    ? {
        "": [
          [22, 58, 54],
          [94, 234, 212],
        ],
        errors: [
          [50, 58, 63],
          [248, 113, 113],
        ],
        cpu: [
          [62, 48, 36],
          [247, 172, 100],
        ],
      }
    : {
        "": [
          [205, 235, 229],
          [11, 84, 78],
        ],
        errors: [
          [212, 219, 223],
          [200, 24, 24],
        ],
        cpu: [
          [247, 226, 205],
          [176, 82, 6],
        ],
      };

const mixed = ([low, high]: [Rgb, Rgb], share: number): string =>
  `rgb(${low.map((value, i) => Math.round(value + (high[i] - value) * share)).join(" ")})`;

/** Distances between labels of the time axis, in seconds. */
const steps = [
  0.001, 0.01, 0.1, 1, 5, 10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
];

/** Two corners of a selection: columns are time steps, rows are ranges of durations. */
interface Cells {
  fromX: number;
  fromY: number;
  x: number;
  y: number;
}

/** Returns the place of a duration on the axis, in rows. */
function rowOf(edges: number[], ns: number): number {
  const after = edges.findIndex((edge) => edge > ns);
  return after < 0 ? edges.length - 1 : Math.max(0, after - 1);
}

export function HeatMap({
  data,
  shade: wanted,
  onShade,
  box,
  onBox,
}: {
  data: Heat;
  shade: Shade;
  onShade: (shade: Shade) => void;
  box: Box | null;
  onBox: (box: Box | null) => void;
}) {
  const shade = wanted === "cpu" && !data.cpu_ns ? "" : wanted; // until the CPU times arrive
  const dark = useDark();
  const zoneChoice = useRemembered("zone");
  const [frame, width] = useSize<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [cells, setCells] = useState<Cells | null>(null);
  const [keyed, setKeyed] = useState(false); // the cursor was moved with the keyboard
  const dragging = useRef(false);
  const { durations_ns: edges, steps: columns } = data;
  const rows = Math.max(0, edges.length - 1);
  const begin = Number(data.start_unix_ns) / 1e9;
  const step = data.step_ns / 1e9;
  const room = Math.max(1, width - inset.left - inset.right);
  const tall = height - inset.top - inset.bottom;
  const xOf = (column: number): number => inset.left + (column / columns) * room;
  const yOf = (row: number): number => inset.top + tall - (row / Math.max(1, rows)) * tall;
  const most = Math.max(1, ...data.spans);
  const cpu = data.cpu_ns ?? [];
  const mostCpu = Math.max(1, ...cpu);
  const allCpu = Math.max(
    1,
    cpu.reduce((all, ns) => all + ns, 0),
  );

  useLayoutEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (!element || !context || !width) return;
    const ratio = window.devicePixelRatio || 1;
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
    element.style.width = `${width}px`;
    element.style.height = `${height}px`;
    context.scale(ratio, ratio);
    context.font = '11px "Inter Variable", Inter, system-ui, sans-serif';
    context.textBaseline = "middle";
    const text = dark ? "#929ba1" : "#626b71";
    context.strokeStyle = dark ? "#202427" : "#edf0f1";
    context.fillStyle = text;
    context.textAlign = "right";
    const apartRows = Math.max(1, Math.ceil(24 / (tall / Math.max(1, rows))));
    for (let row = 0; row <= rows && rows > 0; row += apartRows) {
      const y = Math.round(yOf(row)) + 0.5;
      context.beginPath();
      context.moveTo(inset.left, y);
      context.lineTo(width - inset.right, y);
      context.stroke();
      context.fillText(edges[row] > 1e18 ? "∞" : duration(edges[row]), inset.left - 8, y);
    }
    const apart = steps.find((s) => (s / (step * columns)) * room > 72) ?? 86400;
    const zone = -zoneMinutes(begin * 1000) * 60;
    context.textAlign = "center";
    for (
      let t = Math.ceil((begin - zone) / apart) * apart + zone;
      t <= begin + step * columns;
      t += apart
    ) {
      const x = inset.left + ((t - begin) / (step * columns)) * room;
      if (x > inset.left + 12 && x < width - inset.right - 16)
        context.fillText(
          apart < 1 ? clock(t * 1000) : clock(t * 1000, 0).slice(0, apart < 60 ? 8 : 5),
          x,
          height - 9,
        );
    }
    const scale = scales(dark)[shade];
    const rise = tall / Math.max(1, rows);
    for (let at = 0; at < data.spans.length; at++) {
      const spans = data.spans[at];
      if (!spans) continue;
      // A logarithm, so that single slow spans remain visible next to thousands of fast ones.
      let share = Math.log1p(spans) / Math.log1p(most);
      // A cell with any error differs clearly from one without.
      if (shade === "errors") share = data.errors[at] ? 0.35 + (0.65 * data.errors[at]) / spans : 0;
      if (shade === "cpu") share = Math.max(0, (cpu[at] ?? 0) / mostCpu);
      const column = at % columns;
      const row = Math.floor(at / columns);
      context.fillStyle = mixed(scale, share);
      context.fillRect(
        xOf(column),
        yOf(row + 1),
        Math.max(1, room / columns - 0.5),
        Math.max(1, rise - 0.5),
      );
    }
  }, [data, width, dark, shade, zoneChoice]);

  const cellAt = (event: PointerEvent): { x: number; y: number } => {
    const place = frame.current!.getBoundingClientRect();
    const within = (value: number, n: number): number =>
      Math.min(n - 1, Math.max(0, Math.floor(value * n)));
    return {
      x: within((event.clientX - place.left - inset.left) / room, columns),
      y: within(1 - (event.clientY - place.top - inset.top) / tall, Math.max(1, rows)),
    };
  };
  const apply = ({ fromX, fromY, x, y }: Cells): void => {
    setCells(null);
    const at = (column: number): bigint =>
      BigInt(data.start_unix_ns) + BigInt(data.step_ns) * BigInt(column);
    const above = edges[Math.max(fromY, y) + 1];
    onBox({
      start: String(at(Math.min(fromX, x))),
      end: String(at(Math.max(fromX, x) + 1) - 1n),
      min: edges[Math.min(fromY, y)],
      max: above > 2 ** 53 ? Infinity : above - 1,
    });
  };

  const from = cells ? cells.y * columns + cells.x : -1;
  const one = cells && cells.fromX === cells.x && cells.fromY === cells.y;
  /** Sum of a figure over the cells that are being selected. */
  const sumOf = (values: number[]): number => {
    let sum = 0;
    if (cells)
      for (let y = Math.min(cells.fromY, cells.y); y <= Math.max(cells.fromY, cells.y); y++)
        for (let x = Math.min(cells.fromX, cells.x); x <= Math.max(cells.fromX, cells.x); x++)
          sum += values[y * columns + x] ?? 0;
    return sum;
  };
  const wordsOf = (): string => {
    if (!cells || !rows || from < 0) return "";
    const second = (column: number): string =>
      clock((begin + column * step) * 1000, step < 1 ? 3 : 0);
    const [low, high] = [Math.min(cells.fromY, cells.y), Math.max(cells.fromY, cells.y) + 1];
    const upper = edges[high] > 1e18 ? "∞" : duration(edges[high]);
    const spans = sumOf(data.spans);
    const errors = sumOf(data.errors);
    return (
      `${second(Math.min(cells.fromX, cells.x))}–${second(Math.max(cells.fromX, cells.x) + 1)}, ` +
      `${duration(edges[low])}–${upper}: ${count(spans)} span${spans === 1 ? "" : "s"}` +
      (errors ? `, ${count(errors)} error${errors === 1 ? "" : "s"}` : "") +
      (data.cpu_ns && spans
        ? `, ${duration(sumOf(cpu))} CPU (${percent(sumOf(cpu) / allCpu)})`
        : "")
    );
  };
  const words = wordsOf();
  const peak = data.spans.indexOf(most);
  const summary =
    `Heat map of ${count(data.total.spans)} spans by time and duration, with ${count(data.total.errors)} errors. ` +
    (peak >= 0
      ? `Most spans, ${count(most)}, begin at ${clock((begin + (peak % columns) * step) * 1000, 0)} ` +
        `and take ${duration(edges[Math.floor(peak / columns)])} or more. `
      : "") +
    "Arrow keys move between cells, with Shift they select a box, Enter applies it.";

  const rectangle = (x: number, y: number, toX: number, toY: number) => ({
    left: `${Math.max(inset.left, x)}px`,
    top: `${Math.max(inset.top, y)}px`,
    width: `${Math.max(2, Math.min(toX, width - inset.right) - Math.max(inset.left, x))}px`,
    height: `${Math.max(2, toY - Math.max(inset.top, y))}px`,
  });
  const columnOf = (ns: string): number =>
    Number(BigInt(ns) - BigInt(data.start_unix_ns)) / Math.max(1, data.step_ns);
  const boxStyle =
    box && rows > 0 && columnOf(box.end) > 0 && columnOf(box.start) < columns
      ? rectangle(
          xOf(columnOf(box.start)),
          yOf(Number.isFinite(box.max) ? rowOf(edges, box.max) + 1 : rows),
          xOf(columnOf(box.end)),
          yOf(rowOf(edges, box.min)),
        )
      : null;
  const ends = scales(dark)[shade];
  const limits: Record<Shade, [string, string]> = {
    "": ["1", `${compact(most)} spans`],
    errors: ["0%", "100% errors"],
    cpu: ["0", `${duration(mostCpu)} CPU`],
  };
  const move = (dx: number, dy: number, extend: boolean): void => {
    const peakCell = { x: Math.max(0, peak) % columns, y: Math.floor(Math.max(0, peak) / columns) };
    const old = cells && keyed ? cells : null;
    const x = old ? Math.min(columns - 1, Math.max(0, old.x + dx)) : peakCell.x;
    const y = old ? Math.min(rows - 1, Math.max(0, old.y + dy)) : peakCell.y;
    setKeyed(true);
    setCells({ x, y, fromX: extend && old ? old.fromX : x, fromY: extend && old ? old.fromY : y });
  };
  const arrows: Record<string, [number, number]> = {
    ArrowLeft: [-1, 0],
    ArrowRight: [1, 0],
    ArrowUp: [0, 1],
    ArrowDown: [0, -1],
  };
  return (
    <>
      <div class="heat-head">
        <span class="heat-now" aria-live={keyed ? "polite" : "off"}>
          {words || (rows ? "" : "No spans in this time range")}
        </span>
        {data.why_no_cpu && wanted === "cpu" ? (
          <span class="quiet">{data.why_no_cpu}</span>
        ) : (
          rows > 0 && (
            <span class="heat-key">
              {limits[shade][0]}
              <i
                style={{
                  background: `linear-gradient(90deg, ${mixed(ends, 0)}, ${mixed(ends, 1)})`,
                }}
              />
              {limits[shade][1]}
            </span>
          )
        )}
        <Segments
          label="Colour by"
          value={wanted}
          onChange={(to) => onShade(to)}
          options={[
            ["", "Count"],
            ["errors", "Error share"],
            ["cpu", "CPU share"],
          ]}
        />
      </div>
      <div
        class="heat"
        ref={frame}
        tabIndex={0}
        role="application"
        aria-roledescription="heat map"
        aria-label={summary}
        onPointerDown={(event) => {
          if (!rows || event.button !== 0) return;
          event.currentTarget.setPointerCapture(event.pointerId);
          dragging.current = true;
          setKeyed(false);
          const { x, y } = cellAt(event);
          setCells({ x, y, fromX: x, fromY: y });
        }}
        onPointerMove={(event) => {
          if (!rows || keyed) return;
          const { x, y } = cellAt(event);
          setCells((old) =>
            dragging.current && old ? { ...old, x, y } : { x, y, fromX: x, fromY: y },
          );
        }}
        onPointerUp={() => {
          const end = dragging.current ? cells : null;
          dragging.current = false;
          // A click on a cell without spans removes the box.
          if (end && (sumOf(data.spans) > 0 || !one)) apply(end);
          else if (end) onBox(null);
        }}
        onPointerCancel={() => {
          dragging.current = false;
          setCells(null);
        }}
        onPointerLeave={() => !dragging.current && !keyed && setCells(null)}
        onKeyDown={(event) => {
          const by = arrows[event.key];
          if (by && rows) move(...by, event.shiftKey);
          else if (event.key === "Enter" && cells && keyed) apply(cells);
          else if (event.key === "Escape" && cells && keyed) setCells(null);
          else return;
          event.preventDefault();
          event.stopPropagation();
        }}
        onBlur={() => {
          setKeyed(false);
          setCells(null);
        }}
      >
        <canvas ref={canvas} aria-hidden="true" />
        {boxStyle && <div class="heat-box" style={boxStyle} />}
        {cells && rows > 0 && (
          <div
            class="heat-mark"
            style={rectangle(
              xOf(Math.min(cells.fromX, cells.x)),
              yOf(Math.max(cells.fromY, cells.y) + 1),
              xOf(Math.max(cells.fromX, cells.x) + 1),
              yOf(Math.min(cells.fromY, cells.y)),
            )}
          />
        )}
      </div>
    </>
  );
}
