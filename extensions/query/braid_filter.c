/* SPDX-License-Identifier: Apache-2.0 */
#include "extensions/query/braid_filter.h"

#include <string.h>

#include "extensions/query/tempo.h"
#include "otlp/fields.h"

#define ARENA_BYTES_MAX (64u << 20)

/* --- Parameters ------------------------------------------------------------------------------ */

const char *query_braid_param(const struct query_job *job, const char *name)
{
    const char *value = query_job_param(job, name);
    return value && *value ? value : NULL;
}

bool query_braid_status_read(struct query_job *job, struct br_span_filter *filter)
{
    const char *text = query_braid_param(job, "status");
    if (!text)
        return true;
    filter->has_status = true;
    for (filter->status = 0; filter->status < 3; filter->status++)
        if (!strcmp(query_braid_status(filter->status), text)) {
            filter->failed = filter->status == BR_SPAN_STATUS_ERROR;
            return true;
        }
    query_job_fail(job, 400, "invalid status: must be error, ok or unset, got \"%.40s\"", text);
    return false;
}

bool query_braid_flag(struct query_job *job, const char *name, const char *yes, bool *ret)
{
    const char *text = query_braid_param(job, name);
    *ret = text && !strcmp(text, yes);
    if (!text || *ret || !strcmp(text, "false") || !strcmp(text, "self"))
        return true;
    query_job_fail(job, 400, "invalid %s: must be %s, got \"%.40s\"", name, yes, text);
    return false;
}

bool query_braid_filter_read(struct query_braid_filter *of, struct query_job *job)
{
    struct br_span_filter *filter = &of->filter;
    filter->service = query_braid_param(job, "service");
    filter->name = query_braid_param(job, "name");
    if (!query_braid_range(job, &filter->from_ns, &filter->until_ns) ||
        !query_braid_duration(job, "min_duration", &filter->min_duration_ns) ||
        !query_braid_duration(job, "max_duration", &filter->max_duration_ns))
        return false;
    return query_braid_status_read(job, filter) &&
           query_braid_flag(job, "roots", "true", &filter->roots);
}

int query_braid_filter_parse(struct query_braid_filter *of, struct query_job *job,
                             struct br_err *err)
{
    const char *text = query_braid_param(job, "q");
    struct br_span_filter narrowed = of->filter;
    if (!text)
        return 0;
    br_arena_init(&of->arena, ARENA_BYTES_MAX);
    of->has_query = true;
    int rc = br_traceql_parse(&of->query, text, strlen(text), &of->arena, err);
    if (!rc && of->query.metric)
        rc = br_err_set(err, BR_EINVAL, "q must select spans, but this query is a metric");
    if (rc || of->query.needs_trace)
        return rc;
    rc = br_traceql_filter(&of->query, &narrowed);
    if (rc)
        return rc;
    /* A span must fulfil the conditions of the request and the conditions of the query. If the
     * request and the query both have a service or name, the filter uses that of the request.
     * The condition of the query is then evaluated later. */
    of->filter.needles = narrowed.needles;
    of->filter.n_needles = narrowed.n_needles;
    of->filter.service = of->filter.service ? of->filter.service : narrowed.service;
    of->filter.name = of->filter.name ? of->filter.name : narrowed.name;
    return 0;
}

void query_braid_filter_release(struct query_braid_filter *of)
{
    br_traceql_release(&of->query);
    br_arena_release(&of->arena);
}

/* --- Selections ------------------------------------------------------------------------------ */

bool query_braid_selection_read(struct query_braid_selection *selection, struct query_job *job,
                                bool *ret_any)
{
    *selection = (struct query_braid_selection){0};
    *ret_any = query_braid_param(job, "selection_start") ||
               query_braid_param(job, "selection_end") ||
               query_braid_param(job, "selection_min_duration") ||
               query_braid_param(job, "selection_max_duration");
    if (!query_job_time(job, "selection_start", 0, &selection->from_ns) ||
        !query_job_time(job, "selection_end", UINT64_MAX, &selection->to_ns) ||
        !query_braid_duration(job, "selection_min_duration", &selection->min_duration_ns) ||
        !query_braid_duration(job, "selection_max_duration", &selection->max_duration_ns))
        return false;
    if (!query_braid_param(job, "selection_max_duration"))
        selection->max_duration_ns = UINT64_MAX;
    return true;
}

bool query_braid_selection_has(const struct query_braid_selection *selection, uint64_t start_ns,
                               uint64_t duration_ns)
{
    return start_ns >= selection->from_ns && start_ns <= selection->to_ns &&
           duration_ns >= selection->min_duration_ns && duration_ns <= selection->max_duration_ns;
}

/* --- Spans ----------------------------------------------------------------------------------- */

/* Returns true if a span with these values fulfils the filter's conditions on duration, status and
 * parent. */
static bool filter_has(const struct br_span_filter *filter, uint64_t duration_ns, uint8_t status,
                       bool root)
{
    if (duration_ns < filter->min_duration_ns ||
        (filter->max_duration_ns && duration_ns > filter->max_duration_ns))
        return false;
    return (!filter->has_status || status == filter->status) && (!filter->roots || root);
}

/* Returns true if a span fulfils the conditions of a filter other than attributes. */
static bool filter_matches(const struct br_span_filter *filter, const struct br_stored_span *span)
{
    if (span->start_ns < filter->from_ns ||
        (filter->until_ns && span->start_ns >= filter->until_ns))
        return false;
    if ((filter->service && strcmp(span->service, filter->service) != 0) ||
        (filter->name && strcmp(span->name, filter->name) != 0))
        return false;
    return filter_has(filter, span->duration_ns, span->status, !span->parent_id);
}

struct filter_reader {
    const struct query_braid_filter *of;
    br_span_fn *fn;
    void *arg;
};

static bool filter_on_found(struct query_tempo_scan *scan, struct br_traceql_trace *trace)
{
    struct filter_reader *reader = scan->arg;
    bool may_continue = true;
    for (uint32_t i = 0; i < trace->n_spans && may_continue; i++)
        if (trace->spans[i].in && filter_matches(&reader->of->filter, trace->spans[i].row))
            may_continue = reader->fn(trace->spans[i].row, reader->arg);
    return may_continue;
}

static int filter_scan(struct query_braid_filter *of, struct query_job *job,
                       struct filter_reader *reader, const struct br_span_filter *filter,
                       struct br_err *err)
{
    struct br_span_filter all = {.from_ns = of->filter.from_ns, .until_ns = of->filter.until_ns};
    struct query_tempo_scan scan = {.job = job,
                                    .query = &of->query,
                                    .filter = filter,
                                    .on_trace = filter_on_found,
                                    .arg = reader};
    if (of->query.needs_trace)
        /* the filter selects all spans, because a span may match because of other spans in its
         * trace */
        scan.filter = &all;
    query_tempo_scan_execute(&scan);
    if (scan.cut && job->store && !job->store->cut)
        job->store->cut = scan.cut;
    if (scan.rc)
        *err = scan.err;
    return scan.rc;
}

int query_braid_filter_spans(struct query_braid_filter *of, struct query_job *job, br_span_fn *fn,
                             void *arg, struct br_err *err)
{
    struct filter_reader reader = {of, fn, arg};
    struct br_span_filter filter = of->filter;
    filter.order = BR_SPANS_NEWEST;
    filter.after = NULL; /* the position is of another order; the caller compares it */
    return of->has_query ? filter_scan(of, job, &reader, &filter, err)
                         : br_store_spans(job->store, &filter, fn, arg, err);
}

/* --- Facts ----------------------------------------------------------------------------------- */

enum filter_operation { UNKNOWN, SELECTED, NOT_SELECTED };

struct filter_facts {
    const struct br_span_filter *filter;
    struct query_job *job;
    query_braid_facts_fn *fn;
    void *arg;
    /* enum filter_operation of each operation of `partition` */
    uint8_t *operations;
    uint32_t cap, partition;
    int rc;
};

static bool filter_is_operation(struct filter_facts *reader, const struct br_span_facts *facts,
                                uint32_t operation)
{
    const struct br_span_filter *filter = reader->filter;
    const char *service, *name;
    uint32_t before = reader->cap;
    reader->rc = br_grow(&reader->operations, &reader->cap, (size_t)operation + 1,
                         sizeof *reader->operations, UINT32_MAX);
    if (reader->rc)
        return false;
    memset(reader->operations + before, UNKNOWN, reader->cap - before);
    uint8_t *known = &reader->operations[operation];
    if (*known == UNKNOWN) {
        if (!br_store_operation(reader->job->store, facts, operation, &service, &name))
            return false;
        bool is = (!filter->service || !strcmp(filter->service, service)) &&
                  (!filter->name || !strcmp(filter->name, name));
        *known = is ? SELECTED : NOT_SELECTED;
    }
    return *known == SELECTED;
}

static bool filter_on_facts(const struct br_span_facts *facts, void *arg)
{
    struct filter_facts *reader = arg;
    const struct br_span_filter *filter = reader->filter;
    bool named = filter->service || filter->name;
    if (facts->partition != reader->partition && reader->cap)
        memset(reader->operations, UNKNOWN, reader->cap);
    reader->partition = facts->partition;
    for (uint32_t i = 0; i < facts->count && !reader->rc; i++)
        if (filter_has(filter, facts->duration_ns[i], facts->status[i], facts->root[i]) &&
            (!named || filter_is_operation(reader, facts, facts->operation[i])) &&
            !reader->fn(facts, i, reader->arg))
            return false;
    return !reader->rc && query_job_may_continue(reader->job);
}

int query_braid_filter_facts(const struct query_braid_filter *of, struct query_job *job,
                             query_braid_facts_fn *fn, void *arg, struct br_err *err)
{
    struct filter_facts reader = {.filter = &of->filter, .job = job, .fn = fn, .arg = arg};
    uint64_t until_ns = of->filter.until_ns ? of->filter.until_ns : UINT64_MAX;
    int rc = br_store_span_facts(job->store, of->filter.from_ns, until_ns, false, filter_on_facts,
                                 &reader, err);
    br_free(reader.operations);
    return rc ? rc : reader.rc;
}
