// SPDX-License-Identifier: Apache-2.0
// Names from outside are isolated: a name that is written from right to left cannot reorder the text beside it.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { openPage, useMock } from "./browser.js";

describe("page: names from outside", { concurrency: false }, () => {
  const mock = useMock();
  const spanHash = () => {
    const { trace, id } = mock.server.store.spans.find(
      ({ key }) => key === "checkout/order.calculate_totals",
    );
    return `#/trace/${trace.id}?span=${id}`;
  };

  for (const [name, hash, ready] of [
    ["services", () => "#/services", ".services bdi, main bdi"],
    ["spans", () => "#/spans?service=checkout", ".spans .row"],
    ["a trace", spanHash, ".facts h2"],
    ["join health", () => "#/health", "main table"],
    ["privacy", () => "#/privacy", "main table"],
  ])
    it(`are in <bdi> in ${name}`, async () => {
      const page = await openPage(mock.browser, mock.server, hash());
      await page.locator(ready).first().waitFor();
      const bare = await page.evaluate(() => {
        const found = [];
        const nodes = document.createTreeWalker(
          document.querySelector("main"),
          NodeFilter.SHOW_TEXT,
        );
        while (nodes.nextNode()) {
          const { textContent, parentElement } = nodes.currentNode;
          if (
            /\b(checkout|pricing|order\.calculate_totals)\b/.test(textContent) &&
            !parentElement.closest("bdi, option, input, textarea")
          )
            found.push(`${parentElement.outerHTML.slice(0, 120)}`);
        }
        return found;
      });
      assert.deepEqual(bare, []);
      await page.finish();
    });
});
