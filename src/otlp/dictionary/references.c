/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "core/host.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/dictionary/merger.h"
#include "otlp/edit/edit.h"
#include "otlp/scan.h"

/* Bytes reserved for the length of a message that is being written. */
#define LEN_MAX 5

enum { SCOPE = 1, SCOPE_PROFILES = 2, ATTRIBUTE_TABLE = 6, ATTRIBUTE_VALUE = 2 };

/* --- Looking ------------------------------------------------------------------------------- */

static bool references_resource_refers(const struct br_part *part)
{
    size_t len;
    const uint8_t *resource = br_part_resource(part, &len);
    return len && br_attributes_have_references(resource, len, BR_RESOURCE_ATTRIBUTES);
}

/* Returns true if the scope of a ScopeProfiles uses references to strings. */
static bool references_scope_refers(const uint8_t *p, const uint8_t *end)
{
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) == BR_SCAN_LEN(SCOPE) &&
            br_attributes_have_references(field.data, field.value, BR_SCOPE_ATTRIBUTES))
            return true;
    }
    return false;
}

/* Returns true if the value of an entry of the attribute table uses references to strings. */
static bool references_entry_refers(const uint8_t *p, const uint8_t *end)
{
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) == BR_SCAN_LEN(ATTRIBUTE_VALUE) &&
            br_value_has_references(field.data, field.value))
            return true;
    }
    return false;
}

static bool references_body_refers(const struct br_part *part)
{
    const struct br_outline *outline = br_outline_of(part);
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field field;
    if (outline) {
        p = part->raw + outline->at[BR_TABLE_ATTRIBUTE];
        end = part->raw + outline->at[BR_TABLE_ATTRIBUTE + 1];
    }
    while (p < end && (p = br_scan(p, end, &field))) {
        uint32_t tag = br_scan_tag(&field);
        if (part->kind == BR_PART_RESOURCE && tag == BR_SCAN_LEN(SCOPE_PROFILES) &&
            references_scope_refers(field.data, p))
            return true;
        if (part->kind == BR_PART_DICTIONARY && tag == BR_SCAN_LEN(ATTRIBUTE_TABLE) &&
            references_entry_refers(field.data, p))
            return true;
    }
    return false;
}

bool br_item_has_references(const struct br_item *item)
{
    if (item->signal != BR_PROFILES)
        return false;
    for (uint32_t i = 0; i < item->n_parts; i++) {
        const struct br_part *part = &item->parts[i];
        if ((part->kind == BR_PART_RESOURCE && references_resource_refers(part)) ||
            (part->kind != BR_PART_OTHER && references_body_refers(part)))
            return true;
    }
    return false;
}

/* --- Writing ------------------------------------------------------------------------------- */

static struct br_entry references_view_string(const void *view, uint64_t index)
{
    return index > UINT32_MAX ? (struct br_entry){NULL, 0}
                              : br_dictionary_string(view, (uint32_t)index);
}

static int references_put(const struct br_inliner *in, const void *data, size_t len)
{
    return br_buf_append(in->out, data, len, in->max);
}

/* Begins a field with five bytes for its length. references_close_field writes the length and
 * removes the unused bytes. */
static int references_open_field(const struct br_inliner *in, uint32_t number, uint32_t *ret_at)
{
    const uint8_t head[1 + LEN_MAX] = {(uint8_t)BR_SCAN_LEN(number)};
    *ret_at = (*in->out)->len;
    return references_put(in, head, sizeof head);
}

static void references_close_field(const struct br_inliner *in, uint32_t at)
{
    struct br_buf *out = *in->out;
    size_t len = out->len - at - 1 - LEN_MAX;
    uint8_t *p = br_put_varint(out->data + at + 1, len);
    memmove(p, out->data + at + 1 + LEN_MAX, len);
    out->len = (uint32_t)(p + len - out->data);
}

/* Appends `field`, which ends at `next`, with references replaced by strings. */
typedef int field_fn(const struct br_inliner *in, const struct br_field *field,
                     const uint8_t *next);

static int references_put_message(const struct br_inliner *in, uint32_t number, const uint8_t *p,
                                  const uint8_t *end, field_fn *put_field)
{
    uint32_t at;
    int rc = references_open_field(in, number, &at);
    while (p < end && !rc) {
        struct br_field field;
        p = br_scan(p, end, &field);
        if (!p)
            return BR_EINVAL;
        rc = put_field(in, &field, p);
    }
    if (!rc)
        references_close_field(in, at);
    return rc;
}

static int references_put_scope_field(const struct br_inliner *in, const struct br_field *field,
                                      const uint8_t *next)
{
    if (br_scan_tag(field) != BR_SCAN_LEN(SCOPE))
        return references_put(in, field->at, (size_t)(next - field->at));
    uint32_t at;
    int rc = references_open_field(in, SCOPE, &at);
    if (!rc)
        rc = br_attributes_inline(in, field->data, field->value, BR_SCOPE_ATTRIBUTES);
    if (!rc)
        references_close_field(in, at);
    return rc;
}

static int references_put_resource_field(const struct br_inliner *in, const struct br_field *field,
                                         const uint8_t *next)
{
    if (br_scan_tag(field) == BR_SCAN_LEN(SCOPE_PROFILES) &&
        references_scope_refers(field->data, next))
        return references_put_message(in, SCOPE_PROFILES, field->data, next,
                                      references_put_scope_field);
    return references_put(in, field->at, (size_t)(next - field->at));
}

static int references_put_value_field(const struct br_inliner *in, const struct br_field *field,
                                      const uint8_t *next)
{
    if (br_scan_tag(field) != BR_SCAN_LEN(ATTRIBUTE_VALUE))
        return references_put(in, field->at, (size_t)(next - field->at));
    uint32_t at;
    int rc = references_open_field(in, ATTRIBUTE_VALUE, &at);
    if (!rc)
        rc = br_value_inline(in, field->data, field->value);
    if (!rc)
        references_close_field(in, at);
    return rc;
}

static int references_put_dictionary_field(const struct br_inliner *in,
                                           const struct br_field *field, const uint8_t *next)
{
    if (br_scan_tag(field) == BR_SCAN_LEN(ATTRIBUTE_TABLE) &&
        references_entry_refers(field->data, next))
        return references_put_message(in, ATTRIBUTE_TABLE, field->data, next,
                                      references_put_value_field);
    return references_put(in, field->at, (size_t)(next - field->at));
}

/* Adds references to the buffers of the dictionary to `hold`. The strings are read from these
 * buffers, which must outlive the replacement of the parts. */
static int references_hold_dictionary(const struct br_item *item, struct br_rope *hold)
{
    int rc = 0;
    for (uint32_t i = 0; i < item->n_parts && !rc; i++) {
        const struct br_part *part = &item->parts[i];
        if (part->kind == BR_PART_DICTIONARY)
            rc = br_rope_add(hold, part->buf, part->raw, part->raw_len);
    }
    return rc;
}

/* Rewrites a part, except its Resource, with references replaced by strings. */
static int references_rewrite_body(struct br_item *item, struct br_part *part,
                                   struct br_inliner *in)
{
    bool resource = part->kind == BR_PART_RESOURCE;
    struct br_buf *buf = br_buf_new(item->host->pool, part->raw_len);
    if (!buf)
        return BR_ENOMEM;
    in->out = &buf;
    int rc = references_put_message(
        in, resource ? 1 : 2, part->raw + part->body_at, part->raw + part->raw_len,
        resource ? references_put_resource_field : references_put_dictionary_field);
    in->out = NULL;
    if (rc) {
        br_buf_unref(buf);
        return rc;
    }
    br_part_set_bytes(item, part, buf);
    return 0;
}

static int references_rewrite_resource(struct br_item *item, struct br_part *part,
                                       struct br_inliner *in)
{
    size_t len;
    const uint8_t *resource = br_part_resource(part, &len);
    struct br_buf *buf = br_buf_new(item->host->pool, len);
    if (!buf)
        return BR_ENOMEM;
    in->out = &buf;
    int rc = br_attributes_inline(in, resource, len, BR_RESOURCE_ATTRIBUTES);
    in->out = NULL;
    if (!rc)
        br_item_set_resource(item, part, buf, buf->data, buf->len);
    br_buf_unref(buf);
    return rc;
}

int br_item_inline_references(struct br_item *item)
{
    if (!br_item_has_references(item))
        return 0;
    struct br_arena arena;
    struct br_dictionary_view view;
    struct br_rope hold = {0};
    br_arena_init(&arena, BR_BUF_MAX);
    int rc = br_dictionary_index(item, &arena, &view);
    if (!rc)
        rc = references_hold_dictionary(item, &hold);
    for (uint32_t i = 0; i < item->n_parts && !rc; i++) {
        struct br_part *part = &item->parts[i];
        struct br_inliner in = {NULL, BR_BUF_MAX, references_view_string, &view};
        if (part->kind != BR_PART_OTHER && references_body_refers(part))
            rc = references_rewrite_body(item, part, &in);
        if (!rc && part->kind == BR_PART_RESOURCE && references_resource_refers(part))
            rc = references_rewrite_resource(item, part, &in);
    }
    br_rope_release(&hold);
    br_arena_release(&arena);
    return rc;
}
