/* SPDX-License-Identifier: Apache-2.0 */
/* The rings of the join's table. */
#include "processors/join/table/ring.h"

static inline void ring_release(struct join_table *table, struct shard *shard,
                                struct record *record, uint32_t now, struct join_tally *out)
{
    if (__builtin_expect(record->deferred, 0)) {
        join_timestamps_evict(table, shard, record, now);
        return;
    }
    if (record->pending) {
        join_losses_note_span(table, table->lost, record->head.span_id);
        shard->n_pending--;
        join_totals_tally(out->unknown, join_shard_totals(table, shard, record->totals), out);
    } else {
        shard->n_spans--;
        if (record->totals && !record->ancestors_marked)
            join_losses_mark_ancestors(table, shard, record, now);
        if (!join_record_expired(table, record, now)) {
            if (record->totals)
                join_losses_note_span(table, table->lost, record->head.span_id);
            out->evicted++;
            out->any = true;
        }
    }
    if (record->totals)
        join_record_free_totals(table, shard, record);
    if (__builtin_expect(record->located, 0))
        join_related_evict(table, record, !join_record_expired(table, record, now));
    else if (!record->pending && !join_record_expired(table, record, now))
        join_related_evict(table, record, true);
}

void join_record_evict(struct join_table *table, struct shard *shard, struct record *record,
                       uint32_t now, struct join_tally *out)
{
    ring_release(table, shard, record, now, out);
    record->dead = true;
}

void join_ring_evict(struct join_table *table, struct shard *shard, uint32_t now,
                     struct join_tally *out)
{
    struct record *record = (struct record *)(void *)(shard->ring + shard->tail_at);
    if (!record->dead)
        ring_release(table, shard, record, now, out);
    join_shard_forward(shard, &shard->tail, &shard->tail_at, join_record_size(record));
}

/* number of bytes that are freed in the ring in addition to the bytes that the next records need */
#define EVICT_AHEAD 512u

void join_ring_make_room(struct join_table *table, struct shard *shard, uint32_t size, uint32_t now,
                         struct join_tally *out)
{
    join_slots_sweep(shard);
    uint32_t pad = shard->head_at + size > shard->ring_size
                       ? (uint32_t)(shard->ring_size - shard->head_at)
                       : 0;
    uint32_t wanted = pad + size + TEXT_CHUNK + EVICT_AHEAD;
    while (shard->head + wanted - shard->tail > shard->ring_size)
        join_ring_evict(table, shard, now, out);
    if (pad) {
        /* A record never wraps around the end of the ring. The rest of the ring becomes a dead
         * record, whose header may extend into the spare bytes after the ring. */
        *join_shard_record(shard, shard->head) =
            (struct record){.size8 = (uint16_t)(pad / 8), .dead = true};
        join_shard_forward(shard, &shard->head, &shard->head_at, pad);
    }
    uint64_t free = shard->ring_size - TEXT_CHUNK - (shard->head - shard->tail);
    shard->room = shard->ring_size - shard->head_at;
    shard->room = free < shard->room ? free : shard->room;
}
