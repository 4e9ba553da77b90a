/* SPDX-License-Identifier: Apache-2.0 */
/* Spans, and the samples that were taken in them. */
#include "processors/join/table/table.h"

#include <sys/mman.h>

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
#define BYTES_PER_FAMILY 1024u     /* of the table, at least: one head for some five spans */

/* --- Slots ------------------------------------------------------------------------------ */

/* Where a span's record is. */
struct place {
    struct bucket *bucket;
    int slot;      /* -1: there is none */
    int ambiguous; /* there is none because more than one fits; an int, for a byte would be put
                      together with its padding through memory, and waited for */
};

/* A bit for each slot whose tag is `tag`. */
static inline uint32_t join_table_slots_tagged(const struct bucket *bucket, uint16_t tag)
{
    typedef uint16_t eight __attribute__((vector_size(16)));
    eight tags;
    memcpy(&tags, bucket->tags, sizeof tags);
    tags = (eight)(tags == tag);
    uint64_t same[2]; /* any of the first eight? */
    memcpy(same, &tags, sizeof same);
    uint32_t hits = (uint32_t)(bucket->tags[8] == tag) << 8 | (uint32_t)(bucket->tags[9] == tag)
                                                                  << 9;
    if (same[0] | same[1])
        for (unsigned slot = 0; slot < 8; slot++)
            hits |= (uint32_t)(bucket->tags[slot] == tag) << slot;
    return hits;
}

/* True when there is nothing in the slots that join_table_slots_find could find; seldom false for
 * the first time that a span id is seen. */
static inline bool join_table_slots_is_new(const struct shard *shard, struct home home)
{
    for (uint32_t hits = join_table_slots_tagged(home.bucket, home.tag); hits; hits &= hits - 1)
        if (slots_live(shard, home.bucket, (unsigned)__builtin_ctz(hits)))
            return false;
    return !slots_has_spilled(shard, home.bucket);
}

static inline struct record *join_table_slots_record(const struct shard *shard,
                                                     const struct place *place)
{
    return place->slot < 0 ? NULL : slots_record_in(shard, place->bucket, (unsigned)place->slot);
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
    for (uint32_t hits = join_table_slots_tagged(bucket, tag); hits; hits &= hits - 1) {
        int slot = __builtin_ctz(hits);
        if (!slots_live(shard, bucket, (unsigned)slot))
            continue;
        enum match m = join_table_slots_match(slots_record_in(shard, bucket, (unsigned)slot),
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
        (slots_has_spilled(shard, bucket) &&
         join_table_slots_find_in(shard, slots_neighbour(shard, bucket), home.tag, span_id,
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
    for (unsigned n = 0; n < WAYS && slots_live(shard, bucket, slot); n++)
        slot = slot + 1 < WAYS ? slot + 1 : 0;
    return slot;
}

/* As join_table_slots_spare, where the next slot is not free. */
static struct place join_table_slots_spare_among(const struct shard *shard, struct home home)
{
    struct bucket *bucket = home.bucket;
    struct place place = {.bucket = bucket, .slot = (int)join_table_slots_spare_in(shard, bucket)};
    if (slots_live(shard, bucket, (unsigned)place.slot)) {
        struct bucket *other = slots_neighbour(shard, bucket);
        unsigned slot = join_table_slots_spare_in(shard, other);
        if (!slots_live(shard, other, slot))
            place = (struct place){.bucket = other, .slot = (int)slot};
    }
    return place;
}

/* The place for a new record: a free one in its bucket or the neighbour, or that of the oldest. */
static inline struct place join_table_slots_spare(const struct shard *shard, struct home home)
{
    unsigned slot = home.bucket->next;
    return slots_live(shard, home.bucket, slot)
               ? join_table_slots_spare_among(shard, home)
               : (struct place){.bucket = home.bucket, .slot = (int)slot};
}

static inline void join_table_slots_fill(struct home home, const struct place *place,
                                         uint64_t position)
{
    unsigned slot = (unsigned)place->slot;
    place->bucket->next = slot + 1 < WAYS ? (slot + 1) & 15 : 0;
    slots_set(place->bucket, slot, home.tag, position);
    if (place->bucket != home.bucket)
        slots_set_spilled(home.bucket, position);
}

/* Of a bucket, what records that have left were entered as must not look like newer ones when
 * positions come round. */
static void join_table_slots_sweep(const struct shard *shard, struct bucket *bucket)
{
    for (unsigned slot = 0; slot < WAYS; slot++)
        if (!slots_live(shard, bucket, slot))
            slots_clear(shard, bucket, slot);
    if (!slots_has_spilled(shard, bucket))
        slots_set_spilled(bucket, shard->tail - SPILLED_UNIT);
}

/* --- The ring --------------------------------------------------------------------------- */

/* Counts a record that leaves, and gives its totals back. */
static _Atomic uint64_t *table_lost_slot(struct join_table *table, uint64_t hash)
{
    return &table->lost[(hash >> 32) % JOIN_LOST_MAX];
}

static void table_note_lost(struct join_table *table, uint64_t span_id)
{
    uint64_t hash = table_mix(table, span_id);
    atomic_store_explicit(table_lost_slot(table, hash), hash, memory_order_relaxed);
}

bool join_table_lost(struct join_table *table, const uint8_t *span_id)
{
    uint64_t hash = table_mix(table, br_load64(span_id));
    return hash && atomic_load_explicit(table_lost_slot(table, hash), memory_order_relaxed) == hash;
}

static void join_table_taken_leave(struct join_table *table, struct shard *shard,
                                   const struct record *record);

static inline void join_table_ring_settle(struct join_table *table, struct shard *shard,
                                          struct record *record, uint32_t now,
                                          struct join_tally *out)
{
    if (__builtin_expect(record->taken, 0)) {
        join_table_taken_leave(table, shard, record);
        return;
    }
    if (record->pending) {
        table_note_lost(table, record->head.span_id);
        shard->n_pending--;
        join_totals_tally(out->unknown, shard_totals(table, shard, record->totals), out);
    } else {
        shard->n_spans--;
        if (!record_expired(table, record, now)) {
            if (record->totals)
                table_note_lost(table, record->head.span_id);
            out->evicted++;
            out->any = true;
        }
    }
    if (record->totals)
        join_record_free_totals(table, shard, record);
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
    shard_forward(shard, &shard->tail, &shard->tail_at, record_size(record));
}

static void join_table_slots_sweep_some(struct shard *shard)
{
    for (; shard->head >= shard->sweep_at; shard->sweep_at += SWEEP_BYTES / shard->n_buckets)
        join_table_slots_sweep(shard, &shard->buckets[shard->swept++ % shard->n_buckets]);
}

/* Room for a record of `size` bytes right behind the head, which is behind it then. The record must
 * be written before the next one is reserved. */
static inline struct record *join_table_ring_reserve(struct join_table *table, struct shard *shard,
                                                     uint32_t size, uint32_t now,
                                                     struct join_tally *out)
{
    if (shard->head >= shard->sweep_at)
        join_table_slots_sweep_some(shard);
    uint32_t pad = shard->head_at + size > shard->ring_size
                       ? (uint32_t)(shard->ring_size - shard->head_at)
                       : 0;
    while (shard->head + pad + size - shard->tail > shard->ring_size)
        join_table_ring_evict(table, shard, now, out);
    if (pad) {
        /* A record does not go round the end: what is left there is a dead one, whose header may
         * reach into the slack behind the ring. */
        *shard_record(shard, shard->head) =
            (struct record){.size8 = (uint16_t)(pad / 8), .dead = true};
        shard_forward(shard, &shard->head, &shard->head_at, pad);
    }
    struct record *record = (struct record *)(void *)(shard->ring + shard->head_at);
    shard_forward(shard, &shard->head, &shard->head_at, size);
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
 * threads. A record is indexed when its span is entered, some records behind the head, so that the
 * lines it needs have come from memory by then.
 */

#define JOIN_INDEX_AHEAD 16u /* records, as long as a line takes to come from memory */

/* A record that is being indexed. */
struct join_coming {
    struct record *record;
    uint64_t position;
    struct bucket *bucket;
    uint32_t family; /* the index of its head */
    uint16_t tag;
    bool in_family;
};

/* Records on their way, in order: so many noted, seen, entered into slots, chained. With a group
 * that was not seen yet they are less than three times the shard's `ahead`, for which its ring has
 * room. */
struct join_indexing {
    struct join_coming coming[4 * JOIN_INDEX_AHEAD];
    uint64_t n_noted, n_seen, n_entered, n_chained;
};

/* Records are noted as they are appended, and indexed on the way: join_table_index_next, at least
 * after each group, sees a group of them, or as many as there are, and enters as many that were
 * seen before; join_table_index_finish enters what was seen. */

/* Records of a group. */
static inline unsigned join_table_index_group(const struct shard *shard)
{
    return shard->ahead > 1 ? shard->ahead / 2 : 1;
}

/* Takes the totals of a span's earlier record: of samples that came first, or of the same span
 * that is sent again. */
static uint32_t join_table_index_take_over(struct join_table *table, struct shard *shard,
                                           struct record *old, const struct record *record,
                                           uint32_t now, struct join_tally *out)
{
    uint32_t index = old->totals;
    if (old->pending && record_expired(table, old, now)) {
        join_table_record_leave(table, shard, old, now, out);
        return 0;
    }
    if (old->pending) {
        struct join_totals *totals = shard_totals(table, shard, index);
        join_totals_tally(out->late, totals, out);
        if (out->on_adopted) {
            const struct join_span span = record_span(record);
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

static inline struct home join_table_index_home(const struct join_coming *coming)
{
    return (struct home){.bucket = coming->bucket, .tag = coming->tag};
}

/* Puts it in the place of an earlier record of the same span; false when there is none. */
__attribute__((noinline)) static bool join_table_index_replace(struct join_table *table,
                                                               struct shard *shard,
                                                               const struct join_coming *coming,
                                                               uint32_t now, struct join_tally *out)
{
    struct record *record = coming->record;
    struct home home = join_table_index_home(coming);
    struct place place = join_table_slots_find(shard, home, record->head.span_id,
                                               record->has_trace ? record->head.trace_id : NULL);
    struct record *old = join_table_slots_record(shard, &place);
    if (!old)
        return false;
    record->totals = join_table_index_take_over(table, shard, old, record, now, out);
    slots_set(place.bucket, (unsigned)place.slot, home.tag, coming->position);
    if (place.bucket != home.bucket)
        slots_set_spilled(home.bucket, coming->position);
    return true;
}

static inline void join_table_index_enter(struct join_table *table, struct shard *shard,
                                          const struct join_coming *coming, uint32_t now,
                                          struct join_tally *out)
{
    struct home home = join_table_index_home(coming);
    if (!join_table_slots_is_new(shard, home) &&
        join_table_index_replace(table, shard, coming, now, out))
        return;
    struct place place = join_table_slots_spare(shard, home);
    if (slots_live(shard, place.bucket, (unsigned)place.slot))
        join_table_record_leave(table, shard, join_table_slots_record(shard, &place), now, out);
    join_table_slots_fill(home, &place, coming->position);
}

/* Makes it the newest of its trace and service, and of its thread. */
static inline void join_table_index_chain(struct join_table *table, struct shard *this_shard,
                                          const struct join_coming *coming)
{
    struct record *record = coming->record;
    uint32_t shard = (uint32_t)(this_shard - table->shards);
    uint64_t before = 0;
    if (coming->in_family)
        before = chain_enter(table, &table->families[coming->family], shard, coming->position);
    record->before = before & PLACE_MASK;
    if (!record->located)
        return;
    struct whereabouts *whereabouts = record_whereabouts(record);
    uint64_t hash = table_thread_hash(table, record->thread, whereabouts->process);
    whereabouts->before =
        chain_enter(table, &table->threads[hash & table->families_mask], shard, coming->position);
}

static inline struct join_coming *join_table_index_coming(struct join_indexing *indexing,
                                                          uint64_t count)
{
    return &indexing->coming[count % (4 * JOIN_INDEX_AHEAD)];
}

/* Chains come several at a time: in a shared table their exchanges wait for everything written
 * before them, and so only the first one has to. */
static void join_table_index_chain_all(struct join_table *table, struct shard *shard,
                                       struct join_indexing *indexing)
{
    while (indexing->n_chained < indexing->n_entered)
        join_table_index_chain(table, shard,
                               join_table_index_coming(indexing, indexing->n_chained++));
}

static inline void join_table_index_enter_next(struct join_table *table, struct shard *shard,
                                               struct join_indexing *indexing, uint32_t now,
                                               struct join_tally *out)
{
    join_table_index_enter(table, shard, join_table_index_coming(indexing, indexing->n_entered++),
                           now, out);
    if (indexing->n_entered - indexing->n_chained >= shard->ahead)
        join_table_index_chain_all(table, shard, indexing);
}

/* Notes the record that was appended last. */
static inline void join_table_index_note(struct join_indexing *indexing, struct record *record,
                                         uint64_t position)
{
    struct join_coming *coming = join_table_index_coming(indexing, indexing->n_noted++);
    coming->record = record;
    coming->position = position;
}

/* `last`: the record before it, most likely of the same trace; or NULL. */
static inline void join_table_index_find_family(const struct join_table *table,
                                                const struct join_coming *last,
                                                struct join_coming *coming)
{
    const struct record *record = coming->record;
    coming->in_family = record->before && record->has_trace;
    if (last && memcmp(last->record->head.trace_id, record->head.trace_id, 16) == 0 &&
        last->record->before == record->before)
        coming->family = last->family;
    else
        coming->family =
            (uint32_t)(table_family_hash(table, record->head.trace_id, record->before) &
                       table->families_mask);
    __builtin_prefetch(&table->families[coming->family], 1);
}

/* Lines that will be touched are brought on the way, those of slots at once: an address that must
 * be looked up in page tables holds up what comes behind it, and so do several no longer. */
static void join_table_index_next(struct join_table *table, struct shard *shard,
                                  struct join_indexing *indexing, uint32_t now,
                                  struct join_tally *out)
{
    uint64_t first = indexing->n_seen, end = first + join_table_index_group(shard);
    end = end < indexing->n_noted ? end : indexing->n_noted;
    for (uint64_t n = first; n < end; n++) {
        struct join_coming *coming = join_table_index_coming(indexing, n);
        struct home home = slots_home(shard, table_mix(table, coming->record->head.span_id));
        __builtin_prefetch(home.bucket, 1);
        coming->bucket = home.bucket;
        coming->tag = home.tag;
    }
    for (uint64_t n = first; n < end; n++)
        join_table_index_find_family(table, n ? join_table_index_coming(indexing, n - 1) : NULL,
                                     join_table_index_coming(indexing, n));
    indexing->n_seen = end;
    while (indexing->n_seen - indexing->n_entered > shard->ahead)
        join_table_index_enter_next(table, shard, indexing, now, out);
}

static void join_table_index_finish(struct join_table *table, struct shard *shard,
                                    struct join_indexing *indexing, uint32_t now,
                                    struct join_tally *out)
{
    while (indexing->n_entered < indexing->n_seen)
        join_table_index_enter_next(table, shard, indexing, now, out);
    join_table_index_chain_all(table, shard, indexing);
}

static void join_table_index_begin(struct join_indexing *indexing)
{
    indexing->n_noted = indexing->n_seen = indexing->n_entered = indexing->n_chained = 0;
}

/* --- Spans ------------------------------------------------------------------------------ */

static size_t join_table_entry_name_len(const struct br_span *span)
{
    size_t len = span->name_len;
    return len <= JOIN_VALUE_MAX ? len : br_utf8_valid(span->name, JOIN_VALUE_MAX);
}

static bool join_table_entry_is_located(const struct join_table *table,
                                        const struct join_entry *entry)
{
    return table->threads && br_span_has_trace(&entry->span->head) && entry->extra &&
           entry->extra->thread && entry->origin->where &&
           entry->origin->where->hashes[JOIN_PROCESS];
}

/* As br_put_bytes, in line for what names are long: the middle is copied twice. */
static inline uint8_t *join_table_record_put_text(uint8_t *p, const uint8_t *text, size_t len)
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

/* Word by word: a whole struct would be made elsewhere first, and fields of a word one by one would
 * wait for what lies there, and for each other. */
static inline void join_table_record_write(struct record *record, const struct join_entry *entry,
                                           const struct shape *shape, uint32_t seen)
{
    static const struct join_extra none;
    const struct br_span *span = entry->span;
    const struct join_origin *origin = entry->origin;
    const struct join_extra *extra = entry->extra ? entry->extra : &none;
    record->head = span->head;
    record->thread = extra->thread;
    record->thread_name = extra->thread_name;
    record->totals = 0;
    record->seen = seen;
    record->words[0] =
        (origin->service_hash & SERVICE_MASK) | (uint64_t)(shape->size / 8 & UINT16_MAX) << 48;
    record->words[1] = (extra->attributes_len & UINT16_MAX) | (uint64_t)shape->name_len << 16 |
                       (uint64_t)(origin->service_len & UINT8_MAX) << 24 |
                       (uint64_t)span->kind << 32 | (uint64_t)span->status << 40 |
                       (uint64_t)br_span_has_trace(&span->head) << 49 |
                       (uint64_t)shape->located << 51;
    uint8_t *text = (uint8_t *)(record + 1);
    text = join_table_record_put_text(text, span->name, shape->name_len);
    text = join_table_record_put_text(text, origin->service, origin->service_len);
    if (extra->attributes_len)
        (void)br_put_bytes(text, extra->attributes, extra->attributes_len);
    if (shape->located)
        *record_whereabouts(record) =
            (struct whereabouts){.process = origin->where->hashes[JOIN_PROCESS],
                                 .host = origin->where->hashes[JOIN_HOST],
                                 .container = origin->where->hashes[JOIN_CONTAINER],
                                 .service = origin->where->hashes[JOIN_SERVICE],
                                 .runtime = origin->where->hashes[JOIN_RUNTIME]};
}

static inline void table_append(struct join_table *table, struct shard *shard,
                                const struct join_entry *entry, struct join_indexing *indexing,
                                uint32_t now, struct join_tally *out)
{
    struct shape shape = {.name_len = (uint8_t)join_table_entry_name_len(entry->span),
                          .located = join_table_entry_is_located(table, entry)};
    shape.size = join_table_record_size_for(shape.name_len + entry->origin->service_len +
                                            (entry->extra ? entry->extra->attributes_len : 0)) +
                 (shape.located ? (uint32_t)sizeof(struct whereabouts) : 0);
    struct record *record = join_table_ring_reserve(table, shard, shape.size, now, out);
    join_table_index_note(indexing, record, shard->head - shape.size);
    join_table_record_write(record, entry, &shape, now);
    shard->n_spans++;
}

#define WARM_BYTES 2048u /* so far behind the head */
#define WARM_SPANS 4u

/* Brings on the way what a record overwrites soon, in a full ring what leaves for it; and what a
 * span to come has. */
static inline void join_table_ring_warm(const struct shard *shard, const struct join_entry *soon)
{
    const uint8_t *p = shard->ring + shard->head_at + WARM_BYTES; /* or a little behind the ring */
    __builtin_prefetch(p, 1);
    __builtin_prefetch(p + 64, 1);
    __builtin_prefetch(soon->span);
    __builtin_prefetch(soon->span->name);
}

/* The entries that `order` names, or as they come; of one shard. */
static inline void table_enter_in(struct join_table *table, struct shard *shard,
                                  const struct join_entry *entries, const uint16_t *order,
                                  unsigned count, uint32_t now, struct join_tally *out)
{
    unsigned group = join_table_index_group(shard), left = group;
    struct join_indexing indexing;
    join_table_index_begin(&indexing);
    for (unsigned i = 0; i < count; i++) {
        unsigned soon = i + WARM_SPANS < count ? i + WARM_SPANS : i;
        join_table_ring_warm(shard, &entries[order ? order[soon] : soon]);
        table_append(table, shard, &entries[order ? order[i] : i], &indexing, now, out);
        if (--left)
            continue;
        join_table_index_next(table, shard, &indexing, now, out);
        left = group;
    }
    while (indexing.n_seen < indexing.n_noted)
        join_table_index_next(table, shard, &indexing, now, out);
    join_table_index_finish(table, shard, &indexing, now, out);
}

#define AT_ONCE 256u

/* Up to AT_ONCE entries, of all shards, sorted by shard, so that each lock is taken once. */
static void table_enter_sorted(struct join_table *table, const struct join_entry *entries,
                               unsigned count, uint32_t now, struct join_tally *out)
{
    uint8_t shards[AT_ONCE];
    uint16_t order[AT_ONCE], first[SHARDS + 1] = {0}, next[SHARDS];
    for (unsigned i = 0; i < count; i++) {
        shards[i] = table_mix(table, entries[i].span->head.span_id) & (SHARDS - 1);
        first[shards[i] + 1]++;
    }
    for (unsigned k = 1; k <= SHARDS; k++)
        first[k] = (uint16_t)(first[k] + first[k - 1]);
    memcpy(next, first, sizeof next);
    for (unsigned i = 0; i < count; i++)
        order[next[shards[i]]++] = (uint16_t)i;
    for (unsigned k = 0; k < SHARDS; k++) {
        struct shard *shard = &table->shards[k];
        if (first[k] == first[k + 1])
            continue;
        shard_lock(table, shard);
        table_enter_in(table, shard, entries, order + first[k], first[k + 1] - first[k], now, out);
        shard_unlock(table, shard);
    }
}

void join_table_enter(struct join_table *table, const struct join_entry *entries, size_t count,
                      uint64_t now_ms, struct join_tally *out)
{
    uint32_t now = table_tenths(now_ms);
    for (size_t i = 0; i < count; i += AT_ONCE) {
        unsigned some = (unsigned)(count - i < AT_ONCE ? count - i : AT_ONCE);
        if (table->shard_bits)
            table_enter_sorted(table, entries + i, some, now, out);
        else
            table_enter_in(table, &table->shards[0], entries + i, NULL, some, now, out);
    }
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
    if (!shard_has_totals(shard))
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
    if (slots_live(shard, place.bucket, (unsigned)place.slot)) {
        /* Spans are worth more than samples without one. */
        record->dead = true;
        return false;
    }
    if (sample->trace_id)
        memcpy(record->head.trace_id, sample->trace_id, 16);
    join_totals_add_sample(table, join_record_totals(table, shard, record, true), sample,
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
    struct join_totals *totals = record ? join_record_totals(table, shard, record, true) : NULL;
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
        table_note_lost(table, br_load64(sample->span_id));
}

enum join_result join_table_sample(struct join_table *table, const struct join_sample *sample,
                                   bool add, uint64_t now_ms, join_found_fn *found, void *arg,
                                   struct join_tally *out)
{
    uint64_t span_id = br_load64(sample->span_id), hash = table_mix(table, span_id);
    struct shard *shard = table_shard(table, hash);
    struct home home = slots_home(shard, hash);
    enum join_result result = JOIN_UNKNOWN;
    uint32_t now = table_tenths(now_ms);
    shard_lock(table, shard);
    struct place place = join_table_slots_find(shard, home, span_id, sample->trace_id);
    struct record *record = join_table_slots_record(shard, &place);
    if (record && record->pending && record_expired(table, record, now)) {
        join_table_record_leave(table, shard, record, now, out);
        slots_clear(shard, place.bucket, (unsigned)place.slot);
        place.slot = -1;
    } else if (record && !record->pending) {
        result = record_expired(table, record, now) ? JOIN_TOO_LATE : JOIN_FOUND;
    }
    if (result == JOIN_FOUND) {
        const struct join_span span = record_span(record);
        found(arg, &span);
    }
    if (add && result != JOIN_TOO_LATE)
        table_remember(table, shard, home, &place, sample, now, out);
    shard_unlock(table, shard);
    return result;
}

void join_table_find(struct join_table *table, const uint8_t *trace_id, const uint8_t *span_id,
                     join_found_fn *found, void *arg)
{
    uint64_t id = br_load64(span_id), hash = table_mix(table, id);
    struct shard *shard = table_shard(table, hash);
    shard_lock(table, shard);
    struct place place = join_table_slots_find(shard, slots_home(shard, hash), id, trace_id);
    const struct record *record = join_table_slots_record(shard, &place);
    if (record && !record->pending) {
        const struct join_span span = record_span(record);
        found(arg, &span);
    }
    shard_unlock(table, shard);
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
    return shard_whole(shard, place >> table->shard_bits, 48 - table->shard_bits);
}

/* What leaves before its span was asked for is the span's that the sample names. */
static void join_table_taken_leave(struct join_table *table, struct shard *shard,
                                   const struct record *record)
{
    const uint64_t hash = table_mix(table, record->head.span_id);
    struct place place = join_table_slots_find(shard, slots_home(shard, hash), record->head.span_id,
                                               record->head.trace_id);
    struct record *named = join_table_slots_record(shard, &place);
    if (!named || !named->totals)
        return;
    const struct join_taken *taken = join_table_taken_of(record);
    struct join_totals *totals = shard_totals(table, shard, named->totals);
    struct join_sample sample = join_taken_sample(taken, taken->value, taken->n_times);
    sample.span_id = (const uint8_t *)&record->head.span_id;
    join_totals_untake(totals, &sample);
    join_totals_add_sample(table, totals, &sample, false);
}

void join_table_take(struct join_table *table, const struct join_sample *sample,
                     const struct join_taken *taken, const uint64_t *times, const uint64_t *values,
                     uint64_t now_ms, struct join_tally *out)
{
    uint64_t span_id = br_load64(sample->span_id), hash = table_mix(table, span_id);
    struct shard *shard = table_shard(table, hash);
    uint32_t now = table_tenths(now_ms);
    size_t n = (size_t)taken->n_times + taken->n_values;
    uint32_t size = join_table_record_size_for(sizeof *taken + n * sizeof *times);
    shard_lock(table, shard);
    struct record *record = join_table_ring_reserve(table, shard, size, now, out);
    *record = (struct record){.size8 = (uint16_t)(size / 8),
                              .head.span_id = span_id,
                              .seen = now,
                              .taken = true,
                              .has_trace = true};
    memcpy(record->head.trace_id, sample->trace_id, sizeof record->head.trace_id);
    uint8_t *p = br_put_bytes((uint8_t *)(record + 1), taken, sizeof *taken);
    p = br_put_bytes(p, times, taken->n_times * sizeof *times);
    if (taken->n_values)
        (void)br_put_bytes(p, values, taken->n_values * sizeof *values);
    record->before = chain_enter(table, join_table_taken_newest(table, hash),
                                 (uint32_t)(shard - table->shards), shard->head - size) &
                     PLACE_MASK;
    shard_unlock(table, shard);
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
}

bool join_table_taken(struct join_table *table, const uint8_t *trace_id, const uint8_t *span_id,
                      struct join_taken_cursor *cursor)
{
    uint64_t id = br_load64(span_id), hash = table_mix(table, id);
    struct shard *shard = table_shard(table, hash);
    bool found = false;
    shard_lock(table, shard);
    if (!cursor->begun)
        cursor->position = join_table_taken_position(
            table, shard,
            atomic_load_explicit(join_table_taken_newest(table, hash), memory_order_relaxed));
    cursor->begun = true;
    cursor->steps = 1;
    while (!found && cursor->position >= shard->tail && cursor->position) {
        const struct record *record = shard_record(shard, cursor->position);
        cursor->steps++;
        found = record->head.span_id == id && memcmp(record->head.trace_id, trace_id, 16) == 0;
        if (found)
            join_table_taken_copy(record, cursor);
        cursor->position = join_table_taken_position(table, shard, record->before);
    }
    shard_unlock(table, shard);
    return found;
}

bool join_table_any_taken(const struct join_table *table, uint64_t now_ms)
{
    uint32_t at = atomic_load_explicit(&table->taken_at, memory_order_relaxed);
    return at && record_age(at, table_tenths(now_ms)) <= table->window;
}

bool join_table_totals(struct join_table *table, const uint8_t *trace_id, const uint8_t *span_id,
                       struct join_totals *ret, struct join_top *ret_top)
{
    uint64_t id = br_load64(span_id), hash = table_mix(table, id);
    struct shard *shard = table_shard(table, hash);
    shard_lock(table, shard);
    struct place place = join_table_slots_find(shard, slots_home(shard, hash), id, trace_id);
    const struct record *record = join_table_slots_record(shard, &place);
    bool any = record && record->totals;
    if (any) {
        struct join_totals *totals = shard_totals(table, shard, record->totals);
        *ret = *totals;
        if (ret_top)
            memcpy(ret_top, totals_top(totals), totals->n_top * sizeof *ret_top);
    }
    shard_unlock(table, shard);
    return any;
}

/* Makes the pending record at the tail the newest, so that it does not hold up what came after it.
 */
static void table_renew(struct join_table *table, struct shard *shard, uint32_t now,
                        struct join_tally *out)
{
    const struct record old = *shard_record(shard, shard->tail);
    uint64_t hash = table_mix(table, old.head.span_id);
    struct place place = join_table_slots_find(shard, slots_home(shard, hash), old.head.span_id,
                                               old.has_trace ? old.head.trace_id : NULL);
    if (join_table_slots_record(shard, &place) != shard_record(shard, shard->tail)) {
        join_table_ring_evict(table, shard, now, out); /* nothing leads to it */
        return;
    }
    shard_record(shard, shard->tail)->dead = true;
    join_table_ring_evict(table, shard, now, out);
    struct record *record = join_table_ring_reserve(table, shard, record_size(&old), now, out);
    *record = old;
    record->head.start_ns = now;
    slots_set(place.bucket, (unsigned)place.slot, slots_home(shard, hash).tag,
              shard->head - record_size(&old));
    if (place.bucket != slots_home(shard, hash).bucket)
        slots_set_spilled(slots_home(shard, hash).bucket, shard->head - record_size(&old));
}

void join_table_expire(struct join_table *table, uint64_t now_ms, struct join_tally *out)
{
    /* An item may be held for a window at most, and then looks again; and a timer may come late. */
    uint64_t keep = 2ull * table->window + 10;
    uint32_t now = table_tenths(now_ms);
    for (unsigned k = 0; k < table_n_shards(table); k++) {
        struct shard *shard = &table->shards[k];
        shard_lock(table, shard);
        for (uint64_t end = shard->head; shard->tail < end;) {
            const struct record *record = shard_record(shard, shard->tail);
            bool fresh = !record->dead && record_age(record->seen, now) <= keep;
            if (fresh && record->pending && record_age((uint32_t)record->head.start_ns, now) > keep)
                table_renew(table, shard, now, out);
            else if (fresh)
                break;
            else
                join_table_ring_evict(table, shard, now, out);
        }
        shard_unlock(table, shard);
    }
}

struct join_progress *join_table_progress(struct join_table *table)
{
    return &table->progress;
}

void join_table_stats(struct join_table *table, uint64_t now_ms, struct join_stats *ret)
{
    uint32_t oldest = 0, now = table_tenths(now_ms);
    *ret = (struct join_stats){.max_bytes = table->max_bytes};
    for (unsigned k = 0; k < table_n_shards(table); k++) {
        struct shard *shard = &table->shards[k];
        shard_lock(table, shard);
        ret->spans += shard->n_spans;
        ret->pending += shard->n_pending;
        ret->bytes += shard->head - shard->tail;
        uint64_t p = shard->tail;
        while (p < shard->head && shard_record(shard, p)->dead)
            p += record_size(shard_record(shard, p));
        if (p < shard->head && record_age(shard_record(shard, p)->seen, now) > oldest)
            oldest = record_age(shard_record(shard, p)->seen, now);
        shard_unlock(table, shard);
    }
    ret->oldest_ms = (uint64_t)oldest * 100;
}

/* --- Families and threads --------------------------------------------------------------- */

/*
 * Families: the spans of one trace and one service, found from any of them. They lie in all shards,
 * so each record names the one entered before it with the same hash, and `families` has the newest
 * for each hash: eight bytes that one exchange sets. Nothing is taken out when a record leaves its
 * ring: who follows the chain stops at the first place that is not in its ring any more, for what
 * lies behind is older. Other families of the same hash are passed over; steps are bounded.
 */

#define STEPS_PER_RELATIVE 4u

/* Goes back from the newest; one lock is held at a time. */
struct walk {
    struct join_table *table;
    struct shard *locked;
    uint64_t place; /* of the next */
};

static void join_table_chain_begin(struct walk *walk, struct join_table *table,
                                   const _Atomic uint64_t *newest)
{
    *walk =
        (struct walk){.table = table, .place = atomic_load_explicit(newest, memory_order_acquire)};
}

/* The next record, under its lock until the next call; NULL behind the last. */
static const struct record *join_table_chain_next(struct walk *walk)
{
    struct shard *shard = &walk->table->shards[walk->place & (table_n_shards(walk->table) - 1)];
    if (walk->locked && (!walk->place || shard != walk->locked)) {
        shard_unlock(walk->table, walk->locked);
        walk->locked = NULL;
    }
    if (!walk->place)
        return NULL;
    if (!walk->locked)
        shard_lock(walk->table, shard);
    walk->locked = shard;
    uint64_t position =
        shard_whole(shard, walk->place >> walk->table->shard_bits, 48 - walk->table->shard_bits);
    return position >= shard->tail ? shard_record(shard, position) : NULL;
}

static void join_table_chain_end(struct walk *walk)
{
    if (walk->locked)
        shard_unlock(walk->table, walk->locked);
}

static bool join_table_record_is_of(const struct record *record, const uint8_t *trace_id,
                                    const uint8_t *service, size_t service_len)
{
    return !record->dead && record->has_trace && record->service_len == service_len &&
           memcmp(record->head.trace_id, trace_id, 16) == 0 &&
           memcmp((const uint8_t *)(record + 1) + record->name_len, service, service_len) == 0;
}

static bool join_table_record_has_taken(const struct join_table *table, const struct shard *shard,
                                        const struct record *record)
{
    return record->totals && shard_totals(table, shard, record->totals)->taken;
}

static struct join_relative join_table_record_relative(const struct join_table *table,
                                                       const struct shard *shard,
                                                       const struct record *record)
{
    return (struct join_relative){.span_id = record->head.span_id,
                                  .parent_id = record->head.parent_id,
                                  .start_ns = record->head.start_ns,
                                  .end_ns = record->head.end_ns,
                                  .thread = record->thread,
                                  .thread_name = record->thread_name,
                                  .kind = record->kind,
                                  .totals = record->totals != 0,
                                  .taken = join_table_record_has_taken(table, shard, record)};
}

unsigned join_table_family(struct join_table *table, const uint8_t *trace_id,
                           const uint8_t *service, size_t service_len, uint64_t service_hash,
                           struct join_relative *out, unsigned max, struct join_looked *ret)
{
    uint64_t hash = table_family_hash(table, trace_id, service_hash & SERVICE_MASK);
    const struct record *record;
    struct walk walk;
    unsigned n = 0, step = 0;
    join_table_chain_begin(&walk, table, &table->families[hash & table->families_mask]);
    for (; (record = join_table_chain_next(&walk)) && step < STEPS_PER_RELATIVE * max; step++) {
        bool ours = join_table_record_is_of(record, trace_id, service, service_len);
        if (ours && n == max)
            break;
        if (ours)
            out[n++] = join_table_record_relative(table, walk.locked, record);
        walk.place = record->before;
    }
    join_table_chain_end(&walk);
    *ret = (struct join_looked){record != NULL, step};
    return n;
}

static struct join_neighbour join_table_record_neighbour(const struct record *record,
                                                         const struct whereabouts *whereabouts)
{
    struct join_neighbour neighbour = {.span_id = record->head.span_id,
                                       .parent_id = record->head.parent_id,
                                       .start_ns = record->head.start_ns,
                                       .end_ns = record->head.end_ns,
                                       .host = whereabouts->host,
                                       .container = whereabouts->container,
                                       .service = whereabouts->service,
                                       .thread_name = record->thread_name,
                                       .runtime = whereabouts->runtime};
    memcpy(neighbour.trace_id, record->head.trace_id, sizeof neighbour.trace_id);
    return neighbour;
}

unsigned join_table_neighbours(struct join_table *table, uint32_t thread, uint32_t process,
                               struct join_neighbour *out, struct join_looked *ret)
{
    uint64_t hash = table_thread_hash(table, thread, process);
    const struct record *record = NULL;
    struct walk walk;
    unsigned n = 0, step = 0;
    join_table_chain_begin(&walk, table, &table->threads[hash & table->families_mask]);
    while (step < 2 * JOIN_NEIGHBOURS_MAX && n < JOIN_NEIGHBOURS_MAX &&
           (record = join_table_chain_next(&walk))) {
        const struct whereabouts *whereabouts = record_whereabouts(record);
        if (!record->dead && record->has_trace && record->thread == thread &&
            whereabouts->process == process)
            out[n++] = join_table_record_neighbour(record, whereabouts);
        walk.place = whereabouts->before;
        step++;
    }
    join_table_chain_end(&walk);
    *ret = (struct join_looked){record != NULL, step};
    return n;
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
    shard->ahead = fit < JOIN_INDEX_AHEAD ? (uint32_t)fit : JOIN_INDEX_AHEAD;
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
    /* From the system and not from the allocator: pages are made when they are first used, and
     * large ones spare a twentieth of the time. */
    size_t n_families = table_families_in(max_bytes), families = n_families * sizeof(uint64_t);
    size_t heads = families * (threads ? 3 : 2);
    size_t each = ((max_bytes - heads) >> bits) & ~(size_t)127;
    size_t own = (sizeof(struct join_table) + 127) & ~(size_t)127;
    size_t all = each << bits, len = all + heads + own;
    void *memory =
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    (void)madvise(memory, all + heads, MADV_HUGEPAGE);
    table_count_memory((int64_t)len);
    uint8_t *behind = (uint8_t *)memory + all;
    struct join_table *table = (void *)(behind + heads);
    table->memory = memory;
    table->memory_len = len;
    table->n_top = n_top <= JOIN_TOP_MAX ? n_top : JOIN_TOP_MAX;
    table->totals_size = sizeof(struct join_totals) + table->n_top * sizeof(struct join_top);
    table->families = (void *)behind;
    table->families_mask = n_families - 1;
    table->taken = (void *)(behind + families);
    table->threads = threads ? (void *)(behind + 2 * families) : NULL;
    table->shard_bits = bits;
    for (unsigned i = 0; i < table_n_shards(table); i++)
        join_table_shard_init(table, &table->shards[i], (uint8_t *)memory + i * each, each);
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
    for (unsigned i = 0; i < table_n_shards(table); i++)
        pthread_mutex_destroy(&table->shards[i].lock);
    join_names_release(table);
    table_count_memory(-(int64_t)table->memory_len);
    (void)munmap(table->memory, table->memory_len);
}
