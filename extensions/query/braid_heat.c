/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implements GET heat, which counts spans and errors by time step and duration. The spans are those
 * that GET spans lists for the same parameters.
 *
 * Durations are counted in 16 ranges per power of ten. The response merges adjacent ranges, so that
 * the ranges with spans fill at most `rows` rows.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "extensions/query/braid.h"
#include "extensions/query/braid_filter.h"
#include "otlp/fields.h"

#define POINTS_DEFAULT 100
#define POINTS_MAX 200
#define ROWS_DEFAULT 40
#define ROWS_MAX 320
#define RANGES_PER_DECADE 16u
/* number of ranges of durations; the last range begins at 10^19.25 ns, which fits in 64 bits */
#define RANGES 309u
/* number of spans between two checks whether the query may continue */
#define SPANS_BETWEEN_LOOKS 4096

struct heat_cell {
    uint64_t spans, errors;
};

struct heat_report {
    struct query_job *job;
    struct query_braid_filter of;
    uint64_t from_ns, until_ns, step_ns, n_steps, rows;
    uint64_t edges_ns[RANGES]; /* shortest duration of each range, in nanoseconds */
    /* index of the last range that begins at or below each power of two */
    unsigned first[64];
    struct heat_cell *cells; /* cells by range and step */
    uint64_t n_read;
    /* operation whose spans were read last, and whether the filter selects it */
    uint32_t partition, operation;
    bool is_known, is_selected;
};

/* --- Durations ------------------------------------------------------------------------------- */

static void heat_make_edges(struct heat_report *report)
{
    /* the first range begins at 0 */
    for (unsigned i = 1; i < RANGES; i++)
        report->edges_ns[i] = (uint64_t)ceil(pow(10, (double)i / RANGES_PER_DECADE));
    for (unsigned bit = 0, range = 0; bit < 64; bit++) {
        while (range + 1 < RANGES && report->edges_ns[range + 1] <= UINT64_C(1) << bit)
            range++;
        report->first[bit] = range;
    }
}

static unsigned heat_range_of(const struct heat_report *report, uint64_t duration_ns)
{
    if (!duration_ns)
        return 0;
    unsigned range = report->first[63 - (unsigned)__builtin_clzll(duration_ns)];
    while (range + 1 < RANGES && report->edges_ns[range + 1] <= duration_ns)
        range++;
    return range;
}

/* --- Counting -------------------------------------------------------------------------------- */

static void heat_count(struct heat_report *report, uint64_t start_ns, uint64_t duration_ns,
                       bool failed)
{
    uint64_t step = (start_ns - report->from_ns) / report->step_ns;
    step = step < report->n_steps ? step : report->n_steps - 1;
    struct heat_cell *cell =
        &report->cells[heat_range_of(report, duration_ns) * report->n_steps + step];
    cell->spans++;
    cell->errors += failed;
}

static bool heat_may_continue(struct heat_report *report)
{
    return ++report->n_read % SPANS_BETWEEN_LOOKS != 0 || query_job_may_continue(report->job);
}

static bool heat_on_span(const struct br_stored_span *span, void *arg)
{
    heat_count(arg, span->start_ns, span->duration_ns, span->status == BR_SPAN_STATUS_ERROR);
    return heat_may_continue(arg);
}

/* Returns true if the filter selects the operation of a span. Consecutive spans are often of the
 * same operation, so that the names are rarely compared. */
static bool heat_is_selected(struct heat_report *report, const struct br_span_facts *span)
{
    const struct br_span_filter *filter = &report->of.filter;
    if (report->is_known && report->partition == span->partition &&
        report->operation == span->operation)
        return report->is_selected;
    report->is_known = true;
    report->partition = span->partition;
    report->operation = span->operation;
    report->is_selected = (!filter->service || !strcmp(filter->service, span->service)) &&
                          (!filter->name || !strcmp(filter->name, span->name));
    return report->is_selected;
}

static bool heat_on_facts(const struct br_span_facts *span, void *arg)
{
    struct heat_report *report = arg;
    if (query_braid_filter_has(&report->of.filter, span->duration_ns, span->status,
                               span->parent_id) &&
        heat_is_selected(report, span))
        heat_count(report, span->start_ns, span->duration_ns, span->status == BR_SPAN_STATUS_ERROR);
    return heat_may_continue(report);
}

/* --- The response ---------------------------------------------------------------------------- */

static struct heat_cell heat_sum(const struct heat_report *report, unsigned first, unsigned last,
                                 uint64_t first_step, uint64_t last_step)
{
    struct heat_cell sum = {0};
    for (unsigned range = first; range < last && range < RANGES; range++)
        for (uint64_t step = first_step; step < last_step; step++) {
            sum.spans += report->cells[range * report->n_steps + step].spans;
            sum.errors += report->cells[range * report->n_steps + step].errors;
        }
    return sum;
}

/* Finds the rows of the response, each of which consists of `*ret_width` ranges. Without
 * spans, the response has zero rows. */
static void heat_find_rows(const struct heat_report *report, unsigned *ret_first,
                           unsigned *ret_last, unsigned *ret_width)
{
    unsigned low = 0, high = RANGES, width = 1;
    while (low < RANGES && !heat_sum(report, low, low + 1, 0, report->n_steps).spans)
        low++;
    while (high > low && !heat_sum(report, high - 1, high, 0, report->n_steps).spans)
        high--;
    *ret_first = low;
    *ret_last = high;
    while (width < RANGES && (high + width - 1) / width - low / width > report->rows)
        width *= 2;
    if (high > low) {
        *ret_first = low / width * width;
        *ret_last = (high + width - 1) / width * width;
    }
    *ret_width = width;
}

static void heat_put_cells(const struct heat_report *report, const char *name, unsigned first,
                           unsigned last, unsigned width)
{
    struct br_str *out = &report->job->out;
    bool errors = !strcmp(name, "errors");
    br_str_printf(out, ",\"%s\":[", name);
    for (unsigned range = first; range < last; range += width)
        for (uint64_t step = 0; step < report->n_steps; step++) {
            const struct heat_cell cell = heat_sum(report, range, range + width, step, step + 1);
            br_str_printf(out, "%s%" PRIu64, range > first || step ? "," : "",
                          errors ? cell.errors : cell.spans);
        }
    br_str_putc(out, ']');
}

static void heat_respond(const struct heat_report *report)
{
    struct br_str *out = &report->job->out;
    const struct heat_cell all = heat_sum(report, 0, RANGES, 0, report->n_steps);
    unsigned first, last, width;
    heat_find_rows(report, &first, &last, &width);
    br_str_printf(out,
                  "{\"start_unix_ns\":\"%" PRIu64 "\",\"end_unix_ns\":\"%" PRIu64
                  "\",\"step_ns\":%" PRIu64 ",\"steps\":%" PRIu64 ",\"total\":{\"spans\":%" PRIu64
                  ",\"errors\":%" PRIu64 "},\"durations_ns\":[",
                  report->from_ns, report->until_ns, report->step_ns, report->n_steps, all.spans,
                  all.errors);
    for (unsigned range = first; last > first && range <= last; range += width)
        br_str_printf(out, "%s%" PRIu64, range > first ? "," : "",
                      range < RANGES ? report->edges_ns[range] : UINT64_MAX);
    br_str_putc(out, ']');
    heat_put_cells(report, "spans", first, last, width);
    heat_put_cells(report, "errors", first, last, width);
}

/* --- The handler ----------------------------------------------------------------------------- */

static int heat_read(struct heat_report *report, struct br_err *err)
{
    struct query_job *job = report->job;
    int rc = query_braid_filter_parse(&report->of, job, err);
    if (rc)
        return rc;
    report->cells = br_calloc(RANGES * (size_t)report->n_steps, sizeof *report->cells);
    if (!report->cells)
        return BR_ENOMEM;
    if (report->of.has_query)
        return query_braid_filter_spans(&report->of, job, heat_on_span, report, err);
    return br_store_span_facts(job->store, report->from_ns, report->until_ns, heat_on_facts, report,
                               err);
}

void query_braid_heat(struct query_job *job)
{
    struct heat_report report = {.job = job};
    struct br_err err = {0};
    uint64_t points;
    if (!query_braid_filter_read(&report.of, job) ||
        !query_job_number(job, "points", POINTS_DEFAULT, POINTS_MAX, &points) ||
        !query_job_number(job, "rows", ROWS_DEFAULT, ROWS_MAX, &report.rows))
        return;
    points = points ? points : POINTS_DEFAULT;
    report.rows = report.rows ? report.rows : ROWS_DEFAULT;
    report.from_ns = report.of.filter.from_ns;
    report.until_ns = report.of.filter.until_ns;
    uint64_t range_ns = report.until_ns - report.from_ns;
    report.step_ns = range_ns / points + (range_ns % points != 0);
    report.step_ns = report.step_ns ? report.step_ns : 1;
    report.n_steps = range_ns / report.step_ns + (range_ns % report.step_ns != 0);
    report.n_steps = report.n_steps ? report.n_steps : 1;
    heat_make_edges(&report);
    int rc = heat_read(&report, &err);
    if (!rc)
        heat_respond(&report);
    br_free(report.cells);
    query_braid_filter_release(&report.of);
    query_braid_end(job, rc, &err);
}
