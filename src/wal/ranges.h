/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of numbers, stored as sorted ranges with gaps between them. If a queue delivers its records
 * in order, its set of finished records is a single range.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct br_range {
    uint64_t first, last; /* both inclusive */
};

struct br_ranges {
    struct br_range *items; /* sorted array; NULL if the set is empty */
    uint32_t count, cap;
};

/* maximum number of ranges in a set */
#define BR_RANGES_MAX (1u << 20)

/* Adds the numbers from `first` to `last`; some or all may already be in the set. Returns 0,
 * BR_ENOMEM, or BR_EFULL if the set has BR_RANGES_MAX ranges; on failure the set is unchanged. */
int br_ranges_add(struct br_ranges *ranges, uint64_t first, uint64_t last);

/* Returns true if the set contains `number`. */
bool br_ranges_contain(const struct br_ranges *ranges, uint64_t number);

/* Returns true if the set contains all numbers from `first` to `last`. */
bool br_ranges_cover(const struct br_ranges *ranges, uint64_t first, uint64_t last);

/* Removes the first range, which must exist, and returns it. */
struct br_range br_ranges_shift(struct br_ranges *ranges);

/* Removes all numbers but keeps the allocated memory. */
void br_ranges_clear(struct br_ranges *ranges);

/* Frees the memory. Accepts a zeroed set. */
void br_ranges_release(struct br_ranges *ranges);
