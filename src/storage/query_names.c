/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "storage/view.h"

#define NAMES_MAX 1000000u

/* Distinct names found in the partitions. */
struct names {
    struct br_store_query *query;
    struct br_err *err;
    struct br_map *map; /* map from name to struct name, which is in the query's arena */
};

struct name {
    uint64_t count;
    const char *text;
};

static int names_begin(struct names *names)
{
    names->map = br_map_new(NAMES_MAX);
    return names->map ? 0 : br_err_set(names->err, BR_ENOMEM, "out of memory");
}

/* Adds `count` to the count of a name, and adds the name if it is new. Returns false if memory
 * runs out; the query then ends early. */
static bool names_add(struct names *names, const char *text, size_t len, uint64_t count)
{
    struct name *name = br_map_get(names->map, text, len);
    if (name) {
        name->count += count;
        return true;
    }
    name = br_arena_alloc(names->query->arena, sizeof *name);
    if (name)
        *name = (struct name){count, br_arena_strndup(names->query->arena, text, len)};
    if (!name || !name->text || br_map_put(names->map, text, len, name, NULL)) {
        names->query->cut = "it takes too much memory";
        return false;
    }
    return true;
}

static bool names_add_column(struct names *names, sqlite3_stmt *statement, int column,
                             uint64_t count)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    return names_add(names, text ? text : "", (size_t)sqlite3_column_bytes(statement, column),
                     count);
}

static int names_compare(const void *left, const void *right)
{
    const struct name *const *first = left, *const *second = right;
    return strcmp((*first)->text, (*second)->text);
}

/* Calls `fn` for each name, in alphabetical order, and frees the map. */
static int names_end(struct names *names, br_name_fn *fn, void *arg, int rc)
{
    size_t count = br_map_count(names->map);
    const struct name **sorted = rc ? NULL : br_calloc(count + 1, sizeof *sorted);
    for (size_t i = 0; sorted && i < count; i++) {
        const void *key;
        size_t len;
        sorted[i] = br_map_at(names->map, i, &key, &len);
    }
    if (sorted && count)
        qsort(sorted, count, sizeof *sorted, names_compare);
    for (size_t i = 0; sorted && i < count; i++)
        if (!fn(sorted[i]->text, sorted[i]->count, arg))
            break;
    if (!rc && !sorted)
        rc = br_err_set(names->err, BR_ENOMEM, "out of memory");
    br_free(sorted);
    br_map_free(names->map, NULL);
    return rc;
}

/* --- Services and operations ----------------------------------------------------------------- */

enum share { NONE, PART, ALL };

/* State while the spans of each service or operation in one partition are counted. */
struct counting {
    struct names *names;
    struct br_store_view *view;
    const char *service; /* service whose operations are counted; NULL: services are counted */
    uint64_t from_ns, until_ns;
    /* for each block, whether NONE, PART or ALL of its spans are in the range (enum share) */
    uint8_t *shares;
    size_t n_blocks;
    /* for each operation, number of its spans that are in the range and belong to blocks marked
     * PART */
    uint64_t *counts;
    size_t n_operations;
};

static int counting_no_memory(struct counting *counting)
{
    return br_err_set(counting->names->err, BR_ENOMEM, "out of memory");
}

static int counting_add(struct counting *counting, uint64_t operation, uint64_t count)
{
    if (operation >= NAMES_MAX)
        return 0;
    if (operation >= counting->n_operations) {
        size_t wanted = 2 * (size_t)operation + 64;
        uint64_t *counts = br_realloc(counting->counts, wanted * sizeof *counts);
        if (!counts)
            return counting_no_memory(counting);
        memset(counts + counting->n_operations, 0,
               (wanted - counting->n_operations) * sizeof *counts);
        counting->counts = counts;
        counting->n_operations = wanted;
    }
    counting->counts[operation] += count;
    return 0;
}

static int counting_note_block(struct counting *counting, int64_t block, enum share share)
{
    int rc;
    if (!br_store_view_block(counting->names->query, counting->view, block, &rc,
                             counting->names->err))
        return rc;
    if ((size_t)block >= counting->n_blocks) {
        size_t wanted = 2 * (size_t)block + 256;
        uint8_t *shares = br_realloc(counting->shares, wanted);
        if (!shares)
            return counting_no_memory(counting);
        memset(shares + counting->n_blocks, NONE, wanted - counting->n_blocks);
        counting->shares = shares;
        counting->n_blocks = wanted;
    }
    counting->shares[block] = (uint8_t)share;
    return 0;
}

static int counting_note_blocks(struct counting *counting)
{
    struct br_sql *sql = &counting->view->reader->sql;
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_BLOCKS);
    int64_t from = br_sql_time(counting->from_ns);
    int64_t until = counting->until_ns ? br_sql_time(counting->until_ns) : INT64_MAX;
    int rc = 0, sql_rc = 0;
    while (!rc && !counting->view->failed && br_sql_row(sql, statement, &sql_rc, NULL)) {
        int64_t first = sqlite3_column_int64(statement, 1),
                last = sqlite3_column_int64(statement, 2);
        enum share share = PART;
        if (last < from || first >= until)
            share = NONE;
        else if (first >= from && last < until)
            share = ALL;
        rc = counting_note_block(counting, sqlite3_column_int64(statement, 0), share);
    }
    if (!rc && sql_rc)
        rc = br_store_view_sql_failed(counting->names->query, counting->view, counting->names->err);
    return rc;
}

static int counting_read_parts(struct counting *counting)
{
    struct br_store_query *query = counting->names->query;
    const struct br_columns *columns = &br_store_query_state_of(query)->columns;
    int rc = 0;
    for (size_t block = 0; block < counting->n_blocks && !rc; block++) {
        bool there;
        if (counting->shares[block] != PART || !br_store_query_may_continue(query))
            continue;
        rc = br_store_view_facts(query, counting->view, (int64_t)block, &there,
                                 counting->names->err);
        for (uint32_t i = 0; there && !rc && i < columns->n_spans; i++)
            if (columns->start_ns[i] >= counting->from_ns &&
                (!counting->until_ns || columns->start_ns[i] < counting->until_ns))
                rc = counting_add(counting, columns->operation[i], 1);
    }
    return rc;
}

/* Adds to `*count` the spans of an operation in blocks that are entirely in the range. */
static int counting_read_blocks(struct counting *counting, int64_t operation, uint64_t *count)
{
    struct br_sql *sql = &counting->view->reader->sql;
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_BLOCKS_OF_OPERATION);
    int rc = 0;
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, operation);
    while (br_sql_row(sql, statement, &rc, NULL)) {
        size_t block = (size_t)sqlite3_column_int64(statement, 0);
        if (block < counting->n_blocks && counting->shares[block] == ALL)
            *count += (uint64_t)sqlite3_column_int64(statement, 1);
    }
    return rc ? br_store_view_sql_failed(counting->names->query, counting->view,
                                         counting->names->err)
              : 0;
}

/* Counts the spans of the operation in the current row, and adds the count to its service or
 * operation. A row without a name stands for all operations of a service. */
static int counting_operation(struct counting *counting, sqlite3_stmt *statement,
                              bool *may_continue)
{
    int64_t number = sqlite3_column_int64(statement, 0);
    const char *service = (const char *)sqlite3_column_text(statement, 1);
    bool named = sqlite3_column_type(statement, 2) != SQLITE_NULL;
    uint64_t count = 0;
    int rc = 0;
    if (counting->service && (!named || !service || strcmp(service, counting->service) != 0))
        return 0;
    if (named && (size_t)number < counting->n_operations)
        count = counting->counts[number];
    if (!named || counting->service)
        rc = counting_read_blocks(counting, number, &count);
    if (!rc && count)
        *may_continue =
            names_add_column(counting->names, statement, counting->service ? 2 : 1, count);
    return rc;
}

static int counting_run(struct counting *counting)
{
    struct br_sql *sql = &counting->view->reader->sql;
    int rc = counting_note_blocks(counting), sql_rc = 0;
    bool may_continue = true;
    if (!rc)
        rc = counting_read_parts(counting);
    sqlite3_stmt *statement = rc ? NULL : br_sql_statement(sql, BR_SQL_OPERATIONS);
    while (may_continue && !rc && !counting->view->failed &&
           br_sql_row(sql, statement, &sql_rc, NULL))
        rc = counting_operation(counting, statement, &may_continue);
    if (!rc && sql_rc)
        rc = br_store_view_sql_failed(counting->names->query, counting->view, counting->names->err);
    return rc;
}

static int names_count(struct names *names, const char *service, uint64_t from_ns,
                       uint64_t until_ns)
{
    struct br_store_query_state *state = br_store_query_state_of(names->query);
    int rc = 0;
    for (uint32_t i = 0; i < state->n_views && !rc; i++) {
        struct counting counting = {.names = names,
                                    .view = &state->views[i],
                                    .service = service,
                                    .from_ns = from_ns,
                                    .until_ns = until_ns};
        if (!br_store_view_has_spans(&counting.view->totals, from_ns, until_ns) ||
            !br_store_view_open(names->query, counting.view, &rc, names->err))
            continue;
        rc = counting_run(&counting);
        br_store_view_close(counting.view);
        br_free(counting.shares);
        br_free(counting.counts);
    }
    return rc;
}

int br_store_services(struct br_store_query *query, uint64_t from_ns, uint64_t until_ns,
                      br_name_fn *fn, void *arg, struct br_err *err)
{
    struct names names = {.query = query, .err = err};
    int rc = names_begin(&names);
    return rc ? rc : names_end(&names, fn, arg, names_count(&names, NULL, from_ns, until_ns));
}

int br_store_operations(struct br_store_query *query, const char *service, uint64_t from_ns,
                        uint64_t until_ns, br_name_fn *fn, void *arg, struct br_err *err)
{
    struct names names = {.query = query, .err = err};
    int rc = names_begin(&names);
    return rc ? rc : names_end(&names, fn, arg, names_count(&names, service, from_ns, until_ns));
}

/* --- Attributes ------------------------------------------------------------------------------ */

static int names_add_values(struct names *names, struct br_store_view *view, int64_t key)
{
    struct br_sql *sql = &view->reader->sql;
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_VALUES);
    int rc = 0;
    bool may_continue = true;
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, key);
    while (may_continue && br_sql_row(sql, statement, &rc, NULL))
        may_continue = names_add_column(names, statement, 0, 0);
    return rc ? br_store_view_sql_failed(names->query, view, names->err) : 0;
}

/* Adds the keys of a scope if `key` is NULL. If `key` is not NULL, adds the values of the key. */
static int names_add_keys(struct names *names, struct br_store_view *view, const char *key,
                          enum br_key_scope scope)
{
    struct br_sql *sql = &view->reader->sql;
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_KEYS);
    int rc = 0, sql_rc = 0;
    bool may_continue = true;
    while (may_continue && !rc && br_sql_row(sql, statement, &sql_rc, NULL)) {
        const char *text = (const char *)sqlite3_column_text(statement, 2);
        if (sqlite3_column_int(statement, 1) != (int)scope)
            continue;
        if (!key)
            may_continue = names_add_column(names, statement, 2, 0);
        else if (text && !strcmp(text, key))
            rc = names_add_values(names, view, sqlite3_column_int64(statement, 0));
    }
    if (!rc && sql_rc)
        rc = br_store_view_sql_failed(names->query, view, names->err);
    return rc;
}

static int names_of_attributes(struct br_store_query *query, const char *key,
                               enum br_key_scope scope, const uint64_t range_ns[2], br_name_fn *fn,
                               void *arg, struct br_err *err)
{
    struct names names = {.query = query, .err = err};
    struct br_store_query_state *state = br_store_query_state_of(query);
    int rc = names_begin(&names);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < state->n_views && !rc; i++) {
        struct br_store_view *view = &state->views[i];
        if (!br_store_view_has_spans(&view->totals, range_ns[0], range_ns[1]) ||
            !br_store_view_open(query, view, &rc, err))
            continue;
        rc = names_add_keys(&names, view, key, scope);
        br_store_view_close(view);
    }
    return names_end(&names, fn, arg, rc);
}

int br_store_span_keys(struct br_store_query *query, enum br_key_scope scope, uint64_t from_ns,
                       uint64_t until_ns, br_name_fn *fn, void *arg, struct br_err *err)
{
    uint64_t range_ns[] = {from_ns, until_ns};
    return names_of_attributes(query, NULL, scope, range_ns, fn, arg, err);
}

int br_store_span_values(struct br_store_query *query, const char *key, bool resource,
                         uint64_t from_ns, uint64_t until_ns, br_name_fn *fn, void *arg,
                         struct br_err *err)
{
    uint64_t range_ns[] = {from_ns, until_ns};
    return names_of_attributes(query, key, resource ? BR_KEYS_OF_RESOURCES : BR_KEYS_OF_SPANS,
                               range_ns, fn, arg, err);
}
