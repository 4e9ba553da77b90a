/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "core/host.h"
#include "otlp/dictionary/merger.h"

#define DICTIONARY 2 /* field number in the request */
#define KEPT_MAX (4u << 20) /* bytes of tables, and of the source's, for the next batch */

void br_merger_init(struct br_merge *m, struct br_host *host, size_t max_bytes)
{
    /* What is taken out must fit into buffers. */
    size_t most = BR_BUF_MAX - 2 * BR_VARINT_MAX;
    m->host = host;
    m->max_bytes = max_bytes < most ? max_bytes : most;
    m->budget.max = m->source.budget.max = m->max_bytes;
}

/* Gives all memory back; what was merged is lost. */
static void shrink(struct br_merge *m)
{
    for (size_t i = 0; i < BR_TABLES; i++)
        br_intern_release(&m->tables[i], &m->budget);
    br_budget_free(&m->budget, &m->parts, &m->cap_parts, sizeof *m->parts);
    m->n_parts = m->n_items = 0;
    m->budget.used -= m->out_cap;
    m->out_cap = 0;
    m->out = br_buf_unref(m->out);
    m->scratch = br_buf_unref(m->scratch);
}

void br_merger_release(struct br_merge *m)
{
    shrink(m);
    br_source_release(&m->source);
}

void br_merger_clear(struct br_merge *m)
{
    m->rc = 0;
    m->n_parts = m->n_items = 0;
    if (m->out)
        m->out->len = 0;
    if (m->budget.used > m->budget.max / 2 || m->budget.used > KEPT_MAX)
        shrink(m);
    if (m->scratch && m->scratch->cap > KEPT_MAX)
        m->scratch = br_buf_unref(m->scratch);
    for (size_t i = 0; i < BR_TABLES; i++) {
        struct br_intern *t = &m->tables[i];
        if (t->n && !t->n_slots)
            br_intern_release(t, &m->budget);
        else if (t->n)
            br_intern_clear(t);
    }
}

int br_merger_begin(struct br_merge *m)
{
    m->rc = 0;
    for (uint32_t i = 0; i < BR_TABLES; i++) {
        int rc = m->tables[i].n ? 0 : br_intern_init(&m->tables[i], &m->budget, i + 1);
        if (rc)
            return rc;
    }
    return 0;
}

void br_merger_mark(const struct br_merge *m, struct br_merger_mark *ret)
{
    for (size_t i = 0; i < BR_TABLES; i++) {
        ret->n[i] = m->tables[i].n;
        ret->len[i] = m->tables[i].len;
    }
    ret->out_len = m->out ? m->out->len : 0;
    ret->n_parts = m->n_parts;
    ret->n_items = m->n_items;
}

void br_merger_restore(struct br_merge *m, const struct br_merger_mark *mark)
{
    for (size_t i = 0; i < BR_TABLES; i++)
        br_intern_truncate(&m->tables[i], mark->n[i], mark->len[i]);
    if (m->out)
        m->out->len = mark->out_len;
    m->n_parts = mark->n_parts;
    m->n_items = mark->n_items;
    m->rc = 0;
}

struct br_merge *br_merge_new(struct br_host *host, size_t max_bytes)
{
    struct br_merge *m = br_calloc(1, sizeof *m);
    if (m)
        br_merger_init(m, host, max_bytes);
    return m;
}

void br_merge_free(struct br_merge *m)
{
    if (!m)
        return;
    br_merger_release(m);
    br_free(m);
}

static int add(struct br_merge *m, const struct br_item *item)
{
    int rc = br_merger_begin(m);
    if (rc)
        return rc;
    struct br_merger_mark mark;
    br_merger_mark(m, &mark);
    br_merger_fail(m, br_source_load(&m->source, item));
    for (uint32_t i = 0; i < item->n_parts && !m->rc; i++) {
        const struct br_part *part = &item->parts[i];
        if (part->kind == BR_PART_RESOURCE)
            br_merger_put_resource_profiles(m, part);
        else if (part->kind == BR_PART_OTHER)
            br_merger_put_other(m, part);
    }
    rc = m->rc;
    if (rc) {
        br_merger_restore(m, &mark);
        br_source_forget(&m->source);
    }
    return rc;
}

int br_merge_add(struct br_merge *m, const struct br_item *item)
{
    int rc = add(m, item);
    if (rc != BR_EFULL || m->n_parts)
        return rc;
    /* The room may be taken by memory of the last batch, which had another shape. */
    br_merger_release(m);
    return add(m, item);
}

uint32_t br_merge_items(const struct br_merge *m)
{
    return m->n_items;
}

static size_t dictionary_size(const struct br_merge *m)
{
    size_t size = 0;
    for (size_t i = 0; i < BR_TABLES; i++)
        size += m->tables[i].len;
    return size;
}

size_t br_merge_size(const struct br_merge *m)
{
    return m->n_parts ? m->out->len + br_len_size(DICTIONARY, dictionary_size(m)) : 0;
}

size_t br_merge_memory(const struct br_merge *m)
{
    return m->budget.used - m->out_cap + m->source.budget.used;
}

static int take_parts(const struct br_merge *m, struct br_item *into)
{
    for (uint32_t i = 0; i < m->n_parts; i++) {
        const struct br_merged_part *from = &m->parts[i];
        struct br_part part = {.kind = from->kind,
                               .n_items = from->n_items,
                               .buf = m->out,
                               .raw = m->out->data + from->at,
                               .raw_len = from->len,
                               .body_at = from->body_at,
                               .res_at = from->res_at,
                               .res_len = from->res_len,
                               .res_body_at = from->res_body_at};
        int rc = br_item_add_part(into, &part);
        if (rc)
            return rc;
    }
    return 0;
}

static int take_dictionary(const struct br_merge *m, struct br_item *into)
{
    size_t size = dictionary_size(m);
    struct br_buf *buf = br_buf_new(m->host->pool, br_len_size(DICTIONARY, size));
    if (!buf)
        return BR_ENOMEM;
    uint8_t *o = buf->data;
    *o++ = BR_TAG(DICTIONARY, BR_WIRE_LEN);
    o = br_put_varint(o, size);
    struct br_part part = {.kind = BR_PART_DICTIONARY, .buf = buf, .raw = buf->data};
    part.body_at = (uint32_t)(o - buf->data);
    for (size_t i = 0; i < BR_TABLES; i++)
        o = br_put_bytes(o, m->tables[i].bytes, m->tables[i].len);
    part.raw_len = buf->len = (uint32_t)(o - buf->data);
    int rc = br_item_add_part(into, &part);
    br_buf_unref(buf);
    return rc;
}

int br_merger_take(struct br_merge *m, struct br_item *into, bool dictionary)
{
    if (m->n_parts == 0)
        return 0;
    int rc = take_parts(m, into);
    if (!rc && dictionary)
        rc = take_dictionary(m, into);
    if (rc) {
        br_item_clear_parts(into);
        return rc;
    }
    m->out_hint = m->out->len + m->out->len / 16; /* the next one is seldom as long to the byte */
    m->budget.used -= m->out_cap;
    m->out_cap = 0;
    m->out = br_buf_unref(m->out);
    br_merger_clear(m);
    return 0;
}

int br_merge_take(struct br_merge *m, struct br_item *into)
{
    int rc = br_merger_take(m, into, true);
    if (!rc && m->source.budget.used > KEPT_MAX)
        br_source_release(&m->source);
    else if (!rc)
        br_source_forget(&m->source);
    return rc;
}
