/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts deep stacks at the root, because the leaf is the function that was running. A frame is a
 * line of a location (inlined functions are lines, too), or a location without lines.
 */
#pragma once

#include "processors/profile_limits/edit.h"

#define LIMITS_TRUNCATED "[truncated]"

/* Cuts every stack of more than `max_depth` frames to the max_depth - 1 frames nearest to the
 * leaf, and adds a frame [truncated] at the root. Returns the number of cut stacks; the error
 * code is in edit->rc. */
uint32_t limits_cut_stacks(struct limits_edit *edit, uint32_t max_depth);
