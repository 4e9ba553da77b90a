/* SPDX-License-Identifier: Apache-2.0 */
#include "query/traceql_metric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "query/traceql_internal.h"

/* maximum number of bytes of a series' key, which consists of the values of the attributes in
 * by() */
#define KEY_MAX 4096
#define NS_PER_S 1e9
/* maximum number of exemplars of a series in each of the equal parts of the time range, as in
 * Tempo */
#define EXEMPLARS_IN_PART 2u

void br_traceql_metrics_release(struct br_traceql_metrics *metrics)
{
    br_map_free(metrics->by_key, NULL);
    metrics->by_key = NULL;
}

/* --- Series ----------------------------------------------------------------------------------- */

static bool traceql_metric_has_buckets(const struct br_traceql_metrics *metrics)
{
    enum br_traceql_aggregate aggregate = metrics->query->metric->aggregate;
    return aggregate == BR_TRACEQL_QUANTILE || aggregate == BR_TRACEQL_HISTOGRAM;
}

/* Returns the value itself or, if the value is a list, the first element of the list. */
static struct br_traceql_value traceql_metric_single(const struct br_traceql_value *value)
{
    return value->type == BR_TRACEQL_LIST ? value->items[0] : *value;
}

/* Returns a span's value of an attribute of by(). Each series has different values. As in Tempo, an
 * array counts as nil, and a missing text of an intrinsic counts as an empty text. */
static struct br_traceql_value traceql_metric_by(const struct br_traceql_attribute *attribute,
                                                 const struct br_traceql_value *value)
{
    bool intrinsic = attribute->scope == BR_TRACEQL_INTRINSIC;
    bool array = value->type == BR_TRACEQL_LIST &&
                 (attribute->scope == BR_TRACEQL_SPAN || attribute->scope == BR_TRACEQL_RESOURCE ||
                  attribute->scope == BR_TRACEQL_UNSCOPED);
    if (value->type == BR_TRACEQL_NIL && intrinsic)
        return (struct br_traceql_value){.type = BR_TRACEQL_STRING, .text = ""};
    return array ? (struct br_traceql_value){0} : traceql_metric_single(value);
}

static bool traceql_metric_keep(struct br_traceql_metrics *metrics, struct br_traceql_value *value)
{
    if (value->type != BR_TRACEQL_STRING)
        return true;
    value->text = br_arena_strndup(metrics->arena, value->text, value->len);
    return value->text != NULL;
}

static int traceql_metric_new(struct br_traceql_metrics *metrics, const struct br_traceql_value *by,
                              const struct br_str *key, struct br_traceql_series **ret)
{
    if (metrics->n_series == BR_TRACEQL_SERIES_MAX)
        return BR_EFULL;
    struct br_traceql_series *series = &metrics->series[metrics->n_series];
    *series = (struct br_traceql_series){0};
    for (size_t i = 0; i < metrics->query->metric->n_by; i++) {
        series->by[i] = by[i];
        if (!traceql_metric_keep(metrics, &series->by[i]))
            return BR_ENOMEM;
    }
    if (traceql_metric_has_buckets(metrics))
        series->buckets =
            br_arena_calloc(metrics->arena, metrics->n_steps, sizeof *series->buckets);
    else
        series->sums = br_arena_calloc(metrics->arena, metrics->n_steps, sizeof *series->sums);
    series->counts = br_arena_calloc(metrics->arena, metrics->n_steps, sizeof *series->counts);
    if ((!series->sums && !series->buckets) || !series->counts ||
        br_map_put(metrics->by_key, key->data, key->len, series, NULL))
        return BR_ENOMEM;
    metrics->n_series++;
    *ret = series;
    return 0;
}

/* Creates the single series of a metric that counts spans without by(). The series exists even
 * if no span matches. */
static int traceql_metric_begin(struct br_traceql_metrics *metrics)
{
    const struct br_traceql_metric *metric = metrics->query->metric;
    const struct br_str key = {.data = ".", .len = 1};
    struct br_traceql_series *series;
    bool counts = metric->aggregate == BR_TRACEQL_RATE || metric->aggregate == BR_TRACEQL_COUNT;
    return counts && metric->n_by == 0 ? traceql_metric_new(metrics, NULL, &key, &series) : 0;
}

int br_traceql_metrics_init(struct br_traceql_metrics *metrics)
{
    metrics->n_series = 0;
    metrics->by_key = br_map_new(BR_TRACEQL_SERIES_MAX);
    return metrics->by_key ? traceql_metric_begin(metrics) : BR_ENOMEM;
}

static int traceql_metric_find(struct br_traceql_metrics *metrics,
                               const struct br_traceql_span *span, struct br_traceql_series **ret)
{
    const struct br_traceql_metric *metric = metrics->query->metric;
    struct br_traceql_value by[BR_TRACEQL_BY_MAX];
    struct br_str key = {.max = KEY_MAX};
    br_str_putc(&key, '.');
    for (size_t i = 0; i < metric->n_by; i++) {
        by[i] = traceql_metric_by(&metrics->query->attributes[metric->by[i]],
                                  &span->values[metric->by[i]]);
        if (by[i].type == BR_TRACEQL_STRING && by[i].len > KEY_MAX / BR_TRACEQL_BY_MAX / 2)
            by[i].len = br_utf8_valid((const uint8_t *)by[i].text, KEY_MAX / BR_TRACEQL_BY_MAX / 2);
        br_traceql_value_key(&key, &by[i]);
    }
    *ret = key.failed ? NULL : br_map_get(metrics->by_key, key.data, key.len);
    int rc = key.failed ? BR_ENOMEM : 0;
    if (!rc && !*ret)
        rc = traceql_metric_new(metrics, by, &key, ret);
    br_str_release(&key);
    return rc;
}

/* --- Exemplars -------------------------------------------------------------------------------- */

static uint32_t traceql_metric_parts(const struct br_traceql_metrics *metrics)
{
    uint32_t parts = metrics->max_exemplars / EXEMPLARS_IN_PART;
    return parts ? parts : 1;
}

static bool traceql_metric_has_exemplar_of(const struct br_traceql_series *series,
                                           const struct br_stored_span *row)
{
    const struct br_traceql_exemplar *last =
        series->n_exemplars ? &series->exemplars[series->n_exemplars - 1] : NULL;
    return last && memcmp(last->trace_id, row->trace_id, sizeof last->trace_id) == 0;
}

/* Stores the span as an exemplar if the limits permit it. The time range is divided into equal
 * parts, and a series has at most EXEMPLARS_IN_PART exemplars in each part. A span of the same
 * trace as the series' previous exemplar is not stored. */
static int traceql_metric_add_exemplar(struct br_traceql_metrics *metrics,
                                       struct br_traceql_series *series,
                                       const struct br_stored_span *row, double value)
{
    uint32_t parts = traceql_metric_parts(metrics);
    uint64_t width = metrics->step_ns * metrics->n_steps / parts + 1;
    if (metrics->max_exemplars == 0 || series->n_exemplars == metrics->max_exemplars ||
        metrics->n_exemplars == BR_TRACEQL_EXEMPLARS_TOGETHER ||
        traceql_metric_has_exemplar_of(series, row))
        return 0;
    if (!series->exemplars) {
        series->exemplars =
            br_arena_calloc(metrics->arena, metrics->max_exemplars, sizeof *series->exemplars);
        series->n_exemplars_in = br_arena_calloc(metrics->arena, parts, 1);
        if (!series->exemplars || !series->n_exemplars_in)
            return BR_ENOMEM;
    }
    uint8_t *n_in = &series->n_exemplars_in[(row->start_ns - metrics->start_ns) / width];
    if (*n_in == EXEMPLARS_IN_PART)
        return 0;
    (*n_in)++;
    metrics->n_exemplars++;
    struct br_traceql_exemplar *exemplar = &series->exemplars[series->n_exemplars++];
    *exemplar = (struct br_traceql_exemplar){
        .span_id = row->span_id, .start_ns = row->start_ns, .value = value};
    memcpy(exemplar->trace_id, row->trace_id, sizeof exemplar->trace_id);
    return 0;
}

/* --- Spans ------------------------------------------------------------------------------------ */

/* Returns the index of the bucket for a value: bucket i contains values above 2^(i-1) and up to
 * 2^i. */
static uint32_t traceql_metric_bucket(double value)
{
    int exponent;
    double fraction = frexp(value, &exponent);
    if (!(value > 1))
        return 0;
    exponent -= fraction <= 0.5;
    return exponent < (int)BR_TRACEQL_BUCKETS ? (uint32_t)exponent : BR_TRACEQL_BUCKETS - 1;
}

static int traceql_metric_count_bucket(struct br_traceql_metrics *metrics,
                                       struct br_traceql_series *series, uint32_t step,
                                       double value)
{
    if (!series->buckets[step])
        series->buckets[step] =
            br_arena_calloc(metrics->arena, BR_TRACEQL_BUCKETS, sizeof **series->buckets);
    if (!series->buckets[step])
        return BR_ENOMEM;
    series->buckets[step][traceql_metric_bucket(value)]++;
    return 0;
}

static void traceql_metric_sum(enum br_traceql_aggregate aggregate, double value, bool first,
                               double *sum)
{
    if (first)
        *sum = value;
    else if (aggregate == BR_TRACEQL_MIN)
        *sum = fmin(*sum, value);
    else if (aggregate == BR_TRACEQL_MAX)
        *sum = fmax(*sum, value);
    else
        *sum += value;
}

/* Stores in `*ret` the number that the metric aggregates, which is 1 for rate() and
 * count_over_time(). Returns false if the span's attribute is not a finite number. */
static bool traceql_metric_number(const struct br_traceql_metrics *metrics,
                                  const struct br_traceql_span *span, double *ret)
{
    const struct br_traceql_metric *metric = metrics->query->metric;
    if (metric->aggregate == BR_TRACEQL_RATE || metric->aggregate == BR_TRACEQL_COUNT) {
        *ret = 1;
        return true;
    }
    const struct br_traceql_value value = traceql_metric_single(&span->values[metric->attribute]);
    if (value.type == BR_TRACEQL_FLOAT)
        *ret = value.real;
    else if (value.type == BR_TRACEQL_INT || value.type == BR_TRACEQL_DURATION)
        *ret = (double)value.integer;
    else
        return false;
    return isfinite(*ret);
}

int br_traceql_metrics_add(struct br_traceql_metrics *metrics, const struct br_traceql_span *span)
{
    struct br_traceql_series *series;
    uint64_t start_ns = span->row->start_ns;
    double value;
    if (start_ns < metrics->start_ns || !traceql_metric_number(metrics, span, &value))
        return 0;
    uint64_t step = (start_ns - metrics->start_ns) / metrics->step_ns;
    if (step >= metrics->n_steps)
        return 0;
    int rc = traceql_metric_find(metrics, span, &series);
    if (!rc && series->buckets)
        rc = traceql_metric_count_bucket(metrics, series, (uint32_t)step, value);
    if (rc)
        return rc;
    if (series->sums)
        traceql_metric_sum(metrics->query->metric->aggregate, value, series->counts[step] == 0,
                           &series->sums[step]);
    series->counts[step]++;
    return traceql_metric_add_exemplar(metrics, series, span->row, value);
}

/* --- Lines ------------------------------------------------------------------------------------ */

/* Returns the divisor that converts the metric's values to seconds if they are durations.
 * Returns 1 for other values. */
static double traceql_metric_unit(const struct br_traceql_metrics *metrics)
{
    const struct br_traceql_metric *metric = metrics->query->metric;
    if (metric->aggregate == BR_TRACEQL_RATE || metric->aggregate == BR_TRACEQL_COUNT)
        return 1;
    const struct br_traceql_attribute *attribute = &metrics->query->attributes[metric->attribute];
    bool duration = attribute->scope == BR_TRACEQL_INTRINSIC &&
                    (attribute->intrinsic == BR_TRACEQL_SPAN_DURATION ||
                     attribute->intrinsic == BR_TRACEQL_TRACE_DURATION ||
                     attribute->intrinsic == BR_TRACEQL_EVENT_TIME);
    return duration ? NS_PER_S : 1;
}

static bool traceql_metric_has_bucket(const struct br_traceql_metrics *metrics,
                                      const struct br_traceql_series *series, uint32_t bucket)
{
    for (uint32_t step = 0; step < metrics->n_steps; step++)
        if (series->buckets[step] && series->buckets[step][bucket])
            return true;
    return false;
}

/* Finds the first line (quantile or bucket) of line->series whose index is at least `bucket`.
 * Returns false if the series has no such line. */
static bool traceql_metric_line_at(const struct br_traceql_metrics *metrics, uint32_t bucket,
                                   struct br_traceql_line *line)
{
    const struct br_traceql_metric *metric = metrics->query->metric;
    if (metric->aggregate == BR_TRACEQL_QUANTILE) {
        if (bucket == metric->n_quantiles)
            return false;
        line->number = metric->quantiles[bucket];
    } else if (metric->aggregate == BR_TRACEQL_HISTOGRAM) {
        while (bucket < BR_TRACEQL_BUCKETS &&
               !traceql_metric_has_bucket(metrics, line->series, bucket))
            bucket++;
        if (bucket == BR_TRACEQL_BUCKETS)
            return false;
        line->number = ldexp(1, (int)bucket) / traceql_metric_unit(metrics);
    } else if (bucket > 0) {
        return false;
    }
    line->bucket = bucket;
    return true;
}

/* Iterates over the lines of all series: advances `*line`, which the caller zeroes before the
 * first call. Returns false after the last line. */
static bool traceql_metric_next(const struct br_traceql_metrics *metrics,
                                struct br_traceql_line *line)
{
    uint32_t at = line->series ? (uint32_t)(line->series - metrics->series) : 0;
    if (line->series && traceql_metric_line_at(metrics, line->bucket + 1, line))
        return true;
    for (at += line->series != NULL; at < metrics->n_series; at++) {
        line->series = &metrics->series[at];
        if (traceql_metric_line_at(metrics, 0, line))
            return true;
    }
    return false;
}

/* Returns the value below which the fraction `quantile` of the counted values lies. */
static double traceql_metric_quantile(const uint32_t *buckets, uint64_t count, double quantile)
{
    double wanted = fmax(1, ceil(quantile * (double)count)), before = 0;
    int lower = -1;
    for (int i = 0; i < (int)BR_TRACEQL_BUCKETS; i++) {
        if (!buckets[i])
            continue;
        if (before + buckets[i] >= wanted) {
            double share = (wanted - before) / buckets[i];
            double from = lower < 0 ? i - 1 : lower;
            return exp2(from + (i - from) * share);
        }
        before += buckets[i];
        lower = i;
    }
    return 0;
}

/* Calculates the value of a line at a step. Returns false if the line has no value at the step.
 * Counts, rates, quantiles and buckets have a value at every step. */
static bool traceql_metric_value(const struct br_traceql_metrics *metrics,
                                 const struct br_traceql_line *line, uint32_t step, double *ret)
{
    const struct br_traceql_series *series = line->series;
    double unit = traceql_metric_unit(metrics);
    uint64_t count = series->counts[step];
    switch (metrics->query->metric->aggregate) {
    case BR_TRACEQL_COUNT:
        *ret = (double)count;
        return true;
    case BR_TRACEQL_RATE:
        *ret = (double)count / ((double)metrics->step_ns / NS_PER_S);
        return true;
    case BR_TRACEQL_HISTOGRAM:
        *ret = series->buckets[step] ? series->buckets[step][line->bucket] : 0;
        return true;
    case BR_TRACEQL_QUANTILE:
        *ret = count ? traceql_metric_quantile(series->buckets[step], count, line->number) / unit
                     : 0; /* the value is 0 if there are no spans, as in Tempo */
        return true;
    case BR_TRACEQL_AVG:
        if (count)
            *ret = series->sums[step] / (double)count / unit;
        return count > 0;
    default:
        if (count)
            *ret = series->sums[step] / unit;
        return count > 0;
    }
}

/* --- Functions that follow a metric ----------------------------------------------------------- */

/* A line whose value topk() or bottomk() may keep at a step. Among lines with equal values,
 * those whose labels sort first are kept, as in Tempo. */
struct candidate {
    uint32_t line;
    double value;
    const struct br_traceql_lines *lines;
};

static int traceql_metric_compare_labels(const struct br_traceql_line *first,
                                         const struct br_traceql_line *second, size_t n_by)
{
    for (size_t i = 0; i < n_by; i++) {
        const struct br_traceql_value *a = &first->series->by[i], *b = &second->series->by[i];
        if (a->type != BR_TRACEQL_STRING || b->type != BR_TRACEQL_STRING)
            continue;
        size_t len = a->len < b->len ? a->len : b->len;
        int order = len ? memcmp(a->text, b->text, len) : 0;
        if (order)
            return order;
        if (a->len != b->len)
            return a->len < b->len ? -1 : 1;
    }
    return 0;
}

static int traceql_metric_compare_candidates(const void *first, const void *second, void *arg)
{
    const struct candidate *a = first, *b = second;
    const struct br_traceql_after *after = arg;
    if (a->value < b->value || a->value > b->value)
        return (a->value > b->value) == (after->kind == BR_TRACEQL_TOPK) ? -1 : 1;
    return traceql_metric_compare_labels(&a->lines->lines[a->line], &b->lines->lines[b->line],
                                         a->lines->n_by);
}

/* Keeps the values of `after->count` lines at a step, and removes the values of the other lines. */
static void traceql_metric_keep_top(struct br_traceql_lines *lines, struct candidate *candidates,
                                    const struct br_traceql_after *after, uint32_t step)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < lines->n_lines; i++) {
        double *value = &lines->values[(size_t)i * lines->n_steps + step];
        if (!isnan(*value))
            candidates[n++] = (struct candidate){i, *value, lines};
    }
    qsort_r(candidates, n, sizeof *candidates, traceql_metric_compare_candidates,
            (void *)(uintptr_t)after);
    for (uint32_t i = after->count; i < n; i++)
        lines->values[(size_t)candidates[i].line * lines->n_steps + step] = NAN;
}

static bool traceql_metric_holds(const struct br_traceql_after *after, double value)
{
    switch (after->compare) {
    case BR_TRACEQL_EQUAL:
        return value == after->value;
    case BR_TRACEQL_NOT_EQUAL:
        return value != after->value;
    case BR_TRACEQL_LESS:
        return value < after->value;
    case BR_TRACEQL_LESS_EQUAL:
        return value <= after->value;
    case BR_TRACEQL_GREATER:
        return value > after->value;
    default:
        return value >= after->value;
    }
}

static void traceql_metric_apply(struct br_traceql_lines *lines, struct candidate *candidates,
                                 const struct br_traceql_after *after)
{
    if (after->kind != BR_TRACEQL_COMPARE) {
        for (uint32_t step = 0; step < lines->n_steps; step++)
            traceql_metric_keep_top(lines, candidates, after, step);
        return;
    }
    for (size_t i = 0; i < (size_t)lines->n_lines * lines->n_steps; i++)
        if (!traceql_metric_holds(after, lines->values[i]))
            lines->values[i] = NAN;
}

/* Removes the lines that have no value at any step. */
static void traceql_metric_drop(struct br_traceql_lines *lines)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < lines->n_lines; i++) {
        const double *values = &lines->values[(size_t)i * lines->n_steps];
        bool any = false;
        for (uint32_t step = 0; step < lines->n_steps; step++)
            any = any || !isnan(values[step]);
        if (!any)
            continue;
        lines->lines[n] = lines->lines[i];
        memmove(&lines->values[(size_t)n++ * lines->n_steps], values,
                lines->n_steps * sizeof *values);
    }
    lines->n_lines = n;
}

int br_traceql_metrics_lines(const struct br_traceql_metrics *metrics, struct br_traceql_lines *ret)
{
    const struct br_traceql_metric *metric = metrics->query->metric;
    struct br_traceql_line line = {0};
    *ret = (struct br_traceql_lines){.n_steps = metrics->n_steps, .n_by = metric->n_by};
    while (traceql_metric_next(metrics, &line))
        ret->n_lines++;
    ret->lines = br_arena_calloc(metrics->arena, ret->n_lines + 1u, sizeof *ret->lines);
    ret->values = br_arena_calloc(metrics->arena, (size_t)ret->n_lines * ret->n_steps + 1,
                                  sizeof *ret->values);
    struct candidate *candidates =
        metric->n_after ? br_arena_calloc(metrics->arena, ret->n_lines + 1u, sizeof *candidates)
                        : NULL;
    if (!ret->lines || !ret->values || (metric->n_after && !candidates))
        return BR_ENOMEM;
    line = (struct br_traceql_line){0};
    for (uint32_t i = 0; traceql_metric_next(metrics, &line); i++) {
        ret->lines[i] = line;
        for (uint32_t step = 0; step < ret->n_steps; step++) {
            double *value = &ret->values[(size_t)i * ret->n_steps + step];
            if (!traceql_metric_value(metrics, &line, step, value) || !isfinite(*value))
                *value = NAN;
        }
    }
    for (size_t i = 0; i < metric->n_after; i++)
        traceql_metric_apply(ret, candidates, &metric->after[i]);
    if (metric->n_after)
        traceql_metric_drop(ret);
    return 0;
}

/* --- Exemplars of lines ----------------------------------------------------------------------- */

static bool traceql_metric_is_quantile(const struct br_traceql_metrics *metrics,
                                       const struct br_traceql_line *line, uint32_t step,
                                       double value)
{
    const struct br_traceql_metric *metric = metrics->query->metric;
    struct br_traceql_line each = {.series = line->series};
    double bound;
    for (uint32_t i = 0; i < metric->n_quantiles; i++) {
        each.number = metric->quantiles[i];
        if (i + 1 == metric->n_quantiles ||
            (traceql_metric_value(metrics, &each, step, &bound) && bound >= value))
            return line->bucket == i;
    }
    return false;
}

bool br_traceql_metrics_exemplar(const struct br_traceql_metrics *metrics,
                                 const struct br_traceql_line *line, const double *values,
                                 const struct br_traceql_exemplar *exemplar, double *ret)
{
    uint32_t step = (uint32_t)((exemplar->start_ns - metrics->start_ns) / metrics->step_ns);
    if (isnan(values[step]))
        return false;
    switch (metrics->query->metric->aggregate) {
    case BR_TRACEQL_RATE:
    case BR_TRACEQL_COUNT:
        *ret = values[step];
        return true;
    case BR_TRACEQL_HISTOGRAM:
        *ret = values[step];
        return traceql_metric_bucket(exemplar->value) == line->bucket;
    case BR_TRACEQL_QUANTILE:
        *ret = exemplar->value / traceql_metric_unit(metrics);
        return traceql_metric_is_quantile(metrics, line, step, *ret);
    default:
        *ret = exemplar->value / traceql_metric_unit(metrics);
        return true;
    }
}
