# SPDX-License-Identifier: Apache-2.0
"""More than one event loop: connections are distributed over them, and all share one join."""

import contextlib
import http.client as http_client

import grpc
import pytest

import clients
import otlp
import profile_view
from braid import DEADLINE_S, exporter, pipelines, until
from otlp import PROFILES, SIGNALS, TRACES


def connections(server, what):
    """Returns each worker's number of connections of one port, by its gauge."""
    metrics = server.metrics()["braid_server_connections"]
    return sorted(value for labels, value in metrics.items() if f'server="receiver/otlp {what}"' in labels)


def open_grpc(server, stack, n=1):
    """Opens channels with a separate connection each, closed with the stack or before."""
    made = []
    for _ in range(n):
        channel = grpc.insecure_channel(server.grpc, clients.LOCAL)
        stack.callback(channel.close)
        grpc.channel_ready_future(channel).result(DEADLINE_S)
        made.append(channel)
    return made


def open_http(server, stack, n):
    for _ in range(n):
        connection = http_client.HTTPConnection(server.http, timeout=DEADLINE_S)
        stack.callback(connection.close)
        connection.connect()


@pytest.fixture
def stack():
    with contextlib.ExitStack() as each:
        yield each


@pytest.mark.parametrize("what, opener", [("grpc", open_grpc), ("http", open_http)])
def test_connections_are_distributed_evenly(braid, sink, stack, what, opener):
    server = braid(pipelines(exporter("grpc", sink), workers=4))
    opener(server, stack, 8)
    until(lambda: connections(server, what) == [2, 2, 2, 2], "two connections at each worker")
    stack.close()
    until(lambda: connections(server, what) == [0, 0, 0, 0], "their end")


def test_new_connections_go_to_the_least_loaded_worker(braid, sink, stack):
    server = braid(pipelines(exporter("grpc", sink), workers=4))
    first = open_grpc(server, stack, 8)
    for channel in (first[0], first[4], first[1], first[5]):  # connections alternate: two workers are idle now
        channel.close()
    until(lambda: connections(server, "grpc") == [0, 0, 2, 2], "two idle workers")
    open_grpc(server, stack, 4)
    until(lambda: connections(server, "grpc") == [2, 2, 2, 2], "two connections at each worker")


def test_every_worker_delivers(braid, sink, stack):
    server = braid(pipelines(exporter("grpc", sink), processors={"batch": {"timeout": "20ms"}}, workers=4))
    for n, channel in enumerate(open_grpc(server, stack, 8)):
        for signal in SIGNALS:
            body = otlp.request_of(signal, 5, first=1 + 5 * n).SerializeToString()
            clients.grpc(None, signal, body, channel=channel).expect_ok()
    for signal in SIGNALS:
        sink.wait(signal, 40)
        assert server.ledger(signal.name)["received"] == 40


# --- The join across workers --------------------------------------------------------------------

N = 5


@pytest.fixture
def apart(braid, sink, stack):
    """apart(**options) starts two workers with a join, and returns functions that send to the first
    and the second."""
    def start(**options):
        server = braid(pipelines(exporter("grpc", sink), processors={"join": options}, workers=2))
        one, other = open_grpc(server, stack, 2)
        until(lambda: connections(server, "grpc") == [1, 1], "a connection at each worker")

        def sender(channel):
            def send(signal, first=1):
                body = otlp.request_of(signal, N, first=first).SerializeToString()
                clients.grpc(None, signal, body, channel=channel).expect_ok()
            return send
        return sender(one), sender(other)
    return start


@pytest.fixture(params=["spans at the first", "spans at the second"])
def ways(request, apart):
    """ways(**options) returns functions that send spans and samples to different workers."""
    return lambda **options: apart(**options)[::1 if request.param == "spans at the first" else -1]


def check_samples(sink):
    samples = profile_view.samples(*(call.message for call in sink.of(PROFILES)))
    assert len(samples) == N
    for sample in samples:
        assert sample["attributes"]["span.name"] == (f"span {int(sample['link'][1], 16)}", "")


def test_spans_before_their_samples(ways, sink):
    send_spans, send_samples = ways()
    send_spans(TRACES)
    send_samples(PROFILES)
    sink.wait(PROFILES, N)
    check_samples(sink)


def test_samples_before_their_spans(ways, sink):
    """Samples wait for spans that have not arrived."""
    send_spans, send_samples = ways(profile_hold="1s")
    send_samples(PROFILES)
    send_spans(TRACES)
    sink.wait(TRACES, N)
    assert not sink.of(PROFILES)
    sink.wait(PROFILES, N)
    check_samples(sink)


@pytest.mark.parametrize("spans_first", [True, False])
def test_spans_have_the_figures_of_another_workers_samples(ways, sink, spans_first):
    """Sample n of the requests stands for n hits, each of 10 ms of CPU. The service is already
    known to send profiles."""
    send_spans, send_samples = ways(hold="1s")
    send_samples(PROFILES, first=100)
    sink.wait(PROFILES, N)
    for send, signal in [(send_spans, TRACES), (send_samples, PROFILES)][::1 if spans_first else -1]:
        send(signal)
    for _, _, span in sink.wait(TRACES, N):
        attributes = otlp.attributes_of(span.attributes)
        n = int(span.name.removeprefix("span "))
        assert attributes["profile.sample_count"] == n
        assert attributes["profile.duration_us"] == n * 10_000
        assert attributes["pyroscope.profile.id"] == span.span_id.hex()
