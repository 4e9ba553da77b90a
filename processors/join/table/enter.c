/* SPDX-License-Identifier: Apache-2.0 */
/* Adds spans to the join's table. */
#include <stddef.h>

#include "base/str.h"
#include "processors/join/table/ring.h"

/* functions that the compiler inlines separately for shared and for unshared tables */
#define IN_LINE static inline __attribute__((always_inline))

/* --- The index -------------------------------------------------------------------------- */

/* A record is found by span id in the slots, and by family or thread in chains. Spans are added in
 * groups. While one group is added, the cache lines that the next group needs are prefetched. */

/* A span that is about to be added to the table. */
struct join_prepared {
    const struct br_span *span;
    const struct join_origin *origin;
    struct home home;
    /* head of the chain of the span's family; NULL: the span does not belong to a family */
    _Atomic uint64_t *family;
    /* words[1] of the record, to which kind and status still have to be added */
    uint64_t word;
    uint32_t size; /* size of the record, in bytes */
};

/* Spans that are added to one shard of the table. */
struct join_batch {
    const struct join_entries *entries;
    const struct br_span *spans;
    /* indices in `spans` of the spans to enter; NULL: all spans are entered */
    const uint16_t *order;
    size_t next, end;
    bool has_extra; /* true if records may have attributes or a location */
    /* The fields below depend only on the span's trace and on its part (ResourceSpans). The fields
     * are computed once and reused while the next spans have the same trace and part. */
    uint64_t trace[2];
    uint32_t part;
    /* size of the record without its name, in bytes, plus 7; the size with the name is then rounded
     * down to a multiple of 8 */
    uint32_t size;
    const struct join_origin *origin;
    _Atomic uint64_t *family;
    uint64_t word;
};

/* Spans that are added together, in one contiguous piece of the ring. */
struct join_group {
    uint32_t size; /* total size of the records of the group, in bytes */
    struct join_prepared *end;
    struct join_prepared spans[JOIN_GROUP_MAX];
};

/* Marks an older record of the same span dead. Returns the index of its totals, which the new
 * record takes over; 0: there are no totals to take over. An older record exists if samples arrived
 * before the span (the record is pending), or if the span was received twice. */
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

/* Puts the record into the slot of an older record of the same span. Returns false if the table
 * has no older record of the span. */
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

/* Puts the record into the slot of an older record of the same span. If the table has no older
 * record of the span, uses a free slot. If there is no free slot, uses the oldest slot and
 * evicts its record. */
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

/* The part of the ring that is in use. It does not change while a group of spans is added. */
struct ring_extent {
    /* position of the ring's head, and length in use, in the units of slots (8 bytes) */
    uint32_t head, used;
    /* position of the ring's head, and length in use, in the units of bucket.spilled */
    uint32_t spilled_head, spilled_used;
};

static inline struct ring_extent enter_extent(const struct shard *shard)
{
    return (struct ring_extent){
        .head = (uint32_t)(shard->head / 8),
        .used = (uint32_t)((shard->head - shard->tail) / 8),
        .spilled_head = (uint32_t)(shard->head / SPILLED_UNIT),
        .spilled_used = (uint32_t)(shard->head / SPILLED_UNIT - shard->tail / SPILLED_UNIT)};
}

/* Returns true if the span id is new and the next slot is free. The result is true for nearly
 * every span. */
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

/* Makes the record the newest record of its family and of its thread. */
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

/* The layout of record.words[1], which describes everything after the record's head. */
#define WORD_NAME_SHIFT 16u
#define WORD_SERVICE_SHIFT 24u
#define WORD_KIND_SHIFT 32u
_Static_assert(offsetof(struct br_span, status) == offsetof(struct br_span, kind) + 1,
               "the status is behind the kind, as in the word");
#define WORD_HAS_TRACE (1ull << 49)
#define WORD_LOCATED (1ull << 51)
/* mask of the word; the masked bits are not 0 if the record has attributes or a location */
#define WORD_EXTRA (WORD_LOCATED | UINT16_MAX)

/* Computes the fields that all spans of one trace and part have in common, and prefetches the head
 * of their family's chain. */
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

/* Adds the sizes of the attributes and the location to the size and to words[1] of the record. Most
 * tables store neither attributes nor locations. */
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

/* Computes the family of a span and the size of its record. */
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

/* Fills the group with the next spans that have a span id. Buckets are prefetched in a separate
 * loop, so that the processor translates several of their addresses at the same time. */
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

/* The fields and texts that all records of one resource have in common. */
struct join_staged {
    const struct join_origin *origin;
    uint8_t service[TEXT_CHUNK]; /* first bytes of the service name, padded with zeros */
};

static inline void enter_stage(struct join_staged *staged, const struct join_origin *origin)
{
    size_t len = origin->service_len;
    *staged = (struct join_staged){.origin = origin};
    br_put_bytes(staged->service, origin->service, len < TEXT_CHUNK ? len : TEXT_CHUNK);
}

/* Returns true if TEXT_CHUNK bytes from the beginning of the name belong to the span's message,
 * so that they can be read. */
static inline bool enter_name_is_padded(const struct br_span *span)
{
    return (uintptr_t)span->name - (uintptr_t)span->body + TEXT_CHUNK <= span->body_len;
}

/* Copies a text. `whole` means that TEXT_CHUNK bytes can be read from the beginning of `text`. */
IN_LINE uint8_t *enter_put_text(uint8_t *p, const uint8_t *text, size_t len, bool whole)
{
    if (__builtin_expect(len > TEXT_CHUNK || !whole, 0))
        return len ? br_put_bytes(p, text, len) : p;
    memcpy(p, text, TEXT_CHUNK);
    return p + len;
}

/* Writes the attributes and the location of the record. */
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

/* Writes the texts after the record's head. */
IN_LINE void enter_put_texts(struct record *record, const struct join_prepared *prepared,
                             const struct join_entries *entries, const struct join_staged *staged)
{
    const struct br_span *span = prepared->span;
    const struct join_origin *origin = prepared->origin;
    uint8_t *text = (uint8_t *)(record + 1);
    text = enter_put_text(text, span->name, prepared->word >> WORD_NAME_SHIFT & UINT8_MAX,
                          enter_name_is_padded(span));
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): every prepared span has an origin. */
    text = origin->service_len <= TEXT_CHUNK
               ? enter_put_text(text, staged->service, origin->service_len, true)
               : br_put_bytes(text, origin->service, origin->service_len);
    if (__builtin_expect((prepared->word & WORD_EXTRA) != 0, 0))
        enter_put_extra(record, text, prepared, entries);
}

/* Writes the record word by word. If a whole struct were assigned, the compiler would build it
 * elsewhere first. If bit fields were assigned one by one, the assignments would wait for memory
 * and for each other. */
IN_LINE void enter_write_record(const struct join_table *table, struct record *record,
                                const struct join_prepared *prepared,
                                const struct join_entries *entries,
                                const struct join_staged *staged, uint32_t now)
{
    const struct br_span *span = prepared->span;
    uint16_t kind_and_status; /* kind and status are adjacent in both structs */
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

/* distance in bytes from the record that is being written to the memory that is prefetched */
#define WARM_BYTES 2048u

/* Prefetches the memory that will be overwritten soon. In a full ring, the memory after the
 * record contains the records to be evicted next. */
static inline void enter_prefetch_ring(const struct record *record)
{
    /* the address may be slightly after the end of the ring, where prefetching is harmless */
    const uint8_t *p = (const uint8_t *)record + WARM_BYTES;
    __builtin_prefetch(p, 1);
    __builtin_prefetch(p + 64, 1);
}

/* Writes the records of a group. In a shared table, the records are added to their chains
 * afterwards, all together. An atomic exchange waits for all earlier writes, so only the first
 * exchange of a group has to wait. */
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
        record = join_record_after(record, prepared->size);
    }
    position = shard->head - group->size;
    for (prepared = group->spans; shared && prepared < group->end; prepared++) {
        enter_chain(table, shard, prepared, first, position, shared);
        position += prepared->size;
        first = join_record_after(first, prepared->size);
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

/* Adds up to SORTED_MAX spans, beginning at index `from`. Sorts the spans by shard, so that each
 * shard is locked once. */
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
