# SPDX-License-Identifier: Apache-2.0
"""OTLP/JSON against the official protobuf runtime, on random messages, both ways.

The runtime's own JSON differs from OTLP's in one thing, ids (hex, not base64), which is put right
here. Needs the build folder: BRAID_BUILD, by default build.
"""

import base64
import json
import os
import pathlib
import random
import struct
import subprocess

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor as F
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("BRAID_BUILD", ROOT / "build")) / "tests/support/json_tool"
REQUESTS = {
    "traces": trace_service_pb2.ExportTraceServiceRequest,
    "profiles": profiles_service_pb2.ExportProfilesServiceRequest,
    "response": trace_service_pb2.ExportTraceServiceResponse,
}
IDS = {"traceId": 16, "profileId": 16, "spanId": 8, "parentSpanId": 8}
ROUNDS = 400

RANGES = {
    F.TYPE_INT32: (-2**31, 2**31 - 1), F.TYPE_INT64: (-2**63, 2**63 - 1),
    F.TYPE_UINT32: (0, 2**32 - 1), F.TYPE_FIXED32: (0, 2**32 - 1),
    F.TYPE_UINT64: (0, 2**64 - 1), F.TYPE_FIXED64: (0, 2**64 - 1),
}
DOUBLES = [0.0, -0.0, 1.0, 0.1, 1 / 3, 1e22, 1e-310, 5e-324, 1.7976931348623157e308, -2.5,
           float("nan"), float("inf"), float("-inf"), 123456789012345680.0, 2.0**63, 1e15 + 0.3]
TEXTS = ["", "a", "GET /x", 'quo"te', "back\\slash", "line\nfeed\ttab\r\b\f", "nul\0nul", "\x1f\x7f",
         "äöü", "日本", "\U0001f525 fire", "\u2028\u2029", "\ufffd\uffff", "</script>", "x" * 300]


class Tool:
    """json_tool, kept running."""

    def __init__(self, mode, kind):
        self.process = subprocess.Popen([TOOL, mode, kind], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def __call__(self, data):
        self.process.stdin.write(struct.pack("<I", len(data)) + data)
        self.process.stdin.flush()
        (size,) = struct.unpack("<I", self.process.stdout.read(4))
        answer = self.process.stdout.read(size)
        assert answer[0] == 0, answer[1:].decode()
        return answer[1:]

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


@pytest.fixture(params=REQUESTS)
def kind(request):
    return request.param


@pytest.fixture
def decode(kind):
    tool = Tool("decode", kind)
    yield tool
    tool.close()


@pytest.fixture
def encode(kind):
    tool = Tool("encode", kind)
    yield tool
    tool.close()


# --- Random messages


def scalar(field, rng):
    if field.type in RANGES:
        low, high = RANGES[field.type]
        return rng.choice([0, 1, low, high, rng.randint(low, high), rng.randint(0, 300),
                           min(high, 2**53 + 1)])
    if field.type == F.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type == F.TYPE_DOUBLE:
        return rng.choice(DOUBLES + [rng.uniform(-1e6, 1e6), rng.gauss(0, 1)])
    if field.type == F.TYPE_STRING:
        return rng.choice(TEXTS)
    if field.type == F.TYPE_ENUM:
        return rng.choice([v.number for v in field.enum_type.values] + [77, -1])
    assert field.type == F.TYPE_BYTES
    if field.json_name in IDS:
        return rng.choice([b"", rng.randbytes(IDS[field.json_name])])
    return rng.randbytes(rng.randint(0, 20))


def fill(message, rng, depth=0):
    for field in message.DESCRIPTOR.fields:
        if rng.random() < (0.4 if depth < 6 else 0.75):
            continue
        if field.is_repeated:
            for _ in range(rng.randint(0, 3)):
                if field.type == F.TYPE_MESSAGE:
                    fill(getattr(message, field.name).add(), rng, depth + 1)
                else:
                    getattr(message, field.name).append(scalar(field, rng))
        elif field.type == F.TYPE_MESSAGE:
            getattr(message, field.name).SetInParent()
            fill(getattr(message, field.name), rng, depth + 1)
        else:
            setattr(message, field.name, scalar(field, rng))
    return message


def messages(kind):
    for seed in range(ROUNDS):
        rng = random.Random(f"{kind} {seed}")
        yield fill(REQUESTS[kind](), rng), rng


# --- The official JSON, with hex ids


def hex_ids(value):
    if isinstance(value, list):
        return [hex_ids(v) for v in value]
    if isinstance(value, dict):
        return {k: base64.b64decode(v).hex() if k in IDS else hex_ids(v) for k, v in value.items()}
    return value


def official_json(message):
    return hex_ids(json_format.MessageToDict(message, use_integers_for_enums=True))


def same(text):
    """Makes texts comparable: 1 equals 1.0, but 0.0 differs from -0.0 (hence the repr), and the
    order counts."""
    return repr(json.loads(text, parse_int=float))


def test_encode(kind, encode):
    for message, _ in messages(kind):
        text = encode(message.SerializeToString())
        assert b"\n" not in text
        assert same(text) == same(json.dumps(official_json(message)))


# --- The same message encoded differently


def varint(v):
    out = bytearray()
    v &= 2**64 - 1
    while v >= 0x80:
        out.append(v & 0x7F | 0x80)
        v >>= 7
    out.append(v)
    return bytes(out)


def read_varint(data, at):
    v = shift = 0
    while True:
        v |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return v, at


def read_fields(data):
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        if tag & 7 == 0:
            v, at = read_varint(data, at)
            yield tag >> 3, 0, varint(v)
        else:
            size = {1: 8, 5: 4}.get(tag & 7)
            if size is None:
                size, at = read_varint(data, at)
            yield tag >> 3, tag & 7, data[at:at + size]
            at += size


def write_field(number, wire, payload):
    head = varint(number << 3 | wire)
    return head + (varint(len(payload)) if wire == 2 else b"") + payload


def elements(field, payload):
    """Returns (wire type, bytes) of each element of a packed list."""
    at = 0
    while at < len(payload):
        if field.type in (F.TYPE_FIXED64, F.TYPE_DOUBLE):
            yield 1, payload[at:at + 8]
            at += 8
        else:
            _, end = read_varint(payload, at)
            yield 0, payload[at:end]
            at = end


def mangle(descriptor, data, rng):
    """Shuffles fields, unpacks lists, splits messages in two, adds unknown fields."""
    out = []
    for number, wire, payload in read_fields(data):
        field = descriptor.fields_by_number[number]
        if field.type == F.TYPE_MESSAGE:
            payload = mangle(field.message_type, payload, rng)
            if not field.is_repeated and rng.random() < 0.4:
                parts = [write_field(*f) for f in read_fields(payload)]
                cut = rng.randint(0, len(parts))
                out.append(write_field(number, wire, b"".join(parts[:cut])))
                payload = b"".join(parts[cut:])
            out.append(write_field(number, wire, payload))
        elif field.is_repeated and field.is_packed and rng.random() < 0.5:
            out += [write_field(number, w, p) for w, p in elements(field, payload)]
            out.append(write_field(number, 2, b""))
        else:
            out.append(write_field(number, wire, payload))
            if not field.is_repeated and rng.random() < 0.1:
                out.append(write_field(number, wire, payload))
    if rng.random() < 0.3:
        out.append(rng.choice([
            write_field(900, 0, varint(7)), write_field(901, 2, b"unknown"),
            write_field(902, 1, bytes(8)), write_field(903, 5, bytes(4))]))
    if rng.random() < 0.5:
        rng.shuffle(out)
    return b"".join(out)


def test_encode_mangled(kind, encode):
    n_changed = 0
    for message, rng in messages(kind):
        plain = message.SerializeToString()
        data = mangle(message.DESCRIPTOR, plain, rng)
        n_changed += data != plain
        reference = REQUESTS[kind].FromString(data)
        assert same(encode(data)) == same(json.dumps(official_json(reference)))
    assert n_changed > ROUNDS / 4


# --- The same JSON spelled differently


class Marker:
    """A number with its spelling."""

    def __init__(self, text):
        self.text = text


def spell_integer(v, rng):
    text = str(v)
    return rng.choice([text, int(v), Marker(text), Marker(text + ".0"), Marker(text + "e0"),
                       Marker(text + ("000E-3" if v else "E+9")), text + ".00"])


def dump(value, rng):
    """JSON text: markers verbatim, keys shuffled, white space and escapes at random."""
    space = rng.choice(["", "", " ", "\n\t"])
    if isinstance(value, Marker):
        return value.text
    if isinstance(value, dict):
        items = list(value.items())
        rng.shuffle(items)
        return "{" + space + ("," + space).join(
            f"{json.dumps(k)}{space}:{dump(v, rng)}" for k, v in items) + "}"
    if isinstance(value, list):
        return "[" + ("," + space).join(dump(v, rng) for v in value) + space + "]"
    return json.dumps(value, ensure_ascii=rng.random() < 0.5)


def reword(descriptor, value, rng):
    out = {}
    for name, v in value.items():
        field = next(f for f in descriptor.fields if f.json_name == name)
        many = v if field.is_repeated else [v]
        many = [reword_one(field, one, rng) for one in many]
        out[name] = many if field.is_repeated else many[0]
    if rng.random() < 0.3:
        out["unknownField"] = rng.choice([None, {"a": [1, {"b": 2**70}]}, "x", 1e300, [[], {}]])
    if rng.random() < 0.2:
        absent = [f for f in descriptor.fields if f.json_name not in out]
        if absent:
            out[rng.choice(absent).json_name] = None
    return out


def reword_one(field, v, rng):
    if field.type == F.TYPE_MESSAGE:
        return reword(field.message_type, v, rng)
    if field.type in RANGES:
        return spell_integer(int(v), rng)
    if field.type == F.TYPE_ENUM:
        known = {e.number: e.name for e in field.enum_type.values}
        return rng.choice([v, known.get(v, v)])
    if field.type == F.TYPE_DOUBLE and not isinstance(v, str):
        return rng.choice([v, repr(v), Marker(f"{v:.25e}")])
    if field.json_name in IDS:
        return rng.choice([v.upper(), v])
    if field.type == F.TYPE_BYTES:
        url = v.replace("+", "-").replace("/", "_")
        return rng.choice([v, url, v.rstrip("="), url.rstrip("=")])
    return v


def test_decode(kind, decode):
    for message, rng in messages(kind):
        text = dump(reword(message.DESCRIPTOR, official_json(message), rng), rng)
        assert decode(text.encode()) == message.SerializeToString(deterministic=True), text


def test_decode_of_encoded(kind, encode, decode):
    for message, _ in messages(kind):
        data = message.SerializeToString(deterministic=True)
        assert decode(encode(data)) == data
