// SPDX-License-Identifier: Apache-2.0
// Explains an empty list of spans or operations, and offers a longer time range.
import { url, useResponse } from "../api";
import { count, milliseconds } from "../format";
import type { Status } from "../openapi";
import { set } from "../state";
import { Empty } from "./basics";

/** `onClear` removes the filters; it is missing if there are none. */
export function NoData({ onClear }: { onClear?: () => void }) {
  const status = useResponse<Status>(url("status"));
  const store = status.data?.store;
  const stored = store?.spans ?? 0;
  if (stored === 0 && status.data)
    return (
      <Empty title="No data received yet">
        <p>
          Braid listens for OTLP at localhost:4317 (gRPC) and localhost:4318 (HTTP), and for
          profiles of Pyroscope SDKs at localhost:4040. Point an application there:
        </p>
        <pre>OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318</pre>
      </Empty>
    );
  return (
    <Empty title="No spans here" icon="search">
      <p>
        {onClear
          ? "No span in this time range matches the filters."
          : "No span started in this time range."}
        {stored > 0 && ` The store has ${count(stored)} spans in all.`}
      </p>
      <p class="empty-actions">
        {onClear && (
          <button type="button" class="button" onClick={onClear}>
            Remove the filters
          </button>
        )}
        <button type="button" class="button" onClick={() => set({ start: "now-24h", end: "" })}>
          Look at 24 hours
        </button>
        {store?.oldest_unix_ns && store.newest_unix_ns && (
          <button
            type="button"
            class="button"
            onClick={() =>
              set({
                start: String(Math.floor(milliseconds(store.oldest_unix_ns))),
                end: String(Math.ceil(milliseconds(store.newest_unix_ns))),
              })
            }
          >
            Look at all that is stored
          </button>
        )}
      </p>
    </Empty>
  );
}
