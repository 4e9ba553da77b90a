/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of both signals are trees whose children are always in field 2: ResourceX, ScopeX,
 * then spans, or profiles with samples. A piece consists of a range of leaves under copies of all
 * messages above them (their other fields are the heads).
 *
 * Leaves are added one at a time, after the messages above them are opened. A leaf that makes the
 * piece too large is removed again and starts the next piece. For profiles, the dictionary entries
 * of the leaf are removed as well.
 */
#include "base/mem.h"
#include "core/host.h"
#include "otlp/dictionary/merger.h"
#include "otlp/fields.h"
#include "otlp/scan.h"

enum { RESOURCE = BR_LEVEL_RESOURCE, LEVELS = BR_LEVELS };
#define CHILD BR_INWARD
/* Stands for the length of a message whose length is unknown. Five bytes are reserved for the
 * length prefix, and the body is moved when the message is closed. */
#define LONG_LEN UINT32_MAX
#define RANGES_MAX (1u << 24)

struct range {
    const uint8_t *data;
    size_t len;
};

struct level {
    struct range *heads; /* fields of the message other than its children, as contiguous ranges */
    uint32_t n_heads, cap_heads;
    struct br_open open;
    bool is_open;
    /* an earlier piece already contains the message's fields other than its children */
    bool written;
};

struct splitter {
    struct br_merge merge;
    const struct br_item *item;
    const struct br_part *part;
    unsigned n_levels;
    struct level levels[LEVELS];
    uint32_t max_items;
    size_t max_bytes;
    br_split_fn *fn;
    void *arg;
};

/* The state of the splitter before a leaf was added. */
struct state {
    struct br_merger_mark mark;
    struct br_open open[LEVELS];
    bool is_open[LEVELS], written[LEVELS];
};

static bool split_is_child(const struct br_field *field)
{
    return br_scan_tag(field) == BR_SCAN_LEN(CHILD);
}

static void split_save(const struct splitter *splitter, struct state *ret)
{
    br_merger_mark(&splitter->merge, &ret->mark);
    for (unsigned i = 0; i < LEVELS; i++) {
        ret->open[i] = splitter->levels[i].open;
        ret->is_open[i] = splitter->levels[i].is_open;
        ret->written[i] = splitter->levels[i].written;
    }
}

/* Restores a saved state. The caller must then call split_flush, which resets the source's maps. */
static void split_restore(struct splitter *splitter, const struct state *state)
{
    br_merger_restore(&splitter->merge, &state->mark);
    for (unsigned i = 0; i < LEVELS; i++) {
        splitter->levels[i].open = state->open[i];
        splitter->levels[i].is_open = state->is_open[i];
        splitter->levels[i].written = state->written[i];
    }
}

static void split_open_level(struct splitter *splitter, unsigned level)
{
    struct level *here = &splitter->levels[level];
    if (level == RESOURCE)
        here->open = br_merger_open_part(&splitter->merge, splitter->part, LONG_LEN,
                                         splitter->item->signal == BR_PROFILES);
    else
        here->open = br_merger_open(&splitter->merge, CHILD, LONG_LEN);
    for (uint32_t i = 0; i < here->n_heads; i++) {
        const uint8_t *p = here->heads[i].data, *end = p + here->heads[i].len;
        struct br_field field;
        while (p < end && !splitter->merge.rc && (p = br_scan(p, end, &field)))
            br_merger_put_head(&splitter->merge, splitter->item->signal, level, !here->written,
                               &field, p);
    }
    here->is_open = here->written = true;
}

/* Closes the open messages at `level` and at the levels below it. */
static void split_close_level(struct splitter *splitter, unsigned level)
{
    for (unsigned i = splitter->n_levels; i-- > level;) {
        if (!splitter->levels[i].is_open)
            continue;
        if (i == RESOURCE)
            br_merger_close_part(&splitter->merge, splitter->levels[i].open);
        else
            br_merger_close(&splitter->merge, splitter->levels[i].open);
        splitter->levels[i].is_open = false;
    }
}

static int split_begin_piece(struct splitter *splitter)
{
    if (splitter->item->signal != BR_PROFILES)
        return 0;
    br_source_reset_maps(&splitter->merge.source);
    return br_merger_begin(&splitter->merge);
}

/* Passes the current piece, if any, to the callback. */
static int split_flush(struct splitter *splitter)
{
    split_close_level(splitter, RESOURCE);
    if (splitter->merge.rc || splitter->merge.n_parts == 0)
        return splitter->merge.rc;
    struct br_item *piece = br_item_new(splitter->item->host, splitter->item->signal);
    if (!piece)
        return BR_ENOMEM;
    int rc = br_merger_take(&splitter->merge, piece, splitter->item->signal == BR_PROFILES);
    if (rc) {
        br_item_free(piece);
        return rc;
    }
    piece->received_ms = splitter->item->received_ms;
    rc = splitter->fn(piece, splitter->arg);
    return rc ? rc : split_begin_piece(splitter);
}

/* Opens the messages above a leaf and writes the leaf. If `leaf` is NULL, only opens the
 * messages down to `level`. */
static void split_put_leaf(struct splitter *splitter, unsigned level, const struct br_field *leaf,
                           const uint8_t *next)
{
    for (unsigned i = RESOURCE; i <= level && !splitter->merge.rc; i++) {
        if (!splitter->levels[i].is_open)
            split_open_level(splitter, i);
    }
    if (!leaf || splitter->merge.rc)
        return;
    if (splitter->item->signal == BR_PROFILES) {
        br_merger_put_sample(&splitter->merge, leaf->data, leaf->value);
    } else {
        br_merger_put(&splitter->merge, leaf->at, (size_t)(next - leaf->at));
        splitter->merge.n_records++;
    }
}

static size_t split_piece_size(const struct splitter *splitter)
{
    return splitter->item->signal == BR_PROFILES ? br_merge_size(&splitter->merge)
                                                 : splitter->merge.out->len;
}

static int split_add_leaf(struct splitter *splitter, unsigned level, const struct br_field *leaf,
                          const uint8_t *next)
{
    struct br_merge *merge = &splitter->merge;
    int rc = 0;
    if (leaf && splitter->max_items && merge->n_records >= splitter->max_items)
        rc = split_flush(splitter);
    if (rc)
        return rc;
    struct state before;
    split_save(splitter, &before);
    split_put_leaf(splitter, level, leaf, next);
    bool alone = before.mark.n_records == 0;
    bool fits = merge->rc == 0 &&
                (splitter->max_bytes == 0 || split_piece_size(splitter) <= splitter->max_bytes);
    if (fits || alone || (merge->rc && merge->rc != BR_EFULL))
        return merge->rc;
    split_restore(splitter, &before);
    rc = split_flush(splitter);
    if (!rc)
        split_put_leaf(splitter, level, leaf, next);
    return rc ? rc : merge->rc;
}

static int split_add_head(struct level *level, const uint8_t *p, const uint8_t *next)
{
    struct range *last = level->n_heads ? &level->heads[level->n_heads - 1] : NULL;
    if (last && last->data + last->len == p) {
        last->len += (size_t)(next - p);
        return 0;
    }
    int rc = br_grow(&level->heads, &level->cap_heads, (size_t)level->n_heads + 1,
                     sizeof *level->heads, RANGES_MAX);
    if (!rc)
        level->heads[level->n_heads++] = (struct range){p, (size_t)(next - p)};
    return rc;
}

/* Finds the heads of the message at `level`, which are its fields other than children. Sets
 * `*ret_children` if the message has children. */
static int split_read_heads(struct splitter *splitter, unsigned level, const uint8_t *p,
                            const uint8_t *end, bool *ret_children)
{
    struct level *here = &splitter->levels[level];
    here->n_heads = 0;
    here->written = false;
    *ret_children = false;
    while (p < end) {
        struct br_field field;
        const uint8_t *at = p;
        p = br_scan(p, end, &field);
        if (!p)
            return BR_EINVAL;
        if (split_is_child(&field)) {
            *ret_children = true;
            continue;
        }
        int rc = split_add_head(here, at, p);
        if (rc)
            return rc;
    }
    return 0;
}

static int split_level(struct splitter *splitter, unsigned level, const uint8_t *p,
                       const uint8_t *end)
{
    bool children;
    split_close_level(splitter, level);
    int rc = split_read_heads(splitter, level, p, end, &children);
    if (!rc && !children)
        return split_add_leaf(splitter, level, NULL, NULL);
    while (p < end && !rc) {
        struct br_field field;
        p = br_scan(p, end, &field);
        if (!split_is_child(&field))
            continue;
        if (level + 1 < splitter->n_levels)
            rc = split_level(splitter, level + 1, field.data, p);
        else
            rc = split_add_leaf(splitter, level, &field, p);
    }
    return rc;
}

static int split_parts(struct splitter *splitter)
{
    int rc = splitter->item->signal == BR_PROFILES
                 ? br_source_load(&splitter->merge.source, splitter->item)
                 : 0;
    if (!rc)
        rc = split_begin_piece(splitter);
    for (uint32_t i = 0; i < splitter->item->n_parts && !rc; i++) {
        splitter->part = &splitter->item->parts[i];
        const uint8_t *end = splitter->part->raw + splitter->part->raw_len;
        splitter->merge.readable = end;
        if (splitter->part->kind == BR_PART_RESOURCE) {
            rc =
                split_level(splitter, RESOURCE, splitter->part->raw + splitter->part->body_at, end);
        } else if (splitter->part->kind == BR_PART_OTHER) {
            split_close_level(splitter, RESOURCE);
            br_merger_put_other(&splitter->merge, splitter->part);
            rc = splitter->merge.rc;
        }
    }
    return rc ? rc : split_flush(splitter);
}

static int split_item(const struct br_item *item, unsigned n_levels, uint32_t max_items,
                      size_t max_bytes, br_split_fn *fn, void *arg)
{
    struct splitter splitter = {.item = item,
                                .n_levels = n_levels,
                                .max_items = max_items,
                                .max_bytes = max_bytes,
                                .fn = fn,
                                .arg = arg};
    br_merger_init(&splitter.merge, item->host, BR_BUF_MAX);
    int rc = split_parts(&splitter);
    br_merger_release(&splitter.merge);
    for (unsigned i = 0; i < LEVELS; i++)
        br_free(splitter.levels[i].heads);
    return rc;
}

int br_profiles_split(const struct br_item *item, uint32_t max_items, size_t max_bytes,
                      br_split_fn *fn, void *arg)
{
    return split_item(item, LEVELS, max_items, max_bytes, fn, arg);
}

int br_traces_split(const struct br_item *item, uint32_t max_items, size_t max_bytes,
                    br_split_fn *fn, void *arg)
{
    return split_item(item, LEVELS - 1, max_items, max_bytes, fn, arg);
}
