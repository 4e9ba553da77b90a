/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a table of a Firefox profile row by row, in either of its shapes: an array for each column
 * (the processed format), or an array for each row and a `schema` that says where in it each column
 * is (Gecko's own). For src/profile/ only.
 */
#pragma once

#include "profile/json_parts.h"

#define BR_GECKO_COLUMNS_MAX 6u

struct br_gecko_table {
    unsigned n_columns;
    bool by_rows;
    struct br_json_list columns[BR_GECKO_COLUMNS_MAX];
    struct br_json_list rows;
    uint32_t places[BR_GECKO_COLUMNS_MAX]; /* in a row, + 1; 0: it has none */
};

/* Goes before the first row of `part`, of which the columns of these names are wanted, at most
 * BR_GECKO_COLUMNS_MAX. A table that there is not has no rows. `whole` is a scan of the text.
 * Returns as br_json_scan_value. */
int br_gecko_table_open(struct br_gecko_table *table, const struct br_json_scan *whole,
                        struct br_json_part part, const char *const *names, unsigned n_names);

/* Reads the next row into `ret`, a token for each name: NULL where the column has no more, or there
 * is none. `*ret_more` is false after the last row. Returns as br_json_scan_value. */
int br_gecko_table_next(struct br_gecko_table *table, struct br_json_token *ret, bool *ret_more);
