/* SPDX-License-Identifier: Apache-2.0 */
/* Reads values from a scrape of a host's metrics. */
#pragma once

#include "core/host.h"

/* Returns the value of a metric, or -1 if it does not exist. `name` and `labels` have the form that
 * br_metric expects. */
double scrape_metric(const struct br_host *h, const char *name, const char *labels);

/* Returns the number of records that the ledger counts as dropped for a reason. If `reason` is
 * NULL, returns the number for all reasons. */
double scrape_dropped(const struct br_host *h, enum br_signal signal, const char *reason);

/* Returns the sum of all series of a metric whose labels contain the text `part`. */
double scrape_sum(const struct br_host *h, const char *name, const char *part);
