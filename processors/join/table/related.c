/* SPDX-License-Identifier: Apache-2.0 */
/* Finds spans that are related to other spans: by trace and service, or by thread and time. */
#include <stdbool.h>

#include "processors/join/table/table.h"

#include "processors/join/table/internal.h"

/* --- Families --------------------------------------------------------------------------- */

/*
 * A family is the set of spans of one trace and one service. The spans of a family are spread over
 * all shards. Therefore each record stores the place of the record that was entered before it with
 * the same family hash. For each hash, `families` stores the place of the newest record; one atomic
 * exchange of eight bytes updates it.
 *
 * Chains are not updated when a record is evicted. A walk along a chain ends at the first place
 * whose record has been evicted, because all further records are older. Families with the same hash
 * share a chain, so a walk skips records of other families and has a maximum number of steps.
 */

#define STEPS_PER_RELATIVE 4u

/* The state of following a chain from its newest record to older records. At most one shard is
 * locked at a time. */
struct walk {
    struct join_table *table;
    struct shard *locked;
    uint64_t place; /* place of the record that related_walk_next returns next */
};

static void related_walk_begin(struct walk *walk, struct join_table *table,
                               const _Atomic uint64_t *newest)
{
    *walk =
        (struct walk){.table = table, .place = atomic_load_explicit(newest, memory_order_acquire)};
}

/* Returns the next record, or NULL at the end of the chain. The shard of the record stays locked
 * until the next call. */
static const struct record *related_walk_next(struct walk *walk)
{
    struct shard *shard =
        &walk->table->shards[walk->place & (join_table_n_shards(walk->table) - 1)];
    if (walk->locked && (!walk->place || shard != walk->locked)) {
        join_shard_unlock(walk->table, walk->locked);
        walk->locked = NULL;
    }
    if (!walk->place)
        return NULL;
    if (!walk->locked)
        join_shard_lock(walk->table, shard);
    walk->locked = shard;
    uint64_t position = join_shard_whole(shard, walk->place >> walk->table->shard_bits,
                                         48 - walk->table->shard_bits);
    return position >= shard->tail ? join_shard_record(shard, position) : NULL;
}

static void related_walk_end(struct walk *walk)
{
    if (walk->locked)
        join_shard_unlock(walk->table, walk->locked);
}

static bool related_is_family(const struct record *record, const uint8_t *trace_id,
                              const uint8_t *service, size_t service_len)
{
    return !record->dead && record->has_trace && record->service_len == service_len &&
           memcmp(record->head.trace_id, trace_id, 16) == 0 &&
           memcmp((const uint8_t *)(record + 1) + record->name_len, service, service_len) == 0;
}

static bool related_has_deferred(const struct join_table *table, const struct shard *shard,
                                 const struct record *record)
{
    return record->totals && join_shard_totals(table, shard, record->totals)->deferred;
}

static struct join_relative related_relative(const struct join_table *table,
                                             const struct shard *shard, const struct record *record)
{
    return (struct join_relative){.span_id = record->head.span_id,
                                  .parent_id = record->head.parent_id,
                                  .start_ns = record->head.start_ns,
                                  .end_ns = record->head.end_ns,
                                  .thread = record->thread,
                                  .thread_name = record->thread_name,
                                  .seen = record->seen,
                                  .kind = record->kind,
                                  .totals = record->totals != 0,
                                  .deferred = related_has_deferred(table, shard, record)};
}

/* The secret of the hash function is constant. A client that chooses colliding names can only
 * affect spans of the services that it names. */
uint64_t join_service_hash(const uint8_t *name, size_t len)
{
    static const uint8_t secret[16];
    return br_siphash(secret, name, len) | 1;
}

static uint64_t related_family_end(struct join_table *table, uint64_t hash)
{
    uint64_t end_ns = atomic_load_explicit(&table->family_ends[hash & table->families_mask],
                                           memory_order_relaxed);
    uint64_t before_use_ns = atomic_load_explicit(&table->end_before_use, memory_order_relaxed);
    if (!atomic_load_explicit(&table->family_ends_used, memory_order_relaxed))
        atomic_store_explicit(&table->family_ends_used, true, memory_order_relaxed);
    return end_ns > before_use_ns ? end_ns : before_use_ns;
}

unsigned join_table_family(struct join_table *table, const uint8_t *trace_id,
                           const uint8_t *service, size_t service_len, uint64_t service_hash,
                           struct join_relative *out, unsigned max, struct join_search *ret)
{
    uint64_t hash = join_table_family_hash(table, trace_id, service_hash & SERVICE_MASK);
    const struct record *record;
    struct walk walk;
    unsigned n = 0, step = 0;
    related_walk_begin(&walk, table, &table->families[hash & table->families_mask]);
    for (; (record = related_walk_next(&walk)) && step < STEPS_PER_RELATIVE * max; step++) {
        bool ours = related_is_family(record, trace_id, service, service_len);
        if (ours && n == max)
            break;
        if (ours)
            out[n++] = related_relative(table, walk.locked, record);
        walk.place = record->previous;
    }
    related_walk_end(&walk);
    *ret = (struct join_search){.more = record != NULL, .steps = step};
    ret->since_ns = related_family_end(table, hash);
    if (ret->more && n && out[n - 1].end_ns > ret->since_ns)
        ret->since_ns = out[n - 1].end_ns;
    else if (ret->more && !n)
        ret->since_ns = UINT64_MAX;
    return n;
}

/* --- Threads ---------------------------------------------------------------------------- */

/* An eBPF profile and an SDK may report different places (host, container and so on) for the same
 * process. Therefore the hash of a thread does not depend on a place. Replicas with the same
 * process and thread ids share a chain. */

uint32_t join_table_levels(const struct join_table *table)
{
    return atomic_load_explicit(&table->levels, memory_order_relaxed);
}

static uint64_t related_hash(const struct join_table *table, const struct join_threads *threads)
{
    return join_table_mix(table, ((uint64_t)threads->thread << 32 | threads->process) ^
                                     (0u - (uint64_t)threads->key));
}

static _Atomic uint64_t *related_newest(const struct join_table *table,
                                        const struct join_threads *threads, unsigned level,
                                        uint64_t slot)
{
    uint64_t hash =
        join_table_mix(table, related_hash(table, threads) ^ slot ^ (uint64_t)level << 58);
    uint64_t n = (table->families_mask + 1) * THREADS_PER_FAMILY;
    uint64_t first = threads->key == JOIN_BY_THREAD_ID ? 0 : n;
    return &table->threads[first + (hash & (n - 1))];
}

static unsigned related_level(const struct record *record)
{
    uint64_t lasts_ns = record->head.end_ns > record->head.start_ns
                            ? record->head.end_ns - record->head.start_ns
                            : 0;
    unsigned level = 0;
    while (level < JOIN_LEVELS - 1 && lasts_ns > UINT64_C(1) << join_level_shift(level))
        level++;
    return level;
}

/* Stores the keys of the two chains to which a record may belong, by thread id and by thread name,
 * and returns their number. */
static unsigned related_threads(const struct record *record, struct join_threads ret[2])
{
    const struct location *location = join_record_location(record);
    unsigned n = 0;
    if (record->thread)
        ret[n++] = (struct join_threads){JOIN_BY_THREAD_ID, record->thread, location->process};
    if (record->thread_name)
        ret[n++] = (struct join_threads){join_thread_name_key(record->thread, location->runtime),
                                         record->thread_name, location->process};
    return n;
}

void join_related_enter(struct join_table *table, const struct shard *shard, struct record *record,
                        uint64_t position)
{
    struct location *location = join_record_location(record);
    unsigned level = related_level(record);
    uint64_t slot = record->head.start_ns >> join_level_shift(level);
    struct join_threads threads[2];
    unsigned n = related_threads(record, threads);
    if (!(join_table_levels(table) >> level & 1))
        atomic_fetch_or_explicit(&table->levels, 1u << level, memory_order_relaxed);
    for (unsigned i = 0; i < n; i++) {
        uint64_t previous = join_chain_enter(table, related_newest(table, &threads[i], level, slot),
                                             shard, position, table->shard_bits != 0);
        if (threads[i].key == JOIN_BY_THREAD_ID)
            location->previous = previous;
        else
            location->previous_by_name = previous;
    }
}

static struct join_neighbour related_neighbour(const struct record *record,
                                               const struct location *location)
{
    struct join_neighbour neighbour = {.span_id = record->head.span_id,
                                       .parent_id = record->head.parent_id,
                                       .start_ns = record->head.start_ns,
                                       .end_ns = record->head.end_ns,
                                       .thread = record->thread,
                                       .thread_name = record->thread_name,
                                       .service = location->service,
                                       .runtime = location->runtime,
                                       .seen = record->seen};
    memcpy(neighbour.trace_id, record->head.trace_id, sizeof neighbour.trace_id);
    memcpy(neighbour.places, location->places, sizeof neighbour.places);
    return neighbour;
}

static bool related_is_of(const struct record *record, const struct join_threads *threads,
                          unsigned level, uint64_t slot)
{
    const struct location *location = join_record_location(record);
    if (record->dead || !record->has_trace || location->process != threads->process)
        return false;
    bool same = threads->key == JOIN_BY_THREAD_ID
                    ? record->thread == threads->thread
                    : record->thread_name == threads->thread &&
                          threads->key == join_thread_name_key(record->thread, location->runtime);
    return same && related_level(record) == level &&
           record->head.start_ns >> join_level_shift(level) == slot;
}

#define STEPS_PER_NEIGHBOUR 8u

unsigned join_table_neighbours(struct join_table *table, const struct join_threads *threads,
                               unsigned level, uint64_t slot, struct join_neighbour *out,
                               struct join_search *ret)
{
    const struct record *record = NULL;
    struct walk walk;
    unsigned n = 0, step = 0;
    related_walk_begin(&walk, table, related_newest(table, threads, level, slot));
    while (step < STEPS_PER_NEIGHBOUR * JOIN_NEIGHBOURS_MAX && n < JOIN_NEIGHBOURS_MAX &&
           (record = related_walk_next(&walk))) {
        const struct location *location = join_record_location(record);
        if (related_is_of(record, threads, level, slot))
            out[n++] = related_neighbour(record, location);
        walk.place =
            threads->key == JOIN_BY_THREAD_ID ? location->previous : location->previous_by_name;
        step++;
    }
    related_walk_end(&walk);
    *ret = (struct join_search){.more = record != NULL, .steps = step};
    return n;
}

/* --- Evicted spans --------------------------------------------------------- */

/* The latest ends of evicted spans are stored by a hash of thread and place. If two threads have
 * the same hash, a span is sometimes reported as unknown although it is not, which is safe. */

static uint64_t related_end_at(const struct join_table *table, const struct join_threads *threads,
                               unsigned place, uint32_t value)
{
    uint64_t hash =
        join_table_mix(table, related_hash(table, threads) ^ ((uint64_t)(place + 1) << 32 | value));
    return hash & table->families_mask;
}

static void related_raise(_Atomic uint64_t *end, uint64_t end_ns)
{
    uint64_t old = atomic_load_explicit(end, memory_order_relaxed);
    while (old < end_ns && !atomic_compare_exchange_weak_explicit(
                               end, &old, end_ns, memory_order_relaxed, memory_order_relaxed))
        continue;
}

static void related_evict_family(struct join_table *table, const struct record *record)
{
    const uint8_t *service = (const uint8_t *)(record + 1) + record->name_len;
    if (!record->has_trace || !record->service_len)
        return;
    /* Tables that receive no profiles also evict spans early. For these tables, one latest end
     * for all families is enough until samples arrive. */
    if (!atomic_load_explicit(&table->family_ends_used, memory_order_relaxed)) {
        related_raise(&table->end_before_use, record->head.end_ns);
        return;
    }
    uint64_t hash =
        join_table_family_hash(table, record->head.trace_id,
                               join_service_hash(service, record->service_len) & SERVICE_MASK);
    related_raise(&table->family_ends[hash & table->families_mask], record->head.end_ns);
}

void join_related_evict(struct join_table *table, const struct record *record, bool early)
{
    if (early)
        related_evict_family(table, record);
    if (!record->located)
        return;
    const struct location *location = join_record_location(record);
    struct join_threads threads[2];
    unsigned n = related_threads(record, threads);
    for (unsigned i = 0; i < n * JOIN_PLACES; i++) {
        unsigned place = i % JOIN_PLACES;
        if (!location->places[place])
            continue;
        uint64_t at =
            related_end_at(table, &threads[i / JOIN_PLACES], place, location->places[place]);
        related_raise(&table->ends[at], record->head.end_ns);
        if (early)
            related_raise(&table->early_ends[at], record->head.end_ns);
    }
}

uint64_t join_table_known_since(const struct join_table *table, const struct join_threads *threads,
                                const uint32_t places[JOIN_PLACES], bool early)
{
    const _Atomic uint64_t *ends = early ? table->early_ends : table->ends;
    uint64_t since_ns = 0;
    for (unsigned place = 0; place < JOIN_PLACES; place++) {
        if (!places[place])
            continue;
        uint64_t end_ns = atomic_load_explicit(
            &ends[related_end_at(table, threads, place, places[place])], memory_order_relaxed);
        since_ns = end_ns > since_ns ? end_ns : since_ns;
    }
    return since_ns;
}
