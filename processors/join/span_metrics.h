/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts, by service and span name, what the samples of spans add up to, as counters at the
 * telemetry endpoint. All workers together have at most a given number of such pairs; what further
 * pairs spend counts as `_other`. Each worker counts for itself.
 */
#pragma once

#include "config/option.h"
#include "pipeline/component.h"
#include "processors/join/table/table.h"

#define JOIN_SERIES_MAX 2500 /* three counters each, within BR_METRICS_MAX */

struct join_span_metrics_config {
    bool enabled;
    int64_t max_series;
};

extern const struct br_option join_span_metrics_options[];

struct join_span_counters {
    double *cpu_seconds, *allocated_bytes, *samples;
};

struct join_span_metrics {
    struct br_node *node; /* NULL: not enabled */
    struct join_table *table;
    size_t max_series;
    struct br_map *known; /* service, 0, name -> join_span_counters */
    struct join_span_counters other;
};

/* Returns 0 or BR_ENOMEM. */
int join_span_metrics_init(struct join_span_metrics *metrics,
                           const struct join_span_metrics_config *config, struct br_node *node,
                           struct join_table *table);
void join_span_metrics_release(struct join_span_metrics *metrics);

/* Adds what a sample brought the span, or, when it has just come, what had waited for it. */
struct join_spent {
    uint64_t cpu_ns, allocated_bytes, samples;
};
void join_span_metrics_add(struct join_span_metrics *metrics, const struct join_span *span,
                           const struct join_spent *spent);

/* Returns what totals say was spent, by samples that name the span: CPU time, or else periods of
 * it; samples as profile.sample_count. */
struct join_spent join_spent_of(const struct join_totals *totals);
