/* SPDX-License-Identifier: Apache-2.0 */
/* Says in one line what every metric of Braid counts. A new metric is a new line here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Returns the line of a metric, by its name without a suffix; NULL for one that is not known. */
const char *br_metric_help(const char *name);

/* Returns whether a metric is shown at the level `detailed` only, as the Collector's views have it.
 */
bool br_metric_is_detailed(const char *name);
