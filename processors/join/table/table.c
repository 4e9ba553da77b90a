/* SPDX-License-Identifier: Apache-2.0 */
/* Creates the join's table, expires its records and computes its statistics. */
#include "processors/join/table/table.h"

#include <sys/mman.h>

#include "base/mem.h"
#include "processors/join/table/ring.h"

/* Shares of the table's bytes, in sixteenths; the remaining bytes are for records. With records
 * of 110 bytes, two of five slots are in use when the ring is full. When two of five slots are
 * in use, one bucket in 200 is full, and one in 8,000 is full together with its neighbour. */
#define SLOTS_SHARE 2u
#define TOTALS_SHARE 2u
/* bytes of the totals, in sixteenths of the table's bytes, if spans have function counters */
#define TOTALS_AND_TOP_SHARE 5u
/* longest window in milliseconds: about a year; the clock of records wraps around after six
 * years */
#define WINDOW_MAX_MS (1ull << 35)
/* largest number of records that one call expires, so that the call takes at most about a
 * millisecond */
#define EXPIRED_AT_ONCE 8192u
/* the table has one family chain for each BYTES_PER_FAMILY bytes, that is, for about five spans */
#define BYTES_PER_FAMILY 1024u

/* --- Life ------------------------------------------------------------------------------- */

static void join_table_shard_init(const struct join_table *table, struct shard *shard,
                                  uint8_t *memory, size_t bytes)
{
    shard->n_buckets = bytes / 16 * SLOTS_SHARE / sizeof(struct bucket) & ~(uint64_t)1;
    size_t slots = shard->n_buckets * sizeof(struct bucket);
    shard->n_totals = (uint32_t)(bytes / 16 * (table->n_top ? TOTALS_AND_TOP_SHARE : TOTALS_SHARE) /
                                 table->totals_size);
    size_t totals = (shard->n_totals * table->totals_size + 63) & ~(size_t)63;
    pthread_mutex_init(&shard->lock, NULL);
    shard->buckets = (struct bucket *)(void *)memory;
    shard->totals = memory + slots;
    shard->ring = memory + slots + totals;
    /* The ring is followed by room for the header of a record, because a record can begin in the
     * ring's last eight bytes. */
    shard->ring_size = (bytes - slots - totals - sizeof(struct record)) & ~(size_t)63;
    shard->head = shard->tail = shard->head_at = shard->tail_at = RESERVED;
    /* n_max is more than 1 even in the smallest table */
    uint64_t n_max = shard->ring_size / RECORD_MAX / 4;
    shard->group = n_max < JOIN_GROUP_MAX ? (uint32_t)n_max : JOIN_GROUP_MAX;
    shard->sweep_at = RESERVED + SWEEP_BYTES / shard->n_buckets;
}

/* Returns the number of family chains, a power of two. */
static size_t table_families_in(size_t max_bytes)
{
    size_t n = 1024;
    while (n * 2 <= max_bytes / BYTES_PER_FAMILY)
        n *= 2;
    return n;
}

/* Counts the memory of the whole table when it is created, because clients control its contents. */
static void table_count_memory(int64_t bytes)
{
    br_mem_count(bytes);
    br_mem_hold(BR_HOLDER_JOIN, bytes);
}

struct join_table *join_table_new(size_t max_bytes, uint64_t window_ms, unsigned n_top,
                                  bool threads, bool shared)
{
    unsigned bits = shared || max_bytes > RING_MAX ? SHARDS_BITS : 0;
    /* The memory comes directly from the kernel. A page is allocated when it is first used, or
     * ahead of the records that will be written to it. */
    size_t n_families = table_families_in(max_bytes), families = n_families * sizeof(uint64_t);
    size_t heads = families * (threads ? 5 + 2 * THREADS_PER_FAMILY : 3);
    size_t each = ((max_bytes - heads) >> bits) & ~(size_t)127;
    size_t own = (sizeof(struct join_table) + 127) & ~(size_t)127;
    size_t all = each << bits, len = all + heads + own;
    void *mapping = mmap(NULL, len + LARGE_PAGE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return NULL;
    uint8_t *memory = (uint8_t *)mapping + (-(uintptr_t)mapping & (LARGE_PAGE - 1));
    table_count_memory((int64_t)len);
    uint8_t *behind = (uint8_t *)memory + all;
    struct join_table *table = (void *)(behind + heads);
    table->memory = mapping;
    table->memory_len = len;
    table->n_top = n_top <= JOIN_TOP_MAX ? n_top : JOIN_TOP_MAX;
    table->totals_size = sizeof(struct join_totals) + table->n_top * sizeof(struct join_top);
    table->families = (void *)behind;
    table->families_mask = n_families - 1;
    table->deferred = (void *)(behind + families);
    table->family_ends = (void *)(behind + 2 * families);
    if (threads) {
        table->ends = (void *)(behind + 3 * families);
        table->early_ends = (void *)(behind + 4 * families);
        table->threads = (void *)(behind + 5 * families);
    }
    table->shard_bits = bits;
    for (unsigned i = 0; i < join_table_n_shards(table); i++)
        join_table_shard_init(table, &table->shards[i], memory + i * each, each);
    br_random_bytes(table->secret, sizeof table->secret);
    table->max_bytes = all + heads;
    table->window = window_ms < WINDOW_MAX_MS ? (uint32_t)(window_ms / 100) : WINDOW_MAX_MS / 100;
    join_names_init(table);
    return table;
}

void join_table_free(struct join_table *table)
{
    if (!table)
        return;
    for (unsigned i = 0; i < join_table_n_shards(table); i++)
        pthread_mutex_destroy(&table->shards[i].lock);
    join_names_release(table);
    table_count_memory(-(int64_t)table->memory_len);
    (void)munmap(table->memory, table->memory_len + LARGE_PAGE);
}

/* --- Expiry ----------------------------------------------------------------------------- */

/* Moves the pending record at the tail to the head of the ring, so that the records after it can
 * expire. */
static void table_renew(struct join_table *table, struct shard *shard, uint32_t now,
                        struct join_tally *out)
{
    const struct record old = *join_shard_record(shard, shard->tail);
    uint64_t hash = join_table_mix(table, old.head.span_id);
    struct place place = join_slots_find(shard, join_slots_home(shard, hash), old.head.span_id,
                                         old.has_trace ? old.head.trace_id : NULL);
    if (join_slots_record(shard, &place) != join_shard_record(shard, shard->tail)) {
        /* no slot refers to the record any longer, so it is dropped */
        join_ring_evict(table, shard, now, out);
        return;
    }
    join_shard_record(shard, shard->tail)->dead = true;
    join_ring_evict(table, shard, now, out);
    struct record *record = join_ring_reserve(table, shard, join_record_size(&old), now, out);
    *record = old;
    record->head.start_ns = now;
    join_slots_set(place.bucket, (unsigned)place.slot, join_slots_home(shard, hash).tag,
                   shard->head - join_record_size(&old));
    if (place.bucket != join_slots_home(shard, hash).bucket)
        join_slots_set_spilled(join_slots_home(shard, hash).bucket,
                               shard->head - join_record_size(&old));
}

/* Marks the sums of the ancestors of expiring records as incomplete, while all of the ancestors
 * are still in the table. */
static void table_mark_expired_ancestors(struct join_table *table, uint64_t keep, uint32_t now)
{
    uint32_t remaining = EXPIRED_AT_ONCE;
    for (unsigned k = 0; k < join_table_n_shards(table); k++) {
        struct shard *shard = &table->shards[k];
        join_shard_lock(table, shard);
        for (uint64_t p = shard->tail; p < shard->head && remaining > 0; remaining--) {
            struct record *record = join_shard_record(shard, p);
            if (!record->dead && join_record_age(record->seen, now) <= keep)
                break;
            if (!record->dead && !record->deferred && !record->pending && record->totals &&
                !record->ancestors_marked)
                join_losses_mark_ancestors(table, shard, record, now);
            p += join_record_size(record);
        }
        join_shard_unlock(table, shard);
    }
}

bool join_table_expire(struct join_table *table, uint64_t now_ms, struct join_tally *out)
{
    /* An item is held for at most one window, and its spans are looked up again when it is
     * released. One second is added because a timer may be late. */
    uint64_t keep = 2ull * table->window + 10;
    uint32_t now = join_table_tenths(now_ms), remaining = EXPIRED_AT_ONCE;
    table_mark_expired_ancestors(table, keep, now);
    for (unsigned k = 0; k < join_table_n_shards(table); k++) {
        struct shard *shard = &table->shards[k];
        join_shard_lock(table, shard);
        for (uint64_t end = shard->head; shard->tail < end && remaining > 0; remaining--) {
            const struct record *record = join_shard_record(shard, shard->tail);
            bool fresh = !record->dead && join_record_age(record->seen, now) <= keep;
            if (fresh && record->pending &&
                join_record_age((uint32_t)record->head.start_ns, now) > keep)
                table_renew(table, shard, now, out);
            else if (fresh)
                break;
            else if (record->dead || !record->deferred ||
                     !join_timestamps_retain(table, shard, now, &remaining, out))
                join_ring_evict(table, shard, now, out);
        }
        join_shard_unlock(table, shard);
    }
    return remaining == 0;
}

struct join_progress *join_table_progress(struct join_table *table)
{
    return &table->progress;
}

void join_table_stats(struct join_table *table, uint64_t now_ms, struct join_stats *ret)
{
    uint32_t oldest = 0, now = join_table_tenths(now_ms), remaining = EXPIRED_AT_ONCE;
    *ret = (struct join_stats){.max_bytes = table->max_bytes};
    for (unsigned k = 0; k < join_table_n_shards(table); k++) {
        struct shard *shard = &table->shards[k];
        join_shard_lock(table, shard);
        ret->spans += shard->n_spans;
        ret->pending += shard->n_pending;
        ret->bytes += shard->head - shard->tail;
        uint64_t p = shard->tail;
        for (; p < shard->head && join_shard_record(shard, p)->dead && remaining > 0; remaining--)
            p += join_record_size(join_shard_record(shard, p));
        if (p < shard->head && join_record_age(join_shard_record(shard, p)->seen, now) > oldest)
            oldest = join_record_age(join_shard_record(shard, p)->seen, now);
        join_shard_unlock(table, shard);
    }
    ret->oldest_ms = (uint64_t)oldest * 100;
}
