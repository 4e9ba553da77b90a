/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both signals are trees of which field 2 is always the child: ResourceX, ScopeX, then spans, or
 * profiles with samples. A piece is a range of the leaves under copies of all that is above them
 * (the heads). Leaves are added one at a time, with whatever has to be opened for them; one that
 * makes the piece too large is taken back, which for profiles takes its dictionary entries back
 * too, and starts the next.
 */
#include "base/mem.h"
#include "core/host.h"
#include "otlp/dictionary/merger.h"
#include "otlp/fields.h"
#include "otlp/scan.h"

enum { RESOURCE, SCOPE, PROFILE, LEVELS };
#define CHILD BR_INWARD
/* Lengths whose end is not known are given five bytes, and moved up when it is. */
#define LONG_LEN UINT32_MAX
#define RANGES_MAX (1u << 24)

struct range {
    const uint8_t *data;
    size_t len;
};

struct level {
    struct range *heads; /* what is not a child, in runs */
    uint32_t n_heads, cap_heads;
    struct br_open open;
    bool is_open;
    bool written; /* an earlier piece has it already */
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

/* Where to go back to. */
struct state {
    struct br_merger_mark mark;
    struct br_open open[LEVELS];
    bool is_open[LEVELS], written[LEVELS];
};

static bool is_child(const struct br_field *f)
{
    return br_scan_tag(f) == BR_SCAN_LEN(CHILD);
}

static void save(const struct splitter *s, struct state *ret)
{
    br_merger_mark(&s->merge, &ret->mark);
    for (unsigned i = 0; i < LEVELS; i++) {
        ret->open[i] = s->levels[i].open;
        ret->is_open[i] = s->levels[i].is_open;
        ret->written[i] = s->levels[i].written;
    }
}

/* To be followed by flush, which makes the source's maps fit again. */
static void restore(struct splitter *s, const struct state *state)
{
    br_merger_restore(&s->merge, &state->mark);
    for (unsigned i = 0; i < LEVELS; i++) {
        s->levels[i].open = state->open[i];
        s->levels[i].is_open = state->is_open[i];
        s->levels[i].written = state->written[i];
    }
}

/* The original's bytes describe the whole profile: they go with its first piece only. */
static bool is_payload(const struct br_field *f)
{
    return f->number == BR_PROFILE_PAYLOAD_FORMAT || f->number == BR_PROFILE_PAYLOAD;
}

static void put_head(struct splitter *s, unsigned level, const struct br_field *f,
                     const uint8_t *next)
{
    bool profiles = s->item->signal == BR_PROFILES;
    if (level == RESOURCE && br_scan_tag(f) == BR_SCAN_LEN(BR_RESOURCES_RESOURCE))
        return;
    if (level == SCOPE && profiles)
        br_merger_put_scope_field(&s->merge, f, next);
    else if (level == PROFILE && !(s->levels[PROFILE].written && is_payload(f)))
        br_merger_put_profile_field(&s->merge, f, next);
    else if (level != PROFILE)
        br_merger_put(&s->merge, f->at, (size_t)(next - f->at));
}

static void open_level(struct splitter *s, unsigned level)
{
    struct level *l = &s->levels[level];
    if (level == RESOURCE)
        l->open = br_merger_open_part(&s->merge, s->part, LONG_LEN, s->item->signal == BR_PROFILES);
    else
        l->open = br_merger_open(&s->merge, CHILD, LONG_LEN);
    for (uint32_t i = 0; i < l->n_heads; i++) {
        const uint8_t *p = l->heads[i].data, *end = p + l->heads[i].len;
        struct br_field f;
        while (p < end && !s->merge.rc && (p = br_scan(p, end, &f)))
            put_head(s, level, &f, p);
    }
    l->is_open = l->written = true;
}

/* Closes the level and those below it. */
static void close_level(struct splitter *s, unsigned level)
{
    for (unsigned i = s->n_levels; i-- > level;) {
        if (!s->levels[i].is_open)
            continue;
        if (i == RESOURCE)
            br_merger_close_part(&s->merge, s->levels[i].open);
        else
            br_merger_close(&s->merge, s->levels[i].open);
        s->levels[i].is_open = false;
    }
}

static int begin_piece(struct splitter *s)
{
    if (s->item->signal != BR_PROFILES)
        return 0;
    br_source_reset_maps(&s->merge.source);
    return br_merger_begin(&s->merge);
}

/* Hands out what there is. */
static int flush(struct splitter *s)
{
    close_level(s, RESOURCE);
    if (s->merge.rc || s->merge.n_parts == 0)
        return s->merge.rc;
    struct br_item *piece = br_item_new(s->item->host, s->item->signal);
    if (!piece)
        return BR_ENOMEM;
    int rc = br_merger_take(&s->merge, piece, s->item->signal == BR_PROFILES);
    if (rc) {
        br_item_free(piece);
        return rc;
    }
    piece->received_ms = s->item->received_ms;
    rc = s->fn(piece, s->arg);
    return rc ? rc : begin_piece(s);
}

/* Opens what is above a leaf, and writes it; NULL: there is none below `level`. */
static void put_leaf(struct splitter *s, unsigned level, const struct br_field *leaf,
                     const uint8_t *next)
{
    for (unsigned i = RESOURCE; i <= level && !s->merge.rc; i++) {
        if (!s->levels[i].is_open)
            open_level(s, i);
    }
    if (!leaf || s->merge.rc)
        return;
    if (s->item->signal == BR_PROFILES) {
        br_merger_put_sample(&s->merge, leaf->data, leaf->value);
    } else {
        br_merger_put(&s->merge, leaf->at, (size_t)(next - leaf->at));
        s->merge.n_items++;
    }
}

static size_t piece_size(const struct splitter *s)
{
    return s->item->signal == BR_PROFILES ? br_merge_size(&s->merge) : s->merge.out->len;
}

static int add_leaf(struct splitter *s, unsigned level, const struct br_field *leaf,
                    const uint8_t *next)
{
    struct br_merge *m = &s->merge;
    int rc = 0;
    if (leaf && s->max_items && m->n_items >= s->max_items)
        rc = flush(s);
    if (rc)
        return rc;
    struct state before;
    save(s, &before);
    put_leaf(s, level, leaf, next);
    bool alone = before.mark.n_items == 0;
    bool fits = m->rc == 0 && (s->max_bytes == 0 || piece_size(s) <= s->max_bytes);
    if (fits || alone || (m->rc && m->rc != BR_EFULL))
        return m->rc;
    restore(s, &before);
    rc = flush(s);
    if (!rc)
        put_leaf(s, level, leaf, next);
    return rc ? rc : m->rc;
}

static int add_head(struct level *l, const uint8_t *p, const uint8_t *next)
{
    struct range *last = l->n_heads ? &l->heads[l->n_heads - 1] : NULL;
    if (last && last->data + last->len == p) {
        last->len += (size_t)(next - p);
        return 0;
    }
    int rc =
        br_grow(&l->heads, &l->cap_heads, (size_t)l->n_heads + 1, sizeof *l->heads, RANGES_MAX);
    if (!rc)
        l->heads[l->n_heads++] = (struct range){p, (size_t)(next - p)};
    return rc;
}

/* Finds the heads of the message at `level`; whether it has children. */
static int read_heads(struct splitter *s, unsigned level, const uint8_t *p, const uint8_t *end,
                      bool *ret_children)
{
    struct level *l = &s->levels[level];
    l->n_heads = 0;
    l->written = false;
    *ret_children = false;
    while (p < end) {
        struct br_field f;
        const uint8_t *at = p;
        p = br_scan(p, end, &f);
        if (!p)
            return BR_EINVAL;
        if (is_child(&f)) {
            *ret_children = true;
            continue;
        }
        int rc = add_head(l, at, p);
        if (rc)
            return rc;
    }
    return 0;
}

static int split_level(struct splitter *s, unsigned level, const uint8_t *p, const uint8_t *end)
{
    bool children;
    close_level(s, level);
    int rc = read_heads(s, level, p, end, &children);
    if (!rc && !children)
        return add_leaf(s, level, NULL, NULL);
    while (p < end && !rc) {
        struct br_field f;
        p = br_scan(p, end, &f);
        if (!is_child(&f))
            continue;
        if (level + 1 < s->n_levels)
            rc = split_level(s, level + 1, f.data, p);
        else
            rc = add_leaf(s, level, &f, p);
    }
    return rc;
}

static int split_parts(struct splitter *s)
{
    int rc = s->item->signal == BR_PROFILES ? br_source_load(&s->merge.source, s->item) : 0;
    if (!rc)
        rc = begin_piece(s);
    for (uint32_t i = 0; i < s->item->n_parts && !rc; i++) {
        s->part = &s->item->parts[i];
        const uint8_t *end = s->part->raw + s->part->raw_len;
        s->merge.readable = end;
        if (s->part->kind == BR_PART_RESOURCE) {
            rc = split_level(s, RESOURCE, s->part->raw + s->part->body_at, end);
        } else if (s->part->kind == BR_PART_OTHER) {
            close_level(s, RESOURCE);
            br_merger_put_other(&s->merge, s->part);
            rc = s->merge.rc;
        }
    }
    return rc ? rc : flush(s);
}

static int split(const struct br_item *item, unsigned n_levels, uint32_t max_items,
                 size_t max_bytes, br_split_fn *fn, void *arg)
{
    struct splitter s = {.item = item,
                         .n_levels = n_levels,
                         .max_items = max_items,
                         .max_bytes = max_bytes,
                         .fn = fn,
                         .arg = arg};
    br_merger_init(&s.merge, item->host, BR_BUF_MAX);
    int rc = split_parts(&s);
    br_merger_release(&s.merge);
    for (unsigned i = 0; i < LEVELS; i++)
        br_free(s.levels[i].heads);
    return rc;
}

int br_profiles_split(const struct br_item *item, uint32_t max_items, size_t max_bytes,
                      br_split_fn *fn, void *arg)
{
    return split(item, LEVELS, max_items, max_bytes, fn, arg);
}

int br_traces_split(const struct br_item *item, uint32_t max_items, size_t max_bytes,
                    br_split_fn *fn, void *arg)
{
    return split(item, LEVELS - 1, max_items, max_bytes, fn, arg);
}
