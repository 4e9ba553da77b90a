/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calculates metrics of TraceQL: spans aggregated by time step and by labels. A span counts for the
 * step in which it starts. Durations are reported in seconds.
 *
 * Quantiles and histograms use buckets whose upper bounds are powers of two (in nanoseconds for
 * durations), like Tempo. Within a bucket, a quantile is found by linear interpolation of the
 * exponent.
 */
#pragma once

#include "base/map.h"
#include "query/traceql.h"

#define BR_TRACEQL_SERIES_MAX 1000u
#define BR_TRACEQL_STEPS_MAX 11000u
#define BR_TRACEQL_BUCKETS 64u
#define BR_TRACEQL_EXEMPLARS_MAX 100u        /* most exemplars of a series */
#define BR_TRACEQL_EXEMPLARS_TOGETHER 10000u /* most exemplars of a response */

/* An exemplar: a span counted in a series that the response shows as an example. */
struct br_traceql_exemplar {
    uint8_t trace_id[16];
    uint64_t span_id; /* span id in the form of br_stored_span */
    uint64_t start_ns;
    /* the span's value before conversion to seconds; 1 for rate() and count_over_time() */
    double value;
};

struct br_traceql_series {
    struct br_traceql_value by[BR_TRACEQL_BY_MAX];
    double *sums;     /* one sum, minimum or maximum per step; NULL if the metric uses buckets */
    uint64_t *counts; /* number of spans per step */
    /* BR_TRACEQL_BUCKETS counts per step; NULL: the metric does not use buckets */
    uint32_t **buckets;
    struct br_traceql_exemplar *exemplars; /* array of n_exemplars; NULL: no exemplar yet */
    uint8_t *n_exemplars_in;               /* number of exemplars in each part of the time range */
    uint32_t n_exemplars;
};

struct br_traceql_metrics {
    const struct br_traceql *query; /* a query with a metric */
    uint64_t start_ns, step_ns;
    uint32_t n_steps;
    /* most exemplars of a series, at most BR_TRACEQL_EXEMPLARS_MAX; 0: exemplars are not stored */
    uint32_t max_exemplars;
    struct br_arena *arena; /* owned by the caller; holds everything except `by_key` */
    struct br_map *by_key;
    struct br_traceql_series series[BR_TRACEQL_SERIES_MAX]; /* in the order of their first spans */
    uint32_t n_series;
    uint32_t n_exemplars; /* number of exemplars of all series together */
};

/* Initialises metrics without series. The caller has set the fields of `metrics` up to `arena`.
 * Returns 0 or BR_ENOMEM. */
int br_traceql_metrics_init(struct br_traceql_metrics *metrics);
void br_traceql_metrics_release(struct br_traceql_metrics *metrics); /* accepts zeroed metrics */

/* Counts a span whose values have been read. Returns 0 or BR_ENOMEM. Returns BR_EFULL and does
 * not count the span if it would need one more series than BR_TRACEQL_SERIES_MAX. */
int br_traceql_metrics_add(struct br_traceql_metrics *metrics, const struct br_traceql_span *span);

/* A line of the response. It is one quantile or one bucket of a series if the metric calculates
 * quantiles or a histogram; otherwise it is the series itself. */
struct br_traceql_line {
    const struct br_traceql_series *series;
    double number; /* the line's quantile, or the upper bound of its bucket */
    uint32_t bucket;
};

/* All lines and their values, after the functions that follow the metric have been applied. */
struct br_traceql_lines {
    struct br_traceql_line *lines;
    double *values; /* n_steps values per line; NaN: the line has no value at the step */
    uint32_t n_lines, n_steps;
    size_t n_by; /* number of labels of by(), which distinguish the series */
};

/* Calculates the lines of the response, allocated in the metrics' arena. Returns 0 or BR_ENOMEM. */
int br_traceql_metrics_lines(const struct br_traceql_metrics *metrics,
                             struct br_traceql_lines *ret);

/* Returns true if an exemplar of the line's series belongs to the line. Stores the exemplar's
 * value or, if the metric counts spans, the value of the line at the exemplar's step. `values`
 * are the values of the line.
 *
 * An exemplar of a histogram belongs to the line of its bucket. An exemplar of a metric with
 * quantiles belongs to the first line whose value is at least the exemplar's value, or else to
 * the last line. */
bool br_traceql_metrics_exemplar(const struct br_traceql_metrics *metrics,
                                 const struct br_traceql_line *line, const double *values,
                                 const struct br_traceql_exemplar *exemplar, double *ret);
