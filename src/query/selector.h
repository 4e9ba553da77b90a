/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses label selectors: Prometheus' vector selectors without offset, as Pyroscope supports them.
 *
 *   selector = [ name ] [ "{" [ matcher { "," matcher } [ "," ] ] "}" ]
 *   matcher  = ( name | string ) ( "=" | "!=" | "=~" | "!~" ) string
 *   name     = letter or "_", then letters, digits and "_"
 *   string   = "..." or '...' with Go's escapes, or `...` without escapes
 *
 * Spaces, newlines and comments (`#` to the end of the line) may be between the elements of a
 * selector. A name in front of the brackets is a matcher for the label `__name__`. A label name
 * with characters other than letters, digits and "_" is written as a string. A regular expression
 * must match the whole value of a label. An empty selector, like "{}", matches everything. Source:
 * prometheus promql/parser/generated_parser.y, lex.go.
 */
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"
#include "storage/store.h"

#define BR_SELECTOR_MAX 65536 /* maximum number of bytes of a selector */
#define BR_SELECTOR_MATCHERS_MAX 64
#define BR_SELECTOR_REGEX_MAX 4096 /* maximum number of bytes of a regular expression */

struct br_selector {
    struct br_matcher *matchers;
    size_t n_matchers;
};

/* Parses a selector; the matchers are allocated in `arena`. Regular expressions are checked and
 * returned unchanged. Returns 0, BR_EINVAL, BR_ENOMEM or BR_EFULL (the arena's limit). For
 * BR_EINVAL, both `err` and its message contain the position: "1:13: parse error: ...". */
int br_selector_parse(const char *text, size_t len, struct br_arena *arena, struct br_selector *ret,
                      struct br_err *err);

/* --- Profile types (profile_type.c) ----------------------------------------------------------- */

/*
 * Parses and writes Pyroscope's ids of profile types: `name:type:unit:period_type:period_unit`, for
 * instance "process_cpu:cpu:nanoseconds:cpu:nanoseconds". In a query, an id may also consist of the
 * first three parts only, or have a sixth part "delta".
 *
 * Series are selected as `<id>{<selector>}`. The older form with an application name, such as
 * `order-service.cpu{...}`, is supported too. Source: grafana/pyroscope pkg/model/profile.go.
 */

#define BR_PROFILE_TYPE_MAX 1024 /* maximum number of bytes of a profile type's id */

struct br_profile_type {
    /* the id without the part "delta" */
    const char *id;
    bool whole; /* true: the id has all five parts */
    /* the parts of the id, in their order; "" for a missing part */
    const char *name, *type, *unit, *period_type, *period_unit;
};

/* Parses an id; the strings of the result are in `arena`. Returns 0, BR_EINVAL with a message,
 * BR_ENOMEM or BR_EFULL. */
int br_profile_type_parse(const char *text, size_t len, struct br_arena *arena,
                          struct br_profile_type *ret, struct br_err *err);

/* Parses an application name. `order-service.cpu` selects the service "order-service" and the type
 * under which Pyroscope stores `cpu`. The id of that profile type has only the first three parts. A
 * name without a known suffix is a service with the type process_cpu:cpu:nanoseconds. Returns the
 * same errors as br_profile_type_parse. */
int br_profile_type_app(const char *text, size_t len, struct br_arena *arena,
                        struct br_profile_type *ret, const char **ret_service, struct br_err *err);

/* Returns the unit that Pyroscope's render API reports for a type, and stores the sample rate in
 * Hz. CPU types have the unit "samples" and the rate 1e9. Counts of objects, goroutines or
 * samples have the unit "objects" and the rate 100. Other types keep their unit and have the
 * rate 100. */
const char *br_profile_type_units(const struct br_profile_type *type, uint32_t *ret_rate);

/* Returns true if the type is a gauge, whose values must not be added up over time: memory in
 * use, goroutines, live objects. */
bool br_profile_type_is_gauge(const struct br_profile_type *type);
