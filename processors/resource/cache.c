/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/resource/cache.h"

#include <string.h>

#define WAYS 2u

static bool resource_cache_equal(const void *entry, const void *key)
{
    const struct resource_cached *cached = entry;
    const struct resource_input *in = key;
    if (!cached->buf || cached->hash != in->hash)
        return false;
    if (cached->in_len != in->len || cached->metadata_len != in->metadata_len)
        return false;
    if (in->len && memcmp(cached->buf->data, in->data, in->len) != 0)
        return false;
    return !in->metadata_len ||
           memcmp(cached->buf->data + in->len, in->metadata, in->metadata_len) == 0;
}

void resource_cache_init(struct resource_cache *cache)
{
    br_cache_init(&cache->places, cache->entries, sizeof *cache->entries,
                  RESOURCE_CACHE_ENTRIES / WAYS, WAYS);
}

const struct resource_cached *resource_cache_find(struct resource_cache *cache,
                                                  struct resource_input *in)
{
    in->hash = br_cache_hash(&cache->places, in->data, in->len);
    if (in->metadata_len) {
        const uint64_t *secret = cache->places.secret;
        const uint64_t both[2] = {secret[0] ^ in->hash, secret[1]};
        in->hash = br_hash_keyed(both, in->metadata, in->metadata_len);
    }
    return br_cache_find(&cache->places, in->hash, resource_cache_equal, in);
}

void resource_cache_put(struct resource_cache *cache, const struct resource_input *in,
                        struct br_buf *buf, size_t out_len, bool changed)
{
    struct resource_cached *cached = br_cache_take(&cache->places, in->hash);
    br_buf_unref(cached->buf);
    *cached = (struct resource_cached){.hash = in->hash,
                                       .buf = buf,
                                       .in_len = (uint32_t)in->len,
                                       .metadata_len = (uint32_t)in->metadata_len,
                                       .out_len = (uint32_t)out_len,
                                       .changed = changed};
}

void resource_cache_clear(struct resource_cache *cache)
{
    for (size_t i = 0; i < RESOURCE_CACHE_ENTRIES; i++) {
        br_buf_unref(cache->entries[i].buf);
        cache->entries[i] = (struct resource_cached){0};
    }
}
