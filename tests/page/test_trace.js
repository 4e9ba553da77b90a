// SPDX-License-Identifier: Apache-2.0
// The view of one trace: the span that it selects, its header, its search, and events on bars. The
// trace is made by hand, so that the expected values can be computed by hand.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { openPage, useMock } from "./browser.js";

const traceId = "00000000000000000000000000000abc";
const begin = 1700000000000000000n;
const cpu = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

/** A span of a trace; times and CPU time in ms. */
const made = (id, parent, service, name, from, to, { cpuMs = 0, ...rest } = {}) => ({
  span_id: id.repeat(16),
  parent_id: parent.repeat(16),
  resource: service === "checkout" ? 0 : 1,
  service,
  name,
  kind: "server",
  status: "unset",
  start_unix_ns: String(begin + BigInt(from * 1e6)),
  duration_ns: (to - from) * 1e6,
  status_message: "",
  scope: "",
  attributes: [],
  events: [],
  links: [],
  profile: {
    samples: cpuMs / 10,
    cpu_ns: cpuMs * 1e6,
    types: cpuMs ? { [cpu]: { samples: cpuMs / 10, value: cpuMs * 1e6 } } : {},
  },
  ...rest,
});

const attribute = (key, value) => ({ key, value });
const event = (name, at, attributes = []) => ({
  time_unix_ns: String(begin + BigInt(at * 1e6)),
  name,
  attributes,
});

// a: 0 to 100 ms; it waits for b (10 to 40) and c (50 to 90). c waits for d (55 to 60).
// Time outside children on the critical path: a 30 ms, b 30 ms, c 35 ms, d 5 ms.
const spans = [
  made("b", "a", "checkout", "cart", 10, 40, { cpuMs: 20 }),
  made("c", "a", "pricing", "price", 50, 90, {
    cpuMs: 30,
    events: [event("cache miss", 70, [attribute("cache.key", "offer")]), event("exception", 80)],
  }),
  made("d", "c", "pricing", "query", 55, 60, {
    links: [{ trace_id: "f".repeat(32), span_id: "e".repeat(16), attributes: [] }],
  }),
  made("a", "", "checkout", "POST /checkout", 0, 100),
];

describe("page: one trace", { concurrency: false }, () => {
  const mock = useMock();
  const open = async (list, rest = "") => {
    const page = await openPage(mock.browser, mock.server, "#/health");
    await page.route(`**/api/braid/traces/${traceId}*`, (route) =>
      route.fulfill({
        json: {
          trace_id: traceId,
          resources: [
            { service: "checkout", attributes: [attribute("host.name", "blue")] },
            { service: "pricing", attributes: [attribute("host.name", "green")] },
          ],
          spans: list,
          cut: null,
        },
      }),
    );
    await page.to(`#/trace/${traceId}${rest}`);
    await page.locator(".waterfall .span").first().waitFor();
    return page;
  };
  const chosen = (page) => page.locator(".waterfall .span-on .waterfall-label").textContent();

  it("selects the span on the critical path with the most time of its own", async () => {
    let page = await open(spans);
    assert.equal(await chosen(page), "pricing price");
    await page.finish();
    // CPU time counts if it is more: 50 ms of b on several CPUs are more than 35 ms of c.
    const parallel = spans.map((span) =>
      span.name === "cart" ? { ...span, profile: { ...span.profile, cpu_ns: 50e6 } } : span,
    );
    page = await open(parallel);
    assert.equal(await chosen(page), "checkout cart");
    await page.finish();
    page = await open(spans, `?span=${"d".repeat(16)}`);
    assert.equal(await chosen(page), "pricing query");
    await page.finish();
  });

  it("has the name of the root, even if another span begins earlier", async () => {
    const early = made("e", "9", "mail", "left behind", -20, -10);
    let page = await open([early, ...spans]);
    assert.equal(await page.locator("h1").textContent(), "checkout POST /checkout");
    await page.finish();
    page = await open(spans.slice(0, 3));
    assert.match(await page.locator("h1").textContent(), /the root span is missing/);
    await page.finish();
  });

  it("shows the CPU time of each service and leads to its flame graph", async () => {
    const page = await open(spans);
    const links = page.locator(".trace-cpu a");
    assert.deepEqual(await links.allTextContents(), ["50 ms", "pricing 30 ms", "checkout 20 ms"]);
    for (const [n, service] of ["", "pricing"].entries()) {
      const address = new URLSearchParams((await links.nth(n).getAttribute("href")).split("?")[1]);
      assert.equal(address.get("trace"), traceId);
      assert.equal(address.get("scope"), "trace");
      assert.equal(address.get("service") ?? "", service);
    }
    await page.finish();
  });

  // Spans whose clocks differ, and where they must be: by Jaeger's rules, computed by hand. The root is a: 0 to 100 ms
  // on the host blue. "pricing" is on the host green.
  const within = (from, to, rest) => made("b", "a", "pricing", "call", from, to, rest);
  const root = made("a", "", "checkout", "POST /checkout", 0, 100);
  for (const [what, span, start] of [
    ["is early and fits into its parent", within(-30, 10), 30],
    ["is late and fits into its parent", within(90, 130), 30],
    ["is far away", within(5000, 5100), 0],
    ["is inside its parent", within(60, 100), 60],
    ["begins early and is longer than its parent", within(-10, 110), 0],
    ["begins in its parent and is longer", within(20, 140), 20],
    ["is a consumer", within(150, 160, { kind: "consumer" }), 150],
    ["is on the host of its parent", { ...within(90, 130), resource: 0 }, 90],
  ])
    it(`places a span that ${what}`, async () => {
      const page = await open([root, span], `?span=${"b".repeat(16)}`);
      const end = Math.max(100, start + span.duration_ns / 1e6);
      const left = await page
        .locator(".waterfall .bar")
        .nth(1)
        .evaluate((bar) => bar.style.left);
      assert.ok(Math.abs(parseFloat(left) - (start / end) * 100) < 0.01, left);
      const moved = start - Number(BigInt(span.start_unix_ns) - begin) / 1e6;
      assert.equal(await page.locator(".mark-moved").count(), moved ? 1 : 0);
      const button = page.getByRole("button", { name: /^Correct clocks/ });
      assert.equal(await button.count(), moved ? 1 : 0);
      if (moved) {
        const text = `Moved by ${moved > 0 ? "+" : "−"}`;
        assert.ok((await page.locator(".mark-moved").getAttribute("title")).startsWith(text));
        await page.locator(".facts").getByText("the clock of its host differs").waitFor();
        await button.click();
        await page.has("clocks", "0");
        await page.locator(".mark-moved").waitFor({ state: "detached" });
        assert.equal(await button.getAttribute("aria-pressed"), "false");
        await button.click();
        await page.locator(".mark-moved").waitFor();
      }
      await page.finish();
    });

  it("moves the spans and events of one host together", async () => {
    const page = await open([
      root,
      within(-30, 10, { events: [event("retry", -25)] }),
      made("c", "b", "pricing", "query", -20, -10),
    ]);
    const lefts = await page
      .locator(".waterfall .bar")
      .evaluateAll((bars) => bars.map((b) => b.style.left));
    assert.deepEqual(lefts.map(parseFloat), [0, 30, 40]);
    const mark = await page.locator(".waterfall .event").evaluate((one) => one.style.left);
    assert.equal(parseFloat(mark), 35);
    assert.equal(await page.locator(".mark-moved").count(), 2);
    await page.finish();
  });

  it("marks events on the bars", async () => {
    const page = await open(spans);
    const marks = page.locator(".waterfall .event");
    assert.equal(await marks.count(), 2);
    assert.deepEqual(await marks.evaluateAll((all) => all.map((one) => one.style.left)), [
      "70%",
      "80%",
    ]);
    assert.equal(await page.locator(".waterfall .event-error").getAttribute("title"), "exception");
    await page.finish();
  });

  it("finds text in events, links and resources", async () => {
    const page = await open(spans);
    for (const [text, names] of [
      ["cache miss", ["pricing price"]],
      ["cache.key", ["pricing price"]],
      ["OFFER", ["pricing price"]],
      ["ffffffff", ["pricing query"]],
      ["blue", ["checkout POST /checkout", "checkout cart"]],
      ["host.name", spans.map(() => null)],
    ]) {
      await page.locator("#search").fill(text);
      await page.getByText(`${names.length} of 4`).waitFor();
      const found = await page
        .locator(".waterfall .span:not(.span-away) .waterfall-label")
        .allTextContents();
      if (names[0]) assert.deepEqual(found, names);
    }
    await page.finish();
  });
});
