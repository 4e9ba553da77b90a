/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folds samples: removes links and labels of samples whose links are not kept, and timestamps and
 * threads of samples whose times were stored for the join alone. Equal samples of a profile are
 * then merged. Their values are added up; in the first case all their timestamps are kept. Totals
 * per stack stay the same.
 */
#pragma once

#include "otlp/dictionary/dictionary.h"
#include "processors/join/sample_view.h"

enum join_fold {
    JOIN_FOLD_KEPT,     /* unchanged */
    JOIN_FOLD_FOLDED,   /* loses its link */
    JOIN_FOLD_UNLINKED, /* has no link; others may be merged into it */
    /* flag in addition to the above: loses its timestamps and its thread */
    JOIN_FOLD_TIMELESS = 16,
};

/* Folds the item's samples. `folds` has an enum join_fold and its flag for each sample; its
 * contents are undefined afterwards. `labels` are those of the first `n_labels` attributes.
 * `*ret_merged` receives the number of samples that were merged into others. Takes 15 bytes per
 * sample until it returns. Returns 0 or an error of br_item_rewrite; the item is then unchanged. */
int join_fold_samples(struct br_item *item, uint8_t *folds, const struct join_label *labels,
                      uint32_t n_labels, uint32_t *ret_merged);
