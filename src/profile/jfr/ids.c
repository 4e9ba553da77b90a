/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/steps.h"
#include "profile/jfr/jfr.h"

#define BITS_MIN 6
/* largest table that is kept when it is cleared, as base-2 logarithm of its number of slots */
#define KEEP_BITS 16
/* largest table that is kept even if it had few entries, as base-2 logarithm of its number of
 * slots */
#define KEEP_SMALL 8
/* Largest number of slots per entry with which a table is kept. With the limit, clearing a table
 * costs no more than filling it did. */
#define KEEP_PER_ID 16

/* Returns the preferred slot of an ID. The ID is multiplied by a secret, so that a sender cannot
 * choose IDs that collide. */
static size_t jfr_ids_home(const struct br_jfr_ids *ids, uint64_t id)
{
    br_jfr_u128 m = (br_jfr_u128)(id ^ ids->secret >> 7) * (ids->secret | 1);
    return (size_t)(((uint64_t)(m >> 64) ^ (uint64_t)m) >> (64 - ids->bits));
}

static struct br_jfr_entry *jfr_ids_slot_of(const struct br_jfr_ids *ids, uint64_t id)
{
    size_t mask = ((size_t)1 << ids->bits) - 1, i = jfr_ids_home(ids, id);
    while (ids->slots[i].at && ids->slots[i].id != id)
        i = (i + 1) & mask;
    return &ids->slots[i];
}

struct br_jfr_entry *br_jfr_ids_find(const struct br_jfr_ids *ids, uint64_t id)
{
    if (!ids->count)
        return NULL;
    struct br_jfr_entry *entry = jfr_ids_slot_of(ids, id);
    return entry->at ? entry : NULL;
}

static int jfr_ids_grow(struct br_jfr_ids *ids)
{
    struct br_jfr_ids old = *ids;
    unsigned bits = old.bits ? old.bits + 1 : BITS_MIN;
    struct br_jfr_entry *slots = br_calloc((size_t)1 << bits, sizeof *slots);
    if (!slots)
        return BR_ENOMEM;
    if (!old.bits)
        br_random_bytes(&ids->secret, sizeof ids->secret);
    ids->slots = slots;
    ids->bits = bits;
    for (size_t i = 0; old.bits && i < (size_t)1 << old.bits; i++)
        if (old.slots[i].at)
            *jfr_ids_slot_of(ids, old.slots[i].id) = old.slots[i];
    br_free(old.slots);
    return 0;
}

int br_jfr_ids_put(struct br_jfr_ids *ids, uint64_t id, uint32_t at)
{
    if (!ids->bits || ids->count >= ((size_t)1 << ids->bits) / 4 * 3) {
        int rc = jfr_ids_grow(ids);
        if (rc)
            return rc;
    }
    struct br_jfr_entry *entry = jfr_ids_slot_of(ids, id);
    if (!entry->at)
        ids->count++;
    *entry = (struct br_jfr_entry){.id = id, .at = at};
    return 0;
}

void br_jfr_ids_clear(struct br_jfr_ids *ids)
{
    if (!ids->count)
        return;
    bool loose = (size_t)ids->count * KEEP_PER_ID < (size_t)1 << ids->bits;
    if (ids->bits > KEEP_BITS || (ids->bits > KEEP_SMALL && loose)) {
        br_jfr_ids_release(ids);
        return;
    }
    memset(ids->slots, 0, sizeof *ids->slots << ids->bits);
    br_steps_add((size_t)1 << ids->bits);
    ids->count = 0;
}

void br_jfr_ids_release(struct br_jfr_ids *ids)
{
    br_free(ids->slots);
    *ids = (struct br_jfr_ids){0};
}
