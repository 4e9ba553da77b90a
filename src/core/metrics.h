/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counters, gauges and histograms of one worker, and the text of a scrape of all workers. A
 * component looks up or creates its metrics once, when its node is created. After that, a metric is
 * a plain number that only its worker changes. A scrape copies the metrics of each worker between
 * two loop iterations, and adds the values that have the same name and labels. The scrape prints
 * Prometheus text (prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4) or
 * OpenMetrics (github.com/prometheus/OpenMetrics, version 1.0.0).
 *
 * Names of counters have no suffix in this interface. Some output formats append `_total`, as the
 * Collector's exporter does.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "core/exemplars.h"
#include "core/item.h"

struct br_metrics;

enum br_metric_type {
    BR_COUNTER,
    BR_GAUGE,
    BR_HISTOGRAM,
    BR_TOTAL, /* a counter whose name ends in _total in every format */
};
enum br_metrics_format {
    BR_METRICS_PLAIN,       /* Prometheus text; the names of counters have no suffix */
    BR_METRICS_TEXT,        /* Prometheus text; the names of counters end in _total */
    BR_METRICS_OPENMETRICS, /* OpenMetrics; the names of counters end in _total */
    /* OpenMetrics; the names of counters have no suffix, and their type is `unknown`, because
     * OpenMetrics requires the suffix for the type `counter` */
    BR_METRICS_OPENMETRICS_PLAIN,
};

/* Returns true if the format is one of those of OpenMetrics. */
bool br_metrics_is_openmetrics(enum br_metrics_format format);

/* A histogram: the sum of all values, and the number of values in each bucket. */
struct br_histogram {
    double sum;
    /* upper bounds of the buckets, ascending; constant */
    const double *bounds;
    size_t n_bounds;
    /* number of values in each bucket, not cumulative. The array has n_bounds + 1 elements; the
     * last element counts the values above all bounds. NULL: nothing is counted */
    double *counts;
};

/* Returns a line that describes the metric whose name, without a suffix, is `name`. Returns NULL
 * if the metric is unknown. */
typedef const char *br_metric_help_fn(const char *name);

/* Returns true if scrapes omit the metric with this name. */
typedef bool br_metric_hidden_fn(const char *name);

#define BR_METRICS_MAX 32768 /* largest number of metrics of each worker */

struct br_metrics *br_metrics_new(void);
void br_metrics_free(struct br_metrics *metrics);

/* Returns the value of a metric. Creates the metric with the value 0 if it does not exist. `labels`
 * is Prometheus text without braces (`exporter="otlp/tempo"`, see br_label), or "". `name` and
 * `labels` are copied. Never returns NULL: if the maximum is reached or memory is short, the result
 * is a number that is not part of any scrape. The number is valid as long as `metrics`. */
double *br_metric(struct br_metrics *metrics, enum br_metric_type type, const char *name,
                  const char *labels);

/* Returns the value of a metric as br_metric does, or NULL if the metric cannot be created. */
double *br_metric_try(struct br_metrics *metrics, enum br_metric_type type, const char *name,
                      const char *labels);

/* Returns the number of metrics that can still be created. */
size_t br_metrics_room(const struct br_metrics *metrics);

/* Returns a histogram. Creates the histogram if it does not exist. `bounds` is copied. A histogram
 * that exists keeps its bounds. */
struct br_histogram *br_histogram(struct br_metrics *metrics, const char *name, const char *labels,
                                  const double *bounds, size_t n_bounds);

/* Counts a value. */
void br_histogram_observe(struct br_histogram *histogram, double value);

/* Counts a value `weight` times. Returns the index of its bucket. */
size_t br_histogram_add(struct br_histogram *histogram, double value, double weight);

/* Returns the exemplars of the metric with this name and these labels. Creates an empty set if the
 * metric has none. A histogram has at most `max` exemplars, a counter at most one. A set that
 * exists keeps its maximum. Returns NULL if `max` is 0, the metric does not exist or memory is
 * short. The set is valid as long as `metrics`. */
struct br_exemplars *br_metric_exemplars(struct br_metrics *metrics, const char *name,
                                         const char *labels, size_t max);

/* Returns true if br_metric_exemplars has created a set. */
bool br_metrics_have_exemplars(const struct br_metrics *metrics);

/* Appends `name="value"` to `out`, with the value escaped. Puts a comma before it unless `out`
 * is empty. */
void br_label(struct br_str *out, const char *name, const char *value);

/* Adds every number and histogram of `from` to the number or histogram of `into` that has the
 * same name and labels. If the bounds of two histograms differ, the counts of a bucket are added to
 * the bucket that contains its upper bound. Adds the exemplars as br_exemplars_add does. Returns 0
 * or BR_ENOMEM. */
int br_metrics_add(struct br_metrics *into, const struct br_metrics *from);

/* Appends all metrics to `out`, sorted by name and labels, in the given format. A metric for
 * which `help` returns a text has a HELP line. Metrics for which `hidden` returns true are left
 * out. `help` and `hidden` may be NULL. */
void br_metrics_print(const struct br_metrics *metrics, enum br_metrics_format format,
                      br_metric_help_fn *help, br_metric_hidden_fn *hidden, struct br_str *out);

/* Appends the metric family that identifies the process: the gauge target_info, or the info
 * metric `target` of OpenMetrics. `labels` has the form that br_metric requires. */
void br_metrics_print_target(const char *labels, enum br_metrics_format format, struct br_str *out);

/* Counts all records and their results by signal: received + restored = sent + rejected +
 * sum(dropped) + stored + held, between any two calls into the core. The worker's ledger counts
 * each received record once. An exporter's ledger counts the records that arrive at the exporter,
 * each time they arrive. */
struct br_ledger {
    double *received[BR_SIGNALS], *sent[BR_SIGNALS], *rejected[BR_SIGNALS], *held[BR_SIGNALS];
    /* records written to a durable queue, and records read back from it for delivery */
    double *stored[BR_SIGNALS], *restored[BR_SIGNALS];
    /* records dropped for reasons whose metric could not be created */
    double *dropped_other[BR_SIGNALS];
    double *empty[BR_SIGNALS]; /* worker's ledger: number of requests without records */
    /* ledger of a worker: number of records that were received in requests which have not been
     * answered yet */
    double *unanswered[BR_SIGNALS];
    /* metrics of the worker, to which dropped{reason} is added when a reason first occurs */
    struct br_metrics *metrics;
    /* id of the exporter, borrowed for the ledger's life; NULL: the ledger of a worker */
    const char *exporter;
};

/* Creates the metrics of the ledger: braid_exporter_* if `exporter` is an id, braid_ledger_* if
 * it is NULL. Returns 0, or BR_ENOMEM if one of the metrics could not be created, because the
 * sums of the ledger would then be wrong. */
int br_ledger_init(struct br_ledger *ledger, struct br_metrics *metrics, const char *exporter);

/* Counts `count` records that were dropped for a reason ("lagging", "retries_exhausted", ...). */
void br_ledger_dropped(struct br_ledger *ledger, enum br_signal signal, const char *reason,
                       uint32_t count);
