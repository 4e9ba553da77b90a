/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a flame graph in Pyroscope's binary tree format (pkg/model/tree.go). */
#pragma once

#include "base/str.h"
#include "storage/flame.h"

/* Appends the first side of a flame graph whose totals are filled in (br_flame_total). Nodes are
 * written depth first: length of the name, name, self value, number of children. The numbers are
 * varints. Children are sorted by name, the last name first. The root's name is empty. A flame
 * graph without stacks becomes zero bytes. Returns 0 or BR_ENOMEM; BR_ENOMEM also if
 * out->failed. */
int br_flame_tree_write(struct br_str *out, const struct br_flame *flame);
