// SPDX-License-Identifier: Apache-2.0
// Lists that stay where the user reads them, and what mouse and keys do in a flame graph.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { checkAccessibility, findBar, mockOf, openPage, startBrowser } from "./browser.js";

let browser, server;
before(async () => {
  browser = await startBrowser();
  server = await mockOf({ equal: 1500, merged: "Formatter.format" });
});
after(async () => {
  await browser?.close();
  await server?.close();
});
const open = (hash, options) => openPage(browser, server, hash, options);

/** Makes a tab hidden or visible for its scripts: a headless browser never hides one. */
const hide = (page, hidden) =>
  page.evaluate((value) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => value });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);

const until = async (what, condition) => {
  const end = Date.now() + 60000;
  while (!condition()) {
    assert.ok(Date.now() < end, what);
    await new Promise((done) => setTimeout(done, 20));
  }
};
const rowsOf = (page) => page.locator(".spans .row");
const scrollTo = (page, top) =>
  page.locator(".table-body").evaluate((box, to) => {
    box.scrollTop = to;
  }, top);
const idsOf = (page) =>
  page
    .locator(".spans .row")
    .evaluateAll((rows) =>
      rows.map((row) => row.querySelector(".col-operation a").getAttribute("href")),
    );

describe("page: lists that stay", { concurrency: false }, () => {
  it("the live tail pauses while the user hovers over it, scrolls or has chosen a span", async () => {
    const page = await open("#/spans?live=1");
    const held = page.locator(".held");
    await rowsOf(page).nth(5).waitFor();

    // Hovering
    await rowsOf(page).nth(2).hover();
    await held.waitFor();
    const before = await idsOf(page);
    const count = await held.textContent();
    await page.waitForFunction((old) => document.querySelector(".held").textContent !== old, count);
    assert.deepEqual(await idsOf(page), before);
    await page.mouse.move(5, 5);
    await held.waitFor({ state: "detached" });
    await page.waitForFunction(
      (old) => document.querySelector(".spans .row .col-operation a").getAttribute("href") !== old,
      before[0],
    );

    // A chosen span keeps its row by its id, until Escape.
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    const chosen = page.locator('.spans .row[aria-selected="true"] .col-operation a');
    const wanted = await chosen.getAttribute("href");
    await held.waitFor();
    assert.equal(await chosen.getAttribute("href"), wanted);
    await page.keyboard.press("Escape");
    await held.waitFor({ state: "detached" });
    assert.equal(await chosen.count(), 0);
    assert.equal((await page.query()).get("live"), "1");

    // Scrolling; the button shows the spans that arrived.
    await scrollTo(page, 90);
    await held.waitFor();
    await checkAccessibility(page, "a paused live tail");
    await held.focus();
    await page.keyboard.press("Enter");
    await held.waitFor({ state: "detached" });
    assert.equal(await page.locator(".table-body").evaluate((box) => box.scrollTop), 0);
    await page.finish();
  });

  it("the live tail closes its stream while the tab is hidden, so that a seventh tab loads", async () => {
    const page = await open("#/spans?live=1");
    await rowsOf(page).first().waitFor();
    await until("the stream is open", () => server.tails.size === 1);
    await hide(page, true);
    await until("the stream is closed", () => server.tails.size === 0);
    const rows = await rowsOf(page).count();
    assert.ok(rows > 0, "the list stays");
    const tabs = [];
    for (let i = 0; i < 6; i++) {
      const tab = await page.context().newPage();
      await tab.goto(`${server.url}?tab=${i}#/spans?live=1`);
      await rowsOf(tab).first().waitFor();
      await hide(tab, true);
      tabs.push(tab);
    }
    await hide(page, false);
    await until("only the visible tab has a stream", () => server.tails.size === 1);
    await page.reload();
    await rowsOf(page).first().waitFor();
    await page.finish();
  });

  it("Back restores the row and the scroll position, also behind the first page", async () => {
    const page = await open("#/spans");
    await rowsOf(page).first().waitFor();
    for (const [top, least] of [
      [29000, 1000],
      [35000, 1196],
    ]) {
      await scrollTo(page, top);
      await page.waitForFunction(
        (rows) => Number(document.querySelector(".foot").textContent.replace(/\D/g, "")) > rows,
        least,
      );
    }
    const row = page.locator('.spans .row[aria-rowindex="1172"]');
    const link = await row.locator(".col-operation a").getAttribute("href");
    const top = await page.locator(".table-body").evaluate((box) => box.scrollTop);
    await row.locator(".col-start").click();
    await page.waitForFunction((to) => location.hash === to, link);
    await page.locator(".waterfall").waitFor();
    await page.goBack();
    await page.waitForFunction(
      (to) =>
        document
          .querySelector('.spans .row[aria-selected="true"] .col-operation a')
          ?.getAttribute("href") === to,
      link,
    );
    assert.equal(await page.locator(".table-body").evaluate((box) => box.scrollTop), top);
    await page.finish();
  });

  it("lists go on behind a thousand spans of equal duration", async () => {
    // The mock has 1,500 spans of 900 s, the longest of all, and then the others.
    const page = await open("#/spans");
    await rowsOf(page).first().waitFor();
    const seen = new Set();
    for (let i = 0; seen.size < 1600; i++) {
      assert.ok(i < 200, `only ${seen.size} spans`);
      for (const id of await idsOf(page)) seen.add(id);
      await page.locator(".table-body").evaluate((box) => {
        box.scrollTop += box.clientHeight - 30;
      });
      await page.evaluate(
        () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0))),
      );
    }
    await page.finish();
  });

  it("seven visible tabs load, although each shows spans live", async () => {
    const page = await open("#/spans?live=1");
    const tabs = [page];
    for (let i = 0; i < 6; i++) {
      const tab = await page.context().newPage();
      await tab.goto(`${server.url}#/spans?live=1`);
      tabs.push(tab);
    }
    const states = () =>
      Promise.all(
        tabs.map(async (tab) =>
          (await tab.locator(".spans .row").count())
            ? "live"
            : (await tab.getByText("Four other tabs show spans live").count())
              ? "waits"
              : "",
        ),
      );
    let now = [];
    do now = await states();
    while (now.includes(""));
    assert.equal(now.filter((state) => state === "live").length, 4);
    // Another request is not delayed by the streams.
    const waiting = tabs[now.indexOf("waits")];
    await waiting.evaluate(() => fetch("/api/braid/services").then((answer) => answer.text()));
    // A slot becomes free when a tab is hidden.
    await hide(tabs[now.indexOf("live")], true);
    do now = await states();
    while (now.filter((state) => state === "live").length < 5);
    await page.finish();
  });

  it("Escape closes one thing at a time", async () => {
    const page = await open("#/spans?service=checkout&status=error&roots=true");
    await page.getByText("No span in this time range").or(rowsOf(page).first()).first().waitFor();
    for (const [key, rest] of [
      ["status", { roots: "true", service: "checkout" }],
      ["roots", { service: "checkout" }],
      ["service", {}],
    ]) {
      await page.keyboard.press("Escape");
      await page.has(key, "");
      assert.deepEqual(Object.fromEntries(await page.query()), rest);
    }
    await rowsOf(page).first().waitFor();
    await page.keyboard.press("ArrowDown");
    await page.locator('.row[aria-selected="true"]').waitFor();
    await page.keyboard.press("Escape");
    await page.locator('.row[aria-selected="true"]').waitFor({ state: "detached" });
    await page.finish();
  });
});

describe("page: manners of the flame graph", { concurrency: false }, () => {
  const hash = `#/profile?query=${encodeURIComponent('{service_name="checkout"}')}&show=flame`;
  const names = (page) => page.locator(".tip-name");
  /** Returns the name of the bar at a place. */
  const nameAt = async (page, { x, y }) => {
    await page.mouse.move(x - 1, y);
    await page.mouse.move(x, y);
    return names(page).textContent();
  };
  const wait = (page) =>
    page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0))));

  it("a double click shows the callers and callees of the bar of the first click", async () => {
    const page = await open(hash);
    const at = await findBar(page, "OrderService.calculate_totals");
    const before = await page.locator(".flame").boundingBox();
    await page.mouse.click(at.x, at.y);
    await page.waitForFunction(() => /zoom=/.test(location.hash));
    assert.deepEqual(await page.locator(".flame").boundingBox(), before, "zooming moves nothing");
    await page.keyboard.press("z");
    await page.has("zoom", "");
    await page.mouse.dblclick(at.x, at.y);
    await page.has("of", "OrderService.calculate_totals");
    await page.finish();
  });

  it("Ctrl and the wheel zoom, dragging moves, z and Escape show everything", async () => {
    const page = await open(hash);
    const at = await findBar(page, "OrderService.calculate_totals");
    const range = async () =>
      (await page.locator(".flame canvas").getAttribute("data-range")).split(" ").map(Number);
    assert.deepEqual(await range(), [0, 1]);
    await page.keyboard.down("Control");
    await page.mouse.wheel(0, -200);
    await page.keyboard.up("Control");
    await page.waitForFunction(
      () => document.querySelector(".flame canvas").dataset.range !== "0.000000 1.000000",
    );
    const [from, to] = await range();
    // One event of the wheel zooms by a factor of at most e^0.4.
    assert.ok(Math.abs(to - from - Math.exp(-0.4)) < 0.01, `${from} ${to}`);
    assert.equal(
      await nameAt(page, at),
      "OrderService.calculate_totals",
      "the bar stays below the mouse",
    );
    await page.mouse.down();
    await page.mouse.move(at.x + 60, at.y, { steps: 4 });
    await page.mouse.up();
    assert.ok((await range())[0] < from, "to the right is to earlier bars");
    await wait(page);
    // The range is in the URL, and a link or a reload shows it. A drag is no click, so there is no bar.
    await page.waitForFunction(() => {
      const part = new URLSearchParams(location.hash.split("?")[1]).get("zoom")?.slice(1);
      const [from, length] = document.querySelector(".flame canvas").dataset.range.split(" ");
      return part?.split("-").every((share, i) => Math.abs(share - [from, length][i]) < 1e-5);
    });
    const before = (await range()).map((share) => share.toFixed(4));
    await page.reload();
    await page.locator(".flame canvas").waitFor();
    await page.waitForFunction(() => document.querySelector(".flame canvas").dataset.range);
    assert.deepEqual(
      (await range()).map((share) => share.toFixed(4)),
      before,
    );
    await page.keyboard.press("Escape");
    await page.waitForFunction(
      () => document.querySelector(".flame canvas").dataset.range === "0.000000 1.000000",
    );
    await page.has("zoom", "");
    await page.finish();
  });

  it("a menu copies, focuses, hides and collapses, by mouse and by keys", async () => {
    const page = await open(hash);
    const at = await findBar(page, "OrderService.calculate_totals");
    await page.mouse.click(at.x, at.y, { button: "right" });
    const menu = page.getByRole("menu");
    await menu.waitFor();
    await checkAccessibility(page, "the menu of a bar");
    await page.getByRole("menuitem", { name: "Copy the name" }).click();
    assert.equal(
      await page.evaluate(() => navigator.clipboard.readText()),
      "OrderService.calculate_totals",
    );
    await menu.waitFor({ state: "detached" });
    await page.mouse.click(at.x, at.y, { button: "right" });
    await page.getByRole("menuitem", { name: "Hide this function" }).click();
    await page.has("hide", "OrderService.calculate_totals");
    await page.locator("#find").fill("OrderService.calculate_totals");
    await page.locator(".found", { hasText: "none" }).waitFor();
    await page.keyboard.press("Escape");
    await page.has("find", "");
    await page.locator(".flame").focus();
    await page.keyboard.press("Escape");
    await page.has("hide", "");
    await page.locator(".flame").press("ContextMenu");
    await menu.waitFor();
    await page.keyboard.press("Escape");
    await menu.waitFor({ state: "detached" });
    assert.ok(
      await page.evaluate(() => document.activeElement.classList.contains("flame")),
      "the focus returns",
    );
    await page.finish();
  });

  it("searches with a regular expression, and moves between the matches", async () => {
    const page = await open(hash);
    await page.locator(".flame").waitFor();
    const found = page.locator(".found");
    await page.locator("#find").fill("/^OrderService.calculate_.otals$/");
    await found.getByText(/% in \d+/).waitFor();
    await page.locator("#find").fill("order");
    await found.getByText(/% in \d+/).waitFor();
    const all = /in (\d+)$/.exec(await found.textContent())[1];
    for (const [keys, at] of [
      ["Enter", 1],
      ["Enter", 2],
      ["Shift+Enter", 1],
      ["Shift+Enter", all],
    ]) {
      await page.keyboard.press(keys);
      await page.locator(".found", { hasText: `in ${at} of ${all}` }).waitFor();
    }
    await page.locator(".flame").focus();
    await page.keyboard.press("n");
    await page.locator(".found", { hasText: `in 1 of ${all}` }).waitFor();
    await page.locator("#find").fill("/(/");
    await found.getByText("invalid expression").waitFor();
    await page.finish();
  });

  it("a bar of merged functions is replaced by its functions", async () => {
    const page = await open(hash);
    const at = await findBar(page, "other");
    await page.mouse.click(at.x, at.y);
    await page.has("nodes", "1048576");
    await until("a request for all nodes", () =>
      server.requests.some((one) => /profile\?.*max_nodes=1048576/.test(one)),
    );
    await page.locator("#find").fill("Formatter.format");
    await page.locator(".found", { hasText: "% in" }).waitFor();
    await page.finish();
  });

  it("a bar of merged functions is also replaced in comparisons", async () => {
    const page = await open("#/compare/slow?service=checkout&name=order.place&show=flame");
    for (const address of ["slow", "diff"]) {
      if (address === "diff") {
        const side = encodeURIComponent(
          "query=%7Bservice_name%3D%22checkout%22%7D&start=now-1h&end=now",
        );
        await page.to(`#/compare?left=${side}&right=${side}&show=flame`);
      }
      const at = await findBar(page, "other");
      await page.mouse.click(at.x, at.y);
      await page.has("nodes", "1048576");
      await until("a request for all nodes", () =>
        server.requests.some((one) => new RegExp(`${address}\\?.*max_nodes=1048576`).test(one)),
      );
    }
    await page.finish();
  });

  it("the tooltip has the number of samples and their sampling error", async () => {
    const page = await open(hash);
    await findBar(page, "OrderService.calculate_totals");
    const row = page.locator(".tip dl div", { hasText: "samples" });
    const [, count, error] = /([\d,]+), ±([\d.]+)\s?%/.exec(await row.locator("dd").textContent());
    const wanted = 100 / Math.sqrt(Number(count.replace(",", "")));
    assert.ok(Math.abs(Number(error) - wanted) < 0.06 + wanted * 0.01, `${error} and ${wanted}`);
    await page.finish();
  });
});
