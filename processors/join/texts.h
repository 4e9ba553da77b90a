/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the dictionary's texts say as ids, places and services. Any number of attributes may refer to
 * one text, which may be long: each long one is read once for an item, by its index. Short ones cost
 * no more than what is kept of them would.
 */
#pragma once

#include "otlp/dictionary.h"
#include "processors/join/table.h"

struct join_texts {
    const struct join_table *table;        /* whose secret hashes places */
    const struct br_dictionary_view *view; /* NULL: there is no dictionary */
    struct br_arena *arena;
    struct br_map *known; /* of what was read, by index; at most one for each text */
    bool no_memory;       /* what it says is not to be used */
};

/* Begins with an item, whose index is `view`; memory comes from `arena`, which lives longer. */
void join_texts_init(struct join_texts *t, const struct join_table *table,
                     const struct br_dictionary_view *view, struct br_arena *arena);
void join_texts_release(struct join_texts *t); /* accepts a zeroed one */

/* Text `i`, empty where there is none, also without a dictionary. */
struct br_entry join_texts_at(const struct join_texts *t, uint64_t i);

/* Text `i` as an id of 8 or 16 bytes (br_hex_id); false when it is none. */
bool join_texts_id(struct join_texts *t, uint64_t i, uint8_t *ret, size_t size);

/* Hashes of text `i`: with the table's secret, as join_table_hash; as the name of a service, as
 * join_service_hash. 0 for an empty one. */
uint32_t join_texts_hash(struct join_texts *t, uint64_t i);
uint64_t join_texts_service(struct join_texts *t, uint64_t i);
