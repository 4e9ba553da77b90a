/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outline of a dictionary that Braid has written: position and size of each table. It is stored
 * after the dictionary's bytes, in the same buffer, but not sent. A reader that needs one table can
 * skip the others.
 */
#pragma once

#include "core/item.h"
#include "otlp/dictionary/dictionary.h"

struct br_outline {
    /* offset of each table's first entry from the part's `raw`; the last element is the offset
     * of the end */
    uint32_t at[BR_TABLES + 1];
    uint32_t count[BR_TABLES]; /* number of entries of each table */
};

/* Returns the outline of a part, which points into the part's bytes. Returns NULL if the part
 * has no outline. */
static inline const struct br_outline *br_outline_of(const struct br_part *part)
{
    return part->outline_at
               ? (const struct br_outline *)(const void *)(part->raw + part->outline_at)
               : NULL;
}
