/* SPDX-License-Identifier: Apache-2.0 */
#include "base/steps.h"
#include "core/host.h"
#include "otlp/dictionary/merger.h"
#include "otlp/scan.h"

#define OUT_MIN 512u

uint8_t *br_merger_room_slow(struct br_merge *merge, size_t len)
{
    struct br_budget *budget = &merge->budget;
    size_t used = merge->out ? merge->out->len : 0, need = used + len;
    if (merge->rc)
        return NULL;
    if (!merge->out || need > merge->out_cap) {
        size_t most = br_budget_resized(budget, merge->out_cap), want = (size_t)merge->out_cap * 2;
        if (want < merge->out_hint)
            want = merge->out_hint;
        if (want < OUT_MIN)
            want = OUT_MIN;
        if (want < need)
            want = need;
        if (want > most)
            want = most;
        if (need > want) {
            br_merger_fail(merge, BR_EFULL);
            return NULL;
        }
        struct br_buf *fresh = merge->out ? NULL : br_buf_new(merge->host->pool, want);
        if (merge->out ? br_buf_reserve(&merge->out, want) != 0 : !fresh) {
            br_merger_fail(merge, BR_ENOMEM);
            return NULL;
        }
        if (fresh)
            merge->out = fresh;
        budget->used += want - merge->out_cap;
        merge->out_cap = (uint32_t)want;
    }
    return merge->out->data + used;
}

void br_merger_put(struct br_merge *merge, const void *data, size_t len)
{
    uint8_t *o = br_merger_room(merge, len);
    if (o)
        br_merger_wrote(merge, br_put_bytes(o, data, len));
    br_steps_add(len);
}

void br_merger_put_field(struct br_merge *merge, uint32_t field, const uint8_t *data, size_t len)
{
    uint8_t *o = br_merger_room(merge, br_len_size(field, len));
    if (o)
        br_merger_wrote(merge, br_put_len(o, field, data, len));
}

void br_merger_put_attributes(struct br_merge *merge, uint32_t field, const uint8_t *body,
                              size_t len, uint32_t attributes)
{
    if (!br_attributes_have_references(body, len, attributes)) {
        br_merger_put_field(merge, field, body, len);
        return;
    }
    struct br_inliner in;
    int rc = br_merger_inliner(merge, &in);
    if (!rc)
        rc = br_attributes_inline(&in, body, len, attributes);
    if (rc)
        br_merger_fail(merge, rc);
    else
        br_merger_put_field(merge, field, merge->scratch->data, merge->scratch->len);
}

struct br_open br_merger_open(struct br_merge *merge, uint32_t field, size_t len)
{
    struct br_open open = {merge->out ? merge->out->len : 0, (uint32_t)br_varint_size(len)};
    uint8_t *o = br_merger_room(merge, 1 + open.reserved);
    if (o) {
        *o = (uint8_t)BR_SCAN_LEN(field);
        br_merger_wrote(merge, o + 1 + open.reserved);
    }
    return open;
}

void br_merger_close(struct br_merge *merge, struct br_open open)
{
    if (merge->rc)
        return;
    size_t len = merge->out->len - open.at - 1 - open.reserved, size = br_varint_size(len);
    if (size > open.reserved && !br_merger_room(merge, size - open.reserved))
        return;
    uint8_t *start = merge->out->data + open.at;
    if (size != open.reserved)
        memmove(start + 1 + size, start + 1 + open.reserved, len);
    br_put_varint(start + 1, len);
    br_merger_wrote(merge, start + 1 + size + len);
}

static struct br_merged_part *merge_output_new_part(struct br_merge *merge, enum br_part_kind kind)
{
    int rc = br_budget_grow(&merge->budget, &merge->parts, &merge->cap_parts,
                            (size_t)merge->n_parts + 1, sizeof *merge->parts);
    if (rc) {
        br_merger_fail(merge, rc);
        return NULL;
    }
    struct br_merged_part *part = &merge->parts[merge->n_parts++];
    *part = (struct br_merged_part){.kind = kind, .at = merge->out ? merge->out->len : 0};
    return part;
}

struct br_open br_merger_open_part(struct br_merge *merge, const struct br_part *from, size_t len,
                                   bool inlined)
{
    struct br_merged_part *part = merge_output_new_part(merge, BR_PART_RESOURCE);
    struct br_open open = br_merger_open(merge, 1, len);
    if (merge->rc)
        return open;
    part->n_records = merge->n_records;
    if (!from->res_len && !from->new_resource)
        return open;
    size_t res_len;
    const uint8_t *res = br_part_resource(from, &res_len);
    uint32_t before = merge->out->len;
    if (inlined)
        br_merger_put_attributes(merge, 1, res, res_len, BR_RESOURCE_ATTRIBUTES);
    else
        br_merger_put_field(merge, 1, res, res_len);
    part->res_len = merge->out->len - before;
    return open;
}

void br_merger_close_part(struct br_merge *merge, struct br_open open)
{
    br_merger_close(merge, open);
    if (merge->rc)
        return;
    struct br_merged_part *part = &merge->parts[merge->n_parts - 1];
    const uint8_t *start = merge->out->data + open.at, *end = merge->out->data + merge->out->len;
    struct br_field field;
    part->n_records = merge->n_records - part->n_records;
    part->len = (uint32_t)(end - start);
    br_field_next(start, end, &field);
    part->body_at = part->res_at = part->res_body_at = (uint32_t)(field.data - start);
    if (part->res_len && br_field_next(field.data, end, &field))
        part->res_body_at = (uint32_t)(field.data - start);
}

void br_merger_put_other(struct br_merge *merge, const struct br_part *from)
{
    struct br_merged_part *part = merge_output_new_part(merge, BR_PART_OTHER);
    if (!part)
        return;
    br_merger_put(merge, from->raw, from->raw_len);
    part->len = from->raw_len;
    part->body_at = from->body_at;
}
