# SPDX-License-Identifier: Apache-2.0
"""Thrift messages by hand, in the binary and the compact protocol (apache/thrift doc/specs)."""

import struct as packing

from wire import varint

BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST = 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15
COMPACT = {BOOL: 1, BYTE: 3, I16: 4, I32: 5, I64: 6, DOUBLE: 7, STRING: 8, LIST: 9, SET: 10, MAP: 11, STRUCT: 12}
SIZES = {BYTE: ">b", I16: ">h", I32: ">i", I64: ">q", DOUBLE: ">d"}


def of(elements, kind=STRUCT):
    """Returns the value of a LIST: the type of its elements, and the elements."""
    return kind, elements


class Binary:
    def value(self, kind, value):
        if kind in SIZES:
            return packing.pack(SIZES[kind], value)
        if kind == BOOL:
            return bytes([value])
        if kind == STRING:
            data = value if isinstance(value, bytes) else value.encode()
            return packing.pack(">i", len(data)) + data
        if kind == STRUCT:
            return self.struct(value)
        element, elements = value
        return bytes([element]) + packing.pack(">i", len(elements)) + b"".join(self.value(element, each) for each in elements)

    def struct(self, fields):
        return b"".join(bytes([kind]) + packing.pack(">h", number) + self.value(kind, value) for number, kind, value in fields) + b"\0"

    def call(self, name, fields, kind=4, strict=True):
        head = packing.pack(">I", 0x80010000 | kind) + self.value(STRING, name)
        if not strict:
            head = self.value(STRING, name) + bytes([kind])
        return head + packing.pack(">i", 7) + self.struct(fields)


class Compact:
    @staticmethod
    def _zigzag(value):
        return varint((value << 1 ^ value >> 63) & (1 << 64) - 1)

    def value(self, kind, value):
        if kind == BYTE:
            return packing.pack(">b", value)
        if kind in (I16, I32, I64):
            return self._zigzag(value)
        if kind == DOUBLE:
            return packing.pack("<d", value)
        if kind == BOOL:
            return bytes([1 if value else 2])
        if kind == STRING:
            data = value if isinstance(value, bytes) else value.encode()
            return varint(len(data)) + data
        if kind == STRUCT:
            return self.struct(value)
        element, elements = value
        head = bytes([min(len(elements), 15) << 4 | COMPACT[element]])
        return head + (varint(len(elements)) if len(elements) > 14 else b"") + b"".join(self.value(element, each) for each in elements)

    def struct(self, fields):
        out, last = b"", 0
        for number, kind, value in fields:
            code = COMPACT[kind] if kind != BOOL else 1 if value else 2
            delta = number - last
            out += bytes([delta << 4 | code]) if 0 < delta < 16 else bytes([code]) + self._zigzag(number)
            out += b"" if kind == BOOL else self.value(kind, value)
            last = number
        return out + b"\0"

    def call(self, name, fields, kind=4):
        return bytes([0x82, kind << 5 | 1]) + varint(7) + self.value(STRING, name) + self.struct(fields)
