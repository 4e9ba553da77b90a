/* SPDX-License-Identifier: Apache-2.0 */
/* Implements GET /api/metrics/query_range and /api/metrics/query, which return TraceQL metrics. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/option.h"
#include "extensions/query/tempo.h"
#include "otlp/json/number.h"
#include "query/traceql_metric.h"

#define RANGE_DEFAULT_NS 3600000000000u
#define STEPS_DEFAULT 100u
#define SECOND_NS 1000000000u

static bool tempo_metrics_on_trace(struct query_tempo_scan *scan, struct br_traceql_trace *trace)
{
    struct br_traceql_metrics *metrics = scan->arg;
    for (uint32_t i = 0; i < trace->n_spans && !scan->rc; i++) {
        struct br_traceql_span *span = &trace->spans[i];
        if (!span->in)
            continue;
        scan->rc = br_traceql_read_span(scan->query, scan->job->store, span, trace, &scan->err);
        if (!scan->rc)
            scan->rc = br_traceql_metrics_add(metrics, span);
        if (scan->rc == BR_EFULL) {
            scan->rc = 0;
            scan->cut = "there are more series than one response can contain";
        }
    }
    return !scan->rc;
}

/* --- compare() ------------------------------------------------------------------------------- */

static int tempo_metrics_compare_span(struct query_tempo_scan *scan, struct br_traceql_trace *trace,
                                      struct br_traceql_span *span)
{
    struct br_traceql_comparison *comparison = scan->arg;
    const struct br_traceql_metric *metric = comparison->query->metric;
    uint64_t start_ns = span->row->start_ns;
    bool selected =
        !metric->until_ns || (start_ns > metric->from_ns && start_ns <= metric->until_ns);
    struct br_span_bytes bytes;
    int rc = selected ? br_traceql_holds(scan->query, scan->job->store, trace, span,
                                         metric->selection, &selected, &scan->err)
                      : 0;
    if (!rc)
        rc = br_store_span_bytes(scan->job->store, span->row, &bytes, &scan->err);
    if (rc)
        return rc;
    return br_traceql_comparison_add(comparison, trace, span, &bytes,
                                     selected ? BR_TRACEQL_SELECTION : BR_TRACEQL_BASELINE);
}

static bool tempo_metrics_compare(struct query_tempo_scan *scan, struct br_traceql_trace *trace)
{
    for (uint32_t i = 0; i < trace->n_spans && !scan->rc; i++)
        if (trace->spans[i].in)
            scan->rc = tempo_metrics_compare_span(scan, trace, &trace->spans[i]);
    return !scan->rc;
}

static void tempo_metrics_put_compared(struct query_job *job,
                                       const struct br_traceql_comparison *comparison,
                                       const struct br_traceql_compared *entry, bool instant)
{
    static const char *const sides[] = {"baseline", "selection"};
    struct br_str *out = &job->out;
    bool first = true;
    br_str_printf(out,
                  "{\"labels\":[{\"key\":\"__meta_type\",\"value\":{\"stringValue\":\"%s%s\"}},",
                  sides[entry->side], entry->is_total ? "_total" : "");
    query_tempo_put_attribute(out, entry->name, &entry->value);
    br_str_putc(out, ']');
    if (instant) {
        br_str_printf(out, ",\"value\":%" PRIu64 "}", entry->count);
        return;
    }
    br_str_puts(out, ",\"samples\":[");
    for (uint32_t step = 0; step < comparison->n_steps; step++, first = false)
        br_str_printf(out, "%s{\"timestampMs\":\"%" PRIu64 "\",\"value\":%" PRIu32 "}",
                      first ? "" : ",",
                      (comparison->start_ns - 1 + (step + 1) * comparison->step_ns) / 1000000,
                      entry->counts[step]);
    br_str_puts(out, "]}");
}

static void tempo_metrics_put_comparison(struct query_job *job,
                                         struct br_traceql_comparison *comparison, bool instant)
{
    const struct br_traceql_compared *before = NULL;
    uint32_t n_shown = 0;
    bool first = true;
    br_traceql_comparison_sort(comparison);
    br_str_puts(&job->out, "{\"series\":[");
    for (uint32_t i = 0; i < comparison->n_entries; i++) {
        const struct br_traceql_compared *entry = &comparison->entries[i];
        bool same = before && before->side == entry->side && before->is_total == entry->is_total &&
                    strcmp(before->name, entry->name) == 0;
        n_shown = same ? n_shown + 1 : 1;
        before = entry;
        if (n_shown > comparison->query->metric->top)
            continue;
        br_str_puts(&job->out, first ? "" : ",");
        tempo_metrics_put_compared(job, comparison, entry, instant);
        first = false;
    }
}

static void tempo_metrics_run_comparison(struct query_job *job, struct br_traceql *query,
                                         const struct br_traceql_metrics *metrics, bool instant)
{
    struct br_traceql_comparison comparison = {.query = query,
                                               .start_ns = metrics->start_ns,
                                               .step_ns = metrics->step_ns,
                                               .n_steps = metrics->n_steps,
                                               .arena = metrics->arena};
    struct query_tempo_scan scan = {.job = job,
                                    .query = query,
                                    .from_ns = metrics->start_ns,
                                    .until_ns =
                                        metrics->start_ns + metrics->n_steps * metrics->step_ns,
                                    .on_trace = tempo_metrics_compare,
                                    .arg = &comparison};
    br_traceql_comparison_init(&comparison);
    if (query_tempo_scan_run(&scan)) {
        tempo_metrics_put_comparison(job, &comparison, instant);
        if (!scan.cut && comparison.full)
            scan.cut = "there are more values than one query can count";
        br_str_printf(&job->out, "],\"metrics\":{\"completedJobs\":%d,\"totalJobs\":1}}",
                      scan.cut ? 0 : 1);
        job->store_query.cut = scan.cut;
    }
    br_traceql_comparison_release(&comparison);
}

/* --- Responses ------------------------------------------------------------------------------- */

static void tempo_metrics_put_number(struct br_str *out, bool first, const char *key, double number)
{
    const struct br_traceql_value value = {.type = BR_TRACEQL_FLOAT, .real = number};
    br_str_puts(out, first ? "" : ",");
    query_tempo_put_attribute(out, key, &value);
}

static void tempo_metrics_put_labels(struct br_str *out, const struct br_traceql_metrics *metrics,
                                     const struct br_traceql_line *line)
{
    const struct br_traceql_metric *metric = metrics->query->metric;
    bool first = metric->n_by == 0;
    br_str_puts(out, "\"labels\":[");
    for (size_t i = 0; i < metric->n_by; i++) {
        br_str_puts(out, i ? "," : "");
        query_tempo_put_attribute(out, metrics->query->attributes[metric->by[i]].label,
                                  &line->series->by[i]);
    }
    if (metric->aggregate == BR_TRACEQL_QUANTILE) {
        tempo_metrics_put_number(out, first, "p", line->number);
    } else if (metric->aggregate == BR_TRACEQL_HISTOGRAM) {
        tempo_metrics_put_number(out, first, "__bucket", line->number);
    } else if (first) {
        const struct br_traceql_value name = {
            .type = BR_TRACEQL_STRING, .text = metric->name, .len = strlen(metric->name)};
        query_tempo_put_attribute(out, "__name__", &name);
    }
    br_str_putc(out, ']');
}

static void tempo_metrics_put_samples(struct br_str *out, const struct br_traceql_metrics *metrics,
                                      const double *values)
{
    bool first = true;
    br_str_puts(out, ",\"samples\":[");
    for (uint32_t step = 0; step < metrics->n_steps; step++) {
        if (isnan(values[step]))
            continue;
        br_str_printf(out, "%s{\"timestampMs\":\"%" PRIu64 "\",\"value\":", first ? "" : ",",
                      (metrics->start_ns - 1 + (step + 1) * metrics->step_ns) / 1000000);
        br_number_print(out, values[step]);
        br_str_putc(out, '}');
        first = false;
    }
    br_str_putc(out, ']');
}

static void tempo_metrics_put_exemplars(struct br_str *out,
                                        const struct br_traceql_metrics *metrics,
                                        const struct br_traceql_line *line, const double *values)
{
    bool first = true;
    for (uint32_t i = 0; i < line->series->n_exemplars; i++) {
        const struct br_traceql_exemplar *exemplar = &line->series->exemplars[i];
        double value;
        if (!br_traceql_metrics_exemplar(metrics, line, values, exemplar, &value))
            continue;
        br_str_printf(out, "%s{\"labels\":[{\"key\":\"trace:id\",\"value\":{\"stringValue\":\"",
                      first ? ",\"exemplars\":[" : ",");
        br_str_hex(out, exemplar->trace_id, sizeof exemplar->trace_id);
        br_str_puts(out, "\"}},{\"key\":\"span:id\",\"value\":{\"stringValue\":\"");
        br_str_hex(out, (const uint8_t *)&exemplar->span_id, sizeof exemplar->span_id);
        br_str_printf(
            out, "\"}}],\"timestampMs\":\"%" PRIu64 "\",\"value\":", exemplar->start_ns / 1000000);
        br_number_print(out, value);
        br_str_putc(out, '}');
        first = false;
    }
    br_str_puts(out, first ? "" : "]");
}

static int tempo_metrics_respond(struct query_job *job, const struct br_traceql_metrics *metrics,
                                 bool instant)
{
    struct br_traceql_lines lines;
    bool first = true;
    int rc = br_traceql_metrics_lines(metrics, &lines);
    br_str_puts(&job->out, "{\"series\":[");
    for (uint32_t i = 0; i < lines.n_lines && !rc; i++) {
        const double *values = &lines.values[(size_t)i * lines.n_steps];
        if (instant && isnan(values[0]))
            continue;
        br_str_puts(&job->out, first ? "{" : ",{");
        tempo_metrics_put_labels(&job->out, metrics, &lines.lines[i]);
        if (instant) {
            br_str_puts(&job->out, ",\"value\":");
            br_number_print(&job->out, values[0]);
        } else {
            tempo_metrics_put_samples(&job->out, metrics, values);
            tempo_metrics_put_exemplars(&job->out, metrics, &lines.lines[i], values);
        }
        br_str_putc(&job->out, '}');
        first = false;
    }
    return rc;
}

/* --- The request ----------------------------------------------------------------------------- */

/* Reads the time step, which is a duration or a number of seconds. */
static bool tempo_metrics_read_step(struct query_job *job, uint64_t fallback, uint64_t *ret)
{
    const char *text = query_job_param(job, "step");
    char *end;
    *ret = fallback;
    if (!text || !*text)
        return true;
    double seconds = strtod(text, &end);
    if (*end == '\0' && seconds >= 0.001 && seconds < 1e9)
        *ret = (uint64_t)llround(seconds * 1e9);
    else if (!br_duration_parse(text, ret) || *ret < 1000000) {
        query_job_fail(job, 400,
                       "invalid step: must be a duration or seconds, at least 1ms, got \"%.40s\"",
                       text);
        return false;
    }
    return true;
}

/* Reads the time range, and aligns the range to multiples of the step since the epoch. As in
 * Tempo, the timestamp of a step is its end, and the first step ends at the start of the range.
 * The range of an instant query is not aligned, and includes both ends. */
static bool tempo_metrics_read_range(struct query_job *job, bool instant,
                                     struct br_traceql_metrics *metrics)
{
    uint64_t from, until, step;
    if (!query_job_time(job, "end", job->now_ns, &until) ||
        !query_job_time(job, "start", until - (until < RANGE_DEFAULT_NS ? until : RANGE_DEFAULT_NS),
                        &from))
        return false;
    if (until <= from) {
        query_job_fail(job, 400, "invalid start or end: the start must be before the end");
        return false;
    }
    if (until > job->now_ns && from < job->now_ns)
        /* end the range now, as in Tempo, so that rates do not include time in the future */
        until = job->now_ns;
    metrics->max_exemplars = 0;
    metrics->start_ns = from;
    metrics->step_ns = until - from + 1;
    metrics->n_steps = 1;
    if (instant)
        return true;
    uint64_t seconds = (until - from) / STEPS_DEFAULT / SECOND_NS;
    if (!tempo_metrics_read_step(job, (seconds ? seconds : 1) * SECOND_NS, &step))
        return false;
    from -= from % step;
    uint64_t n_steps = (until - from + step - 1) / step + 1;
    if (n_steps > BR_TRACEQL_STEPS_MAX) {
        query_job_fail(job, 400,
                       "the range has %" PRIu64 " steps, but the maximum is %u: make the step "
                       "longer",
                       n_steps, BR_TRACEQL_STEPS_MAX);
        return false;
    }
    metrics->start_ns = (from > step ? from - step : 0) + 1;
    metrics->step_ns = step;
    metrics->n_steps = (uint32_t)n_steps;
    return true;
}

/* Reads the number of exemplars per series from the hint in the query, or else from the
 * parameter `exemplars`. As in Tempo, 0 or a missing number means the maximum. */
static bool tempo_metrics_read_exemplars(struct query_job *job, struct br_traceql_metrics *metrics)
{
    uint64_t count;
    if (!query_job_number(job, "exemplars", 0, UINT32_MAX, &count))
        return false;
    if (metrics->query->exemplars >= 0)
        count = (uint64_t)metrics->query->exemplars;
    else if (count == 0)
        count = BR_TRACEQL_EXEMPLARS_MAX;
    metrics->max_exemplars =
        (uint32_t)(count < BR_TRACEQL_EXEMPLARS_MAX ? count : BR_TRACEQL_EXEMPLARS_MAX);
    return true;
}

static void tempo_metrics_run(struct query_job *job, struct br_traceql *query,
                              struct br_traceql_metrics *metrics, bool instant)
{
    struct query_tempo_scan scan = {.job = job,
                                    .query = query,
                                    .from_ns = metrics->start_ns,
                                    .until_ns =
                                        metrics->start_ns + metrics->n_steps * metrics->step_ns,
                                    .on_trace = tempo_metrics_on_trace,
                                    .arg = metrics};
    if (!query_tempo_scan_run(&scan))
        return;
    int rc = tempo_metrics_respond(job, metrics, instant);
    if (rc) {
        query_job_fail_rc(job, rc, NULL);
        return;
    }
    br_str_printf(&job->out, "],\"metrics\":{\"completedJobs\":%d,\"totalJobs\":1}}",
                  scan.cut ? 0 : 1);
    job->store_query.cut = scan.cut;
}

static void tempo_metrics_evaluate(struct query_job *job, struct br_traceql *query,
                                   struct br_traceql_metrics *metrics, bool instant)
{
    bool compares = query->metric->aggregate == BR_TRACEQL_COMPARISON;
    metrics->query = query;
    if (!tempo_metrics_read_range(job, instant, metrics) ||
        (!instant && !tempo_metrics_read_exemplars(job, metrics)))
        return;
    int rc = compares ? 0 : br_traceql_metrics_init(metrics);
    if (rc)
        query_job_fail_rc(job, rc, NULL);
    else if (compares)
        tempo_metrics_run_comparison(job, query, metrics, instant);
    else
        tempo_metrics_run(job, query, metrics, instant);
    br_traceql_metrics_release(metrics);
}

static void tempo_metrics(struct query_job *job, bool instant)
{
    const char *text =
        query_job_param(job, "q") ? query_job_param(job, "q") : query_job_param(job, "query");
    struct br_traceql query = {0};
    struct br_arena arena;
    struct br_err err = {0};
    br_arena_init(&arena, (size_t)job->config->max_query_memory);
    struct br_traceql_metrics *metrics = br_arena_calloc(&arena, 1, sizeof *metrics);
    if (!text)
        text = "";
    int rc = metrics ? br_traceql_parse(&query, text, strlen(text), &arena, &err) : BR_ENOMEM;
    if (!rc && !query.metric)
        rc = br_err_set(&err, BR_EINVAL, "the query must be a metric such as {...} | rate()");
    if (rc == BR_EINVAL || rc == BR_EUNSUPPORTED)
        br_err_prefix(&err, "invalid TraceQL query: ");
    if (rc) {
        query_job_fail_rc(job, rc, &err);
    } else {
        metrics->arena = &arena;
        tempo_metrics_evaluate(job, &query, metrics, instant);
    }
    br_traceql_release(&query);
    br_arena_release(&arena);
}

void query_tempo_range(struct query_job *job)
{
    tempo_metrics(job, false);
}

void query_tempo_instant(struct query_job *job)
{
    tempo_metrics(job, true);
}
