# SPDX-License-Identifier: Apache-2.0
"""The receiver zipkin. Expected values are from Zipkin's API (zipkin.io/zipkin-api), and from the Collector's translators
(pkg/translator/zipkin 0.165), which gave the same spans for these requests."""

import gzip
import json

import pytest

import clients
import otlp
from converted import config, spans
from sink import BUSY, REFUSE
from thrift import I16, I32, I64, LIST, STRING, STRUCT, Binary, of
from wire import field, varint

V1, V2 = "/api/v1/spans", "/api/v2/spans"
NONE, INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = range(6)
OK, ERROR = 1, 2
TRACE, SPAN = "5af7183fb1d4cf5f", "352bff9a74ca9ad2"


@pytest.fixture
def server(braid, sink):
    def start(**options):
        return braid(config(sink, "zipkin", {"endpoint": "127.0.0.1:0", **options}))
    return start


def post(server, body, path=V2, content_type=otlp.JSON, **more):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return clients.http(server.address("http", "receiver/zipkin"), path, text, content_type, **more)


def span(name, **more):
    return {"traceId": TRACE, "id": SPAN, "name": name, "timestamp": 1556604172355737, "duration": 1431, **more}


def test_version_2(server, sink):
    process = server()
    answer = post(process, [
        span("client", kind="CLIENT", parentId="6b221d5bc9e6496c",
             localEndpoint={"serviceName": "backend", "ipv4": "192.168.99.1", "port": 3306},
             remoteEndpoint={"serviceName": "db", "ipv6": "2001:db8:0:0:1:0:0:1", "port": 58648},
             annotations=[{"timestamp": 1556604172355800, "value": "retry"},
                          {"timestamp": 1556604172355801, "value": 'ev|{"a":"b","n":3,"f":1.5,"t":true,"o":{}}|7'},
                          {"timestamp": 1556604172355802, "value": "a|b|c"}],
             tags={"http.method": "GET", "http.status_code": "200", "n": "-17", "empty": "", "text": "a\n\"\u00e9\"",
                   "w3c.tracestate": "a=b"}),
        span("short ids", traceId="1f", id="2", parentId="2", kind="SERVER"),
        span("internal", tags={"span.kind": "internal", "error": "true"}),
        span("failed", kind="PRODUCER", tags={"error": "boom", "otel.status_code": "Ok", "otel.status_description": "text"}),
        span("linked", kind="CONSUMER", localEndpoint={"serviceName": "backend"}, tags={
            "otel.status_code": "STATUS_CODE_ERROR", "otel.status_description": "bad", "otel.library.name": "lib",
            "otel.library.version": "1.2", "host.name": "h1", "k8s.pod.name": "p",
            "otlp.link.0": '4bf92f3577b34da6a3ce929d0e0e4736|00f067aa0ba902b7|x=y|{"k":"v"}|2', "otlp.link.1": "not a link"}),
        {"traceId": "ab" * 16, "id": SPAN, "name": "without time", "duration": 5},
        span("source", localEndpoint={"serviceName": "fn", "ipv6": "::ffff:1.2.3.4"}, tags={
            "otlp.service.name.source": "faas.name", "otel.scope.name": "sc", "otel.scope.version": "v", "otel.library.name": "x"}),
    ])
    assert (answer.code, answer.body) == (202, b"")
    found = spans(sink, 7)

    client = found["client"]
    assert client.resource == {"service.name": "backend"}
    assert (client.trace_id, client.span_id, client.parent_span_id) == (16 * "0" + TRACE, SPAN, "6b221d5bc9e6496c")
    assert (client.kind, client.trace_state, client.status) == (CLIENT, "a=b", (0, ""))
    assert (client.start_time_unix_nano, client.end_time_unix_nano) == (1556604172355737000, 1556604172357168000)
    assert client.attributes == {
        "http.method": "GET", "http.response.status_code": "200", "n": "-17", "empty": "", "text": "a\n\"\u00e9\"",
        "network.local.address": "192.168.99.1", "net.host.port": 3306, "service.peer.name": "db",
        "network.peer.address": "2001:db8::1:0:0:1", "net.peer.port": 58648}
    assert client.events == [(1556604172355800000, "retry", {}),
                             (1556604172355801000, "ev", {"a": "b", "n": 3, "f": 1.5, "t": True}),
                             (1556604172355802000, "a|b|c", {})]
    assert client.span.events[1].dropped_attributes_count == 7

    short = found["short ids"]
    assert (short.trace_id, short.span_id, short.parent_span_id, short.kind) == (30 * "0" + "1f", 15 * "0" + "2", "", SERVER)
    assert short.resource == {}
    assert (found["internal"].kind, found["internal"].status, found["internal"].attributes) == (INTERNAL, (ERROR, ""), {})
    assert (found["failed"].status, found["failed"].kind) == ((ERROR, "text"), PRODUCER)
    assert found["failed"].attributes == {"error": "boom"}

    linked = found["linked"]
    assert linked.resource == {"service.name": "backend", "host.name": "h1", "k8s.pod.name": "p"}
    assert (linked.scope, linked.status, linked.kind) == (("lib", "1.2"), (ERROR, "bad"), CONSUMER)
    assert linked.links == [("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", {"k": "v"})]
    assert (linked.span.links[0].trace_state, linked.span.links[0].dropped_attributes_count) == ("x=y", 2)
    assert linked.attributes == {"otlp.link.1": "not a link"}

    timeless = found["without time"]
    assert (timeless.start_time_unix_nano, timeless.end_time_unix_nano) == (0, 5000)
    assert timeless.attributes == {"otel.zipkin.absentField.startTime": True}
    assert (found["source"].resource, found["source"].scope) == ({"faas.name": "fn"}, ("sc", "v"))
    assert found["source"].attributes == {"network.local.address": "1.2.3.4"}
    # one ResourceSpans for each Resource
    assert [len(call.message.resource_spans) for call in sink.of(otlp.TRACES)] == [4]
    assert process.metrics()["otelcol_receiver_accepted_spans"]['receiver="zipkin",transport="http_v2_json"'] == 7


def test_string_tags_can_be_parsed(server, sink):
    tags = {"int": "-17", "max": "9223372036854775807", "more": "9223372036854775808", "float": "1.25", "dot": "1.", "yes": "true",
            "no": "false", "True": "True", "empty": "", "text": "1a"}
    assert post(server(parse_string_tags=True), [span("s", tags=tags)]).code == 202
    assert spans(sink, 1)["s"].attributes == {
        "int": -17, "max": 9223372036854775807, "more": "9223372036854775808", "float": 1.25, "dot": "1.", "yes": True,
        "no": False, "True": "True", "empty": "", "text": "1a"}


def test_version_2_protobuf(server, sink):
    def fixed(number, value):
        return varint(number << 3 | 1) + value.to_bytes(8, "little")

    def number(number, value):
        return varint(number << 3) + varint(value)
    local = field(1, b"svc") + field(2, bytes([10, 0, 0, 1])) + number(4, 80)
    remote = field(1, b"peer") + field(3, bytes(15) + b"\1")
    made = (field(1, bytes(range(16))) + field(2, bytes(range(1, 9))) + field(3, bytes(range(2, 10))) + number(4, 2) +
            field(5, b"op\xff") + fixed(6, 1556604172355737) + number(7, 1500) + field(8, local) + field(9, remote) +
            field(10, fixed(1, 1556604172355738) + field(2, b"hi")) + field(11, field(1, b"k") + field(2, b"v")))
    process = server()
    assert post(process, field(1, made), content_type=otlp.PROTOBUF).code == 202
    found = spans(sink, 1)["op\ufffd"]
    assert found.resource == {"service.name": "svc"}
    assert (found.trace_id, found.span_id, found.parent_span_id) == (
        bytes(range(16)).hex(), bytes(range(2, 10)).hex(), bytes(range(1, 9)).hex())
    assert (found.kind, found.events) == (SERVER, [(1556604172355738000, "hi", {})])
    assert (found.start_time_unix_nano, found.end_time_unix_nano) == (1556604172355737000, 1556604172357237000)
    assert found.attributes == {"k": "v", "network.local.address": "10.0.0.1", "net.host.port": 80,
                                "service.peer.name": "peer", "network.peer.address": "::1"}
    assert process.metrics()["braid_receiver_repaired_strings"]['receiver="zipkin"'] == 1
    for broken in (made[:-1], field(1, bytes(15)) + made, made + number(1, 5), field(3, b"\1")):
        assert post(process, field(1, broken), content_type=otlp.PROTOBUF).code == 400
    assert len(sink.items(otlp.TRACES)) == 1


def test_version_1(server, sink):
    front = {"serviceName": "front", "ipv4": "1.2.3.4", "port": 80}
    process = server()
    assert post(process, [
        span("get", parentId="6b221d5bc9e6496c",
             annotations=[{"timestamp": 1556604172355700, "value": "cs", "endpoint": front},
                          {"timestamp": 1556604172399999, "value": "cr"}, {"timestamp": 1556604172355800, "value": "foo"}],
             binaryAnnotations=[{"key": "n", "value": "5"}, {"key": "lc", "value": "comp"}, {"key": "http.status_code", "value": "500"},
                                {"key": "sa", "value": True, "endpoint": {"serviceName": "db"}}]),
        {"traceId": 2 * TRACE, "id": SPAN, "name": "times",
         "annotations": [{"timestamp": 1556604172355700, "value": "sr", "endpoint": {"serviceName": "back"}},
                         {"timestamp": 1556604172355900, "value": "ss"}],
         "binaryAnnotations": [{"key": "error", "value": "x"}, {"key": "otel.status_description", "value": "msg"}]},
        span("census", binaryAnnotations=[{"key": "census.status_code", "value": "7"},
                                          {"key": "census.status_description", "value": "denied"},
                                          {"key": "k", "value": "v", "endpoint": {"serviceName": "fallback"}}]),
    ], path=V1).code == 202
    found = spans(sink, 3)
    get = found["get"]
    assert get.resource == {"service.name": "front", "ipv4": "1.2.3.4", "port": "80"}
    assert (get.trace_id, get.kind, get.status) == (16 * "0" + TRACE, CLIENT, (ERROR, ""))
    assert (get.start_time_unix_nano, get.end_time_unix_nano) == (1556604172355737000, 1556604172357168000)
    assert get.events == [(1556604172355800000, "foo", {})]
    assert get.attributes == {"n": "5", "component": "comp", "http.response.status_code": "500", "sa": True}
    times = found["times"]
    assert (times.resource, times.trace_id, times.kind) == ({"service.name": "back"}, 2 * TRACE, SERVER)
    assert (times.start_time_unix_nano, times.end_time_unix_nano) == (1556604172355700000, 1556604172355900000)
    assert (times.status, times.attributes) == ((ERROR, "msg"), {})
    census = found["census"]
    assert (census.resource, census.status, census.attributes) == ({"service.name": "fallback"}, (ERROR, "denied"), {"k": "v"})


def test_version_1_thrift(server, sink):
    def host(name, ipv4=0, port=0, ipv6=b""):
        return [(1, I32, ipv4), (2, I16, port), (3, STRING, name), (4, STRING, ipv6)]

    def binary(key, kind, value, at=None):
        return [(1, STRING, key), (2, STRING, value), (3, I32, kind)] + ([(4, STRUCT, at)] if at else [])
    front = host("front", 0x01020304, -1, b"\x20\x01\x0d\xb8" + bytes(11) + b"\1")  # -1 is port 65535
    times = [(10, I64, 1556604172355737), (11, I64, 1431)]
    made = [[(1, I64, 0x5AF7183FB1D4CF5F), (3, STRING, "get"), (4, I64, 0x352BFF9A74CA9AD2), (5, I64, -1),
             (6, LIST, of([[(1, I64, 5), (2, STRING, "cs"), (3, STRUCT, front)], [(1, I64, 1556604172355800), (2, STRING, "foo")]])),
             (8, LIST, of([binary("b", 0, b"\1"), binary("y", 1, b"\0\xff"), binary("i16", 2, b"\xff\xfe"), binary("i32", 3, b"\0\0\1\0"),
                           binary("i64", 4, bytes(7) + b"\7"), binary("d", 5, b"\x3f\xf8" + bytes(6)), binary("s", 6, b"text"),
                           binary("short", 4, b"\1"), binary("error", 6, b"x", host("db"))])), *times, (12, I64, 1)]]
    process = server()
    body = Binary().value(LIST, of(made))
    assert post(process, body, path=V1, content_type="application/x-thrift").code == 202
    span = spans(sink, 1)["get"]
    assert span.resource == {"service.name": "front", "ipv4": "1.2.3.4", "ipv6": "2001:db8::1", "port": "65535"}
    assert (span.trace_id, span.parent_span_id) == (15 * "0" + "1" + TRACE, 16 * "f")
    assert (span.kind, span.status) == (CLIENT, (ERROR, ""))
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1556604172355737000, 1556604172357168000)
    assert span.events == [(1556604172355800000, "foo", {})]
    assert span.attributes == {"b": True, "y": b"\0\xff", "i16": -2, "i32": 256, "i64": 7, "d": 1.5, "s": "text"}
    for broken in (body[:-1], b"", b"\x0c\x7f\xff\xff\xff", Binary().value(LIST, of([[(1, I64, 0)]])), Binary().value(LIST, of([1], I64))):
        assert post(process, broken, path=V1, content_type="application/x-thrift").code == 400


INVALID = {
    "not JSON": b"[{]",
    "not a list": b"{}",
    "after the list": b"[] x",
    "no trace id": [{"id": SPAN}],
    "zero trace id": [{"traceId": 32 * "0", "id": SPAN}],
    "zero id": [{"traceId": TRACE, "id": "0"}],
    "long trace id": [{"traceId": 33 * "1", "id": SPAN}],
    "no hex": [{"traceId": TRACE, "id": "xyz"}],
    "name of another type": [span(1)],
    "negative time": [span("s", timestamp=-1)],
    "time as text": [span("s", timestamp="1")],
    "tag of another type": [span("s", tags={"a": 1})],
    "port": [span("s", localEndpoint={"port": 65536})],
    "address": [span("s", localEndpoint={"ipv4": "1.2.3"})],
    "annotation": [span("s", annotations=[1])],
    "nested too deep": 40 * b"[" + 40 * b"]",
    "second span": [span("s"), {"traceId": TRACE}],
}


def test_invalid_requests(server, sink):
    process = server()
    for name, body in INVALID.items():
        answer = post(process, body)
        assert answer.code == 400 and answer.body, name
    assert b"span 2: the span id is missing or zero" in answer.body
    assert post(process, [], path="/api/v3/spans").code == 404
    assert post(process, [], method="PUT").code == 405
    assert post(process, [], headers={"content-encoding": "br"}).code == 415
    assert post(process, [], headers={"origin": "http://other.example"}).code == 403
    assert sink.items(otlp.TRACES) == []
    metrics = process.metrics()["otelcol_receiver_failed_spans"]
    assert metrics['receiver="zipkin",transport="http_v2_json"'] == len(INVALID)


def test_compressed_empty_and_large_requests(server, sink):
    process = server()
    assert post(process, []).code == 202
    assert post(process, gzip.compress(json.dumps([span("zipped")]).encode()), headers={"content-encoding": "gzip"}).code == 202
    # more than is read at once: a thread converts it, and it is sent in pieces
    many = [span(f"n{i}", tags={"i": "x" * 100}, localEndpoint={"serviceName": f"s{i % 7}"}) for i in range(9000)]
    assert post(process, many, content_type=None).code == 202
    found = spans(sink, 9001)
    assert all(found[f"n{i}"].resource == {"service.name": f"s{i % 7}"} for i in range(9000))


def test_answers_when_the_backend_rejects(braid, sink):
    options = {"sending_queue": {"enabled": False}, "retry_on_failure": {"enabled": False}}
    process = braid(config(sink, "zipkin", {"endpoint": "127.0.0.1:0"}, **options))
    sink.script = [REFUSE, BUSY]
    answer = post(process, [span("s")])
    assert (answer.code, answer.body) == (400, b"HTTP 400 refused by the sink")
    answer = post(process, [span("s")])
    assert (answer.code, answer.headers["retry-after"]) == (503, "1")
    assert post(process, [span("s")]).code == 202
    account = process.stop()["traces"]
    assert account == {"received": 3, "sent": 1, "rejected": 2, "dropped": 0, "left": 0}
