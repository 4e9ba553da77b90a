/* SPDX-License-Identifier: Apache-2.0 */
/* Pyroscope's query API: the methods about series, and what they share with those about stacks. */
#pragma once

#include "extensions/query/pick.h"

/* Sets the range of `pick`: Unix milliseconds, both ends included, end 0: no end. Returns false
 * after query_job_fail (400). */
bool query_pyroscope_range(struct query_job *job, int64_t start, int64_t end,
                           struct query_pick *pick);

/* Sets type, selector and range. Returns false after query_job_fail. */
bool query_pyroscope_pick(struct query_job *job, const char *type, const char *selector,
                          int64_t start, int64_t end, struct query_pick *pick);

/* Handlers (pyroscope_series.c). */
void query_pyroscope_series(struct query_job *job);
void query_pyroscope_select_series(struct query_job *job);
void query_pyroscope_select_heatmap(struct query_job *job);
