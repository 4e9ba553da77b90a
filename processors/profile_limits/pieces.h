/* SPDX-License-Identifier: Apache-2.0 */
/* Splits requests and profiles that are too large, and drops samples that are still too large. */
#pragma once

#include "pipeline/component.h"

/* drop reason of samples that are too large, in the metrics of the ledger */
#define LIMITS_TOO_LARGE "profile_too_large"

struct limits_sizes {
    size_t max_bytes;     /* largest request, in bytes; 0: no limit */
    uint32_t max_samples; /* most samples of a profile; 0: no limit */
};

struct limits_counts {
    double *splits, *payloads;
};

/* Returns 1 if the item exceeds one of the sizes and must be split, or 0 if it does not. Returns
 * BR_ENOMEM or BR_EINVAL after an error. */
int limits_is_large(const struct limits_sizes *sizes, struct br_item *item);

/* Takes over an item, splits it and forwards the pieces. Drops a piece of one sample that is
 * still too large. All pieces together may take 3 times the bytes of the item plus 1 MiB; if
 * repeated dictionary entries exceed this, the whole item is dropped. Returns the number of
 * dropped samples. */
uint32_t limits_forward_pieces(struct br_node *node, const struct limits_sizes *sizes,
                               const struct limits_counts *counts, struct br_item *item);
