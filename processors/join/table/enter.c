/* SPDX-License-Identifier: Apache-2.0 */
/* Entering spans in the join's table. */
#include <stddef.h>

#include "base/str.h"
#include "processors/join/table/ring.h"
#include "processors/join/table/slots.h"

#define IN_LINE static inline __attribute__((always_inline)) /* for each kind of table */

/* --- The index -------------------------------------------------------------------------- */

/*
 * What leads to the records of the join's table: slots by span id, and chains of families and
 * threads. Spans are entered in groups. Of each group the lines that it needs are asked for while
 * the group before it is entered, so that they have come from memory by then.
 */

/* A span that will be entered, and where. */
struct join_prepared {
    const struct br_span *span;
    const struct join_origin *origin;
    struct home home;
    _Atomic uint64_t *family; /* its head; NULL: the span is in none */
    uint64_t word;            /* record.words[1], without kind and status */
    uint32_t size;            /* of its record */
};

/* Those of one shard: the ones that `order` names, or all. */
struct join_batch {
    const struct join_entries *entries;
    const struct br_span *spans;
    const uint16_t *order; /* places in `spans`; or NULL */
    size_t next, end;
    bool has_extra; /* records may have attributes or whereabouts */
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
    struct join_prepared *end;
    struct join_prepared spans[JOIN_GROUP_MAX];
};

/* Takes the totals of a span's earlier record: of samples that came first, or of the same span
 * that is sent again. */
static uint32_t enter_take_over(struct join_table *table, struct shard *shard, struct record *old,
                                const struct record *record, uint32_t now, struct join_tally *out)
{
    uint32_t index = old->totals;
    if (old->pending && join_record_expired(table, old, now)) {
        join_record_evict(table, shard, old, now, out);
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
__attribute__((noinline)) static bool enter_replace(struct join_table *table, struct shard *shard,
                                                    struct home home, struct record *record,
                                                    uint64_t position, uint32_t now,
                                                    struct join_tally *out)
{
    struct place place = join_slots_find(shard, home, record->head.span_id,
                                         record->has_trace ? record->head.trace_id : NULL);
    struct record *old = join_slots_record(shard, &place);
    if (!old)
        return false;
    record->totals = enter_take_over(table, shard, old, record, now, out);
    join_slots_set(place.bucket, (unsigned)place.slot, home.tag, position);
    if (place.bucket != home.bucket)
        join_slots_set_spilled(home.bucket, position);
    return true;
}

/* Puts it in the place of an earlier record of the same span, else into a free slot, else into that
 * of the oldest, which leaves. */
__attribute__((noinline)) static void enter_search(struct join_table *table, struct shard *shard,
                                                   struct home home, struct record *record,
                                                   uint64_t position, uint32_t now,
                                                   struct join_tally *out)
{
    if (!join_slots_is_new(shard, home) &&
        enter_replace(table, shard, home, record, position, now, out))
        return;
    struct place place = join_slots_spare(shard, home);
    if (join_slots_live(shard, place.bucket, (unsigned)place.slot))
        join_record_evict(table, shard, join_slots_record(shard, &place), now, out);
    join_slots_fill(home, &place, position);
}

/* How far a ring reaches back from its head: the same while a group is entered. */
struct ring_extent {
    uint32_t head, used;                 /* in the units of slots */
    uint32_t spilled_head, spilled_used; /* in those of bucket.spilled */
};

static inline struct ring_extent enter_extent(const struct shard *shard)
{
    return (struct ring_extent){
        .head = (uint32_t)(shard->head / 8),
        .used = (uint32_t)((shard->head - shard->tail) / 8),
        .spilled_head = (uint32_t)(shard->head / SPILLED_UNIT),
        .spilled_used = (uint32_t)(shard->head / SPILLED_UNIT - shard->tail / SPILLED_UNIT)};
}

/* True when the id is new, and the next slot is free: as it is for nearly every span. */
IN_LINE bool enter_slot_is_free(const struct ring_extent *ring_extent, struct home home,
                                uint32_t word)
{
    uint32_t back = (ring_extent->spilled_head - word) & SPILLED_MASK;
    return !join_slots_any_tagged(home.bucket, home.tag) && back > ring_extent->spilled_used &&
           ring_extent->head - home.bucket->positions[word >> SPILLED_BITS] > ring_extent->used;
}

IN_LINE void enter_index(struct join_table *table, struct shard *shard,
                         const struct ring_extent *ring_extent, struct home home,
                         struct record *record, uint64_t position, uint32_t now,
                         struct join_tally *out)
{
    uint32_t word = home.bucket->word, slot = word >> SPILLED_BITS;
    if (__builtin_expect(!enter_slot_is_free(ring_extent, home, word), 0)) {
        enter_search(table, shard, home, record, position, now, out);
        return;
    }
    home.bucket->word = slot + 1 < WAYS ? word + (1u << SPILLED_BITS) : word & SPILLED_MASK;
    join_slots_set(home.bucket, slot, home.tag, position);
}

/* Makes it the newest of its trace and service, and of its thread. */
IN_LINE void enter_chain(struct join_table *table, const struct shard *shard,
                         const struct join_prepared *prepared, struct record *record,
                         uint64_t position, bool shared)
{
    if (prepared->family)
        record->words[0] |= join_chain_enter(table, prepared->family, shard, position, shared);
    if (__builtin_expect(!record->located, 1))
        return;
    join_related_enter(table, shard, record, position);
}

/* --- Spans ------------------------------------------------------------------------------ */

static size_t enter_name_len(const struct br_span *span)
{
    size_t len = span->name_len;
    return __builtin_expect(len <= JOIN_VALUE_MAX, 1) ? len
                                                      : br_utf8_valid(span->name, JOIN_VALUE_MAX);
}

static bool enter_span_is_located(const struct join_table *table, const struct br_span *span,
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
#define WORD_EXTRA (WORD_LOCATED | UINT16_MAX) /* attributes, or whereabouts */

/* Sets what spans of this trace and this part have, and asks for the line of their family's head.
 */
static inline void enter_prepare_run(const struct join_table *table, struct join_batch *batch,
                                     const uint64_t *trace, uint32_t part)
{
    const struct join_origin *origin = &batch->entries->origins[part - batch->entries->first_part];
    uint64_t service = origin->service_hash & SERVICE_MASK;
    uint64_t hash = join_table_family_hash(table, (const uint8_t *)trace, service);
    bool has_trace = trace[0] | trace[1];
    batch->trace[0] = trace[0];
    batch->trace[1] = trace[1];
    batch->part = part;
    batch->origin = origin;
    batch->size = (uint32_t)(sizeof(struct record) + origin->service_len + 7);
    batch->word = (has_trace ? WORD_HAS_TRACE : 0) | origin->service_len << WORD_SERVICE_SHIFT;
    batch->family = has_trace && service ? &table->families[hash & table->families_mask] : NULL;
    __builtin_prefetch(batch->family, 1);
}

/* Adds what few tables have. */
static void enter_prepare_extra(const struct join_table *table, const struct join_batch *batch,
                                struct join_prepared *prepared)
{
    const struct br_span *span = prepared->span;
    const struct join_entries *entries = batch->entries;
    size_t size = batch->size + (prepared->word >> WORD_NAME_SHIFT & UINT8_MAX);
    if (entries->attributes) {
        size_t len = entries->attributes[span - entries->spans].len;
        size += len;
        prepared->word |= len & UINT16_MAX;
    }
    size &= ~(size_t)7;
    if (table->threads && enter_span_is_located(table, span, prepared->origin)) {
        size += sizeof(struct location);
        prepared->word |= WORD_LOCATED;
    }
    prepared->size = (uint32_t)size;
}

/* Says of which family a span is, and how large its record is. */
IN_LINE void enter_prepare_span(const struct join_table *table, struct join_batch *batch,
                                struct join_prepared *ret)
{
    const struct br_span *span = ret->span;
    uint64_t trace[2];
    memcpy(trace, span->head.trace_id, sizeof trace);
    if ((trace[0] ^ batch->trace[0]) | (trace[1] ^ batch->trace[1]) | (span->part ^ batch->part))
        enter_prepare_run(table, batch, trace, span->part);
    size_t name_len = enter_name_len(span);
    ret->origin = batch->origin;
    ret->family = batch->family;
    ret->word = batch->word | name_len << WORD_NAME_SHIFT;
    ret->size = (batch->size + (uint32_t)name_len) & ~7u;
    if (__builtin_expect(batch->has_extra, 0))
        enter_prepare_extra(table, batch, ret);
}

/* Makes the next ones with a span id the group. Lines of slots are asked for one after the other:
 * where each is in a page of its own, several pages are looked up at a time. */
IN_LINE void enter_prepare_group(const struct join_table *table, const struct shard *shard,
                                 struct join_batch *batch, struct join_group *ret)
{
    struct join_prepared *prepared = ret->spans;
    for (; batch->next < batch->end && prepared < ret->spans + shard->group; batch->next++) {
        prepared->span =
            batch->order ? &batch->spans[batch->order[batch->next]] : &batch->spans[batch->next];
        uint64_t span_id = prepared->span->head.span_id;
        prepared->home = join_slots_home(shard, join_table_mix(table, span_id));
        __builtin_prefetch(prepared->home.bucket, 1);
        prepared += span_id != 0;
    }
    ret->end = prepared;
    ret->size = 0;
    for (prepared = ret->spans; prepared < ret->end; prepared++) {
        enter_prepare_span(table, batch, prepared);
        ret->size += prepared->size;
    }
}

/* What the records of one resource have in common. */
struct join_staged {
    const struct join_origin *origin;
    uint8_t service[TEXT_CHUNK]; /* its first bytes, zeros behind them */
};

static inline void enter_stage(struct join_staged *staged, const struct join_origin *origin)
{
    size_t len = origin->service_len;
    *staged = (struct join_staged){.origin = origin};
    br_put_bytes(staged->service, origin->service, len < TEXT_CHUNK ? len : TEXT_CHUNK);
}

/* Returns true when TEXT_CHUNK bytes from the name's first on are the span's. */
static inline bool enter_name_is_padded(const struct br_span *span)
{
    return (uintptr_t)span->name - (uintptr_t)span->body + TEXT_CHUNK <= span->body_len;
}

/* Copies a text of which TEXT_CHUNK bytes can be read where `whole`. */
IN_LINE uint8_t *enter_put_text(uint8_t *p, const uint8_t *text, size_t len, bool whole)
{
    if (__builtin_expect(len > TEXT_CHUNK || !whole, 0))
        return len ? br_put_bytes(p, text, len) : p;
    memcpy(p, text, TEXT_CHUNK);
    return p + len;
}

/* Attributes and whereabouts. */
static void enter_put_extra(struct record *record, uint8_t *text,
                            const struct join_prepared *prepared,
                            const struct join_entries *entries)
{
    const struct join_origin *origin = prepared->origin;
    if (entries->attributes)
        (void)br_put_bytes(text, entries->attributes[prepared->span - entries->spans].data,
                           entries->attributes[prepared->span - entries->spans].len);
    if (!(prepared->word & WORD_LOCATED))
        return;
    struct location *location = join_record_location(record);
    *location = (struct location){.process = origin->where->hashes[JOIN_PROCESS],
                                  .service = origin->where->hashes[JOIN_SERVICE],
                                  .runtime = origin->where->hashes[JOIN_RUNTIME]};
    memcpy(location->places, &origin->where->hashes[JOIN_HOST], sizeof location->places);
}

/* The texts behind the record's head. */
IN_LINE void enter_put_texts(struct record *record, const struct join_prepared *prepared,
                             const struct join_entries *entries, const struct join_staged *staged)
{
    const struct br_span *span = prepared->span;
    const struct join_origin *origin = prepared->origin;
    uint8_t *text = (uint8_t *)(record + 1);
    text = enter_put_text(text, span->name, prepared->word >> WORD_NAME_SHIFT & UINT8_MAX,
                          enter_name_is_padded(span));
    text = origin->service_len <= TEXT_CHUNK
               ? enter_put_text(text, staged->service, origin->service_len, true)
               : br_put_bytes(text, origin->service, origin->service_len);
    if (__builtin_expect((prepared->word & WORD_EXTRA) != 0, 0))
        enter_put_extra(record, text, prepared, entries);
}

/* Word by word: a whole struct would be made elsewhere first, and fields of a word one by one would
 * wait for what lies there, and for each other. */
IN_LINE void enter_write_record(const struct join_table *table, struct record *record,
                                const struct join_prepared *prepared,
                                const struct join_entries *entries,
                                const struct join_staged *staged, uint32_t now)
{
    const struct br_span *span = prepared->span;
    uint16_t kind_and_status; /* as they lie in both */
    record->head = span->head;
    record->thread = join_table_thread_of(table, span->thread_id, span->thread_id_len);
    record->thread_name = join_table_thread_of(table, span->thread_name, span->thread_name_len);
    record->totals = 0;
    record->seen = now;
    record->words[0] = (uint64_t)(prepared->size / 8) << 48;
    memcpy(&kind_and_status, &span->kind, sizeof kind_and_status);
    record->words[1] = prepared->word | (uint64_t)kind_and_status << WORD_KIND_SHIFT;
    enter_put_texts(record, prepared, entries, staged);
}

#define WARM_BYTES 2048u /* so far behind a record */

/* Brings on the way what a record overwrites soon, in a full ring what leaves for it. */
static inline void enter_prefetch_ring(const struct record *record)
{
    const uint8_t *p = (const uint8_t *)record + WARM_BYTES; /* or a little behind the ring */
    __builtin_prefetch(p, 1);
    __builtin_prefetch(p + 64, 1);
}

/* In a shared table records are linked a group at a time: an exchange waits for everything written
 * before it, and so only the first one of a group has to. */
IN_LINE void enter_group(struct join_table *table, struct shard *shard,
                         const struct join_group *group, const struct join_entries *entries,
                         struct join_staged *staged, bool shared, uint32_t now,
                         struct join_tally *out)
{
    struct record *record = join_ring_reserve(table, shard, group->size, now, out), *first;
    uint64_t position = shard->head - group->size;
    const struct ring_extent ring_extent = enter_extent(shard);
    const struct join_prepared *prepared;
    shard->n_spans += (size_t)(group->end - group->spans);
    first = record;
    for (prepared = group->spans; prepared < group->end; prepared++) {
        enter_prefetch_ring(record);
        if (prepared->origin != staged->origin)
            enter_stage(staged, prepared->origin);
        enter_write_record(table, record, prepared, entries, staged, now);
        enter_index(table, shard, &ring_extent, prepared->home, record, position, now, out);
        if (!shared)
            enter_chain(table, shard, prepared, record, position, shared);
        position += prepared->size;
        record = join_record_behind(record, prepared->size);
    }
    position = shard->head - group->size;
    for (prepared = group->spans; shared && prepared < group->end; prepared++) {
        enter_chain(table, shard, prepared, first, position, shared);
        position += prepared->size;
        first = join_record_behind(first, prepared->size);
    }
}

IN_LINE size_t enter_shard(struct join_table *table, struct shard *shard, struct join_batch *batch,
                           bool shared, uint32_t now, struct join_tally *out)
{
    struct join_group groups[2];
    struct join_staged staged = {0};
    unsigned which = 0;
    size_t count = 0;
    enter_prepare_group(table, shard, batch, &groups[which]);
    while (groups[which].end > groups[which].spans) {
        enter_prepare_group(table, shard, batch, &groups[which ^ 1]);
        enter_group(table, shard, &groups[which], batch->entries, &staged, shared, now, out);
        count += (size_t)(groups[which].end - groups[which].spans);
        which ^= 1;
    }
    return count;
}

#define SORTED_MAX 256u

/* Up to SORTED_MAX spans from place `from` on, of all shards, sorted by shard, so that each lock is
 * taken once. */
static size_t enter_sorted(struct join_table *table, const struct join_entries *entries,
                           size_t from, unsigned count, uint32_t now, struct join_tally *out)
{
    uint8_t shards[SORTED_MAX];
    uint16_t order[SORTED_MAX], first[SHARDS + 1] = {0}, next[SHARDS];
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
        struct join_batch batch = {.entries = entries,
                                   .spans = entries->spans + from,
                                   .order = order + first[k],
                                   .end = first[k + 1] - (size_t)first[k],
                                   .has_extra = entries->attributes || table->threads,
                                   .part = UINT32_MAX};
        if (!batch.end)
            continue;
        join_shard_lock(table, shard);
        entered += enter_shard(table, shard, &batch, true, now, out);
        join_shard_unlock(table, shard);
    }
    return entered;
}

size_t join_table_enter(struct join_table *table, const struct join_entries *entries,
                        uint64_t now_ms, struct join_tally *out)
{
    size_t entered = 0;
    uint32_t now = join_table_tenths(now_ms);
    struct join_batch all = {.entries = entries,
                             .spans = entries->spans,
                             .end = entries->count,
                             .has_extra = entries->attributes || table->threads,
                             .part = UINT32_MAX};
    if (!table->shard_bits)
        return enter_shard(table, &table->shards[0], &all, false, now, out);
    for (size_t from = 0; from < entries->count; from += SORTED_MAX) {
        size_t remaining = entries->count - from;
        entered +=
            enter_sorted(table, entries, from,
                         (unsigned)(remaining < SORTED_MAX ? remaining : SORTED_MAX), now, out);
    }
    return entered;
}
