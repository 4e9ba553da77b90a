/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of the lexers of small languages: the position in the text, errors that state the
 * position, blanks, words, numbers, and strings with the escapes of Go. Each language has its own
 * grammar and describes its differences in a struct br_lexer_rules.
 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/decimal.h"
#include "base/err.h"

struct br_lexer_rules {
    const char *blanks; /* characters between tokens */
    bool comments;      /* a comment begins with "#" and ends with its line */
    /* errors contain the number of the character instead of line and column, and strings may
     * contain line ends */
    bool one_line;
    const char *label; /* text before each message of an error: "parse error: " */
    /* error messages for strings: without an end, with a line end (unused with `one_line`), and
     * with an unknown escape */
    const char *unended, *unended_line, *unknown_escape;
};

struct br_lexer {
    const struct br_lexer_rules *rules;
    const char *text, *at, *end; /* the text, the next character, and the end of the text */
    struct br_arena *arena;      /* owns the strings */
    struct br_err *err;          /* receives errors; may be NULL */
};

/* Returns the line and column of the character `at` of the text, both counted from 1. The column
 * counts characters, not bytes. */
void br_lexer_place(const struct br_lexer *lexer, const char *at, int *ret_line, int *ret_col);

/* Reports an error at the character `at` of the text: "line:col: " (also in err->line and err->col)
 * or "at character N: ", the label, and a printf-style message. Returns `code`. */
int br_lexer_fail(const struct br_lexer *lexer, const char *at, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int br_lexer_vfail(const struct br_lexer *lexer, const char *at, int code, const char *fmt,
                   va_list ap) __attribute__((format(printf, 4, 0)));

/* Skips blanks and comments. */
void br_lexer_skip(struct br_lexer *lexer);

/* If the text continues with `token`, skips it and returns true. If `token` is a word, it does not
 * match the beginning of a longer word. */
bool br_lexer_take(struct br_lexer *lexer, const char *token);

/* Returns true if the next character is one of `letters`. */
bool br_lexer_at(const struct br_lexer *lexer, const char *letters);

/* Returns true for an ASCII letter, a digit or an underscore. `letter` is a char. */
static inline bool br_is_word(int letter)
{
    int lower = letter | 0x20;
    return (lower >= 'a' && lower <= 'z') || br_is_digit(letter) || letter == '_';
}

/* Returns the number of word characters at `p`. */
size_t br_word_len(const char *p, const char *end);

/* Returns true for a word that does not begin with a digit. */
static inline bool br_is_identifier(const char *text, size_t len)
{
    return len && !br_is_digit(*text) && br_word_len(text, text + len) == len;
}

/* Reads a string. The next character must be the string's opening quote. In a string in
 * backquotes, a backslash is an ordinary character. `*ret` is in the arena and has a terminator
 * that `*ret_len` does not count. Returns 0, BR_EINVAL with an error, or BR_ENOMEM if
 * br_arena_alloc fails. */
int br_lexer_string(struct br_lexer *lexer, const char **ret, size_t *ret_len);

/* Returns the length of the number at `p`: digits with an optional decimal point. Returns 0 if
 * there are no digits, or more than 64. */
size_t br_lexer_decimal(const char *p, const char *end, bool *ret_point);

/* Returns the length of the number at `p`: digits with an optional decimal point and an optional
 * exponent of at most five digits. Returns 0 if there are no digits before the exponent, or more
 * than 64. `*ret_whole` is true if the number has neither a point nor an exponent. */
size_t br_lexer_number(const char *p, const char *end, bool *ret_whole);

/* Returns the value of a number that br_lexer_decimal or br_lexer_number found. */
double br_lexer_real(const char *text, size_t len);
