/* SPDX-License-Identifier: Apache-2.0 */
/* Collects changes to a dictionary and applies them together. Existing dictionary entries keep
 * their indices. */
#pragma once

#include "base/str.h"
#include "otlp/dictionary/dictionary.h"

struct limits_edit {
    struct br_arena *arena; /* borrowed; memory for the current item */
    struct br_dictionary_view view;
    struct br_entry *entries[BR_TABLES]; /* replacements of existing entries, by table and index */
    struct br_str more;                  /* entries to append to the dictionary */
    /* limit on the bytes of `more`: the bytes of the item plus 1 MiB */
    size_t more_max;
    uint32_t n_added[BR_TABLES];
    bool changed;
    int rc; /* first error: BR_ENOMEM, or BR_EFULL if the appended entries are too large */
};

/* Indexes the item's dictionary. `edit` must be zeroed, and released even after an error. */
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
