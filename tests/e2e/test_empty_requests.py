# SPDX-License-Identifier: Apache-2.0
"""Requests without any field of the current OTLP: they are answered, counted, and logged once for
each address."""

import json

import pytest

import clients
import otlp
from braid import exporter, pipelines
from otlp import PROFILES, TRACES

OLD = {"resourceSpans": [{"instrumentationLibrarySpans": [{"spans": [{"name": "a"}]}]}]}  # before OTLP 0.15
UNKNOWN_FIELD = b"\xc2\x3e\x03abc"  # field 1000
WORDS = "it may use another version of OTLP"


def empty(server, signal):
    return server.metrics()["braid_ledger_empty_requests"][f'signal="{signal.name}"']


@pytest.mark.parametrize("signal, body, kind", [
    (TRACES, json.dumps(OLD).encode(), otlp.JSON), (TRACES, b'{"spans":[{}]}', otlp.JSON),
    (TRACES, UNKNOWN_FIELD, otlp.PROTOBUF), (PROFILES, UNKNOWN_FIELD, otlp.PROTOBUF), (TRACES, UNKNOWN_FIELD, None)])
def test_requests_with_bytes_but_without_records_are_logged(braid, sink, signal, body, kind):
    server = braid(pipelines(exporter("proto", sink)))
    for _ in range(3):
        if kind:
            assert clients.http(server.http, signal.path, body, kind).code == 200
        else:
            clients.grpc(server.grpc, signal, body).expect_ok()
    assert empty(server, signal) == 3
    server.stop()
    [line] = [line for line in server.log().splitlines() if WORDS in line]
    assert f"127.0.0.1 with {len(body)} bytes" in line and f"no {signal.name[:-1].replace('trace', 'span')}" in line


def test_requests_without_bytes_or_with_records_are_not_logged(braid, sink):
    server = braid(pipelines(exporter("proto", sink)))
    clients.grpc(server.grpc, TRACES, b"").expect_ok()
    clients.grpc(server.grpc, TRACES, otlp.request_of(TRACES, 1).SerializeToString()).expect_ok()
    clients.grpc(server.grpc, PROFILES, otlp.request_of(PROFILES, 1).SerializeToString()).expect_ok()
    server.stop()
    assert WORDS not in server.log()
