/* SPDX-License-Identifier: Apache-2.0 */
/* HELP texts of all metrics. A new metric needs a new row in metric_help.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Returns the help text of a metric, or NULL for an unknown metric. `name` must not have a
 * suffix. */
const char *br_metric_help(const char *name);

/* Returns true if a metric is exported only at the level `detailed`, as in the Collector. */
bool br_metric_is_detailed(const char *name);
