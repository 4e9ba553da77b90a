// SPDX-License-Identifier: Apache-2.0
// Adds the active OpenTelemetry span to the samples of @pyroscope/nodejs.
//
// The profiler keeps a reference to its current context object with each sample, and reads the labels in that object
// when it sends the profile. The bridge therefore fills in span_id and trace_id after the sample was taken. It splits
// the run time of the thread into segments, in each of which one OpenTelemetry context is active. At the end of a
// segment it compares the profiler's number of samples with the number at the start. If they differ, the samples
// belong to the context of the segment, and the next segment gets another context object.
//
// | a segment ends when                                    | its context is                            |
// |--------------------------------------------------------|-------------------------------------------|
// | the context manager enters or leaves `with`            | the active one, or the argument of `with` |
// | an AsyncResource enters or leaves `runInAsyncScope`    | the active one                            |
// | a callback or a step after `await` ends                | the active one                            |
// | @pyroscope/nodejs sets its labels or sends its profile | the active one                            |
//
// Time between callbacks is part of the next segment. The profiler marks samples of an idle thread, and the bridge
// leaves them without a span.
"use strict";
const { AsyncResource, createHook } = require("node:async_hooks");
const { createRequire } = require("node:module");
const path = require("node:path");

// The names that all copies of @opentelemetry/api share. Using them, the bridge does not depend on one copy.
const API = Symbol.for("opentelemetry.js.api.1");
const SPAN = Symbol.for("OpenTelemetry Context Key SPAN");
const SAMPLED = 1; // bit of SpanContext.traceFlags
const FORCED = -1; // a number of samples that no profiler has

// Returns the sampler inside @pyroscope/nodejs. npm may link this directory, so the program's directory is searched, too.
function findProfiler() {
  for (const from of [__filename, process.argv[1], path.resolve("index.js")]) {
    try {
      return createRequire(createRequire(from).resolve("@pyroscope/nodejs"))("@datadog/pprof").time;
    } catch {
      /* search the next one */
    }
  }
  throw new Error("braid-bridge: cannot find @pyroscope/nodejs; install it next to the program");
}

/**
 * Starts to label samples. Call it once, after the tracer provider is registered. The profiler may start before or
 * after it.
 * @param {object} profiler a substitute for the sampler in @pyroscope/nodejs, for tests
 * @returns {() => void} a function that stops it
 */
function install(profiler = findProfiler()) {
  const manager = globalThis[API]?.context;
  if (manager === undefined) {
    process.emitWarning(
      "braid-bridge: no OpenTelemetry context manager; register the tracer provider before install()",
    );
    return () => {};
  }
  const { setContext, stop } = profiler;
  const run = manager.with;
  const { runInAsyncScope } = AsyncResource.prototype;
  const index = profiler.constants.kSampleCount;
  let base = {}; // the context object as @pyroscope/nodejs set it
  let holder = {}; // the context object that the profiler has instead; its labels without a span are `own`
  let state = [0]; // state[index] is the number of samples so far
  let seen = 0; // the number of samples at the start of the segment

  function renew() {
    seen = state[index];
    holder = { ...base, own: base.labels };
    if (profiler.isStarted()) setContext.call(profiler, holder);
  }

  // Ends a segment that has samples and in which `active` was the context.
  function end(active) {
    const span = active.getValue(SPAN)?.spanContext();
    if (span !== undefined && span.traceFlags & SAMPLED && !span.isRemote) {
      holder.labels = { ...holder.labels, span_id: span.spanId, trace_id: span.traceId };
    }
    renew();
  }

  profiler.setContext = function (next) {
    if (!profiler.isStarted()) return setContext.call(profiler, next);
    if (state[index] !== seen) end(manager.active());
    base = next;
    state = profiler.getState();
    renew();
    seen = FORCED; // the profiler resets its number after this when it sends a profile
  };
  profiler.stop = function (restart, labelsOf, ...rest) {
    return stop.call(
      profiler,
      restart,
      labelsOf &&
        ((sample) => {
          const context = sample.context?.context;
          if (sample.node?.name !== "(idle)" || context === undefined || !("own" in context))
            return labelsOf(sample);
          return labelsOf({
            ...sample,
            context: { ...sample.context, context: { ...context, labels: context.own } },
          });
        }),
      ...rest,
    );
  };
  manager.with = function (active, ...rest) {
    if (state[index] !== seen) end(manager.active());
    try {
      return run.call(this, active, ...rest);
    } finally {
      if (state[index] !== seen) end(active);
    }
  };
  AsyncResource.prototype.runInAsyncScope = function (fn, thisArg, ...args) {
    if (state[index] !== seen) end(manager.active());
    return runInAsyncScope.call(
      this,
      function (...given) {
        try {
          return fn.apply(this, given);
        } finally {
          if (state[index] !== seen) end(manager.active());
        }
      },
      thisArg,
      ...args,
    );
  };
  const hook = createHook({
    after() {
      if (state[index] !== seen) end(manager.active());
    },
  }).enable();
  if (profiler.isStarted()) profiler.setContext(profiler.getContext() ?? {});

  return function uninstall() {
    hook.disable();
    AsyncResource.prototype.runInAsyncScope = runInAsyncScope;
    manager.with = run;
    Object.assign(profiler, { setContext, stop });
    if (profiler.isStarted()) setContext.call(profiler, base);
  };
}

module.exports = { install };
