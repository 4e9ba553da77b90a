/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples that say the same are chained, by number: what is kept of each is where it lies, and
 * which is the next of its chain. The rest is read again from its bytes when it is asked for, so
 * that a sample takes 15 bytes whatever is in it.
 */
#include "processors/join/fold.h"

#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"
#include "otlp/edit/rewrite.h"
#include "wire/protobuf.h"

#define STACK 1 /* fields of Sample */
#define ATTRIBUTES 2
#define LINK 3
#define VALUES 4
#define TIMES 5
#define ATTRIBUTES_MAX (1u << 26)
#define JOIN_FOLD_GONE 3 /* beside enum join_fold: became part of another */

/* A sample as it is compared. */
struct fold_sample {
    uint32_t stack;
    uint32_t n_values, n_times;
    bool odd;             /* it has what we do not know, or numbers that do not go together */
    uint32_t *attributes; /* ascending, without those that name the span */
    uint32_t n_attributes, cap_attributes;
};

/* The first sample of a part, and the part's bytes, in which the places of all of its are counted.
 */
struct fold_range {
    uint32_t first;
    const uint8_t *base, *end;
};

struct fold {
    uint8_t *folds;
    const struct join_label *labels;
    uint32_t n_labels;
    uint8_t secret[16];
    struct fold_range *ranges;
    uint32_t n_ranges;
    uint32_t n;             /* samples */
    uint32_t profile_first; /* sample of the profile at hand */
    uint32_t *at;           /* where the field of each begins */
    uint32_t *next;         /* of its chain, in ascending order; the last one's is the first */
    uint32_t *last;         /* hash table: the last of a chain, plus 1 */
    uint8_t *tags;          /* beside it, of their hashes */
    uint32_t n_slots;
    struct fold_sample here, there;
    uint64_t *sums;
    uint32_t cap_sums;
    uint8_t *out;
    size_t cap_out;
    uint32_t n_gone;
    bool no_memory;
};

/* --- Reading ------------------------------------------------------------------------------------
 */

static bool fold_names_span(const struct fold *f, uint64_t index)
{
    return index < f->n_labels && (f->labels[index].kind == JOIN_LABEL_SPAN_ID ||
                                   f->labels[index].kind == JOIN_LABEL_TRACE_ID);
}

static void fold_put_attribute(struct fold *f, struct fold_sample *s, uint64_t index)
{
    if (fold_names_span(f, index))
        return;
    if (br_grow(&s->attributes, &s->cap_attributes, (size_t)s->n_attributes + 1,
                sizeof *s->attributes, ATTRIBUTES_MAX)) {
        f->no_memory = true;
        return;
    }
    s->attributes[s->n_attributes++] = (uint32_t)index;
}

static void fold_sift(uint32_t *v, uint32_t n, uint32_t at)
{
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && v[child] < v[child + 1];
        if (v[at] >= v[child])
            return;
        uint32_t larger = v[child];
        v[child] = v[at];
        v[at] = larger;
    }
}

/* Mostly there is nothing to do. */
static void fold_sort(uint32_t *v, uint32_t n)
{
    uint32_t sorted = 1;
    while (sorted < n && v[sorted - 1] <= v[sorted])
        sorted++;
    if (sorted >= n)
        return;
    for (uint32_t i = n / 2; i-- > 0;)
        fold_sift(v, n, i);
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t largest = v[0];
        v[0] = v[i];
        v[i] = largest;
        fold_sift(v, i, 0);
    }
}

/* The next number of a repeated field; false at its end. `*at` is NULL at first. */
static bool fold_number(const struct br_field *field, const uint8_t **at, uint64_t *ret)
{
    const uint8_t *end = field->data + field->value;
    if (field->wire != BR_WIRE_LEN) {
        *ret = field->value;
        return !*at && (*at = (const uint8_t *)"");
    }
    const uint8_t *p = *at ? *at : field->data;
    if (field->number == TIMES) {
        if (end - p < 8)
            return false;
        *ret = br_load64(p);
        *at = p + 8;
        return true;
    }
    return p < end && (*at = br_varint(p, end, ret));
}

static void fold_read(struct fold *f, const uint8_t *p, const uint8_t *end, struct fold_sample *s)
{
    struct br_field g;
    s->stack = s->n_values = s->n_times = s->n_attributes = 0;
    s->odd = false;
    while (p < end && (p = br_field_next(p, end, &g))) {
        const uint8_t *at = NULL;
        uint64_t v;
        if (g.number == STACK)
            s->stack = (uint32_t)g.value;
        else if (g.number == ATTRIBUTES)
            while (fold_number(&g, &at, &v))
                fold_put_attribute(f, s, v);
        else if (g.number == VALUES)
            while (fold_number(&g, &at, &v))
                s->n_values++;
        else if (g.number == TIMES)
            s->n_times += g.wire == BR_WIRE_LEN ? (uint32_t)(g.value / 8) : 1;
        else if (g.number != LINK)
            s->odd = true;
    }
    s->odd = s->odd || (s->n_times && s->n_values && s->n_times != s->n_values);
    fold_sort(s->attributes, s->n_attributes);
}

/* The body of a sample that has been noted. */
static const uint8_t *fold_body(const struct fold *f, uint32_t index, const uint8_t **ret_end)
{
    uint32_t low = 0, high = f->n_ranges;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (f->ranges[middle].first <= index)
            low = middle;
        else
            high = middle;
    }
    struct br_field g;
    *ret_end = br_field_next(f->ranges[low].base + f->at[index], f->ranges[low].end, &g);
    return g.data;
}

/* --- Chaining -----------------------------------------------------------------------------------
 */

/* Whether it has timestamps, and whether they have values; or else how many values it has. */
static uint32_t fold_shape(const struct fold_sample *s)
{
    return s->n_times ? UINT32_MAX - (s->n_values > 0) : s->n_values;
}

static uint64_t fold_hash(const struct fold *f)
{
    const struct fold_sample *s = &f->here;
    struct {
        uint32_t profile, stack, shape, zero;
        uint64_t attributes;
    } key = {f->profile_first, s->stack, fold_shape(s), 0, 0};
    if (s->n_attributes)
        key.attributes =
            br_siphash(f->secret, s->attributes, s->n_attributes * sizeof *s->attributes);
    return br_siphash(f->secret, &key, sizeof key);
}

/* Whether the sample at hand says the same as one of before. */
static bool fold_same(struct fold *f, uint32_t index)
{
    const struct fold_sample *here = &f->here, *there = &f->there;
    if (index < f->profile_first)
        return false;
    const uint8_t *end, *p = fold_body(f, index, &end);
    fold_read(f, p, end, &f->there);
    return !f->no_memory && there->stack == here->stack && fold_shape(there) == fold_shape(here) &&
           there->n_attributes == here->n_attributes &&
           (!here->n_attributes || memcmp(there->attributes, here->attributes,
                                          here->n_attributes * sizeof *here->attributes) == 0);
}

static void fold_chain(struct fold *f, uint32_t index)
{
    uint64_t hash = fold_hash(f);
    uint8_t tag = (uint8_t)hash;
    uint32_t slot = (uint32_t)((hash >> 32) * f->n_slots >> 32);
    for (; f->last[slot]; slot = slot + 1 < f->n_slots ? slot + 1 : 0) {
        uint32_t last = f->last[slot] - 1;
        if (f->tags[slot] != tag || !fold_same(f, last))
            continue;
        f->next[index] = f->next[last];
        f->next[last] = index;
        break;
    }
    f->last[slot] = index + 1;
    f->tags[slot] = tag;
}

static void fold_note(struct fold *f, uint32_t index, const uint8_t *at, const uint8_t *body,
                      const uint8_t *end)
{
    if (f->folds[index] == JOIN_FOLD_KEPT || f->no_memory)
        return;
    f->at[index] = (uint32_t)(at - f->ranges[f->n_ranges - 1].base);
    f->next[index] = index;
    fold_read(f, body, end, &f->here);
    if (!f->here.odd && !f->no_memory)
        fold_chain(f, index);
}

/* Goes through the samples in the order in which br_item_rewrite visits them. */
static void fold_note_all(struct fold *f, const struct br_item *item)
{
    struct br_field r, s, t;
    uint32_t index = 0;
    for (uint32_t i = 0; i < item->n_parts; i++) {
        const struct br_part *part = &item->parts[i];
        if (part->kind != BR_PART_RESOURCE || !part->n_items)
            continue;
        f->ranges[f->n_ranges++] = (struct fold_range){index, part->raw, part->raw + part->raw_len};
        const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
        while (p < end && (p = br_field_next(p, end, &r))) {
            const uint8_t *q = r.data, *q_end = r.data + r.value;
            while (r.number == 2 && q < q_end && (q = br_field_next(q, q_end, &s))) {
                const uint8_t *m = s.data, *m_end = s.data + s.value;
                f->profile_first = index;
                const uint8_t *at = m;
                for (; s.number == 2 && m < m_end && (m = br_field_next(m, m_end, &t)); at = m)
                    if (t.number == 2)
                        fold_note(f, index++, at, t.data, m);
            }
        }
    }
}

/* --- Writing ------------------------------------------------------------------------------------
 */

/* A chain, or as much of it as becomes one sample. */
struct fold_group {
    uint32_t first, last;
    uint32_t n_values, n_times;
    size_t values_len; /* of them as varints */
    bool folded;       /* a sample among them loses its link */
};

/* Adds the values of a sample; false when a sum would not fit into 64 bits. */
static bool fold_add(struct fold *f, uint32_t index, bool check)
{
    struct br_field g;
    uint32_t n = 0;
    const uint8_t *end, *p = fold_body(f, index, &end);
    while (p < end && (p = br_field_next(p, end, &g))) {
        const uint8_t *at = NULL;
        uint64_t v;
        int64_t sum;
        while (g.number == VALUES && fold_number(&g, &at, &v)) {
            if (__builtin_add_overflow((int64_t)f->sums[n], (int64_t)v, &sum) && check)
                return false;
            f->sums[n] = check ? f->sums[n] : (uint64_t)sum;
            n++;
        }
    }
    return true;
}

static size_t fold_values_len(const struct fold *f, uint32_t index, uint32_t *n)
{
    struct br_field g;
    size_t len = 0;
    const uint8_t *end, *p = fold_body(f, index, &end);
    while (p < end && (p = br_field_next(p, end, &g))) {
        const uint8_t *at = NULL;
        uint64_t v;
        for (; g.number == VALUES && fold_number(&g, &at, &v); ++*n)
            len += br_varint_size(v);
    }
    return len;
}

/* Sums the chain's values up, as far as they can be. */
static int fold_sum(struct fold *f, struct fold_group *g)
{
    g->n_values = f->here.n_values;
    if (br_grow(&f->sums, &f->cap_sums, g->n_values, sizeof *f->sums, UINT32_MAX))
        return BR_ENOMEM;
    if (g->n_values)
        memset(f->sums, 0, g->n_values * sizeof *f->sums);
    uint32_t index = g->first;
    do {
        if (!fold_add(f, index, true))
            break;
        (void)fold_add(f, index, false);
        g->folded = g->folded || f->folds[index] == JOIN_FOLD_FOLDED;
        g->last = index;
        index = f->next[index];
    } while (index > g->last);
    for (uint32_t i = 0; i < g->n_values; i++)
        g->values_len += br_varint_size(f->sums[i]);
    return 0;
}

/* Counts what the chain's samples have, which all stays. */
static void fold_measure(struct fold *f, struct fold_group *g)
{
    uint32_t index = g->first;
    do {
        const uint8_t *end, *p = fold_body(f, index, &end);
        fold_read(f, p, end, &f->there);
        g->values_len += fold_values_len(f, index, &g->n_values);
        g->n_times += f->there.n_times;
        g->folded = g->folded || f->folds[index] == JOIN_FOLD_FOLDED;
        g->last = index;
        index = f->next[index];
    } while (index > g->last);
}

/* Copies the numbers of one field of all samples of the group. */
static uint8_t *fold_copy(const struct fold *f, const struct fold_group *g, unsigned field,
                          uint8_t *o)
{
    uint32_t index = g->first;
    for (;; index = f->next[index]) {
        struct br_field h;
        const uint8_t *end, *p = fold_body(f, index, &end);
        while (p < end && (p = br_field_next(p, end, &h))) {
            const uint8_t *at = NULL;
            uint64_t v;
            while (h.number == field && fold_number(&h, &at, &v)) {
                if (field == TIMES)
                    o = br_put_bytes(o, &v, sizeof v);
                else
                    o = br_put_varint(o, v);
            }
        }
        if (index == g->last)
            return o;
    }
}

static uint8_t *fold_open(uint8_t *o, uint32_t field, size_t len)
{
    return br_put_varint(br_put_varint(o, BR_TAG(field, BR_WIRE_LEN)), len);
}

static uint8_t *fold_write_attributes(uint8_t *o, const struct fold_sample *s)
{
    size_t len = 0;
    for (uint32_t i = 0; i < s->n_attributes; i++)
        len += br_varint_size(s->attributes[i]);
    if (len)
        o = fold_open(o, ATTRIBUTES, len);
    for (uint32_t i = 0; i < s->n_attributes; i++)
        o = br_put_varint(o, s->attributes[i]);
    return o;
}

static uint8_t *fold_write_values(const struct fold *f, const struct fold_group *g, uint8_t *o)
{
    if (!g->n_values)
        return o;
    o = fold_open(o, VALUES, g->values_len);
    if (g->n_times)
        return fold_copy(f, g, VALUES, o);
    for (uint32_t i = 0; i < g->n_values; i++)
        o = br_put_varint(o, f->sums[i]);
    return o;
}

/* Fields that we do not know: such a sample is alone. */
static uint8_t *fold_write_unknown(uint8_t *o, const uint8_t *p, const uint8_t *end)
{
    struct br_field f;
    for (const uint8_t *at = p; p < end && (p = br_field_next(p, end, &f)); at = p)
        if (f.number > TIMES)
            o = br_put_bytes(o, at, (size_t)(p - at));
    return o;
}

static int fold_reserve(struct fold *f, size_t need)
{
    if (need <= f->cap_out)
        return 0;
    br_free(f->out);
    f->cap_out = need + need / 2;
    f->out = br_malloc(f->cap_out);
    f->cap_out = f->out ? f->cap_out : 0;
    return f->out ? 0 : BR_ENOMEM;
}

static int fold_write(struct fold *f, const struct fold_group *g, struct br_visit *v)
{
    const struct fold_sample *s = &f->here;
    size_t room = 8 * (1 + BR_VARINT_MAX); /* tags, lengths and the stack */
    if (fold_reserve(f,
                     room + s->n_attributes * 5 + g->values_len + (size_t)g->n_times * 8 + v->len))
        return BR_ENOMEM;
    uint8_t *o = f->out;
    if (s->stack) {
        o = br_put_varint(o, BR_TAG(STACK, BR_WIRE_VARINT));
        o = br_put_varint(o, s->stack);
    }
    o = fold_write_attributes(o, s);
    o = fold_write_values(f, g, o);
    if (g->n_times)
        o = fold_copy(f, g, TIMES, fold_open(o, TIMES, (size_t)g->n_times * 8));
    if (s->odd)
        o = fold_write_unknown(o, v->body, v->body + v->len);
    v->out = (struct br_addition){f->out, (size_t)(o - f->out)};
    return BR_REPLACE;
}

/* Notes what becomes of the others of the group. */
static void fold_decide(struct fold *f, const struct fold_group *g)
{
    for (uint32_t index = g->first; index != g->last;) {
        index = f->next[index];
        f->folds[index] = g->folded ? JOIN_FOLD_GONE : JOIN_FOLD_KEPT;
    }
}

/* Whoever comes first of a chain has its place. What did not fit into its sums is a chain of its
 * own when its first sample comes. */
static int on_fold_sample(void *arg, struct br_visit *v)
{
    struct fold *f = arg;
    struct fold_group g = {.first = v->index, .last = v->index};
    if (f->folds[v->index] == JOIN_FOLD_KEPT)
        return BR_KEEP;
    if (f->folds[v->index] == JOIN_FOLD_GONE) {
        f->n_gone++;
        return BR_DROP;
    }
    fold_read(f, v->body, v->body + v->len, &f->here);
    if (f->no_memory)
        return BR_ENOMEM;
    if (f->here.n_times)
        fold_measure(f, &g);
    else if (fold_sum(f, &g))
        return BR_ENOMEM;
    fold_decide(f, &g);
    return !g.folded ? BR_KEEP : f->no_memory ? BR_ENOMEM : fold_write(f, &g, v);
}

/* --- Both ---------------------------------------------------------------------------------------
 */

static int fold_init(struct fold *f, const struct br_item *item)
{
    uint32_t n_ranges = 0;
    for (uint32_t i = 0; i < item->n_parts; i++)
        n_ranges += item->parts[i].kind == BR_PART_RESOURCE && item->parts[i].n_items;
    f->n = item->n_items;
    f->n_slots = f->n + f->n / 3 + 1;
    f->ranges = br_calloc(n_ranges + 1, sizeof *f->ranges);
    f->at = br_malloc((size_t)f->n * sizeof *f->at);
    f->next = br_malloc((size_t)f->n * sizeof *f->next);
    f->last = br_calloc(f->n_slots, sizeof *f->last);
    f->tags = br_malloc(f->n_slots);
    br_random_bytes(f->secret, sizeof f->secret);
    return f->ranges && f->at && f->next && f->last && f->tags ? 0 : BR_ENOMEM;
}

static void fold_release(struct fold *f)
{
    br_free(f->ranges);
    br_free(f->at);
    br_free(f->next);
    br_free(f->last);
    br_free(f->tags);
    br_free(f->here.attributes);
    br_free(f->there.attributes);
    br_free(f->sums);
    br_free(f->out);
}

/* What only chaining needs. */
static void fold_release_table(struct fold *f)
{
    br_free(f->last);
    br_free(f->tags);
    f->last = NULL;
    f->tags = NULL;
}

int join_fold_samples(struct br_item *item, uint8_t *folds, const struct join_label *labels,
                      uint32_t n_labels, uint32_t *ret_gone)
{
    struct fold f = {.folds = folds, .labels = labels, .n_labels = n_labels};
    int rc = fold_init(&f, item);
    if (!rc)
        fold_note_all(&f, item);
    if (!rc && f.no_memory)
        rc = BR_ENOMEM;
    fold_release_table(&f);
    if (!rc)
        rc = br_item_rewrite(item, 1u << BR_LEVEL_ITEM, on_fold_sample, &f);
    if (!rc)
        *ret_gone = f.n_gone;
    fold_release(&f);
    return rc;
}
