/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of conditions and statements, for condition_parse*.c and statement.c. */
#pragma once

#include "attribute/expression.h"
#include "base/lexer.h"

#define BR_CONDITION_BLANKS " \t\n\v\f\r" /* characters between the tokens of an expression */

struct br_parser {
    struct br_conditions *conditions; /* owns the compiled patterns */
    struct br_lexer lexer;
    enum br_signal signal;
    /* context of paths that do not begin with the name of a context */
    enum br_condition_context context;
    /* context in which the expression is evaluated; its paths include those of outer contexts */
    enum br_condition_context level;
    /* the text is a condition of a filter, in which the cache and events cannot be used */
    bool filter;
    unsigned depth, value_depth; /* number of levels of nested conditions, and of nested values */
    int rc;
};

/* Begins a text. Returns 0, or BR_EINVAL with a message if the text is too long. */
int br_parser_begin(struct br_parser *parser, const char *text, struct br_arena *arena,
                    struct br_err *err);

/* Reports an error at a character, unless an error was reported before. Returns NULL. */
void *br_parser_fail(struct br_parser *parser, const char *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Reports that an expression is supported by the Collector but not by Braid. Returns NULL. */
void *br_parser_lack(struct br_parser *parser, const char *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns `memory`. If `memory` is NULL, reports that memory ran out. */
void *br_parser_keep(struct br_parser *parser, void *memory);

/* If the text continues with the operator or word `token`, skips the token and returns true. */
bool br_parser_take(struct br_parser *parser, const char *token);

struct br_expression *br_parser_expression(struct br_parser *parser, enum br_expression_kind kind);

/* The functions below parse parts of an expression. They return NULL or false after an error. */

struct br_expression *br_parser_value(struct br_parser *parser);

/* Parses a whole condition up to the end of the text. `what` names the text for messages. */
struct br_condition *br_parser_condition(struct br_parser *parser, const char *what);

/* Parses keys in brackets, if there are any. */
bool br_parser_keys(struct br_parser *parser, struct br_expression *into);

/* Parses a path (condition_paths.c). */
struct br_expression *br_parser_path(struct br_parser *parser);

/* Parses a call of a function of the table (condition_calls.c). */
struct br_expression *br_parser_call(struct br_parser *parser, const struct br_function *table);

/* Returns true if the path can be changed by a statement of the parser's context. Otherwise
 * reports an error at the character `at`. */
bool br_parser_can_change(struct br_parser *parser, const struct br_expression *path,
                          const char *at);
