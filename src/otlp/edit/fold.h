/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folds the samples of profiles. Folding removes links and span-id labels from samples whose links
 * are not kept. Folding also removes timestamps and threads from samples whose timestamps are not
 * needed any more. Samples of a profile that are equal afterwards are merged, and their values are
 * added up. Merged samples that lose only their links keep all their timestamps. The totals of each
 * stack stay the same.
 */
#pragma once

#include <stdint.h>

#include "core/item.h"

enum br_fold {
    BR_FOLD_KEPT,     /* the sample stays unchanged */
    BR_FOLD_FOLDED,   /* the sample loses its link */
    BR_FOLD_UNLINKED, /* the sample has no link; equal samples may be merged into it */
    /* flag that is added to one of the values above: the sample loses its timestamps and its
     * thread */
    BR_FOLD_TIMELESS = 16,
};

/* Bits that describe an attribute of the dictionary. */
enum br_fold_attribute {
    BR_FOLD_NAMES_SPAN = 1,   /* a span id or trace id, removed together with the link */
    BR_FOLD_NAMES_THREAD = 2, /* a thread, removed together with the timestamps */
};

/* Removes the links of the samples that are marked as BR_FOLD_FOLDED, and merges samples that are
 * then equal, so that the totals do not change. `folds` has one element for each sample: a value of
 * enum br_fold, possibly with the flag BR_FOLD_TIMELESS. The contents of `folds` are undefined
 * afterwards. `attributes` describes the first `n_attributes` entries of the attribute table with
 * bits of enum br_fold_attribute. Sets `*ret_merged` to the number of samples that were merged into
 * others; the caller reports them to the ledger. Needs 15 bytes of memory per sample. Returns 0 or
 * an error of br_item_rewrite; the item is then unchanged. */
int br_item_fold(struct br_item *item, uint8_t *folds, const uint8_t *attributes,
                 uint32_t n_attributes, uint32_t *ret_merged);
