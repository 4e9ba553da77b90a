/* SPDX-License-Identifier: Apache-2.0 */
/* The slots of the join's table: which record is a span's. In line is what nearly every span comes
 * by; under the shard's lock. */
#pragma once

#include "processors/join/table_internal.h"

/* Where a span id's slots are, and what they bear. */
struct home {
    struct bucket *bucket;
    uint16_t tag;
};

static inline struct home home_of(const struct shard *s, uint64_t hash)
{
    return (struct home){.bucket = s->buckets + ((hash >> 4 & UINT32_MAX) * s->n_buckets >> 32),
                         .tag = (uint16_t)(hash >> 48)};
}

static inline struct bucket *neighbour_of(const struct shard *s, const struct bucket *b)
{
    return s->buckets + ((uint64_t)(b - s->buckets) ^ 1);
}

/* How far behind the head the slot's record begins, in units of 8 bytes. */
static inline uint32_t distance(const struct shard *s, const struct bucket *b, unsigned slot)
{
    return (uint32_t)(s->head / 8) - b->positions[slot];
}

/* True when the slot's record is in the ring. */
static inline bool live(const struct shard *s, const struct bucket *b, unsigned slot)
{
    return distance(s, b, slot) <= (s->head - s->tail) / 8;
}

/* The record of a live slot. */
static inline struct record *record_in(const struct shard *s, const struct bucket *b, unsigned slot)
{
    return at(s, s->head - distance(s, b, slot) * 8ull);
}

static inline void set_slot(struct bucket *b, unsigned slot, uint16_t tag, uint64_t position)
{
    b->tags[slot] = tag;
    b->positions[slot] = (uint32_t)(position / 8);
}

/* Makes it a slot whose record has just left. */
static inline void clear_slot(const struct shard *s, struct bucket *b, unsigned slot)
{
    b->positions[slot] = (uint32_t)(s->tail / 8 - 1);
}

#define SPILLED_UNIT 128u
#define SPILLED_BITS 28u

/* True when a record of this bucket may lie in the neighbour. */
static inline bool has_spilled(const struct shard *s, const struct bucket *b)
{
    uint64_t head = s->head / SPILLED_UNIT, back = (head - b->spilled) & ((1u << SPILLED_BITS) - 1);
    return back <= head - s->tail / SPILLED_UNIT;
}

static inline void set_spilled(struct bucket *b, uint64_t position)
{
    b->spilled = (uint32_t)(position / SPILLED_UNIT) & ((1u << SPILLED_BITS) - 1);
}

/* --- The slots ------------------------------------------------------------------------------ */

/* Where a span's record is. */
struct place {
    struct bucket *bucket;
    int slot;      /* -1: there is none */
    int ambiguous; /* there is none because more than one fits; an int, for a byte would be put
                      together with its padding through memory, and waited for */
};

/* A bit for each slot whose tag is `tag`. */
static inline uint32_t tagged(const struct bucket *b, uint16_t tag)
{
    typedef uint16_t eight __attribute__((vector_size(16)));
    eight tags;
    memcpy(&tags, b->tags, sizeof tags);
    tags = (eight)(tags == tag);
    uint64_t same[2]; /* any of the first eight? */
    memcpy(same, &tags, sizeof same);
    uint32_t hits = (uint32_t)(b->tags[8] == tag) << 8 | (uint32_t)(b->tags[9] == tag) << 9;
    if (same[0] | same[1])
        for (unsigned slot = 0; slot < 8; slot++)
            hits |= (uint32_t)(b->tags[slot] == tag) << slot;
    return hits;
}

/* True when there is nothing in the slots that join_slots_find could find; seldom false for the
 * first time that a span id is seen. */
static inline bool is_new(const struct shard *s, struct home home)
{
    for (uint32_t hits = tagged(home.bucket, home.tag); hits; hits &= hits - 1)
        if (live(s, home.bucket, (unsigned)__builtin_ctz(hits)))
            return false;
    return !has_spilled(s, home.bucket);
}

/* A span id without a trace id finds the one record with that span id, and the other way round. */
struct place join_slots_find(const struct shard *s, struct home home, uint64_t span_id,
                             const uint8_t *trace_id);

static inline struct record *record_at(const struct shard *s, const struct place *p)
{
    return p->slot < 0 ? NULL : record_in(s, p->bucket, (unsigned)p->slot);
}

/* As `spare`, where the next slot is not free. */
struct place join_slots_spare(const struct shard *s, struct home home);

/* The place for a new record: a free one in its bucket or the neighbour, or that of the oldest. */
static inline struct place spare(const struct shard *s, struct home home)
{
    unsigned slot = home.bucket->next;
    return live(s, home.bucket, slot) ? join_slots_spare(s, home)
                                      : (struct place){.bucket = home.bucket, .slot = (int)slot};
}

static inline void fill(struct home home, const struct place *p, uint64_t position)
{
    unsigned slot = (unsigned)p->slot;
    p->bucket->next = slot + 1 < WAYS ? (slot + 1) & 15 : 0;
    set_slot(p->bucket, slot, home.tag, position);
    if (p->bucket != home.bucket)
        set_spilled(home.bucket, position);
}

/* Makes what has left look so when positions come round. */
void join_slots_sweep(const struct shard *s, struct bucket *b);
