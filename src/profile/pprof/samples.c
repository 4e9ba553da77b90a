/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "profile/pprof/internal.h"

/* A block of records, with its head; eight of them fill the largest block of an arena. */
#define BLOCK_SIZE 32768u

/* Each sample is a record: the length of what all types have in common, as a varint, that, and the
 * values as varints. Blocks are filled with whole records. */
struct br_pprof_record_block {
    struct br_pprof_record_block *next;
    size_t len, cap;
    uint8_t data[];
};

/* One sample being read. */
struct reading {
    uint32_t number; /* of the sample */
    uint32_t n_stack, n_values, n_labels;
    const uint8_t *packed; /* all locations so far, not yet in `stack`; NULL: none */
    size_t packed_len;
    uint64_t values[BR_PPROF_MOST_TYPES];
};

static int malformed(struct br_pprof *p, uint32_t sample)
{
    return br_err_set(p->err, BR_EINVAL, "pprof: sample %u is malformed", sample);
}

/* --- Stacks ----------------------------------------------------------------------------------- */

static int unknown_location(struct br_pprof *p, const struct reading *r, uint64_t id)
{
    p->sample_is_bad = true;
    return br_err_set(p->err, BR_EINVAL, "pprof: sample %u: location %llu is not in the profile",
                      r->number, (unsigned long long)id);
}

static int put_location(struct br_pprof *p, struct reading *r, uint64_t id)
{
    uint32_t place = br_pprof_ids_get(&p->locations, id);
    if (!place)
        return unknown_location(p, r, id);
    if (!br_pprof_grow(p, &p->stack, &p->cap_stack, (size_t)r->n_stack + 1, sizeof *p->stack))
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

/* --- Values and labels ------------------------------------------------------------------------ */

static int wrong_values(struct br_pprof *p, const struct reading *r, uint32_t n_types)
{
    p->sample_is_bad = true;
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
    r->values[r->n_values++] = value;
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
        v[STR] = p->moved;
    if (!v[STR] && !v[NUM] && !v[UNIT])
        return 0;
    if (r->n_labels == BR_PPROF_MOST_LABELS) {
        p->sample_is_bad = true;
        return br_err_set(p->err, BR_EINVAL, "pprof: sample %u has more than %u labels", r->number,
                          BR_PPROF_MOST_LABELS);
    }
    if (!br_pprof_grow(p, &p->labels, &p->cap_labels, (size_t)r->n_labels + 1, sizeof *p->labels))
        return br_pprof_no_memory(p);
    p->labels[r->n_labels++] = (struct br_pprof_label){v[KEY], v[STR], v[NUM], v[UNIT]};
    return 0;
}

/* --- Records ---------------------------------------------------------------------------------- */

/* Room for a record of at most `len` bytes; NULL when there is none. */
static uint8_t *record_room(struct br_pprof *p, size_t len)
{
    struct br_pprof_records *r = &p->records;
    struct br_pprof_record_block *block = r->last;
    if (__builtin_expect(block && block->cap - block->len >= len, 1))
        return block->data + block->len;
    size_t cap = (block ? BLOCK_SIZE : BLOCK_SIZE / 32) - sizeof *block;
    if (cap < len)
        cap = len;
    struct br_pprof_record_block *fresh = br_pprof_alloc(p, 1, sizeof *fresh + cap);
    if (!fresh)
        return NULL;
    *fresh = (struct br_pprof_record_block){.cap = cap};
    if (block)
        block->next = fresh;
    else
        r->first = fresh;
    r->last = fresh;
    return fresh->data;
}

static int put_record(struct br_pprof *p, const struct reading *r, uint32_t stack, uint32_t link)
{
    const struct br_build_sample sample = {.stack = stack,
                                           .link = link,
                                           .attributes = p->attributes,
                                           .n_attributes = p->n_attributes};
    size_t most = BR_BUILD_PREFIX(p->n_attributes);
    uint8_t *o = record_room(p, 2 * BR_VARINT_MAX + most + BR_VARINT_MAX * (size_t)r->n_values);
    if (!o)
        return br_pprof_no_memory(p);
    uint8_t *prefix = o + 1;
    o = br_build_prefix(p->b, &sample, prefix);
    size_t len = (size_t)(o - prefix);
    o = br_put_length_before(prefix, o);
    for (uint32_t i = 0; i < r->n_values; i++) {
        o = br_put_varint(o, r->values[i]);
        if (p->datadog && !r->values[i])
            continue;
        p->records.size += br_build_prefixed_size(len, r->values[i]);
        p->nonzero |= (uint64_t)1 << i;
    }
    p->records.last->len = (size_t)(o - p->records.last->data);
    return 0;
}

/* What was written here is well-formed. */
static const uint8_t *put_sample(struct br_pprof *p, const uint8_t *at, const uint8_t *end,
                                 uint32_t type, uint32_t n_types)
{
    uint64_t len, value = 0;
    at = br_scan_varint(at, end, &len);
    const uint8_t *prefix = at;
    at += len;
    for (uint32_t i = 0; i < n_types; i++) {
        if (i == type)
            at = br_scan_varint(at, end, &value);
        else
            while (*at++ & 0x80)
                ;
    }
    if (value || !p->datadog)
        br_build_prefixed(p->b, prefix, len, (int64_t)value);
    return at;
}

void br_pprof_put_samples(struct br_pprof *p, uint32_t type)
{
    uint32_t n_types = p->ranges[BR_PPROF_SAMPLE_TYPE].n;
    const struct br_pprof_record_block *block = p->records.first;
    for (; block && !br_build_rc(p->b); block = block->next) {
        const uint8_t *at = block->data, *end = at + block->len;
        while (at < end)
            at = put_sample(p, at, end, type, n_types);
    }
}

/* --- Samples ---------------------------------------------------------------------------------- */

static int read_fields(struct br_pprof *p, struct reading *r, uint32_t n_types,
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
        case BR_SCAN_LEN(BR_PPROF_SAMPLE_LOCATIONS):
            rc = put_packed(p, r);
            if (!rc)
                rc = put_list(p, r, &f);
            break;
        case BR_SCAN_VARINT(BR_PPROF_SAMPLE_LOCATIONS):
            rc = put_packed(p, r);
            if (!rc)
                rc = put_location(p, r, f.value);
            break;
        case BR_SCAN_LEN(BR_PPROF_SAMPLE_VALUES):
            rc = put_values(p, r, n_types, &f);
            break;
        case BR_SCAN_VARINT(BR_PPROF_SAMPLE_VALUES):
            rc = put_value(p, r, n_types, f.value);
            break;
        case BR_SCAN_LEN(BR_PPROF_SAMPLE_LABELS):
            rc = put_label(p, r, &f);
            break;
        default:
            if (f.number <= BR_PPROF_SAMPLE_LABELS)
                return malformed(p, r->number);
        }
    }
    return rc || r->n_values == n_types ? rc : wrong_values(p, r, n_types);
}

static int read_sample(struct br_pprof *p, uint32_t number, uint32_t n_types,
                       const struct br_field *sample)
{
    struct reading r;
    uint32_t stack, link = 0;
    r.number = number;
    r.n_stack = r.n_values = r.n_labels = 0;
    r.packed = NULL;
    r.packed_len = 0;
    p->n_attributes = 0;
    int rc = read_fields(p, &r, n_types, sample);
    if (!rc)
        rc = build_stack(p, &r, &stack);
    if (!rc && r.n_labels) {
        rc = br_pprof_read_labels(p, r.n_labels, &link);
        p->sample_is_bad = rc == BR_EINVAL; /* a string that is not there */
    }
    if (!rc && (br_build_rc(p->b) || !br_pprof_fits(p, 0)))
        rc = br_pprof_no_memory(p);
    return rc ? rc : put_record(p, &r, stack, link);
}

/* Goes on without the sample. */
static int lose_sample(struct br_pprof *p)
{
    br_pprof_blame(p);
    p->sample_is_bad = false;
    p->lost.n++;
    return 0;
}

static int end_samples(struct br_pprof *p)
{
    struct br_profile_lost *into = p->source->lost;
    if (!p->lost.n)
        return 0;
    if (!p->records.first) {
        *p->err = p->lost.first;
        return BR_EINVAL;
    }
    if (into && !into->n)
        into->first = p->lost.first;
    if (into)
        into->n += p->lost.n;
    return 0;
}

int br_pprof_read_samples(struct br_pprof *p, uint32_t n_types)
{
    const struct br_pprof_range *range = &p->ranges[BR_PPROF_SAMPLE];
    const uint8_t *at = range->start;
    struct br_field f;
    int rc = 0;
    /* Every value takes a byte at least. */
    if ((uint64_t)range->n * n_types > p->source->len)
        return br_err_set(p->err, BR_EINVAL,
                          "pprof: the samples have too few values for %u sample types", n_types);
    for (uint32_t i = 0; !rc && br_pprof_next(&at, range->end, BR_SCAN_LEN(BR_PPROF_SAMPLE), &f);
         i++) {
        rc = read_sample(p, i, n_types, &f);
        if (rc == BR_EINVAL && p->sample_is_bad)
            rc = lose_sample(p);
    }
    return rc ? rc : end_samples(p);
}
