/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree of stacks with values, from which a flame graph is drawn. Node 0 is the root, and each
 * child has a higher number than its parent. Two frames are equal if their function names and files
 * are equal, so trees of different partitions and profiles can be added.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define BR_FLAME_SIDES 2 /* a difference has a left and a right side */

struct br_flame_node {
    uint32_t parent;      /* 0 for the root as well */
    uint32_t first_child; /* 0: none */
    uint32_t next;        /* the next child of the same parent; 0: none */
    uint32_t name;        /* index into names */
    int64_t self[BR_FLAME_SIDES];
    int64_t total[BR_FLAME_SIDES]; /* filled in by br_flame_total */
};

struct br_flame {
    struct br_flame_node *nodes; /* nodes[0] is the root */
    uint32_t n_nodes, cap_nodes, max_nodes;
    const char **names; /* names[0] is "total" */
    const char **files; /* by name; "" if the file is unknown */
    uint32_t n_names, cap_names;
    /* the side that br_flame_add adds to: 0, or 1 for the right side of a difference */
    unsigned side;
    void *impl; /* indexes of names and of children */
};

/* Creates a tree that contains only the root. It can hold `max_nodes` nodes including the root,
 * the same number of names, and BR_FLAME_TEXTS_MAX bytes of names and files. Returns 0 or
 * BR_ENOMEM; the tree is then zeroed. */
#define BR_FLAME_TEXTS_MAX(max_nodes) ((1u << 20) + (size_t)(max_nodes)*128)
int br_flame_init(struct br_flame *flame, uint32_t max_nodes);
void br_flame_release(struct br_flame *flame); /* accepts a zeroed one */

/* Finds or adds the function with this name and file (NULL or "": unknown), and stores its index
 * in `*ret`. Copies both strings. Returns 0, BR_EFULL or BR_ENOMEM. */
int br_flame_name(struct br_flame *flame, const char *name, const char *file, uint32_t *ret);

/* Finds or adds the child of `parent` with this name. Returns 0, BR_EFULL or BR_ENOMEM. */
int br_flame_child(struct br_flame *flame, uint32_t parent, uint32_t name, uint32_t *ret);

/* Adds a value to the self value of `node` on the side `flame->side`. The sum saturates. */
void br_flame_add(struct br_flame *flame, uint32_t node, int64_t value);

/* Adds both sides of `from` to `flame`, divided by `divisor`. Remainders are carried from node
 * to node, so only the last remainder is missing from the total of a side. If `files` is false,
 * functions are equal if their names are, as in Pyroscope. Returns 0, BR_EFULL or BR_ENOMEM;
 * after an error, a part may have been added. */
int br_flame_merge(struct br_flame *flame, const struct br_flame *from, bool files,
                   uint64_t divisor);

/* Adds both sides of the stacks of `from` to `flame`, cut to their `n_frames` innermost frames.
 * Returns 0, BR_EFULL or BR_ENOMEM; after an error, a part may have been added. */
int br_flame_keep_innermost(struct br_flame *flame, const struct br_flame *from, uint32_t n_frames);

/* Computes the totals from the self values. */
void br_flame_total(struct br_flame *flame);

/* Shrinks a tree to the `keep` nodes with the largest totals, or fewer if totals are equal.
 * Every other node is merged into a child named BR_FLAME_OTHER of its nearest remaining
 * ancestor, so sums stay exact. `*ret_map` receives the new number of each node; the caller
 * frees it with br_free. Returns 0 or BR_ENOMEM; the tree is then unchanged. */
#define BR_FLAME_OTHER "other"
int br_flame_prune(struct br_flame *flame, uint32_t keep, uint32_t **ret_map);
