// SPDX-License-Identifier: Apache-2.0
// Times in the time zone of the browser, and in UTC.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { now, openPage, useMock } from "./browser.js";

describe("page: time zone", { concurrency: false }, () => {
  const mock = useMock();

  for (const [timezoneId, minutes, name] of [
    ["Asia/Kolkata", 330, "UTC+5:30"],
    ["America/New_York", -300, "UTC−5"],
    ["UTC", 0, "UTC"],
  ])
    it(`shows the times of ${timezoneId}, and of UTC`, async () => {
      const page = await openPage(mock.browser, mock.server, "#/spans?sort=start", { timezoneId });
      const last = mock.server.store.spans.findLast((span) => span.startMs <= now);
      const shown = page.locator(".spans .row .col-start").first();
      const clock = (offset) =>
        new Date(Math.round(last.startMs * 1e6) / 1e6 + offset * 60e3).toISOString().slice(11, 23);
      await shown.waitFor();
      assert.ok((await shown.textContent()).endsWith(clock(minutes)));
      assert.equal(await page.locator(".range-zone").textContent(), name);
      await page.keyboard.press("u");
      await page.waitForFunction(
        (text) => document.querySelector(".spans .row .col-start").textContent.endsWith(text),
        clock(0),
      );
      assert.equal(await page.locator(".range-zone").textContent(), "UTC");
      // The choice is kept, and applies to what the user enters.
      await page.reload();
      await shown.waitFor();
      assert.ok((await shown.textContent()).endsWith(clock(0)));
      await page.getByRole("button", { name: /^Time range/ }).click();
      const from = page.getByLabel("From", { exact: true });
      assert.equal(await from.inputValue(), new Date(now - 3600e3).toISOString().slice(0, 16));
      await page.getByRole("button", { name: "Local time" }).click();
      const local = new Date(now - 3600e3 + minutes * 60e3).toISOString().slice(0, 16);
      assert.equal(await from.inputValue(), local);
      await page.getByRole("button", { name: "UTC", exact: true }).click();
      await from.fill("2026-11-22T14:10:00");
      await page.getByLabel("To", { exact: true }).fill("2026-11-22T14:20:00");
      await page.getByRole("button", { name: "Apply" }).click();
      await page.has("start", String(Date.parse("2026-11-22T14:10:00Z")));
      await page.finish();
    });

  it("states the zone of a trace", async () => {
    const { id } = mock.server.store.spans[0].trace;
    const page = await openPage(mock.browser, mock.server, `#/trace/${id}`, {
      timezoneId: "Asia/Kolkata",
    });
    await page.locator(".title").getByText("UTC+5:30").waitFor();
    await page.finish();
  });
});
