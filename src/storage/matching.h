/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the series that a filter of samples selects. For src/storage only. */
#pragma once

#include "attribute/regex.h"
#include "storage/view.h"

struct br_store_matching {
    struct br_store_query *query;
    const struct br_sample_filter *filter;
    struct br_err *err;
    struct br_regex regex;
    struct br_regex_time time;
    /* compiled regular expression of each matcher; NULL: the matcher has none */
    pcre2_code **patterns;
    struct br_map *known; /* series of all partitions: hash to struct br_stored_series */
    /* series of the current view, by their ids; NULL: the filter does not select the series */
    const struct br_stored_series **series;
    uint32_t n_series, cap_series;
};

/* Compiles the matchers. br_store_matching_release must be called even after an error. Returns
 * 0, BR_EINVAL for an invalid regular expression, or BR_ENOMEM. */
int br_store_matching_init(struct br_store_matching *matching, struct br_store_query *query,
                           const struct br_sample_filter *filter, struct br_err *err);
void br_store_matching_release(struct br_store_matching *matching);

/* Reads the series of a view. Returns 0, BR_ENOMEM, or a code of br_store_view_failed. */
int br_store_matching_read(struct br_store_matching *matching, struct br_store_view *view);
