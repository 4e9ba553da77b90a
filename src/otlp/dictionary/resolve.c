/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/dictionary/dictionary.h"

#include "otlp/keyvalue.h"
#include "otlp/scan.h"
#include "otlp/walk/walk.h"

/* Largest number of levels of nested AnyValues in a request; the walk rejects requests with more
 * levels. */
#define DEPTH_MAX BR_WALK_DEPTH_MAX

static bool resolve_value_refers(const uint8_t *p, const uint8_t *end, unsigned depth);

static bool resolve_attribute_refers(const uint8_t *p, const uint8_t *end, unsigned depth)
{
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field))) {
        uint32_t tag = br_scan_tag(&field);
        if (tag == BR_SCAN_VARINT(BR_KEYVALUE_KEY_STRINDEX) && field.value)
            return true;
        if (tag == BR_SCAN_LEN(BR_KEYVALUE_VALUE) && resolve_value_refers(field.data, p, depth))
            return true;
    }
    return false;
}

/* Returns true if an element of an ArrayValue (or of a KeyValueList, if `pairs`) uses references
 * to strings. */
static bool resolve_list_refers(const uint8_t *p, const uint8_t *end, bool pairs, unsigned depth)
{
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) != BR_SCAN_LEN(BR_LIST_VALUES))
            continue;
        if (pairs ? resolve_attribute_refers(field.data, p, depth)
                  : resolve_value_refers(field.data, p, depth))
            return true;
    }
    return false;
}

static bool resolve_value_refers(const uint8_t *p, const uint8_t *end, unsigned depth)
{
    if (depth > DEPTH_MAX)
        return false;
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field))) {
        uint32_t tag = br_scan_tag(&field);
        if (tag == BR_SCAN_VARINT(BR_VALUE_STRINDEX))
            return true;
        if ((tag == BR_SCAN_LEN(BR_VALUE_LIST) || tag == BR_SCAN_LEN(BR_VALUE_MAP)) &&
            resolve_list_refers(field.data, p, field.number == BR_VALUE_MAP, depth + 1))
            return true;
    }
    return false;
}

bool br_value_has_references(const uint8_t *body, size_t len)
{
    return len && resolve_value_refers(body, body + len, 0);
}

bool br_attributes_have_references(const uint8_t *body, size_t len, uint32_t field)
{
    const uint8_t *p = body, *end = br_mem_end(p, len);
    struct br_field found;
    while (len && p < end && (p = br_scan(p, end, &found))) {
        if (br_scan_tag(&found) == BR_SCAN_LEN(field) && resolve_attribute_refers(found.data, p, 0))
            return true;
    }
    return false;
}

/* --- Writing ------------------------------------------------------------------------------- */

static int resolve_put(const struct br_inliner *in, const void *data, size_t len)
{
    return br_buf_append(in->out, data, len, in->max);
}

static int resolve_put_string(const struct br_inliner *in, uint32_t field, uint64_t index)
{
    struct br_entry entry = in->string(in->arg, index);
    uint8_t head[2 * BR_VARINT_MAX];
    uint8_t *p = br_put_varint(head, BR_TAG(field, BR_WIRE_LEN));
    p = br_put_varint(p, entry.len);
    int rc = resolve_put(in, head, (size_t)(p - head));
    return rc ? rc : resolve_put(in, entry.data, entry.len);
}

/* Begins a field whose length is not known yet. */
static int resolve_open_field(const struct br_inliner *in, uint32_t field, uint32_t *ret_at)
{
    uint8_t head[BR_VARINT_MAX + 1];
    uint8_t *p = br_put_varint(head, BR_TAG(field, BR_WIRE_LEN));
    *p++ = 0;
    int rc = resolve_put(in, head, (size_t)(p - head));
    *ret_at = (*in->out)->len;
    return rc;
}

static int resolve_close_field(const struct br_inliner *in, uint32_t at)
{
    static const uint8_t zeros[BR_VARINT_MAX] = {0};
    size_t len = (*in->out)->len - at, more = br_varint_size(len) - 1;
    int rc = resolve_put(in, zeros, more);
    if (rc)
        return rc;
    uint8_t *body = (*in->out)->data + at;
    if (more)
        memmove(body + more, body, len);
    br_put_varint(body - 1, len);
    return 0;
}

static int resolve_inline_value(const struct br_inliner *in, const uint8_t *p, const uint8_t *end,
                                unsigned depth);

/* Appends a KeyValue with references replaced by strings. A key as text has priority over a
 * reference, unless the text is empty. */
static int resolve_inline_attribute(const struct br_inliner *in, const uint8_t *p,
                                    const uint8_t *end, unsigned depth)
{
    struct br_field field;
    struct br_keyvalue kv;
    if (!br_keyvalue_read(p, (size_t)(end - p), &kv))
        return BR_EINVAL;
    bool has_key = kv.key_len > 0;
    int rc = !has_key && kv.key_index ? resolve_put_string(in, BR_KEYVALUE_KEY, kv.key_index) : 0;
    while (p < end && !rc) {
        const uint8_t *at = p;
        uint32_t body;
        p = br_scan(p, end, &field);
        uint32_t tag = br_scan_tag(&field);
        if (tag == BR_SCAN_VARINT(BR_KEYVALUE_KEY_STRINDEX) ||
            (tag == BR_SCAN_LEN(BR_KEYVALUE_KEY) && !has_key))
            continue;
        if (tag != BR_SCAN_LEN(BR_KEYVALUE_VALUE)) {
            rc = resolve_put(in, at, (size_t)(p - at));
            continue;
        }
        rc = resolve_open_field(in, BR_KEYVALUE_VALUE, &body);
        if (!rc)
            rc = resolve_inline_value(in, field.data, p, depth);
        if (!rc)
            rc = resolve_close_field(in, body);
    }
    return rc;
}

/* Appends a message whose fields `number` are AnyValues or, if `pairs`, KeyValues. */
static int resolve_inline_list(const struct br_inliner *in, const uint8_t *p, const uint8_t *end,
                               uint32_t number, bool pairs, unsigned depth)
{
    int rc = 0;
    while (p < end && !rc) {
        struct br_field field;
        const uint8_t *at = p;
        uint32_t body;
        p = br_scan(p, end, &field);
        if (!p)
            return BR_EINVAL;
        if (br_scan_tag(&field) != BR_SCAN_LEN(number)) {
            rc = resolve_put(in, at, (size_t)(p - at));
            continue;
        }
        rc = resolve_open_field(in, number, &body);
        if (!rc)
            rc = pairs ? resolve_inline_attribute(in, field.data, p, depth)
                       : resolve_inline_value(in, field.data, p, depth);
        if (!rc)
            rc = resolve_close_field(in, body);
    }
    return rc;
}

static int resolve_inline_value(const struct br_inliner *in, const uint8_t *p, const uint8_t *end,
                                unsigned depth)
{
    if (depth > DEPTH_MAX)
        return BR_EINVAL;
    int rc = 0;
    while (p < end && !rc) {
        struct br_field field;
        const uint8_t *at = p;
        uint32_t body;
        p = br_scan(p, end, &field);
        if (!p)
            return BR_EINVAL;
        uint32_t tag = br_scan_tag(&field);
        if (tag == BR_SCAN_VARINT(BR_VALUE_STRINDEX)) {
            rc = resolve_put_string(in, BR_VALUE_STRING, field.value);
        } else if (tag == BR_SCAN_LEN(BR_VALUE_LIST) || tag == BR_SCAN_LEN(BR_VALUE_MAP)) {
            rc = resolve_open_field(in, field.number, &body);
            if (!rc)
                rc = resolve_inline_list(in, field.data, p, BR_LIST_VALUES,
                                         field.number == BR_VALUE_MAP, depth + 1);
            if (!rc)
                rc = resolve_close_field(in, body);
        } else {
            rc = resolve_put(in, at, (size_t)(p - at));
        }
    }
    return rc;
}

int br_value_inline(const struct br_inliner *in, const uint8_t *body, size_t len)
{
    return len ? resolve_inline_value(in, body, body + len, 0) : 0;
}

int br_attributes_inline(const struct br_inliner *in, const uint8_t *body, size_t len,
                         uint32_t field)
{
    return len ? resolve_inline_list(in, body, body + len, field, true, 0) : 0;
}
