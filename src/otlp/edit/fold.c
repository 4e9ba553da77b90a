/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Equal samples form a chain of sample numbers. For each sample only its position and the next
 * sample of its chain are stored. All other data is read again from the bytes of the sample when
 * needed. A sample therefore takes 15 bytes, regardless of its size.
 */
#include "otlp/edit/fold.h"

#include <string.h>

#include "base/err.h"
#include "base/heap.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/sum.h"
#include "otlp/edit/rewrite.h"
#include "otlp/fields.h"
#include "wire/protobuf.h"

#define ATTRIBUTES_MAX (1u << 26)
/* verdict on a sample that was merged into another sample, in addition to those of enum br_fold */
#define FOLD_MERGED 3

/* The properties by which samples are compared. */
struct fold_sample {
    uint32_t stack;
    /* index of the sample's link; 0: the sample has no link, or its link is not kept */
    uint32_t link;
    uint32_t n_values, n_times;
    /* the sample has unknown fields, or its numbers of values and timestamps differ */
    bool unmergeable;
    /* attribute indices in ascending order; the indices of labels that name the span are left
     * out */
    uint32_t *attributes;
    uint32_t n_attributes, cap_attributes;
};

/* The bytes of a part of the item, and the number of its first sample. The positions of the
 * part's samples are relative to `base`. */
struct fold_range {
    uint32_t first;
    const uint8_t *base, *end;
};

struct fold {
    uint8_t *folds;
    /* meaning of each attribute (enum br_fold_attribute), by attribute index */
    const uint8_t *attributes;
    uint32_t n_attributes;
    uint8_t secret[16];
    struct fold_range *ranges;
    uint32_t n_ranges;
    uint32_t count;         /* number of samples */
    uint32_t profile_first; /* index of the first sample of the current profile */
    /* position of each sample's field relative to fold_range.base, by sample number */
    uint32_t *at;
    /* number of the next sample in the chain of each sample, by sample number; numbers ascend in
     * a chain, and its last sample points to the first */
    uint32_t *next;
    /* hash table of chains; an entry is the number of the last sample of a chain, plus 1 */
    uint32_t *last;
    uint8_t *tags; /* for each slot of `last`, the low bits of the hash */
    uint32_t n_slots;
    struct fold_sample here, there;
    uint64_t *sums;
    uint32_t cap_sums;
    uint8_t *out;
    size_t cap_out;
    uint32_t n_merged;
    bool no_memory;
};

/* --- Reading ---------------------------------------------------------------------------------- */

static bool fold_is_kept(uint8_t verdict)
{
    return (verdict & ~BR_FOLD_TIMELESS) == BR_FOLD_KEPT;
}

/* Returns true if samples with the verdict `verdict` lose the attribute `index`. */
static bool fold_drops(const struct fold *fold, uint8_t verdict, uint64_t index)
{
    if (index >= fold->n_attributes)
        return false;
    uint8_t names = fold->attributes[index];
    if (verdict & BR_FOLD_TIMELESS && names & BR_FOLD_NAMES_THREAD)
        return true;
    return !fold_is_kept(verdict) && names & BR_FOLD_NAMES_SPAN;
}

static void fold_put_attribute(struct fold *fold, uint8_t verdict, struct fold_sample *fold_sample,
                               uint64_t index)
{
    if (fold_drops(fold, verdict, index))
        return;
    if (br_grow(&fold_sample->attributes, &fold_sample->cap_attributes,
                (size_t)fold_sample->n_attributes + 1, sizeof *fold_sample->attributes,
                ATTRIBUTES_MAX)) {
        fold->no_memory = true;
        return;
    }
    fold_sample->attributes[fold_sample->n_attributes++] = (uint32_t)index;
}

static bool fold_is_larger(const void *one, const void *other, const void *arg)
{
    (void)arg;
    return *(const uint32_t *)one > *(const uint32_t *)other;
}

static const struct br_heap_kind largest_first = {sizeof(uint32_t), fold_is_larger, NULL};

/* Sorts the values. The values are usually sorted already. */
static void fold_sort(uint32_t *values, uint32_t count)
{
    uint32_t sorted = 1;
    while (sorted < count && values[sorted - 1] <= values[sorted])
        sorted++;
    if (sorted >= count)
        return;
    for (uint32_t i = count / 2; i-- > 0;)
        br_heap_sink(largest_first, values, count, i, NULL);
    for (uint32_t i = count - 1; i > 0; i--) {
        uint32_t largest = values[0];
        values[0] = values[i];
        values[i] = largest;
        br_heap_sink(largest_first, values, i, 0, NULL);
    }
}

/* Reads the next number of a repeated field. Returns false at the end of the field. `*at` must
 * be NULL before the first call. */
static bool fold_number(const struct br_field *field, const uint8_t **at, uint64_t *ret)
{
    const uint8_t *end = br_field_end(field);
    if (field->wire != BR_WIRE_LEN) {
        *ret = field->value;
        return !*at && (*at = (const uint8_t *)"");
    }
    const uint8_t *p = *at ? *at : field->data;
    if (field->number == BR_SAMPLE_TIMES) {
        if (end - p < 8)
            return false;
        *ret = br_load64(p);
        *at = p + 8;
        return true;
    }
    return p < end && (*at = br_varint(p, end, ret));
}

static void fold_read(struct fold *fold, uint8_t verdict, const uint8_t *p, const uint8_t *end,
                      struct fold_sample *fold_sample)
{
    struct br_field field;
    fold_sample->link = 0;
    fold_sample->stack = fold_sample->n_values = fold_sample->n_times = fold_sample->n_attributes =
        0;
    fold_sample->unmergeable = false;
    while (p < end && (p = br_field_next(p, end, &field))) {
        const uint8_t *at = NULL;
        uint64_t v;
        if (field.number == BR_SAMPLE_STACK)
            fold_sample->stack = (uint32_t)field.value;
        else if (field.number == BR_SAMPLE_ATTRIBUTES)
            while (fold_number(&field, &at, &v))
                fold_put_attribute(fold, verdict, fold_sample, v);
        else if (field.number == BR_SAMPLE_VALUES)
            while (fold_number(&field, &at, &v))
                fold_sample->n_values++;
        else if (field.number == BR_SAMPLE_TIMES)
            fold_sample->n_times += field.wire == BR_WIRE_LEN ? (uint32_t)(field.value / 8) : 1;
        else if (field.number != BR_SAMPLE_LINK)
            fold_sample->unmergeable = true;
        else if (fold_is_kept(verdict))
            fold_sample->link = (uint32_t)field.value;
    }
    if (verdict & BR_FOLD_TIMELESS) {
        fold_sample->unmergeable =
            fold_sample->unmergeable || fold_sample->n_values != fold_sample->n_times;
        /* the values are merged into a single value, which is their sum */
        fold_sample->n_values = 1;
        fold_sample->n_times = 0;
    }
    fold_sample->unmergeable =
        fold_sample->unmergeable || (fold_sample->n_times && fold_sample->n_values &&
                                     fold_sample->n_times != fold_sample->n_values);
    fold_sort(fold_sample->attributes, fold_sample->n_attributes);
}

/* Returns the start of the message of sample `index`, which is found by its stored position. */
static const uint8_t *fold_body(const struct fold *fold, uint32_t index, const uint8_t **ret_end)
{
    uint32_t low = 0, high = fold->n_ranges;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (fold->ranges[middle].first <= index)
            low = middle;
        else
            high = middle;
    }
    struct br_field field;
    *ret_end =
        br_field_next(fold->ranges[low].base + fold->at[index], fold->ranges[low].end, &field);
    return field.data;
}

/* --- Chaining --------------------------------------------------------------------------------- */

/* Returns a key for the sample's shape: samples with equal keys have the same shape. The shape
 * distinguishes samples with timestamps and values, samples with timestamps only, and samples
 * without timestamps. The key of samples without timestamps contains the number of their values. */
static uint32_t fold_shape(const struct fold_sample *fold_sample)
{
    return fold_sample->n_times ? UINT32_MAX - (fold_sample->n_values > 0) : fold_sample->n_values;
}

static uint64_t fold_hash(const struct fold *fold)
{
    const struct fold_sample *fold_sample = &fold->here;
    struct {
        uint32_t profile, stack, shape, link;
        uint64_t attributes;
    } key = {fold->profile_first, fold_sample->stack, fold_shape(fold_sample), fold_sample->link,
             0};
    if (fold_sample->n_attributes)
        key.attributes = br_siphash(fold->secret, fold_sample->attributes,
                                    fold_sample->n_attributes * sizeof *fold_sample->attributes);
    return br_siphash(fold->secret, &key, sizeof key);
}

/* Returns true if the earlier sample `index` of the item equals the current sample. */
static bool fold_same(struct fold *fold, uint32_t index)
{
    const struct fold_sample *here = &fold->here, *there = &fold->there;
    if (index < fold->profile_first)
        return false;
    const uint8_t *end, *p = fold_body(fold, index, &end);
    fold_read(fold, fold->folds[index], p, end, &fold->there);
    if (fold->no_memory || there->stack != here->stack || there->link != here->link)
        return false;
    if (fold_shape(there) != fold_shape(here) || there->n_attributes != here->n_attributes)
        return false;
    return !here->n_attributes || memcmp(there->attributes, here->attributes,
                                         here->n_attributes * sizeof *here->attributes) == 0;
}

static void fold_chain(struct fold *fold, uint32_t index)
{
    uint64_t hash = fold_hash(fold);
    uint8_t tag = (uint8_t)hash;
    uint32_t slot = (uint32_t)((hash >> 32) * fold->n_slots >> 32);
    for (; fold->last[slot]; slot = slot + 1 < fold->n_slots ? slot + 1 : 0) {
        uint32_t last = fold->last[slot] - 1;
        if (fold->tags[slot] != tag || !fold_same(fold, last))
            continue;
        fold->next[index] = fold->next[last];
        fold->next[last] = index;
        break;
    }
    fold->last[slot] = index + 1;
    fold->tags[slot] = tag;
}

static void fold_note(struct fold *fold, uint32_t index, const uint8_t *at, const uint8_t *body,
                      const uint8_t *end)
{
    if (fold->folds[index] == BR_FOLD_KEPT || fold->no_memory)
        return;
    fold->at[index] = (uint32_t)(at - fold->ranges[fold->n_ranges - 1].base);
    fold->next[index] = index;
    fold_read(fold, fold->folds[index], body, end, &fold->here);
    if (!fold->here.unmergeable && !fold->no_memory)
        fold_chain(fold, index);
}

/* Stores the positions of all samples, in the order in which br_item_rewrite visits the samples. */
static void fold_note_all(struct fold *fold, const struct br_item *item)
{
    struct br_field field, s, t;
    uint32_t index = 0;
    for (uint32_t i = 0; i < item->n_parts; i++) {
        const struct br_part *part = &item->parts[i];
        if (part->kind != BR_PART_RESOURCE || !part->n_records)
            continue;
        fold->ranges[fold->n_ranges++] =
            (struct fold_range){index, part->raw, part->raw + part->raw_len};
        const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
        while (p < end && (p = br_field_next(p, end, &field))) {
            const uint8_t *q = field.data, *q_end = br_field_end(&field);
            while (field.number == BR_RESOURCES_SCOPES && q < q_end &&
                   (q = br_field_next(q, q_end, &s))) {
                const uint8_t *m = s.data, *m_end = br_field_end(&s);
                fold->profile_first = index;
                const uint8_t *at = m;
                for (; s.number == BR_SCOPES_RECORDS && m < m_end &&
                       (m = br_field_next(m, m_end, &t));
                     at = m)
                    if (t.number == BR_PROFILE_SAMPLES)
                        fold_note(fold, index++, at, t.data, m);
            }
        }
    }
}

/* --- Writing ---------------------------------------------------------------------------------- */

/* A chain of equal samples that becomes one sample, or a section of a chain if the sums of the
 * whole chain would overflow. */
struct fold_group {
    uint32_t first, last;
    uint32_t n_values, n_times;
    size_t values_len; /* size in bytes of the group's values, encoded as varints */
    bool folded;       /* at least one sample of the group loses its link or its timestamps */
};

static bool fold_changes(uint8_t verdict)
{
    return verdict == BR_FOLD_FOLDED || verdict & BR_FOLD_TIMELESS;
}

/* Adds the values of a sample to the sums. If the sample loses its timestamps, the sum of its
 * values counts as its only value. With `check`, changes nothing and returns false if a sum
 * would overflow. */
static bool fold_add(struct fold *fold, uint32_t index, bool check)
{
    bool one = fold->folds[index] & BR_FOLD_TIMELESS;
    struct br_field field;
    uint32_t n = 0;
    int64_t sum, total = 0;
    const uint8_t *end, *p = fold_body(fold, index, &end);
    while (p < end && (p = br_field_next(p, end, &field))) {
        const uint8_t *at = NULL;
        uint64_t v;
        while (field.number == BR_SAMPLE_VALUES && fold_number(&field, &at, &v)) {
            if (one) {
                total = br_sum(total, (int64_t)v);
                continue;
            }
            if (__builtin_add_overflow((int64_t)fold->sums[n], (int64_t)v, &sum) && check)
                return false;
            fold->sums[n] = check ? fold->sums[n] : (uint64_t)sum;
            n++;
        }
    }
    if (one && __builtin_add_overflow((int64_t)fold->sums[0], total, &sum) && check)
        return false;
    if (one && !check)
        fold->sums[0] = (uint64_t)sum;
    return true;
}

static size_t fold_values_len(const struct fold *fold, uint32_t index, uint32_t *count)
{
    struct br_field field;
    size_t len = 0;
    const uint8_t *end, *p = fold_body(fold, index, &end);
    while (p < end && (p = br_field_next(p, end, &field))) {
        const uint8_t *at = NULL;
        uint64_t v;
        for (; field.number == BR_SAMPLE_VALUES && fold_number(&field, &at, &v); ++*count)
            len += br_varint_size(v);
    }
    return len;
}

/* Adds up the values of the chain's samples until a sum would overflow. */
static int fold_sum(struct fold *fold, struct fold_group *fold_group)
{
    fold_group->n_values = fold->here.n_values;
    if (br_grow(&fold->sums, &fold->cap_sums, fold_group->n_values, sizeof *fold->sums, UINT32_MAX))
        return BR_ENOMEM;
    if (fold_group->n_values)
        memset(fold->sums, 0, fold_group->n_values * sizeof *fold->sums);
    uint32_t index = fold_group->first;
    do {
        if (!fold_add(fold, index, true))
            break;
        (void)fold_add(fold, index, false);
        fold_group->folded = fold_group->folded || fold_changes(fold->folds[index]);
        fold_group->last = index;
        index = fold->next[index];
    } while (index > fold_group->last);
    for (uint32_t i = 0; i < fold_group->n_values; i++)
        fold_group->values_len += br_varint_size(fold->sums[i]);
    return 0;
}

/* Computes the size of a group whose samples have timestamps. A group with timestamps keeps all
 * values and timestamps. */
static void fold_measure(struct fold *fold, struct fold_group *fold_group)
{
    uint32_t index = fold_group->first;
    do {
        const uint8_t *end, *p = fold_body(fold, index, &end);
        fold_read(fold, fold->folds[index], p, end, &fold->there);
        fold_group->values_len += fold_values_len(fold, index, &fold_group->n_values);
        fold_group->n_times += fold->there.n_times;
        fold_group->folded = fold_group->folded || fold_changes(fold->folds[index]);
        fold_group->last = index;
        index = fold->next[index];
    } while (index > fold_group->last);
}

/* Copies the numbers of one repeated field from all samples of the group. */
static uint8_t *fold_copy(const struct fold *fold, const struct fold_group *fold_group,
                          unsigned field_number, uint8_t *out)
{
    uint32_t index = fold_group->first;
    for (;; index = fold->next[index]) {
        struct br_field field;
        const uint8_t *end, *p = fold_body(fold, index, &end);
        while (p < end && (p = br_field_next(p, end, &field))) {
            const uint8_t *at = NULL;
            uint64_t v;
            while (field.number == field_number && fold_number(&field, &at, &v)) {
                if (field_number == BR_SAMPLE_TIMES)
                    out = br_put_bytes(out, &v, sizeof v);
                else
                    out = br_put_varint(out, v);
            }
        }
        if (index == fold_group->last)
            return out;
    }
}

static uint8_t *fold_open(uint8_t *out, uint32_t field, size_t len)
{
    return br_put_varint(br_put_varint(out, BR_TAG(field, BR_WIRE_LEN)), len);
}

static uint8_t *fold_write_attributes(uint8_t *out, const struct fold_sample *fold_sample)
{
    size_t len = 0;
    for (uint32_t i = 0; i < fold_sample->n_attributes; i++)
        len += br_varint_size(fold_sample->attributes[i]);
    if (len)
        out = fold_open(out, BR_SAMPLE_ATTRIBUTES, len);
    for (uint32_t i = 0; i < fold_sample->n_attributes; i++)
        out = br_put_varint(out, fold_sample->attributes[i]);
    return out;
}

static uint8_t *fold_write_values(const struct fold *fold, const struct fold_group *fold_group,
                                  uint8_t *out)
{
    if (!fold_group->n_values)
        return out;
    out = fold_open(out, BR_SAMPLE_VALUES, fold_group->values_len);
    if (fold_group->n_times)
        return fold_copy(fold, fold_group, BR_SAMPLE_VALUES, out);
    for (uint32_t i = 0; i < fold_group->n_values; i++)
        out = br_put_varint(out, fold->sums[i]);
    return out;
}

/* Copies the unknown fields of a sample. A sample with unknown fields is not merged with other
 * samples. */
static uint8_t *fold_write_unknown(uint8_t *out, const uint8_t *p, const uint8_t *end)
{
    struct br_field field;
    for (const uint8_t *at = p; p < end && (p = br_field_next(p, end, &field)); at = p)
        if (field.number > BR_SAMPLE_TIMES)
            out = br_put_bytes(out, at, (size_t)(p - at));
    return out;
}

static int fold_reserve(struct fold *fold, size_t need)
{
    if (need <= fold->cap_out)
        return 0;
    br_free(fold->out);
    fold->cap_out = need + need / 2;
    fold->out = br_malloc(fold->cap_out);
    fold->cap_out = fold->out ? fold->cap_out : 0;
    return fold->out ? 0 : BR_ENOMEM;
}

static int fold_write(struct fold *fold, const struct fold_group *fold_group,
                      struct br_visit *visit)
{
    const struct fold_sample *fold_sample = &fold->here;
    size_t room = 8 * (1 + BR_VARINT_MAX); /* room for tags, lengths and the stack index */
    if (fold_reserve(fold, room + fold_sample->n_attributes * 5 + fold_group->values_len +
                               (size_t)fold_group->n_times * 8 + visit->len))
        return BR_ENOMEM;
    uint8_t *o = fold->out;
    if (fold_sample->stack) {
        o = br_put_varint(o, BR_TAG(BR_SAMPLE_STACK, BR_WIRE_VARINT));
        o = br_put_varint(o, fold_sample->stack);
    }
    o = fold_write_attributes(o, fold_sample);
    if (fold_sample->link) {
        o = br_put_varint(o, BR_TAG(BR_SAMPLE_LINK, BR_WIRE_VARINT));
        o = br_put_varint(o, fold_sample->link);
    }
    o = fold_write_values(fold, fold_group, o);
    if (fold_group->n_times)
        o = fold_copy(fold, fold_group, BR_SAMPLE_TIMES,
                      fold_open(o, BR_SAMPLE_TIMES, (size_t)fold_group->n_times * 8));
    if (fold_sample->unmergeable)
        o = fold_write_unknown(o, visit->body, visit->body + visit->len);
    visit->out = (struct br_addition){fold->out, (size_t)(o - fold->out)};
    return BR_REPLACE;
}

/* Sets the verdict on all samples of the group except the first. The verdict is FOLD_MERGED
 * if the group is folded, or BR_FOLD_KEPT if the group stays unchanged. */
static void fold_decide(struct fold *fold, const struct fold_group *fold_group)
{
    for (uint32_t index = fold_group->first; index != fold_group->last;) {
        index = fold->next[index];
        fold->folds[index] = fold_group->folded ? FOLD_MERGED : BR_FOLD_KEPT;
    }
}

/* Replaces the first sample of a group by the merged sample. If the sums of a chain would
 * overflow, the remaining samples of the chain form a new group when the first remaining sample
 * is visited. */
static int fold_on_sample(void *arg, struct br_visit *visit)
{
    struct fold *fold = arg;
    struct fold_group fold_group = {.first = visit->index, .last = visit->index};
    if (fold->folds[visit->index] == BR_FOLD_KEPT)
        return BR_KEEP;
    if (fold->folds[visit->index] == FOLD_MERGED) {
        fold->n_merged++;
        return BR_DROP;
    }
    fold_read(fold, fold->folds[visit->index], visit->body, visit->body + visit->len, &fold->here);
    if (fold->no_memory)
        return BR_ENOMEM;
    if (fold->here.n_times)
        fold_measure(fold, &fold_group);
    else if (fold_sum(fold, &fold_group))
        return BR_ENOMEM;
    fold_decide(fold, &fold_group);
    if (!fold_group.folded)
        return BR_KEEP;
    return fold->no_memory ? BR_ENOMEM : fold_write(fold, &fold_group, visit);
}

/* --- All steps -------------------------------------------------------------------------------- */

static int fold_init(struct fold *fold, const struct br_item *item)
{
    uint32_t n_ranges = 0;
    for (uint32_t i = 0; i < item->n_parts; i++)
        n_ranges += item->parts[i].kind == BR_PART_RESOURCE && item->parts[i].n_records;
    fold->count = item->n_records;
    fold->n_slots = fold->count + fold->count / 3 + 1;
    fold->ranges = br_calloc(n_ranges + 1, sizeof *fold->ranges);
    fold->at = br_malloc((size_t)fold->count * sizeof *fold->at);
    fold->next = br_malloc((size_t)fold->count * sizeof *fold->next);
    fold->last = br_calloc(fold->n_slots, sizeof *fold->last);
    fold->tags = br_malloc(fold->n_slots);
    br_random_bytes(fold->secret, sizeof fold->secret);
    return fold->ranges && fold->at && fold->next && fold->last && fold->tags ? 0 : BR_ENOMEM;
}

static void fold_release(struct fold *fold)
{
    br_free(fold->ranges);
    br_free(fold->at);
    br_free(fold->next);
    br_free(fold->last);
    br_free(fold->tags);
    br_free(fold->here.attributes);
    br_free(fold->there.attributes);
    br_free(fold->sums);
    br_free(fold->out);
}

/* Frees the memory that is only used for chaining. */
static void fold_release_table(struct fold *fold)
{
    br_free(fold->last);
    br_free(fold->tags);
    fold->last = NULL;
    fold->tags = NULL;
}

int br_item_fold(struct br_item *item, uint8_t *folds, const uint8_t *attributes,
                 uint32_t n_attributes, uint32_t *ret_merged)
{
    struct fold fold = {.folds = folds, .attributes = attributes, .n_attributes = n_attributes};
    int rc = fold_init(&fold, item);
    if (!rc)
        fold_note_all(&fold, item);
    if (!rc && fold.no_memory)
        rc = BR_ENOMEM;
    fold_release_table(&fold);
    if (!rc)
        rc = br_item_rewrite(item, 1u << BR_LEVEL_RECORD, fold_on_sample, &fold);
    if (!rc)
        *ret_merged = fold.n_merged;
    fold_release(&fold);
    return rc;
}
