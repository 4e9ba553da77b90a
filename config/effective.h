/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns settings that were read by an option table back into a tree, with every key of the table
 * and the value that holds. The tree reads as the same settings.
 *
 * Keys without a value are null. A section that is absent is `{enabled: false}`, because its name
 * alone would turn it on. Lists of maps, and keys that have no effect, are as the file has them.
 */
#pragma once

#include "config/option.h"

/* Returns the tree of `settings`, the struct that `table` describes and that was read from `node`
 * (may be NULL). Texts are borrowed. The tree lives in `arena`; NULL when memory runs
 * out. */
struct br_yaml *br_options_effective(const struct br_option *table, const void *settings,
                                     const struct br_yaml *node, struct br_arena *arena);
