/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads attributes in place: KeyValues of a Resource or scope, entries of the attribute table.
 * References into the string table are resolved before (br_item_inline_references).
 */
#pragma once

#include "attribute/value.h"
#include "otlp/dictionary/dictionary.h"

struct br_pair {
    struct br_entry key;
    struct br_any value;
};

/* Reads the next KeyValue that is field `field` of the message between `p` and `end`. Returns
 * where to go on, or NULL when there is none. */
const uint8_t *br_pair_next(const uint8_t *p, const uint8_t *end, uint32_t field,
                            struct br_pair *ret);

/* Gives entry `index` of the attribute table, with the string indices of its key and unit (unless
 * NULL). False when there is none, or it has no key. */
bool br_pair_of(const struct br_dictionary_view *view, uint32_t index, struct br_pair *ret,
                uint32_t *ret_key, uint32_t *ret_unit);

/* Reads the next element of a BR_VALUE_LIST, between `p` and `end` of it; returns as br_pair_next
 * does. */
const uint8_t *br_list_next(const uint8_t *p, const uint8_t *end, struct br_any *ret);

/* Returns true when the bytes are this text. */
bool br_text_is(struct br_entry entry, const char *text);
