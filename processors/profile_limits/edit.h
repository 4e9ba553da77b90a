/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers changes to a dictionary and then makes them at once. Entries keep their numbers. */
#pragma once

#include "base/str.h"
#include "otlp/dictionary/dictionary.h"

struct limits_edit {
    struct br_arena *arena; /* borrowed; of the item at hand */
    struct br_dictionary_view view;
    struct br_entry *entries[BR_TABLES]; /* replacements */
    struct br_str more;                  /* further entries */
    size_t more_max;                     /* as many bytes as the item has, and 1 MiB */
    uint32_t n_added[BR_TABLES];
    bool changed;
    int rc; /* sticks: BR_ENOMEM, or BR_EFULL when the additions would be too large */
};

/* Indexes the item's dictionary, into a zeroed edit, to be released also on failure. */
int limits_edit_begin(struct limits_edit *edit, struct br_arena *arena, const struct br_item *item);
void limits_edit_release(struct limits_edit *edit);

/* Replaces entry `index` by a copy of `data`. */
void limits_edit_replace(struct limits_edit *edit, enum br_table table, uint32_t index,
                         const void *data, size_t len);

/* Adds an entry; its number, or 0 after a failure. */
uint32_t limits_edit_add(struct limits_edit *edit, enum br_table table, const void *data,
                         size_t len);

/* Makes the changes. Returns e->rc or BR_ENOMEM. */
int limits_edit_apply(struct limits_edit *edit, struct br_item *item);
