/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a table of a Firefox profile row by row. The processed format has an array for each column.
 * The Gecko format has an array for each row, and a `schema` with the position of each column in
 * it. Only for src/profile/.
 */
#pragma once

#include "profile/json_parts.h"

#define BR_GECKO_COLUMNS_MAX 6u

struct br_gecko_table {
    unsigned n_columns;
    bool by_rows;
    struct br_json_list columns[BR_GECKO_COLUMNS_MAX];
    struct br_json_list rows;
    uint32_t places[BR_GECKO_COLUMNS_MAX]; /* position in a row + 1; 0: no such column */
};

/* Opens the table `part` before its first row. `names` are the wanted columns, at most
 * BR_GECKO_COLUMNS_MAX. A missing table has no rows. `whole` is a scan of the text. Returns 0 or
 * an error of the scan. */
int br_gecko_table_open(struct br_gecko_table *table, const struct br_json_scan *whole,
                        struct br_json_part part, const char *const *names, unsigned n_names);

/* Reads the next row into `ret`, one token for each name. The token is a JSON null if the column
 * is missing or has ended. `*ret_more` is false after the last row. Returns 0 or an error of the
 * scan. */
int br_gecko_table_next(struct br_gecko_table *table, struct br_json_token *ret, bool *ret_more);
