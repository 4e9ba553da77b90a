/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathers the stacks of a text format as a tree from the root side, and makes one OTLP Profile of
 * the tree. Equal stacks are one node whose values add up, as in Pyroscope; so the work is in the
 * size of what comes in and of what goes out, whatever the input repeats. For src/profile/ only.
 */
#pragma once

#include <stdint.h>

#include "base/index.h"
#include "profile/profile.h"

#define BR_STACKS_ROOT 0u
#define BR_STACKS_NODES_MAX (1u << 21)
#define BR_STACKS_NODE_BYTES 40 /* 24 for each, and 6 to 12 for finding it */

struct br_stack_node {
    uint32_t parent;
    uint32_t key;      /* tells it from its siblings */
    uint32_t location; /* of its frame, in the dictionary */
    int64_t value;     /* of the stack that ends here */
};

struct br_stacks {
    struct br_build *build;
    struct br_stack_node *nodes; /* 0 is the root, which is no frame */
    uint32_t count, cap;
    struct br_index index; /* of all nodes but the root */
    uint32_t n_max;        /* nodes: as many as four times what was sent has room for */
    size_t text_left;      /* bytes that names may still have: those of a trie overlap */
    size_t path_left;  /* frames that stacks may still have: a stack is a node and all above it */
    uint32_t n_kept;   /* nodes that do not count for the size of a part, ... */
    size_t bytes_kept; /* ... and OTLP */
    int rc; /* the first failure: BR_EFULL, BR_ETOOBIG, BR_ENOMEM; after it nothing is added */
};

/* Prepares a tree of what `source` holds, whose frames go into the dictionary of `build` (borrowed
 * until release). Returns 0 or BR_ENOMEM, after which it may be released. */
int br_stacks_init(struct br_stacks *stacks, struct br_build *build,
                   const struct br_profile_source *source, struct br_err *err);
void br_stacks_release(struct br_stacks *stacks);

/* Returns the child of `parent` for a frame of this location; the root after a failure. One tree
 * takes either these or names. */
uint32_t br_stacks_child(struct br_stacks *stacks, uint32_t parent, uint32_t location);

/* Returns the child of `parent` for a function of this name. */
uint32_t br_stacks_frame(struct br_stacks *stacks, uint32_t parent, const char *name, size_t len);

/* Returns the node at the end of `a;b;c`, root side first. As in Pyroscope a `;` ends a frame, so
 * that "a;" is "a", and "a;;b" has a frame without a name. */
uint32_t br_stacks_path(struct br_stacks *stacks, uint32_t parent, const char *text, size_t len);

/* Adds to a node's value. Returns 0, or BR_EINVAL with a sentence (the sum is no int64). */
int br_stacks_add(struct br_stacks *stacks, uint32_t node, int64_t value, struct br_err *err);

/* Returns false once something failed here or in the builder: time to stop reading. */
static inline bool br_stacks_ok(const struct br_stacks *stacks)
{
    return stacks->rc == 0 && br_build_rc(stacks->build) == 0;
}

/* What the numbers of a text format are. */
struct br_text_type {
    const char *name; /* `__name__` of Pyroscope */
    const char *type, *unit;
    int64_t scale;     /* a count is this many units */
    int64_t period_ns; /* of cpu; 0: none */
};

/* Prepares a type by type, units and rate of the source: counts of "cpu" and "wall" become
 * nanoseconds at sample_rate, with a period of "cpu" for both, as Pyroscope has it. Points into
 * `source`. */
void br_text_type_init(struct br_text_type *text_type, const struct br_profile_source *source);

/* Gives number times t->scale in `*ret`. Returns 0 or BR_EINVAL with a sentence (negative, too
 * large). */
int br_text_scale(const struct br_text_type *type, int64_t number, int64_t *ret,
                  struct br_err *err);

/* Adds the stacks that have a value as a resource of its own with one Profile; nothing when there
 * are none. Returns as br_profile_read. */
int br_stacks_emit(struct br_stacks *stacks, const struct br_profile_source *source,
                   const struct br_text_type *type, struct br_arena *scratch, struct br_err *err);

/* Emits the tree, hands it out, and sets `*ret_divided`, where the source is read in parts and
 * this one is large enough. The tree is empty then, locations that were known are void, and the
 * next part has no profile id. Returns as br_profile_read. */
int br_stacks_divide(struct br_stacks *stacks, struct br_profile_source *source,
                     const struct br_text_type *type, struct br_arena *scratch, bool *ret_divided,
                     struct br_err *err);

/* Notes that what is in the tree was in the last part, too: it does not count for the size of this
 * one. */
void br_stacks_keep(struct br_stacks *stacks);
