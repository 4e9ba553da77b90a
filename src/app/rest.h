/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes out of a configuration what a Collector has to go on running beside Braid: the pipelines
 * that Braid does not carry, those that feed them through a connector, and what they use. So that
 * both can run on one host, what both would listen on moves to a port that is 10,000 higher in the
 * Collector's part.
 */
#pragma once

#include "config/edit.h"
#include "config/parts.h"

struct br_rest {
    struct br_arena *arena;
    struct br_edits *edits; /* gets what changes in the file */
    struct br_str *ports;   /* gets a line for each port that moves */
    bool empty;             /* set when no pipeline stays */
    bool wants_spans;       /* set when a pipeline stays for its connectors, though Braid runs it */
};

/* Changes `tree`, merged and as written, to what stays; `fitted` is what Braid runs of the same
 * file. Returns 0 or BR_ENOMEM. */
int br_config_rest(struct br_rest *rest, struct br_yaml *tree, const struct br_yaml *fitted);
