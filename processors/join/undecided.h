/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples whose links are kept only if their span used much CPU time. The CPU time is known once
 * all samples of the item have been added to their spans. Takes 4 bytes per sample and 40 bytes per
 * span and profile type.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/index.h"

/* The sum of the samples of one profile type that name the same span. */
struct join_undecided_span {
    uint8_t trace[16], span[8];
    uint16_t type;
    bool has_trace;
    bool folds; /* set by the caller: the samples lose their links */
    uint32_t samples;
    double value;
};

/* Zero-initialized. */
struct join_undecided {
    /* for each sample, the index of its span in `spans` + 1; 0: the sample is decided. NULL: all
     * samples are decided */
    uint32_t *of;
    uint32_t n_samples;
    struct join_undecided_span *spans;
    uint32_t count, cap;
    struct br_index index; /* hash index of `spans` */
};

/* Adds sample `index` of an item with `n_samples` samples. `trace` is NULL if unknown. Returns 0
 * or BR_ENOMEM. */
int join_undecided_add(struct join_undecided *undecided, uint32_t n_samples, uint32_t index,
                       const uint8_t *trace, const uint8_t *span, uint16_t type, double value);

/* Releases the memory and zeroes the struct. Accepts a zeroed struct. */
void join_undecided_release(struct join_undecided *undecided);
