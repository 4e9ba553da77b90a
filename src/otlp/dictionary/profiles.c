/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rewrites ResourceProfiles for another dictionary. Fields keep their order and encoding; only
 * fields that contain indices are encoded anew.
 */
#include "otlp/dictionary/merger.h"
#include "otlp/fields.h"
#include "otlp/scan.h"

/* Largest number of bytes of an index in the merged dictionary, per byte of the index in the
 * source. */
#define GROWTH 5
#define FIXED 48
/* number of bytes that are always copied for a short field, because a copy of variable length is
 * slower */
#define SHORT 16

static void merge_profiles_put_verbatim(struct br_merge *merge, const struct br_field *field,
                                        const uint8_t *next)
{
    br_merger_put(merge, field->at, (size_t)(next - field->at));
}

static void merge_profiles_put_scope_field(struct br_merge *merge, const struct br_field *field,
                                           const uint8_t *next)
{
    if (br_scan_tag(field) == BR_SCAN_LEN(BR_SCOPES_SCOPE))
        br_merger_put_attributes(merge, BR_SCOPES_SCOPE, field->data, field->value,
                                 BR_SCOPE_ATTRIBUTES);
    else
        merge_profiles_put_verbatim(merge, field, next);
}

/* Writes a ValueType, including zeros. If a ValueType occurs twice, protobuf merges the two
 * occurrences field by field, and a zero in the second overrides the first. */
static void merge_profiles_put_value_type(struct br_merge *merge, const struct br_field *type,
                                          const uint8_t *end)
{
    uint8_t *start = br_merger_room(merge, GROWTH * type->value + FIXED), *o = start;
    if (!o)
        return;
    *o++ = (uint8_t)BR_SCAN_LEN(type->number);
    uint8_t *body = ++o;
    for (const uint8_t *p = type->data; p < end;) {
        struct br_field field;
        const uint8_t *at = p;
        p = br_scan(p, end, &field);
        if (!p) {
            br_merger_fail(merge, BR_EINVAL);
            return;
        }
        if (field.wire == BR_WIRE_VARINT && field.number <= BR_VALUE_TYPE_UNIT) {
            *o++ = (uint8_t)BR_SCAN_VARINT(field.number);
            o = br_put_index(o, br_merger_index(merge, BR_TABLE_STRING, field.value));
        } else {
            o = br_put_bytes(o, at, (size_t)(p - at));
        }
    }
    br_merger_wrote(merge, br_put_length_before(body, o));
}

/* Rewrites a field that is a list of attribute indices, packed or not, with merged indices. */
static void merge_profiles_put_attributes(struct br_merge *merge, const struct br_field *field)
{
    size_t len = field->wire == BR_WIRE_LEN ? field->value : 1;
    uint8_t *o = br_merger_room(merge, GROWTH * len + FIXED);
    if (!o)
        return;
    *o++ = (uint8_t)br_scan_tag(field);
    if (field->wire == BR_WIRE_LEN) {
        uint8_t *list = ++o;
        o = br_merger_put_packed(merge, BR_TABLE_ATTRIBUTE, field->data, field->data + field->value,
                                 o);
        o = br_put_length_before(list, o);
    } else {
        o = br_put_index(o, br_merger_index(merge, BR_TABLE_ATTRIBUTE, field->value));
    }
    br_merger_wrote(merge, o);
}

static void merge_profiles_put_profile_field(struct br_merge *merge, const struct br_field *field,
                                             const uint8_t *next)
{
    switch (br_scan_tag(field)) {
    case BR_SCAN_LEN(BR_PROFILE_SAMPLE_TYPE):
    case BR_SCAN_LEN(BR_PROFILE_PERIOD_TYPE):
        merge_profiles_put_value_type(merge, field, next);
        break;
    case BR_SCAN_LEN(BR_PROFILE_ATTRIBUTES):
    case BR_SCAN_VARINT(BR_PROFILE_ATTRIBUTES):
        merge_profiles_put_attributes(merge, field);
        break;
    default:
        merge_profiles_put_verbatim(merge, field, next);
    }
}

static bool merge_profiles_is_payload(const struct br_field *field)
{
    return field->number == BR_PROFILE_PAYLOAD_FORMAT || field->number == BR_PROFILE_PAYLOAD;
}

void br_merger_put_head(struct br_merge *merge, enum br_signal signal, unsigned level, bool payload,
                        const struct br_field *field, const uint8_t *next)
{
    if (level == BR_LEVEL_RESOURCE && br_scan_tag(field) == BR_SCAN_LEN(BR_RESOURCES_RESOURCE))
        return;
    if (level == BR_LEVEL_SCOPE && signal == BR_PROFILES)
        merge_profiles_put_scope_field(merge, field, next);
    else if (level != BR_LEVEL_PROFILE)
        merge_profiles_put_verbatim(merge, field, next);
    else if (payload || !merge_profiles_is_payload(field))
        merge_profiles_put_profile_field(merge, field, next);
}

static inline uint8_t *merge_profiles_copy_short(const struct br_merge *merge, uint8_t *out,
                                                 const uint8_t *p, size_t len)
{
    if (__builtin_expect(len <= SHORT && (size_t)(merge->readable - p) >= SHORT, 1)) {
        memcpy(out, p, SHORT);
        return out + len;
    }
    return br_put_bytes(out, p, len);
}

/* Rewrites a Sample. Lists and unknown fields are written in the order of the source. The stack
 * and link indices are written at the end, because the last occurrence of a scalar counts. */
void br_merger_put_sample(struct br_merge *merge, const uint8_t *body, size_t len)
{
    const uint8_t *p = body, *end = br_mem_end(p, len);
    uint8_t *o = br_merger_room(merge, GROWTH * len + FIXED);
    if (__builtin_expect(!o, 0))
        return;
    uint64_t stack = 0, link = 0;
    *o++ = (uint8_t)BR_SCAN_LEN(BR_PROFILE_SAMPLES);
    uint8_t *sample = ++o;
    while (p && p < end) {
        struct br_field field;
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
        p = br_scan(p, end, &field);
        if (__builtin_expect(!p, 0))
            break;
        switch (br_scan_tag(&field)) {
        case BR_SCAN_VARINT(BR_SAMPLE_STACK):
            stack = field.value;
            break;
        case BR_SCAN_LEN(BR_SAMPLE_ATTRIBUTES): {
            *o++ = (uint8_t)BR_SCAN_LEN(BR_SAMPLE_ATTRIBUTES);
            uint8_t *list = ++o;
            o = br_merger_put_packed(merge, BR_TABLE_ATTRIBUTE, field.data, p, o);
            o = br_put_length_before(list, o);
            break;
        }
        case BR_SCAN_VARINT(BR_SAMPLE_ATTRIBUTES):
            *o++ = (uint8_t)BR_SCAN_VARINT(BR_SAMPLE_ATTRIBUTES);
            o = br_put_index(o, br_merger_index(merge, BR_TABLE_ATTRIBUTE, field.value));
            break;
        case BR_SCAN_VARINT(BR_SAMPLE_LINK):
            link = field.value;
            break;
        default:
            o = merge_profiles_copy_short(merge, o, at, (size_t)(p - at));
        }
    }
    if (__builtin_expect(!p, 0)) {
        br_merger_fail(merge, BR_EINVAL);
        return;
    }
    uint32_t i = br_merger_index(merge, BR_TABLE_STACK, stack);
    if (i) {
        *o++ = (uint8_t)BR_SCAN_VARINT(BR_SAMPLE_STACK);
        o = br_put_index(o, i);
    }
    i = link ? br_merger_index(merge, BR_TABLE_LINK, link) : 0;
    if (i) {
        *o++ = (uint8_t)BR_SCAN_VARINT(BR_SAMPLE_LINK);
        o = br_put_index(o, i);
    }
    br_merger_wrote(merge, br_put_length_before(sample, o));
    merge->n_records++;
}

static void merge_profiles_put_profile(struct br_merge *merge, const struct br_field *profile,
                                       const uint8_t *end)
{
    struct br_open open = br_merger_open(merge, BR_SCOPES_RECORDS, profile->value);
    for (const uint8_t *p = profile->data; p < end && !merge->rc;) {
        struct br_field field;
        p = br_scan(p, end, &field);
        if (!p)
            br_merger_fail(merge, BR_EINVAL);
        else if (br_scan_tag(&field) == BR_SCAN_LEN(BR_PROFILE_SAMPLES))
            br_merger_put_sample(merge, field.data, field.value);
        else
            merge_profiles_put_profile_field(merge, &field, p);
    }
    br_merger_close(merge, open);
}

static void merge_profiles_put_scope(struct br_merge *merge, const struct br_field *scope,
                                     const uint8_t *end)
{
    struct br_open open = br_merger_open(merge, BR_RESOURCES_SCOPES, scope->value);
    for (const uint8_t *p = scope->data; p < end && !merge->rc;) {
        struct br_field field;
        p = br_scan(p, end, &field);
        if (!p)
            br_merger_fail(merge, BR_EINVAL);
        else if (br_scan_tag(&field) == BR_SCAN_LEN(BR_SCOPES_RECORDS))
            merge_profiles_put_profile(merge, &field, p);
        else
            merge_profiles_put_scope_field(merge, &field, p);
    }
    br_merger_close(merge, open);
}

void br_merger_put_resource_profiles(struct br_merge *merge, const struct br_part *part)
{
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    merge->readable = end;
    struct br_open open = br_merger_open_part(merge, part, (size_t)(end - p), true);
    while (p < end && !merge->rc) {
        struct br_field field;
        p = br_scan(p, end, &field);
        if (!p)
            br_merger_fail(merge, BR_EINVAL);
        else if (br_scan_tag(&field) == BR_SCAN_LEN(BR_RESOURCES_SCOPES))
            merge_profiles_put_scope(merge, &field, p);
        else if (br_scan_tag(&field) != BR_SCAN_LEN(BR_RESOURCES_RESOURCE))
            merge_profiles_put_verbatim(merge, &field, p);
    }
    br_merger_close_part(merge, open);
}
