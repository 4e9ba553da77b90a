# SPDX-License-Identifier: Apache-2.0
"""tail_sampling in the binary: both signals, several workers and connections, late data, limits,
shutdown, reload. The decisions of the policies are tested in tests/unit/processors."""

import concurrent.futures
import json
import signal
import subprocess

import pytest

import clients
import otlp
import profile_view
from braid import BINARY, DEADLINE_S, exporter, pipelines, until
from otlp import PROFILES, TRACES

ERRORS = {"name": "errors", "type": "status_code", "status_code": {"status_codes": ["ERROR"]}}
START = 1_700_000_000_000_000_000
MS = 1_000_000


def trace_id(n):
    return bytes([n + 1]) + bytes(14) + b"\x01"


def spans(*rows):
    """One span for each (trace, number, failed)."""
    request = otlp.traces.ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for trace, number, failed in rows:
        span = scope.spans.add(trace_id=trace_id(trace), span_id=(number + 1).to_bytes(8, "big"),
                               name=f"{trace}.{number}", start_time_unix_nano=START, end_time_unix_nano=START + MS)
        span.status.code = 2 if failed else 0
    return request


def samples(*rows):
    """A CPU profile with a sample of the same stack for each (trace or None, ms)."""
    request = otlp.profile_request(0, service="shop")
    tables, profile = request.dictionary, request.resource_profiles[0].scope_profiles[0].profiles[0]
    for trace, ms in rows:
        link = 0
        if trace is not None:
            tables.link_table.add(trace_id=trace_id(trace), span_id=bytes(7) + b"\x01")
            link = len(tables.link_table) - 1
        profile.samples.add(stack_index=1, link_index=link, values=[ms * MS])
    return request


def send(server, *requests):
    """Sends the requests at once, each over a separate connection."""
    def one(request):
        kind = TRACES if hasattr(request, "resource_spans") else PROFILES
        clients.grpc(server.grpc, kind, request.SerializeToString()).expect_ok()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, requests))


def warnings(tmp_path, made):
    """Returns the warnings of `braid validate` about tail_sampling, up to a semicolon followed by "list"."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(made))
    done = subprocess.run([BINARY, "validate", "--config", path], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    lines = [line.split("processors::tail_sampling: ")[1] for line in done.stderr.splitlines() if "::tail_sampling: " in line]
    return [line.split("; list")[0] for line in lines]


def config(sink, workers=1, policies=(ERRORS,), **options):
    return pipelines(exporter("grpc", sink), workers=workers,
                     processors={"tail_sampling": {"policies": list(policies), **options}})


def names(sink):
    return sorted(span.name for call in sink.of(TRACES) for _, _, span in otlp.items_of(TRACES, call.message))


def linked(sink):
    """Returns the ms of the samples of each trace; None: of those without a link."""
    ms = {}
    for view in profile_view.samples(*(call.message for call in sink.of(PROFILES))):
        trace = bytes.fromhex(view["link"][0])[0] - 1 if view["link"] else None
        ms[trace] = ms.get(trace, 0) + sum(view["values"]) // MS
    return ms


@pytest.mark.parametrize("workers", [1, 3])
def test_traces_are_decided_across_connections(braid, sink, workers):
    """The spans and samples of 30 traces arrive over separate connections. The last span of every
    third trace has failed. SIGTERM decides."""
    server = braid(config(sink, workers=workers, decision_wait="1h"))
    send(server, *(spans((trace, number, trace % 3 == 0 and number == 3)) for number in range(4) for trace in range(30)),
         *(samples((trace, 10), (trace, 20), (None, 1)) for trace in range(30)))
    assert not sink.of(TRACES) and not sink.of(PROFILES)
    server.stop()
    assert names(sink) == sorted(f"{trace}.{number}" for number in range(4) for trace in range(0, 30, 3))
    assert linked(sink) == {**{trace: 30 for trace in range(0, 30, 3)}, None: 30 + 20 * 30}


def test_one_request_with_many_traces(braid, sink):
    server = braid(config(sink, decision_wait="300ms"))
    request = spans(*((trace, number, trace in (2, 5) and number == 0) for number in range(3) for trace in range(8)))
    send(server, request)
    sink.wait(TRACES, 6)
    assert names(sink) == sorted(f"{trace}.{number}" for trace in (2, 5) for number in range(3))


@pytest.mark.parametrize("workers", [1, 3])
def test_late_spans_and_samples_follow_the_decision(braid, sink, workers):
    server = braid(config(sink, workers=workers, decision_wait="300ms"))
    send(server, spans((0, 0, True), (1, 0, False)))
    sink.wait(TRACES, 1)
    send(server, *(spans((0, n, False), (1, n, True)) for n in range(1, 9)),
         *(samples((0, n), (1, n)) for n in range(1, 9)))
    sink.wait(TRACES, 9)
    assert names(sink) == [f"0.{n}" for n in range(9)]
    sink.wait(PROFILES, 16)
    assert linked(sink) == {0: 36, None: 36}


def test_policies_that_read_profiles(braid, sink):
    policies = [{"name": "busy", "type": "cpu_time", "cpu_time": {"threshold_ms": 100}},
                {"name": "some", "type": "profiled", "profiled": {"min_samples": 3}}]
    server = braid(config(sink, workers=2, policies=policies, decision_wait="1h"))
    send(server, spans(*((trace, 0, False) for trace in range(4))),
         samples((0, 101), (1, 100)), samples((2, 1), (2, 1)), samples((2, 1)))
    server.stop()
    assert names(sink) == ["0.0", "2.0"]
    assert linked(sink) == {0: 101, None: 100, 2: 3}


def test_the_oldest_request_is_released_at_the_limit(braid, sink):
    """Two requests fit."""
    first, second, third = (spans((n, 0, True)) for n in range(3))
    server = braid(config(sink, decision_wait="1h", hold_max_bytes=2 * len(first.SerializeToString())))
    for request in (first, second):
        send(server, request)
    send(server, third)
    sink.wait(TRACES, 1)
    assert names(sink) == ["0.0"]
    # the first trace is decided
    send(server, spans((0, 1, False)))
    sink.wait(TRACES, 2)
    assert names(sink) == ["0.0", "0.1"]


def test_a_reload_decides(braid, sink):
    server = braid(config(sink, workers=2, decision_wait="1h"))
    send(server, spans((0, 0, True), (1, 0, False)))
    server.config_path.write_text(json.dumps(config(sink, workers=2, decision_wait="2h")))
    server.process.send_signal(signal.SIGHUP)
    until(lambda: server.metrics()["braid_config_reloads"]['result="success"'] == 1, "the reload")
    sink.wait(TRACES, 1)
    send(server, spans((1, 1, True)))
    server.stop()
    assert names(sink) == ["0.0", "1.1"]


LATE = {"batch": {"acknowledge": "late", "timeout": "10ms"}}


def late(sink, **options):
    """A config with a batch before tail_sampling that answers after the delivery."""
    return pipelines(exporter("grpc", sink), processors={**LATE, "tail_sampling": {"policies": [ERRORS], **options}})


def test_after_a_late_batch_requests_are_answered_after_the_decision(braid, sink):
    requests = spans((0, 0, True), (1, 0, False)), samples((0, 1), (1, 2))
    server, answers = braid(late(sink, decision_wait="1h")), []

    def held():
        return sum(server.metrics().get("braid_tail_sampling_held_bytes", {}).values())
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for kind, request in zip((TRACES, PROFILES), requests):
            before = held()
            answers.append(pool.submit(clients.grpc, server.grpc, kind, request.SerializeToString()))
            until(lambda before=before: held() > before, "the held request")
        server.kill()
        assert not any(answer.result().ok for answer in answers)
    server = braid(late(sink, decision_wait="300ms"))
    send(server, *requests)
    assert names(sink) == ["0.0"]
    assert linked(sink) == {0: 1, None: 2}


@pytest.mark.parametrize("pipelines_of, warning", [
    (("traces",), None), (("profiles",), "is not in any traces pipeline, so it does nothing"), (("traces", "profiles"), None)],
    ids=str)
def test_one_signal(tmp_path, pipelines_of, warning):
    made = {"receivers": {"otlp": {"protocols": {"http": {"endpoint": "localhost:0"}}}}, "exporters": {"nop": {}},
            "processors": {"tail_sampling": {"policies": [ERRORS]}},
            "service": {"telemetry": {"metrics": {"level": "none"}},
                        "pipelines": {name: {"receivers": ["otlp"], "processors": ["tail_sampling"], "exporters": ["nop"]}
                                      for name in pipelines_of}}}
    assert warnings(tmp_path, made) == ([] if warning is None else [warning])


def durable_warnings(tmp_path, receivers, processors):
    made = {"receivers": receivers, "extensions": {"file_storage": {"directory": str(tmp_path)}},
            "exporters": {"otlp": {"endpoint": "localhost:1", "sending_queue": {"storage": "file_storage"}}},
            "processors": {**processors, "tail_sampling": {"policies": [ERRORS]}},
            "service": {"telemetry": {"metrics": {"level": "none"}}, "extensions": ["file_storage"],
                        "pipelines": {"traces": {"receivers": list(receivers), "processors": [*processors, "tail_sampling"],
                                                 "exporters": ["otlp"]}}}}
    return warnings(tmp_path, made)


OTLP = {"otlp": {"protocols": {"http": {"endpoint": "localhost:0"}}}}


NO_BATCH = {"queue_batch": {"wait_for_result": True, "batch": {"enabled": False}}}


@pytest.mark.parametrize("receivers, processors", [
    (OTLP, {}), (OTLP, NO_BATCH), ({"kafka": {"message_marking": {"after": False}}}, {}), ({**OTLP, "kafka": {}}, {})],
    ids=["otlp", "queue_batch", "kafka", "both"])
def test_a_durable_queue_does_not_keep_held_requests(tmp_path, receivers, processors):
    assert durable_warnings(tmp_path, receivers, processors) == [
        "tail_sampling holds requests and answers them before otlp has stored them; if the process is killed, these requests are lost; "
        "to lose fewer, shorten decision_wait"]


@pytest.mark.parametrize("receivers, processors", [
    (OTLP, LATE), (OTLP, {"queue_batch": {"wait_for_result": True}}), ({"kafka": {}}, {}),
    ({"kafka": {"message_marking": {"after": True}}}, {})], ids=["batch", "queue_batch", "kafka", "after"])
def test_requests_whose_senders_wait_are_not_lost(tmp_path, receivers, processors):
    assert not durable_warnings(tmp_path, receivers, processors)
