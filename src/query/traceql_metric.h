/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics of TraceQL: spans counted by step of time and by labels. A span counts for the step that
 * it starts in. Durations are given in seconds.
 *
 * Quantiles and histograms are of buckets whose upper bounds are powers of two (of ns, for
 * durations), as Tempo's; within a bucket a quantile is interpolated by its exponent.
 */
#pragma once

#include "base/map.h"
#include "query/traceql.h"

#define BR_TRACEQL_SERIES_MAX 1000u
#define BR_TRACEQL_STEPS_MAX 11000u
#define BR_TRACEQL_BUCKETS 64u
#define BR_TRACEQL_EXEMPLARS_MAX 100u        /* of a series */
#define BR_TRACEQL_EXEMPLARS_TOGETHER 10000u /* of an answer */

/* A span that counts in a series. */
struct br_traceql_exemplar {
    uint8_t trace_id[16];
    uint64_t span_id; /* as br_stored_span */
    uint64_t start_ns;
    double value; /* the aggregated one, unscaled; 1 for rate() and count_over_time() */
};

struct br_traceql_series {
    struct br_traceql_value by[BR_TRACEQL_BY_MAX];
    double *sums;       /* of each step: a count, a sum, the least or the most */
    uint64_t *counts;   /* of each step */
    uint32_t **buckets; /* of each step, BR_TRACEQL_BUCKETS of them; NULL: none */
    struct br_traceql_exemplar *exemplars; /* NULL: none are wanted */
    uint8_t *n_exemplars_in;               /* how many of them start in each part of the range */
    uint32_t n_exemplars;
};

struct br_traceql_metrics {
    const struct br_traceql *query; /* which has a metric */
    uint64_t start_ns, step_ns;
    uint32_t n_steps;
    uint32_t max_exemplars; /* of a series, at most BR_TRACEQL_EXEMPLARS_MAX; 0: none */
    struct br_arena *arena; /* of all that it makes; borrowed */
    struct br_map *by_key;
    struct br_traceql_series series[BR_TRACEQL_SERIES_MAX]; /* in the order of their first spans */
    uint32_t n_series;
    uint32_t n_exemplars; /* of all series */
};

/* Begins with no series; the fields up to `arena` are set. Returns 0 or BR_ENOMEM. */
int br_traceql_metrics_init(struct br_traceql_metrics *metrics);
void br_traceql_metrics_release(struct br_traceql_metrics *metrics); /* accepts a zeroed one */

/* Counts a span whose values are read. Returns 0; BR_EFULL, and it is not counted, where it needs
 * one series too many; BR_ENOMEM. */
int br_traceql_metrics_add(struct br_traceql_metrics *metrics, const struct br_traceql_span *span);

/* One line of the answer: a series, and of quantiles and histograms one of its lines. */
struct br_traceql_line {
    const struct br_traceql_series *series;
    double number; /* the quantile; the upper bound of the bucket */
    uint32_t bucket;
};

/* All lines with their values, after what follows the metric. */
struct br_traceql_lines {
    struct br_traceql_line *lines;
    double *values; /* n_steps of each line; NaN: none */
    uint32_t n_lines, n_steps;
    size_t n_by; /* labels that separate series */
};

/* Makes them, in the arena. Returns 0 or BR_ENOMEM. */
int br_traceql_metrics_lines(const struct br_traceql_metrics *metrics,
                             struct br_traceql_lines *ret);

/* Decides whether an exemplar of the line's series is shown with the line, and with which value:
 * its own, or that of the line's sample where spans are counted. `values` are those of the line. An
 * exemplar of a histogram belongs to the line of its bucket, one of quantiles to the first line
 * whose value is not below its own, or else to the last. */
bool br_traceql_metrics_exemplar(const struct br_traceql_metrics *metrics,
                                 const struct br_traceql_line *line, const double *values,
                                 const struct br_traceql_exemplar *exemplar, double *ret);
