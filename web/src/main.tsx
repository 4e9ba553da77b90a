// SPDX-License-Identifier: Apache-2.0
// The frame of the page, which is the same in every view.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { setUtc } from "./format";
import { help, useKeys } from "./keys";
import { Icon } from "./parts/basics";
import { Login } from "./parts/login";
import { Save } from "./parts/save";
import { chooseZone, TimeRange } from "./parts/time";
import {
  carried,
  copy,
  flush,
  go,
  href,
  onSay,
  refresh,
  remember,
  useDark,
  useRemembered,
  useRoute,
} from "./state";
import "./style.css";
import { CompareView } from "./views/compare";
import { HealthView } from "./views/health";
import { PrivacyView } from "./views/privacy";
import { ProfileView } from "./views/profile";
import { ServicesView } from "./views/services";
import { Spans } from "./views/spans";
import { TraceView } from "./views/trace";

const views: [string, string][] = [
  ["services", "Services"],
  ["spans", "Spans"],
  ["profile", "Profiles"],
  ["compare", "Compare"],
  ["health", "Join health"],
  ["privacy", "Privacy"],
];

function Page() {
  const route = useRoute();
  const { view, ids, query } = route;
  const dark = useDark();
  const theme = useRemembered("theme");
  const palette = useRemembered("palette");
  const zone = useRemembered("zone");
  setUtc(zone === "utc"); // before the views format times
  const helping = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    document.documentElement.dataset.theme = theme || "auto";
    document.documentElement.dataset.palette = palette || "red";
  }, [theme, palette]);
  useEffect(() => {
    const name = views.find(([id]) => id === view)?.[1] ?? (view === "trace" ? "Trace" : "");
    document.title = name ? `${name} · Braid` : "Braid";
  }, [view]);
  const to = (id: string): void => go(id, carried(query));
  useKeys({
    "?": () => helping.current?.showModal(),
    r: refresh,
    "/": () => {
      if (view !== "health" && view !== "privacy") return false; // the other views have search fields
      to("spans");
      window.setTimeout(() => document.getElementById("traceql")?.focus());
      return true;
    },
    u: () => chooseZone(zone === "utc" ? "" : "utc"),
    "1": () => to("services"),
    "2": () => to("spans"),
    "3": () => to("profile"),
    "4": () => to("compare/slow"),
    "5": () => to("health"),
    "6": () => to("privacy"),
  });
  const copyLink = (): void => {
    flush();
    copy(location.href, "Link copied. Relative times, such as the last hour, stay relative.");
  };
  const next = theme === "" ? "light" : theme === "light" ? "dark" : "";
  const open = view === "trace" ? "spans" : view;
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => (
          event.preventDefault(),
          document
            .getElementById("main")
            ?.querySelector<HTMLElement>("[tabindex='0'],button,a,select,input")
            ?.focus()
        )}
      >
        To the content
      </a>
      <header class="top">
        <a class="brand" href={href("services", carried(query))} aria-label="Braid, start page">
          <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
            <g fill="none" stroke-width="4" stroke-linecap="round">
              <path class="strand-a" d="M9 4c0 8 14 8 14 15 0 4-2 6-5 9" />
              <path class="strand-b" d="M23 4c0 8-14 8-14 15 0 4 2 6 5 9" />
            </g>
          </svg>
          <span>Braid</span>
        </a>
        <nav aria-label="Views">
          {views.map(([id, text]) => (
            <a
              key={id}
              href={href(id === "compare" ? "compare/slow" : id, carried(query))}
              aria-current={id === open ? "page" : undefined}
            >
              {text}
            </a>
          ))}
        </nav>
        <div class="top-right">
          {view !== "trace" && !query.trace && <TimeRange query={query} />}
          <button
            type="button"
            class="button square"
            onClick={refresh}
            aria-label="Refresh"
            title="Refresh (r)"
          >
            <Icon name="refresh" />
          </button>
          <button
            type="button"
            class="button square"
            onClick={copyLink}
            aria-label="Copy the link"
            title="Copy a link to this view"
          >
            <Icon name="link" />
          </button>
          <Save />
          <Login />
          <button
            type="button"
            class="button square"
            onClick={() => remember("theme", next)}
            aria-label={`Theme: ${theme || "system default"}`}
            title={`Theme: ${theme || "system default"}`}
          >
            <Icon name={theme === "" ? "auto" : dark ? "moon" : "sun"} />
          </button>
          <button
            type="button"
            class="button square help-button"
            onClick={() => helping.current?.showModal()}
            aria-label="Keys"
            title="Keys (?)"
          >
            ?
          </button>
        </div>
      </header>
      {view === "trace" && ids[0] ? (
        <TraceView key={ids[0]} id={ids[0]} query={query} />
      ) : view === "profile" ? (
        <ProfileView query={query} />
      ) : view === "compare" ? (
        <CompareView kind={ids[0] ?? ""} query={query} />
      ) : view === "health" ? (
        <HealthView query={query} />
      ) : view === "privacy" ? (
        <PrivacyView query={query} />
      ) : view === "spans" ? (
        <Spans query={query} />
      ) : (
        <ServicesView query={query} />
      )}
      <dialog
        class="help"
        ref={helping}
        aria-labelledby="help-title"
        onClick={(event) => event.target === helping.current && helping.current?.close()}
      >
        <header>
          <h2 id="help-title">Keys</h2>
          <button
            type="button"
            class="button square"
            aria-label="Close"
            onClick={() => helping.current?.close()}
          >
            <Icon name="close" />
          </button>
        </header>
        <div class="help-groups">
          {help.map(({ title, keys }) => (
            <section key={title}>
              <h3>{title}</h3>
              <dl>
                {keys.map(([key, what]) => (
                  <div key={key}>
                    <dt>
                      {key
                        .split(" ")
                        .map((one) => (one === "…" ? " … " : <kbd key={one}>{one}</kbd>))}
                    </dt>
                    <dd>{what}</dd>
                  </div>
                ))}
              </dl>
            </section>
          ))}
        </div>
      </dialog>
      <Said />
    </>
  );
}

function Said() {
  const [text, setText] = useState("");
  useEffect(() => {
    let timer = 0;
    onSay((said) => {
      setText(said);
      clearTimeout(timer);
      timer = window.setTimeout(() => setText(""), 5000);
    });
  }, []);
  return (
    <div class={`said${text ? " said-on" : ""}`} role="status">
      <bdi>{text}</bdi>
    </div>
  );
}

render(<Page />, document.getElementById("page")!);
