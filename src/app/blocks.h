/* SPDX-License-Identifier: Apache-2.0 */
/* Visits the maps of a component's settings, such as `tls` and `auth`, that are described by the
 * same option table in many components. */
#pragma once

#include "config/option.h"

/* One map in the settings of a component. */
struct br_block {
    const struct br_option *table; /* the option table of the map */
    const void *config;            /* the struct that the table fills */
    const struct br_yaml *node;    /* the map in the file */
    const char *path;              /* path of the map in the file */
};

/* Receives one map. Returns true if the maps inside this map must not be visited. A code other
 * than 0 in `*rc` is the result of the whole visit. BR_ENOMEM also ends the visit. */
typedef bool br_block_fn(const struct br_block *block, void *arg, int *rc);

/* Visits the maps that `node` contains and that `table` describes. Only keys that are in the file
 * are visited. Paths are allocated in `arena`. Returns 0, BR_ENOMEM, or a code of `visit`. */
int br_blocks_visit(const struct br_option *table, const void *config, const struct br_yaml *node,
                    const char *path, struct br_arena *arena, br_block_fn *visit, void *arg);
