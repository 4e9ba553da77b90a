// SPDX-License-Identifier: Apache-2.0
// The view of one trace: the span that it selects, its header, its search, and events on bars. The
// trace is made by hand, so that the expected values can be computed by hand.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { mockOf, openPage, startBrowser } from "./browser.js";

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
  let browser, server;
  before(async () => {
    browser = await startBrowser();
    server = await mockOf();
  });
  after(async () => {
    await browser?.close();
    await server?.close();
  });
  const open = async (list, rest = "") => {
    const page = await openPage(browser, server, "#/health");
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
