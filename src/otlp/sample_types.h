/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the samples of profiles by the type that their Profile gives them. */
#pragma once

#include "core/item.h"

#define BR_SAMPLE_TYPES_MAX 8
#define BR_SAMPLE_TYPE_SIZE 64 /* with its NUL */
#define BR_SAMPLE_TYPE_OTHER "_other"

struct br_sample_types {
    unsigned count;
    struct {
        char name[BR_SAMPLE_TYPE_SIZE]; /* "cpu:nanoseconds"; "<unset>" for a text of index 0 */
        uint32_t n_samples;
    } rows[BR_SAMPLE_TYPES_MAX];
};

/* Adds the samples in the parts of a profiles item to `types`, in which different names have a row
 * each. Types beyond BR_SAMPLE_TYPES_MAX - 1, and names that are too long or not UTF-8, share the
 * row BR_SAMPLE_TYPE_OTHER. The item has been walked (otlp/walk/walk.h) or built. */
void br_sample_types_add(struct br_sample_types *types, const struct br_item *item);
