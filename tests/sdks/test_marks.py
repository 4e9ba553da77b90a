# SPDX-License-Identifier: Apache-2.0
"""The join with its shipped config, started without data, with unchanged Pyroscope SDKs. Every span
with samples has its button in Grafana, every button leads to samples, and every sample has its
span's name."""

import re

import pytest

import otlp
import programs
import pyroscope_reader
from braid import DEADLINE_S, ROOT, Braid, until
from pyroscope import Pyroscope
from sink import Sink

MEASURED = "config/examples/pyroscope.yaml"
SHIPPED = ("README.md", "processors/join/README.md", "docs/using/grafana.md", "packaging/kubernetes/gateway.yaml",
           *(f"config/examples/{name}.yaml" for name in ("tempo-pyroscope", "files", "gateway", "production", "scrape")))
REQUESTS = 120  # a third of a second each


def join_of(path):
    """Returns a file's first join config, without comments."""
    indent, section = re.search(r"^( +)join:\n((?:\1  .*\n)*)", (ROOT / path).read_text(), flags=re.M).groups()
    lines = re.findall(rf"^{indent}  (\w+): *(.*?) *(?:#.*)?$", section, flags=re.M)
    return {key: value for key, value in lines if key in ("hold", "profile_hold", "mark", "local_root")}


@pytest.mark.parametrize("path", SHIPPED)
def test_all_configs_hold_spans_equally(path):
    """All files have the same join config, so that the results below apply to all of them."""
    assert join_of(path) == join_of(MEASURED) != {}


def test_spans_are_held_longer_than_the_profilers_interval():
    """Pyroscope's SDKs send every 15 s, OpenTelemetry's SDKs send spans every 5 s
    (OTEL_BSP_SCHEDULE_DELAY)."""
    waits = join_of(MEASURED)
    assert int(waits["hold"].removesuffix("s")) > 15 and int(waits["profile_hold"].removesuffix("s")) > 5


@pytest.mark.parametrize("sdk", ["go", "python"])
def test_marks(sdk, tmp_path):
    sink, pyroscope = Sink(), Pyroscope()
    text = re.sub(r"\b0\.0\.0\.0:\d+$", "127.0.0.1:0", (ROOT / MEASURED).read_text(), flags=re.M)
    # Longer than the shipped values, so that the result does not depend on the machine's speed.
    # tests/unit/join/test_join_defaults.c shows with a fake clock that the shipped values match the
    # SDKs' intervals.
    waits = [f"--set=processors.join.{key}={wait}" for key, wait in (("window", "10m"), ("hold", "30s"), ("profile_hold", "15s"))]
    braid = Braid(text, tmp_path, "--set=service.telemetry.metrics.level=none", *waits,
                  env={"TEMPO_ENDPOINT": f"http://{sink.grpc}", "PYROSCOPE_ENDPOINT": pyroscope.url})
    try:
        said = programs.run(sdk, braid.address("http", node="receiver/pyroscope"), braid.http, REQUESTS)
        # Shutdown would release spans early, with the marks of the SDK.
        until(lambda: len(sink.items(otlp.TRACES)) == len(said), "all spans", 3 * DEADLINE_S)
        braid.stop()
        marks = {span.span_id.hex(): otlp.attributes_of(span.attributes).get("pyroscope.profile.id")
                 for call in sink.of(otlp.TRACES) for _, _, span in otlp.spans_of(call.message)}
        stored, read = pyroscope.stored(), pyroscope_reader.stacks(pyroscope)
    finally:
        braid.kill()
        sink.close()
        pyroscope.close()
    names = {span: name for _, span, name in said}
    assert marks.keys() == names.keys()
    sampled = {key.span_id for key in stored if key.span_id}
    assert sampled == {span for _, span in read if span}
    buttons = {span for span, mark in marks.items() if mark}
    print(f"{len(marks)} spans, {len(sampled)} with samples, {len(buttons)} buttons")
    assert len(names) == 2 * REQUESTS and REQUESTS / 2 < len(sampled) < len(names)
    assert sampled <= buttons, "spans with samples and no button"
    assert {marks[span] for span in buttons} <= sampled, "buttons with nothing behind"
    assert {key for key in stored if key.span_id and dict(key.labels).get("span.name") != names[key.span_id]} == set()
