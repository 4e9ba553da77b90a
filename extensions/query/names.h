/* SPDX-License-Identifier: Apache-2.0 */
/* Lists profile types, names of labels and values of a label, as far as series have them. */
#pragma once

#include "extensions/query/pick.h"

#define QUERY_NAMES_MAX 100000 /* of one answer */

enum query_names_of { QUERY_TYPES, QUERY_LABEL_NAMES, QUERY_LABEL_VALUES };

struct query_names_ask {
    enum query_names_of of;
    const char *label; /* of QUERY_LABEL_VALUES; also __name__, __type__ and the other parts of a
                          profile type */
    bool plain_only;   /* of QUERY_LABEL_NAMES: not those that need quotes in a selector */
    uint64_t from_ns, until_ns;
    char *const *selectors; /* what all of them match */
    size_t n_selectors;
};

/* Reads label `index` of a series as Pyroscope shows it: without __session_id__, and with
 * __service_name__, a copy of service_name, as the last one. `ret->name` NULL: this one is not
 * shown. Returns false after the last. */
bool query_names_label(const struct br_stored_series *series, size_t index,
                       struct br_series_label *ret);

/* Gathers them, each once, sorted, in the job's arena. Returns 0, BR_EINVAL (a bad selector) with a
 * sentence, BR_EFULL, BR_ENOMEM or BR_EIO. */
int query_names_gather(struct query_job *job, const struct query_names_ask *ask, char ***ret,
                       size_t *ret_n, struct br_err *err);

/* Returns whether a label's name needs no quotes in a selector: Prometheus' older names. */
bool query_names_is_plain(const char *name);

/* Calls `fn` for the series that all selectors match. Errors as query_names_gather. */
int query_names_each_series(struct query_job *job, const struct query_names_ask *ask,
                            br_series_fn *fn, void *arg, struct br_err *err);
