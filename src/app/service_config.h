/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the parts of the config's `service` that say how the process itself runs: its logs and
 * metrics, its workers.
 */
#pragma once

#include "app/config.h"

/* The keys of `service` and of `service::telemetry`. */
extern const struct br_option br_service_options[], br_telemetry_options[];

/* Reads service::telemetry (`node` may be NULL) and service::workers. Return 0, or BR_EINVAL or
 * BR_ENOMEM with errors added. */
int br_telemetry_read(const struct br_yaml *node, struct br_telemetry_config *ret,
                      struct br_arena *arena, struct br_errs *errs);
int br_workers_read(const struct br_yaml *node, unsigned *ret, struct br_errs *errs);

/* Returns the tree of service::telemetry with every key and the value that holds, as it was read
 * from `node` into `config`; NULL when memory runs out. */
struct br_yaml *br_telemetry_effective(const struct br_yaml *node,
                                       const struct br_telemetry_config *config,
                                       struct br_arena *arena);
