# SPDX-License-Identifier: Apache-2.0
"""Texts of many short and different stacks: as OTLP, with the tables that find equal ones, they are
more than four times as large, and are therefore read in parts. The output as a whole equals the
input, by arithmetic."""

import json

import pytest

import clients
import otlp
from braid import until
from scraped import config, functions, samples

N = 45_000
PERIOD_NS = 10_000_000  # at 100 Hz
START_S, END_S = 1_700_000_000, 1_700_000_060


def name(number):
    return f"fn_{number:06}"


def folded():
    """Returns each stack twice, far apart."""
    lines = [f"main;run;{name(i)} {i % 7 + 1}\n" for i in range(N)]
    expected = {("main", "run", name(i)): 2 * (i % 7 + 1) * PERIOD_NS for i in range(N)}
    return "".join(lines + lines), expected


def lines():
    return "".join(f"main;run;{name(i)}\n" for i in range(N)), {("main", "run", name(i)): PERIOD_NS for i in range(N)}


SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def speedscope(profile):
    frames = [{"name": "main"}, *({"name": name(i)} for i in range(N))]
    return json.dumps({"profiles": [profile], "$schema": SCHEMA, "shared": {"frames": frames}},
                      separators=(",", ":"))


def sampled():
    text = speedscope({"type": "sampled", "unit": "none", "samples": [[0, i + 1] for i in range(N)],
                       "weights": [i % 5 + 1 for i in range(N)]})
    return text, {("main", name(i)): (i % 5 + 1) * PERIOD_NS for i in range(N)}


def evented():
    """main is open all the time, and has a nanosecond of self time after each function."""
    events = [{"type": "O", "at": 0, "frame": 0}]
    for i in range(N):
        events += [{"type": "O", "at": 4 * i, "frame": i + 1}, {"type": "C", "at": 4 * i + 3, "frame": i + 1}]
    events.append({"type": "C", "at": 4 * N, "frame": 0})
    text = speedscope({"type": "evented", "unit": "nanoseconds", "startValue": 0, "endValue": 4 * N, "events": events})
    return text, {("main", ): N, **{("main", name(i)): 3 for i in range(N)}}


TEXTS = {"folded": (folded, "folded"), "lines": (lines, "lines"), "sampled": (sampled, "speedscope"),
         "evented": (evented, "speedscope")}


def totals(arrived):
    """Returns totals by stack, root first."""
    found = {}
    for each in arrived:
        stack = tuple(reversed(functions(each)))
        found[stack] = found.get(stack, 0) + each["values"][0]
    return found


def uploaded(braid, sink, text, how):
    server = braid(config(sink, {"http": {"endpoint": "127.0.0.1:0"}}))
    path = f"/v1/profiles/upload?name=shop&labels=env=prod&from={START_S}&until={END_S}{how}"
    answer = clients.http(server.address("http", "receiver/pprof"), path, text.encode(), None)
    assert answer.code == 200, answer.body
    server.stop()
    return samples(sink)


@pytest.mark.parametrize("text", TEXTS)
def test_totals(braid, sink, text):
    make, form = TEXTS[text]
    body, expected = make()
    arrived = uploaded(braid, sink, body, f"&format={form}")
    assert totals(arrived) == expected
    assert {each["profile"][:2] for each in arrived} == {(START_S * 10**9, (END_S - START_S) * 10**9)}
    assert all(each["resource"] == {"service.name": "shop", "env": "prod"} for each in arrived)


def test_times_of_perf_script(braid, sink):
    """The last sample has the time at which the upload ends; the others precede it by the file's
    clock."""
    lines = [f"app 1/{i % 3} {5 + i / 1000:.6f}: 1000 cpu-clock:\n\t1 {name(i)} (app)\n\n" for i in range(N)]
    arrived = uploaded(braid, sink, "".join(lines), "")
    assert len(arrived) == N
    found = {functions(each)[0]: (each["values"], each["timestamps"], each["attributes"]["thread.id"][0])
             for each in arrived}
    last_ns = END_S * 10**9
    assert found == {name(i): ([1000], [last_ns - (N - 1 - i) * 1_000_000], i % 3) for i in range(N)}


def test_pyroscope_accepts_all_parts(braid, pyroscope):
    """Parts have equal labels and times: the exporter makes them distinct, so that the server keeps
    each."""
    body, expected = folded()
    settings = {
        "receivers": {"pyroscope": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}},
        "exporters": {"pyroscope": {"endpoint": pyroscope.url, "limits": {"max_age": "0"}}},
        "service": {"telemetry": {"metrics": {"level": "none"}},  # its default port may be in use
                    "pipelines": {"profiles": {"receivers": ["pyroscope"], "exporters": ["pyroscope"]}}}}
    server = braid(settings)
    path = f"/ingest?name=shop.cpu&from={START_S}&until={END_S}"
    answer = clients.http(server.address("http", "receiver/pyroscope"), path, body.encode(), None)
    assert answer.code == 200, answer.body
    pushed = until(lambda: sum(len(push.profile.sample) for push in pyroscope.profiles()) >= 2 * N and
                   pyroscope.profiles(), "all samples")
    server.stop()
    assert len({(tuple(sorted(push.labels.items())), push.profile.time_nanos) for push in pushed}) == len(pushed)
    assert sum(sample.value[0] for push in pushed for sample in push.profile.sample) == sum(expected.values())


def test_a_text_that_grows_too_much_is_rejected(braid, sink):
    """Lines of four letters grow five times; a retry would not change that."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    lines = (f"{a}{b}{c}{d} 1\n" for a in letters for b in letters for c in letters for d in letters)
    server = braid(config(sink, {"http": {"endpoint": "127.0.0.1:0"}}))
    answer = clients.http(server.address("http", "receiver/pprof"), "/v1/profiles/upload?name=shop&format=folded",
                          "".join(lines).encode(), None)
    assert answer.code == 400 and b"4 times its" in answer.body, answer.body
    server.stop()
    assert not sink.items(otlp.PROFILES)
