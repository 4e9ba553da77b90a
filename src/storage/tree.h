/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches the parts of a partition's stacks that a reader has read. The stacks are stored in packs.
 * A query needs few stacks, so only the packs that contain these stacks are read, and they are kept
 * for the next query. For src/storage only.
 */
#pragma once

#include "storage/view.h"

struct br_store_tree {
    /* array of blocks of BR_STACK_PACK_NODES nodes each; an entry is NULL until its block is
     * read */
    void **nodes;
    /* array of blocks of BR_STACK_PACK_FUNCTIONS functions each; an entry is NULL until its
     * block is read */
    void **functions;
    uint32_t n_nodes, n_functions; /* lengths of the arrays `nodes` and `functions` */
    /* names of the functions, each followed by the file of the function */
    char *text;
    uint32_t text_len, cap_text;
    size_t bytes; /* size of the cache in memory, in bytes */
};

/* A set of nodes, as a bitmap; node 0 is the root. */
struct br_store_node_set {
    uint64_t *words;
    uint32_t n_words;
};

/* Reads the paths from the root to the nodes of a set into view->reader->tree. Adds the nodes on
 * the paths, except the root, to `set`. Sets `*ret` to true if all paths were read. Returns 0,
 * BR_ENOMEM, or a code of br_store_view_failed. */
int br_store_tree_load(struct br_store_query *query, struct br_store_view *view,
                       const struct br_store_node_set *set, bool *ret, struct br_err *err);

/* Returns the parent and the function of a node. The parent has a lower number than the node. The
 * node must have been read, and must not be the root. */
void br_store_tree_node(const struct br_store_tree *tree, uint32_t node, uint32_t *ret_parent,
                        uint32_t *ret_function);

/* br_store_tree_name returns the name of a function, and br_store_tree_file returns the file of a
 * function. The function must have been read. */
const char *br_store_tree_name(const struct br_store_tree *tree, uint32_t function);
const char *br_store_tree_file(const struct br_store_tree *tree, uint32_t function);

/* br_store_tree_size returns the size of the cache in bytes. br_store_tree_free frees the cache.
 * Both accept NULL. */
size_t br_store_tree_size(const struct br_store_tree *tree);
void br_store_tree_free(struct br_store_tree *tree);

/* --- Call sites (callsite.c) ------------------------------------------------------------------ */

/*
 * Finds the nodes of a partition's stacks that belong to a call site: nodes whose stack begins, at
 * the root, with the given function names.
 */

struct br_store_callsite {
    /* function names of the call site, the outermost function first */
    const char *const *names;
    size_t n_names;                   /* number of function names, at most BR_CALL_SITE_MAX */
    const struct br_store_view *view; /* partition to whose nodes `states` applies */
    /* states by node number; the values are defined in callsite.c */
    uint16_t *states;
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
