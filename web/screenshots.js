// SPDX-License-Identifier: Apache-2.0
// Writes screenshots of the page to docs/pictures/, with generated data that is the same every time. web/screenshots runs it.
import { mkdirSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { startBrowser } from "../tests/page/browser.js";
import { startMock } from "./mock/server.js";

const folder = fileURLToPath(new URL("../docs/pictures/", import.meta.url));
const now = Date.parse("2026-11-22T15:00:00Z");
const server = await startMock({ now });
const orders = server.store.spans
  .filter((span) => span.key === "checkout/order.calculate_totals")
  .sort((a, b) => b.durationMs - a.durationMs);
const trace = `#/trace/${orders[1].trace.id}?span=${orders[1].id}`;
const profile = `#/profile?query=${encodeURIComponent('{service_name="checkout"}')}`;
const slow = "#/compare/slow?service=checkout&name=order.calculate_totals";
const usual = orders.find((span) => !span.isSlow && span.samples >= 7);
// The slower half of the last half hour: at least 316 ms.
const box = `${BigInt(now - 1800e3) * 1000000n}-${BigInt(now) * 1000000n}-316227767-`;
const side = (span) =>
  encodeURIComponent(
    `of_name=${span.name}&of_service=${span.service}&scope=self&span=${span.id}&trace=${span.trace.id}`,
  );

// name, fragment, width, height, theme, palette of comparisons
const pictures = [
  ["services", "#/services", 1280, 800, "light"],
  ["heat", `#/spans?service=checkout&box=${box}`, 1280, 800, "light"],
  ["spans", "#/spans?service=checkout", 1280, 800, "light"],
  ["trace", trace, 1280, 800, "light"],
  ["trace-dark", trace, 1280, 800, "dark"],
  ["profile", profile, 1280, 800, "dark"],
  ["tree", `${profile}&show=tree`, 1280, 800, "light"],
  ["sandwich", `${profile}&of=Rule.parse_expression`, 1280, 800, "light"],
  ["slow", slow, 1280, 800, "light"],
  ["compare", `#/compare?left=${side(usual)}&right=${side(orders[1])}`, 1280, 800, "dark", "blue"],
  ["health", "#/health", 1280, 640, "light"],
  ["privacy", "#/privacy", 1280, 800, "light"],
  ["phone", trace, 390, 844, "light"],
];

mkdirSync(folder, { recursive: true });
const browser = await startBrowser();
for (const [name, fragment, width, height, colorScheme, palette = ""] of pictures) {
  if (process.argv.length > 2 && !process.argv.includes(name)) continue;
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme,
    timezoneId: "UTC",
    reducedMotion: "reduce",
  });
  const page = await context.newPage();
  page.setDefaultTimeout(60000);
  await page.addInitScript((chosen) => localStorage.setItem("braid.palette", chosen), palette);
  await page.clock.setFixedTime(now);
  await page.goto(server.url + fragment);
  await page
    .locator(".flame canvas, .spans .row, .operations .row, .tree .row, .health tbody, .empty")
    .first()
    .waitFor();
  await page.waitForLoadState("networkidle");
  await page.screenshot({ path: `${folder}${name}.png` });
  console.log(`${name}.png ${Math.round(statSync(`${folder}${name}.png`).size / 1000)} kB`);
  await context.close();
}
await browser.close();
await server.close();
