// SPDX-License-Identifier: Apache-2.0
// The time range selector: relative presets, or a fixed start and end.
import { useState } from "preact/hooks";
import { clock, day, setUtc, timeOf, zoneName } from "../format";
import { remember, set, useRemembered, type Query } from "../state";
import { Icon, Popover, Segments } from "./basics";

const presets: [string, string][] = [
  ["now-5m", "5 minutes"],
  ["now-15m", "15 minutes"],
  ["now-30m", "30 minutes"],
  ["now-1h", "1 hour"],
  ["now-3h", "3 hours"],
  ["now-6h", "6 hours"],
  ["now-12h", "12 hours"],
  ["now-24h", "24 hours"],
];

const isFixed = (query: Query): boolean => /^\d+$/.test(query.start ?? "");

export function rangeText(query: Query): string {
  if (!isFixed(query)) {
    const preset = presets.find(([start]) => start === (query.start || "now-1h"));
    return `Last ${preset?.[1] ?? query.start.replace("now-", "")}`;
  }
  const start = Number(query.start);
  const end = Number(query.end || Date.now());
  const date = day(start) === day(Date.now()) ? "" : `${day(start)} `;
  const digits = end - start < 60_000 ? 3 : 0;
  return `${date}${clock(start, digits)} – ${clock(end, digits)}`;
}

const local = (ms: number): string => `${day(ms)}T${clock(ms, 0)}`;

export function TimeRange({ query }: { query: Query }) {
  return (
    <Popover
      label={`Time range: ${rangeText(query)} ${zoneName(Date.now())}`}
      button={
        <>
          <Icon name="clock" />
          <span class="range-text">{rangeText(query)}</span>{" "}
          <small class="range-zone">{zoneName(Date.now())}</small>
          <Icon name="down" />
        </>
      }
    >
      {(close) => <Ranges query={query} close={close} />}
    </Popover>
  );
}

/** Shows all times in the zone of the browser, or in UTC. */
export function chooseZone(zone: string): void {
  setUtc(zone === "utc");
  remember("zone", zone);
}

function Ranges({ query, close }: { query: Query; close: () => void }) {
  const fixed = isFixed(query);
  const [start, setStart] = useState(local(fixed ? Number(query.start) : Date.now() - 3600e3));
  const [end, setEnd] = useState(local(fixed ? Number(query.end || Date.now()) : Date.now()));
  const zone = useRemembered("zone");
  const from = timeOf(start);
  const to = timeOf(end);
  const right = from < to;
  return (
    <div class="ranges">
      <ul class="menu">
        {presets.map(([value, text]) => (
          <li key={value}>
            <button
              type="button"
              aria-current={!fixed && value === (query.start || "now-1h") ? "true" : undefined}
              onClick={() => {
                set({ start: value === "now-1h" ? "" : value, end: "" });
                close();
              }}
            >
              Last {text}
            </button>
          </li>
        ))}
      </ul>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!right) return;
          set({ start: String(from), end: String(to) });
          close();
        }}
      >
        <Segments
          label="Time zone"
          value={zone}
          onChange={(chosen) => {
            chooseZone(chosen);
            // the same times in the other zone
            setStart(local(from));
            setEnd(local(to));
          }}
          options={[
            ["", "Local time"],
            ["utc", "UTC"],
          ]}
        />
        <label>
          From
          <input
            type="datetime-local"
            step="1"
            value={start}
            onInput={(event) => setStart(event.currentTarget.value)}
          />
        </label>
        <label>
          To
          <input
            type="datetime-local"
            step="1"
            value={end}
            onInput={(event) => setEnd(event.currentTarget.value)}
          />
        </label>
        <button type="submit" class="button primary" disabled={!right}>
          Apply
        </button>
        {!right && <small role="status">The end must be after the start.</small>}
      </form>
    </div>
  );
}
