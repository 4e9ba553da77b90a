/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduces a configuration to the part that a Collector runs beside Braid, after fit.h divided it:
 * the pipelines that Braid does not have, the receivers and processors in front of Braid, the
 * exporters and connectors behind it, and the links between the two. A port that both would listen
 * at is 10,000 higher in the Collector's part.
 */
#pragma once

#include "config/edit.h"
#include "config/parts.h"

struct br_rest {
    struct br_arena *arena;
    struct br_errs *errs;   /* gets warnings about ports that cannot be moved */
    struct br_edits *edits; /* gets the changes of the file */
    struct br_str *ports;   /* gets a line for each port that moves */
    struct br_str *clashes; /* gets a line for each port that would have to, and is in ${...} */
    struct br_str *links;   /* gets a line for each link to Braid */
    bool empty;             /* set when no pipeline stays */
};

/* Reduces `tree`, merged and as written; `fitted` is the part of the same file that Braid runs.
 * Returns 0 or BR_ENOMEM. */
int br_config_rest(struct br_rest *rest, struct br_yaml *tree, const struct br_yaml *fitted);
