/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folds samples: removes links and labels of samples whose links are not kept, and timestamps and
 * threads of samples whose timestamps were stored for the join alone. Samples of a profile that are
 * equal afterwards are merged, and their values are added up. Merged samples that lose only their
 * links keep all their timestamps. Totals per stack stay the same.
 */
#pragma once

#include "otlp/dictionary/dictionary.h"
#include "processors/join/sample_view.h"

enum join_fold {
    JOIN_FOLD_KEPT,     /* the sample stays unchanged */
    JOIN_FOLD_FOLDED,   /* the sample loses its link */
    JOIN_FOLD_UNLINKED, /* the sample has no link; other samples may be merged into it */
    /* flag in addition to a value above: the sample loses its timestamps and its thread */
    JOIN_FOLD_TIMELESS = 16,
};

/* Folds the item's samples. `folds` has, for each sample, a value of enum join_fold and possibly
 * the flag; its contents are undefined afterwards. `labels` are those of the first `n_labels`
 * attributes. `*ret_merged` receives the number of samples that were merged into others. The
 * function needs 15 bytes of memory per sample. Returns 0 or an error of br_item_rewrite; the
 * item is then unchanged. */
int join_fold_samples(struct br_item *item, uint8_t *folds, const struct join_label *labels,
                      uint32_t n_labels, uint32_t *ret_merged);
