/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts deep stacks at the root: what runs is at the leaf. A frame is a line of a location (a
 * function that was inlined there is one, too), or a location without lines.
 */
#pragma once

#include "processors/profile_limits/edit.h"

#define LIMITS_TRUNCATED "[truncated]"

/* Cuts every stack of more than `max_depth` frames to the max_depth - 1 nearest to the leaf, with a
 * frame [truncated] at the root. Returns how many were cut; failure is e->rc. */
uint32_t limits_cut_stacks(struct limits_edit *edit, uint32_t max_depth);
