/* SPDX-License-Identifier: Apache-2.0 */
/* The slots of the join's table: which record is a span's. Under the shard's lock. */
#pragma once

#include "processors/join/table/internal.h"

/* Where a span id's slots are, and what they bear. */
struct home {
    struct bucket *bucket;
    uint16_t tag;
};

static inline struct home join_slots_home(const struct shard *shard, uint64_t hash)
{
    return (struct home){.bucket =
                             shard->buckets + ((hash >> 4 & UINT32_MAX) * shard->n_buckets >> 32),
                         .tag = (uint16_t)(hash >> 48)};
}

static inline struct bucket *join_slots_neighbour(const struct shard *shard,
                                                  const struct bucket *bucket)
{
    return shard->buckets + ((uint64_t)(bucket - shard->buckets) ^ 1);
}

/* Returns how far behind the head the slot's record begins, in units of 8 bytes. */
static inline uint32_t join_slots_distance(const struct shard *shard, const struct bucket *bucket,
                                           unsigned slot)
{
    return (uint32_t)(shard->head / 8) - bucket->positions[slot];
}

/* Returns true when the slot's record is in the ring. */
static inline bool join_slots_live(const struct shard *shard, const struct bucket *bucket,
                                   unsigned slot)
{
    return join_slots_distance(shard, bucket, slot) <= (shard->head - shard->tail) / 8;
}

/* Returns the record of a live slot. */
static inline struct record *join_slots_record_in(const struct shard *shard,
                                                  const struct bucket *bucket, unsigned slot)
{
    return join_shard_record(shard, shard->head - join_slots_distance(shard, bucket, slot) * 8ull);
}

static inline void join_slots_set(struct bucket *bucket, unsigned slot, uint16_t tag,
                                  uint64_t position)
{
    bucket->tags[slot] = tag;
    bucket->positions[slot] = (uint32_t)(position / 8);
}

/* Makes it a slot whose record has just left. */
static inline void join_slots_clear(const struct shard *shard, struct bucket *bucket, unsigned slot)
{
    bucket->positions[slot] = (uint32_t)(shard->tail / 8 - 1);
}

#define SPILLED_UNIT 128u
#define SPILLED_BITS 28u
#define SPILLED_MASK ((1u << SPILLED_BITS) - 1)

/* Returns true when a record of this bucket may lie in the neighbour. */
static inline bool join_slots_has_spilled(const struct shard *shard, const struct bucket *bucket)
{
    uint64_t head = shard->head / SPILLED_UNIT, back = (head - bucket->spilled) & SPILLED_MASK;
    return back <= head - shard->tail / SPILLED_UNIT;
}

static inline void join_slots_set_spilled(struct bucket *bucket, uint64_t position)
{
    bucket->spilled = (uint32_t)(position / SPILLED_UNIT) & SPILLED_MASK;
}

/* Where a span's record is. */
struct place {
    struct bucket *bucket;
    int slot;      /* -1: there is none */
    int ambiguous; /* there is none because more than one fits; an int, for a byte would be put
                      together with its padding through memory, and waited for */
};

/* Tags side by side, and twice those that the first eight and the last eight share. */
typedef uint16_t join_tags __attribute__((vector_size(16)));

static inline bool join_slots_any_tagged(const struct bucket *bucket, uint16_t tag)
{
    join_tags first, last;
    uint64_t same[2];
    memcpy(&first, bucket->tags, sizeof first);
    memcpy(&last, bucket->tags + WAYS - 8, sizeof last);
    first = (join_tags)((first == tag) | (last == tag));
    memcpy(same, &first, sizeof same);
    return same[0] | same[1];
}

/* True when there is nothing in the slots that join_slots_find could find; seldom false for
 * the first time that a span id is seen. */
static inline bool join_slots_is_new(const struct shard *shard, struct home home)
{
    if (__builtin_expect(join_slots_any_tagged(home.bucket, home.tag), 0))
        for (unsigned slot = 0; slot < WAYS; slot++)
            if (home.bucket->tags[slot] == home.tag && join_slots_live(shard, home.bucket, slot))
                return false;
    return !join_slots_has_spilled(shard, home.bucket);
}

static inline struct record *join_slots_record(const struct shard *shard, const struct place *place)
{
    return place->slot < 0 ? NULL
                           : join_slots_record_in(shard, place->bucket, (unsigned)place->slot);
}

/* A span id without a trace id finds the one record with that span id, and the other way round. */
struct place join_slots_find(const struct shard *shard, struct home home, uint64_t span_id,
                             const uint8_t *trace_id);

/* As join_slots_spare, where the next slot is not free. */
struct place join_slots_spare_among(const struct shard *shard, struct home home);

/* The place for a new record: a free one in its bucket or the neighbour, or that of the oldest. */
static inline struct place join_slots_spare(const struct shard *shard, struct home home)
{
    unsigned slot = home.bucket->next;
    return join_slots_live(shard, home.bucket, slot)
               ? join_slots_spare_among(shard, home)
               : (struct place){.bucket = home.bucket, .slot = (int)slot};
}

static inline void join_slots_fill(struct home home, const struct place *place, uint64_t position)
{
    unsigned slot = (unsigned)place->slot;
    place->bucket->next = slot + 1 < WAYS ? (slot + 1) & 15 : 0;
    join_slots_set(place->bucket, slot, home.tag, position);
    if (place->bucket != home.bucket)
        join_slots_set_spilled(home.bucket, position);
}

void join_slots_sweep(struct shard *shard);
