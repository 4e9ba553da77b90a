/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics of TraceQL: spans aggregated by time step and by labels. A span counts for the step in
 * which it starts. Durations are reported in seconds.
 *
 * Quantiles and histograms use buckets whose upper bounds are powers of two (in nanoseconds for
 * durations), like Tempo. Within a bucket a quantile is interpolated by its exponent.
 */
#pragma once

#include "base/map.h"
#include "query/traceql.h"

#define BR_TRACEQL_SERIES_MAX 1000u
#define BR_TRACEQL_STEPS_MAX 11000u
#define BR_TRACEQL_BUCKETS 64u
#define BR_TRACEQL_EXEMPLARS_MAX 100u        /* per series */
#define BR_TRACEQL_EXEMPLARS_TOGETHER 10000u /* per response */

/* A span counted in a series, as an example. */
struct br_traceql_exemplar {
    uint8_t trace_id[16];
    uint64_t span_id; /* as in br_stored_span */
    uint64_t start_ns;
    double value; /* the aggregated value, unscaled; 1 for rate() and count_over_time() */
};

struct br_traceql_series {
    struct br_traceql_value by[BR_TRACEQL_BY_MAX];
    double *sums;       /* aggregate per step: a sum, a minimum or a maximum; NULL with buckets */
    uint64_t *counts;   /* number of spans per step */
    uint32_t **buckets; /* BR_TRACEQL_BUCKETS counts per step; NULL: none */
    struct br_traceql_exemplar *exemplars; /* NULL: none yet */
    uint8_t *n_exemplars_in;               /* number of exemplars in each part of the time range */
    uint32_t n_exemplars;
};

struct br_traceql_metrics {
    const struct br_traceql *query; /* a query with a metric */
    uint64_t start_ns, step_ns;
    uint32_t n_steps;
    /* most exemplars of a series, up to BR_TRACEQL_EXEMPLARS_MAX; 0: none */
    uint32_t max_exemplars;
    struct br_arena *arena; /* borrowed; holds everything except `by_key` */
    struct br_map *by_key;
    struct br_traceql_series series[BR_TRACEQL_SERIES_MAX]; /* in the order of their first spans */
    uint32_t n_series;
    uint32_t n_exemplars; /* total of all series */
};

/* Initialises without series. The caller has set the fields up to `arena`. Returns 0 or
 * BR_ENOMEM. */
int br_traceql_metrics_init(struct br_traceql_metrics *metrics);
void br_traceql_metrics_release(struct br_traceql_metrics *metrics); /* accepts zeroed metrics */

/* Counts a span whose values have been read. Returns 0, BR_ENOMEM, or BR_EFULL if the span would
 * need another series beyond the limit; it is then not counted. */
int br_traceql_metrics_add(struct br_traceql_metrics *metrics, const struct br_traceql_span *span);

/* A line of the response: a series or, with quantiles and histograms, one of its quantiles or
 * buckets. */
struct br_traceql_line {
    const struct br_traceql_series *series;
    double number; /* the quantile, or the upper bound of the bucket */
    uint32_t bucket;
};

/* All lines and their values, after the functions that follow the metric. */
struct br_traceql_lines {
    struct br_traceql_line *lines;
    double *values; /* n_steps values per line; NaN: no value */
    uint32_t n_lines, n_steps;
    size_t n_by; /* number of labels that distinguish series */
};

/* Calculates the lines, in the metrics' arena. Returns 0 or BR_ENOMEM. */
int br_traceql_metrics_lines(const struct br_traceql_metrics *metrics,
                             struct br_traceql_lines *ret);

/* Returns true if an exemplar of the line's series belongs to the line, and stores its value.
 * That is the exemplar's value or, if spans are counted, the line's value at its step. `values`
 * are those of the line.
 *
 * An exemplar of a histogram belongs to the line of its bucket. With quantiles it belongs to the
 * first line whose value is at least the exemplar's, or else to the last line. */
bool br_traceql_metrics_exemplar(const struct br_traceql_metrics *metrics,
                                 const struct br_traceql_line *line, const double *values,
                                 const struct br_traceql_exemplar *exemplar, double *ret);
