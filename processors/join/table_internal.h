/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the table share: table.c (spans and samples), figures.c (what samples add up
 * to), family.c (spans of one trace and service) and names.c (types, services, values, functions).
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/map.h"
#include "processors/join/table.h"
#include "wire/protobuf.h"

#define SHARDS_BITS 4u /* where threads share the table; one thread has one ring */
#define SHARDS (1u << SHARDS_BITS)
#define WAYS 10u /* slots of a bucket */
#define KEYS_MAX 32u
#define SERVICES 4096u
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
    uint32_t spilled : 28; /* the last record of its own in the neighbour, in units of 128 bytes */
    uint32_t next : 4;     /* slot to fill */
};
_Static_assert(sizeof(struct bucket) == 64, "a bucket is a cache line");

/* In the ring, 8-byte aligned, followed by the texts. */
struct record {
    struct br_span_head head;
    uint32_t thread, thread_name; /* as in join_span */
    uint32_t figures;             /* index + 1; 0: none */
    uint32_t seen;                /* tenths of a second of the monotonic clock */
    /* Words that are written, and read at once, as a whole. */
    uint64_t before : 48; /* where the span before it of its family may be: family.c; until it is
                             indexed what it has of its service's hash: index.c */
    uint64_t size8 : 16;  /* bytes with the texts, in units of 8 */
    uint64_t attributes_len : 16;
    uint64_t name_len : 8, service_len : 8;
    uint64_t kind : 8, status : 8;
    uint64_t pending : 1, has_trace : 1;
    uint64_t dead : 1;    /* a later record took its place */
    uint64_t located : 1; /* whereabouts are at its end */
    uint64_t spare : 12;
};
_Static_assert(sizeof(struct record) == 80, "a record's head is ten words");

struct whereabouts {
    uint32_t process, host, container, service;
    uint64_t before; /* the span before it of its thread, as in record */
};

struct shard {
    pthread_mutex_t lock;
    struct bucket *buckets;
    uint64_t n_buckets;
    uint8_t *ring;
    uint64_t ring_size, head, tail;   /* positions only grow */
    uint64_t head_at, tail_at;        /* where in the ring they are */
    uint32_t ahead;                   /* records that may be on their way there */
    uint64_t sweep_at;                /* the head at which the next bucket is swept */
    uint64_t swept;                   /* buckets, in all */
    uint8_t *figures;                 /* n_figures of the table's figures_size */
    uint32_t n_figures, used_figures; /* those past used_figures were never taken */
    uint32_t free_figures;            /* free list through types[0].waiting; index + 1 */
    uint64_t n_spans, n_pending;
} __attribute__((aligned(64)));

struct join_table {
    struct shard shards[SHARDS];
    size_t max_bytes;
    uint32_t window; /* tenths of a second */
    uint64_t secret[2];
    void *memory;
    size_t memory_len;
    unsigned n_top;             /* counters of functions behind each span's figures */
    size_t figures_size;        /* of figures and counters */
    unsigned shard_bits;        /* of SHARDS_BITS, or 0: one thread does all, nothing is locked */
    _Atomic uint64_t *families; /* where the newest span of each is; see family.c */
    uint64_t families_mask;
    _Atomic uint64_t *threads; /* likewise, of each thread, families_mask + 1; NULL: none */
    pthread_mutex_t names_lock; /* of everything below */
    char *types[JOIN_TYPES];
    uint8_t type_lens[JOIN_TYPES];
    unsigned n_types;
    struct br_map *values[KEYS_MAX];
    struct br_map *functions; /* name -> its number */
    struct br_map *series;
    _Atomic uint64_t services[SERVICES]; /* hash with its low 24 bits replaced by the time seen */
};

static inline uint64_t mix(const struct join_table *t, uint64_t v)
{
    v = (v ^ t->secret[0]) * 0x9e3779b97f4a7c15u;
    v ^= v >> 32;
    v = (v ^ t->secret[1]) * 0xd6e8feb86659fd93u;
    return v ^ v >> 29;
}

static inline uint32_t tenths(uint64_t now_ms)
{
    return (uint32_t)(now_ms / 100);
}

/* Tenths of a second from `seen` until `now`. Workers read the clock once a loop turn, so that what
 * one of them entered may lie in another's future. */
static inline uint32_t age(uint32_t seen, uint32_t now)
{
    int32_t passed = (int32_t)(now - seen);
    return passed > 0 ? (uint32_t)passed : 0;
}

static inline bool expired(const struct join_table *t, const struct record *r, uint32_t now)
{
    return age(r->seen, now) > t->window;
}

static inline unsigned n_shards(const struct join_table *t)
{
    return 1u << t->shard_bits;
}

static inline struct shard *shard_of(struct join_table *t, uint64_t hash)
{
    return &t->shards[hash & (n_shards(t) - 1)];
}

/* Not where one thread does all: a lock waits for what was written before it. */
static inline void lock(const struct join_table *t, struct shard *s)
{
    if (t->shard_bits)
        pthread_mutex_lock(&s->lock);
}

static inline void unlock(const struct join_table *t, struct shard *s)
{
    if (t->shard_bits)
        pthread_mutex_unlock(&s->lock);
}

/* The newest position of which these are the low `bits`, in units of 8 bytes: positions grow for
 * ever, and what is kept of them has six bytes. 0, which means none, stays 0. */
static inline uint64_t whole(const struct shard *s, uint64_t low, unsigned bits)
{
    return low ? s->head - ((s->head / 8 - low) & ((1ull << bits) - 1)) * 8 : 0;
}

/* Position in the ring, by its distance from the head: cheaper than a division. */
static inline struct record *at(const struct shard *s, uint64_t position)
{
    uint64_t back = s->head - position;
    uint64_t offset = s->head_at - back + (back > s->head_at ? s->ring_size : 0);
    return (struct record *)(void *)(s->ring + offset);
}

/* Moves on by a record's size; a record does not go round the ring's end. */
static inline void forward(const struct shard *s, uint64_t *position, uint64_t *in_ring,
                           uint32_t size)
{
    *position += size;
    *in_ring += size;
    if (*in_ring == s->ring_size)
        *in_ring = 0;
}

static inline uint32_t size_of(const struct record *r)
{
    return r->size8 * 8u;
}

/* What is said of a record's span; pointing into the record. */
static inline struct join_span span_of(const struct record *r)
{
    const uint8_t *text = (const uint8_t *)(r + 1);
    return (struct join_span){.trace_id = r->has_trace ? r->head.trace_id : NULL,
                              .span_id = (const uint8_t *)&r->head.span_id,
                              .parent_id =
                                  r->head.parent_id ? (const uint8_t *)&r->head.parent_id : NULL,
                              .start_ns = r->head.start_ns,
                              .end_ns = r->head.end_ns,
                              .thread = r->thread,
                              .thread_name = r->thread_name,
                              .kind = r->kind,
                              .status = r->status,
                              .name = text,
                              .name_len = r->name_len,
                              .service = text + r->name_len,
                              .service_len = r->service_len,
                              .attributes = text + r->name_len + r->service_len,
                              .attributes_len = r->attributes_len};
}

static inline struct whereabouts *whereabouts_of(const struct record *r)
{
    return (struct whereabouts *)(void *)((uint8_t *)(uintptr_t)r + size_of(r) -
                                          sizeof(struct whereabouts));
}

/* Notes that a record leaves, whose place is wanted. Under the shard's lock; table.c. */
void join_record_leave(struct join_table *t, struct shard *s, struct record *r, uint32_t now,
                       struct join_tally *out);

/* --- Figures: under the shard's lock -----------------------------------------------------------
 */

static inline bool any_figures(const struct shard *s)
{
    return s->free_figures || s->used_figures < s->n_figures;
}

static inline struct join_figures *figures_at(const struct join_table *t, const struct shard *s,
                                              uint32_t index)
{
    return (struct join_figures *)(void *)(s->figures + (index - 1) * t->figures_size);
}

/* The counters behind them. */
static inline struct join_top *top_of(struct join_figures *f)
{
    return (struct join_top *)(void *)(f + 1);
}

/* The record's figures, made where there are none and `make`; NULL without, or without room. */
struct join_figures *figures_of(const struct join_table *t, struct shard *s, struct record *r,
                                bool make);
void free_figures(const struct join_table *t, struct shard *s, struct record *r);

/* Counts the samples that waited for the record's span, once. */
void tally_figures(uint64_t *by_type, struct join_figures *f, struct join_tally *out);

/* `waits`: the sample is to be counted when its span comes, or does not. */
void add_to_figures(const struct join_table *t, struct join_figures *f, const struct join_sample *s,
                    bool waits);

/* --- Names: names.c ------------------------------------------------------------------------------
 */

void join_names_init(struct join_table *t);
void join_names_release(struct join_table *t);

/* --- Families: family.c --------------------------------------------------------------------------
 */

#define PLACE_MASK 0xffffffffffffu
#define SERVICE_MASK PLACE_MASK /* what families are told apart by of a service's hash */

/* `service`: within SERVICE_MASK. */
static inline uint64_t family_hash(const struct join_table *t, const uint8_t *trace_id,
                                   uint64_t service)
{
    return mix(t, br_load64(trace_id) ^ mix(t, br_load64(trace_id + 8) ^ service));
}

static inline uint64_t thread_hash(const struct join_table *t, uint32_t thread, uint32_t process)
{
    return mix(t, (uint64_t)thread << 32 | process);
}

/* Makes the record at `position` the newest of those whose newest `*newest` says, and returns the
 * one before it. Under the shard's lock. */
static inline uint64_t join_chain_enter(const struct join_table *t, _Atomic uint64_t *newest,
                                        uint32_t shard, uint64_t position)
{
    uint64_t place = position / 8 << t->shard_bits | shard;
    uint64_t old = atomic_load_explicit(newest, memory_order_relaxed);
    if (t->shard_bits)
        old = atomic_exchange_explicit(newest, place, memory_order_acq_rel);
    else
        atomic_store_explicit(newest, place, memory_order_release);
    return old & PLACE_MASK;
}
