# SPDX-License-Identifier: Apache-2.0
"""OTLP's three transports with one interface, so that a rule is tested once for all of them."""

import dataclasses

from google.protobuf.message import Message

import clients
import otlp

RETRYABLE = {
    "CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS", 429,
    502, 503, 504
}


@dataclasses.dataclass(frozen=True)
class Transport:
    name: str
    content_type: str = None  # None: gRPC

    def __str__(self):
        return self.name

    @property
    def is_grpc(self):
        return self.content_type is None

    def encode(self, message):
        return otlp.encode(message, self.content_type)

    def decode(self, signal, answer):
        """Returns the export response."""
        return otlp.decode(signal.response, self.content_type, answer.body)

    def send(self, braid, signal, body, headers=None):
        """Sends a body: a message, bytes, or over HTTP pieces to send as chunks."""
        if isinstance(body, Message):
            body = self.encode(body)
        if self.is_grpc:
            return clients.grpc(braid.grpc, signal, body, (headers or {}).items())
        return clients.http(braid.http, signal.path, body, self.content_type, headers)


GRPC = Transport("grpc")
PROTO = Transport("proto", otlp.PROTOBUF)
JSON = Transport("json", otlp.JSON)
ALL = (GRPC, PROTO, JSON)
HTTP = (PROTO, JSON)
BINARY = (GRPC, PROTO)
