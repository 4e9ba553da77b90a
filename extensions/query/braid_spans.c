/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/index.h"
#include "base/mem.h"
#include "base/sum.h"
#include "extensions/query/braid.h"
#include "extensions/query/braid_filter.h"
#include "otlp/fields.h"

#define LIMIT_DEFAULT 100
#define TAIL_SPANS_MAX 500 /* maximum number of spans in one event of the live tail */
/* maximum number of new spans that one call of the live tail matches with a query */
#define TAIL_CANDIDATES_MAX 10000
/* number of the newest spans that each call of the live tail reads to find spans that arrived after
 * the last call */
#define TAIL_LOOK_MAX 20000
#define TAIL_BACK_NS (15 * 60 * BRAID_SECOND_NS)
#define TAIL_AGAIN_MS 500
/* maximum number of distinct names of services and operations that a search through all spans keeps
 */
#define TEXTS_MAX (1u << 20)
#define ARENA_BYTES_MAX (64u << 20)
/* divisor: the query's memory limit divided by CPU_SHARE is the maximum number of spans whose
 * CPU time is added up */
#define CPU_SHARE 32u
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

/* --- The request ----------------------------------------------------------------------------- */

enum spans_sort { SPANS_BY_DURATION, SPANS_BY_START, SPANS_BY_CPU };

/* CPU time of a span, without that of its children. */
struct spans_cpu {
    uint64_t span_id;
    int64_t ns;
};

struct spans_request {
    struct query_braid_filter of; /* selects the spans */
    bool subtree;
    enum spans_sort sort;
    uint64_t limit;
    struct query_braid_rows *rows;
    /* The next two fields are for a search through all spans. `rows` has room for twice `limit`
     * rows, which are the best rows found so far. After `limit` rows were found, only rows whose
     * rank is at least `floor` are added. */
    bool has_floor;
    int64_t floor;
    struct br_span_position after; /* end of the previous page; filter.after points to it */
    /* arena of the texts of rows, because the store's texts are freed after each page */
    struct br_arena arena;
    struct br_map *texts; /* set of the names that rows use */
    struct spans_cpu *cpu;
    uint32_t n_cpu, cap_cpu, max_cpu;
    const char *note;
    struct br_index cpu_index; /* index of the entries of `cpu`, by span id */
    /* series of the previous sample, and whether the values of the series are CPU time */
    const struct br_stored_series *series;
    bool is_cpu;
};

static bool spans_read_sort(struct query_job *job, struct spans_request *request)
{
    static const char *const names[] = {"duration", "start", "cpu"};
    const char *text = query_braid_param(job, "sort");
    for (unsigned i = 0; i < BR_COUNT(names); i++)
        if (!strcmp(text ? text : "duration", names[i])) {
            request->sort = (enum spans_sort)i;
            request->of.filter.order =
                request->sort == SPANS_BY_START ? BR_SPANS_NEWEST : BR_SPANS_SLOWEST;
            return true;
        }
    query_job_fail(job, 400, "invalid sort: must be duration, start or cpu, got \"%.40s\"", text);
    return false;
}

_Static_assert(sizeof(struct br_span_position) == 40, "the cursor must not contain padding");

/* Reads the position that spans_put_next has written. */
static bool spans_read_after(struct query_job *job, struct spans_request *request)
{
    const char *text = query_braid_param(job, "after");
    struct br_span_position *after = &request->after;
    struct br_span_filter *filter = &request->of.filter;
    if (!text)
        return true;
    if (br_hex_decode(text, strlen(text), (uint8_t *)after, sizeof *after) != sizeof *after) {
        query_job_fail(job, 400, "invalid after: must be \"next\" of a response, got \"%.80s\"",
                       text);
        return false;
    }
    filter->after = after;
    if (request->sort == SPANS_BY_START && after->start_ns < filter->until_ns)
        filter->until_ns = after->start_ns + 1; /* the store skips blocks of later spans */
    return true;
}

static bool spans_read(struct query_job *job, struct spans_request *request)
{
    if (!query_braid_filter_read(&request->of, job) || !spans_read_sort(job, request) ||
        !spans_read_after(job, request))
        return false;
    if (!query_braid_flag(job, "figures", "subtree", &request->subtree) ||
        !query_job_number(job, "limit", LIMIT_DEFAULT, BRAID_SPANS_MAX, &request->limit))
        return false;
    if (!request->limit)
        request->limit = LIMIT_DEFAULT;
    return true;
}

/* --- Searching all spans --------------------------------------------------------------------- */

static bool spans_cpu_equals(const void *entries, uint32_t place, const void *key)
{
    const struct spans_cpu *cpu = entries;
    return cpu[place].span_id == *(const uint64_t *)key;
}

static uint64_t spans_cpu_hash(const void *entries, uint32_t place)
{
    const struct spans_request *request = entries;
    const uint64_t *id = &request->cpu[place].span_id;
    return br_index_hash(&request->cpu_index, id, sizeof *id);
}

/* Returns the position of a span in `request->cpu`, or BR_INDEX_NONE. */
static uint32_t spans_find_cpu(const struct spans_request *request, uint64_t span_id,
                               uint64_t *ret_hash)
{
    *ret_hash = br_index_hash(&request->cpu_index, &span_id, sizeof span_id);
    return br_index_find(&request->cpu_index, *ret_hash, spans_cpu_equals, request->cpu, &span_id);
}

static bool spans_on_cpu(const struct br_stored_samples *samples, void *arg)
{
    struct spans_request *request = arg;
    struct query_job *job = request->rows->job;
    uint64_t hash;
    if (samples->series != request->series) {
        request->series = samples->series;
        request->is_cpu = query_braid_is_cpu(samples->series->type);
    }
    if (!request->is_cpu || !samples->span_id)
        return true;
    uint32_t place = spans_find_cpu(request, samples->span_id, &hash);
    if (place != BR_INDEX_NONE) {
        request->cpu[place].ns = br_sum(request->cpu[place].ns, samples->value);
        return true;
    }
    if (request->n_cpu == request->max_cpu) {
        request->note = "more spans have samples than one query can compare";
        return query_job_may_continue(job);
    }
    request->rows->rc = br_grow(&request->cpu, &request->cap_cpu, (size_t)request->n_cpu + 1,
                                sizeof *request->cpu, request->max_cpu);
    if (request->rows->rc)
        return false;
    request->cpu[request->n_cpu] = (struct spans_cpu){samples->span_id, samples->value};
    request->rows->rc =
        br_index_add(&request->cpu_index, hash, request->n_cpu, spans_cpu_hash, request);
    request->n_cpu++;
    return !request->rows->rc && query_job_may_continue(job);
}

/* Adds up the CPU time of each span. Samples are read from before the time range, because clocks
 * differ, to an hour after the range, because spans may be long. */
static int spans_read_cpu(struct spans_request *request, struct br_err *err)
{
    const struct br_span_filter *filter = &request->of.filter;
    const struct query_job *job = request->rows->job;
    struct br_sample_filter samples = {
        .from_ns = filter->from_ns > CPU_BEFORE_NS ? filter->from_ns - CPU_BEFORE_NS : 0,
        .until_ns = filter->until_ns ? br_sum_unsigned(filter->until_ns, CPU_AFTER_NS) : 0,
        .each = true};
    request->max_cpu = (uint32_t)((size_t)job->config->max_query_memory / CPU_SHARE);
    br_index_init(&request->cpu_index, request->max_cpu, BR_HOLDER_STORE);
    br_random_bytes(request->cpu_index.secret, sizeof request->cpu_index.secret);
    int rc = br_store_samples(job->store, &samples, 0, spans_on_cpu, request, err);
    return rc ? rc : request->rows->rc;
}

static int64_t spans_search_rank(const struct spans_request *request,
                                 const struct br_stored_span *span)
{
    uint64_t hash;
    uint32_t place;
    switch (request->sort) {
    case SPANS_BY_START:
        return (int64_t)(span->start_ns < INT64_MAX ? span->start_ns : INT64_MAX);
    case SPANS_BY_CPU:
        place = spans_find_cpu(request, span->span_id, &hash);
        return place == BR_INDEX_NONE ? 0 : request->cpu[place].ns;
    default:
        return (int64_t)(span->duration_ns < INT64_MAX ? span->duration_ns : INT64_MAX);
    }
}

static bool spans_on_span(const struct br_stored_span *span, void *arg)
{
    struct spans_request *request = arg;
    struct query_braid_rows *rows = request->rows;
    if (rows->count == rows->max)
        /* the limit of the request itself was reached, so the result does not count as truncated */
        return false;
    return query_braid_rows_add(span, rows);
}

static int spans_compare(const void *left, const void *right)
{
    const struct query_braid_row *a = left, *b = right;
    const struct br_span_position first = br_span_position(&a->span, a->rank);
    const struct br_span_position second = br_span_position(&b->span, b->rank);
    return br_span_position_is_before(&second, &first) -
           br_span_position_is_before(&first, &second);
}

/* Sorts the rows and keeps the `limit` best ones. */
static void spans_keep_best(struct spans_request *request)
{
    struct query_braid_rows *rows = request->rows;
    if (rows->count)
        qsort(rows->rows, rows->count, sizeof *rows->rows, spans_compare);
    if (rows->count >= request->limit) {
        rows->count = (size_t)request->limit;
        request->has_floor = true;
        request->floor = rows->rows[rows->count - 1].rank;
    }
}

/* Returns true if a span is behind the previous page and may be one of the best spans. */
static bool spans_may_rank(const struct spans_request *request, const struct br_stored_span *span)
{
    int64_t rank = spans_search_rank(request, span);
    const struct br_span_position position = br_span_position(span, rank);
    if (request->of.filter.after &&
        !br_span_position_is_before(request->of.filter.after, &position))
        return false;
    return !request->has_floor || rank >= request->floor;
}

static const char *spans_keep_text(struct spans_request *request, const char *text)
{
    size_t len = strlen(text);
    char *kept = br_map_get(request->texts, text, len);
    if (kept)
        return kept;
    kept = br_arena_strndup(&request->arena, text, len);
    if (!kept || br_map_put(request->texts, text, len, kept, NULL))
        request->rows->rc = BR_ENOMEM;
    return kept;
}

/* Adds a row for a span unless its rank is below the floor. */
static bool spans_add(struct spans_request *request, const struct br_stored_span *span)
{
    struct query_braid_rows *rows = request->rows;
    struct br_stored_span kept = *span;
    if (!spans_may_rank(request, span))
        return query_job_may_continue(rows->job);
    if (rows->count == rows->max)
        spans_keep_best(request);
    kept.service = spans_keep_text(request, span->service);
    kept.name = spans_keep_text(request, span->name);
    if (rows->rc || !query_braid_rows_add(&kept, rows))
        return false;
    rows->rows[rows->count - 1].rank = spans_search_rank(request, span);
    return query_job_may_continue(rows->job);
}

static bool spans_on_each(const struct br_stored_span *span, void *arg)
{
    return spans_add(arg, span);
}

/* Searches all spans for the best ones in the order that the request sorts by: the spans that match
 * the query, or all spans if they are sorted by CPU time. */
static int spans_search(struct spans_request *request, struct br_err *err)
{
    struct query_braid_rows *rows = request->rows;
    rows->max = 2 * (size_t)request->limit;
    request->texts = br_map_new(TEXTS_MAX);
    int rc = request->texts ? 0 : BR_ENOMEM;
    if (!rc && request->sort == SPANS_BY_CPU)
        rc = spans_read_cpu(request, err);
    if (!rc)
        rc = query_braid_filter_spans(&request->of, rows->job, spans_on_each, request, err);
    if (!rc)
        rc = rows->rc;
    spans_keep_best(request);
    if (request->note && rows->job->store)
        rows->job->store->note = request->note;
    return rc;
}

static void spans_request_release(struct spans_request *request)
{
    query_braid_filter_release(&request->of);
    br_free(request->cpu);
    br_index_release(&request->cpu_index);
    br_map_free(request->texts, NULL);
    br_arena_release(&request->arena);
}

/* --- Figures --------------------------------------------------------------------------------- */

/* Computes the figures of subtrees for all rows. Each trace is read once, even if it has several
 * rows. */
static int spans_sum_subtrees(struct query_braid_rows *rows, struct br_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < rows->count && !rc; i++)
        rows->rows[i].seen = false;
    for (size_t i = 0; i < rows->count && !rc && query_job_may_continue(rows->job); i++) {
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

/* Appends the position of the last row, behind which the next page starts, or null. */
static void spans_put_next(struct br_str *out, const struct spans_request *request)
{
    const struct query_braid_rows *rows = request->rows;
    char text[2 * sizeof(struct br_span_position) + 1];
    if (rows->count < request->limit || (rows->job->store && rows->job->store->cut)) {
        br_str_puts(out, ",\"next\":null");
        return;
    }
    const struct br_stored_span *last = &rows->rows[rows->count - 1].span;
    int64_t rank = spans_search_rank(request, last);
    const struct br_span_position position = br_span_position(last, rank);
    br_hex_encode((const uint8_t *)&position, sizeof position, text);
    text[sizeof text - 1] = 0;
    query_put_text(out, ',', "next", text);
}

void query_braid_spans(struct query_job *job)
{
    struct query_braid_rows rows = {.job = job};
    struct spans_request request = {.rows = &rows};
    struct br_err err = {0};
    if (!spans_read(job, &request))
        return;
    br_arena_init(&request.arena, ARENA_BYTES_MAX);
    int rc = query_braid_filter_parse(&request.of, job, &err);
    if (!rc && (request.of.has_query || request.sort == SPANS_BY_CPU)) {
        rc = spans_search(&request, &err);
    } else if (!rc) {
        rows.max = (size_t)request.limit;
        request.of.filter.limit = (uint32_t)rows.max + 1;
        rc = br_store_spans(job->store, &request.of.filter, spans_on_span, &request, &err);
        rc = rc ? rc : rows.rc;
    }
    if (!rc)
        rc = query_braid_sum_rows(&rows, &err);
    if (!rc && request.subtree)
        rc = spans_sum_subtrees(&rows, &err);
    br_str_puts(&job->out, "{\"spans\":[");
    spans_put_all(job, &rows, request.subtree);
    br_str_putc(&job->out, ']');
    spans_put_next(&job->out, &request);
    query_braid_rows_release(&rows);
    spans_request_release(&request);
    query_braid_end(job, rc, &err);
}

/* --- The live tail --------------------------------------------------------------------------- */

/* Location of a span in the store. A span that arrives later has a greater location. */
struct spans_place {
    uint64_t partition, block, index;
};

struct spans_tail {
    struct spans_request request;
    struct query_braid_rows rows;
    struct spans_place last, most;
    bool first; /* true in the first call, which only finds the location of the newest span */
};

static bool spans_is_after(const struct spans_place *place, const struct spans_place *other)
{
    if (place->partition != other->partition)
        return place->partition > other->partition;
    if (place->block != other->block)
        return place->block > other->block;
    return place->index > other->index;
}

static bool spans_on_tail(const struct br_stored_span *span, void *arg)
{
    struct spans_tail *tail = arg;
    const struct spans_place place = {span->partition_number, (uint64_t)span->block, span->index};
    if (spans_is_after(&place, &tail->most))
        tail->most = place;
    if (tail->first || tail->rows.count == tail->rows.max || !spans_is_after(&place, &tail->last))
        return query_job_may_continue(tail->rows.job);
    return query_braid_rows_add(span, &tail->rows);
}

static bool spans_read_tail(struct query_job *job, struct spans_request *request)
{
    struct br_span_filter *filter = &request->of.filter;
    *filter = (struct br_span_filter){.order = BR_SPANS_NEWEST, .limit = TAIL_LOOK_MAX};
    filter->from_ns = job->now_ns > TAIL_BACK_NS ? job->now_ns - TAIL_BACK_NS : 0;
    filter->service = query_braid_param(job, "service");
    filter->name = query_braid_param(job, "name");
    return query_braid_duration(job, "min_duration", &filter->min_duration_ns) &&
           query_braid_status_read(job, filter) &&
           query_braid_flag(job, "roots", "true", &filter->roots);
}

static int spans_match_trace(struct spans_request *request, const struct br_stored_span *span,
                             bool *ret, struct br_err *err)
{
    struct br_store_query *store = request->rows->job->store;
    struct br_traceql_trace trace = {0};
    bool any;
    int rc = br_traceql_trace_read(&trace, store, span->trace_id, BRAID_TRACE_SPANS_MAX, err);
    if (!rc)
        rc = br_traceql_match_trace(&request->of.query, store, &trace, &any, err);
    *ret = false;
    for (uint32_t i = 0; i < trace.n_spans && !rc; i++)
        if (trace.spans[i].row->span_id == span->span_id)
            *ret = *ret || trace.spans[i].in;
    return rc;
}

/* Keeps only the rows that match the query, at most `limit` rows. */
static int spans_match_rows(struct spans_request *request, size_t limit, struct br_err *err)
{
    struct query_braid_rows *rows = request->rows;
    size_t count = 0;
    int rc = 0;
    for (size_t i = 0; i < rows->count && count < limit && !rc; i++) {
        const struct br_stored_span *span = &rows->rows[i].span;
        struct br_traceql_span one = {.row = span, .parent = BR_TRACEQL_NO_PARENT};
        bool in = false;
        if (!query_job_may_continue(rows->job))
            break;
        rc = request->of.query.needs_trace
                 ? spans_match_trace(request, span, &in, err)
                 : br_traceql_match_span(&request->of.query, rows->job->store, &one, &in, err);
        if (!rc && in)
            rows->rows[count++] = rows->rows[i];
    }
    rows->count = count;
    return rc;
}

static int spans_find_tail(struct spans_tail *tail, struct br_err *err)
{
    struct spans_request *request = &tail->request;
    int rc = query_braid_filter_parse(&request->of, tail->rows.job, err);
    tail->rows.max = request->of.has_query ? TAIL_CANDIDATES_MAX : TAIL_SPANS_MAX;
    if (!rc)
        rc = br_store_spans(tail->rows.job->store, &request->of.filter, spans_on_tail, tail, err);
    if (!rc)
        rc = tail->rows.rc;
    if (!rc && request->of.has_query)
        rc = spans_match_rows(request, TAIL_SPANS_MAX, err);
    return rc ? rc : query_braid_sum_rows(&tail->rows, err);
}

/* A query about whole traces is evaluated on the spans that have arrived so far. */
void query_braid_tail(struct query_job *job)
{
    struct spans_tail tail = {.request = {.rows = &tail.rows},
                              .rows = {.job = job},
                              .last = {job->cursor[0], job->cursor[1], job->cursor[2]},
                              .first = job->n_calls == 0};
    struct br_err err = {0};
    if (!spans_read_tail(job, &tail.request))
        return;
    br_arena_init(&tail.request.arena, ARENA_BYTES_MAX);
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
    spans_request_release(&tail.request);
    job->cursor[0] = tail.most.partition;
    job->cursor[1] = tail.most.block;
    job->cursor[2] = tail.most.index;
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        job->again_ms = TAIL_AGAIN_MS;
}
