/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes flame graphs in the formats that queries return. The totals of a flame graph must have
 * been computed (br_flame_total). The functions append to `out`; if `out` is full, they set
 * out->failed.
 */
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/str.h"
#include "storage/flame.h"

/* --- Formats of other tools (flame_text.c, flame_pprof.c) ------------------------------------- */

/* A flame graph can hold the values of two profiles (BR_FLAME_SIDES). The functions in this section
 * write only the values of the first profile (index 0). */

/* Writes folded stacks: a line such as `main;read;parse 300` for each node with a self value,
 * from the root down. In names `;` becomes `,` and control characters become spaces. */
void br_flame_folded(struct br_str *out, const struct br_flame *flame);

/* Writes speedscope's file format (speedscope.app/file-format-schema.json) with one sampled
 * profile. `unit` is a unit as in pprof, such as "nanoseconds". The units "nanoseconds" and "bytes"
 * are kept, because speedscope supports them; other units become "none". Returns 0 or BR_ENOMEM. */
int br_flame_speedscope(struct br_str *out, const struct br_flame *flame, const char *name,
                        const char *unit);

/* Writes the flame graph as nested JSON: `{"name":"total","self":0,"total":0,"children":[...]}`.
 * The children of a node are sorted, the largest first. Returns 0 or BR_ENOMEM. Returns BR_ETOOBIG
 * if stacks are deeper than BR_FLAME_TREE_DEPTH_MAX, because JSON parsers might reject deeper
 * nesting. */
#define BR_FLAME_TREE_DEPTH_MAX 1000
int br_flame_tree(struct br_str *out, const struct br_flame *flame);

/* Data for the fields of a pprof that the flame graph does not contain. */
struct br_flame_about {
    const char *type, *unit, *period_type, *period_unit;
    uint64_t time_ns, duration_ns;
};

/* Writes an uncompressed pprof (proto/pprof/profile.proto): a sample for each node with a self
 * value, and a location and a function for each name. Returns 0 or BR_ENOMEM. */
int br_flame_pprof(struct br_str *out, const struct br_flame *flame,
                   const struct br_flame_about *about);

/* --- Pyroscope's tree (flame_tree.c) ---------------------------------------------------------- */

/* Pyroscope's binary format of a flame graph. Source: grafana/pyroscope pkg/model/tree.go. */

/* Appends a flame graph whose totals have been computed (br_flame_total), with the values of the
 * first profile (index 0). Nodes are written depth first: length of the name, name, self value,
 * number of children. The length, the self value and the number of children are varints. Children
 * are sorted by name, the last name first. The root's name is empty. A flame graph without stacks
 * becomes zero bytes. Returns 0 or BR_ENOMEM; BR_ENOMEM is also returned if out->failed is set. */
int br_flame_tree_write(struct br_str *out, const struct br_flame *flame);

/* --- Flamebearer (flamebearer.c) -------------------------------------------------------------- */

/*
 * Lays out and writes flame graphs in Pyroscope's format: rows of bars from the root down. A bar
 * consists of four numbers: `offset, total, self, name`. The offset counts from the end of the
 * previous bar in the row. The children of a bar begin after its self value. In a difference of two
 * profiles a bar consists of seven numbers: offset, total and self of the left profile, the same
 * three of the right profile, and the name. Row 0 is a single bar "total", whose name has the index
 * 0.
 *
 * If the tree has more than `max_nodes` nodes, the `max_nodes` nodes with the largest totals are
 * kept. Further nodes are kept if their totals equal the smallest total that is kept. The root
 * counts as a node only in a difference of two profiles. The omitted children of a bar are merged
 * into one bar "other", which follows the kept children. Children are sorted by name.
 *
 * Source: grafana/pyroscope pkg/model/flamegraph.go, flamegraph_diff.go; JSON: pkg/og/structs.
 */

#define BR_FLAMEBEARER_SINGLE 4 /* how many numbers describe a bar of a single profile */
#define BR_FLAMEBEARER_DIFF 7

struct br_flamebearer_level {
    int64_t *values;
    size_t n_values;
};

struct br_flamebearer {
    /* names of the bars, and the file of each name; names[0] is "total" */
    const char **names, **files;
    uint32_t n_names;
    struct br_flamebearer_level *levels;
    uint32_t n_levels;
    /* how many numbers describe a bar: BR_FLAMEBEARER_SINGLE or BR_FLAMEBEARER_DIFF */
    unsigned width;
    int64_t ticks[BR_FLAME_SIDES];
    int64_t max_self;
};

/* Lays out the flame graph `flame`, whose totals have been computed. `max_nodes` 0 means no
 * limit. The layout is allocated in `arena` and points to the flame graph's texts. Nodes with a
 * total of 0 are omitted. Returns 0, BR_ENOMEM or BR_EFULL (the arena's limit). */
int br_flamebearer_make(const struct br_flame *flame, uint32_t max_nodes, bool diff,
                        struct br_arena *arena, struct br_flamebearer *ret);

/* Appends a flame graph as JSON: `{"names":[],"levels":[[]],"numTicks":0,"maxSelf":0}`. The JSON
 * of a difference also contains `leftTicks` and `rightTicks`. If `files` is true, the JSON also
 * contains the file of each name. */
void br_flamebearer_json(struct br_str *out, const struct br_flamebearer *flamebearer, bool files);

/* --- Functions (functions.c) ------------------------------------------------------------------ */

/*
 * Aggregates a flame graph by function. The result contains the self value of each function, and
 * its total value, which includes the functions that it calls. Recursive calls are counted once:
 * only the outermost frame counts for the total.
 */

struct br_function {
    uint32_t name; /* index of the function's name in the flame graph's `names` */
    int64_t self[BR_FLAME_SIDES], total[BR_FLAME_SIDES];
};

enum br_function_order {
    BR_FUNCTIONS_BY_SELF,  /* sorts by self[0], largest first */
    BR_FUNCTIONS_BY_TOTAL, /* sorts by total[0], largest first */
    /* sorts by the difference between self[0] and self[1], largest magnitude first */
    BR_FUNCTIONS_BY_DELTA,
};

/* Aggregates the flame graph `flame`, whose totals have been computed. Functions with equal sort
 * keys are sorted by name. The root is included only if it has a self value. The array of
 * functions is allocated in `arena`. Returns 0, BR_ENOMEM or BR_EFULL (the arena's limit). */
int br_functions_make(const struct br_flame *flame, enum br_function_order order,
                      struct br_arena *arena, struct br_function **ret, uint32_t *ret_n);
