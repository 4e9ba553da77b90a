/* SPDX-License-Identifier: Apache-2.0 */
/* Collects changes to a dictionary and applies them together. Existing entries keep their
 * indices. */
#pragma once

#include "base/str.h"
#include "otlp/dictionary/dictionary.h"

struct limits_edit {
    struct br_arena *arena; /* borrowed; lives as long as the current item */
    struct br_dictionary_view view;
    struct br_entry *entries[BR_TABLES]; /* replaced entries */
    struct br_str more;                  /* added entries */
    size_t more_max;                     /* limit of `more`: the bytes of the item and 1 MiB */
    uint32_t n_added[BR_TABLES];
    bool changed;
    int rc; /* first error: BR_ENOMEM, or BR_EFULL if the additions are too large */
};

/* Indexes the item's dictionary. `edit` must be zeroed, and released even after an error. */
int limits_edit_begin(struct limits_edit *edit, struct br_arena *arena, const struct br_item *item);
void limits_edit_release(struct limits_edit *edit);

/* Replaces entry `index` by a copy of `data`. */
void limits_edit_replace(struct limits_edit *edit, enum br_table table, uint32_t index,
                         const void *data, size_t len);

/* Adds an entry and returns its index, or 0 after an error. */
uint32_t limits_edit_add(struct limits_edit *edit, enum br_table table, const void *data,
                         size_t len);

/* Applies the changes. Returns edit->rc or BR_ENOMEM. */
int limits_edit_apply(struct limits_edit *edit, struct br_item *item);
