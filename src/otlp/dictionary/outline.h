/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the tables of a dictionary are that was written here, and how long they are: it stands
 * behind the dictionary's bytes, in their buffer. Whoever needs a table need not read the others.
 */
#pragma once

#include "core/item.h"
#include "otlp/dictionary/dictionary.h"

struct br_outline {
    uint32_t at[BR_TABLES + 1]; /* of each table's first entry, from the part's `raw`; of the end */
    uint32_t count[BR_TABLES];  /* entries */
};

/* Returns the outline of a part, which borrows its bytes; NULL where it has none. */
static inline const struct br_outline *br_outline_of(const struct br_part *part)
{
    return part->outline_at
               ? (const struct br_outline *)(const void *)(part->raw + part->outline_at)
               : NULL;
}
