/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a tree of stacks in the binary form of Pyroscope (pkg/model/tree.go). */
#pragma once

#include "base/str.h"
#include "storage/flame.h"

/* Appends the first side of a tree whose totals are filled in (br_flame_total): for each node,
 * depth first, the length of its name, the name, its own value and the number of its children as
 * varints. The children are sorted by name, the last one comes first. The root's name is empty; a
 * tree without stacks is no bytes. Returns 0 or BR_ENOMEM, also if out->failed. */
int br_flame_tree_write(struct br_str *out, const struct br_flame *flame);
