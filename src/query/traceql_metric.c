/* SPDX-License-Identifier: Apache-2.0 */
#include "query/traceql_metric.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

#define KEY_MAX 4096 /* bytes of the values of by() together */
#define NS_PER_S 1e9

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

/* The first value of a list counts. */
static struct br_traceql_value traceql_metric_single(const struct br_traceql_value *value)
{
    return value->type == BR_TRACEQL_LIST ? value->items[0] : *value;
}

static void traceql_metric_put_key(struct br_str *key, const struct br_traceql_value *value)
{
    br_str_putc(key, (char)('a' + (int)value->type));
    if (value->type == BR_TRACEQL_STRING) {
        br_str_add(key, &value->len, sizeof value->len);
        br_str_add(key, value->text, value->len);
    } else if (value->type == BR_TRACEQL_BOOL) {
        br_str_putc(key, value->boolean ? '1' : '0');
    } else if (value->type != BR_TRACEQL_NIL) {
        br_str_add(key, &value->integer, sizeof value->integer); /* or the bits of the double */
    }
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

/* There is one series, also of no spans, where nothing tells series apart. */
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
        by[i] = traceql_metric_single(&span->values[metric->by[i]]);
        if (by[i].type == BR_TRACEQL_STRING && by[i].len > KEY_MAX / BR_TRACEQL_BY_MAX / 2)
            by[i].len = br_utf8_valid((const uint8_t *)by[i].text, KEY_MAX / BR_TRACEQL_BY_MAX / 2);
        traceql_metric_put_key(&key, &by[i]);
    }
    *ret = key.failed ? NULL : br_map_get(metrics->by_key, key.data, key.len);
    int rc = key.failed ? BR_ENOMEM : *ret ? 0 : traceql_metric_new(metrics, by, &key, ret);
    br_str_release(&key);
    return rc;
}

/* --- Spans ------------------------------------------------------------------------------------ */

/* Bucket i holds what is over 2^(i-1) and up to 2^i. */
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

/* The number that is aggregated; false where the span has none. */
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
    return 0;
}

/* --- Lines ------------------------------------------------------------------------------------ */

/* The divisor of durations. */
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

/* The next line of the series that `line` is at, from `bucket` on. */
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

bool br_traceql_metrics_next(const struct br_traceql_metrics *metrics, struct br_traceql_line *line)
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

/* The value below which the share `quantile` of what was counted lies. */
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

bool br_traceql_metrics_value(const struct br_traceql_metrics *metrics,
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
                     : 0; /* as Tempo has it */
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
