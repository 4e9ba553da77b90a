/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes the difference between two profiles whose values count since the program began: what
 * happened in between. Stacks are known again by what they say (addresses, functions, lines,
 * labels), because ids mean something within one profile only. A count that became less means that
 * the program is a new one; then all that it counts has happened since. Values beside counts
 * (bytes, nanoseconds) may become a little less in the same program, which scales what it has
 * sampled: that is no difference. Values of types `inuse_*` stay as they are.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

#define PPROF_DELTA_STACKS_MAX (1u << 17)

/* Remembers 8 bytes for each stack and as many for each of its values, and 6 to find it. */
struct pprof_delta;

struct pprof_delta *pprof_delta_new(void);        /* NULL without memory */
void pprof_delta_free(struct pprof_delta *delta); /* accepts NULL */

/* Forgets what was taken: the next profile is a first one. Accepts NULL. */
void pprof_delta_clear(struct pprof_delta *delta);

/* Returns true when the bytes are a pprof's Profile: every field that it has is of the kind that
 * the schema says. For pprof_delta_take. */
bool pprof_delta_check(const uint8_t *data, size_t len);

/* Takes the next profile (plain pprof). Sets `*ret` to the difference in the arena, `*ret_len` 0
 * for the first profile, which has none. The difference's duration is what lies between the two,
 * unless the profile says one. All that it takes, what is remembered and the difference included,
 * is about four times the profile's size and a MiB at the most. Returns 0; BR_EINVAL, BR_EFULL,
 * BR_ETOOBIG or BR_ENOMEM with a sentence: then the next profile is compared with the one before.
 */
int pprof_delta_take(struct pprof_delta *delta, const uint8_t *data, size_t len,
                     struct br_arena *arena, const uint8_t **ret, size_t *ret_len,
                     struct br_err *err);
