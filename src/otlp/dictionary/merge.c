/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "core/host.h"
#include "otlp/dictionary/merger.h"

#define OUTLINE_ALIGN ((uint32_t)sizeof(uint32_t))
#define OUTLINE_ROOM (OUTLINE_ALIGN + sizeof(struct br_outline))
#define DICTIONARY 2 /* field number of the dictionary in the request */
/* maximum memory in bytes that is kept for the next batch, separately for the tables, the scratch
 * buffer and the source dictionary */
#define KEPT_MAX (4u << 20)

void br_merger_init(struct br_merge *merge, struct br_host *host, size_t max_bytes)
{
    /* Each part of the result must fit into a buffer. */
    size_t most = BR_BUF_MAX - 2 * BR_VARINT_MAX - OUTLINE_ROOM;
    merge->host = host;
    merge->max_bytes = max_bytes < most ? max_bytes : most;
    merge->budget.max = merge->source.budget.max = merge->max_bytes;
}

/* Frees all memory and discards the merged data. */
static void merge_shrink(struct br_merge *merge)
{
    for (size_t i = 0; i < BR_TABLES; i++)
        br_intern_release(&merge->tables[i], &merge->budget);
    br_budget_free(&merge->budget, &merge->parts, &merge->cap_parts, sizeof *merge->parts);
    merge->n_parts = merge->n_records = 0;
    merge->budget.used -= merge->out_cap;
    merge->out_cap = 0;
    merge->out = br_buf_unref(merge->out);
    merge->scratch = br_buf_unref(merge->scratch);
}

void br_merger_release(struct br_merge *merge)
{
    merge_shrink(merge);
    br_source_release(&merge->source);
}

void br_merger_clear(struct br_merge *merge)
{
    merge->rc = 0;
    merge->n_parts = merge->n_records = 0;
    if (merge->out)
        merge->out->len = 0;
    if (merge->budget.used > merge->budget.max / 2 || merge->budget.used > KEPT_MAX)
        merge_shrink(merge);
    if (merge->scratch && merge->scratch->cap > KEPT_MAX)
        merge->scratch = br_buf_unref(merge->scratch);
    for (size_t i = 0; i < BR_TABLES; i++) {
        struct br_intern *intern = &merge->tables[i];
        if (intern->count && !intern->n_slots)
            br_intern_release(intern, &merge->budget);
        else if (intern->count)
            br_intern_clear(intern);
    }
}

int br_merger_begin(struct br_merge *merge)
{
    merge->rc = 0;
    for (uint32_t i = 0; i < BR_TABLES; i++) {
        int rc =
            merge->tables[i].count ? 0 : br_intern_init(&merge->tables[i], &merge->budget, i + 1);
        if (rc)
            return rc;
    }
    return 0;
}

void br_merger_mark(const struct br_merge *merge, struct br_merger_mark *ret)
{
    for (size_t i = 0; i < BR_TABLES; i++) {
        ret->count[i] = merge->tables[i].count;
        ret->len[i] = merge->tables[i].len;
    }
    ret->out_len = merge->out ? merge->out->len : 0;
    ret->n_parts = merge->n_parts;
    ret->n_records = merge->n_records;
}

void br_merger_restore(struct br_merge *merge, const struct br_merger_mark *mark)
{
    for (size_t i = 0; i < BR_TABLES; i++)
        br_intern_truncate(&merge->tables[i], mark->count[i], mark->len[i]);
    if (merge->out)
        merge->out->len = mark->out_len;
    merge->n_parts = mark->n_parts;
    merge->n_records = mark->n_records;
    merge->rc = 0;
}

struct br_merge *br_merge_new(struct br_host *host, size_t max_bytes)
{
    struct br_merge *merge = br_calloc(1, sizeof *merge);
    if (merge)
        br_merger_init(merge, host, max_bytes);
    return merge;
}

void br_merge_free(struct br_merge *merge)
{
    if (!merge)
        return;
    br_merger_release(merge);
    br_free(merge);
}

static int merge_add(struct br_merge *merge, const struct br_item *item)
{
    int rc = br_merger_begin(merge);
    if (rc)
        return rc;
    struct br_merger_mark mark;
    br_merger_mark(merge, &mark);
    br_merger_fail(merge, br_source_load(&merge->source, item));
    br_merger_recall(merge);
    for (uint32_t i = 0; i < item->n_parts && !merge->rc; i++) {
        const struct br_part *part = &item->parts[i];
        if (part->kind == BR_PART_RESOURCE)
            br_merger_put_resource_profiles(merge, part);
        else if (part->kind == BR_PART_OTHER)
            br_merger_put_other(merge, part);
    }
    rc = merge->rc;
    if (rc) {
        br_merger_restore(merge, &mark);
        br_source_forget(&merge->source);
    }
    return rc;
}

int br_merge_add(struct br_merge *merge, const struct br_item *item)
{
    int rc = merge_add(merge, item);
    if (rc != BR_EFULL || merge->n_parts)
        return rc;
    /* Retry with empty tables: memory kept from earlier requests may count against the limit. */
    br_merger_release(merge);
    return merge_add(merge, item);
}

uint32_t br_merge_records(const struct br_merge *merge)
{
    return merge->n_records;
}

static size_t merge_dictionary_size(const struct br_merge *merge)
{
    size_t size = 0;
    for (size_t i = 0; i < BR_TABLES; i++)
        size += merge->tables[i].len;
    return size;
}

size_t br_merge_size(const struct br_merge *merge)
{
    return merge->n_parts ? merge->out->len + br_len_size(DICTIONARY, merge_dictionary_size(merge))
                          : 0;
}

size_t br_merge_memory(const struct br_merge *merge)
{
    return merge->budget.used - merge->out_cap + merge->source.budget.used;
}

static int merge_take_parts(const struct br_merge *merge, struct br_item *into)
{
    for (uint32_t i = 0; i < merge->n_parts; i++) {
        const struct br_merged_part *from = &merge->parts[i];
        struct br_part part = {.kind = from->kind,
                               .n_records = from->n_records,
                               .buf = merge->out,
                               .raw = merge->out->data + from->at,
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

/* Writes the tables one after another, followed by the outline (struct br_outline), which contains
 * the position of each table. */
static void merge_put_tables(const struct br_merge *merge, struct br_part *part, uint8_t *out)
{
    struct br_outline outline;
    for (size_t i = 0; i < BR_TABLES; i++) {
        outline.at[i] = (uint32_t)(out - part->raw);
        outline.count[i] = merge->tables[i].count;
        out = br_put_bytes(out, merge->tables[i].bytes, merge->tables[i].len);
    }
    outline.at[BR_TABLES] = part->raw_len = (uint32_t)(out - part->raw);
    part->outline_at = (part->raw_len + OUTLINE_ALIGN - 1) & ~(OUTLINE_ALIGN - 1);
    memcpy(part->buf->data + part->outline_at, &outline, sizeof outline);
}

static int merge_take_dictionary(const struct br_merge *merge, struct br_item *into)
{
    size_t size = merge_dictionary_size(merge);
    struct br_buf *buf =
        br_buf_new(merge->host->pool, br_len_size(DICTIONARY, size) + OUTLINE_ROOM);
    if (!buf)
        return BR_ENOMEM;
    uint8_t *o = buf->data;
    *o++ = BR_TAG(DICTIONARY, BR_WIRE_LEN);
    o = br_put_varint(o, size);
    struct br_part part = {.kind = BR_PART_DICTIONARY, .buf = buf, .raw = buf->data};
    part.body_at = (uint32_t)(o - buf->data);
    merge_put_tables(merge, &part, o);
    buf->len = part.raw_len;
    int rc = br_item_add_part(into, &part);
    br_buf_unref(buf);
    return rc;
}

int br_merger_take(struct br_merge *merge, struct br_item *into, bool dictionary)
{
    if (merge->n_parts == 0)
        return 0;
    int rc = merge_take_parts(merge, into);
    if (!rc && dictionary)
        rc = merge_take_dictionary(merge, into);
    if (rc) {
        br_item_clear_parts(into);
        return rc;
    }
    merge->out_hint =
        /* the hint is larger by a sixteenth, because the next output may be slightly larger */
        merge->out->len + merge->out->len / 16;
    merge->budget.used -= merge->out_cap;
    merge->out_cap = 0;
    merge->out = br_buf_unref(merge->out);
    br_merger_clear(merge);
    return 0;
}

int br_merge_take(struct br_merge *merge, struct br_item *into)
{
    int rc = br_merger_take(merge, into, true);
    if (!rc && merge->source.budget.used > KEPT_MAX)
        br_source_release(&merge->source);
    else if (!rc)
        br_source_forget(&merge->source);
    return rc;
}
