/* SPDX-License-Identifier: Apache-2.0 */
#include "query/selector.h"

#include <stdio.h>
#include <string.h>

#include "attribute/regex.h"
#include "base/lexer.h"
#include "base/mem.h"
#include "base/str.h"

/* Reports an error at the position of the next character. */
#define selector_fail(selector, ...)                                                               \
    br_lexer_fail(&(selector)->lexer, (selector)->lexer.at, BR_EINVAL, __VA_ARGS__)

static const struct br_lexer_rules rules = {
    .blanks = " \t\n\r",
    .comments = true,
    .label = "parse error: ",
    .unended = "a string is not terminated",
    .unended_line = "a string is not terminated on its line",
    .unknown_escape = "unknown escape in a string",
};

struct selector {
    struct br_lexer lexer;
    struct br_matcher matchers[BR_SELECTOR_MATCHERS_MAX];
    size_t n_matchers;
};

/* Describes the current character for error messages. */
static const char *selector_found(const struct selector *selector, char text[16])
{
    if (selector->lexer.at == selector->lexer.end)
        return "end of the selector";
    unsigned char letter = (unsigned char)*selector->lexer.at;
    if (letter >= ' ' && letter < 0x7f)
        (void)snprintf(text, 16, "'%c'", letter);
    else
        (void)snprintf(text, 16, "byte 0x%02x", letter);
    return text;
}

/* --- Words ------------------------------------------------------------------------------------ */

static bool selector_at_word(const struct selector *selector)
{
    const struct br_lexer *lexer = &selector->lexer;
    return lexer->at < lexer->end && br_is_identifier(lexer->at, 1);
}

static int selector_word(struct selector *selector, const char **ret)
{
    struct br_lexer *lexer = &selector->lexer;
    size_t len = br_word_len(lexer->at, lexer->end);
    char *word = br_arena_strndup(lexer->arena, lexer->at, len);
    if (!word)
        return br_arena_why(lexer->arena);
    lexer->at += len;
    *ret = word;
    return 0;
}

static bool selector_at_string(const struct selector *selector)
{
    return br_lexer_at(&selector->lexer, "\"'`");
}

static int selector_string(struct selector *selector, const char **ret)
{
    struct br_lexer *lexer = &selector->lexer;
    const char *start = lexer->at;
    size_t len;
    int rc = br_lexer_string(lexer, ret, &len);
    if (rc)
        return rc == BR_ENOMEM ? br_arena_why(lexer->arena) : rc;
    if (memchr(*ret, '\0', len))
        return br_lexer_fail(lexer, start, BR_EINVAL,
                             "a string contains a NUL, which labels cannot have");
    if (br_utf8_valid((const uint8_t *)*ret, len) != len)
        return br_lexer_fail(lexer, start, BR_EINVAL, "a string is not UTF-8");
    return 0;
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
    br_lexer_skip(&selector->lexer);
    for (size_t i = 0; i < BR_COUNT(operators); i++) {
        if (br_lexer_take(&selector->lexer, operators[i].text)) {
            *ret = operators[i].type;
            return 0;
        }
    }
    return selector_fail(selector,
                         "unexpected %s after a label's name, expected one of =, !=, =~, !~ (a "
                         "name with other characters goes in quotes)",
                         selector_found(selector, found));
}

/* Checks that a regular expression compiles. `at` is the position of the expression in the
 * selector. */
static int selector_check_regex(const struct selector *selector, const char *at, const char *value)
{
    char why[BR_REGEX_WHY_SIZE];
    struct br_regex regex = {0};
    pcre2_code *code = NULL;
    if (strlen(value) > BR_SELECTOR_REGEX_MAX)
        return br_lexer_fail(&selector->lexer, at, BR_EINVAL,
                             "a regular expression is longer than %d bytes", BR_SELECTOR_REGEX_MAX);
    int rc = br_regex_compile(&regex, value, &code, why);
    pcre2_code_free(code);
    br_regex_release(&regex);
    return rc == BR_EINVAL ? br_lexer_fail(&selector->lexer, at, BR_EINVAL,
                                           "invalid regular expression: %s", why)
                           : rc;
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
    struct br_matcher matcher = {.name = "", .value = ""};
    char found[16];
    int rc;
    if (selector_at_string(selector))
        rc = selector_string(selector, &matcher.name);
    else if (selector_at_word(selector))
        rc = selector_word(selector, &matcher.name);
    else
        rc = selector_fail(selector, "unexpected %s, expected a label's name or '}'",
                           selector_found(selector, found));
    if (!rc)
        rc = selector_operator(selector, &matcher.type);
    if (rc)
        return rc;
    br_lexer_skip(&selector->lexer);
    if (!selector_at_string(selector))
        return selector_fail(selector, "unexpected %s, expected a string in quotes",
                             selector_found(selector, found));
    const char *start = selector->lexer.at;
    rc = selector_string(selector, &matcher.value);
    if (!rc && (matcher.type == BR_MATCH_REGEX || matcher.type == BR_MATCH_NOT_REGEX))
        rc = selector_check_regex(selector, start, matcher.value);
    return rc ? rc : selector_add(selector, &matcher);
}

static int selector_braces(struct selector *selector)
{
    struct br_lexer *lexer = &selector->lexer;
    char found[16];
    for (;;) {
        br_lexer_skip(lexer);
        if (br_lexer_take(lexer, "}"))
            return 0;
        int rc = selector_matcher(selector);
        if (rc)
            return rc;
        br_lexer_skip(lexer);
        if (!br_lexer_take(lexer, ",") && !br_lexer_at(lexer, "}"))
            return selector_fail(selector, "unexpected %s, expected ',' or '}'",
                                 selector_found(selector, found));
    }
}

static int selector_read(struct selector *selector)
{
    struct br_lexer *lexer = &selector->lexer;
    char found[16];
    int rc = 0;
    br_lexer_skip(lexer);
    if (selector_at_word(selector)) {
        struct br_matcher matcher = {.name = "__name__", .type = BR_MATCH_EQUAL};
        rc = selector_word(selector, &matcher.value);
        if (!rc)
            rc = selector_add(selector, &matcher);
        br_lexer_skip(lexer);
    }
    if (!rc && br_lexer_take(lexer, "{"))
        rc = selector_braces(selector);
    br_lexer_skip(lexer);
    if (!rc && lexer->at < lexer->end)
        rc = selector_fail(selector, "unexpected %s, expected %s", selector_found(selector, found),
                           selector->n_matchers ? "the end" : "'{'");
    return rc;
}

int br_selector_parse(const char *text, size_t len, struct br_arena *arena, struct br_selector *ret,
                      struct br_err *err)
{
    struct selector selector = {.lexer = {.rules = &rules,
                                          .text = text,
                                          .at = text,
                                          .end = text + len,
                                          .arena = arena,
                                          .err = err}};
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
