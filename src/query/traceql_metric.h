/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calculates TraceQL metrics: spans are aggregated by time step and by labels. A span counts for
 * the step in which it starts. Durations are reported in seconds.
 *
 * Quantiles and histograms use buckets whose upper bounds are powers of two (in nanoseconds for
 * durations), like Tempo. Within a bucket, a quantile is found by interpolation: the exponent of
 * two is interpolated linearly.
 */
#pragma once

#include "base/index.h"
#include "base/map.h"
#include "query/traceql.h"

#define BR_TRACEQL_SERIES_MAX 1000u
#define BR_TRACEQL_STEPS_MAX 11000u
#define BR_TRACEQL_BUCKETS 64u
#define BR_TRACEQL_EXEMPLARS_MAX 100u        /* maximum number of exemplars of a series */
#define BR_TRACEQL_EXEMPLARS_TOGETHER 10000u /* maximum number of exemplars of a response */

/* An exemplar: a span counted in a series that the response shows as an example. */
struct br_traceql_exemplar {
    uint8_t trace_id[16];
    uint64_t span_id; /* span id, in the byte order of br_stored_span.span_id */
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
    /* array of the series' n_exemplars exemplars; NULL: no exemplar has been stored */
    struct br_traceql_exemplar *exemplars;
    /* number of exemplars in each part of the time range, which is divided into equal parts */
    uint8_t *n_exemplars_in;
    uint32_t n_exemplars;
};

struct br_traceql_metrics {
    const struct br_traceql *query; /* the query, which has a metric */
    uint64_t start_ns, step_ns;
    uint32_t n_steps;
    /* maximum number of exemplars of a series, at most BR_TRACEQL_EXEMPLARS_MAX; 0: exemplars are
     * not stored */
    uint32_t max_exemplars;
    struct br_arena *arena; /* arena for everything except `by_key`, owned by the caller */
    struct br_map *by_key;
    /* series in the order in which their first spans were counted */
    struct br_traceql_series series[BR_TRACEQL_SERIES_MAX];
    uint32_t n_series;
    uint32_t n_exemplars; /* number of exemplars of all series together */
};

/* Initialises metrics without series. Before the call, the caller sets the fields of `metrics` up
 * to and including `arena`. Returns 0 or BR_ENOMEM. */
int br_traceql_metrics_init(struct br_traceql_metrics *metrics);
/* Frees `by_key`. Accepts zeroed metrics. */
void br_traceql_metrics_release(struct br_traceql_metrics *metrics);

/* Counts a span whose values have been read. Returns 0 or BR_ENOMEM. If the span needs a new
 * series and there are already BR_TRACEQL_SERIES_MAX, returns BR_EFULL and does not count the
 * span. */
int br_traceql_metrics_add(struct br_traceql_metrics *metrics, const struct br_traceql_span *span);

/* A line of the response. A line is one quantile or one bucket of a series if the metric
 * calculates quantiles or a histogram; otherwise a line is the series itself. */
struct br_traceql_line {
    const struct br_traceql_series *series;
    double number; /* the line's quantile, or the upper bound of its bucket */
    uint32_t bucket;
};

/* All lines and their values, after the functions that follow the metric have been applied. */
struct br_traceql_lines {
    struct br_traceql_line *lines;
    double *values; /* n_steps values for each line; NaN: the line has no value at that step */
    uint32_t n_lines, n_steps;
    size_t n_by; /* number of labels in by(); their values distinguish the series */
};

/* Calculates the lines of the response, which are allocated in the metrics' arena. Returns 0 or
 * BR_ENOMEM. */
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

/* --- compare() (traceql_compare.c) ------------------------------------------------------------ */

/*
 * compare() counts how often each value of each attribute occurs among the selected spans and among
 * the other spans. The response contains the most frequent values.
 *
 * The attributes are those of the span, its resource and its scope, and the intrinsics name,
 * status, statusMessage, kind, span:childCount, rootName, rootServiceName, instrumentation:name and
 * instrumentation:version. Arrays count as nil. As in Tempo, an attribute with a dedicated column
 * in Tempo's blocks counts as nil if the span does not have it.
 */

/* maximum number of entries of a comparison: values and totals of both sides together */
#define BR_TRACEQL_COMPARED_MAX 100000u

enum br_traceql_side { BR_TRACEQL_BASELINE, BR_TRACEQL_SELECTION, BR_TRACEQL_SIDES };

/* Number of spans of one side (baseline or selection) in which an attribute has a certain value. If
 * `is_total`, the number of spans of that side in which the attribute has any value. */
struct br_traceql_compared {
    enum br_traceql_side side;
    bool is_total;
    const char *name; /* name of the attribute with its scope, such as "resource.service.name" */
    struct br_traceql_value value;
    uint32_t *counts; /* number of spans in each step */
    uint64_t count;
};

struct br_traceql_comparison {
    const struct br_traceql *query; /* the query, whose metric is compare() */
    uint64_t start_ns, step_ns;
    uint32_t n_steps;
    struct br_arena *arena; /* arena for the names, values and counts, owned by the caller */
    struct br_traceql_compared *entries;
    uint32_t n_entries, cap_entries;
    struct br_index index;
    /* some values were not counted, because there would be more than BR_TRACEQL_COMPARED_MAX
     * entries */
    bool full;
};

/* Initialises an empty comparison. Before the call, the caller sets the fields of `comparison` up
 * to and including `arena`. */
void br_traceql_comparison_init(struct br_traceql_comparison *comparison);
void br_traceql_comparison_release(struct br_traceql_comparison *comparison);

/* Counts the attributes of a span of a trace. `bytes` are the span's bytes. Returns 0 or
 * BR_ENOMEM. */
int br_traceql_comparison_add(struct br_traceql_comparison *comparison,
                              const struct br_traceql_trace *trace,
                              const struct br_traceql_span *span, const struct br_span_bytes *bytes,
                              enum br_traceql_side side);

/* Sorts the entries. Entries of single values come first, by side and attribute name, the most
 * frequent value first; the totals follow. */
void br_traceql_comparison_sort(struct br_traceql_comparison *comparison);
