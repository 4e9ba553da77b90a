/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes what Braid does not have out of a Collector's configuration tree. Each thing that goes is
 * told in a warning, with what it did and what is left to do.
 *
 *  - Pipelines of metrics and logs go, and what only they use.
 *  - Components that Braid does not have go out of every pipeline. A pipeline that is left without
 *    a receiver or without an exporter goes, too, and what only it uses.
 *  - Settings that Braid does not have go, one by one. This never lets in or shows more than
 *    before: a receiver's settings of `auth` and `tls` are not taken away from it.
 *  - With `all`, whatever the loader still refuses goes as well. A server whose `auth` or `tls` is
 *    refused goes whole, and so does an exporter whose `tls` is.
 *
 * Without `all`, what looks like a misspelling ("did you mean") stays, and the loader refuses it.
 */
#pragma once

#include "app/config.h"
#include "config/edit.h"

struct br_fit {
    const struct br_component *const *registry;
    struct br_arena *arena;
    struct br_errs *errs; /* gets the warnings, and what stops it */
    struct br_edits
        *edits; /* gets what has to change in the file; NULL where only the tree matters */
    bool all;
};

/* Changes `tree`, merged and expanded. Returns 0, BR_EINVAL with an error when no pipeline is left
 * or the tree is no configuration, or BR_ENOMEM. What the loader refuses may still be in it, unless
 * `all`; then only errors of values that come from ${...} may be left, which this machine's
 * environment may be the cause of. */
int br_config_fit(const struct br_fit *fit, struct br_yaml *tree);
