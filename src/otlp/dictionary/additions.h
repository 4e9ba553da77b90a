/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects further entries for the dictionary of an item, which rewritten messages refer to. Each
 * entry is kept once and numbered behind those that are there; br_item_rewrite_dictionary adds
 * them.
 */
#pragma once

#include "otlp/dictionary/dictionary.h"
#include "otlp/edit/edit.h"

struct br_map;

struct br_additions {
    struct br_arena *arena;
    struct br_addition fields; /* of ProfilesDictionary */
    size_t cap;
    uint32_t count[BR_TABLES]; /* entries of the dictionary and these */
    struct br_map *known;      /* indices by table and content */
    bool no_memory;            /* what it says is not to be used */
};

/* Begins behind the entries of `view`; memory comes from `arena`, which lives longer. */
void br_additions_init(struct br_additions *additions, struct br_arena *arena,
                       const struct br_dictionary_view *view);
void br_additions_release(struct br_additions *additions);

/* Returns the index of an entry of `len` bytes, which is made where these additions has not got it
 * yet; 0 without memory. */
uint32_t br_additions_add(struct br_additions *additions, enum br_table table, const void *entry,
                          size_t len);

/* Makes it a part of the item, a dictionary that only adds to the one before. Returns 0 (also where
 * there is nothing) or BR_ENOMEM. */
int br_additions_write(const struct br_additions *additions, struct br_item *item);
