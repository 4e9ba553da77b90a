/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the labels of a series (profile/series.h) as Pyroscope's push API has them, and says what
 * was left out.
 */
#pragma once

#include "base/buf.h"
#include "pipeline/component.h"
#include "profile/series.h"

extern const struct br_option pyroscope_label_options[];

struct pyroscope_labels;

/* Borrows `config` for its life. Returns NULL when there is no memory. */
struct pyroscope_labels *pyroscope_labels_new(struct br_node *node,
                                              const struct br_series_config *config);
void pyroscope_labels_free(struct pyroscope_labels *labels);

/* Returns true when a sample attribute of this name becomes a label: ids, and what the config
 * lists. Of the type that br_pprof_options wants; any thread may call it. */
bool pyroscope_labels_keep(void *labels, const char *key, size_t len);

/* Counts labels of samples that were left out. */
void pyroscope_labels_count(struct pyroscope_labels *labels, uint32_t count);

/* Forgets an item that is gone: what was read of a Resource or scope is kept for the next profile
 * of the same one, which is told by where it lies. */
void pyroscope_labels_forget(struct pyroscope_labels *labels);

/* Makes the labels of a pprof's series as fields 1 of RawProfileSeries. They live until the next
 * call. False when there is no memory. */
bool pyroscope_labels_make(struct pyroscope_labels *pyroscope_labels,
                           const struct br_pprof_out *result, const uint8_t **ret, size_t *ret_len);
