/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses and writes Pyroscope's ids of profile types: `name:type:unit:period_type:period_unit`, for
 * instance "process_cpu:cpu:nanoseconds:cpu:nanoseconds". A query may also contain only the first
 * three parts, or a sixth one, "delta".
 *
 * Series are selected as `<id>{<selector>}`. The older form with an application name, such as
 * `order-service.cpu{...}`, is supported too. Source: grafana/pyroscope pkg/model/profile.go.
 */
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"

#define BR_PROFILE_TYPE_MAX 1024 /* most bytes of an id */

struct br_profile_type {
    const char *id;                                             /* without "delta" */
    bool whole;                                                 /* the id has all five parts */
    const char *name, *type, *unit, *period_type, *period_unit; /* "" for missing parts */
};

/* Parses an id; the strings of the result are in `arena`. Returns 0, BR_EINVAL with a message,
 * BR_ENOMEM or BR_EFULL. */
int br_profile_type_parse(const char *text, size_t len, struct br_arena *arena,
                          struct br_profile_type *ret, struct br_err *err);

/* Parses an application name. `order-service.cpu` selects the service "order-service" and the
 * type under which Pyroscope stores `cpu`, with three parts. A name without a known suffix is a
 * service with the type process_cpu:cpu:nanoseconds. Returns the same errors as
 * br_profile_type_parse. */
int br_profile_type_app(const char *text, size_t len, struct br_arena *arena,
                        struct br_profile_type *ret, const char **ret_service, struct br_err *err);

/* Returns the unit that Pyroscope's render API reports, and stores the sample rate in Hz. CPU is
 * "samples" at 1e9, counts of objects are "objects" at 100, and other types have their unit at
 * 100. */
const char *br_profile_type_units(const struct br_profile_type *type, uint32_t *ret_rate);

/* Returns true if the type is a gauge, whose values must not be added up over time: memory in
 * use, goroutines, live objects. */
bool br_profile_type_is_gauge(const struct br_profile_type *type);
