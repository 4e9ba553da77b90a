/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a tree of stacks in the formats of other tools. All of these append to `out`, whose
 * `failed` says that it did not fit, and write the left side of the tree, whose totals are filled
 * in.
 */
#pragma once

#include "base/str.h"
#include "storage/flame.h"

/* Writes folded stacks: `main;read;parse 300`, a line for each node that has something itself,
 * from the root down. In names `;` becomes `,` and what is no printable character a blank. */
void br_flame_folded(struct br_str *out, const struct br_flame *flame);

/* Writes speedscope's file format (speedscope.app/file-format-schema.json), one sampled profile.
 * `unit` is pprof's: "nanoseconds" and "bytes" are speedscope's, too, and anything else is "none".
 * Returns 0 or BR_ENOMEM. */
int br_flame_speedscope(struct br_str *out, const struct br_flame *flame, const char *name,
                        const char *unit);

/* `{"name":"total","self":0,"total":0,"children":[...]}`, children with the largest totals first.
 * Returns 0, BR_ENOMEM, or BR_ETOOBIG where stacks are deeper than BR_FLAME_TREE_DEPTH_MAX, which
 * readers of JSON would not follow. */
#define BR_FLAME_TREE_DEPTH_MAX 1000
int br_flame_tree(struct br_str *out, const struct br_flame *flame);

/* What a pprof says beside its stacks. */
struct br_flame_about {
    const char *type, *unit, *period_type, *period_unit;
    uint64_t time_ns, duration_ns;
};

/* Writes a pprof (proto/pprof/profile.proto), plain: a sample for each node that has something
 * itself, one location and one function for each name. Returns 0 or BR_ENOMEM. */
int br_flame_pprof(struct br_str *out, const struct br_flame *flame,
                   const struct br_flame_about *about);
