/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes ids of profile types, as Pyroscope has them:
 * `name:type:unit:period_type:period_unit`, as in "process_cpu:cpu:nanoseconds:cpu:nanoseconds".
 * Asked for may also be the first three parts alone, or a sixth, "delta". Series are called
 * `<id>{<selector>}`; the name that an application had before there were ids, as
 * `order-service.cpu{...}`, is understood too. Source: grafana/pyroscope pkg/model/profile.go.
 */
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"

#define BR_PROFILE_TYPE_MAX 1024 /* bytes of an id */

struct br_profile_type {
    const char *id; /* five parts; of three parts, these */
    bool whole;     /* it has five parts */
    const char *name, *type, *unit, *period_type, *period_unit; /* "" where it does not say */
};

/* Reads an id; what it returns lies in `arena`. Returns 0, BR_EINVAL with a sentence, BR_ENOMEM or
 * BR_EFULL. */
int br_profile_type_parse(const char *text, size_t len, struct br_arena *arena,
                          struct br_profile_type *ret, struct br_err *err);

/* Reads what an application's name says: `order-service.cpu` is the service "order-service" and
 * the type that Pyroscope files `cpu` under, with three parts; a name without a known last part is
 * a service whose type is process_cpu:cpu:nanoseconds. Returns as br_profile_type_parse. */
int br_profile_type_app(const char *text, size_t len, struct br_arena *arena,
                        struct br_profile_type *ret, const char **ret_service, struct br_err *err);

/* Gives unit and rate as Pyroscope's renders say them: CPU is "samples" at 1e9 a second, counts of
 * objects "objects", anything else its own unit, both at 100. */
const char *br_profile_type_units(const struct br_profile_type *type, uint32_t *ret_rate);

/* Returns whether the type is a gauge, whose values must not be added up over time: memory in use,
 * goroutines, live objects. */
bool br_profile_type_is_gauge(const struct br_profile_type *type);
