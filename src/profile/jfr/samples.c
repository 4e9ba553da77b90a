/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "profile/jfr/convert.h"
#include "wire/protobuf.h"

#define BLOCK_MIN 1024u
#define BLOCK_MAX 65536u
#define SAMPLE_MAX                                                                                 \
    (2 + 3 * 4 + 3 * 8 + 8) /* bytes of a packed sample, and what may be read behind it */
#define USUAL_VALUE 1u

int br_jfr_samples_init(struct br_jfr_samples *samples, bool fold)
{
    samples->fold = fold;
    br_random_bytes(&samples->secret, sizeof samples->secret);
    int rc = br_grow(&samples->tags, &samples->tags_cap, 1, sizeof *samples->tags, UINT32_MAX);
    if (!rc)
        rc = br_grow(&samples->threads, &samples->threads_cap, 1, sizeof *samples->threads,
                     UINT32_MAX);
    if (rc)
        return rc;
    samples->tags[samples->n_tags++] = (struct br_jfr_tags){0};
    samples->threads[samples->n_threads++] = (struct br_jfr_thread){0};
    return 0;
}

void br_jfr_samples_release(struct br_jfr_samples *samples)
{
    for (unsigned i = 0; i < BR_JFR_N_KINDS; i++)
        br_jfr_table_release(&samples->tables[i]);
    br_free(samples->tags);
    br_free(samples->tag_slots);
    br_free(samples->threads);
    *samples = (struct br_jfr_samples){0};
}

/* One step of a keyed multiplicative hash: what is mixed cannot be chosen to meet. */
static uint64_t jfr_samples_mix(const struct br_jfr_samples *samples, uint64_t hash, uint64_t value)
{
    br_jfr_u128 m = (br_jfr_u128)(hash ^ value ^ samples->secret) * (samples->secret << 1 | 1);
    return (uint64_t)(m >> 64) ^ (uint64_t)m;
}

static uint64_t jfr_samples_hash_tags(const struct br_jfr_samples *samples,
                                      const struct br_jfr_tags *tags)
{
    uint64_t h = jfr_samples_mix(samples, tags->context, tags->span_id);
    h = jfr_samples_mix(samples, h, tags->span_name);
    h = jfr_samples_mix(samples, h, tags->trace_hi);
    return jfr_samples_mix(samples, h, tags->trace_lo);
}

static uint64_t jfr_samples_hash_folded(const struct br_jfr_samples *samples, uint32_t stack,
                                        uint32_t tags)
{
    return jfr_samples_mix(samples, 0, (uint64_t)stack << 32 | tags);
}

static bool jfr_samples_tags_equal(const struct br_jfr_tags *left, const struct br_jfr_tags *right)
{
    return left->span_id == right->span_id && left->span_name == right->span_name &&
           left->context == right->context && left->trace_hi == right->trace_hi &&
           left->trace_lo == right->trace_lo;
}

/* Twice the slots; `*ret` is zeroed. */
static int jfr_samples_more_slots(size_t n_slots, uint32_t **ret, size_t *ret_n)
{
    size_t n = n_slots ? n_slots * 2 : 64;
    uint32_t *slots = br_calloc(n, sizeof *slots);
    if (!slots)
        return BR_ENOMEM;
    *ret = slots;
    *ret_n = n;
    return 0;
}

static uint32_t *jfr_samples_free_slot(uint32_t *slots, size_t count, uint64_t hash)
{
    size_t i = hash & (count - 1);
    while (slots[i])
        i = (i + 1) & (count - 1);
    return &slots[i];
}

static int jfr_samples_rehash_tags(struct br_jfr_samples *samples)
{
    uint32_t *slots;
    size_t n;
    int rc = jfr_samples_more_slots(samples->n_tag_slots, &slots, &n);
    if (rc)
        return rc;
    for (uint32_t i = 1; i < samples->n_tags; i++)
        *jfr_samples_free_slot(slots, n, jfr_samples_hash_tags(samples, &samples->tags[i])) = i + 1;
    br_free(samples->tag_slots);
    samples->tag_slots = slots;
    samples->n_tag_slots = n;
    return 0;
}

int br_jfr_tags_add(struct br_jfr_samples *samples, const struct br_jfr_tags *tags, uint32_t *ret)
{
    if (jfr_samples_tags_equal(tags, &samples->tags[0])) {
        *ret = 0;
        return 0;
    }
    if (samples->n_tags >= samples->n_tag_slots / 2) {
        int rc = jfr_samples_rehash_tags(samples);
        if (rc)
            return rc;
    }
    size_t mask = samples->n_tag_slots - 1, i = jfr_samples_hash_tags(samples, tags) & mask;
    for (; samples->tag_slots[i]; i = (i + 1) & mask)
        if (jfr_samples_tags_equal(&samples->tags[samples->tag_slots[i] - 1], tags)) {
            *ret = samples->tag_slots[i] - 1;
            return 0;
        }
    int rc = br_grow(&samples->tags, &samples->tags_cap, (size_t)samples->n_tags + 1,
                     sizeof *samples->tags, UINT32_MAX);
    if (rc)
        return rc;
    samples->tags[samples->n_tags] = *tags;
    *ret = samples->n_tags++;
    samples->tag_slots[i] = *ret + 1;
    return 0;
}

/* --- Samples that are folded ------------------------------------------------------------------ */

static int jfr_samples_rehash(const struct br_jfr_samples *samples, struct br_jfr_table *table)
{
    uint32_t *slots;
    size_t n;
    int rc = jfr_samples_more_slots(table->n_slots, &slots, &n);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < table->count; i++)
        *jfr_samples_free_slot(slots, n,
                               jfr_samples_hash_folded(samples, table->folded[i].stack,
                                                       table->folded[i].tags)) = i + 1;
    br_free(table->slots);
    table->slots = slots;
    table->n_slots = n;
    return 0;
}

static int jfr_samples_fold(struct br_jfr_samples *samples, struct br_jfr_table *table,
                            const struct br_jfr_sample *sample)
{
    uint32_t stack = sample->key.stack, tags = sample->key.tags;
    int rc = table->count >= table->n_slots / 4 * 3 ? jfr_samples_rehash(samples, table) : 0;
    if (rc)
        return rc;
    size_t mask = table->n_slots - 1, i = jfr_samples_hash_folded(samples, stack, tags) & mask;
    for (; table->slots[i]; i = (i + 1) & mask) {
        struct br_jfr_folded *same = &table->folded[table->slots[i] - 1];
        if (same->stack != stack || same->tags != tags)
            continue;
        for (int k = 0; k < 2; k++) /* wraps where jfr-parser's wraps */
            same->values[k] = (int64_t)((uint64_t)same->values[k] + (uint64_t)sample->values[k]);
        return 0;
    }
    rc = br_grow(&table->folded, &table->folded_cap, (size_t)table->count + 1,
                 sizeof *table->folded, UINT32_MAX - 1);
    if (rc)
        return rc;
    table->folded[table->count] =
        (struct br_jfr_folded){stack, tags, {sample->values[0], sample->values[1]}};
    table->slots[i] = ++table->count;
    return 0;
}

/* --- Samples that are not --------------------------------------------------------------------- */

/* Small numbers of either sign are small. */
static uint64_t jfr_samples_zigzag(uint64_t value)
{
    return value << 1 ^ (0 - (value >> 63));
}

static uint64_t jfr_samples_unzigzag(uint64_t value)
{
    return value >> 1 ^ (0 - (value & 1));
}

/* A packed sample: two bytes that say how wide each number is, then the numbers, little endian.
 * Widths are 0, 1, 2, 4 for indices and 0, 2, 4, 8 for others; so neither side branches on what it
 * finds. */
static uint8_t *jfr_samples_pack_index(uint8_t *out, uint32_t value, unsigned shift,
                                       unsigned *widths)
{
    unsigned code = (unsigned)((value > 0) + (value > 0xff) + (value > 0xffff));
    memcpy(out, &value, sizeof value);
    *widths |= code << shift;
    return out + (1u << code >> 1);
}

static uint8_t *jfr_samples_pack_number(uint8_t *out, uint64_t value, unsigned shift,
                                        unsigned *widths)
{
    unsigned code = (unsigned)((value > 0) + (value > 0xffff) + (value > 0xffffffff));
    memcpy(out, &value, sizeof value);
    *widths |= code << shift;
    return out + (1u << code & 0xe);
}

static const uint8_t *jfr_samples_unpack_index(const uint8_t *p, unsigned widths, unsigned shift,
                                               uint32_t *ret)
{
    static const uint32_t masks[] = {0, 0xff, 0xffff, 0xffffffff};
    unsigned code = widths >> shift & 3;
    *ret = br_load32(p) & masks[code];
    return p + (1u << code >> 1);
}

static const uint8_t *jfr_samples_unpack_number(const uint8_t *p, unsigned widths, unsigned shift,
                                                uint64_t *ret)
{
    static const uint64_t masks[] = {0, 0xffff, 0xffffffff, UINT64_MAX};
    unsigned code = widths >> shift & 3;
    *ret = br_load64(p) & masks[code];
    return p + (1u << code & 0xe);
}

static int jfr_samples_add_block(struct br_jfr_table *table)
{
    uint32_t size = table->last ? table->last->size * 2 : BLOCK_MIN;
    size = size < BLOCK_MAX ? size : BLOCK_MAX;
    struct br_jfr_block *block = br_malloc(sizeof *block + size);
    if (!block)
        return BR_ENOMEM;
    *block = (struct br_jfr_block){.size = size};
    *(table->last ? &table->last->next : &table->first) = block;
    table->last = block;
    return 0;
}

static int jfr_samples_append(struct br_jfr_table *table, const struct br_jfr_sample *sample)
{
    int rc = !table->last || table->last->size - table->last->len < SAMPLE_MAX
                 ? jfr_samples_add_block(table)
                 : 0;
    if (rc || table->count == UINT32_MAX)
        return rc ? rc : BR_EFULL;
    uint8_t *start = table->last->data + table->last->len, *o = start + 2;
    unsigned widths = 0;
    o = jfr_samples_pack_index(o, sample->key.stack, 0, &widths);
    o = jfr_samples_pack_index(o, sample->key.tags, 2, &widths);
    o = jfr_samples_pack_index(o, sample->key.thread, 4, &widths);
    o = jfr_samples_pack_number(o, jfr_samples_zigzag((uint64_t)sample->values[0] - USUAL_VALUE), 6,
                                &widths);
    o = jfr_samples_pack_number(o, jfr_samples_zigzag((uint64_t)sample->values[1]), 8, &widths);
    o = jfr_samples_pack_number(o, jfr_samples_zigzag(sample->time_ns - table->time_ns), 10,
                                &widths);
    start[0] = (uint8_t)widths;
    start[1] = (uint8_t)(widths >> 8);
    table->last->len += (uint32_t)(o - start);
    table->time_ns = sample->time_ns;
    table->count++;
    return 0;
}

static void unpack_sample(struct br_jfr_cursor *cursor, struct br_jfr_sample *ret)
{
    uint64_t first, second, time;
    if (!cursor->block) {
        cursor->block = cursor->table->first;
    } else if (cursor->at == cursor->block->len) {
        cursor->block = cursor->block->next;
        cursor->at = 0;
    }
    const uint8_t *p = cursor->block->data + cursor->at;
    unsigned widths = (unsigned)(p[0] | p[1] << 8);
    p = jfr_samples_unpack_index(p + 2, widths, 0, &ret->key.stack);
    p = jfr_samples_unpack_index(p, widths, 2, &ret->key.tags);
    p = jfr_samples_unpack_index(p, widths, 4, &ret->key.thread);
    p = jfr_samples_unpack_number(p, widths, 6, &first);
    p = jfr_samples_unpack_number(p, widths, 8, &second);
    p = jfr_samples_unpack_number(p, widths, 10, &time);
    ret->values[0] = (int64_t)(jfr_samples_unzigzag(first) + USUAL_VALUE);
    ret->values[1] = (int64_t)jfr_samples_unzigzag(second);
    ret->time_ns = cursor->time_ns += jfr_samples_unzigzag(time);
    cursor->at = (uint32_t)(p - cursor->block->data);
}

/* --- Both ------------------------------------------------------------------------------------- */

int br_jfr_sample_add(struct br_jfr_samples *samples, enum br_jfr_kind kind,
                      const struct br_jfr_sample *sample)
{
    struct br_jfr_table *table = &samples->tables[kind];
    return samples->fold ? jfr_samples_fold(samples, table, sample)
                         : jfr_samples_append(table, sample);
}

bool br_jfr_sample_next(struct br_jfr_cursor *at, struct br_jfr_sample *ret)
{
    const struct br_jfr_table *table = at->table;
    if (at->count == table->count)
        return false;
    if (table->folded) {
        const struct br_jfr_folded *folded = &table->folded[at->count];
        *ret = (struct br_jfr_sample){.key = {.stack = folded->stack, .tags = folded->tags},
                                      .values = {folded->values[0], folded->values[1]}};
    } else {
        unpack_sample(at, ret);
    }
    at->count++;
    return true;
}

void br_jfr_samples_settle(struct br_jfr_samples *samples)
{
    br_free(samples->tag_slots);
    samples->tag_slots = NULL;
    samples->n_tag_slots = 0;
    struct br_jfr_tags *tags = br_realloc(samples->tags, samples->n_tags * sizeof *tags);
    samples->tags = tags ? tags : samples->tags;
    samples->tags_cap = tags ? samples->n_tags : samples->tags_cap;
    for (unsigned i = 0; i < BR_JFR_N_KINDS; i++) {
        struct br_jfr_table *table = &samples->tables[i];
        br_free(table->slots);
        table->slots = NULL;
        table->n_slots = 0;
        if (!table->count || !table->folded)
            continue;
        struct br_jfr_folded *folded = br_realloc(table->folded, table->count * sizeof *folded);
        table->folded = folded ? folded : table->folded;
        table->folded_cap = folded ? table->count : table->folded_cap;
    }
}

size_t br_jfr_samples_size(const struct br_jfr_samples *samples)
{
    size_t size = samples->tags_cap * sizeof *samples->tags +
                  samples->n_tag_slots * sizeof *samples->tag_slots +
                  samples->threads_cap * sizeof *samples->threads;
    for (unsigned i = 0; i < BR_JFR_N_KINDS; i++) {
        const struct br_jfr_table *table = &samples->tables[i];
        size += table->folded_cap * sizeof *table->folded + table->n_slots * sizeof *table->slots;
        for (const struct br_jfr_block *block = table->first; block; block = block->next)
            size += block->size;
    }
    return size;
}

void br_jfr_table_release(struct br_jfr_table *table)
{
    for (struct br_jfr_block *block = table->first, *next; block; block = next) {
        next = block->next;
        br_free(block);
    }
    br_free(table->folded);
    br_free(table->slots);
    *table = (struct br_jfr_table){0};
}
