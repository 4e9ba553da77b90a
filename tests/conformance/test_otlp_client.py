# SPDX-License-Identifier: Apache-2.0
"""OTLP's requirements for clients (opentelemetry-proto docs/specification.md 1.11), tested with
both exporters."""

import threading
import time

import pytest
from grpc import StatusCode

import clients
import otlp
from braid import EXPORTERS, exporter, pipelines, until
from sink import BUSY, REFUSE, Reply

signals = pytest.mark.parametrize("signal", otlp.SIGNALS, ids=str)
exporters = pytest.mark.parametrize("kind", EXPORTERS)


def config(kind, sink, **more):
    fast = {"initial_interval": "20ms", "max_interval": "50ms", "max_elapsed_time": "60s"}
    return pipelines(exporter(kind, sink, **{"retry_on_failure": fast, **more}))


def send(server, signal, n_items=1):
    body = otlp.request_of(signal, n_items).SerializeToString()
    clients.grpc(server.grpc, signal, body).expect_ok()


def refusal(code):
    """Returns a Reply with a gRPC status, or an HTTP code."""
    if isinstance(code, int):
        return Reply(StatusCode.UNKNOWN, code, "as the test says")
    return Reply(StatusCode[code], 500, "as the test says")


RETRYABLE = [("grpc", code) for code in ("CANCELLED", "DEADLINE_EXCEEDED", "ABORTED",
                                         "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS")]
RETRYABLE += [(encoding, code) for encoding in ("proto", "json") for code in (429, 502, 503, 504)]
PERMANENT = [("grpc", code)
             for code in ("UNKNOWN", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS",
                          "PERMISSION_DENIED", "UNAUTHENTICATED", "FAILED_PRECONDITION",
                          "UNIMPLEMENTED", "INTERNAL")]
PERMANENT += [(encoding, code) for encoding in ("proto", "json")
              for code in (400, 401, 403, 404, 405, 408, 415, 500, 501, 505)]


@signals
@pytest.mark.parametrize("kind, code", RETRYABLE)
def test_retried(braid, sink, signal, kind, code):
    server = braid(config(kind, sink))
    sink.script = [refusal(code)] * 3
    send(server, signal)
    sink.wait(signal, 1)
    assert sink.script == []
    until(lambda: server.ledger(signal)["sent"] == 1, "the ledger")


@signals
@pytest.mark.parametrize("kind, code", PERMANENT)
def test_not_retried(braid, sink, signal, kind, code):
    """The request is dropped and counted; the next one succeeds."""
    server = braid(config(kind, sink))
    sink.script = [refusal(code)]
    send(server, signal, 5)
    until(lambda: server.ledger(signal)["dropped"] == 5, "the ledger")
    send(server, signal)
    sink.wait(signal, 1)
    assert sink.script == []


TOO_BIG = Reply(StatusCode.RESOURCE_EXHAUSTED, 413,
                "grpc: received message larger than max (5242880 vs. 4194304)")
# Tempo's message when a backend is overloaded.
MERCY = Reply(StatusCode.RESOURCE_EXHAUSTED, 429,
              "RATE_LIMITED: ingestion rate limit (15000000 bytes) exceeded while adding 99 bytes")


@exporters
@signals
def test_a_request_that_is_too_big_is_never_retried(braid, sink, signal, kind):
    """Only its halves are sent."""
    server = braid(config(kind, sink))
    sink.script = [TOO_BIG] * 2
    send(server, signal, 8)
    sink.wait(signal, 8)
    assert sorted(len(otlp.items_of(signal, call.message)) for call in sink.of(signal)) == [2, 2, 4]


@exporters
@signals
def test_a_rate_limited_request_is_not_split(braid, sink, signal, kind):
    """RESOURCE_EXHAUSTED without RetryInfo, whose message is not about size: it is sent again
    later, in one piece."""
    server = braid(config(kind, sink))
    sink.script = [MERCY] * 3
    send(server, signal, 8)
    sink.wait(signal, 8)
    assert len(sink.of(signal)) == 1 and sink.script == []


@exporters
@signals
def test_a_record_that_is_too_big_is_dropped(braid, sink, signal, kind):
    server = braid(config(kind, sink))
    sink.script = [TOO_BIG]
    send(server, signal)
    until(lambda: server.ledger(signal)["dropped"] == 1, "the ledger")
    send(server, signal)
    sink.wait(signal, 1)


@signals
def test_resource_exhausted_is_retried_with_retry_info(braid, sink, signal):
    server = braid(config("grpc", sink))
    sink.script = [Reply(StatusCode.RESOURCE_EXHAUSTED, retry_s=0.01)]
    send(server, signal)
    sink.wait(signal, 1)


@exporters
@signals
def test_the_servers_retry_delay_is_respected(braid, sink, signal, kind):
    """RetryInfo and Retry-After replace the back-off."""
    server = braid(config(kind, sink))
    sink.script = [BUSY]
    start = time.monotonic()
    send(server, signal)
    sink.wait(signal, 1)
    assert time.monotonic() - start >= BUSY.retry_s


@exporters
@signals
def test_partial_success_is_not_retried(braid, sink, signal, kind):
    server = braid(config(kind, sink))
    sink.reply = Reply(rejected=2, message="too old")
    send(server, signal, 5)
    until(lambda: server.ledger(signal)["held"] == 0 and sink.of(signal), "the answer")
    account = server.ledger(signal)
    lost = 2 if signal is otlp.TRACES else 5  # rejected_profiles: there is one, of five samples
    assert (account["sent"], account["rejected"] + account["dropped"]) == (5 - lost, lost)
    send(server, signal)
    assert len(sink.wait(signal, 6)) == 6


@exporters
@signals
def test_request_is_dropped_after_max_elapsed_time(braid, sink, signal, kind):
    quick = {"initial_interval": "10ms", "max_interval": "20ms", "max_elapsed_time": "200ms"}
    server = braid(config(kind, sink, retry_on_failure=quick))
    sink.reply = Reply(StatusCode.UNAVAILABLE, 503)
    send(server, signal, 3)
    until(lambda: server.ledger(signal)["held"] == 0, "the end")
    account = server.ledger(signal)
    assert account["dropped"] + account["rejected"] == 3 and account["sent"] == 0


@exporters
@signals
def test_requests_are_delivered_when_the_server_starts_late(braid, new_sink, tap, signal, kind):
    sink = new_sink()
    wire = tap(sink.grpc if kind == "grpc" else sink.http)
    gate = threading.Event()
    sink.script = [Reply(StatusCode.UNAVAILABLE, 503)] * 2
    server = braid(config(kind, wire))
    send(server, signal, 2)
    sink.wait(signal, 2)
    until(lambda: server.ledger(signal)["sent"] == 2, "the answer")  # so that no answer is interrupted
    sink.script = [Reply(hold=gate, grpc=StatusCode.UNAVAILABLE, http=503)]
    send(server, signal)
    until(lambda: not sink.script, "the call that hangs")
    wire.cut()  # the answer cannot arrive any more
    sink.wait(signal, 3)
    gate.set()


@exporters
@signals
def test_calls_are_concurrent(braid, sink, signal, kind):
    """Four requests are outstanding before the first is answered."""
    server = braid(config(kind, sink, sending_queue={"num_consumers": 4}))
    gates = [threading.Event() for _ in range(4)]
    sink.script = [Reply(hold=gate) for gate in gates]
    for _ in gates:
        send(server, signal)
    until(lambda: not sink.script, "four calls")
    for gate in gates:
        gate.set()
    sink.wait(signal, 4)


@exporters
@signals
def test_a_request_to_a_hanging_server_times_out_and_is_retried(braid, sink, signal, kind):
    server = braid(config(kind, sink, timeout="200ms"))
    gate = threading.Event()
    sink.script = [Reply(hold=gate, grpc=StatusCode.UNAVAILABLE, http=503)]
    send(server, signal)
    sink.wait(signal, 1)
    gate.set()


@exporters
@signals
def test_headers(braid, sink, signal, kind):
    server = braid(config(kind, sink, headers={"X-Scope-OrgID": "team-a"}))
    send(server, signal)
    sink.wait(signal, 1)
    [call] = sink.of(signal)
    assert call.headers["x-scope-orgid"] == "team-a"
    assert call.headers["user-agent"].lower().startswith("braid")


@exporters
@signals
def test_destinations_are_independent(braid, new_sink, signal, kind):
    """Each destination has a separate queue and retry: a failing one does not delay the others."""
    good, bad = new_sink(), new_sink()
    bad.reply = BUSY
    quick = {"initial_interval": "10ms", "max_elapsed_time": "500ms"}
    server = braid(pipelines({**exporter(kind, bad, "/bad", retry_on_failure=quick),
                              **exporter(kind, good, "/good")}))
    for _ in range(5):
        send(server, signal)
    good.wait(signal, 5)
    bad.reply = REFUSE
    until(lambda: server.ledger(signal)["held"] == 0, "the end")
    account = server.ledger(signal)  # the working destination has them all
    assert account["received"] == account["sent"] == 5
    assert server.exporter_ledger("otlphttp/bad" if kind != "grpc" else "otlp/bad", signal)["sent"] == 0


@exporters
@signals
def test_profiles_carry_their_version(braid, sink, signal, kind):
    """Collectors from 0.163 on declare the version of their schema in the same way."""
    server = braid(config(kind, sink))
    send(server, signal)
    sink.wait(signal, 1)
    declared = sink.of(signal)[0].headers.get("otlp-profiles-development-version")
    assert declared == ("1" if signal is otlp.PROFILES else None)
