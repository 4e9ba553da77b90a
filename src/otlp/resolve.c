/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/resolve.h"

#include "otlp/scan.h"
#include "otlp/walk.h"

/* Levels of AnyValue; the walk lets no more pass. */
#define DEPTH_MAX BR_WALK_DEPTH_MAX

enum { KEY = 1, VALUE = 2, KEY_STRINDEX = 3 };                                     /* KeyValue */
enum { STRING_VALUE = 1, ARRAY_VALUE = 5, KVLIST_VALUE = 6, STRING_STRINDEX = 8 }; /* AnyValue */

static bool value_refers(const uint8_t *p, const uint8_t *end, unsigned depth);

static bool attribute_refers(const uint8_t *p, const uint8_t *end, unsigned depth)
{
    struct br_field f;
    while (p < end && (p = br_scan(p, end, &f))) {
        uint32_t tag = br_scan_tag(&f);
        if (tag == BR_SCAN_VARINT(KEY_STRINDEX) && f.value)
            return true;
        if (tag == BR_SCAN_LEN(VALUE) && value_refers(f.data, p, depth))
            return true;
    }
    return false;
}

/* The elements of an ArrayValue or KeyValueList. */
static bool list_refers(const uint8_t *p, const uint8_t *end, bool pairs, unsigned depth)
{
    struct br_field f;
    while (p < end && (p = br_scan(p, end, &f))) {
        if (br_scan_tag(&f) != BR_SCAN_LEN(1))
            continue;
        if (pairs ? attribute_refers(f.data, p, depth) : value_refers(f.data, p, depth))
            return true;
    }
    return false;
}

static bool value_refers(const uint8_t *p, const uint8_t *end, unsigned depth)
{
    if (depth > DEPTH_MAX)
        return false;
    struct br_field f;
    while (p < end && (p = br_scan(p, end, &f))) {
        uint32_t tag = br_scan_tag(&f);
        if (tag == BR_SCAN_VARINT(STRING_STRINDEX))
            return true;
        if ((tag == BR_SCAN_LEN(ARRAY_VALUE) || tag == BR_SCAN_LEN(KVLIST_VALUE)) &&
            list_refers(f.data, p, f.number == KVLIST_VALUE, depth + 1))
            return true;
    }
    return false;
}

bool br_value_has_references(const uint8_t *body, size_t len)
{
    return len && value_refers(body, body + len, 0);
}

bool br_attributes_have_references(const uint8_t *body, size_t len, uint32_t field)
{
    const uint8_t *p = body, *end = p + len;
    struct br_field f;
    while (len && p < end && (p = br_scan(p, end, &f))) {
        if (br_scan_tag(&f) == BR_SCAN_LEN(field) && attribute_refers(f.data, p, 0))
            return true;
    }
    return false;
}

/* --- Writing ------------------------------------------------------------------------------- */

static int put(const struct br_inliner *in, const void *data, size_t len)
{
    return br_buf_append(in->out, data, len, in->max);
}

static int put_string(const struct br_inliner *in, uint32_t field, uint64_t i)
{
    struct br_entry s = in->string(in->arg, i);
    uint8_t head[2 * BR_VARINT_MAX];
    uint8_t *p = br_put_varint(head, BR_TAG(field, BR_WIRE_LEN));
    p = br_put_varint(p, s.len);
    int rc = put(in, head, (size_t)(p - head));
    return rc ? rc : put(in, s.data, s.len);
}

/* Starts a field whose length is not known yet. */
static int open_field(const struct br_inliner *in, uint32_t field, uint32_t *ret_at)
{
    uint8_t head[BR_VARINT_MAX + 1];
    uint8_t *p = br_put_varint(head, BR_TAG(field, BR_WIRE_LEN));
    *p++ = 0;
    int rc = put(in, head, (size_t)(p - head));
    *ret_at = (*in->out)->len;
    return rc;
}

static int close_field(const struct br_inliner *in, uint32_t at)
{
    static const uint8_t zeros[BR_VARINT_MAX] = {0};
    size_t len = (*in->out)->len - at, more = br_varint_size(len) - 1;
    int rc = put(in, zeros, more);
    if (rc)
        return rc;
    uint8_t *body = (*in->out)->data + at;
    if (more)
        memmove(body + more, body, len);
    br_put_varint(body - 1, len);
    return 0;
}

static int inline_value(const struct br_inliner *in, const uint8_t *p, const uint8_t *end,
                        unsigned depth);

/* An inline key beats a reference; a reference beats an empty inline key. */
static int inline_attribute(const struct br_inliner *in, const uint8_t *p, const uint8_t *end,
                            unsigned depth)
{
    struct br_field f;
    bool has_key = false;
    uint64_t reference = 0;
    for (const uint8_t *q = p; q < end;) {
        q = br_scan(q, end, &f);
        if (!q)
            return BR_EINVAL;
        uint32_t tag = br_scan_tag(&f);
        if (tag == BR_SCAN_LEN(KEY))
            has_key = f.value > 0;
        else if (tag == BR_SCAN_VARINT(KEY_STRINDEX))
            reference = f.value;
    }
    int rc = !has_key && reference ? put_string(in, KEY, reference) : 0;
    while (p < end && !rc) {
        const uint8_t *at = p;
        uint32_t body;
        p = br_scan(p, end, &f);
        uint32_t tag = br_scan_tag(&f);
        if (tag == BR_SCAN_VARINT(KEY_STRINDEX) || (tag == BR_SCAN_LEN(KEY) && !has_key))
            continue;
        if (tag != BR_SCAN_LEN(VALUE)) {
            rc = put(in, at, (size_t)(p - at));
            continue;
        }
        rc = open_field(in, VALUE, &body);
        if (!rc)
            rc = inline_value(in, f.data, p, depth);
        if (!rc)
            rc = close_field(in, body);
    }
    return rc;
}

/* A message of which the fields `number` are AnyValues or, when `pairs`, KeyValues. */
static int inline_list(const struct br_inliner *in, const uint8_t *p, const uint8_t *end,
                       uint32_t number, bool pairs, unsigned depth)
{
    int rc = 0;
    while (p < end && !rc) {
        struct br_field f;
        const uint8_t *at = p;
        uint32_t body;
        p = br_scan(p, end, &f);
        if (!p)
            return BR_EINVAL;
        if (br_scan_tag(&f) != BR_SCAN_LEN(number)) {
            rc = put(in, at, (size_t)(p - at));
            continue;
        }
        rc = open_field(in, number, &body);
        if (!rc)
            rc =
                pairs ? inline_attribute(in, f.data, p, depth) : inline_value(in, f.data, p, depth);
        if (!rc)
            rc = close_field(in, body);
    }
    return rc;
}

static int inline_value(const struct br_inliner *in, const uint8_t *p, const uint8_t *end,
                        unsigned depth)
{
    if (depth > DEPTH_MAX)
        return BR_EINVAL;
    int rc = 0;
    while (p < end && !rc) {
        struct br_field f;
        const uint8_t *at = p;
        uint32_t body;
        p = br_scan(p, end, &f);
        if (!p)
            return BR_EINVAL;
        uint32_t tag = br_scan_tag(&f);
        if (tag == BR_SCAN_VARINT(STRING_STRINDEX)) {
            rc = put_string(in, STRING_VALUE, f.value);
        } else if (tag == BR_SCAN_LEN(ARRAY_VALUE) || tag == BR_SCAN_LEN(KVLIST_VALUE)) {
            rc = open_field(in, f.number, &body);
            if (!rc)
                rc = inline_list(in, f.data, p, 1, f.number == KVLIST_VALUE, depth + 1);
            if (!rc)
                rc = close_field(in, body);
        } else {
            rc = put(in, at, (size_t)(p - at));
        }
    }
    return rc;
}

int br_value_inline(const struct br_inliner *in, const uint8_t *body, size_t len)
{
    return len ? inline_value(in, body, body + len, 0) : 0;
}

int br_attributes_inline(const struct br_inliner *in, const uint8_t *body, size_t len,
                         uint32_t field)
{
    return len ? inline_list(in, body, body + len, field, true, 0) : 0;
}
