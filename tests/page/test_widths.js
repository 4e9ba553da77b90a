// SPDX-License-Identifier: Apache-2.0
// Names of more than 300 characters without spaces: the page does not scroll sideways, and no text is cut off without
// an ellipsis.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { openPage, useMock } from "./browser.js";
import { viewsOf, visitOverlays } from "./names.js";

// Also longer than 300 characters behind the last slash of a file, and before the first one.
const around = ["w".repeat(300), "m".repeat(300)];

/** Returns the texts and controls that are cut off, or that reach beyond the area that belongs to them. */
const tooWide = (page) =>
  page.evaluate(() => {
    const found = [];
    const slack = 1.5; // rounding of positions
    const say = (element, why, text) =>
      found.push(`${why}: <${element.tagName.toLowerCase()} class="${element.className}"> ${text}`);
    const isHidden = (element) =>
      !element.checkVisibility({ visibilityProperty: true }) ||
      element.closest("canvas, svg, dialog:not([open]), option") !== null;

    /** Checks that a rectangle is visible in each of the areas around it. `first` is the area that it belongs to. */
    const check = (first, rect, text) => {
      let boxed = false;
      for (let area = first; area; area = area.parentElement) {
        const style = getComputedStyle(area);
        if (style.display === "contents" || style.display === "inline") continue;
        const box = area.getBoundingClientRect();
        if (box.width <= 1.5) return; // only for screen readers
        const right = box.left + area.clientLeft + area.clientWidth;
        const outside = rect.right > right + slack || rect.left < box.left - slack;
        if (style.overflowX === "visible") {
          if (outside && area === first) return say(area, "beyond its block", text);
        } else if (style.textOverflow === "ellipsis" && !/flex|grid/.test(style.display)) {
          // The browser ends text with an ellipsis. It cuts off boxes in a line.
          if (outside && boxed) return say(area, "a box that is cut off", text);
          return;
        } else if (style.overflowX === "hidden" || style.overflowX === "clip") {
          if (outside) return say(area, "cut off", text);
        } else if (!area.matches("pre") && rect.width > area.clientWidth + slack) {
          // A query scrolls, since the columns of its line have numbers.
          return say(area, "wider than the area that scrolls", text);
        } else return;
        boxed ||= /^inline-/.test(style.display);
        if (style.position === "fixed") return;
      }
      const { width } = document.documentElement.getBoundingClientRect();
      if (rect.right > width + slack || rect.left < -slack) say(first, "beyond the page", text);
    };
    const blockOf = (element) => {
      let at = element;
      while (/^(inline|contents)$/.test(getComputedStyle(at).display)) at = at.parentElement;
      return at;
    };

    const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (nodes.nextNode()) {
      const { parentElement, textContent } = nodes.currentNode;
      if (!textContent.trim() || isHidden(parentElement)) continue;
      const range = document.createRange();
      range.selectNodeContents(nodes.currentNode);
      for (const rect of range.getClientRects())
        if (rect.width > 0) check(blockOf(parentElement), rect, textContent.slice(0, 60));
    }
    for (const control of document.body.querySelectorAll(
      "button, input, select, .icon, .service-mark, .badge",
    ))
      if (!isHidden(control) && control.getBoundingClientRect().width > 0)
        check(control.parentElement, control.getBoundingClientRect(), control.ariaLabel ?? "");
    const { scrollWidth, clientWidth } = document.documentElement;
    if (scrollWidth > clientWidth) found.push(`the page is ${scrollWidth} px wide`);
    return [...new Set(found)];
  });

for (const [device, viewport] of [
  ["1280x800", { width: 1280, height: 800 }],
  ["390x844", { width: 390, height: 844 }],
])
  describe(`page: names of 300 characters, ${device}`, { concurrency: false }, () => {
    const mock = useMock({ around, traces: 300 });
    const open = (hash) => openPage(mock.browser, mock.server, hash, { viewport });

    it("fit into every view", async (t) => {
      const page = await open("#/services");
      for (const [name, hash, ready] of viewsOf(mock.server, around))
        await t.test(name, async () => {
          await page.to(hash);
          await page.locator(ready).first().waitFor();
          await page.settled();
          assert.deepEqual(await tooWide(page), []);
          assert.ok(
            (await page.locator("main").innerHTML()).includes(around[0]),
            "names are shown",
          );
        });
      await page.finish();
    });

    it("fit into tooltips, menus, suggestions, breadcrumbs, messages and dialogs", async () => {
      const name = (text) => `${around[0]}${text}${around[1]}`;
      const check = async (where) => assert.deepEqual(await tooWide(page), [], where);
      const page = await open("#/services");
      await visitOverlays(page, around, check);
      await page.to(`#/spans?q=${encodeURIComponent(`{ name = "${name("none")}" }`)}`);
      await page.locator(".search-chip").waitFor();
      await page.getByText("No spans here").waitFor();
      await check("a condition without spans");
      for (const label of [/^Time range/, "Save this data"]) {
        await page.getByRole("button", { name: label }).click();
        await page.locator(".panel:popover-open").waitFor();
        await check(String(label));
        await page.keyboard.press("Escape");
      }
      await page.keyboard.press("?");
      await page.locator("dialog.help[open]").waitFor();
      await check("the help");
      await page.finish();
    });
  });
