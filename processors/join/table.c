/* SPDX-License-Identifier: Apache-2.0 */
/* Spans, and the samples that were taken in them. */
#include "processors/join/table.h"

#include <sys/mman.h>

#include "base/mem.h"
#include "base/str.h"
#include "processors/join/index.h"
#include "processors/join/slots.h"
#include "processors/join/table_internal.h"

/* Sixteenths of the bytes: buckets, so many that with records of 110 bytes two of five slots are
 * used when the ring is full (one bucket in two hundred is full then, one in eight thousand with
 * its neighbour), and figures; records take the rest. */
#define SLOTS_SHARE 2u
#define FIGURES_SHARE 2u
#define FIGURES_AND_TOP_SHARE 5u   /* where each has counters of functions */
#define WINDOW_MAX_MS (1ull << 35) /* a year; the clock of records comes round after six */
#define BYTES_PER_FAMILY 1024u     /* of the table, at least: one head for some five spans */

/* --- The ring ------------------------------------------------------------------------------- */

/* Counts a record that leaves, and gives its figures back. */
static inline void settle(struct join_table *t, struct shard *s, struct record *r, uint32_t now,
                          struct join_tally *out)
{
    if (r->pending) {
        s->n_pending--;
        tally_figures(out->unknown, figures_at(t, s, r->figures), out);
    } else {
        s->n_spans--;
        if (!expired(t, r, now)) {
            out->evicted++;
            out->any = true;
        }
    }
    if (r->figures)
        free_figures(t, s, r);
}

void join_record_leave(struct join_table *t, struct shard *s, struct record *r, uint32_t now,
                       struct join_tally *out)
{
    settle(t, s, r, now, out);
    r->dead = true;
}

/* Takes the oldest record out. */
static inline void evict(struct join_table *t, struct shard *s, uint32_t now,
                         struct join_tally *out)
{
    struct record *r = (struct record *)(void *)(s->ring + s->tail_at);
    if (!r->dead)
        settle(t, s, r, now, out);
    forward(s, &s->tail, &s->tail_at, size_of(r));
}

static void sweep_buckets(struct shard *s)
{
    for (; s->head >= s->sweep_at; s->sweep_at += SWEEP_BYTES / s->n_buckets)
        join_slots_sweep(s, &s->buckets[s->swept++ % s->n_buckets]);
}

/* Room for a record of `size` bytes right behind the head, which is behind it then. The record must
 * be written before the next one is reserved. */
static inline struct record *reserve(struct join_table *t, struct shard *s, uint32_t size,
                                     uint32_t now, struct join_tally *out)
{
    if (s->head >= s->sweep_at)
        sweep_buckets(s);
    uint32_t pad = s->head_at + size > s->ring_size ? (uint32_t)(s->ring_size - s->head_at) : 0;
    while (s->head + pad + size - s->tail > s->ring_size)
        evict(t, s, now, out);
    if (pad) {
        /* A record does not go round the end: what is left there is a dead one, whose header may
         * reach into the slack behind the ring. */
        *at(s, s->head) = (struct record){.size8 = (uint16_t)(pad / 8), .dead = true};
        forward(s, &s->head, &s->head_at, pad);
    }
    struct record *r = (struct record *)(void *)(s->ring + s->head_at);
    forward(s, &s->head, &s->head_at, size);
    return r;
}

#define RECORD_MAX                                                                                 \
    (sizeof(struct record) + 2 * JOIN_VALUE_MAX + JOIN_ATTRIBUTES_BYTES_MAX +                      \
     sizeof(struct whereabouts) + 8)

static uint32_t record_size(size_t texts)
{
    return (uint32_t)((sizeof(struct record) + texts + 7) & ~(size_t)7);
}

/* --- Spans ---------------------------------------------------------------------------------- */

static size_t name_len_of(const struct br_span *span)
{
    size_t len = span->name_len;
    return len <= JOIN_VALUE_MAX ? len : br_utf8_valid(span->name, JOIN_VALUE_MAX);
}

static bool is_located(const struct join_table *t, const struct join_entry *e)
{
    return t->threads && br_span_has_trace(&e->span->head) && e->extra && e->extra->thread &&
           e->origin->where && e->origin->where->v[JOIN_PROCESS];
}

/* As br_put_bytes, in line for what names are long: the middle is copied twice. */
static inline uint8_t *put_text(uint8_t *p, const uint8_t *text, size_t len)
{
    if (len < 4 || len > 64)
        return len ? br_put_bytes(p, text, len) : p;
    if (len >= 32) {
        memcpy(p, text, 32);
        memcpy(p + len - 32, text + len - 32, 32);
    } else if (len >= 16) {
        memcpy(p, text, 16);
        memcpy(p + len - 16, text + len - 16, 16);
    } else if (len >= 8) {
        memcpy(p, text, 8);
        memcpy(p + len - 8, text + len - 8, 8);
    } else {
        memcpy(p, text, 4);
        memcpy(p + len - 4, text + len - 4, 4);
    }
    return p + len;
}

struct shape {
    uint32_t size;
    uint8_t name_len;
    bool located;
};

/* Field by field: a whole struct would be made elsewhere first. */
static inline void write_record(struct record *r, const struct join_entry *e,
                                const struct shape *shape, uint32_t seen)
{
    static const struct join_extra none;
    const struct br_span *span = e->span;
    const struct join_origin *origin = e->origin;
    const struct join_extra *extra = e->extra ? e->extra : &none;
    r->head = span->head;
    r->thread = extra->thread;
    r->thread_name = extra->thread_name;
    r->figures = 0;
    r->seen = seen;
    r->before = origin->service_hash & SERVICE_MASK;
    r->size8 = shape->size / 8 & UINT16_MAX;
    r->attributes_len = extra->attributes_len & UINT16_MAX;
    r->name_len = shape->name_len;
    r->service_len = origin->service_len & UINT8_MAX;
    r->kind = span->kind;
    r->status = span->status;
    r->pending = r->dead = false;
    r->has_trace = br_span_has_trace(&span->head);
    r->located = shape->located;
    r->spare = 0;
    uint8_t *text = (uint8_t *)(r + 1);
    text = put_text(text, span->name, shape->name_len);
    text = put_text(text, origin->service, origin->service_len);
    if (extra->attributes_len)
        (void)br_put_bytes(text, extra->attributes, extra->attributes_len);
    if (shape->located)
        *whereabouts_of(r) = (struct whereabouts){.process = origin->where->v[JOIN_PROCESS],
                                                  .host = origin->where->v[JOIN_HOST],
                                                  .container = origin->where->v[JOIN_CONTAINER],
                                                  .service = origin->where->v[JOIN_SERVICE]};
}

static inline void append(struct join_table *t, struct shard *s, const struct join_entry *e,
                          uint32_t now, struct join_tally *out)
{
    struct shape shape = {.name_len = (uint8_t)name_len_of(e->span), .located = is_located(t, e)};
    shape.size = record_size(shape.name_len + e->origin->service_len +
                             (e->extra ? e->extra->attributes_len : 0)) +
                 (shape.located ? (uint32_t)sizeof(struct whereabouts) : 0);
    write_record(reserve(t, s, shape.size, now, out), e, &shape, now);
    s->n_spans++;
}

#define WARM_BYTES 2048u /* so far behind the head */
#define WARM_SPANS 4u

/* Brings on the way what a record overwrites soon, in a full ring what leaves for it; and what a
 * span to come has. */
static inline void warm(const struct shard *s, const struct join_entry *soon)
{
    const uint8_t *p = s->ring + s->head_at + WARM_BYTES; /* or a little behind the ring */
    __builtin_prefetch(p, 1);
    __builtin_prefetch(p + 64, 1);
    __builtin_prefetch(soon->span);
    __builtin_prefetch(soon->span->name);
}

/* The entries that `order` names, or as they come; of one shard. */
static inline void enter_in(struct join_table *t, struct shard *s, const struct join_entry *entries,
                            const uint16_t *order, unsigned n, uint32_t now, struct join_tally *out)
{
    unsigned group = join_index_group(s);
    struct join_indexing ix;
    join_index_begin(s, &ix);
    for (unsigned i = 0; i < n; i++) {
        unsigned soon = i + WARM_SPANS < n ? i + WARM_SPANS : i;
        warm(s, &entries[order ? order[soon] : soon]);
        append(t, s, &entries[order ? order[i] : i], now, out);
        if ((i + 1) % group == 0)
            join_index_next(t, s, &ix, now, out);
    }
    while (ix.seen < s->head)
        join_index_next(t, s, &ix, now, out);
    join_index_finish(t, s, &ix, now, out);
}

#define AT_ONCE 256u

/* Up to AT_ONCE entries, of all shards, sorted by shard, so that each lock is taken once. */
static void enter_sorted(struct join_table *t, const struct join_entry *entries, unsigned n,
                         uint32_t now, struct join_tally *out)
{
    uint8_t shards[AT_ONCE];
    uint16_t order[AT_ONCE], first[SHARDS + 1] = {0}, next[SHARDS];
    for (unsigned i = 0; i < n; i++) {
        shards[i] = mix(t, entries[i].span->head.span_id) & (SHARDS - 1);
        first[shards[i] + 1]++;
    }
    for (unsigned k = 1; k <= SHARDS; k++)
        first[k] = (uint16_t)(first[k] + first[k - 1]);
    memcpy(next, first, sizeof next);
    for (unsigned i = 0; i < n; i++)
        order[next[shards[i]]++] = (uint16_t)i;
    for (unsigned k = 0; k < SHARDS; k++) {
        struct shard *s = &t->shards[k];
        if (first[k] == first[k + 1])
            continue;
        lock(t, s);
        enter_in(t, s, entries, order + first[k], first[k + 1] - first[k], now, out);
        unlock(t, s);
    }
}

void join_table_enter(struct join_table *t, const struct join_entry *entries, size_t n,
                      uint64_t now_ms, struct join_tally *out)
{
    uint32_t now = tenths(now_ms);
    for (size_t i = 0; i < n; i += AT_ONCE) {
        unsigned some = (unsigned)(n - i < AT_ONCE ? n - i : AT_ONCE);
        if (t->shard_bits)
            enter_sorted(t, entries + i, some, now, out);
        else
            enter_in(t, &t->shards[0], entries + i, NULL, some, now, out);
    }
}

/* --- Samples -------------------------------------------------------------------------------- */

/* Leaves the sample's figures for a span that has not come; false when there is no room. */
static bool make_pending(struct join_table *t, struct shard *s, struct home home,
                         const struct join_sample *sample, uint32_t now, struct join_tally *out)
{
    if (!any_figures(s))
        return false;
    uint64_t span_id = br_load64(sample->span_id);
    uint32_t size = record_size(0);
    struct record *r = reserve(t, s, size, now, out);
    *r = (struct record){.size8 = (uint16_t)(size / 8),
                         .head.span_id = span_id,
                         .seen = now,
                         .pending = true,
                         .has_trace = sample->trace_id != NULL};
    struct place place = spare(s, home);
    if (live(s, place.bucket, (unsigned)place.slot)) {
        /* Spans are worth more than samples without one. */
        r->dead = true;
        return false;
    }
    if (sample->trace_id)
        memcpy(r->head.trace_id, sample->trace_id, 16);
    add_to_figures(t, figures_of(t, s, r, true), sample, !sample->held);
    fill(home, &place, s->head - size);
    s->n_pending++;
    return true;
}

/* Adds a sample's figures to what is known of its span. */
static void remember(struct join_table *t, struct shard *s, struct home home,
                     const struct place *place, const struct join_sample *sample, uint32_t now,
                     struct join_tally *out)
{
    struct record *r = record_at(s, place);
    struct join_figures *f = r ? figures_of(t, s, r, true) : NULL;
    bool waits = !sample->held && (!r || r->pending);
    if (f) {
        add_to_figures(t, f, sample, waits);
    } else if (!r && !place->ambiguous && make_pending(t, s, home, sample, now, out)) {
        return;
    } else if (waits) {
        out->unknown[sample->type]++; /* nobody will remember it */
        out->any = true;
    }
}

enum join_result join_table_sample(struct join_table *t, const struct join_sample *sample, bool add,
                                   uint64_t now_ms, join_found_fn *found, void *arg,
                                   struct join_tally *out)
{
    uint64_t span_id = br_load64(sample->span_id), hash = mix(t, span_id);
    struct shard *s = shard_of(t, hash);
    struct home home = home_of(s, hash);
    enum join_result result = JOIN_UNKNOWN;
    uint32_t now = tenths(now_ms);
    lock(t, s);
    struct place place = join_slots_find(s, home, span_id, sample->trace_id);
    struct record *r = record_at(s, &place);
    if (r && r->pending && expired(t, r, now)) {
        join_record_leave(t, s, r, now, out);
        clear_slot(s, place.bucket, (unsigned)place.slot);
        place.slot = -1;
    } else if (r && !r->pending) {
        result = expired(t, r, now) ? JOIN_TOO_LATE : JOIN_FOUND;
    }
    if (result == JOIN_FOUND) {
        const struct join_span span = span_of(r);
        found(arg, &span);
    }
    if (add && result != JOIN_TOO_LATE)
        remember(t, s, home, &place, sample, now, out);
    unlock(t, s);
    return result;
}

bool join_table_add(struct join_table *t, const struct join_sample *sample, join_found_fn *found,
                    void *arg)
{
    uint64_t span_id = br_load64(sample->span_id), hash = mix(t, span_id);
    struct shard *s = shard_of(t, hash);
    lock(t, s);
    struct place place = join_slots_find(s, home_of(s, hash), span_id, sample->trace_id);
    struct record *r = record_at(s, &place);
    struct join_figures *f = r && !r->pending ? figures_of(t, s, r, true) : NULL;
    if (f)
        add_to_figures(t, f, sample, false);
    if (f && found) {
        const struct join_span span = span_of(r);
        found(arg, &span);
    }
    unlock(t, s);
    return f != NULL;
}

bool join_table_figures(struct join_table *t, const uint8_t *trace_id, const uint8_t *span_id,
                        struct join_figures *ret, struct join_top *ret_top)
{
    uint64_t id = br_load64(span_id), hash = mix(t, id);
    struct shard *s = shard_of(t, hash);
    lock(t, s);
    struct place place = join_slots_find(s, home_of(s, hash), id, trace_id);
    const struct record *r = record_at(s, &place);
    bool any = r && r->figures;
    if (any) {
        struct join_figures *f = figures_at(t, s, r->figures);
        *ret = *f;
        if (ret_top)
            memcpy(ret_top, top_of(f), f->n_top * sizeof *ret_top);
    }
    unlock(t, s);
    return any;
}

void join_table_expire(struct join_table *t, uint64_t now_ms, struct join_tally *out)
{
    /* An item may be held for a window at most, and then looks again; and a timer may come late. */
    uint64_t keep = 2ull * t->window + 10;
    uint32_t now = tenths(now_ms);
    for (unsigned k = 0; k < n_shards(t); k++) {
        struct shard *s = &t->shards[k];
        lock(t, s);
        while (s->tail < s->head) {
            const struct record *r = at(s, s->tail);
            if (!r->dead && age(r->seen, now) <= keep)
                break;
            evict(t, s, now, out);
        }
        unlock(t, s);
    }
}

void join_table_stats(struct join_table *t, uint64_t now_ms, struct join_stats *ret)
{
    uint32_t oldest = 0, now = tenths(now_ms);
    *ret = (struct join_stats){.max_bytes = t->max_bytes};
    for (unsigned k = 0; k < n_shards(t); k++) {
        struct shard *s = &t->shards[k];
        lock(t, s);
        ret->spans += s->n_spans;
        ret->pending += s->n_pending;
        ret->bytes += s->head - s->tail;
        uint64_t p = s->tail;
        while (p < s->head && at(s, p)->dead)
            p += size_of(at(s, p));
        if (p < s->head && age(at(s, p)->seen, now) > oldest)
            oldest = age(at(s, p)->seen, now);
        unlock(t, s);
    }
    ret->oldest_ms = (uint64_t)oldest * 100;
}

/* --- Life ----------------------------------------------------------------------------------- */

static void init_shard(const struct join_table *t, struct shard *s, uint8_t *memory, size_t bytes)
{
    s->n_buckets = bytes / 16 * SLOTS_SHARE / sizeof(struct bucket) & ~(uint64_t)1;
    size_t slots = s->n_buckets * sizeof(struct bucket);
    s->n_figures = (uint32_t)(bytes / 16 * (t->n_top ? FIGURES_AND_TOP_SHARE : FIGURES_SHARE) /
                              t->figures_size);
    size_t figures = (s->n_figures * t->figures_size + 63) & ~(size_t)63;
    pthread_mutex_init(&s->lock, NULL);
    s->buckets = (struct bucket *)(void *)memory;
    s->figures = memory + slots;
    s->ring = memory + slots + figures;
    /* Behind the ring is room for the header of a record that begins in its last eight bytes. */
    s->ring_size = (bytes - slots - figures - sizeof(struct record)) & ~(size_t)63;
    s->head = s->tail = s->head_at = s->tail_at = RESERVED;
    uint64_t fit = s->ring_size / RECORD_MAX / 4; /* more than one, in the smallest table */
    s->ahead = fit < JOIN_INDEX_AHEAD ? (uint32_t)fit : JOIN_INDEX_AHEAD;
    s->sweep_at = RESERVED + SWEEP_BYTES / s->n_buckets;
}

/* A power of two. */
static size_t families_in(size_t max_bytes)
{
    size_t n = 1024;
    while (n * 2 <= max_bytes / BYTES_PER_FAMILY)
        n *= 2;
    return n;
}

/* All of the table counts from the start: what lies in it comes from peers. */
static void count_memory(int64_t bytes)
{
    br_mem_count(bytes);
    br_mem_hold(BR_HOLDER_JOIN, bytes);
}

struct join_table *join_table_new(size_t max_bytes, uint64_t window_ms, unsigned n_top,
                                  bool threads, bool shared)
{
    unsigned bits = shared || max_bytes > RING_MAX ? SHARDS_BITS : 0;
    /* From the system and not from the allocator: pages are made when they are first used, and
     * large ones spare a twentieth of the time. */
    size_t n_families = families_in(max_bytes), families = n_families * sizeof(uint64_t);
    size_t heads = families * (threads ? 2 : 1);
    size_t each = ((max_bytes - heads) >> bits) & ~(size_t)127;
    size_t own = (sizeof(struct join_table) + 127) & ~(size_t)127;
    size_t all = each << bits, len = all + heads + own;
    void *memory =
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    (void)madvise(memory, all + heads, MADV_HUGEPAGE);
    count_memory((int64_t)len);
    uint8_t *behind = (uint8_t *)memory + all;
    struct join_table *t = (void *)(behind + heads);
    t->memory = memory;
    t->memory_len = len;
    t->n_top = n_top <= JOIN_TOP_MAX ? n_top : JOIN_TOP_MAX;
    t->figures_size = sizeof(struct join_figures) + t->n_top * sizeof(struct join_top);
    t->families = (void *)behind;
    t->families_mask = n_families - 1;
    t->threads = threads ? (void *)(behind + families) : NULL;
    t->shard_bits = bits;
    for (unsigned i = 0; i < n_shards(t); i++)
        init_shard(t, &t->shards[i], (uint8_t *)memory + i * each, each);
    br_random_bytes(t->secret, sizeof t->secret);
    t->max_bytes = all + heads;
    t->window = window_ms < WINDOW_MAX_MS ? (uint32_t)(window_ms / 100) : WINDOW_MAX_MS / 100;
    join_names_init(t);
    return t;
}

void join_table_free(struct join_table *t)
{
    if (!t)
        return;
    for (unsigned i = 0; i < n_shards(t); i++)
        pthread_mutex_destroy(&t->shards[i].lock);
    join_names_release(t);
    count_memory(-(int64_t)t->memory_len);
    (void)munmap(t->memory, t->memory_len);
}
