# SPDX-License-Identifier: Apache-2.0
"""Encodes protobuf messages in every way that the wire format allows, unlike the runtime, which has
one: field order, packed and unpacked lists in pieces, padded varints, fields that occur twice, and
unknown fields. Source: protobuf.dev/programming-guides/encoding."""

import copy
import struct

from google.protobuf.descriptor import FieldDescriptor as F

VARINTS = {F.TYPE_INT32, F.TYPE_INT64, F.TYPE_UINT32, F.TYPE_UINT64, F.TYPE_BOOL, F.TYPE_ENUM}
FIXED = {F.TYPE_FIXED64: (1, "<Q"), F.TYPE_DOUBLE: (1, "<d"), F.TYPE_FIXED32: (5, "<I")}


class Style:
    """How to encode; every choice comes from `rng`."""

    def __init__(self, rng, **chances):
        self.rng = rng
        self.order = rng.choice(["ascending", "descending", "random"])
        self.unpacked = rng.choice([0, 0, 0.3, 1])
        self.pieces = rng.choice([0, 0, 0.3])
        self.padded = rng.choice([0, 0, 0.1])
        self.unknown = rng.choice([0, 0.05])
        self.twice = rng.choice([0, 0.1])
        self.no_unknown = {"ProfilesDictionary", "EntityRef"}
        for name, chance in chances.items():
            setattr(self, name, chance)

    def plain(self):
        """The same without unknown fields."""
        other = copy.copy(self)
        other.unknown = 0
        return other

    def hit(self, chance):
        return chance and self.rng.random() < chance


def varint(value, style=None):
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    if style and style.hit(style.padded):
        while len(out) < style.rng.randint(2, 5):
            out[-1] |= 0x80
            out.append(0)
    return bytes(out)


def tag(number, wire, style):
    return varint(number << 3 | wire, style)


def delimited(number, data, style):
    return tag(number, 2, style) + varint(len(data), style) + data


def scalar(field, value, style):
    if field.type in FIXED:
        return struct.pack(FIXED[field.type][1], value)
    return varint(int(value), style)


def wire_of(field):
    return FIXED[field.type][0] if field.type in FIXED else 0


def single(field, value, style):
    if field.type == F.TYPE_MESSAGE:
        return delimited(field.number, encode(value, style), style)
    if field.type in (F.TYPE_STRING, F.TYPE_BYTES):
        data = value.encode() if isinstance(value, str) else value
        return delimited(field.number, data, style)
    return tag(field.number, wire_of(field), style) + scalar(field, value, style)


def number_list(field, values, style):
    """A repeated number: fields, to be written in this order."""
    values, out = list(values), []
    while values:
        n = style.rng.randint(1, len(values)) if style.hit(style.pieces) else len(values)
        now, values = values[:n], values[n:]
        if style.hit(style.unpacked):
            out += [single(field, v, style) for v in now]
        else:
            out.append(delimited(field.number, b"".join(scalar(field, v, style) for v in now), style))
    return out


def halves(message):
    """Two messages which the wire format merges into this one."""
    first, second = type(message)(), type(message)()
    for i, (field, value) in enumerate(message.ListFields()):
        into = first if i % 2 == 0 else second
        into.MergeFrom(type(message)())
        if field.is_repeated:
            getattr(into, field.name).extend(value)
        elif field.type == F.TYPE_MESSAGE:
            getattr(into, field.name).CopyFrom(value)
        else:
            setattr(into, field.name, value)
    return first, second


def occurrences(field, value, style):
    """The fields that one field of a message becomes."""
    if field.is_repeated:
        if field.type in VARINTS or field.type in FIXED:
            return number_list(field, value, style)
        if field.containing_type.name == "ProfilesDictionary":  # entry 0 is the zero value
            return [single(field, v, style if i else style.plain()) for i, v in enumerate(value)]
        return [single(field, v, style) for v in value]
    once = [single(field, value, style)]
    if not style.hit(style.twice) or field.containing_oneof:
        return once
    if field.type == F.TYPE_MESSAGE:
        return [single(field, half, style) for half in halves(value)]
    if field.containing_type.name not in ("ValueType", "KeyValue") and field.type in VARINTS:
        return [single(field, 0, style)] + once
    return once


def unknown(style):
    number = style.rng.choice([20, 99, 5000])
    return style.rng.choice([
        tag(number, 0, style) + varint(style.rng.getrandbits(40), style),
        tag(number, 1, style) + struct.pack("<Q", style.rng.getrandbits(64)),
        tag(number, 5, style) + struct.pack("<I", style.rng.getrandbits(32)),
        delimited(number, bytes(style.rng.randrange(256) for _ in range(style.rng.randrange(20))), style),
    ])


def interleave(groups, rng):
    """Any order that keeps the order within each group."""
    groups, out = [list(g) for g in groups if g], []
    while groups:
        group = rng.choice(groups)
        out.append(group.pop(0))
        groups = [g for g in groups if g]
    return out


def encode(message, style):
    fields = sorted(message.ListFields(), key=lambda f: f[0].number,
                    reverse=style.order == "descending")
    groups = [occurrences(field, value, style) for field, value in fields]
    if message.DESCRIPTOR.name not in style.no_unknown and style.hit(style.unknown):
        groups.append([unknown(style)])
    if style.order == "random":
        return b"".join(interleave(groups, style.rng))
    return b"".join(part for group in groups for part in group)
