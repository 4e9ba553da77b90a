/* SPDX-License-Identifier: Apache-2.0 */
/* The slots of the join's table: which record is a span's. In line, because every span and sample
 * comes by here; under the shard's lock. */
#pragma once

#include "processors/join/table_internal.h"

static inline struct bucket *bucket_of(const struct shard *s, uint64_t hash)
{
    return s->buckets + ((hash >> 4 & 0xffffffffu) * s->n_buckets >> 32);
}

static inline struct bucket *neighbour_of(const struct shard *s, const struct bucket *b)
{
    return s->buckets + ((uint64_t)(b - s->buckets) ^ 1);
}

static inline uint64_t position_in(const struct shard *s, const struct bucket *b, unsigned slot)
{
    uint64_t v; /* the last one's spare bytes are those of `spilled` */
    memcpy(&v, (const uint8_t *)b + offsetof(struct bucket, positions) + 6u * slot, sizeof v);
    return whole(s, v, 48);
}

static inline void set_slot(struct bucket *b, unsigned slot, uint64_t hash, uint64_t position)
{
    position /= 8;
    b->tags[slot] = (uint16_t)(hash >> 48);
    memcpy(b->positions + 6u * slot, &position, 6);
}

/* True when a record of this bucket may lie in the neighbour. */
static inline bool has_spilled(const struct shard *s, const struct bucket *b)
{
    uint64_t position; /* loaded at once: six bytes in pieces would wait for each other */
    memcpy(&position, b->spilled - 2, sizeof position);
    return whole(s, position >> 16, 48) >= s->tail;
}

/* True when the slot's record is in the ring: position 0 is before every tail. */
static inline bool live(const struct shard *s, const struct bucket *b, unsigned slot)
{
    return position_in(s, b, slot) >= s->tail;
}

/* --- The slots ------------------------------------------------------------------------------ */

/* Where a span's record is. */
struct place {
    struct bucket *bucket;
    int slot;       /* -1: there is none */
    int ambiguous;  /* there is none because more than one fits; an int, for a byte would be put
                       together with its padding through memory, and waited for */
};

enum match { MATCH_NONE, MATCH_SPAN, MATCH_BOTH };

static inline enum match match(const struct record *r, uint64_t span_id, const uint8_t *trace_id)
{
    if (r->span_id != span_id)
        return MATCH_NONE;
    if (!trace_id || !r->has_trace)
        return trace_id || r->has_trace ? MATCH_SPAN : MATCH_BOTH;
    return memcmp(r->trace_id, trace_id, 16) == 0 ? MATCH_BOTH : MATCH_NONE;
}

/* A bit for each slot whose tag is `tag`; now and then for one more. */
static inline uint32_t tagged(const struct bucket *b, uint16_t tag)
{
    const uint64_t ones = 0x0001000100010001u;
    uint32_t hits = 0;
    for (unsigned i = 0; i < 2; i++) {
        uint64_t four;
        memcpy(&four, (const uint8_t *)b + 8 * i, sizeof four);
        four ^= ones * tag;
        uint64_t zero = (four - ones) & ~four & ones << 15; /* the top bits of lanes that are 0 */
        hits |= (uint32_t)((zero >> 15) * 0x1000200040008u >> 48 & 15) << 4 * i;
    }
    return hits & ((1u << WAYS) - 1);
}

/* Looks through one bucket: true when it has the record; in `half` what may be it. */
static inline bool find_in(const struct shard *s, struct bucket *b, uint64_t hash, uint64_t span_id,
                           const uint8_t *trace_id, struct place *half)
{
    for (uint32_t hits = tagged(b, (uint16_t)(hash >> 48)); hits; hits &= hits - 1) {
        int slot = __builtin_ctz(hits);
        if (!live(s, b, (unsigned)slot))
            continue;
        enum match m = match(at(s, position_in(s, b, (unsigned)slot)), span_id, trace_id);
        if (m == MATCH_NONE)
            continue;
        half->ambiguous = half->ambiguous || (m == MATCH_SPAN && half->slot >= 0);
        half->bucket = b;
        half->slot = slot;
        if (m == MATCH_BOTH)
            return true;
    }
    return false;
}

/* A span id without a trace id finds the one record with that span id, and the other way round. */
static inline struct place find(const struct shard *s, uint64_t hash, uint64_t span_id,
                                const uint8_t *trace_id)
{
    struct bucket *b = bucket_of(s, hash);
    struct place place = {.bucket = b, .slot = -1};
    if (find_in(s, b, hash, span_id, trace_id, &place) ||
        (has_spilled(s, b) && find_in(s, neighbour_of(s, b), hash, span_id, trace_id, &place)))
        place.ambiguous = false;
    else if (place.ambiguous)
        place.slot = -1;
    return place;
}

static inline struct record *record_at(const struct shard *s, const struct place *p)
{
    return p->slot < 0 ? NULL : at(s, position_in(s, p->bucket, (unsigned)p->slot));
}

/* The next free slot or, in a full bucket, the oldest. */
static inline unsigned spare_in(const struct shard *s, const struct bucket *b)
{
    unsigned slot = b->next;
    for (unsigned n = 0; n < WAYS && live(s, b, slot); n++)
        slot = slot + 1 < WAYS ? slot + 1 : 0;
    return slot;
}

/* The place for a new record: a free one in its bucket or the neighbour, or that of the oldest. */
static inline struct place spare(const struct shard *s, uint64_t hash)
{
    struct bucket *b = bucket_of(s, hash);
    struct place p = {.bucket = b, .slot = (int)spare_in(s, b)};
    if (live(s, b, (unsigned)p.slot)) {
        struct bucket *other = neighbour_of(s, b);
        unsigned slot = spare_in(s, other);
        if (!live(s, other, slot))
            p = (struct place){.bucket = other, .slot = (int)slot};
    }
    return p;
}

static inline void fill(const struct shard *s, const struct place *p, uint64_t hash,
                        uint64_t position)
{
    struct bucket *b = p->bucket, *own = bucket_of(s, hash);
    unsigned slot = (unsigned)p->slot;
    b->next = (uint16_t)(slot + 1 < WAYS ? slot + 1 : 0);
    set_slot(b, slot, hash, position);
    if (b != own) {
        position /= 8;
        memcpy(own->spilled, &position, sizeof own->spilled);
    }
}
