/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cache.h"

#include <assert.h>

#include "base/map.h"

void br_cache_init_keyed(struct br_cache *cache, void *entries, size_t entry_size, uint32_t n_sets,
                         uint32_t ways, const uint64_t secret[2])
{
    assert(entry_size <= BR_CACHE_ENTRY_MAX && n_sets > 0 && (ways == 1 || ways == 2));
    *cache = (struct br_cache){.entries = entries,
                               .entry_size = entry_size,
                               .n_sets = n_sets,
                               .ways = ways,
                               .secret = {secret[0], secret[1]}};
}

void br_cache_init(struct br_cache *cache, void *entries, size_t entry_size, uint32_t n_sets,
                   uint32_t ways)
{
    uint64_t secret[2];
    br_random_bytes(secret, sizeof secret);
    br_cache_init_keyed(cache, entries, entry_size, n_sets, ways, secret);
}
