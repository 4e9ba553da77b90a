/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes the labels of a series (profile/series.h) for Pyroscope's push API, and reports dropped
 * labels.
 */
#pragma once

#include "base/buf.h"
#include "pipeline/component.h"
#include "profile/series.h"

extern const struct br_option pyroscope_label_options[];

struct pyroscope_labels;

/* Creates an encoder of labels. `config` is borrowed for the life of the encoder. Returns NULL
 * if memory is short. */
struct pyroscope_labels *pyroscope_labels_new(struct br_node *node,
                                              const struct br_series_config *config);
void pyroscope_labels_free(struct pyroscope_labels *labels);

/* Returns true if a sample attribute with the name `key` becomes a label: ids do, and the
 * attributes in the config. Has the type of br_pprof_options.keep_label. Any thread may call
 * this. */
bool pyroscope_labels_keep(void *labels, const char *key, size_t len);

/* Adds to the count of sample labels that were dropped. */
void pyroscope_labels_count(struct pyroscope_labels *labels, uint32_t count);

/* Clears the labels that are cached for the last Resource and scope. Must be called after the
 * last profile of an item, because a Resource and a scope are identified by their addresses. */
void pyroscope_labels_forget(struct pyroscope_labels *labels);

/* Encodes the labels of a pprof's series as RawProfileSeries.labels (field 1). The encoded
 * labels are valid until the next call. Returns false if memory is short. */
bool pyroscope_labels_make(struct pyroscope_labels *pyroscope_labels,
                           const struct br_pprof_out *result, const uint8_t **ret, size_t *ret_len);
