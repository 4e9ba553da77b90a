# SPDX-License-Identifier: Apache-2.0
"""Every SDK, unchanged, with Braid as its Pyroscope server: its samples are joined, and Pyroscope
behind Braid stores the same as without Braid."""

import collections
import functools
import socket
import time
import urllib.request

import pytest

import ingest
import otlp
import profile_view
import programs
import pyroscope_reader
from braid import Braid
from pyroscope import Pyroscope
from tap import Tap

ROOT = "POST /checkout"

# Attributes that the join adds to samples, and Pyroscope therefore makes labels of.
ADDED = {"span.name"}

# The SDKs whose samples name the local root span, by a bridge or by manual labels.
LINKED = ("go", "python", "python-old", "node", "node-old", "java-jfr", "rust")


LISTEN = {"endpoint": "127.0.0.1:0"}
JOIN = {"join": {"window": "5m", "hold": "5m", "profile_hold": "5m"}}
PUSHING = {"tls": {"insecure": True}, "retry_on_failure": {"enabled": False}}


def config(tmp_path, joined, plain):
    return {
        "receivers": {"otlp": {"protocols": {"http": LISTEN}}, "pyroscope": {"protocols": {"http": LISTEN}}},
        "processors": JOIN,
        "exporters": {
            "file/traces": {"path": str(tmp_path / "traces")},
            "file/profiles": {"path": str(tmp_path / "profiles")},
            "pyroscope/joined": {"endpoint": joined.url, **PUSHING},
            "pyroscope/plain": {"endpoint": plain.url, **PUSHING},
        },
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {
                "traces": {"receivers": ["otlp"], "processors": ["join"], "exporters": ["file/traces"]},
                "profiles": {"receivers": ["pyroscope"], "processors": ["join"],
                             "exporters": ["file/profiles", "pyroscope/joined"]},
                "profiles/plain": {"receivers": ["pyroscope"], "exporters": ["pyroscope/plain"]},
            },
        },
    }


class Scene:
    """One run of an SDK: its output, Braid's output, and the data stored in Pyroscope: joined,
    plain (through Braid without the join) and direct (without Braid)."""

    def __init__(self, sdk, folder):
        stand_ins = self.joined, self.plain, self.direct = [Pyroscope(programs.JFR_READER) for _ in range(3)]
        server = Braid(config(folder, self.joined, self.plain), folder)
        tap = Tap(server.address("http", node="receiver/pyroscope"))
        try:
            if sdk in LINKED:
                make_known(tap.http)
            spans = programs.run(sdk, tap.http, server.http)
            if sdk == "rust":
                send_spans(server.http, spans)
            self.root = next((trace, span) for trace, span, name in spans if name == ROOT)
            server.stop()
            self.codes = programs.replay(tap, self.direct.address)
            self.traces = read(folder / "traces", otlp.TRACES)
            self.profiles = read(folder / "profiles", otlp.PROFILES)
        finally:
            server.kill()
            for each in [tap, *stand_ins]:
                each.close()


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """scene(sdk) returns its run, which happens once."""
    @functools.cache
    def made(sdk):
        return Scene(sdk, tmp_path_factory.mktemp(sdk))
    return made


def read(path, signal):
    return [otlp.from_json(signal.request, line) for line in path.read_text().splitlines()]


def make_known(address):
    """Sends a sample of a span that never arrives. Spans wait for samples only of services known to
    send profiles, and old SDKs may send their first samples after the spans."""
    kind, body = ingest.form(profile=ingest.make_pprof(labels={"span_id": "0d" * 8}, time_ns=time.time_ns()))
    assert ingest.http1(address, ingest.ingest_path("shop"), body, {"content-type": kind}).code == 200


def send_spans(address, spans):
    """Sends the spans of an SDK without a tracer."""
    request = otlp.trace_request(len(spans))
    for span, (trace, own, name) in zip(request.resource_spans[0].scope_spans[0].spans, spans):
        span.trace_id, span.span_id, span.name = bytes.fromhex(trace), bytes.fromhex(own), name
    urllib.request.urlopen(urllib.request.Request(
        f"http://{address}/v1/traces", request.SerializeToString(),
        {"content-type": "application/x-protobuf"})).read()


def of_root(scene):
    """Returns the samples that are linked to the root span."""
    return [sample for sample in profile_view.samples(*scene.profiles)
            if sample["link"] and sample["link"][1] == scene.root[1]]


@pytest.mark.parametrize("sdk", LINKED)
def test_samples_are_joined(scene, sdk):
    """All samples that name the root are joined, by the data in Pyroscope without Braid, and no
    others."""
    linked, named = collections.Counter(), collections.Counter()
    for sample in of_root(scene(sdk)):
        assert sample["attributes"]["span.name"] == (ROOT, "")
        linked[sample["type"]] += sum(sample["values"])
    for key, value in scene(sdk).direct.stored().items():
        if key.span_id == scene(sdk).root[1]:
            named[tuple(key.type.split(":")[1:3])] += value
    assert +linked == +named != {}


def figures_of(samples):
    """Returns (number, microseconds) of CPU time, else of wall time: each sample's periods,
    rounded, at least one."""
    times = [sample for sample in samples if sample["type"][1] == "nanoseconds"]
    spent = [(sum(sample["values"]), sample["period"])
             for sample in [each for each in times if each["type"][0] == "cpu"] or times]
    return (sum(max(1, (2 * value + period) // (2 * period)) for value, period in spent),
            sum(value for value, _ in spent) // 1000)


@pytest.mark.parametrize("sdk", LINKED)
def test_spans_have_their_figures(scene, sdk):
    check_figures(scene(sdk))


def check_figures(scene):
    spans = {span.span_id.hex(): otlp.attributes_of(span.attributes)
             for request in scene.traces for _, _, span in otlp.spans_of(request)}
    root = spans[scene.root[1]]
    assert root["pyroscope.profile.id"] == scene.root[1]
    assert (root["profile.sample_count"], root["profile.duration_us"]) == figures_of(of_root(scene))


@pytest.mark.parametrize("sdk", sorted(set(programs.SDKS) - set(LINKED)))
def test_unlabelled_samples_are_not_joined(scene, sdk):
    """The SDK does not label samples, so none is joined."""
    samples = profile_view.samples(*scene(sdk).profiles)
    assert samples and not any(sample["link"] for sample in samples)


def without(added, stored):
    """Returns the stored data without the join's additions."""
    kept = collections.Counter()
    for key, value in stored.items():
        labels = frozenset(pair for pair in key.labels if pair[0] not in added)
        kept[key._replace(labels=labels)] += value
    return kept


def without_traces(stored):
    kept = collections.Counter()
    for key, value in stored.items():
        kept[key._replace(trace_id="")] += value
    return kept


@pytest.mark.parametrize("sdk", sorted(set(programs.SDKS) - {"java-otlp"}))
def test_round_trip(scene, sdk):
    assert set(scene(sdk).codes) == {200}
    assert scene(sdk).plain.stored() == scene(sdk).direct.stored() != {}


@pytest.mark.parametrize("sdk", sorted(set(programs.SDKS) - {"java-otlp"}))
def test_round_trip_joined(scene, sdk):
    """If a label names only the span, the join adds its trace."""
    joined = without(ADDED, scene(sdk).joined.stored())
    assert without_traces(joined) == without_traces(scene(sdk).direct.stored())


@pytest.mark.parametrize("sdk", sorted(set(programs.SDKS) - {"java-otlp"}))
def test_spans_at_pyroscope(scene, sdk):
    """By the server's code each span has the same stacks behind Braid as without it."""
    made = scene(sdk)
    direct = pyroscope_reader.stacks(made.direct)
    assert (made.root[1] in {span for _, span in direct}) == (sdk in LINKED)
    assert pyroscope_reader.stacks(made.plain) == direct
    assert pyroscope_reader.stacks(made.joined) == direct
    assert pyroscope_reader.totals(direct) == pyroscope_reader.totals_of_stored(made.direct.stored()) != {}


def by_stack(rows):
    """Returns {(functions, the leaf first): sum}."""
    found = collections.Counter()
    for frames, value in rows:
        found[frames] += value
    return found


def test_otlp_is_forwarded(scene):
    """The agent's OTLP profiles. Pyroscope stores OTLP that it receives itself under other names."""
    samples = profile_view.samples(*scene("java-otlp").profiles)
    sent = by_stack((tuple(line[0] for frame in each["frames"] for line in frame["lines"]), sum(each["values"]))
                    for each in samples)
    stored = scene("java-otlp").joined.stored()
    assert by_stack((tuple(frame[0] for frame in key.stack), value) for key, value in stored.items()) == sent != {}
    kind = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
    assert {key.type for key in stored} == {kind}
    assert pyroscope_reader.stacks(scene("java-otlp").joined) == {(kind, ""): sent}


class Served:
    """A Go program with the bridge and net/http/pprof, scraped by Braid. joined: as in a Scene."""

    def __init__(self, folder):
        self.joined = Pyroscope()
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = "127.0.0.1:%d" % free.getsockname()[1]
        others = {name: {"enabled": False} for name in ("allocs", "goroutine", "block", "mutex")}
        server = Braid({
            "receivers": {"otlp": {"protocols": {"http": LISTEN}},
                          "pprof": {"targets": [{"endpoint": f"http://{address}", "labels": {"service_name": "shop"}}],
                                    "scrape_interval": "2s",
                                    "profiles": {"cpu": {"seconds": 1}, **others}}},
            "processors": JOIN,
            "exporters": {"file/traces": {"path": str(folder / "traces")},
                          "file/profiles": {"path": str(folder / "profiles")},
                          "pyroscope": {"endpoint": self.joined.url, **PUSHING}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {
                    "traces": {"receivers": ["otlp"], "processors": ["join"], "exporters": ["file/traces"]},
                    "profiles": {"receivers": ["pprof"], "processors": ["join"],
                                 "exporters": ["file/profiles", "pyroscope"]}}}}, folder)
        try:
            self.root = programs.serve(address, server.http)[0]
            server.stop()
            self.traces = read(folder / "traces", otlp.TRACES)
            self.profiles = read(folder / "profiles", otlp.PROFILES)
        finally:
            server.kill()
            self.joined.close()


def test_served(tmp_path):
    scene = Served(tmp_path)
    linked, stored = of_root(scene), collections.Counter()
    names = {line[0] for sample in linked for frame in sample["frames"] for line in frame["lines"]}
    assert {"main.root_work", "main.child_work"} <= names
    for sample in profile_view.samples(*scene.profiles):
        assert ("main.burn" in str(sample["frames"])) <= (sample in linked)
    for key, value in scene.joined.stored().items():
        if key.span_id:
            assert (key.trace_id, key.span_id, ("service_name", "shop") in key.labels) == (*scene.root[:2], True)
            stored[tuple(key.type.split(":")[:3])] += value
    assert stored == {("process_cpu", *kind): sum(sum(each["values"]) for each in linked if each["type"] == kind)
                      for kind in (("samples", "count"), ("cpu", "nanoseconds"))}
    read = pyroscope_reader.totals(pyroscope_reader.stacks(scene.joined))
    assert read == pyroscope_reader.totals_of_stored(scene.joined.stored())
    assert {span for _, span in read} == {"", scene.root[1]}
    check_figures(scene)
