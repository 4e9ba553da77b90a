/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/resource/cache.h"

#include <string.h>

#include "base/hash.h"
#include "base/map.h"

#define WAYS 2u
#define SETS (RESOURCE_CACHE_ENTRIES / WAYS)

static bool resource_cache_equal(const struct resource_cached *cached,
                                 const struct resource_input *in)
{
    return cached->buf && cached->hash == in->hash && cached->in_len == in->len &&
           cached->metadata_len == in->metadata_len &&
           (!in->len || memcmp(cached->buf->data, in->data, in->len) == 0) &&
           (!in->metadata_len ||
            memcmp(cached->buf->data + in->len, in->metadata, in->metadata_len) == 0);
}

/* The first of a set is the one used last. */
static struct resource_cached *resource_cache_set_of(struct resource_cache *cache, uint64_t hash)
{
    return &cache->entries[hash % SETS * WAYS];
}

const struct resource_cached *resource_cache_find(struct resource_cache *cache,
                                                  struct resource_input *in)
{
    if (!cache->secret[0])
        br_random_bytes(cache->secret, sizeof cache->secret);
    in->hash = br_hash_keyed(cache->secret, in->data, in->len);
    if (in->metadata_len) {
        const uint64_t both[2] = {cache->secret[0] ^ in->hash, cache->secret[1]};
        in->hash = br_hash_keyed(both, in->metadata, in->metadata_len);
    }
    struct resource_cached *set = resource_cache_set_of(cache, in->hash);
    if (resource_cache_equal(&set[0], in))
        return &set[0];
    if (!resource_cache_equal(&set[1], in))
        return NULL;
    struct resource_cached cached = set[1];
    set[1] = set[0];
    set[0] = cached;
    return &set[0];
}

void resource_cache_put(struct resource_cache *cache, const struct resource_input *in,
                        struct br_buf *buf, size_t out_len, bool changed)
{
    struct resource_cached *set = resource_cache_set_of(cache, in->hash);
    br_buf_unref(set[1].buf);
    set[1] = set[0];
    set[0] = (struct resource_cached){.hash = in->hash,
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
