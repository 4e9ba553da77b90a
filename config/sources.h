/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the sources of a configuration, and merges and expands them into one tree. */
#pragma once

#include "config/yaml.h"

struct br_config_sources {
    const char *const *uris; /* --config: paths, file:, env:, yaml: */
    size_t n_uris;
    const char *const *sets; /* --set a.b.c=value, or a::b::c=value, where dots are part of names */
    size_t n_sets;
    const char *(*getenv)(const char *name, void *arg); /* NULL: the process's environment */
    void *arg;
    bool skip_unsupported; /* unsupported parts are removed, with warnings (app/adapt.h) */
    bool accept_loss;      /* also those that change which data is kept or shown */
    bool as_written;       /* br_config_merge: ${...} stays as it is */
    const char
        *unset; /* what stands for a variable that is not set; NULL: nothing, with a warning */
};

/* Reads, merges and expands without checking what the keys mean (for print-config too). The tree
 * lives in `arena`. Returns 0, or a negative code with errors in `errs`. */
int br_config_merge(const struct br_config_sources *sources, struct br_arena *arena,
                    struct br_yaml **ret, struct br_errs *errs);
