/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the profile_limits processor. The parts change an item one after another. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "base/str.h"
#include "config/option.h"
#include "otlp/dictionary/dictionary.h"
#include "pipeline/component.h"

/* --- Functions that edit the dictionary ------------------------------------------------------- */

/* Collects changes to a dictionary and applies them together. Existing dictionary entries keep
 * their indices. */

struct limits_edit {
    struct br_arena *arena; /* memory for the current item; borrowed */
    struct br_dictionary_view view;
    struct br_entry *entries[BR_TABLES]; /* replacements of existing entries, by table and index */
    struct br_str more;                  /* entries to append to the dictionary */
    /* largest size of `more` in bytes: the size of the item plus 1 MiB */
    size_t more_max;
    uint32_t n_added[BR_TABLES];
    bool changed;
    int rc; /* first error: BR_ENOMEM, or BR_EFULL if the appended entries are too large */
};

/* Indexes the item's dictionary. `edit` must be zeroed, and must be released even after an
 * error. */
int limits_edit_begin(struct limits_edit *edit, struct br_arena *arena, const struct br_item *item);
void limits_edit_release(struct limits_edit *edit);

/* Replaces entry `index` of a table by a copy of `data`. */
void limits_edit_replace(struct limits_edit *edit, enum br_table table, uint32_t index,
                         const void *data, size_t len);

/* Adds an entry to a table and returns its index, or 0 after an error. */
uint32_t limits_edit_add(struct limits_edit *edit, enum br_table table, const void *data,
                         size_t len);

/* Applies the collected changes to the item's dictionary. Returns edit->rc or BR_ENOMEM. */
int limits_edit_apply(struct limits_edit *edit, struct br_item *item);

/* --- Stacks ----------------------------------------------------------------------------------- */

/*
 * Cuts deep stacks at the root, because the leaf is the function that was running. The number of a
 * stack's frames is its depth. A frame is a line of a location (inlined functions are lines, too),
 * or a location without lines.
 */

/* Cuts every stack of more than `max_depth` frames: keeps max_depth minus 1 frames, those
 * nearest to the leaf, and adds a frame [truncated] at the root. Returns the number of cut
 * stacks; the error code is in edit->rc. */
uint32_t limits_cut_stacks(struct limits_edit *edit, uint32_t max_depth);

/* --- Distinct values -------------------------------------------------------------------------- */

/*
 * Counts the distinct values of each label. For each key, hashes of the values are stored that were
 * seen since the window began. The numbers of keys and values are limited; beyond the limits, new
 * keys and values are not stored.
 */

/* The struct must be zeroed before its first use. */
struct limits_values {
    struct br_map *keys;
    uint32_t n_values;
    uint8_t secret[16]; /* secret key of the hash function */
};

/* Removes all keys and values. `values` can be used again. */
void limits_values_clear(struct limits_values *values);

/* --- Labels ----------------------------------------------------------------------------------- */

/* Replaces values of labels (attributes of samples and profiles) that have too many distinct
 * values. */

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

/* --- Sizes ------------------------------------------------------------------------------------ */

/* Splits requests and profiles that are too large, and drops samples that are too large on their
 * own. */

/* reason with which samples that are too large are dropped, in the metrics of the ledger */
#define LIMITS_TOO_LARGE "profile_too_large"

struct limits_sizes {
    size_t max_bytes;     /* largest request, in bytes; 0: no limit */
    uint32_t max_samples; /* largest number of samples of a profile; 0: no limit */
};

struct limits_counts {
    double *splits, *payloads;
};

/* Returns 1 if the item exceeds max_bytes or max_samples and must be split, otherwise 0. Returns
 * BR_ENOMEM or BR_EINVAL after an error. */
int limits_is_large(const struct limits_sizes *sizes, struct br_item *item);

/* Takes over an item, splits it and forwards the pieces. Drops a piece that contains only one
 * sample and is still too large. All pieces together may take 3 times the bytes of the item plus
 * 1 MiB. If the pieces would take more, because they repeat dictionary entries, the whole item
 * is dropped. Returns the number of dropped samples. */
uint32_t limits_forward_pieces(struct br_node *node, const struct limits_sizes *sizes,
                               const struct limits_counts *counts, struct br_item *item);
