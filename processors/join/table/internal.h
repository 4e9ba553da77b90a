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

#define SHARDS_BITS 4u /* if several threads share the table; otherwise there is one ring */
#define SHARDS (1u << SHARDS_BITS)
#define WAYS 10u     /* number of slots of a bucket */
#define KEYS_MAX 32u /* most attribute keys whose values are counted */
/* number of slots of a hash table of services; about half of them are used at most */
#define SERVICE_SLOTS (2 * JOIN_SERVICES_MAX)
#define LARGE_PAGE ((uintptr_t)2 << 20) /* size of a large page, in bytes */
/* first position in a ring, so that position 0 is before every tail */
#define RESERVED 256u
/* largest ring, in bytes: a quarter of the range of a slot's position */
#define RING_MAX (1ull << 33)
/* bytes entered while all buckets are swept once: half the range of a slot's position */
#define SWEEP_BYTES (1ull << 34)

/* A bucket of the hash table of span ids; it is one cache line. Slots are filled in circular
 * order, so that the next slot is the oldest one, whose record has most likely been evicted. The
 * tags are adjacent, so that a few vector comparisons find the slots that may match. If a bucket
 * is full, its neighbour is used: the next cache line or the previous one.
 *
 * A slot stores the low 32 bits of a record's position, in units of 8 bytes. At the highest load
 * these wrap around within minutes. Buckets are therefore swept, one at a time, to clear slots
 * whose records were evicted before their positions can be mistaken for new ones. */
struct bucket {
    uint16_t tags[WAYS];      /* for each slot, 16 bits of the hash of its record's span id */
    uint32_t positions[WAYS]; /* for each slot, its record's position, in units of 8 bytes */
    union {
        struct {
            /* position of this bucket's last record in the neighbour, in units of 128 bytes */
            uint32_t spilled : 28;
            uint32_t next : 4; /* the slot to fill next */
        };
        /* `spilled` and `next` at once; `spilled` is in the low bits on every supported platform */
        uint32_t word;
    };
};
_Static_assert(sizeof(struct bucket) == 64, "a bucket is a cache line");

/* A record in the ring, 8-byte aligned. The name, the service and the attributes of the span
 * follow it, and a struct location if `located` is set. */
struct record {
    struct br_span_head head;
    uint32_t thread, thread_name; /* hashes of thread.id and thread.name; 0: unknown */
    uint32_t totals;              /* index of its totals + 1; 0: none */
    /* arrival of the span, in tenths of a second of the monotonic clock */
    uint32_t seen;
    /* The bit fields are written and read as two whole words. */
    union {
        struct {
            uint64_t previous : 48; /* the previous record of the family; see related.c */
            /* size of the record with all that follows, in units of 8 bytes */
            uint64_t size8 : 16;
            uint64_t attributes_len : 16;           /* in bytes */
            uint64_t name_len : 8, service_len : 8; /* in bytes */
            uint64_t kind : 8, status : 8;          /* as numbers of OTLP */
            /* pending: the span has not arrived; start_ns is the time at which the record was
             * entered, in the units of `seen` */
            uint64_t pending : 1;
            uint64_t has_trace : 1; /* the trace id is known */
            uint64_t dead : 1;      /* a later record replaced this record */
            uint64_t located : 1;   /* a struct location is at the end of the record */
            /* deferred timestamps: a struct join_deferred follows, then times and values */
            uint64_t deferred : 1;
            /* deferred timestamps that were retained; start_ns is the arrival of the thread's
             * last sample */
            uint64_t retained : 1;
            /* the ancestors of the span are already noted as incomplete */
            uint64_t ancestors_marked : 1;
            uint64_t spare : 9;
        };
        /* both words; the first fields are in the low bits on every supported platform */
        uint64_t words[2];
    };
};
_Static_assert(sizeof(struct record) == 80, "a record's head is ten words");
_Static_assert(sizeof(struct record) + sizeof(struct join_deferred) == 160, "as in the README");

/* Where a span ran, as hashes (struct join_identity). It is at the end of the records of spans that
 * can be found by thread. */
struct location {
    uint32_t process, service, runtime, places[JOIN_PLACES], spare;
    /* the previous record of the thread's chain, by thread id and by thread name */
    uint64_t previous, previous_by_name;
};

/* A service that was profiled or has spans. `key` is its hash, 0 in a free slot. The low half of
 * `seen` is the time at which it was last seen, in seconds. The high half is the interval before
 * that (for profiles) or the time at which it was first seen (for spans). */
struct service {
    _Atomic uint64_t key, seen;
};

/* The latest deferred timestamp that was evicted before its spans arrived, for the span or
 * thread with the hash `key`. */
struct evicted {
    _Atomic uint64_t key, until_ns;
};

/* A ring of records with the hash table of its span ids. The hash of a span id selects the
 * shard. */
struct shard {
    pthread_mutex_t lock; /* guards the shard in a table that several threads share */
    struct bucket *buckets;
    uint64_t n_buckets; /* an even number, because each bucket has a neighbour */
    uint8_t *ring;
    uint64_t ring_size; /* in bytes */
    /* positions after the newest record and of the oldest one: byte counts that only grow */
    uint64_t head, tail;
    uint64_t head_at, tail_at;      /* offsets of head and tail in the ring, in bytes */
    uint64_t room;                  /* free bytes after the head that are contiguous */
    uint32_t group;                 /* maximum number of spans entered at a time, at least 1 */
    uint64_t sweep_at;              /* the head at which the next bucket is swept */
    uint64_t swept;                 /* number of buckets swept since the table was created */
    uint8_t *totals;                /* n_totals elements of the table's totals_size bytes */
    uint32_t n_totals, used_totals; /* elements from used_totals on have never been used */
    /* index + 1 of the first free element; linked through types[0].waiting */
    uint32_t free_totals;
    uint64_t n_spans, n_pending; /* numbers of spans and of pending records in the ring */
    uint64_t retained;           /* bytes of retained records in the ring */
    uint64_t paged;              /* bytes of the ring that have pages or soon will */
    bool has_bucket_pages;       /* the pages of `buckets` are made (join_table_pages_make) */
} __attribute__((aligned(64)));

struct join_table {
    struct shard shards[SHARDS];
    size_t max_bytes;   /* bytes of the rings, buckets, totals and indexes together */
    uint32_t window;    /* length of the window, in tenths of a second */
    uint64_t secret[2]; /* key of all hashes, so that no sender can choose colliding ids */
    void *memory;       /* one mapping that contains the rings, buckets, totals and indexes */
    size_t memory_len;  /* length of the mapping, in bytes */
    unsigned n_top;     /* number of function counters after the totals of each span */
    size_t totals_size; /* bytes of a struct join_totals and its function counters */
    /* SHARDS_BITS, or 0 if one thread uses the table and nothing is locked */
    unsigned shard_bits;
    /* place of the newest record of each family, by hash of the family */
    _Atomic uint64_t *families;
    uint64_t families_mask; /* number of entries of `families` - 1; the number is a power of 2 */
    /* The newest record of each thread, level and slot (related.c): THREADS_PER_FAMILY *
     * (families_mask + 1) entries by thread id, and as many by thread name. NULL: spans are not
     * found by thread. */
    _Atomic uint64_t *threads;
    _Atomic uint32_t levels; /* bit set of the levels that have had spans */
    /* The latest end of evicted spans, families_mask + 1 entries each: by family, for spans
     * evicted within the window; by thread, for all spans; by thread, for spans evicted within
     * the window. The last two are NULL if spans are not found by thread. */
    _Atomic uint64_t *family_ends, *ends, *early_ends;
    _Atomic bool family_ends_used; /* family_ends has been read at least once */
    /* latest end of all spans evicted within the window before family_ends was first read */
    _Atomic uint64_t end_before_use;
    /* the newest deferred record of each span or thread, by hash */
    _Atomic uint64_t *deferred;
    /* time of the last call of join_table_defer, in tenths of a second; 0: never */
    _Atomic uint32_t deferred_at;
    /* the pages from `families` on are made; written only by the holder of is_paging */
    bool has_family_pages;
    /* `is_paging`: a thread is making pages; `all_paged`: all rings have pages */
    _Atomic bool is_paging, all_paged;
    pthread_mutex_t names_lock; /* guards the fields from here to `series` */
    char *types[JOIN_TYPES];    /* names of the profile types, by number; zero-terminated */
    uint8_t type_lens[JOIN_TYPES];
    unsigned n_types;
    struct br_map *values[KEYS_MAX]; /* distinct values, by key number (join_table_value) */
    struct br_map *functions;        /* function name -> number */
    struct br_map *series;           /* distinct series (join_table_series) */
    /* hash tables of the services that were profiled and of those that have spans */
    struct service profiled[SERVICE_SLOTS], with_spans[SERVICE_SLOTS];
    struct join_progress progress;
    _Atomic uint64_t lost[JOIN_LOST_MAX]; /* hashes of spans that have lost samples */
    /* hashes of spans whose children with samples were evicted */
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

/* Returns the hash of an integer, never 0. It is always combined with other hashes, so it need
 * not be well mixed. */
static inline uint32_t join_table_hash_number(const struct join_table *table, uint64_t value)
{
    return (uint32_t)((value ^ table->secret[0]) * 0x9e3779b97f4a7c15u >> 32) | 1;
}

/* Returns join_table_hash_value of `any`, or 0 if `any` is NULL. Handles the common case, a
 * small integer, inline. */
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

/* Returns the tenths of a second from `seen` to `now`. Workers read the clock once per loop
 * iteration, so `seen` may be slightly later than another worker's `now`; the result is then 0. */
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

/* Locks the shard, unless one thread uses the table: locking would wait for earlier writes to
 * complete. */
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
 * grow without bound, but chains store only 48 bits of them. Returns 0 if `low` is 0, which
 * means "no record". */
static inline uint64_t join_shard_whole(const struct shard *shard, uint64_t low, unsigned bits)
{
    return low ? shard->head - ((shard->head / 8 - low) & ((1ull << bits) - 1)) * 8 : 0;
}

/* Returns the record at a position. It computes the offset from the distance to the head, which
 * is cheaper than a division. */
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

/* Returns the span of a record; its pointers refer to the record. */
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

/* --- Totals: under the shard's lock ----------------------------------------------------------- */

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

/* Returns the totals of the record, creating them at `now` if it has none. Returns NULL if all
 * totals of the shard are in use. */
struct join_totals *join_record_totals(const struct join_table *table, struct shard *shard,
                                       struct record *record, uint32_t now);

/* Removes a deferred sample from the sums of deferred samples. */
void join_totals_subtract_deferred(struct join_totals *totals, const struct join_sample *sample);

/* Returns the record's totals to the shard's free list. */
void join_record_free_totals(const struct join_table *table, struct shard *shard,
                             struct record *record);

/* Adds the samples that waited for the record's span to `by_type`, and resets their number. */
void join_totals_tally(uint64_t *by_type, struct join_totals *totals, struct join_tally *out);

/* --- Names: names.c --------------------------------------------------------------------------- */

void join_names_init(struct join_table *table);
void join_names_release(struct join_table *table);

/* --- Losses: losses.c ------------------------------------------------------------------------- */

/* Notes a span in `noted` (table->lost or table->lost_below), which stores the hashes of the
 * latest spans. */
void join_losses_note_span(const struct join_table *table, _Atomic uint64_t *noted,
                           uint64_t span_id);

/* Notes that the inclusive sums of a record's ancestors are incomplete, because the record is
 * evicted and its totals can no longer be added to them. */
void join_losses_mark_ancestors(struct join_table *table, const struct shard *shard,
                                struct record *record, uint32_t now);

/* Notes that timestamps up to `until_ns` were evicted for the span or thread with this hash. */
void join_losses_note_evicted(struct join_table *table, uint64_t hash, uint64_t until_ns);

/* --- Timestamps: timestamps.c ----------------------------------------------------------------- */

/* Handles the eviction of deferred timestamps that were not assigned. Timestamps of a span are
 * added to the totals of the span that the sample names. If spans in which the timestamps were
 * taken may still arrive, notes that the totals of those spans are incomplete. */
void join_timestamps_evict(struct join_table *table, struct shard *shard,
                           const struct record *record, uint32_t now);

/* Moves the deferred timestamps at the tail to the head of the ring if they are a thread's and must
 * be retained. They must if samples of the thread keep arriving, because one of its spans may still
 * be open. Assigned timestamps are dropped, and so are the oldest ones if there is little room.
 * Returns false if nothing is retained; the record is then still at the tail. Subtracts the work,
 * counted in records, from `*remaining`. */
bool join_timestamps_retain(struct join_table *table, struct shard *shard, uint32_t now,
                            uint32_t *remaining, struct join_tally *out);

/* --- Families --------------------------------------------------------------------------------- */

/* bits of a place: a record's position in units of 8 bytes, with the number of its shard */
#define PLACE_MASK 0xffffffffffffu
#define SERVICE_MASK PLACE_MASK /* bits of a service's hash that distinguish families */

/* Returns the hash of a family. `service` must be within SERVICE_MASK. */
static inline uint64_t join_table_family_hash(const struct join_table *table,
                                              const uint8_t *trace_id, uint64_t service)
{
    return join_table_mix(table, br_load64(trace_id) ^
                                     join_table_mix(table, br_load64(trace_id + 8) ^ service));
}

/* entries of join_table.threads by thread id, per entry of join_table.families */
#define THREADS_PER_FAMILY 2u

/* Makes a record with a location the newest of its thread, level and slot. */
void join_related_enter(struct join_table *table, const struct shard *shard, struct record *record,
                        uint64_t position);

/* Notes that a span's record is evicted; `early` if within the window. It must be called if the
 * eviction is early or the record has a location. */
void join_related_evict(struct join_table *table, const struct record *record, bool early);

/* Makes the record at `position` the newest of the chain that begins at `*newest` and returns
 * the place of the previous newest record. Called under the shard's lock. `shared`: the table
 * has several shards. */
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
