// SPDX-License-Identifier: Apache-2.0
// The heat map of the list of spans, the box that is selected in it, and the comparison of the box with the rest,
// against the mock. The expected numbers are computed from the mock's spans.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { checkAccessibility, mockOf, now, openPage, useMock } from "./browser.js";

const hour = 3600e3;
const inset = { left: 60, right: 8, top: 8, bottom: 20 };
const lasted = (span) => Math.round(span.durationMs * 1e6);
const beganNs = (span) => BigInt(Math.round(span.startMs * 1e6));

describe("page: heat map", { concurrency: false }, () => {
  const mock = useMock();
  const open = async (hash = "#/spans", options = {}) => {
    const page = await openPage(mock.browser, mock.server, hash, options);
    await page.locator(".heat canvas").waitFor();
    await page.waitForFunction(() => document.querySelector(".heat canvas").width > 300);
    return page;
  };
  const answerOf = async (params = "") =>
    (
      await fetch(`${mock.server.url}api/braid/heat?start=now-1h&points=100&rows=20${params}`)
    ).json();
  const spansOf = (keep = () => true) =>
    mock.server.store.spans.filter((s) => s.startMs >= now - hour && s.startMs <= now && keep(s));

  /** Returns the place of a cell of the map on the page. */
  async function place(page, data, x, y) {
    const box = await page.locator(".heat").boundingBox();
    const rows = data.durations_ns.length - 1;
    return {
      x: box.x + inset.left + ((x + 0.5) / data.steps) * (box.width - inset.left - inset.right),
      y: box.y + inset.top + (1 - (y + 0.5) / rows) * (box.height - inset.top - inset.bottom),
    };
  }
  async function brush(page, data, [x, y], [toX, toY]) {
    const [from, to] = [await place(page, data, x, y), await place(page, data, toX, toY)];
    await page.mouse.move(from.x, from.y);
    await page.mouse.down();
    await page.mouse.move((from.x + to.x) / 2, to.y);
    await page.mouse.move(to.x, to.y);
    await page.mouse.up();
    await page.waitForFunction(() => location.hash.includes("box="));
  }
  const boxIn = async (page) => {
    const [start, end, min, max] = (await page.query()).get("box").split("-");
    return (s) =>
      beganNs(s) >= BigInt(start) &&
      beganNs(s) <= BigInt(end) &&
      lasted(s) >= Number(min) &&
      lasted(s) <= Number(max || Infinity);
  };
  const figure = async (page) =>
    Number((await page.locator(".selection .offer b").textContent()).replace(/,/g, ""));

  it("describes the spans of the list, and each cell under the mouse", async () => {
    const page = await open();
    const data = await answerOf();
    const all = spansOf();
    const label = await page.locator(".heat").getAttribute("aria-label");
    assert.ok(label.includes(`Heat map of ${all.length.toLocaleString("en-US")} spans`), label);
    assert.ok(
      label.includes(`${all.filter((s) => s.error).length.toLocaleString("en-US")} errors`),
      label,
    );
    for (const at of [
      data.spans.indexOf(Math.max(...data.spans)),
      data.spans.findLastIndex(Boolean),
    ]) {
      const [x, y] = [at % data.steps, Math.floor(at / data.steps)];
      const point = await place(page, data, x, y);
      await page.mouse.move(point.x, point.y);
      const words = await page.locator(".heat-now").textContent();
      const n = data.spans[at];
      assert.ok(words.includes(`: ${n.toLocaleString("en-US")} span${n === 1 ? "" : "s"}`), words);
    }
    await page.finish();
  });

  it("follows the filters of the list", async () => {
    const page = await open("#/spans?service=payment&status=error&min=10ms");
    const expected = spansOf(
      (s) => s.service === "payment" && s.error && s.durationMs >= 10,
    ).length;
    assert.ok(expected > 0);
    const label = await page.locator(".heat").getAttribute("aria-label");
    assert.ok(label.startsWith(`Heat map of ${expected} spans`), label);
    await page.finish();
  });

  it("draws a cell with spans in colour, and the colour follows the choice", async () => {
    const page = await open();
    const data = await answerOf("&cpu=true");
    const colour = async (at) => {
      const point = await place(page, data, at % data.steps, Math.floor(at / data.steps));
      return page.evaluate(({ x, y }) => {
        const canvas = document.querySelector(".heat canvas");
        const box = canvas.getBoundingClientRect();
        const ratio = canvas.width / box.width;
        return [
          ...canvas.getContext("2d").getImageData((x - box.x) * ratio, (y - box.y) * ratio, 1, 1)
            .data,
        ].join();
      }, point);
    };
    const peak = data.spans.indexOf(Math.max(...data.spans));
    const failed = data.errors.findIndex((n, i) => n && n === data.spans[i]);
    const fine = data.spans.findIndex((n, i) => n && !data.errors[i]);
    const none = data.spans.indexOf(0);
    assert.equal(await colour(peak), "11,84,78,255");
    assert.equal((await colour(none)).endsWith(",0"), true, "a cell without spans is empty");
    await page.getByRole("button", { name: "Error share" }).click();
    await page.has("heat", "errors");
    await page.getByText("100% errors").waitFor();
    if (failed >= 0) assert.equal(await colour(failed), "200,24,24,255");
    assert.equal(await colour(fine), "212,219,223,255");
    await page.getByRole("button", { name: "CPU share" }).click();
    await page.has("heat", "cpu");
    await page.waitForFunction(() =>
      document.querySelector(".heat-key")?.textContent.includes("CPU"),
    );
    const busiest = data.cpu_ns.indexOf(Math.max(...data.cpu_ns));
    assert.equal(await colour(busiest), "176,82,6,255");
    await page.finish();
  });

  it("selects a box with the mouse; the list, the link and Back keep to it", async () => {
    const page = await open();
    const data = await answerOf();
    const rows = data.durations_ns.length - 1;
    await brush(page, data, [10, rows - 1], [60, rows - 4]);
    const inside = await boxIn(page);
    const expected = spansOf(inside).length;
    assert.ok(expected > 0 && expected < 1000);
    await page.waitForFunction(
      (n) => document.querySelector(".selection .offer b")?.textContent === n,
      expected.toLocaleString("en-US"),
    );
    await page.waitForFunction(
      (n) => document.querySelector(".foot").textContent.startsWith(`${n} spans`),
      expected,
    );
    // The same link shows the same box.
    const link = page.url();
    const other = await open(link.slice(link.indexOf("#")));
    await other.locator(".heat-box").waitFor();
    await other.waitForFunction(
      (n) => document.querySelector(".foot")?.textContent.startsWith(`${n} spans`),
      expected,
    );
    await other.finish();
    await page.goBack();
    await page.has("box", "");
    await page.locator(".heat-box").waitFor({ state: "detached" });
    await page.goForward();
    await page.locator(".heat-box").waitFor();
    await page.keyboard.press("Escape");
    await page.has("box", "");
    await page.finish();
  });

  it("selects a box with the keyboard", async () => {
    const page = await open();
    const data = await answerOf();
    const at = data.spans.indexOf(Math.max(...data.spans));
    await page.locator(".heat").focus();
    await page.keyboard.press("ArrowRight"); // begins at the cell with the most spans
    const n = data.spans[at].toLocaleString("en-US");
    await page.waitForFunction(
      (text) => document.querySelector(".heat-now").textContent.includes(text),
      `: ${n} spans`,
    );
    assert.equal(await page.locator(".heat-now").getAttribute("aria-live"), "polite");
    const left = at % data.steps > 0 ? "ArrowLeft" : "ArrowRight";
    await page.keyboard.press(`Shift+${left}`);
    await page.keyboard.press("Shift+ArrowUp");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => location.hash.includes("box="));
    const inside = await boxIn(page);
    const dx = left === "ArrowLeft" ? -1 : 1;
    const expected = [at, at + dx, at + data.steps, at + data.steps + dx].reduce(
      (sum, i) => sum + data.spans[i],
      0,
    );
    assert.equal(spansOf(inside).length, expected);
    await page.waitForFunction(
      () => document.querySelector(".selection .offer b")?.textContent !== "…",
    );
    assert.equal(await figure(page), expected);
    // Escape first ends a selection that has not been applied.
    await page.keyboard.press("ArrowLeft");
    await page.locator(".heat-mark").waitFor();
    await page.keyboard.press("Escape");
    await page.locator(".heat-mark").waitFor({ state: "detached" });
    await page.locator(".heat-box").waitFor();
    await page.keyboard.press("Escape");
    await page.has("box", "");
    await page.finish();
  });

  it("names the attributes that differ most, and filters by one", async () => {
    const page = await open();
    const data = await answerOf();
    const rows = data.durations_ns.length - 1;
    await brush(page, data, [0, rows - 1], [data.steps - 1, rows - 4]);
    const inside = await boxIn(page);
    await page.locator(".differing tbody tr").first().waitFor();
    const [selected, rest] = [spansOf(inside), spansOf((s) => !inside(s))];
    const share = (list, of) => list.filter(of).length / list.length;
    for (const row of await page.locator(".differing tbody tr").all()) {
      const [attribute, value] = await row.locator("th bdi").allTextContents();
      const of = {
        name: (s) => s.name === value,
        "resource.service.name": (s) => s.service === value,
        status: (s) => (s.error ? "error" : "unset") === value,
      }[attribute];
      const shown = await row.locator("td .number").allTextContents();
      for (const [i, list] of [selected, rest].entries())
        assert.ok(
          Math.abs(parseFloat(shown[i].replace("<", "")) / 100 - share(list, of)) < 0.006,
          `${attribute} ${value} ${shown[i]}`,
        );
    }
    const first = page.locator(".differing tbody tr").first();
    const value = await first.locator("th bdi").nth(1).textContent();
    await first.locator("button").click();
    await page.waitForFunction(
      (text) => new URLSearchParams(location.hash.split("?")[1]).get("q")?.includes(text),
      value,
    );
    await page.finish();
  });

  it("compares the box with the rest", async () => {
    const page = await open("#/spans?service=web&name=POST%20%2Fcheckout");
    const data = await answerOf("&service=web&name=POST%20%2Fcheckout");
    const rows = data.durations_ns.length - 1;
    await brush(page, data, [0, rows - 1], [data.steps - 1, rows - 1]);
    const inside = await boxIn(page);
    const all = spansOf((s) => s.service === "web" && s.name === "POST /checkout");
    const expected = all.filter(inside).length;
    assert.ok(expected > 0 && expected < all.length);
    await page.getByRole("link", { name: "Compare with the rest" }).click();
    await page.waitForFunction(() => location.hash.startsWith("#/compare/slow"));
    await page
      .locator(".slow-answer")
      .getByText(`selected against ${(all.length - expected).toLocaleString("en-US")} other spans`)
      .waitFor();
    const text = await page.locator(".slow-answer").textContent();
    assert.ok(text.includes(`Mean of ${expected} selected`), text);
    await page.locator(".flame canvas").first().waitFor();
    await page.getByRole("link", { name: /^Selection: / }).click();
    await page.locator(".heat-box").waitFor();
    assert.equal((await page.query()).get("name"), "POST /checkout");
    await page.finish();
  });

  it("shows only the time of a box", async () => {
    const page = await open();
    const data = await answerOf();
    await brush(page, data, [20, 0], [29, data.durations_ns.length - 2]);
    await page.getByRole("button", { name: "Zoom to this time" }).click();
    await page.has("box", "");
    const query = await page.query();
    const length = Number(query.get("end")) - Number(query.get("start"));
    assert.ok(Math.abs(length - hour / 10) <= 2, String(length));
    await page.finish();
  });

  for (const colorScheme of ["light", "dark"])
    for (const width of [1280, 390])
      it(`has no accessibility violation with a box (${colorScheme}, ${width})`, async () => {
        const page = await open("#/spans", { colorScheme, viewport: { width, height: 900 } });
        const data = await answerOf();
        const rows = data.durations_ns.length - 1;
        await brush(page, data, [10, rows - 1], [60, rows - 4]);
        await page.locator(".differing tbody tr").first().waitFor();
        await checkAccessibility(page, `heat map, ${colorScheme}, ${width}`);
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width);
        await page.getByRole("link", { name: "Compare with the rest" }).click();
        await page.locator(".slow-answer").waitFor();
        await checkAccessibility(page, `comparison of a box, ${colorScheme}, ${width}`);
        await page.finish();
      });

  it("says that there are no spans", async () => {
    const none = await mockOf({ empty: true });
    const page = await openPage(mock.browser, none, "#/spans");
    await page.getByText("No spans in this time range").first().waitFor();
    await page.finish();
    await none.close();
  });
});
