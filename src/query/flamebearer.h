/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes and writes flame graphs as Pyroscope has them: rows of bars from the root down. A bar is
 * four numbers, `offset, total, self, name`, where the offset counts from the end of the bar before
 * it in its row and the children of a bar begin behind what it has itself; in a difference seven,
 * the first three for the left and then for the right. Row 0 is the one bar "total", whose name is
 * 0.
 *
 * Of a tree with more nodes the `max_nodes` with the largest totals are kept (the root counts in a
 * difference alone), and those that are as large as the smallest of them; what the other children
 * of a bar have becomes one bar "other" behind them. Children stand in the order of their names.
 * Source: grafana/pyroscope pkg/model/flamegraph.go, flamegraph_diff.go; JSON: pkg/og/structs.
 */
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/str.h"
#include "storage/flame.h"

#define BR_FLAMEBEARER_SINGLE 4 /* numbers of a bar */
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
    unsigned width; /* numbers of a bar */
    int64_t ticks[BR_FLAME_SIDES];
    int64_t max_self;
};

/* Lays out a tree whose totals are filled in, all of it where `max_nodes` is 0. What it makes lies
 * in `arena` and refers to the tree's texts. Nodes whose totals are 0 are left out. Returns 0,
 * BR_ENOMEM or BR_EFULL (the arena's maximum). */
int br_flamebearer_make(const struct br_flame *flame, uint32_t max_nodes, bool diff,
                        struct br_arena *arena, struct br_flamebearer *ret);

/* Appends `{"names":[],"levels":[[]],"numTicks":0,"maxSelf":0}`; of a difference `leftTicks` and
 * `rightTicks` too, and with `files` the files of the names. */
void br_flamebearer_json(struct br_str *out, const struct br_flamebearer *flamebearer, bool files);
