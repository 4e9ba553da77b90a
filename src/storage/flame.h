/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree of stacks with values, from which a flame graph is drawn. Node 0 is the root, and each
 * child has a higher number than its parent. Two frames are equal if their function names and files
 * are equal, so trees of different partitions and profiles can be added together.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* number of values per node: one for the left and one for the right side of a difference */
#define BR_FLAME_SIDES 2

struct br_flame_node {
    /* node number of the parent; 0 if the parent is the root, and for the root itself */
    uint32_t parent;
    uint32_t first_child; /* node number of the first child; 0: the node has no children */
    /* node number of the next child of the same parent; 0: this is the last child */
    uint32_t next;
    uint32_t name; /* index of the node's function in `names` and `files` */
    int64_t self[BR_FLAME_SIDES];
    /* value of the node and its descendants; br_flame_total sets it */
    int64_t total[BR_FLAME_SIDES];
};

struct br_flame {
    struct br_flame_node *nodes; /* nodes by node number; nodes[0] is the root */
    uint32_t n_nodes, cap_nodes, max_nodes;
    const char **names; /* function names; names[0] is "total", the name of the root */
    /* files[i] is the file of the function names[i], or "" if the file is unknown */
    const char **files;
    uint32_t n_names, cap_names;
    /* index of the side that br_flame_add adds to: 0 (left) or 1 (right side of a difference) */
    unsigned side;
    void *impl; /* private to flame.c: indexes of the names and of the children */
};

/* Creates a tree that contains only the root. The tree can hold `max_nodes` nodes including the
 * root, the same number of names, and BR_FLAME_TEXTS_MAX bytes of names and files. Returns 0, or
 * BR_ENOMEM with a zeroed tree. */
#define BR_FLAME_TEXTS_MAX(max_nodes) ((1u << 20) + (size_t)(max_nodes)*128)
int br_flame_init(struct br_flame *flame, uint32_t max_nodes);
/* Frees the memory of a tree. Accepts a zeroed tree. */
void br_flame_release(struct br_flame *flame);

/* Finds or adds the function with the name `name` and the file `file` (NULL or "": unknown), and
 * stores its index in `*ret`. Copies both strings. Returns 0, BR_EFULL or BR_ENOMEM. */
int br_flame_name(struct br_flame *flame, const char *name, const char *file, uint32_t *ret);

/* Finds or adds the child of `parent` whose function is `name`, and stores its node number in
 * `*ret`. Returns 0, BR_EFULL or BR_ENOMEM. */
int br_flame_child(struct br_flame *flame, uint32_t parent, uint32_t name, uint32_t *ret);

/* Adds a value to the self value of `node` on the side `flame->side`. The sum saturates. */
void br_flame_add(struct br_flame *flame, uint32_t node, int64_t value);

/* Divides the values of both sides of `from` by `divisor`, and adds the results to `flame`. The
 * remainder of a division is added to the next node, so a side's total lacks only the last
 * remainder. If `files` is false, functions with equal names are one function, even in different
 * files, as in Pyroscope. Returns 0, BR_EFULL or BR_ENOMEM. After an error, some nodes of `from`
 * may have been added. */
int br_flame_merge(struct br_flame *flame, const struct br_flame *from, bool files,
                   uint64_t divisor);

/* Adds both sides of the stacks of `from` to `flame`, with only the `n_frames` innermost frames
 * of each stack. Returns 0, BR_EFULL or BR_ENOMEM. After an error, some stacks may have been
 * added. */
int br_flame_keep_innermost(struct br_flame *flame, const struct br_flame *from, uint32_t n_frames);

/* Computes the total of each node from the self values of the node and its descendants. */
void br_flame_total(struct br_flame *flame);

/* Shrinks a tree to the `keep` nodes with the largest totals, or to fewer nodes if some totals are
 * equal. Every other node is merged into a child named BR_FLAME_OTHER. That child belongs to the
 * node's nearest remaining ancestor, so sums stay exact. `*ret_map` receives the new number of each
 * node; the caller frees the map with br_free. Returns 0 or BR_ENOMEM; after BR_ENOMEM the tree is
 * unchanged. */
#define BR_FLAME_OTHER "other"
int br_flame_prune(struct br_flame *flame, uint32_t keep, uint32_t **ret_map);
