/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts a Collector's configuration file to Braid's and, as a second file, to the part that
 * stays in a Collector beside Braid.
 *
 * Both are the file's text without the parts that do not belong there: order, comments, quotes and
 * ${...} stay, and a comment replaces each removed part. Where the text cannot be changed in this
 * way (an anchor is removed and its alias stays), the tree is printed instead, without comments,
 * and a warning reports it. The results have been read again, and are what fit.h and rest.h made of
 * the file. A comment at the top lists the components that were, and that were not, carried over.
 */
#pragma once

#include "app/config.h"
#include "base/str.h"

struct br_migration {
    struct br_str config; /* for Braid */
    struct br_str rest;   /* for a Collector beside it; empty when nothing stays there */
};

/* Reads the file at `path`; of `sources`, only `getenv` and `accept_loss` count. With `divide`, the
 * rest is written and the two files together do what the original did. Without it, Braid's file is
 * what --skip-unsupported runs. On success `ret`, zeroed before, owns its strings, and the warnings
 * of `errs` list each removed part. Returns 0, or a negative code with errors in `errs`. */
int br_config_migrate(const char *path, const struct br_config_sources *sources,
                      const struct br_component *const *registry, bool divide,
                      struct br_migration *ret, struct br_errs *errs);
void br_migration_release(struct br_migration *migration);
