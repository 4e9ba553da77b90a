// SPDX-License-Identifier: Apache-2.0
// The search field of the list of spans, against the mock.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { checkAccessibility, now, openPage, useMock } from "./browser.js";

const label = "Search: trace id, name, condition or TraceQL";

describe("page: search", { concurrency: false }, () => {
  const mock = useMock();
  const open = (hash = "#/spans", options = {}) =>
    openPage(mock.browser, mock.server, hash, options);
  const field = (page) => page.getByRole("combobox", { name: label });
  const options = (page) => page.locator('.search-list [role="option"]');
  const q = async (page) => (await page.query()).get("q") ?? "";
  const chips = (page) => page.locator(".search-chip-text").allTextContents();
  const enter = async (page, text) => {
    await field(page).fill(text);
    await field(page).press("Enter");
  };

  it("opens a trace by its id", async () => {
    const { id } = mock.server.store.spans.find(({ trace }) => trace.spans.length > 3).trace;
    for (const text of [id, ` ${id.toUpperCase()} `, id.replace(/^0+/, "")]) {
      const page = await open();
      await enter(page, text);
      await page.waitForFunction((to) => location.hash.startsWith(`#/trace/${to}`), id);
      await page.finish();
    }
  });

  // What the user types, the query, and the text of the chip.
  for (const [text, query, chip] of [
    ["service = web", '{ resource.service.name = "web" }', 'service = "web"'],
    ["http.route = /cart", '{ .http.route = "/cart" }', '.http.route = "/cart"'],
    [
      "span.http.status_code >= 500",
      "{ span.http.status_code >= 500 }",
      "span.http.status_code >= 500",
    ],
    ["duration > 1.5s", "{ duration > 1.5s }", "duration > 1.5s"],
    ["status = error", "{ status = error }", "status = error"],
    ["name =~ GET.*", '{ name =~ "GET.*" }', 'name =~ "GET.*"'],
    [
      'span.x != a "quoted" \\ text',
      '{ span.x != "a \\"quoted\\" \\\\ text" }',
      'span.x != "a \\"quoted\\" \\\\ text"',
    ],
    [
      "check.out",
      '{ (name =~ "(?is).*check\\\\.out.*" || resource.service.name =~ "(?is).*check\\\\.out.*") }',
      "check.out",
    ],
  ])
    it(`turns "${text}" into a condition`, async () => {
      const page = await open();
      await enter(page, text);
      await page.has("q", query);
      assert.deepEqual(await chips(page), [chip]);
      assert.equal(await field(page).inputValue(), "");
      // The list was requested with the query.
      assert.ok(
        mock.server.requests.some(
          (one) => new URL(one, mock.server.url).searchParams.get("q") === query,
        ),
      );
      await page.finish();
    });

  it("joins conditions with &&, removes each of them, and Back returns", async () => {
    const page = await open();
    await enter(page, "service = web");
    await page.has("q", '{ resource.service.name = "web" }');
    await enter(page, "status = error");
    await page.has("q", '{ resource.service.name = "web" && status = error }');
    await enter(page, "status = error"); // a condition is added once
    assert.equal((await chips(page)).length, 2);
    await page.getByRole("button", { name: 'Remove service = "web"' }).click();
    await page.has("q", "{ status = error }");
    await page.goBack();
    await page.has("q", '{ resource.service.name = "web" && status = error }');
    assert.equal((await chips(page)).length, 2);
    // Backspace turns the last condition into text again.
    await field(page).press("Backspace");
    assert.equal(await field(page).inputValue(), "status = error");
    await page.has("q", '{ resource.service.name = "web" }');
    await page.finish();
  });

  it("shows TraceQL that is no list of conditions as text, and an error at its column", async () => {
    const page = await open("#/spans?q=%7B%20name%20%3D%20%22a%22%20%7D%20%3E%3E%20%7B%20%7D");
    await field(page).waitFor();
    assert.equal(await field(page).inputValue(), '{ name = "a" } >> { }');
    await enter(page, "{ nonsense");
    const error = page.locator(".search-error");
    await error.waitFor();
    const [line, caret] = (await error.locator("pre").textContent()).split("\n");
    assert.equal(line, "{ nonsense");
    assert.equal(caret, "^"); // the mock's error is at 1:1
    assert.equal(await field(page).getAttribute("aria-invalid"), "true");
    await checkAccessibility(page, "a rejected query");
    await page.finish();
  });

  it("suggests attributes, then values, by keyboard", async () => {
    const page = await open();
    await field(page).fill("http.");
    await options(page).filter({ hasText: "span.http.route" }).waitFor();
    assert.deepEqual(await options(page).locator("bdi").allTextContents(), [
      "http.",
      "span.http.route",
      "span.http.method",
    ]);
    await checkAccessibility(page, "suggestions");
    assert.equal(await field(page).getAttribute("aria-expanded"), "true");
    await field(page).press("ArrowDown");
    await field(page).press("ArrowDown");
    assert.equal(
      await page.locator('[role="option"][aria-selected="true"] bdi').textContent(),
      "span.http.route",
    );
    const active = await field(page).getAttribute("aria-activedescendant");
    assert.equal(await page.locator(`[id="${active}"] bdi`).textContent(), "span.http.route");
    await field(page).press("Enter");
    assert.equal(await field(page).inputValue(), "span.http.route = ");
    await options(page).filter({ hasText: "quoted" }).waitFor();
    await field(page).press("ArrowDown");
    await field(page).press("Enter");
    await page.has("q", '{ span.http.route = "/a \\"quoted\\" \\\\ route" }');
    await page.finish();
  });

  it("suggests values by mouse, narrowed by what is typed", async () => {
    const page = await open();
    await field(page).fill("service = c");
    const expected = [
      ...new Set(
        mock.server.store.spans.filter((s) => s.startMs >= now - 3600e3).map((s) => s.service),
      ),
    ];
    await options(page).first().waitFor();
    const shown = await options(page).locator("bdi").allTextContents();
    assert.deepEqual([...shown].sort(), expected.filter((name) => name.includes("c")).sort());
    assert.ok(shown[0].startsWith("c"));
    await options(page).filter({ hasText: "catalog" }).click();
    await page.has("q", '{ resource.service.name = "catalog" }');
    await field(page).fill("status = ");
    await options(page).filter({ hasText: "error" }).click();
    await page.has("q", '{ resource.service.name = "catalog" && status = error }');
    await page.finish();
  });

  it("completes attributes in TraceQL, with quotes if the name needs them", async () => {
    const page = await open();
    await field(page).fill('{ name = "a" && span.http.ro');
    await options(page).filter({ hasText: "span.http.route" }).click();
    assert.equal(await field(page).inputValue(), '{ name = "a" && span.http.route ');
    await field(page).fill("{ quoted");
    await options(page).first().click();
    assert.equal(await field(page).inputValue(), '{ span."a \\"quoted\\" name" ');
    await page.finish();
  });

  it("keeps recent and saved queries in the browser", async () => {
    const page = await open();
    await enter(page, "service = web");
    await page.has("q", '{ resource.service.name = "web" }');
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByRole("button", { name: "Saved" }).waitFor();
    await page.to("#/spans");
    await page.reload();
    await enter(page, "status = error");
    await page.has("q", "{ status = error }");
    await page.to("#/spans");
    await page.has("q", "");
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press("/");
    await options(page).nth(1).waitFor();
    assert.deepEqual(await options(page).allTextContents(), [
      '{ resource.service.name = "web" } saved',
      "{ status = error } recent",
    ]);
    await field(page).press("ArrowDown");
    await field(page).press("Enter");
    await page.has("q", '{ resource.service.name = "web" }');
    await page.getByRole("button", { name: "Saved" }).click();
    await page.getByRole("button", { name: "Save", exact: true }).waitFor();
    await page.finish();
  });

  it("works without the browser's storage", async () => {
    const page = await openPage(mock.browser, mock.server, "#/health");
    await page.addInitScript(() =>
      Object.defineProperty(window, "localStorage", {
        get() {
          throw new DOMException("denied");
        },
      }),
    );
    await page.reload();
    await page.to("#/spans");
    await enter(page, "service = web");
    await page.has("q", '{ resource.service.name = "web" }');
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.finish();
  });

  it("is reached by / from every view", async () => {
    const page = await open("#/health");
    await page.locator("h1").first().waitFor();
    await page.keyboard.press("/");
    await page.waitForFunction(() => document.activeElement?.id === "traceql");
    await field(page).press("Escape"); // closes the suggestions or leaves the field
    await page.to("#/privacy");
    await page.waitForFunction(() => !document.getElementById("traceql"));
    await page.keyboard.press("/");
    await page.waitForFunction(() => document.activeElement?.id === "traceql");
    await page.finish();
  });

  it("filters by an attribute of a span, excludes it, and copies it", async () => {
    const span = mock.server.store.spans.find((one) => one.trace.spans.length > 3);
    const hash = `#/trace/${span.trace.id}?span=${span.id}&tab=attributes`;
    const page = await open(hash);
    const row = page
      .locator(".attributes tr", { has: page.getByRole("button", { name: /^Copy / }) })
      .first();
    const key = await row.locator("th").textContent();
    const value = (await row.locator("td").evaluate((cell) => cell.firstChild.textContent)).trim();
    await row.getByRole("button", { name: `Copy ${key}` }).click();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), value);
    await checkAccessibility(page, "actions of attributes");
    const name = key;
    await row.getByRole("link", { name: `Filter by ${name}` }).click();
    await page.waitForFunction(() => location.hash.startsWith("#/spans"));
    assert.ok((await q(page)).startsWith(`{ span.${name} = `), await q(page));
    await page.goBack();
    await row.getByRole("link", { name: `Exclude ${name}` }).click();
    await page.waitForFunction(() => location.hash.startsWith("#/spans"));
    assert.ok((await q(page)).startsWith(`{ span.${name} != `), await q(page));
    await page.finish();
  });

  for (const colorScheme of ["light", "dark"])
    it(`has no accessibility violation on a phone (${colorScheme})`, async () => {
      const page = await open("#/spans", { colorScheme, viewport: { width: 390, height: 844 } });
      await enter(page, "service = web");
      await page.has("q", '{ resource.service.name = "web" }');
      await field(page).fill("na");
      await options(page).nth(1).waitFor();
      await checkAccessibility(page, `search on a phone, ${colorScheme}`);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 390);
      await page.finish();
    });
});
