# SPDX-License-Identifier: Apache-2.0
"""Labels the samples of pyroscope-io with `span_id` and `trace_id` of the span that is current where they are taken.

Call `install(tracer_provider)` once, before the program's first span. The labels of a thread follow OpenTelemetry's
current span: they change when a context is attached or detached, when the span ends, and when the thread enters or leaves
another context (a step of an asyncio task, a function that asyncio.to_thread, anyio or an executor runs)."""

import asyncio
import concurrent.futures
import contextvars
import functools
import os
import threading

import opentelemetry.context
import pyroscope
from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

__all__ = ["install", "labelled"]


class _State:
    """The labels of one thread: `span` is the span that the thread is labelled with, `wanted` the one that it should be."""

    __slots__ = ("busy", "span", "thread", "wanted")

    def __init__(self):
        self.busy, self.span, self.wanted = False, None, None
        self.thread = object()  # identifies the thread; threading.get_ident() values are reused

    def label(self, span):
        """Labels the calling thread with a span, or with none. A signal handler or a finalizer may
        interrupt this function and call it again."""
        self.wanted = span
        while not self.busy and self.span is not self.wanted:
            self.busy = True
            try:
                for key, value in _labels(self.span):
                    pyroscope.remove_thread_tag(key, value)
                self.span = self.wanted
                for key, value in _labels(self.span):
                    pyroscope.add_thread_tag(key, value)
            finally:
                self.busy = False

    def __del__(self):  # runs at the end of the thread, whose id the next thread may get
        if self.span is not None:
            self.label(None)


class _Local(threading.local):
    def __init__(self):
        self.state = _State()


_local = _Local()


def _labels(span):
    if span is None:
        return ()
    labels = getattr(span, "_braid_labels", None)
    if labels is None:
        context = span.get_span_context()
        labels = ("span_id", format_span_id(context.span_id)), ("trace_id", format_trace_id(context.trace_id))
        span._braid_labels = labels
    return labels


def _open(span):
    """Returns the span, or None if it has ended, is not sampled or belongs to another process."""
    return span if span is not None and span.is_recording() else None


class _Token:
    """The token of an attached context, the thread, and the spans that labelled it before and afterwards."""

    __slots__ = ("after", "before", "thread", "token")


class _RuntimeContext(ContextVarsRuntimeContext):
    """OpenTelemetry's runtime context, whose changes label the thread. `variable` is the ContextVar of the original."""

    def __init__(self, variable):
        self._current_context = variable

    def attach(self, context):
        made, state = _Token(), _local.state
        made.thread, made.before, made.after = state.thread, state.span, _open(get_current_span(context))
        made.token = super().attach(context)
        state.label(made.after)
        return made

    def detach(self, token):
        state, ours = _local.state, isinstance(token, _Token)  # others were attached before install()
        super().detach(token.token if ours else token)
        # Restores the earlier labels rather than those of the current span. The two differ in a context that the thread entered
        # unnoticed, and it leaves that context unnoticed, too.
        if ours and token.thread is state.thread and state.span is token.after and _open(token.before) is token.before:
            state.label(token.before)
        else:
            state.label(_open(get_current_span()))


class _Ends(SpanProcessor):
    def on_end(self, span):
        state = _local.state
        if state.span is not None and state.span.get_span_context().span_id == span.context.span_id:
            state.label(None)


def _run_labelled(function, /, *args, **kwargs):
    state = _local.state
    before = state.span
    state.label(_open(get_current_span()))
    try:
        return function(*args, **kwargs)
    finally:
        state.label(_open(before))


def labelled(function):
    """Returns the function with the labels of the context that it is called in, for code that calls Context.run itself."""
    return functools.partial(_run_labelled, function)


def _patch_run(variable):
    run = asyncio.Handle._run

    def labelled_run(self):
        state = _local.state
        before, context = state.span, self._context.get(variable)
        state.label(_open(get_current_span(context)) if context else None)
        try:
            return run(self)
        finally:
            state.label(_open(before))
    asyncio.Handle._run = labelled_run


def _patch_create_task(loop):
    create = loop.create_task

    @functools.wraps(create)
    def create_task(self, *args, **kwargs):  # An eager task runs its first step in here.
        state = _local.state
        before = state.span
        try:
            return create(self, *args, **kwargs)
        finally:
            state.label(_open(before))
    loop.create_task = create_task


def _patch_call(owner, name, position):
    """Makes a method or function label the callback that is its argument at the position."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args, **kwargs):
        if len(args) > position:
            args = (*args[:position], labelled(args[position]), *args[position + 1:])
        return original(*args, **kwargs)
    setattr(owner, name, call)


def _patch_submit(executor):
    submit = executor.submit

    @functools.wraps(submit)
    def labelled_submit(self, fn, /, *args, **kwargs):
        if isinstance(fn, functools.partial) and _enters(fn.func) and fn.args:  # asyncio.to_thread
            fn = functools.partial(fn.func, labelled(fn.args[0]), *fn.args[1:], **fn.keywords)
        elif _enters(fn) and args:
            args = (labelled(args[0]), *args[1:])
        return submit(self, fn, *args, **kwargs)
    executor.submit = labelled_submit


def _forked():
    """Forgets the labels of the parent process, whose profiler the child does not have."""
    _local.state.busy, _local.state.span = False, None


def _enters(function):
    return isinstance(getattr(function, "__self__", None), contextvars.Context) and function.__name__ == "run"


@functools.cache
def _patch():
    runtime = opentelemetry.context._RUNTIME_CONTEXT
    if not isinstance(runtime, ContextVarsRuntimeContext):
        raise RuntimeError(f"braid_bridge: OTEL_PYTHON_CONTEXT is {type(runtime).__name__}; only contextvars_context is supported")
    variable = runtime._current_context
    opentelemetry.context._RUNTIME_CONTEXT = _RuntimeContext(variable)
    os.register_at_fork(after_in_child=_forked)
    _patch_run(variable)
    _patch_create_task(asyncio.BaseEventLoop)
    _patch_submit(concurrent.futures.ThreadPoolExecutor)
    try:
        import uvloop
    except ImportError:
        pass
    else:  # Its handles are not asyncio's.
        _patch_create_task(uvloop.Loop)
        for name, position in ("call_soon", 1), ("call_soon_threadsafe", 1), ("call_later", 2), ("call_at", 2):
            _patch_call(uvloop.Loop, name, position)
    try:
        import anyio.to_thread
    except ImportError:
        pass
    else:
        _patch_call(anyio.to_thread, "run_sync", 0)


def install(tracer_provider):
    """Makes every recording span label the samples of the thread that it is current on."""
    _patch()
    tracer_provider.add_span_processor(_Ends())
