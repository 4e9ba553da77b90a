# SPDX-License-Identifier: Apache-2.0
"""Requests made to grow in the memory of their reader."""

import dataclasses
import gzip
import itertools
import zlib

import zstandard

import otlp
from otlp import PROFILES, TRACES

MIB = 1 << 20
SPAN_IDS = b"\x0a\x10" + bytes(range(1, 17)) + b"\x12\x08" + bytes(range(1, 9))


@dataclasses.dataclass(frozen=True)
class Bomb:
    name: str
    path: str
    content_type: str
    encoding: str
    body: bytes
    plain: int  # decompressed bytes that a server has to read
    node: str = "receiver/otlp"
    exporter: str = "otlp"


def varint(n):
    out = bytearray()
    while n >= 128:
        out.append(n % 128 | 128)
        n //= 128
    return bytes(out) + bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def number_of(message, *names):
    """Returns the numbers of fields, each in the message of the one before."""
    numbers, descriptor = [], message.DESCRIPTOR
    for name in names:
        numbers.append(descriptor.fields_by_name[name].number)
        descriptor = descriptor.fields_by_name[name].message_type
    return numbers


def filled(message, names, size):
    """Returns `size` bytes of empty messages (or strings) in the innermost of the fields, the
    others once."""
    *outer, inner = number_of(message, *names)
    empty = varint(inner << 3 | 2) + b"\0"
    data = empty * ((size - 64) // len(empty))
    for number in reversed(outer):
        data = field(number, data)
    return data


def nested_value(size):
    """Returns an AnyValue in an AnyValue in an AnyValue ..., in an attribute of a resource."""
    data = b""
    while len(data) < min(size, 30000):
        data = field(5, field(1, data))
    return field(1, field(1, field(1, field(2, data))))


def zeros(encoding, size):
    """Returns 1 GiB, or 16 times the limit, in a small compressed body."""
    one = bytes(MIB)
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31) if encoding == "gzip" else zstandard.ZstdCompressor().compressobj()
    return b"".join([*(squeeze.compress(one) for _ in range(16 * size // MIB)), squeeze.flush()])


def many(text, size, before, after):
    return before + (text * ((size - 64) // len(text)))[:-1] + after


def shapes(size):
    """Returns all shapes, of that many bytes before compression."""
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


# --- Profiles of other formats -------------------------------------------------------------------

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
FORM = "multipart/form-data; boundary=x"


def numbered(size, form):
    """Returns form % 0, form % 1 ..., up to the size."""
    texts, n = [], 0
    for number in itertools.count():
        texts.append(form % number)
        n += len(texts[-1])
        if n > size:
            return b"".join(texts[:-1])


def leaf(name):
    return varint(len(name)) + name + b"\1\0"  # a count of one, without children


def tree(size):
    """Returns a root, and below it siblings with different names."""
    names = [b"%07x" % i for i in range(size // 10)]
    return b"\0\0" + varint(len(names)) + b"".join(map(leaf, names))


def trie(size):
    """Returns a trie with a node for each byte of a name, and another one after its semicolon."""
    def below(depth, width):
        return b"".join(leaf(bytes([65 + i])) if depth == 1 else varint(2) + bytes([65 + i, 59]) + b"\1" + varint(width) +
                        below(depth - 1, width) for i in range(width))
    width = next(n for n in itertools.count(2) if 6 * (n + 1) ** 4 > size)
    return b"\0\0" + varint(width) + below(4, width)


def speedscope(size):
    n = size // 26
    frames = numbered(14 * n, b'{"name":"%x"},')
    n = frames.count(b"{")
    return (b'{"$schema":"%s","shared":{"frames":[%s]},"profiles":[{"type":"sampled","unit":"none","samples":[%s],"weights":[%s]}]}'
            % (SCHEMA.encode(), frames[:-1], b",".join(b"[%d]" % i for i in range(n)), b",".join([b"1"] * n)))


def number(n, value):
    return varint(n << 3) + varint(value)


def pprof(size):
    """Returns samples with one function each, whose names differ."""
    texts = [field(6, b""), field(6, b"cpu"), field(6, b"ns")]
    parts, n = [field(1, number(1, 1) + number(2, 2))], 64
    for i in itertools.count(1):
        line = field(4, number(1, i) + number(2, 1))
        parts.append(field(2, number(1, i) + number(2, 1)) + field(4, number(1, i) + line) + field(5, number(1, i) + number(2, i + 2)))
        texts.append(field(6, b"f%x" % i))
        n += len(parts[-1]) + len(texts[-1])
        if n > size:
            return b"".join(parts[:-1] + texts[:-1])


def labelled(size):
    """Returns a pprof of samples that differ only in a label."""
    head = b"".join([field(1, number(1, 1) + number(2, 2)), *(field(6, text) for text in (b"", b"cpu", b"ns", b"k"))])
    samples, n = [head], len(head)
    for i in itertools.count(1):
        samples.append(field(2, number(2, 1) + field(3, number(1, 3) + number(3, i))))
        n += len(samples[-1])
        if n > size:
            return b"".join(samples[:-1])


def dense(size):
    """Returns a pprof of samples of eight bytes with two values each: the largest growth per byte."""
    head = b"".join([field(1, number(1, 1) + number(2, 2)), field(1, number(1, 3) + number(2, 4)),
                     *(field(6, text) for text in (b"", b"samples", b"count", b"cpu", b"nanoseconds", b"f")),
                     field(5, number(1, 1) + number(2, 5)), field(4, number(1, 1) + field(4, number(1, 1)))])
    sample = field(2, number(1, 1) + field(2, b"\5\6"))
    return head + sample * ((size - len(head)) // len(sample))


def profiles(size):
    """Returns them as uploads and as pushes of Pyroscope's clients, uncompressed and with gzip."""
    def upload(kind):
        return f"/v1/profiles/upload?name=shop&format={kind}"
    form = b'--x\r\nContent-Disposition: form-data; name="profile"; filename="a"\r\n\r\n%s\r\n--x--\r\n'
    made = {
        "folded": (numbered(size, b"f%x 1\n"), upload("folded")),
        "folded, deeper": (numbered(size, b"a;b;c;d;f%x 1\n"), upload("folded")),
        "lines": (numbered(size, b"fn%015x\n"), upload("lines")),
        "tree": (tree(size), upload("tree")),
        "trie": (trie(size), upload("trie")),
        "speedscope": (speedscope(size), upload("speedscope")),
        "pprof": (pprof(size), upload("pprof")),
        "labels of a pprof": (labelled(size), upload("pprof")),
        "dense pprof": (dense(size), upload("pprof")),
    }
    for name, (data, path) in made.items():
        yield Bomb(name, path, None, "identity", data, len(data), "receiver/pprof")
        yield Bomb(name + " by gzip", path, None, "gzip", gzip.compress(data, 1), len(data), "receiver/pprof")
    data = made["pprof"][0]
    for name, packed in (("multipart", data), ("multipart, gzip in it", gzip.compress(data, 1))):
        yield Bomb(name, "/ingest?name=shop", FORM, "identity", form % packed, len(data), "receiver/pyroscope")


# --- Requests that are split ---------------------------------------------------------------------

def repeated(size):
    """Returns small spans below a large resource or scope, which every piece repeats."""
    long_text, span = b"x" * (size // 2), field(2, SPAN_IDS + field(5, b"GET /carts"))
    spans = span * (size // 2 // len(span))
    made = {
        "long resource": field(1, field(1, field(1, field(1, b"k") + field(2, field(1, long_text)))) + field(2, spans)),
        "long scope": field(1, field(2, field(1, field(1, long_text)) + spans)),
    }
    for name, data in made.items():
        yield Bomb(name, TRACES.path, otlp.PROTOBUF, "identity", data, len(data))


# --- Requests that grow in an exporter -----------------------------------------------------------

def dictionary(*texts, **tables):
    """Returns a dictionary, each of whose tables begins with the empty entry."""
    names = ["mapping", "location", "function", "link", "string", "attribute", "stack"]
    tables["string"] = [text.encode() for text in texts]
    return field(2, b"".join(field(1 + names.index(name), entry) for name in names
                             for entry in [b"", *tables.get(name, [])]))


def profile(samples, more=b""):
    """Returns a profile of one type, in a scope, in a resource."""
    kind = field(1, number(1, 1) + number(2, 2))
    return field(1, field(2, field(2, kind + samples + more)))


def exported(size):
    """Returns requests that grow in an exporter, with its name."""
    function, location, stack = [number(1, 3)], [field(3, number(1, 1))], [field(1, b"\1" * (size // 3))]
    sample, labelled = field(2, number(1, 1) + field(4, b"\1")), field(2, field(2, b"\1") + field(4, b"\1"))
    lines = [field(3, number(1, 1)) * (size // 8)]
    nested = field(5, field(1, field(1, b"ab")) * (size // 16))
    attribute = [number(1, 3) + field(2, nested)]
    made = {
        "deep stack": (PROFILES, profile(sample * (size // 2 // len(sample))) +
                       dictionary("cpu", "ns", "f", function=function, location=location, stack=stack)),
        "location of many lines": (PROFILES, profile(sample * (size // 4 // len(sample))) + dictionary(
            "cpu", "ns", "f", function=function, location=lines, stack=[field(1, b"\1" * (size // 8))])),
        "nested value": (PROFILES, profile(labelled * (size // 2 // len(labelled))) +
                         dictionary("cpu", "ns", "k", attribute=attribute, stack=[b""])),
        "attributes of a profile": (PROFILES, profile(sample, field(11, b"\1" * (size - 256))) + dictionary(
            "cpu", "ns", "k", attribute=[number(1, 3) + field(2, field(1, b"v"))], stack=[b""])),
        "attributes of a span": (TRACES, field(1, field(2, field(2, SPAN_IDS + b"".join(
            field(9, field(1, b"k%d" % i) + field(2, field(1, b"v"))) for i in range(size // 20)))))),
    }
    for exporter, names in {"debug": made, "store": list(made)[:2], "file": ["attributes of a profile"]}.items():
        for name in names:
            signal, data = made[name]
            yield Bomb(f"{exporter}, {name}", signal.path, otlp.PROTOBUF, "identity", data, len(data), exporter=exporter)
