/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that samples were in: the innermost of their stack's first location. */
#pragma once

#include "otlp/dictionary.h"
#include "processors/join/table.h"

struct join_leaves {
    struct join_table *table;
    const struct br_dictionary_view *view;
    /* By index: what was found of each, once; 0: nothing yet. NULL: no memory */
    uint32_t *stacks, *locations, *functions;
};

/* For an item's dictionary; memory lies in `arena`. */
void join_leaves_init(struct join_leaves *l, struct join_table *table,
                      const struct br_dictionary_view *view, struct br_arena *arena);

/* The table's number of a stack's function; 0 when that has no name. */
uint32_t join_leaf_of(struct join_leaves *l, uint32_t stack);
