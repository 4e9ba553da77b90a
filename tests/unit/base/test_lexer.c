/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/lexer.h"
#include "base/mem.h"
#include "tests/support/test.h"

static const struct br_lexer_rules lines = {.blanks = " \n",
                                            .comments = true,
                                            .unended = "not ended",
                                            .unended_line = "not ended on its line",
                                            .unknown_escape = "unknown"};
static const struct br_lexer_rules one_line = {.blanks = " \t",
                                               .one_line = true,
                                               .label = "error: ",
                                               .unended = "not ended",
                                               .unknown_escape = "unknown"};

static struct br_lexer lexer_of(const struct br_lexer_rules *rules, const char *text,
                                struct br_arena *arena, struct br_err *err)
{
    *err = (struct br_err){0};
    return (struct br_lexer){.rules = rules,
                             .text = text,
                             .at = text,
                             .end = text + strlen(text),
                             .arena = arena,
                             .err = err};
}

static void errors_name_the_place(void **state)
{
    /* \303\244 is U+00E4, one character of two bytes. */
    static const char text[] = "a\n\303\244 b";
    struct br_err err;
    struct br_lexer lexer = lexer_of(&lines, text, NULL, &err);
    (void)state;
    assert_int_equal(br_lexer_fail(&lexer, text, BR_EINVAL, "%s", "x"), BR_EINVAL);
    assert_string_equal(err.text, "1:1: x");
    assert_int_equal(br_lexer_fail(&lexer, strchr(text, 'b'), BR_EUNSUPPORTED, "no %d", 7),
                     BR_EUNSUPPORTED);
    assert_string_equal(err.text, "2:3: no 7");
    assert_int_equal(err.code, BR_EUNSUPPORTED);
    assert_int_equal(err.line, 2);
    assert_int_equal(err.col, 3);
    lexer = lexer_of(&one_line, text, NULL, &err);
    assert_int_equal(br_lexer_fail(&lexer, lexer.end, BR_EINVAL, "x"), BR_EINVAL);
    assert_string_equal(err.text, "at character 6: error: x");
    assert_int_equal(err.line, 0);
    lexer.err = NULL;
    assert_int_equal(br_lexer_fail(&lexer, lexer.end, BR_EINVAL, "x"), BR_EINVAL);
}

static void blanks_and_comments_are_skipped(void **state)
{
    struct br_err err;
    struct br_lexer lexer = lexer_of(&lines, "  # one\n# two\n x # end", NULL, &err);
    (void)state;
    br_lexer_skip(&lexer);
    assert_int_equal(*lexer.at, 'x');
    lexer.at++;
    br_lexer_skip(&lexer);
    assert_ptr_equal(lexer.at, lexer.end);
    lexer = lexer_of(&lines, "\tx", NULL, &err); /* these rules do not contain the tab */
    br_lexer_skip(&lexer);
    assert_int_equal(*lexer.at, '\t');
    lexer = lexer_of(&one_line, "\t #", NULL, &err);
    br_lexer_skip(&lexer);
    assert_int_equal(*lexer.at, '#');
}

static void tokens_are_taken_whole(void **state)
{
    struct br_err err;
    struct br_lexer lexer = lexer_of(&lines, "order or>=", NULL, &err);
    (void)state;
    assert_false(br_lexer_take(&lexer, "or"));
    assert_true(br_lexer_take(&lexer, "order"));
    br_lexer_skip(&lexer);
    assert_true(br_lexer_take(&lexer, "or"));
    assert_false(br_lexer_at(&lexer, "="));
    assert_true(br_lexer_at(&lexer, "<>"));
    assert_true(br_lexer_take(&lexer, ">"));
    assert_false(br_lexer_take(&lexer, "==")); /* longer than the rest */
    assert_true(br_lexer_take(&lexer, "="));
    assert_false(br_lexer_at(&lexer, "="));
    const char *word = "a_9z-";
    assert_int_equal(br_word_len(word, word + 5), 4);
    assert_int_equal(br_word_len(word, word + 2), 2);
    assert_true(br_is_identifier("_a1", 3) && br_is_identifier("Z", 1));
    assert_false(br_is_identifier("", 0) || br_is_identifier("1a", 2) ||
                 br_is_identifier("a.b", 3));
}

static void reads_as(const struct br_lexer_rules *rules, const char *text, const char *wanted,
                     size_t wanted_len)
{
    struct br_arena arena;
    struct br_err err;
    const char *out;
    size_t len;
    br_arena_init(&arena, 4096);
    struct br_lexer lexer = lexer_of(rules, text, &arena, &err);
    assert_int_equal(br_lexer_string(&lexer, &out, &len), 0);
    assert_int_equal(len, wanted_len);
    assert_memory_equal(out, wanted, wanted_len + 1);
    assert_ptr_equal(lexer.at, lexer.end);
    br_arena_release(&arena);
}

/* The escapes are those of the Go specification, "Rune literals" and "String literals". */
static void strings_have_the_escapes_of_go(void **state)
{
    (void)state;
    reads_as(&lines, "\"\"", "", 0);
    reads_as(&lines, "\"a'b`c\"", "a'b`c", 5);
    reads_as(&lines, "'a\"b'", "a\"b", 3);
    reads_as(&lines, "`a\\n\n\"b`", "a\\n\n\"b", 6);
    reads_as(&lines, "\"\\a\\b\\f\\n\\r\\t\\v\\\\\\'\\\"\"", "\a\b\f\n\r\t\v\\'\"", 10);
    reads_as(&lines, "\"\\101\\x41\\u0041\\U00000041\"", "AAAA", 4);
    reads_as(&lines, "\"\\377\\xff\"", "\377\377", 2);
    reads_as(&lines, "\"\\000-\"", "\0-", 2);
    reads_as(&lines, "\"\\u00e4\\u672c\\U0001f600\"", "\303\244\346\234\254\360\237\230\200", 9);
    reads_as(&one_line, "\"a\nb\"", "a\nb", 3);
}

static void invalid_strings_are_errors_at_their_place(void **state)
{
    static const char *const cases[][2] = {
        {"\"a", "1:1: not ended"},
        {"\"a\\\"", "1:1: not ended"},
        {"`a\\", "1:1: not ended"},
        {"\"a\\", "1:3: unknown"},
        {"\"a\nb\"", "1:1: not ended on its line"},
        {"\"ab\\q\"", "1:4: unknown"},
        {"\"\\8\"", "1:2: unknown"},
        {"\"\\x4\"", "1:2: an escape in a string has too few digits"},
        {"\"\\u12", "1:2: an escape in a string has too few digits"},
        {"\"\\18\"", "1:2: an escape in a string has too few digits"},
        {"\"\\400\"", "1:2: an octal escape is above 255"},
        {"\"\\ud800\"", "1:2: an escape is not a Unicode character"},
        {"\"\\udfff\"", "1:2: an escape is not a Unicode character"},
        {"\"\\U00110000\"", "1:2: an escape is not a Unicode character"},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_arena arena;
        struct br_err err;
        const char *out;
        size_t len;
        br_arena_init(&arena, 4096);
        struct br_lexer lexer = lexer_of(&lines, cases[i][0], &arena, &err);
        assert_int_equal(br_lexer_string(&lexer, &out, &len), BR_EINVAL);
        assert_string_equal(err.text, cases[i][1]);
        br_arena_release(&arena);
    }
}

static void strings_need_memory(void **state)
{
    struct br_arena arena;
    struct br_err err;
    const char *out;
    size_t len;
    char text[258];
    (void)state;
    memset(text, '"', sizeof text);
    memset(text + 1, 'a', sizeof text - 3);
    text[sizeof text - 1] = '\0';
    br_arena_init(&arena, 64);
    struct br_lexer lexer = lexer_of(&lines, text, &arena, &err);
    assert_int_equal(br_lexer_string(&lexer, &out, &len), BR_ENOMEM);
    assert_int_equal(br_arena_why(&arena), BR_EFULL);
    br_arena_release(&arena);
}

static void numbers_end_where_they_end(void **state)
{
    static const struct {
        const char *text;
        size_t len;
        bool whole;
        double value;
    } cases[] = {
        {"0", 1, true, 0},        {"12abc", 2, true, 12},   {"1.5h", 3, false, 1.5},
        {".25", 3, false, .25},   {"3.", 2, false, 3},      {"1.2.3", 3, false, 1.2},
        {"1e3", 3, false, 1000},  {"2E-2]", 4, false, .02}, {"5e+1", 4, false, 50},
        {"7e", 1, true, 7},       {"7e+", 1, true, 7},      {"7es", 1, true, 7},
        {"1e123456", 1, true, 1}, /* six digits are not an exponent */
    };
    static const char *const wrong[] = {"", ".", "e5", "-1", "a"};
    char digits[70];
    bool whole, point;
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        const char *text = cases[i].text, *end = text + strlen(text);
        assert_int_equal(br_lexer_number(text, end, &whole), cases[i].len);
        assert_int_equal(whole, cases[i].whole);
        assert_true(br_lexer_real(text, cases[i].len) == cases[i].value);
    }
    for (size_t i = 0; i < BR_COUNT(wrong); i++)
        assert_int_equal(br_lexer_number(wrong[i], wrong[i] + strlen(wrong[i]), &whole), 0);
    memset(digits, '1', sizeof digits);
    assert_int_equal(br_lexer_number(digits, digits + 64, &whole), 64);
    assert_int_equal(br_lexer_number(digits, digits + 65, &whole), 0);
    const char *text = "1.5e3";
    assert_int_equal(br_lexer_decimal(text, text + 5, &point), 3);
    assert_true(point);
    assert_int_equal(br_lexer_decimal(text, text + 1, &point), 1);
    assert_false(point);
}

SUITE(lexer)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_name_the_place),
        cmocka_unit_test(blanks_and_comments_are_skipped),
        cmocka_unit_test(tokens_are_taken_whole),
        cmocka_unit_test(strings_have_the_escapes_of_go),
        cmocka_unit_test(invalid_strings_are_errors_at_their_place),
        cmocka_unit_test(strings_need_memory),
        cmocka_unit_test(numbers_end_where_they_end),
    };
    return RUN(tests, NULL, NULL);
}
