/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles and evaluates conditions in the Collector's expression language (OTTL). Braid supports
 * the part of the language that filters use: == != < <= > >= between paths and literals,
 * IsMatch(path, "pattern"), IsRootSpan(), true, false, and, or, not, parentheses. Literals are
 * texts, whole numbers, floats, true, false, nil, and the enums SPAN_KIND_* and STATUS_CODE_*.
 *
 * Paths for spans are name, kind, kind.string, kind.deprecated_string, status.code, status.message,
 * start_time_unix_nano, end_time_unix_nano, trace_state, trace_id.string, span_id.string,
 * parent_span_id.string, attributes["key"]. Paths for profiles are attributes["key"],
 * sample_type.type, sample_type.unit, duration_unix_nano, period, sample.attributes["key"]. Paths
 * for both are resource.attributes["key"], scope.name, scope.version, scope.attributes["key"];
 * `scope` may also be written as instrumentation_scope.
 *
 * Values are compared as in the Collector (pkg/ottl/LANGUAGE.md, "Comparison Rules"). An absent
 * value is nil. Values of different types are not equal, and neither less nor greater. Whole
 * numbers and floats are compared as floats. true is greater than false. IsMatch searches for the
 * pattern anywhere in a text, or in a number or boolean written as a text, and does not match nil.
 */
#pragma once

#include "attribute/attributes.h"
#include "attribute/regex.h"
#include "base/err.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/edit/rewrite.h"
#include "otlp/groups.h"

#define BR_CONDITION_NO_EVENTS "events of spans are not dropped here; only whole spans are"

/* The context of a path that does not begin with the name of a context, such as `name` instead of
 * `span.name`. */
enum br_condition_context {
    BR_CONDITION_SPAN,
    BR_CONDITION_PROFILE,
    BR_CONDITION_RESOURCE,
    /* a path that does not begin with the name of a context is an error */
    BR_CONDITION_NAMED,
};

struct br_condition; /* a compiled condition */

#define BR_CONDITION_MAX 65536u /* maximum length of one condition, in bytes */

/* A list of conditions for one signal. The list is true if at least one condition is true. The
 * struct must be zeroed at first, and may be used by only one thread. */
struct br_conditions {
    struct br_condition **items;
    uint32_t count, cap;
    struct br_regex regex;
    /* number of times that matching a pattern took too long and counted as no match; the caller
     * resets this number */
    unsigned n_gave_up;
    /* The current item, and data that is valid until br_conditions_end. */
    struct br_item *item;
    struct br_dictionary_view view;
    struct br_groups groups;
    struct br_arena arena;
    struct br_value_memo memo;
    /* attributes of the current span or sample (`own`), resource, scope and profile; each list is
     * read when a condition first needs it */
    struct br_attributes own, resource, scope, profile;
    bool own_read, resource_read, scope_read, profile_read;
    /* index in the item of the ResourceSpans or ResourceProfiles that `resource` was read from */
    uint32_t part;
    const uint8_t *scope_at; /* address of the scope that `scope` was read from */
    /* Numbers of groups (otlp/groups.h), scopes and resources begun so far in all items. A cached
     * value is still valid if the number at which it was read equals the current number. */
    uint64_t n_groups, n_scopes, n_resources;
    const struct br_visit *visit;
    char hex[2][65]; /* trace or span ids in hex, one for each operand of a comparison */
    unsigned n_hex;
    int rc;
};

/* Compiles a condition in `arena` and adds it to the list. Returns 0 or BR_ENOMEM. Returns
 * BR_EINVAL if the condition is invalid, and BR_EUNSUPPORTED if the Collector would use it to
 * drop events of spans. The message for these errors is a sentence that starts with "at
 * character N: ". */
int br_conditions_add(struct br_conditions *conditions, const char *text, enum br_signal signal,
                      enum br_condition_context context, struct br_arena *arena,
                      struct br_err *err);

/* Completes the list of conditions and limits the time for matching patterns. Borrows `time`
 * until br_conditions_release. Returns 0 or BR_ENOMEM. */
int br_conditions_ready(struct br_conditions *conditions, struct br_regex_time *time);
void br_conditions_release(struct br_conditions *conditions);

/* Begins the evaluation for an item. In profiles, references to strings in attributes are first
 * replaced by the strings (br_item_inline_references). Returns 0, BR_EINVAL (the item was not
 * validated by br_walk) or BR_ENOMEM. */
int br_conditions_begin(struct br_conditions *conditions, struct br_item *item);
void br_conditions_end(struct br_conditions *conditions);

/* Evaluates the conditions for the span or sample that br_item_rewrite is visiting. Must be called
 * in the order of the visits. Returns 1 if at least one condition is true, otherwise 0. On failure
 * returns BR_EFULL (too many attributes) or BR_ENOMEM. */
int br_conditions_hold(struct br_conditions *conditions, const struct br_visit *visit);

/* --- For condition*.c only -------------------------------------------------------------------- */

/* The types below represent compiled conditions. */

enum br_condition_field {
    CONDITION_LITERAL,
    CONDITION_ATTRIBUTE, /* value of an attribute of the span or sample */
    CONDITION_RESOURCE_ATTRIBUTE,
    CONDITION_SCOPE_ATTRIBUTE,
    CONDITION_PROFILE_ATTRIBUTE,
    CONDITION_SCOPE_NAME,
    CONDITION_SCOPE_VERSION,
    CONDITION_NAME,
    CONDITION_KIND,
    CONDITION_KIND_STRING,
    CONDITION_KIND_OLD_STRING,
    CONDITION_STATUS_CODE,
    CONDITION_STATUS_MESSAGE,
    CONDITION_START,
    CONDITION_END,
    CONDITION_TRACE_STATE,
    CONDITION_TRACE_STATE_KEY, /* value of the trace state's member `key` */
    CONDITION_TRACE_ID,
    CONDITION_SPAN_ID,
    CONDITION_PARENT_ID,
    CONDITION_TYPE,
    CONDITION_UNIT,
    CONDITION_DURATION,
    CONDITION_PERIOD,
};

/* One operand of a comparison. The literal nil has the type EMPTY. */
struct br_condition_operand {
    enum br_condition_field field;
    const char *key; /* key of an attribute or of a member of trace_state */
    size_t key_len;
    struct br_any literal;
    /* for an operand that belongs to a group (otlp/groups.h), a scope or a resource: the value that
     * was read last */
    struct br_any known;
    uint64_t known_in; /* number of the group, scope or resource that `known` was read from */
};

enum br_condition_op {
    CONDITION_OR, /* `or`, with one or more children */
    CONDITION_AND,
    CONDITION_NOT, /* `not`, with one child */
    CONDITION_CONSTANT,
    CONDITION_MATCH, /* IsMatch(a, pattern) */
    CONDITION_ROOT,  /* IsRootSpan() */
    CONDITION_EQ,
    CONDITION_NE,
    CONDITION_LT,
    CONDITION_LE,
    CONDITION_GT,
    CONDITION_GE,
};

struct br_condition {
    enum br_condition_op op;
    bool constant;
    /* IsMatch on a value of a group, scope or resource: the result for the group, scope or
     * resource with the number `left.known_in` */
    bool matched;
    struct br_condition_operand left, right;
    pcre2_code *pattern;
    /* `first`: the first child; `next`: the next child of the same parent */
    struct br_condition *first, *next;
    /* next entry in the list of all nodes of the condition that have a pattern */
    struct br_condition *patterns;
};
