/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a flame graph in the formats of other tools. The functions append to `out`; if `out` is
 * full, they set out->failed. They write the first side (index 0) of the flame graph, whose totals
 * must be filled in.
 */
#pragma once

#include "base/str.h"
#include "storage/flame.h"

/* Writes folded stacks: a line such as `main;read;parse 300` for each node with a self value,
 * from the root down. In names `;` becomes `,` and control characters become spaces. */
void br_flame_folded(struct br_str *out, const struct br_flame *flame);

/* Writes speedscope's file format (speedscope.app/file-format-schema.json) with one sampled
 * profile. `unit` is a unit of pprof. speedscope supports "nanoseconds" and "bytes" too; other
 * units become "none". Returns 0 or BR_ENOMEM. */
int br_flame_speedscope(struct br_str *out, const struct br_flame *flame, const char *name,
                        const char *unit);

/* Writes the flame graph as nested JSON: `{"name":"total","self":0,"total":0,"children":[...]}`.
 * The largest children come first. Returns 0 or BR_ENOMEM. Returns BR_ETOOBIG if stacks are
 * deeper than BR_FLAME_TREE_DEPTH_MAX, because JSON parsers might reject deeper nesting. */
#define BR_FLAME_TREE_DEPTH_MAX 1000
int br_flame_tree(struct br_str *out, const struct br_flame *flame);

/* The fields of a pprof other than its stacks. */
struct br_flame_about {
    const char *type, *unit, *period_type, *period_unit;
    uint64_t time_ns, duration_ns;
};

/* Writes an uncompressed pprof (proto/pprof/profile.proto): a sample for each node with a self
 * value, and a location and a function for each name. Returns 0 or BR_ENOMEM. */
int br_flame_pprof(struct br_str *out, const struct br_flame *flame,
                   const struct br_flame_about *about);
