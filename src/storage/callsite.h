/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells which nodes of a partition's stacks belong to a call site: those whose stacks begin, from
 * the root on, with given function names. For src/storage only.
 */
#pragma once

#include "storage/tree.h"

struct br_store_callsite {
    const char *const *names;         /* the outermost function first */
    size_t n_names;                   /* at most BR_CALL_SITE_MAX */
    const struct br_store_view *view; /* whose nodes are known */
    uint16_t *states;                 /* by node */
    uint32_t n_states, cap_states, cap_words;
    struct br_store_node_set unknown;
    bool no_memory;
};

/* Looks up the nodes in a chunk's totals (storage/samples.h). Returns as br_store_tree_load. */
int br_store_callsite_learn(struct br_store_callsite *site, struct br_store_query *query,
                            struct br_store_view *view, const uint8_t *totals, size_t totals_len,
                            struct br_err *err);

/* Returns whether a node belongs to the call site. Nodes that were not looked up do not. */
bool br_store_callsite_has(const struct br_store_callsite *site, uint32_t node);

void br_store_callsite_release(struct br_store_callsite *site);
