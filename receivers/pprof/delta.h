/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes the difference between two profiles whose values are totals since the program began.
 * Stacks are matched by their content (addresses, functions, lines, labels), because IDs are valid
 * only within one profile.
 *
 * If a count has decreased, the program was restarted, and the difference equals the new profile.
 * Other values (bytes, nanoseconds) may decrease slightly without a restart, because the program
 * scales its samples; such a decrease counts as 0. Values of types `inuse_*` are copied unchanged.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

#define PPROF_DELTA_STACKS_MAX (1u << 17)

/* The previous profile, kept for the next comparison. A kept profile takes 8 bytes per stack, 8
 * per value, and 6 per stack for the hash table. */
struct pprof_delta;

/* Creates a pprof_delta without a previous profile. Returns NULL if there is not enough memory. */
struct pprof_delta *pprof_delta_new(void);
/* Frees a state created by pprof_delta_new. Accepts NULL. */
void pprof_delta_free(struct pprof_delta *delta);

/* Removes the previous profile from `delta`. Accepts NULL. */
void pprof_delta_clear(struct pprof_delta *delta);

/* Returns true if the data is a pprof message of type Profile: every field has the type that the
 * schema requires. Called by pprof_delta_next. */
bool pprof_delta_check(const uint8_t *data, size_t len);

/* Compares a profile (uncompressed pprof) with the previous one, and keeps it as the new
 * previous profile. Sets `*ret` to the difference, which is in the arena; for the first profile
 * `*ret_len` is 0. If the profile has no duration, the duration of the difference is the time
 * between the two profiles.
 *
 * Memory, including the kept state and the difference, is at most about four times the size of
 * the profile plus 1 MiB. Returns 0, or BR_EINVAL, BR_EFULL, BR_ETOOBIG or BR_ENOMEM with a
 * message. After an error the previous profile is kept. */
int pprof_delta_next(struct pprof_delta *delta, const uint8_t *data, size_t len,
                     struct br_arena *arena, const uint8_t **ret, size_t *ret_len,
                     struct br_err *err);
