/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/blocks.h"
#include "storage/view.h"

struct facts_query {
    struct br_store_query *query;
    uint64_t from_ns, until_ns;
    bool with_ids;
    br_span_facts_fn *fn; /* NULL: the spans of blocks are only counted */
    void *arg;
    struct br_err *err;
    uint64_t count; /* number of spans in the blocks, if `fn` is NULL */
    bool stopped;
};

/* Moves the span at `from` to `to`, which is not greater. */
static void facts_move(struct br_columns *columns, uint32_t from, uint32_t to)
{
    columns->operation[to] = columns->operation[from];
    columns->start_ns[to] = columns->start_ns[from];
    columns->end_ns[to] = columns->end_ns[from];
    columns->status[to] = columns->status[from];
    columns->root[to] = columns->root[from];
    columns->span_id[to] = columns->span_id[from];
    columns->parent_id[to] = columns->parent_id[from];
}

/* Passes the spans of the block in the query's columns to the caller's function. The columns are
 * used as memory for the arrays. */
static void facts_hand_out(struct facts_query *facts, struct br_store_view *view, int64_t block)
{
    struct br_store_query_state *state = br_store_query_state_of(facts->query);
    struct br_columns *columns = &state->columns;
    uint32_t index[BR_BLOCK_SPANS], count = 0;
    state->columns_view = NULL;
    for (uint32_t i = 0; i < columns->n_spans; i++) {
        if (columns->start_ns[i] < facts->from_ns || columns->start_ns[i] >= facts->until_ns)
            continue;
        if (count < i)
            facts_move(columns, i, count);
        columns->end_ns[count] = br_columns_duration(columns, count);
        index[count++] = i;
    }
    const struct br_span_facts all = {.partition = (uint32_t)(view - state->views),
                                      .block = block,
                                      .count = count,
                                      .index = index,
                                      .operation = columns->operation,
                                      .start_ns = columns->start_ns,
                                      .duration_ns = columns->end_ns,
                                      .status = columns->status,
                                      .root = columns->root,
                                      .span_id = facts->with_ids ? columns->span_id : NULL,
                                      .parent_id = facts->with_ids ? columns->parent_id : NULL};
    if (count)
        facts->stopped = !facts->fn(&all, facts->arg);
}

static int facts_read_block(struct facts_query *facts, struct br_store_view *view,
                            sqlite3_stmt *statement)
{
    int64_t block = sqlite3_column_int64(statement, 0);
    bool too_early = sqlite3_column_int64(statement, 2) < br_sql_time(facts->from_ns);
    bool too_late = sqlite3_column_int64(statement, 1) >= br_sql_time(facts->until_ns);
    bool found;
    int rc = 0;
    if (too_early || too_late || !br_store_view_block(facts->query, view, block, &rc, facts->err))
        return rc;
    if (!facts->fn) {
        facts->count += (uint64_t)sqlite3_column_int64(statement, 4);
        return 0;
    }
    rc = facts->with_ids ? br_store_view_columns(facts->query, view, block, &found, facts->err)
                         : br_store_view_facts(facts->query, view, block, &found, facts->err);
    if (!rc && found)
        facts_hand_out(facts, view, block);
    return rc;
}

static int facts_read_view(struct facts_query *facts, struct br_store_view *view)
{
    struct br_sql *sql = &view->reader->sql;
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_BLOCKS);
    int rc = 0, sql_rc = 0;
    while (!rc && !facts->stopped && !view->failed && br_store_query_may_continue(facts->query) &&
           br_sql_row(sql, statement, &sql_rc, NULL))
        rc = facts_read_block(facts, view, statement);
    if (statement)
        (void)sqlite3_reset(statement);
    if (!rc && sql_rc)
        rc = br_store_view_sql_failed(facts->query, view, facts->err);
    return rc;
}

static int facts_run(struct facts_query *facts)
{
    struct br_store_query_state *state = br_store_query_state_of(facts->query);
    int rc = 0;
    for (uint32_t i = state->n_views; i-- > 0 && !rc && !facts->stopped;) {
        struct br_store_view *view = &state->views[i];
        if (!br_store_view_has_spans(&view->totals, facts->from_ns, facts->until_ns) ||
            !br_store_view_open(facts->query, view, &rc, facts->err))
            continue;
        rc = facts_read_view(facts, view);
        br_store_view_close(view);
    }
    return rc;
}

int br_store_span_facts(struct br_store_query *query, uint64_t from_ns, uint64_t until_ns,
                        bool with_ids, br_span_facts_fn *fn, void *arg, struct br_err *err)
{
    struct facts_query facts = {.query = query,
                                .from_ns = from_ns,
                                .until_ns = until_ns,
                                .with_ids = with_ids,
                                .fn = fn,
                                .arg = arg,
                                .err = err};
    return facts_run(&facts);
}

bool br_store_operation(struct br_store_query *query, const struct br_span_facts *facts,
                        uint32_t operation, const char **ret_service, const char **ret_name)
{
    struct br_store_view *view = &br_store_query_state_of(query)->views[facts->partition];
    if (!view->n_operations)
        br_store_view_operations(query, view);
    return br_store_view_operation(query, view, operation, ret_service, ret_name);
}

int br_store_count_spans(struct br_store_query *query, uint64_t from_ns, uint64_t until_ns,
                         uint64_t *ret, struct br_err *err)
{
    struct facts_query facts = {
        .query = query, .from_ns = from_ns, .until_ns = until_ns, .err = err};
    int rc = facts_run(&facts);
    *ret = facts.count;
    return rc;
}
