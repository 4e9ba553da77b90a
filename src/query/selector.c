/* SPDX-License-Identifier: Apache-2.0 */
#include "query/selector.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "attribute/regex.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/str.h"

struct selector {
    const char *p, *end;
    int line, col;
    struct br_arena *arena;
    struct br_err *err;
    struct br_matcher matchers[BR_SELECTOR_MATCHERS_MAX];
    size_t n_matchers;
};

static int selector_fail(const struct selector *selector, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static int selector_fail(const struct selector *selector, const char *fmt, ...)
{
    char text[320];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    int rc = br_err_set(selector->err, BR_EINVAL, "%d:%d: parse error: %s", selector->line,
                        selector->col, text);
    if (selector->err) {
        selector->err->line = selector->line;
        selector->err->col = selector->col;
    }
    return rc;
}

/* Advances to the next byte. The column counts characters: continuation bytes of UTF-8 are not
 * counted. */
static void selector_advance(struct selector *selector)
{
    if (*selector->p == '\n') {
        selector->line++;
        selector->col = 1;
    } else if (((unsigned char)*selector->p & 0xc0) != 0x80) {
        selector->col++;
    }
    selector->p++;
}

static void selector_skip(struct selector *selector)
{
    bool comment = false;
    for (; selector->p < selector->end; selector_advance(selector)) {
        char letter = *selector->p;
        comment = letter == '\n' ? false : comment || letter == '#';
        if (!comment && letter != ' ' && letter != '\t' && letter != '\n' && letter != '\r')
            return;
    }
}

static bool selector_at(const struct selector *selector, char letter)
{
    return selector->p < selector->end && *selector->p == letter;
}

/* Describes the current character for error messages. */
static const char *selector_found(const struct selector *selector, char text[16])
{
    if (selector->p == selector->end)
        return "end of the selector";
    unsigned char letter = (unsigned char)*selector->p;
    if (letter >= ' ' && letter < 0x7f)
        (void)snprintf(text, 16, "'%c'", letter);
    else
        (void)snprintf(text, 16, "byte 0x%02x", letter);
    return text;
}

/* --- Words ------------------------------------------------------------------------------------ */

static bool selector_is_word(char letter, bool first)
{
    char lower = (char)(letter | 0x20);
    bool digit = letter >= '0' && letter <= '9';
    return letter == '_' || (lower >= 'a' && lower <= 'z') || (digit && !first);
}

static int selector_word(struct selector *selector, const char **ret)
{
    const char *start = selector->p;
    while (selector->p < selector->end && selector_is_word(*selector->p, selector->p == start))
        selector_advance(selector);
    char *word = br_arena_strndup(selector->arena, start, (size_t)(selector->p - start));
    if (!word)
        return br_arena_why(selector->arena);
    *ret = word;
    return 0;
}

/* Parses the digits of a numeric escape: \x41, \u00e9, \U0001f600 or \101. */
static int selector_code(struct selector *selector, unsigned base, unsigned digits, uint32_t *ret)
{
    uint32_t code = 0;
    for (; digits; digits--) {
        int digit = selector->p < selector->end ? br_hex_value(*selector->p) : -1;
        if (digit < 0 || digit >= (int)base)
            return selector_fail(selector, "an escape in a string has too few digits");
        code = code * base + (uint32_t)digit;
        selector_advance(selector);
    }
    *ret = code;
    return 0;
}

/* Parses an escape, from the byte after the backslash on. */
static int selector_escape(struct selector *selector, char quote, char *out, size_t *ret_len)
{
    static const char letters[] = "abfnrtv\\", meant[] = "\a\b\f\n\r\t\v\\";
    char letter = selector->p < selector->end ? *selector->p : '\0';
    const char *simple = letter ? strchr(letters, letter) : NULL;
    uint32_t code = 0;
    int rc = 0;
    *ret_len = 1;
    if (simple || letter == quote) {
        *out = simple ? meant[simple - letters] : quote;
        selector_advance(selector);
        return 0;
    }
    if (letter >= '0' && letter <= '7') {
        rc = selector_code(selector, 8, 3, &code);
        if (!rc && code > 255)
            rc = selector_fail(selector, "an octal escape is above 255");
        *out = (char)code;
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
        unsigned digits = letter == 'x' ? 2 : 4;
        if (letter == 'U')
            digits = 8;
        selector_advance(selector);
        rc = selector_code(selector, 16, digits, &code);
        if (!rc && (code > 0x10ffff || (letter != 'x' && code >= 0xd800 && code < 0xe000)))
            rc = selector_fail(selector, "an escape is not a Unicode character");
        if (!rc && letter != 'x')
            *ret_len = br_utf8_encode(code, out);
        else
            *out = (char)code;
    } else {
        rc = selector_fail(selector, "unknown escape in a string");
    }
    return rc;
}

/* Parses a quoted string. The string without its escapes is never longer than its text. */
static int selector_string(struct selector *selector, const char **ret)
{
    char quote = *selector->p;
    struct selector start = *selector;
    char *out = br_arena_alloc(selector->arena, (size_t)(selector->end - selector->p));
    size_t len = 0, added;
    if (!out)
        return br_arena_why(selector->arena);
    selector_advance(selector);
    while (selector->p < selector->end && *selector->p != quote) {
        char letter = *selector->p;
        if (letter == '\n' && quote != '`')
            return selector_fail(&start, "a string is not terminated on its line");
        selector_advance(selector);
        out[len] = letter;
        added = 1;
        if (letter == '\\' && quote != '`') {
            int rc = selector_escape(selector, quote, out + len, &added);
            if (rc)
                return rc;
        }
        len += added;
    }
    if (selector->p == selector->end)
        return selector_fail(&start, "a string is not terminated");
    selector_advance(selector);
    out[len] = '\0';
    if (memchr(out, '\0', len))
        return selector_fail(&start, "a string contains a NUL, which labels cannot have");
    if (br_utf8_valid((const uint8_t *)out, len) != len)
        return selector_fail(&start, "a string is not UTF-8");
    *ret = out;
    return 0;
}

static bool selector_at_string(const struct selector *selector)
{
    return selector_at(selector, '"') || selector_at(selector, '\'') || selector_at(selector, '`');
}

/* --- Matchers --------------------------------------------------------------------------------- */

static int selector_operator(struct selector *selector, enum br_matcher_type *ret)
{
    static const struct {
        const char *text;
        enum br_matcher_type type;
    } operators[] = {{"=~", BR_MATCH_REGEX},
                     {"!~", BR_MATCH_NOT_REGEX},
                     {"!=", BR_MATCH_NOT_EQUAL},
                     {"=", BR_MATCH_EQUAL}};
    char found[16];
    selector_skip(selector);
    for (size_t i = 0; i < BR_COUNT(operators); i++) {
        size_t len = strlen(operators[i].text);
        if ((size_t)(selector->end - selector->p) < len ||
            memcmp(selector->p, operators[i].text, len) != 0)
            continue;
        for (; len; len--)
            selector_advance(selector);
        *ret = operators[i].type;
        return 0;
    }
    return selector_fail(selector,
                         "unexpected %s after a label's name, expected one of =, !=, =~, !~ (a "
                         "name with other characters goes in quotes)",
                         selector_found(selector, found));
}

/* Checks that a regular expression compiles. */
static int selector_check_regex(const struct selector *selector, const char *value)
{
    char why[BR_REGEX_WHY_SIZE];
    struct br_regex regex = {0};
    pcre2_code *code = NULL;
    if (strlen(value) > BR_SELECTOR_REGEX_MAX)
        return selector_fail(selector, "a regular expression is longer than %d bytes",
                             BR_SELECTOR_REGEX_MAX);
    int rc = br_regex_compile(&regex, value, &code, why);
    pcre2_code_free(code);
    br_regex_release(&regex);
    return rc == BR_EINVAL ? selector_fail(selector, "invalid regular expression: %s", why) : rc;
}

static int selector_add(struct selector *selector, const struct br_matcher *matcher)
{
    if (selector->n_matchers == BR_SELECTOR_MATCHERS_MAX)
        return selector_fail(selector, "more than %d matchers", BR_SELECTOR_MATCHERS_MAX);
    selector->matchers[selector->n_matchers++] = *matcher;
    return 0;
}

static int selector_matcher(struct selector *selector)
{
    struct br_matcher matcher = {0};
    char found[16];
    int rc;
    if (selector_at_string(selector))
        rc = selector_string(selector, &matcher.name);
    else if (selector->p < selector->end && selector_is_word(*selector->p, true))
        rc = selector_word(selector, &matcher.name);
    else
        rc = selector_fail(selector, "unexpected %s, expected a label's name or '}'",
                           selector_found(selector, found));
    if (!rc)
        rc = selector_operator(selector, &matcher.type);
    if (rc)
        return rc;
    selector_skip(selector);
    if (!selector_at_string(selector))
        return selector_fail(selector, "unexpected %s, expected a string in quotes",
                             selector_found(selector, found));
    struct selector start = *selector;
    rc = selector_string(selector, &matcher.value);
    if (!rc && (matcher.type == BR_MATCH_REGEX || matcher.type == BR_MATCH_NOT_REGEX))
        rc = selector_check_regex(&start, matcher.value);
    return rc ? rc : selector_add(selector, &matcher);
}

static int selector_braces(struct selector *selector)
{
    char found[16];
    selector_advance(selector);
    for (;;) {
        selector_skip(selector);
        if (selector_at(selector, '}'))
            break;
        int rc = selector_matcher(selector);
        if (rc)
            return rc;
        selector_skip(selector);
        if (selector_at(selector, ','))
            selector_advance(selector);
        else if (!selector_at(selector, '}'))
            return selector_fail(selector, "unexpected %s, expected ',' or '}'",
                                 selector_found(selector, found));
    }
    selector_advance(selector);
    return 0;
}

static int selector_read(struct selector *selector)
{
    char found[16];
    int rc = 0;
    selector_skip(selector);
    if (selector->p < selector->end && selector_is_word(*selector->p, true)) {
        struct br_matcher matcher = {.name = "__name__", .type = BR_MATCH_EQUAL};
        rc = selector_word(selector, &matcher.value);
        if (!rc)
            rc = selector_add(selector, &matcher);
        selector_skip(selector);
    }
    if (!rc && selector_at(selector, '{'))
        rc = selector_braces(selector);
    selector_skip(selector);
    if (!rc && selector->p < selector->end)
        rc = selector_fail(selector, "unexpected %s, expected %s", selector_found(selector, found),
                           selector->n_matchers ? "the end" : "'{'");
    return rc;
}

int br_selector_parse(const char *text, size_t len, struct br_arena *arena, struct br_selector *ret,
                      struct br_err *err)
{
    struct selector selector = {
        .p = text, .end = text + len, .line = 1, .col = 1, .arena = arena, .err = err};
    if (len > BR_SELECTOR_MAX)
        return br_err_set(err, BR_EINVAL, "a selector has %zu bytes; at most %d are allowed", len,
                          BR_SELECTOR_MAX);
    int rc = selector_read(&selector);
    if (rc)
        return rc;
    size_t size = selector.n_matchers * sizeof *selector.matchers;
    struct br_matcher *matchers = br_arena_alloc(arena, size ? size : 1);
    if (!matchers)
        return br_arena_why(arena);
    if (size)
        memcpy(matchers, selector.matchers, size);
    *ret = (struct br_selector){matchers, selector.n_matchers};
    return 0;
}
