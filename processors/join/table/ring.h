/* SPDX-License-Identifier: Apache-2.0 */
/* The rings of the join's table: reserving room for records and evicting old ones. */
#pragma once

#include "processors/join/table/internal.h"

#define TEXT_CHUNK 32u /* texts of up to this many bytes are copied as one block of this size */

#define RECORD_MAX                                                                                 \
    (sizeof(struct record) + 2 * JOIN_VALUE_MAX + JOIN_ATTRIBUTES_BYTES_MAX +                      \
     sizeof(struct location) + 8)

static inline uint32_t join_record_size_for(size_t texts)
{
    return (uint32_t)((sizeof(struct record) + texts + 7) & ~(size_t)7);
}

/* Spans entered at a time. About this many can be entered while one cache line is loaded from
 * memory; more outstanding loads would wait for each other. */
#define JOIN_GROUP_MAX 8u

/* Evicts a record that is not the oldest. The record stays in the ring, marked dead, until it is
 * the oldest. */
void join_record_evict(struct join_table *table, struct shard *shard, struct record *record,
                       uint32_t now, struct join_tally *out);

/* Evicts the oldest record of a shard. */
void join_ring_evict(struct join_table *table, struct shard *shard, uint32_t now,
                     struct join_tally *out);

/* Evicts records until `size` contiguous bytes are free, and updates the shard's `room`. */
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
