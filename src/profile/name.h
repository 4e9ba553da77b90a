/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the query parameters of Pyroscope's /ingest: times, and the application name with its
 * labels. For formats that contain no profile type, the part of the application name after the last
 * dot is the profile type. Source: grafana/pyroscope api/model/labelset, pkg/ingester/pyroscope,
 * pkg/og/util/attime.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "otlp/edit/edit.h"

/* largest size of an application name with its labels, in bytes */
#define BR_APP_NAME_MAX (64 * 1024)
/* largest number of labels of a series; Pyroscope rejects more than 30 */
#define BR_LABELS_MAX 128

struct br_label {
    const char *name;
    size_t name_len;
    const char *value;
    size_t value_len;
};

struct br_app_name {
    const char *app;
    size_t app_len;
    /* labels in the order of the text; each name occurs once, with its last value */
    struct br_label *labels;
    size_t n_labels;
};

/* Parses `app{k=v,k2=v2}`. Label names and values are trimmed, and quotes have no meaning. A value
 * ends at `,` or `}`, and another label may follow either character. An unterminated value and a
 * key without `=` are ignored. A `}` where a key is expected ends the parsing. A label `__name__`
 * replaces the application name.
 *
 * The results point into `text` and into the arena. Returns 0 or BR_ENOMEM. Returns BR_EINVAL with
 * Pyroscope's message without the prefix "name: " ("service name is required"), or with a message
 * about Braid's limits. */
int br_app_name_parse(const char *text, size_t len, struct br_arena *arena, struct br_app_name *ret,
                      struct br_err *err);

/* Builds the labels of the series as Pyroscope does, in an array in the arena. Labels that begin
 * with `__` are removed, except `__session_id__`. The first `app_len` bytes of the application
 * name become the label `service_name`. If the labels already contain a `service_name` and
 * `app_name` is set, the application name becomes the label `app_name`, unless the labels
 * contain an `app_name`. Set `app_name` for text formats and JFR, not for pprof. The results
 * point to the same memory as `name`. Returns 0 or BR_ENOMEM. */
int br_app_labels(const struct br_app_name *name, size_t app_len, bool app_name,
                  struct br_arena *arena, struct br_label **ret, size_t *ret_n);

/* Attribute for a client's label `service.name`, used if the client also sends a label
 * `service_name`. The label `service_name` becomes the attribute `service.name`. */
#define BR_LABEL_SERVICE_NAME "pyroscope.label.service.name"

/* Encodes labels as Resource attributes for br_build_resource. `service_name` becomes
 * `service.name`; if there is also a label `service.name`, that label becomes
 * BR_LABEL_SERVICE_NAME. Only the last of several labels with the same name is kept. Invalid UTF-8
 * is replaced with U+FFFD. Labels without a name are ignored. Returns 0; BR_EINVAL for more than
 * BR_LABELS_MAX labels or more than BR_APP_NAME_MAX bytes; or BR_ENOMEM. `*ret` is unchanged on
 * failure. */
int br_labels_resource(struct br_arena *arena, const struct br_label *labels, size_t count,
                       struct br_addition *ret);

/* The profile type given by the suffix of an application name, for folded text, lines, trie, tree
 * and speedscope. All strings are constants. The readers of these formats multiply counts of "cpu"
 * and "wall" by the sampling period and write nanoseconds. With `sampleRate=0` Pyroscope does not
 * multiply the counts, and stores the type "samples" with the unit "count" under the same name. */
struct br_app_type {
    const char *name;  /* value of `__name__`: "process_cpu", "wall", "memory" ... */
    const char *type;  /* value of br_profile_source.type: "cpu", "wall", "alloc_space" ... */
    const char *units; /* unit of the values in the text: "count", "bytes", "nanoseconds" */
    size_t app_len;    /* length of the name without the suffix and its dot, in bytes */
};

/* Finds the type given by the suffix of an application name. A name without a dot has the type
 * "cpu". Returns 0, or BR_EINVAL with the message "unknown profile type: x". */
int br_app_type_find(const char *app, size_t app_len, struct br_app_type *ret, struct br_err *err);

/* Parses the parameters `from` and `until` and returns nanoseconds since 1970:
 *
 * - Eight digits that are a valid date are YYYYMMDD in UTC.
 * - Any other number is in seconds since 1970 or, if it has 13, 16 or 19 digits, in ms, us or ns.
 * - Any other text is `now_ns` with the offset after its first `+` or `-`: "now-1h30min".
 *
 * Spaces, `_` and `,` are skipped. As in Pyroscope, invalid text is not an error: unknown units
 * count as 0. Times before 1970 return 0, times after 2554 return UINT64_MAX. */
uint64_t br_app_time(const char *text, size_t len, uint64_t now_ns);
