# SPDX-License-Identifier: Apache-2.0
"""OTLP's requirements for servers (opentelemetry-proto docs/specification.md 1.11, gRPC's wire
protocol and compression documents, RFC 9110), rule by rule, over each transport."""

import gzip
import http.client as http_client
import json
import socket
import threading
import zlib
from concurrent import futures

import grpc as grpcio
import pytest
import zstandard

import clients
import otlp
import snappy
import wire
from braid import exporter, pipelines
from otlp import TRACES
from sink import BUSY, REFUSE, Reply
from transports import ALL, BINARY, HTTP, JSON, PROTO, RETRYABLE

MIB = 1 << 20
signals = pytest.mark.parametrize("signal", otlp.SIGNALS, ids=str)
every = pytest.mark.parametrize("transport", ALL, ids=str)
over_http = pytest.mark.parametrize("transport", HTTP, ids=str)
binary = pytest.mark.parametrize("transport", BINARY, ids=str)


def to_sink(sink, **queue):
    """An exporter that reports the result of a request at once."""
    return exporter("grpc", sink, compression="none", sending_queue=queue or {"enabled": False},
                    retry_on_failure={"enabled": False})


@pytest.fixture
def server(braid, sink):
    return braid(pipelines(to_sink(sink)))


def expect_bad(answer):
    """Bad data: INVALID_ARGUMENT, or 400 with a google.rpc.Status that gives the reason."""
    assert answer.code in ("INVALID_ARGUMENT", 400), answer
    assert answer.message
    assert answer.retry_info is None and "retry-after" not in answer.headers


def expect_too_big(answer):
    """MUST be RESOURCE_EXHAUSTED without RetryInfo, or 413."""
    assert answer.code in ("RESOURCE_EXHAUSTED", 413), answer
    assert answer.retry_info is None and "retry-after" not in answer.headers


def expect_retry(answer):
    """SHOULD be UNAVAILABLE, or 503; the optional hint (MAY) is present."""
    assert answer.code in ("UNAVAILABLE", 503), answer
    if answer.code == 503:
        assert int(answer.headers["retry-after"]) >= 1
    else:
        assert answer.retry_info.retry_delay.ToNanoseconds() > 0


class TestSuccess:
    @every
    @signals
    def test_partial_success_is_unset(self, server, sink, transport, signal):
        request = otlp.request_of(signal, 3)
        answer = transport.send(server, signal, request).expect_ok()
        assert answer.body == (b"{}" if transport is JSON else b"")
        assert not transport.decode(signal, answer).HasField("partial_success")
        if not transport.is_grpc:
            assert answer.headers["content-type"] == transport.content_type
        sink.wait(signal, 3)
        assert sink.of(signal)[0].message == request

    @every
    @signals
    @pytest.mark.parametrize("empty", ["request", "resource"])
    def test_empty_request(self, server, sink, transport, signal, empty):
        request = signal.request()
        if empty == "resource":
            otlp.resources_of(signal, request).add()
        transport.send(server, signal, request).expect_ok()
        assert sink.items(signal) == []

    @every
    @signals
    def test_many_requests_on_one_connection_are_answered_separately(self, server, sink, transport, signal):
        for n in range(5):
            transport.send(server, signal, otlp.request_of(signal, 1, first=n + 1)).expect_ok()
        sink.wait(signal, 5)


class TestPartialSuccess:
    @every
    @signals
    @pytest.mark.parametrize("rejected", [2, 0], ids=["part-rejected", "warning"])
    def test_partial_success_is_passed_on_when_waiting_for_the_result(self, braid, sink, transport, signal, rejected):
        server = braid(pipelines(to_sink(sink, wait_for_result=True)))
        sink.reply = Reply(rejected=rejected, message="names are too long")
        answer = transport.send(server, signal, otlp.request_of(signal, 5)).expect_ok()
        partial = transport.decode(signal, answer).partial_success
        has = 5 if signal is TRACES else 1  # there is one profile, of five samples
        assert getattr(partial, signal.rejected) == min(rejected, has)
        assert "names are too long" in partial.error_message


def _request_with(transport, signal, name, value):
    """A request with one invalid id: a span's, or a link's."""
    request = otlp.request_of(signal)
    if signal is TRACES:
        [(_, _, holder)] = otlp.spans_of(request)
    else:
        holder = request.dictionary.link_table[1]
    setattr(holder, name, value)
    return transport.encode(request)


BAD_PROTOBUF = {
    "cut off": lambda data: data[:-1],
    "length past the end": lambda data: data + b"\x0a\x7f\x0a",
    "length of 2^64-1": lambda data: data + b"\x0a" + b"\xff" * 9 + b"\x01",
    "varint of 11 bytes": lambda data: data + b"\x78" + b"\xff" * 10 + b"\x01",
    "field number 0": lambda data: data + b"\x02\x00",
    "group that ends nowhere": lambda data: data + b"\x7b",
    "wire type 6": lambda data: data + b"\x7e\x00",
    "wire type of a known field": lambda data: data + b"\x08\x01",
    "text": lambda data: b"hello, this is no protobuf",
}
BAD_JSON = {
    "cut off": lambda data: data[:-1],
    "text": lambda data: b"hello",
    "nothing": lambda data: b"",
    "a list": lambda data: b"[]",
    "two values": lambda data: data + data,
    "trailing comma": lambda data: data[:-1] + b",}",
}


class TestBadData:
    @binary
    @signals
    @pytest.mark.parametrize("damage", BAD_PROTOBUF)
    def test_protobuf(self, server, sink, transport, signal, damage):
        body = BAD_PROTOBUF[damage](otlp.request_of(signal).SerializeToString())
        expect_bad(transport.send(server, signal, body))
        assert sink.calls == []

    @signals
    @pytest.mark.parametrize("damage", BAD_JSON)
    def test_json(self, server, sink, signal, damage):
        body = BAD_JSON[damage](JSON.encode(otlp.request_of(signal)))
        expect_bad(JSON.send(server, signal, body))
        assert sink.calls == []

    @pytest.mark.parametrize("value", ['"x"', "7", "{}", "true"])
    def test_json_of_another_type(self, server, value):
        expect_bad(JSON.send(server, TRACES, b'{"resourceSpans":%s}' % value.encode()))

    @pytest.mark.parametrize("key, value", [
        ("traceId", "0g" * 16), ("traceId", "abc"), ("startTimeUnixNano", "tomorrow"),
        ("startTimeUnixNano", 2**64), ("startTimeUnixNano", -1), ("kind", 2**31), ("name", 5)])
    def test_json_field(self, server, key, value):
        body = {"resourceSpans": [{"scopeSpans": [{"spans": [{key: value}]}]}]}
        expect_bad(JSON.send(server, TRACES, json.dumps(body).encode()))

    @every
    @signals
    @pytest.mark.parametrize("name, length", [("trace_id", 15), ("trace_id", 17), ("span_id", 7),
                                              ("span_id", 9)])
    def test_id_length(self, server, sink, transport, signal, name, length):
        body = _request_with(transport, signal, name, b"\1" * length)
        expect_bad(transport.send(server, signal, body))
        assert sink.calls == []

    @every
    @pytest.mark.parametrize("depth", [100, 5000])
    def test_deep_nesting(self, server, transport, depth):
        if transport is JSON:
            value = '{"arrayValue":{"values":[' * depth + '{"intValue":1}' + "]}}" * depth
            body = ('{"resourceSpans":[{"resource":{"attributes":[{"key":"k","value":%s}]}}]}' %
                    value).encode()
        else:
            value = b"\x18\x01"
            for _ in range(depth):
                value = wire.field(5, wire.field(1, value))
            body = wire.field(1, b"k") + wire.field(2, value)  # KeyValue, Resource, ResourceSpans
            for _ in range(3):
                body = wire.field(1, body)
        expect_bad(transport.send(server, TRACES, body))
        transport.send(server, TRACES, otlp.trace_request()).expect_ok()

    @every
    @pytest.mark.parametrize("table, index", [
        ("stack_index", 2), ("link_index", 99), ("link_index", -1), ("attribute_indices", 2)])
    def test_profile_index_outside_its_table(self, server, sink, transport, table, index):
        request = otlp.profile_request()
        [(_, _, sample)] = otlp.samples_of(request)
        if table == "attribute_indices":
            sample.attribute_indices[0] = index
        else:
            setattr(sample, table, index)
        expect_bad(transport.send(server, otlp.PROFILES, request))
        assert sink.calls == []

    @binary
    def test_profile_in_the_numbering_of_1_9(self, server, sink, transport):
        """Its values would be read as indices of attributes."""
        expect_bad(
            transport.send(server, otlp.PROFILES, wire.numbered_as_1_9(otlp.profile_request())))
        assert sink.calls == []


class TestSize:
    LIMITS = {"grpc": {"max_recv_msg_size_mib": 1}, "http": {"max_request_body_size": MIB}}

    @pytest.fixture
    def server(self, braid, sink):
        return braid(pipelines(to_sink(sink), **self.LIMITS))

    def body(self, transport, signal, size):
        """A valid request of exactly `size` bytes."""
        pad, body = 0, b""
        while len(body) != size:
            pad += size - len(body)
            body = transport.encode(otlp.request_of(signal, size=pad))
        return body

    @every
    @signals
    def test_at_the_limit(self, server, sink, transport, signal):
        transport.send(server, signal, self.body(transport, signal, MIB)).expect_ok()
        sink.wait(signal, 1)

    @every
    @signals
    @pytest.mark.parametrize("over", [1, 3 * MIB])
    def test_declared_over_the_limit(self, server, sink, transport, signal, over):
        expect_too_big(transport.send(server, signal, self.body(transport, signal, MIB + over)))
        assert sink.calls == []

    @every
    @signals
    def test_over_the_limit_when_decompressed(self, server, sink, transport, signal):
        body = self.body(transport, signal, 2 * MIB)
        if transport.is_grpc:
            answer = clients.grpc(server.grpc, signal, body, compression=grpcio.Compression.Gzip)
        else:
            answer = transport.send(server, signal, gzip.compress(body),
                                    {"content-encoding": "gzip"})
        expect_too_big(answer)
        assert sink.calls == []

    @over_http
    @pytest.mark.parametrize("coding, encode", [
        ("gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", zstandard.compress),
        ("snappy", lambda data: snappy.zeros(len(data)))])
    def test_bomb(self, server, transport, coding, encode):
        bomb = encode(bytes(256 * MIB))
        expect_too_big(transport.send(server, TRACES, bomb, {"content-encoding": coding}))
        assert resident_bytes(server) < 200 * MIB

    @over_http
    def test_chunks_over_the_limit(self, server, transport):
        body = self.body(transport, TRACES, 2 * MIB)
        pieces = (body[at:at + 65536] for at in range(0, len(body), 65536))
        expect_too_big(transport.send(server, TRACES, pieces))

    def test_length_prefix_of_4_gib(self, server):
        headers, _ = clients.raw_grpc(server.grpc, TRACES.method,
                                      b"\0\xff\xff\xff\xff" + b"x" * 100)
        assert headers["grpc-status"] == "8"


def resident_bytes(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))



class TestEncodings:
    @every
    @signals
    def test_gzip(self, server, sink, transport, signal):
        request = otlp.request_of(signal, 7)
        body = transport.encode(request)
        if transport.is_grpc:
            answer = clients.grpc(server.grpc, signal, body, compression=grpcio.Compression.Gzip)
        else:
            answer = transport.send(server, signal, gzip.compress(body),
                                    {"content-encoding": "gzip"})
        answer.expect_ok()
        sink.wait(signal, 7)
        assert sink.of(signal)[0].message == request

    @over_http
    @pytest.mark.parametrize(
        "coding, encode",
        [("gzip", lambda data: gzip.compress(data[:50]) + gzip.compress(data[50:])),
         ("GZIP", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress),
         ("zstd", zstandard.compress),
         ("zstd", lambda data: zstandard.ZstdCompressor(write_content_size=False).compress(data)),
         ("snappy", snappy.block), ("snappy", snappy.framed), ("x-snappy-framed", snappy.framed),
         ("identity", bytes)],
        ids=[
            "two members", "upper case", "x-gzip", "deflate", "zstd", "zstd of unknown size",
            "snappy", "snappy in frames", "x-snappy-framed", "identity"
        ])
    def test_http_codings(self, server, sink, transport, coding, encode):
        body = encode(transport.encode(otlp.trace_request(7)))
        transport.send(server, TRACES, body, {"content-encoding": coding}).expect_ok()
        sink.wait(TRACES, 7)

    @pytest.mark.parametrize("coding, encode", [
        ("gzip", gzip.compress), ("zstd", zstandard.compress), ("snappy", snappy.framed)])
    def test_grpc_codings(self, server, sink, coding, encode):
        body = clients.frame(encode(otlp.trace_request(7).SerializeToString()), compressed=True)
        headers, answer = clients.raw_grpc(server.grpc, TRACES.method, body,
                                           {"grpc-encoding": coding})
        assert (headers["grpc-status"], answer) == ("0", clients.frame(b""))
        sink.wait(TRACES, 7)

    def test_grpc_encoding_that_a_message_does_not_use(self, server, sink):
        body = clients.frame(otlp.trace_request(7).SerializeToString())
        headers, _ = clients.raw_grpc(server.grpc, TRACES.method, body, {"grpc-encoding": "gzip"})
        assert headers["grpc-status"] == "0"
        sink.wait(TRACES, 7)

    def test_unknown_over_grpc(self, server):
        """UNIMPLEMENTED, and grpc-accept-encoding lists the supported encodings."""
        headers, _ = clients.raw_grpc(server.grpc, TRACES.method,
                                      clients.frame(b"x", compressed=True),
                                      {"grpc-encoding": "snail"})
        assert headers["grpc-status"] == "12"
        accepted = {each.strip() for each in headers["grpc-accept-encoding"].split(",")}
        assert {"identity", "gzip"} <= accepted and "snail" not in accepted

    def test_compressed_flag_without_encoding(self, server):
        """INTERNAL by gRPC's compression document."""
        headers, _ = clients.raw_grpc(server.grpc, TRACES.method,
                                      clients.frame(b"x", compressed=True))
        assert headers["grpc-status"] == "13"

    @over_http
    @pytest.mark.parametrize("coding", ["snail", "gzip, snail"])
    def test_unknown_over_http(self, server, sink, transport, coding):
        answer = transport.send(server, TRACES, otlp.trace_request(), {"content-encoding": coding})
        assert answer.code == 415 and answer.message
        assert sink.calls == []

    @over_http
    @pytest.mark.parametrize("coding, data", [
        ("gzip", b"no gzip"), ("gzip", gzip.compress(b"x" * 99, mtime=0)[:-9]), ("zstd", b"no zstd"),
        ("deflate", b"no deflate"), ("gzip", b""), ("snappy", b"no snappy"), ("snappy", b"")])
    def test_damaged_over_http(self, server, transport, coding, data):
        expect_bad(transport.send(server, TRACES, data, {"content-encoding": coding}))

    @pytest.mark.parametrize("data", [b"no gzip", gzip.compress(b"x" * 99, mtime=0)[:-9]])
    def test_damaged_over_grpc(self, server, data):
        headers, _ = clients.raw_grpc(server.grpc, TRACES.method,
                                      clients.frame(data, compressed=True),
                                      {"grpc-encoding": "gzip"})
        assert headers["grpc-status"] in ("3", "13")


class TestBackPressure:
    @every
    @signals
    def test_destination_is_busy(self, braid, sink, transport, signal):
        server = braid(pipelines(to_sink(sink, wait_for_result=True)))
        sink.script = [BUSY]
        expect_retry(transport.send(server, signal, otlp.request_of(signal)))
        transport.send(server, signal, otlp.request_of(signal)).expect_ok()
        sink.wait(signal, 1)

    @every
    @signals
    def test_destination_is_down(self, braid, new_sink, transport, signal):
        gone = new_sink()
        config = pipelines(to_sink(gone, wait_for_result=True))
        gone.leave()
        expect_retry(transport.send(braid(config), signal, otlp.request_of(signal)))

    @every
    @signals
    def test_queue_is_full(self, braid, sink, transport, signal):
        server = braid(pipelines(to_sink(sink, num_consumers=1, queue_size=1)))
        sink.reply = Reply(hold=(gate := threading.Event()))
        answers = []
        while not answers or answers[-1].ok:
            answers.append(transport.send(server, signal, otlp.request_of(signal)))
            assert len(answers) < 10
        gate.set()
        expect_retry(answers[-1])
        sink.wait(signal, len(answers) - 1)

    @every
    @signals
    def test_destination_rejects_permanently(self, braid, sink, transport, signal):
        server = braid(pipelines(to_sink(sink, wait_for_result=True)))
        sink.reply = REFUSE
        answer = transport.send(server, signal, otlp.request_of(signal))
        assert not answer.ok and answer.code not in RETRYABLE
        assert answer.retry_info is None and "retry-after" not in answer.headers
        assert "refused by the sink" in answer.message


class TestHttpRequests:
    @over_http
    @signals
    @pytest.mark.parametrize("parameter", ["", "; charset=utf-8", ";charset=UTF-8"])
    def test_answer_has_the_content_type_of_the_request(self, server, transport, signal, parameter):
        for body, code in ((otlp.request_of(signal), 200), (b"\xff", 400)):
            body = body if isinstance(body, bytes) else transport.encode(body)
            answer = clients.http(server.http, signal.path, body,
                                  transport.content_type + parameter)
            assert answer.code == code
            assert answer.headers["content-type"] == transport.content_type

    @signals
    @pytest.mark.parametrize("content_type",
                             ["text/plain", "application/jsonp", "application/grpc", None])
    def test_other_content_type(self, server, sink, signal, content_type):
        answer = clients.http(server.http, signal.path, b"{}", content_type)
        assert answer.code == 415 and answer.message
        assert sink.calls == []

    @signals
    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD"])
    def test_other_method(self, server, signal, method):
        answer = clients.http(server.http, signal.path, None, None, method=method)
        assert answer.code == 405 and (answer.message or method == "HEAD")
        assert "POST" in answer.headers["allow"]

    @over_http
    @pytest.mark.parametrize(
        "path", ["/", "/v1/trace", "/v1/traces/", "/v1/profiles", "/V1/TRACES", "/v1//traces"])
    def test_other_path(self, server, transport, path):
        body = transport.encode(otlp.trace_request())
        answer = clients.http(server.http, path, body, transport.content_type)
        assert answer.code == 404 and answer.message
        assert answer.headers["content-type"] == transport.content_type

    def test_query_is_not_part_of_the_path(self, server):
        assert clients.http(server.http, "/v1/traces?tenant=1", b"").code == 200

    @over_http
    @signals
    @pytest.mark.parametrize("size", [1, 7, 100_000])
    def test_chunks(self, server, sink, transport, signal, size):
        body = transport.encode(otlp.request_of(signal, 3))
        pieces = (body[at:at + size] for at in range(0, len(body), size))
        transport.send(server, signal, pieces).expect_ok()
        sink.wait(signal, 3)

    @over_http
    def test_expect_100_continue(self, server, sink, transport):
        body = transport.encode(otlp.trace_request(3))
        with http1(server) as peer:
            peer.send(head(server, transport, len(body), "Expect: 100-continue"))
            assert peer.line() == b"HTTP/1.1 100 Continue"
            assert peer.line() == b""
            peer.send(body)
            assert peer.answer()[0] == 200
        sink.wait(TRACES, 3)

    @over_http
    def test_keep_alive(self, server, sink, transport):
        connection = http_client.HTTPConnection(server.http, timeout=60)
        own = None
        for n in range(50):
            body = transport.encode(otlp.trace_request(1, first=n + 1))
            clients.http_exchange(connection, "POST", TRACES.path, body,
                                  {"content-type": transport.content_type}).expect_ok()
            own = own or connection.sock.getsockname()
            assert connection.sock.getsockname() == own
        connection.close()
        sink.wait(TRACES, 50)

    def test_connection_close(self, server):
        with http1(server) as peer:
            peer.send(head(server, PROTO, 0, "Connection: close"))
            assert peer.answer()[0] == 200
            assert peer.closed()

    def test_http_1_0(self, server):
        with http1(server) as peer:
            peer.send(head(server, PROTO, 0).replace(b"HTTP/1.1", b"HTTP/1.0"))
            assert peer.answer()[0] == 200
            assert peer.closed()

    @over_http
    def test_pipelined(self, server, sink, transport):
        """100 requests in one write, answers in order."""
        bodies = [transport.encode(otlp.trace_request(1, first=n + 1)) for n in range(100)]
        with http1(server) as peer:
            peer.send(b"".join(head(server, transport, len(body)) + body for body in bodies))
            assert [peer.answer()[0] for _ in bodies] == [200] * 100
        sink.wait(TRACES, 100)


def head(server, transport, length, *lines):
    """Returns the head of a request with a body of that many bytes."""
    return "\r\n".join([f"POST {TRACES.path} HTTP/1.1", f"Host: {server.http}",
                        f"Content-Type: {transport.content_type}", f"Content-Length: {length}",
                        *lines, "", ""]).encode()


class http1:
    """A connection on which the test itself writes and reads HTTP/1.1."""

    def __init__(self, server):
        host, port = server.http.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), 60)
        self._file = self._socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()
        self._socket.close()

    def send(self, data):
        self._socket.sendall(data)

    def line(self):
        return self._file.readline().rstrip(b"\r\n")

    def answer(self):
        """Returns (status, headers, body) of an answer with Content-Length."""
        status = int(self.line().split()[1])
        headers = {}
        while line := self.line():
            name, value = line.decode().split(":", 1)
            headers[name.lower()] = value.strip()
        return status, headers, self._file.read(int(headers.get("content-length", 0)))

    def closed(self):
        return self._file.read(1) == b""


class TestGrpcRequests:
    @pytest.mark.parametrize("method", [
        "/opentelemetry.proto.collector.trace.v1.TraceService/Exports",
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", "/x"])
    def test_other_method(self, server, method):
        answer = clients.grpc(server.grpc, TRACES, b"", method=method)
        assert answer.code == "UNIMPLEMENTED"

    @pytest.mark.parametrize("content_type", ["application/grpc", "application/grpc+proto"])
    def test_content_type(self, server, content_type):
        headers, body = clients.raw_grpc(server.grpc, TRACES.method, clients.frame(b""),
                                         {"content-type": content_type})
        assert (headers[":status"], headers["grpc-status"], body) == ("200", "0",
                                                                      clients.frame(b""))
        assert headers["content-type"].startswith("application/grpc")

    def test_other_content_type(self, server):
        """HTTP 415: a 200 would confuse other clients."""
        headers, _ = clients.raw_grpc(server.grpc, TRACES.method, b"{}",
                                      {"content-type": "application/json"})
        assert headers[":status"] == "415"

    @signals
    def test_data_frames_of_one_byte(self, server, sink, signal):
        body = clients.frame(otlp.request_of(signal, 2).SerializeToString())
        headers, _ = clients.raw_grpc(server.grpc, signal.method, body, chunk=1)
        assert headers["grpc-status"] == "0"
        sink.wait(signal, 2)

    @pytest.mark.parametrize("body", [
        b"", b"\0\0\0",
        clients.frame(b"")[:-1],
        clients.frame(b"x" * 9)[:-1],
        clients.frame(b"") + clients.frame(b""), b"\2" + clients.frame(b"")[1:]
    ],
                             ids=[
                                 "no message", "half a prefix", "almost a prefix", "cut off",
                                 "two messages", "unknown flag"
                             ])
    def test_streams_without_a_single_message_are_rejected(self, server, sink, body):
        headers, _ = clients.raw_grpc(server.grpc, TRACES.method, body)
        assert headers["grpc-status"] not in ("0", "14")
        assert sink.calls == []

    @every
    @signals
    def test_100_calls_at_once(self, server, sink, transport, signal):
        """gRPC: on one connection; HTTP: on one connection each."""
        bodies = [transport.encode(otlp.request_of(signal, 1, first=n + 1)) for n in range(100)]
        if transport.is_grpc:
            with grpcio.insecure_channel(server.grpc, clients.LOCAL) as channel:
                call = channel.unary_unary(signal.method)
                assert [each.result(60)
                        for each in [call.future(body) for body in bodies]] == [b""] * 100
        else:
            with futures.ThreadPoolExecutor(20) as pool:
                answers = list(pool.map(lambda body: transport.send(server, signal, body), bodies))
            assert all(answer.ok for answer in answers)
        sink.wait(signal, 100)


class TestHttp2OnTheHttpPort:
    @over_http
    @signals
    def test_prior_knowledge(self, server, sink, transport, signal):
        connection = clients.H2(server.http)
        body = transport.encode(otlp.request_of(signal, 30))
        for n in range(3):
            headers, answer = connection.request(signal.path,
                                                 {"content-type": transport.content_type}, body)
            assert (headers[":status"], headers["content-type"]) == ("200", transport.content_type)
            assert answer == (b"{}" if transport is JSON else b"")
        connection.close()
        sink.wait(signal, 90)

    @over_http
    def test_refusals(self, server, transport):
        connection = clients.H2(server.http)
        kind = {"content-type": transport.content_type}
        for path, headers, method, code in ((TRACES.path, kind, "POST",
                                             "400"), ("/other", kind, "POST",
                                                      "404"), (TRACES.path, {}, "GET", "405"),
                                            (TRACES.path, {"content-type": "text/plain"}, "POST",
                                             "415")):
            assert connection.request(path, headers, b"\xff", method)[0][":status"] == code
        connection.close()


class TestProfilesVersion:
    """otlp-profiles-development-version: absent means 1; repeated or other values are rejected."""

    @every
    @pytest.mark.parametrize("version", ["1", None])
    def test_accepted(self, server, sink, transport, version):
        headers = {"otlp-profiles-development-version": version} if version else {}
        transport.send(server, otlp.PROFILES, otlp.profile_request(), headers).expect_ok()
        sink.wait(otlp.PROFILES, 1)

    @every
    @pytest.mark.parametrize("version", ["2", "", "1, 1", "one"])
    def test_refused(self, server, sink, transport, version):
        headers = {"otlp-profiles-development-version": version}
        expect_bad(transport.send(server, otlp.PROFILES, otlp.profile_request(), headers))
        assert sink.calls == []

    def test_repeated(self, server, sink):
        header = ("otlp-profiles-development-version", "1")
        body = otlp.profile_request().SerializeToString()
        expect_bad(clients.grpc(server.grpc, otlp.PROFILES, body, [header, header]))
        assert sink.calls == []

    @every
    def test_header_does_not_apply_to_traces(self, server, transport):
        headers = {"otlp-profiles-development-version": "2"}
        transport.send(server, TRACES, otlp.trace_request(), headers).expect_ok()


class TestTransparency:
    """Data that Braid need not change is exported byte for byte."""

    @binary
    @signals
    @pytest.mark.parametrize("write", [
        wire.descending, wire.with_unknown_fields, wire.with_long_lengths,
        lambda request: request.SerializeToString()
    ],
                             ids=["descending fields", "unknown fields", "long lengths", "plain"])
    def test_bytes(self, server, sink, transport, signal, write):
        body = write(otlp.request_of(signal, 5))
        transport.send(server, signal, body).expect_ok()
        sink.wait(signal, 5)
        [call] = sink.of(signal)
        assert call.raw == body

    @binary
    def test_nul_in_a_string(self, server, sink, transport):
        request = otlp.trace_request(service="a\0b")
        transport.send(server, TRACES, request).expect_ok()
        sink.wait(TRACES, 1)
        assert sink.of(TRACES)[0].raw == request.SerializeToString()

    def test_nul_in_json(self, server, sink):
        request = otlp.trace_request(service="a\0b")
        JSON.send(server, TRACES, request).expect_ok()
        sink.wait(TRACES, 1)
        assert sink.of(TRACES)[0].message == request


class TestInvalidUtf8:
    """Protobuf strings must be UTF-8; invalid ones are handled as configured."""

    def send_invalid(self, braid, sink, transport, signal, policy):
        server = braid(pipelines(to_sink(sink), receiver={"invalid_utf8": policy}))
        body = otlp.request_of(signal, 2).SerializeToString()
        return transport.send(server, signal, body.replace(b"shop", b"s\xc3(p"))

    @binary
    @signals
    def test_repaired(self, braid, sink, transport, signal):
        self.send_invalid(braid, sink, transport, signal, "repair").expect_ok()
        sink.wait(signal, 2)
        for resource in otlp.resources_of(signal, sink.of(signal)[0].message):
            assert otlp.attributes_of(resource.resource.attributes) == {"service.name": "s\ufffd(p"}

    @binary
    @signals
    def test_rejected(self, braid, sink, transport, signal):
        expect_bad(self.send_invalid(braid, sink, transport, signal, "reject"))
        assert sink.calls == []

    @signals
    def test_passed(self, braid, new_sink, signal):
        """The destination is another Braid, since the sink's classes would reject the string."""
        far = new_sink()
        second = braid(pipelines(to_sink(far), receiver={"invalid_utf8": "repair"}))
        server = braid(pipelines(to_sink(second), receiver={"invalid_utf8": "pass"}))
        bad = otlp.request_of(signal, 2).SerializeToString().replace(b"shop", b"s\xc3(p")
        PROTO.send(server, signal, bad).expect_ok()
        far.wait(signal, 2)
        assert "s\ufffd(p".encode() in far.of(signal)[0].raw


class TestJson:
    """The rules of the JSON encoding."""

    def span(self, server, sink, fields):
        body = {"resourceSpans": [{"scopeSpans": [{"spans": [fields]}]}]}
        JSON.send(server, TRACES, json.dumps(body).encode()).expect_ok()
        [(_, _, span)] = sink.wait(TRACES, 1)
        return span

    def test_ids_in_any_case(self, server, sink):
        span = self.span(server, sink,
                         {"traceId": "aBcDeF" + "0" * 26, "spanId": "ABCDEF0123456789"})
        assert span.trace_id == bytes.fromhex("abcdef" + "0" * 26)
        assert span.span_id == bytes.fromhex("abcdef0123456789")

    @pytest.mark.parametrize(
        "number", [1_700_000_000_000_000_001, "1700000000000000001", 2**64 - 1,
                   str(2**64 - 1)])
    def test_64_bits_as_number_or_string(self, server, sink, number):
        assert self.span(server, sink,
                         {"endTimeUnixNano": number}).end_time_unix_nano == int(number)

    @pytest.mark.parametrize(
        "value, expected",
        [({"intValue": "-9223372036854775808"}, -2**63), ({"intValue": 7}, 7),
         ({"doubleValue": 0.5}, 0.5), ({"doubleValue": 3}, 3.0),
         ({"bytesValue": "AP8="}, b"\0\xff"), ({"boolValue": False}, False),
         ({"stringValue": ""}, ""), ({"stringValue": "\U0001F600"}, "\U0001F600"), ({}, None),
         ({"arrayValue": {"values": [{"intValue": 1}, {"stringValue": "x"}]}}, [1, "x"]),
         ({"kvlistValue": {"values": [{"key": "k", "value": {"intValue": 1}}]}}, {"k": 1})])
    def test_values(self, server, sink, value, expected):
        span = self.span(server, sink, {"attributes": [{"key": "a", "value": value}]})
        assert otlp.attributes_of(span.attributes) == {"a": expected}

    def test_enum_as_number(self, server, sink):
        span = self.span(server, sink, {"kind": 2, "status": {"code": 2}})
        assert (span.kind, span.status.code) == (2, 2)

    def test_unknown_names_and_nulls_are_ignored(self, server, sink):
        span = self.span(
            server, sink,
            {"name": "n", "future": {"deep": [1, {"x": None}]}, "events": None, "traceState": None})
        assert (span.name, len(span.events)) == ("n", 0)

    @pytest.mark.parametrize("name", ["traceState", "trace_state"])
    def test_names_are_lower_camel_case_or_the_schemas(self, server, sink, name):
        """The Collector accepts the schema's names, too, as ProtoJSON requires and OTLP does not."""
        assert self.span(server, sink, {"name": "n", name: "a=b"}).trace_state == "a=b"

    def test_white_space(self, server, sink):
        body = json.dumps(json.loads(JSON.encode(otlp.trace_request())), indent="\t\r\n ").encode()
        JSON.send(server, TRACES, body).expect_ok()
        sink.wait(TRACES, 1)


class TestListeners:
    @over_http
    @signals
    def test_configured_path(self, braid, sink, transport, signal):
        server = braid(pipelines(to_sink(sink), http={f"{signal.name}_url_path": "/otel/here"}))
        body = transport.encode(otlp.request_of(signal))
        clients.http(server.http, "/otel/here", body, transport.content_type).expect_ok()
        assert clients.http(server.http, signal.path, body, transport.content_type).code == 404
        sink.wait(signal, 1)

    @pytest.mark.parametrize("origin, allowed", [("https://shop.example.com", True),
                                                 ("https://example.org", False),
                                                 ("https://example.com.evil.org", False)])
    def test_cors(self, braid, sink, origin, allowed):
        cors = {
            "allowed_origins": ["https://*.example.com"], "allowed_headers": ["X-Tenant"],
            "max_age": 600
        }
        server = braid(pipelines(to_sink(sink), http={"cors": cors}))
        preflight = {"origin": origin, "access-control-request-method": "POST",
                     "access-control-request-headers": "content-type,x-tenant"}
        answer = clients.http(server.http, TRACES.path, None, None, preflight, "OPTIONS")
        assert answer.code in (200, 204)
        granted = answer.headers.get("access-control-allow-origin")
        assert granted == (origin if allowed else None)
        if allowed:
            assert "POST" in answer.headers["access-control-allow-methods"]
            names = {
                name.strip().lower()
                for name in answer.headers["access-control-allow-headers"].split(",")
            }
            assert {"content-type", "x-tenant"} <= names
            assert answer.headers["access-control-max-age"] == "600"
        answer = clients.http(server.http, TRACES.path, b"", headers={"origin": origin})
        assert answer.headers.get("access-control-allow-origin") == granted

    def test_no_cors_unless_configured(self, server):
        answer = clients.http(server.http,
                              TRACES.path,
                              b"",
                              headers={"origin": "https://example.com"})
        assert answer.code == 403 and "access-control-allow-origin" not in answer.headers
