/* SPDX-License-Identifier: Apache-2.0 */
/* The types and functions that the files of TraceQL share. */
#pragma once

#include "query/traceql.h"

enum br_traceql_token_kind {
    BR_TRACEQL_END,
    BR_TRACEQL_PUNCT,   /* `op`: one to three characters */
    BR_TRACEQL_WORD,    /* name, span:id, count_over_time */
    BR_TRACEQL_NAME,    /* an attribute: `scope`, and the name in `value` */
    BR_TRACEQL_LITERAL, /* a string, number or duration: `value` */
};

struct br_traceql_token {
    enum br_traceql_token_kind kind;
    const char *text; /* as it stands in the query */
    size_t len;
    char op[4]; /* PUNCT */
    enum br_traceql_scope scope;
    struct br_traceql_value value;
    int line, col;
};

struct br_traceql_lexer {
    const char *at, *end;
    int line, col;
    struct br_arena *arena;
    struct br_err *err;
};

void br_traceql_lexer_init(struct br_traceql_lexer *lexer, const char *text, size_t len,
                           struct br_arena *arena, struct br_err *err);

/* Reads the next token; END at the end, again and again. Returns 0, BR_EINVAL, BR_EUNSUPPORTED or
 * BR_ENOMEM. */
int br_traceql_lexer_next(struct br_traceql_lexer *lexer, struct br_traceql_token *ret);

/* Numbers the trees below roots, in the order of starts; what hangs on no root has 0. Returns 0 or
 * BR_ENOMEM. */
int br_traceql_trace_nest(struct br_traceql_trace *trace, struct br_arena *arena);

struct br_str;

/* Appends bytes that are equal for equal values alone. */
void br_traceql_value_key(struct br_str *key, const struct br_traceql_value *value);

/* Fails at a place of the query: "line:col: ...". Returns `code`. */
int br_traceql_fail(struct br_err *err, int code, int line, int col, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
