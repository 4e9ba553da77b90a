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

/* The sample types of one request as they are in it: indices of strings. Zeroed at first. */
#define BR_SAMPLE_PAIRS_MAX 16
struct br_sample_pairs {
    struct br_sample_pair {
        uint64_t index[2]; /* type, unit */
        const uint8_t *text[2];
        uint64_t len[2];
        uint32_t n_samples;
    } items[BR_SAMPLE_PAIRS_MAX];
    unsigned count;
    uint32_t n_others; /* samples of further types */
};

/* Adds the samples of a Profile; the ValueType that is its sample_type ends at `end`, and may be
 * NULL. It has been walked. */
void br_sample_pairs_add(struct br_sample_pairs *pairs, const uint8_t *value_type,
                         const uint8_t *end, uint32_t n_samples);

/* Adds the samples of pairs to `types`, by the dictionary of the item that they were found in.
 * `strings` is the first string in it, where the search begins; NULL: it is not known. */
void br_sample_types_resolve(struct br_sample_types *types, struct br_sample_pairs *pairs,
                             const struct br_item *item, const uint8_t *strings);

/* Adds the samples in the parts of a profiles item to `types`, in which different names have a row
 * each. Types beyond BR_SAMPLE_TYPES_MAX - 1, and names that are too long or not UTF-8, share the
 * row BR_SAMPLE_TYPE_OTHER. The item has been walked (otlp/walk/walk.h) or built. */
void br_sample_types_add(struct br_sample_types *types, const struct br_item *item);
