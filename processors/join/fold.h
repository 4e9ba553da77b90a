/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folds samples whose links are not kept: they lose the link and the labels that named the span.
 * Folds samples whose times were kept for the join alone: they lose timestamps and thread. Samples
 * of a profile that are equal then become one, with the sum of their values and, in the first case,
 * all their timestamps. Totals per stack stay the same.
 */
#pragma once

#include "otlp/dictionary/dictionary.h"
#include "processors/join/sample_view.h"

enum join_fold {
    JOIN_FOLD_KEPT,          /* as it is */
    JOIN_FOLD_FOLDED,        /* loses its link */
    JOIN_FOLD_UNLINKED,      /* has none; others may become part of it */
    JOIN_FOLD_TIMELESS = 16, /* a bit beside these: loses its timestamps and its thread */
};

/* Folds the item's samples; `folds` has an enum join_fold, and its bit, for each, and means nothing
 * afterwards. `labels` are of its first `n_labels` attributes. `*ret_merged`: how many samples
 * became part of another. Takes 15 bytes a sample until it returns. Returns 0, or an error of
 * br_item_rewrite, and the item is as it was. */
int join_fold_samples(struct br_item *item, uint8_t *folds, const struct join_label *labels,
                      uint32_t n_labels, uint32_t *ret_merged);
