/* SPDX-License-Identifier: Apache-2.0 */
/* What a scrape of a host's metrics shows. */
#pragma once

#include "core/host.h"

/* The value of a metric, -1 when there is none. `name` and `labels` as br_metric takes
 * them. */
double scrape_metric(const struct br_host *h, const char *name, const char *labels);

/* Sum of the spans or samples that the ledger says were dropped for a reason; NULL: for any. */
double scrape_dropped(const struct br_host *h, enum br_signal signal, const char *reason);

/* The sum of all series of a metric of which the labels have the text `part`. */
double scrape_sum(const struct br_host *h, const char *name, const char *part);
