/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects new entries for the dictionary of an item. Rewritten messages of the item refer to these
 * entries. Equal entries are stored once. The new entries of a table are numbered after its
 * existing entries. br_item_rewrite_dictionary or br_additions_write adds the new entries to the
 * item.
 */
#pragma once

#include "base/index.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/edit/edit.h"

struct br_added;

struct br_additions {
    struct br_addition fields; /* the new entries, as fields of ProfilesDictionary */
    uint8_t *bytes;            /* buffer with the bytes of `fields` */
    struct br_added *added;    /* position of each new entry in `bytes` */
    uint32_t cap, n_added, cap_added;
    uint32_t count[BR_TABLES]; /* number of entries of each table, existing and new */
    struct br_index index;     /* hash index that finds an entry of `added` by table and content */
    /* BR_ENOMEM or BR_EFULL once an entry could not be added: the additions are then unusable */
    int rc;
};

/* Initialises additions without entries. In each table, the first new entry is numbered after
 * the entries of `view`. */
void br_additions_init(struct br_additions *additions, const struct br_dictionary_view *view);
void br_additions_release(struct br_additions *additions);

/* Returns the index of the new entry of `len` bytes in its table. Adds the entry unless the
 * additions contain an equal one. On failure, returns 0 and stores the error in additions->rc. */
uint32_t br_additions_add(struct br_additions *additions, enum br_table table, const void *entry,
                          size_t len);

/* Returns a new entry by its index in the table, or an empty entry if the index does not exist.
 * The result is valid until the next call of br_additions_add. Takes time in proportion to the
 * number of new entries. */
struct br_entry br_additions_entry(const struct br_additions *additions, enum br_table table,
                                   uint32_t index);

/* Adds the new entries to the item, as a further ProfilesDictionary that extends the existing one.
 * Does nothing if there are no new entries. Returns 0, BR_ENOMEM or BR_EFULL. */
int br_additions_write(const struct br_additions *additions, struct br_item *item);
