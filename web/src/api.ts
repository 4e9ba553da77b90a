// SPDX-License-Identifier: Apache-2.0
// Functions that request data from the server. openapi.d.ts, which is generated from
// extensions/query/openapi.json, has the types of the responses.
import { useEffect, useState } from "preact/hooks";
import { encode, useRefreshed, type Query } from "./state";

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
  /** Address of the request that `data` or `error` answers. */
  address: string;
}

/**
 * Fetches an address, again when it changes or on refresh. The last response is shown until the
 * next one arrives, so that the page does not flicker. An empty address fetches nothing.
 */
export function useResponse<T>(address: string): ResponseState<T> {
  const refreshed = useRefreshed();
  const [state, setState] = useState<ResponseState<T>>({
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
