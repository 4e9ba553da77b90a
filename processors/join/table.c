/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/table.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/map.h"
#include "base/mem.h"
#include "wire/protobuf.h"

#define SHARDS 16u
#define WAYS 15u /* slots of a bucket */
/* Sixteenths of the bytes: buckets, so many that with records of 110 bytes four of fifteen slots
 * are used when the ring is full (one record in thirty thousand finds its bucket full then), and
 * figures; records take the rest. */
#define SLOTS_SHARE 3u
#define FIGURES_SHARE 2u
#define KEYS_MAX 32u
#define SERVICES 4096u
#define RESERVED 8u /* position 0 means an empty slot */

/* Two cache lines side by side. Slots are filled one after the other, round and round, so that
 * the next one is the oldest, whose record most likely has left. Tags lie together: four words tell
 * which may match. */
struct bucket {
    uint16_t tags[WAYS];
    uint16_t next;         /* slot to fill */
    uint8_t positions[96]; /* six bytes each, in units of 8 bytes: never comes round */
};
_Static_assert(sizeof(struct bucket) == 128, "a bucket is two cache lines");

/* In the ring, 8-byte aligned, followed by the texts. */
struct record {
    uint32_t size;    /* bytes with the texts, a multiple of 8 */
    uint32_t figures; /* index + 1; 0: none */
    uint64_t span_id;
    uint8_t trace_id[16];
    uint64_t parent_id;
    uint64_t start_ns, end_ns;
    uint32_t seen; /* tenths of a second of the monotonic clock */
    uint16_t name_len, service_len, attributes_len;
    uint8_t kind, status;
    bool pending, has_trace;
    bool dead; /* a later record took its place */
};

struct shard {
    pthread_mutex_t lock;
    struct bucket *buckets;
    uint64_t n_buckets;
    uint8_t *ring;
    uint64_t ring_size, head, tail; /* positions only grow */
    uint64_t head_at;               /* head % ring_size */
    struct join_figures *figures;
    uint32_t n_figures, used_figures; /* those past used_figures were never taken */
    uint32_t free_figures;            /* free list through types[0].waiting; index + 1 */
    uint64_t n_spans, n_pending;
} __attribute__((aligned(64)));

struct join_table {
    struct shard shards[SHARDS];
    size_t max_bytes;
    uint64_t window_ms;
    uint64_t secret[2];
    void *memory;
    size_t memory_len;
    pthread_mutex_t names_lock; /* of everything below */
    char *types[JOIN_TYPES];
    unsigned n_types;
    struct br_map *values[KEYS_MAX];
    _Atomic uint64_t services[SERVICES]; /* hash with its low 24 bits replaced by the time seen */
};

static uint64_t mix(const struct join_table *t, uint64_t v)
{
    v = (v ^ t->secret[0]) * 0x9e3779b97f4a7c15u;
    v ^= v >> 32;
    v = (v ^ t->secret[1]) * 0xd6e8feb86659fd93u;
    return v ^ v >> 29;
}

static uint32_t tenths(uint64_t now_ms)
{
    return (uint32_t)(now_ms / 100);
}

/* Tenths of a second that passed since. Workers read the clock once a loop turn, so that what one
 * of them entered may lie in another's future. */
static uint32_t age(uint32_t seen, uint64_t now_ms)
{
    int32_t passed = (int32_t)(tenths(now_ms) - seen);
    return passed > 0 ? (uint32_t)passed : 0;
}

static bool expired(const struct join_table *t, const struct record *r, uint64_t now_ms)
{
    return age(r->seen, now_ms) > t->window_ms / 100;
}

static struct shard *shard_of(struct join_table *t, uint64_t hash)
{
    return &t->shards[hash & (SHARDS - 1)];
}

static struct bucket *bucket_of(const struct shard *s, uint64_t hash)
{
    return s->buckets + ((hash >> 4 & 0xffffffffu) * s->n_buckets >> 32);
}

/* Position in the ring, by its distance from the head: cheaper than a division. */
static struct record *at(const struct shard *s, uint64_t position)
{
    uint64_t back = s->head - position;
    uint64_t offset = s->head_at - back + (back > s->head_at ? s->ring_size : 0);
    return (struct record *)(void *)(s->ring + offset);
}

static void advance(struct shard *s, uint32_t size)
{
    s->head += size;
    s->head_at += size;
    if (s->head_at == s->ring_size)
        s->head_at = 0;
}

static uint64_t position_in(const struct bucket *b, unsigned slot)
{
    uint64_t v;
    memcpy(&v, b->positions + 6u * slot, sizeof v); /* the last one's spare bytes are the padding */
    return (v & 0xffffffffffffu) * 8;
}

static void set_slot(struct bucket *b, unsigned slot, uint64_t hash, uint64_t position)
{
    position /= 8;
    b->tags[slot] = (uint16_t)(hash >> 48);
    memcpy(b->positions + 6u * slot, &position, 6);
}

/* --- Figures -------------------------------------------------------------------------------- */

static bool any_figures(const struct shard *s)
{
    return s->free_figures || s->used_figures < s->n_figures;
}

static struct join_figures *figures_of(struct shard *s, struct record *r, bool make)
{
    if (r->figures)
        return &s->figures[r->figures - 1];
    if (!make || !any_figures(s))
        return NULL;
    r->figures = s->free_figures ? s->free_figures : ++s->used_figures;
    struct join_figures *f = &s->figures[r->figures - 1];
    if (r->figures == s->free_figures)
        s->free_figures = f->types[0].waiting;
    memset(f, 0, sizeof *f);
    return f;
}

static void free_figures(struct shard *s, struct record *r)
{
    if (!r->figures)
        return;
    s->figures[r->figures - 1].types[0].waiting = s->free_figures;
    s->free_figures = r->figures;
    r->figures = 0;
}

/* Counts the samples that waited for the record's span, once. */
static void tally(uint64_t *by_type, struct join_figures *f, struct join_tally *out)
{
    out->any = true;
    for (unsigned i = 0; i < JOIN_SPAN_TYPES; i++) {
        by_type[f->types[i].type] += f->types[i].waiting;
        f->types[i].waiting = 0;
    }
}

static void add_type(struct join_figures *f, uint16_t type, bool waits)
{
    unsigned i = 0;
    while (i < JOIN_SPAN_TYPES && f->types[i].used && f->types[i].type != type)
        i++;
    if (i == JOIN_SPAN_TYPES) {
        i--;
        type = JOIN_TYPES - 1;
    }
    f->types[i].type = type;
    f->types[i].used = true;
    f->types[i].waiting += waits;
}

static void add_sample(struct join_figures *f, const struct join_sample *s, bool waits)
{
    if (__builtin_add_overflow(f->count[s->measure], s->count, &f->count[s->measure]))
        f->count[s->measure] = UINT32_MAX;
    if (s->measure < JOIN_OTHER &&
        __builtin_add_overflow(f->time_ns[s->measure], s->time_ns, &f->time_ns[s->measure]))
        f->time_ns[s->measure] = UINT64_MAX;
    add_type(f, s->type, waits);
    if (s->profile_id)
        memcpy(f->profile_id, s->profile_id, 16);
}

/* --- The ring ------------------------------------------------------------------------------- */

/* Notes that a record leaves, whose place is wanted. */
static void leave(struct join_table *t, struct shard *s, struct record *r, uint64_t now_ms,
                  struct join_tally *out)
{
    if (r->pending) {
        s->n_pending--;
        tally(out->unknown, &s->figures[r->figures - 1], out);
    } else {
        s->n_spans--;
        if (!expired(t, r, now_ms)) {
            out->evicted++;
            out->any = true;
        }
    }
    free_figures(s, r);
    r->dead = true;
}

/* Takes the oldest record out. */
static void evict(struct join_table *t, struct shard *s, uint64_t now_ms, struct join_tally *out)
{
    struct record *r = at(s, s->tail);
    if (!r->dead)
        leave(t, s, r, now_ms, out);
    s->tail += r->size;
}

/* Room for a record of `size` bytes at the head; its position. The record must be written before
 * the next one is reserved. */
static uint64_t reserve(struct join_table *t, struct shard *s, uint32_t size, uint64_t now_ms,
                        struct join_tally *out)
{
    uint32_t pad = s->head_at + size > s->ring_size ? (uint32_t)(s->ring_size - s->head_at) : 0;
    while (s->head + pad + size - s->tail > s->ring_size)
        evict(t, s, now_ms, out);
    if (pad) {
        /* A record does not go round the end: what is left there is a dead one, whose header may
         * reach into the slack behind the ring. */
        *at(s, s->head) = (struct record){.size = pad, .dead = true};
        advance(s, pad);
    }
    uint64_t position = s->head;
    advance(s, size);
    return position;
}

/* True when the slot's record is in the ring: position 0 is before every tail. */
static bool live(const struct shard *s, const struct bucket *b, unsigned slot)
{
    return position_in(b, slot) >= s->tail;
}

/* --- The slots ------------------------------------------------------------------------------ */

/* Where a span's record is. */
struct place {
    struct bucket *bucket;
    int slot;       /* -1: there is none */
    bool ambiguous; /* there is none because more than one fits */
};

enum match { MATCH_NONE, MATCH_SPAN, MATCH_BOTH };

static enum match match(const struct record *r, uint64_t span_id, const uint8_t *trace_id)
{
    if (r->span_id != span_id)
        return MATCH_NONE;
    if (!trace_id || !r->has_trace)
        return trace_id || r->has_trace ? MATCH_SPAN : MATCH_BOTH;
    return memcmp(r->trace_id, trace_id, 16) == 0 ? MATCH_BOTH : MATCH_NONE;
}

/* A bit for each slot whose tag is `tag`; now and then for one more. */
static uint32_t tagged(const struct bucket *b, uint16_t tag)
{
    const uint64_t ones = 0x0001000100010001u;
    uint32_t hits = 0;
    for (unsigned i = 0; i < 4; i++) {
        uint64_t four;
        memcpy(&four, (const uint8_t *)b + 8 * i, sizeof four);
        four ^= ones * tag;
        uint64_t zero = (four - ones) & ~four & ones << 15; /* the top bits of lanes that are 0 */
        hits |= (uint32_t)((zero >> 15) * 0x1000200040008u >> 48 & 15) << 4 * i;
    }
    return hits & ((1u << WAYS) - 1);
}

/* A span id without a trace id finds the one record with that span id, and the other way round. */
static struct place find(const struct shard *s, uint64_t hash, uint64_t span_id,
                         const uint8_t *trace_id)
{
    struct place place = {.bucket = bucket_of(s, hash), .slot = -1};
    int half = -1;
    for (uint32_t hits = tagged(place.bucket, (uint16_t)(hash >> 48)); hits; hits &= hits - 1) {
        int slot = __builtin_ctz(hits);
        if (!live(s, place.bucket, (unsigned)slot))
            continue;
        enum match m = match(at(s, position_in(place.bucket, (unsigned)slot)), span_id, trace_id);
        if (m == MATCH_BOTH) {
            place.slot = slot;
            return place;
        }
        place.ambiguous = place.ambiguous || (m == MATCH_SPAN && half >= 0);
        if (m == MATCH_SPAN)
            half = slot;
    }
    if (!place.ambiguous)
        place.slot = half;
    return place;
}

static struct record *record_at(const struct shard *s, const struct place *p)
{
    return p->slot < 0 ? NULL : at(s, position_in(p->bucket, (unsigned)p->slot));
}

/* The slot for a new record: the next free one or, in a full bucket, the oldest. */
static unsigned spare(const struct shard *s, const struct bucket *b)
{
    unsigned slot = b->next;
    for (unsigned n = 0; n < WAYS && live(s, b, slot); n++)
        slot = slot + 1 < WAYS ? slot + 1 : 0;
    return slot;
}

static void fill(struct bucket *b, unsigned slot, uint64_t hash, uint64_t position)
{
    b->next = (uint16_t)(slot + 1 < WAYS ? slot + 1 : 0);
    set_slot(b, slot, hash, position);
}

static uint32_t record_size(size_t texts)
{
    return (uint32_t)((sizeof(struct record) + texts + 7) & ~(size_t)7);
}

/* --- Spans ---------------------------------------------------------------------------------- */

/* Takes the figures of a span's earlier record: of samples that came first, or of the same span
 * that is sent again. */
static uint32_t take_over(struct join_table *t, struct shard *s, struct record *old,
                          uint64_t now_ms, struct join_tally *out)
{
    uint32_t figures = old->figures;
    if (old->pending && expired(t, old, now_ms)) {
        leave(t, s, old, now_ms, out);
        return 0;
    }
    if (old->pending) {
        tally(out->late, &s->figures[figures - 1], out);
        out->adopted++;
        s->n_pending--;
    } else {
        s->n_spans--;
    }
    old->figures = 0;
    old->dead = true;
    return figures;
}

static void write_record(struct record *r, const struct join_span *span, uint32_t size,
                         uint32_t figures, uint64_t now_ms)
{
    *r = (struct record){.size = size,
                         .figures = figures,
                         .span_id = br_load64(span->span_id),
                         .parent_id = span->parent_id ? br_load64(span->parent_id) : 0,
                         .start_ns = span->start_ns,
                         .end_ns = span->end_ns,
                         .seen = tenths(now_ms),
                         .name_len = (uint16_t)span->name_len,
                         .service_len = (uint16_t)span->service_len,
                         .attributes_len = (uint16_t)span->attributes_len,
                         .kind = span->kind,
                         .status = span->status,
                         .has_trace = span->trace_id != NULL};
    if (span->trace_id)
        memcpy(r->trace_id, span->trace_id, 16);
    uint8_t *text = (uint8_t *)(r + 1);
    text = br_put_bytes(text, span->name, span->name_len);
    text = br_put_bytes(text, span->service, span->service_len);
    (void)br_put_bytes(text, span->attributes, span->attributes_len);
}

static void enter(struct join_table *t, struct shard *s, uint64_t hash,
                  const struct join_span *span, uint64_t now_ms, struct join_tally *out)
{
    uint32_t size = record_size(span->name_len + span->service_len + span->attributes_len);
    uint32_t figures = 0;
    uint64_t position = reserve(t, s, size, now_ms, out);
    struct place place = find(s, hash, br_load64(span->span_id), span->trace_id);
    struct record *old = record_at(s, &place);
    if (old) {
        figures = take_over(t, s, old, now_ms, out);
        set_slot(place.bucket, (unsigned)place.slot, hash, position);
    } else {
        unsigned slot = spare(s, place.bucket);
        if (live(s, place.bucket, slot))
            leave(t, s, at(s, position_in(place.bucket, slot)), now_ms, out);
        fill(place.bucket, slot, hash, position);
    }
    write_record(at(s, position), span, size, figures, now_ms);
    s->n_spans++;
}

#define AHEAD 256u
#define WARM_BYTES 128u /* about what a record takes */

/* Brings on the way what the next records overwrite, and what leaves for them. */
static void warm(const struct shard *s, uint64_t bytes)
{
    const uint8_t *head = s->ring + s->head_at, *tail = (const uint8_t *)at(s, s->tail);
    for (uint64_t i = 0; i < bytes; i += 64) {
        if (s->head_at + i < s->ring_size)
            __builtin_prefetch(head + i, 1);
        if ((uint64_t)(tail - s->ring) + i < s->ring_size)
            __builtin_prefetch(tail + i, 1);
    }
}

/* Enters up to AHEAD spans: sorted by shard, so that each lock is taken once, with the cache lines
 * that they will touch on their way meanwhile. */
static void enter_some(struct join_table *t, const struct join_span *spans, unsigned n,
                       uint64_t now_ms, struct join_tally *out)
{
    uint64_t hashes[AHEAD];
    uint16_t order[AHEAD], first[SHARDS + 1] = {0};
    for (unsigned i = 0; i < n; i++) {
        hashes[i] = mix(t, br_load64(spans[i].span_id));
        const struct shard *s = shard_of(t, hashes[i]);
        const struct bucket *b = bucket_of(s, hashes[i]);
        __builtin_prefetch(b, 1);
        __builtin_prefetch((const uint8_t *)b + 64, 1);
        first[(hashes[i] & (SHARDS - 1)) + 1]++;
    }
    for (unsigned k = 1; k <= SHARDS; k++)
        first[k] = (uint16_t)(first[k] + first[k - 1]);
    uint16_t next[SHARDS];
    memcpy(next, first, sizeof next);
    for (unsigned i = 0; i < n; i++)
        order[next[hashes[i] & (SHARDS - 1)]++] = (uint16_t)i;
    for (unsigned k = 0; k < SHARDS; k++) {
        if (first[k] == first[k + 1])
            continue;
        struct shard *s = &t->shards[k];
        pthread_mutex_lock(&s->lock);
        warm(s, (first[k + 1] - first[k]) * WARM_BYTES);
        for (unsigned i = first[k]; i < first[k + 1]; i++)
            enter(t, s, hashes[order[i]], &spans[order[i]], now_ms, out);
        pthread_mutex_unlock(&s->lock);
    }
}

void join_table_enter(struct join_table *t, const struct join_span *spans, size_t n,
                      uint64_t now_ms, struct join_tally *out)
{
    for (size_t i = 0; i < n; i += AHEAD)
        enter_some(t, spans + i, n - i < AHEAD ? (unsigned)(n - i) : AHEAD, now_ms, out);
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
static bool make_pending(struct join_table *t, struct shard *s, uint64_t hash,
                         const struct join_sample *sample, uint64_t now_ms, struct join_tally *out)
{
    if (!any_figures(s))
        return false;
    uint64_t span_id = br_load64(sample->span_id);
    uint32_t size = record_size(0);
    struct record *r = at(s, reserve(t, s, size, now_ms, out));
    *r = (struct record){.size = size,
                         .span_id = span_id,
                         .seen = tenths(now_ms),
                         .pending = true,
                         .has_trace = sample->trace_id != NULL};
    struct bucket *b = bucket_of(s, hash);
    unsigned slot = spare(s, b);
    if (live(s, b, slot)) {
        /* Spans are worth more than samples without one. */
        r->dead = true;
        return false;
    }
    if (sample->trace_id)
        memcpy(r->trace_id, sample->trace_id, 16);
    add_sample(figures_of(s, r, true), sample, !sample->held);
    fill(b, slot, hash, s->head - size);
    s->n_pending++;
    return true;
}

/* Adds a sample's figures to what is known of its span. */
static void remember(struct join_table *t, struct shard *s, uint64_t hash,
                     const struct place *place, const struct join_sample *sample, uint64_t now_ms,
                     struct join_tally *out)
{
    struct record *r = record_at(s, place);
    struct join_figures *f = r ? figures_of(s, r, true) : NULL;
    bool waits = !sample->held && (!r || r->pending);
    if (f) {
        add_sample(f, sample, waits);
    } else if (!r && !place->ambiguous && make_pending(t, s, hash, sample, now_ms, out)) {
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
    enum join_result result = JOIN_UNKNOWN;
    pthread_mutex_lock(&s->lock);
    struct place place = find(s, hash, span_id, sample->trace_id);
    struct record *r = record_at(s, &place);
    if (r && r->pending && expired(t, r, now_ms)) {
        leave(t, s, r, now_ms, out);
        set_slot(place.bucket, (unsigned)place.slot, 0, 0);
        place.slot = -1;
    } else if (r && !r->pending) {
        result = expired(t, r, now_ms) ? JOIN_TOO_LATE : JOIN_FOUND;
    }
    if (result == JOIN_FOUND)
        show(r, found, arg);
    if (add && result != JOIN_TOO_LATE)
        remember(t, s, hash, &place, sample, now_ms, out);
    pthread_mutex_unlock(&s->lock);
    return result;
}

bool join_table_figures(struct join_table *t, const uint8_t *trace_id, const uint8_t *span_id,
                        struct join_figures *ret)
{
    uint64_t id = br_load64(span_id), hash = mix(t, id);
    struct shard *s = shard_of(t, hash);
    pthread_mutex_lock(&s->lock);
    struct place place = find(s, hash, id, trace_id);
    const struct record *r = record_at(s, &place);
    bool any = r && r->figures;
    if (any)
        *ret = s->figures[r->figures - 1];
    pthread_mutex_unlock(&s->lock);
    return any;
}

void join_table_expire(struct join_table *t, uint64_t now_ms, struct join_tally *out)
{
    /* An item may be held for a window at most, and then looks again; and a timer may come late. */
    uint64_t keep = 2 * (t->window_ms / 100) + 10;
    for (unsigned k = 0; k < SHARDS; k++) {
        struct shard *s = &t->shards[k];
        pthread_mutex_lock(&s->lock);
        while (s->tail < s->head) {
            const struct record *r = at(s, s->tail);
            if (!r->dead && age(r->seen, now_ms) <= keep)
                break;
            evict(t, s, now_ms, out);
        }
        pthread_mutex_unlock(&s->lock);
    }
}

/* --- Names, services, values ----------------------------------------------------------------- */

uint16_t join_table_type(struct join_table *t, const char *name, size_t len)
{
    len = strnlen(name, len);
    pthread_mutex_lock(&t->names_lock);
    unsigned i = 0;
    while (i < t->n_types && (strlen(t->types[i]) != len || memcmp(t->types[i], name, len) != 0))
        i++;
    if (i == t->n_types && i < JOIN_TYPES - 1) {
        t->types[i] = br_strndup(name, len);
        if (t->types[i])
            t->n_types++;
        else
            i = JOIN_TYPES - 1;
    }
    pthread_mutex_unlock(&t->names_lock);
    return (uint16_t)i;
}

const char *join_table_type_name(struct join_table *t, uint16_t type)
{
    pthread_mutex_lock(&t->names_lock);
    const char *name = type < t->n_types ? t->types[type] : "other";
    pthread_mutex_unlock(&t->names_lock);
    return name;
}

#define SERVICE_TIME_BITS 24u

void join_table_profiled(struct join_table *t, uint64_t service, uint64_t now_ms)
{
    uint64_t hash = mix(t, service), time_mask = (1u << SERVICE_TIME_BITS) - 1;
    uint64_t entry = (hash & ~time_mask) | (tenths(now_ms) / 10 & time_mask);
    atomic_store_explicit(&t->services[hash >> 52], entry, memory_order_relaxed);
}

bool join_table_is_profiled(struct join_table *t, uint64_t service, uint64_t now_ms)
{
    uint64_t hash = mix(t, service), time_mask = (1u << SERVICE_TIME_BITS) - 1;
    uint64_t entry = atomic_load_explicit(&t->services[hash >> 52], memory_order_relaxed);
    uint64_t passed = (tenths(now_ms) / 10 - entry) & time_mask;
    if (passed > time_mask / 2)
        passed = 0; /* another worker's clock is a little ahead */
    return entry && ((entry ^ hash) & ~time_mask) == 0 && passed <= t->window_ms / 1000;
}

bool join_table_value(struct join_table *t, unsigned key, const void *value, size_t len, size_t max)
{
    static char there;
    if (key >= KEYS_MAX)
        return false;
    pthread_mutex_lock(&t->names_lock);
    if (!t->values[key])
        t->values[key] = br_map_new(max);
    bool ok = t->values[key] && (br_map_get(t->values[key], value, len) ||
                                 br_map_put(t->values[key], value, len, &there, NULL) == 0);
    pthread_mutex_unlock(&t->names_lock);
    return ok;
}

void join_table_stats(struct join_table *t, uint64_t now_ms, struct join_stats *ret)
{
    uint32_t oldest = 0;
    *ret = (struct join_stats){.max_bytes = t->max_bytes};
    for (unsigned k = 0; k < SHARDS; k++) {
        struct shard *s = &t->shards[k];
        pthread_mutex_lock(&s->lock);
        ret->spans += s->n_spans;
        ret->pending += s->n_pending;
        ret->bytes += s->head - s->tail;
        uint64_t p = s->tail;
        while (p < s->head && at(s, p)->dead)
            p += at(s, p)->size;
        if (p < s->head && age(at(s, p)->seen, now_ms) > oldest)
            oldest = age(at(s, p)->seen, now_ms);
        pthread_mutex_unlock(&s->lock);
    }
    ret->oldest_ms = (uint64_t)oldest * 100;
}

/* --- Life ----------------------------------------------------------------------------------- */

static void init_shard(struct shard *s, uint8_t *memory, size_t bytes)
{
    s->n_buckets = bytes / 16 * SLOTS_SHARE / sizeof(struct bucket);
    size_t slots = s->n_buckets * sizeof(struct bucket);
    s->n_figures = (uint32_t)(bytes / 16 * FIGURES_SHARE / sizeof(struct join_figures));
    size_t figures = (s->n_figures * sizeof(struct join_figures) + 63) & ~(size_t)63;
    pthread_mutex_init(&s->lock, NULL);
    s->buckets = (struct bucket *)(void *)memory;
    s->figures = (struct join_figures *)(void *)(memory + slots);
    s->ring = memory + slots + figures;
    /* Behind the ring is room for the header of a record that begins in its last eight bytes. */
    s->ring_size = (bytes - slots - figures - sizeof(struct record)) & ~(size_t)63;
    s->head = s->tail = s->head_at = RESERVED;
}

struct join_table *join_table_new(size_t max_bytes, uint64_t window_ms)
{
    /* From the system and not from the allocator: pages are made when they are first used, and
     * large ones spare a twentieth of the time. */
    size_t each = max_bytes / SHARDS & ~(size_t)127;
    size_t own = (sizeof(struct join_table) + 127) & ~(size_t)127;
    void *memory = mmap(NULL, each * SHARDS + own, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    (void)madvise(memory, each * SHARDS, MADV_HUGEPAGE);
    struct join_table *t = (void *)((uint8_t *)memory + each * SHARDS);
    t->memory = memory;
    t->memory_len = each * SHARDS + own;
    for (unsigned i = 0; i < SHARDS; i++)
        init_shard(&t->shards[i], (uint8_t *)memory + i * each, each);
    br_random_bytes(t->secret, sizeof t->secret);
    t->max_bytes = each * SHARDS;
    t->window_ms = window_ms;
    pthread_mutex_init(&t->names_lock, NULL);
    return t;
}

void join_table_free(struct join_table *t)
{
    if (!t)
        return;
    for (unsigned i = 0; i < SHARDS; i++)
        pthread_mutex_destroy(&t->shards[i].lock);
    for (unsigned i = 0; i < t->n_types; i++)
        br_free(t->types[i]);
    for (unsigned i = 0; i < KEYS_MAX; i++)
        br_map_free(t->values[i], NULL);
    pthread_mutex_destroy(&t->names_lock);
    (void)munmap(t->memory, t->memory_len);
}
