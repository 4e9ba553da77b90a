# SPDX-License-Identifier: Apache-2.0
"""Snappy by github.com/google/snappy's format_description.txt (a block) and framing_format.txt (a
stream of chunks)."""

import struct

CHUNK = 1 << 16  # largest size in bytes


def _varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def block(data):
    """Returns a block of literals alone, of up to 64 KiB."""
    parts = (data[at:at + CHUNK] for at in range(0, len(data), CHUNK))
    return _varint(len(data)) + b"".join(bytes([61 << 2]) + struct.pack("<H", len(part) - 1) + part for part in parts)


def zeros(size):
    """Returns a block of that many zeros (a multiple of 64): copies of 64 bytes from the byte
    before."""
    return _varint(size) + b"\x00\x00" + b"\xfa\x01\x00" + b"\xfe\x01\x00" * (size // 64 - 1)


def _masked_sum(data):
    total = 0xffffffff
    for byte in data:
        total ^= byte
        for _ in range(8):
            total = total >> 1 ^ (0x82f63b78 if total & 1 else 0)
    total ^= 0xffffffff
    return ((total >> 15 | total << 17) + 0xa282ead8) & 0xffffffff


def framed(data):
    """Returns a stream of compressed chunks."""
    out = [b"\xff\x06\0\0sNaPpY"]
    for at in range(0, len(data), CHUNK):
        part = data[at:at + CHUNK]
        body = struct.pack("<I", _masked_sum(part)) + block(part)
        out.append(b"\0" + struct.pack("<I", len(body))[:3] + body)
    return b"".join(out)
