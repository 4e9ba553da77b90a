// SPDX-License-Identifier: Apache-2.0
// Colours of data, in the OKLCH space so that hues look equally bright. Fixed colours are in style.css.

const oklch = (lightness: number, chroma: number, hue: number): string =>
  `oklch(${lightness.toFixed(3)} ${chroma.toFixed(3)} ${hue.toFixed(1)})`;

export function hash(text: string): number {
  let h = 2166136261;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
  h ^= h >>> 15;
  h = Math.imul(h, 0x2c1b3c6d);
  return (h ^ (h >>> 13)) >>> 0;
}

/** Hues that differ from the red of errors, the orange of CPU time and the teal of controls. */
const hues = [255, 155, 310, 215, 340, 285, 125, 92, 235, 325, 270];

/** Returns the colour of a service. It depends only on the name, so it is the same in every view
 * and for every user. Text on it is readable. */
export function serviceColor(name: string, dark: boolean): string {
  const h = hash(`bj${name}`); // with these two letters, common service names get different hues
  const shade = Math.floor(h / hues.length) % 3;
  return oklch(dark ? 0.66 + shade * 0.07 : 0.54 - shade * 0.05, 0.115, hues[h % hues.length]);
}

export interface FlameColors {
  background: string;
  text: string;
  edge: string;
  dim: string;
  dimText: string;
  match: string;
  matchText: string;
  focus: string;
  root: string;
}

export function flameColors(dark: boolean): FlameColors {
  return dark
    ? {
        background: "#121416",
        text: "#f1f2f3",
        edge: "#121416",
        dim: "#23272a",
        dimText: "#8d959b",
        match: "#c9a227",
        matchText: "#14110a",
        focus: "#5eead4",
        root: "#33383c",
      }
    : {
        background: "#ffffff",
        text: "#1d2023",
        edge: "#ffffff",
        dim: "#eceef0",
        dimText: "#626b71",
        match: "#f6c945",
        matchText: "#251b00",
        focus: "#0f766e",
        root: "#dde0e3",
      };
}

export function packageColor(name: string, dark: boolean): string {
  const h = hash(name);
  const hue = h % 360;
  const wave = ((h >>> 9) % 5) / 100;
  return dark ? oklch(0.43 + wave, 0.075, hue) : oklch(0.83 + wave * 0.8, 0.075, hue);
}

/** Returns a colour from pale to saturated for a share of the total. The scale is a square root,
 * so that small shares differ visibly. */
export function valueColor(share: number, dark: boolean): string {
  const t = Math.sqrt(Math.min(1, Math.max(0, share)));
  return dark
    ? oklch(0.3 + 0.2 * t, 0.02 + 0.12 * t, 60 - 25 * t)
    : oklch(0.95 - 0.22 * t, 0.02 + 0.13 * t, 75 - 35 * t);
}

/** Returns the colour of a change from -1 to 1: green (or blue) if the right side has less, red
 * if it has more. */
export function changeColor(change: number, blind: boolean, dark: boolean): string {
  const size = Math.min(1, Math.abs(change)) ** 0.7;
  const hue = change < 0 ? (blind ? 255 : 150) : blind ? 45 : 25;
  return dark
    ? oklch(0.34 + 0.14 * size, 0.006 + 0.12 * size, hue)
    : oklch(0.92 - 0.16 * size, 0.006 + 0.12 * size, hue);
}
