/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/pyroscope/times.h"

#include "base/map.h"
#include "base/mem.h"

#define STEP_NS 1000u
#define SLOTS_MIN 256u
#define SLOTS_MAX 65536u
/* A profile takes two: its own time, and that the time is taken. */
#define ENTRIES_MAX (2 * PYROSCOPE_TIMES_MAX)

_Static_assert(ENTRIES_MAX <= SLOTS_MAX / 4 * 3, "slots are at most three quarters full");

struct times_slot {
    uint64_t key; /* 0: empty */
    uint64_t time_ns;
};

struct times_table {
    struct times_slot *slots;
    uint32_t n, n_slots; /* a power of two */
};

struct pyroscope_times {
    uint8_t secret[16];
    struct times_table now, before; /* `before` is full, and goes when `now` is */
};

struct pyroscope_times *pyroscope_times_new(void)
{
    struct pyroscope_times *t = br_calloc(1, sizeof *t);
    if (t)
        br_random_bytes(t->secret, sizeof t->secret);
    return t;
}

void pyroscope_times_free(struct pyroscope_times *t)
{
    if (!t)
        return;
    br_free(t->now.slots);
    br_free(t->before.slots);
    br_free(t);
}

/* The key's slot, or the empty one where it would be; NULL where there are none. */
static struct times_slot *times_slot(const struct times_table *table, uint64_t key)
{
    if (!table->n_slots)
        return NULL;
    uint32_t mask = table->n_slots - 1, at = (uint32_t)key & mask;
    while (table->slots[at].key && table->slots[at].key != key)
        at = (at + 1) & mask;
    return &table->slots[at];
}

static bool times_grow(struct times_table *table)
{
    struct times_table grown = {.n = table->n,
                                .n_slots = table->n_slots ? 2 * table->n_slots : SLOTS_MIN};
    grown.slots = br_calloc(grown.n_slots, sizeof *grown.slots);
    if (!grown.slots)
        return false;
    for (uint32_t i = 0; i < table->n_slots; i++)
        if (table->slots[i].key)
            *times_slot(&grown, table->slots[i].key) = table->slots[i];
    br_free(table->slots);
    *table = grown;
    return true;
}

static bool times_put(struct pyroscope_times *t, uint64_t key, uint64_t time_ns)
{
    struct times_slot *slot = times_slot(&t->now, key);
    if (slot && slot->key) {
        slot->time_ns = time_ns;
        return true;
    }
    if (t->now.n >= ENTRIES_MAX) {
        br_free(t->before.slots);
        t->before = t->now;
        t->now = (struct times_table){0};
    }
    if (t->now.n >= t->now.n_slots / 4 * 3 && !times_grow(&t->now))
        return false;
    *times_slot(&t->now, key) = (struct times_slot){key, time_ns};
    t->now.n++;
    return true;
}

static bool times_get(const struct pyroscope_times *t, uint64_t key, uint64_t *ret)
{
    const struct times_slot *slot = times_slot(&t->now, key);
    if (!slot || !slot->key)
        slot = times_slot(&t->before, key);
    if (!slot || !slot->key)
        return false;
    *ret = slot->time_ns;
    return true;
}

/* What `parts` say together; never 0. */
static uint64_t times_key(const struct pyroscope_times *t, const uint64_t parts[3])
{
    uint64_t key = br_siphash(t->secret, parts, 3 * sizeof *parts);
    return key ? key : 1;
}

static uint64_t times_taken_key(const struct pyroscope_times *t, uint64_t labels, uint64_t time_ns)
{
    const uint64_t parts[3] = {labels, time_ns, 0};
    return times_key(t, parts);
}

/* The first time from `time_ns` on that no profile of these labels has. A time that is taken says
 * from where on to look further, and is told where that ended: so that the next one does not go the
 * same way. */
static bool times_find(struct pyroscope_times *t, uint64_t labels, uint64_t time_ns, uint64_t *ret)
{
    uint64_t at = time_ns, next;
    while (times_get(t, times_taken_key(t, labels, at), &next))
        at = next;
    for (uint64_t i = time_ns; i != at; i = next) {
        uint64_t key = times_taken_key(t, labels, i);
        if (!times_get(t, key, &next) || !times_put(t, key, at + STEP_NS))
            break;
    }
    *ret = at;
    return times_put(t, times_taken_key(t, labels, at), at + STEP_NS);
}

bool pyroscope_times_place(struct pyroscope_times *t, const struct pyroscope_times_of *of,
                           uint64_t *ret)
{
    uint64_t labels = br_siphash(t->secret, of->labels.data, of->labels.len);
    uint64_t from[2] = {br_siphash(t->secret, of->resource.data, of->resource.len),
                        br_siphash(t->secret, of->pprof.data, of->pprof.len)};
    const uint64_t parts[3] = {labels, of->time_ns, br_siphash(t->secret, from, sizeof from) | 1};
    uint64_t own = times_key(t, parts);
    if (times_get(t, own, ret))
        return true;
    return times_find(t, labels, of->time_ns, ret) && times_put(t, own, *ret);
}
