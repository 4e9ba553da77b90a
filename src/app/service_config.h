/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the keys of `service` that configure the process: logs, metrics and the number of workers.
 */
#pragma once

#include "app/config.h"

/* Option tables of `service` and of `service::telemetry`. */
extern const struct br_option br_service_options[], br_telemetry_options[];

/* Reads service::telemetry; `node` may be NULL. Returns 0, or BR_EINVAL or BR_ENOMEM with errors
 * in `errs`. */
int br_telemetry_read(const struct br_yaml *node, struct br_telemetry_config *ret,
                      struct br_arena *arena, struct br_errs *errs);

/* Reads service::workers, the number of workers, from `node`. Returns the same codes as
 * br_telemetry_read. */
int br_workers_read(const struct br_yaml *node, unsigned *ret, struct br_errs *errs);

/* Returns service::telemetry with every key and its effective value, as read from `node` into
 * `config`. Returns NULL if memory runs out. */
struct br_yaml *br_telemetry_effective(const struct br_yaml *node,
                                       const struct br_telemetry_config *config,
                                       struct br_arena *arena);
