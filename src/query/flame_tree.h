/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a flame graph in Pyroscope's binary tree format (pkg/model/tree.go). */
#pragma once

#include "base/str.h"
#include "storage/flame.h"

/* Appends the first side of a tree whose totals are filled in (br_flame_total). Nodes are
 * written depth first: length of the name, name, self value, number of children; numbers are
 * varints. Children are sorted by name, the last one first. The name of the root is empty. A
 * tree without stacks becomes zero bytes. Returns 0 or BR_ENOMEM, also if out->failed. */
int br_flame_tree_write(struct br_str *out, const struct br_flame *flame);
