/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects additional entries for the dictionary of an item, to which rewritten messages refer.
 * Equal entries are stored once and numbered after the existing ones. br_item_rewrite_dictionary or
 * br_additions_write adds them to the item.
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
    uint32_t count[BR_TABLES]; /* number of entries of each table, old and new */
    struct br_index index;     /* index of `added` by table and content */
    /* BR_ENOMEM or BR_EFULL once an entry could not be added: the additions are then unusable */
    int rc;
};

/* Begins with no additions; the first one is numbered after the entries of `view`. */
void br_additions_init(struct br_additions *additions, const struct br_dictionary_view *view);
void br_additions_release(struct br_additions *additions);

/* Returns the index of an entry of `len` bytes, and adds it if it is not among the additions
 * yet. Returns 0 on failure and stores the error in additions->rc. */
uint32_t br_additions_add(struct br_additions *additions, enum br_table table, const void *entry,
                          size_t len);

/* Adds the entries to the item as a dictionary part that extends the previous ones. Does nothing
 * if there are none. Returns 0, BR_ENOMEM or BR_EFULL. */
int br_additions_write(const struct br_additions *additions, struct br_item *item);
