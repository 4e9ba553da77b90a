# SPDX-License-Identifier: Apache-2.0
"""The meaning of profile values: gauges are averaged over time, and samples are counted by the
period. Expected values are arithmetic."""

import json
import subprocess
import urllib.parse

import pytest

import ingest
from braid import BINARY
from pyroscope_scene import HEAP, Made
from query_api import QueryApi
from shop import stacks_of

NOW_S = 1_795_645_320
RANGE = {"start": NOW_S - 60, "end": NOW_S + 3600}
MEMORY = [("alloc_space", "bytes"), ("inuse_space", "bytes")]
CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
GOROUTINES = "goroutines:goroutine:count:goroutine:count"


@pytest.fixture
def api(braid, tmp_path):
    server = braid({"receivers": {"pyroscope": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}},
                    "exporters": {"store": {"directory": str(tmp_path / "data"), "retention": {"max_age": "0s"}}},
                    "extensions": {"query": {"endpoint": "127.0.0.1:0"}},
                    "service": {"extensions": ["query"], "telemetry": {"metrics": {"level": "none"}},
                                "pipelines": {"profiles": {"receivers": ["pyroscope"], "exporters": ["store"]}}}})
    return QueryApi(server)


def push(api, made, name, **labels):
    request = ingest.push_request(({"__name__": name, "service_name": "shop", **labels},
                                   [(made.profile.SerializeToString(), "")]))
    answer = ingest.http1(api.server.address("http", "receiver/pyroscope"), "/push.v1.PusherService/Push",
                          request.SerializeToString(), {"content-type": "application/proto"})
    assert answer.code == 200, answer


def heap(turn, **stacks):
    made = Made(MEMORY, ("space", "bytes", 524288), NOW_S + 15 * turn)
    for stack, value in stacks.items():
        made.add(stack.replace("_", ";"), [1, value])
    return made


def test_gauges_are_averaged_per_process_and_summed_over_processes(api):
    for turn in range(4):
        stacks = {"main_cache": 1000 + 4 * turn, **({"main_buffer": 8} if turn == 2 else {})}
        push(api, heap(turn, **stacks), "memory", pod="a")
    for turn in (1, 2):
        push(api, heap(turn, main_cache=500), "memory", pod="b")
    got = api.braid("profile", query=HEAP + "{}", **RANGE)
    assert got["average"] is True
    assert stacks_of(got["flamebearer"]) == {"main;cache": 1006 + 500, "main;buffer": 8 // 4}
    totals = {each["id"]: each["total"] for each in got["types"]}
    assert totals == {HEAP: None, "memory:alloc_space:bytes:space:bytes": 7}
    top = api.braid("top", query=HEAP + "{}", **RANGE)
    assert (top["average"], top["total"]) == (True, 1508)
    assert stacks_of(api.braid("profile", query=HEAP + '{pod="b"}', **RANGE)["flamebearer"]) == {"main;cache": 500}
    # Part of the range: two profiles of a, one of b.
    part = {"start": NOW_S + 30, "end": NOW_S + 46}
    got = api.braid("profile", query=HEAP + "{}", **part)
    assert stacks_of(got["flamebearer"]) == {"main;cache": 1010 + 500, "main;buffer": 4}
    # A difference has averages on both sides; allocations are added up.
    sides = [urllib.parse.urlencode({"query": HEAP + '{pod="%s"}' % pod, **RANGE}) for pod in "ab"]
    both = api.braid("diff", left=sides[0], right=sides[1])
    assert (both["average"], both["left"]["total"], both["right"]["total"]) == (True, 1008, 500)
    allocated = api.braid("profile", query="memory:alloc_space:bytes:space:bytes{}", **RANGE)
    assert (allocated["average"], allocated["flamebearer"]["numTicks"]) == (False, 7)
    # Pyroscope adds profiles up.
    theirs = api.post("/querier.v1.QuerierService/SelectMergeStacktraces",
                        {"profileTypeID": HEAP, "labelSelector": '{pod="b"}'})
    assert theirs["flamegraph"]["total"] == "1000"


def test_a_goroutine_seen_once_counts_by_its_share_of_time(api):
    """A label of samples creates a separate series, which is missing in most profiles of the
    process."""
    for turn in range(4):
        made = Made([("goroutine", "count")], ("goroutine", "count", 1), NOW_S + 15 * turn)
        made.add("main;wait", [10])
        if turn == 3:
            made.add("main;handle", [8], endpoint="/checkout")
        push(api, made, "goroutines")
    got = api.braid("profile", query=GOROUTINES + "{}", **RANGE)
    assert stacks_of(got["flamebearer"]) == {"main;wait": 10, "main;handle": 2}
    labelled = api.braid("profile", query=GOROUTINES + '{endpoint="/checkout"}', **RANGE)
    assert stacks_of(labelled["flamebearer"]) == {"main;handle": 2}


def test_fractions_of_averages_add_up(api):
    for turn in range(3):
        made = Made([("goroutine", "count")], ("goroutine", "count", 1), NOW_S + 15 * turn)
        if turn == 0:
            for n in range(30):
                made.add(f"main;wait{n}", [1])
        else:
            made.add("main", [3])
        push(api, made, "goroutines")
    got = api.braid("profile", query=GOROUTINES + "{}", **RANGE)
    found = stacks_of(got["flamebearer"])
    assert got["flamebearer"]["numTicks"] == (30 + 2 * 3) // 3
    assert found["main"] == 2 and sum(found.values()) == 12


def test_the_command_line_marks_averages(api):
    push(api, heap(0, main_cache=4096), "memory", pod="a")
    for command in ("profile", "top"):
        done = subprocess.run([BINARY, "query", command, "--url", f"http://{api.address}", "--query", HEAP + "{}",
                               "--start", str(NOW_S - 60), "--end", str(NOW_S + 60)], capture_output=True, text=True, check=True)
        assert "averaged over the time range" in done.stdout and "4.0" in done.stdout, done.stdout


def test_samples_are_counted_by_the_period(api):
    """120 ms in one value are 12 samples of 10 ms; in a profile without a period the values are
    counted."""
    made = Made([("samples", "count"), ("cpu", "nanoseconds")], ("cpu", "nanoseconds", 10_000_000), NOW_S)
    made.add("main;work", [12, 120_000_000])
    made.add("main", [1, 10_000_000])
    push(api, made, "process_cpu")
    got = api.braid("profile", query=CPU + "{}", **RANGE)
    assert got["samples"] == 13 and {each["samples"] for each in got["types"]} == {13}
    silent = Made([("cpu", "nanoseconds")], ("", "", 0), NOW_S)
    silent.add("main;work", [120_000_000])
    silent.add("main", [10_000_000])
    push(api, silent, "process_cpu", pod="silent")
    assert api.braid("profile", query='{pod="silent"}', **RANGE)["samples"] == 2


def test_labels_do_not_show_how_they_are_stored(api):
    push(api, heap(0, main_cache=1), "memory", pod="a")
    names = api.post("/querier.v1.QuerierService/LabelNames", {})["names"]
    assert "pod" in names and not any("braid" in name for name in names)
    series = api.post("/querier.v1.QuerierService/Series", {})
    assert "__braid__" not in json.dumps(series)
