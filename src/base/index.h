/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash index over an array that the caller owns. The index finds the position of an entry in the
 * array and stores only four bytes per slot. The slots use open addressing with linear probing and
 * are at most two thirds full. An index takes 6 to 12 bytes per entry while it grows. If the number
 * of entries is known in advance, it takes 6 bytes per entry.
 *
 * Entries cannot be removed. The caller hashes with the index's secret (br_index_hash), so that
 * clients cannot choose input that collides, or with another hash that clients cannot guess.
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
    uint32_t *slots; /* array of slots, each with the position of an entry plus 1; 0: empty slot */
    size_t n_slots;
    uint32_t max; /* largest number of entries that the index can have */
    enum br_holder holder;
    uint64_t secret[2];
};

/* Returns true if the entry at position `place` of the array `entries` has the key `key`. */
typedef bool br_index_equal_fn(const void *entries, uint32_t place, const void *key);

/* Returns the hash with which the entry at position `place` was added. */
typedef uint64_t br_index_hash_fn(const void *entries, uint32_t place);

/* Prepares an empty index of at most `max` entries (at most BR_INDEX_MAX) whose slots are
 * counted in the memory category `holder`. Allocates nothing. */
void br_index_init(struct br_index *index, uint32_t max, enum br_holder holder);

/* Frees the slots and leaves the index as br_index_init does. Accepts a zeroed index. */
void br_index_release(struct br_index *index);

/* Allocates slots for `count` entries in an empty index without slots. Returns 0, BR_ENOMEM, or
 * BR_EFULL if `count` is greater than the maximum. */
int br_index_reserve(struct br_index *index, uint32_t count);

/* Returns the number of bytes that br_index_reserve allocates for `count` entries. */
size_t br_index_bytes_for(size_t count);

/* Returns the size of the allocated slots in bytes. */
static inline size_t br_index_bytes(const struct br_index *index)
{
    return index->n_slots * sizeof *index->slots;
}

/* Returns the keyed hash of `len` bytes. */
static inline uint64_t br_index_hash(const struct br_index *index, const void *data, size_t len)
{
    return br_hash_keyed(index->secret, data, len);
}

/* Returns the first slot to probe for an entry. The slot is computed from the upper half of the
 * hash. The number of slots need not be a power of two. */
static inline size_t br_index_home(const struct br_index *index, uint64_t hash)
{
    return (size_t)((hash >> 32) * index->n_slots >> 32);
}

static inline size_t br_index_after(const struct br_index *index, size_t at)
{
    return at + 1 < index->n_slots ? at + 1 : 0;
}

/* Returns the position of the entry with this hash that equals `key`, or BR_INDEX_NONE.
 * `entries` and `key` are passed to `equal`. */
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

/* Adds the entry at `place`, which is the number of entries so far. Call br_index_find first: equal
 * entries would slow down every search for them. If there are too few slots, their number is
 * doubled and all earlier entries are added again with the hashes that `rehash` returns. If enough
 * slots were reserved with br_index_reserve, `place` may be greater than the number of entries, so
 * that some positions are not in the index. Each slot that is probed counts as a step
 * (base/steps.h). Returns 0, BR_EFULL (the maximum is reached) or BR_ENOMEM; on failure nothing
 * changes. */
int br_index_add(struct br_index *index, uint64_t hash, uint32_t place, br_index_hash_fn *rehash,
                 const void *entries);
