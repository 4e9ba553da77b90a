/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the protobuf wire format in place, and writes it to memory of the caller. The specification
 * is protobuf.dev/programming-guides/encoding. Overlong varints of up to ten bytes are accepted,
 * because async-profiler pads lengths to five bytes. Groups are rejected.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum br_wire { BR_WIRE_VARINT = 0, BR_WIRE_I64 = 1, BR_WIRE_LEN = 2, BR_WIRE_I32 = 5 };

#define BR_TAG(field, wire) ((uint32_t)(field) << 3 | (uint32_t)(wire))
#define BR_VARINT_MAX 10 /* maximum bytes of a varint */

/* Reads a varint between `p` and `end`. Returns a pointer to the byte after the varint, or NULL
 * if the varint is truncated or longer than ten bytes. br_varint is faster for one-byte varints. */
const uint8_t *br_varint_slow(const uint8_t *p, const uint8_t *end, uint64_t *ret);

static inline const uint8_t *br_varint(const uint8_t *p, const uint8_t *end, uint64_t *ret)
{
    if (__builtin_expect(p < end && *p < 0x80, 1)) {
        *ret = *p;
        return p + 1;
    }
    return br_varint_slow(p, end, ret);
}

/* Joins the lower seven bits of each of eight bytes to one number. */
static inline uint64_t br_varint_join(uint64_t bytes)
{
    bytes = (bytes & 0x007f007f007f007fu) | (bytes & 0x7f007f007f007f00u) >> 1;
    bytes = (bytes & 0x00003fff00003fffu) | (bytes & 0x3fff00003fff0000u) >> 2;
    return (bytes & 0x000000000fffffffu) | (bytes & 0x0fffffff00000000u) >> 4;
}

/* One field of a message. */
struct br_field {
    uint32_t number;
    enum br_wire wire;
    uint64_t value;      /* value of a VARINT, I64 or I32 field; length of a LEN field in bytes */
    const uint8_t *data; /* first byte of the content of a LEN field; NULL for other fields */
    const uint8_t *at;   /* first byte of the field's tag */
};

/* Returns the end of the content of a LEN field; NULL for other fields. */
static inline const uint8_t *br_field_end(const struct br_field *field)
{
    return field->wire == BR_WIRE_LEN ? field->data + field->value : NULL;
}

/* Reads the field at `p`. Returns a pointer to the byte after the field, or NULL if the field is
 * malformed. Truncated fields, groups, fields of an unknown wire type, and fields with a number
 * of 0 or above 2^29 - 1 are malformed. */
const uint8_t *br_field_next(const uint8_t *p, const uint8_t *end, struct br_field *ret);

/* Returns the length of a varint in bytes, 1 to 10. A division of the number of bits by seven is
 * computed as a multiplication by 9/64, which is exact up to 64 bits. */
static inline size_t br_varint_size(uint64_t value)
{
    return ((63 ^ (unsigned)__builtin_clzll(value | 1)) * 9 + 73) / 64;
}

/* Returns the varint of a number below 2^56 as an integer of eight bytes, in the byte order of
 * br_load64. Unused bytes are zero. */
static inline uint64_t br_varint_bytes(uint64_t value)
{
    uint64_t bits = value, more = 0x8080808080808080u;
    bits = (bits & 0x000000000fffffffu) | (bits & 0x00fffffff0000000u) << 4;
    bits = (bits & 0x00003fff00003fffu) | (bits & 0x0fffc0000fffc000u) << 2;
    bits = (bits & 0x007f007f007f007fu) | (bits & 0x3f803f803f803f80u) << 1;
    return bits | (more & ((UINT64_C(1) << (8 * (br_varint_size(value) - 1))) - 1));
}

/* Returns the varint of a number below 2^14, which has one or two bytes, in the byte order of
 * br_load64. */
static inline uint64_t br_varint_short(uint32_t value)
{
    uint32_t two = value >= 0x80;
    return (value & 0x7f) | two << 7 | value >> 7 << 8;
}

/* Writes a varint to `p`, which must have enough space. Returns a pointer to the byte after the
 * varint. */
static inline uint8_t *br_put_varint(uint8_t *p, uint64_t value)
{
    while (value >= 0x80) {
        *p++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *p++ = (uint8_t)value;
    return p;
}

static inline uint8_t *br_put_bytes(uint8_t *p, const void *data, size_t len)
{
    if (!len) /* `p` may be NULL if `len` is 0 */
        return p;
    memcpy(p, data, len);
    return p + len;
}

/* Writes a length-delimited field: tag, length, bytes. Returns a pointer to the byte after the
 * field. */
static inline uint8_t *br_put_len(uint8_t *p, uint32_t field, const void *data, size_t len)
{
    p = br_put_varint(p, BR_TAG(field, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    return br_put_bytes(p, data, len);
}

/* Returns the number of bytes that br_put_len writes for content of `len` bytes. */
static inline size_t br_len_size(uint32_t field, size_t len)
{
    return br_varint_size(BR_TAG(field, BR_WIRE_LEN)) + br_varint_size(len) + len;
}

static inline uint64_t br_load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v; /* the bytes are little endian, as on the wire; meson rejects big-endian machines */
}

static inline uint32_t br_load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
