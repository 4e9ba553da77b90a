/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads attributes in place: the KeyValues of a Resource or scope, and entries of the attribute
 * table. The caller has already resolved references to the string table
 * (br_item_inline_references).
 */
#pragma once

#include "attribute/value.h"
#include "otlp/dictionary/dictionary.h"

struct br_pair {
    struct br_entry key;
    struct br_any value;
};

/* Reads the next KeyValue with the field number `field` from the message between `p` and `end`.
 * Returns the position after the KeyValue, or NULL at the end. */
const uint8_t *br_pair_next(const uint8_t *p, const uint8_t *end, uint32_t field,
                            struct br_pair *ret);

/* Stores entry `index` of the attribute table in `*ret`. Stores the string indices of its key and
 * unit in `*ret_key` and `*ret_unit`, which may be NULL. Returns false if `index` is out of range
 * or the key is empty. */
bool br_pair_of(const struct br_dictionary_view *view, uint32_t index, struct br_pair *ret,
                uint32_t *ret_key, uint32_t *ret_unit);

/* Reads the next element of a BR_VALUE_LIST between `p` and `end`. Returns the position after
 * the element, or NULL at the end. */
const uint8_t *br_list_next(const uint8_t *p, const uint8_t *end, struct br_any *ret);

/* Returns true if the bytes of `entry` equal `text`. */
bool br_text_is(struct br_entry entry, const char *text);
