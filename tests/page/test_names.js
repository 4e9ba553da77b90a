// SPDX-License-Identifier: Apache-2.0
// Names from outside are isolated: a name that is written from right to left cannot reorder the text beside it. The
// names of services and operations are in every comparison.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { openPage, openSettled, useMock } from "./browser.js";
import { viewsOf, visitOverlays } from "./names.js";

// An override of the direction that is never closed, and an Arabic letter at each end.
const around = ["\u202e\u0627", "\u064a"];

/** Returns the texts of a page in which a name is not isolated. */
const notIsolated = (page) =>
  page.evaluate(() => {
    const name = /[\u202e\u0627\u064a]/;
    const found = [];
    const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (nodes.nextNode()) {
      const { textContent, parentElement } = nodes.currentNode;
      if (!name.test(textContent) || parentElement.closest("option, textarea, pre")) continue;
      if (!parentElement.closest("bdi"))
        found.push(`${parentElement.outerHTML.slice(0, 160)}: ${textContent}`);
    }
    for (const element of document.body.querySelectorAll(
      "[title], [aria-label], [placeholder], option",
    ))
      for (const text of [
        element.title,
        element.getAttribute("aria-label"),
        element.placeholder,
        element.matches("option") && element.textContent,
      ]) {
        // A text that consists of one name does not need to isolate it.
        if (!text || /^\u202e\u0627[^\u202e\u064a]*\u064a$/.test(text)) continue;
        if (name.test(text.replace(/\u2068[^\u2068\u2069]*\u2069/g, "")))
          found.push(`${element.outerHTML.slice(0, 160)}: ${text}`);
      }
    return found;
  });

describe("page: names from outside", { concurrency: false }, () => {
  const mock = useMock({ around, traces: 300 });
  const open = (hash) => openPage(mock.browser, mock.server, hash);

  it("are isolated in every view", async (t) => {
    const page = await open("#/services");
    for (const [name, hash, ready] of viewsOf(mock.server, around))
      await t.test(name, async () => {
        await page.to(hash);
        await page.locator(ready).first().waitFor();
        await page.settled();
        assert.deepEqual(await notIsolated(page), []);
        assert.ok((await page.locator("main").innerHTML()).includes("\u202e"), "names are shown");
      });
    await page.finish();
  });

  it("are isolated in tooltips, menus, suggestions, breadcrumbs and messages", async () => {
    const page = await open("#/services");
    const check = async (where) => assert.deepEqual(await notIsolated(page), [], where);
    await visitOverlays(page, around, check);
    await page.to("#/spans?live=1");
    await page.locator(".spans .row").first().waitFor();
    await check("live spans");
    await page.finish();
  });

  it("do not reorder the text behind them", async () => {
    const [, hash] = viewsOf(mock.server, around).find(([name]) => name === "a trace");
    const page = await open(hash);
    await page.locator(".facts header p").waitFor();
    // "NAME · internal": each letter of the kind is to the right of the one before, and of the name.
    const lefts = await page.locator(".facts header p").evaluate((line) => {
      const name = line.querySelector("bdi").getBoundingClientRect();
      const kind = line.lastChild;
      const range = document.createRange();
      const letters = Array.from(kind.textContent, (_, i) => {
        range.setStart(kind, i);
        range.setEnd(kind, i + 1);
        return range.getBoundingClientRect().left;
      });
      return [name.right - 1, ...letters];
    });
    assert.ok(lefts.length > 4);
    assert.deepEqual(
      lefts,
      [...lefts].sort((a, b) => a - b),
    );
    await page.finish();
  });
});

describe("page: comparisons name the service and the operation", { concurrency: false }, () => {
  const mock = useMock({ traces: 300 });
  const open = (hash, ready) => openSettled(mock, hash, ready);
  const texts = async (page, selector) =>
    (await page.locator(selector).allTextContents()).map((text) =>
      text.replaceAll(/\s+/g, " ").trim(),
    );
  const operation = "service=checkout&name=order.place";
  const view = (wanted) => viewsOf(mock.server).find(([name]) => name === wanted);

  it("slow against typical", async () => {
    const page = await open(`#/compare/slow?${operation}`, ".profile-two .functions .row");
    assert.deepEqual(await texts(page, ".compared"), [
      "Slow against typical spans of checkout order.place",
    ]);
    assert.deepEqual(await texts(page, ".parts caption"), [
      "Parts of the mean duration of checkout order.place",
    ]);
    assert.deepEqual(await texts(page, ".slow-why caption"), [
      "Functions of checkout order.place by difference per span",
    ]);
    assert.match((await texts(page, ".slow-why h2"))[0], /checkout order\.place/);
    // An operation below is named with its service, also if this is the service of the compared spans.
    const rows = await texts(page, ".parts tbody th");
    const { parts } = await (await fetch(`${mock.server.url}api/braid/slow?${operation}`)).json();
    const named = parts
      .filter((part) => part.kind === "operation" && part.slow_ns + part.typical_ns > 0)
      .map((part) => `${part.service} ${part.name}`);
    assert.ok(named.includes("checkout order.validate"), named.join());
    assert.deepEqual(rows.slice(0, named.length), named);
    assert.deepEqual(
      await page
        .locator(".stack > p:first-child")
        .evaluateAll((list) => list.map(({ title }) => title)),
      ["Typical checkout order.place", "Slow checkout order.place"],
    );
    for (const part of await page
      .locator(".stack-bar a")
      .evaluateAll((list) => list.map(({ title }) => title)))
      assert.ok(
        named.some((name) => part.startsWith(`${name}: `)),
        part,
      );
    assert.deepEqual(
      await page
        .locator(".functions-two .table-head button[title]")
        .evaluateAll((list) => list.map(({ title }) => title)),
      ["A: Typical: checkout order.place", "B: Slow: checkout order.place"],
    );
    assert.match(
      await page.locator(".flame").getAttribute("aria-label"),
      /^Slow against typical spans of checkout order\.place\./,
    );
    await page.finish();
  });

  it("an operation below slow and typical requests", async () => {
    const [, hash] = view("an operation below slow requests");
    const page = await open(hash, ".parts");
    assert.deepEqual(await texts(page, ".compared"), [
      "pricing pricing.Quote in slow against typical requests of checkout order.place",
    ]);
    await page.finish();
  });

  it("a comparison without samples", async () => {
    const page = await open("#/compare/slow?service=cart&name=cart.Load", ".slow-why");
    assert.deepEqual(await texts(page, ".slow-why h2"), ["No samples of cart cart.Load"]);
    assert.deepEqual(await texts(page, ".slow-why a"), ["Functions of cart HGETALL cart"]);
    await page.finish();
  });

  it("a selection of the heat map", async () => {
    const [, hash] = view("a selection of the heat map");
    const page = await open(hash, ".differing");
    const named = "of checkout order.calculate_totals";
    assert.ok((await texts(page, ".selection .offer"))[0].includes(`spans ${named}:`));
    assert.ok((await texts(page, ".differing caption"))[0].endsWith(`other spans ${named}`));
    await page.getByRole("link", { name: "Compare with the rest" }).click();
    await page.locator(".compared").waitFor();
    assert.deepEqual(await texts(page, ".compared"), [`Selected spans against the rest ${named}`]);
    await page.to(view("a selection of all spans")[1]);
    await page.locator(".differing caption", { hasText: "of all services" }).waitFor();
    assert.ok((await texts(page, ".selection .offer"))[0].includes("spans of all services:"));
    await page.finish();
  });

  it("two selections, and two spans that were selected in the page", async () => {
    const page = await open(view("two selections")[1], ".profile-two .functions .row");
    const named = "checkout order.calculate_totals";
    assert.deepEqual(await texts(page, ".compared"), [`B ${named} against A ${named}`]);
    await page.to(view("a trace")[1]);
    await page.locator(".details .flame").waitFor();
    await page.keyboard.press("d");
    await page.locator(".said-on", { hasText: `${named}, ` }).waitFor();
    const place = mock.server.store.spans.find(
      (span) => span.key === "recommendation/model.score" && span.samples > 0,
    );
    await page.to(`#/trace/${place.trace.id}?span=${place.id}`);
    await page.locator(".details h2", { hasText: "model.score" }).waitFor();
    await page.locator(".details .flame").waitFor();
    await page.settled();
    await page.keyboard.press("d");
    await page.locator(".compared").waitFor();
    assert.deepEqual(await texts(page, ".compared"), [
      `B recommendation model.score against A ${named}`,
    ]);
    // The server receives only parameters that it knows.
    const asked = mock.server.requests
      .filter((address) => address.startsWith("/api/braid/diff"))
      .at(-1);
    const left = new URLSearchParams(new URLSearchParams(asked.split("?")[1]).get("left"));
    assert.deepEqual([...left.keys()].sort(), ["scope", "span", "trace"]);
    // Other ids are those of another span, whose name is not known.
    await page.getByLabel("Span id").first().fill("0123456789abcdef");
    await page.keyboard.press("Enter");
    await page.locator(".compared", { hasText: "against A span 0123456789abcdef" }).waitFor();
    await page.finish();
  });
});
