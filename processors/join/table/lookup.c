/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the spans that samples name, and adds samples to their totals. */
#include "base/str.h"
#include "processors/join/table/ring.h"

void join_found_copy(void *arg, const struct join_span *span)
{
    struct join_found *found = arg;
    found->has_trace = span->trace_id != NULL;
    if (span->trace_id)
        memcpy(found->trace, span->trace_id, sizeof found->trace);
    memcpy(found->span, span->span_id, sizeof found->span);
    found->start_ns = span->start_ns;
    found->end_ns = span->end_ns;
    found->status = span->status;
    found->name_len = span->name_len;
    br_put_bytes(found->name, span->name, span->name_len);
    found->service_len = span->service_len;
    br_put_bytes(found->service, span->service, span->service_len);
    found->attributes_len = span->attributes_len;
    br_put_bytes(found->attributes, span->attributes, span->attributes_len);
}

/* Creates a pending record with the sample's totals. Returns false if the table is full. */
static bool lookup_make_pending(struct join_table *table, struct shard *shard, struct home home,
                                const struct join_sample *sample, uint32_t now,
                                struct join_tally *out)
{
    if (!join_shard_has_totals(shard))
        return false;
    uint64_t span_id = br_load64(sample->span_id);
    uint32_t size = join_record_size_for(0);
    struct record *record = join_ring_reserve(table, shard, size, now, out);
    *record = (struct record){.size8 = (uint16_t)(size / 8),
                              .head.span_id = span_id,
                              .head.start_ns = now,
                              .seen = now,
                              .pending = true,
                              .has_trace = sample->trace_id != NULL};
    struct place place = join_slots_spare(shard, home);
    if (join_slots_live(shard, place.bucket, (unsigned)place.slot)) {
        /* no slot is free for the pending record, and a pending record never displaces the record
         * of a span */
        record->dead = true;
        return false;
    }
    if (sample->trace_id)
        memcpy(record->head.trace_id, sample->trace_id, 16);
    join_totals_add_sample(table, join_record_totals(table, shard, record, now), sample,
                           !sample->held);
    join_slots_fill(home, &place, shard->head - size);
    shard->n_pending++;
    return true;
}

/* Adds a sample to the totals of its span or, if the span has not arrived, of a pending record. */
static void lookup_add_sample(struct join_table *table, struct shard *shard, struct home home,
                              const struct place *place, const struct join_sample *sample,
                              uint32_t now, struct join_tally *out)
{
    struct record *record = join_slots_record(shard, place);
    struct join_totals *totals = record ? join_record_totals(table, shard, record, now) : NULL;
    bool waits = !sample->held && (!record || record->pending);
    if (record && record->pending && !record->has_trace && sample->trace_id) {
        memcpy(record->head.trace_id, sample->trace_id, sizeof record->head.trace_id);
        /* the record now has a trace id, so only a span of this trace can take it over */
        record->has_trace = true;
    }
    if (totals) {
        if (record->pending)
            record->seen = now; /* samples of the span still arrive, so the record expires later */
        join_totals_add_sample(table, totals, sample, waits);
    } else if (!record && !place->ambiguous &&
               lookup_make_pending(table, shard, home, sample, now, out)) {
        return;
    } else if (waits) {
        /* the sample cannot be stored, so it is counted as unknown now */
        out->unknown[sample->type]++;
        out->any = true;
    }
    if (!totals)
        join_losses_note_span(table, table->lost, br_load64(sample->span_id));
}

enum join_result join_table_sample(struct join_table *table, const struct join_sample *sample,
                                   bool add, uint64_t now_ms, join_found_fn *found, void *arg,
                                   struct join_tally *out)
{
    uint64_t span_id = br_load64(sample->span_id), hash = join_table_mix(table, span_id);
    struct shard *shard = join_table_shard(table, hash);
    struct home home = join_slots_home(shard, hash);
    enum join_result result = JOIN_UNKNOWN;
    uint32_t now = join_table_tenths(now_ms);
    join_shard_lock(table, shard);
    struct place place = join_slots_find(shard, home, span_id, sample->trace_id);
    struct record *record = join_slots_record(shard, &place);
    if (record && record->pending && join_record_expired(table, record, now)) {
        join_record_evict(table, shard, record, now, out);
        join_slots_clear(shard, place.bucket, (unsigned)place.slot);
        place.slot = -1;
    } else if (record && !record->pending) {
        result = join_record_expired(table, record, now) ? JOIN_TOO_LATE : JOIN_FOUND;
    }
    if (result == JOIN_FOUND) {
        const struct join_span span = join_record_span(record);
        found(arg, &span);
    }
    if (add && result != JOIN_TOO_LATE)
        lookup_add_sample(table, shard, home, &place, sample, now, out);
    join_shard_unlock(table, shard);
    return result;
}

void join_table_find(struct join_table *table, const uint8_t *trace_id, const uint8_t *span_id,
                     join_found_fn *found, void *arg)
{
    uint64_t id = br_load64(span_id), hash = join_table_mix(table, id);
    struct shard *shard = join_table_shard(table, hash);
    join_shard_lock(table, shard);
    struct place place = join_slots_find(shard, join_slots_home(shard, hash), id, trace_id);
    const struct record *record = join_slots_record(shard, &place);
    if (record && !record->pending) {
        const struct join_span span = join_record_span(record);
        found(arg, &span);
    }
    join_shard_unlock(table, shard);
}

bool join_table_totals(struct join_table *table, const uint8_t *trace_id, const uint8_t *span_id,
                       struct join_totals *ret, struct join_top *ret_top)
{
    uint64_t id = br_load64(span_id), hash = join_table_mix(table, id);
    struct shard *shard = join_table_shard(table, hash);
    join_shard_lock(table, shard);
    struct place place = join_slots_find(shard, join_slots_home(shard, hash), id, trace_id);
    const struct record *record = join_slots_record(shard, &place);
    bool any = record && record->totals;
    if (any) {
        struct join_totals *totals = join_shard_totals(table, shard, record->totals);
        *ret = *totals;
        if (ret_top)
            memcpy(ret_top, join_totals_counters(totals), totals->n_top * sizeof *ret_top);
    }
    join_shard_unlock(table, shard);
    return any;
}
