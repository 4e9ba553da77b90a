// SPDX-License-Identifier: Apache-2.0
// Downloads of the data that a view shows.
import { url } from "../api";
import type { Query } from "../state";
import { Icon, Popover } from "./basics";

const formats: [string, string][] = [
  ["pprof (gzip)", "pprof"],
  ["speedscope JSON", "speedscope"],
  ["Folded stacks", "folded"],
];

/** Returns the address of a trace as OTLP JSON. It does not contain samples. */
export const traceFile = (trace: string): string =>
  url(`traces/${encodeURIComponent(trace)}/otlp`, {});

/** A menu of downloads. Without samples, it offers only the trace, and says why. */
export function Export({
  path,
  params,
  trace,
  empty,
}: {
  /** Address and parameters of the profile. */
  path: string;
  params: Query;
  /** Id of the trace, if the view shows a part of one. */
  trace?: string;
  /** True if the profile has no samples. */
  empty: boolean;
}) {
  return (
    <Popover label="Export" button={<Icon name="export" />} className="square">
      {(close) => (
        <>
          <ul class="menu">
            {!empty &&
              formats.map(([text, format]) => (
                <li key={format}>
                  <a href={url(path, { ...params, format })} download onClick={close}>
                    {text}
                  </a>
                </li>
              ))}
            {trace && (
              <li>
                <a href={traceFile(trace)} download onClick={close}>
                  OTLP JSON of the trace
                </a>
              </li>
            )}
          </ul>
          {empty && (
            <p class="note" role="note">
              There are no samples, so there is no profile to export.
            </p>
          )}
        </>
      )}
    </Popover>
  );
}
