// SPDX-License-Identifier: Apache-2.0
// The bridge for Node.js (bridges/node) with a profiler whose samples are taken by the test: sample(name) notes the
// context object, as the real one does, and flush() returns {name: labels}.
"use strict";
const assert = require("node:assert");
const { AsyncLocalStorage, AsyncResource } = require("node:async_hooks");
const { once } = require("node:events");
const http = require("node:http");
const { afterEach, beforeEach, test } = require("node:test");
const { setImmediate: turn, setTimeout: sleep } = require("node:timers/promises");
const { install } = require("../../../bridges/node");

const API = Symbol.for("opentelemetry.js.api.1");
const SPAN = Symbol.for("OpenTelemetry Context Key SPAN");

class Profiler {
  constants = { kSampleCount: 0 };
  started = false;
  isStarted() {
    return this.started;
  }
  getState() {
    return this.state;
  }
  getContext() {
    return this.context;
  }
  setContext(context) {
    if (!this.started) throw new Error("Wall profiler is not started");
    this.context = context;
  }

  // Used as in @pyroscope/nodejs.
  start() {
    this.started = true;
    this.state = new Uint32Array(1);
    this.samples = [];
    this.pyroscope({});
  }
  pyroscope(context) {
    this.last = context;
    this.setContext(context);
  }
  setLabels(labels) {
    this.pyroscope({ labels });
  }
  wrapWithLabels(labels, fn) {
    const old = this.last.labels ?? {};
    this.setLabels({ ...old, ...labels });
    fn();
    this.setLabels({ ...old });
  }
  flush() {
    this.pyroscope({});
    return this.stop(true, ({ context }) => ({ ...(context?.context?.labels ?? {}) }));
  }

  stop(restart, labelsOf) {
    const taken = this.samples.map(({ name, node, context }) => [
      name,
      labelsOf({ node, context: { context } }),
    ]);
    this.samples = [];
    this.state[0] = 0;
    return Object.fromEntries(taken);
  }

  sample(name, node = "f") {
    this.samples.push({ name, node: { name: node }, context: this.context });
    this.state[0]++;
  }
}

class Context {
  constructor(span) {
    this.span = span;
  }
  getValue(key) {
    return key === SPAN ? this.span : undefined;
  }
}

class Manager {
  storage = new AsyncLocalStorage();
  active() {
    return this.storage.getStore() ?? new Context();
  }
  with(context, fn, thisArg, ...args) {
    return this.storage.run(context, fn.bind(thisArg), ...args);
  }
}

const labels = (id) => ({ span_id: id, trace_id: `trace of ${id}` });
const context = (id, more) =>
  new Context({
    spanContext: () => ({ spanId: id, traceId: `trace of ${id}`, traceFlags: 1, ...more }),
  });
const within = (id, fn, more) => globalThis[API].context.with(context(id, more), fn);

let profiler, uninstall;
beforeEach(() => {
  globalThis[API] = { context: new Manager() };
  profiler = new Profiler();
  uninstall = install(profiler);
  profiler.start();
});
afterEach(() => {
  uninstall();
  delete globalThis[API];
});

test("nested spans, and nothing outside of them", () => {
  profiler.sample("before");
  within("a", () => {
    profiler.sample("a1");
    within("b", () => profiler.sample("b"));
    profiler.sample("a2");
    profiler.sample("a3");
  });
  profiler.sample("after");
  assert.deepStrictEqual(profiler.flush(), {
    before: {},
    a1: labels("a"),
    b: labels("b"),
    a2: labels("a"),
    a3: labels("a"),
    after: {},
  });
});

test("across await, timers, ticks and microtasks", async () => {
  await within("a", async () => {
    profiler.sample("start");
    await null;
    profiler.sample("microtask");
    await sleep(1);
    profiler.sample("timer");
    await within("b", async () => {
      await turn();
      profiler.sample("child");
    });
    profiler.sample("parent");
    await new Promise((done) =>
      process.nextTick(() => {
        profiler.sample("tick");
        done();
      }),
    );
    queueMicrotask(() => profiler.sample("queued"));
    await turn();
  });
  profiler.sample("after");
  assert.deepStrictEqual(profiler.flush(), {
    start: labels("a"),
    microtask: labels("a"),
    timer: labels("a"),
    child: labels("b"),
    parent: labels("a"),
    tick: labels("a"),
    queued: labels("a"),
    after: {},
  });
});

test("concurrent requests of an HTTP server", async () => {
  const names = [...Array(8).keys()].map(String);
  const server = http
    .createServer((request, response) => {
      const name = request.url.slice(1);
      within(name, async () => {
        for (let step = 0; step < 5; step++) {
          profiler.sample(`${name}/${step}`);
          await (step % 2 ? turn() : sleep(step));
        }
        profiler.sample(`${name}/body`);
        response.end();
      });
    })
    .listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  await Promise.all(
    names.map((name) => fetch(`http://127.0.0.1:${port}/${name}`).then((answer) => answer.text())),
  );
  server.close();
  server.closeAllConnections();
  const taken = profiler.flush();
  assert.strictEqual(Object.keys(taken).length, 8 * 6);
  for (const [name, found] of Object.entries(taken))
    assert.deepStrictEqual(found, labels(name.split("/")[0]), name);
});

test("nothing while the thread is idle", async () => {
  profiler.setLabels({ team: "x" });
  await within("a", async () => {
    profiler.sample("start");
    const waited = sleep(1);
    setImmediate(() => profiler.sample("idle", "(idle)")); // before the callback of the timer
    await waited;
    profiler.sample("end");
  });
  assert.deepStrictEqual(profiler.flush(), {
    start: { team: "x", ...labels("a") },
    idle: { team: "x" },
    end: { team: "x", ...labels("a") },
  });
});

test("a callback inside another", async () => {
  const inner = within("inner", () => new AsyncResource("test"));
  await within("outer", async () => {
    await turn();
    profiler.sample("before");
    inner.runInAsyncScope(() => {
      profiler.sample("inside");
      inner.runInAsyncScope(() => profiler.sample("twice"));
    });
    profiler.sample("after");
    await turn();
  });
  assert.deepStrictEqual(profiler.flush(), {
    before: labels("outer"),
    inside: labels("inner"),
    twice: labels("inner"),
    after: labels("outer"),
  });
});

test("labels of the user are kept, and not changed", () => {
  const mine = { team: "x" };
  profiler.setLabels(mine);
  profiler.sample("alone");
  within("a", () => {
    profiler.sample("both");
    profiler.wrapWithLabels({ part: "y" }, () => profiler.sample("more"));
    profiler.sample("again");
    profiler.setLabels({ team: "z" });
    profiler.sample("other");
  });
  assert.deepStrictEqual(mine, { team: "x" });
  assert.deepStrictEqual(profiler.last.labels, { team: "z" });
  assert.deepStrictEqual(profiler.flush(), {
    alone: { team: "x" },
    both: { team: "x", ...labels("a") },
    more: { team: "x", part: "y", ...labels("a") },
    again: { team: "x", ...labels("a") },
    other: { team: "z", ...labels("a") },
  });
});

test("a profile that is sent in the middle of a span", async () => {
  await within("a", async () => {
    profiler.sample("first");
    assert.deepStrictEqual(profiler.flush(), { first: labels("a") });
    profiler.sample("second");
    await turn();
    profiler.sample("third");
    assert.deepStrictEqual(profiler.flush(), { second: labels("a"), third: labels("a") });
    profiler.sample("fourth");
    profiler.sample("fifth"); // the second sample since the last profile, which had two
  });
  profiler.sample("after");
  assert.deepStrictEqual(profiler.flush(), { fourth: labels("a"), fifth: labels("a"), after: {} });
});

test("results, arguments, this and exceptions pass through", async () => {
  const { context: manager } = globalThis[API];
  const that = {};
  const got = manager.with(
    context("a"),
    function (...args) {
      return [this, ...args];
    },
    that,
    1,
    2,
  );
  assert.deepStrictEqual(got, [that, 1, 2]);
  assert.strictEqual(got[0], that);
  assert.throws(
    () =>
      within("a", () => {
        profiler.sample("thrown");
        throw new Error("x");
      }),
    /^Error: x$/,
  );
  const resource = new AsyncResource("test");
  assert.deepStrictEqual(
    resource.runInAsyncScope(
      function (...args) {
        return [this, ...args];
      },
      that,
      1,
      2,
    ),
    [that, 1, 2],
  );
  assert.throws(
    () =>
      resource.runInAsyncScope(() => {
        throw new Error("z");
      }),
    /^Error: z$/,
  );
  await assert.rejects(
    within("a", async () => {
      await turn();
      profiler.sample("rejected");
      throw new Error("y");
    }),
    /y/,
  );
  profiler.sample("after");
  assert.deepStrictEqual(profiler.flush(), {
    thrown: labels("a"),
    rejected: labels("a"),
    after: {},
  });
});

test("spans of another process and unsampled ones label nothing", () => {
  within("a", () => {
    within("remote", () => profiler.sample("remote"), { isRemote: true });
    within("unsampled", () => profiler.sample("unsampled"), { traceFlags: 0 });
    profiler.sample("a");
  });
  assert.deepStrictEqual(profiler.flush(), { remote: {}, unsampled: {}, a: labels("a") });
});

test("a profiler that stops and starts again", async () => {
  await within("a", async () => {
    profiler.sample("first");
    profiler.started = false; // with a sample that has no labels yet
    await turn();
    assert.throws(() => profiler.setLabels({}), /not started/);
    profiler.start();
    profiler.sample("second");
    await turn();
  });
  assert.deepStrictEqual(profiler.flush(), { second: labels("a") });
});

test("uninstall leaves everything as it was", async () => {
  const { context: manager } = globalThis[API];
  const other = new Profiler();
  const now = () => [
    other.setContext,
    other.stop,
    manager.with,
    AsyncResource.prototype.runInAsyncScope,
  ];
  const before = now();
  install(other)();
  assert.deepStrictEqual(now(), before);
});

test("without a context manager it warns and does nothing", async () => {
  delete globalThis[API];
  const warned = once(process, "warning");
  install(new Profiler())();
  assert.match((await warned)[0].message, /no OpenTelemetry context manager/);
});

test("import", async () => {
  const module = await import("../../../bridges/node/index.js");
  assert.strictEqual(module.install, install);
  assert.strictEqual(module.default.install, install);
});
