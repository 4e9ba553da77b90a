/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the samples of profiles by their sample type (Profile.sample_type). */
#pragma once

#include "core/item.h"

#define BR_SAMPLE_TYPES_MAX 8
#define BR_SAMPLE_TYPE_SIZE 64 /* size in bytes of the name of a sample type, including its NUL */
#define BR_SAMPLE_TYPE_OTHER "_other"

struct br_sample_types {
    unsigned count;
    struct {
        /* type and unit: "cpu:nanoseconds"; "<unset>" replaces a string with index 0 */
        char name[BR_SAMPLE_TYPE_SIZE];
        uint32_t n_samples;
    } rows[BR_SAMPLE_TYPES_MAX];
};

/* The sample types of one request, before their names are looked up in the dictionary. The
 * caller initialises the struct with zeros. */
#define BR_SAMPLE_PAIRS_MAX 16
struct br_sample_pairs {
    struct br_sample_pair {
        uint64_t index[2]; /* string indices of the sample type and its unit */
        const uint8_t *text[2];
        uint64_t len[2];
        uint32_t n_samples;
    } items[BR_SAMPLE_PAIRS_MAX];
    unsigned count;
    uint32_t n_others; /* number of samples whose type has no row in `items` */
};

/* Adds `n_samples`, the number of samples of a Profile, to the row of the Profile's sample type.
 * br_walk must have accepted the Profile. The encoded ValueType of the sample type is between
 * `value_type` (NULL: the Profile has no sample type) and `end`. */
void br_sample_pairs_add(struct br_sample_pairs *pairs, const uint8_t *value_type,
                         const uint8_t *end, uint32_t n_samples);

/* Adds the samples in `pairs` to `types`. Names are looked up in the dictionary of `item`, to
 * which the pairs refer. The search begins at `strings`, the position of the dictionary's first
 * string (NULL: unknown). */
void br_sample_types_resolve(struct br_sample_types *types, struct br_sample_pairs *pairs,
                             const struct br_item *item, const uint8_t *strings);

/* Adds the samples in the parts of a profiles item to `types`, with one row for each name. When all
 * rows but one are used, samples of further types are counted in the row BR_SAMPLE_TYPE_OTHER.
 * Samples of types whose names are too long or not UTF-8 are counted in this row, too. The item
 * must have been accepted by br_walk (otlp/walk/walk.h) or built by a br_build. */
void br_sample_types_add(struct br_sample_types *types, const struct br_item *item);
