/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dictionary of the request being merged, and the merged index of each of its entries.
 *
 * Senders often repeat their tables unchanged or with more entries at the end. A new dictionary is
 * therefore first compared with the previous one. Leading entries with equal bytes need not be
 * indexed again. If all entries that they refer to are unchanged as well, they also keep their
 * merged index. For src/otlp/ only.
 */
#pragma once

#include "otlp/dictionary/dictionary.h"
#include "otlp/dictionary/intern.h"

struct br_source_entry {
    uint32_t at; /* offset of the entry's body from the table's `base` */
    uint32_t len;
};

struct br_source_table {
    const uint8_t *base; /* tag of the table's first entry */
    struct br_source_entry *entries;
    uint32_t *map; /* for each entry: merged index + 1; 0: not looked up yet, or not found */
    uint32_t count, cap_entries, cap_map;
    uint32_t
        /* leading entries whose merged index was kept from the previous dictionary, if they had
         * one */
        n_kept;
    /* number of leading entries that are contiguous from `base` on, and their length in bytes */
    uint32_t run_n, run_len;
};

struct br_source {
    struct br_buf *buf; /* buffer that contains the tables; NULL: nothing is loaded */
    struct br_budget budget;
    struct br_source_table tables[BR_TABLES];
};

/* Loads the dictionary of `item`; several dictionary parts count as one. Returns 0, BR_EINVAL,
 * BR_EFULL or BR_ENOMEM. On failure nothing is loaded. */
int br_source_load(struct br_source *source, const struct br_item *item);

/* Discards the merged indices, after the merged dictionary was emptied or truncated. */
void br_source_reset_maps(struct br_source *source);

/* Discards the dictionary and the reference to its buffer. Keeps the memory of the index for
 * reuse. */
void br_source_forget(struct br_source *source);
void br_source_release(struct br_source *source);

/* Returns the body of entry `index`, which must exist, and stores its length in bytes. */
static inline const uint8_t *br_source_body(const struct br_source *source, enum br_table kind,
                                            uint32_t index, uint32_t *ret_len)
{
    const struct br_source_table *table = &source->tables[kind];
    *ret_len = table->entries[index].len;
    return table->base + table->entries[index].at;
}
