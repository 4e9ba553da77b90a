/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "extensions/query/tempo.h"

#define PAGE_SPANS 512u /* number of spans in the first page; later pages are larger */
#define PAGE_SPANS_MAX 32768u
/* the spans of a page may use at most the query's memory divided by PAGE_SHARE */
#define PAGE_SHARE 16
/* number of spans after which the memory of the spans' attribute values is released */
#define SCRATCH_SPANS 1024u
#define SEEN_MAX (1u << 20)    /* maximum number of traces that a query evaluates as a whole */
#define TRACE_SPANS_MAX 65536u /* maximum number of spans of one trace that are read */

struct page {
    struct br_stored_span *rows;
    uint32_t n_rows, limit;
};

static bool tempo_scan_on_span(const struct br_stored_span *span, void *arg)
{
    struct page *page = arg;
    if (page->n_rows < page->limit)
        page->rows[page->n_rows++] = *span;
    return page->n_rows < page->limit;
}

/* --- Spans and traces ------------------------------------------------------------------------ */

static bool tempo_scan_is_seen(const struct query_tempo_scan *scan, const uint8_t trace_id[16])
{
    return br_map_get(scan->seen, trace_id, 16) != NULL;
}

static void tempo_scan_mark_seen(struct query_tempo_scan *scan, const uint8_t trace_id[16])
{
    int rc = br_map_put(scan->seen, trace_id, 16, scan, NULL);
    if (rc == BR_EFULL)
        scan->cut = "too many traces";
    else if (rc)
        scan->rc = rc;
}

/* Evaluates the query on a whole trace, and passes a matching trace to `on_trace`. Returns false
 * to end the scan. */
static bool tempo_scan_trace(struct query_tempo_scan *scan, const uint8_t trace_id[16])
{
    struct br_traceql_trace trace;
    bool any = false;
    tempo_scan_mark_seen(scan, trace_id);
    if (!scan->rc)
        scan->rc =
            br_traceql_trace_read(&trace, scan->job->store, trace_id, TRACE_SPANS_MAX, &scan->err);
    if (!scan->rc)
        scan->rc = br_traceql_match_trace(scan->query, scan->job->store, &trace, &any, &scan->err);
    if (scan->rc || scan->cut)
        return false;
    return !any || scan->on_trace(scan, &trace);
}

static bool tempo_scan_row(struct query_tempo_scan *scan, const struct br_stored_span *row)
{
    struct br_traceql_span span = {.row = row, .parent = BR_TRACEQL_NO_PARENT, .in = true};
    struct br_traceql_trace alone = {.spans = &span, .n_spans = 1};
    bool found = false;
    scan->n_spans++;
    bool by_trace = scan->whole_traces || scan->query->needs_trace;
    if (by_trace && tempo_scan_is_seen(scan, row->trace_id))
        return true;
    if (!scan->query->needs_trace) {
        scan->rc = br_traceql_match_span(scan->query, scan->job->store, &span, &found, &scan->err);
        if (scan->rc || !found)
            return !scan->rc;
    }
    return by_trace ? tempo_scan_trace(scan, row->trace_id) : scan->on_trace(scan, &alone);
}

/* --- Pages ----------------------------------------------------------------------------------- */

/* Begins a page, and releases the memory of the previous page. */
static int tempo_scan_begin_page(struct query_tempo_scan *scan, struct page *page, uint32_t limit)
{
    int rc = query_job_restart_store(scan->job, &scan->err);
    if (rc)
        return rc;
    *page = (struct page){.limit = limit,
                          .rows = br_arena_alloc(&scan->job->arena, limit * sizeof *page->rows)};
    return page->rows ? 0 : BR_ENOMEM;
}

static uint32_t tempo_scan_page_max(const struct query_tempo_scan *scan)
{
    size_t rows =
        (size_t)scan->job->config->max_query_memory / PAGE_SHARE / sizeof(struct br_stored_span);
    if (rows < PAGE_SPANS)
        return PAGE_SPANS;
    return rows < PAGE_SPANS_MAX ? (uint32_t)rows : PAGE_SPANS_MAX;
}

/* Reads the newest spans before filter->until_ns. If the page is full, spans that start at the
 * same time as its last span are left for the next page. */
static int tempo_scan_read_page(struct query_tempo_scan *scan, struct br_span_filter *filter,
                                struct page *page, bool *ret_last)
{
    uint32_t most = tempo_scan_page_max(scan), limit = page->limit ? 4 * page->limit : PAGE_SPANS;
    for (;; limit *= 2) {
        limit = limit > most ? most : limit;
        filter->limit = limit;
        int rc = tempo_scan_begin_page(scan, page, limit);
        if (!rc)
            rc = br_store_spans(scan->job->store, filter, tempo_scan_on_span, page, &scan->err);
        *ret_last = page->n_rows < limit;
        if (rc || *ret_last)
            return rc;
        uint64_t last_ns = page->rows[limit - 1].start_ns;
        filter->until_ns = last_ns + 1;
        while (page->n_rows && page->rows[page->n_rows - 1].start_ns == last_ns)
            page->n_rows--;
        if (page->n_rows)
            return 0;
        if (limit == most) {
            scan->cut = "too many spans start at the same time";
            *ret_last = true;
            return 0;
        }
    }
}

static bool tempo_scan_may_continue(struct query_tempo_scan *scan)
{
    if (!scan->cut && scan->job->store)
        scan->cut = br_store_query_remark(scan->job->store);
    if (!scan->cut && query_job_is_stopped(scan->job))
        scan->cut = "it takes too long";
    return !scan->cut && !scan->rc;
}

/* --- Scans without pages --------------------------------------------------------------------- */

/* Evaluates each span when the store returns it. Used only if the spans' rows contain all data
 * that the query needs. Attribute values are allocated in a separate arena, because the store's
 * arena is not released before the end. */
struct direct {
    struct query_tempo_scan *scan;
    struct br_arena scratch;
    /* query object that owns the arena for attribute values, instead of the store's query */
    struct br_store_query values;
};

static bool tempo_scan_on_direct(const struct br_stored_span *row, void *arg)
{
    struct direct *direct = arg;
    struct query_tempo_scan *scan = direct->scan;
    struct br_traceql_span span = {.row = row, .parent = BR_TRACEQL_NO_PARENT, .in = true};
    struct br_traceql_trace alone = {.spans = &span, .n_spans = 1};
    bool found = false;
    if (scan->n_spans++ % SCRATCH_SPANS == 0) {
        br_arena_release(&direct->scratch);
        if (query_job_is_stopped(scan->job))
            scan->cut = "it takes too long";
    }
    scan->rc = br_traceql_read_span(scan->query, &direct->values, &span, NULL, &scan->err);
    if (!scan->rc)
        scan->rc = br_traceql_match_span(scan->query, &direct->values, &span, &found, &scan->err);
    if (scan->rc || scan->cut)
        return false;
    return !found || scan->on_trace(scan, &alone);
}

static void tempo_scan_directly(struct query_tempo_scan *scan, const struct br_span_filter *filter)
{
    struct direct direct = {.scan = scan, .values.arena = &direct.scratch};
    int rc = br_store_spans(scan->job->store, filter, tempo_scan_on_direct, &direct, &scan->err);
    br_arena_release(&direct.scratch);
    if (!scan->rc)
        scan->rc = rc;
    (void)tempo_scan_may_continue(scan);
}

static void tempo_scan_all(struct query_tempo_scan *scan)
{
    struct br_span_filter filter = {
        .from_ns = scan->from_ns, .until_ns = scan->until_ns, .order = BR_SPANS_NEWEST};
    struct page page = {0};
    bool last = false, may_continue = true;
    if (scan->filter)
        filter = *scan->filter;
    else
        scan->rc = br_traceql_filter(scan->query, &filter);
    filter.order = BR_SPANS_NEWEST;
    filter.limit = 0;
    if (!scan->rc && !scan->whole_traces && !scan->query->needs_trace &&
        !scan->query->needs_bytes) {
        tempo_scan_directly(scan, &filter);
        return;
    }
    while (may_continue && !last && !scan->rc) {
        scan->rc = tempo_scan_read_page(scan, &filter, &page, &last);
        for (uint32_t i = 0; may_continue && i < page.n_rows && tempo_scan_may_continue(scan); i++)
            may_continue = tempo_scan_row(scan, &page.rows[i]);
        may_continue = may_continue && tempo_scan_may_continue(scan);
    }
}

void query_tempo_scan_execute(struct query_tempo_scan *scan)
{
    scan->seen = br_map_new(SEEN_MAX);
    if (!scan->seen)
        scan->rc = BR_ENOMEM;
    else
        tempo_scan_all(scan);
    br_map_free(scan->seen, NULL);
    scan->seen = NULL;
    if (scan->rc == BR_ETIMEOUT) {
        scan->cut = "it takes too long";
        scan->rc = 0;
    }
}

bool query_tempo_scan_run(struct query_tempo_scan *scan)
{
    query_tempo_scan_execute(scan);
    if (scan->rc)
        query_job_fail_rc(scan->job, scan->rc, &scan->err);
    return !scan->rc;
}
