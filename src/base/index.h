/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash index over an array that its holder keeps. It finds the place of an entry in the array; of
 * the entries it keeps nothing but four bytes a slot. Open addressing, linear probing,
 * at most two thirds full: 6 to 12 bytes an entry while it grows, 6 where the number is known
 * before.
 *
 * Entries are never taken out. The holder hashes with the index's secret (br_index_hash), so that
 * input cannot be chosen to collide, or with what nobody outside can guess.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/mem.h"

#define BR_INDEX_NONE UINT32_MAX
#define BR_INDEX_MAX (UINT32_C(1) << 31)

struct br_index {
    uint32_t *slots; /* place + 1; 0: empty */
    size_t n_slots;
    uint32_t max; /* entries */
    enum br_holder holder;
    uint64_t secret[2];
};

/* True when the entry at `place` of the array `entries` is the one of `key`. */
typedef bool br_index_equal_fn(const void *entries, uint32_t place, const void *key);

/* The hash of the entry at `place`, the same that it was added with. */
typedef uint64_t br_index_hash_fn(const void *entries, uint32_t place);

/* Prepares an empty index of at most `max` entries (BR_INDEX_MAX where that is less), whose slots
 * count for `holder`. Allocates nothing. */
void br_index_init(struct br_index *index, uint32_t max, enum br_holder holder);

/* Gives the slots back; what is left is as after br_index_init. Accepts a zeroed index. */
void br_index_release(struct br_index *index);

/* Makes slots for `count` entries at once, in an empty index without slots. Returns 0, BR_EFULL
 * (more than the maximum) or BR_ENOMEM. */
int br_index_reserve(struct br_index *index, uint32_t count);

/* Returns the bytes that br_index_reserve takes. */
size_t br_index_bytes_for(size_t count);

/* Returns the bytes of the slots. */
static inline size_t br_index_bytes(const struct br_index *index)
{
    return index->n_slots * sizeof *index->slots;
}

/* Returns the keyed hash of `len` bytes. */
static inline uint64_t br_index_hash(const struct br_index *index, const void *data, size_t len)
{
    return br_hash_keyed(index->secret, data, len);
}

/* Returns the first slot to look at: by the hash's upper half, for any number of slots. */
static inline size_t br_index_home(const struct br_index *index, uint64_t hash)
{
    return (size_t)((hash >> 32) * index->n_slots >> 32);
}

static inline size_t br_index_after(const struct br_index *index, size_t at)
{
    return at + 1 < index->n_slots ? at + 1 : 0;
}

/* Returns the place of the entry with this hash that equals `key`; BR_INDEX_NONE where there is
 * none. `entries` and `key` are handed to `equal`. */
static inline uint32_t br_index_find(const struct br_index *index, uint64_t hash,
                                     br_index_equal_fn *equal, const void *entries, const void *key)
{
    if (!index->n_slots)
        return BR_INDEX_NONE;
    size_t at = br_index_home(index, hash);
    for (; index->slots[at]; at = br_index_after(index, at))
        if (equal(entries, index->slots[at] - 1, key))
            return index->slots[at] - 1;
    return BR_INDEX_NONE;
}

/* Enters `place`, which is the number of entries so far, with its hash, after br_index_find did not
 * find its entry: each equal one would cost a step whenever they are looked for. Where slots run
 * short they become twice as many, and `rehash` is asked for the hashes of all places before it,
 * which are entered again. With reserved slots places may be left out. Each slot that is
 * passed is a step (base/steps.h). Returns 0, BR_EFULL (the
 * maximum is reached) or BR_ENOMEM; on failure nothing changed. */
int br_index_add(struct br_index *index, uint64_t hash, uint32_t place, br_index_hash_fn *rehash,
                 const void *entries);
