/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the stacks of a partition for queries. For src/storage only. */
#pragma once

#include "storage/view.h"

struct br_store_tree {
    uint32_t *parents, *functions; /* by node; node 0 is the root */
    uint32_t n_nodes, cap_nodes, cap_node_functions;
    uint32_t *names; /* by function: where its name begins in `text`, followed by its file */
    uint32_t n_functions, cap_functions;
    char *text;
    uint32_t text_len, cap_text;
};

/* Reads the stacks of the view's partition that its reader does not have yet, into
 * view->reader->tree. Returns 0 or as br_store_view_failed; the tree is NULL where it failed. */
int br_store_tree_load(struct br_store_query *query, struct br_store_view *view,
                       struct br_err *err);

/* A function's name and file. */
const char *br_store_tree_name(const struct br_store_tree *tree, uint32_t function);
const char *br_store_tree_file(const struct br_store_tree *tree, uint32_t function);

/* Bytes that it holds. Both accept NULL. */
size_t br_store_tree_size(const struct br_store_tree *tree);
void br_store_tree_free(struct br_store_tree *tree);
