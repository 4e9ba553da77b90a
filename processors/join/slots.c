/* SPDX-License-Identifier: Apache-2.0 */
/* Records that may be there already, and buckets that are full. */
#include "processors/join/slots.h"

enum match { MATCH_NONE, MATCH_SPAN, MATCH_BOTH };

static enum match match(const struct record *r, uint64_t span_id, const uint8_t *trace_id)
{
    if (r->head.span_id != span_id)
        return MATCH_NONE;
    if (!trace_id || !r->has_trace)
        return trace_id || r->has_trace ? MATCH_SPAN : MATCH_BOTH;
    return memcmp(r->head.trace_id, trace_id, 16) == 0 ? MATCH_BOTH : MATCH_NONE;
}

/* Looks through one bucket: true when it has the record; in `half` what may be it. */
static bool find_in(const struct shard *s, struct bucket *b, uint16_t tag, uint64_t span_id,
                    const uint8_t *trace_id, struct place *half)
{
    for (uint32_t hits = tagged(b, tag); hits; hits &= hits - 1) {
        int slot = __builtin_ctz(hits);
        if (!live(s, b, (unsigned)slot))
            continue;
        enum match m = match(record_in(s, b, (unsigned)slot), span_id, trace_id);
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

struct place join_slots_find(const struct shard *s, struct home home, uint64_t span_id,
                             const uint8_t *trace_id)
{
    struct bucket *b = home.bucket;
    struct place place = {.bucket = b, .slot = -1};
    if (find_in(s, b, home.tag, span_id, trace_id, &place) ||
        (has_spilled(s, b) && find_in(s, neighbour_of(s, b), home.tag, span_id, trace_id, &place)))
        place.ambiguous = false;
    else if (place.ambiguous)
        place.slot = -1;
    return place;
}

/* The next free slot or, in a full bucket, the oldest. */
static unsigned spare_in(const struct shard *s, const struct bucket *b)
{
    unsigned slot = b->next;
    for (unsigned n = 0; n < WAYS && live(s, b, slot); n++)
        slot = slot + 1 < WAYS ? slot + 1 : 0;
    return slot;
}

struct place join_slots_spare(const struct shard *s, struct home home)
{
    struct bucket *b = home.bucket;
    struct place p = {.bucket = b, .slot = (int)spare_in(s, b)};
    if (live(s, b, (unsigned)p.slot)) {
        struct bucket *other = neighbour_of(s, b);
        unsigned slot = spare_in(s, other);
        if (!live(s, other, slot))
            p = (struct place){.bucket = other, .slot = (int)slot};
    }
    return p;
}

/* Of a bucket, what records that have left were entered as must not look like newer ones when
 * positions come round. */
void join_slots_sweep(const struct shard *s, struct bucket *b)
{
    for (unsigned slot = 0; slot < WAYS; slot++)
        if (!live(s, b, slot))
            clear_slot(s, b, slot);
    if (!has_spilled(s, b))
        set_spilled(b, s->tail - SPILLED_UNIT);
}
