/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts a Collector's configuration file to one for Braid and, optionally, a second one for a
 * Collector that runs next to Braid.
 *
 * Each of the two files is the text of the original without the parts that its program does not
 * run. Order, comments, quotes and ${...} are kept, and a comment replaces each removed part. If
 * the text cannot be edited, for example because an anchor is removed and its alias stays, the tree
 * is printed without comments and a warning is added. Each result is read again and compared with
 * the tree that adapt.c or remainder.c made. A comment at the top lists the components that were
 * carried over, and those that were not.
 */
#pragma once

#include "app/config.h"
#include "base/str.h"
#include "config/edit.h"
#include "config/parts.h"

struct br_migration {
    struct br_str config; /* configuration for Braid */
    /* configuration for a Collector next to Braid; empty if the Collector keeps nothing */
    struct br_str rest;
};

/* Reads the file at `path`. Uses only `getenv` and `accept_loss` of `sources`. With `split`,
 * also writes `ret->rest`, and the two files together do the same as the original. Without
 * `split`, Braid's file is the configuration that --skip-unsupported runs.
 *
 * `ret` must be zeroed; on success it owns its strings, and the warnings in `errs` list each
 * removed part. Returns 0, or a negative code with errors in `errs`. */
int br_config_migrate(const char *path, const struct br_config_sources *sources,
                      const struct br_component *const *registry, bool split,
                      struct br_migration *ret, struct br_errs *errs);
void br_migration_release(struct br_migration *migration);

/* --- What the Collector keeps (remainder.c) --------------------------------------------------- */

/*
 * Reduces a configuration to the part that a Collector runs next to Braid, after br_config_adapt
 * has split it. The part has the pipelines that Braid does not run, the receivers and processors
 * before Braid, and the exporters and connectors after Braid. The links between the Collector and
 * Braid are in the part, too. If both programs would listen on a port, the Collector's port is
 * 10,000 higher.
 */

struct br_remainder {
    struct br_arena *arena;
    struct br_errs *errs;   /* receives warnings about ports that cannot be changed */
    struct br_edits *edits; /* receives the changes to make in the file */
    struct br_str *ports;   /* receives a line for each changed port */
    /* receives a line for each port that has to change but comes from ${...} */
    struct br_str *clashes;
    struct br_str *targets; /* receives a line for each scrape target whose port changed */
    struct br_str *links;   /* receives a line for each link to or from Braid */
    bool client_ports;      /* set if a port of a receiver changed */
    bool empty;             /* set if the Collector keeps no pipeline */
};

/* Reduces `tree`, which is merged but not expanded. `adapted` is the part of the same file that
 * Braid runs. Returns 0 or BR_ENOMEM. */
int br_config_remainder(struct br_remainder *remainder, struct br_yaml *tree,
                        const struct br_yaml *adapted);
