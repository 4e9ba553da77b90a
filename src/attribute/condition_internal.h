/* SPDX-License-Identifier: Apache-2.0 */
/* The types of compiled conditions, which condition.c and condition_parse.c share. */
#pragma once

#include "attribute/condition.h"

enum br_condition_field {
    CONDITION_LITERAL,
    CONDITION_ATTRIBUTE, /* attribute of the span or sample */
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
    CONDITION_TRACE_STATE_KEY, /* value of one member of the trace state */
    CONDITION_TRACE_ID,
    CONDITION_SPAN_ID,
    CONDITION_PARENT_ID,
    CONDITION_TYPE,
    CONDITION_UNIT,
    CONDITION_DURATION,
    CONDITION_PERIOD,
};

/* One side of a comparison. A literal nil has the type EMPTY. */
struct br_condition_operand {
    enum br_condition_field field;
    const char *key; /* key of an attribute or of a member of trace_state */
    size_t key_len;
    struct br_any literal;
    /* operands of a group, a scope or a resource: the value that was read last */
    struct br_any known;
    uint64_t known_in; /* number of the group, scope or resource that `known` was read from */
};

enum br_condition_op {
    CONDITION_OR, /* or, with one or more children */
    CONDITION_AND,
    CONDITION_NOT, /* not, with one child */
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
    /* MATCH on a value of a group, scope or resource: the result for the group, scope or
     * resource with the number `left.known_in` */
    bool matched;
    struct br_condition_operand left, right;
    pcre2_code *pattern;
    struct br_condition *first, *next; /* first child; next child of the same parent */
    struct br_condition *patterns;     /* next node of the whole condition that has a pattern */
};
