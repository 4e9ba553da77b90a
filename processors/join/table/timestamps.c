/* SPDX-License-Identifier: Apache-2.0 */
/* Stores, reads and retains the deferred timestamps of samples. */
#include "base/str.h"
#include "processors/join/table/ring.h"

/* Returns the start of the chain for the hash. A deferred record is in the same shard as the
 * span that its sample names. */
static _Atomic uint64_t *timestamps_newest(struct join_table *table, uint64_t hash)
{
    return &table->deferred[hash & table->families_mask];
}

static const struct join_deferred *timestamps_of(const struct record *record)
{
    return (const struct join_deferred *)(const void *)(record + 1);
}

/* Returns the position to which a link of a chain refers; 0: there is no record. */
static uint64_t timestamps_position(const struct join_table *table, const struct shard *shard,
                                    uint64_t place)
{
    return join_shard_whole(shard, place >> table->shard_bits, 48 - table->shard_bits);
}

/* Bit that is set in a thread's timestamp once it is assigned to a span. Real timestamps do not
 * have this bit before the year 2262. */
#define TIME_ASSIGNED (1ull << 63)

static uint64_t timestamps_until(const struct record *record)
{
    const struct join_deferred *deferred = timestamps_of(record);
    const uint64_t *times = (const uint64_t *)(const void *)(deferred + 1);
    uint64_t until_ns = 0;
    for (uint32_t i = 0; i < deferred->n_times; i++) {
        uint64_t time_ns = times[i] & ~TIME_ASSIGNED;
        until_ns = time_ns > until_ns ? time_ns : until_ns;
    }
    return until_ns;
}

/* Returns true if the record belongs to an earlier span with the same id. This is assumed if the
 * record arrived more than a window before the totals of the span were created. */
static bool timestamps_precede(const struct join_table *table, const struct record *record,
                               uint32_t since)
{
    return join_record_age(record->seen, since) > table->window;
}

void join_timestamps_evict(struct join_table *table, struct shard *shard,
                           const struct record *record, uint32_t now)
{
    const uint64_t hash = join_table_mix(table, record->head.span_id);
    if (record->retained)
        shard->retained -= join_record_size(record);
    if (timestamps_of(record)->of_thread) {
        join_losses_note_evicted(table, hash, timestamps_until(record));
        return;
    }
    struct place place = join_slots_find(shard, join_slots_home(shard, hash), record->head.span_id,
                                         record->head.trace_id);
    struct record *named = join_slots_record(shard, &place);
    if (!named || !named->totals)
        return;
    if (named->pending || !join_record_expired(table, named, now))
        join_losses_note_evicted(table, hash, timestamps_until(record));
    const struct join_deferred *deferred = timestamps_of(record);
    struct join_totals *totals = join_shard_totals(table, shard, named->totals);
    if (timestamps_precede(table, record, totals->since))
        return;
    struct join_sample sample = join_deferred_sample(deferred, deferred->value, deferred->n_times);
    sample.span_id = (const uint8_t *)&record->head.span_id;
    join_totals_subtract_deferred(totals, &sample);
    join_totals_add_sample(table, totals, &sample, false);
}

/* Enters deferred timestamps as the newest record of their chain. The ids and flags of the
 * record are copied from `ids`. */
static void timestamps_enter(struct join_table *table, struct shard *shard,
                             const struct record *ids, const struct join_deferred *deferred,
                             const uint64_t *times, const uint64_t *values, uint32_t now,
                             struct join_tally *out)
{
    size_t n = (size_t)deferred->n_times + deferred->n_values;
    uint32_t size = join_record_size_for(sizeof *deferred + n * sizeof *times);
    struct record *record = join_ring_reserve(table, shard, size, now, out);
    *record = *ids;
    record->size8 = (uint16_t)(size / 8);
    record->seen = now;
    uint8_t *p = br_put_bytes((uint8_t *)(record + 1), deferred, sizeof *deferred);
    p = br_put_bytes(p, times, deferred->n_times * sizeof *times);
    if (deferred->n_values)
        (void)br_put_bytes(p, values, deferred->n_values * sizeof *values);
    uint64_t hash = join_table_mix(table, ids->head.span_id);
    record->previous = join_chain_enter(table, timestamps_newest(table, hash), shard,
                                        shard->head - size, table->shard_bits != 0) &
                       PLACE_MASK;
    if (record->retained)
        shard->retained += size;
}

void join_table_defer(struct join_table *table, const struct join_sample *sample,
                      const struct join_deferred *deferred, const uint64_t *times,
                      const uint64_t *values, uint64_t now_ms, struct join_tally *out)
{
    struct record ids = {
        .head.span_id = br_load64(sample->span_id), .deferred = true, .has_trace = true};
    struct shard *shard = join_table_shard(table, join_table_mix(table, ids.head.span_id));
    uint32_t now = join_table_tenths(now_ms);
    memcpy(ids.head.trace_id, sample->trace_id, sizeof ids.head.trace_id);
    join_shard_lock(table, shard);
    timestamps_enter(table, shard, &ids, deferred, times, values, now, out);
    join_shard_unlock(table, shard);
    atomic_store_explicit(&table->deferred_at, now ? now : 1, memory_order_relaxed);
}

static void timestamps_copy(const struct record *record, struct join_deferred_cursor *cursor)
{
    const uint8_t *p = (const uint8_t *)(record + 1);
    memcpy(&cursor->deferred, p, sizeof cursor->deferred);
    p += sizeof cursor->deferred;
    memcpy(cursor->times, p, cursor->deferred.n_times * sizeof *cursor->times);
    p += cursor->deferred.n_times * sizeof *cursor->times;
    memcpy(cursor->values, p, cursor->deferred.n_values * sizeof *cursor->values);
    for (uint32_t i = 0; cursor->deferred.of_thread && i < cursor->deferred.n_times; i++)
        cursor->times[i] &= ~TIME_ASSIGNED;
}

/* Sets the cursor to the newest record, and `since` to the time when the span's totals were
 * created. */
static void timestamps_begin(const struct join_table *table, const struct shard *shard,
                             uint64_t hash, uint64_t span_id, const uint8_t *trace_id,
                             struct join_deferred_cursor *cursor)
{
    struct place place = join_slots_find(shard, join_slots_home(shard, hash), span_id, trace_id);
    const struct record *named = join_slots_record(shard, &place);
    cursor->begun = true;
    cursor->position = timestamps_position(
        table, shard,
        atomic_load_explicit(&table->deferred[hash & table->families_mask], memory_order_relaxed));
    cursor->has_since = named && named->totals;
    if (cursor->has_since)
        cursor->since = join_shard_totals(table, shard, named->totals)->since;
}

bool join_table_next_deferred(struct join_table *table, const uint8_t *trace_id,
                              const uint8_t *span_id, struct join_deferred_cursor *cursor)
{
    uint64_t id = br_load64(span_id), hash = join_table_mix(table, id);
    struct shard *shard = join_table_shard(table, hash);
    bool found = false;
    join_shard_lock(table, shard);
    if (!cursor->begun)
        timestamps_begin(table, shard, hash, id, trace_id, cursor);
    cursor->steps = 1;
    while (!found && cursor->position >= shard->tail && cursor->position) {
        const struct record *record = join_shard_record(shard, cursor->position);
        cursor->steps++;
        found = record->head.span_id == id && memcmp(record->head.trace_id, trace_id, 16) == 0 &&
                !(cursor->has_since && !timestamps_of(record)->of_thread &&
                  timestamps_precede(table, record, cursor->since));
        if (found)
            timestamps_copy(record, cursor);
        cursor->found = cursor->position;
        cursor->position = timestamps_position(table, shard, record->previous);
    }
    join_shard_unlock(table, shard);
    return found;
}

void join_table_mark_assigned(struct join_table *table, const uint8_t *span_id,
                              const struct join_deferred_cursor *cursor, const uint64_t *spans)
{
    struct shard *shard = join_table_shard(table, join_table_mix(table, br_load64(span_id)));
    join_shard_lock(table, shard);
    if (cursor->found >= shard->tail) {
        struct join_deferred *deferred =
            (struct join_deferred *)(void *)(join_shard_record(shard, cursor->found) + 1);
        uint64_t *times = (uint64_t *)(void *)(deferred + 1);
        for (uint32_t i = 0; i < cursor->deferred.n_times; i++)
            times[i] |= spans[i] ? TIME_ASSIGNED : 0;
    }
    join_shard_unlock(table, shard);
}

/* --- Retained timestamps --- */

/* largest number of links of a chain that are followed to find the thread's newest record */
#define LAST_STEPS 64u
/* number of links that are followed in the time that it takes to expire one record */
#define STEPS_PER_EXPIRED 8u

/* Returns true if samples of the record's thread keep arriving. `*ret_last` is the arrival time
 * of the thread's last sample. */
static bool timestamps_thread_is_active(const struct join_table *table, const struct shard *shard,
                                        const struct record *record, uint32_t now,
                                        uint32_t *ret_last, unsigned *ret_steps)
{
    uint64_t hash = join_table_mix(table, record->head.span_id), position;
    uint64_t place =
        atomic_load_explicit(&table->deferred[hash & table->families_mask], memory_order_relaxed);
    for (*ret_steps = 0; *ret_steps < LAST_STEPS; ++*ret_steps) {
        position = timestamps_position(table, shard, place);
        if (!position || position < shard->tail)
            return false;
        const struct record *newest = join_shard_record(shard, position);
        if (newest->head.span_id == record->head.span_id &&
            memcmp(newest->head.trace_id, record->head.trace_id, 16) == 0) {
            *ret_last = newest->retained ? (uint32_t)newest->head.start_ns : newest->seen;
            return join_record_age(*ret_last, now) <= table->window;
        }
        place = newest->previous;
    }
    return false;
}

/* Copies the timestamps that are not assigned to a span. Returns the latest assigned timestamp, or
 * 0 if no timestamp is assigned. */
static uint64_t timestamps_copy_unassigned(const struct record *record,
                                           struct join_deferred_cursor *ret)
{
    const struct join_deferred *deferred = timestamps_of(record);
    const uint64_t *times = (const uint64_t *)(const void *)(deferred + 1),
                   *values = times + deferred->n_times;
    uint64_t assigned_until_ns = 0;
    uint32_t n = 0;
    ret->deferred = *deferred;
    for (uint32_t i = 0; i < deferred->n_times; i++) {
        uint64_t time_ns = times[i] & ~TIME_ASSIGNED;
        if (times[i] & TIME_ASSIGNED) {
            assigned_until_ns = time_ns > assigned_until_ns ? time_ns : assigned_until_ns;
            continue;
        }
        ret->times[n] = time_ns;
        ret->values[n++] = deferred->n_values ? values[i] : 0;
    }
    ret->deferred.n_times = n;
    ret->deferred.n_values = deferred->n_values ? n : 0;
    return assigned_until_ns;
}

bool join_timestamps_retain(struct join_table *table, struct shard *shard, uint32_t now,
                            uint32_t *remaining, struct join_tally *out)
{
    struct record *record = join_shard_record(shard, shard->tail);
    struct join_deferred_cursor unassigned;
    uint32_t last;
    unsigned steps;
    if (!timestamps_of(record)->of_thread)
        return false;
    bool active = timestamps_thread_is_active(table, shard, record, now, &last, &steps);
    *remaining -=
        steps / STEPS_PER_EXPIRED < *remaining ? steps / STEPS_PER_EXPIRED : *remaining - 1;
    if (!active)
        return false;
    uint64_t retained_max = shard->ring_size / JOIN_RETAINED_SHARE / (record->retained ? 2 : 1);
    uint64_t retained = shard->retained - (record->retained ? join_record_size(record) : 0);
    uint64_t assigned_until_ns = timestamps_copy_unassigned(record, &unassigned);
    if (!unassigned.deferred.n_times || retained + join_record_size(record) > retained_max)
        return false;
    struct record ids = *record;
    ids.retained = true;
    ids.head.start_ns = last;
    if (assigned_until_ns)
        join_losses_note_evicted(table, join_table_mix(table, ids.head.span_id), assigned_until_ns);
    record->dead = true;
    shard->retained = retained;
    join_ring_evict(table, shard, now, out);
    timestamps_enter(table, shard, &ids, &unassigned.deferred, unassigned.times, unassigned.values,
                     now, out);
    return true;
}

bool join_table_any_deferred(const struct join_table *table, uint64_t now_ms)
{
    uint32_t at = atomic_load_explicit(&table->deferred_at, memory_order_relaxed);
    return at && join_record_age(at, join_table_tenths(now_ms)) <= table->window;
}
