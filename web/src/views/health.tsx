// SPDX-License-Identifier: Apache-2.0
// Shows for each service how many samples are linked to spans, and how to increase that number.
import { Fragment } from "preact";
import { url, useResponse } from "../api";
import type { Join, Status } from "../openapi";
import { serviceColor } from "../color";
import { bytes, clock, count, day, duration, milliseconds, percent } from "../format";
import { Cut, Empty, Failed, Icon, Loading, Skeleton } from "../parts/basics";
import { carried, href, range, useDark, type Query } from "../state";

export function HealthView({ query }: { query: Query }) {
  const dark = useDark();
  const { data, error, loading } = useResponse<Join>(url("join", range(query)));
  const status = useResponse<Status>(url("status"));
  const rows = data?.services ?? [];
  return (
    <main class="view health-view" id="main">
      <Loading on={loading} />
      <header class="title">
        <h1>Join health</h1>
        <p class="quiet">
          Shows how many samples refer to a span, and how many of these spans were received.
        </p>
      </header>
      {status.data && <Store status={status.data} />}
      <Cut text={data?.cut} />
      {error ? (
        <Failed error={error} />
      ) : !data ? (
        <Skeleton />
      ) : rows.length === 0 ? (
        <Empty title="No services in this time range">
          Select a longer time range, or send data.
        </Empty>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Services">
          <table class="health">
            <thead>
              <tr>
                <th scope="col">Service</th>
                <th scope="col" class="number">
                  Spans
                </th>
                <th scope="col">Spans with samples</th>
                <th scope="col" class="number">
                  Samples
                </th>
                <th scope="col">Samples with a span</th>
                <th scope="col" class="number">
                  Of spans not received
                </th>
                <th scope="col" class="number">
                  Clock skew
                </th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => {
                const spans = row.spans ? row.spans_with_samples / row.spans : 0;
                const samples = row.samples ? row.samples_with_span / row.samples : 0;
                const lost = row.samples ? row.samples_of_unknown_span / row.samples : 0;
                const skewed = (row.median_skew_ns ?? 0) > 50e6;
                return (
                  <Fragment key={row.name}>
                    <tr class={row.hint ? "with-hint" : ""}>
                      <th scope="row" title={row.name}>
                        <i
                          class="service-mark"
                          style={{ background: serviceColor(row.name, dark) }}
                        />
                        <a href={href("spans", { service: row.name, ...carried(query) })}>
                          <bdi>{row.name}</bdi>
                        </a>
                      </th>
                      <td class="number">{count(row.spans)}</td>
                      <td>
                        <Meter share={spans} of={row.spans} />
                      </td>
                      <td class="number">{count(row.samples)}</td>
                      <td>
                        <Meter share={samples} of={row.samples} judge />
                      </td>
                      <td class={`number${lost > 0.02 ? " more" : ""}`}>
                        {row.samples_of_unknown_span ? (
                          count(row.samples_of_unknown_span)
                        ) : (
                          <span class="quiet">0</span>
                        )}
                      </td>
                      <td class={`number${skewed ? " more" : ""}`}>
                        {row.median_skew_ns === null ? (
                          <span class="quiet">–</span>
                        ) : (
                          duration(row.median_skew_ns)
                        )}
                      </td>
                    </tr>
                    {row.hint && (
                      <tr class="hint">
                        <td colSpan={7}>
                          <div class="hint-text">
                            <Icon name="warn" /> <bdi>{row.hint}</bdi>
                          </div>
                        </td>
                      </tr>
                    )}
                  </Fragment>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
    </main>
  );
}

function Meter({ share, of, judge }: { share: number; of: number; judge?: boolean }) {
  if (!of) return <span class="quiet">–</span>;
  return (
    <span
      class={`ratio${judge ? (share > 0.95 ? " good" : share > 0.5 ? " middling" : " bad") : ""}`}
    >
      <span>
        <b style={{ width: `${share * 100}%` }} />
      </span>
      {percent(share)}
    </span>
  );
}

function Store({ status }: { status: Status }) {
  const { store } = status;
  return (
    <dl class="cards">
      <div>
        <dt>Spans stored</dt>
        <dd>{count(store.spans)}</dd>
      </div>
      <div>
        <dt>Samples stored</dt>
        <dd>{count(store.samples)}</dd>
      </div>
      <div>
        <dt>On disk</dt>
        <dd>
          {bytes(store.bytes)} <small>of {bytes(store.max_bytes)}</small>
          <span class="ratio">
            <span>
              <b
                style={{
                  width: `${Math.min(100, (store.bytes / Math.max(1, store.max_bytes)) * 100)}%`,
                }}
              />
            </span>
          </span>
        </dd>
      </div>
      <div>
        <dt>Partitions</dt>
        <dd>
          {count(store.partitions)}{" "}
          {store.damaged > 0 && (
            <small class="more">{count(store.damaged)} damaged, set aside</small>
          )}{" "}
          {store.unread > 0 && <small class="more">{count(store.unread)} cannot be read</small>}
        </dd>
      </div>
      <div>
        <dt>Oldest span</dt>
        <dd>
          {store.oldest_unix_ns && store.oldest_unix_ns !== "0" ? (
            <>
              {clock(milliseconds(store.oldest_unix_ns), 0)}{" "}
              <small>{day(milliseconds(store.oldest_unix_ns))}</small>
            </>
          ) : (
            "–"
          )}
        </dd>
      </div>
      <div>
        <dt>Braid</dt>
        <dd>{status.version}</dd>
      </div>
    </dl>
  );
}
