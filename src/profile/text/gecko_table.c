/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/text/gecko.h"

#define PLACE_MAX 1024.0

struct members {
    const char *const *names;
    unsigned n_names;
    struct br_json_part columns[BR_GECKO_COLUMNS_MAX], schema, data;
    struct br_gecko_table *table;
};

static void gecko_table_on_member(void *arg, const struct br_json_scan *scan,
                                  const struct br_json_token *name,
                                  const struct br_json_token *value)
{
    struct members *members = arg;
    for (unsigned i = 0; i < members->n_names; i++)
        if (br_json_part_is(name, members->names[i]))
            members->columns[i] = br_json_part_of(scan, value, BR_JSON_ARRAY);
    if (br_json_part_is(name, "schema"))
        members->schema = br_json_part_of(scan, value, BR_JSON_OBJECT);
    else if (br_json_part_is(name, "data"))
        members->data = br_json_part_of(scan, value, BR_JSON_ARRAY);
}

static void gecko_table_on_column(void *arg, const struct br_json_scan *scan,
                                  const struct br_json_token *name,
                                  const struct br_json_token *value)
{
    struct members *members = arg;
    double v;
    (void)scan;
    for (unsigned i = 0; i < members->n_names; i++)
        if (br_json_part_is(name, members->names[i]))
            members->table->places[i] =
                br_json_part_number(value, &v) && v >= 0 && v < PLACE_MAX ? (uint32_t)v + 1 : 0;
}

int br_gecko_table_open(struct br_gecko_table *table, const struct br_json_scan *whole,
                        struct br_json_part part, const char *const *names, unsigned n_names)
{
    struct members members = {.names = names, .n_names = n_names, .table = table};
    struct br_json_scan scan = br_json_part_scan(whole, part);
    *table = (struct br_gecko_table){.n_columns = n_names};
    int rc = part.at ? br_json_members(&scan, gecko_table_on_member, &members) : 0;
    table->by_rows = members.schema.at && members.data.at;
    for (unsigned i = 0; i < n_names && !rc; i++)
        rc = br_json_list_open(&table->columns[i], whole, members.columns[i]);
    if (rc || !table->by_rows)
        return rc;
    scan = br_json_part_scan(whole, members.schema);
    rc = br_json_members(&scan, gecko_table_on_column, &members);
    return rc ? rc : br_json_list_open(&table->rows, whole, members.data);
}

static int gecko_table_next_of_columns(struct br_gecko_table *table, struct br_json_token *ret,
                                       bool *ret_more)
{
    int rc = 0;
    for (unsigned i = 0; i < table->n_columns && !rc; i++) {
        bool more = false;
        rc = br_json_list_next(&table->columns[i], &ret[i], &more);
        *ret_more = *ret_more || more;
    }
    return rc;
}

struct row {
    struct br_gecko_table *table;
    struct br_json_token *tokens;
    uint32_t place; /* position in the row of the last cell that was read, plus 1 */
};

static int gecko_table_read_cell(void *arg, struct br_json_scan *scan)
{
    struct row *row = arg;
    struct br_json_token value;
    int rc = br_json_scan_value(scan, &value);
    row->place++;
    for (unsigned i = 0; i < row->table->n_columns; i++)
        if (row->table->places[i] == row->place)
            row->tokens[i] = value;
    return rc ? rc : br_json_scan_skip(scan, &value);
}

static int gecko_table_next_of_rows(struct br_gecko_table *table, struct br_json_token *ret,
                                    bool *ret_more)
{
    struct row row = {.table = table, .tokens = ret};
    struct br_json_token value;
    int rc = br_json_list_more(&table->rows, ret_more);
    if (rc || !*ret_more)
        return rc;
    rc = br_json_scan_value(&table->rows.scan, &value);
    if (rc || value.type != BR_JSON_ARRAY)
        return rc ? rc : br_json_scan_skip(&table->rows.scan, &value);
    return br_json_elements_here(&table->rows.scan, gecko_table_read_cell, &row);
}

int br_gecko_table_next(struct br_gecko_table *table, struct br_json_token *ret, bool *ret_more)
{
    *ret_more = false;
    for (unsigned i = 0; i < table->n_columns; i++)
        ret[i] = (struct br_json_token){.type = BR_JSON_NULL};
    return table->by_rows ? gecko_table_next_of_rows(table, ret, ret_more)
                          : gecko_table_next_of_columns(table, ret, ret_more);
}
