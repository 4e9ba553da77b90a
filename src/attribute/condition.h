/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles and evaluates conditions in the Collector's expression language (OTTL). It has the part
 * of the language that filters use: == != < <= > >= between paths and literals, IsMatch(path,
 * "pattern"), IsRootSpan(), true, false, and, or, not, parentheses. Literals are texts, whole
 * numbers, floats, true, false, nil, and the enums SPAN_KIND_* and STATUS_CODE_*.
 *
 * Paths: of spans name, kind, kind.string, kind.deprecated_string, status.code, status.message,
 * start_time_unix_nano, end_time_unix_nano, trace_state, trace_id.string, span_id.string,
 * parent_span_id.string, attributes["key"]; of profiles attributes["key"], sample_type.type,
 * sample_type.unit, duration_unix_nano, period; sample.attributes["key"];
 * resource.attributes["key"]; scope.name, scope.version, scope.attributes["key"] (also as
 * instrumentation_scope).
 *
 * Comparing is the Collector's (pkg/ottl/LANGUAGE.md, "Comparison Rules"): what is not there is
 * nil; values of different types are not equal, and neither less nor greater; whole numbers and
 * floats compare as floats; true is greater than false. IsMatch looks for the pattern anywhere in a
 * text, or in a number or boolean written as one, and does not match nil.
 */
#pragma once

#include "attribute/attributes.h"
#include "attribute/regex.h"
#include "base/err.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/edit/rewrite.h"
#include "otlp/groups.h"

#define BR_CONDITION_NO_EVENTS "events of spans are not dropped here; only whole spans are"

/* What a path without a context speaks of. */
enum br_condition_context {
    BR_CONDITION_SPAN,
    BR_CONDITION_PROFILE,
    BR_CONDITION_RESOURCE,
    BR_CONDITION_NAMED, /* nothing: each path names its context */
};

struct br_condition; /* a compiled one */

#define BR_CONDITION_MAX 65536u /* bytes of one */

/* Conditions of one signal, any of which is enough. Zeroed at first; for one thread. */
struct br_conditions {
    struct br_condition **items;
    uint32_t count, cap;
    struct br_regex regex;
    unsigned
        n_gave_up; /* times that a pattern took too long and did not match; its reader resets it */
    /* The item at hand. */
    struct br_item *item;
    struct br_dictionary_view view;
    struct br_groups groups;
    struct br_arena arena;
    struct br_value_memo memo;
    struct br_attributes own, resource, scope, profile; /* read when asked for */
    bool own_read, resource_read, scope_read, profile_read;
    uint32_t part;           /* that `resource` is of */
    const uint8_t *scope_at; /* the scope that `scope` is of */
    /* Begun so far, of all items; what is read of one is kept. */
    uint64_t n_groups, n_scopes, n_resources;
    const struct br_visit *visit;
    char hex[2][65]; /* ids as text, of the two sides of a comparison */
    unsigned n_hex;
    int rc;
};

/* Compiles one and adds it; what it needs lives in `arena`. Returns 0; BR_EINVAL with a sentence
 * that starts with "at character N: "; BR_EUNSUPPORTED with such a sentence for one that drops
 * events of spans in the Collector; or BR_ENOMEM. */
int br_conditions_add(struct br_conditions *conditions, const char *text, enum br_signal signal,
                      enum br_condition_context context, struct br_arena *arena,
                      struct br_err *err);

/* Ends the list of conditions: bounds what patterns may cost (borrows `time` until the release).
 * Returns 0 or BR_ENOMEM. */
int br_conditions_ready(struct br_conditions *conditions, struct br_regex_time *time);
void br_conditions_release(struct br_conditions *conditions);

/* Begins with an item; in profiles, attributes by reference are written inline. Returns 0,
 * BR_EINVAL (no walk has accepted it) or BR_ENOMEM. */
int br_conditions_begin(struct br_conditions *conditions, struct br_item *item);
void br_conditions_end(struct br_conditions *conditions);

/* Tells whether one of them holds for the span or sample that br_item_rewrite visits, in the order
 * of its visits. Returns 1, 0, BR_EFULL (it has too many attributes) or BR_ENOMEM. */
int br_conditions_hold(struct br_conditions *conditions, const struct br_visit *visit);
