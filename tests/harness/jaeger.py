# SPDX-License-Identifier: Apache-2.0
"""Jaeger's batches of spans as Thrift and protobuf messages (jaegertracing/jaeger-idl)."""

import struct

from thrift import BOOL, DOUBLE, I32, I64, LIST, STRING, STRUCT, of
from wire import field, varint

CHILD_OF, FOLLOWS_FROM = 0, 1
START_US, DURATION_US = 1556604172355737, 1431


def signed(value):
    return value - (1 << 64) if value >> 63 else value


class Thrift:
    """Builds the values that thrift.Binary and thrift.Compact encode."""

    @staticmethod
    def tag(key, value):
        kinds = {str: (0, 3, STRING), float: (1, 4, DOUBLE), bool: (2, 5, BOOL), int: (3, 6, I64), bytes: (4, 7, STRING)}
        kind, number, wire = kinds[type(value)]
        return [(1, STRING, key), (2, I32, kind), (number, wire, value)]

    def tags(self, tags):
        return of([self.tag(*each) for each in tags.items()])

    def span(self, name, trace=(0, 0x5AF7183FB1D4CF5F), span=0x352BFF9A74CA9AD2, parent=0, refs=(), flags=0, tags=None, logs=()):
        references = [[(1, I32, kind), (2, I64, signed(low)), (3, I64, signed(high)), (4, I64, signed(to))]
                      for kind, (high, low), to in refs]
        events = [[(1, I64, time), (2, LIST, self.tags(fields))] for time, fields in logs]
        return [(1, I64, signed(trace[1])), (2, I64, signed(trace[0])), (3, I64, signed(span)), (4, I64, signed(parent)),
                (5, STRING, name), (6, LIST, of(references)), (7, I32, flags), (8, I64, START_US), (9, I64, DURATION_US),
                (10, LIST, self.tags(tags or {})), (11, LIST, of(events))]

    def batch(self, spans, service="shop", tags=None):
        process = [(1, STRING, service), (2, LIST, self.tags(tags or {}))]
        return [(1, STRUCT, process), (2, LIST, of(spans))]


def number(index, value):
    return varint(index << 3) + varint(value & (1 << 64) - 1)


class Proto:
    """Builds the bytes of the protobuf messages."""

    @staticmethod
    def tag(key, value):
        kinds = {
            str: lambda: number(2, 0) + field(3, str(value).encode()),
            bool: lambda: number(2, 1) + number(4, value),
            int: lambda: number(2, 2) + number(5, value),
            float: lambda: number(2, 3) + varint(6 << 3 | 1) + struct.pack("<d", value),
            bytes: lambda: number(2, 4) + field(7, bytes(value)),
        }
        return field(1, key.encode()) + kinds[type(value)]()

    def tags(self, index, tags):
        return b"".join(field(index, self.tag(*each)) for each in tags.items())

    @staticmethod
    def time(us):
        return number(1, us // 1000000) + number(2, us % 1000000 * 1000)

    def process(self, service, tags=None):
        return field(1, service.encode()) + self.tags(2, tags or {})

    def span(self, name, trace=(0, 0x5AF7183FB1D4CF5F), span=0x352BFF9A74CA9AD2, refs=(), flags=0, tags=None, logs=(),
             process=None):
        def of_trace(pair):
            return pair[0].to_bytes(8, "big") + pair[1].to_bytes(8, "big")
        references = b"".join(field(4, field(1, of_trace(to)) + field(2, at.to_bytes(8, "big")) + number(3, kind))
                              for kind, to, at in refs)
        events = b"".join(field(9, field(1, self.time(time)) + self.tags(2, fields)) for time, fields in logs)
        return (field(1, of_trace(trace)) + field(2, span.to_bytes(8, "big")) + field(3, name.encode()) + references +
                number(5, flags) + field(6, self.time(START_US)) + field(7, self.time(DURATION_US)) + self.tags(8, tags or {}) +
                events + (field(10, process) if process else b""))

    def request(self, spans, service="shop", tags=None):
        """The process follows the spans, as its number requires."""
        return field(1, b"".join(field(1, each) for each in spans) + field(2, self.process(service, tags)))
