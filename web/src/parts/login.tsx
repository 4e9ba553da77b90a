// SPDX-License-Identifier: Apache-2.0
// Asks for the credentials once, if the server checks them. The server then knows the browser by a cookie.
import { useEffect, useRef, useState } from "preact/hooks";
import { onLoginNeeded, url } from "../api";
import { refresh } from "../state";
import { Icon } from "./basics";

interface Session {
  required: boolean;
  session: boolean;
  credentials?: "password" | "token";
  header?: string;
  scheme?: string;
}

const address = url("session");

/** Encodes text as the base64 of its UTF-8 bytes. */
const base64 = (text: string): string =>
  btoa(String.fromCharCode(...new TextEncoder().encode(text)));

/** Returns the text of a field; "" if the form does not have it. */
const textOf = (fields: FormData, name: string): string => {
  const value = fields.get(name);
  return typeof value === "string" ? value : "";
};

const ask = async (method: string, headers: Record<string, string> = {}): Promise<Response> =>
  fetch(address, { method, headers, cache: "no-store" });

export function Login() {
  const dialog = useRef<HTMLDialogElement>(null);
  const [session, setSession] = useState<Session | null>(null);
  const [error, setError] = useState("");
  const look = async (): Promise<void> => {
    try {
      setSession((await (await ask("GET")).json()) as Session);
    } catch {
      setSession(null); // the views show that Braid does not respond
    }
  };
  useEffect(() => {
    onLoginNeeded(() => void look());
    void look();
  }, []);
  const asks = session !== null && session.required && !session.session;
  useEffect(() => {
    if (asks && !dialog.current?.open) dialog.current?.showModal();
    if (!asks) dialog.current?.close();
  }, [asks]);
  const logIn = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const fields = new FormData(event.target as HTMLFormElement);
    const secret = textOf(fields, "secret");
    const value =
      session?.credentials === "password" ? base64(`${textOf(fields, "name")}:${secret}`) : secret;
    try {
      const response = await ask("POST", {
        [session?.header ?? "authorization"]: session?.scheme
          ? `${session.scheme} ${value}`
          : value,
      });
      setError(
        response.ok
          ? ""
          : response.status === 429
            ? "Too many attempts. Wait a few seconds."
            : "Not accepted.",
      );
      if (!response.ok) return;
      setSession((await response.json()) as Session);
      refresh();
    } catch {
      setError("The characters cannot be sent, or Braid does not respond.");
    }
  };
  const logOut = async (): Promise<void> => {
    await ask("DELETE").catch(() => undefined);
    location.reload();
  };
  return (
    <>
      {session?.session && (
        <button
          type="button"
          class="button square"
          onClick={() => void logOut()}
          aria-label="Log out"
          title="Log out"
        >
          <Icon name="close" />
        </button>
      )}
      <dialog
        class="login"
        ref={dialog}
        aria-labelledby="login-title"
        onCancel={(event) => event.preventDefault()}
      >
        <header>
          <h2 id="login-title">Log in</h2>
        </header>
        <form onSubmit={(event) => void logIn(event)}>
          {session?.credentials === "password" && (
            <label class="field">
              User <input name="name" autocomplete="username" required />
            </label>
          )}
          <label class="field">
            {session?.credentials === "password" ? "Password" : "Token"}{" "}
            <input name="secret" type="password" autocomplete="current-password" required />
          </label>
          <button type="submit" class="button primary">
            Log in
          </button>
          <p role="alert">{error}</p>
        </form>
      </dialog>
    </>
  );
}
