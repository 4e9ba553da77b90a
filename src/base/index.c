/* SPDX-License-Identifier: Apache-2.0 */
#include "base/index.h"

#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "base/steps.h"

#define COUNT_MIN 42u /* number of entries that fit into the smallest table, which has 65 slots */

/* Returns the number of slots for `count` entries: one and a half slots per entry and two more.
 * At most two thirds of the slots are used, so a probe always ends. */
static size_t index_slots_for(size_t count)
{
    return count + count / 2 + 2;
}

size_t br_index_bytes_for(size_t count)
{
    return index_slots_for(count) * sizeof(uint32_t);
}

void br_index_init(struct br_index *index, uint32_t max, enum br_holder holder)
{
    *index = (struct br_index){.max = max < BR_INDEX_MAX ? max : BR_INDEX_MAX, .holder = holder};
    br_random_bytes(index->secret, sizeof index->secret);
}

/* Allocates slots and counts them in the index's memory category. BR_HOLDER_PROCESS needs no
 * counting, because it contains all memory that is not counted in another category. */
static uint32_t *index_alloc(const struct br_index *index, size_t n_slots)
{
    return index->holder == BR_HOLDER_PROCESS
               ? br_calloc(n_slots, sizeof *index->slots)
               : br_calloc_for(index->holder, n_slots, sizeof *index->slots);
}

void br_index_release(struct br_index *index)
{
    if (index->holder == BR_HOLDER_PROCESS)
        br_free(index->slots);
    else
        br_free_for(index->holder, index->slots);
    index->slots = NULL;
    index->n_slots = 0;
}

static void index_enter(struct br_index *index, uint64_t hash, uint32_t place)
{
    size_t at = br_index_home(index, hash), passed = 0;
    for (; index->slots[at]; passed++)
        at = br_index_after(index, at);
    index->slots[at] = place + 1;
    br_steps_add(passed);
}

int br_index_reserve(struct br_index *index, uint32_t count)
{
    if (count > index->max)
        return BR_EFULL;
    index->slots = index_alloc(index, index_slots_for(count));
    index->n_slots = index->slots ? index_slots_for(count) : 0;
    return index->slots ? 0 : BR_ENOMEM;
}

/* Replaces the slots by enough slots for twice `count` entries, within the maximum, and adds the
 * entries again. The old slots are not read, so that their memory can be reused for the new
 * ones. */
static int index_grow(struct br_index *index, uint32_t count, br_index_hash_fn *rehash,
                      const void *entries)
{
    size_t want = count < COUNT_MIN ? COUNT_MIN : (size_t)count * 2;
    size_t n_slots = index_slots_for(want < index->max ? want : index->max);
    uint32_t *slots = index->holder == BR_HOLDER_PROCESS
                          ? br_realloc(index->slots, n_slots * sizeof *slots)
                          : br_realloc_for(index->holder, index->slots, n_slots * sizeof *slots);
    if (!slots)
        return BR_ENOMEM;
    memset(slots, 0, n_slots * sizeof *slots);
    index->slots = slots;
    index->n_slots = n_slots;
    for (uint32_t place = 0; place < count; place++)
        index_enter(index, rehash(entries, place), place);
    return 0;
}

int br_index_add(struct br_index *index, uint64_t hash, uint32_t place, br_index_hash_fn *rehash,
                 const void *entries)
{
    if (place >= index->max)
        return BR_EFULL;
    if (index_slots_for((size_t)place + 1) > index->n_slots) {
        int rc = index_grow(index, place, rehash, entries);
        if (rc)
            return rc;
    }
    index_enter(index, hash, place);
    return 0;
}
