/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The labels of a series, out of what OTLP says of a profile's origin. Pyroscope makes a series of
 * each different set, refuses more than 30 labels, values over 2048 bytes and names that occur
 * twice.
 */
#pragma once

#include "base/buf.h"
#include "config/option.h"
#include "pipeline/component.h"
#include "profile/pprof/write.h"

struct pyroscope_label_config {
    struct br_strings
        resource_attributes; /* v NULL: the default list, of clients of Pyroscope all */
    struct br_strings scope_attributes;
    struct br_strings sample_attributes; /* likewise */
    struct br_headers fixed;             /* `static` */
    int64_t max;
    bool sanitize;
};

extern const struct br_option pyroscope_label_options[];

#define PYROSCOPE_LABELS_DEFAULT 30 /* max_label_names_per_series of a Pyroscope as it comes */
#define PYROSCOPE_LABELS_MAX 128
#define PYROSCOPE_VALUE_MAX 2048
#define PYROSCOPE_NAME_MAX 1024

struct pyroscope_labels;

/* `config` is borrowed for the life of it. NULL when there is no memory. */
struct pyroscope_labels *pyroscope_labels_new(struct br_node *node,
                                              const struct pyroscope_label_config *config);
void pyroscope_labels_free(struct pyroscope_labels *labels);

/* True when a sample attribute of this name becomes a label: ids, and what the config lists. Of the
 * type that br_pprof_options wants; any thread may call it. */
bool pyroscope_labels_keep(void *labels, const char *key, size_t len);

/* Counts labels of samples that were left out. */
void pyroscope_labels_count(struct pyroscope_labels *labels, uint32_t count);

/* To be called when an item is gone: what was read of a Resource or scope is kept for the next
 * profile of the same one, which is told by where it lies. */
void pyroscope_labels_forget(struct pyroscope_labels *labels);

/* The labels of a pprof's series as fields 1 of RawProfileSeries. They live until the next call.
 * False when there is no memory. */
bool pyroscope_labels_make(struct pyroscope_labels *pyroscope_labels,
                           const struct br_pprof_out *result, const uint8_t **ret, size_t *ret_len);
