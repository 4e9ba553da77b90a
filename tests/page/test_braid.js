// SPDX-License-Identifier: Apache-2.0
// The page served by Braid, with data that it stored: $BRAID, or build/braid.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { after, before, describe, it } from "node:test";
import { shop } from "../../web/mock/data.js";
import { send } from "../../web/mock/otlp.js";
import { program, startBraid } from "./braid.js";
import { checkAccessibility, findBar, openPage, patience, startBrowser } from "./browser.js";

/** Opens a file saved by a page in another Braid. */
async function openSlice(file) {
  const child = spawn(
    program,
    [
      "open",
      file,
      "--set=extensions.query.endpoint=127.0.0.1:0",
      "--set=service.telemetry.logs.level=info",
    ],
    { stdio: ["ignore", "ignore", "pipe"] },
  );
  let log = "";
  const port = await new Promise((done, failed) => {
    child.on("exit", (code) => failed(new Error(`braid open ended with ${code}: ${log}`)));
    child.stderr.on("data", (data) => {
      log += data;
      const found = /extension\/query\s+http listening on 127\.0\.0\.1:(\d+)/.exec(log);
      if (found) done(found[1]);
    });
  });
  return {
    url: `http://127.0.0.1:${port}/`,
    close: () =>
      new Promise((done) => {
        child.removeAllListeners("exit");
        child.on("exit", done);
        child.kill("SIGTERM");
      }),
  };
}

describe(
  "page on Braid",
  { concurrency: false, skip: existsSync(program) ? false : `no ${program}` },
  () => {
    let browser, server, data, slow;
    const now = Date.now();
    const get = async (path) => {
      const answer = await fetch(`${server.url}api/braid/${path}`);
      assert.equal(answer.status, 200, `${path}: ${await answer.clone().text()}`);
      return answer.json();
    };
    before(async () => {
      server = await startBraid();
      browser = await startBrowser();
      data = shop({ traces: 600, endMs: now - 5000, lengthMs: 1800e3 });
      await send(server.otlp, data.spans);
      slow = data.spans
        .filter((span) => span.key === "checkout/order.calculate_totals")
        .sort((a, b) => b.durationMs - a.durationMs)[0];
      const end = Date.now() + patience;
      const stored = async () =>
        (await get("status")).store.spans >= data.spans.length &&
        (await get(`spans/${slow.trace.id}/${slow.id}/profile?scope=self`)).samples >= slow.samples;
      while (!(await stored()))
        assert.ok(
          Date.now() < end,
          `what was sent is not stored: ${JSON.stringify((await get("status")).store)}`,
        );
    });
    after(async () => {
      await browser?.close();
      await server?.close();
    });
    const open = (hash, options) => openPage(browser, server, hash, { clock: false, ...options });

    it("lists the operations with the sums of their spans", async () => {
      const page = await open(`#/?start=${now - 3600e3}&end=${now}`);
      await page.locator(".operations .row").first().waitFor();
      const named = page.locator(".operations .row", { has: page.locator("a:not(.aside)") });
      const keys = new Set(data.spans.map((span) => `${span.service}\n${span.name}`));
      assert.equal(await named.count(), keys.size);
      const answer = await get(`operations?start=${now - 3600e3}&end=${now}`);
      assert.equal(answer.total.spans, data.spans.length);
      const samples = data.spans.reduce((sum, span) => sum + span.samples, 0);
      assert.equal(answer.total.samples, samples);
      const first = answer.operations[0];
      const shown = page.locator(".operations .row").first();
      assert.equal(await shown.locator(".of-operation").textContent(), first.name);
      const share = first.subtree_cpu_ns / answer.total.cpu_ns;
      assert.equal(
        Number.parseFloat(await shown.locator(".of-cpu .number").textContent()),
        Number((share * 100).toFixed(share < 0.1 ? 2 : 1)),
      );
      await page.finish();
    });

    it("is served with its policy, compressed, and with caching headers", async () => {
      const index = await fetch(server.url);
      const policy = index.headers.get("content-security-policy");
      for (const rule of [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
      ])
        assert.ok(policy.split("; ").includes(rule), rule);
      assert.equal(index.headers.get("x-content-type-options"), "nosniff");
      assert.equal(index.headers.get("referrer-policy"), "no-referrer");
      assert.equal(index.headers.get("cross-origin-opener-policy"), "same-origin");
      assert.equal(index.headers.get("cross-origin-resource-policy"), "same-origin");
      assert.equal(index.headers.get("cache-control"), "no-cache");
      const html = await index.text();
      const assets = [...html.matchAll(/(?:src|href)="\.\/(assets\/[^"]+)"/g)].map(
        (match) => match[1],
      );
      assert.equal(assets.length, 3);
      for (const path of assets) {
        const texts = new Set();
        for (const coding of ["br", "gzip", "identity", "gzip;q=0, br;q=0"]) {
          const asset = await fetch(server.url + path, { headers: { "accept-encoding": coding } });
          assert.equal(
            asset.headers.get("content-encoding"),
            { br: "br", gzip: "gzip" }[coding] ?? null,
            coding,
          );
          assert.match(asset.headers.get("cache-control"), /immutable/);
          assert.match(asset.headers.get("vary"), /accept-encoding/i);
          texts.add(await asset.text());
        }
        assert.equal(texts.size, 1, `${path}: the codings differ`);
        const etag = (await fetch(server.url + path)).headers.get("etag");
        assert.equal(
          (await fetch(server.url + path, { headers: { "if-none-match": etag } })).status,
          304,
        );
        assert.equal(
          (await fetch(server.url + path, { headers: { "if-none-match": 'W/"other"' } })).status,
          200,
        );
      }
      for (const path of [
        "assets/",
        "assets/none.js",
        "assets/..%2findex.html",
        "assets/%2e%2e/x",
        "index.htm",
        "..%2f..%2fetc%2fpasswd",
      ])
        assert.equal((await fetch(server.url + path)).status, 404, path);
    });

    it("shows the slow spans, and the flame graph of exactly one of them", async () => {
      const page = await open("#/spans?service=checkout&name=order.calculate_totals");
      await page.locator(".spans .row").first().waitFor();
      await page.locator(".heat canvas").waitFor();
      const wanted = data.spans.filter((span) => span.key === slow.key).length;
      await page.waitForFunction(
        (n) => document.querySelector(".foot").textContent.startsWith(`${n} spans`),
        wanted,
      );
      await page.locator(".spans .badge").first().click();
      await page.waitForFunction((id) => location.hash.startsWith(`#/trace/${id}`), slow.trace.id);
      await page.locator(".flame canvas").waitFor();
      assert.equal(
        await page.locator(".waterfall").getAttribute("aria-rowcount"),
        String(slow.trace.spans.length + 1),
      );
      const samples = await page.locator(".figures dd").nth(2).textContent();
      assert.equal(Number(samples.replace(",", "")), slow.samples);
      await findBar(page, "OrderService.calculate_totals");
      await page.getByRole("button", { name: "With descendants" }).click();
      await page.has("scope", "subtree");
      await page.getByRole("button", { name: "Whole trace" }).click();
      await page.has("scope", "trace");
      await page.waitForLoadState("networkidle");
      await page.locator(".flame canvas").waitFor();
      await page.getByRole("tab", { name: /Attributes/ }).click();
      await page.getByRole("rowheader", { name: "order.items" }).waitFor();
      await page.finish();
    });

    it("exports what it shows", async () => {
      const page = await open(`#/trace/${slow.trace.id}?span=${slow.id}`);
      await page.locator(".flame canvas").waitFor();
      for (const name of [
        "pprof (gzip)",
        "speedscope JSON",
        "Folded stacks",
        "OTLP JSON of the trace",
      ]) {
        await page.getByRole("button", { name: "Export" }).click();
        const [download] = await Promise.all([
          page.waitForEvent("download"),
          page.getByRole("link", { name }).click(),
        ]);
        assert.equal(await download.failure(), null, name);
      }
      await page.finish();
    });

    it("leads from a slow request to the function in another service by two clicks", async () => {
      const path = `service=web&name=${encodeURIComponent("POST /checkout")}`;
      const answer = await get(`slow?${path}`);
      for (const side of ["typical", "slow"])
        assert.equal(
          answer.parts.reduce((all, part) => all + part[`${side}_ns`], 0),
          answer[side].mean_duration_ns,
        );
      const page = await open(`#/spans?${path}`);
      await page.getByRole("link", { name: /Why are slow ones slow/ }).click();
      await page.locator(".answer a").first().waitFor();
      assert.match(
        await page.locator(".answer").textContent(),
        /^\+[\d.]+ m?s: [\d.]+ m?s in checkout order\.place \(\d+(\.\d+)?%\)/,
      );
      await page.locator(".answer a").first().click();
      await page.has("of_name", "POST /checkout");
      await page.waitForFunction(
        (names) => names.includes(document.querySelector(".slow-why em + code")?.textContent),
        ["parse", "_code", "compile", "deepcopy"],
      );
      await page.finish();
    });

    it("shows the causes of slow spans", async () => {
      const page = await open("#/compare/slow?service=checkout&name=order.calculate_totals");
      await page.locator(".slow-why em").waitFor();
      const first = await page.locator(".slow-why tbody th").first().textContent();
      assert.ok(["parse", "_code", "compile", "deepcopy"].includes(first), first);
      await page.finish();
    });

    it("shows memory in use as an average over time", async () => {
      for (const [k, value] of [3072, 1024].entries()) {
        const profile = {
          sampleType: { typeStrindex: 1, unitStrindex: 2 },
          periodType: { typeStrindex: 3, unitStrindex: 2 },
          period: 524288,
          timeUnixNano: `${now - 60000 + 1000 * k}000000`,
          samples: [{ stackIndex: 1, values: [value] }],
        };
        const dictionary = {
          stringTable: ["", "inuse_space", "bytes", "space", "allocate"],
          mappingTable: [{}],
          linkTable: [{}],
          attributeTable: [{}],
          functionTable: [{}, { nameStrindex: 4 }],
          locationTable: [{}, { lines: [{ functionIndex: 1 }] }],
          stackTable: [{}, { locationIndices: [1] }],
        };
        const resource = { attributes: [{ key: "service.name", value: { stringValue: "heap" } }] };
        const body = JSON.stringify({
          resourceProfiles: [{ resource, scopeProfiles: [{ profiles: [profile] }] }],
          dictionary,
        });
        const answer = await fetch(`${server.otlp}v1development/profiles`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body,
        });
        assert.equal(answer.status, 200, await answer.text());
      }
      const end = Date.now() + patience;
      const query = encodeURIComponent('{service_name="heap"}');
      while ((await get(`profile?query=${query}`)).samples < 2)
        assert.ok(Date.now() < end, "the heap's profiles are not stored");
      const page = await open(`#/profile?query=${query}`);
      await page.getByText(/2(\.0+)? KiB on average over this time/).waitFor();
      await findBar(page, "allocate");
      await page.to(
        `#/compare?left=${encodeURIComponent(`query=${query}`)}&right=${encodeURIComponent(`query=${query}`)}`,
      );
      await page
        .getByText(/2(\.0+)? KiB on average/)
        .first()
        .waitFor();
      await page.finish();
    });

    it("compares, shows a service's profile, its join health, and rejects bad TraceQL with a message", async () => {
      const page = await open("#/compare");
      await page.locator(".flame canvas").waitFor();
      await page.to(`#/profile?query=${encodeURIComponent('{service_name="checkout"}')}`);
      await page.locator(".functions .row").first().waitFor();
      await page.to("#/health");
      await page.locator(".health tbody tr").first().waitFor();
      await page.to("#/spans?q=%7B");
      await page.getByRole("alert").waitFor();
      await page.finish();
    });

    it("saves a slice that another Braid opens under the same link", async () => {
      const page = await open(`#/trace/${slow.trace.id}?span=${slow.id}`);
      await page.locator(".flame canvas").waitFor();
      await page.getByRole("button", { name: "Save this data" }).click();
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("link", { name: "Save a file" }).click(),
      ]);
      assert.match(download.suggestedFilename(), /^braid-\d{8}-\d{6}\.tar$/);
      await download.path();
      const opened = await openSlice(await download.path());
      try {
        const other = await openPage(browser, opened, `#/trace/${slow.trace.id}?span=${slow.id}`, {
          clock: false,
        });
        await other.locator(".flame canvas").waitFor();
        assert.equal(
          await other.locator(".waterfall").getAttribute("aria-rowcount"),
          String(slow.trace.spans.length + 1),
        );
        const samples = await other.locator(".figures dd").nth(2).textContent();
        assert.equal(Number(samples.replace(",", "")), slow.samples);
        await other.finish();
      } finally {
        await opened.close();
      }
      await page.finish();
    });

    it("shows data that may be private", async () => {
      const page = await open("#/privacy");
      await page
        .getByRole("row", { name: /customer\.email/ })
        .getByText("person, by its key")
        .waitFor();
      await page.getByText("No redaction processor in this configuration").waitFor();
      await page.finish();
    });

    it("shows new spans live", async () => {
      const page = await open("#/spans?live=1&service=web");
      await page.getByText("Waiting for spans").waitFor();
      const fresh = shop({ traces: 20, endMs: Date.now(), lengthMs: 1000, seed: 11 });
      await send(server.otlp, fresh.spans);
      await page.locator(".spans .row").first().waitFor();
      await page.finish();
    });

    it("has no axe violations", async () => {
      for (const hash of [
        "#/spans",
        `#/trace/${slow.trace.id}?span=${slow.id}`,
        "#/health",
        "#/privacy",
      ]) {
        const page = await open(hash);
        await page.waitForLoadState("networkidle");
        await checkAccessibility(page, hash);
        await page.finish();
      }
    });
  },
);
