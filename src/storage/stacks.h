/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds the stacks of the open partition: functions, each once, and a tree of nodes {parent,
 * function}, each once, in memory and, in packs, in the database. Node
 * 0 is the root. For src/storage only.
 */
#pragma once

#include "base/index.h"
#include "storage/pack.h"
#include "storage/sql.h"

/* At a half of each another partition begins; what passes the maximum in one write is refused. */
#define BR_STACK_NODES_MAX (4u << 20)
#define BR_FUNCTIONS_MAX (1u << 20)
#define BR_FUNCTION_BYTES_MAX (128u << 20) /* of names and files */
#define BR_FUNCTION_NAME_MAX 4096u         /* a longer name is cut */

/* In one pack. Packs begin at multiples of these, so that a query reads the few that it needs. */
#define BR_STACK_PACK_NODES 1024u
#define BR_STACK_PACK_FUNCTIONS 256u

struct br_stack_node {
    uint32_t parent, function;
};

struct br_stack_function {
    uint32_t at, name_len, file_len; /* in the texts: the name, then the file */
};

struct br_stack_tree {
    struct br_stack_node *nodes; /* of node i + 1 */
    struct br_stack_function *functions;
    char *texts;
    uint32_t n_nodes, cap_nodes, n_functions, cap_functions, texts_len, cap_texts;
    uint32_t max_nodes;                    /* br_stack_tree_allow */
    uint32_t saved_nodes, saved_functions; /* that are in the database */
    struct br_index nodes_index, functions_index;
};

void br_stack_tree_init(struct br_stack_tree *stacks);
void br_stack_tree_release(struct br_stack_tree *stacks);

/* Gives the number of a function, which is copied where it is new. Returns 0, BR_EFULL or
 * BR_ENOMEM. */
int br_stack_tree_function(struct br_stack_tree *stacks, const void *name, size_t name_len,
                           const void *file, size_t file_len, uint32_t *ret);

/* Lets `count` nodes more be made, up to BR_STACK_NODES_MAX, which holds at first. */
void br_stack_tree_allow(struct br_stack_tree *stacks, size_t count);

/* Gives the node below `parent`, made where it is missing. Returns the same. */
int br_stack_tree_node(struct br_stack_tree *stacks, uint32_t parent, uint32_t function,
                       uint32_t *ret);

/* Writes what is new since the last time. Returns 0, BR_ENOMEM or as br_sql_fail. */
int br_stack_tree_save(struct br_stack_tree *stacks, struct br_sql *sql,
                       struct br_squeezer *squeezer, struct br_err *err);

/* Reads what is in the database into an empty one. Likewise; BR_EPROTO. */
int br_stack_tree_load(struct br_stack_tree *stacks, struct br_sql *sql,
                       struct br_squeezer *squeezer, struct br_err *err);

bool br_stack_tree_full(const struct br_stack_tree *stacks);

/* Reads one pack of functions; and of nodes, of which `back` says how many nodes before it its
 * parent lies. Borrows `data` until return. Both return 0, BR_EPROTO, or what `fn` does. */
typedef int br_stack_tree_function_fn(void *arg, const void *name, size_t name_len,
                                      const void *file, size_t file_len);
int br_stack_tree_read_functions(const uint8_t *data, size_t len, br_stack_tree_function_fn *fn,
                                 void *arg);
typedef int br_stack_tree_node_fn(void *arg, uint32_t back, uint32_t function);
int br_stack_tree_read_nodes(const uint8_t *data, size_t len, br_stack_tree_node_fn *fn, void *arg);
