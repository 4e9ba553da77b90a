/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of the join's table: the rings that contain them, and the slots that map span ids to
 * them.
 */
#pragma once

#include "processors/join/table/internal.h"

/* --- Slots ------------------------------------------------------------------------------------ */

/* The slots of the join's table map span ids to records. All functions for slots are called
 * under the shard's lock. */

/* The bucket and the tag that belong to a span id. */
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

/* Returns the distance from the head to the beginning of the slot's record, in units of 8 bytes. */
static inline uint32_t join_slots_distance(const struct shard *shard, const struct bucket *bucket,
                                           unsigned slot)
{
    return (uint32_t)(shard->head / 8) - bucket->positions[slot];
}

/* Returns true if the slot is live: its record has not been evicted from the ring. */
static inline bool join_slots_live(const struct shard *shard, const struct bucket *bucket,
                                   unsigned slot)
{
    return join_slots_distance(shard, bucket, slot) <= (shard->head - shard->tail) / 8;
}

/* Returns the record of a slot, which must be live. */
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

/* Frees a slot by storing the position of an evicted record in it. */
static inline void join_slots_clear(const struct shard *shard, struct bucket *bucket, unsigned slot)
{
    bucket->positions[slot] = (uint32_t)(shard->tail / 8 - 1);
}

#define SPILLED_UNIT 128u
#define SPILLED_BITS 28u
#define SPILLED_MASK ((1u << SPILLED_BITS) - 1)

/* Returns true if a record that belongs to this bucket may be in its neighbour. */
static inline bool join_slots_has_spilled(const struct shard *shard, const struct bucket *bucket)
{
    uint64_t head = shard->head / SPILLED_UNIT, back = (head - bucket->spilled) & SPILLED_MASK;
    return back <= head - shard->tail / SPILLED_UNIT;
}

static inline void join_slots_set_spilled(struct bucket *bucket, uint64_t position)
{
    bucket->spilled = (uint32_t)(position / SPILLED_UNIT) & SPILLED_MASK;
}

/* The slot of a span's record. */
struct place {
    struct bucket *bucket;
    int slot; /* index of the slot in its bucket; -1: no record was found */
    /* true if no record was found because several match. The type is int, because the compiler
     * would store a bool and its padding in memory and wait for it */
    int ambiguous;
};

/* A vector of eight tags. Two overlapping vectors contain the ten tags of a bucket. */
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

/* Returns true if join_slots_find would find nothing. Returns false for a known span id, and
 * seldom for a new one. */
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

/* Finds the record of a span by its trace id and span id. If the trace id is unknown (`trace_id`
 * is NULL, or the record has none), finds the record with the same span id if there is exactly one.
 */
struct place join_slots_find(const struct shard *shard, struct home home, uint64_t span_id,
                             const uint8_t *trace_id);

/* Returns the place for a new record. Called if the next slot of its bucket is not free. */
struct place join_slots_spare_among(const struct shard *shard, struct home home);

/* Returns the place for a new record: a free slot in its bucket or in the neighbour. If both are
 * full, returns the oldest slot. */
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

/* --- Rings ------------------------------------------------------------------------------------ */

/* The rings of the join's table: reserving room for records and evicting old ones. */

#define TEXT_CHUNK 32u /* texts of up to this many bytes are copied as one block of this size */

#define RECORD_MAX                                                                                 \
    (sizeof(struct record) + 2 * JOIN_VALUE_MAX + JOIN_ATTRIBUTES_BYTES_MAX +                      \
     sizeof(struct location) + 8)

static inline uint32_t join_record_size_for(size_t texts)
{
    return (uint32_t)((sizeof(struct record) + texts + 7) & ~(size_t)7);
}

/* Largest number of spans that are entered together. About this many can be entered while one
 * cache line is loaded from memory; more outstanding loads would wait for each other. */
#define JOIN_GROUP_MAX 8u

/* Evicts a record that is not the oldest. The record stays in the ring, marked dead, until it is
 * the oldest. */
void join_record_evict(struct join_table *table, struct shard *shard, struct record *record,
                       uint32_t now, struct join_tally *out);

/* Evicts the oldest record of a shard. */
void join_ring_evict(struct join_table *table, struct shard *shard, uint32_t now,
                     struct join_tally *out);

/* Evicts records until `size` contiguous bytes are free after the head, and updates the shard's
 * `room`. */
void join_ring_make_room(struct join_table *table, struct shard *shard, uint32_t size, uint32_t now,
                         struct join_tally *out);

/* Reserves room for a record of `size` bytes and moves the head behind it. The TEXT_CHUNK bytes
 * after the record may be overwritten. The record must be written before the next one is
 * reserved. */
static inline struct record *join_ring_reserve(struct join_table *table, struct shard *shard,
                                               uint32_t size, uint32_t now, struct join_tally *out)
{
    if (__builtin_expect(size > shard->room || shard->head >= shard->sweep_at, 0))
        join_ring_make_room(table, shard, size, now, out);
    struct record *record = (struct record *)(void *)(shard->ring + shard->head_at);
    shard->room -= size;
    join_shard_forward(shard, &shard->head, &shard->head_at, size);
    return record;
}
