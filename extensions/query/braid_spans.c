/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "extensions/query/braid.h"
#include "query/traceql.h"

#define LIMIT_DEFAULT 100
#define TAIL_SPANS_MAX 500  /* of one event */
#define TAIL_LOOK_MAX 20000 /* the newest, of which new ones are told */
#define TAIL_BACK_NS (15 * 60 * BRAID_SECOND_NS)
#define TAIL_AGAIN_MS 500

const char *query_braid_kind(uint8_t kind)
{
    static const char *const names[] = {"unspecified", "internal", "server",
                                        "client",      "producer", "consumer"};
    return kind < BR_COUNT(names) ? names[kind] : names[0];
}

const char *query_braid_status(uint8_t status)
{
    static const char *const names[] = {"unset", "ok", "error"};
    return status < BR_COUNT(names) ? names[status] : names[0];
}

/* --- What is asked ---------------------------------------------------------------------------- */

enum spans_sort { SPANS_BY_DURATION, SPANS_BY_START, SPANS_BY_CPU };

struct spans_ask {
    struct br_span_filter filter;
    uint8_t status;
    bool has_status, subtree;
    enum spans_sort sort;
    uint64_t limit;
    struct br_traceql query;
    bool has_query;
    struct query_braid_rows *rows;
};

static const char *spans_param(const struct query_job *job, const char *name)
{
    const char *value = query_job_param(job, name);
    return value && *value ? value : NULL;
}

static bool spans_read_status(struct query_job *job, struct spans_ask *ask)
{
    const char *text = spans_param(job, "status");
    if (!text)
        return true;
    ask->has_status = true;
    for (ask->status = 0; ask->status < 3; ask->status++)
        if (!strcmp(query_braid_status(ask->status), text)) {
            ask->filter.failed = ask->status == 2;
            return true;
        }
    query_job_fail(job, 400, "invalid status: must be error, ok or unset, got \"%.40s\"", text);
    return false;
}

static bool spans_read_sort(struct query_job *job, struct spans_ask *ask)
{
    static const char *const names[] = {"duration", "start", "cpu"};
    const char *text = spans_param(job, "sort");
    for (unsigned i = 0; i < BR_COUNT(names); i++)
        if (!strcmp(text ? text : "duration", names[i])) {
            ask->sort = (enum spans_sort)i;
            ask->filter.order = ask->sort == SPANS_BY_START ? BR_SPANS_NEWEST : BR_SPANS_SLOWEST;
            return true;
        }
    query_job_fail(job, 400, "invalid sort: must be duration, start or cpu, got \"%.40s\"", text);
    return false;
}

static bool spans_read_flag(struct query_job *job, const char *name, const char *yes, bool *ret)
{
    const char *text = spans_param(job, name);
    *ret = text && !strcmp(text, yes);
    if (!text || *ret || !strcmp(text, "false") || !strcmp(text, "self"))
        return true;
    query_job_fail(job, 400, "invalid %s: may be %s, got \"%.40s\"", name, yes, text);
    return false;
}

static bool spans_read(struct query_job *job, struct spans_ask *ask)
{
    struct br_span_filter *filter = &ask->filter;
    filter->service = spans_param(job, "service");
    filter->name = spans_param(job, "name");
    if (!query_braid_range(job, &filter->from_ns, &filter->until_ns) ||
        !query_braid_duration(job, "min_duration", &filter->min_duration_ns) ||
        !query_braid_duration(job, "max_duration", &filter->max_duration_ns) ||
        !spans_read_status(job, ask) || !spans_read_sort(job, ask) ||
        !spans_read_flag(job, "roots", "true", &filter->roots) ||
        !spans_read_flag(job, "figures", "subtree", &ask->subtree) ||
        !query_job_number(job, "limit", LIMIT_DEFAULT, BRAID_SPANS_MAX, &ask->limit))
        return false;
    if (!ask->limit)
        ask->limit = LIMIT_DEFAULT;
    return true;
}

/* --- TraceQL ---------------------------------------------------------------------------------- */

static int spans_read_query(struct query_job *job, struct spans_ask *ask, struct br_err *err)
{
    const char *text = spans_param(job, "q");
    struct br_span_filter narrowed = ask->filter;
    if (!text)
        return 0;
    ask->has_query = true;
    int rc = br_traceql_parse(&ask->query, text, strlen(text), &job->arena, err);
    if (!rc && ask->query.metric)
        rc = br_err_set(err, BR_EINVAL, "q must find spans, and this query counts them");
    if (rc || ask->query.needs_trace)
        return rc;
    rc = br_traceql_filter(&ask->query, &narrowed);
    if (rc)
        return rc;
    /* What both say has to hold: where they differ, the query's part is checked later. */
    ask->filter.needles = narrowed.needles;
    ask->filter.n_needles = narrowed.n_needles;
    ask->filter.service = ask->filter.service ? ask->filter.service : narrowed.service;
    ask->filter.name = ask->filter.name ? ask->filter.name : narrowed.name;
    return 0;
}

static int spans_ask_trace(struct spans_ask *ask, const struct br_stored_span *span, bool *ret,
                           struct br_err *err)
{
    struct br_store_query *store = ask->rows->job->store;
    struct br_traceql_trace trace = {0};
    bool any;
    int rc = br_traceql_trace_read(&trace, store, span->trace_id, BRAID_TRACE_SPANS_MAX, err);
    if (!rc)
        rc = br_traceql_ask_trace(&ask->query, store, &trace, &any, err);
    *ret = false;
    for (uint32_t i = 0; i < trace.n_spans && !rc; i++)
        if (trace.spans[i].row->span_id == span->span_id)
            *ret = *ret || trace.spans[i].in;
    return rc;
}

/* Leaves the rows that the query finds, up to `limit` of them. */
static int spans_ask_query(struct spans_ask *ask, size_t limit, struct br_err *err)
{
    struct query_braid_rows *rows = ask->rows;
    size_t count = 0;
    int rc = 0;
    for (size_t i = 0; i < rows->count && count < limit && !rc; i++) {
        const struct br_stored_span *span = &rows->rows[i].span;
        struct br_traceql_span one = {.row = span, .parent = BR_TRACEQL_NO_PARENT};
        bool in = false;
        if (!query_pick_goes_on(rows->job))
            break;
        rc = ask->query.needs_trace
                 ? spans_ask_trace(ask, span, &in, err)
                 : br_traceql_ask_span(&ask->query, rows->job->store, &one, &in, err);
        if (!rc && in)
            rows->rows[count++] = rows->rows[i];
    }
    rows->count = count;
    return rc;
}

/* --- Rows ------------------------------------------------------------------------------------- */

static bool spans_on_span(const struct br_stored_span *span, void *arg)
{
    struct spans_ask *ask = arg;
    if (ask->has_status && span->status != ask->status)
        return query_pick_goes_on(ask->rows->job);
    if (ask->rows->count == ask->rows->max && ask->sort != SPANS_BY_CPU && !ask->has_query)
        return false; /* that there are more than were asked for is no cut */
    return query_braid_rows_add(span, ask->rows);
}

static int spans_compare_cpu(const void *left, const void *right, void *arg)
{
    const struct query_braid_row *a = left, *b = right;
    const struct query_braid_types *types = arg;
    int64_t a_cpu = query_braid_cpu(types, &a->self), b_cpu = query_braid_cpu(types, &b->self);
    if (a_cpu != b_cpu)
        return a_cpu > b_cpu ? -1 : 1;
    return a->span.duration_ns > b->span.duration_ns ? -1
                                                     : a->span.duration_ns < b->span.duration_ns;
}

/* Subtrees lie in traces: each is read once, for all rows of its spans. */
static int spans_sum_subtrees(struct query_braid_rows *rows, struct br_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < rows->count && !rc; i++)
        rows->rows[i].seen = false;
    for (size_t i = 0; i < rows->count && !rc && query_pick_goes_on(rows->job); i++) {
        struct query_braid_rows trace = {.job = rows->job};
        const uint8_t *id = rows->rows[i].span.trace_id;
        if (rows->rows[i].seen)
            continue;
        trace.types = rows->types;
        rc = query_braid_read_trace(&trace, id, err);
        if (!rc)
            rc = query_braid_sum_rows(&trace, err);
        if (!rc)
            rc = query_braid_sum_subtrees(&trace);
        rows->types = trace.types;
        for (size_t j = i; j < rows->count && !rc; j++) {
            struct query_braid_row *row = &rows->rows[j], *found;
            if (memcmp(row->span.trace_id, id, 16) != 0)
                continue;
            row->seen = true;
            found = query_braid_find(&trace, row->span.span_id);
            if (found)
                row->subtree = found->subtree;
        }
        query_braid_rows_release(&trace);
    }
    return rc;
}

static void spans_put(struct br_str *out, const struct query_braid_rows *rows,
                      const struct query_braid_row *row, bool subtree)
{
    const struct br_stored_span *span = &row->span;
    query_braid_put_trace(out, '{', "trace_id", span->trace_id);
    query_braid_put_span(out, ',', "span_id", span->span_id);
    query_braid_put_span(out, ',', "parent_id", span->parent_id);
    query_put_text(out, ',', "service", span->service);
    query_put_text(out, ',', "name", span->name);
    query_put_text(out, ',', "kind", query_braid_kind(span->kind));
    query_put_text(out, ',', "status", query_braid_status(span->status));
    br_str_printf(out,
                  ",\"start_unix_ns\":\"%" PRIu64 "\",\"duration_ns\":%" PRIu64 ",\"profile\":",
                  span->start_ns, span->duration_ns);
    query_braid_put_figures(out, &rows->types, &row->self);
    if (subtree) {
        br_str_puts(out, ",\"subtree\":");
        query_braid_put_figures(out, &rows->types, &row->subtree);
        br_str_putc(out, '}');
    }
    br_str_puts(out, "}}");
}

static void spans_put_all(struct query_job *job, const struct query_braid_rows *rows, bool subtree)
{
    for (size_t i = 0; i < rows->count; i++) {
        if (i)
            br_str_putc(&job->out, ',');
        spans_put(&job->out, rows, &rows->rows[i], subtree);
    }
}

void query_braid_spans(struct query_job *job)
{
    struct query_braid_rows rows = {.job = job};
    struct spans_ask ask = {.rows = &rows};
    struct br_err err = {0};
    if (!spans_read(job, &ask))
        return;
    bool by_cpu = ask.sort == SPANS_BY_CPU;
    int rc = spans_read_query(job, &ask, &err);
    rows.max = by_cpu || ask.has_query ? BRAID_CANDIDATES_MAX : (size_t)ask.limit;
    if (!ask.has_status || ask.filter.failed)
        ask.filter.limit = (uint32_t)rows.max + 1;
    if (!rc)
        rc = br_store_spans(job->store, &ask.filter, spans_on_span, &ask, &err);
    if (!rc)
        rc = rows.rc;
    if (!rc && ask.has_query)
        rc = spans_ask_query(&ask, by_cpu ? rows.max : (size_t)ask.limit, &err);
    if (!rc)
        rc = query_braid_sum_rows(&rows, &err);
    if (!rc && by_cpu && rows.count) {
        qsort_r(rows.rows, rows.count, sizeof *rows.rows, spans_compare_cpu, &rows.types);
        rows.count = rows.count < ask.limit ? rows.count : (size_t)ask.limit;
    }
    if (!rc && ask.subtree)
        rc = spans_sum_subtrees(&rows, &err);
    br_str_puts(&job->out, "{\"spans\":[");
    spans_put_all(job, &rows, ask.subtree);
    br_str_putc(&job->out, ']');
    query_braid_rows_release(&rows);
    br_traceql_release(&ask.query);
    query_braid_end(job, rc, &err);
}

/* --- The live tail ---------------------------------------------------------------------------- */

/* The place of a span grows with its arrival: a span behind the last one that was sent is new. */
struct spans_place {
    uint64_t partition, block, index;
};

struct spans_tail {
    struct spans_ask ask;
    struct query_braid_rows rows;
    struct spans_place last, most;
    bool first; /* nothing is told: where the end is, is found out */
};

static bool spans_is_behind(const struct spans_place *left, const struct spans_place *right)
{
    return left->partition != right->partition ? left->partition > right->partition
           : left->block != right->block       ? left->block > right->block
                                               : left->index > right->index;
}

static bool spans_on_tail(const struct br_stored_span *span, void *arg)
{
    struct spans_tail *tail = arg;
    const struct spans_place place = {span->partition, (uint64_t)span->block, span->index};
    if (spans_is_behind(&place, &tail->most))
        tail->most = place;
    if (tail->first || tail->rows.count == tail->rows.max ||
        !spans_is_behind(&place, &tail->last) ||
        (tail->ask.has_status && span->status != tail->ask.status))
        return query_pick_goes_on(tail->rows.job);
    return query_braid_rows_add(span, &tail->rows);
}

static bool spans_read_tail(struct query_job *job, struct spans_ask *ask)
{
    struct br_span_filter *filter = &ask->filter;
    *filter = (struct br_span_filter){.order = BR_SPANS_NEWEST, .limit = TAIL_LOOK_MAX};
    filter->from_ns = job->now_ns > TAIL_BACK_NS ? job->now_ns - TAIL_BACK_NS : 0;
    filter->service = spans_param(job, "service");
    filter->name = spans_param(job, "name");
    return query_braid_duration(job, "min_duration", &filter->min_duration_ns) &&
           spans_read_status(job, ask) && spans_read_flag(job, "roots", "true", &filter->roots);
}

static int spans_find_tail(struct spans_tail *tail, struct br_err *err)
{
    struct spans_ask *ask = &tail->ask;
    int rc = spans_read_query(tail->rows.job, ask, err);
    tail->rows.max = ask->has_query ? BRAID_CANDIDATES_MAX : TAIL_SPANS_MAX;
    if (!rc)
        rc = br_store_spans(tail->rows.job->store, &ask->filter, spans_on_tail, tail, err);
    if (!rc)
        rc = tail->rows.rc;
    if (!rc && ask->has_query)
        rc = spans_ask_query(ask, TAIL_SPANS_MAX, err);
    return rc ? rc : query_braid_sum_rows(&tail->rows, err);
}

/* A query that asks for more than the span sees of its trace what has come. */
void query_braid_tail(struct query_job *job)
{
    struct spans_tail tail = {.ask = {.rows = &tail.rows},
                              .rows = {.job = job},
                              .last = {job->cursor[0], job->cursor[1], job->cursor[2]},
                              .first = job->turn == 0};
    struct br_err err = {0};
    if (!spans_read_tail(job, &tail.ask))
        return;
    tail.most = tail.last;
    job->type = "text/event-stream";
    int rc = spans_find_tail(&tail, &err);
    if (tail.rows.count) {
        br_str_puts(&job->out, "event: spans\ndata: [");
        spans_put_all(job, &tail.rows, false);
        br_str_puts(&job->out, "]\n\n");
    } else if (tail.first) {
        br_str_puts(&job->out, ": following\n\n");
    }
    query_braid_rows_release(&tail.rows);
    br_traceql_release(&tail.ask.query);
    job->cursor[0] = tail.most.partition;
    job->cursor[1] = tail.most.block;
    job->cursor[2] = tail.most.index;
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        job->again_ms = TAIL_AGAIN_MS;
}
