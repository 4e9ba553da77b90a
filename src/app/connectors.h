/* SPDX-License-Identifier: Apache-2.0 */
/* Checks how the pipelines of a configuration are connected by connectors. */
#pragma once

#include "app/config.h"

/* Adds an error to `errs` for each connector that is not used both as an exporter and as a receiver
 * of pipelines of one signal, for each route that names a wrong pipeline, and for a cycle of
 * pipelines. Returns 0 or BR_ENOMEM. */
int br_connectors_check(const struct br_config *config, struct br_arena *arena,
                        struct br_errs *errs);

/* Returns true if the pipeline lists the instance as a receiver. */
bool br_connectors_receives(const struct br_pipeline *pipeline, const struct br_instance *instance);

/* Returns true if a connector is an exporter of pipeline `from` and a receiver of pipeline `to`,
 * and both have the same signal. */
bool br_connectors_link(const struct br_pipeline *from, const struct br_pipeline *to);
