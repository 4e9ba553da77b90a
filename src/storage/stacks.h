/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stacks of the open partition: a list of distinct functions, and a tree of distinct nodes
 * {parent, function}. Node 0 is the root. The list and the tree are in memory, and are also stored
 * in the database, in packs. For src/storage only.
 */
#pragma once

#include "base/index.h"
#include "storage/pack.h"
#include "storage/sql.h"

/* Limits on the stack nodes and functions of a partition. A partition that reaches half of a limit
 * is sealed; a write that would exceed a limit is rejected. */
#define BR_STACK_NODES_MAX (4u << 20)
#define BR_FUNCTIONS_MAX (1u << 20)
/* maximum number of bytes of all function names and files of a partition together */
#define BR_FUNCTION_BYTES_MAX (128u << 20)
#define BR_FUNCTION_NAME_MAX                                                                       \
    4096u /* maximum number of bytes of a function name; longer names are cut */

/* Number of entries (nodes or functions) in one pack. The number of the first entry of a pack is
 * a multiple of the number of entries in a pack. A query can therefore read only the packs it
 * needs. */
#define BR_STACK_PACK_NODES 1024u
#define BR_STACK_PACK_FUNCTIONS 256u

struct br_stack_node {
    uint32_t parent, function;
};

struct br_stack_function {
    /* `at` is the offset of the name in `texts`; the file follows the name */
    uint32_t at, name_len, file_len;
};

struct br_stack_tree {
    struct br_stack_node *nodes; /* the node with number i + 1 is at index i */
    struct br_stack_function *functions;
    char *texts;
    uint32_t n_nodes, cap_nodes, n_functions, cap_functions, texts_len, cap_texts;
    /* maximum number of nodes that the tree may have; set by br_stack_tree_allow */
    uint32_t max_nodes;
    /* number of nodes and number of functions that have been written to the database */
    uint32_t saved_nodes, saved_functions;
    struct br_index nodes_index, functions_index;
};

/* br_stack_tree_init initializes an empty tree. br_stack_tree_release frees the memory of a
 * tree. */
void br_stack_tree_init(struct br_stack_tree *stacks);
void br_stack_tree_release(struct br_stack_tree *stacks);

/* Finds or adds a function, and stores its number in `*ret`. Copies both strings. Returns 0,
 * BR_EFULL or BR_ENOMEM. */
int br_stack_tree_function(struct br_stack_tree *stacks, const void *name, size_t name_len,
                           const void *file, size_t file_len, uint32_t *ret);

/* Sets the limit on nodes to `count` more than the tree has, but at most BR_STACK_NODES_MAX.
 * Before the first call, the limit is BR_STACK_NODES_MAX. */
void br_stack_tree_allow(struct br_stack_tree *stacks, size_t count);

/* Finds or adds the child of `parent` whose function is `function`, and stores the child's
 * number in `*ret`. Returns 0, BR_EFULL or BR_ENOMEM. */
int br_stack_tree_node(struct br_stack_tree *stacks, uint32_t parent, uint32_t function,
                       uint32_t *ret);

/* Writes the functions and nodes added since the last call. Returns 0, BR_ENOMEM or a code of
 * br_sql_fail. */
int br_stack_tree_save(struct br_stack_tree *stacks, struct br_sql *sql,
                       struct br_pack_codec *codec, struct br_err *err);

/* Reads the stacks of the database into an empty tree. Returns 0, BR_ENOMEM, BR_EPROTO, or a
 * code of br_sql_fail. */
int br_stack_tree_load(struct br_stack_tree *stacks, struct br_sql *sql,
                       struct br_pack_codec *codec, struct br_err *err);

/* Returns true when the tree has so many nodes or functions that the partition must be sealed. */
bool br_stack_tree_full(const struct br_stack_tree *stacks);

/* br_stack_tree_read_functions decodes a pack of functions. br_stack_tree_read_nodes decodes a pack
 * of nodes. `back` is a node's number minus the number of its parent. `data` is borrowed until the
 * function returns. Both functions return 0, BR_EPROTO, or the first code other than 0 that `fn`
 * returns. */
typedef int br_stack_tree_function_fn(void *arg, const void *name, size_t name_len,
                                      const void *file, size_t file_len);
int br_stack_tree_read_functions(const uint8_t *data, size_t len, br_stack_tree_function_fn *fn,
                                 void *arg);
typedef int br_stack_tree_node_fn(void *arg, uint32_t back, uint32_t function);
int br_stack_tree_read_nodes(const uint8_t *data, size_t len, br_stack_tree_node_fn *fn, void *arg);
