# SPDX-License-Identifier: Apache-2.0
"""Python's programs of docs/using/recipes.md, run unchanged with `braid` without a config.

py-spy, which is Pyroscope's profiler for Python, takes samples at random times, each of the thread
that holds the GIL. A thread that holds the GIL and waits for a core is counted, too. The samples of
a span are therefore between its CPU time and its duration, up to four standard errors (the root of
their number) and a twentieth. On an idle machine the two bounds are equal for a request that runs
alone. Together, all spans of a process have at most the time that passed, because only one thread
holds the GIL."""

import math
import os
import subprocess

import pytest

import recipes
from braid import ROOT, until
from recipes import FUNCTIONS, ask, seconds_of

RATE = 1000  # samples per second
ENV = {"PYROSCOPE_SAMPLE_RATE": str(RATE), "PYTHONPATH": ""}
THREADS = "A Python service with threads"


def noise(seconds, rate=RATE):
    return seconds / 20 + 4 * math.sqrt(seconds / rate) + 2 / rate


def stored(server, trace_id):
    """Returns {span id: (begin, end) in seconds, and its time without its children's} of a trace."""
    found = ask(server, "trace", trace_id)
    spans = {each["span_id"]: each for each in found["spans"]} if found else {}
    own = {key: each["duration_ns"] / 1e9 for key, each in spans.items()}
    for each in spans.values():
        if each["parent_id"] in own:
            own[each["parent_id"]] -= each["duration_ns"] / 1e9
    begin = {key: int(each["start_unix_ns"]) / 1e9 for key, each in spans.items()}
    return {key: (begin[key], begin[key] + each["duration_ns"] / 1e9, own[key]) for key, each in spans.items()}


def check_batch(server, spans, processes):
    """Compares the samples of the spans of one batch of requests with the CPU time that the program measured."""
    times = {}
    for trace_id in {span["trace_id"] for span in spans}:
        times.update(stored(server, trace_id))
    total = 0
    for span in spans:
        used, (_, _, took), function = span["cpu_seconds"], times[span["span_id"]], FUNCTIONS[span["name"]]
        sampled = seconds_of(server, span)
        if function is None:
            assert sampled <= took / 10, span
            continue
        assert used - noise(used) <= sampled <= took + noise(took), (span, sampled, took)
        # A stack that changes while py-spy reads it may lack the function.
        assert seconds_of(server, span, function) >= sampled * 0.9, (span, sampled)
        total += sampled
    used = sum(span["cpu_seconds"] for span in spans)
    passed = max(end for _, end, _ in times.values()) - min(begin for begin, _, _ in times.values())
    print(f"used {used:.2f} s, sampled {total:.2f} s, {passed:.2f} s passed")
    assert used - noise(used) <= total <= processes * (passed + noise(passed))


def check(server, service, processes=1):
    batches = [service.get_together(*paths) for paths in
               (("/checkout", "/checkout", "/report"), ("/checkout", "/report"), ("/checkout",), ("/report",))]
    for status, spans in (answer for batch in batches for answer in batch):
        assert (status, len(spans)) in ((200, 3), (500, 1))
    assert service.stop() == 0, service.log.read_text()
    batches = [[span for _, spans in batch for span in spans] for batch in batches]
    spans = sum(batches, [])
    until(lambda: all(span["span_id"] in stored(server, span["trace_id"]) for span in spans), "the spans")
    until(lambda: all(seconds_of(server, span) for span in spans if FUNCTIONS[span["name"]]), "the profiles")
    for batch in batches:
        check_batch(server, batch, processes)
    failed = ask(server, "spans", "--status", "error")["spans"]
    assert {span["name"] for span in failed} == {"GET /report"}


def test_threads(quickstart, recipe):
    check(quickstart, recipe(THREADS, **ENV))


@pytest.mark.parametrize("options", ["", "--preload"])
def test_gunicorn(quickstart, recipe, options):
    check(quickstart, recipe("gunicorn", also=THREADS, GUNICORN_CMD_ARGS=options, **ENV), processes=2)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_asyncio(quickstart, recipe, tmp_path, loop):
    if loop == "asyncio":  # uvicorn uses it if uvloop cannot be imported
        (tmp_path / "uvloop.py").write_text("raise ImportError")
    check(quickstart, recipe("asyncio", **{**ENV, "PYTHONPATH": str(tmp_path)}))


def test_one_second(quickstart, folder):
    files, commands = recipes.files(recipes.section("A Python process that lives one second"))
    for name, content in files.items():
        (folder / name).write_text(content)
    otlp, pyroscope = recipes.addresses(quickstart)
    subprocess.run(["bash", "-ec", "\n".join(commands)], cwd=folder, check=True, timeout=300, env={
        **os.environ, **ENV, "BRAID_REPOSITORY": str(ROOT), "OTEL_EXPORTER_OTLP_ENDPOINT": otlp, "PYROSCOPE_SERVER_ADDRESS": pyroscope})
    found = []

    def arrived():
        found[:] = (ask(quickstart, "spans") or {"spans": []})["spans"]
        return found and seconds_of(quickstart, found[0])
    until(arrived, "the span and its profile")
    assert [span["name"] for span in found] == ["nightly"]
    took = stored(quickstart, found[0]["trace_id"])[found[0]["span_id"]][2]
    sampled = seconds_of(quickstart, found[0], "compute")
    assert 0.8 - noise(0.8, 100) <= sampled <= took + noise(took, 100)
