/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces values of labels (the attributes of samples and profiles) that have too many. */
#pragma once

#include "config/option.h"
#include "processors/profile_limits/edit.h"
#include "processors/profile_limits/values.h"

#define LIMITS_OTHER "[other]"

struct limits_labels {
    const struct br_strings *unlimited; /* keys that may have any number of values */
    uint32_t max_values;
    struct limits_values *values;
};

/* Gives the texts among the labels that are not the first max_values of their key the value
 * [other]. `used` says of each entry of the attribute table whether it is a label. Returns how many
 * entries were changed; failure is e->rc. */
uint32_t limits_cut_labels(struct limits_edit *edit, const struct limits_labels *labels,
                           const bool *used);
