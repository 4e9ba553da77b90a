# SPDX-License-Identifier: Apache-2.0
"""Requests that clients have sent: tests/data/spans. They were recorded from the exporters of OpenTelemetry's Python SDK
(otel_zipkin_json, otel_zipkin_proto: 1.45.1; otel_jaeger_compact, otel_jaeger_http, otel_jaeger_grpc: 1.21.0, the last release)
and from py_zipkin 1.2.8 (the others). Expected values are those that the program gave to the client."""

import pathlib
import socket

import pytest

import clients
import otlp
from converted import config, spans

DATA = pathlib.Path(__file__).parents[1] / "data" / "spans"
CLIENT, ERROR = 3, 2
JAEGER = {"protocols": {each: {"endpoint": "127.0.0.1:0"} for each in ("grpc", "thrift_http", "thrift_compact")}}


def send_zipkin(process, name):
    path, kind = {"otel_zipkin_json": ("/api/v2/spans", otlp.JSON), "otel_zipkin_proto": ("/api/v2/spans", otlp.PROTOBUF),
                  "py_zipkin_v1_json": ("/api/v1/spans", otlp.JSON), "py_zipkin_v2_json": ("/api/v2/spans", otlp.JSON),
                  "py_zipkin_v2_proto3": ("/api/v2/spans", otlp.PROTOBUF)}[name]
    answer = clients.http(process.address("http", "receiver/zipkin"), path, (DATA / name).read_bytes(), kind)
    assert (answer.code, answer.body) == (202, b"")


@pytest.mark.parametrize("name", ["otel_zipkin_json", "otel_zipkin_proto"])
def test_zipkin_exporters_of_opentelemetry(braid, sink, name):
    process = braid(config(sink, "zipkin", {"endpoint": "127.0.0.1:0", "parse_string_tags": True}))
    send_zipkin(process, name)
    span = spans(sink, 1)["op"]
    assert span.resource["service.name"] == "shop" and span.resource["host.name"] == "h1"
    assert (span.scope, span.kind, span.status) == (("lib", "1.2"), CLIENT, (ERROR, ""))
    assert span.attributes == {"s": "x", "i": 7, "f": 1.5, "b": True, "a": '["p","q"]', "error": "bad"}
    assert [name for _, name, _ in span.events] == ['{"ev": {"k": "v"}}']
    assert len(span.trace_id) == 32 and len(span.parent_span_id) == 16


@pytest.mark.parametrize("name", ["py_zipkin_v1_json", "py_zipkin_v2_json", "py_zipkin_v2_proto3"])
def test_py_zipkin(braid, sink, name):
    """The Collector rejects the requests of version 1 (the value of "sa" is a boolean) and in protobuf (the trace id has 8
    bytes)."""
    process = braid(config(sink, "zipkin", {"endpoint": "127.0.0.1:0"}))
    send_zipkin(process, name)
    span = spans(sink, 1)["op"]
    assert (span.resource["service.name"], span.kind, span.status[0]) == ("shop", CLIENT, ERROR)
    assert [name for _, name, _ in span.events] == ["hello"]
    assert span.trace_id.startswith(16 * "0") and span.trace_id != 32 * "0"
    assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 10**9
    if "v2" in name:
        assert span.attributes == {"k": "v", "error": "boom", "network.local.address": "127.0.0.1", "net.host.port": 42,
                                   "service.peer.name": "db", "network.peer.address": "127.0.0.2", "net.peer.port": 99}
    else:
        assert span.attributes == {"k": "v", "sa": True}
        assert (span.resource["ipv4"], span.resource["port"]) == ("127.0.0.1", "42")


@pytest.mark.parametrize("name", ["otel_jaeger_compact", "otel_jaeger_http", "otel_jaeger_grpc"])
def test_jaeger_exporters_of_opentelemetry(braid, sink, name):
    process = braid(config(sink, "jaeger", JAEGER))
    body = (DATA / name).read_bytes()
    if name == "otel_jaeger_compact":
        host, port = process.address("thrift_compact", "receiver/jaeger").split(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(body, (host, int(port)))
    elif name == "otel_jaeger_http":
        answer = clients.http(process.address("thrift_http", "receiver/jaeger"), "/api/traces?format=jaeger.thrift", body,
                              "application/x-thrift")
        assert answer.code == 202
    else:
        clients.grpc(process.address("grpc", "receiver/jaeger"), None, body, method="/jaeger.api_v2.CollectorService/PostSpans").expect_ok()
    span = spans(sink, 1)["op"]
    assert (span.resource["service.name"], span.kind, span.status, span.flags) == ("shop", CLIENT, (ERROR, "bad"), 1)
    assert span.attributes | {"s": "x", "i": 7, "f": 1.5, "b": True} == span.attributes
    [(_, _, fields)] = span.events
    assert fields == {"k": "v", "message": "ev"}
    [(trace_id, span_id, attributes)] = span.links
    assert (trace_id, span_id) == (span.trace_id, span.parent_span_id)
    assert attributes == {"opentracing.ref_type": "follows_from"}
