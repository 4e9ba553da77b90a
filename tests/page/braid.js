// SPDX-License-Identifier: Apache-2.0
// Starts $BRAID, or build/braid, for tests in a browser.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const program = process.env.BRAID ?? new URL("../../build/braid", import.meta.url).pathname;

/** Starts Braid with a store in a new directory, on ports that the system chooses. `http`:
 * further options of the OTLP receiver. */
export async function startBraid(http = "") {
  const folder = mkdtempSync(join(tmpdir(), "braid-page-"));
  const config = join(folder, "config.yaml");
  writeFileSync(
    config,
    `
receivers:
  otlp: {protocols: {http: {endpoint: "127.0.0.1:0"${http}}}}
processors:
  join: {}
exporters:
  store: {directory: ${join(folder, "store")}}
extensions:
  query: {endpoint: "127.0.0.1:0", store: store}
service:
  extensions: [query]
  telemetry: {metrics: {level: none}}
  pipelines:
    traces: {receivers: [otlp], processors: [join], exporters: [store]}
    profiles: {receivers: [otlp], processors: [join], exporters: [store]}
`,
  );
  const child = spawn(program, ["--config", config], { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  const ports = await new Promise((done, failed) => {
    child.on("exit", (code) => failed(new Error(`braid ended with ${code}: ${log}`)));
    child.stderr.on("data", (data) => {
      log += data;
      const found = (who) =>
        new RegExp(`${who}\\s+http listening on 127\\.0\\.0\\.1:(\\d+)`).exec(log)?.[1];
      if (found("extension/query") && found("receiver/otlp"))
        done({ query: found("extension/query"), otlp: found("receiver/otlp") });
    });
  });
  return {
    url: `http://127.0.0.1:${ports.query}/`,
    otlp: `http://127.0.0.1:${ports.otlp}/`,
    close: () =>
      new Promise((done) => {
        child.removeAllListeners("exit");
        child.on("exit", () => {
          rmSync(folder, { recursive: true });
          done();
        });
        child.kill("SIGTERM");
      }),
  };
}
