/* SPDX-License-Identifier: Apache-2.0 */
#include "base/steps.h"
#include "core/host.h"
#include "otlp/dictionary/merger.h"
#include "otlp/scan.h"

#define OUT_MIN 4096u

uint8_t *br_merger_room_slow(struct br_merge *m, size_t len)
{
    struct br_budget *b = &m->budget;
    size_t used = m->out ? m->out->len : 0, need = used + len;
    if (m->rc)
        return NULL;
    if (!m->out || need > m->out_cap) {
        br_budget_widen(b);
        size_t most = br_budget_resized(b, m->out_cap), want = (size_t)m->out_cap * 2;
        if (want < m->out_hint)
            want = m->out_hint;
        if (want < OUT_MIN)
            want = OUT_MIN;
        if (want < need)
            want = need;
        if (want > most)
            want = most;
        if (need > want) {
            br_merger_fail(m, BR_EFULL);
            return NULL;
        }
        struct br_buf *fresh = m->out ? NULL : br_buf_new(m->host->pool, want);
        if (m->out ? br_buf_reserve(&m->out, want) != 0 : !fresh) {
            br_merger_fail(m, BR_ENOMEM);
            return NULL;
        }
        if (fresh)
            m->out = fresh;
        b->used += want - m->out_cap;
        m->out_cap = (uint32_t)want;
    }
    return m->out->data + used;
}

void br_merger_put(struct br_merge *m, const void *data, size_t len)
{
    uint8_t *o = br_merger_room(m, len);
    if (o)
        br_merger_wrote(m, br_put_bytes(o, data, len));
    br_steps_add(len);
}

void br_merger_put_field(struct br_merge *m, uint32_t field, const uint8_t *data, size_t len)
{
    uint8_t *o = br_merger_room(m, br_len_size(field, len));
    if (o)
        br_merger_wrote(m, br_put_len(o, field, data, len));
}

void br_merger_put_attributes(struct br_merge *m, uint32_t field, const uint8_t *body, size_t len,
                              uint32_t attributes)
{
    if (!br_attributes_have_references(body, len, attributes)) {
        br_merger_put_field(m, field, body, len);
        return;
    }
    struct br_inliner in;
    int rc = br_merger_inliner(m, &in);
    if (!rc)
        rc = br_attributes_inline(&in, body, len, attributes);
    if (rc)
        br_merger_fail(m, rc);
    else
        br_merger_put_field(m, field, m->scratch->data, m->scratch->len);
}

struct br_open br_merger_open(struct br_merge *m, uint32_t field, size_t len)
{
    struct br_open open = {m->out ? m->out->len : 0, (uint32_t)br_varint_size(len)};
    uint8_t *o = br_merger_room(m, 1 + open.reserved);
    if (o) {
        *o = (uint8_t)BR_SCAN_LEN(field);
        br_merger_wrote(m, o + 1 + open.reserved);
    }
    return open;
}

void br_merger_close(struct br_merge *m, struct br_open open)
{
    if (m->rc)
        return;
    size_t len = m->out->len - open.at - 1 - open.reserved, size = br_varint_size(len);
    if (size > open.reserved && !br_merger_room(m, size - open.reserved))
        return;
    uint8_t *start = m->out->data + open.at;
    if (size != open.reserved)
        memmove(start + 1 + size, start + 1 + open.reserved, len);
    br_put_varint(start + 1, len);
    br_merger_wrote(m, start + 1 + size + len);
}

static struct br_merged_part *new_part(struct br_merge *m, enum br_part_kind kind)
{
    int rc = br_budget_grow(&m->budget, &m->parts, &m->cap_parts, (size_t)m->n_parts + 1,
                            sizeof *m->parts);
    if (rc) {
        br_merger_fail(m, rc);
        return NULL;
    }
    struct br_merged_part *part = &m->parts[m->n_parts++];
    *part = (struct br_merged_part){.kind = kind, .at = m->out ? m->out->len : 0};
    return part;
}

struct br_open br_merger_open_part(struct br_merge *m, const struct br_part *from, size_t len,
                                   bool inlined)
{
    struct br_merged_part *part = new_part(m, BR_PART_RESOURCE);
    struct br_open open = br_merger_open(m, 1, len);
    if (m->rc)
        return open;
    part->n_items = m->n_items;
    if (!from->res_len && !from->new_resource)
        return open;
    size_t res_len;
    const uint8_t *res = br_part_resource(from, &res_len);
    uint32_t before = m->out->len;
    if (inlined)
        br_merger_put_attributes(m, 1, res, res_len, BR_RESOURCE_ATTRIBUTES);
    else
        br_merger_put_field(m, 1, res, res_len);
    part->res_len = m->out->len - before;
    return open;
}

void br_merger_close_part(struct br_merge *m, struct br_open open)
{
    br_merger_close(m, open);
    if (m->rc)
        return;
    struct br_merged_part *part = &m->parts[m->n_parts - 1];
    const uint8_t *start = m->out->data + open.at, *end = m->out->data + m->out->len;
    struct br_field f;
    part->n_items = m->n_items - part->n_items;
    part->len = (uint32_t)(end - start);
    br_field_next(start, end, &f);
    part->body_at = part->res_at = part->res_body_at = (uint32_t)(f.data - start);
    if (part->res_len && br_field_next(f.data, end, &f))
        part->res_body_at = (uint32_t)(f.data - start);
}

void br_merger_put_other(struct br_merge *m, const struct br_part *from)
{
    struct br_merged_part *part = new_part(m, BR_PART_OTHER);
    if (!part)
        return;
    br_merger_put(m, from->raw, from->raw_len);
    part->len = from->raw_len;
    part->body_at = from->body_at;
}
