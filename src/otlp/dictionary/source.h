/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dictionary that a merger reads, and where in the merged one each of its entries went.
 *
 * Senders often send the same tables again, or the same with more at the end. Therefore a new
 * dictionary is compared with the one before it first: as many entries as begin with the same bytes
 * keep their index, and, where everything that they refer to is the same too, their place in the
 * merged dictionary. For src/otlp/ only.
 */
#pragma once

#include "otlp/dictionary/dictionary.h"
#include "otlp/dictionary/intern.h"

struct br_source_entry {
    uint32_t at; /* where the body starts, from the table's `base` */
    uint32_t len;
};

struct br_source_table {
    const uint8_t *base; /* tag of the first entry */
    struct br_source_entry *entries;
    uint32_t *map; /* index in the merged table + 1; 0: not looked up yet */
    uint32_t count, cap_entries, cap_map;
    uint32_t
        n_kept; /* entries in front that may have kept their place from the dictionary before */
    uint32_t run_n, run_len; /* entries and bytes from `base` on that nothing else interrupts */
};

struct br_source {
    struct br_buf *buf; /* holds the bytes of the tables; NULL: nothing is loaded */
    struct br_budget budget;
    struct br_source_table tables[BR_TABLES];
};

/* Reads the dictionary of `item` (several parts count as one). Returns 0, BR_EINVAL, BR_EFULL or
 * BR_ENOMEM; on failure nothing is loaded. */
int br_source_load(struct br_source *source, const struct br_item *item);

/* The merged dictionary was emptied or shortened: where entries went is void. */
void br_source_reset_maps(struct br_source *source);

/* As above, and lets go of the dictionary's bytes; keeps the memory. */
void br_source_forget(struct br_source *source);
void br_source_release(struct br_source *source);

/* Body of entry `index`, which must be there. */
static inline const uint8_t *br_source_body(const struct br_source *source, enum br_table kind,
                                            uint32_t index, uint32_t *ret_len)
{
    const struct br_source_table *table = &source->tables[kind];
    *ret_len = table->entries[index].len;
    return table->base + table->entries[index].at;
}
