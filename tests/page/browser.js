// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the page: a browser, a mock server, and checks that apply to every page.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before } from "node:test";
import { chromium } from "playwright-core";
import { startMock } from "../../web/mock/server.js";

const require = createRequire(import.meta.url);
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const programs = [
  process.env.CHROMIUM,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
];

/** Long enough for a slow machine; a test that passes does not wait for it. */
export const patience = 60000;
export const now = Date.parse("2026-11-22T15:00:00Z");
export const dist = process.env.PAGE_DIST;

export async function startBrowser() {
  const executablePath = programs.find((path) => path && existsSync(path));
  assert.ok(executablePath, "no chromium: apt-get install chromium, or CHROMIUM=/path");
  return chromium.launch({
    executablePath,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-background-networking",
      "--disable-component-update",
    ],
  });
}

/** Starts a browser and a mock server for the tests of a suite. Both exist while the tests run. */
export function useMock(options = {}) {
  const shared = {};
  before(async () => {
    shared.browser = await startBrowser();
    shared.server = await mockOf(options);
  });
  after(async () => {
    await shared.browser?.close();
    await shared.server?.close();
  });
  return shared;
}

export const mockOf = (options = {}) => startMock({ now, dist, traces: 1500, ...options });

/** Contexts of each browser that a finished page has left, by their options. A new context takes a quarter of the
 * time of a test. */
const idle = new WeakMap();

async function takeContext(browser, key, options) {
  if (!idle.has(browser)) idle.set(browser, new Map());
  const contexts = idle.get(browser);
  if (!contexts.has(key)) contexts.set(key, []);
  return contexts.get(key).pop() ?? (await browser.newContext(options));
}

/** Closes the pages of a context and deletes what they stored, so that another page can use the context. */
async function leaveContext(browser, key, context) {
  for (const page of context.pages()) {
    await page.evaluate(() => {
      try {
        localStorage.clear();
      } catch {
        // a test took the storage away
      }
    });
    await page.close();
  }
  await context.clearCookies();
  idle.get(browser).get(key).push(context);
}

/** A page, and its problems: errors, also on the console, violations of the policy, requests to other
 * origins, dialogs. */
export async function openPage(browser, server, hash = "", { clock = true, ...given } = {}) {
  const options = {
    viewport: { width: 1280, height: 800 },
    timezoneId: "UTC",
    reducedMotion: "reduce",
    permissions: ["clipboard-read", "clipboard-write"],
    acceptDownloads: true,
    ...given,
  };
  const key = JSON.stringify([clock, options]); // the clock belongs to the context, too
  const context = await takeContext(browser, key, options);
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  const faults = [];
  // The clock of the data: "today" is the day of the mock's spans. The fake clock stops
  // performance.now, too.
  if (clock) await page.clock.setFixedTime(now);
  await page.addInitScript(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) =>
      window.violations.push(
        `${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`,
      ),
    );
  });
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("console", (message) => {
    // Chromium itself reports responses of tests of errors.
    const isError = message.type() === "error" && !/^Failed to load/.test(message.text());
    if (isError || /Content Security Policy|Trusted/i.test(message.text()))
      faults.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(server.url) && !/^(about|data|blob):/.test(request.url()))
      faults.push(`request to ${request.url()}`);
  });
  const pending = new Set();
  page.on("request", (request) => request.resourceType() !== "eventsource" && pending.add(request));
  page.on("requestfinished", (request) => pending.delete(request));
  page.on("requestfailed", (request) => pending.delete(request));
  await page.goto(server.url + hash);
  /** Waits until the page has drawn the responses of all its requests. */
  page.settled = async () => {
    await page.locator("main").first().waitFor();
    for (let idle = 0; idle < 3; idle = pending.size ? 0 : idle + 1)
      await page.evaluate(
        () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))),
      );
  };
  page.finish = async () => {
    faults.push(...(await page.evaluate(() => window.violations)));
    assert.equal(await page.evaluate(() => window.xss), undefined, "a payload ran");
    await leaveContext(browser, key, context);
    assert.deepEqual(faults, []);
  };
  page.to = async (fragment) => {
    await page.evaluate((to) => {
      location.hash = to;
    }, fragment);
  };
  page.query = async () =>
    new URLSearchParams((await page.evaluate(() => location.hash)).split("?")[1] ?? "");
  /** Waits until the fragment has a key whose value passes. */
  page.has = (key, value) =>
    page.waitForFunction(
      ([k, v]) => (new URLSearchParams(location.hash.split("?")[1] ?? "").get(k) ?? "") === v,
      [key, value],
    );
  return page;
}

/** Opens a page, and waits until it has drawn everything, also the first match of `ready`. */
export async function openSettled({ browser, server }, hash, ready) {
  const page = await openPage(browser, server, hash);
  await page.locator(ready).first().waitFor();
  await page.settled();
  return page;
}

/** Fails if axe finds a violation, of the given rules or of any. The debugger evaluates it, since
 * the page's policy forbids that to scripts. */
export async function checkAccessibility(page, what, rules = null) {
  await page.evaluate(axe);
  const found = await page.evaluate(async (only) => {
    const result = await window.axe.run(document, {
      resultTypes: ["violations", "incomplete"],
      ...(only && { runOnly: only }),
    });
    // axe ignores text in the colour of its background, which may be hidden on purpose. The page
    // has no such text.
    const unseen = result.incomplete
      .filter(({ id }) => id === "color-contrast")
      .map((found) => ({
        ...found,
        nodes: found.nodes.filter((node) =>
          node.any.some(({ data }) => data?.messageKey === "equalRatio"),
        ),
      }));
    return [...result.violations, ...unseen.filter(({ nodes }) => nodes.length)].map(
      (violation) =>
        `${violation.id}: ${violation.nodes
          .slice(0, 3)
          .map((node) => `${node.target} ${node.failureSummary}`)
          .join(" | ")}`,
    );
  }, rules);
  assert.deepEqual(found, [], what);
}

/** Returns the position of the bar with a name on the canvas, found by moving the mouse over the
 * page. */
export async function findBar(page, name, flame = page.locator(".flame").first()) {
  await flame.waitFor();
  const box = await flame.locator("canvas").boundingBox();
  // Synthetic events in the page, since each move of the real mouse takes a frame.
  const at = await flame.locator("canvas").evaluate(
    async (canvas, [wanted, { x, y, width, height }]) => {
      for (let clientY = y + 10; clientY < y + height; clientY += 20)
        for (let clientX = x + 8; clientX < x + width; clientX += Math.max(6, width / 60)) {
          canvas.dispatchEvent(new MouseEvent("mousemove", { clientX, clientY, bubbles: true }));
          // Preact updates the tooltip in a microtask.
          await null;
          if (document.querySelector(".tip-name")?.textContent === wanted)
            return { x: clientX, y: clientY };
        }
      return null;
    },
    [name, box],
  );
  if (at) {
    await page.mouse.move(at.x, at.y);
    return at;
  }
  return assert.fail(`no bar ${name}`);
}
