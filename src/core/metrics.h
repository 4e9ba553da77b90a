/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters and gauges of one worker. A metric is found or made once, when a node is created, and is
 * then a plain number that only its worker touches. A scrape asks every worker for a snapshot taken
 * between two loop turns, adds them up by name and labels, and prints Prometheus text
 * (prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "core/item.h"

struct br_metrics;

enum br_metric_type { BR_COUNTER, BR_GAUGE };

#define BR_METRICS_MAX 8192 /* per worker */

struct br_metrics *br_metrics_new(void);
void br_metrics_free(struct br_metrics *metrics);

/* The number behind a metric, made at 0 where it is new. `labels` is Prometheus text without braces
 * (`exporter="otlp/tempo"`, see br_label), or "" for none; both strings are copied. Never NULL:
 * past the maximum, or without memory, it is a number that no scrape shows. It lives as long as
 * `metrics`. */
double *br_metric(struct br_metrics *metrics, enum br_metric_type type, const char *name,
                  const char *labels);

/* Appends `name="value"` to `out`, with the value escaped, after a comma where `out` is not empty.
 */
void br_label(struct br_str *out, const char *name, const char *value);

/* Adds every number of `from` to the one of the same name and labels in `into`. Returns 0 or
 * BR_ENOMEM. */
int br_metrics_add(struct br_metrics *into, const struct br_metrics *from);

/* Appends all metrics as Prometheus text, sorted by name. */
void br_metrics_print(const struct br_metrics *metrics, struct br_str *out);

/* What became of everything that came, per signal: received = sent + rejected + sum(dropped) +
 * held, at every moment between two calls into the core. The worker's ledger counts what came in,
 * each span and sample once. An exporter's counts what came to that exporter, as often as it came.
 */
struct br_ledger {
    double *received[BR_SIGNALS], *sent[BR_SIGNALS], *rejected[BR_SIGNALS], *held[BR_SIGNALS];
    double *dropped_other[BR_SIGNALS]; /* of reasons that there was no memory for */
    double *empty[BR_SIGNALS];         /* the worker's: requests that had no spans or samples */
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
