# SPDX-License-Identifier: Apache-2.0
"""dd-trace-py and dd-trace-go, unchanged, with Braid as their agent: their profiles are joined by
span id."""

import pytest

import otlp
import profile_view
import programs
import pyroscope_reader
from braid import Braid
from pyroscope import Pyroscope


def functions(sample):
    return {line[0] for frame in sample["frames"] for line in frame["lines"]}


# Functions called only by the span, and the types in a profile. Python's profiler also reports wall
# time, and has different names for types; Go's are those of its runtime.
WORK = {"python": {"root_work", "<genexpr>"}, "go": {"main.rootWork"}}
TYPES = {"python": {"wall", "cpu"}, "go": {"samples", "cpu", "alloc_space", "inuse_space"}}


@pytest.mark.parametrize("language", WORK)
def test_datadog(language, tmp_path):
    behind = Pyroscope()
    server = Braid({
        "receivers": {"pprof": {"http": {"endpoint": "127.0.0.1:0"}}},
        "exporters": {"file": {"path": str(tmp_path / "profiles")},
                      "pyroscope": {"endpoint": behind.url, "tls": {"insecure": True}}},
        "service": {"telemetry": {"metrics": {"level": "none"}},
                    "pipelines": {"profiles": {"receivers": ["pprof"], "exporters": ["file", "pyroscope"]}}}}, tmp_path)
    try:
        [(_, span, _)] = programs.datadog(server.address("http", node="receiver/pprof"), language)
        server.stop()
        requests = [otlp.from_json(otlp.PROFILES.request, line)
                    for line in (tmp_path / "profiles").read_text().splitlines()]
    finally:
        server.kill()
        behind.close()
    samples = list(profile_view.samples(*requests))
    cpu = [each for each in samples if each["type"] == ("cpu", "nanoseconds")]
    linked = [each for each in cpu if each["link"]]
    assert linked and {each["link"][1] for each in linked} == {span}
    # other samples are in the code that begins and ends the span
    working = [each for each in linked if functions(each) & WORK[language]]
    assert sum(each["values"][0] for each in working) > sum(each["values"][0] for each in linked) / 2
    assert sum(each["values"][0] for each in linked) > sum(each["values"][0] for each in cpu) / 2
    if language == "python":
        assert {each["scope"][1]["pyroscope.metric"] for each in cpu} == {"process_cpu"}
    assert {each["resource"]["service.name"] for each in samples} == {"shop"}
    assert TYPES[language] <= {each["type"][0] for each in samples}
    if language == "python":
        assert all(any(each["values"]) for each in samples)
    read = pyroscope_reader.totals(pyroscope_reader.stacks(behind))
    assert read == pyroscope_reader.totals_of_stored(behind.stored())
    of_span = {kind.split(":")[1]: value for (kind, name), value in read.items() if name == span}
    assert of_span["cpu"] == sum(each["values"][0] for each in linked if each["frames"])  # the others are in no flame graph
