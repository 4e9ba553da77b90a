/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves the endpoint with the service's own metrics: GET /metrics, Prometheus text, or with
 * suffixes of names also OpenMetrics by Accept, compressed where Accept-Encoding has gzip.
 */
#pragma once

#include "core/host.h"
#include "net/hosts.h"

struct br_telemetry;
struct br_telemetry_config;

/* Asks for the sum of all workers' metrics; `done` is called later, once, in the first worker's
 * thread, with metrics that it owns (NULL without memory). */
typedef void br_snapshot_fn(void *arg, void (*done)(struct br_metrics *sum, void *done_arg),
                            void *done_arg);

/* Serves on the endpoint of `hosts`, of which all texts are borrowed until br_telemetry_free, for
 * those that it answers to. target_info has the labels that `config` says beside its own.
 * `snapshot(arg, ...)` is called for each scrape. Returns 0 or a negative code with a sentence. */
int br_telemetry_new(struct br_host *host, const struct br_hosts *hosts,
                     const struct br_telemetry_config *config, br_snapshot_fn *snapshot, void *arg,
                     struct br_telemetry **ret, struct br_err *err);
void br_telemetry_free(struct br_telemetry *telemetry);
