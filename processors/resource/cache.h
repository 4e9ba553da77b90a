/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remembers what the rules made of a Resource: the same few come again and again, and then cost a
 * hash and a comparison. It has a fixed number of entries of a bounded size; only a newer entry
 * displaces one.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/cache.h"

#define RESOURCE_CACHE_ENTRY_MAX 8192 /* bytes of input and output together */
#define RESOURCE_CACHE_ENTRIES 256    /* at most 2 MiB, by both */

struct resource_cached {
    uint64_t hash;
    struct br_buf *buf; /* Resource, then metadata, then what was made of them; NULL: empty */
    uint32_t in_len, metadata_len, out_len;
    bool changed; /* false: the rules leave it as it is, and there is no output */
};

struct resource_cache {
    struct br_cache places; /* of two entries the one used last stays */
    struct resource_cached entries[RESOURCE_CACHE_ENTRIES];
};

/* What an output depends on. */
struct resource_input {
    const uint8_t *data;
    const char *metadata; /* an item's, with its end; NULL: none, or the rules do not read it */
    size_t len, metadata_len;
    uint64_t hash; /* set by resource_cache_find */
};

/* Prepares a zeroed one, which stays where it is. */
void resource_cache_init(struct resource_cache *cache);

/* Returns the entry of the input, or NULL. It lives until the next resource_cache_put. */
const struct resource_cached *resource_cache_find(struct resource_cache *cache,
                                                  struct resource_input *in);

/* Returns where the output of an entry is. */
static inline const uint8_t *resource_cached_output(const struct resource_cached *cached)
{
    return cached->buf->data + cached->in_len + cached->metadata_len;
}

/* Enters a result; takes `buf`, laid out as above. After resource_cache_find with the same input.
 */
void resource_cache_put(struct resource_cache *cache, const struct resource_input *in,
                        struct br_buf *buf, size_t out_len, bool changed);

void resource_cache_clear(struct resource_cache *cache);
