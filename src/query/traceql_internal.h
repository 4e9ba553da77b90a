/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions shared by the files of TraceQL. */
#pragma once

#include "base/lexer.h"
#include "query/traceql.h"

enum br_traceql_token_kind {
    BR_TRACEQL_END,
    BR_TRACEQL_PUNCT,   /* an operator or bracket of one to three characters, in `op` */
    BR_TRACEQL_WORD,    /* a keyword, function or intrinsic: count_over_time, name, span:id */
    BR_TRACEQL_NAME,    /* an attribute, with its scope in `scope` and its name in `value` */
    BR_TRACEQL_LITERAL, /* a string, number or duration; the constant is in `value` */
};

struct br_traceql_token {
    enum br_traceql_token_kind kind;
    const char *text; /* first byte of the token in the query */
    size_t len;
    char op[4]; /* for PUNCT: the operator or bracket */
    enum br_traceql_scope scope;
    struct br_traceql_value value;
};

void br_traceql_lexer_init(struct br_lexer *lexer, const char *text, size_t len,
                           struct br_arena *arena, struct br_err *err);

/* Reads the next token. At the end of the query, the token is BR_TRACEQL_END. Returns 0,
 * BR_EINVAL, BR_EUNSUPPORTED or BR_ENOMEM. */
int br_traceql_lexer_next(struct br_lexer *lexer, struct br_traceql_token *ret);

/* Numbers the spans of each tree that begins with a root (nestedSetLeft and nestedSetRight); roots
 * are taken in the order of their start times. Spans that are not below a root get the number 0.
 * Returns 0 or BR_ENOMEM. */
int br_traceql_trace_nest(struct br_traceql_trace *trace, struct br_arena *arena);

struct br_str;

/* Appends a key for the value to `key`: two values have equal keys only if the values are equal. */
void br_traceql_value_key(struct br_str *key, const struct br_traceql_value *value);
