/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects the stacks of a text format in a tree, with the outermost frames below the root, and
 * writes one OTLP Profile from it. Equal stacks share a node, which has the sum of their values, as
 * in Pyroscope. The work is therefore in proportion to the size of the input and the output. This
 * header is private to src/profile.
 */
#pragma once

#include <stdint.h>

#include "base/index.h"
#include "profile/profile.h"

#define BR_STACKS_ROOT 0u
#define BR_STACKS_NODES_MAX (1u << 21)
/* upper bound of the memory of a node in bytes: 24 for the node, and 6 to 12 in the hash table */
#define BR_STACKS_NODE_BYTES 40

struct br_stack_node {
    uint32_t parent;
    /* location or name of the frame, which distinguishes the node from its siblings */
    uint32_t key;
    uint32_t location; /* location of the frame in the dictionary */
    int64_t value;     /* total value of the stack that ends in this node */
};

struct br_stacks {
    struct br_build *build;
    struct br_stack_node *nodes; /* nodes[0] is the root, which is not a frame */
    uint32_t count, cap;
    struct br_index index; /* hash index of all nodes except the root */
    uint32_t n_max;        /* largest number of nodes, derived from br_profile_text_max */
    /* maximum number of bytes that the names added later may have in total; the names in a trie
     * share bytes, so a small upload may contain long names */
    size_t text_left;
    /* maximum number of frames that the stacks added later may contain in total; the stack of a
     * node has a frame for the node and for each ancestor */
    size_t path_left;
    /* profiles that are read in parts (struct br_profile_parts): number of nodes that were copied
     * from the previous part and do not count for the size of this part */
    uint32_t n_kept;
    /* profiles that are read in parts: number of bytes of OTLP that were copied from the previous
     * part and do not count for the size of this part */
    size_t bytes_kept;
    /* first error: BR_EFULL, BR_ETOOBIG or BR_ENOMEM; after an error, nothing more is added */
    int rc;
};

/* Initialises an empty tree for the profile in `source`. The frames of the tree are added to the
 * dictionary of `build`, which is borrowed until br_stacks_release. Returns 0 or BR_ENOMEM. The
 * tree may be released even after BR_ENOMEM. */
int br_stacks_init(struct br_stacks *stacks, struct br_build *build,
                   const struct br_profile_source *source, struct br_err *err);
void br_stacks_release(struct br_stacks *stacks);

/* Returns the child of `parent` for a frame with this location; adds the child if it does not
 * exist. Returns the root after a failure. A tree may use either br_stacks_child, or
 * br_stacks_frame and br_stacks_path, but not both. */
uint32_t br_stacks_child(struct br_stacks *stacks, uint32_t parent, uint32_t location);

/* Returns the child of `parent` for a function with this name; adds the child if it does not
 * exist. */
uint32_t br_stacks_frame(struct br_stacks *stacks, uint32_t parent, const char *name, size_t len);

/* Returns the node for the path `a;b;c`, outermost frame first. As in Pyroscope a `;` ends a
 * frame: "a;" is "a", and "a;;b" contains a frame with an empty name. */
uint32_t br_stacks_path(struct br_stacks *stacks, uint32_t parent, const char *text, size_t len);

/* Adds `value` to the value of a node. Returns 0, or BR_EINVAL with a message if the sum
 * overflows. */
int br_stacks_add(struct br_stacks *stacks, uint32_t node, int64_t value, struct br_err *err);

/* Returns false after a failure of the tree or the builder. The caller should then stop reading. */
static inline bool br_stacks_ok(const struct br_stacks *stacks)
{
    return stacks->rc == 0 && br_build_rc(stacks->build) == 0;
}

/* Meaning of the values in a text format. */
struct br_text_type {
    const char *name; /* value of Pyroscope's `__name__`; NULL: the profile has no `__name__` */
    const char *type, *unit;
    int64_t scale;     /* factor by which each number in the text is multiplied */
    int64_t period_ns; /* period in ns, of the period type cpu; 0: the profile has no period */
};

/* Determines the type from type, units and sample rate of the source. Counts of "cpu" and "wall"
 * become nanoseconds, and both types get a period of the period type "cpu", as in Pyroscope. The
 * strings of `text_type` point into `source`. */
void br_text_type_init(struct br_text_type *text_type, const struct br_profile_source *source);

/* Multiplies a number by type->scale. Returns 0, or BR_EINVAL with a message if the number is
 * negative or too large. */
int br_text_scale(const struct br_text_type *type, int64_t number, int64_t *ret,
                  struct br_err *err);

/* Writes a resource with one Profile of all stacks that have a value. Writes nothing if the tree
 * is empty. Returns the same codes as br_profile_read. */
int br_stacks_emit(struct br_stacks *stacks, const struct br_profile_source *source,
                   const struct br_text_type *type, struct br_arena *scratch, struct br_err *err);

/* If `source` is read in parts and the tree is large enough: writes the tree, completes the part
 * and sets `*ret_divided`. After a part is completed, the tree is empty, locations obtained before
 * are invalid, and the next part has no profile ID. Returns the same codes as br_profile_read. */
int br_stacks_divide(struct br_stacks *stacks, struct br_profile_source *source,
                     const struct br_text_type *type, struct br_arena *scratch, bool *ret_divided,
                     struct br_err *err);

/* Excludes everything that the tree contains now from the size of this part, because it was copied
 * from the previous part. */
void br_stacks_keep(struct br_stacks *stacks);
