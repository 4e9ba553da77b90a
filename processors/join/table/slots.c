/* SPDX-License-Identifier: Apache-2.0 */
/* The slots of the join's table map span ids to records. */
#include "processors/join/table/ring.h"

/* Returns a bit set of the slots that contain the tag. */
static inline uint32_t slots_tagged(const struct bucket *bucket, uint16_t tag)
{
    uint32_t hits = 0;
    for (unsigned slot = 0; slot < WAYS; slot++)
        hits |= (uint32_t)(bucket->tags[slot] == tag) << slot;
    return hits;
}

enum match { MATCH_NONE, MATCH_SPAN, MATCH_BOTH };

static enum match slots_match(const struct record *record, uint64_t span_id,
                              const uint8_t *trace_id)
{
    if (record->head.span_id != span_id)
        return MATCH_NONE;
    if (!trace_id || !record->has_trace)
        return trace_id || record->has_trace ? MATCH_SPAN : MATCH_BOTH;
    return memcmp(record->head.trace_id, trace_id, 16) == 0 ? MATCH_BOTH : MATCH_NONE;
}

/* Searches one bucket. Returns true if the bucket contains a record with this trace id and span
 * id. Sets `*half` to a record that matches only by its span id. */
static bool slots_find_in(const struct shard *shard, struct bucket *bucket, uint16_t tag,
                          uint64_t span_id, const uint8_t *trace_id, struct place *half)
{
    uint32_t hits = join_slots_any_tagged(bucket, tag) ? slots_tagged(bucket, tag) : 0;
    for (; hits; hits &= hits - 1) {
        int slot = __builtin_ctz(hits);
        if (!join_slots_live(shard, bucket, (unsigned)slot))
            continue;
        enum match m =
            slots_match(join_slots_record_in(shard, bucket, (unsigned)slot), span_id, trace_id);
        if (m == MATCH_NONE)
            continue;
        half->ambiguous = half->ambiguous || (m == MATCH_SPAN && half->slot >= 0);
        half->bucket = bucket;
        half->slot = slot;
        if (m == MATCH_BOTH)
            return true;
    }
    return false;
}

struct place join_slots_find(const struct shard *shard, struct home home, uint64_t span_id,
                             const uint8_t *trace_id)
{
    struct bucket *bucket = home.bucket;
    struct place place = {.bucket = bucket, .slot = -1};
    if (slots_find_in(shard, bucket, home.tag, span_id, trace_id, &place) ||
        (join_slots_has_spilled(shard, bucket) &&
         slots_find_in(shard, join_slots_neighbour(shard, bucket), home.tag, span_id, trace_id,
                       &place)))
        place.ambiguous = false;
    else if (place.ambiguous)
        place.slot = -1;
    return place;
}

/* Returns a free slot of the bucket. If the bucket is full, returns the oldest slot. */
static unsigned slots_spare_in(const struct shard *shard, const struct bucket *bucket)
{
    unsigned slot = bucket->next;
    for (unsigned n = 0; n < WAYS && join_slots_live(shard, bucket, slot); n++)
        slot = slot + 1 < WAYS ? slot + 1 : 0;
    return slot;
}

struct place join_slots_spare_among(const struct shard *shard, struct home home)
{
    struct bucket *bucket = home.bucket;
    struct place place = {.bucket = bucket, .slot = (int)slots_spare_in(shard, bucket)};
    if (join_slots_live(shard, bucket, (unsigned)place.slot)) {
        struct bucket *other = join_slots_neighbour(shard, bucket);
        unsigned slot = slots_spare_in(shard, other);
        if (!join_slots_live(shard, other, slot))
            place = (struct place){.bucket = other, .slot = (int)slot};
    }
    return place;
}

/* Clears the positions of evicted records in a bucket, so that they cannot be mistaken for new
 * records when positions wrap around. */
static void slots_sweep(const struct shard *shard, struct bucket *bucket)
{
    for (unsigned slot = 0; slot < WAYS; slot++)
        if (!join_slots_live(shard, bucket, slot))
            join_slots_clear(shard, bucket, slot);
    if (!join_slots_has_spilled(shard, bucket))
        join_slots_set_spilled(bucket, shard->tail - SPILLED_UNIT);
}

void join_slots_sweep(struct shard *shard)
{
    for (; shard->head >= shard->sweep_at; shard->sweep_at += SWEEP_BYTES / shard->n_buckets)
        slots_sweep(shard, &shard->buckets[shard->swept++ % shard->n_buckets]);
}
