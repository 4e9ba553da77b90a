/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts a configuration file of the Collector to a file for Braid. Optionally, also produces a
 * file for a Collector that runs next to Braid.
 *
 * Each file contains the text of the original, without the parts that the program of this file does
 * not run. The order, comments, quotes and ${...} are kept, and a comment replaces each removed
 * part. If the text cannot be edited, for example because a YAML anchor is removed and its alias
 * stays, the tree is printed without comments and a warning is added. Each result is parsed again
 * and compared with the tree that adapt.c or remainder.c produced. A comment at the top of Braid's
 * file lists the components that were carried over, and the components that were not.
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

/* Converts the file at `path` to ret->config, the configuration for Braid. Uses only `getenv` and
 * `accept_loss` of `sources`. With `split`, also sets ret->rest, the configuration for the
 * Collector. Braid and the Collector together then do the same as the original. Without `split`,
 * ret->config is the configuration that --skip-unsupported runs.
 *
 * `ret` must be zeroed. On success, the caller frees `ret` with br_migration_release, and `errs`
 * contains a warning for each removed part. Returns 0, or a negative code with errors in `errs`. */
int br_config_migrate(const char *path, const struct br_config_sources *sources,
                      const struct br_component *const *registry, bool split,
                      struct br_migration *ret, struct br_errs *errs);
void br_migration_release(struct br_migration *migration);

/* --- What the Collector keeps (remainder.c) --------------------------------------------------- */

/*
 * Reduces a configuration to the part that a Collector runs next to Braid. br_config_adapt must
 * have split the configuration before. The Collector's part contains:
 *
 * - the pipelines that Braid does not run
 * - the receivers and processors before Braid
 * - the exporters and connectors after Braid
 * - the Collector's ends of the links to and from Braid
 *
 * If both programs would listen on the same port, 10,000 is added to the Collector's port, or
 * subtracted from it if the sum would exceed 65,535.
 */

struct br_remainder {
    struct br_arena *arena;
    struct br_errs *errs;   /* receives warnings about ports that cannot be changed */
    struct br_edits *edits; /* receives the changes to make in the file */
    struct br_str *ports;   /* receives a line for each changed port */
    /* receives a line for each port that has to change but comes from ${...} */
    struct br_str *clashes;
    /* receives a line for each scrape target with the Collector's old metrics port */
    struct br_str *targets;
    struct br_str *links; /* receives a line for each link to or from Braid */
    bool client_ports;    /* set if a port of a receiver changed */
    bool empty;           /* set if the Collector keeps no pipeline */
};

/* Reduces `tree`, which is merged but not expanded, to the Collector's part. `adapted` is Braid's
 * part of the same file. Returns 0 or BR_ENOMEM. */
int br_config_remainder(struct br_remainder *remainder, struct br_yaml *tree,
                        const struct br_yaml *adapted);
