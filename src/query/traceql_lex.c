/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/str.h"
#include "query/traceql_internal.h"

static const struct br_lexer_rules rules = {
    .blanks = " \t\n\v\f\r",
    .comments = true,
    .unended = "the string is not terminated",
    .unended_line = "the string is not terminated on its line",
    .unknown_escape = "unknown escape",
};

void br_traceql_lexer_init(struct br_lexer *lexer, const char *text, size_t len,
                           struct br_arena *arena, struct br_err *err)
{
    *lexer = (struct br_lexer){
        .rules = &rules, .text = text, .at = text, .end = text + len, .arena = arena, .err = err};
}

static int traceql_lex_fail(const struct br_lexer *lexer, const char *what)
{
    return br_lexer_fail(lexer, lexer->at, BR_EINVAL, "%s", what);
}

static int traceql_lex_string(struct br_lexer *lexer, struct br_traceql_value *ret)
{
    ret->type = BR_TRACEQL_STRING;
    return br_lexer_string(lexer, &ret->text, &ret->len);
}

/* --- Numbers ---------------------------------------------------------------------------------- */

static double traceql_lex_unit_ns(const char *text, size_t len)
{
    static const struct {
        const char *name;
        double ns;
        /* "µs" has two encodings: with the micro sign, and with the Greek letter */
    } units[] = {{"ns", 1},      {"us", 1e3},     {"\302\265s", 1e3}, {"\316\274s", 1e3},
                 {"ms", 1e6},    {"s", 1e9},      {"m", 60e9},        {"h", 3600e9},
                 {"d", 86400e9}, {"w", 604800e9}, {"y", 31536000e9}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (br_bytes_are(text, len, units[i].name))
            return units[i].ns;
    return 0;
}

static size_t traceql_lex_unit_len(const char *p, const char *end)
{
    size_t n = 0;
    while (p + n < end && (isalpha((unsigned char)p[n]) || (unsigned char)p[n] >= 0x80))
        n++;
    return n;
}

/* Reads a duration such as 1h30m, which consists of pairs of a number and a unit. */
static int traceql_lex_duration(struct br_lexer *lexer, struct br_traceql_value *ret)
{
    const char *p = lexer->at;
    double ns = 0;
    bool point;
    for (size_t len; p < lexer->end && (len = br_lexer_decimal(p, lexer->end, &point)) > 0;) {
        size_t unit_len = traceql_lex_unit_len(p + len, lexer->end);
        double unit = traceql_lex_unit_ns(p + len, unit_len);
        if (unit <= 0)
            return traceql_lex_fail(
                lexer, "unknown unit of time; expected ns, us, ms, s, m, h, d, w or y");
        ns += br_lexer_real(p, len) * unit;
        p += len + unit_len;
    }
    if (!(ns < 9.2e18))
        return traceql_lex_fail(lexer, "the duration is too long");
    ret->type = BR_TRACEQL_DURATION;
    ret->integer = llround(ns);
    lexer->at = p;
    return 0;
}

static int traceql_lex_number(struct br_lexer *lexer, struct br_traceql_value *ret)
{
    bool point, whole;
    size_t len = br_lexer_number(lexer->at, lexer->end, &whole);
    if (!len)
        return traceql_lex_fail(lexer, "the number is too long");
    bool exponent = len > br_lexer_decimal(lexer->at, lexer->end, &point);
    if (!exponent && traceql_lex_unit_len(lexer->at + len, lexer->end))
        return traceql_lex_duration(lexer, ret);
    ret->type = whole ? BR_TRACEQL_INT : BR_TRACEQL_FLOAT;
    if (!whole)
        ret->real = br_lexer_real(lexer->at, len);
    else if (!br_decimal_parse_signed(lexer->at, len, &ret->integer))
        return traceql_lex_fail(lexer, "the number does not fit into 64 bits");
    lexer->at += len;
    return 0;
}

/* --- Names ------------------------------------------------------------------------------------ */

/* Returns false for a character that ends the name of an attribute, as in Tempo. A quote also
 * ends the unquoted part of a name: it begins a quoted part. */
static bool traceql_lex_in_name(char letter)
{
    return letter && !isspace((unsigned char)letter) && !strchr("{}()=~!<>&|^,\"", letter);
}

static int traceql_lex_name(struct br_lexer *lexer, struct br_traceql_value *ret)
{
    const char *start = lexer->at;
    struct br_str name = {.max = BR_TRACEQL_LENGTH_MAX};
    int rc = 0;
    while (!rc && lexer->at < lexer->end) {
        struct br_traceql_value part;
        if (*lexer->at == '"') {
            rc = traceql_lex_string(lexer, &part);
            if (!rc)
                br_str_add(&name, part.text, part.len);
        } else if (traceql_lex_in_name(*lexer->at)) {
            br_str_putc(&name, *lexer->at++);
        } else {
            break;
        }
    }
    if (!rc && name.len == 0 && !name.failed)
        rc = br_lexer_fail(lexer, start, BR_EINVAL, "missing name of an attribute");
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

/* Reads a word, an intrinsic such as "span:id", or an attribute with its scope. */
static int traceql_lex_word(struct br_lexer *lexer, struct br_traceql_token *ret)
{
    size_t len = br_word_len(lexer->at, lexer->end);
    const char *after = lexer->at + len;
    bool point = after < lexer->end && *after == '.';
    if (point && br_bytes_are(lexer->at, len, "parent"))
        return br_lexer_fail(lexer, lexer->at, BR_EUNSUPPORTED,
                             "parent. is not supported; {...} > {...} compares with the parent");
    if (point && traceql_lex_scope(lexer->at, len, &ret->scope)) {
        ret->kind = BR_TRACEQL_NAME;
        lexer->at += len + 1;
        return traceql_lex_name(lexer, &ret->value);
    }
    if (after < lexer->end && *after == ':')
        len += 1 + br_word_len(after + 1, lexer->end);
    ret->kind = BR_TRACEQL_WORD;
    lexer->at += len;
    return 0;
}

static int traceql_lex_punct(struct br_lexer *lexer, struct br_traceql_token *ret)
{
    static const char *const known[] = {
        "!>>", "!<<", "&>>", "&<<", "&&", "||", "=~", "!~", "!=", ">=", "<=", ">>",
        "<<",  "!>",  "!<",  "&>",  "&<", "&~", "{",  "}",  "(",  ")",  ",",  "|",
        "=",   "<",   ">",   "~",   "!",  "+",  "-",  "*",  "/",  "%",  "^"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (!br_lexer_take(lexer, known[i]))
            continue;
        ret->kind = BR_TRACEQL_PUNCT;
        memcpy(ret->op, known[i], strlen(known[i]) + 1);
        return 0;
    }
    unsigned char letter = (unsigned char)*lexer->at;
    if (letter > ' ' && letter < 0x7f)
        return br_lexer_fail(lexer, lexer->at, BR_EINVAL, "unexpected '%c'", letter);
    return traceql_lex_fail(lexer, "unexpected character");
}

static int traceql_lex_token(struct br_lexer *lexer, struct br_traceql_token *ret)
{
    const char *p = lexer->at;
    bool digit_follows = p + 1 < lexer->end && br_is_digit(p[1]);
    if (*p == '"' || *p == '`') {
        ret->kind = BR_TRACEQL_LITERAL;
        return traceql_lex_string(lexer, &ret->value);
    }
    if (br_is_digit(*p) || (*p == '.' && digit_follows)) {
        ret->kind = BR_TRACEQL_LITERAL;
        return traceql_lex_number(lexer, &ret->value);
    }
    if (*p == '.') {
        ret->kind = BR_TRACEQL_NAME;
        ret->scope = BR_TRACEQL_UNSCOPED;
        lexer->at++;
        return traceql_lex_name(lexer, &ret->value);
    }
    if (br_is_word(*p))
        return traceql_lex_word(lexer, ret);
    return traceql_lex_punct(lexer, ret);
}

int br_traceql_lexer_next(struct br_lexer *lexer, struct br_traceql_token *ret)
{
    br_lexer_skip(lexer);
    *ret = (struct br_traceql_token){.text = lexer->at};
    int rc = lexer->at < lexer->end ? traceql_lex_token(lexer, ret) : 0;
    ret->len = (size_t)(lexer->at - ret->text);
    return rc;
}
