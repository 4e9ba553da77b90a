/* SPDX-License-Identifier: Apache-2.0 */
/* The rings of the join's table: room for records, and what happens to those that leave. */
#pragma once

#include "processors/join/table/internal.h"

#define TEXT_CHUNK 32u /* texts of up to so many bytes are copied by so many */

#define RECORD_MAX                                                                                 \
    (sizeof(struct record) + 2 * JOIN_VALUE_MAX + JOIN_ATTRIBUTES_BYTES_MAX +                      \
     sizeof(struct location) + 8)

static inline uint32_t join_record_size_for(size_t texts)
{
    return (uint32_t)((sizeof(struct record) + texts + 7) & ~(size_t)7);
}

/* As many as are entered while a line comes from memory; twice as many lines on their way wait for
 * each other. */
#define JOIN_GROUP_MAX 8u

/* Takes a record out that is not the oldest. */
void join_record_evict(struct join_table *table, struct shard *shard, struct record *record,
                       uint32_t now, struct join_tally *out);

/* Takes the oldest record out. */
void join_ring_evict(struct join_table *table, struct shard *shard, uint32_t now,
                     struct join_tally *out);

/* Makes room for `size` bytes in one piece, and says how much more there is. */
void join_ring_make_room(struct join_table *table, struct shard *shard, uint32_t size, uint32_t now,
                         struct join_tally *out);

/* Room for a record of `size` bytes right behind the head, which is behind it then; TEXT_CHUNK
 * bytes behind that nothing is lost by writing. The record must be written before the next one is
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
