/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the series that a filter of samples lets through. For src/storage only. */
#pragma once

#include "attribute/regex.h"
#include "storage/view.h"

struct br_store_matching {
    struct br_store_query *query;
    const struct br_sample_filter *filter;
    struct br_err *err;
    struct br_regex regex;
    struct br_regex_time time;
    pcre2_code **patterns;                  /* by matcher; NULL: it has none */
    struct br_map *known;                   /* hash to struct br_stored_series, of all partitions */
    const struct br_stored_series **series; /* of the view at hand by id; NULL: not let through */
    uint32_t n_series, cap_series;
};

/* Returns 0, BR_EINVAL (a regular expression) or BR_ENOMEM; also then to be released. */
int br_store_matching_init(struct br_store_matching *matching, struct br_store_query *query,
                           const struct br_sample_filter *filter, struct br_err *err);
void br_store_matching_release(struct br_store_matching *matching);

/* Reads the series of a view. Returns 0 or as br_store_view_failed. */
int br_store_matching_read(struct br_store_matching *matching, struct br_store_view *view);
