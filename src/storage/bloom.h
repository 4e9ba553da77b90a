/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bloom filters over the attributes of a block of spans. The filter uses keyed hashes, with ten
 * bits and seven probes for each distinct hash, so about one in a hundred blocks is read
 * unnecessarily. Its size is proportional to the number of distinct hashes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/pack.h"

/* The distinct hashes of one block while it is built. A zeroed struct is empty. */
struct br_hashes {
    uint64_t *slots; /* hash table, allocated by the set; a slot of 0 is empty */
    size_t n_slots, count;
    bool failed; /* memory ran out, so hashes are missing */
};

/* br_hashes_release frees the memory of a set of hashes. br_hashes_clear empties the set and
 * keeps its memory. Both accept a zeroed set. */
void br_hashes_release(struct br_hashes *hashes);
void br_hashes_clear(struct br_hashes *hashes);

/* Adds a hash. Returns true if it is new; returns false and sets `failed` if memory runs out. */
bool br_hashes_add(struct br_hashes *hashes, uint64_t hash);

/* Appends the filter of all added hashes to `into`. */
void br_bloom_write(const struct br_hashes *hashes, struct br_pack *into);

/* Returns true if the hash may have been added to the filter. Returns false for an empty filter. */
bool br_bloom_has(const uint8_t *filter, size_t len, uint64_t hash);
