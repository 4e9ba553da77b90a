# SPDX-License-Identifier: Apache-2.0
"""Clients that send arbitrary bytes over gRPC and HTTP, and return the answer."""

import dataclasses
import http.client as http_client
import re
import socket
import struct

import grpc as grpcio
import h2.config
import h2.connection
import h2.events
from google.rpc import error_details_pb2, status_pb2

import otlp

LOCAL = [("grpc.enable_http_proxy", 0), ("grpc.max_send_message_length", -1),
         ("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
TIMEOUT_S = 60


@dataclasses.dataclass
class Answer:
    code: object  # grpc.StatusCode name, or the HTTP code
    body: bytes   # the response message
    headers: dict = dataclasses.field(default_factory=dict)
    status: status_pb2.Status = None  # google.rpc.Status of an error
    message: str = ""

    @property
    def ok(self):
        return self.code in ("OK", 200)

    def expect_ok(self):
        assert self.ok, self
        return self

    @property
    def retry_info(self):
        """The RetryInfo among the status details, or None."""
        for detail in self.status.details if self.status else ():
            info = error_details_pb2.RetryInfo()
            if detail.Unpack(info):
                return info
        return None


def grpc(address, signal, body, metadata=(), compression=None, method=None, channel=None):
    """Sends one unary call with a body chosen by the test."""
    own = channel or grpcio.insecure_channel(address, LOCAL)
    try:
        call = own.unary_unary(method or signal.method)
        response, done = call.with_call(body, metadata=list(metadata), compression=compression,
                                        timeout=TIMEOUT_S)
        return Answer("OK", response, dict(done.trailing_metadata()), message=done.details())
    except grpcio.RpcError as error:
        trailers = dict(error.trailing_metadata() or ())
        packed = trailers.get("grpc-status-details-bin")
        return Answer(error.code().name, b"", trailers, packed
                      and status_pb2.Status.FromString(packed), error.details())
    finally:
        if not channel:
            own.close()


def parse_http(code, headers, body):
    """Returns an Answer. The body of an error is a google.rpc.Status in its content type, unless it
    is Connect's."""
    status, kind = None, headers.get("content-type")
    connect = kind == otlp.JSON and re.match(rb'\{"code":"', body)
    if code >= 400 and body and kind in (otlp.PROTOBUF, otlp.JSON) and not connect:
        status = otlp.decode(status_pb2.Status, kind, body)
    return Answer(code, body, headers, status, status.message if status else "")


def http_exchange(connection, method, path, body, headers):
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    names = {name.lower(): value for name, value in answer.getheaders()}
    return parse_http(answer.status, names, answer.read())


def http(address, path, body, content_type=otlp.PROTOBUF, headers=None, method="POST"):
    """Sends one request on a new connection. body: bytes, or an iterable for chunks."""
    connection = http_client.HTTPConnection(address, timeout=TIMEOUT_S)
    try:
        kind = {"content-type": content_type} if content_type else {}
        return http_exchange(connection, method, path, body, {**kind, **(headers or {})})
    finally:
        connection.close()


class H2:
    """HTTP/2 with prior knowledge, frame by frame."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.address = address
        self.state = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.state.initiate_connection()
        self.flush()

    def flush(self):
        self.socket.sendall(self.state.data_to_send())

    def close(self):
        self.socket.close()

    def start(self, path, headers, method="POST", end=False):
        stream = self.state.get_next_available_stream_id()
        pseudo = {":method": method, ":scheme": "http", ":authority": self.address, ":path": path}
        self.state.send_headers(stream, [*pseudo.items(), *headers.items()], end_stream=end)
        self.flush()
        return stream

    def send(self, stream, data, chunk=16384, end=True):
        """Sends DATA frames of `chunk` bytes within the server's flow-control windows."""
        view = memoryview(data)
        while view:
            room = min(self.state.local_flow_control_window(stream), chunk, len(view),
                       self.state.max_outbound_frame_size)
            if not room:
                self._receive(None, stream)
                continue
            self.state.send_data(stream, bytes(view[:room]))
            view = view[room:]
            self.flush()
        if end:
            self.state.end_stream(stream)
            self.flush()

    def _receive(self, parts, stream):
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("the server closed the connection")
        for event in self.state.receive_data(data):
            self._note(event, parts, stream)
        self.flush()

    def _note(self, event, parts, stream):
        if isinstance(event, h2.events.DataReceived):
            self.state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        if isinstance(event, h2.events.ConnectionTerminated):
            raise ConnectionError(f"GOAWAY {event.error_code}")
        if getattr(event, "stream_id", None) != stream or parts is None:
            return
        if isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
            parts["headers"].update(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            parts["body"] += event.data
        elif isinstance(event, h2.events.StreamReset):
            raise ConnectionError(f"RST_STREAM {event.error_code}")
        elif isinstance(event, h2.events.StreamEnded):
            parts["ended"] = True

    def receive(self, stream):
        """Returns the whole response: headers (with trailers) and body."""
        parts = {"headers": {}, "body": b"", "ended": False}
        while not parts["ended"]:
            self._receive(parts, stream)
        return parts["headers"], parts["body"]

    def request(self, path, headers, body, method="POST", chunk=16384):
        stream = self.start(path, headers, method, end=not body)
        if body:
            self.send(stream, body, chunk)
        return self.receive(stream)


GRPC_HEADERS = {"content-type": "application/grpc", "te": "trailers"}


def frame(message, compressed=False):
    """A gRPC length-prefixed message."""
    return struct.pack(">BI", compressed, len(message)) + message


def raw_grpc(address, method, body, headers=None, chunk=16384):
    """Makes a gRPC call with the caller's frames. Returns headers with trailers, and the body."""
    connection = H2(address)
    try:
        return connection.request(method, {**GRPC_HEADERS, **(headers or {})}, body, chunk=chunk)
    finally:
        connection.close()
