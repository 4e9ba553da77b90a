/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The places of a cache of fixed size: it says at which place of the holder's array the entry of a
 * hash is. A hash has one or two places, and the newest entries stay. It never grows and never has
 * to be cleaned. The holder hashes with the cache's secret (br_cache_hash), so that nobody outside
 * can choose texts that displace one another, and compares in full.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/hash.h"

#define BR_CACHE_ENTRY_MAX 64u /* bytes of an entry */

struct br_cache {
    void *entries; /* all zero: empty */
    size_t entry_size;
    uint32_t n_sets;
    uint32_t ways; /* entries of a set, one or two; the first is the one used last */
    uint64_t secret[2];
};

/* True when the entry, which may be an empty one, is the one of `key`. */
typedef bool br_cache_equal_fn(const void *entry, const void *key);

/* Prepares a cache of `n_sets` times `ways` (1 or 2) entries of `entry_size` bytes
 * (BR_CACHE_ENTRY_MAX at most) in a zeroed array, which stays the holder's. */
void br_cache_init(struct br_cache *cache, void *entries, size_t entry_size, uint32_t n_sets,
                   uint32_t ways);

/* Prepares a cache with a secret out of br_random_bytes that the holder has already: a small
 * profile, for which a cache is made, would mostly wait for the system's random bytes. */
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

/* Lets the first two entries of a set change places. */
static inline void br_cache_swap(const struct br_cache *cache, void *set)
{
    unsigned char moved[BR_CACHE_ENTRY_MAX], *second = (unsigned char *)set + cache->entry_size;
    memcpy(moved, set, cache->entry_size);
    memcpy(set, second, cache->entry_size);
    memcpy(second, moved, cache->entry_size);
}

/* Returns the entry of this hash that equals `key`, NULL where there is none. Lives until the next
 * call. */
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

/* Returns the entry to keep something new of this hash in. It still holds what has to go, or zeros:
 * the holder releases that, and overwrites it before the next call. */
static inline void *br_cache_take(const struct br_cache *cache, uint64_t hash)
{
    void *set = br_cache_set(cache, hash);
    if (cache->ways > 1)
        br_cache_swap(cache, set);
    return set;
}
