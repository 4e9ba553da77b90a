# SPDX-License-Identifier: Apache-2.0
"""Unusual answers of backends that a client must handle: compressed answers, answers that are too
long, and incomplete answers."""

import base64
import gzip
import socket
import ssl
import threading
import time

import h2.config
import h2.connection
import h2.events
import pytest
from grpc import StatusCode

from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import DebugInfo, RetryInfo
from google.rpc.status_pb2 import Status

import certs
import clients
import otlp
from braid import exporter, pipelines, until
from otlp import PROFILES, TRACES
from sink import Reply

PARTIAL = TRACES.response()
PARTIAL.partial_success.rejected_spans = 2
PARTIAL.partial_success.error_message = "too old"
LATE = {"batch": {"timeout": "5ms", "acknowledge": "late"}}
QUICK = {"initial_interval": "10ms", "max_interval": "20ms", "max_elapsed_time": "200ms"}


class Backend:
    """Calls answer(socket) for each connection, each on a separate thread."""

    def __init__(self, answer):
        self.n_requests, self._answer = 0, answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.grpc = self.http = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        try:
            self._answer(self, sock)
        except OSError:
            pass
        finally:
            sock.close()

    def close(self):
        self._listener.close()


@pytest.fixture
def backend():
    """backend(answer) makes a Backend that ends with the test."""
    made = []

    def make(answer):
        made.append(Backend(answer))
        return made[-1]
    yield make
    for each in made:
        each.close()


def over_http2(reply, tls=None):
    """Answers each request of a connection with reply(connection, stream id)."""
    def serve(backend, sock):
        sock = tls.wrap_socket(sock, server_side=True) if tls else sock
        state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        state.initiate_connection()
        data = b""
        while True:
            for event in state.receive_data(data):
                if isinstance(event, h2.events.DataReceived):
                    state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    backend.n_requests += 1
                    reply(state, event.stream_id)
            sock.sendall(state.data_to_send())
            data = sock.recv(65536)
            if not data:
                return
    return serve


def as_grpc(encoding, message):
    """A compressed message, as grpc-go sends one."""
    def reply(state, stream):
        state.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc"),
                                    ("grpc-encoding", encoding)])
        state.send_data(stream, b"\1" + len(message).to_bytes(4, "big") + message)
        state.send_headers(stream, [("grpc-status", "0")], end_stream=True)
    return reply


def over_http1(head, body, ends):
    """Sends the same answer to each request; then the connection ends, or stays open."""
    def serve(backend, sock):
        stream = sock.makefile("rb")
        while stream.readline():
            length = 0
            for line in iter(stream.readline, b"\r\n"):
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            stream.read(length)
            backend.n_requests += 1
            sock.sendall(head + body)
            if ends:
                return
    return serve


def check_partial(server, answer):
    """Two of five records were rejected, and the sender's answer reports it."""
    heard = TRACES.response.FromString(answer.expect_ok().body)
    assert heard.partial_success.rejected_spans == 2
    account = server.ledger(TRACES)
    assert (account["received"], account["sent"], account["rejected"] + account["dropped"]) == (5, 3, 2)


def send(server, n_items=5):
    return clients.grpc(server.grpc, TRACES, otlp.request_of(TRACES, n_items).SerializeToString())


# --- Texts --------------------------------------------------------------------------------------

@pytest.mark.parametrize("first", ["", "a"])  # the text is cut after an even or an odd number of bytes
@pytest.mark.parametrize("kind", ["grpc", "proto", "json"])
def test_a_long_text_stays_utf8(braid, sink, kind, first):
    """A protobuf string that is not UTF-8 makes the whole answer unreadable, and the client would
    send the request again."""
    server = braid(pipelines(exporter(kind, sink, retry_on_failure={"enabled": False}), signals=["traces"],
                             processors=LATE))
    body = otlp.request_of(TRACES, 5).SerializeToString()
    text = first + "\u00fc" * 400
    for sink.reply in (Reply(rejected=2, message=text), Reply(StatusCode.INVALID_ARGUMENT, 400, text)):
        of_grpc, of_http = clients.grpc(server.grpc, TRACES, body), clients.http(server.http, TRACES.path, body)
        if sink.reply.rejected:
            reported = [TRACES.response.FromString(each.expect_ok().body).partial_success.error_message
                    for each in (of_grpc, of_http)]
        else:
            reported = [Status.FromString(of_http.body).message]
        for each in reported:
            assert "\u00fc" * 50 in each or "\\u00fc" * 10 in each  # JSON text is quoted unchanged


# --- Compressed ---------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", ["proto", "json"])
def test_a_compressed_partial_success(braid, sink, kind):
    server = braid(pipelines(exporter(kind, sink), signals=["traces"], processors=LATE))
    sink.reply = Reply(rejected=2, message="too old", gzip=True)
    check_partial(server, send(server))


def test_a_compressed_partial_success_of_grpc(braid, backend):
    to = backend(over_http2(as_grpc("gzip", gzip.compress(PARTIAL.SerializeToString()))))
    server = braid(pipelines(exporter("grpc", to), signals=["traces"], processors=LATE))
    check_partial(server, send(server))


def test_a_compressed_partial_success_over_http2(braid, backend, tmp_path):
    def reply(state, stream):
        state.send_headers(stream, [(":status", "200"), ("content-type", otlp.PROTOBUF),
                                    ("content-encoding", "gzip")])
        state.send_data(stream, gzip.compress(PARTIAL.SerializeToString()), end_stream=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certs.self_signed(tmp_path))
    tls.set_alpn_protocols(["h2"])
    to = backend(over_http2(reply, tls))
    server = braid(pipelines({"otlphttp": {"endpoint": f"https://{to.http}", "tls": {"insecure_skip_verify": True}}},
                             signals=["traces"], processors=LATE))
    check_partial(server, send(server))


@pytest.mark.parametrize("kind", ["proto", "json"])
def test_a_compressed_error_contains_the_reason(braid, sink, kind):
    """A waiting sender receives the backend's message."""
    server = braid(pipelines(exporter(kind, sink), signals=["traces"], processors=LATE))
    sink.reply = Reply(StatusCode.INVALID_ARGUMENT, 400, "a span without a name", gzip=True)
    assert "a span without a name" in send(server).message


@pytest.mark.parametrize("encoding, message", [
    ("gzip", gzip.compress(PARTIAL.SerializeToString() + b"\x12\x80\x80\x80\x08" + bytes(16 << 20))),
    ("gzip", gzip.compress(PARTIAL.SerializeToString())[:-9]),
    ("snappy", PARTIAL.SerializeToString()),
    ("identity", PARTIAL.SerializeToString())], ids=["bomb", "cut", "unknown", "none"])
def test_an_answer_that_cannot_be_decompressed_has_no_message(braid, backend, encoding, message):
    to = backend(over_http2(as_grpc(encoding, message)))
    server = braid(pipelines(exporter("grpc", to), signals=["traces"], processors=LATE))
    assert not TRACES.response.FromString(send(server).expect_ok().body).HasField("partial_success")
    assert (server.ledger(TRACES)["sent"], to.n_requests) == (5, 1)


# --- Too long, cut off --------------------------------------------------------------------------

def http1(length, body, ends=False, status=b"200 OK"):
    return over_http1(b"HTTP/1.1 %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n" % (status, length),
                      body, ends)


UNREADABLE = {"long": http1(5 << 20, bytes(5 << 20)), "cut": http1(100, b"abc", ends=True),
              "slow": http1(100, b"abc")}


def destination(kind, to, **more):
    options = {"endpoint": f"http://{to.http}", "retry_on_failure": QUICK, "timeout": "500ms", **more}
    return {kind: options}


@pytest.mark.parametrize("answer", UNREADABLE)
def test_an_accepted_request_is_not_sent_again(braid, backend, answer):
    """The 2xx status alone decides, even if the body is incomplete."""
    to = backend(UNREADABLE[answer])
    server = braid(pipelines(destination("otlphttp", to), signals=["traces"], processors=LATE))
    send(server).expect_ok()
    account = server.ledger(TRACES)
    assert (account["sent"], account["dropped"], to.n_requests) == (5, 0, 1)


def test_an_accepted_profile_is_not_sent_again(braid, backend):
    to = backend(UNREADABLE["long"])
    server = braid(pipelines(destination("pyroscope", to, limits={"max_age": "0"}), signals=["profiles"]))
    body = otlp.request_of(PROFILES, 5).SerializeToString()
    clients.grpc(server.grpc, PROFILES, body).expect_ok()
    until(lambda: server.ledger(PROFILES)["held"] == 0, "the answer")
    assert (server.ledger(PROFILES)["sent"], to.n_requests) == (5, 1)


def test_a_request_is_retried_after_an_incomplete_error_answer(braid, backend):
    to = backend(http1(100, b"abc", ends=True, status=b"503 Service Unavailable"))
    server = braid(pipelines(destination("otlphttp", to), signals=["traces"], processors=LATE))
    assert not send(server).ok
    assert to.n_requests > 1


# --- gRPC: where the status is ------------------------------------------------------------------

TAKEN = [(":status", "200"), ("content-type", "application/grpc")]
EARLY = [(":status", "103"), ("link", "</style.css>")]
REFUSED_STREAM, INTERNAL_ERROR, CANCEL = 7, 2, 8


def after(first):
    """Calls first(connection, stream id) for the first request, and answers the others with
    success."""
    requests = []

    def reply(state, stream):
        requests.append(stream)
        if len(requests) == 1:
            first(state, stream)
            return
        state.send_headers(stream, TAKEN)
        state.send_data(stream, bytes(5))
        state.send_headers(stream, [("grpc-status", "0")], end_stream=True)
    return over_http2(reply)


def broken_off(fields, code):
    """Sends fields that do not end the stream, and then its reset."""
    def reply(state, stream):
        state.send_headers(stream, fields)
        state.reset_stream(stream, code)
    return reply


@pytest.mark.parametrize("first", [
    broken_off(EARLY, CANCEL), broken_off(EARLY, REFUSED_STREAM),
    broken_off(TAKEN, INTERNAL_ERROR), broken_off(TAKEN + [("grpc-status", "0")], INTERNAL_ERROR),
    broken_off(TAKEN + [("grpc-status", "13")], REFUSED_STREAM)],
    ids=["early-cancelled", "early-refused", "nothing", "ok", "internal"])
def test_a_broken_stream_has_no_status(braid, backend, first):
    """PROTOCOL-HTTP2: Response -> (Response-Headers *Length-Prefixed-Message Trailers) /
    Trailers-Only. A status elsewhere does not count, and an interim answer is not an answer."""
    to = backend(after(first))
    server = braid(pipelines(exporter("grpc", to, retry_on_failure=QUICK), signals=["traces"], processors=LATE))
    send(server).expect_ok()
    account = server.ledger(TRACES)
    assert (account["sent"], account["rejected"], to.n_requests) == (5, 0, 2)


def test_an_interim_answer_is_ignored(braid, backend):
    """Only the final answer counts; the interim one is ignored."""
    def reply(state, stream):
        state.send_headers(stream, EARLY + [("grpc-status", "3"), ("retry-after", "60")])
        state.send_headers(stream, TAKEN)
        message = PARTIAL.SerializeToString()
        state.send_data(stream, b"\0" + len(message).to_bytes(4, "big") + message)
        state.send_headers(stream, [("grpc-status", "0")], end_stream=True)
    to = backend(over_http2(reply))
    server = braid(pipelines(exporter("grpc", to), signals=["traces"], processors=LATE))
    check_partial(server, send(server))


def test_trailers_only_is_an_answer(braid, backend):
    def reply(state, stream):
        state.send_headers(stream, TAKEN + [("grpc-status", "3"), ("grpc-message", "a%20span")], end_stream=True)
    to = backend(over_http2(reply))
    server = braid(pipelines(exporter("grpc", to), signals=["traces"], processors=LATE))
    assert "a span" in send(server).message
    assert to.n_requests == 1


# --- Retry hints --------------------------------------------------------------------------------

def details_of(code, n_bytes, padded):
    """A Status with a RetryInfo of one second behind n_bytes of other details."""
    status = Status(code=code.value[0], message="busy")
    status.details.add().Pack(DebugInfo(detail="x" * n_bytes))
    status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=1)))
    text = base64.b64encode(status.SerializeToString()).decode()
    return text if padded else text.rstrip("=")


def check_hint(braid, backend, first, n_items=5):
    """The second attempt is sent after one second, longer than the configured retry delay, and is
    the last."""
    to = backend(after(first))
    server = braid(pipelines(exporter("grpc", to, retry_on_failure={**QUICK, "max_elapsed_time": "5s"}),
                             signals=["traces"], processors=LATE))
    began = time.monotonic()
    send(server, n_items).expect_ok()
    assert time.monotonic() - began >= 1
    assert (server.ledger(TRACES)["sent"], to.n_requests) == (n_items, 2)


@pytest.mark.parametrize("padded", [True, False], ids=["padded", "bare"])
@pytest.mark.parametrize("n_bytes", [0, 400, 900, 3000, 7900])
def test_a_retry_hint_is_found_behind_other_details(braid, backend, n_bytes, padded):
    """Servers add stack traces and messages for users to the details."""
    def first(state, stream):
        state.send_headers(stream, TAKEN + [("grpc-status", "14"), ("grpc-status-details-bin", details_of(
            StatusCode.UNAVAILABLE, n_bytes, padded))], end_stream=True)
    check_hint(braid, backend, first)


def test_a_request_rejected_with_a_retry_hint_is_not_split(braid, backend):
    """RESOURCE_EXHAUSTED with a hint concerns the rate, regardless of its message."""
    def first(state, stream):
        state.send_headers(stream, TAKEN + [
            ("grpc-status", "8"), ("grpc-message", "received message larger than max (9 vs. 8)"),
            ("grpc-status-details-bin", details_of(StatusCode.RESOURCE_EXHAUSTED, 900, True))], end_stream=True)
    check_hint(braid, backend, first)


def test_long_details_are_ignored(braid, backend):
    """Details over 8 KiB are ignored; the status counts."""
    def first(state, stream):
        state.send_headers(stream, TAKEN + [("grpc-status", "14"), ("grpc-status-details-bin", details_of(
            StatusCode.UNAVAILABLE, 8193, True))], end_stream=True)
    to = backend(after(first))
    server = braid(pipelines(exporter("grpc", to, retry_on_failure=QUICK), signals=["traces"], processors=LATE))
    began = time.monotonic()
    send(server).expect_ok()
    assert time.monotonic() - began < 1
    assert to.n_requests == 2


@pytest.mark.parametrize("status", ["429", "502", "503", "504"])
def test_retry_after_of_a_proxy_is_respected(braid, backend, status):
    """A proxy that does not support gRPC: http-grpc-status-mapping.md maps these statuses to
    UNAVAILABLE, and RFC 9110 defines Retry-After."""
    def first(state, stream):
        state.send_headers(stream, [(":status", status), ("retry-after", "1"), ("content-type", "text/plain")],
                           end_stream=True)
    check_hint(braid, backend, first)


@pytest.mark.parametrize("status, code", [("413", "RESOURCE_EXHAUSTED"), ("404", "UNIMPLEMENTED"), ("500", "UNKNOWN")])
def test_a_request_rejected_by_a_proxy_is_not_retried(braid, backend, status, code):
    def first(state, stream):
        state.send_headers(stream, [(":status", status), ("retry-after", "1"), ("content-type", "text/plain")],
                           end_stream=True)
    to = backend(after(first))
    server = braid(pipelines(exporter("grpc", to, retry_on_failure=QUICK), signals=["traces"], processors=LATE))
    answer = send(server, 1)
    assert (answer.code, to.n_requests) == (code, 1)
    assert f"HTTP {status}" in answer.message


# --- JSON ---------------------------------------------------------------------------------------

# By protobuf.dev/programming-guides/json: both names of a field, and integers as numbers or texts,
# also with an exponent or a fraction of zeros. The last texts are not valid JSON or UTF-8.
PARTIALS = {
    "number": b'{"partialSuccess":{"rejectedSpans":2}}',
    "text": b'{"partialSuccess":{"rejectedSpans":"2","errorMessage":"why"}}',
    "proto-names": b'{"partial_success":{"rejected_spans":"2","error_message":"why"}}',
    "fraction": b'{"partialSuccess":{"rejectedSpans":2.0,"errorMessage":"why"}}',
    "fraction-text": b'{"partialSuccess":{"rejectedSpans":"2.0","errorMessage":"why"}}',
    "exponent": b'{"partialSuccess":{"rejectedSpans":2e0,"errorMessage":"why"}}',
    "exponent-text": b'{"partialSuccess":{"rejectedSpans":"0.2e1","errorMessage":"why"}}',
    "nul": b'{"partialSuccess":{"rejectedSpans":"2","errorMessage":"why\\u0000not"}}',
    "high-surrogate": b'{"partialSuccess":{"rejectedSpans":"2","errorMessage":"why\\ud800b"}}',
    "low-surrogate": b'{"partialSuccess":{"errorMessage":"why\\\\\\udc00","rejectedSpans":"2"}}',
    "two-high": b'{"partialSuccess":{"errorMessage":"why\\uD83D\\ud83d\\uDE00\\ud83d","rejectedSpans":"2"}}',
    "latin1": b'{"partialSuccess":{"rejectedSpans":"2","errorMessage":"why \xff\xfcber"}}',
    "cut-character": b'{"partialSuccess":{"rejectedSpans":"2","errorMessage":"why \xe2\x82"}}',
    "line-feed": b'{"partialSuccess":{"rejectedSpans":"2","errorMessage":"why\nnot\0\x1b"}}',
    "byte-order-mark": b'\xef\xbb\xbf{"partialSuccess":{"rejectedSpans":"2","errorMessage":"why"}}'}


def json_answer(text):
    return over_http1(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(text),
                      text, ends=False)


@pytest.mark.parametrize("text", PARTIALS.values(), ids=PARTIALS)
def test_a_partial_success_in_json(braid, backend, text):
    to = backend(json_answer(text))
    server = braid(pipelines(exporter("json", to, retry_on_failure=QUICK), signals=["traces"], processors=LATE))
    answer = send(server)
    check_partial(server, answer)
    reported = TRACES.response.FromString(answer.body).partial_success.error_message
    assert reported.startswith("why") or b"why" not in text
    assert to.n_requests == 1


UNREAD = {"cut": b'{"partialSuccess":{"rejectedSpans":"2",', "words": b"ok", "list": b"[]",
          "no-number": b'{"partialSuccess":{"rejectedSpans":"two"}}',
          "half": b'{"partialSuccess":{"rejectedSpans":2.5}}',
          "object": b'{"partialSuccess":{"rejectedSpans":{}}}', "no-object": b'{"partialSuccess":2}'}


@pytest.mark.parametrize("text", UNREAD.values(), ids=UNREAD)
def test_unreadable_json_is_logged_once(braid, backend, text):
    """A request accepted with 2xx is not sent again. One warning reports that its rejected part is
    unknown; it is not repeated."""
    to = backend(json_answer(text))
    server = braid(pipelines(exporter("json", to, retry_on_failure=QUICK), signals=["traces"], processors=LATE))
    for _ in range(3):
        assert not TRACES.response.FromString(send(server).expect_ok().body).partial_success.rejected_spans
    assert (server.ledger(TRACES)["sent"], to.n_requests) == (15, 3)
    assert server.log().count("cannot be read") == 1


@pytest.mark.parametrize("text", [b"", b"{}", b'{"partialSuccess":null}', b'{"partialSuccess":{}}',
                                  b'{"partialSuccess":{"rejectedSpans":"0"}}',
                                  b'{"partialSuccess":{"rejectedSpans":null,"errorMessage":null}}'])
def test_json_without_partial_success_is_not_an_error(braid, backend, text):
    to = backend(json_answer(text))
    server = braid(pipelines(exporter("json", to, retry_on_failure=QUICK), signals=["traces"], processors=LATE))
    send(server).expect_ok()
    assert server.ledger(TRACES)["sent"] == 5
    assert "cannot be read" not in server.log()


# --- Profiles -----------------------------------------------------------------------------------

def profiles_of(*n_samples):
    """A profile for each of these numbers of samples, in two ResourceProfiles."""
    request = otlp.request_of(PROFILES, 1)
    request.resource_profiles.add().CopyFrom(request.resource_profiles[0])
    pattern = request.resource_profiles[0].scope_profiles[0].profiles[0]
    made = []
    for n in n_samples:
        made.append(type(pattern)())
        made[-1].CopyFrom(pattern)
        del made[-1].samples[:]
        made[-1].samples.extend(pattern.samples[0] for _ in range(n))
    for resource, some in zip(request.resource_profiles, (made[:1], made[1:])):
        del resource.scope_profiles[0].profiles[:]
        resource.scope_profiles[0].profiles.extend(some)
    return request


# A quarter of 100 samples each; 100/3 and 200/3 of them; a count larger than all of them, from a
# backend that counts differently.
@pytest.mark.parametrize("n_samples, rejected, lost, reported", [
    ((25, 25, 25, 25), 1, 25, 1), ((25, 25, 25, 25), 3, 75, 3), ((25, 25, 25, 25), 4, 100, 4),
    ((98, 1, 1), 1, 34, 2), ((98, 1, 1), 2, 67, 3), ((5,), 1, 5, 1), ((5,), 2, 5, 1), ((2, 3), 99, 5, 2)])
@pytest.mark.parametrize("kind", ["grpc", "proto", "json"])
def test_rejected_profiles_are_converted_to_samples(braid, sink, kind, n_samples, rejected, lost, reported):
    server = braid(pipelines(exporter(kind, sink), signals=["profiles"], processors=LATE))
    sink.reply = Reply(rejected=rejected, message="too old")
    answer = clients.grpc(server.grpc, PROFILES, profiles_of(*n_samples).SerializeToString())
    assert PROFILES.response.FromString(answer.expect_ok().body).partial_success.rejected_profiles == reported
    account = server.ledger(PROFILES)
    n = sum(n_samples)
    assert (account["received"], account["sent"], account["rejected"] + account["dropped"]) == (n, n - lost, lost)
