/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "profile/jfr/convert.h"
#include "wire/protobuf.h"

#define BLOCK_MIN 1024u
#define BLOCK_MAX 65536u
/* Largest size of a packed sample in bytes, including bytes after its end that decoding may
 * read. */
#define SAMPLE_MAX (2 + 3 * 4 + 3 * 8 + 8)
#define USUAL_VALUE 1u

int br_jfr_samples_init(struct br_jfr_samples *samples, bool fold)
{
    samples->fold = fold;
    br_index_init(&samples->tag_index, UINT32_MAX, BR_HOLDER_REQUESTS);
    for (unsigned i = 0; i < BR_JFR_N_KINDS; i++)
        br_index_init(&samples->tables[i].index, UINT32_MAX, BR_HOLDER_REQUESTS);
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
    br_index_release(&samples->tag_index);
    br_free(samples->threads);
    *samples = (struct br_jfr_samples){0};
}

static bool jfr_samples_tags_equal(const struct br_jfr_tags *tags, const struct br_jfr_tags *other)
{
    return tags->span_id == other->span_id && tags->span_name == other->span_name &&
           tags->context == other->context && tags->trace_hi == other->trace_hi &&
           tags->trace_lo == other->trace_lo;
}

/* Returns true if tags[place + 1] equals `key`. The place in the hash index is one less than the
 * index in `tags`, because the hash index does not contain tags[0]. */
static bool jfr_samples_is_tags(const void *entries, uint32_t place, const void *key)
{
    const struct br_jfr_samples *samples = entries;
    return jfr_samples_tags_equal(&samples->tags[place + 1], key);
}

static uint64_t jfr_samples_hash_tags(const void *entries, uint32_t place)
{
    const struct br_jfr_samples *samples = entries;
    return br_index_hash(&samples->tag_index, &samples->tags[place + 1], sizeof *samples->tags);
}

int br_jfr_tags_add(struct br_jfr_samples *samples, const struct br_jfr_tags *tags, uint32_t *ret)
{
    if (jfr_samples_tags_equal(tags, &samples->tags[0])) {
        *ret = 0;
        return 0;
    }
    uint64_t hash = br_index_hash(&samples->tag_index, tags, sizeof *tags);
    uint32_t place = br_index_find(&samples->tag_index, hash, jfr_samples_is_tags, samples, tags);
    *ret = place + 1;
    if (place != BR_INDEX_NONE)
        return 0;
    int rc = br_grow(&samples->tags, &samples->tags_cap, (size_t)samples->n_tags + 1,
                     sizeof *samples->tags, UINT32_MAX);
    if (!rc)
        rc = br_index_add(&samples->tag_index, hash, samples->n_tags - 1, jfr_samples_hash_tags,
                          samples);
    if (rc)
        return rc;
    samples->tags[samples->n_tags] = *tags;
    *ret = samples->n_tags++;
    return 0;
}

/* --- Folded samples --------------------------------------------------------------------------- */

static bool jfr_samples_is_folded(const void *entries, uint32_t place, const void *key)
{
    const struct br_jfr_folded *folded = (const struct br_jfr_folded *)entries + place;
    const struct br_jfr_key *sample = key;
    return folded->stack == sample->stack && folded->tags == sample->tags;
}

static uint64_t jfr_samples_folded_hash(const struct br_index *index, uint32_t stack, uint32_t tags)
{
    return br_index_hash(index, (const uint32_t[]){stack, tags}, 2 * sizeof stack);
}

static uint64_t jfr_samples_hash_folded(const void *entries, uint32_t place)
{
    const struct br_jfr_table *table = entries;
    return jfr_samples_folded_hash(&table->index, table->folded[place].stack,
                                   table->folded[place].tags);
}

static int jfr_samples_new_folded(struct br_jfr_table *table, const struct br_jfr_sample *sample,
                                  uint64_t hash)
{
    int rc = br_grow(&table->folded, &table->folded_cap, (size_t)table->count + 1,
                     sizeof *table->folded, UINT32_MAX - 1);
    if (!rc)
        rc = br_index_add(&table->index, hash, table->count, jfr_samples_hash_folded, table);
    if (!rc)
        table->folded[table->count++] = (struct br_jfr_folded){
            sample->key.stack, sample->key.tags, {sample->values[0], sample->values[1]}};
    return rc;
}

static int jfr_samples_fold(struct br_jfr_table *table, const struct br_jfr_sample *sample)
{
    uint64_t hash = jfr_samples_folded_hash(&table->index, sample->key.stack, sample->key.tags);
    uint32_t place =
        br_index_find(&table->index, hash, jfr_samples_is_folded, table->folded, &sample->key);
    if (place == BR_INDEX_NONE)
        return jfr_samples_new_folded(table, sample, hash);
    struct br_jfr_folded *same = &table->folded[place];
    for (int k = 0; k < 2; k++) /* sums that overflow wrap around, as in jfr-parser */
        same->values[k] = (int64_t)((uint64_t)same->values[k] + (uint64_t)sample->values[k]);
    return 0;
}

/* --- Packed samples --------------------------------------------------------------------------- */

/* Maps small positive and small negative numbers to small unsigned numbers. */
static uint64_t jfr_samples_zigzag(uint64_t value)
{
    return value << 1 ^ (0 - (value >> 63));
}

static uint64_t jfr_samples_unzigzag(uint64_t value)
{
    return value >> 1 ^ (0 - (value & 1));
}

/* A packed sample begins with two bytes that contain the width of each number; the numbers
 * follow in little endian. Indices have 0, 1, 2 or 4 bytes; other numbers have 0, 2, 4 or 8
 * bytes. Encoding and decoding need no branches. */
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

static void jfr_samples_unpack(struct br_jfr_cursor *cursor, struct br_jfr_sample *ret)
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

/* --- Folded or packed samples ----------------------------------------------------------------- */

int br_jfr_sample_add(struct br_jfr_samples *samples, enum br_jfr_kind kind,
                      const struct br_jfr_sample *sample)
{
    struct br_jfr_table *table = &samples->tables[kind];
    return samples->fold ? jfr_samples_fold(table, sample) : jfr_samples_append(table, sample);
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
        jfr_samples_unpack(at, ret);
    }
    at->count++;
    return true;
}

void br_jfr_samples_finish(struct br_jfr_samples *samples)
{
    br_index_release(&samples->tag_index);
    struct br_jfr_tags *tags = br_realloc(samples->tags, samples->n_tags * sizeof *tags);
    samples->tags = tags ? tags : samples->tags;
    samples->tags_cap = tags ? samples->n_tags : samples->tags_cap;
    for (unsigned i = 0; i < BR_JFR_N_KINDS; i++) {
        struct br_jfr_table *table = &samples->tables[i];
        br_index_release(&table->index);
        if (!table->count || !table->folded)
            continue;
        struct br_jfr_folded *folded = br_realloc(table->folded, table->count * sizeof *folded);
        table->folded = folded ? folded : table->folded;
        table->folded_cap = folded ? table->count : table->folded_cap;
    }
}

size_t br_jfr_samples_size(const struct br_jfr_samples *samples)
{
    size_t size = samples->tags_cap * sizeof *samples->tags + br_index_bytes(&samples->tag_index) +
                  samples->threads_cap * sizeof *samples->threads;
    for (unsigned i = 0; i < BR_JFR_N_KINDS; i++) {
        const struct br_jfr_table *table = &samples->tables[i];
        size += table->folded_cap * sizeof *table->folded + br_index_bytes(&table->index);
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
    br_index_release(&table->index);
    *table = (struct br_jfr_table){0};
}
