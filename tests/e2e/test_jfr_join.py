# SPDX-License-Identifier: Apache-2.0
"""Recordings of Pyroscope's Java agent in front of a join: each sample has its time and thread. A
sample that names its local root is therefore linked to the deepest span, and the output is
aggregated as in Pyroscope."""

import gzip
import pathlib
import re

import pytest

import clients
import otlp
import profile_view
from braid import pipelines
from ingest import form, http1, ingest_path
from otlp import PROFILES, TRACES

DATA = pathlib.Path(__file__).parents[1] / "data" / "jfr"
TRACE, ROOT, CHILD = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "00000000000000c1"
CPU = ("process_cpu", "cpu", "nanoseconds", "cpu", "nanoseconds")


def read(name):
    return gzip.decompress((DATA / f"{name}.gz").read_bytes())


def events():
    """Returns (time, ns) of each CPU sample that names the root, as read by the JDK's reader."""
    found, inside = [], False
    for line in read("agent-itimer.events").decode().splitlines():
        if line.startswith("# "):
            inside = line == "# - cpu nanoseconds cpu nanoseconds"
        elif inside and f"profile_id={ROOT}" in line:
            time_ns, value = re.search(r"@(\d+) (\d+)$", line).groups()
            found.append((int(time_ns), int(value)))
    return sorted(found)


def totals(path):
    """Returns {(name, type, unit, period type, period unit): {(span, stack, labels): value}} from a
    file exporter's output, and the number of samples."""
    found, n = {}, 0
    for line in path.read_text().splitlines():
        for each in profile_view.samples(otlp.from_json(PROFILES.request, line)):
            assert not each["timestamps"] and not any(key.startswith("thread.") for key in each["attributes"]), each
            key = each["scope"][1]["pyroscope.name"], *each["type"], *each["period_type"]
            stack = ";".join(f"{frame_line[0]}:{frame_line[4]}" for frame in each["frames"] for frame_line in frame["lines"])
            labels = ",".join(f"{name}={value[0]}" for name, value in sorted(each["attributes"].items()))
            place = each["link"][1] if each["link"] else None, stack, labels
            lines = found.setdefault(key, {})
            assert place not in lines, f"not folded: {place}"
            lines[place] = each["values"][0]
            n += 1
    return found, n


@pytest.fixture
def start(braid, tmp_path):
    """start(join, kept) writes the signal `kept` to a file; join None: without a join."""
    def run(join, kept="profiles"):
        config = pipelines({"file": {"path": str(tmp_path / "out")}, "nop": {}}, processors={} if join is None else {"join": join})
        config["receivers"]["pyroscope"] = {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}
        config["service"]["pipelines"] = {
            signal: {"receivers": receivers, "processors": list(config["processors"]), "exporters": ["file" if signal == kept else "nop"]}
            for signal, receivers in (("traces", ["otlp"]), ("profiles", ["otlp", "pyroscope"]))}
        return braid(config)
    return run


def push(server):
    kind, body = form(jfr=read("agent-itimer.jfr"), labels=(DATA / "agent-itimer.labels.pb").read_bytes())
    path = ingest_path("shop.itimer{service_name=cart}", format="jfr", spyName="javaspy", sampleRate=100,
                       **{"from": 1767225600, "until": 1767225610})
    answer = http1(server.address("http", "receiver/pyroscope"), path, body, {"Content-Type": kind})
    assert answer.code == 200, answer.body


def send_spans(server, begin, middle, end):
    """The root, and a child of it on the same thread in the second half."""
    request = otlp.traces.ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.append(otlp.attribute("service.name", "cart"))
    scope = resource.scope_spans.add()
    for span, parent, name, first, last, kind in ((ROOT, "", "GET /checkout", begin, end, 2), (CHILD, ROOT, "price", middle, end, 1)):
        made = scope.spans.add(trace_id=bytes.fromhex(TRACE), span_id=bytes.fromhex(span), parent_span_id=bytes.fromhex(parent),
                               name=name, kind=kind, start_time_unix_nano=first, end_time_unix_nano=last)
        made.attributes.append(otlp.attribute("thread.name", "checkout"))
    clients.grpc(server.grpc, TRACES, request.SerializeToString()).expect_ok()


def spread():
    """Returns (begin, middle, end): times around the events, and one between two of them in the
    middle."""
    times = [time_ns for time_ns, _ in events()]
    half = len(times) // 2
    return times[0] - 1000, (times[half - 1] + times[half]) // 2, times[-1] + 1000


def test_output_equals_that_without_a_join(start, tmp_path):
    plain = start(None)
    push(plain)
    assert plain.stop()
    expected, n = totals(tmp_path / "out")
    (tmp_path / "out").unlink()
    joined = start({})
    push(joined)
    assert joined.stop()
    assert totals(tmp_path / "out") == (expected, n)


def test_samples_without_kept_links_are_aggregated_with_their_times(start, tmp_path):
    server = start({"keep": {"slow_threshold": "10h"}})
    push(server)
    assert server.stop()
    found, _ = totals(tmp_path / "out")
    by_span = {}
    for (span, stack, labels), value in found[CPU].items():
        by_span[span] = by_span.get(span, 0) + value
        assert "profile_id" not in labels and "trace_id" not in labels
    text = read("agent-itimer.expected").decode()
    lines = text[text.index("# " + " ".join(CPU)):].splitlines()[1:]
    lines = lines[:next((n for n, line in enumerate(lines) if line.startswith("# ")), len(lines))]
    assert by_span == {None: sum(int(line.rsplit(" ", 1)[1]) for line in lines)}


def test_child_spans_have_their_own_samples(start, tmp_path):
    """The agent's labels name only the root."""
    begin, middle, end = spread()
    server = start({"local_root": {"link": "span"}})
    send_spans(server, begin, middle, end)
    push(server)
    assert server.stop()
    found, _ = totals(tmp_path / "out")
    by_span = {}
    for (span, _, labels), value in found[CPU].items():
        by_span[span] = by_span.get(span, 0) + value
        if span == CHILD:
            assert "span.name=price" in labels and "profile_id" not in labels and "customer=gold" in labels
    assert by_span[CHILD] == sum(value for time_ns, value in events() if time_ns > middle)
    assert by_span[ROOT] == sum(value for time_ns, value in events() if time_ns < middle)


def test_figures_of_spans_contain_their_own_samples(start, tmp_path):
    """Also with the root's link: a child's CPU time is attributed to the child."""
    begin, middle, end = spread()
    server = start({"hold": "1h", "window": "2h"}, "traces")
    push(server)
    send_spans(server, begin, middle, end)
    assert server.stop()
    figures = {}
    for line in (tmp_path / "out").read_text().splitlines():
        for _, _, span in otlp.spans_of(otlp.from_json(TRACES.request, line)):
            attributes = {each.key: each.value for each in span.attributes}
            figures[span.name] = attributes["profile.duration_us"].int_value if "profile.duration_us" in attributes else 0
    assert figures["price"] == sum(value for time_ns, value in events() if time_ns > middle) // 1000
    assert figures["GET /checkout"] == sum(value for time_ns, value in events() if time_ns < middle) // 1000
