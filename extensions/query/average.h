/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Averages gauges over time. The value of a gauge is an amount at the time of a profile: values of
 * several profiles of a process do not add up, and those of several processes do.
 */
#pragma once

#include "extensions/query/query.h"

/* Adds to `flame`, on its side, the stacks of the filter with their values averaged over the
 * profiles of their process that lie in the range. Profiles differ by their times. Returns as
 * br_store_flame. */
int query_average_flame(struct query_job *job, const struct br_sample_filter *filter,
                        struct br_flame *flame, struct br_err *err);
