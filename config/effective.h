/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts settings that were read by an option table back into a tree that contains every key of
 * the table with its effective value. Reading the tree gives the same settings.
 *
 * Keys without a value are null. An absent section is `{enabled: false}`, because naming it alone
 * would enable it. Lists of maps, and keys that have no effect, are copied from the config file.
 */
#pragma once

#include "config/option.h"

/* Returns the tree of `settings`, the struct described by `table` that was read from `node` (may
 * be NULL). Texts are borrowed. The tree is allocated in `arena`. Returns NULL if memory runs
 * out. */
struct br_yaml *br_options_effective(const struct br_option *table, const void *settings,
                                     const struct br_yaml *node, struct br_arena *arena);
