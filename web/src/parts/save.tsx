// SPDX-License-Identifier: Apache-2.0
// Saves what is shown: the store's partitions of that time as one file, which any Braid opens.
import { url, useAnswer, type Status } from "../api";
import { bytes, clock, day, milliseconds } from "../format";
import { copy, href, shown } from "../state";
import { Icon, Popover } from "./basics";

export const Save = () => (
  <Popover className="square" label="Save what is shown" button={<Icon name="save" />}>
    {(close) => <Slice close={close} />}
  </Popover>
);

function Slice({ close }: { close: () => void }) {
  const { path, query, start, end } = shown();
  const { data, error } = useAnswer<Status>(url("status"));
  const store = data?.store;
  const none = store !== undefined && (!store.oldest_unix_ns || milliseconds(store.oldest_unix_ns) > end || milliseconds(store.newest_unix_ns ?? "0") < start);
  const times = { start: String(Math.floor(start)), end: String(Math.ceil(end)) };
  const text = (ms: number): string => `${day(ms)} ${clock(ms, 0)}`;
  return (
    <div class="save">
      <h2>Save what is shown</h2>
      {Number.isFinite(start) && Number.isFinite(end) ? (
        <p>
          Spans and profiles of <b>{text(start)}</b> to <b>{text(end)}</b>, and what lies in one partition with them: at most {store ? bytes(store.bytes) : "what the store has"}.
        </p>
      ) : (
        <p>This time is none that the store knows.</p>
      )}
      {!Number.isFinite(start - end) ? null : error || none ? (
        <p class="save-none">{error || "The store has nothing of this time."}</p>
      ) : (
        <a class="button primary" href={url("slice", times)} download onClick={close}>
          <Icon name="export" /> Save a file
        </a>
      )}
      <p>Who has the file sees the same, without any network:</p>
      <pre>braid open braid-….tar</pre>
      <button type="button" class="button" onClick={() => copy(`${location.origin}/${href(path, { ...query, ...times })}`, "The link is copied, with times that do not move.")}>
        <Icon name="link" /> Copy the link for it
      </button>
    </div>
  );
}
