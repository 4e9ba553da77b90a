/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"
#include "profile/jfr/jfr.h"

#include "base/steps.h"
#include "wire/protobuf.h"

#define HIGH_BITS 0x8080808080808080u

static uint64_t jfr_bytes_fail(struct br_jfr_in *in)
{
    in->bad = true;
    in->p = in->end;
    return 0;
}

const uint8_t *br_jfr_varint_slow(const uint8_t *p, const uint8_t *end, uint64_t *ret)
{
    uint64_t v = 0;
    if (__builtin_expect(end - p >= 8, 1)) {
        uint64_t eight = br_load64(p), last = ~eight & HIGH_BITS;
        if (__builtin_expect(last != 0, 1)) {
            *ret = br_varint_join(eight & (last ^ (last - 1)));
            return p + (__builtin_ctzll(last) >> 3) + 1;
        }
    }
    for (unsigned shift = 0; shift < 56; shift += 7) {
        if (p == end)
            return NULL;
        uint8_t b = *p++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            *ret = v;
            return p;
        }
    }
    if (p == end)
        return NULL;
    *ret = v | (uint64_t)*p << 56;
    return p + 1;
}

uint64_t br_jfr_big_endian(const uint8_t *p, unsigned count)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < count; i++)
        v = v << 8 | p[i];
    return v;
}

void br_jfr_skip(struct br_jfr_in *in, uint64_t count)
{
    if ((uint64_t)(in->end - in->p) < count)
        (void)jfr_bytes_fail(in);
    else
        in->p += count;
}

/* Returns true if the next eight characters are ASCII, one byte each. */
static bool jfr_bytes_are_ascii(const struct br_jfr_in *in)
{
    return in->end - in->p >= 8 && !(br_load64(in->p) & HIGH_BITS);
}

static void jfr_bytes_skip_chars(struct br_jfr_in *in)
{
    uint32_t n = br_jfr_int(in);
    if (!in->packed) {
        br_jfr_skip(in, (uint64_t)n * 2);
        return;
    }
    while (n && !in->bad) {
        if (n >= 8 && jfr_bytes_are_ascii(in)) {
            in->p += 8;
            n -= 8;
            continue;
        }
        (void)br_jfr_varint(in);
        n--;
    }
}

void br_jfr_skip_string(struct br_jfr_in *in)
{
    switch (br_jfr_fixed(in, 1)) {
    case 0: /* encoding of a null string */
    case 1: /* encoding of an empty string */
        return;
    case 2: /* reference to the string pool */
        (void)br_jfr_long(in);
        return;
    case 3: /* UTF-8 */
    case 5: /* Latin-1 */
        br_jfr_skip(in, br_jfr_int(in));
        return;
    case 4: /* UTF-16 code units */
        jfr_bytes_skip_chars(in);
        return;
    default:
        (void)jfr_bytes_fail(in);
    }
}

static void jfr_bytes_add_point(struct br_str *out, uint32_t code_point)
{
    char bytes[BR_UTF8_MAX];
    br_str_add(out, bytes, br_utf8_encode(code_point, bytes));
}

static void jfr_bytes_add_latin1(struct br_jfr_in *in, struct br_str *out)
{
    uint32_t n = br_jfr_int(in);
    if ((size_t)(in->end - in->p) < n)
        return;
    for (uint32_t i = 0; i < n && !out->failed; i++)
        jfr_bytes_add_point(out, in->p[i]);
}

static void jfr_bytes_add_utf16(struct br_jfr_in *in, struct br_str *out)
{
    uint32_t n = br_jfr_int(in), high = 0;
    for (; n && !out->failed; n--) {
        if (in->packed && !high && n >= 8 && jfr_bytes_are_ascii(in)) {
            br_str_add(out, in->p, 8);
            in->p += 8;
            n -= 7;
            continue;
        }
        uint32_t u = (uint32_t)(in->packed ? br_jfr_varint(in) : br_jfr_fixed(in, 2)) & 0xffff;
        if (in->bad)
            return;
        if (high && u >> 10 == 0x37) {
            jfr_bytes_add_point(out, 0x10000 + ((high & 0x3ff) << 10 | (u & 0x3ff)));
            high = 0;
            continue;
        }
        if (high)
            jfr_bytes_add_point(out, 0xfffd);
        high = u >> 10 == 0x36 ? u : 0;
        if (!high)
            jfr_bytes_add_point(out, u >> 10 == 0x37 ? 0xfffd : u);
    }
    if (high)
        jfr_bytes_add_point(out, 0xfffd);
}

struct br_jfr_entry *br_jfr_pooled(const struct br_jfr_chunk *chunk, uint64_t at)
{
    struct br_jfr_in in = br_jfr_at(chunk, at);
    if (br_jfr_fixed(&in, 1) != 2)
        return NULL;
    return br_jfr_ids_find(&chunk->pools[BR_JFR_STRING], br_jfr_long(&in));
}

void br_jfr_text(const struct br_jfr_chunk *chunk, uint64_t at, struct br_str *out)
{
    /* Only one reference is followed. A pooled string that refers to the pool again is
     * malformed. */
    const struct br_jfr_entry *entry = br_jfr_pooled(chunk, at);
    struct br_jfr_in in = br_jfr_at(chunk, entry ? entry->at : at);
    uint64_t encoding = br_jfr_fixed(&in, 1);
    if (encoding == 3) {
        uint32_t n = br_jfr_int(&in);
        if ((size_t)(in.end - in.p) >= n)
            br_str_add(out, in.p, n);
    } else if (encoding == 4) {
        jfr_bytes_add_utf16(&in, out);
    } else if (encoding == 5) {
        jfr_bytes_add_latin1(&in, out);
    }
}
