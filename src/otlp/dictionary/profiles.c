/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rewrites ResourceProfiles for another dictionary. Fields keep their order and encoding; only what
 * holds indices is written anew.
 */
#include "otlp/dictionary/merger.h"
#include "otlp/fields.h"
#include "otlp/scan.h"

/* An index of one byte may take five in the merged dictionary. */
#define GROWTH 5
#define FIXED 48
#define SHORT 16 /* bytes that are copied at once, without looking at the length */

static void put_verbatim(struct br_merge *m, const struct br_field *f, const uint8_t *next)
{
    br_merger_put(m, f->at, (size_t)(next - f->at));
}

void br_merger_put_scope_field(struct br_merge *m, const struct br_field *f, const uint8_t *next)
{
    if (br_scan_tag(f) == BR_SCAN_LEN(BR_SCOPES_SCOPE))
        br_merger_put_attributes(m, BR_SCOPES_SCOPE, f->data, f->value, BR_SCOPE_ATTRIBUTES);
    else
        put_verbatim(m, f, next);
}

/* Zeros are written where they were: a ValueType that occurs twice is merged field by field. */
static void put_value_type(struct br_merge *m, const struct br_field *type, const uint8_t *end)
{
    uint8_t *start = br_merger_room(m, GROWTH * type->value + FIXED), *o = start;
    if (!o)
        return;
    *o++ = (uint8_t)BR_SCAN_LEN(type->number);
    uint8_t *body = ++o;
    for (const uint8_t *p = type->data; p < end;) {
        struct br_field f;
        const uint8_t *at = p;
        p = br_scan(p, end, &f);
        if (!p) {
            br_merger_fail(m, BR_EINVAL);
            return;
        }
        if (f.wire == BR_WIRE_VARINT && f.number <= BR_VALUE_TYPE_UNIT) {
            *o++ = (uint8_t)BR_SCAN_VARINT(f.number);
            o = br_put_index(o, br_merger_index(m, BR_TABLE_STRING, f.value));
        } else {
            o = br_put_bytes(o, at, (size_t)(p - at));
        }
    }
    br_merger_wrote(m, br_put_length_before(body, o));
}

/* A repeated index, packed or not. */
static void put_attributes(struct br_merge *m, const struct br_field *f)
{
    size_t len = f->wire == BR_WIRE_LEN ? f->value : 1;
    uint8_t *o = br_merger_room(m, GROWTH * len + FIXED);
    if (!o)
        return;
    *o++ = (uint8_t)br_scan_tag(f);
    if (f->wire == BR_WIRE_LEN) {
        uint8_t *list = ++o;
        o = br_merger_put_packed(m, BR_TABLE_ATTRIBUTE, f->data, f->data + f->value, o);
        o = br_put_length_before(list, o);
    } else {
        o = br_put_index(o, br_merger_index(m, BR_TABLE_ATTRIBUTE, f->value));
    }
    br_merger_wrote(m, o);
}

void br_merger_put_profile_field(struct br_merge *m, const struct br_field *f, const uint8_t *next)
{
    switch (br_scan_tag(f)) {
    case BR_SCAN_LEN(BR_PROFILE_SAMPLE_TYPE):
    case BR_SCAN_LEN(BR_PROFILE_PERIOD_TYPE):
        put_value_type(m, f, next);
        break;
    case BR_SCAN_LEN(BR_PROFILE_ATTRIBUTES):
    case BR_SCAN_VARINT(BR_PROFILE_ATTRIBUTES):
        put_attributes(m, f);
        break;
    default:
        put_verbatim(m, f, next);
    }
}

static inline uint8_t *copy_short(const struct br_merge *m, uint8_t *o, const uint8_t *p,
                                  size_t len)
{
    if (__builtin_expect(len <= SHORT && (size_t)(m->readable - p) >= SHORT, 1)) {
        memcpy(o, p, SHORT);
        return o + len;
    }
    return br_put_bytes(o, p, len);
}

/* Lists and unknown fields are written as they come, the two single indices at the end: where one
 * occurs twice, the last counts. */
void br_merger_put_sample(struct br_merge *m, const uint8_t *body, size_t len)
{
    const uint8_t *p = body, *end = p + len;
    uint8_t *o = br_merger_room(m, GROWTH * len + FIXED);
    if (__builtin_expect(!o, 0))
        return;
    uint64_t stack = 0, link = 0;
    *o++ = (uint8_t)BR_SCAN_LEN(BR_PROFILE_SAMPLES);
    uint8_t *sample = ++o;
    while (p && p < end) {
        struct br_field f;
        switch (*p) {
        case BR_SCAN_VARINT(BR_SAMPLE_STACK):
            p = br_scan_index(p + 1, end, &stack);
            continue;
        case BR_SCAN_VARINT(BR_SAMPLE_LINK):
            p = br_scan_index(p + 1, end, &link);
            continue;
        default:
            break;
        }
        const uint8_t *at = p;
        p = br_scan(p, end, &f);
        if (__builtin_expect(!p, 0))
            break;
        switch (br_scan_tag(&f)) {
        case BR_SCAN_VARINT(BR_SAMPLE_STACK):
            stack = f.value;
            break;
        case BR_SCAN_LEN(BR_SAMPLE_ATTRIBUTES): {
            *o++ = (uint8_t)BR_SCAN_LEN(BR_SAMPLE_ATTRIBUTES);
            uint8_t *list = ++o;
            o = br_merger_put_packed(m, BR_TABLE_ATTRIBUTE, f.data, p, o);
            o = br_put_length_before(list, o);
            break;
        }
        case BR_SCAN_VARINT(BR_SAMPLE_ATTRIBUTES):
            *o++ = (uint8_t)BR_SCAN_VARINT(BR_SAMPLE_ATTRIBUTES);
            o = br_put_index(o, br_merger_index(m, BR_TABLE_ATTRIBUTE, f.value));
            break;
        case BR_SCAN_VARINT(BR_SAMPLE_LINK):
            link = f.value;
            break;
        default:
            o = copy_short(m, o, at, (size_t)(p - at));
        }
    }
    if (__builtin_expect(!p, 0)) {
        br_merger_fail(m, BR_EINVAL);
        return;
    }
    uint32_t i = br_merger_index(m, BR_TABLE_STACK, stack);
    if (i) {
        *o++ = (uint8_t)BR_SCAN_VARINT(BR_SAMPLE_STACK);
        o = br_put_index(o, i);
    }
    i = link ? br_merger_index(m, BR_TABLE_LINK, link) : 0;
    if (i) {
        *o++ = (uint8_t)BR_SCAN_VARINT(BR_SAMPLE_LINK);
        o = br_put_index(o, i);
    }
    br_merger_wrote(m, br_put_length_before(sample, o));
    m->n_items++;
}

static void put_profile(struct br_merge *m, const struct br_field *profile, const uint8_t *end)
{
    struct br_open open = br_merger_open(m, BR_SCOPES_ITEMS, profile->value);
    for (const uint8_t *p = profile->data; p < end && !m->rc;) {
        struct br_field f;
        p = br_scan(p, end, &f);
        if (!p)
            br_merger_fail(m, BR_EINVAL);
        else if (br_scan_tag(&f) == BR_SCAN_LEN(BR_PROFILE_SAMPLES))
            br_merger_put_sample(m, f.data, f.value);
        else
            br_merger_put_profile_field(m, &f, p);
    }
    br_merger_close(m, open);
}

static void put_scope_profiles(struct br_merge *m, const struct br_field *scope, const uint8_t *end)
{
    struct br_open open = br_merger_open(m, BR_RESOURCES_SCOPES, scope->value);
    for (const uint8_t *p = scope->data; p < end && !m->rc;) {
        struct br_field f;
        p = br_scan(p, end, &f);
        if (!p)
            br_merger_fail(m, BR_EINVAL);
        else if (br_scan_tag(&f) == BR_SCAN_LEN(BR_SCOPES_ITEMS))
            put_profile(m, &f, p);
        else
            br_merger_put_scope_field(m, &f, p);
    }
    br_merger_close(m, open);
}

void br_merger_put_resource_profiles(struct br_merge *m, const struct br_part *part)
{
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    m->readable = end;
    struct br_open open = br_merger_open_part(m, part, (size_t)(end - p), true);
    while (p < end && !m->rc) {
        struct br_field f;
        p = br_scan(p, end, &f);
        if (!p)
            br_merger_fail(m, BR_EINVAL);
        else if (br_scan_tag(&f) == BR_SCAN_LEN(BR_RESOURCES_SCOPES))
            put_scope_profiles(m, &f, p);
        else if (br_scan_tag(&f) != BR_SCAN_LEN(BR_RESOURCES_RESOURCE))
            put_verbatim(m, &f, p);
    }
    br_merger_close_part(m, open);
}
