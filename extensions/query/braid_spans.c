/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/index.h"
#include "base/mem.h"
#include "base/sum.h"
#include "extensions/query/braid.h"
#include "extensions/query/tempo.h"
#include "query/traceql.h"

#define LIMIT_DEFAULT 100
#define TAIL_SPANS_MAX 500        /* of one event */
#define TAIL_CANDIDATES_MAX 10000 /* new spans that a query is asked of */
#define TAIL_LOOK_MAX 20000       /* newest spans that a turn searches for new ones */
#define TAIL_BACK_NS (15 * 60 * BRAID_SECOND_NS)
#define TAIL_AGAIN_MS 500
#define TEXTS_MAX (1u << 20) /* of services and operations, that the best spans so far had */
#define OWN_BYTES_MAX (64u << 20)
#define CPU_SHARE 32u /* bytes of a query's memory for each span that has samples */
#define CPU_BEFORE_NS (600 * BRAID_SECOND_NS)
#define CPU_AFTER_NS (3600 * BRAID_SECOND_NS)

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

/* CPU time of a span itself. */
struct spans_cpu {
    uint64_t span_id;
    int64_t ns;
};

struct spans_ask {
    struct br_span_filter filter;
    uint8_t status;
    bool has_status, subtree;
    enum spans_sort sort;
    uint64_t limit;
    struct br_traceql query;
    bool has_query;
    struct query_braid_rows *rows;
    /* For a search through all spans: `rows` holds the best ones so far, in two halves of `limit`
     * rows. Once the first half is full, only rows at or above the floor are added. */
    bool has_floor;
    int64_t floor;
    struct br_arena own;  /* the query, and texts of the rows: the store's end with each page */
    struct br_map *known; /* texts by their bytes */
    struct spans_cpu *cpu;
    uint32_t n_cpu, cap_cpu, max_cpu;
    const char *note;
    struct br_index cpu_index;             /* by span id */
    const struct br_stored_series *series; /* of the last sample, and whether it is CPU time */
    bool is_cpu;
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
    int rc = br_traceql_parse(&ask->query, text, strlen(text), &ask->own, err);
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

/* --- Rows ------------------------------------------------------------------------------------- */

static bool spans_on_span(const struct br_stored_span *span, void *arg)
{
    struct spans_ask *ask = arg;
    if (ask->has_status && span->status != ask->status)
        return query_pick_goes_on(ask->rows->job);
    if (ask->rows->count == ask->rows->max)
        return false; /* that there are more than were asked for is no cut */
    return query_braid_rows_add(span, ask->rows);
}

/* --- A search through all spans --------------------------------------------------------------- */

static bool spans_cpu_is(const void *entries, uint32_t place, const void *key)
{
    const struct spans_cpu *cpu = entries;
    return cpu[place].span_id == *(const uint64_t *)key;
}

static uint64_t spans_cpu_hash(const void *entries, uint32_t place)
{
    const struct spans_ask *ask = entries;
    const uint64_t *id = &ask->cpu[place].span_id;
    return br_index_hash(&ask->cpu_index, id, sizeof *id);
}

static struct spans_cpu *spans_find_cpu(const struct spans_ask *ask, uint64_t span_id,
                                        uint64_t *ret_hash)
{
    *ret_hash = br_index_hash(&ask->cpu_index, &span_id, sizeof span_id);
    uint32_t place = br_index_find(&ask->cpu_index, *ret_hash, spans_cpu_is, ask->cpu, &span_id);
    return place == BR_INDEX_NONE ? NULL : &ask->cpu[place];
}

static bool spans_on_cpu(const struct br_stored_samples *samples, void *arg)
{
    struct spans_ask *ask = arg;
    struct query_job *job = ask->rows->job;
    uint64_t hash;
    if (samples->series != ask->series) {
        ask->series = samples->series;
        ask->is_cpu = query_braid_is_cpu(samples->series->type);
    }
    if (!ask->is_cpu || !samples->span_id)
        return true;
    struct spans_cpu *cpu = spans_find_cpu(ask, samples->span_id, &hash);
    if (cpu) {
        cpu->ns = br_sum(cpu->ns, samples->value);
        return true;
    }
    if (ask->n_cpu == ask->max_cpu) {
        ask->note = "more spans have samples than are compared";
        return query_pick_goes_on(job);
    }
    ask->rows->rc =
        br_grow(&ask->cpu, &ask->cap_cpu, (size_t)ask->n_cpu + 1, sizeof *ask->cpu, ask->max_cpu);
    if (ask->rows->rc)
        return false;
    ask->cpu[ask->n_cpu] = (struct spans_cpu){samples->span_id, samples->value};
    ask->rows->rc = br_index_add(&ask->cpu_index, hash, ask->n_cpu, spans_cpu_hash, ask);
    ask->n_cpu++;
    return !ask->rows->rc && query_pick_goes_on(job);
}

/* Adds up what each span took: of samples from a little before the range on, for clocks differ, to
 * an hour after it, for a span may last. */
static int spans_read_cpu(struct spans_ask *ask, struct br_err *err)
{
    const struct br_span_filter *filter = &ask->filter;
    const struct query_job *job = ask->rows->job;
    struct br_sample_filter samples = {
        .from_ns = filter->from_ns > CPU_BEFORE_NS ? filter->from_ns - CPU_BEFORE_NS : 0,
        .until_ns = filter->until_ns ? filter->until_ns + CPU_AFTER_NS : 0,
        .each = true};
    ask->max_cpu = (uint32_t)((size_t)job->config->max_query_memory / CPU_SHARE);
    br_index_init(&ask->cpu_index, ask->max_cpu, BR_HOLDER_STORE);
    br_random_bytes(ask->cpu_index.secret, sizeof ask->cpu_index.secret);
    int rc = br_store_samples(job->store, &samples, 0, spans_on_cpu, ask, err);
    return rc ? rc : ask->rows->rc;
}

static int64_t spans_search_rank(const struct spans_ask *ask, const struct br_stored_span *span)
{
    uint64_t hash;
    const struct spans_cpu *cpu;
    switch (ask->sort) {
    case SPANS_BY_START:
        return (int64_t)span->start_ns;
    case SPANS_BY_CPU:
        cpu = spans_find_cpu(ask, span->span_id, &hash);
        return cpu ? cpu->ns : 0;
    default:
        return (int64_t)(span->duration_ns < INT64_MAX ? span->duration_ns : INT64_MAX);
    }
}

static int spans_compare(const void *left, const void *right)
{
    const struct query_braid_row *a = left, *b = right;
    if (a->rank != b->rank)
        return a->rank > b->rank ? -1 : 1;
    return a->span.duration_ns < b->span.duration_ns ? 1
                                                     : -(a->span.duration_ns > b->span.duration_ns);
}

/* Leaves the best `limit` rows, in order. */
static void spans_settle(struct spans_ask *ask)
{
    struct query_braid_rows *rows = ask->rows;
    if (rows->count)
        qsort(rows->rows, rows->count, sizeof *rows->rows, spans_compare);
    if (rows->count >= ask->limit) {
        rows->count = (size_t)ask->limit;
        ask->has_floor = true;
        ask->floor = rows->rows[rows->count - 1].rank;
    }
}

/* Whether a span may be among the best ones. */
static bool spans_is_good(const struct spans_ask *ask, const struct br_stored_span *span)
{
    return !ask->has_floor || spans_search_rank(ask, span) >= ask->floor;
}

static const char *spans_keep_text(struct spans_ask *ask, const char *text)
{
    size_t len = strlen(text);
    char *kept = br_map_get(ask->known, text, len);
    if (kept)
        return kept;
    kept = br_arena_strndup(&ask->own, text, len);
    if (!kept || br_map_put(ask->known, text, len, kept, NULL))
        ask->rows->rc = BR_ENOMEM;
    return kept;
}

/* Adds a row for a span that was found. */
static bool spans_take(struct spans_ask *ask, const struct br_stored_span *span)
{
    struct query_braid_rows *rows = ask->rows;
    struct br_stored_span kept = *span;
    if (!spans_is_good(ask, span))
        return query_pick_goes_on(rows->job);
    if (rows->count == rows->max)
        spans_settle(ask);
    kept.service = spans_keep_text(ask, span->service);
    kept.name = spans_keep_text(ask, span->name);
    if (rows->rc || !query_braid_rows_add(&kept, rows))
        return false;
    rows->rows[rows->count - 1].rank = spans_search_rank(ask, span);
    return query_pick_goes_on(rows->job);
}

static bool spans_fits(const struct spans_ask *ask, const struct br_stored_span *span)
{
    const struct br_span_filter *filter = &ask->filter;
    return (!ask->has_status || span->status == ask->status) && span->start_ns >= filter->from_ns &&
           (!filter->until_ns || span->start_ns < filter->until_ns) &&
           (!filter->service || !strcmp(span->service, filter->service)) &&
           (!filter->name || !strcmp(span->name, filter->name)) &&
           span->duration_ns >= filter->min_duration_ns &&
           (!filter->max_duration_ns || span->duration_ns <= filter->max_duration_ns) &&
           (!filter->roots || !span->parent_id);
}

static bool spans_on_each(const struct br_stored_span *span, void *arg)
{
    struct spans_ask *ask = arg;
    return spans_fits(ask, span) ? spans_take(ask, span) : query_pick_goes_on(ask->rows->job);
}

static bool spans_on_found(struct query_tempo_scan *scan, struct br_traceql_trace *trace)
{
    struct spans_ask *ask = scan->arg;
    bool goes_on = true;
    for (uint32_t i = 0; i < trace->n_spans && goes_on; i++)
        if (trace->spans[i].in && spans_fits(ask, trace->spans[i].row))
            goes_on = spans_take(ask, trace->spans[i].row);
    return goes_on;
}

static int spans_scan(struct spans_ask *ask, struct br_err *err)
{
    struct query_job *job = ask->rows->job;
    struct query_tempo_scan scan = {.job = job,
                                    .query = &ask->query,
                                    .filter = &ask->filter,
                                    .take = spans_on_found,
                                    .arg = ask};
    struct br_span_filter all = {.from_ns = ask->filter.from_ns, .until_ns = ask->filter.until_ns};
    if (ask->query.needs_trace)
        scan.filter = &all; /* a span may be found by others of its trace */
    query_tempo_scan_ask(&scan);
    if (scan.cut && job->store && !job->store->cut)
        job->store->cut = scan.cut;
    if (scan.rc)
        *err = scan.err;
    return scan.rc;
}

/* Looks at every span for the best ones: by what their samples add up to, or that a query finds. */
static int spans_search(struct spans_ask *ask, struct br_err *err)
{
    struct query_braid_rows *rows = ask->rows;
    struct br_span_filter filter = ask->filter;
    rows->max = 2 * (size_t)ask->limit;
    filter.order = BR_SPANS_NEWEST;
    ask->known = br_map_new(TEXTS_MAX);
    int rc = ask->known ? 0 : BR_ENOMEM;
    if (!rc && ask->sort == SPANS_BY_CPU)
        rc = spans_read_cpu(ask, err);
    if (!rc)
        rc = ask->has_query ? spans_scan(ask, err)
                            : br_store_spans(rows->job->store, &filter, spans_on_each, ask, err);
    if (!rc)
        rc = rows->rc;
    spans_settle(ask);
    if (ask->note && rows->job->store)
        rows->job->store->note = ask->note;
    return rc;
}

static void spans_ask_release(struct spans_ask *ask)
{
    br_traceql_release(&ask->query);
    br_free(ask->cpu);
    br_index_release(&ask->cpu_index);
    br_map_free(ask->known, NULL);
    br_arena_release(&ask->own);
}

/* --- Figures ---------------------------------------------------------------------------------- */

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
    br_arena_init(&ask.own, OWN_BYTES_MAX);
    int rc = spans_read_query(job, &ask, &err);
    if (!rc && (ask.has_query || ask.sort == SPANS_BY_CPU)) {
        rc = spans_search(&ask, &err);
    } else if (!rc) {
        rows.max = (size_t)ask.limit;
        if (!ask.has_status || ask.filter.failed)
            ask.filter.limit = (uint32_t)rows.max + 1;
        rc = br_store_spans(job->store, &ask.filter, spans_on_span, &ask, &err);
        rc = rc ? rc : rows.rc;
    }
    if (!rc)
        rc = query_braid_sum_rows(&rows, &err);
    if (!rc && ask.subtree)
        rc = spans_sum_subtrees(&rows, &err);
    br_str_puts(&job->out, "{\"spans\":[");
    spans_put_all(job, &rows, ask.subtree);
    br_str_putc(&job->out, ']');
    query_braid_rows_release(&rows);
    spans_ask_release(&ask);
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

static int spans_ask_trace(struct spans_ask *ask, const struct br_stored_span *span, bool *ret,
                           struct br_err *err)
{
    struct br_store_query *store = ask->rows->job->store;
    struct br_traceql_trace trace = {0};
    bool any;
    int rc = br_traceql_trace_read(&trace, store, span->trace_id, BRAID_TRACE_SPANS_MAX, err);
    if (!rc)
        rc = br_traceql_match_trace(&ask->query, store, &trace, &any, err);
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
                 : br_traceql_match_span(&ask->query, rows->job->store, &one, &in, err);
        if (!rc && in)
            rows->rows[count++] = rows->rows[i];
    }
    rows->count = count;
    return rc;
}

static int spans_find_tail(struct spans_tail *tail, struct br_err *err)
{
    struct spans_ask *ask = &tail->ask;
    int rc = spans_read_query(tail->rows.job, ask, err);
    tail->rows.max = ask->has_query ? TAIL_CANDIDATES_MAX : TAIL_SPANS_MAX;
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
    br_arena_init(&tail.ask.own, OWN_BYTES_MAX);
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
    spans_ask_release(&tail.ask);
    job->cursor[0] = tail.most.partition;
    job->cursor[1] = tail.most.block;
    job->cursor[2] = tail.most.index;
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        job->again_ms = TAIL_AGAIN_MS;
}
