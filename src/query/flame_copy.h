/* SPDX-License-Identifier: Apache-2.0 */
/* Copies a tree of stacks as Pyroscope has it: functions are told apart by their names alone. */
#pragma once

#include "storage/flame.h"

/* Adds both sides of `from` to `to`, without files; of its stacks only those that begin with the
 * names in `call_site`, from the root on. Returns 0, BR_EFULL or BR_ENOMEM. */
int br_flame_copy(const struct br_flame *from, const char *const *call_site, size_t n_call_site,
                  struct br_flame *to);
