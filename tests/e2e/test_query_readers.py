# SPDX-License-Identifier: Apache-2.0
"""Clients that send queries and do not read: they do not affect senders of data, and other queries
only for a moment."""

import contextlib
import socket
import urllib.parse

import pytest

import clients
import otlp
from braid import DEADLINE_S, pipelines, until
from query_api import QueryApi

SPANS = 1000
SIZE = 1000  # bytes per item
TRACE = bytes(range(16))


@pytest.fixture
def api(braid, tmp_path):
    """A server limited to 80 MiB, whose answer with all traces has a megabyte."""
    made = QueryApi(braid(pipelines({"store": {"directory": str(tmp_path / "data")}},
                                 processors={"memory_limiter": {"check_interval": "1s", "limit_mib": 80}},
                                 extensions={"query": {"endpoint": "127.0.0.1:0"}})))
    request = otlp.trace_request(SPANS, size=SIZE)
    for _, _, span in otlp.spans_of(request):
        span.trace_id = TRACE
    made.send(request)
    until(lambda: made.braid("status")["store"]["spans"] >= SPANS, "the spans")
    return made


def unread(api, path):
    """A connection on which an answer has begun and is not read further."""
    host, port = api.address.rsplit(":", 1)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(DEADLINE_S)
    connection.connect((host, int(port)))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return connection, connection.recv(12)


def test_clients_that_do_not_read_do_not_block_others(api):
    path = f"/api/braid/traces/{TRACE.hex()}/otlp"
    assert len(api.raw(path)[1]) > 1_000_000
    with contextlib.ExitStack() as readers:
        for n in range(100):
            connection, head = unread(api, path)
            readers.enter_context(connection)
            assert head in (b"HTTP/1.1 200", b"HTTP/1.1 503")
            clients.grpc(api.server.grpc, otlp.TRACES, otlp.trace_request(1, first=SPANS + n).SerializeToString()).expect_ok()
            held = api.server.metrics()["braid_memory_bytes"]['holder="answers"']
            assert held <= 20 * 2**20
        until(lambda: api.any(path)[0] == 200, "an answer while others are not read")
    assert sum(api.server.metrics()["braid_query_cut_off"].values()) > 0
    until(lambda: api.server.metrics()["braid_memory_bytes"]['holder="answers"'] == 0, "the answers to go")


def test_tails_do_not_use_up_query_slots(api):
    with contextlib.ExitStack() as readers:
        for _ in range(70):
            connection, head = unread(api, "/api/braid/tail?" + urllib.parse.urlencode({"service": "nobody"}))
            readers.enter_context(connection)
            assert head == b"HTTP/1.1 200"
        assert api.braid("status")["store"]["spans"] >= SPANS
