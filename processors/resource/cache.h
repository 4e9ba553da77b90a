/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches the results of the rules for Resources. Senders repeat the same few Resources; a cached
 * one costs one hash and one comparison. The cache has a fixed number of entries of limited size;
 * an entry is only displaced by a newer one.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/cache.h"

/* largest entry, in bytes: Resource, metadata and result together */
#define RESOURCE_CACHE_ENTRY_MAX 8192
/* number of entries; all entries together take at most 2 MiB */
#define RESOURCE_CACHE_ENTRIES 256

struct resource_cached {
    uint64_t hash;
    struct br_buf *buf; /* Resource, metadata and result, in this order; NULL: empty entry */
    uint32_t in_len, metadata_len, out_len;
    bool changed; /* false: the rules do not change the Resource, and there is no result */
};

struct resource_cache {
    /* assigns a place to each hash; if two entries have the same place, the one used last is
     * kept */
    struct br_cache places;
    struct resource_cached entries[RESOURCE_CACHE_ENTRIES];
};

/* The data on which the result of the rules depends: the Resource and the metadata. */
struct resource_input {
    const uint8_t *data;
    /* client metadata of the item, including its terminating zero; NULL: none, or the rules do
     * not read metadata */
    const char *metadata;
    size_t len, metadata_len;
    uint64_t hash; /* hash of Resource and metadata; set by resource_cache_find */
};

/* Initializes a zeroed cache, which must not be moved afterwards. */
void resource_cache_init(struct resource_cache *cache);

/* Returns the entry for the input, or NULL if it is not cached. The entry is valid until the
 * next resource_cache_put. */
const struct resource_cached *resource_cache_find(struct resource_cache *cache,
                                                  struct resource_input *in);

/* Returns the changed Resource of an entry. */
static inline const uint8_t *resource_cached_output(const struct resource_cached *cached)
{
    return cached->buf->data + cached->in_len + cached->metadata_len;
}

/* Stores the result for the input `in`. Takes over `buf`, which must have the layout of
 * resource_cached.buf. Call it after resource_cache_find with the same input. */
void resource_cache_put(struct resource_cache *cache, const struct resource_input *in,
                        struct br_buf *buf, size_t out_len, bool changed);

void resource_cache_clear(struct resource_cache *cache);
