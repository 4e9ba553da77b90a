/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/protobuf.h"

const uint8_t *br_varint_slow(const uint8_t *p, const uint8_t *end, uint64_t *ret)
{
    uint64_t v = 0;
    if (__builtin_expect(end - p >= 8, 1)) {
        uint64_t eight = br_load64(p), last = ~eight & 0x8080808080808080u;
        if (__builtin_expect(last != 0, 1)) {
            *ret = br_varint_join(eight & (last ^ (last - 1)));
            return p + (__builtin_ctzll(last) >> 3) + 1;
        }
    }
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (p >= end)
            return NULL;
        uint8_t b = *p++;
        if (shift == 63 && b > 1)
            return NULL;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            *ret = v;
            return p;
        }
    }
    return NULL;
}

const uint8_t *br_field_next(const uint8_t *p, const uint8_t *end, struct br_field *ret)
{
    uint64_t tag;
    ret->at = p;
    p = br_varint(p, end, &tag);
    if (!p || tag > UINT32_MAX || tag >> 3 == 0)
        return NULL;
    ret->number = (uint32_t)(tag >> 3);
    ret->wire = (enum br_wire)(tag & 7);
    ret->data = NULL;
    switch (tag & 7) {
    case BR_WIRE_VARINT:
        return br_varint(p, end, &ret->value);
    case BR_WIRE_I64:
        if (end - p < 8)
            return NULL;
        ret->value = br_load64(p);
        return p + 8;
    case BR_WIRE_LEN:
        p = br_varint(p, end, &ret->value);
        if (!p || ret->value > (uint64_t)(end - p))
            return NULL;
        ret->data = p;
        return p + ret->value;
    case BR_WIRE_I32:
        if (end - p < 4)
            return NULL;
        ret->value = br_load32(p);
        return p + 4;
    default:
        return NULL;
    }
}
