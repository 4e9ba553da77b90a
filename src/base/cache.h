/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache of fixed size in an array that the caller owns. Each hash selects a set of one or two
 * entries. A new key replaces the least recently used entry of the set. The cache never grows and
 * needs no cleanup. The caller hashes with the cache's secret (br_cache_hash), so that clients
 * cannot choose keys that evict each other, and compares whole keys.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/hash.h"

#define BR_CACHE_ENTRY_MAX 64u /* largest size of an entry in bytes */

struct br_cache {
    void *entries; /* array of entries, owned by the caller; all bytes of an empty entry are zero */
    size_t entry_size;
    uint32_t n_sets;
    /* number of entries in a set, one or two; the first entry is the most recently used one */
    uint32_t ways;
    uint64_t secret[2];
};

/* Returns true if `entry`, which may be empty, is the entry of `key`. */
typedef bool br_cache_equal_fn(const void *entry, const void *key);

/* Prepares a cache of `n_sets` times `ways` (1 or 2) entries of `entry_size` bytes (at most
 * BR_CACHE_ENTRY_MAX) in a zeroed array, which the caller owns. */
void br_cache_init(struct br_cache *cache, void *entries, size_t entry_size, uint32_t n_sets,
                   uint32_t ways);

/* Prepares a cache with a secret that the caller has already got from br_random_bytes. This
 * function is for caches that are made for each request: reading random bytes from the system takes
 * longer than the rest of the work for a small profile. */
void br_cache_init_keyed(struct br_cache *cache, void *entries, size_t entry_size, uint32_t n_sets,
                         uint32_t ways, const uint64_t secret[2]);

/* Returns the keyed hash of `len` bytes. */
static inline uint64_t br_cache_hash(const struct br_cache *cache, const void *data, size_t len)
{
    return br_hash_keyed(cache->secret, data, len);
}

/* Returns the first entry of the set of this hash. */
static inline void *br_cache_set(const struct br_cache *cache, uint64_t hash)
{
    size_t set = (size_t)((hash >> 32) * cache->n_sets >> 32);
    return (unsigned char *)cache->entries + set * cache->ways * cache->entry_size;
}

/* Swaps the first two entries of a set. */
static inline void br_cache_swap(const struct br_cache *cache, void *set)
{
    unsigned char moved[BR_CACHE_ENTRY_MAX], *second = (unsigned char *)set + cache->entry_size;
    memcpy(moved, set, cache->entry_size);
    memcpy(set, second, cache->entry_size);
    memcpy(second, moved, cache->entry_size);
}

/* Returns the entry of this hash that equals `key`, or NULL. The entry is valid until the next
 * call of br_cache_find or br_cache_take. */
static inline void *br_cache_find(const struct br_cache *cache, uint64_t hash,
                                  br_cache_equal_fn *equal, const void *key)
{
    void *set = br_cache_set(cache, hash);
    if (equal(set, key))
        return set;
    if (cache->ways < 2 || !equal((unsigned char *)set + cache->entry_size, key))
        return NULL;
    br_cache_swap(cache, set);
    return set;
}

/* Returns the entry in which to store a new key of this hash. The entry still has the contents
 * of the evicted key, or zeros. The caller releases these contents and overwrites the entry
 * before the next call. */
static inline void *br_cache_take(const struct br_cache *cache, uint64_t hash)
{
    void *set = br_cache_set(cache, hash);
    if (cache->ways > 1)
        br_cache_swap(cache, set);
    return set;
}
