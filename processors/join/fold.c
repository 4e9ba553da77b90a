/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/fold.h"

#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"
#include "otlp/rewrite.h"
#include "wire/protobuf.h"

#define STACK 1 /* fields of Sample */
#define ATTRIBUTES 2
#define LINK 3
#define VALUES 4
#define TIMES 5
#define GROUPS_MAX (1u << 24)

/* Numbers of a sample, or of those that became one. */
struct numbers {
    uint64_t *v;
    uint32_t n, cap;
};

/* What becomes of one sample, and of those that become part of it. */
struct group {
    uint32_t first; /* index of the sample that has its place */
    uint32_t stack;
    bool timed, valued; /* it has timestamps, it has values */
    bool folded;        /* a sample among them loses its link */
    struct numbers attributes, values, times;
};

struct fold {
    const uint8_t *folds;
    const struct join_label *labels;
    uint32_t n_labels;
    struct br_arena *arena;
    uint32_t profile;                         /* counts them */
    struct numbers attributes, values, times; /* of the sample at hand */
    struct numbers key;
    uint32_t stack;
    bool odd; /* it has what we do not know, or numbers that do not go together */
    struct br_map *known;
    struct group **groups; /* by sample; NULL: as it is */
    uint32_t n_gone;
    uint8_t *out;
    size_t out_cap;
    bool no_memory;
};

static void put(struct fold *f, struct numbers *to, uint64_t v)
{
    if (to->n == to->cap) {
        uint32_t cap = to->cap ? 2 * to->cap : 8;
        uint64_t *grown = br_arena_alloc(f->arena, (size_t)cap * sizeof *grown);
        if (!grown) {
            f->no_memory = true;
            return;
        }
        if (to->n)
            memcpy(grown, to->v, to->n * sizeof *grown);
        to->v = grown;
        to->cap = cap;
    }
    to->v[to->n++] = v;
}

static void put_all(struct fold *f, struct numbers *to, const struct numbers *from)
{
    for (uint32_t i = 0; i < from->n; i++)
        put(f, to, from->v[i]);
}

/* --- Reading ------------------------------------------------------------------------------------
 */

static bool names_span(const struct fold *f, uint64_t index)
{
    return index < f->n_labels && (f->labels[index].kind == JOIN_LABEL_SPAN_ID ||
                                   f->labels[index].kind == JOIN_LABEL_TRACE_ID);
}

/* Attributes in ascending order: a sample has few. */
static void put_attribute(struct fold *f, uint64_t index)
{
    struct numbers *a = &f->attributes;
    if (names_span(f, index))
        return;
    put(f, a, index);
    for (uint32_t i = a->n; i-- > 1 && a->v[i - 1] > index;) {
        a->v[i] = a->v[i - 1];
        a->v[i - 1] = index;
    }
}

static void read_numbers(struct fold *f, const struct br_field *field)
{
    const uint8_t *p = field->data, *end = p + field->value;
    uint64_t v = field->value;
    bool packed = field->wire == BR_WIRE_LEN;
    while (!packed || (p < end && (p = br_varint(p, end, &v)))) {
        if (field->number == ATTRIBUTES)
            put_attribute(f, v);
        else
            put(f, &f->values, v);
        if (!packed)
            return;
    }
}

static void read_sample(struct fold *f, const uint8_t *p, const uint8_t *end)
{
    struct br_field g;
    f->stack = 0;
    f->odd = false;
    f->attributes.n = f->values.n = f->times.n = 0;
    while (p < end && (p = br_field_next(p, end, &g))) {
        if (g.number == STACK)
            f->stack = (uint32_t)g.value;
        else if (g.number == ATTRIBUTES || g.number == VALUES)
            read_numbers(f, &g);
        else if (g.number == TIMES && g.wire == BR_WIRE_LEN)
            for (uint64_t i = 0; i + 8 <= g.value; i += 8)
                put(f, &f->times, br_load64(g.data + i));
        else if (g.number == TIMES)
            put(f, &f->times, g.value);
        else if (g.number != LINK)
            f->odd = true;
    }
    f->odd = f->odd || (f->times.n && f->values.n && f->times.n != f->values.n);
}

/* --- Grouping -----------------------------------------------------------------------------------
 */

/* Adds the sample at hand; false when a sum would not fit into 64 bits. */
static bool add_values(struct fold *f, struct group *g)
{
    if (g->timed) {
        put_all(f, &g->values, &f->values);
        put_all(f, &g->times, &f->times);
        return true;
    }
    int64_t sum;
    for (uint32_t i = 0; i < f->values.n; i++)
        if (__builtin_add_overflow((int64_t)g->values.v[i], (int64_t)f->values.v[i], &sum))
            return false;
    for (uint32_t i = 0; i < f->values.n; i++)
        g->values.v[i] += f->values.v[i];
    return true;
}

static struct group *new_group(struct fold *f, uint32_t index)
{
    struct group *g = br_arena_calloc(f->arena, 1, sizeof *g);
    if (!g) {
        f->no_memory = true;
        return NULL;
    }
    g->first = index;
    g->stack = f->stack;
    g->timed = f->times.n > 0;
    put_all(f, &g->attributes, &f->attributes);
    put_all(f, &g->values, &f->values);
    put_all(f, &g->times, &f->times);
    return g;
}

/* The group of what says the same as the sample at hand, or NULL. Makes its key. */
static struct group *find_group(struct fold *f)
{
    f->key.n = 0;
    put(f, &f->key, (uint64_t)f->profile << 32 | f->stack);
    put(f, &f->key, f->times.n ? UINT64_MAX - (f->values.n > 0) : f->values.n);
    put_all(f, &f->key, &f->attributes);
    return f->odd || f->no_memory ? NULL
                                  : br_map_get(f->known, f->key.v, f->key.n * sizeof *f->key.v);
}

static void fold_sample(struct fold *f, uint32_t index, const uint8_t *p, const uint8_t *end)
{
    if (f->folds[index] == JOIN_FOLD_KEPT)
        return;
    read_sample(f, p, end);
    struct group *g = find_group(f);
    if (!g || !add_values(f, g)) {
        g = new_group(f, index);
        if (g && !f->odd &&
            br_map_put(f->known, f->key.v, f->key.n * sizeof *f->key.v, g, NULL) != 0)
            f->no_memory = true;
    }
    if (g)
        g->folded = g->folded || f->folds[index] == JOIN_FOLD_FOLDED;
    f->groups[index] = g;
}

/* Goes through the samples in the order in which br_item_rewrite visits them. */
static void fold_all(struct fold *f, const struct br_item *item)
{
    struct br_field r, s, t;
    uint32_t index = 0;
    for (uint32_t i = 0; i < item->n_parts; i++) {
        const struct br_part *part = &item->parts[i];
        if (part->kind != BR_PART_RESOURCE)
            continue;
        const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
        while (p < end && (p = br_field_next(p, end, &r))) {
            const uint8_t *q = r.data, *q_end = r.data + r.value;
            while (r.number == 2 && q < q_end && (q = br_field_next(q, q_end, &s))) {
                const uint8_t *m = s.data, *m_end = s.data + s.value;
                f->profile += s.number == 2;
                while (s.number == 2 && m < m_end && (m = br_field_next(m, m_end, &t)))
                    if (t.number == 2)
                        fold_sample(f, index++, t.data, m);
            }
        }
    }
}

/* --- Writing ------------------------------------------------------------------------------------
 */

static uint8_t *put_varints(uint8_t *p, uint32_t field, const struct numbers *n)
{
    size_t len = 0;
    for (uint32_t i = 0; i < n->n; i++)
        len += br_varint_size(n->v[i]);
    if (!len)
        return p;
    p = br_put_varint(p, BR_TAG(field, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    for (uint32_t i = 0; i < n->n; i++)
        p = br_put_varint(p, n->v[i]);
    return p;
}

static uint8_t *put_fixed(uint8_t *p, uint32_t field, const struct numbers *n)
{
    if (!n->n)
        return p;
    p = br_put_varint(p, BR_TAG(field, BR_WIRE_LEN));
    p = br_put_varint(p, (uint64_t)n->n * 8);
    memcpy(p, n->v, (size_t)n->n * 8);
    return p + (size_t)n->n * 8;
}

/* Fields that we do not know: such a sample is alone. */
static uint8_t *put_unknown(uint8_t *o, const uint8_t *p, const uint8_t *end)
{
    struct br_field f;
    for (const uint8_t *at = p; p < end && (p = br_field_next(p, end, &f)); at = p)
        if (f.number > TIMES)
            o = br_put_bytes(o, at, (size_t)(p - at));
    return o;
}

static int write_group(struct fold *f, const struct group *g, struct br_visit *v)
{
    size_t numbers = (size_t)g->attributes.n + g->values.n + g->times.n;
    size_t need = (numbers + 8) * BR_VARINT_MAX + v->len;
    if (need > f->out_cap) {
        f->out = br_arena_alloc(f->arena, 2 * need);
        f->out_cap = f->out ? 2 * need : 0;
    }
    if (!f->out)
        return BR_ENOMEM;
    uint8_t *p = f->out;
    if (g->stack) {
        p = br_put_varint(p, BR_TAG(STACK, BR_WIRE_VARINT));
        p = br_put_varint(p, g->stack);
    }
    p = put_varints(p, ATTRIBUTES, &g->attributes);
    p = put_varints(p, VALUES, &g->values);
    p = put_fixed(p, TIMES, &g->times);
    p = put_unknown(p, v->body, v->body + v->len);
    v->out = (struct br_addition){f->out, (size_t)(p - f->out)};
    return BR_REPLACE;
}

static int on_sample(void *arg, struct br_visit *v)
{
    struct fold *f = arg;
    const struct group *g = f->groups[v->index];
    if (!g || !g->folded)
        return BR_KEEP;
    if (g->first == v->index)
        return write_group(f, g, v);
    f->n_gone++;
    return BR_DROP;
}

int join_fold_samples(struct br_item *item, const uint8_t *folds, const struct join_label *labels,
                      uint32_t n_labels, struct br_arena *arena, uint32_t *ret_gone)
{
    struct fold f = {.folds = folds, .labels = labels, .n_labels = n_labels, .arena = arena};
    f.groups = br_arena_calloc(arena, item->n_items, sizeof(struct group *));
    f.known = br_map_new(GROUPS_MAX);
    int rc = f.groups && f.known ? 0 : BR_ENOMEM;
    if (!rc)
        fold_all(&f, item);
    if (!rc && f.no_memory)
        rc = BR_ENOMEM;
    if (!rc)
        rc = br_item_rewrite(item, 1u << BR_LEVEL_ITEM, on_sample, &f);
    if (!rc)
        *ret_gone = f.n_gone;
    br_map_free(f.known, NULL);
    return rc;
}
