// SPDX-License-Identifier: Apache-2.0
// Saves the partitions of the current time range as one file for `braid open`.
import { url, useResponse } from "../api";
import type { Status } from "../openapi";
import { bytes, clock, day, milliseconds } from "../format";
import { copy, href, shown } from "../state";
import { Icon, Popover } from "./basics";

export const Save = () => (
  <Popover className="square" label="Save this data" button={<Icon name="save" />}>
    {(close) => <Slice close={close} />}
  </Popover>
);

function Slice({ close }: { close: () => void }) {
  const { path, query, start, end } = shown();
  const { data, error } = useResponse<Status>(url("status"));
  const store = data?.store;
  const none =
    store !== undefined &&
    (!store.oldest_unix_ns ||
      milliseconds(store.oldest_unix_ns) > end ||
      milliseconds(store.newest_unix_ns ?? "0") < start);
  const times = { start: String(Math.floor(start)), end: String(Math.ceil(end)) };
  const text = (ms: number): string => `${day(ms)} ${clock(ms, 0)}`;
  return (
    <div class="save">
      <h2>Save this data</h2>
      {Number.isFinite(start) && Number.isFinite(end) ? (
        <p>
          Spans and profiles from <b>{text(start)}</b> to <b>{text(end)}</b>, and other data in the
          same partitions: at most {store ? bytes(store.bytes) : "the size of the store"}.
        </p>
      ) : (
        <p>This time range is invalid.</p>
      )}
      {!Number.isFinite(start - end) ? null : error || none ? (
        <p class="save-none">{error || "The store has no data for this time range."}</p>
      ) : (
        <a class="button primary" href={url("slice", times)} download onClick={close}>
          <Icon name="export" /> Save a file
        </a>
      )}
      <p>Open the file with this command; no network is needed:</p>
      <pre>braid open braid-….tar</pre>
      <button
        type="button"
        class="button"
        onClick={() =>
          copy(
            `${location.origin}/${href(path, { ...query, ...times })}`,
            "Link copied, with fixed times.",
          )
        }
      >
        <Icon name="link" /> Copy a link to this view
      </button>
    </div>
  );
}
