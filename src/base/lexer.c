/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lexer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define DIGITS_MAX 64     /* largest number of digits of a number without its exponent */
#define EXPONENT_DIGITS 5 /* largest number of digits of an exponent */

/* --- Errors ---------------------------------------------------------------------------------- */

void br_lexer_place(const struct br_lexer *lexer, const char *at, int *ret_line, int *ret_col)
{
    *ret_line = *ret_col = 1;
    for (const char *p = lexer->text; p < at; p++) {
        bool ends_line = *p == '\n' && !lexer->rules->one_line;
        bool begins_character = ((unsigned char)*p & 0xc0) != 0x80;
        *ret_line += ends_line;
        *ret_col = ends_line ? 1 : *ret_col + begins_character;
    }
}

int br_lexer_vfail(const struct br_lexer *lexer, const char *at, int code, const char *fmt,
                   va_list ap)
{
    const char *label = lexer->rules->label ? lexer->rules->label : "";
    char text[400];
    int line, col;
    br_lexer_place(lexer, at, &line, &col);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    if (lexer->rules->one_line)
        return br_err_set(lexer->err, code, "at character %d: %s%s", col, label, text);
    (void)br_err_set(lexer->err, code, "%d:%d: %s%s", line, col, label, text);
    if (lexer->err) {
        lexer->err->line = line;
        lexer->err->col = col;
    }
    return code;
}

int br_lexer_fail(const struct br_lexer *lexer, const char *at, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)br_lexer_vfail(lexer, at, code, fmt, ap);
    va_end(ap);
    return code;
}

/* --- Tokens ---------------------------------------------------------------------------------- */

void br_lexer_skip(struct br_lexer *lexer)
{
    while (lexer->at < lexer->end) {
        if (*lexer->at == '#' && lexer->rules->comments) {
            const char *newline = memchr(lexer->at, '\n', (size_t)(lexer->end - lexer->at));
            lexer->at = newline ? newline : lexer->end;
        } else if (br_lexer_at(lexer, lexer->rules->blanks)) {
            lexer->at++;
        } else {
            return;
        }
    }
}

bool br_lexer_take(struct br_lexer *lexer, const char *token)
{
    size_t len = strlen(token), remaining = (size_t)(lexer->end - lexer->at);
    if (remaining < len || memcmp(lexer->at, token, len) != 0)
        return false;
    const char *after = lexer->at + len;
    if (br_is_word(token[0]) && after < lexer->end && br_is_word(*after))
        return false;
    lexer->at = after;
    return true;
}

bool br_lexer_at(const struct br_lexer *lexer, const char *letters)
{
    return lexer->at < lexer->end && *lexer->at && strchr(letters, *lexer->at);
}

size_t br_word_len(const char *p, const char *end)
{
    size_t n = 0;
    while (p + n < end && br_is_word(p[n]))
        n++;
    return n;
}

/* --- Strings --------------------------------------------------------------------------------- */

/* Reads the digits of an escape for a byte (\101, \x41) or a code point (\u00e9, \U0001f600).
 * `p` points to the character after the backslash. */
static int lexer_code(struct br_lexer *lexer, const char *p, char *out, size_t *ret_len)
{
    static const char kinds[] = "xuU";
    const char *kind = p < lexer->end && *p ? strchr(kinds, *p) : NULL;
    bool octal = p < lexer->end && *p >= '0' && *p <= '7', byte = octal || (kind && *kind == 'x');
    int base = octal ? 8 : 16, n_digits = octal ? 3 : 0;
    uint32_t code = 0;
    if (kind)
        n_digits = 2 << (kind - kinds);
    if (!n_digits)
        return br_lexer_fail(lexer, lexer->at, BR_EINVAL, "%s", lexer->rules->unknown_escape);
    for (p += kind != NULL; n_digits > 0; n_digits--, p++) {
        int digit = p < lexer->end ? br_hex_value(*p) : -1;
        if (digit < 0 || digit >= base)
            return br_lexer_fail(lexer, lexer->at, BR_EINVAL,
                                 "an escape in a string has too few digits");
        code = code * (uint32_t)base + (uint32_t)digit;
    }
    if (byte && code > 255)
        return br_lexer_fail(lexer, lexer->at, BR_EINVAL, "an octal escape is above 255");
    if (!byte && (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)))
        return br_lexer_fail(lexer, lexer->at, BR_EINVAL, "an escape is not a Unicode character");
    *ret_len = byte ? 1 : br_utf8_encode(code, out);
    if (byte)
        *out = (char)code;
    lexer->at = p;
    return 0;
}

/* Reads the escape that begins at the next character, a backslash. */
static int lexer_escape(struct br_lexer *lexer, char *out, size_t *ret_len)
{
    static const char names[] = "abfnrtv\\\"'", values[] = "\a\b\f\n\r\t\v\\\"'";
    const char *p = lexer->at + 1, *name = p < lexer->end && *p ? strchr(names, *p) : NULL;
    if (!name)
        return lexer_code(lexer, p, out, ret_len);
    *out = values[name - names];
    *ret_len = 1;
    lexer->at = p + 1;
    return 0;
}

/* Returns the number of bytes up to the closing quote or, if the quote is missing, to the end of
 * the text. */
static size_t lexer_string_len(const struct br_lexer *lexer, bool raw)
{
    const char *p = lexer->at + 1;
    while (p < lexer->end && *p != *lexer->at)
        p += *p == '\\' && !raw && p + 1 < lexer->end ? 2 : 1;
    return (size_t)(p - lexer->at);
}

int br_lexer_string(struct br_lexer *lexer, const char **ret, size_t *ret_len)
{
    const char *start = lexer->at;
    bool raw = *start == '`';
    /* A string whose escapes are decoded is never longer than its source text. */
    char *out = br_arena_alloc(lexer->arena, lexer_string_len(lexer, raw) + 1);
    size_t n = 0;
    if (!out)
        return BR_ENOMEM;
    lexer->at++;
    while (lexer->at < lexer->end && *lexer->at != *start) {
        size_t len = 1;
        int rc = 0;
        if (*lexer->at == '\n' && !raw && !lexer->rules->one_line)
            return br_lexer_fail(lexer, start, BR_EINVAL, "%s", lexer->rules->unended_line);
        if (*lexer->at == '\\' && !raw)
            rc = lexer_escape(lexer, out + n, &len);
        else
            out[n] = *lexer->at++;
        if (rc)
            return rc;
        n += len;
    }
    if (lexer->at == lexer->end)
        return br_lexer_fail(lexer, start, BR_EINVAL, "%s", lexer->rules->unended);
    lexer->at++;
    out[n] = '\0';
    *ret = out;
    *ret_len = n;
    return 0;
}

/* --- Numbers --------------------------------------------------------------------------------- */

static size_t lexer_digits(const char *p, const char *end)
{
    size_t n = 0;
    while (p + n < end && br_is_digit(p[n]))
        n++;
    return n;
}

size_t br_lexer_decimal(const char *p, const char *end, bool *ret_point)
{
    size_t whole = lexer_digits(p, end), fraction = 0;
    *ret_point = p + whole < end && p[whole] == '.';
    if (*ret_point)
        fraction = lexer_digits(p + whole + 1, end);
    if (whole + fraction == 0 || whole + fraction > DIGITS_MAX)
        return 0;
    return whole + fraction + *ret_point;
}

/* Returns the number of characters of an exponent such as "e5" or "E-3"; 0 if the text has no
 * exponent. */
static size_t lexer_exponent(const char *p, const char *end)
{
    if (p == end || (*p != 'e' && *p != 'E'))
        return 0;
    size_t sign = p + 1 < end && (p[1] == '-' || p[1] == '+');
    size_t digits = lexer_digits(p + 1 + sign, end);
    return digits && digits <= EXPONENT_DIGITS ? 1 + sign + digits : 0;
}

size_t br_lexer_number(const char *p, const char *end, bool *ret_whole)
{
    bool point;
    size_t len = br_lexer_decimal(p, end, &point);
    size_t exponent = len ? lexer_exponent(p + len, end) : 0;
    *ret_whole = !point && !exponent;
    return len + exponent;
}

double br_lexer_real(const char *text, size_t len)
{
    char copy[DIGITS_MAX + EXPONENT_DIGITS + 8];
    (void)snprintf(copy, sizeof copy, "%.*s", (int)len, text);
    return strtod(copy, NULL);
}
