// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of names, widths and contrast: every view of the page that shows names.
import { findBar } from "./browser.js";

/** Returns the views as [name, fragment, selector of an element that appears last], for a mock whose names are
 * surrounded by texts. */
export function viewsOf(server, [before, after] = ["", ""]) {
  const named = (text) => encodeURIComponent(`${before}${text}${after}`);
  const quoted = (text) => JSON.stringify(`${before}${text}${after}`);
  const spanOf = (key, fits = () => true) =>
    server.store.spans.find((span) => span.key === key && fits(span));
  const traceOf = (span, more = "") => `#/trace/${span.trace.id}?span=${span.id}${more}`;
  const totals = spanOf("checkout/order.calculate_totals", ({ samples }) => samples > 0);
  const charge = spanOf("payment/payment.Charge", ({ error }) => error);
  const mail = spanOf("mail/mail.Send");
  const query = encodeURIComponent(
    `{service_name=${quoted("checkout")},span_name=${quoted("order.calculate_totals")}}`,
  );
  const side = (start, end) =>
    encodeURIComponent(`query=${query}&start=${encodeURIComponent(start)}&end=${end}`);
  const sideOfSpan = (span) =>
    encodeURIComponent(
      `trace=${span.trace.id}&span=${span.id}&scope=self&` +
        `of_service=${named(span.service)}&of_name=${named(span.name)}`,
    );
  const start = server.store.spans[0].startMs;
  const box = `${Math.round(start)}000000-${Math.round(start) + 1800000}000000-1000000-`;
  const operation = `service=${named("checkout")}&name=${named("order.calculate_totals")}`;
  const fn = named("OrderService.calculate_totals");
  return [
    ["services", "#/services", ".operations .row"],
    ["a filter without matches", `#/services?find=${fn}x`, ".empty"],
    ["spans", "#/spans", ".spans .row"],
    ["spans of an operation", `#/spans?${operation}`, ".offer"],
    [
      "spans with a condition",
      `#/spans?q=${encodeURIComponent(`{ name = ${quoted("order.calculate_totals")} }`)}`,
      ".search-chip",
    ],
    ["a selection of the heat map", `#/spans?${operation}&box=${box}`, ".differing"],
    ["a selection of all spans", `#/spans?box=${box}`, ".differing"],
    ["a trace", traceOf(totals), ".details .flame"],
    ["a span without samples", traceOf(mail), ".details .empty"],
    ["attributes", traceOf(charge, "&tab=attributes"), ".attributes table"],
    ["events", traceOf(charge, "&tab=events"), ".attributes table"],
    ["links", traceOf(mail, "&tab=links"), ".attributes table"],
    ["matches in a trace", traceOf(totals, "&search=totals"), ".span-away"],
    ["a flame graph", `#/profile?query=${query}`, ".functions .row"],
    ["a flame graph of a span", `#/profile?trace=${totals.trace.id}&span=${totals.id}`, ".flame"],
    ["a call tree", `#/profile?query=${query}&show=tree`, ".tree .row"],
    ["functions", `#/profile?query=${query}&show=table&find=${fn}`, ".functions .row"],
    ["callers and callees", `#/profile?query=${query}&of=${fn}`, ".sandwich .flame"],
    ["slow against typical", `#/compare/slow?${operation}`, ".profile-two .functions .row"],
    [
      "an operation below slow requests",
      `#/compare/slow?service=${named("pricing")}&name=${named("pricing.Quote")}` +
        `&of_service=${named("checkout")}&of_name=${named("order.place")}`,
      ".parts",
    ],
    ["a comparison of a selection", `#/compare/slow?${operation}&box=${box}`, ".parts"],
    [
      "two selections",
      `#/compare?left=${side("now-1h", "now-30m")}&right=${side("now-30m", "now")}`,
      ".profile-two .functions .row",
    ],
    [
      "two spans",
      `#/compare?left=${sideOfSpan(totals)}&right=${sideOfSpan(charge)}&show=tree`,
      ".tree .row",
    ],
    ["join health", "#/health", ".health td"],
    ["privacy", "#/privacy", ".health td"],
  ];
}

/** Opens everything that appears over a view or after an input, and shows names: tooltips, menus, paths, messages and
 * suggestions. Calls `check` with what is shown. The names of the mock are surrounded by texts. */
export async function visitOverlays(page, [before, after], check) {
  const name = (text) => `${before}${text}${after}`;
  const query = encodeURIComponent(`{service_name="${name("checkout")}"}`);
  await page.to(`#/profile?query=${query}&show=flame`);
  const at = await findBar(page, name("OrderService.calculate_totals"));
  await check("the tooltip and the tree for screen readers");
  await page.mouse.click(at.x, at.y, { button: "right" });
  await page.getByRole("menu").waitFor();
  await check("the menu of a bar");
  await page.keyboard.press("Escape");
  await page.mouse.click(at.x, at.y);
  await page.locator(".path [aria-current]", { hasText: "calculate_totals" }).waitFor();
  await page.locator(".flame").press("ArrowDown");
  await check("the path to a bar");
  await page.getByRole("button", { name: "Export", exact: true }).click();
  await page.locator(".panel:popover-open").waitFor();
  await check("the export");
  await page.keyboard.press("Escape");
  for (const text of ["calculate", name("OrderService.calculate_totals")]) {
    await page.locator("#find").fill(text);
    await page.locator(".found", { hasText: "% in" }).waitFor();
    await check(`matches of ${text}`);
  }
  await page.getByRole("button", { name: "Compare", exact: true }).click();
  await page.locator(".said-on", { hasText: "is selection A" }).waitFor();
  await check("a message");

  await page.to("#/spans");
  await page.locator(".spans .row").first().waitFor();
  await page.locator("#traceql").fill("name = order.pl");
  const suggestion = page.locator('.search-list [role="option"]', { hasText: "order.place" });
  await suggestion.waitFor();
  await check("suggestions");
  await suggestion.click();
  await page.locator(".search-chip").waitFor();
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.locator("#traceql").focus();
  await page.locator(".search-list", { hasText: "saved" }).waitFor();
  await check("saved queries");
  await page.locator("#traceql").fill(`{ ${name("broken")}`);
  await page.keyboard.press("Enter");
  await page.locator(".search-error").waitFor();
  await check("a rejected query");
}
