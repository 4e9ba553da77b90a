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

struct br_traceql_series {
    struct br_traceql_value by[BR_TRACEQL_BY_MAX];
    double *sums;       /* of each step: a count, a sum, the least or the most */
    uint64_t *counts;   /* of each step */
    uint32_t **buckets; /* of each step, BR_TRACEQL_BUCKETS of them; NULL: none */
};

struct br_traceql_metrics {
    const struct br_traceql *query; /* which has a metric */
    uint64_t start_ns, step_ns;
    uint32_t n_steps;
    struct br_arena *arena; /* of all that it makes; borrowed */
    struct br_map *by_key;
    struct br_traceql_series series[BR_TRACEQL_SERIES_MAX]; /* in the order of their first spans */
    uint32_t n_series;
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
