/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves Braid's metrics at GET /metrics as Prometheus text. If the names of metrics have suffixes,
 * a client can request OpenMetrics with the Accept header. Responses are compressed if the
 * Accept-Encoding header contains gzip.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/host.h"
#include "net/hosts.h"

struct br_telemetry;
struct br_telemetry_config;

/* Requests the sum of all workers' metrics. `done` is called once, in the first worker's thread,
 * and owns `sum`, which is NULL if memory ran out. */
typedef void br_snapshot_fn(void *arg, void (*done)(struct br_metrics *sum, void *done_arg),
                            void *done_arg);

/* Starts a server on hosts->endpoint. The texts in `hosts` are borrowed until br_telemetry_free.
 * Requests whose Host header does not match `hosts` are rejected. target_info has the labels of
 * `config` in addition to the defaults. Calls `snapshot(arg, ...)` for each scrape. Returns 0, or a
 * negative code with `err` set. */
int br_telemetry_new(struct br_host *host, const struct br_hosts *hosts,
                     const struct br_telemetry_config *config, br_snapshot_fn *snapshot, void *arg,
                     struct br_telemetry **ret, struct br_err *err);
void br_telemetry_free(struct br_telemetry *telemetry);

/* --- Help texts (metric_help.c) --------------------------------------------------------------- */

/* A new metric needs a new row in metric_help.c. */

/* Returns the help text of a metric, or NULL for an unknown metric. `name` must not end in a suffix
 * such as _total. */
const char *br_metric_help(const char *name);

/* Returns true if a metric is exported only at the level `detailed`, as in the Collector. */
bool br_metric_is_detailed(const char *name);
