// SPDX-License-Identifier: Apache-2.0
// Markup and scripts in every text that comes from outside, and in every part of a link: none runs, none is markup.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { openPage, useMock } from "./browser.js";

const payload = `<img src=x onerror="window.xss=1">`;

describe("page hostile", { concurrency: false }, () => {
  const mock = useMock({ hostile: true, traces: 300 });

  /** Uses every control of the page that handles the data. */
  const pokeAt = async (page) => {
    await page.settled();
    await page.waitForFunction(() => !document.querySelector(".skeleton"));
    const canvas = page.locator(".flame canvas");
    const box = (await canvas.count()) ? await canvas.first().boundingBox() : null;
    for (let i = 0; box && i < 6; i++)
      await page.mouse.move(box.x + box.width * (0.1 + 0.15 * i), box.y + 30 + 20 * i);
    assert.equal(
      await page
        .locator(
          "#page img, #page iframe, #page script, #page object, #page svg[onload], [onerror], [onload]",
        )
        .count(),
      0,
    );
  };

  const span = () =>
    mock.server.store.spans.find((one) => one.key === "payment/payment.Charge" && one.error);
  for (const [name, hash] of [
    ["names of services and operations", () => "#/"],
    ["names in the list", () => "#/spans"],
    ["names in a trace", () => `#/trace/${span().trace.id}?span=${span().id}`],
    [
      "keys and values of attributes",
      () => `#/trace/${span().trace.id}?span=${span().id}&tab=attributes`,
    ],
    ["events", () => `#/trace/${span().trace.id}?span=${span().id}&tab=events`],
    [
      "functions and files in a flame graph",
      () => `#/profile?query=${encodeURIComponent('{service_name="checkout"}')}`,
    ],
    [
      "functions in a tree",
      () => `#/profile?query=${encodeURIComponent('{service_name="checkout"}')}&show=tree`,
    ],
    ["slow against typical", () => "#/compare/slow?service=checkout&name=order.calculate_totals"],
    ["hints", () => "#/health"],
    ["what may be private, and rules", () => "#/privacy"],
    [
      "links of mail",
      () => {
        const mail = mock.server.store.spans.find((one) => one.name === "mail.Send");
        return `#/trace/${mail.trace.id}?span=${mail.id}&tab=links`;
      },
    ],
  ]) {
    it(`${name}: is shown as text`, async () => {
      const page = await openPage(mock.browser, mock.server, hash());
      await pokeAt(page);
      const text = await page.locator("body").innerText();
      assert.ok(
        /<img|<script|<svg|onerror|javascript:|<iframe/.test(text) ||
          (await page.locator("option").allTextContents()).some((option) => option.includes("<")),
        "no payload is shown",
      );
      await page.finish();
    });
  }

  it("live spans are shown as text", async () => {
    const page = await openPage(mock.browser, mock.server, "#/spans?live=1");
    await page.locator(".spans .row").first().waitFor();
    await page.waitForFunction(() => document.querySelector(".spans").innerText.includes("<"));
    await page.finish();
  });

  it("every part of a link's fragment is shown as text", async () => {
    const evil = encodeURIComponent(payload);
    for (const hash of [
      `#/${evil}`,
      `#/trace/${evil}`,
      `#/trace/${evil}/../../x?span=${evil}`,
      `#/spans?service=${evil}&name=${evil}&q=${evil}&min=${evil}&status=${evil}&sort=${evil}&start=${evil}&end=${evil}`,
      `#/profile?query=${evil}&type=${evil}&find=${evil}&zoom=${evil}&of=${evil}&show=${evil}&color=${evil}`,
      `#/profile?trace=${evil}&span=${evil}&scope=${evil}`,
      `#/compare?left=${evil}&right=${evil}&scale=${evil}`,
      `#/compare/${evil}?service=${evil}&name=${evil}`,
      `#/health?start=${evil}`,
      `#/privacy?start=${evil}&end=${evil}`,
      "#/trace/%E0%A4%A",
      "#/spans?__proto__=1&constructor=2",
      `#javascript:window.xss=1`,
    ]) {
      const page = await openPage(mock.browser, mock.server, hash);
      await page.settled();
      await page.locator("header.top").waitFor();
      await page.locator("main").waitFor();
      await page.finish();
    }
  });

  it("an invalid time is not saved, and names in the suggested config are quoted", async () => {
    const page = await openPage(
      mock.browser,
      mock.server,
      `#/spans?start=${encodeURIComponent(payload)}&end=javascript:1`,
    );
    await page.getByRole("button", { name: "Save this data" }).click();
    await page.getByText("This time range is invalid").waitFor();
    assert.equal(await page.locator(".save a").count(), 0);
    await page.to("#/privacy");
    await page.getByText("Configuration that removes these values").click();
    await page.locator(".suggestion pre").waitFor();
    await pokeAt(page);
    const targets = await page
      .locator("a")
      .evaluateAll((links) => links.map((link) => new URL(link.href).origin));
    assert.deepEqual([...new Set(targets)], [new URL(mock.server.url).origin]);
    await page.finish();
  });

  it("no link runs a script", async () => {
    const page = await openPage(mock.browser, mock.server, "#/spans");
    await page.locator(".spans .row").first().waitFor();
    const targets = await page
      .locator("a")
      .evaluateAll((links) => links.map((link) => new URL(link.href).protocol));
    assert.deepEqual([...new Set(targets)], ["http:"]);
    await page.finish();
  });

  it("right-to-left and very long texts do not break a row", async () => {
    const page = await openPage(mock.browser, mock.server, "#/spans");
    await page.locator(".spans .row").first().waitFor();
    const heights = await page
      .locator(".spans .row")
      .evaluateAll((rows) => [...new Set(rows.map((row) => row.offsetHeight))]);
    assert.deepEqual(heights, [30]);
    await page.finish();
  });
});
