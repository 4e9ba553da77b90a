/* SPDX-License-Identifier: Apache-2.0 */
/* Splits requests and profiles that are too large, and drops samples that are still too large. */
#pragma once

#include "pipeline/component.h"

#define LIMITS_TOO_LARGE "profile_too_large" /* reason in the ledger */

struct limits_sizes {
    size_t max_bytes;     /* bytes of a request; 0: no limit */
    uint32_t max_samples; /* samples of a profile; 0: no limit */
};

struct limits_counts {
    double *splits, *payloads;
};

/* Returns 1 if the item must be split, 0 if not, or BR_ENOMEM or BR_EINVAL. */
int limits_is_large(const struct limits_sizes *sizes, struct br_item *item);

/* Splits an item, which it takes over, and forwards the pieces. Drops pieces of one sample that
 * are still too large. All pieces together may take 3 times the bytes of the item and 1 MiB
 * more; if repeated dictionary entries exceed this, everything is dropped. Returns the number of
 * dropped samples. */
uint32_t limits_forward_pieces(struct br_node *node, const struct limits_sizes *sizes,
                               const struct limits_counts *counts, struct br_item *item);
