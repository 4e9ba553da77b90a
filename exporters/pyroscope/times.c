/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/pyroscope/pyroscope.h"

#include "base/map.h"
#include "base/mem.h"

#define STEP_NS 1000u
#define SLOTS_MIN 256u
#define SLOTS_MAX 65536u
/* Largest number of entries in one table. A profile has two entries: one with the hash of the
 * profile, and one that marks its time as used. */
#define ENTRIES_MAX (2 * PYROSCOPE_TIMES_MAX)

_Static_assert(ENTRIES_MAX <= SLOTS_MAX / 4 * 3, "slots are at most three quarters full");

struct times_slot {
    uint64_t key; /* hash of the entry; 0: the slot is empty */
    uint64_t time_ns;
};

struct times_table {
    struct times_slot *slots;
    uint32_t count, n_slots; /* `n_slots` is a power of two */
};

struct pyroscope_times {
    uint8_t secret[16];
    /* new entries are added to `now`; when `now` is full, it becomes `before`, and the old
     * `before` is freed */
    struct times_table now, before;
};

struct pyroscope_times *pyroscope_times_new(void)
{
    struct pyroscope_times *times = br_calloc(1, sizeof *times);
    if (times)
        br_random_bytes(times->secret, sizeof times->secret);
    return times;
}

void pyroscope_times_free(struct pyroscope_times *times)
{
    if (!times)
        return;
    br_free(times->now.slots);
    br_free(times->before.slots);
    br_free(times);
}

/* Returns the slot that contains the key, or the empty slot in which the key belongs. Returns
 * NULL if the table has no slots. */
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
    struct times_table grown = {.count = table->count,
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

static bool times_put(struct pyroscope_times *times, uint64_t key, uint64_t time_ns)
{
    struct times_slot *slot = times_slot(&times->now, key);
    if (slot && slot->key) {
        slot->time_ns = time_ns;
        return true;
    }
    if (times->now.count >= ENTRIES_MAX) {
        br_free(times->before.slots);
        times->before = times->now;
        times->now = (struct times_table){0};
    }
    if (times->now.count >= times->now.n_slots / 4 * 3 && !times_grow(&times->now))
        return false;
    *times_slot(&times->now, key) = (struct times_slot){key, time_ns};
    times->now.count++;
    return true;
}

static bool times_get(const struct pyroscope_times *times, uint64_t key, uint64_t *ret)
{
    const struct times_slot *slot = times_slot(&times->now, key);
    if (!slot || !slot->key)
        slot = times_slot(&times->before, key);
    if (!slot || !slot->key)
        return false;
    *ret = slot->time_ns;
    return true;
}

/* Returns the hash of the three numbers in `parts`. The hash is never 0. */
static uint64_t times_key(const struct pyroscope_times *times, const uint64_t parts[3])
{
    uint64_t key = br_siphash(times->secret, parts, 3 * sizeof *parts);
    return key ? key : 1;
}

static uint64_t times_taken_key(const struct pyroscope_times *times, uint64_t labels,
                                uint64_t time_ns)
{
    const uint64_t parts[3] = {labels, time_ns, 0};
    return times_key(times, parts);
}

/* Finds the first unused time of a series at or after `time_ns`. The entry of a used time
 * contains a later time to try. At the end, all entries that were tried are set to the time
 * after the result, so that the next search is short. */
static bool times_find(struct pyroscope_times *times, uint64_t labels, uint64_t time_ns,
                       uint64_t *ret)
{
    uint64_t at = time_ns, next;
    while (times_get(times, times_taken_key(times, labels, at), &next))
        at = next;
    for (uint64_t i = time_ns; i != at; i = next) {
        uint64_t key = times_taken_key(times, labels, i);
        if (!times_get(times, key, &next) || !times_put(times, key, at + STEP_NS))
            break;
    }
    *ret = at;
    return times_put(times, times_taken_key(times, labels, at), at + STEP_NS);
}

bool pyroscope_times_place(struct pyroscope_times *times, const struct pyroscope_times_of *of,
                           uint64_t *ret)
{
    uint64_t labels = br_siphash(times->secret, of->labels.data, of->labels.len);
    uint64_t from[2] = {br_siphash(times->secret, of->resource.data, of->resource.len),
                        br_siphash(times->secret, of->pprof.data, of->pprof.len)};
    const uint64_t parts[3] = {labels, of->time_ns,
                               br_siphash(times->secret, from, sizeof from) | 1};
    uint64_t own = times_key(times, parts);
    if (times_get(times, own, ret))
        return true;
    return times_find(times, labels, of->time_ns, ret) && times_put(times, own, *ret);
}
