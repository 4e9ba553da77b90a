/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts durations in ranges, to estimate percentiles in little memory. Durations from 32 ns to
 * below 64 ns are counted in 32 ranges of equal width, and so are durations from 64 ns to below
 * 128 ns, and so on for each power of two. Shorter durations are counted exactly. The middle of a
 * range differs from each duration in the range by at most 1/64 (1.6 %) of the duration.
 */
#pragma once

#include <stdint.h>

#include "base/arena.h"

#define QUERY_DURATIONS_WIDTH 32u /* number of ranges for each power of two */
#define QUERY_DURATIONS_GROUPS 60u
/* largest relative error of a percentile */
#define QUERY_DURATIONS_ERROR 0.015625

/* A zeroed struct contains no durations. */
struct query_durations {
    uint64_t count;
    uint64_t max_ns; /* longest duration in nanoseconds; exact */
    /* arrays of QUERY_DURATIONS_WIDTH counts, in the arena; NULL: all counts are 0. Group 0 has the
     * durations below 32 ns, group N those with 5 + N binary digits. */
    uint32_t *groups[QUERY_DURATIONS_GROUPS];
};

/* Adds a duration in nanoseconds. Returns 0, BR_EFULL or BR_ENOMEM; on failure, nothing is
 * added. */
int query_durations_add(struct query_durations *durations, struct br_arena *arena,
                        uint64_t duration_ns);

/* Returns the duration in nanoseconds that `percent` per cent of the durations do not exceed
 * (nearest rank), with a relative error of at most QUERY_DURATIONS_ERROR. `percent` is from 1 to
 * 100. Returns 0 if there are no durations. */
uint64_t query_durations_percentile(const struct query_durations *durations, unsigned percent);
