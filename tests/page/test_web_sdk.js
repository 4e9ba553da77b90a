// SPDX-License-Identifier: Apache-2.0
// OpenTelemetry's web SDK in Debian's chromium, on a page of another origin, sends spans to $BRAID, or build/braid. Up to 0.203 it
// sends them with sendBeacon, which always has credentials; later ones use fetch.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { createServer } from "node:http";
import { after, before, describe, it } from "node:test";
import { build } from "../../web/node_modules/vite/dist/node/index.js";
import { program, startBraid } from "./braid.js";
import { patience, startBrowser } from "./browser.js";

const versions = [
  ["old", "ping"],
  ["new", "fetch"],
]; // the content type of their requests

/** A page of another origin, whose paths /old and /new use that version of the SDK. */
async function startPage() {
  const bundles = {};
  for (const [version] of versions) {
    const made = await build({
      root: import.meta.dirname,
      configFile: false,
      logLevel: "error",
      build: {
        write: false,
        lib: { entry: `web_sdk_${version}.js`, formats: ["iife"], name: "sdk" },
      },
      define: { "process.env.NODE_ENV": '"production"' },
    });
    bundles[`/${version}.js`] = [made].flat()[0].output[0].code;
  }
  const server = createServer((request, response) => {
    const code = bundles[request.url];
    response.setHeader("content-type", code ? "text/javascript" : "text/html");
    response.end(
      code ?? `<!doctype html><title>page</title><script src="${request.url}.js"></script>`,
    );
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return {
    origin: `http://localhost:${server.address().port}`,
    close: () => new Promise((done) => server.close(done)),
  };
}

describe(
  "web SDK",
  { concurrency: false, skip: existsSync(program) ? false : `no ${program}` },
  () => {
    let browser, page;
    before(async () => {
      browser = await startBrowser();
      page = await startPage();
    });
    after(async () => {
      await browser?.close();
      await page?.close();
    });

    /** Returns the content type of a version's request with its span, and the names of the spans in
     * `braid` afterwards. */
    async function send(version, braid) {
      const tab = await browser.newPage();
      const sent = tab.waitForEvent("request", {
        predicate: (request) => request.url().endsWith("/v1/traces"),
        timeout: patience,
      });
      await tab.goto(`${page.origin}/${version}`);
      await tab.evaluate(
        ([url, name]) => window.sendSpan(url, name).catch(() => {}),
        [`${braid.otlp}v1/traces`, version],
      );
      const request = await sent;
      await Promise.race([
        tab.waitForEvent("requestfinished"),
        tab.waitForEvent("requestfailed"),
      ]).catch(() => {});
      await tab.close();
      return request.resourceType();
    }
    const names = async (braid) =>
      (await (await fetch(`${braid.url}api/braid/spans`)).json()).spans.map((span) => span.name);

    for (const [version, type] of versions) {
      it(`${version}: its spans arrive if cors names the origin`, async () => {
        const braid = await startBraid(`, cors: {allowed_origins: ["${page.origin}"]}`);
        assert.equal(await send(version, braid), type);
        const end = Date.now() + patience;
        while (!(await names(braid)).includes(version))
          assert.ok(Date.now() < end, "the span did not arrive");
        await braid.close();
      });
    }
  },
);
