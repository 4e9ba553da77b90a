/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counters, gauges and histograms of one worker, and the text that a scrape gets of all
 * workers'. A metric is found or made once, when a node is created, and is then a plain number that
 * only its worker touches. A scrape asks every worker for a snapshot taken between two loop turns,
 * adds them up by name and labels, and prints Prometheus text
 * (prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4) or OpenMetrics
 * (github.com/prometheus/OpenMetrics, version 1.0.0).
 *
 * Counters are named here without their suffix: a format may print `_total` behind them, as the
 * Collector's exporter may.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "core/item.h"

struct br_metrics;

enum br_metric_type { BR_COUNTER, BR_GAUGE, BR_HISTOGRAM };
enum br_metrics_format {
    BR_METRICS_PLAIN,       /* Prometheus text, counters without a suffix */
    BR_METRICS_TEXT,        /* Prometheus text, counters end in _total */
    BR_METRICS_OPENMETRICS, /* which wants the suffix */
};

/* How often values were at most each of some bounds. */
struct br_histogram {
    double sum;
    const double *bounds; /* rising; constant for the life of the process */
    size_t n_bounds;
    double *counts; /* one more than there are bounds, not yet summed up; NULL: nothing is kept */
};

/* One line that says what a metric counts, by its name without a suffix; NULL: nobody knows. */
typedef const char *br_metric_help_fn(const char *name);

/* Whether a scrape leaves out the metric of that name. */
typedef bool br_metric_hidden_fn(const char *name);

#define BR_METRICS_MAX 8192 /* per worker */

struct br_metrics *br_metrics_new(void);
void br_metrics_free(struct br_metrics *metrics);

/* Returns the number behind a metric, made at 0 where it is new. `labels` is Prometheus text
 * without braces (`exporter="otlp/tempo"`, see br_label), or "" for none; both strings are copied.
 * Never NULL: past the maximum, or without memory, it is a number that no scrape shows. It lives as
 * long as `metrics`. */
double *br_metric(struct br_metrics *metrics, enum br_metric_type type, const char *name,
                  const char *labels);

/* Makes a histogram, whose bounds are borrowed for ever: equal for all of one name. */
struct br_histogram *br_histogram(struct br_metrics *metrics, const char *name, const char *labels,
                                  const double *bounds, size_t n_bounds);
void br_histogram_observe(struct br_histogram *histogram, double value);

/* Appends `name="value"` to `out`, with the value escaped, after a comma where `out` is not empty.
 */
void br_label(struct br_str *out, const char *name, const char *value);

/* Adds every number and histogram of `from` to the one of the same name and labels in `into`.
 * Returns 0 or BR_ENOMEM. */
int br_metrics_add(struct br_metrics *into, const struct br_metrics *from);

/* Appends all metrics, sorted by name and labels, in one of the formats; with a HELP line where
 * `help` knows one, and without those that are `hidden`. Both functions may be NULL. */
void br_metrics_print(const struct br_metrics *metrics, enum br_metrics_format format,
                      br_metric_help_fn *help, br_metric_hidden_fn *hidden, struct br_str *out);

/* Appends the family that says whose metrics these are: the gauge target_info, or OpenMetrics' info
 * metric `target`. `labels` as of br_metric. */
void br_metrics_print_target(const char *labels, enum br_metrics_format format, struct br_str *out);

/* What became of everything that came, per signal: received = sent + rejected + sum(dropped) +
 * held, at every moment between two calls into the core. The worker's ledger counts what came in,
 * each span and sample once. An exporter's counts what came to that exporter, as often as it came.
 */
struct br_ledger {
    double *received[BR_SIGNALS], *sent[BR_SIGNALS], *rejected[BR_SIGNALS], *held[BR_SIGNALS];
    double *dropped_other[BR_SIGNALS]; /* of reasons that there was no memory for */
    double *empty[BR_SIGNALS];         /* the worker's: requests that had no spans or samples */
    double *unanswered[BR_SIGNALS];    /* the worker's: received in requests without an answer yet */
    struct br_metrics *metrics;        /* dropped{reason} is made here when it first happens */
    const char *exporter; /* id, borrowed for the ledger's life; NULL: it is the worker's */
};

/* Makes the ledger's metrics: braid_ledger_*; or, with the id of an exporter, braid_exporter_*.
 * Returns 0, or BR_ENOMEM where one of them has no place: the sum of the others would not be right.
 */
int br_ledger_init(struct br_ledger *ledger, struct br_metrics *metrics, const char *exporter);

/* Counts `count` items that were given up for a reason ("lagging", "retries_exhausted", ...). */
void br_ledger_dropped(struct br_ledger *ledger, enum br_signal signal, const char *reason,
                       uint32_t count);
