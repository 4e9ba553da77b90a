/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a Collector's configuration file into Braid's and, as a second file, what is left for the
 * Collector.
 *
 * Both are the file's text with what does not belong there taken out: order, comments, quotes and
 * ${...} stay. In the place of what went stands a comment. Where the text cannot be changed so (an
 * anchor goes and its alias stays), the tree is printed instead, without comments, and a warning
 * says so. What comes out has been read again, and is what fit.h made of the file.
 */
#pragma once

#include "app/config.h"
#include "base/str.h"

struct br_migration {
    struct br_str config; /* what Braid runs */
    struct br_str rest;   /* what a Collector goes on running beside it; empty when nothing stays */
};

/* Reads the file at `path`; variables by `sources->getenv`, whose other fields are not looked at.
 * On success `ret`, zeroed before, owns its strings, and the warnings of `errs` say what went and
 * why. Returns 0, or a negative code with errors in `errs`. */
int br_config_migrate(const char *path, const struct br_config_sources *sources,
                      const struct br_component *const *registry, struct br_migration *ret,
                      struct br_errs *errs);
void br_migration_release(struct br_migration *migration);
