/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The types and functions that the files of the table share: table.c (rings, slots, families) and
 * totals.c (what samples add up to, and what the table knows by name).
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/map.h"
#include "otlp/fields.h"
#include "otlp/scan.h"
#include "processors/join/table/table.h"
#include "wire/protobuf.h"

#define SHARDS_BITS 4u /* where threads share the table; one thread has one ring */
#define SHARDS (1u << SHARDS_BITS)
#define WAYS 10u /* slots of a bucket */
#define KEYS_MAX 32u
#define SERVICE_SLOTS (2 * JOIN_SERVICES_MAX)
#define LARGE_PAGE ((uintptr_t)2 << 20)
#define RESERVED 256u         /* where positions begin, so that zeros are before every tail */
#define RING_MAX (1ull << 33) /* bytes of a shard: a quarter of what a slot's position can say */
#define SWEEP_BYTES                                                                                \
    (1ull << 34) /* that are entered while all buckets are swept once: half of it                  \
                  */

/* A cache line. Slots are filled one after the other, round and round, so that the next one is the
 * oldest, whose record most likely has left. Tags lie together, so that a few comparisons tell
 * which may match. What a full bucket has no room for lies in its neighbour, the next line or the
 * one before.
 *
 * Of a position a slot has the low 32 bits, in units of 8 bytes, which come round within minutes at
 * the highest load: before, buckets are swept, one now and then, of records that have left. */
struct bucket {
    uint16_t tags[WAYS];
    uint32_t positions[WAYS];
    union {
        struct {
            uint32_t spilled : 28; /* the last record of its own in the neighbour, in units of 128
                                      bytes */
            uint32_t next : 4;     /* slot to fill */
        };
        uint32_t word; /* the same, at once: the first field lowest, as wherever Braid is built */
    };
};
_Static_assert(sizeof(struct bucket) == 64, "a bucket is a cache line");

/* In the ring, 8-byte aligned, followed by the texts. */
struct record {
    struct br_span_head head;
    uint32_t thread, thread_name; /* as in join_span */
    uint32_t totals;              /* index + 1; 0: none */
    uint32_t seen;                /* tenths of a second of the monotonic clock */
    /* Words that are written, and read at once, as a whole. */
    union {
        struct {
            uint64_t previous : 48; /* where the span before it of its family may be: table.c */
            uint64_t size8 : 16;    /* bytes with the texts, in units of 8 */
            uint64_t attributes_len : 16;
            uint64_t name_len : 8, service_len : 8;
            uint64_t kind : 8, status : 8;
            uint64_t pending : 1, has_trace : 1; /* pending: a span that has not come; its start_ns
                                                    is when its record came here, as `seen` */
            uint64_t dead : 1;                   /* a later record took its place */
            uint64_t located : 1;                /* whereabouts are at its end */
            uint64_t deferred : 1; /* timestamps of a sample: a struct join_deferred follows, then
                                      they */
            uint64_t retained : 1; /* they wait for longer; its start_ns is when the last came */
            uint64_t ancestors_marked : 1; /* samples of it, or of a span below it, leave: those
                                              above know */
            uint64_t spare : 9;
        };
        uint64_t words[2]; /* the same: first fields lowest, as wherever Braid is built */
    };
};
_Static_assert(sizeof(struct record) == 80, "a record's head is ten words");
_Static_assert(sizeof(struct record) + sizeof(struct join_deferred) == 160, "as in the README");

struct location {
    uint32_t process, service, runtime, places[JOIN_PLACES], spare;
    uint64_t previous, previous_by_name; /* the span before it of its thread, as in record: with its
                                      id, and with its name */
};

/* One that is profiled, or has spans: its hash, 0 where there is none; and when it was seen last,
 * in seconds, below how long after the time before, or when it was seen first. */
struct service {
    _Atomic uint64_t key, seen;
};

/* Of what was taken of a span's samples or on a thread, by the hash of its ids: the latest
 * timestamp that left before spans came. */
struct evicted {
    _Atomic uint64_t key, until_ns;
};

struct shard {
    pthread_mutex_t lock;
    struct bucket *buckets;
    uint64_t n_buckets;
    uint8_t *ring;
    uint64_t ring_size, head, tail; /* positions only grow */
    uint64_t head_at, tail_at;      /* where in the ring they are */
    uint64_t room;                  /* bytes behind the head that are free, in one piece */
    uint32_t group;                 /* spans that are entered at a time, at least 1 */
    uint64_t sweep_at;              /* the head at which the next bucket is swept */
    uint64_t swept;                 /* buckets, in all */
    uint8_t *totals;                /* n_totals of the table's totals_size */
    uint32_t n_totals, used_totals; /* those past used_totals were never taken */
    uint32_t free_totals;           /* free list through types[0].waiting; index + 1 */
    uint64_t n_spans, n_pending;
    uint64_t retained; /* bytes of records that are */
    uint64_t paged;    /* bytes of the ring that have pages, or soon will */
    bool has_bucket_pages;
} __attribute__((aligned(64)));

struct join_table {
    struct shard shards[SHARDS];
    size_t max_bytes;
    uint32_t window; /* tenths of a second */
    uint64_t secret[2];
    void *memory;
    size_t memory_len;
    unsigned n_top;             /* counters of functions behind each span's totals */
    size_t totals_size;         /* of totals and counters */
    unsigned shard_bits;        /* of SHARDS_BITS, or 0: one thread does all, nothing is locked */
    _Atomic uint64_t *families; /* where the newest span of each is */
    uint64_t families_mask;
    /* Likewise, of each thread, level and slot (related.c), THREADS_PER_FAMILY * (families_mask +
     * 1) by ids, and as many by names, whose records are linked apart. NULL: none. */
    _Atomic uint64_t *threads;
    _Atomic uint32_t levels; /* of the spans among them */
    /* families_mask + 1 each: the latest ends of spans that left; those of families early, that is,
     * inside the window; and, with threads, those of threads at all and early. */
    _Atomic uint64_t *family_ends, *ends, *early_ends;
    _Atomic bool family_ends_used;   /* for one of family_ends */
    _Atomic uint64_t end_before_use; /* the latest of all that left early before that */
    _Atomic uint64_t *deferred;      /* likewise, of each span that samples name, in its shard */
    _Atomic uint32_t
        deferred_at;       /* when something was taken last, in tenths of a second; 0: never */
    bool has_family_pages; /* `families`, `taken` and `threads`; whoever has is_paging writes it */
    _Atomic bool is_paging, all_paged; /* pages ahead of the records */
    pthread_mutex_t names_lock;        /* of everything below */
    char *types[JOIN_TYPES];
    uint8_t type_lens[JOIN_TYPES];
    unsigned n_types;
    struct br_map *values[KEYS_MAX];
    struct br_map *functions; /* name -> its number */
    struct br_map *series;
    struct service profiled[SERVICE_SLOTS], with_spans[SERVICE_SLOTS];
    struct join_progress progress;
    _Atomic uint64_t lost[JOIN_LOST_MAX];       /* hashes of spans some of whose samples are */
    _Atomic uint64_t lost_below[JOIN_LOST_MAX]; /* of those whose children left with samples */
    struct evicted evicted[JOIN_EVICTED_MAX];
};

static inline uint64_t join_table_mix(const struct join_table *table, uint64_t value)
{
    value = (value ^ table->secret[0]) * 0x9e3779b97f4a7c15u;
    value ^= value >> 32;
    value = (value ^ table->secret[1]) * 0xd6e8feb86659fd93u;
    return value ^ value >> 29;
}

/* Returns the hash of an integer, not 0. Nothing is looked up by it alone: it need not be mixed. */
static inline uint32_t join_table_hash_number(const struct join_table *table, uint64_t value)
{
    return (uint32_t)((value ^ table->secret[0]) * 0x9e3779b97f4a7c15u >> 32) | 1;
}

/* As join_table_hash_value, with what most spans say of their thread in line. */
static inline uint32_t join_table_thread_of(const struct join_table *table, const uint8_t *any,
                                            size_t len)
{
    if (any && len - 2 <= 1 && any[0] == BR_TAG(BR_VALUE_INT, BR_WIRE_VARINT)) {
        uint32_t first = any[1], last = any[len - 1], two = (uint32_t)len - 2;
        if (first >> 7 == two && last < 0x80)
            return join_table_hash_number(table, (first & 0x7f) | (last << 7 & (0u - two)));
    }
    return any ? join_table_hash_value(table, any, len) : 0;
}

static inline uint32_t join_table_tenths(uint64_t now_ms)
{
    return (uint32_t)(now_ms / 100);
}

/* Tenths of a second from `seen` until `now`. Workers read the clock once a loop turn, so that what
 * one of them entered may lie in another's future. */
static inline uint32_t join_record_age(uint32_t seen, uint32_t now)
{
    int32_t passed = (int32_t)(now - seen);
    return passed > 0 ? (uint32_t)passed : 0;
}

static inline bool join_record_expired(const struct join_table *table, const struct record *record,
                                       uint32_t now)
{
    return join_record_age(record->seen, now) > table->window;
}

static inline unsigned join_table_n_shards(const struct join_table *table)
{
    return 1u << table->shard_bits;
}

static inline struct shard *join_table_shard(struct join_table *table, uint64_t hash)
{
    return &table->shards[hash & (join_table_n_shards(table) - 1)];
}

/* Not where one thread does all: a lock waits for what was written before it. */
static inline void join_shard_lock(const struct join_table *table, struct shard *shard)
{
    if (table->shard_bits)
        pthread_mutex_lock(&shard->lock);
}

static inline void join_shard_unlock(const struct join_table *table, struct shard *shard)
{
    if (table->shard_bits)
        pthread_mutex_unlock(&shard->lock);
}

/* Returns the newest position of which these are the low `bits`, in units of 8 bytes: positions
 * grow for ever, and what is kept of them has six bytes. 0, which means none, stays 0. */
static inline uint64_t join_shard_whole(const struct shard *shard, uint64_t low, unsigned bits)
{
    return low ? shard->head - ((shard->head / 8 - low) & ((1ull << bits) - 1)) * 8 : 0;
}

/* Position in the ring, by its distance from the head: cheaper than a division. */
static inline struct record *join_shard_record(const struct shard *shard, uint64_t position)
{
    uint64_t back = shard->head - position;
    uint64_t offset = shard->head_at - back + (back > shard->head_at ? shard->ring_size : 0);
    return (struct record *)(void *)(shard->ring + offset);
}

/* Moves on by a record's size; a record does not go round the ring's end. */
static inline void join_shard_forward(const struct shard *shard, uint64_t *position,
                                      uint64_t *in_ring, uint32_t size)
{
    *position += size;
    *in_ring += size;
    if (*in_ring == shard->ring_size)
        *in_ring = 0;
}

static inline uint32_t join_record_size(const struct record *record)
{
    return record->size8 * 8u;
}

/* Returns the one that comes after it, where it has so many bytes. */
static inline struct record *join_record_behind(struct record *record, uint32_t size)
{
    return (struct record *)(void *)((uint8_t *)record + size);
}

/* Returns what is said of a record's span; pointing into the record. */
static inline struct join_span join_record_span(const struct record *record)
{
    const uint8_t *text = (const uint8_t *)(record + 1);
    return (struct join_span){
        .trace_id = record->has_trace ? record->head.trace_id : NULL,
        .span_id = (const uint8_t *)&record->head.span_id,
        .parent_id = record->head.parent_id ? (const uint8_t *)&record->head.parent_id : NULL,
        .start_ns = record->head.start_ns,
        .end_ns = record->head.end_ns,
        .thread = record->thread,
        .thread_name = record->thread_name,
        .kind = record->kind,
        .status = record->status,
        .name = text,
        .name_len = record->name_len,
        .service = text + record->name_len,
        .service_len = record->service_len,
        .attributes = text + record->name_len + record->service_len,
        .attributes_len = record->attributes_len};
}

static inline struct location *join_record_location(const struct record *record)
{
    return (struct location *)(void *)((uint8_t *)(uintptr_t)record + join_record_size(record) -
                                       sizeof(struct location));
}

/* --- Figures: under the shard's lock ---------------------------------------------------- */

static inline bool join_shard_has_totals(const struct shard *shard)
{
    return shard->free_totals || shard->used_totals < shard->n_totals;
}

static inline struct join_totals *join_shard_totals(const struct join_table *table,
                                                    const struct shard *shard, uint32_t index)
{
    return (struct join_totals *)(void *)(shard->totals + (index - 1) * table->totals_size);
}

/* The counters behind them. */
static inline struct join_top *join_totals_counters(struct join_totals *totals)
{
    return (struct join_top *)(void *)(totals + 1);
}

/* Returns the record's totals, made at `now` where there are none; NULL without room. */
struct join_totals *join_record_totals(const struct join_table *table, struct shard *shard,
                                       struct record *record, uint32_t now);
void join_totals_subtract_deferred(struct join_totals *totals, const struct join_sample *sample);
void join_record_free_totals(const struct join_table *table, struct shard *shard,
                             struct record *record);

/* Counts the samples that waited for the record's span, once. */
void join_totals_tally(uint64_t *by_type, struct join_totals *totals, struct join_tally *out);

/* --- Names: names.c --------------------------------------------------------------------- */

void join_names_init(struct join_table *table);
void join_names_release(struct join_table *table);

/* --- Losses: losses.c ------------------------------------------------------------------- */

/* Spans are noted by their hashes, the last ones. */
void join_losses_note_span(const struct join_table *table, _Atomic uint64_t *noted,
                           uint64_t span_id);

/* What a span that leaves has is missing from the sums of those above it that are still to come. */
void join_losses_mark_ancestors(struct join_table *table, const struct shard *shard,
                                struct record *record, uint32_t now);

void join_losses_note_evicted(struct join_table *table, uint64_t hash, uint64_t until_ns);

/* --- Timestamps: timestamps.c ----------------------------------------------------------- */

/* What leaves before its span was asked for is the span's that the sample names. Where spans may
 * still come that it was taken in, theirs is not all. */
void join_timestamps_evict(struct join_table *table, struct shard *shard,
                           const struct record *record, uint32_t now);

/* Makes the timestamps at the tail, which are a thread's, the newest where they are to wait for
 * longer: samples of the thread keep coming, so that one of its spans may last. Those of spans that
 * have come leave; and, where there is little room, those that have waited longest. False where all
 * leave. */
bool join_timestamps_retain(struct join_table *table, struct shard *shard, uint32_t now,
                            uint32_t *remaining, struct join_tally *out);

/* --- Families --------------------------------------------------------------------------- */

#define PLACE_MASK 0xffffffffffffu
#define SERVICE_MASK PLACE_MASK /* what families are told apart by of a service's hash */

/* `service`: within SERVICE_MASK. */
static inline uint64_t join_table_family_hash(const struct join_table *table,
                                              const uint8_t *trace_id, uint64_t service)
{
    return join_table_mix(table, br_load64(trace_id) ^
                                     join_table_mix(table, br_load64(trace_id + 8) ^ service));
}

#define THREADS_PER_FAMILY 2u

/* Makes a record whose whereabouts are known the newest of its thread, level and slot. */
void join_related_enter(struct join_table *table, const struct shard *shard, struct record *record,
                        uint64_t position);

/* Notes that a span's record leaves, `early` inside the window: needed where either this holds or
 * its whereabouts are known. */
void join_related_evict(struct join_table *table, const struct record *record, bool early);

/* Makes the record at `position` the newest of those whose newest `*newest` says, and returns the
 * one before it. Under the shard's lock. `shared`: the table has several. */
static inline uint64_t join_chain_enter(const struct join_table *table, _Atomic uint64_t *newest,
                                        const struct shard *shard, uint64_t position, bool shared)
{
    uint64_t place = position / 8, old = atomic_load_explicit(newest, memory_order_relaxed);
    if (shared)
        place = place << table->shard_bits | (uint64_t)(shard - table->shards);
    if (shared)
        old = atomic_exchange_explicit(newest, place, memory_order_acq_rel);
    else
        atomic_store_explicit(newest, place, memory_order_release);
    return old & PLACE_MASK;
}
