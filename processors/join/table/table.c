/* SPDX-License-Identifier: Apache-2.0 */
/* Spans, and the samples that were taken in them. */
#include "processors/join/table/table.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "processors/join/table/internal.h"

/* Sixteenths of the bytes: buckets, so many that with records of 110 bytes two of five slots are
 * used when the ring is full (one bucket in two hundred is full then, one in eight thousand with
 * its neighbour), and totals; records take the rest. */
#define SLOTS_SHARE 2u
#define FIGURES_SHARE 2u
#define FIGURES_AND_TOP_SHARE 5u   /* where each has counters of functions */
#define WINDOW_MAX_MS (1ull << 35) /* a year; the clock of records comes round after six */
#define EXPIRED_AT_ONCE 8192u      /* records: half a millisecond, or one */
#define BYTES_PER_FAMILY 1024u     /* of the table, at least: one head for some five spans */

#define IN_LINE static inline __attribute__((always_inline)) /* for each kind of table */

/* --- Slots ------------------------------------------------------------------------------ */

/* Where a span's record is. */
struct place {
    struct bucket *bucket;
    int slot;      /* -1: there is none */
    int ambiguous; /* there is none because more than one fits; an int, for a byte would be put
                      together with its padding through memory, and waited for */
};

/* Tags side by side, and twice those that the first eight and the last eight share. */
typedef uint16_t join_tags __attribute__((vector_size(16)));

static inline bool join_table_slots_any_tagged(const struct bucket *bucket, uint16_t tag)
{
    join_tags first, last;
    uint64_t same[2];
    memcpy(&first, bucket->tags, sizeof first);
    memcpy(&last, bucket->tags + WAYS - 8, sizeof last);
    first = (join_tags)((first == tag) | (last == tag));
    memcpy(same, &first, sizeof same);
    return same[0] | same[1];
}

/* A bit for each slot whose tag is `tag`. */
static inline uint32_t join_table_slots_tagged(const struct bucket *bucket, uint16_t tag)
{
    uint32_t hits = 0;
    for (unsigned slot = 0; slot < WAYS; slot++)
        hits |= (uint32_t)(bucket->tags[slot] == tag) << slot;
    return hits;
}

/* True when there is nothing in the slots that join_table_slots_find could find; seldom false for
 * the first time that a span id is seen. */
static inline bool join_table_slots_is_new(const struct shard *shard, struct home home)
{
    if (__builtin_expect(join_table_slots_any_tagged(home.bucket, home.tag), 0))
        for (unsigned slot = 0; slot < WAYS; slot++)
            if (home.bucket->tags[slot] == home.tag && join_slots_live(shard, home.bucket, slot))
                return false;
    return !join_slots_has_spilled(shard, home.bucket);
}

static inline struct record *join_table_slots_record(const struct shard *shard,
                                                     const struct place *place)
{
    return place->slot < 0 ? NULL
                           : join_slots_record_in(shard, place->bucket, (unsigned)place->slot);
}

enum match { MATCH_NONE, MATCH_SPAN, MATCH_BOTH };

static enum match join_table_slots_match(const struct record *record, uint64_t span_id,
                                         const uint8_t *trace_id)
{
    if (record->head.span_id != span_id)
        return MATCH_NONE;
    if (!trace_id || !record->has_trace)
        return trace_id || record->has_trace ? MATCH_SPAN : MATCH_BOTH;
    return memcmp(record->head.trace_id, trace_id, 16) == 0 ? MATCH_BOTH : MATCH_NONE;
}

/* Looks through one bucket: true when it has the record; in `half` what may be it. */
static bool join_table_slots_find_in(const struct shard *shard, struct bucket *bucket, uint16_t tag,
                                     uint64_t span_id, const uint8_t *trace_id, struct place *half)
{
    uint32_t hits =
        join_table_slots_any_tagged(bucket, tag) ? join_table_slots_tagged(bucket, tag) : 0;
    for (; hits; hits &= hits - 1) {
        int slot = __builtin_ctz(hits);
        if (!join_slots_live(shard, bucket, (unsigned)slot))
            continue;
        enum match m = join_table_slots_match(join_slots_record_in(shard, bucket, (unsigned)slot),
                                              span_id, trace_id);
        if (m == MATCH_NONE)
            continue;
        half->ambiguous = half->ambiguous || (m == MATCH_SPAN && half->slot >= 0);
        half->bucket = bucket;
        half->slot = slot;
        if (m == MATCH_BOTH)
            return true;
    }
    return false;
}

/* A span id without a trace id finds the one record with that span id, and the other way round. */
static struct place join_table_slots_find(const struct shard *shard, struct home home,
                                          uint64_t span_id, const uint8_t *trace_id)
{
    struct bucket *bucket = home.bucket;
    struct place place = {.bucket = bucket, .slot = -1};
    if (join_table_slots_find_in(shard, bucket, home.tag, span_id, trace_id, &place) ||
        (join_slots_has_spilled(shard, bucket) &&
         join_table_slots_find_in(shard, join_slots_neighbour(shard, bucket), home.tag, span_id,
                                  trace_id, &place)))
        place.ambiguous = false;
    else if (place.ambiguous)
        place.slot = -1;
    return place;
}

/* The next free slot or, in a full bucket, the oldest. */
static unsigned join_table_slots_spare_in(const struct shard *shard, const struct bucket *bucket)
{
    unsigned slot = bucket->next;
    for (unsigned n = 0; n < WAYS && join_slots_live(shard, bucket, slot); n++)
        slot = slot + 1 < WAYS ? slot + 1 : 0;
    return slot;
}

/* As join_table_slots_spare, where the next slot is not free. */
static struct place join_table_slots_spare_among(const struct shard *shard, struct home home)
{
    struct bucket *bucket = home.bucket;
    struct place place = {.bucket = bucket, .slot = (int)join_table_slots_spare_in(shard, bucket)};
    if (join_slots_live(shard, bucket, (unsigned)place.slot)) {
        struct bucket *other = join_slots_neighbour(shard, bucket);
        unsigned slot = join_table_slots_spare_in(shard, other);
        if (!join_slots_live(shard, other, slot))
            place = (struct place){.bucket = other, .slot = (int)slot};
    }
    return place;
}

/* The place for a new record: a free one in its bucket or the neighbour, or that of the oldest. */
static inline struct place join_table_slots_spare(const struct shard *shard, struct home home)
{
    unsigned slot = home.bucket->next;
    return join_slots_live(shard, home.bucket, slot)
               ? join_table_slots_spare_among(shard, home)
               : (struct place){.bucket = home.bucket, .slot = (int)slot};
}

static inline void join_table_slots_fill(struct home home, const struct place *place,
                                         uint64_t position)
{
    unsigned slot = (unsigned)place->slot;
    place->bucket->next = slot + 1 < WAYS ? (slot + 1) & 15 : 0;
    join_slots_set(place->bucket, slot, home.tag, position);
    if (place->bucket != home.bucket)
        join_slots_set_spilled(home.bucket, position);
}

/* Of a bucket, what records that have left were entered as must not look like newer ones when
 * positions come round. */
static void join_table_slots_sweep(const struct shard *shard, struct bucket *bucket)
{
    for (unsigned slot = 0; slot < WAYS; slot++)
        if (!join_slots_live(shard, bucket, slot))
            join_slots_clear(shard, bucket, slot);
    if (!join_slots_has_spilled(shard, bucket))
        join_slots_set_spilled(bucket, shard->tail - SPILLED_UNIT);
}

/* --- The ring --------------------------------------------------------------------------- */

/* Spans are noted by their hashes, the last ones. */
static void table_note_span(const struct join_table *table, _Atomic uint64_t *noted,
                            uint64_t span_id)
{
    uint64_t hash = join_table_mix(table, span_id);
    atomic_store_explicit(&noted[(hash >> 32) % JOIN_LOST_MAX], hash, memory_order_relaxed);
}

static bool table_has_noted(const struct join_table *table, const _Atomic uint64_t *noted,
                            const uint8_t *span_id)
{
    uint64_t hash = join_table_mix(table, br_load64(span_id));
    return hash &&
           atomic_load_explicit(&noted[(hash >> 32) % JOIN_LOST_MAX], memory_order_relaxed) == hash;
}

bool join_table_lost(struct join_table *table, const uint8_t *span_id)
{
    return table_has_noted(table, table->lost, span_id);
}

bool join_table_lost_below(struct join_table *table, const uint8_t *span_id)
{
    return table_has_noted(table, table->lost_below, span_id);
}

#define ABOVE_MAX 64u /* spans above one that leaves that are told */

/* What a record says of the span above it. */
struct above {
    uint64_t parent_id; /* 0: none, or of another service */
    uint8_t trace_id[16];
    bool has_trace;
};

static struct above table_above(const struct record *record)
{
    struct above above = {.parent_id =
                              br_span_kind_is_entry(record->kind) ? 0 : record->head.parent_id,
                          .has_trace = record->has_trace};
    memcpy(above.trace_id, record->head.trace_id, sizeof above.trace_id);
    return above;
}

/* Tells the span above one of `shard`, which is locked, and says what is above it in turn: nothing
 * where it has not come, or is in a shard that somebody else has, which is not waited for. */
static void table_tell(struct join_table *table, const struct shard *shard, struct above *above,
                       uint32_t now)
{
    uint64_t id = above->parent_id, hash = join_table_mix(table, id);
    struct shard *other = join_table_shard(table, hash);
    above->parent_id = 0;
    if (other != shard && pthread_mutex_trylock(&other->lock) != 0) {
        table_note_span(table, table->lost_below, id);
        return;
    }
    struct place place = join_table_slots_find(other, join_slots_home(other, hash), id,
                                               above->has_trace ? above->trace_id : NULL);
    struct record *parent = join_table_slots_record(other, &place);
    bool known = parent && !parent->pending;
    if (known && !parent->told)
        *above = table_above(parent);
    if (known)
        parent->told = true;
    if (!known || !join_record_expired(table, parent, now)) /* or it may wait for its figures */
        table_note_span(table, table->lost_below, id);
    if (other != shard)
        pthread_mutex_unlock(&other->lock);
}

/* What a span that leaves has is missing from the sums of those above it that are still to come. */
static void table_tell_above(struct join_table *table, const struct shard *shard,
                             struct record *record, uint32_t now)
{
    struct above above = table_above(record);
    record->told = true;
    for (unsigned i = 0; i < ABOVE_MAX && above.parent_id; i++)
        table_tell(table, shard, &above, now);
}

static struct left *table_left_slot(struct join_table *table, uint64_t hash)
{
    return &table->left[(hash >> 32) % JOIN_LEFT_MAX];
}

static void table_note_left(struct join_table *table, uint64_t hash, uint64_t until_ns)
{
    struct left *left = table_left_slot(table, hash);
    bool same = atomic_load_explicit(&left->key, memory_order_relaxed) == hash;
    if (!same || atomic_load_explicit(&left->until_ns, memory_order_relaxed) < until_ns)
        atomic_store_explicit(&left->until_ns, until_ns, memory_order_relaxed);
    atomic_store_explicit(&left->key, hash, memory_order_relaxed);
}

bool join_table_left(struct join_table *table, const uint8_t *span_id, uint64_t start_ns)
{
    uint64_t hash = join_table_mix(table, br_load64(span_id));
    struct left *left = table_left_slot(table, hash);
    return hash && atomic_load_explicit(&left->key, memory_order_relaxed) == hash &&
           start_ns <= atomic_load_explicit(&left->until_ns, memory_order_relaxed);
}

static void join_table_taken_leave(struct join_table *table, struct shard *shard,
                                   const struct record *record, uint32_t now);

static inline void join_table_ring_settle(struct join_table *table, struct shard *shard,
                                          struct record *record, uint32_t now,
                                          struct join_tally *out)
{
    if (__builtin_expect(record->taken, 0)) {
        join_table_taken_leave(table, shard, record, now);
        return;
    }
    if (record->pending) {
        table_note_span(table, table->lost, record->head.span_id);
        shard->n_pending--;
        join_totals_tally(out->unknown, join_shard_totals(table, shard, record->totals), out);
    } else {
        shard->n_spans--;
        if (record->totals && !record->told)
            table_tell_above(table, shard, record, now);
        if (!join_record_expired(table, record, now)) {
            if (record->totals)
                table_note_span(table, table->lost, record->head.span_id);
            out->evicted++;
            out->any = true;
        }
    }
    if (record->totals)
        join_record_free_totals(table, shard, record);
    if (__builtin_expect(record->located, 0))
        join_related_leave(table, record, !join_record_expired(table, record, now));
    else if (!record->pending && !join_record_expired(table, record, now))
        join_related_leave(table, record, true);
}

static void join_table_record_leave(struct join_table *table, struct shard *shard,
                                    struct record *record, uint32_t now, struct join_tally *out)
{
    join_table_ring_settle(table, shard, record, now, out);
    record->dead = true;
}

/* Takes the oldest record out. */
static inline void join_table_ring_evict(struct join_table *table, struct shard *shard,
                                         uint32_t now, struct join_tally *out)
{
    struct record *record = (struct record *)(void *)(shard->ring + shard->tail_at);
    if (!record->dead)
        join_table_ring_settle(table, shard, record, now, out);
    join_shard_forward(shard, &shard->tail, &shard->tail_at, join_record_size(record));
}

static void join_table_slots_sweep_some(struct shard *shard)
{
    for (; shard->head >= shard->sweep_at; shard->sweep_at += SWEEP_BYTES / shard->n_buckets)
        join_table_slots_sweep(shard, &shard->buckets[shard->swept++ % shard->n_buckets]);
}

#define TEXT_CHUNK 32u   /* texts of up to so many bytes are copied by so many */
#define LEAVE_AHEAD 512u /* bytes of old records that leave before their room is needed */

/* Makes room for `size` bytes in one piece, and says how much more there is. */
__attribute__((noinline)) static void join_table_ring_make_room(struct join_table *table,
                                                                struct shard *shard, uint32_t size,
                                                                uint32_t now,
                                                                struct join_tally *out)
{
    join_table_slots_sweep_some(shard);
    uint32_t pad = shard->head_at + size > shard->ring_size
                       ? (uint32_t)(shard->ring_size - shard->head_at)
                       : 0;
    uint32_t wanted = pad + size + TEXT_CHUNK + LEAVE_AHEAD;
    while (shard->head + wanted - shard->tail > shard->ring_size)
        join_table_ring_evict(table, shard, now, out);
    if (pad) {
        /* A record does not go round the end: what is left there is a dead one, whose header may
         * reach into the slack behind the ring. */
        *join_shard_record(shard, shard->head) =
            (struct record){.size8 = (uint16_t)(pad / 8), .dead = true};
        join_shard_forward(shard, &shard->head, &shard->head_at, pad);
    }
    uint64_t free = shard->ring_size - TEXT_CHUNK - (shard->head - shard->tail);
    shard->room = shard->ring_size - shard->head_at;
    shard->room = free < shard->room ? free : shard->room;
}

/* Room for a record of `size` bytes right behind the head, which is behind it then; TEXT_CHUNK
 * bytes behind that nothing is lost by writing. The record must be written before the next one is
 * reserved. */
static inline struct record *join_table_ring_reserve(struct join_table *table, struct shard *shard,
                                                     uint32_t size, uint32_t now,
                                                     struct join_tally *out)
{
    if (__builtin_expect(size > shard->room || shard->head >= shard->sweep_at, 0))
        join_table_ring_make_room(table, shard, size, now, out);
    struct record *record = (struct record *)(void *)(shard->ring + shard->head_at);
    shard->room -= size;
    join_shard_forward(shard, &shard->head, &shard->head_at, size);
    return record;
}

#define RECORD_MAX                                                                                 \
    (sizeof(struct record) + 2 * JOIN_VALUE_MAX + JOIN_ATTRIBUTES_BYTES_MAX +                      \
     sizeof(struct whereabouts) + 8)

static uint32_t join_table_record_size_for(size_t texts)
{
    return (uint32_t)((sizeof(struct record) + texts + 7) & ~(size_t)7);
}

/* --- The index -------------------------------------------------------------------------- */

/*
 * What leads to the records of the join's table: slots by span id, and chains of families and
 * threads. Spans are entered in groups. Of each group the lines that it needs are asked for while
 * the group before it is entered, so that they have come from memory by then.
 */

/* As many as are entered while a line comes from memory; twice as many lines on their way wait for
 * each other. */
#define JOIN_GROUP_MAX 8u

/* A span that will be entered, and where. */
struct join_coming {
    const struct br_span *span;
    const struct join_origin *origin;
    struct home home;
    _Atomic uint64_t *family; /* its head; NULL: the span is in none */
    uint64_t word;            /* record.words[1], without kind and status */
    uint32_t size;            /* of its record */
};

/* Those of one shard: the ones that `order` names, or all. */
struct join_coming_spans {
    const struct join_entries *entries;
    const struct br_span *spans;
    const uint16_t *order; /* places in `spans`; or NULL */
    size_t next, end;
    bool more; /* records may have attributes or whereabouts */
    /* What the last span that was looked at has by its trace and its part; the next one most likely
     * has the same. */
    uint64_t trace[2];
    uint32_t part;
    uint32_t size; /* of its record without its name, and what rounds that up */
    const struct join_origin *origin;
    _Atomic uint64_t *family;
    uint64_t word;
};

/* Spans that are entered in one piece of the ring. */
struct join_group {
    uint32_t size; /* of its records together */
    struct join_coming *end;
    struct join_coming spans[JOIN_GROUP_MAX];
};

/* Takes the totals of a span's earlier record: of samples that came first, or of the same span
 * that is sent again. */
static uint32_t join_table_index_take_over(struct join_table *table, struct shard *shard,
                                           struct record *old, const struct record *record,
                                           uint32_t now, struct join_tally *out)
{
    uint32_t index = old->totals;
    if (old->pending && join_record_expired(table, old, now)) {
        join_table_record_leave(table, shard, old, now, out);
        return 0;
    }
    if (old->pending) {
        struct join_totals *totals = join_shard_totals(table, shard, index);
        join_totals_tally(out->late, totals, out);
        if (out->on_adopted) {
            const struct join_span span = join_record_span(record);
            out->on_adopted(out->arg, &span, totals);
        }
        out->adopted++;
        shard->n_pending--;
    } else {
        shard->n_spans--;
    }
    old->totals = 0;
    old->dead = true;
    return index;
}

/* Puts it in the place of an earlier record of the same span; false when there is none. */
__attribute__((noinline)) static bool
join_table_index_replace(struct join_table *table, struct shard *shard, struct home home,
                         struct record *record, uint64_t position, uint32_t now,
                         struct join_tally *out)
{
    struct place place = join_table_slots_find(shard, home, record->head.span_id,
                                               record->has_trace ? record->head.trace_id : NULL);
    struct record *old = join_table_slots_record(shard, &place);
    if (!old)
        return false;
    record->totals = join_table_index_take_over(table, shard, old, record, now, out);
    join_slots_set(place.bucket, (unsigned)place.slot, home.tag, position);
    if (place.bucket != home.bucket)
        join_slots_set_spilled(home.bucket, position);
    return true;
}

/* Puts it in the place of an earlier record of the same span, else into a free slot, else into that
 * of the oldest, which leaves. */
__attribute__((noinline)) static void join_table_index_search(struct join_table *table,
                                                              struct shard *shard, struct home home,
                                                              struct record *record,
                                                              uint64_t position, uint32_t now,
                                                              struct join_tally *out)
{
    if (!join_table_slots_is_new(shard, home) &&
        join_table_index_replace(table, shard, home, record, position, now, out))
        return;
    struct place place = join_table_slots_spare(shard, home);
    if (join_slots_live(shard, place.bucket, (unsigned)place.slot))
        join_table_record_leave(table, shard, join_table_slots_record(shard, &place), now, out);
    join_table_slots_fill(home, &place, position);
}

/* How far a ring reaches back from its head: the same while a group is entered. */
struct reach {
    uint32_t head, used;                 /* in the units of slots */
    uint32_t spilled_head, spilled_used; /* in those of bucket.spilled */
};

static inline struct reach join_table_reach(const struct shard *shard)
{
    return (struct reach){.head = (uint32_t)(shard->head / 8),
                          .used = (uint32_t)((shard->head - shard->tail) / 8),
                          .spilled_head = (uint32_t)(shard->head / SPILLED_UNIT),
                          .spilled_used =
                              (uint32_t)(shard->head / SPILLED_UNIT - shard->tail / SPILLED_UNIT)};
}

/* True when the id is new, and the next slot is free: as it is for nearly every span. */
IN_LINE bool join_table_index_is_free(const struct reach *reach, struct home home, uint32_t word)
{
    uint32_t back = (reach->spilled_head - word) & SPILLED_MASK;
    return !join_table_slots_any_tagged(home.bucket, home.tag) && back > reach->spilled_used &&
           reach->head - home.bucket->positions[word >> SPILLED_BITS] > reach->used;
}

IN_LINE void join_table_index_enter(struct join_table *table, struct shard *shard,
                                    const struct reach *reach, struct home home,
                                    struct record *record, uint64_t position, uint32_t now,
                                    struct join_tally *out)
{
    uint32_t word = home.bucket->word, slot = word >> SPILLED_BITS;
    if (__builtin_expect(!join_table_index_is_free(reach, home, word), 0)) {
        join_table_index_search(table, shard, home, record, position, now, out);
        return;
    }
    home.bucket->word = slot + 1 < WAYS ? word + (1u << SPILLED_BITS) : word & SPILLED_MASK;
    join_slots_set(home.bucket, slot, home.tag, position);
}

/* Makes it the newest of its trace and service, and of its thread. */
IN_LINE void join_table_index_chain(struct join_table *table, const struct shard *shard,
                                    const struct join_coming *coming, struct record *record,
                                    uint64_t position, bool shared)
{
    if (coming->family)
        record->words[0] |= join_chain_enter(table, coming->family, shard, position, shared);
    if (__builtin_expect(!record->located, 1))
        return;
    join_related_enter(table, shard, record, position);
}

/* --- Spans ------------------------------------------------------------------------------ */

static size_t join_table_span_name_len(const struct br_span *span)
{
    size_t len = span->name_len;
    return __builtin_expect(len <= JOIN_VALUE_MAX, 1) ? len
                                                      : br_utf8_valid(span->name, JOIN_VALUE_MAX);
}

static bool join_table_span_is_located(const struct join_table *table, const struct br_span *span,
                                       const struct join_origin *origin)
{
    return br_span_has_trace(&span->head) && origin->where && origin->where->hashes[JOIN_PROCESS] &&
           (join_table_thread_of(table, span->thread_id, span->thread_id_len) ||
            join_table_thread_of(table, span->thread_name, span->thread_name_len));
}

/* What a record has beside its head is said by one word: record.words[1]. */
#define WORD_NAME_SHIFT 16u
#define WORD_SERVICE_SHIFT 24u
#define WORD_KIND_SHIFT 32u
_Static_assert(offsetof(struct br_span, status) == offsetof(struct br_span, kind) + 1,
               "the status is behind the kind, as in the word");
#define WORD_HAS_TRACE (1ull << 49)
#define WORD_LOCATED (1ull << 51)
#define WORD_MORE (WORD_LOCATED | UINT16_MAX) /* attributes, or whereabouts */

/* Sets what spans of this trace and this part have, and asks for the line of their family's head.
 */
static inline void table_foresee_run(const struct join_table *table,
                                     struct join_coming_spans *these, const uint64_t *trace,
                                     uint32_t part)
{
    const struct join_origin *origin = &these->entries->origins[part - these->entries->first_part];
    uint64_t service = origin->service_hash & SERVICE_MASK;
    uint64_t hash = join_table_family_hash(table, (const uint8_t *)trace, service);
    bool has_trace = trace[0] | trace[1];
    these->trace[0] = trace[0];
    these->trace[1] = trace[1];
    these->part = part;
    these->origin = origin;
    these->size = (uint32_t)(sizeof(struct record) + origin->service_len + 7);
    these->word = (has_trace ? WORD_HAS_TRACE : 0) | origin->service_len << WORD_SERVICE_SHIFT;
    these->family = has_trace && service ? &table->families[hash & table->families_mask] : NULL;
    __builtin_prefetch(these->family, 1);
}

/* Adds what few tables have. */
static void table_foresee_more(const struct join_table *table,
                               const struct join_coming_spans *these, struct join_coming *coming)
{
    const struct br_span *span = coming->span;
    const struct join_entries *entries = these->entries;
    size_t size = these->size + (coming->word >> WORD_NAME_SHIFT & UINT8_MAX);
    if (entries->attributes) {
        size_t len = entries->attributes[span - entries->spans].len;
        size += len;
        coming->word |= len & UINT16_MAX;
    }
    size &= ~(size_t)7;
    if (table->threads && join_table_span_is_located(table, span, coming->origin)) {
        size += sizeof(struct whereabouts);
        coming->word |= WORD_LOCATED;
    }
    coming->size = (uint32_t)size;
}

/* Says of which family a span is, and how large its record is. */
IN_LINE void table_foresee(const struct join_table *table, struct join_coming_spans *these,
                           struct join_coming *ret)
{
    const struct br_span *span = ret->span;
    uint64_t trace[2];
    memcpy(trace, span->head.trace_id, sizeof trace);
    if ((trace[0] ^ these->trace[0]) | (trace[1] ^ these->trace[1]) | (span->part ^ these->part))
        table_foresee_run(table, these, trace, span->part);
    size_t name_len = join_table_span_name_len(span);
    ret->origin = these->origin;
    ret->family = these->family;
    ret->word = these->word | name_len << WORD_NAME_SHIFT;
    ret->size = (these->size + (uint32_t)name_len) & ~7u;
    if (__builtin_expect(these->more, 0))
        table_foresee_more(table, these, ret);
}

/* Makes the next ones with a span id the group. Lines of slots are asked for one after the other:
 * where each is in a page of its own, several pages are looked up at a time. */
IN_LINE void table_foresee_group(const struct join_table *table, const struct shard *shard,
                                 struct join_coming_spans *these, struct join_group *ret)
{
    struct join_coming *coming = ret->spans;
    for (; these->next < these->end && coming < ret->spans + shard->group; these->next++) {
        coming->span =
            these->order ? &these->spans[these->order[these->next]] : &these->spans[these->next];
        uint64_t span_id = coming->span->head.span_id;
        coming->home = join_slots_home(shard, join_table_mix(table, span_id));
        __builtin_prefetch(coming->home.bucket, 1);
        coming += span_id != 0;
    }
    ret->end = coming;
    ret->size = 0;
    for (coming = ret->spans; coming < ret->end; coming++) {
        table_foresee(table, these, coming);
        ret->size += coming->size;
    }
}

/* What the records of one resource have in common. */
struct join_staged {
    const struct join_origin *origin;
    uint8_t service[TEXT_CHUNK]; /* its first bytes, zeros behind them */
};

static inline void join_table_stage(struct join_staged *staged, const struct join_origin *origin)
{
    size_t len = origin->service_len;
    *staged = (struct join_staged){.origin = origin};
    br_put_bytes(staged->service, origin->service, len < TEXT_CHUNK ? len : TEXT_CHUNK);
}

/* Returns true when TEXT_CHUNK bytes from the name's first on are the span's. */
static inline bool join_table_span_goes_on(const struct br_span *span)
{
    return (uintptr_t)span->name - (uintptr_t)span->body + TEXT_CHUNK <= span->body_len;
}

/* Copies a text of which TEXT_CHUNK bytes can be read where `whole`. */
IN_LINE uint8_t *join_table_record_put_text(uint8_t *p, const uint8_t *text, size_t len, bool whole)
{
    if (__builtin_expect(len > TEXT_CHUNK || !whole, 0))
        return len ? br_put_bytes(p, text, len) : p;
    memcpy(p, text, TEXT_CHUNK);
    return p + len;
}

/* Attributes and whereabouts. */
static void table_record_put_more(struct record *record, uint8_t *text,
                                  const struct join_coming *coming,
                                  const struct join_entries *entries)
{
    const struct join_origin *origin = coming->origin;
    if (entries->attributes)
        (void)br_put_bytes(text, entries->attributes[coming->span - entries->spans].data,
                           entries->attributes[coming->span - entries->spans].len);
    if (!(coming->word & WORD_LOCATED))
        return;
    struct whereabouts *whereabouts = join_record_whereabouts(record);
    *whereabouts = (struct whereabouts){.process = origin->where->hashes[JOIN_PROCESS],
                                        .service = origin->where->hashes[JOIN_SERVICE],
                                        .runtime = origin->where->hashes[JOIN_RUNTIME]};
    memcpy(whereabouts->places, &origin->where->hashes[JOIN_HOST], sizeof whereabouts->places);
}

/* The texts behind the record's head. */
IN_LINE void join_table_record_put_texts(struct record *record, const struct join_coming *coming,
                                         const struct join_entries *entries,
                                         const struct join_staged *staged)
{
    const struct br_span *span = coming->span;
    const struct join_origin *origin = coming->origin;
    uint8_t *text = (uint8_t *)(record + 1);
    text = join_table_record_put_text(text, span->name, coming->word >> WORD_NAME_SHIFT & UINT8_MAX,
                                      join_table_span_goes_on(span));
    text = origin->service_len <= TEXT_CHUNK
               ? join_table_record_put_text(text, staged->service, origin->service_len, true)
               : br_put_bytes(text, origin->service, origin->service_len);
    if (__builtin_expect((coming->word & WORD_MORE) != 0, 0))
        table_record_put_more(record, text, coming, entries);
}

/* Word by word: a whole struct would be made elsewhere first, and fields of a word one by one would
 * wait for what lies there, and for each other. */
IN_LINE void join_table_record_write(const struct join_table *table, struct record *record,
                                     const struct join_coming *coming,
                                     const struct join_entries *entries,
                                     const struct join_staged *staged, uint32_t now)
{
    const struct br_span *span = coming->span;
    uint16_t kind_and_status; /* as they lie in both */
    record->head = span->head;
    record->thread = join_table_thread_of(table, span->thread_id, span->thread_id_len);
    record->thread_name = join_table_thread_of(table, span->thread_name, span->thread_name_len);
    record->totals = 0;
    record->seen = now;
    record->words[0] = (uint64_t)(coming->size / 8) << 48;
    memcpy(&kind_and_status, &span->kind, sizeof kind_and_status);
    record->words[1] = coming->word | (uint64_t)kind_and_status << WORD_KIND_SHIFT;
    join_table_record_put_texts(record, coming, entries, staged);
}

#define WARM_BYTES 2048u /* so far behind a record */

/* Brings on the way what a record overwrites soon, in a full ring what leaves for it. */
static inline void join_table_ring_warm(const struct record *record)
{
    const uint8_t *p = (const uint8_t *)record + WARM_BYTES; /* or a little behind the ring */
    __builtin_prefetch(p, 1);
    __builtin_prefetch(p + 64, 1);
}

/* In a shared table records are linked a group at a time: an exchange waits for everything written
 * before it, and so only the first one of a group has to. */
IN_LINE void table_enter_group(struct join_table *table, struct shard *shard,
                               const struct join_group *group, const struct join_entries *entries,
                               struct join_staged *staged, bool shared, uint32_t now,
                               struct join_tally *out)
{
    struct record *record = join_table_ring_reserve(table, shard, group->size, now, out), *first;
    uint64_t position = shard->head - group->size;
    const struct reach reach = join_table_reach(shard);
    const struct join_coming *coming;
    shard->n_spans += (size_t)(group->end - group->spans);
    first = record;
    for (coming = group->spans; coming < group->end; coming++) {
        join_table_ring_warm(record);
        if (coming->origin != staged->origin)
            join_table_stage(staged, coming->origin);
        join_table_record_write(table, record, coming, entries, staged, now);
        join_table_index_enter(table, shard, &reach, coming->home, record, position, now, out);
        if (!shared)
            join_table_index_chain(table, shard, coming, record, position, shared);
        position += coming->size;
        record = join_record_behind(record, coming->size);
    }
    position = shard->head - group->size;
    for (coming = group->spans; shared && coming < group->end; coming++) {
        join_table_index_chain(table, shard, coming, first, position, shared);
        position += coming->size;
        first = join_record_behind(first, coming->size);
    }
}

IN_LINE size_t table_enter_in(struct join_table *table, struct shard *shard,
                              struct join_coming_spans *these, bool shared, uint32_t now,
                              struct join_tally *out)
{
    struct join_group groups[2];
    struct join_staged staged = {0};
    unsigned which = 0;
    size_t count = 0;
    table_foresee_group(table, shard, these, &groups[which]);
    while (groups[which].end > groups[which].spans) {
        table_foresee_group(table, shard, these, &groups[which ^ 1]);
        table_enter_group(table, shard, &groups[which], these->entries, &staged, shared, now, out);
        count += (size_t)(groups[which].end - groups[which].spans);
        which ^= 1;
    }
    return count;
}

#define AT_ONCE 256u

/* Up to AT_ONCE spans from place `from` on, of all shards, sorted by shard, so that each lock is
 * taken once. */
static size_t table_enter_sorted(struct join_table *table, const struct join_entries *entries,
                                 size_t from, unsigned count, uint32_t now, struct join_tally *out)
{
    uint8_t shards[AT_ONCE];
    uint16_t order[AT_ONCE], first[SHARDS + 1] = {0}, next[SHARDS];
    size_t entered = 0;
    for (unsigned i = 0; i < count; i++) {
        shards[i] = join_table_mix(table, entries->spans[from + i].head.span_id) & (SHARDS - 1);
        first[shards[i] + 1]++;
    }
    for (unsigned k = 1; k <= SHARDS; k++)
        first[k] = (uint16_t)(first[k] + first[k - 1]);
    memcpy(next, first, sizeof next);
    for (unsigned i = 0; i < count; i++)
        order[next[shards[i]]++] = (uint16_t)i;
    for (unsigned k = 0; k < SHARDS; k++) {
        struct shard *shard = &table->shards[k];
        struct join_coming_spans these = {.entries = entries,
                                          .spans = entries->spans + from,
                                          .order = order + first[k],
                                          .end = first[k + 1] - (size_t)first[k],
                                          .more = entries->attributes || table->threads,
                                          .part = UINT32_MAX};
        if (!these.end)
            continue;
        join_shard_lock(table, shard);
        entered += table_enter_in(table, shard, &these, true, now, out);
        join_shard_unlock(table, shard);
    }
    return entered;
}

size_t join_table_enter(struct join_table *table, const struct join_entries *entries,
                        uint64_t now_ms, struct join_tally *out)
{
    size_t entered = 0;
    uint32_t now = join_table_tenths(now_ms);
    struct join_coming_spans all = {.entries = entries,
                                    .spans = entries->spans,
                                    .end = entries->count,
                                    .more = entries->attributes || table->threads,
                                    .part = UINT32_MAX};
    if (!table->shard_bits)
        return table_enter_in(table, &table->shards[0], &all, false, now, out);
    for (size_t from = 0; from < entries->count; from += AT_ONCE) {
        size_t left = entries->count - from;
        entered += table_enter_sorted(table, entries, from,
                                      (unsigned)(left < AT_ONCE ? left : AT_ONCE), now, out);
    }
    return entered;
}

/* --- Samples ---------------------------------------------------------------------------- */

void join_found_copy(void *arg, const struct join_span *span)
{
    struct join_found *found = arg;
    found->has_trace = span->trace_id != NULL;
    if (span->trace_id)
        memcpy(found->trace, span->trace_id, sizeof found->trace);
    memcpy(found->span, span->span_id, sizeof found->span);
    found->start_ns = span->start_ns;
    found->end_ns = span->end_ns;
    found->status = span->status;
    found->name_len = span->name_len;
    br_put_bytes(found->name, span->name, span->name_len);
    found->service_len = span->service_len;
    br_put_bytes(found->service, span->service, span->service_len);
    found->attributes_len = span->attributes_len;
    br_put_bytes(found->attributes, span->attributes, span->attributes_len);
}

/* Leaves the sample's totals for a span that has not come; false when there is no room. */
static bool table_make_pending(struct join_table *table, struct shard *shard, struct home home,
                               const struct join_sample *sample, uint32_t now,
                               struct join_tally *out)
{
    if (!join_shard_has_totals(shard))
        return false;
    uint64_t span_id = br_load64(sample->span_id);
    uint32_t size = join_table_record_size_for(0);
    struct record *record = join_table_ring_reserve(table, shard, size, now, out);
    *record = (struct record){.size8 = (uint16_t)(size / 8),
                              .head.span_id = span_id,
                              .head.start_ns = now,
                              .seen = now,
                              .pending = true,
                              .has_trace = sample->trace_id != NULL};
    struct place place = join_table_slots_spare(shard, home);
    if (join_slots_live(shard, place.bucket, (unsigned)place.slot)) {
        /* Spans are worth more than samples without one. */
        record->dead = true;
        return false;
    }
    if (sample->trace_id)
        memcpy(record->head.trace_id, sample->trace_id, 16);
    join_totals_add_sample(table, join_record_totals(table, shard, record, now), sample,
                           !sample->held);
    join_table_slots_fill(home, &place, shard->head - size);
    shard->n_pending++;
    return true;
}

/* Adds a sample's totals to what is known of its span. */
static void table_remember(struct join_table *table, struct shard *shard, struct home home,
                           const struct place *place, const struct join_sample *sample,
                           uint32_t now, struct join_tally *out)
{
    struct record *record = join_table_slots_record(shard, place);
    struct join_totals *totals = record ? join_record_totals(table, shard, record, now) : NULL;
    bool waits = !sample->held && (!record || record->pending);
    if (record && record->pending && !record->has_trace && sample->trace_id) {
        memcpy(record->head.trace_id, sample->trace_id, sizeof record->head.trace_id);
        record->has_trace = true; /* no other trace's span takes it over now */
    }
    if (totals) {
        if (record->pending)
            record->seen = now; /* the span still lasts */
        join_totals_add_sample(table, totals, sample, waits);
    } else if (!record && !place->ambiguous &&
               table_make_pending(table, shard, home, sample, now, out)) {
        return;
    } else if (waits) {
        out->unknown[sample->type]++; /* nobody will remember it */
        out->any = true;
    }
    if (!totals)
        table_note_span(table, table->lost, br_load64(sample->span_id));
}

enum join_result join_table_sample(struct join_table *table, const struct join_sample *sample,
                                   bool add, uint64_t now_ms, join_found_fn *found, void *arg,
                                   struct join_tally *out)
{
    uint64_t span_id = br_load64(sample->span_id), hash = join_table_mix(table, span_id);
    struct shard *shard = join_table_shard(table, hash);
    struct home home = join_slots_home(shard, hash);
    enum join_result result = JOIN_UNKNOWN;
    uint32_t now = join_table_tenths(now_ms);
    join_shard_lock(table, shard);
    struct place place = join_table_slots_find(shard, home, span_id, sample->trace_id);
    struct record *record = join_table_slots_record(shard, &place);
    if (record && record->pending && join_record_expired(table, record, now)) {
        join_table_record_leave(table, shard, record, now, out);
        join_slots_clear(shard, place.bucket, (unsigned)place.slot);
        place.slot = -1;
    } else if (record && !record->pending) {
        result = join_record_expired(table, record, now) ? JOIN_TOO_LATE : JOIN_FOUND;
    }
    if (result == JOIN_FOUND) {
        const struct join_span span = join_record_span(record);
        found(arg, &span);
    }
    if (add && result != JOIN_TOO_LATE)
        table_remember(table, shard, home, &place, sample, now, out);
    join_shard_unlock(table, shard);
    return result;
}

void join_table_find(struct join_table *table, const uint8_t *trace_id, const uint8_t *span_id,
                     join_found_fn *found, void *arg)
{
    uint64_t id = br_load64(span_id), hash = join_table_mix(table, id);
    struct shard *shard = join_table_shard(table, hash);
    join_shard_lock(table, shard);
    struct place place = join_table_slots_find(shard, join_slots_home(shard, hash), id, trace_id);
    const struct record *record = join_table_slots_record(shard, &place);
    if (record && !record->pending) {
        const struct join_span span = join_record_span(record);
        found(arg, &span);
    }
    join_shard_unlock(table, shard);
}

/* --- Timestamps of samples --- */

/* They lie in the shard of the span that the sample names, in a chain of those of the same hash. */
static _Atomic uint64_t *join_table_taken_newest(struct join_table *table, uint64_t hash)
{
    return &table->taken[hash & table->families_mask];
}

static const struct join_taken *join_table_taken_of(const struct record *record)
{
    return (const struct join_taken *)(const void *)(record + 1);
}

/* The position of what a chain's link says; 0: none. */
static uint64_t join_table_taken_position(const struct join_table *table, const struct shard *shard,
                                          uint64_t place)
{
    return join_shard_whole(shard, place >> table->shard_bits, 48 - table->shard_bits);
}

/* In the timestamp of a thread's sample: it was taken in a span that has come. No clock says a time
 * with that bit before the year 2262. */
#define TAKEN_CLAIMED (1ull << 63)

static uint64_t join_table_taken_until(const struct record *record)
{
    const struct join_taken *taken = join_table_taken_of(record);
    const uint64_t *times = (const uint64_t *)(const void *)(taken + 1);
    uint64_t until_ns = 0;
    for (uint32_t i = 0; i < taken->n_times; i++) {
        uint64_t time_ns = times[i] & ~TAKEN_CLAIMED;
        until_ns = time_ns > until_ns ? time_ns : until_ns;
    }
    return until_ns;
}

/* Whether it came so long before the span's totals were made that those before them had left. */
static bool join_table_taken_is_before(const struct join_table *table, const struct record *record,
                                       uint32_t since)
{
    return join_record_age(record->seen, since) > table->window;
}

/* What leaves before its span was asked for is the span's that the sample names. Where spans may
 * still come that it was taken in, theirs is not all. */
static void join_table_taken_leave(struct join_table *table, struct shard *shard,
                                   const struct record *record, uint32_t now)
{
    const uint64_t hash = join_table_mix(table, record->head.span_id);
    if (record->kept)
        shard->kept -= join_record_size(record);
    if (join_table_taken_of(record)->of_thread) {
        table_note_left(table, hash, join_table_taken_until(record));
        return;
    }
    struct place place = join_table_slots_find(shard, join_slots_home(shard, hash),
                                               record->head.span_id, record->head.trace_id);
    struct record *named = join_table_slots_record(shard, &place);
    if (!named || !named->totals)
        return;
    if (named->pending || !join_record_expired(table, named, now))
        table_note_left(table, hash, join_table_taken_until(record));
    const struct join_taken *taken = join_table_taken_of(record);
    struct join_totals *totals = join_shard_totals(table, shard, named->totals);
    if (join_table_taken_is_before(table, record, totals->since))
        return;
    struct join_sample sample = join_taken_sample(taken, taken->value, taken->n_times);
    sample.span_id = (const uint8_t *)&record->head.span_id;
    join_totals_untake(totals, &sample);
    join_totals_add_sample(table, totals, &sample, false);
}

/* Makes a record of timestamps the newest; `ids` says whose they are, and whether they are kept. */
static void join_table_taken_enter(struct join_table *table, struct shard *shard,
                                   const struct record *ids, const struct join_taken *taken,
                                   const uint64_t *times, const uint64_t *values, uint32_t now,
                                   struct join_tally *out)
{
    size_t n = (size_t)taken->n_times + taken->n_values;
    uint32_t size = join_table_record_size_for(sizeof *taken + n * sizeof *times);
    struct record *record = join_table_ring_reserve(table, shard, size, now, out);
    *record = *ids;
    record->size8 = (uint16_t)(size / 8);
    record->seen = now;
    uint8_t *p = br_put_bytes((uint8_t *)(record + 1), taken, sizeof *taken);
    p = br_put_bytes(p, times, taken->n_times * sizeof *times);
    if (taken->n_values)
        (void)br_put_bytes(p, values, taken->n_values * sizeof *values);
    uint64_t hash = join_table_mix(table, ids->head.span_id);
    record->before = join_chain_enter(table, join_table_taken_newest(table, hash), shard,
                                      shard->head - size, table->shard_bits != 0) &
                     PLACE_MASK;
    if (record->kept)
        shard->kept += size;
}

void join_table_take(struct join_table *table, const struct join_sample *sample,
                     const struct join_taken *taken, const uint64_t *times, const uint64_t *values,
                     uint64_t now_ms, struct join_tally *out)
{
    struct record ids = {
        .head.span_id = br_load64(sample->span_id), .taken = true, .has_trace = true};
    struct shard *shard = join_table_shard(table, join_table_mix(table, ids.head.span_id));
    uint32_t now = join_table_tenths(now_ms);
    memcpy(ids.head.trace_id, sample->trace_id, sizeof ids.head.trace_id);
    join_shard_lock(table, shard);
    join_table_taken_enter(table, shard, &ids, taken, times, values, now, out);
    join_shard_unlock(table, shard);
    atomic_store_explicit(&table->taken_at, now ? now : 1, memory_order_relaxed);
}

static void join_table_taken_copy(const struct record *record, struct join_taken_cursor *cursor)
{
    const uint8_t *p = (const uint8_t *)(record + 1);
    memcpy(&cursor->taken, p, sizeof cursor->taken);
    p += sizeof cursor->taken;
    memcpy(cursor->times, p, cursor->taken.n_times * sizeof *cursor->times);
    p += cursor->taken.n_times * sizeof *cursor->times;
    memcpy(cursor->values, p, cursor->taken.n_values * sizeof *cursor->values);
    for (uint32_t i = 0; cursor->taken.of_thread && i < cursor->taken.n_times; i++)
        cursor->times[i] &= ~TAKEN_CLAIMED;
}

/* Before the first: where it is, and what is too old to be the span's. */
static void join_table_taken_begin(const struct join_table *table, const struct shard *shard,
                                   uint64_t hash, uint64_t span_id, const uint8_t *trace_id,
                                   struct join_taken_cursor *cursor)
{
    struct place place =
        join_table_slots_find(shard, join_slots_home(shard, hash), span_id, trace_id);
    const struct record *named = join_table_slots_record(shard, &place);
    cursor->begun = true;
    cursor->position = join_table_taken_position(
        table, shard,
        atomic_load_explicit(&table->taken[hash & table->families_mask], memory_order_relaxed));
    cursor->has_since = named && named->totals;
    if (cursor->has_since)
        cursor->since = join_shard_totals(table, shard, named->totals)->since;
}

bool join_table_taken(struct join_table *table, const uint8_t *trace_id, const uint8_t *span_id,
                      struct join_taken_cursor *cursor)
{
    uint64_t id = br_load64(span_id), hash = join_table_mix(table, id);
    struct shard *shard = join_table_shard(table, hash);
    bool found = false;
    join_shard_lock(table, shard);
    if (!cursor->begun)
        join_table_taken_begin(table, shard, hash, id, trace_id, cursor);
    cursor->steps = 1;
    while (!found && cursor->position >= shard->tail && cursor->position) {
        const struct record *record = join_shard_record(shard, cursor->position);
        cursor->steps++;
        found = record->head.span_id == id && memcmp(record->head.trace_id, trace_id, 16) == 0 &&
                !(cursor->has_since && !join_table_taken_of(record)->of_thread &&
                  join_table_taken_is_before(table, record, cursor->since));
        if (found)
            join_table_taken_copy(record, cursor);
        cursor->found = cursor->position;
        cursor->position = join_table_taken_position(table, shard, record->before);
    }
    join_shard_unlock(table, shard);
    return found;
}

void join_table_claim(struct join_table *table, const uint8_t *span_id,
                      const struct join_taken_cursor *cursor, const uint64_t *spans)
{
    struct shard *shard = join_table_shard(table, join_table_mix(table, br_load64(span_id)));
    join_shard_lock(table, shard);
    if (cursor->found >= shard->tail) {
        struct join_taken *taken =
            (struct join_taken *)(void *)(join_shard_record(shard, cursor->found) + 1);
        uint64_t *times = (uint64_t *)(void *)(taken + 1);
        for (uint32_t i = 0; i < cursor->taken.n_times; i++)
            times[i] |= spans[i] ? TAKEN_CLAIMED : 0;
    }
    join_shard_unlock(table, shard);
}

/* --- Timestamps that wait for longer --- */

#define LAST_STEPS 64u       /* of a chain, that are looked at for a thread's newest */
#define STEPS_PER_EXPIRED 8u /* that take as long as one record that leaves */

/* Whether samples of the record's thread keep coming; `*ret_last` is when one came last. */
static bool join_table_taken_lasts(const struct join_table *table, const struct shard *shard,
                                   const struct record *record, uint32_t now, uint32_t *ret_last,
                                   unsigned *ret_steps)
{
    uint64_t hash = join_table_mix(table, record->head.span_id), position;
    uint64_t place =
        atomic_load_explicit(&table->taken[hash & table->families_mask], memory_order_relaxed);
    for (*ret_steps = 0; *ret_steps < LAST_STEPS; ++*ret_steps) {
        position = join_table_taken_position(table, shard, place);
        if (!position || position < shard->tail)
            return false;
        const struct record *newest = join_shard_record(shard, position);
        if (newest->head.span_id == record->head.span_id &&
            memcmp(newest->head.trace_id, record->head.trace_id, 16) == 0) {
            *ret_last = newest->kept ? (uint32_t)newest->head.start_ns : newest->seen;
            return join_record_age(*ret_last, now) <= table->window;
        }
        place = newest->before;
    }
    return false;
}

/* Copies what was taken in no span that has come, and returns the latest time of the others. */
static uint64_t join_table_taken_unclaimed(const struct record *record,
                                           struct join_taken_cursor *ret)
{
    const struct join_taken *taken = join_table_taken_of(record);
    const uint64_t *times = (const uint64_t *)(const void *)(taken + 1),
                   *values = times + taken->n_times;
    uint64_t claimed_until_ns = 0;
    uint32_t n = 0;
    ret->taken = *taken;
    for (uint32_t i = 0; i < taken->n_times; i++) {
        uint64_t time_ns = times[i] & ~TAKEN_CLAIMED;
        if (times[i] & TAKEN_CLAIMED) {
            claimed_until_ns = time_ns > claimed_until_ns ? time_ns : claimed_until_ns;
            continue;
        }
        ret->times[n] = time_ns;
        ret->values[n++] = taken->n_values ? values[i] : 0;
    }
    ret->taken.n_times = n;
    ret->taken.n_values = taken->n_values ? n : 0;
    return claimed_until_ns;
}

/* Makes the timestamps at the tail, which are a thread's, the newest where they are to wait for
 * longer: samples of the thread keep coming, so that one of its spans may last. Those of spans that
 * have come leave; and, where there is little room, those that have waited longest. False where all
 * leave. */
static bool table_keep_taken(struct join_table *table, struct shard *shard, uint32_t now,
                             uint32_t *left, struct join_tally *out)
{
    struct record *record = join_shard_record(shard, shard->tail);
    struct join_taken_cursor rest;
    uint32_t last;
    unsigned steps;
    if (!join_table_taken_of(record)->of_thread)
        return false;
    bool lasts = join_table_taken_lasts(table, shard, record, now, &last, &steps);
    *left -= steps / STEPS_PER_EXPIRED < *left ? steps / STEPS_PER_EXPIRED : *left - 1;
    if (!lasts)
        return false;
    uint64_t most = shard->ring_size / JOIN_KEPT_SHARE / (record->kept ? 2 : 1);
    uint64_t kept = shard->kept - (record->kept ? join_record_size(record) : 0);
    uint64_t claimed_until_ns = join_table_taken_unclaimed(record, &rest);
    if (!rest.taken.n_times || kept + join_record_size(record) > most)
        return false;
    struct record ids = *record;
    ids.kept = true;
    ids.head.start_ns = last;
    if (claimed_until_ns)
        table_note_left(table, join_table_mix(table, ids.head.span_id), claimed_until_ns);
    record->dead = true;
    shard->kept = kept;
    join_table_ring_evict(table, shard, now, out);
    join_table_taken_enter(table, shard, &ids, &rest.taken, rest.times, rest.values, now, out);
    return true;
}

bool join_table_any_taken(const struct join_table *table, uint64_t now_ms)
{
    uint32_t at = atomic_load_explicit(&table->taken_at, memory_order_relaxed);
    return at && join_record_age(at, join_table_tenths(now_ms)) <= table->window;
}

bool join_table_totals(struct join_table *table, const uint8_t *trace_id, const uint8_t *span_id,
                       struct join_totals *ret, struct join_top *ret_top)
{
    uint64_t id = br_load64(span_id), hash = join_table_mix(table, id);
    struct shard *shard = join_table_shard(table, hash);
    join_shard_lock(table, shard);
    struct place place = join_table_slots_find(shard, join_slots_home(shard, hash), id, trace_id);
    const struct record *record = join_table_slots_record(shard, &place);
    bool any = record && record->totals;
    if (any) {
        struct join_totals *totals = join_shard_totals(table, shard, record->totals);
        *ret = *totals;
        if (ret_top)
            memcpy(ret_top, join_totals_counters(totals), totals->n_top * sizeof *ret_top);
    }
    join_shard_unlock(table, shard);
    return any;
}

/* Makes the pending record at the tail the newest, so that it does not hold up what came after it.
 */
static void table_renew(struct join_table *table, struct shard *shard, uint32_t now,
                        struct join_tally *out)
{
    const struct record old = *join_shard_record(shard, shard->tail);
    uint64_t hash = join_table_mix(table, old.head.span_id);
    struct place place =
        join_table_slots_find(shard, join_slots_home(shard, hash), old.head.span_id,
                              old.has_trace ? old.head.trace_id : NULL);
    if (join_table_slots_record(shard, &place) != join_shard_record(shard, shard->tail)) {
        join_table_ring_evict(table, shard, now, out); /* nothing leads to it */
        return;
    }
    join_shard_record(shard, shard->tail)->dead = true;
    join_table_ring_evict(table, shard, now, out);
    struct record *record = join_table_ring_reserve(table, shard, join_record_size(&old), now, out);
    *record = old;
    record->head.start_ns = now;
    join_slots_set(place.bucket, (unsigned)place.slot, join_slots_home(shard, hash).tag,
                   shard->head - join_record_size(&old));
    if (place.bucket != join_slots_home(shard, hash).bucket)
        join_slots_set_spilled(join_slots_home(shard, hash).bucket,
                               shard->head - join_record_size(&old));
}

/* Tells the spans above those that leave next, while all of them are there. */
static void table_tell_of_expired(struct join_table *table, uint64_t keep, uint32_t now)
{
    uint32_t left = EXPIRED_AT_ONCE;
    for (unsigned k = 0; k < join_table_n_shards(table); k++) {
        struct shard *shard = &table->shards[k];
        join_shard_lock(table, shard);
        for (uint64_t p = shard->tail; p < shard->head && left > 0; left--) {
            struct record *record = join_shard_record(shard, p);
            if (!record->dead && join_record_age(record->seen, now) <= keep)
                break;
            if (!record->dead && !record->taken && !record->pending && record->totals &&
                !record->told)
                table_tell_above(table, shard, record, now);
            p += join_record_size(record);
        }
        join_shard_unlock(table, shard);
    }
}

bool join_table_expire(struct join_table *table, uint64_t now_ms, struct join_tally *out)
{
    /* An item may be held for a window at most, and then looks again; and a timer may come late. */
    uint64_t keep = 2ull * table->window + 10;
    uint32_t now = join_table_tenths(now_ms), left = EXPIRED_AT_ONCE;
    table_tell_of_expired(table, keep, now);
    for (unsigned k = 0; k < join_table_n_shards(table); k++) {
        struct shard *shard = &table->shards[k];
        join_shard_lock(table, shard);
        for (uint64_t end = shard->head; shard->tail < end && left > 0; left--) {
            const struct record *record = join_shard_record(shard, shard->tail);
            bool fresh = !record->dead && join_record_age(record->seen, now) <= keep;
            if (fresh && record->pending &&
                join_record_age((uint32_t)record->head.start_ns, now) > keep)
                table_renew(table, shard, now, out);
            else if (fresh)
                break;
            else if (record->dead || !record->taken ||
                     !table_keep_taken(table, shard, now, &left, out))
                join_table_ring_evict(table, shard, now, out);
        }
        join_shard_unlock(table, shard);
    }
    return left == 0;
}

struct join_progress *join_table_progress(struct join_table *table)
{
    return &table->progress;
}

void join_table_stats(struct join_table *table, uint64_t now_ms, struct join_stats *ret)
{
    uint32_t oldest = 0, now = join_table_tenths(now_ms), left = EXPIRED_AT_ONCE;
    *ret = (struct join_stats){.max_bytes = table->max_bytes};
    for (unsigned k = 0; k < join_table_n_shards(table); k++) {
        struct shard *shard = &table->shards[k];
        join_shard_lock(table, shard);
        ret->spans += shard->n_spans;
        ret->pending += shard->n_pending;
        ret->bytes += shard->head - shard->tail;
        uint64_t p = shard->tail;
        for (; p < shard->head && join_shard_record(shard, p)->dead && left > 0; left--)
            p += join_record_size(join_shard_record(shard, p));
        if (p < shard->head && join_record_age(join_shard_record(shard, p)->seen, now) > oldest)
            oldest = join_record_age(join_shard_record(shard, p)->seen, now);
        join_shard_unlock(table, shard);
    }
    ret->oldest_ms = (uint64_t)oldest * 100;
}

/* --- Pages ------------------------------------------------------------------------------ */

/* Large pages are made ahead of the records: in another thread, because each may take milliseconds.
 * Where that is late, records lie on small ones. Buckets do not stay on them: each span's is
 * anywhere, and nearly each would wait for the address of its page. */

#define LARGE_PAGE ((uintptr_t)2 << 20)
#define AHEAD_SHARE 4u /* of a ring is how far ahead of its head it has pages */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14; before that nothing is made ahead */
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* since Linux 6.1; before that small pages stay */
#endif

/* How much of the shard's ring should have pages. */
static uint64_t table_pages_wanted(const struct shard *shard)
{
    uint64_t filled = shard->head < shard->ring_size ? shard->head : shard->ring_size;
    uint64_t wanted = filled + shard->ring_size / AHEAD_SHARE;
    wanted += -((uintptr_t)shard->ring + wanted) & (LARGE_PAGE - 1); /* no half ones */
    return wanted < shard->ring_size ? wanted : shard->ring_size;
}

/* The buckets of a shard that has records, and then its ring. */
static bool table_pages_next_of(struct shard *shard, struct join_pages *ret)
{
    uint64_t wanted = table_pages_wanted(shard);
    if (shard->head == shard->tail || shard->paged >= wanted)
        return false;
    if (!shard->has_bucket_pages) {
        shard->has_bucket_pages = true;
        *ret = (struct join_pages){shard->buckets, shard->n_buckets * sizeof *shard->buckets, true};
        return true;
    }
    *ret = (struct join_pages){shard->ring + shard->paged, wanted - shard->paged, false};
    shard->paged = wanted;
    return true;
}

static bool table_pages_next(struct join_table *table, struct join_pages *ret)
{
    bool found = false, all = true;
    if (!table->has_family_pages) {
        size_t len = (size_t)((uint8_t *)table - (uint8_t *)table->families);
        table->has_family_pages = true;
        *ret = (struct join_pages){table->families, len, false};
        return true;
    }
    for (unsigned i = 0; i < join_table_n_shards(table) && !found; i++) {
        struct shard *shard = &table->shards[i];
        join_shard_lock(table, shard);
        found = table_pages_next_of(shard, ret);
        all = all && shard->paged == shard->ring_size;
        join_shard_unlock(table, shard);
    }
    if (!found)
        atomic_store(&table->all_paged, all);
    return found;
}

bool join_table_pages_begin(struct join_table *table, struct join_pages *ret)
{
    if (atomic_load_explicit(&table->all_paged, memory_order_relaxed) ||
        atomic_exchange(&table->is_paging, true))
        return false;
    if (table_pages_next(table, ret))
        return true;
    join_table_pages_end(table);
    return false;
}

void join_table_pages_make(const struct join_pages *pages)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)pages->at;
    uintptr_t begin = at & ~(page - 1), end = (at + pages->len + page - 1) & ~(page - 1);
    (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
    if (pages->at_random) {
        if (end - begin >= LARGE_PAGE)
            end += -end & (LARGE_PAGE - 1); /* what follows is the table's, too */
        (void)madvise((void *)begin, end - begin, MADV_COLLAPSE);
    }
    (void)madvise((void *)begin, end - begin, MADV_POPULATE_WRITE);
}

void join_table_pages_end(struct join_table *table)
{
    atomic_store(&table->is_paging, false);
}

/* --- Life ------------------------------------------------------------------------------- */

static void join_table_shard_init(const struct join_table *table, struct shard *shard,
                                  uint8_t *memory, size_t bytes)
{
    shard->n_buckets = bytes / 16 * SLOTS_SHARE / sizeof(struct bucket) & ~(uint64_t)1;
    size_t slots = shard->n_buckets * sizeof(struct bucket);
    shard->n_totals =
        (uint32_t)(bytes / 16 * (table->n_top ? FIGURES_AND_TOP_SHARE : FIGURES_SHARE) /
                   table->totals_size);
    size_t totals = (shard->n_totals * table->totals_size + 63) & ~(size_t)63;
    pthread_mutex_init(&shard->lock, NULL);
    shard->buckets = (struct bucket *)(void *)memory;
    shard->totals = memory + slots;
    shard->ring = memory + slots + totals;
    /* Behind the ring is room for the header of a record that begins in its last eight bytes. */
    shard->ring_size = (bytes - slots - totals - sizeof(struct record)) & ~(size_t)63;
    shard->head = shard->tail = shard->head_at = shard->tail_at = RESERVED;
    uint64_t fit = shard->ring_size / RECORD_MAX / 4; /* more than one, in the smallest table */
    shard->group = fit < JOIN_GROUP_MAX ? (uint32_t)fit : JOIN_GROUP_MAX;
    shard->sweep_at = RESERVED + SWEEP_BYTES / shard->n_buckets;
}

/* A power of two. */
static size_t table_families_in(size_t max_bytes)
{
    size_t n = 1024;
    while (n * 2 <= max_bytes / BYTES_PER_FAMILY)
        n *= 2;
    return n;
}

/* All of the table counts from the start: what lies in it comes from peers. */
static void table_count_memory(int64_t bytes)
{
    br_mem_count(bytes);
    br_mem_hold(BR_HOLDER_JOIN, bytes);
}

struct join_table *join_table_new(size_t max_bytes, uint64_t window_ms, unsigned n_top,
                                  bool threads, bool shared)
{
    unsigned bits = shared || max_bytes > RING_MAX ? SHARDS_BITS : 0;
    /* From the system and not from the allocator: pages are made when they are first used, or
     * ahead of the records. */
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
    table->taken = (void *)(behind + families);
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
