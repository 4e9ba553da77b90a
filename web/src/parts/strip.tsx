// SPDX-License-Identifier: Apache-2.0
// A chart over time: spans and errors as bars, and the 95th percentile of the duration as a line. A range can be
// selected with the mouse, or with Shift and the arrow keys.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Timeline } from "../openapi";
import { clock, compact, duration } from "../format";
import { useDark } from "../state";
import { useSize } from "./basics";

const height = 98;
const inset = { left: 56, right: 60, top: 22, bottom: 20 };

const palette = (dark: boolean) =>
  dark
    ? {
        bar: "#3b4a50",
        error: "#f87171",
        line: "#5eead4",
        text: "#929ba1",
        grid: "#202427",
        mark: "#5eead4",
      }
    : {
        bar: "#c9d3d7",
        error: "#dc2626",
        line: "#0f766e",
        text: "#626b71",
        grid: "#edf0f1",
        mark: "#0f766e",
      };

/** Distances between labels of the time axis, in seconds. */
const steps = [
  0.001, 0.01, 0.1, 1, 5, 10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
];

/** Returns the next larger 1, 2 or 5 times a power of ten. */
function round(value: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  return ([1, 2, 5].find((n) => n * power >= value * 0.999) ?? 10) * power;
}

export function Strip({
  data,
  onRange,
}: {
  data: Timeline;
  onRange: (startMs: number, endMs: number) => void;
}) {
  const dark = useDark();
  const [box, width] = useSize<HTMLElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [at, setAt] = useState(-1); // bucket under the pointer
  const [from, setFrom] = useState(-1); // start of the selected range
  const dragging = useRef(false);
  const { buckets } = data;
  const n = Math.max(1, buckets.length);
  const begin = Number(data.start_unix_ns) / 1e9;
  const step = data.step_ns / 1e9;
  const room = Math.max(1, width - inset.left - inset.right);
  const floor = height - inset.bottom;
  const xOf = (bucket: number): number => inset.left + (bucket / n) * room;

  useLayoutEffect(() => {
    const element = canvas.current;
    if (!element || !width) return;
    const ratio = window.devicePixelRatio || 1;
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
    element.style.width = `${width}px`;
    element.style.height = `${height}px`;
    const context = element.getContext("2d");
    if (!context) return;
    context.scale(ratio, ratio);
    const colors = palette(dark);
    const most = round(Math.max(...buckets.map((bucket) => bucket.spans / step), 0.01));
    const longest = round(Math.max(...buckets.map((bucket) => bucket.p95_ns), 1));
    const rise = floor - inset.top;
    const any = buckets.some((bucket) => bucket.spans); // without spans there is no scale
    context.font = '11px "Inter Variable", Inter, system-ui, sans-serif';
    context.textBaseline = "middle";
    for (const share of [0, 0.5, 1]) {
      const y = Math.round(floor - share * rise) + 0.5;
      context.strokeStyle = colors.grid;
      context.beginPath();
      context.moveTo(inset.left, y);
      context.lineTo(width - inset.right, y);
      context.stroke();
      if (!share || !any) continue;
      context.fillStyle = colors.text;
      context.textAlign = "right";
      context.fillText(`${compact(most * share)}/s`, inset.left - 8, y);
      context.textAlign = "left";
      context.fillText(duration(longest * share), width - inset.right + 8, y);
    }
    const apart = steps.find((s) => (s / (step * n)) * room > 72) ?? 86400;
    const zone = new Date(begin * 1000).getTimezoneOffset() * 60;
    context.fillStyle = colors.text;
    context.textAlign = "center";
    for (
      let t = Math.ceil((begin - zone) / apart) * apart + zone;
      t <= begin + step * n;
      t += apart
    ) {
      const x = inset.left + ((t - begin) / (step * n)) * room;
      if (x > inset.left + 12 && x < width - inset.right - 12)
        context.fillText(
          apart < 1 ? clock(t * 1000) : clock(t * 1000, 0).slice(0, apart < 60 ? 8 : 5),
          x,
          height - 9,
        );
    }
    const wide = Math.max(1, (room / n) * 0.78);
    buckets.forEach((bucket, i) => {
      const bar = (value: number, color: string): void => {
        const tall = value > 0 ? Math.max(1, (value / step / most) * rise) : 0;
        context.fillStyle = color;
        context.fillRect(xOf(i), floor - tall, wide, tall);
      };
      bar(bucket.spans, colors.bar);
      bar(bucket.errors, colors.error);
    });
    context.strokeStyle = colors.line;
    context.lineWidth = 1.5;
    context.lineJoin = "round";
    context.beginPath();
    let drawing = false;
    buckets.forEach((bucket, i) => {
      if (!bucket.spans) return;
      const y = floor - (bucket.p95_ns / longest) * rise;
      if (drawing) context.lineTo(xOf(i) + wide / 2, y);
      else context.moveTo(xOf(i) + wide / 2, y);
      drawing = true;
    });
    context.stroke();
    if (at >= 0 && at < n) {
      const first = from < 0 ? at : Math.min(from, at);
      const last = from < 0 ? at : Math.max(from, at);
      context.globalAlpha = from < 0 ? 0.12 : 0.2;
      context.fillStyle = colors.mark;
      context.fillRect(xOf(first), inset.top - 4, xOf(last + 1) - xOf(first), rise + 4);
    }
  }, [data, width, dark, at, from]);

  const bucketOf = (event: PointerEvent): number => {
    const place = box.current!.getBoundingClientRect();
    return Math.min(
      n - 1,
      Math.max(0, Math.floor(((event.clientX - place.left - inset.left) / room) * n)),
    );
  };
  const apply = (a: number, b: number): void => {
    const first = Math.min(a, b);
    const last = Math.max(a, b) + 1;
    setFrom(-1);
    onRange(Math.floor((begin + first * step) * 1000), Math.ceil((begin + last * step) * 1000));
  };
  const bucket = buckets[at];
  const words = bucket
    ? `${clock((begin + at * step) * 1000, 0)}: ${compact(bucket.spans)} spans, ` +
      `${compact(bucket.errors)} errors, p95 ${duration(bucket.p95_ns)}`
    : "";
  const spans = buckets.reduce((all, one) => all + one.spans, 0);
  return (
    <figure
      class="strip"
      ref={box}
      tabIndex={0}
      role="slider"
      aria-label={`${spans} spans over time. Arrows look, with Shift they choose a range, Enter takes it.`}
      aria-valuemin={0}
      aria-valuemax={n - 1}
      aria-valuenow={Math.max(0, at)}
      aria-valuetext={words || "no time chosen"}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        dragging.current = true;
        setFrom(bucketOf(event));
        setAt(bucketOf(event));
      }}
      onPointerMove={(event) => setAt(bucketOf(event))}
      onPointerUp={(event) => {
        const end = bucketOf(event);
        if (dragging.current && from >= 0 && end !== from) apply(from, end);
        dragging.current = false;
        setFrom(-1);
      }}
      onPointerLeave={() => !dragging.current && setAt(-1)}
      onKeyDown={(event) => {
        const move = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
        if (move) {
          if (event.shiftKey && from < 0) setFrom(Math.max(0, at));
          if (!event.shiftKey) setFrom(-1);
          setAt(Math.min(n - 1, Math.max(0, at + move)));
        } else if (event.key === "Enter" && at >= 0) apply(from < 0 ? at : from, at);
        else if (event.key === "Escape" && from >= 0) setFrom(-1);
        else return;
        event.preventDefault();
        event.stopPropagation();
      }}
      onBlur={() => (setAt(-1), setFrom(-1))}
    >
      <canvas ref={canvas} aria-hidden="true" />
      <div class="strip-head" aria-hidden="true">
        <span class="strip-now">{words}</span>
        <span class="key key-bar">spans/s</span>
        <span class="key key-error">errors/s</span>
        <span class="key key-line">p95</span>
      </div>
    </figure>
  );
}
