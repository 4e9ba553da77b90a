# SPDX-License-Identifier: Apache-2.0
"""An OTLP receiver that keeps the requests and answers as the test chooses."""

import dataclasses
import gzip
import socket
import ssl
import threading
import zlib
from concurrent import futures

import grpc
import zstandard
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode

import httpd
import otlp
from braid import DEADLINE_S, until


@dataclasses.dataclass(frozen=True)
class Reply:
    """An answer of the sink. hold: an Event to wait for before answering."""
    grpc: StatusCode = StatusCode.OK
    http: int = 200
    message: str = ""
    retry_s: float | None = None  # for RetryInfo, Retry-After
    rejected: int = 0             # partial success; with message alone it is a warning
    hold: threading.Event | None = None
    gzip: bool = False            # over HTTP: the answer is compressed


ACCEPT = Reply()
BUSY = Reply(StatusCode.UNAVAILABLE, 503, "busy", retry_s=1)
REFUSE = Reply(StatusCode.INVALID_ARGUMENT, 400, "refused by the sink")


@dataclasses.dataclass(frozen=True)
class Call:
    signal: otlp.Signal
    headers: dict
    raw: bytes  # decompressed
    message: object


def _decompress(encoding, body):
    decoders = {"gzip": gzip.decompress, "deflate": zlib.decompress, "zlib": zlib.decompress,
                "zstd": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data)}
    return decoders[encoding](body) if encoding and encoding != "identity" else body


class Sink:
    """Listens for gRPC and HTTP on free ports. Answers by `script`, and with `reply` when it is
    empty. certificate: a PEM file with its key, for HTTPS. prefix: the path before /v1/... host: the
    address to listen on."""

    def __init__(self, max_message=64 << 20, certificate=None, prefix="", host="127.0.0.1"):
        self.calls, self.reply, self.script = [], ACCEPT, []
        self._kept = []
        self._lock = threading.Lock()
        self._max = max_message
        self._grpc = grpc.server(futures.ThreadPoolExecutor(16),
                                 handlers=[_GrpcHandler(self)],
                                 options=[("grpc.max_receive_message_length", max_message),
                                          ("grpc.so_reuseport", 0)])
        self.grpc = f"{host}:{self._grpc.add_insecure_port(f'{host}:0')}"
        self._grpc.start()
        self._http = httpd.Server((host, 0), _HttpHandler)
        self._http.sink, self._http.prefix = self, prefix
        if certificate:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate)
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True,
                                                do_handshake_on_connect=False)
        self.http = f"{host}:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self._http.shutdown()
        self._http.server_close()
        self._grpc.stop(None).wait()
        while self._kept:
            self._kept.pop().close()

    def leave(self):
        """Stops, and keeps its ports reserved until it is closed: connections are refused, and no
        other server gets the ports."""
        self.close()
        for address in (self.grpc, self.http):
            self._kept.append(socket.socket())
            self._kept[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._kept[-1].bind(("127.0.0.1", int(address.rpartition(":")[2])))

    def take(self, call):
        """Records a call (kept only if it is accepted) and returns the answer."""
        with self._lock:
            reply = self.script.pop(0) if self.script else self.reply
        if reply.hold:
            reply.hold.wait(DEADLINE_S)
        with self._lock:
            if reply.grpc == StatusCode.OK:
                self.calls.append(call)
        return reply

    def of(self, signal):
        with self._lock:
            return [call for call in self.calls if call.signal is signal]

    def items(self, signal):
        return [item for call in self.of(signal) for item in otlp.items_of(signal, call.message)]

    def wait(self, signal, n_items):
        """Waits until exactly n_items records have arrived, and returns them."""
        until(lambda: len(self.items(signal)) >= n_items, f"{n_items} items of {signal}")
        items = self.items(signal)
        assert len(items) == n_items
        return items

    def partial_success(self, signal, reply):
        response = signal.response()
        if reply.rejected or reply.message:
            setattr(response.partial_success, signal.rejected, reply.rejected)
            response.partial_success.error_message = reply.message
        return response


def _status(reply):
    """Returns the google.rpc.Status of an error."""
    status = status_pb2.Status(code=reply.grpc.value[0], message=reply.message)
    if reply.retry_s is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(int(reply.retry_s * 1e9))
        any_info = any_pb2.Any()
        any_info.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        status.details.append(any_info)
    return status


class _GrpcHandler(grpc.GenericRpcHandler):
    def __init__(self, sink):
        self._sink = sink

    def service(self, details):
        signal = next((each for each in otlp.SIGNALS if each.method == details.method), None)
        if not signal:
            return None

        def export(raw, context):
            headers = dict(context.invocation_metadata())
            reply = self._sink.take(Call(signal, headers, raw, signal.request.FromString(raw)))
            if reply.grpc != StatusCode.OK:
                context.set_trailing_metadata(
                    [("grpc-status-details-bin", _status(reply).SerializeToString())])
                context.abort(reply.grpc, reply.message)
            return self._sink.partial_success(signal, reply).SerializeToString()
        return grpc.unary_unary_rpc_method_handler(export)


class _HttpHandler(httpd.Handler):
    def do_POST(self):
        sink, body = self.server.sink, self.body()
        signal = next((each for each in otlp.SIGNALS if self.server.prefix + each.path == self.path),
                      None)
        kind = self.headers.get("content-type")
        if not signal or kind not in (otlp.PROTOBUF, otlp.JSON):
            return self._answer(404 if not signal else 415, kind, b"")
        raw = _decompress(self.headers.get("content-encoding"), body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = sink.take(Call(signal, headers, raw, otlp.decode(signal.request, kind, raw)))
        ok = reply.http == 200
        message = sink.partial_success(signal, reply) if ok else _status(reply)
        self._answer(reply.http, kind, otlp.encode(message, kind), reply.retry_s, reply.gzip)

    def _answer(self, code, kind, body, retry_s=None, packed=False):
        body = gzip.compress(body) if packed else body
        self.send_response(code)
        if packed:
            self.send_header("content-encoding", "gzip")
        self.send_header("content-type", kind or "text/plain")
        self.send_header("content-length", str(len(body)))
        if retry_s is not None and code != 200:
            self.send_header("retry-after", str(max(1, round(retry_s))))
        self.end_headers()
        self.wfile.write(body)
