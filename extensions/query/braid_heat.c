/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implements GET heat, which counts spans and errors by time step and duration. The spans are those
 * that GET spans lists for the same parameters.
 *
 * Durations are counted in 16 ranges per power of ten. The response merges adjacent ranges, so that
 * the ranges with spans fill at most `rows` rows. With `cpu`, the response also contains the CPU
 * time of each cell, which is the sum of the samples that were taken in its spans.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sum.h"
#include "extensions/query/braid.h"
#include "extensions/query/braid_filter.h"
#include "extensions/query/steps.h"
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

/* maximum number of spans whose samples are read */
#define CPU_SPANS_MAX 20000

struct heat_cell {
    uint64_t spans, errors;
    int64_t cpu_ns;
};

/* The cell of a span, to which the span's samples are added. The id of a span that has a location
 * is read later. */
struct heat_span {
    uint64_t span_id;
    int64_t block;
    uint32_t partition, index;
    uint32_t cell; /* index in report->cells */
};

struct heat_report {
    struct query_job *job;
    struct query_braid_filter of;
    uint64_t from_ns, until_ns, rows;
    struct query_steps steps;
    uint64_t edges_ns[RANGES]; /* shortest duration of each range, in nanoseconds */
    /* index of the last range that begins at or below each power of two */
    unsigned first[64];
    struct heat_cell *cells; /* cells by range and step */
    uint64_t n_read;
    bool with_cpu;
    /* Spans whose samples are read. If `n_cpu_spans` exceeds CPU_SPANS_MAX, some are missing. */
    struct heat_span *cpu_spans;
    size_t n_cpu_spans;
    uint32_t cap_cpu_spans;
    int rc;
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

static void heat_keep_span(struct heat_report *report, const struct heat_span *span)
{
    if (report->n_cpu_spans < CPU_SPANS_MAX) {
        report->rc = br_grow(&report->cpu_spans, &report->cap_cpu_spans, report->n_cpu_spans + 1,
                             sizeof *report->cpu_spans, CPU_SPANS_MAX);
        if (report->rc)
            return;
        report->cpu_spans[report->n_cpu_spans] = *span;
    }
    report->n_cpu_spans++;
}

/* Counts a span, and returns the index of its cell. */
static uint32_t heat_count(struct heat_report *report, uint64_t start_ns, uint64_t duration_ns,
                           uint8_t status)
{
    size_t cell = heat_range_of(report, duration_ns) * report->steps.count +
                  query_steps_find(&report->steps, start_ns);
    report->cells[cell].spans++;
    report->cells[cell].errors += status == BR_SPAN_STATUS_ERROR;
    return (uint32_t)cell;
}

static bool heat_on_span(const struct br_stored_span *span, void *arg)
{
    struct heat_report *report = arg;
    const struct heat_span kept = {
        .span_id = span->span_id,
        .cell = heat_count(report, span->start_ns, span->duration_ns, span->status)};
    if (report->with_cpu)
        heat_keep_span(report, &kept);
    return !report->rc &&
           (++report->n_read % SPANS_BETWEEN_LOOKS != 0 || query_job_may_continue(report->job));
}

static bool heat_on_facts(const struct br_span_facts *facts, uint32_t index, void *arg)
{
    struct heat_report *report = arg;
    uint32_t cell =
        heat_count(report, facts->start_ns[index], facts->duration_ns[index], facts->status[index]);
    const struct heat_span kept = {0, facts->block, facts->partition, facts->index[index], cell};
    if (report->with_cpu)
        heat_keep_span(report, &kept);
    return !report->rc;
}

/* --- CPU time -------------------------------------------------------------------------------- */

/* Reads the ids of the spans that have a location, and removes the spans that cannot be read. */
static int heat_read_ids(struct heat_report *report, struct br_err *err)
{
    size_t count = 0;
    int rc = 0;
    for (size_t i = 0; i < report->n_cpu_spans && !rc; i++) {
        struct heat_span *span = &report->cpu_spans[i];
        struct br_stored_span found;
        bool is_found;
        rc = br_store_span_at(report->job->store, span->partition, span->block, span->index, &found,
                              &is_found, err);
        if (rc || !is_found)
            continue;
        report->cpu_spans[count] = *span;
        report->cpu_spans[count++].span_id = found.span_id;
    }
    report->n_cpu_spans = count;
    return rc;
}

static int heat_compare_spans(const void *left, const void *right)
{
    const struct heat_span *a = left, *b = right;
    return (a->span_id > b->span_id) - (a->span_id < b->span_id);
}

static bool heat_on_samples(const struct br_stored_samples *samples, void *arg)
{
    struct heat_report *report = arg;
    const struct heat_span key = {.span_id = samples->span_id};
    const struct heat_span *span = bsearch(&key, report->cpu_spans, report->n_cpu_spans,
                                           sizeof *report->cpu_spans, heat_compare_spans);
    if (span) {
        int64_t *cpu_ns = &report->cells[span->cell].cpu_ns;
        *cpu_ns = br_sum(*cpu_ns, samples->value);
    }
    return query_job_may_continue(report->job);
}

static bool heat_is_cpu(const struct br_stored_series *series, void *arg)
{
    (void)arg;
    return query_braid_is_cpu(series->type);
}

static int heat_read_cpu(struct heat_report *report, struct br_err *err)
{
    if (!report->n_cpu_spans || report->n_cpu_spans > CPU_SPANS_MAX)
        return 0;
    int rc = report->of.has_query ? 0 : heat_read_ids(report, err);
    if (rc || !report->n_cpu_spans)
        return rc;
    uint64_t *ids = br_calloc(report->n_cpu_spans, sizeof *ids);
    if (!ids)
        return BR_ENOMEM;
    qsort(report->cpu_spans, report->n_cpu_spans, sizeof *report->cpu_spans, heat_compare_spans);
    for (size_t i = 0; i < report->n_cpu_spans; i++)
        ids[i] = report->cpu_spans[i].span_id;
    const struct br_sample_filter filter = {
        .span_ids = ids, .n_span_ids = report->n_cpu_spans, .select_series = heat_is_cpu};
    rc = br_store_samples(report->job->store, &filter, 0, heat_on_samples, report, err);
    br_free(ids);
    return rc;
}

/* --- The response ---------------------------------------------------------------------------- */

static struct heat_cell heat_sum(const struct heat_report *report, unsigned first, unsigned last,
                                 uint64_t first_step, uint64_t last_step)
{
    struct heat_cell sum = {0};
    for (unsigned range = first; range < last && range < RANGES; range++)
        for (uint64_t step = first_step; step < last_step; step++) {
            sum.spans += report->cells[range * report->steps.count + step].spans;
            sum.errors += report->cells[range * report->steps.count + step].errors;
            sum.cpu_ns =
                br_sum(sum.cpu_ns, report->cells[range * report->steps.count + step].cpu_ns);
        }
    return sum;
}

/* Finds the rows of the response, each of which consists of `*ret_width` ranges. Without
 * spans, the response has zero rows. */
static void heat_find_rows(const struct heat_report *report, unsigned *ret_first,
                           unsigned *ret_last, unsigned *ret_width)
{
    unsigned low = 0, high = RANGES, width = 1;
    while (low < RANGES && !heat_sum(report, low, low + 1, 0, report->steps.count).spans)
        low++;
    while (high > low && !heat_sum(report, high - 1, high, 0, report->steps.count).spans)
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

enum heat_figure { HEAT_SPANS, HEAT_ERRORS, HEAT_CPU };

static void heat_put_cells(const struct heat_report *report, enum heat_figure figure,
                           unsigned first, unsigned last, unsigned width)
{
    static const char *const names[] = {"spans", "errors", "cpu_ns"};
    struct br_str *out = &report->job->out;
    br_str_printf(out, ",\"%s\":[", names[figure]);
    for (unsigned range = first; range < last; range += width)
        for (uint64_t step = 0; step < report->steps.count; step++) {
            const struct heat_cell cell = heat_sum(report, range, range + width, step, step + 1);
            br_str_puts(out, range > first || step ? "," : "");
            if (figure == HEAT_CPU)
                br_str_printf(out, "%" PRId64, cell.cpu_ns);
            else
                br_str_printf(out, "%" PRIu64, figure == HEAT_ERRORS ? cell.errors : cell.spans);
        }
    br_str_putc(out, ']');
}

static void heat_respond(const struct heat_report *report)
{
    struct br_str *out = &report->job->out;
    const struct heat_cell all = heat_sum(report, 0, RANGES, 0, report->steps.count);
    unsigned first, last, width;
    heat_find_rows(report, &first, &last, &width);
    br_str_printf(out,
                  "{\"start_unix_ns\":\"%" PRIu64 "\",\"end_unix_ns\":\"%" PRIu64
                  "\",\"step_ns\":%" PRIu64 ",\"steps\":%" PRIu64 ",\"total\":{\"spans\":%" PRIu64
                  ",\"errors\":%" PRIu64 "},\"durations_ns\":[",
                  report->from_ns, report->until_ns, report->steps.step_ns, report->steps.count,
                  all.spans, all.errors);
    for (unsigned range = first; last > first && range <= last; range += width)
        br_str_printf(out, "%s%" PRIu64, range > first ? "," : "",
                      range < RANGES ? report->edges_ns[range] : UINT64_MAX);
    br_str_putc(out, ']');
    heat_put_cells(report, HEAT_SPANS, first, last, width);
    heat_put_cells(report, HEAT_ERRORS, first, last, width);
    if (report->with_cpu && report->n_cpu_spans <= CPU_SPANS_MAX)
        heat_put_cells(report, HEAT_CPU, first, last, width);
    else
        br_str_puts(out, ",\"cpu_ns\":null");
    if (report->n_cpu_spans > CPU_SPANS_MAX)
        br_str_printf(
            out,
            ",\"why_no_cpu\":\"CPU time is computed for at most %d spans: use a filter or a "
            "shorter time range\"",
            CPU_SPANS_MAX);
    else
        br_str_puts(out, ",\"why_no_cpu\":null");
}

/* --- The handler ----------------------------------------------------------------------------- */

static int heat_read(struct heat_report *report, struct br_err *err)
{
    struct query_job *job = report->job;
    int rc = query_braid_filter_parse(&report->of, job, err);
    if (rc)
        return rc;
    report->cells = br_calloc(RANGES * (size_t)report->steps.count, sizeof *report->cells);
    if (!report->cells)
        return BR_ENOMEM;
    if (report->of.has_query)
        rc = query_braid_filter_spans(&report->of, job, heat_on_span, report, err);
    else
        rc = query_braid_filter_facts(&report->of, job, heat_on_facts, report, err);
    if (!rc)
        rc = report->rc;
    return rc ? rc : heat_read_cpu(report, err);
}

void query_braid_heat(struct query_job *job)
{
    struct heat_report report = {.job = job};
    struct br_err err = {0};
    uint64_t points;
    if (!query_braid_filter_read(&report.of, job) ||
        !query_job_number(job, "points", POINTS_DEFAULT, POINTS_MAX, &points) ||
        !query_job_number(job, "rows", ROWS_DEFAULT, ROWS_MAX, &report.rows) ||
        !query_braid_flag(job, "cpu", "true", &report.with_cpu))
        return;
    points = points ? points : POINTS_DEFAULT;
    report.rows = report.rows ? report.rows : ROWS_DEFAULT;
    report.from_ns = report.of.filter.from_ns;
    report.until_ns = report.of.filter.until_ns;
    query_steps_init(&report.steps, report.from_ns, report.until_ns, points);
    heat_make_edges(&report);
    int rc = heat_read(&report, &err);
    if (!rc)
        heat_respond(&report);
    br_free(report.cells);
    br_free(report.cpu_spans);
    query_braid_filter_release(&report.of);
    query_braid_end(job, rc, &err);
}
