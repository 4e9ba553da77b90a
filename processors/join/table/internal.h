/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types and inline functions that the files of the join's table share.
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

/* number of bits that select a shard if several threads share the table; otherwise there is one
 * ring */
#define SHARDS_BITS 4u
#define SHARDS (1u << SHARDS_BITS)
#define WAYS 10u     /* number of slots of a bucket */
#define KEYS_MAX 32u /* largest number of attribute keys whose values are counted */
/* number of slots of a hash table of services, of which at most about half are used */
#define SERVICE_SLOTS (2 * JOIN_SERVICES_MAX)
#define LARGE_PAGE ((uintptr_t)2 << 20) /* size of a large page, in bytes */
/* position at which a ring begins; it is greater than 0, so that position 0 is before every tail */
#define RESERVED 256u
/* largest ring, in bytes: a quarter of the range of positions that a slot can store */
#define RING_MAX (1ull << 33)
/* number of bytes that are entered while every bucket is swept once: half the range of positions
 * that a slot can store */
#define SWEEP_BYTES (1ull << 34)

/* A bucket of the hash table of span ids; it is one cache line. Slots are filled in circular
 * order, so the next slot is the oldest one, whose record has most likely been evicted. The tags
 * are adjacent, so that a few vector comparisons find the slots that may match. If a bucket is
 * full, its neighbour is used: the next cache line or the previous one.
 *
 * A slot stores the low 32 bits of a record's position, in units of 8 bytes. At the highest load
 * these bits wrap around within minutes. Before positions wrap around, each bucket is swept: the
 * slots of evicted records are cleared, so that their positions cannot be mistaken for those of
 * new records. */
struct bucket {
    uint16_t tags[WAYS];      /* for each slot, 16 bits of the hash of its record's span id */
    uint32_t positions[WAYS]; /* for each slot, its record's position, in units of 8 bytes */
    union {
        struct {
            /* position of the last record of this bucket that is in the neighbour, in units of
             * 128 bytes */
            uint32_t spilled : 28;
            uint32_t next : 4; /* index of the slot to fill next */
        };
        /* the fields `spilled` and `next` in one word; `spilled` is in the low bits on every
         * supported platform */
        uint32_t word;
    };
};
_Static_assert(sizeof(struct bucket) == 64, "a bucket is a cache line");

/* The head of a record in the ring, 8-byte aligned. The head is followed by the name, the
 * service and the attributes of the span and, if `located` is set, by a struct location. */
struct record {
    struct br_span_head head;
    uint32_t thread, thread_name; /* hashes of thread.id and thread.name; 0: unknown */
    /* index of the record's totals, plus 1; 0: the record has no totals */
    uint32_t totals;
    /* time at which the span arrived, in tenths of a second of the monotonic clock */
    uint32_t seen;
    /* The bit fields are written and read as two whole words. */
    union {
        struct {
            uint64_t previous : 48; /* place of the previous record of the family; see related.c */
            /* size of the whole record, including everything after its head, in units of 8 bytes */
            uint64_t size8 : 16;
            uint64_t attributes_len : 16; /* length of the attributes in bytes */
            /* lengths of the name and the service in bytes */
            uint64_t name_len : 8, service_len : 8;
            /* span kind and status code, as numbers of OTLP */
            uint64_t kind : 8, status : 8;
            /* the record is pending: its span has not arrived. start_ns is then the time at
             * which the record was entered, in the units of `seen` */
            uint64_t pending : 1;
            uint64_t has_trace : 1; /* the trace id is known */
            uint64_t dead : 1;      /* a later record replaced this record */
            uint64_t located : 1;   /* a struct location is at the end of the record */
            /* the record contains deferred timestamps: a struct join_deferred, then times and
             * values */
            uint64_t deferred : 1;
            /* the deferred timestamps were retained; start_ns is then the arrival of the
             * thread's last sample */
            uint64_t retained : 1;
            /* the totals of the span's ancestors are already noted as incomplete */
            uint64_t ancestors_marked : 1;
            uint64_t spare : 9;
        };
        /* all bit fields as two words; the first fields are in the low bits on every supported
         * platform */
        uint64_t words[2];
    };
};
_Static_assert(sizeof(struct record) == 80, "a record's head is ten words");
_Static_assert(sizeof(struct record) + sizeof(struct join_deferred) == 160, "as in the README");

/* The attributes that identify where a span ran, as hashes (struct join_identity). If a span can
 * be found by its thread, a struct location is at the end of its record. */
struct location {
    uint32_t process, service, runtime, places[JOIN_PLACES], spare;
    /* places of the previous records in two chains of the thread: by its id, and by its name */
    uint64_t previous, previous_by_name;
};

/* A service that was profiled or has spans. `key` is the hash of the service; 0: the slot is
 * free. The low half of `seen` is the time at which the service was last seen, in seconds. For a
 * profiled service, the high half of `seen` is the interval between its last two profiles, in
 * seconds. For a service with spans, the high half of `seen` is the time at which the service
 * was first seen, in seconds. */
struct service {
    _Atomic uint64_t key, seen;
};

/* The latest deferred timestamp that was evicted before its spans arrived. `key` is the hash of
 * the span or thread to which the timestamp belongs. */
struct evicted {
    _Atomic uint64_t key, until_ns;
};

/* A ring of records with the hash table of its span ids. The hash of a span id selects the
 * shard. */
struct shard {
    pthread_mutex_t lock; /* protects the shard if several threads share the table */
    struct bucket *buckets;
    uint64_t n_buckets; /* an even number: buckets form pairs, and a full bucket uses the other
                           bucket of its pair */
    uint8_t *ring;
    uint64_t ring_size; /* size of the ring in bytes */
    /* position after the newest record, and position of the oldest record: byte counts that only
     * grow */
    uint64_t head, tail;
    uint64_t head_at, tail_at; /* offsets of head and tail in the ring, in bytes */
    uint64_t room;             /* number of contiguous free bytes after the head */
    /* largest number of spans that are entered together, at least 1 */
    uint32_t group;
    uint64_t sweep_at; /* position of the head at which the next bucket is swept */
    uint64_t swept;    /* number of buckets swept since the table was created */
    /* array of n_totals elements, each of which has the table's totals_size bytes */
    uint8_t *totals;
    /* number of elements of `totals`, and number of those that have ever been used */
    uint32_t n_totals, used_totals;
    /* index of the first free element of `totals`, plus 1; free elements are linked through
     * types[0].waiting */
    uint32_t free_totals;
    uint64_t n_spans, n_pending; /* numbers of spans and of pending records in the ring */
    uint64_t retained;           /* total size of the retained records in the ring, in bytes */
    /* number of bytes of the ring whose pages have been allocated or are being allocated */
    uint64_t paged;
    bool has_bucket_pages; /* the pages of `buckets` have been allocated (join_table_pages_make) */
} __attribute__((aligned(64)));

struct join_table {
    struct shard shards[SHARDS];
    size_t max_bytes;   /* largest total size of the rings, buckets, totals and indexes, in bytes */
    uint32_t window;    /* length of the window, in tenths of a second */
    uint64_t secret[2]; /* key of all hashes, so that no sender can choose colliding ids */
    /* one memory mapping that contains the rings, buckets, totals and indexes */
    void *memory;
    size_t memory_len;  /* length of the mapping, in bytes */
    unsigned n_top;     /* number of function counters after the totals of each span */
    size_t totals_size; /* size in bytes of a struct join_totals with its function counters */
    /* SHARDS_BITS, or 0 if one thread uses the table and nothing is locked */
    unsigned shard_bits;
    /* for each hash of a family: place of the family's newest record */
    _Atomic uint64_t *families;
    uint64_t families_mask; /* number of elements of `families`, a power of 2, minus 1 */
    /* Place of the newest record of each thread, level and slot (related.c). The array has
     * THREADS_PER_FAMILY * (families_mask + 1) elements for threads found by id, and as many for
     * threads found by name. NULL: spans are not found by thread. */
    _Atomic uint64_t *threads;
    _Atomic uint32_t levels; /* bit n is set if spans of level n have been entered */
    /* The latest end times of evicted spans, in three arrays of families_mask + 1 elements.
     * family_ends: by family, for spans evicted within the window. ends: by thread, for all
     * spans. early_ends: by thread, for spans evicted within the window. `ends` and `early_ends`
     * are NULL if spans are not found by thread. */
    _Atomic uint64_t *family_ends, *ends, *early_ends;
    _Atomic bool family_ends_used; /* family_ends has been read at least once */
    /* latest end of all spans that were evicted within the window before family_ends was first
     * read */
    _Atomic uint64_t end_before_use;
    /* for each hash of a span or thread: place of its newest deferred record */
    _Atomic uint64_t *deferred;
    /* time of the last call of join_table_defer, in tenths of a second; 0: never */
    _Atomic uint32_t deferred_at;
    /* the pages of `families` and all arrays after it have been allocated; written only by the
     * thread that has set is_paging */
    bool has_family_pages;
    /* is_paging: a thread is allocating pages; all_paged: the pages of all rings have been
     * allocated */
    _Atomic bool is_paging, all_paged;
    pthread_mutex_t names_lock; /* protects the fields from `types` to `series` */
    char *types[JOIN_TYPES];    /* names of the profile types, by number; zero-terminated */
    uint8_t type_lens[JOIN_TYPES];
    unsigned n_types;
    /* for each key number: the distinct values of the key (join_table_value) */
    struct br_map *values[KEYS_MAX];
    struct br_map *functions; /* maps the name of a function to its number */
    struct br_map *series;    /* set of the distinct series (join_table_series) */
    /* hash tables: the services that were profiled, and the services that have spans */
    struct service profiled[SERVICE_SLOTS], with_spans[SERVICE_SLOTS];
    struct join_progress progress;
    _Atomic uint64_t lost[JOIN_LOST_MAX]; /* hashes of spans that have lost samples */
    /* hashes of spans that had children with samples, of which at least one was evicted */
    _Atomic uint64_t lost_below[JOIN_LOST_MAX];
    struct evicted evicted[JOIN_EVICTED_MAX];
};

static inline uint64_t join_table_mix(const struct join_table *table, uint64_t value)
{
    value = (value ^ table->secret[0]) * 0x9e3779b97f4a7c15u;
    value ^= value >> 32;
    value = (value ^ table->secret[1]) * 0xd6e8feb86659fd93u;
    return value ^ value >> 29;
}

/* Returns the hash of an integer, never 0. The hash need not be well mixed, because it is always
 * combined with other hashes. */
static inline uint32_t join_table_hash_number(const struct join_table *table, uint64_t value)
{
    return (uint32_t)((value ^ table->secret[0]) * 0x9e3779b97f4a7c15u >> 32) | 1;
}

/* Returns join_table_hash_value of `any`, or 0 if `any` is NULL. The common case, a small
 * integer, is handled inline. */
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

/* Returns the time from `seen` to `now` in tenths of a second. Workers read the clock once per
 * loop iteration, so `seen` may be slightly later than another worker's `now`; the result is
 * then 0. */
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

/* Locks the shard, except in a table that is used by one thread only: even an uncontended lock
 * would wait for earlier writes to complete. */
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

/* Returns the newest position whose low `bits` bits are `low`, in units of 8 bytes. Positions
 * grow without bound, but chains store only their low 48 bits. Returns 0 if `low` is 0, which
 * means "no record". */
static inline uint64_t join_shard_whole(const struct shard *shard, uint64_t low, unsigned bits)
{
    return low ? shard->head - ((shard->head / 8 - low) & ((1ull << bits) - 1)) * 8 : 0;
}

/* Returns the record at a position. The record's offset in the ring is computed from its
 * distance to the head, which is cheaper than a division. */
static inline struct record *join_shard_record(const struct shard *shard, uint64_t position)
{
    uint64_t back = shard->head - position;
    uint64_t offset = shard->head_at - back + (back > shard->head_at ? shard->ring_size : 0);
    return (struct record *)(void *)(shard->ring + offset);
}

/* Advances a position, and its offset in the ring, by the size of a record. A record never wraps
 * around the end of the ring. */
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

/* Returns the record that follows a record of `size` bytes. */
static inline struct record *join_record_after(struct record *record, uint32_t size)
{
    return (struct record *)(void *)((uint8_t *)record + size);
}

/* Returns the span of a record. The pointers of the span refer to the record. */
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

/* --- Functions for totals, called under the shard's lock -------------------------------------- */

static inline bool join_shard_has_totals(const struct shard *shard)
{
    return shard->free_totals || shard->used_totals < shard->n_totals;
}

static inline struct join_totals *join_shard_totals(const struct join_table *table,
                                                    const struct shard *shard, uint32_t index)
{
    return (struct join_totals *)(void *)(shard->totals + (index - 1) * table->totals_size);
}

/* Returns the function counters that follow the totals. */
static inline struct join_top *join_totals_counters(struct join_totals *totals)
{
    return (struct join_top *)(void *)(totals + 1);
}

/* Returns the totals of the record. If the record has no totals, creates them at the time `now`.
 * Returns NULL if all totals of the shard are in use. */
struct join_totals *join_record_totals(const struct join_table *table, struct shard *shard,
                                       struct record *record, uint32_t now);

/* Subtracts a deferred sample from the sums of deferred samples. */
void join_totals_subtract_deferred(struct join_totals *totals, const struct join_sample *sample);

/* Returns the record's totals to the shard's free list. */
void join_record_free_totals(const struct join_table *table, struct shard *shard,
                             struct record *record);

/* Adds the numbers of samples that waited for the record's span to `by_type`, and sets these
 * numbers in `totals` to 0. */
void join_totals_tally(uint64_t *by_type, struct join_totals *totals, struct join_tally *out);

/* --- Names: names.c --------------------------------------------------------------------------- */

void join_names_init(struct join_table *table);
void join_names_release(struct join_table *table);

/* --- Losses: losses.c ------------------------------------------------------------------------- */

/* Adds a span to `noted` (table->lost or table->lost_below), which stores the hashes of the
 * latest spans. */
void join_losses_note_span(const struct join_table *table, _Atomic uint64_t *noted,
                           uint64_t span_id);

/* Notes that the inclusive sums of a record's ancestors are incomplete. The record is being
 * evicted, so its totals can no longer be added to these sums. */
void join_losses_mark_ancestors(struct join_table *table, const struct shard *shard,
                                struct record *record, uint32_t now);

/* Notes that timestamps up to `until_ns` were evicted for the span or thread with this hash. */
void join_losses_note_evicted(struct join_table *table, uint64_t hash, uint64_t until_ns);

/* --- Timestamps: timestamps.c ----------------------------------------------------------------- */

/* Handles the eviction of deferred timestamps that were not assigned to a span. If a sample
 * names a span, its timestamps are added to the totals of that span. If spans in which the
 * timestamps were taken may still arrive, notes that the totals of those spans are incomplete. */
void join_timestamps_evict(struct join_table *table, struct shard *shard,
                           const struct record *record, uint32_t now);

/* Retains the deferred timestamps at the tail of the ring by moving them to the head, if they
 * belong to a thread. Timestamps are retained while samples of the thread keep arriving, because
 * one of the thread's spans may still be open. Timestamps that were assigned to a span are dropped.
 * If there is little room, nothing is retained. Returns false if nothing is retained; the record is
 * then still at the tail. Subtracts the work, counted in records, from `*remaining`. */
bool join_timestamps_retain(struct join_table *table, struct shard *shard, uint32_t now,
                            uint32_t *remaining, struct join_tally *out);

/* --- Families --------------------------------------------------------------------------------- */

/* mask for the bits of a place, which consists of a record's position in units of 8 bytes and
 * the number of its shard */
#define PLACE_MASK 0xffffffffffffu
/* mask for the bits of a service's hash that distinguish families */
#define SERVICE_MASK PLACE_MASK

/* Returns the hash of a family. `service` must be within SERVICE_MASK. */
static inline uint64_t join_table_family_hash(const struct join_table *table,
                                              const uint8_t *trace_id, uint64_t service)
{
    return join_table_mix(table, br_load64(trace_id) ^
                                     join_table_mix(table, br_load64(trace_id + 8) ^ service));
}

/* number of elements of join_table.threads for threads found by id, per element of
 * join_table.families */
#define THREADS_PER_FAMILY 2u

/* Makes a record with a struct location the newest record of its thread, level and slot. */
void join_related_enter(struct join_table *table, const struct shard *shard, struct record *record,
                        uint64_t position);

/* Notes that a span's record is evicted. `early` is true if it is evicted within the window.
 * Must be called if the eviction is early or the record has a struct location. */
void join_related_evict(struct join_table *table, const struct record *record, bool early);

/* Makes the record at `position` the newest record of the chain that begins at `*newest`.
 * Returns the place of the record that was the newest before. Called under the shard's lock.
 * `shared` is true if the table has several shards. */
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
