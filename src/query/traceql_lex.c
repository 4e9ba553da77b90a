/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/str.h"
#include "query/traceql_internal.h"

#define NUMBER_MAX 64 /* most digits of a number */

int br_traceql_fail(struct br_err *err, int code, int line, int col, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    int rc = br_err_set(err, code, "%d:%d: %s", line, col, text);
    if (err) {
        err->line = line;
        err->col = col;
    }
    return rc;
}

void br_traceql_lexer_init(struct br_traceql_lexer *lexer, const char *text, size_t len,
                           struct br_arena *arena, struct br_err *err)
{
    *lexer = (struct br_traceql_lexer){
        .at = text, .end = text + len, .line = 1, .col = 1, .arena = arena, .err = err};
}

static int traceql_lex_fail(const struct br_traceql_lexer *lexer, const char *what)
{
    return br_traceql_fail(lexer->err, BR_EINVAL, lexer->line, lexer->col, "%s", what);
}

/* Advances the lexer by `bytes` bytes. The column counts characters: continuation bytes of UTF-8
 * are not counted. */
static void traceql_lex_step(struct br_traceql_lexer *lexer, size_t bytes)
{
    for (; bytes > 0; bytes--, lexer->at++) {
        if (*lexer->at == '\n') {
            lexer->line++;
            lexer->col = 1;
        } else if (((unsigned char)*lexer->at & 0xc0) != 0x80) {
            lexer->col++;
        }
    }
}

static size_t traceql_lex_remaining(const struct br_traceql_lexer *lexer)
{
    return (size_t)(lexer->end - lexer->at);
}

static void traceql_lex_blanks(struct br_traceql_lexer *lexer)
{
    while (lexer->at < lexer->end) {
        if (*lexer->at == '#') {
            const char *newline = memchr(lexer->at, '\n', traceql_lex_remaining(lexer));
            traceql_lex_step(lexer, newline ? (size_t)(newline - lexer->at)
                                            : traceql_lex_remaining(lexer));
        } else if (isspace((unsigned char)*lexer->at)) {
            traceql_lex_step(lexer, 1);
        } else {
            return;
        }
    }
}

/* --- Strings ---------------------------------------------------------------------------------- */

/* Returns the number of hex digits that follow `letter` in a numeric escape (\x41, \u00e9).
 * Returns 0 for a letter that does not begin a numeric escape. */
static size_t traceql_lex_escape_digits(char letter)
{
    switch (letter) {
    case 'x':
        return 2;
    case 'u':
        return 4;
    case 'U':
        return 8;
    default:
        return 0;
    }
}

/* Parses one of Go's escapes, from the byte after the backslash on. Returns the number of bytes
 * that the escape has in the query, or 0 if the escape is unknown. */
static size_t traceql_lex_escape(const char *p, size_t remaining, char *out, size_t *ret_len)
{
    static const char names[] = "abfnrtv\\\"'", values[] = "\a\b\f\n\r\t\v\\\"'";
    const char *name = remaining && *p ? strchr(names, *p) : NULL;
    size_t digits = remaining ? traceql_lex_escape_digits(*p) : 0;
    char hex[9] = "";
    if (name) {
        out[0] = values[name - names];
        *ret_len = 1;
        return 1;
    }
    if (!digits || remaining <= digits)
        return 0;
    memcpy(hex, p + 1, digits);
    if (strspn(hex, "0123456789abcdefABCDEF") != digits)
        return 0;
    unsigned long rune = strtoul(hex, NULL, 16);
    if (rune > 0x10ffff || (rune >= 0xd800 && rune < 0xe000))
        return 0;
    *ret_len = digits == 2 ? 1 : br_utf8_encode((uint32_t)rune, out);
    if (digits == 2)
        out[0] = (char)rune;
    return digits + 1;
}

/* Returns the number of bytes up to the closing quote or, if there is none, to the end of the
 * query. */
static size_t traceql_lex_string_len(const struct br_traceql_lexer *lexer)
{
    const char *p = lexer->at + 1;
    while (p < lexer->end && *p != *lexer->at)
        p += *p == '\\' && *lexer->at == '"' && p + 1 < lexer->end ? 2 : 1;
    return (size_t)(p - lexer->at);
}

/* Reads a quoted string. The string without its escapes is never longer than its text in the
 * query. */
static int traceql_lex_string(struct br_traceql_lexer *lexer, struct br_traceql_value *ret)
{
    char quote = *lexer->at;
    struct br_traceql_lexer start = *lexer;
    char *out = br_arena_alloc(lexer->arena, traceql_lex_string_len(lexer) + 1);
    size_t n = 0;
    if (!out)
        return BR_ENOMEM;
    traceql_lex_step(lexer, 1);
    while (lexer->at < lexer->end && *lexer->at != quote) {
        size_t bytes = 1, len = 1;
        if (*lexer->at == '\\' && quote == '"') {
            bytes =
                traceql_lex_escape(lexer->at + 1, traceql_lex_remaining(lexer) - 1, out + n, &len);
            if (!bytes++)
                return traceql_lex_fail(lexer, "unknown escape");
        } else if (*lexer->at == '\n' && quote == '"') {
            return traceql_lex_fail(&start, "the string is not terminated on its line");
        } else {
            out[n] = *lexer->at;
        }
        n += len;
        traceql_lex_step(lexer, bytes);
    }
    if (lexer->at == lexer->end)
        return traceql_lex_fail(&start, "the string is not terminated");
    traceql_lex_step(lexer, 1);
    out[n] = '\0';
    ret->type = BR_TRACEQL_STRING;
    ret->text = out;
    ret->len = n;
    return 0;
}

/* --- Numbers ---------------------------------------------------------------------------------- */

static double traceql_lex_unit_ns(const char *text, size_t len)
{
    static const struct {
        const char *name;
        double ns;
        /* two encodings of "µs": with the micro sign, and with the Greek letter */
    } units[] = {{"ns", 1},      {"us", 1e3},     {"\302\265s", 1e3}, {"\316\274s", 1e3},
                 {"ms", 1e6},    {"s", 1e9},      {"m", 60e9},        {"h", 3600e9},
                 {"d", 86400e9}, {"w", 604800e9}, {"y", 31536000e9}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (br_bytes_are(text, len, units[i].name))
            return units[i].ns;
    return 0;
}

static size_t traceql_lex_digits(const char *p, const char *end)
{
    size_t n = 0;
    while (p + n < end && isdigit((unsigned char)p[n]))
        n++;
    return n;
}

/* Returns the number of bytes of digits with an optional decimal point. Returns 0 if the text
 * does not begin with a number. */
static size_t traceql_lex_decimal(const char *p, const char *end, bool *ret_point)
{
    size_t whole = traceql_lex_digits(p, end), fraction = 0;
    *ret_point = p + whole < end && p[whole] == '.';
    if (*ret_point)
        fraction = traceql_lex_digits(p + whole + 1, end);
    if (whole + fraction == 0 || whole + fraction > NUMBER_MAX)
        return 0;
    return whole + fraction + *ret_point;
}

static double traceql_lex_real(const char *text, size_t len)
{
    char copy[NUMBER_MAX + 16];
    if (len >= sizeof copy)
        return NAN;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return strtod(copy, NULL);
}

static size_t traceql_lex_unit_len(const char *p, const char *end)
{
    size_t n = 0;
    while (p + n < end && (isalpha((unsigned char)p[n]) || (unsigned char)p[n] >= 0x80))
        n++;
    return n;
}

/* Reads a duration such as 1h30m, which consists of pairs of a number and a unit. */
static int traceql_lex_duration(struct br_traceql_lexer *lexer, struct br_traceql_value *ret)
{
    const char *p = lexer->at;
    double ns = 0;
    bool point;
    for (size_t len; p < lexer->end && (len = traceql_lex_decimal(p, lexer->end, &point)) > 0;) {
        size_t unit_len = traceql_lex_unit_len(p + len, lexer->end);
        double unit = traceql_lex_unit_ns(p + len, unit_len);
        if (unit <= 0)
            return traceql_lex_fail(
                lexer, "unknown unit of time; expected ns, us, ms, s, m, h, d, w or y");
        ns += traceql_lex_real(p, len) * unit;
        p += len + unit_len;
    }
    if (!(ns < 9.2e18))
        return traceql_lex_fail(lexer, "the duration is too long");
    ret->type = BR_TRACEQL_DURATION;
    ret->integer = llround(ns);
    traceql_lex_step(lexer, (size_t)(p - lexer->at));
    return 0;
}

/* Returns the number of bytes of an exponent such as "e5" or "E-3". Returns 0 if the text does
 * not begin with an exponent. */
static size_t traceql_lex_exponent(const char *p, const char *end)
{
    if (p == end || (*p != 'e' && *p != 'E'))
        return 0;
    size_t sign = p + 1 < end && (p[1] == '-' || p[1] == '+');
    size_t digits = traceql_lex_digits(p + 1 + sign, end);
    return digits && digits < 6 ? 1 + sign + digits : 0;
}

static int traceql_lex_number(struct br_traceql_lexer *lexer, struct br_traceql_value *ret)
{
    bool point;
    size_t len = traceql_lex_decimal(lexer->at, lexer->end, &point);
    if (!len)
        return traceql_lex_fail(lexer, "the number is too long");
    size_t exponent = traceql_lex_exponent(lexer->at + len, lexer->end);
    if (!exponent && traceql_lex_unit_len(lexer->at + len, lexer->end))
        return traceql_lex_duration(lexer, ret);
    len += exponent;
    if (point || exponent) {
        ret->type = BR_TRACEQL_FLOAT;
        ret->real = traceql_lex_real(lexer->at, len);
    } else {
        char copy[NUMBER_MAX + 1];
        memcpy(copy, lexer->at, len);
        copy[len] = '\0';
        ret->type = BR_TRACEQL_INT;
        if (!br_parse_int(copy, 10, false, &ret->integer))
            return traceql_lex_fail(lexer, "the number does not fit into 64 bits");
    }
    traceql_lex_step(lexer, len);
    return 0;
}

/* --- Names ------------------------------------------------------------------------------------ */

/* Returns false for a character that ends the name of an attribute, as in Tempo. A quote also
 * ends the unquoted part of a name: it begins a quoted part. */
static bool traceql_lex_in_name(char letter)
{
    return letter && !isspace((unsigned char)letter) && !strchr("{}()=~!<>&|^,\"", letter);
}

static int traceql_lex_name(struct br_traceql_lexer *lexer, struct br_traceql_value *ret)
{
    struct br_traceql_lexer start = *lexer;
    struct br_str name = {.max = BR_TRACEQL_LENGTH_MAX};
    int rc = 0;
    while (!rc && lexer->at < lexer->end) {
        struct br_traceql_value part;
        if (*lexer->at == '"') {
            rc = traceql_lex_string(lexer, &part);
            if (!rc)
                br_str_add(&name, part.text, part.len);
        } else if (traceql_lex_in_name(*lexer->at)) {
            br_str_putc(&name, *lexer->at);
            traceql_lex_step(lexer, 1);
        } else {
            break;
        }
    }
    if (!rc && name.len == 0 && !name.failed)
        rc = traceql_lex_fail(&start, "missing name of an attribute");
    ret->type = BR_TRACEQL_STRING;
    ret->len = name.len;
    ret->text = rc || name.failed ? NULL : br_arena_strndup(lexer->arena, name.data, name.len);
    br_str_release(&name);
    if (!rc && !ret->text)
        rc = BR_ENOMEM;
    return rc;
}

/* Parses the scope in front of an attribute's name, such as "span" in span.http.method. Returns
 * false if the text is not a scope. */
static bool traceql_lex_scope(const char *text, size_t len, enum br_traceql_scope *ret)
{
    static const struct {
        const char *name;
        enum br_traceql_scope scope;
    } scopes[] = {{"span", BR_TRACEQL_SPAN},
                  {"resource", BR_TRACEQL_RESOURCE},
                  {"event", BR_TRACEQL_EVENT},
                  {"link", BR_TRACEQL_LINK},
                  {"instrumentation", BR_TRACEQL_INSTRUMENTATION}};
    for (size_t i = 0; i < sizeof scopes / sizeof scopes[0]; i++) {
        if (br_bytes_are(text, len, scopes[i].name)) {
            *ret = scopes[i].scope;
            return true;
        }
    }
    return false;
}

static size_t traceql_lex_word_len(const char *p, const char *end)
{
    size_t n = 0;
    while (p + n < end && (isalnum((unsigned char)p[n]) || p[n] == '_'))
        n++;
    return n;
}

/* Reads a word, an intrinsic such as "span:id", or an attribute with its scope. */
static int traceql_lex_word(struct br_traceql_lexer *lexer, struct br_traceql_token *ret)
{
    size_t len = traceql_lex_word_len(lexer->at, lexer->end);
    const char *after = lexer->at + len;
    bool point = after < lexer->end && *after == '.';
    if (point && br_bytes_are(lexer->at, len, "parent"))
        return br_traceql_fail(lexer->err, BR_EUNSUPPORTED, lexer->line, lexer->col,
                               "parent. is not supported; {...} > {...} compares with the parent");
    if (point && traceql_lex_scope(lexer->at, len, &ret->scope)) {
        ret->kind = BR_TRACEQL_NAME;
        traceql_lex_step(lexer, len + 1);
        return traceql_lex_name(lexer, &ret->value);
    }
    if (after < lexer->end && *after == ':')
        len += 1 + traceql_lex_word_len(after + 1, lexer->end);
    ret->kind = BR_TRACEQL_WORD;
    traceql_lex_step(lexer, len);
    return 0;
}

static int traceql_lex_punct(struct br_traceql_lexer *lexer, struct br_traceql_token *ret)
{
    static const char *const known[] = {
        "!>>", "!<<", "&>>", "&<<", "&&", "||", "=~", "!~", "!=", ">=", "<=", ">>",
        "<<",  "!>",  "!<",  "&>",  "&<", "&~", "{",  "}",  "(",  ")",  ",",  "|",
        "=",   "<",   ">",   "~",   "!",  "+",  "-",  "*",  "/",  "%",  "^"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t len = strlen(known[i]);
        if (traceql_lex_remaining(lexer) < len || memcmp(lexer->at, known[i], len) != 0)
            continue;
        ret->kind = BR_TRACEQL_PUNCT;
        memcpy(ret->op, known[i], len + 1);
        traceql_lex_step(lexer, len);
        return 0;
    }
    unsigned char letter = (unsigned char)*lexer->at;
    if (letter > ' ' && letter < 0x7f)
        return br_traceql_fail(lexer->err, BR_EINVAL, lexer->line, lexer->col, "unexpected '%c'",
                               letter);
    return traceql_lex_fail(lexer, "unexpected character");
}

static int traceql_lex_token(struct br_traceql_lexer *lexer, struct br_traceql_token *ret)
{
    const char *p = lexer->at;
    bool digit_follows = p + 1 < lexer->end && isdigit((unsigned char)p[1]);
    if (*p == '"' || *p == '`') {
        ret->kind = BR_TRACEQL_LITERAL;
        return traceql_lex_string(lexer, &ret->value);
    }
    if (isdigit((unsigned char)*p) || (*p == '.' && digit_follows)) {
        ret->kind = BR_TRACEQL_LITERAL;
        return traceql_lex_number(lexer, &ret->value);
    }
    if (*p == '.') {
        ret->kind = BR_TRACEQL_NAME;
        ret->scope = BR_TRACEQL_UNSCOPED;
        traceql_lex_step(lexer, 1);
        return traceql_lex_name(lexer, &ret->value);
    }
    if (isalpha((unsigned char)*p) || *p == '_')
        return traceql_lex_word(lexer, ret);
    return traceql_lex_punct(lexer, ret);
}

int br_traceql_lexer_next(struct br_traceql_lexer *lexer, struct br_traceql_token *ret)
{
    traceql_lex_blanks(lexer);
    *ret = (struct br_traceql_token){.text = lexer->at, .line = lexer->line, .col = lexer->col};
    int rc = lexer->at < lexer->end ? traceql_lex_token(lexer, ret) : 0;
    ret->len = (size_t)(lexer->at - ret->text);
    return rc;
}
