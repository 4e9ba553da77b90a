/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lays out and writes flame graphs in Pyroscope's format: rows of bars from the root down. A bar
 * consists of four numbers: `offset, total, self, name`. The offset counts from the end of the
 * previous bar in the row. The children of a bar begin after its self value. In a difference of two
 * profiles a bar consists of seven numbers: offset, total and self of the left profile, the same
 * three of the right profile, and the name. Row 0 is a single bar "total" with name 0.
 *
 * If the tree has more than `max_nodes` nodes, the `max_nodes` nodes with the largest totals are
 * kept. Further nodes are kept if their total equals that of the smallest one kept. The root counts
 * as a node only in a difference. The omitted children of a bar are merged into one bar "other",
 * which follows the kept children. Children are sorted by name.
 *
 * Source: grafana/pyroscope pkg/model/flamegraph.go, flamegraph_diff.go; JSON: pkg/og/structs.
 */
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/str.h"
#include "storage/flame.h"

#define BR_FLAMEBEARER_SINGLE 4 /* numbers per bar of a single profile */
#define BR_FLAMEBEARER_DIFF 7

struct br_flamebearer_level {
    int64_t *values;
    size_t n_values;
};

struct br_flamebearer {
    const char **names, **files; /* names[0] is "total" */
    uint32_t n_names;
    struct br_flamebearer_level *levels;
    uint32_t n_levels;
    unsigned width; /* numbers per bar: BR_FLAMEBEARER_SINGLE or BR_FLAMEBEARER_DIFF */
    int64_t ticks[BR_FLAME_SIDES];
    int64_t max_self;
};

/* Lays out the flame graph `flame`, whose totals are filled in. `max_nodes` 0 means no limit.
 * The layout is allocated in `arena` and points to the flame graph's texts. Nodes with a total
 * of 0 are omitted. Returns 0, BR_ENOMEM or BR_EFULL (the arena's limit). */
int br_flamebearer_make(const struct br_flame *flame, uint32_t max_nodes, bool diff,
                        struct br_arena *arena, struct br_flamebearer *ret);

/* Appends a flame graph as JSON: `{"names":[],"levels":[[]],"numTicks":0,"maxSelf":0}`. The JSON
 * of a difference also contains `leftTicks` and `rightTicks`. With `files`, the JSON contains
 * the file of each name. */
void br_flamebearer_json(struct br_str *out, const struct br_flamebearer *flamebearer, bool files);
