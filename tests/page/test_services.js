// SPDX-License-Identifier: Apache-2.0
// The view of services and operations, which is the first view of the page, against the mock.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { checkAccessibility, mockOf, now, openPage, startBrowser } from "./browser.js";

const cells = (page, column) => page.locator(`.operations .row .of-${column}`).allTextContents();
const rowsOf = (page) => page.locator(".operations .row");

describe("page: services", { concurrency: false }, () => {
  let browser, server, busiest, inner, own;
  before(async () => {
    browser = await startBrowser();
    server = await mockOf();
    // The operation with the most CPU time, and the one with the most CPU time of its own.
    const answer = await (await fetch(`${server.url}api/braid/operations?start=now-1h`)).json();
    const named = answer.operations.filter(({ kind }) => kind === "operation");
    busiest = { ...named[0], share: named[0].subtree_cpu_ns / answer.total.cpu_ns };
    inner = [...named].sort((a, b) => b.cpu_ns - a.cpu_ns)[0];
    own = answer.operations.reduce((sum, { cpu_ns: ns }) => sum + ns, 0) / answer.total.cpu_ns;
  });
  after(async () => {
    await browser?.close();
    await server?.close();
  });
  const open = (hash = "", options = {}) => openPage(browser, server, hash, options);

  it("is the first view, sorted by CPU time, and states the busiest operation", async () => {
    const page = await open();
    await rowsOf(page).first().waitFor();
    assert.equal(await page.title(), "Services · Braid");
    assert.equal(await page.locator(".top nav a").first().getAttribute("aria-current"), "page");
    const share = `${(busiest.share * 100).toFixed(1)}%`;
    const row = page.locator(".operations .row", { hasText: busiest.name }).first();
    assert.equal(await row.locator(".of-operation").textContent(), busiest.name);
    assert.equal(await row.locator(".of-cpu .number").textContent(), share);
    await page
      .getByText(`${busiest.name} of ${busiest.service} uses ${share} of all CPU`)
      .waitFor();
    // The CPU times without spans below add up to the whole.
    assert.equal(own, 1);
    const shares = (await cells(page, "cpu")).map((text) => Number(text.replace("%", "")) || 0);
    assert.deepEqual(
      shares,
      [...shares].sort((a, b) => b - a),
    );
    await page.finish();
  });

  it("sorts by each column in both directions", async () => {
    const page = await open();
    await rowsOf(page).first().waitFor();
    for (const [id, text] of [
      ["service", "Service"],
      ["operation", "Operation"],
      ["rate", "Rate"],
      ["errors", "Errors"],
      ["p50", "p50"],
      ["p95", "p95"],
      ["p99", "p99"],
      ["each", "CPU per span"],
      ["change", "p95 change"],
      ["cpu", "Share of CPU"],
    ]) {
      const head = page.locator(`.operations .table-head .of-${id}`);
      const button = head.getByRole("button", { name: text, exact: true });
      const directions = [];
      for (let i = 0; i < 2; i++) {
        await button.click();
        await page.waitForFunction(
          ([name, other]) => {
            const sort = document.querySelector(`.table-head .${name}`).getAttribute("aria-sort");
            return sort && sort !== other;
          },
          [`of-${id}`, directions[0]],
        );
        directions.push(await head.getAttribute("aria-sort"));
        if (id === "service") {
          const names = await cells(page, "service");
          const sorted = [...names].sort((a, b) => a.localeCompare(b));
          assert.deepEqual(names, directions[i] === "ascending" ? sorted : sorted.reverse());
        }
      }
      const textual = id === "service" || id === "operation";
      assert.deepEqual(
        directions,
        textual ? ["ascending", "descending"] : ["descending", "ascending"],
        id,
      );
    }
    await page.finish();
  });

  it("filters while the user types, and clears the filter with Escape", async () => {
    const page = await open();
    await rowsOf(page).first().waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("CHECK order");
    await page.has("find", "CHECK order");
    await page.waitForFunction(() =>
      [...document.querySelectorAll(".operations .row")].every(
        (row) =>
          row.querySelector(".of-service").textContent === "checkout" &&
          row.querySelector(".of-operation").textContent.includes("order"),
      ),
    );
    const count = await rowsOf(page).count();
    assert.ok(count > 0);
    assert.equal(await page.locator(".found").textContent(), `${count} rows`);
    await page.keyboard.type(" nothing");
    await page.getByText("No operation has this name").waitFor();
    await page.keyboard.press("Escape");
    await page.has("find", "");
    await page.waitForFunction(
      (n) => document.querySelectorAll(".operations .row").length > n,
      count,
    );
    await page.finish();
  });

  it("leads to the spans of a row by mouse and by keys", async () => {
    const page = await open("#/?start=now-6h");
    await rowsOf(page).first().waitFor();
    await page.locator(".operations .row", { hasText: busiest.name }).first().click();
    await page.waitForFunction(() => location.hash.startsWith("#/spans"));
    await page.has("service", busiest.service);
    await page.has("name", busiest.name);
    await page.has("start", "now-6h");
    await page.locator(".spans .row").first().waitFor();
    await page.goBack();
    await rowsOf(page).first().waitFor();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    await page.waitForFunction(
      () => document.querySelector(".operations .row[aria-selected=true]")?.id === "operation1",
    );
    assert.equal(
      await page.locator(".operations").getAttribute("aria-activedescendant"),
      "operation1",
    );
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => !location.hash.startsWith("#/?"));
    await page.finish();
  });

  it("leads from the busiest operation to its functions", async () => {
    const page = await open();
    const target = inner.service === busiest.service ? inner : busiest;
    await page.getByRole("link", { name: "see its functions" }).click();
    await page.waitForFunction(() => location.hash.startsWith("#/profile"));
    await page.has("query", `{service_name="${target.service}",span_name="${target.name}"}`);
    await page.locator(".flame canvas").waitFor();
    await page.finish();
  });

  it("leads from samples outside of spans to the profile of the service", async () => {
    const page = await open();
    await page.getByRole("link", { name: "outside of spans" }).first().click();
    await page.waitForFunction(() => location.hash.startsWith("#/profile"));
    await page.has("query", '{service_name="web"}');
    await page.finish();
  });

  it("shows changes only if the whole range before is stored", async () => {
    const half = await open("#/?start=now-30m");
    await rowsOf(half).first().waitFor();
    const changes = await cells(half, "change");
    assert.ok(
      changes.some((text) => /^[+−]?\d+%$/.test(text)),
      changes.join(),
    );
    assert.ok((await half.locator(".of-change").nth(1).getAttribute("title")).startsWith("Before"));
    await half.finish();
    const whole = await open("#/?start=now-1h");
    await whole.getByText("There are no changes, because").waitFor();
    assert.ok((await cells(whole, "change")).every((text) => text === "–"));
    await whole.finish();
  });

  it("describes pictures for screen readers", async () => {
    const page = await open();
    await rowsOf(page).first().waitFor();
    const label = await page.locator(".operations svg.spark").first().getAttribute("aria-label");
    assert.match(label, /^Rate over time: lowest .+, highest .+, last .+\/(s|min|h)$/);
    await page.finish();
  });

  for (const colorScheme of ["light", "dark"])
    for (const width of [390, 1280, 1920])
      it(`is accessible and fits, ${colorScheme}, ${width} wide`, async () => {
        const page = await open("", { colorScheme, viewport: { width, height: 844 } });
        await rowsOf(page).first().waitFor();
        if (process.env.PAGE_OUT)
          await page.screenshot({
            path: `${process.env.PAGE_OUT}/services-${colorScheme}-${width}.png`,
          });
        await checkAccessibility(page, `services, ${colorScheme}, ${width}`);
        const over = await page.evaluate(
          () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
        );
        assert.ok(over <= 0, `${over} pixels too wide`);
        await page.finish();
      });

  it("has states for loading, failing and no data", async () => {
    const page = await open("#/health");
    let answer = () => {};
    const waiting = new Promise((done) => {
      answer = done;
    });
    await page.route("**/api/braid/operations*", async (route) => {
      await waiting;
      await route.fulfill({ status: 503, json: { error: "the store is not open" } });
    });
    await page.to("#/");
    await page.getByRole("status", { name: "Loading" }).waitFor();
    answer();
    await page.getByRole("alert").getByText("the store is not open").waitFor();
    await page.unroute("**/api/braid/operations*");
    await page.getByRole("button", { name: "Try again" }).click();
    await rowsOf(page).first().waitFor();
    await page.finish();
    const empty = await mockOf({ empty: true });
    const nothing = await openPage(browser, empty);
    await nothing.getByText("No data received yet").waitFor();
    await nothing.finish();
    await empty.close();
  });

  it("lists 5,000 operations with few rows in the document, and long names within its width", async () => {
    const page = await open("#/health");
    const period = { spans: 100, errors: 0, samples: 1, cpu_ns: 1e7 };
    const durations = { subtree_cpu_ns: null, p50_ns: 1e6, p95_ns: 2e6, p99_ns: 3e6, max_ns: 4e6 };
    const figures = { ...period, ...durations };
    await page.route("**/api/braid/operations*", (route) =>
      route.fulfill({
        json: {
          start_unix_ns: `${now - 3600e3}000000`,
          end_unix_ns: `${now}000000`,
          step_ns: 120e9,
          before_unix_ns: `${now - 7200e3}000000`,
          before_complete: true,
          percentile_error: 0.015625,
          total: { ...period, cpu_ns: 5e10 },
          total_before: period,
          operations: Array.from({ length: 5000 }, (_, i) => ({
            kind: "operation",
            service: `service ${i % 30} ${"s".repeat(300)}`,
            name: `operation ${i} ${"n".repeat(300)}`,
            ...figures,
            steps: new Array(30).fill(3),
            before: figures,
          })),
          left_out: 12,
          cut: null,
        },
      }),
    );
    await page.to("#/");
    await rowsOf(page).first().waitFor();
    assert.equal(await page.locator(".operations").getAttribute("aria-rowcount"), "5001");
    assert.ok((await rowsOf(page).count()) < 60);
    await page.getByText("12 more rows").waitFor();
    await page.getByText("choose a shorter time range to include them").waitFor();
    await page.locator(".operations").focus();
    await page.keyboard.press("End");
    await page.locator("#operation4999[aria-selected=true]").waitFor();
    const over = await page.evaluate(
      () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
    );
    assert.ok(over <= 0, `${over} pixels too wide`);
    await page.finish();
  });
});
