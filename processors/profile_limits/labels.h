/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces values of labels (attributes of samples and profiles) that have too many distinct
 * values. */
#pragma once

#include "config/option.h"
#include "processors/profile_limits/edit.h"
#include "processors/profile_limits/values.h"

#define LIMITS_OTHER "[other]"

struct limits_labels {
    const struct br_strings *unlimited; /* keys whose values are never replaced */
    uint32_t max_values;
    struct limits_values *values;
};

/* Replaces text values that are not among the first max_values of their key by "[other]".
 * `used[i]` is true if entry i of the attribute table is a label of a sample or profile. Returns
 * the number of changed entries; the error code is in edit->rc. */
uint32_t limits_cut_labels(struct limits_edit *edit, const struct limits_labels *labels,
                           const bool *used);
