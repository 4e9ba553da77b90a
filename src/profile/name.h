/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the query of Pyroscope's /ingest: the application's name with its labels, the type that the
 * name's last part gives to formats that carry none, and times. Source: grafana/pyroscope
 * api/model/labelset, pkg/ingester/pyroscope, pkg/og/util/attime.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "otlp/edit/edit.h"

#define BR_APP_NAME_MAX (64 * 1024) /* bytes of name and labels */
#define BR_LABELS_MAX 128           /* labels of a series; Pyroscope refuses more than 30 */

struct br_label {
    const char *name;
    size_t name_len;
    const char *value;
    size_t value_len;
};

struct br_app_name {
    const char *app;
    size_t app_len;
    struct br_label *labels; /* in the order they came; of equal names the last one's value */
    size_t n_labels;
};

/* Parses `app{k=v,k2=v2}`. Names and values are trimmed and not quoted; a value ends at `,` or `}`,
 * and more labels may follow either; a value that nothing ends and a key without `=` are left out,
 * and a
 * `}` where a key should be ends it all. A label `__name__` replaces the application's name.
 * Results point into `text` and into the arena. Returns 0; BR_EINVAL with Pyroscope's sentence
 * without its "name: " ("service name is required"), or one about our maxima; or BR_ENOMEM. */
int br_app_name_parse(const char *text, size_t len, struct br_arena *arena, struct br_app_name *ret,
                      struct br_err *err);

/* Makes the series labels that Pyroscope makes of it, in an array in the arena: labels that begin
 * with `__` go, but for `__session_id__`; the first `app_len` bytes of the application's name are
 * added as `service_name`. Where the labels have a `service_name` of their own, they become
 * `app_name` instead (unless there is one) if `app_name` is set: it is for text formats and JFR,
 * and not for pprof. Points into what `name` points into. Returns 0 or BR_ENOMEM. */
int br_app_labels(const struct br_app_name *name, size_t app_len, bool app_name,
                  struct br_arena *arena, struct br_label **ret, size_t *ret_n);

/* What a label `service.name` is as an attribute where `service_name` has the attribute's name: a
 * client may have both. */
#define BR_LABEL_SERVICE_NAME "pyroscope.label.service.name"

/* Encodes labels as Resource attributes for br_build_resource. `service_name` becomes
 * `service.name`, beside which a label of that name is BR_LABEL_SERVICE_NAME; of equal names the
 * last one stays; bytes that are not UTF-8 become U+FFFD. Labels without a name are left out.
 * Returns 0, BR_EINVAL (more than BR_LABELS_MAX labels, or more than BR_APP_NAME_MAX bytes in
 * all), or BR_ENOMEM; `*ret` is untouched on failure. */
int br_labels_resource(struct br_arena *arena, const struct br_label *labels, size_t count,
                       struct br_addition *ret);

/* What the last dot part of an application's name says of folded text, lines, trie, tree and
 * speedscope. All are constants. The readers multiply counts of "cpu" and "wall" by the sampling
 * period and file nanoseconds; where a client says `sampleRate=0`, Pyroscope does not, and files
 * "samples" of "count" under the same name. */
struct br_app_type {
    const char *name;  /* `__name__`: "process_cpu", "wall", "memory" ... */
    const char *type;  /* for br_profile_source: "cpu", "wall", "alloc_space" ... */
    const char *units; /* of the numbers in the text: "count", "bytes", "nanoseconds" */
    size_t app_len;    /* the name without that part and its dot */
};

/* Finds the type of an application's name. A name without a dot is "cpu". Returns 0, or BR_EINVAL
 * "unknown profile type: x". */
int br_app_type_find(const char *app, size_t app_len, struct br_app_type *ret, struct br_err *err);

/* Reads `from` and `until`: digits are unix seconds, of 13 ms, of 16 us, of 19 ns; 8 digits that
 * are a date are YYYYMMDD in UTC; anything else is `now_ns` with the offset behind its first `+`
 * or `-`: "now-1h30min". Spaces, `_` and `,` are skipped. As Pyroscope: never an error, and what
 * has no meaning counts nothing; before 1970 is 0 and after 2554 is the last ns that has a number.
 */
uint64_t br_app_time(const char *text, size_t len, uint64_t now_ns);
