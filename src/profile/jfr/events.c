/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/jfr/jfr.h"
#include "wire/protobuf.h"

/* largest size of an event, in bytes, for which the size field takes one byte */
#define SHORT_MAX 0x7f

static int jfr_events_malformed(uint32_t at, struct br_err *err)
{
    return br_err_set(err, BR_EINVAL, "the event at byte %u of the chunk is truncated or malformed",
                      at);
}

/* Decodes the size of an event if it is encoded in one byte, or padded to four, as JVMs write
 * it. Returns the number of encoded bytes, or 0 for any other encoding. */
static unsigned jfr_events_read_size(uint64_t word, uint32_t *ret)
{
    if (!(word & 0x80)) {
        *ret = word & 0x7f;
        return 1;
    }
    if ((word & 0x80808080) != 0x808080)
        return 0;
    *ret = (uint32_t)((word & 0x7f) | (word >> 1 & 0x3f80) | (word >> 2 & 0x1fc000) |
                      (word >> 3 & 0xfe00000));
    return 4;
}

/* Returns the type ID of an event modulo BR_JFR_WANTED. The first two bytes of the encoded ID
 * determine the result. */
static size_t jfr_events_low_bits(uint64_t word)
{
    return (word & 0x7f) | (word >> 1 & 0x380 & -(word >> 7 & 1));
}

/* Returns true if the first two bytes of the event at `p` show that the event can be skipped.
 * Most events can be skipped. */
static inline bool jfr_events_is_skipped(const struct br_jfr_chunk *chunk, const uint8_t *p)
{
    return p[0] > 1 && p[0] <= SHORT_MAX && !chunk->wanted_first[p[1]];
}

/* Returns the end of the event at `at` if its type is certainly not wanted and it ends before
 * `limit`. Otherwise returns `at`. */
static uint32_t jfr_events_skip_one(const struct br_jfr_chunk *chunk, uint32_t at, uint32_t limit)
{
    uint32_t size;
    if (!chunk->packed || limit - at < 16)
        return at;
    uint64_t w = br_load64(chunk->data + at);
    unsigned n = jfr_events_read_size(w, &size);
    if (!n || size <= n || size > limit - at || chunk->wanted[jfr_events_low_bits(w >> 8 * n)])
        return at;
    return at + size;
}

/* Returns the offset of the first event at or after `at` whose type may be wanted. */
static uint32_t jfr_events_skip(const struct br_jfr_chunk *chunk, uint32_t at)
{
    uint32_t last = chunk->packed && chunk->size > SHORT_MAX ? chunk->size - SHORT_MAX : 0;
    for (uint32_t next = at;;) {
        while (next < last && jfr_events_is_skipped(chunk, chunk->data + next))
            next += chunk->data[next];
        at = next;
        next = jfr_events_skip_one(chunk, at, chunk->size);
        if (next == at)
            return at;
    }
}

/* --- Two scans -------------------------------------------------------------------------------- */

void br_jfr_events_begin(struct br_jfr_events *events, const struct br_jfr_chunk *chunk)
{
    events->at = BR_JFR_HEADER;
    events->middle = events->ahead = chunk->packed ? chunk->middle : 0;
    events->n_found = events->n_returned = 0;
    events->joined = false;
}

/* Moves the second scan (see struct br_jfr_events) past the next event and records the event if it
 * may be wanted. Returns false if the event is malformed or the list is full. The first scan
 * reports malformed events. */
static bool jfr_events_find(const struct br_jfr_chunk *chunk, struct br_jfr_events *events)
{
    uint32_t from = events->ahead;
    events->ahead = jfr_events_skip_one(chunk, from, chunk->size);
    if (events->ahead != from)
        return true;
    struct br_jfr_in in = br_jfr_at(chunk, from);
    uint32_t size = br_jfr_int(&in);
    if (in.bad || !size || size > chunk->size - from || events->n_found == BR_JFR_AHEAD)
        return false;
    events->found[events->n_found++] = from;
    events->ahead += size;
    return true;
}

/* Advances both scans. Stops when the first scan is at an event that may be wanted, when either
 * scan is near its end, or when the second scan cannot continue. */
static void jfr_events_skip_both(const struct br_jfr_chunk *chunk, struct br_jfr_events *events)
{
    if (events->middle - events->at <= SHORT_MAX || chunk->size - events->ahead <= SHORT_MAX)
        return;
    const uint8_t *p = chunk->data + events->at, *q = chunk->data + events->ahead;
    const uint8_t *p_last = chunk->data + events->middle - SHORT_MAX;
    const uint8_t *q_last = chunk->data + chunk->size - SHORT_MAX;
    while (p < p_last && q < q_last && __builtin_expect(jfr_events_is_skipped(chunk, p), 1)) {
        p += p[0];
        if (__builtin_expect(jfr_events_is_skipped(chunk, q), 1)) {
            q += q[0];
            continue;
        }
        events->ahead = (uint32_t)(q - chunk->data);
        if (!jfr_events_find(chunk, events))
            break;
        q = chunk->data + events->ahead;
    }
    events->at = (uint32_t)(p - chunk->data);
    events->ahead = (uint32_t)(q - chunk->data);
}

/* Moves `events->at` to the next event that may be wanted. */
static void jfr_events_advance(const struct br_jfr_chunk *chunk, struct br_jfr_events *events)
{
    for (;;) {
        events->joined = events->joined || (events->middle && events->at == events->middle);
        if (events->joined && events->n_returned < events->n_found) {
            events->at = events->found[events->n_returned++];
            return;
        }
        if (events->joined)
            events->at = events->ahead;
        if (events->joined || events->at >= events->middle) {
            events->joined = false;
            events->middle = 0;
            events->at = jfr_events_skip(chunk, events->at);
            return;
        }
        jfr_events_skip_both(chunk, events);
        uint32_t from = events->at;
        events->at = jfr_events_skip_one(chunk, from, events->middle);
        if (events->at == from)
            return;
    }
}

/* --- Events ----------------------------------------------------------------------------------- */

static unsigned jfr_events_type(const struct br_jfr_chunk *chunk, int64_t id)
{
    unsigned type = BR_JFR_FIRST_EVENT;
    while (type < BR_JFR_N_TYPES && (chunk->event_ids[type - BR_JFR_FIRST_EVENT] != id ||
                                     chunk->class_of[type] == BR_JFR_NO_CLASS))
        type++;
    return type;
}

int br_jfr_event(const struct br_jfr_chunk *chunk, struct br_jfr_events *events,
                 uint64_t values[BR_JFR_N_SLOTS], struct br_err *err)
{
    for (;;) {
        jfr_events_advance(chunk, events);
        uint32_t from = events->at;
        if (from >= chunk->size)
            return 0;
        struct br_jfr_in in = br_jfr_at(chunk, from);
        uint32_t size = br_jfr_int(&in);
        int64_t id = (int64_t)br_jfr_long(&in);
        if (in.bad || size > chunk->size - from || in.p > chunk->data + from + size)
            return jfr_events_malformed(from, err);
        in.end = chunk->data + from + size;
        events->at += size;
        unsigned type = jfr_events_type(chunk, id);
        if (type == BR_JFR_N_TYPES)
            continue;
        const struct br_jfr_class *k = &chunk->classes[chunk->class_of[type]];
        br_jfr_no_values(values);
        br_jfr_value(&in, chunk, k, k->n_needed, values);
        return in.bad ? jfr_events_malformed(from, err) : (int)type;
    }
}
