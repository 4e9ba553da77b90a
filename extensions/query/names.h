/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the profile types, label names and label values of stored series. */
#pragma once

#include "extensions/query/selection.h"

#define QUERY_NAMES_MAX 100000 /* maximum number of names in one response */

enum query_names_of { QUERY_TYPES, QUERY_LABEL_NAMES, QUERY_LABEL_VALUES };

struct query_names_params {
    enum query_names_of of;
    /* for QUERY_LABEL_VALUES: name of the label; it may also be __name__, __type__ or another
     * part of a profile type */
    const char *label;
    bool plain_only; /* for QUERY_LABEL_NAMES: names that need quotes in a selector are omitted */
    uint64_t from_ns, until_ns;
    char *const *selectors; /* label selectors; a series must match all of them */
    size_t n_selectors;
};

/* Reads label `index` of a series as Pyroscope shows it: without __session_id__, and with
 * __service_name__, a copy of service_name, at the end. `ret->name` is NULL if the label is not
 * shown. Returns false if `index` is beyond the last label. */
bool query_names_label(const struct br_stored_series *series, size_t index,
                       struct br_series_label *ret);

/* Lists the distinct names, sorted. The list is in the job's arena. Returns 0, BR_EFULL,
 * BR_ENOMEM, BR_EIO, or BR_EINVAL with a message for an invalid selector. */
int query_names_gather(struct query_job *job, const struct query_names_params *params, char ***ret,
                       size_t *ret_n, struct br_err *err);

/* Calls `fn` for the series that match all selectors. Returns 0, BR_EFULL, BR_ENOMEM, BR_EIO, or
 * BR_EINVAL with a message for an invalid selector. */
int query_names_each_series(struct query_job *job, const struct query_names_params *params,
                            br_series_fn *fn, void *arg, struct br_err *err);
