// SPDX-License-Identifier: Apache-2.0
// Names from outside are isolated: a name that is written from right to left cannot reorder the text beside it. The
// names of services and operations are in every comparison.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { openPage, useMock } from "./browser.js";
import { viewsOf } from "./names.js";

// An override of the direction that is never closed, and a Hebrew letter at each end.
const around = ["\u202e\u05d0", "\u05ea"];

/** Returns the texts of a page in which a name is not isolated. */
const notIsolated = (page) =>
  page.evaluate(() => {
    const name = /[\u202e\u05d0\u05ea]/;
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
        if (!text || /^\u202e\u05d0[^\u202e\u05ea]*\u05ea$/.test(text)) continue;
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
});
