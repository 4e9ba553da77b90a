/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the CPU time, allocated bytes and samples of spans as metrics, by service and span name.
 * All workers together have at most a given number of such pairs; further pairs count as `_other`.
 * Each worker has its own counters.
 */
#pragma once

#include "config/option.h"
#include "pipeline/component.h"
#include "processors/join/table/table.h"

/* most pairs of service and span name; each has three counters, within BR_METRICS_MAX */
#define JOIN_SERIES_MAX 2500

struct join_span_metrics_config {
    bool enabled;
    int64_t max_series;
};

extern const struct br_option join_span_metrics_options[];

struct join_span_counters {
    double *cpu_seconds, *allocated_bytes, *samples;
};

struct join_span_metrics {
    struct br_node *node; /* node that owns the counters; NULL: the metrics are disabled */
    struct join_table *table;
    size_t max_series;
    struct br_map *known; /* counters by key: service, a zero byte, span name */
    struct join_span_counters other;
};

/* Initializes the metrics. Returns 0 or BR_ENOMEM. */
int join_span_metrics_init(struct join_span_metrics *metrics,
                           const struct join_span_metrics_config *config, struct br_node *node,
                           struct join_table *table);
void join_span_metrics_release(struct join_span_metrics *metrics);

/* The resources that a sample adds to its span. For a span that has just arrived, the resources
 * of all samples that arrived before the span. */
struct join_spent {
    uint64_t cpu_ns, allocated_bytes, samples;
};

/* Adds resources to the counters of the span's service and name. */
void join_span_metrics_add(struct join_span_metrics *metrics, const struct join_span *span,
                           const struct join_spent *spent);

/* Returns the resources used by all samples that name the span: CPU time, or else CPU periods.
 * Samples are counted in the same way as profile.sample_count. */
struct join_spent join_spent_of(const struct join_totals *totals);
