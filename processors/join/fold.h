/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folds samples whose links are not kept. They lose the link and the labels that named the span.
 * Samples of a profile that then say the same of a stack become one, with the sum of their values
 * and all their timestamps. Totals per stack stay what they were, and so does the shape of samples.
 */
#pragma once

#include "otlp/dictionary/dictionary.h"
#include "processors/join/sample_view.h"

enum join_fold {
    JOIN_FOLD_KEPT,     /* as it is */
    JOIN_FOLD_FOLDED,   /* loses its link */
    JOIN_FOLD_UNLINKED, /* has none; others may become part of it */
};

/* Folds the item's samples; `folds` has an enum join_fold for each, and means nothing afterwards.
 * `labels` are of its first `n_labels` attributes. `*ret_gone`: how many samples became part of
 * another. Takes 15 bytes a sample until it returns. Returns 0, or an error of br_item_rewrite, and
 * the item is as it was. */
int join_fold_samples(struct br_item *item, uint8_t *folds, const struct join_label *labels,
                      uint32_t n_labels, uint32_t *ret_gone);
