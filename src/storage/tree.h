/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds what a reader has read of a partition's stacks: of all of them a query wants a few, so it
 * reads the packs in which these lie, and keeps them for the next. For src/storage only.
 */
#pragma once

#include "storage/view.h"

struct br_store_tree {
    void **nodes;                  /* blocks of BR_STACK_PACK_NODES; NULL: not read */
    void **functions;              /* of BR_STACK_PACK_FUNCTIONS */
    uint32_t n_nodes, n_functions; /* blocks */
    char *text;                    /* names, each followed by its file */
    uint32_t text_len, cap_text;
    size_t bytes; /* that it holds */
};

/* A set of nodes, by bits; node 0 is the root. */
struct br_store_node_set {
    uint64_t *words;
    uint32_t n_words;
};

/* Reads what leads to the nodes in the set into view->reader->tree, and adds the nodes on the way,
 * but for the root, to the set. Returns 0 or as br_store_view_failed; `*ret` says whether all was
 * read. */
int br_store_tree_load(struct br_store_query *query, struct br_store_view *view,
                       const struct br_store_node_set *set, bool *ret, struct br_err *err);

/* Gives the parent of a node that was read, which has a lower number, and its function. Not of the
 * root. */
void br_store_tree_node(const struct br_store_tree *tree, uint32_t node, uint32_t *ret_parent,
                        uint32_t *ret_function);

/* Gives name and file of a node's function. */
const char *br_store_tree_name(const struct br_store_tree *tree, uint32_t function);
const char *br_store_tree_file(const struct br_store_tree *tree, uint32_t function);

/* Returns the bytes that it holds. Both accept NULL. */
size_t br_store_tree_size(const struct br_store_tree *tree);
void br_store_tree_free(struct br_store_tree *tree);
