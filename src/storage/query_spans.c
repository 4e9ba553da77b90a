/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "base/mem.h"
#include "otlp/fields.h"
#include "storage/blocks.h"
#include "storage/view.h"
#include "wire/protobuf.h"

/* maximum number of operations of a partition that are read at once; others are read one by one */
#define OPERATIONS_AT_ONCE 8192
#define BLOCKS_MAX (16u << 20)
#define PENDING_MAX (64u << 20)

/* A block that may contain selected spans. */
struct candidate {
    int64_t bound; /* upper bound of the ranks of the block's spans (spans_rank) */
    struct br_store_view *view;
    int64_t block;
};

struct spans_query {
    struct br_store_query *query;
    const struct br_span_filter *filter;
    br_span_fn *fn;
    void *arg;
    struct br_err *err;
    struct candidate *candidates;
    uint32_t n_candidates, cap_candidates;
    /* spans that were read but not yet passed to the caller: a heap whose top is the first span
     * in the filter's order */
    struct br_stored_span *pending;
    uint32_t n_pending, cap_pending;
    /* the `limit` first positions of all spans read so far: a heap whose top is the last of these
     * positions */
    struct br_span_position *firsts;
    uint32_t n_firsts, cap_firsts;
    struct selected {
        bool *operations; /* operations[i] is true if the filter selects operation i */
        uint32_t count, cap;
    } * selected; /* one element for each view; NULL: the filter selects all operations */
    uint32_t n_out;
    bool stopped;
};

static int spans_no_memory(struct br_err *err)
{
    return br_err_set(err, BR_ENOMEM, "out of memory");
}

/* --- Blocks ---------------------------------------------------------------------------------- */

int br_store_view_sql_failed(struct br_store_query *query, struct br_store_view *view,
                             struct br_err *err)
{
    struct br_err why = {0};
    int rc = br_store_view_failed(query, view, br_sql_fail(&view->reader->sql, &why), &why);
    if (rc && err)
        *err = why;
    return rc;
}

bool br_store_view_block(struct br_store_query *query, struct br_store_view *view, int64_t block,
                         int *rc, struct br_err *err)
{
    struct br_err why = {0};
    if (block >= 0 && block <= BLOCKS_MAX && (uint64_t)block <= view->totals.n_spans)
        return true;
    (void)br_err_set(&why, BR_EPROTO, "a block has an invalid number");
    *rc = br_store_view_failed(query, view, BR_EPROTO, &why);
    if (*rc && err)
        *err = why;
    return false;
}

/* Sets `*ret` to true if the block exists. Returns 0, BR_EPROTO, BR_ENOMEM or a code of
 * br_sql_fail. */
static int spans_read_facts(struct br_store_query *query, struct br_sql *sql, int64_t block,
                            bool *ret, struct br_err *err)
{
    struct br_columns *columns = &br_store_query_state_of(query)->columns;
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_FACTS_OF_BLOCK);
    int rc = 0;
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, block);
    *ret = br_sql_row(sql, statement, &rc, err);
    if (*ret && !br_columns_read_facts(columns, sqlite3_column_blob(statement, 0),
                                       (size_t)sqlite3_column_bytes(statement, 0)))
        rc = br_err_set(err, BR_EPROTO, "the facts of a block are damaged");
    if (*ret)
        (void)sqlite3_reset(statement);
    return rc;
}

static int spans_read_columns(struct br_store_query *query, struct br_sql *sql, int64_t block,
                              bool *ret, struct br_err *err)
{
    struct br_store_query_state *state = br_store_query_state_of(query);
    bool separate = sql->version >= BR_SQL_FACTS;
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_COLUMNS);
    int rc = 0;
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, block);
    *ret = br_sql_row(sql, statement, &rc, err);
    if (!*ret)
        return rc;
    rc = br_store_view_blob(query, statement, 0, err);
    (void)sqlite3_reset(statement);
    if (!rc && !br_columns_read(&state->columns, state->plain.data, state->plain.len, !separate))
        rc = br_err_set(err, BR_EPROTO, "the columns of a block are damaged");
    uint32_t n_spans = state->columns.n_spans;
    if (!rc && separate)
        rc = spans_read_facts(query, sql, block, ret, err);
    if (!rc && (!*ret || n_spans != state->columns.n_spans))
        rc = br_err_set(err, BR_EPROTO, "the facts of a block are missing");
    return rc;
}

int br_store_view_columns(struct br_store_query *query, struct br_store_view *view, int64_t block,
                          bool *ret, struct br_err *err)
{
    struct br_store_query_state *state = br_store_query_state_of(query);
    struct br_err why = {0};
    *ret = state->columns_view == view && state->columns_block == block;
    if (*ret)
        return 0;
    state->columns_view = NULL;
    int rc = spans_read_columns(query, &view->reader->sql, block, ret, &why);
    *ret = *ret && !rc;
    state->columns_view = *ret ? view : NULL;
    state->columns_block = block;
    rc = rc ? br_store_view_failed(query, view, rc, &why) : 0;
    if (rc && err)
        *err = why;
    return rc;
}

int br_store_view_facts(struct br_store_query *query, struct br_store_view *view, int64_t block,
                        bool *ret, struct br_err *err)
{
    struct br_err why = {0};
    if (view->reader->sql.version < BR_SQL_FACTS)
        return br_store_view_columns(query, view, block, ret, err);
    br_store_query_state_of(query)->columns_view = NULL;
    int rc = spans_read_facts(query, &view->reader->sql, block, ret, &why);
    *ret = *ret && !rc;
    rc = rc ? br_store_view_failed(query, view, rc, &why) : 0;
    if (rc && err)
        *err = why;
    return rc;
}

/* Grows the lists of service and operation names of a view. */
static bool spans_grow_operations(struct br_store_query *query, struct br_store_view *view,
                                  uint32_t operation)
{
    size_t count = (size_t)operation + 64;
    const char **services = br_realloc(view->services, count * sizeof *services);
    view->services = services ? services : view->services;
    const char **names = br_realloc(view->names, count * sizeof *names);
    view->names = names ? names : view->names;
    if (!services || !names) {
        query->cut = "it takes too much memory";
        return false;
    }
    for (size_t i = view->n_operations; i < count; i++)
        services[i] = names[i] = NULL;
    br_store_query_count_bytes(query,
                               (int64_t)((count - view->n_operations) * 2 * sizeof *services));
    view->n_operations = (uint32_t)count;
    return true;
}

void br_store_view_operations(struct br_store_query *query, struct br_store_view *view)
{
    struct br_sql *sql = &view->reader->sql;
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_OPERATIONS);
    int rc = 0;
    for (uint32_t i = 0; i < OPERATIONS_AT_ONCE && br_sql_row(sql, statement, &rc, NULL); i++) {
        int64_t operation = sqlite3_column_int64(statement, 0);
        if (operation < 0 || operation > BR_OPERATIONS_MAX ||
            ((uint32_t)operation >= view->n_operations &&
             !spans_grow_operations(query, view, (uint32_t)operation)))
            break;
        const char *service = br_store_view_text(query, statement, 1);
        view->names[operation] = br_store_view_text(query, statement, 2);
        view->services[operation] = view->names[operation] ? service : NULL;
    }
    if (statement)
        (void)sqlite3_reset(statement);
}

bool br_store_view_operation(struct br_store_query *query, struct br_store_view *view,
                             uint32_t operation, const char **ret_service, const char **ret_name)
{
    struct br_err err = {.code = 0};
    int rc;
    if (operation >= view->n_operations && !spans_grow_operations(query, view, operation))
        return false;
    if (!view->services[operation]) {
        sqlite3_stmt *statement = br_sql_statement(&view->reader->sql, BR_SQL_OPERATION);
        if (statement)
            (void)sqlite3_bind_int64(statement, 1, operation);
        if (!br_sql_row(&view->reader->sql, statement, &rc, &err)) {
            rc = rc ? rc : br_err_set(&err, BR_EPROTO, "an operation is missing");
            if (br_store_view_failed(query, view, rc, &err))
                query->cut = rc == BR_ENOMEM ? "it takes too much memory" : "it cannot be read";
            return false;
        }
        const char *service = br_store_view_text(query, statement, 0);
        view->names[operation] = br_store_view_text(query, statement, 1);
        view->services[operation] = view->names[operation] ? service : NULL;
        (void)sqlite3_reset(statement);
    }
    *ret_service = view->services[operation];
    *ret_name = view->names[operation];
    return *ret_service != NULL;
}

static bool spans_make(struct br_store_query *query, struct br_store_view *view, int64_t block,
                       uint32_t index, struct br_stored_span *ret)
{
    const struct br_store_query_state *state = br_store_query_state_of(query);
    const struct br_columns *columns = &state->columns;
    *ret = (struct br_stored_span){.span_id = columns->span_id[index],
                                   .parent_id = columns->parent_id[index],
                                   .start_ns = columns->start_ns[index],
                                   .end_ns = columns->end_ns[index],
                                   .duration_ns = br_columns_duration(columns, index),
                                   .kind = columns->kind[index],
                                   .status = columns->status[index],
                                   .partition = (uint32_t)(view - state->views),
                                   .partition_number = view->partition->number,
                                   .block = block,
                                   .index = index};
    memcpy(ret->trace_id, columns->traces[columns->trace[index]], 16);
    return br_store_view_operation(query, view, columns->operation[index], &ret->service,
                                   &ret->name);
}

int br_store_span_at(struct br_store_query *query, uint32_t partition, int64_t block,
                     uint32_t index, struct br_stored_span *ret, bool *ret_found,
                     struct br_err *err)
{
    struct br_store_query_state *state = br_store_query_state_of(query);
    struct br_store_view *view = &state->views[partition];
    int rc = 0;
    *ret_found = false;
    if (!br_store_view_open(query, view, &rc, err))
        return rc;
    rc = br_store_view_columns(query, view, block, ret_found, err);
    *ret_found = *ret_found && !rc && index < state->columns.n_spans &&
                 spans_make(query, view, block, index, ret);
    br_store_view_close(view);
    return rc;
}

/* --- Finding blocks -------------------------------------------------------------------------- */

bool br_store_view_has_spans(const struct br_store_totals *totals, uint64_t from_ns,
                             uint64_t until_ns)
{
    return totals->span_from <= totals->span_until && totals->span_until >= br_sql_time(from_ns) &&
           (!until_ns || totals->span_from < br_sql_time(until_ns));
}

/* By block number: longest duration of the selected operations in the block; -1: the block
 * contains none of these operations. */
struct durations {
    int64_t *by_block;
    size_t count;
};

static int spans_note_operation(struct spans_query *spans, struct br_store_view *view,
                                int64_t operation, struct durations *durations)
{
    struct br_sql *sql = &view->reader->sql;
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_BLOCKS_OF_OPERATION);
    int rc = 0, sql_rc = 0;
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, operation);
    while (br_sql_row(sql, statement, &sql_rc, NULL)) {
        int64_t block = sqlite3_column_int64(statement, 0);
        int64_t duration = sqlite3_column_int64(statement, 2);
        if (!br_store_view_block(spans->query, view, block, &rc, spans->err))
            break;
        if ((size_t)block >= durations->count) {
            size_t count = 2 * (size_t)block + 256;
            int64_t *by_block = br_realloc(durations->by_block, count * sizeof *by_block);
            if (!by_block)
                return spans_no_memory(spans->err);
            for (size_t i = durations->count; i < count; i++)
                by_block[i] = -1;
            *durations = (struct durations){by_block, count};
        }
        if (duration > durations->by_block[block])
            durations->by_block[block] = duration;
    }
    if (rc || view->failed)
        return rc;
    return sql_rc ? br_store_view_sql_failed(spans->query, view, spans->err) : 0;
}

/* Returns true if the filter selects the operation in the current row. Sets `*ret` to true if
 * the blocks of this row must be read. A row without a name stands for all operations of its
 * service. */
static bool spans_is_operation(const struct br_span_filter *filter, sqlite3_stmt *statement,
                               bool *ret)
{
    const char *service = (const char *)sqlite3_column_text(statement, 1);
    const char *name = (const char *)sqlite3_column_text(statement, 2);
    bool in_service = !filter->service || (service && strcmp(service, filter->service) == 0);
    bool named = name && (!filter->name || strcmp(name, filter->name) == 0);
    *ret = in_service && (filter->name ? named : !name);
    return in_service && named;
}

static int spans_select_operation(struct spans_query *spans, struct selected *selected,
                                  int64_t operation)
{
    uint32_t before = selected->cap;
    if (operation < 0 || operation > BR_OPERATIONS_MAX)
        return 0;
    if (br_grow(&selected->operations, &selected->cap, (size_t)operation + 1,
                sizeof *selected->operations, BR_OPERATIONS_MAX + 1u))
        return spans_no_memory(spans->err);
    memset(selected->operations + before, 0, selected->cap - before);
    br_store_query_count_bytes(spans->query, selected->cap - before);
    selected->operations[operation] = true;
    if (operation >= selected->count)
        selected->count = (uint32_t)operation + 1;
    return 0;
}

static int spans_note_operations(struct spans_query *spans, struct br_store_view *view,
                                 struct durations *durations)
{
    struct selected *selected =
        &spans->selected[view - br_store_query_state_of(spans->query)->views];
    struct br_sql *sql = &view->reader->sql;
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_OPERATIONS);
    int rc = 0, sql_rc = 0;
    bool has_blocks;
    while (!rc && !view->failed && br_sql_row(sql, statement, &sql_rc, NULL)) {
        int64_t operation = sqlite3_column_int64(statement, 0);
        if (spans_is_operation(spans->filter, statement, &has_blocks))
            rc = spans_select_operation(spans, selected, operation);
        if (!rc && has_blocks)
            rc = spans_note_operation(spans, view, operation, durations);
    }
    if (!rc && sql_rc)
        rc = br_store_view_sql_failed(spans->query, view, spans->err);
    return rc;
}

static int spans_add_candidate(struct spans_query *spans, struct br_store_view *view,
                               sqlite3_stmt *statement, int64_t duration)
{
    const struct br_span_filter *filter = spans->filter;
    int64_t min_start = sqlite3_column_int64(statement, 1);
    int64_t max_start = sqlite3_column_int64(statement, 2);
    bool too_early = max_start < br_sql_time(filter->from_ns);
    bool too_late = filter->until_ns && min_start >= br_sql_time(filter->until_ns);
    if (too_early || too_late || duration < br_sql_time(filter->min_duration_ns))
        return 0;
    if ((filter->roots && !sqlite3_column_int64(statement, 5)) ||
        (filter->failed && !sqlite3_column_int64(statement, 6)))
        return 0;
    uint32_t before = spans->cap_candidates;
    int rc = br_grow(&spans->candidates, &spans->cap_candidates, (size_t)spans->n_candidates + 1,
                     sizeof *spans->candidates, BLOCKS_MAX);
    if (rc)
        return spans_no_memory(spans->err);
    br_store_query_count_bytes(spans->query, (int64_t)(spans->cap_candidates - before) *
                                                 (int64_t)sizeof(struct candidate));
    spans->candidates[spans->n_candidates++] =
        (struct candidate){filter->order == BR_SPANS_SLOWEST ? duration : max_start, view,
                           sqlite3_column_int64(statement, 0)};
    return 0;
}

static int spans_find_blocks(struct spans_query *spans, struct br_store_view *view)
{
    struct durations durations = {NULL, 0};
    bool named = spans->filter->service || spans->filter->name;
    int rc = named ? spans_note_operations(spans, view, &durations) : 0, sql_rc = 0;
    struct br_sql *sql = &view->reader->sql;
    sqlite3_stmt *statement = rc || view->failed ? NULL : br_sql_statement(sql, BR_SQL_BLOCKS);
    while (statement && !rc && br_sql_row(sql, statement, &sql_rc, NULL)) {
        int64_t block = sqlite3_column_int64(statement, 0);
        int64_t duration = sqlite3_column_int64(statement, 3);
        if (!br_store_view_block(spans->query, view, block, &rc, spans->err))
            break;
        if (named)
            duration = (size_t)block < durations.count ? durations.by_block[block] : -1;
        if (duration >= 0)
            rc = spans_add_candidate(spans, view, statement, duration);
    }
    if (!rc && sql_rc)
        rc = br_store_view_sql_failed(spans->query, view, spans->err);
    br_free(durations.by_block);
    return rc;
}

static int spans_compare_candidates(const void *left, const void *right)
{
    const struct candidate *first = left, *second = right;
    return (first->bound < second->bound) - (first->bound > second->bound);
}

/* --- Reading spans in order ------------------------------------------------------------------ */

static int64_t spans_rank(const struct br_span_filter *filter, const struct br_stored_span *span)
{
    return br_sql_time(filter->order == BR_SPANS_SLOWEST ? span->duration_ns : span->start_ns);
}

struct br_span_position br_span_position(const struct br_stored_span *span, int64_t rank)
{
    struct br_span_position position = {rank, span->start_ns, span->span_id, {0}};
    memcpy(position.trace_id, span->trace_id, sizeof position.trace_id);
    return position;
}

bool br_span_position_is_before(const struct br_span_position *one,
                                const struct br_span_position *other)
{
    if (one->rank != other->rank)
        return one->rank > other->rank;
    if (one->start_ns != other->start_ns)
        return one->start_ns > other->start_ns;
    if (one->span_id != other->span_id)
        return one->span_id < other->span_id;
    return memcmp(one->trace_id, other->trace_id, sizeof one->trace_id) < 0;
}

static struct br_span_position spans_position_of(const struct spans_query *spans, uint32_t index)
{
    const struct br_columns *columns = &br_store_query_state_of(spans->query)->columns;
    uint64_t start = columns->start_ns[index], duration = br_columns_duration(columns, index);
    int64_t rank = br_sql_time(spans->filter->order == BR_SPANS_SLOWEST ? duration : start);
    struct br_span_position position = {rank, start, columns->span_id[index], {0}};
    memcpy(position.trace_id, columns->traces[columns->trace[index]], sizeof position.trace_id);
    return position;
}

static bool spans_is_later(const void *one, const void *other, const void *arg)
{
    (void)arg;
    return br_span_position_is_before(other, one);
}

static const struct br_heap_kind spans_last_first = {sizeof(struct br_span_position),
                                                     spans_is_later, NULL};

/* Returns false if the filter starts behind the span, or if `limit` spans before the span have
 * already been found. */
static bool spans_is_in_page(const struct spans_query *spans, uint32_t index)
{
    const struct br_span_filter *filter = spans->filter;
    if (!filter->limit && !filter->after)
        return true;
    struct br_span_position position = spans_position_of(spans, index);
    if (filter->after && !br_span_position_is_before(filter->after, &position))
        return false;
    return !filter->limit || spans->n_firsts < filter->limit ||
           br_span_position_is_before(&position, &spans->firsts[0]);
}

static int spans_note_position(struct spans_query *spans, const struct br_span_position *position)
{
    uint32_t limit = spans->filter->limit, at = spans->n_firsts, before = spans->cap_firsts;
    if (!limit)
        return 0;
    if (at == limit) {
        spans->firsts[0] = *position;
        br_heap_sink(spans_last_first, spans->firsts, spans->n_firsts, 0, NULL);
        return 0;
    }
    if (br_grow(&spans->firsts, &spans->cap_firsts, (size_t)at + 1, sizeof *spans->firsts,
                PENDING_MAX))
        return spans_no_memory(spans->err);
    br_store_query_count_bytes(spans->query, (int64_t)(spans->cap_firsts - before) *
                                                 (int64_t)sizeof *spans->firsts);
    spans->firsts[spans->n_firsts++] = *position;
    br_heap_rise(spans_last_first, spans->firsts, at, NULL);
    return 0;
}

static bool spans_before(const void *one, const void *other, const void *arg)
{
    const struct br_span_position left = br_span_position(one, spans_rank(arg, one));
    const struct br_span_position right = br_span_position(other, spans_rank(arg, other));
    return br_span_position_is_before(&left, &right);
}

static const struct br_heap_kind spans_kind = {sizeof(struct br_stored_span), spans_before, NULL};

static int spans_push(struct spans_query *spans, const struct br_stored_span *span)
{
    uint32_t before = spans->cap_pending, at = spans->n_pending;
    int rc = br_grow(&spans->pending, &spans->cap_pending, (size_t)at + 1, sizeof *spans->pending,
                     PENDING_MAX);
    if (rc)
        return spans_no_memory(spans->err);
    br_store_query_count_bytes(spans->query, (int64_t)(spans->cap_pending - before) *
                                                 (int64_t)sizeof *spans->pending);
    spans->pending[spans->n_pending++] = *span;
    br_heap_rise(spans_kind, spans->pending, at, spans->filter);
    return 0;
}

static struct br_stored_span spans_pop(struct spans_query *spans)
{
    struct br_stored_span *heap = spans->pending, top = heap[0];
    heap[0] = heap[--spans->n_pending];
    br_heap_sink(spans_kind, heap, spans->n_pending, 0, spans->filter);
    return top;
}

static bool spans_match(const struct spans_query *spans, const struct selected *selected,
                        const struct br_columns *columns, uint32_t index)
{
    const struct br_span_filter *filter = spans->filter;
    uint32_t operation = columns->operation[index];
    uint64_t start = columns->start_ns[index], duration = br_columns_duration(columns, index);
    if (start < filter->from_ns || (filter->until_ns && start >= filter->until_ns))
        return false;
    if (duration < filter->min_duration_ns ||
        (filter->max_duration_ns && duration > filter->max_duration_ns))
        return false;
    if ((filter->roots && !columns->root[index]) ||
        (filter->failed && columns->status[index] != BR_SPAN_STATUS_ERROR))
        return false;
    if (filter->has_status && columns->status[index] != filter->status)
        return false;
    if (selected && (operation >= selected->count || !selected->operations[operation]))
        return false;
    return spans_is_in_page(spans, index);
}

/* Returns false if the block's Bloom filter excludes one of the attributes in filter->needles. */
static bool spans_may_have(struct spans_query *spans, const struct candidate *candidate, int *rc)
{
    const struct br_span_filter *filter = spans->filter;
    struct br_store_view *view = candidate->view;
    struct br_sql *sql = &view->reader->sql;
    bool may = true;
    int sql_rc = 0;
    *rc = 0;
    if (!filter->n_needles)
        return true;
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_FILTER);
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, candidate->block);
    if (br_sql_row(sql, statement, &sql_rc, NULL)) {
        const uint8_t *bits = sqlite3_column_blob(statement, 0);
        size_t len = (size_t)sqlite3_column_bytes(statement, 0);
        for (size_t i = 0; may && i < filter->n_needles; i++) {
            const struct br_span_needle *needle = &filter->needles[i];
            uint64_t hash =
                br_blocks_attribute_hash(view->totals.secret, needle->resource, needle->key,
                                         strlen(needle->key), needle->value, strlen(needle->value));
            may = br_bloom_has(bits, len, hash);
        }
        (void)sqlite3_reset(statement);
    }
    if (sql_rc)
        *rc = br_store_view_sql_failed(spans->query, view, spans->err);
    return may && !sql_rc;
}

static int spans_read_block(struct spans_query *spans, const struct candidate *candidate)
{
    const struct br_store_query_state *state = br_store_query_state_of(spans->query);
    const struct br_columns *columns = &state->columns;
    struct br_store_view *view = candidate->view;
    const struct selected *selected =
        spans->selected ? &spans->selected[view - state->views] : NULL;
    struct br_stored_span span;
    bool there;
    int rc = 0;
    if (!spans_may_have(spans, candidate, &rc))
        return rc;
    rc = br_store_view_columns(spans->query, view, candidate->block, &there, spans->err);
    for (uint32_t i = 0; there && !rc && i < columns->n_spans; i++) {
        if (!spans_match(spans, selected, columns, i))
            continue;
        if (!spans_make(spans->query, view, candidate->block, i, &span))
            break;
        rc = spans_push(spans, &span);
        const struct br_span_position position = spans_position_of(spans, i);
        if (!rc)
            rc = spans_note_position(spans, &position);
    }
    return rc;
}

/* Returns true if no span of an unread block, whose rank is at most `bound`, can precede the span.
 * Without a limit, the order of spans with equal ranks is undefined. */
static bool spans_is_next(const struct spans_query *spans, const struct br_stored_span *span,
                          int64_t bound)
{
    int64_t rank = spans_rank(spans->filter, span);
    return rank > bound || (rank == bound && !spans->filter->limit);
}

/* Passes pending spans to the caller: all of them, or those that no span of an unread block can
 * precede. */
static void spans_hand_out(struct spans_query *spans, bool all, int64_t bound)
{
    while (spans->n_pending && !spans->stopped &&
           (all || spans_is_next(spans, &spans->pending[0], bound))) {
        struct br_stored_span span = spans_pop(spans);
        spans->stopped = !spans->fn(&span, spans->arg) ||
                         (spans->filter->limit && ++spans->n_out >= spans->filter->limit);
    }
}

static int spans_run(struct spans_query *spans)
{
    struct br_store_query_state *state = br_store_query_state_of(spans->query);
    const struct br_span_filter *filter = spans->filter;
    int rc = 0;
    if (filter->service || filter->name) {
        spans->selected = br_calloc((size_t)state->n_views + 1, sizeof *spans->selected);
        rc = spans->selected ? 0 : spans_no_memory(spans->err);
    }
    for (uint32_t i = 0; i < state->n_views && !rc; i++) {
        struct br_store_view *view = &state->views[i];
        if (!br_store_view_has_spans(&view->totals, filter->from_ns, filter->until_ns) ||
            !br_store_view_open(spans->query, view, &rc, spans->err))
            continue;
        rc = spans_find_blocks(spans, view);
        br_store_view_close(view);
    }
    if (spans->n_candidates)
        qsort(spans->candidates, spans->n_candidates, sizeof *spans->candidates,
              spans_compare_candidates);
    for (uint32_t i = 0; i < spans->n_candidates && !rc && !spans->stopped; i++) {
        spans_hand_out(spans, false, spans->candidates[i].bound);
        if (spans->stopped || !br_store_query_may_continue(spans->query))
            break;
        struct br_store_view *view = spans->candidates[i].view;
        if (!br_store_view_open(spans->query, view, &rc, spans->err))
            continue;
        rc = spans_read_block(spans, &spans->candidates[i]);
        br_store_view_close(view);
    }
    if (!rc)
        spans_hand_out(spans, true, 0);
    return rc;
}

static void spans_release(struct spans_query *spans)
{
    const struct br_store_query_state *state = br_store_query_state_of(spans->query);
    br_store_query_count_bytes(spans->query,
                               -(int64_t)(spans->cap_candidates * sizeof *spans->candidates +
                                          spans->cap_pending * sizeof *spans->pending +
                                          spans->cap_firsts * sizeof *spans->firsts));
    for (uint32_t i = 0; spans->selected && i < state->n_views; i++) {
        br_store_query_count_bytes(spans->query, -(int64_t)spans->selected[i].cap);
        br_free(spans->selected[i].operations);
    }
    br_free(spans->selected);
    br_free(spans->candidates);
    br_free(spans->pending);
    br_free(spans->firsts);
}

int br_store_spans(struct br_store_query *query, const struct br_span_filter *filter,
                   br_span_fn *fn, void *arg, struct br_err *err)
{
    struct spans_query spans = {.query = query, .filter = filter, .fn = fn, .arg = arg, .err = err};
    int rc = spans_run(&spans);
    spans_release(&spans);
    return rc;
}

/* --- A trace --------------------------------------------------------------------------------- */

static int spans_read_trace_block(struct spans_query *spans, struct br_store_view *view,
                                  int64_t block, const uint8_t trace_id[16])
{
    const struct br_columns *columns = &br_store_query_state_of(spans->query)->columns;
    struct br_stored_span span;
    bool there;
    int rc = br_store_view_columns(spans->query, view, block, &there, spans->err);
    for (uint32_t i = 0; there && !rc && i < columns->n_spans; i++) {
        if (memcmp(columns->traces[columns->trace[i]], trace_id, 16) != 0)
            continue;
        if (!spans_make(spans->query, view, block, i, &span))
            break;
        uint32_t before = spans->cap_pending;
        if (br_grow(&spans->pending, &spans->cap_pending, (size_t)spans->n_pending + 1,
                    sizeof *spans->pending, PENDING_MAX))
            return spans_no_memory(spans->err);
        br_store_query_count_bytes(spans->query, (int64_t)(spans->cap_pending - before) *
                                                     (int64_t)sizeof *spans->pending);
        spans->pending[spans->n_pending++] = span;
    }
    return rc;
}

static int spans_read_trace(struct spans_query *spans, struct br_store_view *view,
                            const uint8_t trace_id[16])
{
    struct br_sql *sql = &view->reader->sql;
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_TRACE);
    int rc = 0, sql_rc = 0;
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, br_blocks_trace_hash(view->totals.secret, trace_id));
    while (!rc && br_store_query_may_continue(spans->query) &&
           br_sql_row(sql, statement, &sql_rc, NULL))
        rc = spans_read_trace_block(spans, view, sqlite3_column_int64(statement, 0), trace_id);
    if (statement)
        (void)sqlite3_reset(statement);
    if (!rc && sql_rc)
        rc = br_store_view_sql_failed(spans->query, view, spans->err);
    return rc;
}

static int spans_compare_starts(const void *left, const void *right)
{
    const struct br_stored_span *first = left, *second = right;
    if (first->start_ns != second->start_ns)
        return first->start_ns < second->start_ns ? -1 : 1;
    if (first->span_id != second->span_id)
        return first->span_id < second->span_id ? -1 : 1;
    return (first->kind > second->kind) - (first->kind < second->kind);
}

int br_store_trace(struct br_store_query *query, const uint8_t trace_id[16], br_span_fn *fn,
                   void *arg, struct br_err *err)
{
    static const struct br_span_filter none;
    struct spans_query spans = {.query = query, .filter = &none, .err = err};
    struct br_store_query_state *state = br_store_query_state_of(query);
    int rc = 0;
    for (uint32_t i = 0; i < state->n_views && !rc; i++) {
        struct br_store_view *view = &state->views[i];
        if (!view->totals.n_spans || !br_store_view_open(query, view, &rc, err))
            continue;
        rc = spans_read_trace(&spans, view, trace_id);
        br_store_view_close(view);
    }
    if (spans.n_pending)
        qsort(spans.pending, spans.n_pending, sizeof *spans.pending, spans_compare_starts);
    for (uint32_t i = 0; i < spans.n_pending && !rc; i++) {
        /* Skip a duplicate: a client that did not receive the response sends its spans again. */
        if (i && spans_compare_starts(&spans.pending[i - 1], &spans.pending[i]) == 0)
            continue;
        if (!fn(&spans.pending[i], arg))
            break;
    }
    spans_release(&spans);
    return rc;
}

/* --- Bytes of a span ------------------------------------------------------------------------- */

/* Finds the offsets of the heads (resources and scopes) and spans in a body. Returns 0,
 * BR_EPROTO or BR_ENOMEM. */
static int spans_index_body(struct br_store_body *body)
{
    struct br_unpack unpack = {.p = body->plain.data, .end = body->plain.data + body->plain.len};
    uint64_t n_heads = br_unpack_varint(&unpack);
    if (unpack.failed || n_heads > 2 * BR_BLOCK_SPANS)
        return BR_EPROTO;
    if (br_grow(&body->heads, &body->cap_heads, (size_t)n_heads + 1, sizeof *body->heads,
                2 * BR_BLOCK_SPANS + 1))
        return BR_ENOMEM;
    body->n_heads = (uint32_t)n_heads;
    for (uint32_t i = 0; i < n_heads && !unpack.failed; i++) {
        size_t len = (size_t)br_unpack_varint(&unpack);
        body->heads[i].copy = NULL;
        body->heads[i].at = (size_t)(unpack.p - body->plain.data);
        body->heads[i].len = len;
        (void)br_unpack_bytes(&unpack, len);
    }
    for (body->n_spans = 0; body->n_spans < BR_BLOCK_SPANS && unpack.p < unpack.end;) {
        uint32_t at = (uint32_t)(unpack.p - body->plain.data), len = 0;
        uint64_t resource = br_unpack_varint(&unpack), scope = br_unpack_varint(&unpack);
        const uint8_t *length = br_unpack_bytes(&unpack, 4);
        if (length)
            memcpy(&len, length, 4);
        if (!br_unpack_bytes(&unpack, len) || resource > n_heads || scope > n_heads || !resource ||
            !scope)
            return BR_EPROTO;
        body->spans[body->n_spans++] = at;
    }
    return unpack.failed ? BR_EPROTO : 0;
}

static int spans_load_body(struct br_store_query *query, struct br_store_view *view, int64_t block,
                           struct br_store_body *body, struct br_err *err)
{
    struct br_store_query_state *state = br_store_query_state_of(query);
    struct br_sql *sql = &view->reader->sql;
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_BODY);
    size_t before = body->plain.cap;
    int rc = 0;
    body->view = NULL;
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, block);
    if (!br_sql_row(sql, statement, &rc, err))
        return rc ? rc : br_err_set(err, BR_EPROTO, "a block has no body");
    rc = br_pack_decompress(&state->codec, sqlite3_column_blob(statement, 0),
                            (size_t)sqlite3_column_bytes(statement, 0), &body->plain);
    (void)sqlite3_reset(statement);
    br_store_query_count_bytes(query, (int64_t)(body->plain.cap - before));
    rc = rc ? rc : spans_index_body(body);
    if (rc == BR_ENOMEM)
        return br_err_set(err, rc, "out of memory");
    if (rc)
        return br_err_set(err, BR_EPROTO, "the body of a block is damaged");
    body->view = view;
    body->block = block;
    return 0;
}

static int spans_body(struct br_store_query *query, struct br_store_view *view, int64_t block,
                      struct br_store_body **ret, struct br_err *err)
{
    struct br_store_query_state *state = br_store_query_state_of(query);
    struct br_store_body *body = &state->bodies[0];
    for (int i = 0; i < BR_STORE_BODIES; i++) {
        struct br_store_body *other = &state->bodies[i];
        if (other->view == view && other->block == block) {
            other->used = ++state->n_used;
            *ret = other;
            return 0;
        }
        if (other->used < body->used)
            body = other;
    }
    body->used = ++state->n_used;
    *ret = body;
    return spans_load_body(query, view, block, body, err);
}

static const uint8_t *spans_head(struct br_store_query *query, struct br_store_body *body,
                                 uint64_t number, size_t *ret_len)
{
    uint32_t index = (uint32_t)number - 1;
    size_t len = body->heads[index].len;
    if (!body->heads[index].copy) {
        uint8_t *copy = br_arena_alloc(query->arena, len + 1);
        if (copy)
            memcpy(copy, body->plain.data + body->heads[index].at, len);
        body->heads[index].copy = copy;
    }
    *ret_len = len;
    return body->heads[index].copy;
}

static uint8_t *spans_put_id(uint8_t *out, uint32_t field, const void *identifier, size_t size)
{
    static const uint8_t none[16];
    return memcmp(identifier, none, size) == 0 ? out : br_put_len(out, field, identifier, size);
}

static uint8_t *spans_put_time(uint8_t *out, uint32_t field, uint64_t time_ns)
{
    if (!time_ns)
        return out;
    out = br_put_varint(out, BR_TAG(field, BR_WIRE_I64));
    memcpy(out, &time_ns, 8);
    return out + 8;
}

/* Rebuilds the message of a span. Only the order of the message's fields may differ from the
 * original. */
static bool spans_assemble(struct br_store_query *query, const struct br_stored_span *span,
                           struct br_store_body *body, uint64_t end_ns, struct br_span_bytes *ret)
{
    struct br_unpack unpack = {.p = body->plain.data + body->spans[span->index],
                               .end = body->plain.data + body->plain.len};
    struct br_span_bytes bytes = {.span = NULL};
    uint32_t len;
    uint64_t resource = br_unpack_varint(&unpack), scope = br_unpack_varint(&unpack);
    memcpy(&len, br_unpack_bytes(&unpack, 4), 4);
    uint8_t *out = br_arena_alloc(query->arena, 64 + (size_t)len), *p = out;
    bytes.resource = spans_head(query, body, resource, &bytes.resource_len);
    bytes.scope = spans_head(query, body, scope, &bytes.scope_len);
    if (!out || !bytes.resource || !bytes.scope)
        return false;
    p = spans_put_id(p, BR_SPAN_TRACE_ID, span->trace_id, 16);
    p = spans_put_id(p, BR_SPAN_SPAN_ID, &span->span_id, 8);
    p = spans_put_id(p, BR_SPAN_PARENT_SPAN_ID, &span->parent_id, 8);
    p = spans_put_time(p, BR_SPAN_START_TIME, span->start_ns);
    p = spans_put_time(p, BR_SPAN_END_TIME, end_ns);
    p = br_put_bytes(p, unpack.p, len);
    bytes.span = out;
    bytes.span_len = (size_t)(p - out);
    *ret = bytes;
    return true;
}

int br_store_span_bytes(struct br_store_query *query, const struct br_stored_span *span,
                        struct br_span_bytes *ret, struct br_err *err)
{
    struct br_store_query_state *state = br_store_query_state_of(query);
    struct br_store_view *view = &state->views[span->partition];
    struct br_store_body *body;
    int rc = 0;
    if (!view->reader) { /* the reader was closed so that another reader could be opened */
        bool opened = br_store_view_open(query, view, &rc, err);
        if (!opened && rc)
            return rc;
        if (!opened && query->cut)
            return br_err_set(err, BR_ENOMEM, "%s", query->cut);
        if (!opened)
            return br_err_set(err, BR_EIO, "the data was removed meanwhile");
        br_store_view_close(view);
    }
    rc = spans_body(query, view, span->block, &body, err);
    if (!rc && span->index >= body->n_spans)
        rc = br_err_set(err, BR_EPROTO, "the body of a block is damaged");
    if (rc)
        return rc == BR_EPROTO ? BR_EIO : rc;
    if (!spans_assemble(query, span, body, span->end_ns, ret))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    return 0;
}
