/* SPDX-License-Identifier: Apache-2.0 */
/* Reads protobuf fields on hot paths: in the code for profiles dictionaries and in the processor
 * `join`. */
#pragma once

#include "base/steps.h"
#include "wire/protobuf.h"

#define BR_SCAN_LEN(number) BR_TAG(number, BR_WIRE_LEN)
#define BR_SCAN_VARINT(number) BR_TAG(number, BR_WIRE_VARINT)

/* Returns the tag of a field, which combines its number and wire type in one integer for use in
 * a switch. */
static inline uint32_t br_scan_tag(const struct br_field *field)
{
    return BR_TAG(field->number, field->wire);
}

/* Returns true if `tag` is in `set`, which has one bit for each tag below 64. */
static inline bool br_scan_in(uint64_t set, uint32_t tag)
{
    return tag < 64 && (set >> tag & 1);
}

/* Reads a varint like br_varint, with varints of two bytes inlined as well. */
static inline const uint8_t *br_scan_varint(const uint8_t *p, const uint8_t *end, uint64_t *ret)
{
    if (__builtin_expect(p < end && p[0] < 0x80, 1)) {
        *ret = p[0];
        return p + 1;
    }
    if (__builtin_expect(end - p >= 2 && p[1] < 0x80, 1)) {
        *ret = (uint64_t)(p[0] & 0x7f) | (uint64_t)p[1] << 7;
        return p + 2;
    }
    uint64_t slow = 0;
    p = br_varint_slow(p, end, &slow);
    *ret = slow;
    return p;
}

/* Reads a field like br_field_next, with the encodings that are frequent in dictionaries and
 * samples inlined. Only local variables are passed to other functions, so that the caller's
 * `field` can stay in registers. */
static inline __attribute__((always_inline)) const uint8_t *
br_scan(const uint8_t *p, const uint8_t *end, struct br_field *field)
{
    br_steps_add_field();
    if (__builtin_expect(end - p >= 2 && p[0] >= 8 && (p[0] & 0x85) == 0, 1)) {
        const uint8_t *next = p + 2;
        field->value = p[1];
        if (p[1] >= 0x80)
            next = br_scan_varint(p + 1, end, &field->value);
        field->at = p;
        field->number = p[0] >> 3;
        field->wire = (enum br_wire)(p[0] & 7);
        field->data = next;
        if (field->wire == BR_WIRE_VARINT || __builtin_expect(!next, 0))
            return next;
        return field->value <= (uint64_t)(end - next) ? next + field->value : NULL;
    }
    struct br_field other = {0};
    p = br_field_next(p, end, &other);
    *field = other;
    return p;
}

/* Reads a varint like br_varint, but does not branch between varints of one byte and of two
 * bytes. If indices of both lengths are mixed, the processor cannot predict such a branch. */
static inline const uint8_t *br_scan_index(const uint8_t *p, const uint8_t *end, uint64_t *ret)
{
    br_steps_add_field();
    if (__builtin_expect(end - p >= 2, 1)) {
        unsigned two = p[0] >> 7;
        unsigned i = (p[0] & 0x7fu) | ((unsigned)p[1] << 7 & (0u - two));
        if (__builtin_expect(i < 0x4000, 1)) {
            *ret = i;
            return p + 1 + two;
        }
    }
    uint64_t wide;
    p = br_varint(p, end, &wide);
    *ret = wide;
    return p;
}

/* Writes a varint like br_put_varint, but does not branch between varints of one byte and of two
 * bytes. The byte after a one-byte varint is overwritten. */
static inline uint8_t *br_put_index(uint8_t *p, uint32_t value)
{
    if (__builtin_expect(value >= 0x4000, 0))
        return br_put_varint(p, value);
    unsigned two = value >= 0x80;
    p[0] = (uint8_t)(value | two << 7);
    p[1] = (uint8_t)(value >> 7);
    return p + 1 + two;
}

/* Writes the length of the bytes between `out` and `end` in front of these bytes, where one byte is
 * reserved for the length. If the length needs more than one byte, moves the content towards higher
 * addresses, where the caller must provide space. Returns the new end of the content. */
static inline uint8_t *br_put_length_before(uint8_t *out, uint8_t *end)
{
    size_t len = (size_t)(end - out), more = br_varint_size(len) - 1;
    if (__builtin_expect(more != 0, 0))
        memmove(out + more, out, len);
    br_put_varint(out - 1, len);
    return end + more;
}
