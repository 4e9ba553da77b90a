# SPDX-License-Identifier: Apache-2.0
"""Protobuf wire bytes by hand, for messages that no library would write."""

from google.protobuf.descriptor import FieldDescriptor

_CONTAINERS = (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP)


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def field(number, payload):
    """Returns a length-delimited field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def fields(data):
    """Returns (number, wire type, whole field, payload) of each field."""
    at = 0
    while at < len(data):
        start = at
        key, at = read_varint(data, at)
        if key & 7 == 2:
            length, at = read_varint(data, at)
            payload, at = data[at:at + length], at + length
        else:
            payload = b""
            at = {0: lambda: read_varint(data, at)[1], 1: lambda: at + 8,
                  5: lambda: at + 4}[key & 7]()
        yield key >> 3, key & 7, data[start:at], payload


def rewrite(descriptor, data, change):
    """Rebuilds a message from the inside out: change(full name, [(number, field bytes)]) returns
    the new fields of a message."""
    parts = []
    for number, kind, whole, payload in fields(data):
        known = descriptor.fields_by_number.get(number)
        if kind == 2 and known and known.type in _CONTAINERS:
            whole = field(number, rewrite(known.message_type, payload, change))
        parts.append((number, whole))
    return b"".join(whole for _, whole in change(descriptor.full_name, parts))


def descending(message):
    """Returns the message with the fields of every message in descending order, as some SDKs write
    them; the order within a repeated field does not change."""
    return rewrite(message.DESCRIPTOR, message.SerializeToString(),
                   lambda _, parts: sorted(parts, key=lambda part: -part[0]))


def with_unknown_fields(message, number=4000):
    """Returns the message with an unknown field at the end of every message in it."""
    extra = field(number, b"from the future \xff\0")
    return rewrite(message.DESCRIPTOR, message.SerializeToString(),
                   lambda _, parts: [*parts, (number, extra)])


def with_long_lengths(message):
    """Returns the message with every length written in five bytes, as async-profiler does."""
    def change(_, parts):
        for number, whole in parts:
            key, at = read_varint(whole, 0)
            if key & 7 != 2:
                yield number, whole
                continue
            length, at = read_varint(whole, at)
            yield number, varint(key) + bytes(length >> 7 * i & 0x7F | 0x80
                                              for i in range(4)) + bytes([length >> 28
                                                                          ]) + whole[at:]
    return rewrite(message.DESCRIPTOR, message.SerializeToString(), change)


def numbered_as_1_9(request):
    """Returns a profiles request in the numbering of OTLP 1.8 and 1.9: in Sample, values are 2,
    attribute_indices 3 and link_index 4."""
    moved = {4: 2, 2: 3, 3: 4}

    def change(name, parts):
        for number, whole in parts:
            if name.endswith(".Sample") and number in moved:
                key, at = read_varint(whole, 0)
                whole = varint(moved[number] << 3 | key & 7) + whole[at:]
            yield number, whole
    return rewrite(request.DESCRIPTOR, request.SerializeToString(), change)
