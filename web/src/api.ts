// SPDX-License-Identifier: Apache-2.0
// Types of the server's responses, and the functions that request them.
import { useEffect, useState } from "preact/hooks";
import { encode, useRefreshed, type Query } from "./state";
import type { Flamebearer } from "./flame/model";

export interface Figures {
  samples: number;
  cpu_ns: number;
  types: Record<string, { samples: number; value: number }>;
}

export interface SpanFigures extends Figures {
  /** Includes child spans of the same service. */
  subtree?: Figures;
}

export interface Span {
  trace_id: string;
  span_id: string;
  parent_id: string;
  service: string;
  name: string;
  kind: string;
  status: string;
  start_unix_ns: string;
  duration_ns: number;
  profile?: SpanFigures;
}

export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
export interface Attribute {
  key: string;
  value: Json;
}

export interface TraceSpan extends Omit<Span, "trace_id"> {
  resource: number;
  status_message?: string;
  scope?: string;
  attributes?: Attribute[];
  events?: { time_unix_ns: string; name: string; attributes?: Attribute[] }[];
  links?: { trace_id: string; span_id: string; attributes?: Attribute[] }[];
}

export interface Trace {
  trace_id: string;
  resources: { service: string; attributes?: Attribute[] }[];
  spans: TraceSpan[];
  cut: string | null;
}

export interface ProfileType {
  id: string;
  name: string;
  unit: string;
  samples: number;
  total: number | null;
}

export interface Profile {
  types: ProfileType[];
  type: string;
  unit: string;
  average: boolean;
  flamebearer: Flamebearer;
  samples: number;
  why_empty: string | null;
  why_span: string | null;
  cut: string | null;
}

export interface Difference {
  type: string;
  unit: string;
  average: boolean;
  flamebearer: Flamebearer;
  left: { total: number; samples: number };
  right: { total: number; samples: number };
  cut: string | null;
}

interface SlowSide {
  spans: number;
  min_duration_ns: number;
  median_duration_ns: number;
  cpu_ns_per_span: number;
  examples?: { trace_id: string; span_id: string; duration_ns: number }[];
}

export interface Slow {
  slow: SlowSide;
  typical: SlowSide;
  type: string;
  unit: string;
  flamebearer: Flamebearer;
  functions: { name: string; typical_per_span: number; slow_per_span: number; delta: number }[];
  why_empty: string | null;
  cut: string | null;
}

export interface Service {
  name: string;
  spans: number;
  operations: { name: string; spans: number }[];
  profile_types: string[];
}

export interface Bucket {
  spans: number;
  errors: number;
  p50_ns: number;
  p95_ns: number;
  max_ns: number;
  cpu_ns: number;
}

export interface Timeline {
  step_ns: number;
  start_unix_ns: string;
  buckets: Bucket[];
  cut: string | null;
}

export interface JoinRow {
  name: string;
  spans: number;
  spans_with_samples: number;
  samples: number;
  samples_with_span: number;
  samples_of_unknown_span: number;
  samples_ambiguous: number;
  median_skew_ns: number | null;
  hint: string | null;
}

export interface Found {
  place: string;
  key: string;
  kind: string;
  service: string;
  example: string;
  count: number;
  trace_id?: string;
  span_id?: string;
}

export interface Masked {
  processor: string;
  rule: string;
  place: string;
  key: string;
  became: string;
  count: number;
  last_unix_ns: string;
}

export interface Privacy {
  kinds: { name: string; option: string; pattern: string }[];
  found: Found[];
  looked_at: { spans: number; series: number; functions: number };
  processors: string[];
  masked: Masked[];
  masked_left_out: number;
  cut: string | null;
}

export interface Status {
  version: string;
  now_unix_ns: string;
  started_unix_ns: string;
  store: {
    bytes: number;
    max_bytes: number;
    partitions: number;
    damaged: number;
    unread: number;
    spans: number;
    samples: number;
    oldest_unix_ns?: string;
    newest_unix_ns?: string;
  };
}

export const url = (path: string, query: Query = {}): string => {
  const text = encode(query);
  return `/api/braid/${path}${text ? `?${text}` : ""}`;
};

let loginNeeded: (() => void) | null = null;
/** Sets the function that is called when Braid rejects a request because the browser is not logged in. */
export const onLoginNeeded = (listener: () => void): void => void (loginNeeded = listener);

/** Requests JSON. Every failure is thrown as an error with a readable message. */
export async function get<T>(address: string, signal?: AbortSignal): Promise<T> {
  let response: Response;
  try {
    response = await fetch(address, { signal, headers: { accept: "application/json" } });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Error("Braid does not respond. Is it still running?");
  }
  const text = await response.text();
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    body = null;
  }
  if (response.status === 401) loginNeeded?.();
  if (!response.ok) {
    const error = (body as { error?: unknown } | null)?.error;
    const message =
      typeof error === "object" ? (error as { message?: unknown } | null)?.message : error;
    throw new Error(
      typeof message === "string"
        ? message
        : text.slice(0, 300).trim() || `Braid responded with status ${response.status}.`,
    );
  }
  if (body === null) throw new Error("Braid's response is not valid JSON.");
  return body as T;
}

export interface ResponseState<T> {
  data: T | null;
  error: string;
  loading: boolean;
  /** Time at which the response was complete (performance.now), in ms. */
  at: number;
}

/**
 * Fetches an address, again when it changes or on refresh. The last response is shown until the
 * next one arrives, so that the page does not flicker. An empty address fetches nothing.
 */
export function useResponse<T>(address: string): ResponseState<T> {
  const refreshed = useRefreshed();
  const [state, setState] = useState<ResponseState<T> & { address: string }>({
    data: null,
    error: "",
    loading: address !== "",
    at: 0,
    address: "",
  });
  useEffect(() => {
    if (!address) {
      setState({ data: null, error: "", loading: false, at: 0, address: "" });
      return undefined;
    }
    const abort = new AbortController();
    setState((old) => ({ ...old, loading: true }));
    get<T>(address, abort.signal).then(
      (data) => setState({ data, error: "", loading: false, at: performance.now(), address }),
      (error: unknown) => {
        if (!abort.signal.aborted)
          setState({
            data: null,
            error: error instanceof Error ? error.message : String(error),
            loading: false,
            at: 0,
            address,
          });
      },
    );
    return () => abort.abort();
  }, [address, refreshed]);
  return state;
}
