/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "profile/pprof_internal.h"

/* Labels repeat from sample to sample: what became of the last ones is remembered by a few bits of
 * their numbers. */
#define MEMO_BITS 10
#define MEMO_SLOTS (1u << MEMO_BITS)
/* Up to so many labels are compared with one another. */
#define FEW_LABELS 16u

enum kind { KIND_OTHER, KIND_SPAN, KIND_PROFILE, KIND_TRACE }; /* of text labels */

struct br_pprof_memo {
    struct memo_label {
        struct br_pprof_label label;
        uint32_t attribute; /* + 1; 0: empty */
        enum kind kind;
    } labels[MEMO_SLOTS];
    struct memo_link {
        uint64_t span, trace; /* strings */
        uint32_t link;        /* + 1; 0: empty */
    } links[MEMO_SLOTS];
};

static size_t slot_of(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t h = (a * 31 + b) * 31 + c;
    return (size_t)(h * UINT64_C(0x9e3779b97f4a7c15) >> (64 - MEMO_BITS));
}

static int malformed(struct br_pprof *p, uint32_t sample)
{
    return br_err_set(p->err, BR_EINVAL, "pprof: sample %u is malformed", sample);
}

/* --- Links ------------------------------------------------------------------------------------ */

static enum kind kind_of(const struct br_pprof *p, uint64_t key)
{
    static const struct {
        const char *key;
        enum kind kind;
    } kinds[] = {{"span_id", KIND_SPAN}, {"profile_id", KIND_PROFILE}, {"trace_id", KIND_TRACE}};
    size_t len;
    const uint8_t *text = br_pprof_text(p, key, &len);
    for (size_t i = 0; text && i < BR_COUNT(kinds); i++)
        if (len == strlen(kinds[i].key) && memcmp(text, kinds[i].key, len) == 0)
            return kinds[i].kind;
    return KIND_OTHER;
}

static bool read_id(const struct br_pprof *p, uint64_t string, uint8_t *id, size_t size)
{
    size_t len;
    const uint8_t *text = br_pprof_text(p, string, &len);
    return text && br_hex_id((const char *)text, len, id, size);
}

/* The link to a span by the texts of its labels; 0 where the first is no span id. */
static uint32_t link_of(struct br_pprof *p, uint64_t span, uint64_t trace)
{
    uint8_t span_id[8], trace_id[16];
    struct memo_link *m = &p->memo->links[slot_of(span, trace, 0)];
    if (m->link && m->span == span && m->trace == trace)
        return m->link - 1;
    uint32_t link = 0;
    if (read_id(p, span, span_id, sizeof span_id)) {
        bool traced = read_id(p, trace, trace_id, sizeof trace_id);
        link = br_build_link(p->b, traced ? trace_id : NULL, span_id);
    }
    *m = (struct memo_link){span, trace, link + 1};
    return link;
}

/* --- Labels ----------------------------------------------------------------------------------- */

static bool add_attribute(struct br_pprof *p, struct br_pprof_sample *s, uint32_t attribute)
{
    if (!br_pprof_grow(p, &p->attributes, &p->cap_attributes, p->n_attributes,
                       sizeof *p->attributes))
        return false;
    p->attributes[p->n_attributes++] = attribute;
    s->n_attributes++;
    return true;
}

/* Looks a label up, or makes an attribute of it. */
static int attribute_of(struct br_pprof *p, const struct br_pprof_label *l, struct memo_label **ret)
{
    struct memo_label *m = &p->memo->labels[slot_of(l->key, l->str ? l->str : l->num, l->unit)];
    uint32_t key, unit;
    *ret = m;
    if (m->attribute && memcmp(&m->label, l, sizeof *l) == 0)
        return 0;
    if (!br_pprof_string(p, l->key, "label", &key) || !br_pprof_string(p, l->unit, "label", &unit))
        return BR_EINVAL;
    *m = (struct memo_label){.label = *l};
    if (l->str) {
        size_t len;
        const uint8_t *text = br_pprof_text(p, l->str, &len);
        if (!text)
            return br_pprof_no_string(p, l->str, "label");
        m->kind = kind_of(p, l->key);
        m->attribute = br_build_attribute_text(p->b, key, text, len) + 1;
    } else {
        m->attribute = br_build_attribute_int(p->b, key, (int64_t)l->num, unit) + 1;
    }
    return 0;
}

static bool same_group(const struct br_pprof_label *a, const struct br_pprof_label *b)
{
    return a->key == b->key && !a->str == !b->str && (a->str || a->unit == b->unit);
}

static bool have_repeats(const struct br_pprof_label *l, uint32_t n)
{
    if (n > FEW_LABELS)
        return true;
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t k = 0; k < i; k++)
            if (same_group(&l[i], &l[k]))
                return true;
    return false;
}

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* By group; within one in the order they came, which `order` remembers. */
struct ordered {
    struct br_pprof_label label;
    uint32_t order;
};

static int compare_labels(const void *a, const void *b)
{
    const struct ordered *x = a, *y = b;
    int c = compare(x->label.key, y->label.key);
    if (!c)
        c = compare(!x->label.str, !y->label.str);
    if (!c && !x->label.str)
        c = compare(x->label.unit, y->label.unit);
    return c ? c : compare(x->order, y->order);
}

/* Several values of one label are a list. */
static int texts_of(struct br_pprof *p, uint32_t key, const struct ordered *group, uint32_t n,
                    uint32_t *ret)
{
    struct br_addition *texts = br_arena_calloc(p->arena, n, sizeof *texts);
    if (!texts)
        return br_pprof_no_memory(p);
    for (uint32_t i = 0; i < n; i++) {
        texts[i].data = br_pprof_text(p, group[i].label.str, &texts[i].len);
        if (!texts[i].data)
            return br_pprof_no_string(p, group[i].label.str, "label");
    }
    *ret = br_build_attribute_texts(p->b, key, texts, n);
    return 0;
}

static int list_of(struct br_pprof *p, const struct ordered *group, uint32_t n, uint32_t *ret)
{
    uint32_t key, unit;
    if (!br_pprof_string(p, group->label.key, "label", &key) ||
        !br_pprof_string(p, group->label.unit, "label", &unit))
        return BR_EINVAL;
    if (group->label.str)
        return texts_of(p, key, group, n, ret);
    int64_t *numbers = br_arena_calloc(p->arena, n, sizeof *numbers);
    if (!numbers)
        return br_pprof_no_memory(p);
    for (uint32_t i = 0; i < n; i++)
        numbers[i] = (int64_t)group[i].label.num;
    *ret = br_build_attribute_ints(p->b, key, numbers, n, unit);
    return 0;
}

/* The span and trace that a sample's labels name, as strings. */
struct named {
    uint64_t span, profile, trace;
};

static void note_name(struct named *named, enum kind kind, uint64_t text)
{
    if (kind == KIND_SPAN && !named->span)
        named->span = text;
    else if (kind == KIND_PROFILE && !named->profile)
        named->profile = text;
    else if (kind == KIND_TRACE && !named->trace)
        named->trace = text;
}

/* Labels of which some have the same key. */
static int put_groups(struct br_pprof *p, struct br_pprof_sample *s, uint32_t n,
                      struct named *named)
{
    struct ordered *sorted = br_arena_calloc(p->arena, n, sizeof *sorted);
    if (!sorted)
        return br_pprof_no_memory(p);
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = (struct ordered){p->labels[i], i};
    qsort(sorted, n, sizeof *sorted, compare_labels);
    for (uint32_t i = 0, end; i < n; i = end) {
        struct memo_label *m;
        uint32_t attribute;
        for (end = i + 1; end < n && same_group(&sorted[i].label, &sorted[end].label);)
            end++;
        int rc = attribute_of(p, &sorted[i].label, &m);
        if (rc)
            return rc;
        note_name(named, m->kind, sorted[i].label.str);
        attribute = m->attribute - 1;
        if (end - i > 1)
            rc = list_of(p, &sorted[i], end - i, &attribute);
        if (rc)
            return rc;
        if (!add_attribute(p, s, attribute))
            return br_pprof_no_memory(p);
    }
    return 0;
}

static int put_labels(struct br_pprof *p, struct br_pprof_sample *s, uint32_t n)
{
    struct named named = {0};
    int rc = 0;
    s->attributes_at = p->n_attributes;
    if (n == 0)
        return 0;
    if (!p->memo)
        p->memo = br_arena_calloc(p->arena, 1, sizeof *p->memo);
    if (!p->memo)
        return br_pprof_no_memory(p);
    if (__builtin_expect(have_repeats(p->labels, n), 0)) {
        rc = put_groups(p, s, n, &named);
    } else {
        for (uint32_t i = 0; i < n && !rc; i++) {
            struct memo_label *m;
            rc = attribute_of(p, &p->labels[i], &m);
            if (!rc && m->kind)
                note_name(&named, m->kind, p->labels[i].str);
            if (!rc && !add_attribute(p, s, m->attribute - 1))
                rc = br_pprof_no_memory(p);
        }
    }
    if (!rc && named.span)
        s->link = link_of(p, named.span, named.trace);
    if (!rc && !s->link && named.profile)
        s->link = link_of(p, named.profile, named.trace);
    return rc;
}

/* --- Samples ---------------------------------------------------------------------------------- */

/* One sample being read. */
struct reading {
    uint32_t number; /* of the sample */
    uint32_t n_stack, n_values, n_labels;
    const uint8_t *packed; /* all locations so far, not yet in `stack`; NULL: none */
    size_t packed_len;
    int64_t *values; /* the next one's place in the first type */
};

static int unknown_location(struct br_pprof *p, const struct reading *r, uint64_t id)
{
    return br_err_set(p->err, BR_EINVAL, "pprof: sample %u: location %llu is not in the profile",
                      r->number, (unsigned long long)id);
}

static int put_location(struct br_pprof *p, struct reading *r, uint64_t id)
{
    uint32_t place = br_pprof_ids_get(&p->locations, id);
    if (!place)
        return unknown_location(p, r, id);
    if (!br_pprof_grow(p, &p->stack, &p->cap_stack, r->n_stack, sizeof *p->stack))
        return br_pprof_no_memory(p);
    p->stack[r->n_stack++] = place - 1;
    return 0;
}

static int put_locations(struct br_pprof *p, struct reading *r, const uint8_t *at, size_t len)
{
    const uint8_t *end = at + len;
    while (at < end) {
        uint64_t id;
        at = br_scan_index(at, end, &id);
        if (__builtin_expect(!at, 0))
            return malformed(p, r->number);
        uint32_t place = br_pprof_ids_get(&p->locations, id);
        if (__builtin_expect(!place || r->n_stack == p->cap_stack, 0)) {
            int rc = put_location(p, r, id);
            if (rc)
                return rc;
            continue;
        }
        p->stack[r->n_stack++] = place - 1;
    }
    return 0;
}

/* After put_packed. Mostly there is one list, which is left for later as it is. */
static int put_list(struct br_pprof *p, struct reading *r, const struct br_field *f)
{
    if (r->n_stack == 0) {
        r->packed = f->data;
        r->packed_len = f->value;
        return 0;
    }
    return put_locations(p, r, f->data, f->value);
}

/* The list that was left for later. */
static int put_packed(struct br_pprof *p, struct reading *r)
{
    const uint8_t *packed = r->packed;
    r->packed = NULL;
    return packed ? put_locations(p, r, packed, r->packed_len) : 0;
}

static int build_stack(struct br_pprof *p, struct reading *r, uint32_t *ret)
{
    const uint8_t *end = p->source->data + p->source->len;
    if (r->packed && (size_t)(end - r->packed) >= r->packed_len + 16) {
        const struct br_pprof_ids *ids = &p->locations;
        if (p->n_same &&
            br_build_stack_packed(p->b, r->packed, r->packed_len, NULL, p->n_same, ret))
            return 0;
        if (br_build_stack_packed(p->b, r->packed, r->packed_len, ids->dense, ids->n_dense, ret))
            return 0;
    }
    int rc = put_packed(p, r);
    if (!rc)
        *ret = br_build_stack(p->b, p->stack, r->n_stack);
    return rc;
}

static int wrong_values(struct br_pprof *p, const struct reading *r, uint32_t n_types)
{
    return br_err_set(p->err, BR_EINVAL, "pprof: sample %u has %s%u value%s for %u sample type%s",
                      r->number, r->n_values > n_types ? "more than " : "",
                      r->n_values > n_types ? n_types : r->n_values, r->n_values == 1 ? "" : "s",
                      n_types, n_types == 1 ? "" : "s");
}

static int put_value(struct br_pprof *p, struct reading *r, uint32_t n_types, uint64_t value)
{
    if (r->n_values == n_types) {
        r->n_values++;
        return wrong_values(p, r, n_types);
    }
    r->values[(size_t)r->n_values++ * p->ranges[BR_PPROF_SAMPLE].n] = (int64_t)value;
    return 0;
}

static int put_values(struct br_pprof *p, struct reading *r, uint32_t n_types,
                      const struct br_field *f)
{
    const uint8_t *at = f->data, *end = at + f->value;
    while (at < end) {
        uint64_t value;
        at = br_scan_varint(at, end, &value);
        if (!at)
            return malformed(p, r->number);
        int rc = put_value(p, r, n_types, value);
        if (rc)
            return rc;
    }
    return 0;
}

/* A label without anything is one without a value, as github.com/google/pprof reads it. */
static int put_label(struct br_pprof *p, struct reading *r, const struct br_field *f)
{
    enum { KEY = 1, STR, NUM, UNIT, FIELDS };
    uint64_t v[FIELDS] = {0};
    if (!br_pprof_scalars(f->data, f->data + f->value, v, FIELDS - 1))
        return malformed(p, r->number);
    if (!v[STR] && !v[NUM] && !v[UNIT])
        return 0;
    if (!br_pprof_grow(p, &p->labels, &p->cap_labels, r->n_labels, sizeof *p->labels))
        return br_pprof_no_memory(p);
    p->labels[r->n_labels++] = (struct br_pprof_label){v[KEY], v[STR], v[NUM], v[UNIT]};
    return 0;
}

static int read_sample(struct br_pprof *p, struct reading *r, uint32_t n_types,
                       const struct br_field *sample)
{
    const uint8_t *at = sample->data, *end = at + sample->value;
    struct br_field f;
    int rc = 0;
    while (at < end && !rc) {
        at = br_scan(at, end, &f);
        if (!at)
            return malformed(p, r->number);
        switch (br_scan_tag(&f)) {
        case BR_SCAN_LEN(1):
            rc = put_packed(p, r);
            if (!rc)
                rc = put_list(p, r, &f);
            break;
        case BR_SCAN_VARINT(1):
            rc = put_packed(p, r);
            if (!rc)
                rc = put_location(p, r, f.value);
            break;
        case BR_SCAN_LEN(2):
            rc = put_values(p, r, n_types, &f);
            break;
        case BR_SCAN_VARINT(2):
            rc = put_value(p, r, n_types, f.value);
            break;
        case BR_SCAN_LEN(3):
            rc = put_label(p, r, &f);
            break;
        default:
            if (f.number <= 3)
                return malformed(p, r->number);
        }
    }
    return rc || r->n_values == n_types ? rc : wrong_values(p, r, n_types);
}

/* Every value takes a byte at least: what cannot be is not given memory. */
static int allocate(struct br_pprof *p, uint32_t n_types)
{
    uint32_t n = p->ranges[BR_PPROF_SAMPLE].n;
    if ((uint64_t)n * n_types > p->source->len)
        return br_err_set(p->err, BR_EINVAL,
                          "pprof: the samples have too few values for %u sample types", n_types);
    p->samples = br_arena_alloc(p->arena, n * sizeof *p->samples);
    p->values = br_arena_alloc(p->arena, (size_t)n * n_types * sizeof *p->values);
    return p->samples && p->values ? 0 : br_pprof_no_memory(p);
}

int br_pprof_read_samples(struct br_pprof *p, uint32_t n_types)
{
    const struct br_pprof_range *range = &p->ranges[BR_PPROF_SAMPLE];
    const uint8_t *at = range->start;
    struct br_field f;
    int rc = allocate(p, n_types);
    for (uint32_t i = 0; !rc && br_pprof_next(&at, range->end, BR_SCAN_LEN(BR_PPROF_SAMPLE), &f);
         i++) {
        struct br_pprof_sample *s = &p->samples[i];
        struct reading r = {.number = i, .values = p->values + i};
        rc = read_sample(p, &r, n_types, &f);
        *s = (struct br_pprof_sample){0};
        if (!rc)
            rc = build_stack(p, &r, &s->stack);
        if (!rc)
            rc = put_labels(p, s, r.n_labels);
        if (!rc && br_build_rc(p->b))
            rc = br_pprof_no_memory(p);
    }
    return rc;
}
