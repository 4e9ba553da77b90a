/* SPDX-License-Identifier: Apache-2.0 */
/* Spans, and the samples that were taken in them. */
#include "processors/join/table.h"

#include <sys/mman.h>

#include "base/mem.h"
#include "base/str.h"
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

static void forward(const struct shard *s, uint64_t *position, uint64_t *in_ring, uint32_t size)
{
    *position += size;
    *in_ring += size;
    if (*in_ring == s->ring_size)
        *in_ring = 0;
}

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

/* Notes that a record leaves, whose place is wanted. */
static void leave(struct join_table *t, struct shard *s, struct record *r, uint32_t now,
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

/* Tells who wants to know that the span takes over `figures`. */
static void adopted(const struct join_entry *e, const struct join_figures *figures,
                    struct join_tally *out)
{
    const struct join_span span = {.trace_id = e->span->trace_id,
                                   .span_id = e->span->span_id,
                                   .parent_id = e->span->parent_id,
                                   .start_ns = e->span->start_ns,
                                   .end_ns = e->span->end_ns,
                                   .thread = e->extra ? e->extra->thread : 0,
                                   .thread_name = e->extra ? e->extra->thread_name : 0,
                                   .kind = e->span->kind,
                                   .status = e->span->status,
                                   .name = e->span->name,
                                   .name_len = name_len_of(e->span),
                                   .service = e->origin->service,
                                   .service_len = e->origin->service_len,
                                   .attributes = e->extra ? e->extra->attributes : NULL,
                                   .attributes_len = e->extra ? e->extra->attributes_len : 0};
    if (out->on_adopted)
        out->on_adopted(out->arg, &span, figures);
}

/* Takes the figures of a span's earlier record: of samples that came first, or of the same span
 * that is sent again. */
static uint32_t take_over(struct join_table *t, struct shard *s, struct record *old,
                          const struct join_entry *e, uint32_t now, struct join_tally *out)
{
    uint32_t figures = old->figures;
    if (old->pending && expired(t, old, now)) {
        leave(t, s, old, now, out);
        return 0;
    }
    if (old->pending) {
        tally_figures(out->late, figures_at(t, s, figures), out);
        adopted(e, figures_at(t, s, figures), out);
        out->adopted++;
        s->n_pending--;
    } else {
        s->n_spans--;
    }
    old->figures = 0;
    old->dead = true;
    return figures;
}

/* Puts the span that is entered at `position` in the place of an earlier record of it, whose
 * figures it takes; false when there is none. */
__attribute__((noinline)) static bool replace(struct join_table *t, struct shard *s,
                                              struct home home, const struct join_entry *e,
                                              uint64_t position, uint32_t now,
                                              uint32_t *ret_figures, struct join_tally *out)
{
    struct place place = join_slots_find(s, home, br_load64(e->span->span_id), e->span->trace_id);
    struct record *old = record_at(s, &place);
    if (!old)
        return false;
    *ret_figures = take_over(t, s, old, e, now, out);
    set_slot(place.bucket, (unsigned)place.slot, home.tag, position);
    if (place.bucket != home.bucket)
        set_spilled(home.bucket, position);
    return true;
}

static bool is_located(const struct join_table *t, const struct join_entry *e)
{
    return t->threads && e->span->trace_id && e->extra && e->extra->thread && e->origin->where &&
           e->origin->where->v[JOIN_PROCESS];
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
    uint32_t size, figures;
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
    r->span_id = br_load64(span->span_id);
    if (span->trace_id)
        memcpy(r->trace_id, span->trace_id, 16);
    else
        memset(r->trace_id, 0, 16);
    r->parent_id = span->parent_id ? br_load64(span->parent_id) : 0;
    r->start_ns = span->start_ns;
    r->end_ns = span->end_ns;
    r->thread = extra->thread;
    r->thread_name = extra->thread_name;
    r->figures = shape->figures;
    r->seen = seen;
    memset(r->before, 0, sizeof r->before);
    r->size8 = (uint16_t)(shape->size / 8);
    r->attributes_len = (uint16_t)extra->attributes_len;
    r->name_len = shape->name_len;
    r->service_len = (uint8_t)origin->service_len;
    r->kind = span->kind;
    r->status = span->status;
    r->pending = r->dead = false;
    r->has_trace = span->trace_id != NULL;
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

/* A span to be entered, looked up. */
struct coming {
    struct home home;
    uint64_t shard, family; /* a number, a hash */
};

/* Links the record with those of its trace and service, and of its thread. */
static inline void link_record(struct join_table *t, struct shard *s, const struct join_entry *e,
                               uint64_t family, struct record *r, uint64_t position)
{
    uint32_t shard = (uint32_t)(s - t->shards);
    if (e->origin->service_hash && e->span->trace_id)
        join_chain_enter(t, &t->families[family & t->families_mask], shard, r->before, position);
    if (!r->located)
        return;
    struct whereabouts *a = whereabouts_of(r);
    uint64_t hash = thread_hash(t, e->extra->thread, a->process);
    join_chain_enter(t, &t->threads[hash & t->families_mask], shard, a->before, position);
}

/* Enters a span, and returns its record, which ends at the head. */
__attribute__((always_inline)) static inline struct record *
enter(struct join_table *t, struct shard *s, struct home home, const struct join_entry *e,
      uint32_t now, struct join_tally *out)
{
    struct shape shape = {.name_len = (uint8_t)name_len_of(e->span), .located = is_located(t, e)};
    shape.size = record_size(shape.name_len + e->origin->service_len +
                             (e->extra ? e->extra->attributes_len : 0)) +
                 (shape.located ? (uint32_t)sizeof(struct whereabouts) : 0);
    struct record *r = reserve(t, s, shape.size, now, out);
    uint64_t position = s->head - shape.size;
    if (is_new(s, home) || !replace(t, s, home, e, position, now, &shape.figures, out)) {
        struct place place = spare(s, home);
        if (live(s, place.bucket, (unsigned)place.slot))
            leave(t, s, record_at(s, &place), now, out);
        fill(home, &place, position);
    }
    write_record(r, e, &shape, now);
    s->n_spans++;
    return r;
}

#define AHEAD 256u
#define WARM_BYTES 112u /* about what a record takes */
#define WARM_AT_ONCE 16u

/* Brings on the way what the next records overwrite. In a full ring that is what leaves for them.
 */
static void warm(const struct shard *s, uint64_t bytes)
{
    const uint8_t *head = s->ring + s->head_at;
    uint64_t most = s->ring_size - s->head_at;
    for (uint64_t i = 0; i < bytes && i < most; i += 64)
        __builtin_prefetch(head + i, 1);
}

/* The hash of a span's family; that of the one before, which is most likely of the same trace. */
static inline uint64_t family_after(const struct join_table *t, const struct join_entry *e,
                                    uint64_t before)
{
    const struct join_entry *last = e - 1;
    const uint8_t *a = e->span->trace_id, *b = last->span->trace_id;
    bool same = b && br_load64(a) == br_load64(b) && br_load64(a + 8) == br_load64(b + 8) &&
                e->origin == last->origin;
    return same ? before : family_hash(t, a, e->origin->service_hash);
}

/* Hashes an entry, and brings on the way the cache lines that it will touch. `before`: of the one
 * before it, or NULL. */
static inline void look_up(struct join_table *t, const struct join_entry *e,
                           const struct coming *before, struct coming *ret)
{
    const struct br_span *span = e->span;
    uint64_t hash = mix(t, br_load64(span->span_id));
    ret->shard = hash & (n_shards(t) - 1);
    ret->home = home_of(&t->shards[ret->shard], hash);
    __builtin_prefetch(ret->home.bucket, 1);
    if (!span->trace_id)
        return;
    ret->family = before ? family_after(t, e, before->family)
                         : family_hash(t, span->trace_id, e->origin->service_hash);
    __builtin_prefetch(&t->families[ret->family & t->families_mask], 1);
}

/* The entries that `order` names, all of one shard. They are linked when all are written: an
 * exchange waits for everything written before it, and so only the first one has to. */
static void enter_in(struct join_table *t, struct shard *s, const struct join_entry *entries,
                     const struct coming *coming, const uint16_t *order, unsigned n, uint32_t now,
                     struct join_tally *out)
{
    uint64_t positions[AHEAD];
    lock(t, s);
    warm(s, n * WARM_BYTES);
    for (unsigned i = 0; i < n; i++) {
        const struct record *r = enter(t, s, coming[order[i]].home, &entries[order[i]], now, out);
        positions[i] = s->head - size_of(r);
    }
    for (unsigned i = 0; i < n; i++)
        if (positions[i] >= s->tail) /* those behind it have not driven it out already */
            link_record(t, s, &entries[order[i]], coming[order[i]].family, at(s, positions[i]),
                        positions[i]);
    unlock(t, s);
}

/* Up to AHEAD entries, sorted by shard, so that each lock is taken once. */
static void enter_sorted(struct join_table *t, const struct join_entry *entries, unsigned n,
                         uint32_t now, struct join_tally *out)
{
    struct coming coming[AHEAD];
    uint16_t order[AHEAD], first[SHARDS + 1] = {0}, next[SHARDS];
    for (unsigned i = 0; i < n; i++) {
        look_up(t, &entries[i], i ? &coming[i - 1] : NULL, &coming[i]);
        first[coming[i].shard + 1]++;
    }
    for (unsigned k = 1; k <= SHARDS; k++)
        first[k] = (uint16_t)(first[k] + first[k - 1]);
    memcpy(next, first, sizeof next);
    for (unsigned i = 0; i < n; i++)
        order[next[coming[i].shard]++] = (uint16_t)i;
    for (unsigned k = 0; k < SHARDS; k++) {
        if (first[k] < first[k + 1])
            enter_in(t, &t->shards[k], entries, coming, order + first[k], first[k + 1] - first[k],
                     now, out);
    }
}

#define LOOK_AHEAD 16u /* entries, as long as a line takes to come from memory */

/* As they come, by one thread. */
static void enter_in_order(struct join_table *t, const struct join_entry *entries, size_t n,
                           uint32_t now, struct join_tally *out)
{
    struct shard *s = &t->shards[0];
    struct coming coming[LOOK_AHEAD], *before = NULL;
    for (size_t i = 0; i < n + LOOK_AHEAD; i++) {
        struct coming *c = &coming[i % LOOK_AHEAD];
        if (i % WARM_AT_ONCE == 0)
            warm(s, WARM_AT_ONCE * WARM_BYTES);
        if (i >= LOOK_AHEAD) {
            const struct join_entry *e = &entries[i - LOOK_AHEAD];
            struct record *r = enter(t, s, c->home, e, now, out);
            link_record(t, s, e, c->family, r, s->head - size_of(r));
        }
        if (i < n)
            look_up(t, &entries[i], before, c);
        before = c;
    }
}

void join_table_enter(struct join_table *t, const struct join_entry *entries, size_t n,
                      uint64_t now_ms, struct join_tally *out)
{
    if (!t->shard_bits) {
        enter_in_order(t, entries, n, tenths(now_ms), out);
        return;
    }
    for (size_t i = 0; i < n; i += AHEAD)
        enter_sorted(t, entries + i, (unsigned)(n - i < AHEAD ? n - i : AHEAD), tenths(now_ms),
                     out);
}

/* --- Samples -------------------------------------------------------------------------------- */

static void show(struct record *r, join_found_fn *found, void *arg)
{
    const uint8_t *text = (const uint8_t *)(r + 1);
    struct join_span span = {.trace_id = r->has_trace ? r->trace_id : NULL,
                             .span_id = (const uint8_t *)&r->span_id,
                             .parent_id = r->parent_id ? (const uint8_t *)&r->parent_id : NULL,
                             .start_ns = r->start_ns,
                             .end_ns = r->end_ns,
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
    found(arg, &span);
}

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
                         .span_id = span_id,
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
        memcpy(r->trace_id, sample->trace_id, 16);
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
        leave(t, s, r, now, out);
        clear_slot(s, place.bucket, (unsigned)place.slot);
        place.slot = -1;
    } else if (r && !r->pending) {
        result = expired(t, r, now) ? JOIN_TOO_LATE : JOIN_FOUND;
    }
    if (result == JOIN_FOUND)
        show(r, found, arg);
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
    if (f && found)
        show(r, found, arg);
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
    (void)munmap(t->memory, t->memory_len);
}
