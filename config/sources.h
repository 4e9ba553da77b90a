/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the sources of a configuration, merges them into one tree and expands it. */
#pragma once

#include "config/yaml.h"

struct br_config_sources {
    const char *const *uris; /* --config: paths, file:, env:, yaml: */
    size_t n_uris;
    const char *const *sets; /* --set a.b.c=value, or a::b::c=value if names contain dots */
    size_t n_sets;
    const char *(*getenv)(const char *name, void *arg); /* NULL: the process's environment */
    void *arg;
    bool skip_unsupported; /* unsupported parts are removed, with warnings (app/adapt.h) */
    bool accept_loss;      /* remove also parts that change which data is kept or shown */
    bool as_written;       /* br_config_merge does not expand ${...} */
    const char *unset;     /* value of variables that are not set; NULL: empty, with a warning */
};

/* Reads, merges and expands the sources without checking their keys. The tree is allocated in
 * `arena`. Returns 0, or a negative code with errors in `errs`. */
int br_config_merge(const struct br_config_sources *sources, struct br_arena *arena,
                    struct br_yaml **ret, struct br_errs *errs);
