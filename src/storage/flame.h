/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree of stacks with values: what a flame graph draws. Node 0 is the root; a child comes behind
 * its parent. Frames are equal when their function names are (and where `files` are kept, those
 * too), so that trees of different partitions and profiles add up.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define BR_FLAME_SIDES 2 /* a difference has a left and a right */

struct br_flame_node {
    uint32_t parent;      /* 0 for the root, too */
    uint32_t first_child; /* 0: none */
    uint32_t next;        /* the next child of the same parent; 0: none */
    uint32_t name;        /* index into names */
    int64_t self[BR_FLAME_SIDES];
    int64_t total[BR_FLAME_SIDES]; /* filled by br_flame_total */
};

struct br_flame {
    struct br_flame_node *nodes; /* nodes[0] is the root */
    uint32_t n_nodes, cap_nodes, max_nodes;
    const char **names; /* names[0] is "total" */
    const char **files; /* by name; "" where it is not known */
    uint32_t n_names, cap_names;
    unsigned side; /* where br_flame_add adds: 0, or 1 for the right of a difference */
    void *impl;    /* lookup of names and of children */
};

/* Makes a tree of the root alone, of at most `max_nodes` nodes (the root among them), as many
 * names, and BR_FLAME_TEXTS_MAX bytes of names and files. Returns 0 or BR_ENOMEM, and the tree is
 * zeroed then. */
#define BR_FLAME_TEXTS_MAX(max_nodes) ((1u << 20) + (size_t)(max_nodes)*128)
int br_flame_init(struct br_flame *flame, uint32_t max_nodes);
void br_flame_release(struct br_flame *flame); /* accepts a zeroed one */

/* Gives the index of a function of this name and file (NULL or "": not known); copies both.
 * Returns 0, BR_EFULL or BR_ENOMEM. */
int br_flame_name(struct br_flame *flame, const char *name, const char *file, uint32_t *ret);

/* Gives the child of `parent` with that name, made where it is missing. Returns 0, BR_EFULL or
 * BR_ENOMEM. */
int br_flame_child(struct br_flame *flame, uint32_t parent, uint32_t name, uint32_t *ret);

/* Adds to what node `node` itself has, on the side `flame->side`; stays at the largest number where
 * the sum is larger. */
void br_flame_add(struct br_flame *flame, uint32_t node, int64_t value);

/* Adds both sides of `from` to `flame`, divided by `divisor`. Fractions are carried from node to
 * node: a side's total is exact but for the last fraction. Without `files`, functions are
 * equal if their names are, as in Pyroscope. Returns 0, BR_EFULL or BR_ENOMEM, and a part may
 * have been added then. */
int br_flame_merge(struct br_flame *flame, const struct br_flame *from, bool files,
                   uint64_t divisor);

/* Adds the stacks of `from` to `flame`, both sides, cut to their `n_frames` innermost frames.
 * Returns as br_flame_merge. */
int br_flame_keep_innermost(struct br_flame *flame, const struct br_flame *from, uint32_t n_frames);

/* Fills in the totals from the selves, in one pass over the nodes. */
void br_flame_total(struct br_flame *flame);

/* Makes room in a tree: nodes other than the `keep` with the largest totals (and fewer if totals
 * are equal) become part of a child BR_FLAME_OTHER of the nearest node above them that stays. Sums
 * stay exact. `*ret_map` is the new number of each node, and owned by the caller (br_free). Returns
 * 0 or BR_ENOMEM, and the tree is unchanged then. */
#define BR_FLAME_OTHER "other"
int br_flame_prune(struct br_flame *flame, uint32_t keep, uint32_t **ret_map);
