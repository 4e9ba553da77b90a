# SPDX-License-Identifier: Apache-2.0
"""Requests that are made to grow in whoever reads them."""

import dataclasses
import gzip
import zlib

import zstandard

import otlp
from otlp import PROFILES, TRACES

MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Bomb:
    name: str
    path: str
    content_type: str
    encoding: str
    body: bytes
    plain: int  # bytes, decompressed, as far as a server has to look


def varint(n):
    out = bytearray()
    while n >= 128:
        out.append(n % 128 | 128)
        n //= 128
    return bytes(out) + bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def number_of(message, *names):
    """Numbers of fields, each in the message of the one before."""
    numbers, descriptor = [], message.DESCRIPTOR
    for name in names:
        numbers.append(descriptor.fields_by_name[name].number)
        descriptor = descriptor.fields_by_name[name].message_type
    return numbers


def filled(message, names, size):
    """`size` bytes of empty messages (or strings) in the innermost of the fields, the others once."""
    *outer, inner = number_of(message, *names)
    empty = varint(inner << 3 | 2) + b"\0"
    data = empty * ((size - 64) // len(empty))
    for number in reversed(outer):
        data = field(number, data)
    return data


def nested_value(size):
    """An AnyValue in an AnyValue in an AnyValue ..., in an attribute of a resource."""
    data = b""
    while len(data) < min(size, 30000):
        data = field(5, field(1, data))
    return field(1, field(1, field(1, field(2, data))))


def zeros(encoding, size):
    """1 GiB, or whatever is 16 times the limit, in little."""
    one = bytes(MIB)
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31) if encoding == "gzip" else zstandard.ZstdCompressor().compressobj()
    return b"".join([*(squeeze.compress(one) for _ in range(16 * size // MIB)), squeeze.flush()])


def many(text, size, before, after):
    return before + (text * ((size - 64) // len(text)))[:-1] + after


def shapes(size):
    """All of them, of so many bytes before compression."""
    traces, profiles = TRACES.request, PROFILES.request
    protobuf = {
        "empty ResourceSpans": (TRACES, filled(traces, ["resource_spans"], size)),
        "empty Spans": (TRACES, filled(traces, ["resource_spans", "scope_spans", "spans"], size)),
        "empty attributes": (TRACES, filled(traces, ["resource_spans", "resource", "attributes"], size)),
        "empty events": (TRACES, filled(traces, ["resource_spans", "scope_spans", "spans", "events"], size)),
        "unknown fields": (TRACES, b"\xf8\x07\x01" * (size // 3)),
        "unknown fields of a span": (TRACES, field(1, field(2, field(2, b"\xf8\x07\x01" * ((size - 64) // 3))))),
        "nested values": (TRACES, nested_value(size)),
        "empty ResourceProfiles": (PROFILES, filled(profiles, ["resource_profiles"], size)),
        "empty samples": (PROFILES, filled(profiles, ["resource_profiles", "scope_profiles", "profiles", "samples"], size)),
        "empty texts of a dictionary": (PROFILES, filled(profiles, ["dictionary", "string_table"], size)),
        "empty stacks of a dictionary": (PROFILES, filled(profiles, ["dictionary", "stack_table"], size)),
        "empty attributes of a dictionary": (PROFILES, filled(profiles, ["dictionary", "attribute_table"], size)),
    }
    json = {
        "JSON, unknown array": many(b"0,", size, b'{"x":[', b"]}"),
        "JSON, empty objects": many(b"{},", size, b'{"resourceSpans":[', b"]}"),
        "JSON, empty arrays": many(b"[],", size, b'{"x":[', b"]}"),
        "JSON, empty spans": many(b"{},", size, b'{"resourceSpans":[{"scopeSpans":[{"spans":[', b"]}]}]}"),
        "JSON, depth": b'{"x":' + b"[" * (size - 64) + b"}",
        "JSON, unknown members": many(b'"":0,', size, b"{", b"}"),
    }
    for name, (signal, data) in protobuf.items():
        yield Bomb(name, signal.path, otlp.PROTOBUF, "gzip", gzip.compress(data, 1), len(data))
    for name, data in json.items():
        yield Bomb(name, TRACES.path, otlp.JSON, "gzip", gzip.compress(data, 1), len(data))
    for encoding in ("gzip", "zstd"):
        yield Bomb(f"{encoding} bomb", TRACES.path, otlp.PROTOBUF, encoding, zeros(encoding, size), 64 * MIB)
