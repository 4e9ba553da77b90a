# SPDX-License-Identifier: Apache-2.0
"""The receiver jaeger. Expected values are from Jaeger's IDL, and from the Collector's translators (pkg/translator/jaeger
0.165), which gave the same spans for these batches."""

import json
import signal
import socket
import subprocess
import threading

import pytest

import clients
import otlp
from braid import BINARY, until
from converted import config, spans
from jaeger import CHILD_OF, DURATION_US, FOLLOWS_FROM, START_US, Proto, Thrift
from sink import Reply
from thrift import I64, LIST, STRING, STRUCT, Binary, Compact, of
from wire import field, varint

POST_SPANS = "/jaeger.api_v2.CollectorService/PostSpans"
NONE, INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = range(6)
OK, ERROR = 1, 2
TRACE, OTHER = (0, 0x5AF7183FB1D4CF5F), (1, 2)
TRACE_HEX = 16 * "0" + "5af7183fb1d4cf5f"
PROTOCOLS = ("grpc", "thrift_http", "thrift_compact", "thrift_binary")
PROCESS = {"hostname": "h", "jaeger.version": "Python-1", "ip": "1.2.3.4", "n": 5}
TAGS = {"span.kind": "client", "http.status_code": 404, "s": "x", "f": 1.5, "b": True, "y": b"\1\2", "n": -3}


def receiver(*protocols, **options):
    return {"protocols": {each: {"endpoint": "127.0.0.1:0", **options} for each in protocols}}


def node(server, protocol):
    return server.address(protocol, "receiver/jaeger")


def send_packet(server, protocol, body):
    host, port = node(server, protocol).rsplit(":", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(body, (host, int(port)))


def post(server, body, content_type="application/x-thrift", path="/api/traces", **more):
    return clients.http(node(server, "thrift_http"), path, body, content_type, **more)


def grpc(server, body, **more):
    return clients.grpc(node(server, "grpc"), None, body, method=POST_SPANS, **more)


def send(server, protocol, batch):
    """Sends a batch, which is a Thrift struct, or protobuf bytes for grpc."""
    if protocol == "grpc":
        assert grpc(server, batch).code == "OK"
    elif protocol == "thrift_http":
        answer = post(server, Binary().struct(batch))
        assert (answer.code, answer.body) == (202, b"")
    else:
        wire = Compact() if protocol == "thrift_compact" else Binary()
        send_packet(server, protocol, wire.call("emitBatch", [(1, STRUCT, batch)]))


def batch(made):
    """Returns the same spans for both formats. `made` is a Thrift or a Proto."""
    parent = {"refs": [(CHILD_OF, TRACE, 0x1234)]} if isinstance(made, Proto) else {"parent": 0x1234}
    logs = [(START_US + 5, {"event": "retry", "k": "v"}), (START_US + 6, {"n": 7})]
    request = made.request if isinstance(made, Proto) else made.batch
    return request([
        made.span("client", tags=TAGS, flags=1, logs=logs, **parent),
        made.span("links", span=2, refs=[(FOLLOWS_FROM, TRACE, 9), (CHILD_OF, TRACE, 7), (CHILD_OF, OTHER, 3)],
                  tags={"span.kind": "server", "http.status_code": "404", "error": False}),
        made.span("follows", trace=(0xF000000000000001, 2), span=3, refs=[(FOLLOWS_FROM, (0xF000000000000001, 2), 9)],
                  tags={"error": True, "otel.status_description": "bad", "span.kind": "consumer"}),
        made.span("ok", span=4, tags={"otel.status_code": "ok", "http.status_code": 500, "span.kind": "producer"}),
        made.span("http", span=5, tags={"http.status_code": 503, "http.status_message": "down", "span.kind": "internal"}),
        made.span("text", span=6, tags={"error": "yes", "http.status_code": 200}),
    ], tags=PROCESS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_spans(braid, sink, protocol):
    process = braid(config(sink, "jaeger", receiver(protocol)))
    send(process, protocol, batch(Proto() if protocol == "grpc" else Thrift()))
    found = spans(sink, 6)
    assert [len(call.message.resource_spans) for call in sink.of(otlp.TRACES)] == [1]

    client = found["client"]
    assert client.resource == {"service.name": "shop", "host.name": "h", "opencensus.exporterversion": "Jaeger-Python-1",
                               "ip": "1.2.3.4", "n": 5}
    assert (client.trace_id, client.span_id, client.parent_span_id) == (TRACE_HEX, "352bff9a74ca9ad2", "0000000000001234")
    assert (client.start_time_unix_nano, client.end_time_unix_nano) == (START_US * 1000, (START_US + DURATION_US) * 1000)
    assert (client.kind, client.flags, client.status) == (CLIENT, 1, (ERROR, ""))
    assert client.attributes == {"http.response.status_code": 404, "s": "x", "f": 1.5, "b": True, "y": b"\1\2", "n": -3}
    assert client.events == [((START_US + 5) * 1000, "retry", {"k": "v"}), ((START_US + 6) * 1000, "", {"n": 7})]
    assert client.links == []

    links = found["links"]
    assert (links.parent_span_id, links.kind, links.status) == ("0000000000000007", SERVER, (0, ""))
    assert links.links == [(TRACE_HEX, "0000000000000009", {"opentracing.ref_type": "follows_from"}),
                           ("00000000000000010000000000000002", "0000000000000003", {"opentracing.ref_type": "child_of"})]
    assert links.attributes == {"http.response.status_code": "404", "error": False}

    follows = found["follows"]
    assert (follows.trace_id, follows.parent_span_id) == ("f0000000000000010000000000000002", "0000000000000009")
    assert (follows.status, follows.kind, follows.attributes) == ((ERROR, "bad"), CONSUMER, {})
    assert (found["ok"].status, found["ok"].kind) == ((OK, ""), PRODUCER)
    assert (found["http"].status, found["http"].kind) == ((ERROR, "down"), INTERNAL)
    assert (found["text"].status, found["text"].attributes) == ((0, ""), {"error": "yes", "http.response.status_code": 200})

    transport = {"grpc": "grpc", "thrift_http": "collector_http"}.get(protocol, "udp_" + protocol)
    until(lambda: process.metrics()["otelcol_receiver_accepted_spans"].get(f'receiver="jaeger",transport="{transport}"') == 6)


def test_scopes_and_processes_of_protobuf_spans(braid, sink):
    made = Proto()
    scope = {"otel.scope.name": "lib", "otel.scope.version": "1.2", "w3c.tracestate": "a=b"}
    process = braid(config(sink, "jaeger", receiver("grpc")))
    send(process, "grpc", made.request([
        made.span("scope", tags=scope),
        made.span("process", span=2, process=made.process("other", {"x": "y"})),
        made.span("plain", span=3),
    ]))
    found = spans(sink, 3)
    assert (found["scope"].scope, found["scope"].trace_state, found["scope"].attributes) == (("lib", "1.2"), "a=b", {})
    assert found["process"].resource == {"service.name": "other", "x": "y"}
    assert (found["plain"].resource, found["plain"].scope) == ({"service.name": "shop"}, ("", ""))
    assert len(sink.of(otlp.TRACES)[0].message.resource_spans) == 2


def test_spans_without_ids_are_left_out(braid, sink):
    process = braid(config(sink, "jaeger", receiver(*PROTOCOLS)))
    made, proto = Thrift(), Proto()
    answer = post(process, Binary().struct(made.batch([made.span("a"), made.span("no trace", trace=(0, 0)), made.span("no id", span=0)])))
    assert answer.code == 400
    assert answer.body == b"2 of 3 spans were rejected, the others accepted: the trace id or span id is missing or zero"
    assert grpc(process, proto.request([proto.span("b"), proto.span("no id", span=0)])).code == "INVALID_ARGUMENT"
    send(process, "thrift_compact", made.batch([made.span("no id", span=0), made.span("c")]))
    assert set(spans(sink, 3)) == {"a", "b", "c"}
    failed = until(lambda: process.metrics().get("otelcol_receiver_failed_spans"))
    assert failed['receiver="jaeger",transport="collector_http"'] == 2
    assert failed['receiver="jaeger",transport="grpc"'] == 1
    assert failed['receiver="jaeger",transport="udp_thrift_compact"'] == 1
    assert process.stop()["traces"]["received"] == 3


def deep(levels):
    """Returns lists in lists, in a field that no version of the schema has."""
    value = of([], I64)
    for _ in range(levels):
        value = of([value], LIST)
    return [(99, LIST, value)]


def test_unknown_fields_and_types(braid, sink):
    """Fields that a newer client adds are skipped, and so are fields whose type has changed."""
    made = Thrift()
    more = [(50, STRUCT, [(1, STRING, "x"), (2, LIST, of([[(1, I64, 1)]]))]), (51, STRING, "y")]
    span = made.span("a", tags={"t": "v"}) + more + deep(8)
    process = braid(config(sink, "jaeger", receiver("thrift_http", "thrift_compact")))
    assert post(process, Binary().struct(made.batch([span]) + more)).code == 202
    send(process, "thrift_compact", made.batch([[(1, STRING, "wrong"), *made.span("b")]]) + more)
    found = spans(sink, 2)
    assert found["a"].attributes == {"t": "v"} and found["b"].trace_id == TRACE_HEX
    # a batch without a process
    assert post(process, Binary().struct(made.batch([made.span("c")])[1:])).code == 202
    assert spans(sink, 3)["c"].resource == {}


def test_invalid_requests(braid, sink):
    made, proto = Thrift(), Proto()
    whole = Binary().struct(made.batch([made.span("a", tags=TAGS)]))
    process = braid(config(sink, "jaeger", receiver("grpc", "thrift_http")))
    invalid = [b"", b"\x0f", whole[:-20], b"\x0f\x00\x02\x0c\x7f\xff\xff\xff", b"\x0f\x00\x02\x0a\x00\x00\x00\x01" + bytes(8) + b"\0",
               Binary().struct(deep(17)), b"\x01\x00\x01\x00"]
    for body in invalid:
        answer = post(process, body)
        assert answer.code == 400 and answer.body, body
    assert post(process, whole, content_type=otlp.JSON).code == 415
    assert post(process, whole, path="/api/v2/traces").code == 404
    assert post(process, whole, method="GET").code == 405
    assert post(process, whole, headers={"origin": "http://other.example"}).code == 403
    spans_of = field(1, proto.span("a", tags=TAGS))
    for body in (field(1, spans_of)[:-1], field(1, field(1, field(1, bytes(5)))), field(1, field(1, field(2, bytes(16)))),
                 field(1, varint(1 << 3) + b"\1")):
        assert grpc(process, body).code == "INVALID_ARGUMENT"
    unknown = clients.grpc(node(process, "grpc"), None, b"", method="/jaeger.api_v2.QueryService/GetTrace")
    assert unknown.code == "UNIMPLEMENTED"
    assert sink.items(otlp.TRACES) == []


def dropped(process, reason, transport="udp_thrift_compact"):
    labels = f'receiver="jaeger",reason="{reason}",transport="{transport}"'
    return process.metrics()["braid_receiver_dropped_packets"][labels]


def test_packets_that_cannot_be_used(braid, sink):
    process = braid(config(sink, "jaeger", receiver("thrift_compact", "thrift_binary", max_packet_size=2000)))
    made = Thrift()
    send(process, "thrift_compact", made.batch([made.span("large", tags={"x": 2000 * "x"})]))
    until(lambda: dropped(process, "too_large") == 1, "the packet")
    for body in (b"", b"\x82", b"\x82\x81\x07\x09emitBatch", Compact().call("other", []), Compact().call("emitBatch", [], kind=2),
                 Binary().call("emitBatch", [])):
        send_packet(process, "thrift_compact", body)
    for body in (b"\x80\x02\0\1", Compact().call("emitBatch", []), b"\xff\xff\xff\xff"):
        send_packet(process, "thrift_binary", body)
    send(process, "thrift_compact", made.batch([made.span("good")]))
    send_packet(process, "thrift_binary", Binary().call("emitBatch", [(1, STRUCT, made.batch([made.span("older")]))], kind=1, strict=False))
    spans(sink, 2)

    def failed(transport):
        return process.metrics()["otelcol_receiver_failed_spans"][f'receiver="jaeger",transport="{transport}"']
    assert (failed("udp_thrift_compact"), failed("udp_thrift_binary")) == (6, 3)


def test_packets_are_dropped_when_the_pipeline_is_full(braid, new_sink):
    sink, hold = new_sink(), threading.Event()
    sink.reply = Reply(hold=hold)
    options = {"sending_queue": {"enabled": False}, "retry_on_failure": {"enabled": False}}
    process = braid(config(sink, "jaeger", receiver("thrift_compact", queue_size=2), **options))
    made = Thrift()
    for name in "abcd":
        send(process, "thrift_compact", made.batch([made.span(name)]))
    until(lambda: dropped(process, "queue_full") == 2, "the packets")
    hold.set()
    assert set(spans(sink, 2)) == {"a", "b"}


def test_a_reload_keeps_the_sockets(braid, sink):
    settings = config(sink, "jaeger", receiver("thrift_compact", "thrift_http"))
    process = braid(settings)
    made = Thrift()
    before = node(process, "thrift_compact")
    send(process, "thrift_compact", made.batch([made.span("before")]))
    spans(sink, 1)
    settings["receivers"]["jaeger"]["protocols"]["thrift_compact"]["queue_size"] = 7
    process.config_path.write_text(json.dumps(settings))
    process.process.send_signal(signal.SIGHUP)
    until(lambda: process.log().count("thrift_compact listening on " + before) == 2, "the reload")
    send_packet(process, "thrift_compact", Compact().call("emitBatch", [(1, STRUCT, made.batch([made.span("after")]))]))
    assert set(spans(sink, 2)) == {"before", "after"}


def test_workers_share_one_socket(braid, sink):
    settings = config(sink, "jaeger", receiver(*PROTOCOLS))
    settings["service"]["workers"] = 2
    process = braid(settings)
    made = Thrift()
    for i in range(20):
        send(process, "thrift_binary", made.batch([made.span(f"s{i}")]))
    spans(sink, 20)
    assert process.log().count("thrift_binary listening on") == 1


def test_a_port_in_use(braid, sink):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = config(sink, "jaeger", {"protocols": {"thrift_compact": {"endpoint": endpoint}}})
        done = subprocess.run([BINARY, "--config", "yaml:" + json.dumps(settings)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"receivers::jaeger::protocols::thrift_compact::endpoint: {endpoint}: address already in use" in done.stderr
    settings["receivers"]["jaeger"]["protocols"]["thrift_binary"] = {"endpoint": endpoint}
    done = subprocess.run([BINARY, "validate", "--config", "yaml:" + json.dumps(settings)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and f"{endpoint} is already used by receiver/jaeger thrift_compact" in done.stderr
    settings["receivers"]["jaeger"]["protocols"] = {"thrift_binary": {"endpoint": endpoint}, "thrift_http": {"endpoint": endpoint}}
    done = subprocess.run([BINARY, "validate", "--config", "yaml:" + json.dumps(settings)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr  # UDP and TCP have separate ports


def test_no_protocol(sink):
    done = subprocess.run([BINARY, "validate", "--config", "yaml:" + json.dumps(config(sink, "jaeger", {}))], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 1
    assert "receivers::jaeger::protocols: must name grpc, thrift_http, thrift_compact or thrift_binary" in done.stderr
