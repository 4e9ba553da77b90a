// SPDX-License-Identifier: Apache-2.0
// Closing a menu, a popover, a dialog or a panel returns the focus to the element that opened it, unless the user has
// moved the focus elsewhere.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { checkAccessibility, findBar, openPage, openSettled, useMock } from "./browser.js";

describe("page: focus", { concurrency: false }, () => {
  const mock = useMock({ traces: 300 });
  const open = (hash, ready) => openSettled(mock, hash, ready);
  const focused = (page, locator) =>
    locator
      .evaluate(
        (element) =>
          new Promise((done) => {
            const look = (frames) =>
              document.activeElement === element || !frames
                ? done(
                    document.activeElement === element ||
                      document.activeElement?.outerHTML.slice(0, 200),
                  )
                : requestAnimationFrame(() => look(frames - 1));
            look(60);
          }),
      )
      .then((result) => assert.equal(result, true));
  /** Clicks between the links and the buttons of the header, where nothing can have the focus. */
  const clickNowhere = (page) => page.mouse.click(760, 24);
  const spanOf = (name, fits = () => true) => {
    const span = mock.server.store.spans.find((one) => one.name === name && fits(one));
    return `#/trace/${span.trace.id}?span=${span.id}`;
  };
  const totals = () => spanOf("order.calculate_totals", ({ samples }) => samples > 0);
  const profile = `#/profile?query=${encodeURIComponent('{service_name="checkout"}')}&show=flame`;

  for (const [name, label, hash, ready, choose] of [
    ["the time range", /^Time range/, () => "#/spans", ".spans .row", "Last 3 hours"],
    ["saving", "Save this data", () => "#/spans", ".spans .row", null],
    ["the export", "Export", totals, ".details .flame", null],
    [
      "the export of a span without samples",
      "Export",
      () => spanOf("mail.Send"),
      ".details .empty",
      null,
    ],
    ["the export of a profile", "Export", () => profile, ".flame", null],
  ])
    it(`returns from ${name} to its button`, async () => {
      const page = await open(hash(), ready);
      const button = page.getByRole("button", { name: label, exact: true });
      const panel = page.locator(".popover > .panel:popover-open");
      for (const close of [
        () => page.keyboard.press("Escape"),
        async () => {
          await page.keyboard.press("Tab"); // into the panel
          assert.ok(await panel.evaluate((element) => element.contains(document.activeElement)));
          await page.keyboard.press("Escape");
        },
        () => clickNowhere(page),
        ...(choose ? [() => panel.getByText(choose).click()] : []),
      ]) {
        for (const activate of [() => button.click(), () => button.press("Enter")]) {
          await activate();
          await panel.waitFor();
          await close();
          await panel.waitFor({ state: "detached" });
          await focused(page, button);
        }
      }
      // A click on another control moves the focus there.
      await button.click();
      await panel.waitFor();
      const other = page.locator("main .segments button").first();
      await other.focus();
      await page.keyboard.press("Escape");
      await panel.waitFor({ state: "detached" });
      await focused(page, other);
      await page.finish();
    });

  it("returns from the help to its button, or to the element that had the focus", async () => {
    const page = await open("#/spans", ".spans .row");
    const button = page.getByRole("button", { name: "Keys" });
    const list = page.locator(".spans");
    const help = page.locator("dialog.help[open]");
    for (const [opener, activate] of [
      [button, () => button.click()],
      [button, () => button.press("Enter")],
      [list, async () => (await list.focus(), page.keyboard.press("?"))],
    ])
      for (const close of [
        () => page.keyboard.press("Escape"),
        () => help.getByRole("button", { name: "Close" }).click(),
        () => page.mouse.click(5, 400), // beside the dialog
      ]) {
        await activate();
        await help.waitFor();
        await close();
        await help.waitFor({ state: "detached" });
        await focused(page, opener);
      }
    await page.finish();
  });

  it("returns from the menu of a bar to the flame graph", async () => {
    const page = await open(profile, ".flame");
    const flame = page.locator(".flame");
    const menu = page.getByRole("menu");
    const at = await findBar(page, "OrderService.calculate_totals");
    const byMouse = async () => {
      await page.mouse.click(at.x, at.y, { button: "right" });
      await menu.waitFor();
    };
    const byKey = async () => {
      await flame.press("ContextMenu");
      await menu.waitFor();
    };
    for (const activate of [byMouse, byKey])
      for (const close of [
        () => page.keyboard.press("Escape"),
        () => page.getByRole("menuitem", { name: "Copy the name" }).click(),
        () => page.getByRole("menuitem", { name: "Copy the name" }).press("Enter"),
        () => page.getByRole("menuitem", { name: /recursive calls/ }).press("Enter"),
        () => clickNowhere(page),
      ]) {
        await activate();
        await close();
        await menu.waitFor({ state: "detached" });
        await focused(page, flame);
      }
    // A click into a field moves the focus there.
    await byMouse();
    await page.locator("#find").click();
    await menu.waitFor({ state: "detached" });
    await focused(page, page.locator("#find"));
    await page.finish();
  });

  it("returns from callers and callees to the flame graph", async () => {
    const page = await open(profile.replace("&show=flame", ""), ".flame");
    const flame = page.locator(".profile-body .flame");
    const at = await findBar(page, "OrderService.calculate_totals");
    const sandwich = page.locator(".sandwich");
    for (const activate of [
      () => page.mouse.dblclick(at.x, at.y),
      async () => {
        await page.mouse.click(at.x, at.y, { button: "right" });
        await page.getByRole("menuitem", { name: "Callers and callees" }).press("Enter");
      },
      async () => {
        await flame.focus();
        await page.keyboard.press("ArrowDown");
        await page.keyboard.press("ArrowDown");
        await page.keyboard.press("s");
      },
    ])
      for (const close of [
        () => page.keyboard.press("Escape"),
        () => page.getByRole("button", { name: "Close callers and callees" }).click(),
        () => page.keyboard.press("s"),
      ]) {
        await activate();
        await sandwich.waitFor();
        await focused(page, sandwich.locator(".flame").last());
        await close();
        await sandwich.waitFor({ state: "detached" });
        await focused(page, flame);
        await page.keyboard.press("z");
        await page.has("zoom", "");
      }
    await page.finish();
  });

  it("returns from the selection of a heat map to the heat map", async () => {
    const page = await open("#/spans", ".heat canvas");
    const heat = page.locator(".heat");
    for (const close of [
      () => page.keyboard.press("Escape"),
      () => page.getByRole("button", { name: /^Clear/ }).click(),
      () => page.getByRole("button", { name: /^Clear/ }).press("Enter"),
      () => page.getByRole("button", { name: "Zoom to this time" }).click(),
    ]) {
      await heat.focus();
      for (const key of ["ArrowRight", "Shift+ArrowRight", "Shift+ArrowUp", "Enter"])
        await page.keyboard.press(key);
      await page.locator(".selection .offer").waitFor();
      await close();
      await page.locator(".selection .offer").waitFor({ state: "detached" });
      await focused(page, heat);
    }
    await page.finish();
  });

  it("stays in the search field when its suggestions are closed", async () => {
    const page = await open("#/spans", ".spans .row");
    const field = page.locator("#traceql");
    await field.fill("http");
    await page.locator(".search-list:not([hidden])").waitFor();
    await page.keyboard.press("Escape");
    await page.locator(".search-list[hidden]").waitFor({ state: "attached" });
    await focused(page, field);
    await page.finish();
  });

  it("returns from a trace to the list", async () => {
    const page = await open("#/spans", ".spans .row");
    const list = page.locator(".spans");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await page.locator(".waterfall").waitFor();
    await page.goBack();
    await list.waitFor();
    await focused(page, list);
    await page.finish();
  });

  it("moves from the button of new live spans to the list", async () => {
    const page = await open("#/spans?live=1", ".spans .row");
    await page.keyboard.press("ArrowDown"); // pauses
    await page.locator(".held").press("Enter");
    await page.locator(".held").waitFor({ state: "detached" });
    await focused(page, page.locator(".spans"));
    await page.finish();
  });
});

describe("page: export without samples", { concurrency: false }, () => {
  const mock = useMock({ traces: 300 });
  const mail = () => mock.server.store.spans.find((span) => span.name === "mail.Send");
  const none = "There are no samples, so there is no profile to export.";
  const formats = ["pprof (gzip)", "speedscope JSON", "Folded stacks"];
  const download = async (page, link) => {
    const [file] = await Promise.all([page.waitForEvent("download"), link.click()]);
    return file.suggestedFilename();
  };

  it("offers the trace in the details of a span, and states that there is no profile", async () => {
    const { trace, id } = mail();
    for (const hash of [
      `#/trace/${trace.id}?span=${id}`,
      `#/profile?trace=${trace.id}&span=${id}`,
    ]) {
      const page = await openPage(mock.browser, mock.server, hash);
      await page.locator(".empty", { hasText: "No samples" }).waitFor();
      await page.getByRole("button", { name: "Export", exact: true }).click();
      await page.getByText(none).waitFor();
      await checkAccessibility(page, "an export without samples");
      for (const format of formats) assert.equal(await page.getByText(format).count(), 0);
      const link = page.getByRole("link", { name: "OTLP JSON of the trace" });
      assert.equal(await download(page, link), `${trace.id}.json`);
      await page.finish();
    }
  });

  it("offers the trace beside each tab of a span", async () => {
    const { trace, id } = mail();
    for (const tab of ["", "attributes", "events", "links"]) {
      const page = await openPage(
        mock.browser,
        mock.server,
        `#/trace/${trace.id}?span=${id}&tab=${tab}`,
      );
      const link = page.getByRole("link", { name: "Export the trace as OTLP JSON" });
      assert.equal(await download(page, link), `${trace.id}.json`);
      await page.finish();
    }
  });

  it("states that a profile without samples cannot be exported", async () => {
    const query = encodeURIComponent('{service_name="mail"}');
    const page = await openPage(mock.browser, mock.server, `#/profile?query=${query}`);
    await page.locator(".empty", { hasText: "No samples" }).waitFor();
    await page.getByRole("button", { name: "Export", exact: true }).click();
    await page.getByText(none).waitFor();
    assert.equal(await page.locator(".menu a:visible").count(), 0);
    await page.finish();
  });

  it("offers profiles of spans with samples, and the trace", async () => {
    const { trace, id } = mock.server.store.spans.find(({ samples }) => samples > 2);
    const page = await openPage(mock.browser, mock.server, `#/trace/${trace.id}?span=${id}`);
    await page.locator(".details .flame").waitFor();
    await page.getByRole("button", { name: "Export", exact: true }).click();
    assert.deepEqual(await page.locator(".menu a:visible").allTextContents(), [
      ...formats,
      "OTLP JSON of the trace",
    ]);
    assert.equal(await page.getByText(none).count(), 0);
    await page.finish();
  });
});
