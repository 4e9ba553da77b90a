/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Aggregates a flame graph by function: the self value of each function, and the total including
 * the functions it calls. Recursive calls are counted once: only the outermost frame counts for the
 * total.
 */
#pragma once

#include "base/arena.h"
#include "storage/flame.h"

struct br_function {
    uint32_t name; /* index of the name in the flame graph */
    int64_t self[BR_FLAME_SIDES], total[BR_FLAME_SIDES];
};

enum br_function_order {
    BR_FUNCTIONS_BY_SELF,  /* sorts by self value of the first side, largest first */
    BR_FUNCTIONS_BY_TOTAL, /* sorts by total of the first side, largest first */
    /* sorts by the difference between both sides' self values, largest magnitude first */
    BR_FUNCTIONS_BY_DELTA,
};

/* Aggregates the flame graph `flame`, whose totals are filled in. Functions with equal sort keys
 * are sorted by name. The root is included only if it has a self value. The array of functions
 * is allocated in `arena`. Returns 0, BR_ENOMEM or BR_EFULL (the arena's limit). */
int br_functions_make(const struct br_flame *flame, enum br_function_order order,
                      struct br_arena *arena, struct br_function **ret, uint32_t *ret_n);
