# SPDX-License-Identifier: Apache-2.0
"""bridges/python: the labels of a thread are those of its current span, in nested spans, threads, tasks and generators. The
module `pyroscope` is a fake that records the labels of each thread. The last test uses the real profiler."""

import asyncio
import collections
import concurrent.futures
import contextvars
import gc
import json
import importlib.util
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import types

import pytest

context_api = pytest.importorskip("opentelemetry.context")
from opentelemetry import trace  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF  # noqa: E402

BRIDGE = pathlib.Path(__file__).parents[2] / "bridges" / "python"


class Labels:
    """Replaces the module pyroscope. `interrupts` are called after the next changes, one each."""

    def __init__(self):
        self.of_thread = collections.defaultdict(set)
        self.interrupts = []
        self.changes = 0
        self.errors = []  # the bridge may be called where nothing catches an assertion

    def add_thread_tag(self, key, value):
        mine = self.of_thread[threading.get_ident()]
        if any(key == other for other, _ in mine):
            self.errors.append(f"two labels {key}")
        mine.add((key, value))
        self._changed()

    def remove_thread_tag(self, key, value):
        mine = self.of_thread[threading.get_ident()]
        if (key, value) not in mine:
            self.errors.append(f"removed {key} twice")
        mine.discard((key, value))
        self._changed()

    def _changed(self):
        self.changes += 1
        interrupt = self.interrupts.pop(0) if self.interrupts else None
        if interrupt:
            interrupt()


def patched():
    """Returns (owner, name) of everything that install() replaces."""
    found = [(context_api, "_RUNTIME_CONTEXT"), (asyncio.Handle, "_run"), (asyncio.BaseEventLoop, "create_task"),
             (concurrent.futures.ThreadPoolExecutor, "submit")]
    if importlib.util.find_spec("anyio"):
        import anyio.to_thread
        found.append((anyio.to_thread, "run_sync"))
    if importlib.util.find_spec("uvloop"):
        import uvloop
        found += [(uvloop.Loop, name) for name in ("create_task", "call_soon", "call_soon_threadsafe", "call_later", "call_at")]
    return found


@pytest.fixture(scope="module")
def installed():
    fake, before = Labels(), [(owner, name, getattr(owner, name)) for owner, name in patched()]
    module = types.ModuleType("pyroscope")
    module.add_thread_tag, module.remove_thread_tag = fake.add_thread_tag, fake.remove_thread_tag
    replaced = sys.modules.get("pyroscope")
    sys.modules["pyroscope"] = module
    try:
        spec = importlib.util.spec_from_file_location("braid_bridge", BRIDGE / "braid_bridge.py")
        bridge = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(bridge)
    finally:
        sys.modules.pop("pyroscope")
        if replaced:
            sys.modules["pyroscope"] = replaced
    early = context_api.attach(context_api.Context())
    provider = TracerProvider()
    bridge.install(provider)
    context_api.detach(early)
    yield types.SimpleNamespace(labels=fake, bridge=bridge, provider=provider)
    for owner, name, value in before:
        setattr(owner, name, value)


@pytest.fixture
def labels(installed):
    yield installed.labels
    assert not installed.labels.errors
    assert not installed.labels.of_thread[threading.get_ident()], "the thread is left with labels"


@pytest.fixture
def tracer(installed, labels):
    return installed.provider.get_tracer("test")


def ids(span):
    of = span.get_span_context()
    return {("span_id", trace.format_span_id(of.span_id)), ("trace_id", trace.format_trace_id(of.trace_id))}


@pytest.fixture
def check(labels):
    """check(span) compares the labels of this thread; check() those of the current span."""
    def compare(span=...):
        if span is ...:
            span = trace.get_current_span()
            span = span if span.is_recording() else None
        assert labels.of_thread[threading.get_ident()] == (ids(span) if span else set())
    return compare


# One thread


def test_nested(tracer, check):
    with tracer.start_as_current_span("a") as a:
        check(a)
        with tracer.start_as_current_span("b") as b:
            check(b)
        check(a)
        with pytest.raises(ZeroDivisionError), tracer.start_as_current_span("c"):
            1 / 0
        check(a)
    check(None)


def test_started_but_not_current(tracer, check):
    span = tracer.start_span("a")
    check(None)
    with trace.use_span(span):
        check(span)
    check(None)
    with trace.use_span(span, end_on_exit=True):
        check(span)


def test_ended_while_current(tracer, check):
    with tracer.start_as_current_span("a") as a:
        with tracer.start_as_current_span("b") as b:
            b.end()
            check(None)
        check(a)


def test_parent_ends_first(tracer, check):
    with tracer.start_as_current_span("a") as a, tracer.start_as_current_span("b") as b:
        a.end()
        check(b)
    check(None)


def test_detached_out_of_order(tracer, check):
    a, b = tracer.start_span("a"), tracer.start_span("b")
    first = context_api.attach(trace.set_span_in_context(a))
    second = context_api.attach(trace.set_span_in_context(b))
    context_api.detach(first)
    check()  # none: OpenTelemetry restores the context before a
    a.end()
    context_api.detach(second)
    check(None)  # OpenTelemetry's current span is a, which has ended
    assert trace.get_current_span() is a
    context_api.attach(context_api.Context())


def test_never_detached(tracer, check):
    def forgets():
        context_api.attach(trace.set_span_in_context(tracer.start_span("a")))
        check()
        trace.get_current_span().end()
        check(None)
    contextvars.copy_context().run(forgets)
    check(None)


def test_other_values(tracer, check):
    with tracer.start_as_current_span("a") as a:
        token = context_api.attach(context_api.set_value("key", "value"))
        check(a)
        context_api.detach(token)
        check(a)


def test_spans_that_are_not_stored(tracer, check):
    remote = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(1)))
    with trace.use_span(remote):
        check(None)
        with tracer.start_as_current_span("a") as a:
            check(a)
        check(None)
    with TracerProvider(sampler=ALWAYS_OFF).get_tracer("off").start_as_current_span("dropped"):
        check(None)


def test_generator(tracer, check):
    def generate():
        with tracer.start_as_current_span("g"):
            check()
            yield
            check()
            yield
    with tracer.start_as_current_span("a"):
        for _ in generate():
            check()  # the generator's span: generators share the context of their caller
        check()
    check(None)
    unfinished = generate()
    next(unfinished)
    check()
    del unfinished
    gc.collect()
    check(None)


def test_context_entered_unnoticed(tracer, check):
    """A thread that runs a context manually does not keep the labels of that context."""
    def inside():
        with tracer.start_as_current_span("b") as b:
            check(b)
        check(None)
    a = tracer.start_span("a")
    with trace.use_span(a):
        context = contextvars.copy_context()
    context.run(inside)
    check(None)
    context.run(context_api.attach, context_api.get_current())  # and not detached
    with tracer.start_as_current_span("c") as c:
        check(c)
    check(None)


def test_context_entered_unnoticed_by_two_threads(tracer, check):
    with tracer.start_as_current_span("a") as a:
        context = contextvars.Context()
        token = context.run(context_api.attach, context_api.Context())
        check(None)
        in_thread(lambda: (context.run(context_api.detach, token), check(None)))
        assert a.is_recording()


def test_labelled(installed, tracer, check):
    with tracer.start_as_current_span("a") as a:
        context = contextvars.copy_context()
        context.run(installed.bridge.labelled(check), a)
        thread = concurrent.futures.ThreadPoolExecutor(1)
        thread.submit(check, None).result()
        thread.submit(lambda: context.run(installed.bridge.labelled(check), a)).result()
        thread.submit(check, None).result()


@pytest.mark.parametrize("at", range(4))
def test_interrupted(tracer, labels, check, at):
    """A signal handler or a finalizer that uses spans interrupts a change of labels."""
    def handler():
        with tracer.start_as_current_span("handler"):
            pass
    other = tracer.start_span("other")
    with tracer.start_as_current_span("a"):
        labels.interrupts = at * [None] + [handler]
        with tracer.start_as_current_span("b") as b:
            check(b)
            labels.interrupts = at * [None] + [lambda: context_api.attach(trace.set_span_in_context(other))]
        check()
    check()


# Threads


def in_thread(function, *args):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result()


def test_ended_in_another_thread(tracer, check):
    with tracer.start_as_current_span("a"):
        with tracer.start_as_current_span("b") as b:
            in_thread(b.end)
        check()
    check(None)


def test_detached_in_another_thread(tracer, check):
    span = tracer.start_span("a")
    tokens = [context_api.attach(trace.set_span_in_context(span))]
    in_thread(context_api.detach, tokens[0])  # refused by OpenTelemetry, and logged
    in_thread(check, None)
    check(span)
    context_api.detach(tokens[0])
    check(None)


def test_thread_ends_with_a_label(tracer, labels):
    def forgets():
        kept.append(context_api.attach(trace.set_span_in_context(tracer.start_span("a"))))
        return threading.get_ident()
    kept, ident = [], []
    thread = threading.Thread(target=lambda: ident.append(forgets()))
    thread.start()
    thread.join()
    assert not labels.of_thread[ident[0]]


@pytest.mark.parametrize("way", ["to_thread", "executor", "anyio"])
def test_context_in_another_thread(tracer, check, way):
    def work(expected):
        check(expected)
        with tracer.start_as_current_span("below"):
            check()
        check(expected)

    async def main():
        pool = concurrent.futures.ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(pool)
        with tracer.start_as_current_span("a") as a:
            if way == "to_thread":
                await asyncio.to_thread(work, a)
            elif way == "executor":
                await asyncio.wrap_future(pool.submit(contextvars.copy_context().run, work, a))
            else:
                await pytest.importorskip("anyio").to_thread.run_sync(work, a)
            check(a)
        await asyncio.get_running_loop().run_in_executor(None, check, None)
    asyncio.run(main())


def test_fork(tracer, check, labels):
    with tracer.start_as_current_span("a"):
        # a copy, like the profiler's labels in a child process
        labels.of_thread, kept = collections.defaultdict(set), labels.of_thread
        child = os.fork()
        if child == 0:
            status = 1
            try:
                check(None)
                with tracer.start_as_current_span("b") as b:
                    check(b)
                check(None)  # a belongs to the parent process, and does not end here
                status = len(labels.errors)
            finally:
                os._exit(status)
        labels.of_thread = kept
        assert os.waitpid(child, 0)[1] == 0


# asyncio


@pytest.fixture(params=["asyncio", "debug", "eager", "uvloop", "uvloop eager"])
def run(request, labels):
    """run(coroutine) runs it in a loop of each kind."""
    loop = (pytest.importorskip("uvloop") if "uvloop" in request.param else asyncio).new_event_loop()
    loop.set_debug(request.param == "debug")
    if "eager" in request.param:
        if sys.version_info < (3, 12):
            pytest.skip("eager tasks are of Python 3.12")
        loop.set_task_factory(asyncio.eager_task_factory)
        try:
            loop.run_until_complete(asyncio.sleep(0))
        except TypeError:  # Python 3.13.0 with uvloop 0.23.0
            loop.close()
            pytest.skip("uvloop cannot run eager tasks here")
    yield lambda coroutine: loop.run_until_complete(asyncio.wait_for(coroutine, 30))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def test_tasks_interleave(run, tracer, check):
    async def request(n):
        check()
        with tracer.start_as_current_span(str(n)) as own:
            for i in range(5):
                check(own)
                await asyncio.sleep(0 if n % 2 else 0.001)
                check(own)
                with tracer.start_as_current_span(f"{n}.{i}") as below:
                    await asyncio.sleep(0)
                    check(below)
        check()

    async def main():
        await asyncio.gather(*map(request, range(10)))
        check(None)
        with tracer.start_as_current_span("around") as around:
            tasks = [asyncio.create_task(request(n)) for n in range(4)]
            check(around)
            await asyncio.gather(*tasks)
            check(around)
    run(main())
    with tracer.start_as_current_span("outside") as outside:
        run(main_in(check, outside))
        check(outside)


async def main_in(check, span):
    check(span)
    await asyncio.sleep(0)
    check(span)


def test_cancelled(run, tracer, check):
    async def forever():
        with tracer.start_as_current_span("a") as a:
            try:
                await asyncio.sleep(60)
            finally:
                check(a)
                with tracer.start_as_current_span("cleanup"):
                    await asyncio.sleep(0)
                    check()

    async def main():
        task = asyncio.create_task(forever())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        check(None)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(forever(), 0.01)
        check(None)
    run(main())


def test_task_fails(run, tracer, check):
    async def fails():
        with tracer.start_as_current_span("a"):
            await asyncio.sleep(0)
            raise LookupError

    async def main():
        with tracer.start_as_current_span("b") as b, pytest.raises(LookupError):
            await asyncio.create_task(fails())
        check(None)
        assert b
    run(main())


def test_async_generator(run, tracer, check):
    async def generate():
        with tracer.start_as_current_span("g"):
            for _ in range(3):
                await asyncio.sleep(0)
                check()
                yield

    async def main():
        with tracer.start_as_current_span("a"):
            async for _ in generate():
                check()
                await asyncio.sleep(0)
                check()
            check()
        check()

    async def closed_by_another_task():
        generator = generate()
        with tracer.start_as_current_span("a"):
            await generator.__anext__()
            check()
            await asyncio.create_task(generator.aclose())  # OpenTelemetry cannot detach there, and logs it
            check()

    async def abandoned():
        await asyncio.create_task(generate().__anext__())
        gc.collect()
        await asyncio.sleep(0)
        check()
    for each in main, closed_by_another_task, abandoned:
        run(each())


def test_callbacks(run, tracer, labels):
    async def main():
        loop, called, span, seen = asyncio.get_running_loop(), loop_future(), tracer.start_span("a"), []

        def callback():
            seen.append(set(labels.of_thread[threading.get_ident()]))
            if len(seen) == 3:
                called.set_result(None)
        with trace.use_span(span):
            loop.call_soon(callback)
            loop.call_soon(callback, context=contextvars.Context())
            loop.call_later(0.01, callback)
        await called
        span.end()
        assert seen == [ids(span), set(), ids(span)]
    run(main())


def loop_future():
    return asyncio.get_running_loop().create_future()


def test_existing_task_factory_is_kept(run, tracer, check):
    async def main():
        loop, made = asyncio.get_running_loop(), []

        def factory(loop, coroutine, **options):
            made.append(asyncio.Task(coroutine, loop=loop, **options))
            return made[-1]
        loop.set_task_factory(factory)
        with tracer.start_as_current_span("a") as a:
            await asyncio.create_task(main_in(check, a))
        assert loop.get_task_factory() is factory and len(made) == 1
    run(main())


def test_eager_first_step(tracer, check):
    """A task factory that takes the first step within create_task."""
    def factory(loop, coroutine, **options):
        contextvars.copy_context().run(coroutine.send, None)
        coroutine.close()
        return asyncio.Task(asyncio.sleep(0), loop=loop)

    async def request():
        with tracer.start_as_current_span("b"):
            check()
            await loop_future()

    async def main():
        with tracer.start_as_current_span("a") as a:
            asyncio.get_running_loop().set_task_factory(factory)
            task = asyncio.create_task(request())
            check(a)
            asyncio.get_running_loop().set_task_factory(None)
            await task
    asyncio.run(main())


def test_unchanged_labels_cost_no_call(labels, tracer):
    async def main():
        with tracer.start_as_current_span("a"):
            before = labels.changes
            for _ in range(10):
                await asyncio.sleep(0)
            assert labels.changes - before <= 10 * 4  # removed and set once per step
    asyncio.run(main())


@pytest.mark.parametrize("seed", range(5))
def test_at_random(run, tracer, check, seed):
    dice = random.Random(seed)

    async def walk(depth):
        for _ in range(dice.randint(1, 4)):
            check()
            way = dice.randrange(6)
            if way == 0:
                await asyncio.sleep(dice.choice((0, 0.001)))
            elif way == 1 and depth:
                await asyncio.gather(walk(depth - 1), walk(depth - 1))
            elif way == 2 and depth:
                with tracer.start_as_current_span("s"):
                    await walk(depth - 1)
            elif way == 3 and depth:
                task = asyncio.create_task(walk(depth - 1))
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            elif way == 4:
                await asyncio.to_thread(check, trace.get_current_span() if trace.get_current_span().is_recording() else None)
            elif depth:
                with trace.use_span(tracer.start_span("t"), end_on_exit=dice.random() < 0.5):
                    await walk(depth - 1)
            check()
    run(walk(5))


def test_signal(tracer, check):
    def handler(*_):
        with tracer.start_as_current_span("handler"):
            check()
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with tracer.start_as_current_span("a") as a:
            os.kill(os.getpid(), signal.SIGUSR1)
            check(a)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_installed_twice(installed, tracer, check):
    installed.bridge.install(installed.provider)
    test_nested(tracer, check)
    other = TracerProvider()
    installed.bridge.install(other)
    with tracer.start_as_current_span("a") as a, other.get_tracer("x").start_as_current_span("b") as b:
        check(b)
        b.end()
        check(None)
    assert a


# The real profiler


PROGRAM = """
import asyncio, json, os, time
import braid_bridge, pyroscope
from opentelemetry.sdk.trace import TracerProvider

provider = TracerProvider()
braid_bridge.install(provider)
pyroscope.configure(application_name="shop", server_address=os.environ["PYROSCOPE"])
tracer = provider.get_tracer("shop")
ids = {"GET /burn": [], "GET /idle": []}

def guilty(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        for i in range(1000):
            pass

async def request(name, pauses, work):
    with tracer.start_as_current_span(name) as span:
        ids[name].append(format(span.get_span_context().span_id, "016x"))
        for pause in pauses:
            await asyncio.sleep(pause)
            work()

async def main():
    for _ in range(5):
        await asyncio.gather(request("GET /burn", (0.05, 0.05), lambda: guilty(0.2)),
                             *(request("GET /idle", (0.02, 0.3), lambda: None) for _ in range(2)))

asyncio.run(main())
pyroscope.shutdown()
print(json.dumps(ids))
"""


def test_profiler():
    """Two requests interleave on one thread. One of them computes, the other one only waits."""
    import programs
    from pyroscope import Pyroscope  # the harness's stand-in for the server
    server = Pyroscope()
    try:
        done = subprocess.run([programs.SDKS["python"][0][0], "-c", PROGRAM], stdout=subprocess.PIPE, timeout=120, check=True,
                              env={**os.environ, "PYTHONPATH": str(BRIDGE), "PYROSCOPE": server.url,
                                   "PYTHONDONTWRITEBYTECODE": "1"})
        ids, of_span = json.loads(done.stdout), collections.Counter()
        for key, value in server.stored().items():
            if any(frame[0] == "guilty" for frame in key.stack):
                of_span[key.span_id] += value / 1e9
        whole, burnt = sum(of_span.values()), sum(of_span[each] for each in ids["GET /burn"])
        assert whole > 1 and burnt >= 0.9 * whole, of_span
        # The profiler reads the labels a moment after the stack.
        assert sum(of_span[each] for each in ids["GET /idle"]) <= 0.02 * whole, of_span
    finally:
        server.close()
