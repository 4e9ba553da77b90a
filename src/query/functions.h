/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adds up a tree of stacks by function: what each has itself, and with what it called. A function
 * that called itself counts once: only its outermost frames do.
 */
#pragma once

#include "base/arena.h"
#include "storage/flame.h"

struct br_function {
    uint32_t name; /* of the flame */
    int64_t self[BR_FLAME_SIDES], total[BR_FLAME_SIDES];
};

enum br_function_order {
    BR_FUNCTIONS_BY_SELF,  /* of the left side, the largest first */
    BR_FUNCTIONS_BY_TOTAL, /* likewise */
    BR_FUNCTIONS_BY_DELTA, /* right self less left self, the farthest from 0 first */
};

/* Sums up a tree whose totals are filled in; equal ones stand in the order of their names. The
 * root is a function only where it has something itself. The array lies in `arena`. Returns 0,
 * BR_ENOMEM or BR_EFULL (the arena's maximum). */
int br_functions_make(const struct br_flame *flame, enum br_function_order order,
                      struct br_arena *arena, struct br_function **ret, uint32_t *ret_n);
