/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Averages gauges over time. A gauge is an amount at the time of a profile, such as memory in use.
 * Its values are averaged over the profiles of one process and added up over processes.
 */
#pragma once

#include "extensions/query/query.h"

/* Adds the stacks that the filter selects to the current side of `flame`. Values are averaged
 * over the profiles of each process in the range; profiles are distinguished by their times.
 * Returns 0, BR_EINVAL, BR_EFULL, BR_EIO or BR_ENOMEM. */
int query_average_flame(struct query_job *job, const struct br_sample_filter *filter,
                        struct br_flame *flame, struct br_err *err);
