// SPDX-License-Identifier: Apache-2.0
// Measures the bridge. Run it in a directory with the packages of the Node.js recipe (docs/using/recipes.md), on Linux:
//
//     node PATH/bench.js cost [plain|json|awaits]   cost of the bridge per request of a node:http server
//     node PATH/bench.js share [MS] [MICROS]        share of the CPU time of spans of MS milliseconds that names the span,
//                                                   with one sample per MICROS microseconds, and an idle thread between spans
"use strict";
const fs = require("node:fs");
const http = require("node:http");
const net = require("node:net");
const path = require("node:path");
const { spawn } = require("node:child_process");
const { createRequire } = require("node:module");
const { setImmediate: turn, setTimeout: sleep } = require("node:timers/promises");
const { install } = require("./index.js");

const PHASES = 80; // number of segments of 0.25 s each; the bridge is off, on, on, off, …
const CONNECTIONS = 16;
const [, , what, ...words] = process.argv;

// Returns the CPU time of the thread in microseconds.
function cpu() {
  return fs.readFileSync("/proc/thread-self/schedstat", "utf8").split(" ")[0] / 1e3;
}

function median(values) {
  return values.sort((a, b) => a - b)[values.length >> 1];
}

function start(samplingIntervalMicros) {
  const load = createRequire(path.resolve("index.js"));
  const { BatchSpanProcessor, NodeTracerProvider } = load("@opentelemetry/sdk-trace-node");
  const nowhere = {
    export: (spans, done) => done({ code: 0 }),
    shutdown: async () => {},
    forceFlush: async () => {},
  };
  new NodeTracerProvider({ spanProcessors: [new BatchSpanProcessor(nowhere)] }).register();
  const { default: Pyroscope } = load("@pyroscope/nodejs");
  Pyroscope.init({
    appName: "bench",
    serverAddress: "http://127.0.0.1:9", // nothing is sent
    flushIntervalMs: 1e9,
    wall: { collectCpuTime: true, samplingIntervalMicros },
  });
  Pyroscope.startWallProfiling();
  return {
    tracer: load("@opentelemetry/api").trace.getTracer("bench"),
    time: createRequire(load.resolve("@pyroscope/nodejs"))("@datadog/pprof").time,
  };
}

// Sends requests continuously, one at a time on each connection.
function client(port) {
  const request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (let i = 0; i < CONNECTIONS; i++) {
    const socket = net.connect(port, "127.0.0.1", () => socket.write(request));
    socket.on("data", () => socket.write(request));
    socket.on("error", () => process.exit());
  }
}

const HANDLERS = {
  plain: async () => "ok",
  async json() {
    const text = JSON.stringify(Array.from({ length: 50 }, (_, i) => ({ i, name: `item${i}` })));
    await null;
    JSON.parse(text);
    await turn();
    return text;
  },
  async awaits() {
    for (let i = 0; i < 20; i++) await (async () => {})();
    return "ok";
  },
};

function cost(kind = "plain") {
  const { tracer } = start(10000);
  let requests = 0;
  const server = http
    .createServer((_, response) =>
      tracer.startActiveSpan("GET /", async (span) => {
        requests++;
        response.end(await HANDLERS[kind]());
        span.end();
      }),
    )
    .listen(0, "127.0.0.1", async () => {
      const child = spawn(process.execPath, [__filename, "client", server.address().port], {
        stdio: "ignore",
      });
      const micros = [[], []],
        rate = [[], []];
      await sleep(2000);
      for (let phase = 0; phase < PHASES; phase++) {
        const on = Number((phase & 1) !== ((phase >> 1) & 1));
        const uninstall = on ? install() : () => {};
        const [requests0, cpu0, time0] = [requests, cpu(), performance.now()];
        await sleep(250);
        micros[on].push((cpu() - cpu0) / (requests - requests0));
        rate[on].push(((requests - requests0) / (performance.now() - time0)) * 1e3);
        uninstall();
      }
      child.kill();
      for (const [unit, [off, on]] of [
        ["us of CPU a request", micros.map(median)],
        ["requests/s", rate.map(median)],
      ]) {
        const change = ((on / off - 1) * 100).toFixed(1);
        console.log(
          `${process.version} ${kind}: ${off.toFixed(2)} without, ${on.toFixed(2)} with the bridge, ${unit} (${change} %)`,
        );
      }
      process.exit();
    });
}

async function share(ms = 100, micros = 10000) {
  const { tracer, time } = start(Number(micros));
  install();
  let used = 0;
  while (used < 1e6) {
    await sleep(5 + Math.random() * 5);
    await tracer.startActiveSpan("work", async (span) => {
      const begin = process.cpuUsage();
      const spent = () => {
        const { user, system } = process.cpuUsage(begin);
        return user + system;
      };
      while (spent() < ms * 1000);
      used += spent();
      span.end();
    });
  }
  time.setContext({});
  const profile = time.stop(false, ({ context }) => context?.context?.labels ?? {});
  const { strings } = profile.stringTable;
  const named = profile.sample.filter((sample) =>
    sample.label.some((label) => strings[label.key] === "span_id"),
  );
  const sum = named.reduce((total, sample) => total + Number(sample.value[2]) / 1e3, 0);
  const percent = ((sum / used) * 100).toFixed(0);
  console.log(
    `${process.version}: spans of ${ms} ms, a sample in ${micros} us: ${percent} % of ${(used / 1e6).toFixed(2)} s of CPU`,
  );
  process.exit();
}

({ client, cost, share })[what](...words);
