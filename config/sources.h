/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the sources of a configuration, merges them into one tree and expands it. */
#pragma once

#include "config/yaml.h"

struct br_config_sources {
    /* arguments of --config: paths, or URIs that begin with file:, env: or yaml: */
    const char *const *uris;
    size_t n_uris;
    /* arguments of --set: a.b.c=value, or a::b::c=value if names contain dots */
    const char *const *sets;
    size_t n_sets;
    /* returns the value of an environment variable; NULL: the process's environment is used */
    const char *(*getenv)(const char *name, void *arg);
    void *arg;
    /* true: unsupported parts of the config are removed, with warnings (app/adapt.h) */
    bool skip_unsupported;
    /* true: unsupported parts are removed even if this changes which data is kept or shown */
    bool accept_loss;
    bool as_written; /* true: br_config_merge does not expand ${...} */
    /* value used for environment variables that are not set; NULL: a variable that is not set
     * expands to an empty text, with a warning */
    const char *unset;
};

/* Reads, merges and expands the sources without checking their keys. The tree is allocated in
 * `arena`. Returns 0, or a negative code with errors in `errs`. */
int br_config_merge(const struct br_config_sources *sources, struct br_arena *arena,
                    struct br_yaml **ret, struct br_errs *errs);
