/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the nodes of a partition's stacks that belong to a call site: nodes whose stack begins, at
 * the root, with the given function names. For src/storage only.
 */
#pragma once

#include "storage/tree.h"

struct br_store_callsite {
    /* function names of the call site, the outermost function first */
    const char *const *names;
    size_t n_names;                   /* number of function names, at most BR_CALL_SITE_MAX */
    const struct br_store_view *view; /* the partition whose nodes are in `states` */
    uint16_t *states;                 /* state of each node (callsite.c), by node number */
    uint32_t n_states, cap_states, cap_words;
    struct br_store_node_set unknown;
    bool no_memory;
};

/* Looks up the nodes that the totals of a chunk (storage/samples.h) contain. Returns 0,
 * BR_ENOMEM, or a code of br_store_view_failed. */
int br_store_callsite_load(struct br_store_callsite *site, struct br_store_query *query,
                           struct br_store_view *view, const uint8_t *totals, size_t totals_len,
                           struct br_err *err);

/* Returns true if a node belongs to the call site. Returns false for nodes that
 * br_store_callsite_load did not look up. */
bool br_store_callsite_has(const struct br_store_callsite *site, uint32_t node);

void br_store_callsite_release(struct br_store_callsite *site);
