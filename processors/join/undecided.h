/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the samples whose links are kept only if their span spent much CPU time. That is known when
 * all samples of the item have been added to the span. It takes four bytes for a sample, and 40 for
 * a span and a type.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/index.h"

/* The sum of the samples of one type that name the same span. */
struct join_undecided_span {
    uint8_t trace[16], span[8];
    uint16_t type;
    bool has_trace;
    bool folds; /* for whoever decides */
    uint32_t samples;
    double value;
};

/* Zeroed at first. */
struct join_undecided {
    uint32_t *of; /* by sample: its span, plus 1; 0: it is decided. NULL: there is none */
    uint32_t n_samples;
    struct join_undecided_span *spans;
    uint32_t count, cap;
    struct br_index index; /* of the spans */
};

/* Adds the sample `index` of an item of `n_samples`; `trace` is NULL where it is not known. Returns
 * 0 or BR_ENOMEM. */
int join_undecided_add(struct join_undecided *undecided, uint32_t n_samples, uint32_t index,
                       const uint8_t *trace, const uint8_t *span, uint16_t type, double value);

/* Accepts a zeroed one, and zeroes it. */
void join_undecided_release(struct join_undecided *undecided);
