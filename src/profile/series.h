/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the labels of a series out of what OTLP says of a profile's origin: Pyroscope's own rule
 * for what its clients sent, and few of the others' attributes, since each different set of labels
 * is a series. Pyroscope refuses more than 30 labels, values over 2048 bytes and names that occur
 * twice.
 */
#pragma once

#include "config/option.h"
#include "profile/name.h"
#include "profile/pprof/write.h"

#define BR_SERIES_LABELS_DEFAULT 30 /* max_label_names_per_series of a Pyroscope as it comes */
#define BR_SERIES_LABELS_MAX 128
#define BR_SERIES_VALUE_MAX 2048
#define BR_SERIES_NAME_MAX 1024

struct br_series_config {
    struct br_strings
        resource_attributes; /* v NULL: the default list, of clients of Pyroscope all */
    struct br_strings scope_attributes;
    struct br_strings sample_attributes; /* likewise */
    struct br_headers fixed;             /* that every series has */
    int64_t max;                         /* labels, with those of its samples */
    bool sanitize; /* letters, digits and _ only in names; everything else becomes _ */
};

/* What makes labels. It keeps what was read of a Resource or scope for the next profile of the same
 * one, which is told by where it lies. */
struct br_series;

/* Borrows `config` for its life. Returns NULL when there is no memory. */
struct br_series *br_series_new(const struct br_series_config *config);
void br_series_free(struct br_series *series);

/* Forgets what was read of an item, when it is gone. */
void br_series_forget(struct br_series *series);

/* Returns true for the attributes of samples that say which span, trace or profile they are of;
 * they make no series. */
bool br_series_is_id(const char *key, size_t len);

/* Returns true when a sample attribute of this name becomes a label: ids, and what the config
 * lists. */
bool br_series_keeps(const struct br_series_config *config, const char *key, size_t len);

/* Labels, in no order, of each name one. They live until the next call. */
struct br_series_made {
    const struct br_label *labels;
    uint32_t count;
    uint32_t n_left_out;      /* that were over the maximum ... */
    struct br_label left_out; /* ... and the first of them */
};

/* Makes the labels of a pprof's series, but for those of its samples. Returns false when there is
 * no memory. */
bool br_series_make(struct br_series *series, const struct br_pprof_out *result,
                    struct br_series_made *ret);
