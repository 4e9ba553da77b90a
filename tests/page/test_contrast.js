// SPDX-License-Identifier: Apache-2.0
// The contrast of all texts, also of dimmed ones, is at least 4.5:1 (WCAG 2.2, 1.4.3), in light and dark colours. In
// contrast to axe's rule, the check includes the opacity of ancestors, and texts over parts of a picture.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import ts from "typescript";
import { openPage, useMock } from "./browser.js";
import { viewsOf } from "./names.js";

const source = readFileSync(new URL("../../web/src/color.ts", import.meta.url), "utf8");
const { outputText } = ts.transpileModule(source, {
  compilerOptions: { module: "esnext", target: "esnext" },
});
const { changeColor, flameColors, packageColor, serviceColor, valueColor } = await import(
  `data:text/javascript,${encodeURIComponent(outputText)}`
);

/** Adds the functions that compute contrasts to a page. */
const addContrast = () => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const known = new Map();
  /** Returns a CSS colour as premultiplied sRGB from 0 to 1, and alpha. */
  const colorOf = (css) => {
    if (!known.has(css)) {
      // Over black and over white, since the pixels of a canvas lose precision with a low alpha.
      const over = (ground) => {
        context.globalCompositeOperation = "source-over";
        context.fillStyle = ground;
        context.fillRect(0, 0, 1, 1);
        context.fillStyle = css;
        context.fillRect(0, 0, 1, 1);
        return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((value) => value / 255);
      };
      const [black, white] = [over("#000"), over("#fff")];
      known.set(css, [...black, 1 - (white[1] - black[1])]);
    }
    return known.get(css);
  };
  const over = (top, below) => top.map((value, i) => value + below[i] * (1 - top[3]));
  const faded = (color, opacity) => color.map((value) => value * opacity);
  const luminance = (color) => {
    const [r, g, b] = color.map((value) =>
      value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4,
    );
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratioOf = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const clear = [0, 0, 0, 0];
  let styles = new Map(); // computed styles are slow to read
  const styleOf = (element) => {
    if (!styles.has(element)) {
      const { backgroundColor, opacity } = getComputedStyle(element);
      styles.set(element, { ground: colorOf(backgroundColor), opacity: Number(opacity) });
    }
    return styles.get(element);
  };
  const opacityUpTo = (element, top) => {
    let product = 1;
    for (let at = element; at && at !== top; at = at.parentElement) product *= styleOf(at).opacity;
    return product;
  };
  /** Returns the colour that a layer of an element has on the screen. `point` is in the middle of the text. */
  const shown = (element, layer, point) => {
    // Boxes below the text that do not contain it, such as the bar of a span, from the upper to the lower one.
    const under = document
      .elementsFromPoint(...point)
      .filter((one) => !one.contains(element) && !element.contains(one));
    let color = layer;
    for (let at = element; at; at = at.parentElement) {
      const style = styleOf(at);
      for (const one of under.filter((other) => at.contains(other)))
        color = over(color, faded(styleOf(one).ground, opacityUpTo(one, at)));
      under.splice(0, under.length, ...under.filter((other) => !at.contains(other)));
      color = faded(over(color, style.ground), style.opacity);
    }
    return color; // opaque, since the body has a background
  };
  window.contrastOf = (text, ground) => ratioOf(colorOf(text), colorOf(ground));
  /** Returns the texts whose contrast is too low. */
  window.lowContrasts = (least) => {
    const found = [];
    let texts = 0;
    styles = new Map();
    const add = (element, color, rect, text) => {
      const point = [rect.left + rect.width / 2, rect.top + rect.height / 2];
      if (point[0] < 0 || point[1] < 0 || point[0] >= innerWidth || point[1] >= innerHeight) return;
      const top = document.elementFromPoint(...point);
      // A text that is scrolled out of its box, or below another box.
      if (!top || !element.contains(top)) return;
      texts++;
      const ratio = ratioOf(shown(element, colorOf(color), point), shown(element, clear, point));
      if (ratio < least)
        found.push(
          `${ratio.toFixed(2)}: ${text.trim().slice(0, 40)} <${element.tagName.toLowerCase()} class="${element.className}">`,
        );
    };
    const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (nodes.nextNode()) {
      const { parentElement, textContent } = nodes.currentNode;
      if (!textContent.trim() || !parentElement.checkVisibility({ visibilityProperty: true }))
        continue;
      if (parentElement.closest(".hidden, option, .said:not(.said-on)")) continue;
      const range = document.createRange();
      range.selectNodeContents(nodes.currentNode);
      const rect = [...range.getClientRects()].find(({ width }) => width > 2);
      if (rect) add(parentElement, getComputedStyle(parentElement).color, rect, textContent);
    }
    for (const field of document.querySelectorAll("input:not([type=checkbox]), select"))
      if (field.checkVisibility({ visibilityProperty: true })) {
        const rect = field.getBoundingClientRect();
        add(field, getComputedStyle(field).color, rect, field.value || "field");
        if (field.placeholder)
          add(field, getComputedStyle(field, "::placeholder").color, rect, field.placeholder);
      }
    return { found: [...new Set(found)], texts };
  };
};

const least = 4.5;

for (const colorScheme of ["light", "dark"])
  describe(`page: contrast, ${colorScheme}`, { concurrency: false }, () => {
    const mock = useMock({ traces: 300 });
    const open = async (hash, options) => {
      const page = await openPage(mock.browser, mock.server, hash, { colorScheme, ...options });
      await page.evaluate(addContrast);
      return page;
    };
    const check = async (page) => {
      const { found, texts } = await page.evaluate((ratio) => window.lowContrasts(ratio), least);
      assert.deepEqual(found, []);
      assert.ok(texts > 10, `only ${texts} texts`);
    };

    for (const [device, viewport] of [
      ["1280x800", { width: 1280, height: 800 }],
      ["390x844", { width: 390, height: 844 }],
    ])
      it(`of the texts of every view, ${device}`, async (t) => {
        const page = await open("#/services", { viewport });
        for (const [name, hash, ready] of viewsOf(mock.server))
          await t.test(name, async () => {
            await page.to(hash);
            await page.locator(ready).first().waitFor();
            await page.settled();
            await check(page);
            // A part of the page that is scrolled into view has the same colours as a chosen row.
            if (await page.locator(".spans, .operations").count()) {
              await page.keyboard.press("ArrowDown");
              await page.locator(".row-focus").first().waitFor();
              await check(page);
              await page.keyboard.press("Escape");
            }
          });
        await page.finish();
      });

    it("of differences in the palette for the colour-blind", async () => {
      const page = await open("#/services");
      await page.evaluate(() => localStorage.setItem("braid.palette", "blue"));
      await page.reload();
      await page.evaluate(addContrast);
      for (const [, hash, ready] of viewsOf(mock.server).filter(([, to]) =>
        to.includes("/compare"),
      )) {
        await page.to(hash);
        await page.locator(ready).first().waitFor();
        await page.settled();
        await check(page);
      }
      await page.finish();
    });

    it("of errors, of messages and of empty lists", async () => {
      const page = await open(`#/trace/${"f".repeat(32)}`);
      await page.locator(".failed").waitFor();
      await check(page);
      await page.to("#/spans?q=broken");
      await page.locator(".search-error").waitFor();
      await check(page);
      await page.to("#/spans?min=5s&service=mail");
      await page.locator(".empty").waitFor();
      await check(page);
      await page.getByRole("button", { name: "Copy the link" }).click();
      await page.locator(".said-on").waitFor();
      await check(page);
      await page.finish();
    });

    it("of controls that are disabled, of the menus and of the help", async () => {
      const page = await open("#/spans");
      await page.locator(".spans .row").first().waitFor();
      await page.getByRole("button", { name: /^Time range/ }).click();
      await page.getByLabel("To", { exact: true }).fill("2000-01-01T00:00:00");
      await page.getByRole("button", { name: "Apply" }).and(page.locator(":disabled")).waitFor();
      await check(page);
      await page.getByRole("button", { name: "Apply" }).hover({ force: true });
      await check(page);
      await page.keyboard.press("Escape");
      await page.getByRole("button", { name: "Save this data" }).click();
      await page.locator(".save a").waitFor();
      await check(page);
      await page.keyboard.press("Escape");
      await page.getByRole("button", { name: "Keys" }).click();
      await page.locator("dialog.help[open]").waitFor();
      await check(page);
      await page.finish();
    });

    it("of texts on bars", async () => {
      const page = await open("#/services");
      const dark = colorScheme === "dark";
      const colors = flameColors(dark);
      const names = Array.from({ length: 400 }, (_, i) => `github.com/team${i}/module`);
      const shares = Array.from({ length: 21 }, (_, i) => i / 20);
      const changes = [...shares, ...shares.map((share) => -share)];
      const pairs = [
        ["dimmed", colors.dimText, colors.dim],
        ["a match", colors.matchText, colors.match],
        ["the root, and noise", colors.text, colors.root],
        ...names.map((name) => [`package ${name}`, colors.text, packageColor(name, dark)]),
        ...shares.map((share) => [`value ${share}`, colors.text, valueColor(share, dark)]),
        ...[false, true].flatMap((blind) =>
          changes.map((by) => [
            `change ${by}, ${blind}`,
            colors.text,
            changeColor(by, blind, dark),
          ]),
        ),
        // Durations on the bars of a trace, and names on parts of a mean duration.
        ...names.flatMap((name) => [
          [`bar of ${name}`, dark ? "#0d0f10" : "#ffffff", serviceColor(name, dark)],
          [`part of ${name}`, dark ? "#121416" : "#ffffff", serviceColor(name, dark)],
        ]),
      ];
      const low = await page.evaluate(
        ([all, ratio]) =>
          all
            .map(([name, text, ground]) => [name, window.contrastOf(text, ground)])
            .filter(([, contrast]) => contrast < ratio)
            .map(([name, contrast]) => `${contrast.toFixed(2)}: ${name}`),
        [pairs, least],
      );
      assert.deepEqual(low, []);
      await page.finish();
    });
  });
