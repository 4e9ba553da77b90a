/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduces a configuration to the part that a Collector runs next to Braid, after adapt.h split it.
 * The part has the pipelines that Braid does not run, the receivers and processors before Braid,
 * and the exporters and connectors after Braid. It also gets the links between the two processes.
 * If both processes would listen on a port, the Collector's port is 10,000 higher.
 */
#pragma once

#include "config/edit.h"
#include "config/parts.h"

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
