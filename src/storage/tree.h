/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches the packs of a partition's stacks that a reader has read. A query needs few of the stacks,
 * so only the packs that contain them are read, and kept for the next query. For src/storage only.
 */
#pragma once

#include "storage/view.h"

struct br_store_tree {
    /* blocks of BR_STACK_PACK_NODES nodes; NULL: the block was not read */
    void **nodes;
    /* blocks of BR_STACK_PACK_FUNCTIONS functions; NULL: the block was not read */
    void **functions;
    uint32_t n_nodes, n_functions; /* numbers of entries in `nodes` and in `functions` */
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
 * these paths, except the root, to the set. Sets `*ret` to true if all paths were read. Returns
 * 0, BR_ENOMEM, or a code of br_store_view_failed. */
int br_store_tree_load(struct br_store_query *query, struct br_store_view *view,
                       const struct br_store_node_set *set, bool *ret, struct br_err *err);

/* Returns the parent (which has a lower number) and the function of a node. The node must have
 * been read, and must not be the root. */
void br_store_tree_node(const struct br_store_tree *tree, uint32_t node, uint32_t *ret_parent,
                        uint32_t *ret_function);

/* br_store_tree_name returns the name of a function that was read, and br_store_tree_file its
 * file. */
const char *br_store_tree_name(const struct br_store_tree *tree, uint32_t function);
const char *br_store_tree_file(const struct br_store_tree *tree, uint32_t function);

/* br_store_tree_size returns the size of the cache in bytes. br_store_tree_free frees the cache.
 * Both accept NULL. */
size_t br_store_tree_size(const struct br_store_tree *tree);
void br_store_tree_free(struct br_store_tree *tree);
