/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says what attributes a block of spans has, by a Bloom filter over keyed hashes: ten bits and
 * seven probes for each different one, so that one in a hundred blocks is read for nothing. Its
 * size follows what is in the block, however many different values there are.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/pack.h"

/* The different hashes of one block, under construction. Zeroed at first. */
struct br_hashes {
    uint64_t *slots; /* 0: empty */
    size_t n_slots, count;
    bool failed; /* there was no memory */
};

void br_hashes_release(struct br_hashes *hashes);
void br_hashes_clear(struct br_hashes *hashes);

/* Enters a hash. True when it is new. */
bool br_hashes_add(struct br_hashes *hashes, uint64_t hash);

/* Appends the filter of all that were entered. */
void br_bloom_write(const struct br_hashes *hashes, struct br_pack *into);

/* Returns true when the hash may have been entered; also for a filter of another length than is
 * written. */
bool br_bloom_has(const uint8_t *filter, size_t len, uint64_t hash);
