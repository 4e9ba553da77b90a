// SPDX-License-Identifier: Apache-2.0
// Draws the visible levels of a flame graph on a canvas of the view's size.
import type { FlameColors } from "../color";
import { labelOf } from "../format";
import { firstEndingBehind, type Flame } from "./model";

export const barHeight = 20;

export interface Drawing {
  width: number;
  height: number;
  scroll: number;
  from: number; // range of values that fills the width
  to: number;
  flip: boolean;
  zoom: number; // bar that fills the width; its ancestors are dimmed
  hover: number;
  focus: number;
  matches: Uint8Array | null;
  colorOf: (bar: number) => string;
  colors: FlameColors;
}

export const font =
  '12px "Inter Variable", Inter, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

/** Character widths by code, measured once per page. */
let widths: Float32Array | null = null;

function widthsOf(context: CanvasRenderingContext2D): Float32Array {
  if (!widths) {
    widths = new Float32Array(128);
    for (let i = 32; i < 127; i++) widths[i] = context.measureText(String.fromCharCode(i)).width;
  }
  return widths;
}

/** Returns the part of a text that fits. The beginning is kept, because it is read first. */
function fit(context: CanvasRenderingContext2D, text: string, room: number): string {
  const table = widthsOf(context);
  let used = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    used += code < 128 ? table[code] : 12;
    if (used > room) {
      let keep = i;
      let back = used;
      while (keep > 0 && back + 9 > room) {
        keep--;
        const c = text.charCodeAt(keep);
        back -= c < 128 ? table[c] : 12;
      }
      return keep > 1 ? `${text.slice(0, keep)}…` : "";
    }
  }
  return text;
}

export const levelAt = (flame: Flame, flip: boolean, y: number): number => {
  const row = Math.floor(y / barHeight);
  return flip ? flame.depth - 1 - row : row;
};

export function draw(context: CanvasRenderingContext2D, flame: Flame, what: Drawing): void {
  const { width, height, from, to, colors, matches } = what;
  const scale = width / Math.max(to - from, 1e-12);
  context.fillStyle = colors.background;
  context.fillRect(0, 0, width, height);
  context.font = font;
  context.textBaseline = "middle";
  const zoomLevel = what.zoom >= 0 ? flame.level[what.zoom] : 0;
  const top = Math.floor(what.scroll / barHeight);
  const bottom = Math.ceil((what.scroll + height) / barHeight);
  for (let row = Math.max(0, top); row < Math.min(flame.depth, bottom); row++) {
    const level = what.flip ? flame.depth - 1 - row : row;
    const y = row * barHeight - what.scroll;
    const end = flame.levels[level + 1];
    let runStart = 0;
    let runEnd = -1; // end of a run of bars too narrow to distinguish
    let runMatch = false;
    let runColor = "";
    const endRun = (): void => {
      if (runEnd > runStart) {
        context.fillStyle = runMatch ? colors.match : runColor;
        context.fillRect(runStart, y, Math.max(0.6, runEnd - runStart), barHeight - 1);
      }
      runEnd = -1;
      runMatch = false;
    };
    for (let i = firstEndingBehind(flame, level, from); i < end && flame.start[i] < to; i++) {
      const left = Math.max(0, (flame.start[i] - from) * scale);
      const right = Math.min(width, (flame.start[i] + flame.total[i] - from) * scale);
      const match = matches !== null && matches[flame.name[i]] === 1;
      if (right - left < 1.2) {
        if (runEnd >= 0 && left - runEnd > 0.6) endRun();
        if (runEnd < 0) {
          runStart = left;
          runColor = matches ? colors.dim : what.colorOf(i);
        }
        runEnd = Math.max(right, left + 0.4);
        runMatch ||= match;
        continue;
      }
      endRun();
      const above = level < zoomLevel;
      const dim = above || (matches !== null && !match);
      context.fillStyle = match ? colors.match : dim ? colors.dim : what.colorOf(i);
      context.fillRect(left, y, right - left - (right < width ? 1 : 0), barHeight - 1);
      if (right - left > 22) {
        const label = fit(
          context,
          labelOf(flame.names[flame.name[i]] ?? "", flame.files[flame.name[i]] ?? ""),
          right - left - 9,
        );
        if (label) {
          context.fillStyle = match ? colors.matchText : dim ? colors.dimText : colors.text;
          context.fillText(label, left + 5, y + barHeight / 2);
        }
      }
    }
    endRun();
  }
  outline(context, flame, what, what.hover, colors.text, scale, 1);
  outline(context, flame, what, what.focus, colors.focus, scale, 2);
}

function outline(
  context: CanvasRenderingContext2D,
  flame: Flame,
  what: Drawing,
  bar: number,
  color: string,
  scale: number,
  thick: number,
): void {
  if (bar < 0 || bar >= flame.n) return;
  const row = what.flip ? flame.depth - 1 - flame.level[bar] : flame.level[bar];
  const left = Math.max(0, (flame.start[bar] - what.from) * scale);
  const right = Math.min(what.width, (flame.start[bar] + flame.total[bar] - what.from) * scale);
  if (right < 0 || left > what.width) return;
  context.strokeStyle = color;
  context.lineWidth = thick;
  context.strokeRect(
    left + thick / 2,
    row * barHeight - what.scroll + thick / 2,
    Math.max(1, right - left - thick - 1),
    barHeight - 1 - thick,
  );
}
