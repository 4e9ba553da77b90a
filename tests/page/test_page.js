// SPDX-License-Identifier: Apache-2.0
// The page in Debian's chromium against the mock: every feature by mouse and by keyboard.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, it } from "node:test";
import { checkAccessibility, findBar, mockOf, openPage, startBrowser } from "./browser.js";

const checkout = "#/spans?service=checkout&name=order.calculate_totals";
const range = (service, rest = "") =>
  `#/profile?query=${encodeURIComponent(`{service_name="${service}"}`)}${rest}`;
const largeTrace = "#/trace/0af7651916cd43dd8448eb211c80319c";

let browser, server, slow;
before(async () => {
  browser = await startBrowser();
  server = await mockOf();
  // The slowest order, likely to be clicked first.
  slow = server.store.spans
    .filter((span) => span.key === "checkout/order.calculate_totals")
    .sort((a, b) => b.durationMs - a.durationMs)[0];
});
after(async () => {
  await browser?.close();
  await server?.close();
});
const open = (hash, options) => openPage(browser, server, hash, options);
const ofSlow = (rest = "") => `#/trace/${slow.trace.id}?span=${slow.id}${rest}`;

/** Waits until everything is drawn and key handlers are set: effects run after their frame. */
// Drags between two fractions of an element's width, `y` below its upper edge.
async function drag(page, element, from, to, y) {
  const box = await element.boundingBox();
  await page.mouse.move(box.x + box.width * from, box.y + y);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * to, box.y + y, { steps: 4 });
  await page.mouse.up();
}

const painted = (page) =>
  page.evaluate(
    () =>
      new Promise((done) => {
        requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0)));
      }),
  );

describe("page: spans", { concurrency: false }, () => {
  it("filters by service, operation, duration, status and roots", async () => {
    const page = await open("#/spans");
    await page.getByLabel("Service").selectOption("payment");
    await page.has("service", "payment");
    await page.waitForFunction(() =>
      [...document.querySelectorAll(".spans .row .col-service span")].every(
        (cell) => cell.textContent === "payment",
      ),
    );
    await page.getByLabel("Operation").selectOption("payment.Charge");
    await page.has("name", "payment.Charge");
    await page.getByLabel("At least").selectOption("50ms");
    await page.has("min", "50ms");
    await page.getByRole("button", { name: "Errors" }).click();
    await page.has("status", "error");
    await page.waitForFunction(
      () =>
        [...document.querySelectorAll(".spans .row .col-status")].length > 0 &&
        [...document.querySelectorAll(".spans .row .col-status")].every(
          (cell) => cell.textContent === "error",
        ),
    );
    const wanted = server.store.spans.filter(
      (span) => span.name === "payment.Charge" && span.error && span.durationMs >= 50,
    ).length;
    await page.waitForFunction(
      (n) => document.querySelector(".foot").textContent.startsWith(`${n} spans`),
      wanted,
    );
    await page.getByRole("button", { name: "Roots" }).click();
    await page.getByText("No span in this time range matches the filters").waitFor();
    await page.getByRole("button", { name: "Remove the filters" }).click();
    await page.has("service", "");
    await page.finish();
  });

  it("queries with TraceQL, and shows the server's error for an invalid query", async () => {
    const page = await open("#/spans");
    await page.locator(".spans .row").first().waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type('{ name = "tls.handshake" }');
    await page.keyboard.press("Enter");
    await page.waitForFunction(
      () =>
        [...document.querySelectorAll(".spans .col-operation a")].length > 0 &&
        [...document.querySelectorAll(".spans .col-operation a")].every(
          (cell) => cell.textContent === "tls.handshake",
        ),
    );
    await page.getByLabel(/TraceQL$/).fill("{ nonsense");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").getByText("is no span selector").waitFor();
    await page.finish();
  });

  it("sorts by duration, by CPU and by begin", async () => {
    const page = await open("#/spans");
    const order = (key) =>
      page.waitForFunction(
        (name) => new URLSearchParams(location.hash.split("?")[1]).get("sort") === name,
        key,
      );
    await page.getByRole("button", { name: "CPU", exact: true }).click();
    await order("cpu");
    await page.waitForFunction(() =>
      document.querySelector('[aria-sort="descending"]')?.textContent.includes("CPU"),
    );
    const busiest = [...server.store.spans].sort((a, b) => b.samples - a.samples)[0];
    await page.waitForFunction(
      (name) => document.querySelector(".spans .row .col-operation a")?.textContent === name,
      busiest.name,
    );
    await page.getByRole("button", { name: "Began" }).click();
    await order("start");
    await page.finish();
  });

  it("shows a badge only on spans with samples", async () => {
    const page = await open("#/spans?service=cart");
    await page.locator(".spans .row").first().waitFor();
    assert.equal(await page.locator(".spans .badge").count(), 0);
    await page.to(checkout);
    await page.locator(".spans .badge").first().waitFor();
    await page.finish();
  });

  it("opens a span by mouse and by keys", async () => {
    const page = await open(checkout);
    await page.locator(".spans .badge").first().click();
    await page.waitForFunction((id) => location.hash.startsWith(`#/trace/${id}`), slow.trace.id);
    await page.locator(".flame canvas").waitFor();
    await page.goBack();
    await page.locator(".spans .row").first().waitFor();
    await page.keyboard.press("ArrowDown");
    await page.locator(".spans .row-focus").waitFor();
    await page.keyboard.press("Enter");
    await page.waitForFunction((id) => location.hash.startsWith(`#/trace/${id}`), slow.trace.id);
    await page.finish();
  });

  it("chooses a time range with the picker", async () => {
    const page = await open("#/spans");
    await page.getByRole("button", { name: /^Time range/ }).click();
    await page.getByRole("button", { name: "Last 15 minutes" }).click();
    await page.has("start", "now-15m");
    await page.getByRole("button", { name: /^Time range/ }).click();
    await page.getByLabel("From", { exact: true }).fill("2026-11-22T14:10:00");
    await page.getByLabel("To", { exact: true }).fill("2026-11-22T14:20:00");
    await page.getByRole("button", { name: "Apply" }).click();
    await page.has("start", String(Date.parse("2026-11-22T14:10:00Z")));
    await page.finish();
  });

  it("shows new spans live, and keeps only the visible ones", async () => {
    const page = await open("#/spans");
    await page.locator(".spans .row").first().waitFor();
    await page.keyboard.press("l");
    await page.has("live", "1");
    await page.locator(".spans .row").first().waitFor();
    const many = () =>
      page.waitForFunction(
        () =>
          Number(
            /[\d,]+/.exec(document.querySelector(".foot")?.textContent ?? "0")[0].replace(",", ""),
          ) > 20,
      );
    await many();
    assert.ok((await page.locator(".spans .row").count()) < 100);
    await page.getByRole("button", { name: "Live" }).click();
    await page.has("live", "");
    await page.waitForFunction(() => !document.querySelector(".live"));
    await page.finish();
  });

  it("shows new spans that match the filters live, and explains filters that it cannot apply", async () => {
    const page = await open("#/spans?live=1&status=error");
    await page.locator(".spans .row").first().waitFor();
    const all = (cells) =>
      page.waitForFunction(([selector, wanted]) => {
        const found = [...document.querySelectorAll(selector)];
        return found.length > 0 && found.every((cell) => cell.textContent === wanted);
      }, cells);
    await all([".spans .row .col-status", "error"]);
    await page.getByRole("group", { name: "Status" }).getByText("All").click();
    await page.getByLabel(/TraceQL$/).fill('{ name = "tls.handshake" }');
    await page.keyboard.press("Enter");
    await page.has("q", '{ name = "tls.handshake" }');
    await all([".spans .col-operation a", "tls.handshake"]);
    await page.getByLabel(/TraceQL$/).fill("{ nonsense");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").getByText("is no span selector").waitFor();
    assert.equal(await page.getByText("Waiting for spans").count(), 0);
    await page.finish();
  });

  it("opens slow against typical by one click, and by t", async () => {
    const page = await open(checkout);
    await page.getByRole("link", { name: /Why are slow ones slow/ }).click();
    await page.waitForFunction(() => location.hash.startsWith("#/compare/slow"));
    await page.goBack();
    await page.locator(".offer").waitFor();
    await page.keyboard.press("t");
    await page.waitForFunction(() => location.hash.startsWith("#/compare/slow"));
    await page.finish();
  });
});

describe("page: trace", { concurrency: false }, () => {
  it("collapses and expands, by mouse and by keys", async () => {
    const page = await open(ofSlow());
    const rows = page.locator(".waterfall .span");
    await rows.first().waitFor();
    const all = slow.trace.spans.length;
    const shown = (n) =>
      page.waitForFunction(
        (count) =>
          document.querySelector(".waterfall").getAttribute("aria-rowcount") === String(count + 1),
        n,
      );
    await shown(all);
    await rows.first().getByRole("button", { name: "Collapse" }).click();
    await shown(1);
    const link = await open(await page.evaluate(() => location.hash));
    await link.waitForFunction(
      () => document.querySelector(".waterfall")?.getAttribute("aria-rowcount") === "2",
    );
    await link.finish();
    await rows.first().getByRole("button", { name: "Expand" }).click();
    await shown(all);
    await rows.first().locator(".waterfall-label").click();
    await page.keyboard.press("ArrowDown");
    await page.waitForFunction(
      () => document.querySelectorAll(".span")[1]?.getAttribute("aria-selected") === "true",
    );
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("ArrowLeft");
    await shown(1);
    await page.keyboard.press("ArrowRight");
    await shown(all - 1); // the child is unchanged
    await page.getByRole("button", { name: "Expand all" }).click();
    await shown(all);
    await page.getByRole("button", { name: "Collapse all" }).click();
    await page.getByRole("button", { name: "Expand all" }).click();
    await shown(all);
    await page.finish();
  });

  it("finds spans by name and attribute, and errors by n", async () => {
    const page = await open(largeTrace);
    await page.locator(".waterfall .span").first().waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("shard 7");
    await page.locator(".found").getByText("1 of 10,000").waitFor();
    await page.keyboard.press("Enter");
    await page.locator(".facts h2").getByText("shard 7").waitFor();
    await page.keyboard.press("Escape");
    await page.has("search", "");
    await page.locator(".waterfall").focus();
    await page.keyboard.press("n");
    await page.locator(".facts .status-error").waitFor();
    await page.keyboard.press("b");
    await page.waitForFunction(() =>
      document.querySelector(".figures").textContent.match(/Samples[1-9]/),
    );
    await page.finish();
  });

  it("finds a list by the text that the details show", async () => {
    const page = await open(ofSlow());
    await page.locator(".waterfall .span").first().waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type('["text/html","app');
    await page
      .locator(".found")
      .getByText(/^1 of /)
      .waitFor();
    await page.finish();
  });

  it("draws the critical path, and hides it by c", async () => {
    const page = await open(ofSlow());
    await page.locator(".critical").first().waitFor();
    // The path covers the trace from its begin to its end. The figures of the root's first row
    // alone are smaller.
    await page.keyboard.press("c");
    await page.has("critical", "0");
    await page.waitForFunction(() => document.querySelectorAll(".critical").length === 0);
    await page.getByRole("button", { name: "Critical path" }).click();
    await page.locator(".critical").first().waitFor();
    await page.finish();
  });

  it("zooms into a part of the trace", async () => {
    const page = await open(ofSlow());
    const overview = page.locator(".overview");
    await overview.waitFor();
    await drag(page, overview, 0.5, 0.9, 10);
    await page.waitForFunction(() => /part=\d+-\d+/.test(location.hash));
    await page.keyboard.press("Escape");
    await page.has("part", "");
    await page.finish();
  });

  it("shows how a span's time was spent", async () => {
    const page = await open(ofSlow());
    const cpu = slow.samples * 10; // 10 ms a sample
    const children = slow.trace.spans
      .filter((span) => span.parent === slow)
      .map((span) => [span.startMs, span.startMs + span.durationMs])
      .sort((a, b) => a[0] - b[0]);
    let covered = 0,
      reached = -Infinity;
    for (const [from, to] of children) {
      covered += Math.max(0, to - Math.max(from, reached));
      reached = Math.max(reached, to);
    }
    const label = await page.locator(".spent-bar").getAttribute("aria-label");
    const [onCpu, inChildren, unexplained] = label.match(/[\d.]+(?=%)/g).map(Number);
    const share = (ms) => (ms / slow.durationMs) * 100;
    assert.ok(Math.abs(onCpu - share(cpu)) < 0.1, label);
    assert.ok(Math.abs(inChildren - share(covered)) < 0.1, label);
    assert.ok(Math.abs(unexplained - Math.max(0, 100 - share(cpu) - share(covered))) < 0.2, label);
    await page.finish();
  });

  it("shows attributes, events, links", async () => {
    const failed = server.store.spans.find(
      (span) => span.key === "payment/payment.Charge" && span.error,
    );
    const page = await open(`#/trace/${failed.trace.id}?span=${failed.id}`);
    await page.getByRole("tab", { name: /Attributes/ }).click();
    await page.getByRole("rowheader", { name: "rpc.method" }).waitFor();
    await page.keyboard.press("ArrowRight");
    await page.has("tab", "events");
    await page.getByText("Traceback (most recent call last)").waitFor();
    await page.getByRole("tab", { name: /Links/ }).click();
    await page.getByText("The span links to no other").waitFor();
    const mail = failed.trace.spans.find((span) => span.name === "mail.Send");
    await page.to(`#/trace/${failed.trace.id}?span=${mail.id}&tab=links`);
    await page.getByText("b7ad6b7169203331").waitFor();
    await page.finish();
  });

  it("shows the flame graph of the span, of its descendants, of the trace, and types as tabs", async () => {
    const page = await open(ofSlow());
    const asked = (text) =>
      assert.ok(
        server.requests.some((request) => request.includes(text)),
        text,
      );
    await page.locator(".flame canvas").waitFor();
    asked(`spans/${slow.trace.id}/${slow.id}/profile?scope=self`);
    await page.getByRole("button", { name: "With descendants" }).click();
    await page.has("scope", "subtree");
    await page.getByRole("button", { name: "Whole trace" }).click();
    await page.has("scope", "trace");
    await page.getByRole("button", { name: "Allocated bytes" }).click();
    await page.waitForFunction(
      () =>
        document.querySelector('.scopes [aria-pressed="true"]') &&
        [...document.querySelectorAll('.scopes [aria-pressed="true"]')].some(
          (button) => button.textContent === "Allocated bytes",
        ),
    );
    asked("scope=trace&type=memory");
    await page.finish();
  });

  it("explains missing samples", async () => {
    const short = slow.trace.spans.find((span) => span.name === "HGETALL cart");
    const page = await open(`#/trace/${slow.trace.id}?span=${short.id}`);
    await page.getByText("come without span ids").waitFor();
    await page.to("#/trace/ffffffffffffffffffffffffffffffff");
    await page.getByRole("alert").getByText("its spans never came").waitFor();
    await page.finish();
  });

  it("moves the border between waterfall and details", async () => {
    const page = await open(ofSlow());
    const splitter = page.getByRole("separator");
    const before = Number(await splitter.getAttribute("aria-valuenow"));
    await splitter.focus();
    await page.keyboard.press("ArrowDown");
    await page.waitForFunction(
      (old) => Number(document.querySelector(".splitter").getAttribute("aria-valuenow")) > old,
      before,
    );
    await page.finish();
  });
});

describe("page: flame graph", { concurrency: false }, () => {
  it("zooms by mouse, with a path back; a link keeps the zoom", async () => {
    const page = await open(range("checkout", "&show=flame"));
    const bar = await findBar(page, "DiscountEngine.apply");
    await page.mouse.click(bar.x, bar.y);
    await page.locator(".path [aria-current]").getByText("DiscountEngine.apply").waitFor();
    const link = await page.evaluate(() => location.hash);
    const again = await open(link);
    await again.locator(".path [aria-current]").getByText("DiscountEngine.apply").waitFor();
    await again.finish();
    await page.locator(".path li").nth(2).getByRole("button").click();
    await page.waitForFunction(
      () => document.querySelector(".path [aria-current]").textContent !== "DiscountEngine.apply",
    );
    await page.keyboard.press("z");
    await page.has("zoom", "");
    await page.finish();
  });

  it("moves by arrow keys; Enter zooms, s shows callers and callees, Escape goes back", async () => {
    const page = await open(range("checkout", "&show=flame"));
    const flame = page.locator(".flame").first();
    await flame.waitFor();
    await flame.focus();
    const item = () =>
      page.evaluate(() => {
        const tree = document.querySelector(".flame");
        return (
          document.getElementById(tree.getAttribute("aria-activedescendant"))?.textContent ?? ""
        );
      });
    const walked = async (key, name) => {
      await page.keyboard.press(key);
      await page.waitForFunction((wanted) => {
        const tree = document.querySelector(".flame");
        return document
          .getElementById(tree.getAttribute("aria-activedescendant"))
          ?.textContent.startsWith(`${wanted},`);
      }, name);
    };
    assert.match(await item(), /^total,/);
    await walked("ArrowDown", "Thread.run");
    await walked("ArrowDown", "Server.handle_request");
    await walked("ArrowUp", "Thread.run");
    await walked("ArrowDown", "Server.handle_request");
    await walked("ArrowDown", "trace_middleware");
    await walked("ArrowDown", "OrderService.calculate_totals");
    await page.keyboard.press("Enter");
    await page.locator(".path [aria-current]").getByText("OrderService.calculate_totals").waitFor();
    await page.keyboard.press("s");
    await page.has("of", "OrderService.calculate_totals");
    await page.getByRole("heading", { name: "Callers" }).waitFor();
    assert.equal(await page.locator(".sandwich .flame").count(), 2);
    await page.keyboard.press("Escape");
    await page.has("of", "");
    await page.keyboard.press("Escape");
    await page.waitForFunction(
      () =>
        document.querySelector(".path [aria-current]")?.textContent !==
        "OrderService.calculate_totals",
    );
    await page.finish();
  });

  it("finds functions, with the share of the matching ones", async () => {
    const page = await open(range("checkout"));
    await page.locator(".flame canvas").waitFor();
    await painted(page);
    await page.keyboard.press("/");
    await page.waitForFunction(() => document.activeElement instanceof HTMLInputElement);
    await page.keyboard.type("decimal");
    await page
      .locator(".found")
      .getByText(/^[\d.]+% in \d+$/)
      .waitFor();
    await page.has("find", "decimal");
    // The share is that of the outermost matching bars: 29.5 s of __mul__ and the rest of quantize.
    const share = parseFloat(await page.locator(".found").textContent());
    const rows = await page.locator(".functions .row").allTextContents();
    assert.ok(rows.length >= 3 && rows.every((row) => /decimal/i.test(row)), rows.join());
    assert.ok(share > 5 && share < 40, String(share));
    await page.keyboard.press("Escape");
    await page.has("find", "");
    await page.finish();
  });

  it("has a table of functions with links to bars, and a tree of calls", async () => {
    const page = await open(range("checkout"));
    const row = page.locator(".functions .row").first();
    await row.waitFor();
    await row.click();
    await page.waitForFunction(() => location.hash.includes("find="));
    await page.to(range("checkout", "&show=table"));
    await page.getByRole("button", { name: "Total" }).click();
    await page.waitForFunction(() =>
      document.querySelector('.functions [aria-sort="descending"]')?.textContent.includes("Total"),
    );
    await page.waitForFunction(() =>
      /Thread\.run|handle_request|trace_middleware/.test(
        document.querySelector(".functions .row").textContent,
      ),
    );
    await page.getByRole("button", { name: "Tree", exact: true }).click();
    await page.getByRole("columnheader", { name: "Percentage" }).waitFor();
    await page.getByRole("columnheader", { name: "Time" }).waitFor();
    const tree = page.locator(".tree");
    await tree.focus();
    const before = Number(await tree.getAttribute("aria-rowcount"));
    await page.keyboard.press("ArrowLeft"); // closes the root
    await page.waitForFunction(
      () => document.querySelector(".tree").getAttribute("aria-rowcount") === "2",
    );
    await page.keyboard.press("ArrowRight");
    await page.waitForFunction(
      (n) => document.querySelector(".tree").getAttribute("aria-rowcount") === String(n),
      before,
    );
    await page.finish();
  });

  it("flips and colours by value, by button and by key", async () => {
    const page = await open(range("checkout", "&show=flame"));
    await page.locator(".flame canvas").waitFor();
    const picture = () => page.locator(".flame canvas").evaluate((canvas) => canvas.toDataURL());
    const first = await picture();
    await page.keyboard.press("f");
    await page.has("flip", "1");
    await page.waitForFunction(
      (old) => document.querySelector(".flame canvas").toDataURL() !== old,
      first,
    );
    await page.getByRole("button", { name: "Flip" }).click();
    await page.has("flip", "");
    await page.keyboard.press("v");
    await page.has("color", "value");
    await page.waitForFunction(
      (old) => document.querySelector(".flame canvas").toDataURL() !== old,
      first,
    );
    await page.getByRole("button", { name: "Package" }).click();
    await page.has("color", "");
    await page.waitForFunction(
      (old) => document.querySelector(".flame canvas").toDataURL() === old,
      first,
    );
    await page.finish();
  });

  it("exports pprof, speedscope, folded stacks and the trace", async () => {
    const page = await open(ofSlow());
    await page.locator(".flame canvas").waitFor();
    for (const [name, file] of [
      ["pprof (gzip)", "profile.pprof.pb.gz"],
      ["speedscope JSON", "profile.speedscope.json"],
      ["Folded stacks", "profile.folded.txt"],
    ]) {
      await page.getByRole("button", { name: "Export", exact: true }).click();
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("link", { name }).click(),
      ]);
      assert.equal(download.suggestedFilename(), file);
    }
    await page.getByRole("button", { name: "Export", exact: true }).click();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("link", { name: "OTLP JSON of the trace" }).click(),
    ]);
    assert.equal(download.suggestedFilename(), `${slow.trace.id}.json`);
    const { resourceSpans } = JSON.parse(readFileSync(await download.path(), "utf8"));
    const spans = resourceSpans.flatMap((resource) =>
      resource.scopeSpans.flatMap((scope) => scope.spans),
    );
    assert.equal(spans.length, slow.trace.spans.length);
    const saved = spans.find((span) => span.spanId === slow.id);
    assert.equal(saved.parentSpanId, slow.parent.id);
    assert.equal(
      BigInt(saved.endTimeUnixNano) - BigInt(saved.startTimeUnixNano),
      BigInt(Math.round(slow.durationMs * 1e6)),
    );
    await page.finish();
  });
});

describe("page: compare", { concurrency: false }, () => {
  it("shows the causes of slow spans", async () => {
    const page = await open("#/compare/slow?service=checkout&name=order.calculate_totals");
    await page.locator(".slow-why em").waitFor();
    assert.match(
      await page.locator(".slow-why h2").textContent(),
      /A slow span of checkout order.calculate_totals spends .* more in /,
    );
    const first = await page.locator(".slow-why tbody th").first().textContent();
    assert.ok(["parse", "_code", "compile", "deepcopy"].includes(first), first);
    await page.locator(".flame canvas").waitFor();
    await page.locator(".examples a").first().click();
    await page.waitForFunction(() => location.hash.startsWith("#/trace/"));
    await page.finish();
  });

  const causes = ["parse", "_code", "compile", "deepcopy"];
  const why = `#/compare/slow?service=web&name=${encodeURIComponent("POST /checkout")}`;
  const shownFunction = (page) =>
    page.waitForFunction(
      (names) => names.includes(document.querySelector(".slow-why em + code")?.textContent),
      causes,
    );

  it("leads from a request to the function in another service by two clicks", async () => {
    const page = await open(`#/spans?service=web&name=${encodeURIComponent("POST /checkout")}`);
    await page.getByRole("link", { name: /Why are slow ones slow/ }).click();
    await page.locator(".answer a").first().waitFor();
    const words = await page.locator(".answer").textContent();
    assert.match(words, /^\+[\d.]+ m?s: [\d.]+ m?s in checkout order\.place \(\d+(\.\d+)?%\)/);
    await page.locator(".answer a").first().click();
    await page.has("name", "order.place");
    await page.has("of_name", "POST /checkout");
    await shownFunction(page);
    await page.locator(".below a").click();
    await page.has("of_name", "");
    await page.has("service", "web");
    await page.finish();
  });

  it("divides both durations into parts, as bars and as a table", async () => {
    const page = await open(why);
    const asked = `${server.url}api/braid/slow?service=web&name=${encodeURIComponent("POST /checkout")}`;
    const answer = await (await fetch(asked)).json();
    await page.locator(".parts tbody tr").first().waitFor();
    // The bars have the lengths of the parts.
    const whole = Math.max(answer.slow.mean_duration_ns, answer.typical.mean_duration_ns);
    const widths = (row) =>
      page
        .locator(".stack-bar")
        .nth(row)
        .evaluate((bar) =>
          [...bar.children].reduce((all, part) => all + parseFloat(part.style.width), 0),
        );
    for (const [row, side] of [
      [0, "typical"],
      [1, "slow"],
    ])
      assert.ok(
        Math.abs((await widths(row)) - (answer[side].mean_duration_ns / whole) * 100) < 0.01,
        side,
      );
    // Differences that may be chance are said to be noise.
    const parts = answer.parts.filter((part) => part.slow_ns > 0 || part.typical_ns > 0);
    assert.deepEqual(
      await page
        .locator(".parts tbody tr")
        .evaluateAll((rows) => rows.map((row) => row.textContent.includes("noise"))),
      parts.map((part) => part.delta_ns !== 0 && Math.abs(part.delta_ns) <= part.noise_ns),
    );
    await page.locator(".stack-bar").nth(1).locator("a").first().click();
    await page.has("name", "order.place");
    await shownFunction(page);
    await page.finish();
  });

  it("compares a part by keyboard", async () => {
    const page = await open(why);
    await page.locator(".parts a").first().focus();
    await page.keyboard.press("Enter");
    await page.has("of_name", "POST /checkout");
    await shownFunction(page);
    await page.finish();
  });

  it("compares durations of spans without samples", async () => {
    const page = await open("#/compare/slow?service=cart&name=cart.Load");
    await page.locator(".answer").waitFor();
    await page.getByText("No samples").first().waitFor();
    assert.match(await page.locator(".parts").textContent(), /unexplained/);
    await page.finish();
  });

  it("compares two ranges, in both palettes and both scales, and swaps them", async () => {
    const page = await open("#/compare");
    await page.locator(".flame canvas").waitFor();
    const left = (await page.query()).get("left");
    const canvas = page.locator(".flame canvas");
    const drawnAnew = async (action) => {
      const before = await canvas.evaluate((element) => element.toDataURL());
      await action();
      await page.waitForFunction(
        (old) => document.querySelector(".flame canvas").toDataURL() !== old,
        before,
      );
    };
    await drawnAnew(() => page.getByRole("button", { name: "Absolute" }).click());
    await page.has("scale", "absolute");
    await drawnAnew(() => page.getByTitle(/colour-blind/).click());
    await page.waitForFunction(() => document.documentElement.dataset.palette === "blue");
    await page.getByRole("button", { name: "Swap A and B" }).click();
    await page.has("right", left);
    await page.finish();
  });

  it("shows changes in the same unit in every view", async () => {
    const page = await open("#/compare?show=both");
    await page.locator(".flame canvas").waitFor();
    const change = /^[+−]?\d+\.\d\d pp$/;
    const table = page.locator(".functions-two .table-body [role=row] > :last-child");
    await table.first().waitFor();
    for (const text of await table.allTextContents()) assert.match(text, change);
    await page.to("#/compare?show=tree");
    const tree = page.locator(".tree .table-body [role=row] > :nth-child(2)");
    await tree.first().waitFor();
    for (const text of await tree.allTextContents()) assert.match(text, change);
    await page.finish();
  });

  it("compares labels entered by the user", async () => {
    const page = await open("#/compare");
    await page.locator(".flame canvas").waitFor();
    await page.getByLabel("B: Label selector").fill('{service_name="payment"}');
    await page.keyboard.press("Enter");
    await page.waitForFunction(() =>
      decodeURIComponent(new URLSearchParams(location.hash.split("?")[1]).get("right")).includes(
        '"payment"',
      ),
    );
    await page.locator(".flame canvas").waitFor();
    await page.finish();
  });

  it("compares span with span: d here, d there", async () => {
    const other = server.store.spans.find(
      (span) => span.key === slow.key && !span.isSlow && span.samples > 2,
    );
    const page = await open(ofSlow());
    await page.locator(".flame canvas").waitFor();
    await page.keyboard.press("d");
    await page.locator(".said-on").waitFor();
    await page.to(`#/trace/${other.trace.id}?span=${other.id}`);
    await page.locator(".flame canvas").waitFor();
    await page.waitForFunction(
      (name) => document.querySelector(".facts").textContent.includes(name),
      other.id,
    );
    await page.getByRole("button", { name: "Compare" }).click();
    await page.waitForFunction(
      (ids) =>
        ids.every((id) => location.hash.includes(id)) && location.hash.startsWith("#/compare"),
      [slow.id, other.id],
    );
    await page.locator(".flame canvas").waitFor();
    await page.finish();
  });
});

describe("page: other views", { concurrency: false }, () => {
  it("shows join health with hints", async () => {
    const page = await open("#/health");
    await page.getByText("Profiles of cart come without span ids").waitFor();
    assert.equal(
      await page.locator(".health tbody tr:not(.hint)").count(),
      new Set(server.store.spans.map((span) => span.service)).size,
    );
    await page.finish();
  });

  it("shows data that may be private, data that redaction removed, and the config for the rest", async () => {
    const page = await open("#/spans");
    await page.locator(".spans .row").first().waitFor();
    await page.keyboard.press("6");
    await page.waitForFunction(() => location.hash.startsWith("#/privacy"));
    const row = page.getByRole("row", { name: /client\.address/ });
    await row.getByText("person, by its key").waitFor();
    const wanted = server.store.spans.filter(
      (span) => span.service === "web" && span.kind === "server",
    ).length;
    assert.equal(Number((await row.locator(".number").textContent()).replaceAll(",", "")), wanted);
    await page
      .getByRole("row", { name: /payment\.card/ })
      .getByText("blocked_values: 4[0-9]{12}(?:[0-9]{3})?")
      .waitFor();
    await page
      .getByRole("row", { name: /host\.ip/ })
      .getByText("removed, with its key")
      .waitFor();
    await page.getByText("Configuration that removes these values").focus();
    await page.keyboard.press("Enter");
    await page.getByLabel("mail address").uncheck();
    await page.getByRole("button", { name: "Copy", exact: true }).click();
    await page.locator(".said-on").waitFor();
    const config = await page.evaluate(() => navigator.clipboard.readText());
    assert.match(config, /^processors:\n {2}redaction:\n {4}blocked_key_patterns:\n {6}- '/);
    assert.ok(
      config.includes("'(?:/home|/Users)/[^/\\s:]+'") && !config.includes("[\\w.+-]+@"),
      config,
    );
    await row.getByRole("link", { name: "web" }).click();
    await page.getByRole("rowheader", { name: "client.address" }).waitFor();
    await page.finish();
  });

  it("saves the time range of the view, or that of the trace", async () => {
    const page = await open("#/spans?start=now-15m");
    const save = page.getByRole("button", { name: "Save this data" });
    await save.focus();
    await page.keyboard.press("Enter");
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("link", { name: "Save a file" }).click(),
    ]);
    assert.equal(download.suggestedFilename(), "braid-20261122-150000.tar");
    const asked = () =>
      new URLSearchParams(
        server.requests.findLast((request) => request.startsWith("/api/braid/slice")).split("?")[1],
      );
    const fifteen = Date.parse("2026-11-22T15:00:00Z");
    assert.deepEqual(Object.fromEntries(asked()), {
      start: String(fifteen - 900e3),
      end: String(fifteen),
    });
    await page.to(ofSlow());
    await page.locator(".flame canvas").waitFor();
    await save.click();
    await page.getByText("braid open").waitFor();
    await page.getByRole("button", { name: "Copy a link to this view" }).click();
    await page.locator(".said-on").waitFor();
    const link = new URL(await page.evaluate(() => navigator.clipboard.readText()));
    assert.ok(link.hash.startsWith(`#/trace/${slow.trace.id}?`));
    const times = new URLSearchParams(link.hash.split("?")[1]);
    const begin = Math.min(...slow.trace.spans.map((span) => span.startMs)),
      end = Math.max(...slow.trace.spans.map((span) => span.startMs + span.durationMs));
    assert.ok(
      Math.abs(Number(times.get("start")) - begin) <= 1 &&
        Number(times.get("end")) >= end &&
        Number(times.get("end")) <= end + 3,
      String(times),
    );
    await checkAccessibility(page, "save");
    await page.keyboard.press("Escape");
    await page.to("#/spans?start=0&end=1000");
    await save.click();
    await page.getByText("The store has no data for this time range").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Look at all that is stored" }).click();
    await page.locator(".spans .row").first().waitFor();
    await page.has("end", String(fifteen));
    await page.finish();
  });

  it("handles every repetition of a key that is held down", async () => {
    const page = await open(largeTrace);
    await page.locator(".waterfall").focus();
    const order = await page.evaluate(async () => {
      // Simulates a browser's limit: Chromium drops calls beyond 200 in ten seconds.
      const { replaceState } = History.prototype;
      let left = 20;
      history.replaceState = (...rest) => {
        if (left-- > 0) replaceState.apply(history, rest);
      };
      for (let i = 0; i < 100; i++) {
        document
          .querySelector(".waterfall")
          .dispatchEvent(
            new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true, cancelable: true }),
          );
        await new Promise((done) => setTimeout(done, 0));
      }
      delete history.replaceState;
      return document.querySelector(".span[aria-selected=true]")?.getAttribute("aria-rowindex");
    });
    assert.equal(order, "102"); // the head is row 1, the root row 2
    await page.keyboard.press("ArrowUp");
    const chosen = await page.locator(".span[aria-selected=true]").getAttribute("id");
    await page.has("span", chosen.slice("span".length));
    await page.finish();
  });

  it("restores the previous view, also right after a change", async () => {
    const page = await open(largeTrace);
    await page.locator(".waterfall").focus();
    for (let i = 0; i < 7; i++) await page.keyboard.press("ArrowDown");
    const chosen = await page.locator(".span[aria-selected=true]").getAttribute("id");
    await page.getByRole("link", { name: "Privacy" }).click();
    await page.getByRole("heading", { name: "Privacy" }).waitFor();
    await page.goBack();
    await page.has("span", chosen.slice("span".length));
    await page.waitForFunction(
      (id) => document.querySelector(".span[aria-selected=true]")?.id === id,
      chosen,
    );
    await page.finish();
  });

  it("switches views by keys, shows the help and closes it", async () => {
    const page = await open("#/spans?start=now-6h");
    await page.locator(".spans .row").first().waitFor();
    for (const [key, view] of [
      ["3", "profile"],
      ["4", "compare/slow"],
      ["5", "health"],
      ["6", "privacy"],
      ["1", "services"],
      ["2", "spans"],
    ]) {
      await page.keyboard.press(key);
      await page.waitForFunction((to) => location.hash.startsWith(`#/${to}`), view);
      await page.has("start", "now-6h");
    }
    await page.keyboard.press("?");
    await page.getByRole("dialog").getByText("callers and callees").waitFor();
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => !document.querySelector("dialog[open]"));
    await page.finish();
  });

  it("copies a link to the view", async () => {
    const page = await open(range("checkout", "&find=Decimal"));
    await page.locator(".flame canvas").waitFor();
    await page.getByRole("button", { name: "Copy the link" }).click();
    await page.locator(".said-on").waitFor();
    assert.equal(
      await page.evaluate(() => navigator.clipboard.readText()),
      await page.evaluate(() => location.href),
    );
    await page.finish();
  });

  it("follows the system's theme, and a switch", async () => {
    const ground = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const page = await open("#/health", { colorScheme: "dark" });
    const dark = await ground(page);
    await page.getByRole("button", { name: /^Theme/ }).click();
    await page.waitForFunction(() => document.documentElement.dataset.theme === "light");
    const light = await ground(page);
    assert.notEqual(dark, light);
    await page.reload();
    await page.locator(".health").first().waitFor();
    assert.equal(await ground(page), light);
    await page.finish();
  });

  it("gives a service a colour that depends only on its name", async () => {
    const marks = async (page) =>
      Object.fromEntries(
        await page
          .locator(".spans .col-service")
          .filter({ has: page.locator("i") })
          .evaluateAll((cells) =>
            cells.map((cell) => [
              cell.textContent,
              getComputedStyle(cell.querySelector("i")).backgroundColor,
            ]),
          ),
      );
    const seen = {};
    const page = await open("#/spans");
    for (const service of [
      "web",
      "catalog",
      "recommendation",
      "pricing",
      "cart",
      "checkout",
      "payment",
      "inventory",
    ]) {
      await page.to(`#/spans?service=${service}`);
      await page.waitForFunction(
        (name) => document.querySelector(".spans .col-service span")?.textContent === name,
        service,
      );
      Object.assign(seen, await marks(page));
    }
    await page.finish();
    const other = await open("#/spans?service=inventory");
    for (const service of [
      "inventory",
      "payment",
      "checkout",
      "cart",
      "pricing",
      "recommendation",
      "catalog",
      "web",
    ]) {
      await other.to(`#/spans?service=${service}`);
      await other.waitForFunction(
        (name) => document.querySelector(".spans .col-service span")?.textContent === name,
        service,
      );
      assert.equal((await marks(other))[service], seen[service], service);
    }
    assert.ok(new Set(Object.values(seen)).size > 3, JSON.stringify(seen));
    await other.finish();
  });

  it("fits a phone", async () => {
    const phone = { viewport: { width: 390, height: 844 } };
    const inside = async (page, selector) => {
      await page.locator(selector).first().waitFor();
      for (const box of await page
        .locator(selector)
        .evaluateAll((found) =>
          found
            .map((element) => element.getBoundingClientRect())
            .map(({ left, right }) => ({ left, right })),
        ))
        assert.ok(box.left >= 0 && box.right <= 390, `${selector}: ${JSON.stringify(box)}`);
      assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390, selector);
    };
    const page = await open("#/spans?service=checkout&min=5s&status=ok", phone);
    await inside(page, ".empty-text p, .empty-actions .button");
    await page.to("#/spans");
    await inside(page, ".spans .row .service-mark");
    await page.to(range("checkout"));
    await inside(page, ".profile-body .flame"); // both: the flame graph, and below it the table
    await inside(page, ".functions .row");
    const top = async (selector) => (await page.locator(selector).first().boundingBox()).y;
    assert.ok((await top(".functions")) > (await top(".profile-body .flame")));
    await page.to(range("checkout", "&of=Rule.parse_expression"));
    await inside(page, ".sandwich .flame");
    await page.finish();
  });

  it("reloads by r", async () => {
    const page = await open("#/health");
    await page.locator(".health tbody").waitFor();
    const before = server.requests.filter((request) =>
      request.startsWith("/api/braid/join"),
    ).length;
    const asked = page.waitForResponse(/api\/braid\/join/);
    await page.keyboard.press("r");
    await asked;
    assert.ok(
      server.requests.filter((request) => request.startsWith("/api/braid/join")).length > before,
    );
    await page.finish();
  });

  it("shows instructions while the store is empty", async (t) => {
    const none = await mockOf({ empty: true });
    t.after(() => none.close());
    const page = await openPage(browser, none, "#/spans");
    await page.getByText("OTEL_EXPORTER_OTLP_ENDPOINT").waitFor();
    await page.finish();
  });

  it("reports that the server is unavailable, and continues when it is back", async (t) => {
    const server2 = await mockOf({ traces: 50 });
    t.after(() => server2.close());
    const page = await openPage(browser, server2, "#/health");
    await page.locator(".health tbody").waitFor();
    await page.route("**/api/**", (route) => route.abort());
    await page.keyboard.press("r");
    await page.getByText("Is it still running?").waitFor();
    await page.unroute("**/api/**");
    await page.getByRole("button", { name: "Try again" }).click();
    await page.locator(".health tbody").waitFor();
    await page.finish();
  });
});

/** Presses Tab until the element has the focus, and then the key: every control must be reachable
 * without a mouse. */
async function press(page, locator, key = "Enter") {
  await locator.waitFor();
  for (let i = 0; i < 80; i++) {
    if (await locator.evaluate((element) => element === document.activeElement))
      return page.keyboard.press(key);
    await page.keyboard.press("Tab");
  }
  return assert.fail(`Tab does not come to ${locator}`);
}

describe("page: by keyboard alone", { concurrency: false }, () => {
  const button = (page, name) => page.getByRole("button", { name, exact: true });

  it("filters and sorts spans", async () => {
    const page = await open("#/spans");
    await page.locator(".spans .row").first().waitFor();
    await press(page, page.getByLabel("Service"), "c");
    await page.waitForFunction(() => /service=c/.test(location.hash));
    await press(page, button(page, "Errors"), " ");
    await page.has("status", "error");
    await press(page, button(page, "Roots"));
    await page.has("roots", "true");
    await press(page, button(page, "Live"));
    await page.has("live", "1");
    await page.keyboard.press("l");
    await page.has("live", "");
    for (const key of ["status", "roots", "service"]) {
      await page.keyboard.press("Escape");
      await page.has(key, "");
    }
    await press(page, button(page, "CPU"));
    await page.has("sort", "cpu");
    await page.waitForFunction(() =>
      document.querySelector('.spans [aria-sort="descending"]').textContent.includes("CPU"),
    );
    await page.finish();
  });

  it("selects the source and type of samples, and exports", async () => {
    const page = await open(ofSlow());
    await page.locator(".flame canvas").waitFor();
    await press(page, button(page, "With descendants"));
    await page.has("scope", "subtree");
    await press(page, button(page, "Whole trace"), " ");
    await page.has("scope", "trace");
    await press(page, button(page, "Allocated bytes"));
    await page.waitForFunction(() => /type=memory/.test(decodeURIComponent(location.hash)));
    await page.locator(".flame canvas").waitFor();
    await press(page, button(page, "Export"));
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      press(page, page.getByRole("link", { name: "speedscope JSON" })),
    ]);
    assert.equal(download.suggestedFilename(), "profile.speedscope.json");
    await press(page, button(page, "Critical path"));
    await page.has("critical", "0");
    await press(page, page.getByRole("tab", { name: /Profile/ }), "ArrowRight");
    await page.locator(".attributes").first().waitFor();
    await page.finish();
  });

  it("shows functions and calls", async () => {
    const page = await open(range("checkout"));
    await page.locator(".functions .row").first().waitFor();
    await press(page, button(page, "Top"));
    await page.has("show", "table");
    const names = await page
      .locator(".functions .row")
      .evaluateAll((rows) => rows.slice(0, 2).map((row) => row.title));
    await press(page, page.locator(".functions .table-body"), "ArrowDown");
    await page.has("find", names[0]);
    await page.locator(".functions .row-on").waitFor();
    await page.keyboard.press("ArrowDown");
    await page.has("find", names[1]);
    await press(page, button(page, "Total"));
    await page.waitForFunction(() =>
      document.querySelector('.functions [aria-sort="descending"]')?.textContent.includes("Total"),
    );
    await press(page, button(page, "Tree"));
    await page.has("show", "tree");
    await page.locator(".tree .row").first().waitFor();
    await page.finish();
  });

  it("compares", async () => {
    const page = await open("#/compare");
    await page.locator(".flame canvas").waitFor();
    const left = (await page.query()).get("left");
    await press(page, button(page, "Swap A and B"));
    await page.has("right", left);
    await press(page, button(page, "Absolute"));
    await page.has("scale", "absolute");
    await press(page, page.getByTitle(/colour-blind/));
    await page.waitForFunction(() => document.documentElement.dataset.palette === "blue");
    await press(page, button(page, "Slow against typical"));
    await page.waitForFunction(() => location.hash.startsWith("#/compare/slow"));
    await press(page, page.getByLabel("Service"), "c");
    await page.waitForFunction(() => /service=c/.test(location.hash));
    await page.finish();
  });

  it("copies a link, changes the theme, goes from join health to spans, retries after an error", async () => {
    const page = await open("#/health");
    await page.locator(".health tbody tr").first().waitFor();
    await press(page, page.getByRole("button", { name: /link/i }).first());
    await page.waitForFunction(async () =>
      (await navigator.clipboard.readText()).includes("#/health"),
    );
    await press(page, page.getByRole("button", { name: /^Theme/ }));
    await page.waitForFunction(() => document.documentElement.dataset.theme);
    const name = await page.locator(".health tbody th a").first().textContent();
    await press(page, page.locator(".health tbody th a").first());
    await page.has("service", name);
    await page.to("#/spans?min=nonsense");
    const asked = () => server.requests.filter((request) => request.includes("nonsense")).length;
    await button(page, "Try again").waitFor();
    const before = asked();
    await press(page, button(page, "Try again"));
    while (asked() === before) await painted(page);
    await page.finish();
  });
});

describe("page: accessibility", { concurrency: false }, () => {
  for (const [name, hash] of [
    ["services", () => "#/services"],
    ["spans", () => checkout],
    ["a trace", () => ofSlow()],
    ["attributes", () => ofSlow("&tab=attributes")],
    ["a profile", () => range("checkout")],
    ["a call tree", () => range("checkout", "&show=tree")],
    ["callers and callees", () => range("checkout", "&of=DiscountEngine.apply")],
    ["slow against typical", () => "#/compare/slow?service=checkout&name=order.calculate_totals"],
    ["two selections", () => "#/compare"],
    ["join health", () => "#/health"],
    ["privacy", () => "#/privacy"],
    ["privacy of no time", () => "#/privacy?start=0&end=1000"],
    ["an error", () => "#/spans?q=x"],
  ]) {
    for (const [size, viewport] of [
      ["wide", { width: 1280, height: 800 }],
      ["phone", { width: 390, height: 844 }],
    ]) {
      it(`${name} has no axe violations, ${size}`, async () => {
        const page = await open(hash(), { colorScheme: "light", viewport });
        await page.settled();
        await page.waitForFunction(() => !document.querySelector(".skeleton"));
        await checkAccessibility(page, `${name} ${size} light`);
        assert.ok(
          await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth),
          "the page is wider than the window",
        );
        // Only axe's rule about the contrast of text depends on the colours.
        await page.emulateMedia({ colorScheme: "dark" });
        await painted(page);
        await checkAccessibility(page, `${name} ${size} dark`, ["color-contrast"]);
        await page.finish();
      });
    }
  }

  it("the help and the time range have no axe violations", async () => {
    const page = await open("#/health");
    await page.getByRole("button", { name: /^Time range/ }).click();
    await checkAccessibility(page, "time range");
    await page.keyboard.press("Escape");
    await page.keyboard.press("?");
    await page.getByRole("dialog").waitFor();
    await checkAccessibility(page, "help");
    await page.finish();
  });
});
