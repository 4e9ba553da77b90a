/* SPDX-License-Identifier: Apache-2.0 */
/* Visits the maps in a component's settings. Some maps, such as `tls` and `auth`, have the same
 * option table in many components. */
#pragma once

#include "config/option.h"

/* One map in the settings of a component. */
struct br_block {
    const struct br_option *table; /* option table of the map */
    const void *config;            /* struct with the settings that were read from the map */
    const struct br_yaml *node;    /* node of the map in the file */
    const char *path;              /* path of the map in the file */
};

/* Receives one map. Returns true if the maps inside this map must not be visited. A code other than
 * 0 in `*rc` becomes the result of br_blocks_visit. The code BR_ENOMEM also ends the visit. */
typedef bool br_block_fn(const struct br_block *block, void *arg, int *rc);

/* Calls `visit` for each map in `node` that `table` describes. Keys that are missing in the file
 * are not visited. Paths are allocated in `arena`. Returns 0, BR_ENOMEM, or the last code that
 * `visit` has set. */
int br_blocks_visit(const struct br_option *table, const void *config, const struct br_yaml *node,
                    const char *path, struct br_arena *arena, br_block_fn *visit, void *arg);
