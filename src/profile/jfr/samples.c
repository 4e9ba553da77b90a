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

int br_jfr_samples_init(struct br_jfr_samples *s, bool fold)
{
    s->fold = fold;
    br_random_bytes(&s->secret, sizeof s->secret);
    int rc = br_grow(&s->tags, &s->tags_cap, 1, sizeof *s->tags, UINT32_MAX);
    if (!rc)
        rc = br_grow(&s->threads, &s->threads_cap, 1, sizeof *s->threads, UINT32_MAX);
    if (rc)
        return rc;
    s->tags[s->n_tags++] = (struct br_jfr_tags){0};
    s->threads[s->n_threads++] = (struct br_jfr_thread){0};
    return 0;
}

void br_jfr_samples_release(struct br_jfr_samples *s)
{
    for (unsigned i = 0; i < BR_JFR_N_KINDS; i++)
        br_jfr_table_release(&s->tables[i]);
    br_free(s->tags);
    br_free(s->tag_slots);
    br_free(s->threads);
    *s = (struct br_jfr_samples){0};
}

/* One step of a keyed multiplicative hash: what is mixed cannot be chosen to meet. */
static uint64_t mix(const struct br_jfr_samples *s, uint64_t h, uint64_t v)
{
    br_jfr_u128 m = (br_jfr_u128)(h ^ v ^ s->secret) * (s->secret << 1 | 1);
    return (uint64_t)(m >> 64) ^ (uint64_t)m;
}

static uint64_t hash_tags(const struct br_jfr_samples *s, const struct br_jfr_tags *t)
{
    uint64_t h = mix(s, t->context, t->span_id);
    h = mix(s, h, t->span_name);
    h = mix(s, h, t->trace_hi);
    return mix(s, h, t->trace_lo);
}

static uint64_t hash_folded(const struct br_jfr_samples *s, uint32_t stack, uint32_t tags)
{
    return mix(s, 0, (uint64_t)stack << 32 | tags);
}

static bool tags_equal(const struct br_jfr_tags *a, const struct br_jfr_tags *b)
{
    return a->span_id == b->span_id && a->span_name == b->span_name && a->context == b->context &&
           a->trace_hi == b->trace_hi && a->trace_lo == b->trace_lo;
}

/* Twice the slots; `*ret` is zeroed. */
static int more_slots(size_t n_slots, uint32_t **ret, size_t *ret_n)
{
    size_t n = n_slots ? n_slots * 2 : 64;
    uint32_t *slots = br_calloc(n, sizeof *slots);
    if (!slots)
        return BR_ENOMEM;
    *ret = slots;
    *ret_n = n;
    return 0;
}

static uint32_t *free_slot(uint32_t *slots, size_t n, uint64_t hash)
{
    size_t i = hash & (n - 1);
    while (slots[i])
        i = (i + 1) & (n - 1);
    return &slots[i];
}

static int rehash_tags(struct br_jfr_samples *s)
{
    uint32_t *slots;
    size_t n;
    int rc = more_slots(s->n_tag_slots, &slots, &n);
    if (rc)
        return rc;
    for (uint32_t i = 1; i < s->n_tags; i++)
        *free_slot(slots, n, hash_tags(s, &s->tags[i])) = i + 1;
    br_free(s->tag_slots);
    s->tag_slots = slots;
    s->n_tag_slots = n;
    return 0;
}

int br_jfr_tags_add(struct br_jfr_samples *s, const struct br_jfr_tags *tags, uint32_t *ret)
{
    if (tags_equal(tags, &s->tags[0])) {
        *ret = 0;
        return 0;
    }
    if (s->n_tags >= s->n_tag_slots / 2) {
        int rc = rehash_tags(s);
        if (rc)
            return rc;
    }
    size_t mask = s->n_tag_slots - 1, i = hash_tags(s, tags) & mask;
    for (; s->tag_slots[i]; i = (i + 1) & mask)
        if (tags_equal(&s->tags[s->tag_slots[i] - 1], tags)) {
            *ret = s->tag_slots[i] - 1;
            return 0;
        }
    int rc = br_grow(&s->tags, &s->tags_cap, (size_t)s->n_tags + 1, sizeof *s->tags, UINT32_MAX);
    if (rc)
        return rc;
    s->tags[s->n_tags] = *tags;
    *ret = s->n_tags++;
    s->tag_slots[i] = *ret + 1;
    return 0;
}

/* --- Samples that are folded ------------------------------------------------------------------ */

static int rehash(const struct br_jfr_samples *s, struct br_jfr_table *t)
{
    uint32_t *slots;
    size_t n;
    int rc = more_slots(t->n_slots, &slots, &n);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < t->n; i++)
        *free_slot(slots, n, hash_folded(s, t->folded[i].stack, t->folded[i].tags)) = i + 1;
    br_free(t->slots);
    t->slots = slots;
    t->n_slots = n;
    return 0;
}

static int fold(struct br_jfr_samples *s, struct br_jfr_table *t,
                const struct br_jfr_sample *sample)
{
    uint32_t stack = sample->key.stack, tags = sample->key.tags;
    int rc = t->n >= t->n_slots / 4 * 3 ? rehash(s, t) : 0;
    if (rc)
        return rc;
    size_t mask = t->n_slots - 1, i = hash_folded(s, stack, tags) & mask;
    for (; t->slots[i]; i = (i + 1) & mask) {
        struct br_jfr_folded *same = &t->folded[t->slots[i] - 1];
        if (same->stack != stack || same->tags != tags)
            continue;
        for (int k = 0; k < 2; k++) /* wraps where jfr-parser's wraps */
            same->values[k] = (int64_t)((uint64_t)same->values[k] + (uint64_t)sample->values[k]);
        return 0;
    }
    rc = br_grow(&t->folded, &t->folded_cap, (size_t)t->n + 1, sizeof *t->folded, UINT32_MAX - 1);
    if (rc)
        return rc;
    t->folded[t->n] = (struct br_jfr_folded){stack, tags, {sample->values[0], sample->values[1]}};
    t->slots[i] = ++t->n;
    return 0;
}

/* --- Samples that are not --------------------------------------------------------------------- */

/* Small numbers of either sign are small. */
static uint64_t zigzag(uint64_t v)
{
    return v << 1 ^ (0 - (v >> 63));
}

static uint64_t unzigzag(uint64_t v)
{
    return v >> 1 ^ (0 - (v & 1));
}

/* A packed sample: two bytes that say how wide each number is, then the numbers, little endian.
 * Widths are 0, 1, 2, 4 for indices and 0, 2, 4, 8 for others; so neither side branches on what it
 * finds. */
static uint8_t *pack_index(uint8_t *o, uint32_t v, unsigned shift, unsigned *widths)
{
    unsigned code = (unsigned)((v > 0) + (v > 0xff) + (v > 0xffff));
    memcpy(o, &v, sizeof v);
    *widths |= code << shift;
    return o + (1u << code >> 1);
}

static uint8_t *pack_number(uint8_t *o, uint64_t v, unsigned shift, unsigned *widths)
{
    unsigned code = (unsigned)((v > 0) + (v > 0xffff) + (v > 0xffffffff));
    memcpy(o, &v, sizeof v);
    *widths |= code << shift;
    return o + (1u << code & 0xe);
}

static const uint8_t *unpack_index(const uint8_t *p, unsigned widths, unsigned shift, uint32_t *ret)
{
    static const uint32_t masks[] = {0, 0xff, 0xffff, 0xffffffff};
    unsigned code = widths >> shift & 3;
    *ret = br_load32(p) & masks[code];
    return p + (1u << code >> 1);
}

static const uint8_t *unpack_number(const uint8_t *p, unsigned widths, unsigned shift,
                                    uint64_t *ret)
{
    static const uint64_t masks[] = {0, 0xffff, 0xffffffff, UINT64_MAX};
    unsigned code = widths >> shift & 3;
    *ret = br_load64(p) & masks[code];
    return p + (1u << code & 0xe);
}

static int add_block(struct br_jfr_table *t)
{
    uint32_t size = t->last ? t->last->size * 2 : BLOCK_MIN;
    size = size < BLOCK_MAX ? size : BLOCK_MAX;
    struct br_jfr_block *block = br_malloc(sizeof *block + size);
    if (!block)
        return BR_ENOMEM;
    *block = (struct br_jfr_block){.size = size};
    *(t->last ? &t->last->next : &t->first) = block;
    t->last = block;
    return 0;
}

static int append(struct br_jfr_table *t, const struct br_jfr_sample *sample)
{
    int rc = !t->last || t->last->size - t->last->len < SAMPLE_MAX ? add_block(t) : 0;
    if (rc || t->n == UINT32_MAX)
        return rc ? rc : BR_EFULL;
    uint8_t *start = t->last->data + t->last->len, *o = start + 2;
    unsigned widths = 0;
    o = pack_index(o, sample->key.stack, 0, &widths);
    o = pack_index(o, sample->key.tags, 2, &widths);
    o = pack_index(o, sample->key.thread, 4, &widths);
    o = pack_number(o, zigzag((uint64_t)sample->values[0] - USUAL_VALUE), 6, &widths);
    o = pack_number(o, zigzag((uint64_t)sample->values[1]), 8, &widths);
    o = pack_number(o, zigzag(sample->time_ns - t->time_ns), 10, &widths);
    start[0] = (uint8_t)widths;
    start[1] = (uint8_t)(widths >> 8);
    t->last->len += (uint32_t)(o - start);
    t->time_ns = sample->time_ns;
    t->n++;
    return 0;
}

static void unpack_sample(struct br_jfr_cursor *c, struct br_jfr_sample *ret)
{
    uint64_t first, second, time;
    if (!c->block) {
        c->block = c->table->first;
    } else if (c->at == c->block->len) {
        c->block = c->block->next;
        c->at = 0;
    }
    const uint8_t *p = c->block->data + c->at;
    unsigned widths = (unsigned)(p[0] | p[1] << 8);
    p = unpack_index(p + 2, widths, 0, &ret->key.stack);
    p = unpack_index(p, widths, 2, &ret->key.tags);
    p = unpack_index(p, widths, 4, &ret->key.thread);
    p = unpack_number(p, widths, 6, &first);
    p = unpack_number(p, widths, 8, &second);
    p = unpack_number(p, widths, 10, &time);
    ret->values[0] = (int64_t)(unzigzag(first) + USUAL_VALUE);
    ret->values[1] = (int64_t)unzigzag(second);
    ret->time_ns = c->time_ns += unzigzag(time);
    c->at = (uint32_t)(p - c->block->data);
}

/* --- Both ------------------------------------------------------------------------------------- */

int br_jfr_sample_add(struct br_jfr_samples *s, enum br_jfr_kind kind,
                      const struct br_jfr_sample *sample)
{
    struct br_jfr_table *t = &s->tables[kind];
    return s->fold ? fold(s, t, sample) : append(t, sample);
}

bool br_jfr_sample_next(struct br_jfr_cursor *at, struct br_jfr_sample *ret)
{
    const struct br_jfr_table *t = at->table;
    if (at->n == t->n)
        return false;
    if (t->folded) {
        const struct br_jfr_folded *f = &t->folded[at->n];
        *ret = (struct br_jfr_sample){.key = {.stack = f->stack, .tags = f->tags},
                                      .values = {f->values[0], f->values[1]}};
    } else {
        unpack_sample(at, ret);
    }
    at->n++;
    return true;
}

void br_jfr_samples_settle(struct br_jfr_samples *s)
{
    br_free(s->tag_slots);
    s->tag_slots = NULL;
    s->n_tag_slots = 0;
    struct br_jfr_tags *tags = br_realloc(s->tags, s->n_tags * sizeof *tags);
    s->tags = tags ? tags : s->tags;
    s->tags_cap = tags ? s->n_tags : s->tags_cap;
    for (unsigned i = 0; i < BR_JFR_N_KINDS; i++) {
        struct br_jfr_table *t = &s->tables[i];
        br_free(t->slots);
        t->slots = NULL;
        t->n_slots = 0;
        if (!t->n || !t->folded)
            continue;
        struct br_jfr_folded *folded = br_realloc(t->folded, t->n * sizeof *folded);
        t->folded = folded ? folded : t->folded;
        t->folded_cap = folded ? t->n : t->folded_cap;
    }
}

size_t br_jfr_samples_size(const struct br_jfr_samples *s)
{
    size_t size = s->tags_cap * sizeof *s->tags + s->n_tag_slots * sizeof *s->tag_slots +
                  s->threads_cap * sizeof *s->threads;
    for (unsigned i = 0; i < BR_JFR_N_KINDS; i++) {
        const struct br_jfr_table *t = &s->tables[i];
        size += t->folded_cap * sizeof *t->folded + t->n_slots * sizeof *t->slots;
        for (const struct br_jfr_block *block = t->first; block; block = block->next)
            size += block->size;
    }
    return size;
}

void br_jfr_table_release(struct br_jfr_table *t)
{
    for (struct br_jfr_block *block = t->first, *next; block; block = next) {
        next = block->next;
        br_free(block);
    }
    br_free(t->folded);
    br_free(t->slots);
    *t = (struct br_jfr_table){0};
}
