/* SPDX-License-Identifier: Apache-2.0 */
/* Pyroscope's query API: the methods about series, and what they share with those about stacks. */
#pragma once

#include "extensions/query/pick.h"
#include "querier/v1/querier.pb-c.h"

/* Sets the range of `pick`: Unix milliseconds, both ends included, end 0: no end. Returns false
 * after query_job_fail (400). */
bool query_pyroscope_range(struct query_job *job, int64_t start, int64_t end,
                           struct query_pick *pick);

/* Sets type, selector and range. Returns false after query_job_fail. */
bool query_pyroscope_pick(struct query_job *job, const char *type, const char *selector,
                          int64_t start, int64_t end, struct query_pick *pick);

/* Sets the call site of `pick`. Returns false after query_job_fail (400: too many functions, or a
 * go_pgo that keeps too many). */
bool query_pyroscope_stacks(struct query_job *job, const Querier__V1__StackTraceSelector *selector,
                            struct query_pick *pick);

/* Returns whether the client wants no label names that need quotes in a selector: the default,
 * which `allow-utf8-labelnames=true` in Accept turns off. */
bool query_pyroscope_wants_plain(const struct query_job *job);

/* Handlers (pyroscope_series.c). */
void query_pyroscope_series(struct query_job *job);
void query_pyroscope_select_series(struct query_job *job);
void query_pyroscope_select_heatmap(struct query_job *job);
