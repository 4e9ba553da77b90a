# SPDX-License-Identifier: Apache-2.0
"""SIGTERM with clients and destinations in various states: the process ends in time, acknowledged
data is sent or counted, and a misbehaving peer does not cost others their data."""

import contextlib
import re
import signal as signals
import socket
import threading
import time

import pytest

import clients
import otlp
from braid import exporter, pipelines, until
from otlp import PROFILES, TRACES
from raw import DATA, END_HEADERS, HEADERS, PREFACE, SETTINGS, Raw, block, frame, h2, sanitized
from sink import Reply

pytestmark = pytest.mark.release

BODY = otlp.trace_request(5).SerializeToString()
GET = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"


def post(length, body=b""):
    return (b"POST /v1/traces HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-protobuf\r\n"
            b"Content-Length: %d\r\n\r\n" % length) + body


def timed_stop(server):
    start = time.monotonic()
    words = server.stop()
    return time.monotonic() - start, words


def test_idle_connections_do_not_delay_shutdown(braid):
    server = braid(pipelines({"nop": {}}, workers=2))
    idle = [Raw(server.http, post(len(BODY), BODY)) for _ in range(20)]
    idle += [h2(port) for port in (server.grpc, server.http) for _ in range(20)]
    idle += [Raw(server.grpc), Raw(server.http, b"GET / HT"), Raw(server.grpc, PREFACE[:10])]
    for client in idle[:60]:
        client.wait(lambda c=client: c.got)
    took, words = timed_stop(server)
    assert words["traces"]["received"] == words["traces"]["sent"] == 20 * 5
    assert took < (10 if sanitized("self") else 3)
    for client in idle:
        client.wait()
        client.socket.close()


def test_extensions_that_have_no_effect(braid):
    """The Collector's extensions that Braid ignores do not disturb the shutdown."""
    server = braid(pipelines({"nop": {}}, extensions={"pprof": {}, "zpages": {}, "opamp": {}}))
    clients.grpc(server.grpc, TRACES, BODY).expect_ok()
    _, words = timed_stop(server)
    assert words["traces"]["received"] == words["traces"]["sent"] == 5


def test_an_incomplete_request_does_not_affect_others(braid, sink):
    """Receivers drain first: a receiver that waits for a slow client must not keep batches from
    being sent."""
    server = braid(pipelines(exporter("grpc", sink), processors={"batch": {"timeout": "1h"}}),
                   "--shutdown-timeout", "15s")
    clients.grpc(server.grpc, TRACES, BODY).expect_ok()
    slow = [Raw(server.http, post(1000, b"half")),
            h2(server.grpc),
            h2(server.http)]
    slow[1].send(frame(HEADERS, END_HEADERS, 1, block(TRACES.method, (b"content-type", b"application/grpc")))
                 + frame(DATA, 0, 1, b"half"))
    slow[2].send(frame(HEADERS, END_HEADERS, 1, block(TRACES.path, (b"content-type", b"application/json"))))
    for client in slow[1:]:
        client.wait(lambda c=client: c.got)
    took, words = timed_stop(server)
    assert took < 12
    assert words["traces"] == {"received": 5, "sent": 5, "rejected": 0, "dropped": 0, "left": 0}
    sink.wait(TRACES, 5)
    for client in slow:
        client.wait()
        assert b"200" not in bytes(client.got)
        client.socket.close()


def test_client_that_never_reads_does_not_affect_others(braid, sink):
    server = braid(pipelines(exporter("grpc", sink), processors={"batch": {"timeout": "1h"}}),
                   "--shutdown-timeout", "15s")
    clients.grpc(server.grpc, TRACES, BODY).expect_ok()
    metrics = server.address("metrics", node=None)
    deaf = Raw(metrics, receive_buffer=4096)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            deaf.socket.send(GET * 100)
        except BlockingIOError:
            time.sleep(0.2)
            try:
                deaf.socket.send(GET)
            except BlockingIOError:
                break
    closed_window = h2(server.grpc, settings=b"\0\4\0\0\0\0")
    closed_window.send(frame(HEADERS, END_HEADERS, 1, block(TRACES.method, (b"content-type", b"application/grpc")))
                       + frame(DATA, 1, 1, b"\0" + len(BODY).to_bytes(4, "big") + BODY))
    until(lambda: server.log() is not None and closed_window.read() is False and closed_window.got, "an answer's head")
    took, words = timed_stop(server)
    assert took < 12
    assert words["traces"]["sent"] == words["traces"]["received"] == 10
    deaf.socket.close()
    closed_window.socket.close()


def test_requests_in_flight_are_answered(braid, sink):
    """The client waits for the destination's answer, which is sent after SIGTERM."""
    server = braid(pipelines(exporter("grpc", sink, sending_queue={"enabled": False})))
    gate = threading.Event()
    sink.reply = Reply(hold=gate)
    answers = []

    def send(port):
        if port == "grpc":
            answers.append(clients.grpc(server.grpc, TRACES, BODY))
        else:
            answers.append(clients.http(server.http, TRACES.path, BODY, otlp.PROTOBUF))
    threads = [threading.Thread(target=send, args=(port, )) for port in ("grpc", "http") * 3]
    for thread in threads:
        thread.start()
    until(lambda: server.ledger("traces")["received"] == 30, "all requests")
    server.process.terminate()
    server.wait_log("SIGTERM: draining")
    with pytest.raises(OSError):
        for _ in range(100):  # the port is closed at once or very soon
            host, port = server.http.rsplit(":", 1)
            socket.create_connection((host, int(port)), timeout=1).close()
            time.sleep(0.05)
    gate.set()
    for thread in threads:
        thread.join()
    assert all(answer.ok for answer in answers)
    server.stop()


@pytest.fixture
def down():
    """down(kind, **options) makes an exporter to a port that is closed and reserved while the test
    runs."""
    with contextlib.ExitStack() as stack:
        def make(kind="otlp", **options):
            nobody = stack.enter_context(socket.socket())
            nobody.bind(("127.0.0.1", 0))
            return {kind: {"endpoint": "http://127.0.0.1:%d" % nobody.getsockname()[1], **options}}
        yield make


def logged(server, kind):
    """Returns the number of records dropped during shutdown, by the lines of the log."""
    return sum(int(n) for n in re.findall(rf"\tdropped (\d+) {kind} \(shutdown\): ", server.log()))


@pytest.mark.parametrize("workers", [1, 3])
def test_destination_is_down(braid, down, workers):
    """It retries until the timeout, and then logs how much was not sent."""
    server = braid(pipelines(down(), workers=workers), "--shutdown-timeout", "2s")
    for _ in range(10):
        clients.grpc(server.grpc, TRACES, BODY).expect_ok()
    took, words = timed_stop(server)
    assert 1.5 < took < 12
    assert words["traces"] == {"received": 50, "sent": 0, "rejected": 0, "dropped": 50, "left": 0}
    assert logged(server, "spans") == 50


@pytest.mark.parametrize("queue", [{}, {"queue_size": 2, "num_consumers": 1}, {"batch": {"min_size": 0}}],
                         ids=["queue", "full", "batched"])
@pytest.mark.parametrize("processors", [{}, {"batch": {"timeout": "10ms"}}, {"join": {"profile_hold": "1m"}}],
                         ids=["", "batch", "join"])
@pytest.mark.parametrize("kind, more", [("otlp", {}), ("otlphttp", {}), ("pyroscope", {"limits": {"max_age": 0}})],
                         ids=["otlp", "otlphttp", "pyroscope"])
def test_last_line_agrees_with_the_others(braid, down, kind, more, processors, queue):
    """Wherever samples were at the timeout, a log line reports them as lost, and the sum is right."""
    server = braid(pipelines(down(kind, sending_queue=queue, **more), signals=("profiles", ), processors=processors),
                   "--shutdown-timeout", "500ms")
    accepted = 0
    for n in range(1, 8):  # distinct numbers, so that records counted twice or not at all are detected
        body = otlp.profile_request(n).SerializeToString()
        accepted += n * clients.http(server.http, PROFILES.path, body, otlp.PROTOBUF).ok
        time.sleep(0.03)
    received = server.ledger("profiles")["received"]
    words = server.stop()["profiles"]
    assert accepted and received == sum(range(1, 8))
    assert words == {"received": received, "sent": 0, "rejected": received - accepted, "dropped": accepted, "left": 0}
    assert logged(server, "samples") == accepted


def test_waiting_clients_are_answered_at_shutdown(braid, down):
    """The exporter does not have a queue, so the client still has the data: it is rejected, not dropped."""
    server = braid(pipelines(down(sending_queue={"enabled": False})), "--shutdown-timeout", "500ms")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(clients.grpc(server.grpc, TRACES, BODY)))
    thread.start()
    until(lambda: server.ledger("traces")["received"] == 5, "the request")
    words = server.stop()
    thread.join()
    assert not answers[0].ok
    assert words["traces"] == {"received": 5, "sent": 0, "rejected": 5, "dropped": 0, "left": 0}
    assert logged(server, "spans") == 0


@pytest.mark.parametrize("processors, queue", [
    ({"batch": {"timeout": "1h"}}, {}),
    ({"join": {"hold": "1m"}}, {}),
    ({}, {"batch": {"flush_timeout": "1h"}}),
    ({"join": {"hold": "1m"}, "batch": {"timeout": "1h"}}, {"batch": {"flush_timeout": "1h"}}),
], ids=["batch", "join", "queue", "all"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_hanging_backend_does_not_delay_another(braid, sink, new_sink, processors, queue, workers):
    """A sender of profiles waits for its backend; spans that only wait for their batch are sent in
    the meantime."""
    hung, gate = new_sink(), threading.Event()
    hung.reply = Reply(hold=gate)
    config = pipelines({**exporter("grpc", sink, sending_queue=queue),
                        **exporter("grpc", hung, "/hung", sending_queue={"enabled": False})},
                       processors=processors, workers=workers)
    config["service"]["pipelines"]["traces"]["exporters"] = ["otlp"]
    config["service"]["pipelines"]["profiles"] = {"receivers": ["otlp"], "exporters": ["otlp/hung"]}
    server = braid(config, "--shutdown-timeout", "3s")
    clients.grpc(server.grpc, TRACES, BODY).expect_ok()
    profiles = otlp.profile_request(2).SerializeToString()
    thread = threading.Thread(target=clients.grpc, args=(server.grpc, PROFILES, profiles))
    thread.start()
    until(lambda: server.ledger("profiles")["received"] == 2, "the request that the backend does not answer")
    assert not sink.items(TRACES)
    words = server.stop()
    thread.join()
    gate.set()
    assert words["traces"] == {"received": 5, "sent": 5, "rejected": 0, "dropped": 0, "left": 0}
    assert words["profiles"] == {"received": 2, "sent": 0, "rejected": 2, "dropped": 0, "left": 0}


def test_a_second_signal_ends_the_process_at_once(braid, down):
    server = braid(pipelines(down(), workers=3), "--shutdown-timeout", "10m")
    clients.grpc(server.grpc, TRACES, BODY).expect_ok()
    server.process.terminate()
    server.wait_log("SIGTERM: draining")
    time.sleep(0.2)
    assert server.process.poll() is None
    server.process.send_signal(signals.SIGINT)
    took, words = timed_stop(server)
    assert took < 10
    assert words["traces"] == {"received": 5, "sent": 0, "rejected": 0, "dropped": 5, "left": 0}
    assert logged(server, "spans") == 5


def test_shutdown_succeeds_as_soon_as_it_listens(braid):
    """SIGTERM before the process is ready does not kill it: it shuts down."""
    for _ in range(20):
        server = braid(pipelines({"nop": {}}, workers=2))
        while "listening on" not in server.log():
            assert server.process.poll() is None
        assert set(server.stop()) == {"traces", "profiles"}


def test_shutdown_while_connections_arrive(braid):
    """Sockets are being passed from worker to worker when the process ends."""
    for _ in range(5):
        server = braid(pipelines({"nop": {}}, workers=3))
        addresses, stop = [server.grpc, server.http], threading.Event()

        def storm():
            while not stop.is_set():
                for address in addresses:
                    host, port = address.rsplit(":", 1)
                    try:
                        with socket.create_connection((host, int(port)), timeout=5) as s:
                            s.sendall(GET)
                    except OSError:
                        return
        threads = [threading.Thread(target=storm) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        server.stop()
        stop.set()
        for thread in threads:
            thread.join()
