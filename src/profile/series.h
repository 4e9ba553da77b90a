/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Derives the labels of a Pyroscope series from the OTLP attributes of a profile. Profiles of
 * Pyroscope clients keep all their labels. Only a few attributes of profiles from other clients
 * become labels, because each distinct set of labels is a new series. Pyroscope rejects series with
 * more than 30 labels, values over 2048 bytes or duplicate names.
 */
#pragma once

#include "config/option.h"
#include "profile/name.h"
#include "profile/pprof/write.h"

#define BR_SERIES_LABELS_DEFAULT 30 /* Pyroscope's default for max_label_names_per_series */
#define BR_SERIES_LABELS_MAX 128
#define BR_SERIES_VALUE_MAX 2048
#define BR_SERIES_NAME_MAX 1024

struct br_series_config {
    /* Resource attributes that become labels. If `items` is NULL, the default list is used, and
     * profiles of Pyroscope clients keep all attributes. */
    struct br_strings resource_attributes;
    struct br_strings scope_attributes;
    /* sample attributes that become labels; if `items` is NULL, the default list is used */
    struct br_strings sample_attributes;
    struct br_headers fixed; /* labels added to every series */
    /* largest number of labels of a series, including those of the samples */
    int64_t max;
    bool sanitize; /* replace every character of a label name except letters, digits and _ by _ */
};

/* Builds the labels of series. A br_series caches the labels of the last Resource and scope for
 * further profiles with the same Resource or scope. A Resource or scope is recognised by its
 * address. */
struct br_series;

/* Creates a builder of labels. `config` is borrowed and must outlive the builder. Returns NULL
 * if there is not enough memory. */
struct br_series *br_series_new(const struct br_series_config *config);
void br_series_free(struct br_series *series);

/* Discards the cached Resource and scope. Must be called before the item that contains the Resource
 * and scope is freed. */
void br_series_forget(struct br_series *series);

/* Returns true for sample attributes that identify a span, trace or profile. Attributes with such
 * IDs do not create a series. */
bool br_series_is_id(const char *key, size_t len);

/* Returns true if a sample attribute with this name becomes a label: an ID, or an attribute
 * listed in the config. */
bool br_series_keeps(const struct br_series_config *config, const char *key, size_t len);

/* Labels with unique names, in no particular order. The labels are valid until the next call of
 * br_series_make. */
struct br_series_made {
    const struct br_label *labels;
    uint32_t count;
    uint32_t n_left_out;      /* number of labels left out because of the maximum */
    struct br_label left_out; /* the first label left out because of the maximum */
};

/* Builds the labels of the series for a pprof, except the labels that its samples add. Returns
 * false if there is not enough memory. */
bool br_series_make(struct br_series *series, const struct br_pprof_out *result,
                    struct br_series_made *ret);
