/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects further entries for the dictionary of an item, which rewritten messages refer to. Each
 * entry is kept once and numbered behind those that are there; br_item_rewrite_dictionary adds
 * them.
 */
#pragma once

#include "base/index.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/edit/edit.h"

struct br_added;

struct br_additions {
    struct br_addition fields; /* of ProfilesDictionary */
    uint8_t *bytes;            /* of these */
    struct br_added *added;    /* where each entry is in them */
    uint32_t cap, n_added, cap_added;
    uint32_t count[BR_TABLES]; /* entries of the dictionary and these */
    struct br_index index;     /* of `added`, by table and content */
    int rc; /* BR_ENOMEM or BR_EFULL: what it says is not to be used; it takes no further entry */
};

/* Begins behind the entries of `view`. */
void br_additions_init(struct br_additions *additions, const struct br_dictionary_view *view);
void br_additions_release(struct br_additions *additions);

/* Returns the index of an entry of `len` bytes, which is made where these additions has not got it
 * yet; 0 where that fails, and a->rc says why. */
uint32_t br_additions_add(struct br_additions *additions, enum br_table table, const void *entry,
                          size_t len);

/* Makes it a part of the item, a dictionary that only adds to the one before. Returns 0 (also where
 * there is nothing), BR_ENOMEM or BR_EFULL. */
int br_additions_write(const struct br_additions *additions, struct br_item *item);
