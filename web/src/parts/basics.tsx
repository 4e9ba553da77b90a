// SPDX-License-Identifier: Apache-2.0
// Basic components that all views use.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useKeys } from "../keys";
import { isolate } from "../format";
import { refresh } from "../state";

const paths: Record<string, string> = {
  flame:
    "M8 1.5c.6 2.6 3.8 4 3.8 7.6A3.8 3.8 0 0 1 8 13.5a3.8 3.8 0 0 1-3.8-4c0-1.7.9-2.7 1.5-3.7" +
    ".5.9 1 1.2 1.4 1.3C7.600 5.500 7 3.500 8 1.500Z",
  search: "M7 2.500a4.500 4.500 0 1 0 0 9 4.500 4.500 0 0 0 0-9Zm3.300 7.800 3.200 3.200",
  clock: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2Zm0 3v3.200l2 1.300",
  link:
    "M6.500 9.500 9.500 6.500M7 4.800l1.300-1.300a3 3 0 0 1 4.200 4.200L11.200 9" +
    "M9 11.200l-1.300 1.300a3 3 0 0 1-4.200-4.200L4.800 7",
  sun:
    "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6Zm0-3.500v1.200m0 10.600v1.200M1.500 8h1.200" +
    "m10.600 0h1.200M3.400 3.400l.9.9m7.400 7.400.9.9m0-9.200-.9.900m-7.400 7.400-.9.900",
  moon: "M13 9.500A5.500 5.500 0 0 1 6.500 3a5.500 5.500 0 1 0 6.500 6.500Z",
  auto: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2Zm0 0v12",
  down: "m4.500 6.500 3.500 3.500 3.500-3.500",
  right: "m6.500 4.500 3.500 3.500-3.500 3.500",
  close: "m4 4 8 8m0-8-8 8",
  refresh: "M13 8a5 5 0 1 1-1.500-3.600M13 2.500v2.700h-2.700",
  export: "M8 2.500v7m-2.800-2.800L8 9.500l2.800-2.800M3 12.500h10",
  save: "M3 3h8l2 2v8H3ZM5.500 3v3.200h4.500V3M5.300 13V9.500h5.400V13",
  flip: "M5 3v10m0 0-2.200-2.200M5 13l2.200-2.200M11 13V3m0 0L8.800 5.200M11 3l2.200 2.200",
  compare: "M3 4h4v8H3zM9 4h4v8H9z",
  play: "M5 3.500v9l7-4.500z",
  pause: "M5.500 3.500v9m5-9v9",
  swap: "M3 5.500h9L9.800 3.300M13 10.500H4l2.200 2.200",
  check: "m3.500 8.500 3 3 6-7",
  pin: "M8 9.500v4.500M5 9.500h6L9.800 7V3.500h.7V2h-5v1.500h.7V7z",
  warn: "M8 2.500 14 13H2Zm0 4v3.200m0 1.600v.2",
};

export function Icon({ name }: { name: string }) {
  return (
    <svg
      class={`icon icon-${name}`}
      viewBox="0 0 16 16"
      width="16"
      height="16"
      aria-hidden="true"
      focusable="false"
    >
      <path d={paths[name]} />
    </svg>
  );
}

/** A group of buttons of which exactly one is active. */
export function Segments<T extends string>({
  label,
  options,
  value,
  onChange,
}: {
  label: string;
  options: [T, ComponentChildren, string?][];
  value: T;
  onChange: (value: T) => void;
}) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map(([id, text, title]) => (
        <button
          type="button"
          key={id}
          aria-pressed={id === value}
          title={title}
          onClick={() => onChange(id)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}

/** Tabs of one panel; arrow keys move between them. */
export function Tabs({
  label,
  tabs,
  value,
  onChange,
  panel,
}: {
  label: string;
  tabs: [string, ComponentChildren][];
  value: string;
  onChange: (id: string) => void;
  panel?: string;
}) {
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const at = tabs.findIndex(([id]) => id === value);
    const next = (at + step + tabs.length) % tabs.length;
    onChange(tabs[next][0]);
    (event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("[role=tab]")[next]?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={onKeyDown}>
      {tabs.map(([id, text]) => (
        <button
          type="button"
          role="tab"
          key={id}
          aria-selected={id === value}
          aria-controls={panel}
          tabIndex={id === value ? 0 : -1}
          onClick={() => onChange(id)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}

export interface Option {
  value: string;
  text: string;
  note?: string;
}

export function Select({
  label,
  value,
  options,
  onChange,
  disabled,
  hide,
}: {
  hide?: boolean;
  label: string;
  value: string;
  options: Option[];
  onChange: (value: string) => void;
  disabled?: boolean;
}) {
  const known = options.some((option) => option.value === value);
  return (
    <label class="field">
      <span class={hide ? "hidden" : "field-label"}>{label}</span>
      <span class="select">
        <select
          value={value}
          disabled={disabled}
          onChange={(event) => onChange(event.currentTarget.value)}
        >
          {!known && <option value={value}>{value}</option>}
          {options.map((option) => (
            <option key={option.value} value={option.value}>
              {option.note ? `${isolate(option.text)}  (${option.note})` : option.text}
            </option>
          ))}
        </select>
        <Icon name="down" />
      </span>
    </label>
  );
}

/** A text field whose value is used on Enter or when it loses the focus. */
export function TextField({
  label,
  value,
  onCommit,
  placeholder,
  wide,
  hidden,
  invalid,
  id,
}: {
  label: string;
  value: string;
  onCommit: (value: string) => void;
  placeholder?: string;
  wide?: boolean;
  hidden?: boolean;
  invalid?: string;
  id?: string;
}) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  return (
    <label class={`field${wide ? " field-wide" : ""}`}>
      <span class={hidden ? "hidden" : "field-label"}>{label}</span>
      <input
        id={id}
        type="text"
        value={text}
        placeholder={placeholder}
        autocomplete="off"
        spellcheck={false}
        aria-invalid={invalid ? "true" : undefined}
        title={invalid}
        onInput={(event) => setText(event.currentTarget.value)}
        onBlur={() => text !== value && onCommit(text.trim())}
        onKeyDown={(event) => {
          if (event.key === "Enter") onCommit(text.trim());
          if (event.key === "Escape") {
            setText(value);
            event.currentTarget.blur();
          }
        }}
      />
    </label>
  );
}

/** A search field that searches while the user types, with the number of matches. */
export function SearchField({
  id,
  label,
  value,
  onInput,
  found,
  onKey,
}: {
  id?: string;
  label: string;
  value: string;
  onInput: (value: string) => void;
  found?: ComponentChildren;
  onKey?: (key: string, event: KeyboardEvent) => void;
}) {
  const field = useRef<HTMLInputElement>(null);
  return (
    <div class="searchfield" role="search" aria-label={label}>
      <Icon name="search" />
      <input
        ref={field}
        id={id}
        type="text"
        aria-label={label}
        placeholder={label}
        value={value}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => onInput(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            event.stopPropagation();
            if (value) onInput("");
            else event.currentTarget.blur();
          } else onKey?.(event.key, event);
        }}
      />
      {found !== undefined && value && (
        <span class="found" role="status">
          {found}
        </span>
      )}
      {value ? (
        <button
          type="button"
          class="plain"
          aria-label="Clear the search"
          onClick={() => (onInput(""), field.current?.focus())}
        >
          <Icon name="close" />
        </button>
      ) : (
        <kbd aria-hidden="true">/</kbd>
      )}
    </div>
  );
}

/** Returns whether no element has the focus, for example because the focused one was removed. */
export const isFocusLost = (): boolean =>
  !document.activeElement || document.activeElement === document.body;

/**
 * Returns the focus when a part of the page disappears together with the focused element: to the element that had the
 * focus when the part appeared, or to the first match of `otherwise`.
 */
export function useFocusReturn(part: { current: HTMLElement | null }, otherwise: string): void {
  useLayoutEffect(() => {
    const before = document.activeElement;
    return () => {
      if (!isFocusLost() && !part.current?.contains(document.activeElement)) return;
      const known = before instanceof HTMLElement && before !== document.body && before.isConnected;
      (known ? before : document.querySelector<HTMLElement>(otherwise))?.focus({
        preventScroll: true,
      });
    };
  }, []);
}

/** A button that opens a panel below it. Escape and a click elsewhere close the panel. */
export function Popover({
  button,
  label,
  children,
  className = "",
}: {
  button: ComponentChildren;
  label: string;
  children: (close: () => void) => ComponentChildren;
  className?: string;
}) {
  const [open, setOpen] = useState(false);
  const panel = useRef<HTMLDivElement>(null);
  const opener = useRef<HTMLButtonElement>(null);
  const id = useId();
  return (
    <div class={`popover ${className}`}>
      <button ref={opener} type="button" class="button" popovertarget={id} aria-label={label}>
        {button}
      </button>
      <div
        class="panel"
        id={id}
        ref={panel}
        popover="auto"
        role="group"
        aria-label={label}
        onBeforeToggle={(event) => setOpen(event.newState === "open")}
        onToggle={(event) =>
          event.newState === "closed" && isFocusLost() && opener.current?.focus()
        }
      >
        {open && children(() => panel.current?.hidePopover())}
      </div>
    </div>
  );
}

/** A name in a sentence. A long one ends with an ellipsis. */
export const Name = ({ text }: { text: string }) => (
  <bdi class="name" title={text}>
    {text}
  </bdi>
);

/** The service and the operation of a difference. Without a name, all operations are compared. */
export const Named = ({ service, name }: { service: string; name: string }) =>
  service || name ? (
    <>
      {service && <Name text={service} />} {name ? <Name text={name} /> : "(all operations)"}
    </>
  ) : (
    <>all services</>
  );

/** Returns the service and the operation as text, for tooltips and names of figures. */
export const namedText = (service: string, name: string): string =>
  [service, name].filter(Boolean).map(isolate).join(" ") || "all services";

export function Empty({
  title,
  children,
  icon = "flame",
}: {
  title: string;
  children?: ComponentChildren;
  icon?: string;
}) {
  return (
    <div class="empty" role="status">
      <Icon name={icon} />
      <strong>{title}</strong>
      {children && <div class="empty-text">{children}</div>}
    </div>
  );
}

export function Failed({ error }: { error: string }) {
  return (
    <div class="empty failed" role="alert">
      <Icon name="warn" />
      <strong>Request failed</strong>
      <div class="empty-text">
        <p class="mono">
          <bdi>{error}</bdi>
        </p>
        <button type="button" class="button" onClick={refresh}>
          Try again
        </button>
      </div>
    </div>
  );
}

export const Cut = ({ text }: { text: string | null | undefined }) =>
  text ? (
    <p class="cut" role="note">
      <Icon name="warn" /> <bdi>{text}</bdi>
    </p>
  ) : null;

/** A moving line during a request. It appears after a delay, so that fast responses do not cause
 * flashes. */
export const Loading = ({ on }: { on: boolean }) => (
  <div class={`loading${on ? " loading-on" : ""}`} aria-hidden="true" />
);

export function Skeleton({ rows = 8 }: { rows?: number }) {
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, i) => (
        <div key={i} style={{ width: `${88 - ((i * 37) % 45)}%` }} />
      ))}
    </div>
  );
}

/** Returns an element's reference and its current size. */
export function useSize<T extends HTMLElement>(): [{ current: T | null }, number, number] {
  const box = useRef<T>(null);
  const [size, setSize] = useState<[number, number]>([0, 0]);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const measure = (): void =>
      setSize((old) =>
        old[0] === element.clientWidth && old[1] === element.clientHeight
          ? old
          : [element.clientWidth, element.clientHeight],
      );
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [box, size[0], size[1]];
}

/** Returns the visible part of a long list; only these rows are in the document. */
export function useWindow(
  rows: number,
  rowHeight: number,
): {
  box: { current: HTMLDivElement | null };
  from: number;
  to: number;
  onScroll: () => void;
  reveal: (row: number) => void;
  height: number;
  width: number;
} {
  const [box, width, height] = useSize<HTMLDivElement>();
  const [top, setTop] = useState(0);
  const from = Math.max(0, Math.floor(top / rowHeight) - 8);
  const to = Math.min(rows, Math.ceil((top + (height || 600)) / rowHeight) + 8);
  return {
    box,
    from,
    to,
    width,
    height,
    onScroll: () => setTop(box.current?.scrollTop ?? 0),
    reveal: (row) => {
      const element = box.current;
      if (!element) return;
      if (row * rowHeight < element.scrollTop) element.scrollTop = row * rowHeight;
      else if ((row + 1) * rowHeight > element.scrollTop + element.clientHeight)
        element.scrollTop = (row + 1) * rowHeight - element.clientHeight;
      setTop(element.scrollTop);
    },
  };
}

/**
 * Moves the choice in a list of `rows` rows by keyboard: arrows, j and k, page keys, Home and End.
 * Enter opens the chosen row. Arrows also work while the list does not have the focus, and then
 * give it the focus. Returns the handler for the keys of the list's element.
 */
export function useRowKeys(
  body: { current: HTMLElement | null },
  rows: number,
  chosen: number,
  onMove: (row: number) => void,
  onOpen: (row: number) => void,
): (event: KeyboardEvent) => void {
  const move = (to: number): void => {
    if (rows > 0) onMove(Math.min(rows - 1, Math.max(0, to)));
  };
  useKeys({
    ArrowDown: () => (body.current?.focus(), move(chosen + 1)),
    ArrowUp: () => (body.current?.focus(), move(chosen - 1)),
  });
  return (event) => {
    if (event.key === "ArrowDown" || event.key === "j") move(chosen + 1);
    else if (event.key === "ArrowUp" || event.key === "k") move(chosen - 1);
    else if (event.key === "PageDown") move(chosen + 20);
    else if (event.key === "PageUp") move(chosen - 20);
    else if (event.key === "Home") move(0);
    else if (event.key === "End") move(rows - 1);
    else if (event.key === "Enter" && chosen >= 0 && event.target === body.current) onOpen(chosen);
    else return;
    event.preventDefault();
  };
}
