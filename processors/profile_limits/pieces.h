/* SPDX-License-Identifier: Apache-2.0 */
/* Splits requests and profiles that are too large at samples, and drops what is still too large. */
#pragma once

#include "pipeline/component.h"

#define LIMITS_TOO_LARGE "profile_too_large" /* the ledger's reason */

struct limits_sizes {
    size_t max_bytes;     /* of a request; 0: none */
    uint32_t max_samples; /* of a profile; 0: none */
};

struct limits_counts {
    double *splits, *payloads;
};

/* Tells whether the item has to be split. Returns 1, 0, BR_ENOMEM or BR_EINVAL. */
int limits_is_large(const struct limits_sizes *sizes, struct br_item *item);

/* Forwards the pieces of an item, which it takes, and drops those that are one sample and still too
 * large. All of them may take 8 times what the item does, and 16 MiB: where samples repeat so much
 * of the dictionary that they would take more, everything is dropped. Returns how many samples
 * were. */
uint32_t limits_forward_pieces(struct br_node *node, const struct limits_sizes *sizes,
                               const struct limits_counts *counts, struct br_item *item);
