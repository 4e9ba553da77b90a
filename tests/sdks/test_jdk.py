# SPDX-License-Identifier: Apache-2.0
"""Recordings of the JDK's recorder, posted unchanged. Pyroscope behind Braid stores the same as
without Braid. An upload is converted event by event to the output of the JDK's tool, and events
are attributed to the spans open on their threads."""

import collections
import datetime
import json
import subprocess
import time
import urllib.request

import pytest

import otlp
import profile_view
import programs
import pyroscope_reader
from braid import Braid
from pyroscope import Pyroscope

INGEST = "/ingest?name=shop%7Benv%3Dtest%7D&format=jfr&spyName=jdk&sampleRate=50&from={}&until={}"
UPLOAD = "/v1/profiles/upload?name=shop%7Benv%3Dtest%7D"
TRACE, ROOT, CHILD = programs.TRACE, programs.ROOT, programs.CHILD


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("jdk") / "shop.jfr"
    programs.record(path)
    return path


def pipelines(receivers, exporters, processors=()):
    made = {"profiles": {"receivers": [name for name in receivers if name != "otlp"], "processors": list(processors),
                         "exporters": [name for name in exporters if name != "nop"]}}
    if "otlp" in receivers:
        made["traces"] = {"receivers": ["otlp"], "processors": list(processors), "exporters": ["nop"]}
    return made


@pytest.fixture
def server(tmp_path):
    made = []

    def start(receivers, exporters, **more):
        config = {"receivers": receivers, "exporters": exporters, **more,
                  "service": {"telemetry": {"metrics": {"level": "none"}},
                              "pipelines": pipelines(receivers, exporters, **more)}}
        made.append(Braid(config, tmp_path))
        return made[0]
    yield start
    for each in made:
        each.kill()


def post(address, path, body, **headers):
    with urllib.request.urlopen(urllib.request.Request(f"http://{address}{path}", body, headers)) as answer:
        return answer.status


def test_stored_at_pyroscope(recording, server):
    now = int(time.time())
    ingest = INGEST.format(now - 10, now)  # old profiles are not pushed
    behind, direct = Pyroscope(programs.JFR_READER), Pyroscope(programs.JFR_READER)
    try:
        braid = server({"pyroscope": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}},
                       {"pyroscope": {"endpoint": behind.url, "tls": {"insecure": True}}})
        assert post(braid.address("http", node="receiver/pyroscope"), ingest, recording.read_bytes()) == 200
        assert post(direct.address, ingest, recording.read_bytes()) == 200
        braid.stop()
        assert behind.stored() == direct.stored()
        assert pyroscope_reader.stacks(behind) == pyroscope_reader.stacks(direct)
        kinds = {key.type for key in direct.stored()}
        assert {"process_cpu:cpu:nanoseconds:cpu:nanoseconds", "mutex:delay:nanoseconds:mutex:count",
                "memory:alloc_sample_bytes:bytes:space:bytes", "block:delay:nanoseconds:block:count"} <= kinds
    finally:
        behind.close()
        direct.close()


def printed(recording, event):
    """Returns [fields] of the events, by `jfr print`."""
    done = subprocess.run(["jfr", "print", "--json", "--stack-depth", "64", "--events", event, str(recording)],
                          capture_output=True, text=True, check=True)
    return [each["values"] for each in json.loads(done.stdout)["recording"]["events"]]


def frames_of(trace):
    return tuple((f["method"]["type"]["name"] + "." + f["method"]["name"], max(f["lineNumber"], 0))
                 for f in trace["frames"]) if trace else ()


def when(text):
    """Returns the nanoseconds of "2026-11-21T08:00:06.123456789Z"."""
    text, _, zone = text.partition("+")
    seconds, _, part = text.rstrip("Z").partition(".")
    moment = datetime.datetime.fromisoformat(seconds + "+" + (zone or "00:00"))
    return int(moment.timestamp()) * 10**9 + int(part.ljust(9, "0"))


NO_THREAD = {"javaName": None, "javaThreadId": None}  # of an event whose thread the recorder did not write


def theirs(recording, event, thread, value):
    return collections.Counter(
        (frames_of(e["stackTrace"]), *((e[thread] or NO_THREAD)[key] for key in NO_THREAD), when(e["startTime"]), value(e))
        for e in printed(recording, event))


def ours(samples, kind):
    return collections.Counter(
        (tuple((f["lines"][0][0].replace("/", "."), f["lines"][0][4]) for f in s["frames"]),
         *(s["attributes"].get(key, (None, ))[0] for key in ("thread.name", "thread.id")), s["timestamps"][0],
         s["values"][0])
        for s in samples if s["type"] == kind)


def dotted(rows):
    return collections.Counter({(tuple((name.replace("/", "."), line) for name, line in frames), *rest): n
                                for (frames, *rest), n in rows.items()})


def test_as_upload(recording, server, tmp_path):
    braid = server({"pprof": {"http": {"endpoint": "127.0.0.1:0"}}}, {"file": {"path": str(tmp_path / "out")}})
    assert post(braid.address("http", node="receiver/pprof"), UPLOAD, recording.read_bytes()) == 200
    braid.stop()
    samples = profile_view.samples(*(otlp.from_json(otlp.PROFILES.request, line)
                                     for line in (tmp_path / "out").read_text().splitlines()))
    assert {s["resource"]["service.name"] for s in samples} == {"shop"}
    # as in the recorder's config `profile`
    assert {s["period"] for s in samples if s["type"] == ("cpu", "nanoseconds")} == {10_000_000}
    cpu = dotted(theirs(recording, "jdk.ExecutionSample", "sampledThread", lambda e: 10_000_000))
    assert ours(samples, ("cpu", "nanoseconds")) == cpu
    assert any("Jdk.rootWork" in str(frames) and name == "main" for frames, name, *_ in cpu)
    weights = theirs(recording, "jdk.ObjectAllocationSample", "eventThread", lambda e: e["weight"])
    assert ours(samples, ("alloc_sample_bytes", "bytes")) == dotted(weights) != {}


def spans_of(pid, thread, *spans):
    """Returns spans as OpenTelemetry's Java agent sends them. spans: (id, parent, begin and end in
    nanoseconds)."""
    request = otlp.trace_request(len(spans))
    [resource] = request.resource_spans
    del resource.resource.attributes[:]
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    resource.resource.attributes.add(key="process.pid").value.int_value = pid
    resource.resource.attributes.add(key="host.id").value.string_value = "here"
    for span, (own, parent, begin, end) in zip(resource.scope_spans[0].spans, spans):
        span.trace_id, span.span_id, span.parent_span_id = (bytes.fromhex(text) for text in (TRACE, own, parent))
        span.name, span.start_time_unix_nano, span.end_time_unix_nano = own, begin, end
        del span.attributes[:]
        span.attributes.add(key="thread.id").value.int_value = thread
    return request.SerializeToString()


def test_joined(recording, server, tmp_path):
    """The recorder does not name spans: each event belongs to the span that was open on its thread.
    Process, threads and times come from the JDK's tool."""
    events = [(e["sampledThread"]["javaThreadId"], when(e["startTime"]))
              for e in printed(recording, "jdk.ExecutionSample") if (e["sampledThread"] or NO_THREAD)["javaName"] == "main"]
    main, times = events[0][0], sorted(time for _, time in events)
    begin, end = times[len(times) // 3], times[2 * len(times) // 3]
    pid = int(printed(recording, "jdk.JVMInformation")[0]["pid"])
    behind = Pyroscope()
    try:
        braid = server({"pprof": {"http": {"endpoint": "127.0.0.1:0"}},
                        "otlp": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}},
                       {"file": {"path": str(tmp_path / "out")}, "nop": {},
                        "pyroscope": {"endpoint": behind.url, "tls": {"insecure": True}}},
                       processors={"join": {"infer": True}})
        spans = spans_of(pid, main, (ROOT, "", times[0], times[-1] + 1), (CHILD, ROOT, begin, end))
        post(braid.http, "/v1/traces", spans, **{"Content-Type": "application/x-protobuf"})
        upload = f"{UPLOAD}&labels=process.pid%3D{pid},host.id%3Dhere"
        assert post(braid.address("http", node="receiver/pprof"), upload, recording.read_bytes()) == 200
        braid.stop()
    finally:
        behind.close()

    def owner(thread, time):
        inside = thread == "main" and times[0] <= time <= times[-1]
        return (TRACE, CHILD if begin <= time < end else ROOT) if inside else None
    found, stored, expected = collections.Counter(), collections.Counter(), collections.Counter()
    for e in printed(recording, "jdk.ExecutionSample"):
        thread = (e["sampledThread"] or NO_THREAD)["javaName"]
        expected[owner(thread, when(e["startTime"]))] += 10_000_000
    for sample in profile_view.samples(*(otlp.from_json(otlp.PROFILES.request, line)
                                         for line in (tmp_path / "out").read_text().splitlines())):
        for each in sample["timestamps"]:
            assert sample["link"] == owner(sample["attributes"].get("thread.name", ("", ))[0], each)
        if sample["link"]:
            assert sample["attributes"]["profile.join"] == ("inferred", "")
        if sample["type"] == ("cpu", "nanoseconds"):
            found[sample["link"]] += sum(sample["values"])
    for key, value in behind.stored().items():
        if key.type == "process_cpu:cpu:nanoseconds:cpu:nanoseconds":
            stored[(key.trace_id, key.span_id) if key.span_id else None] += value
    assert found == stored == expected and set(expected) == {(TRACE, ROOT), (TRACE, CHILD), None}
    read = pyroscope_reader.totals(pyroscope_reader.stacks(behind))
    assert read == pyroscope_reader.totals_of_stored(behind.stored())
    for span in (ROOT, CHILD):
        assert read["process_cpu:cpu:nanoseconds:cpu:nanoseconds", span] == expected[TRACE, span]
