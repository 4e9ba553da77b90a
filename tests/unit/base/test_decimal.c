/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/decimal.h"
#include "tests/support/test.h"

static void digits_are_read_up_to_the_first_other_character(void **state)
{
    static const char text[] = "0123x45";
    const char *p = text;
    uint64_t n = 0;
    (void)state;
    assert_true(br_decimal_read(&p, text + 7, UINT64_MAX, &n));
    assert_int_equal(n, 123);
    assert_ptr_equal(p, text + 4);
    assert_false(br_decimal_read(&p, text + 7, UINT64_MAX, &n)); /* at the x */
    assert_ptr_equal(p, text + 4);
    p = text + 5;
    /* the text to read ends before the 5 */
    assert_true(br_decimal_read(&p, text + 6, UINT64_MAX, &n));
    assert_int_equal(n, 4);
    assert_false(br_decimal_read(&p, p, UINT64_MAX, &n));
    assert_int_equal(n, 4);
}

static void numbers_above_the_maximum_are_rejected(void **state)
{
    static const struct {
        const char *text;
        uint64_t max;
        bool ok;
    } cases[] = {
        {"255", 255, true},
        {"256", 255, false},
        {"18446744073709551615", UINT64_MAX, true}, /* 2^64 - 1 */
        {"18446744073709551616", UINT64_MAX, false},
        {"18446744073709551626", UINT64_MAX, false}, /* the last digit wraps to 10 */
        {"99999999999999999999999999", UINT64_MAX, false},
        {"9223372036854775807", INT64_MAX, true},
        {"9223372036854775808", INT64_MAX, false},
        {"0000000000000000000000000000000000007", 7, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *p = cases[i].text, *end = p + strlen(p);
        uint64_t n = 42;
        assert_int_equal(br_decimal_read(&p, end, cases[i].max, &n), cases[i].ok);
        assert_ptr_equal(p, end);
        assert_true(cases[i].ok || n == 42);
    }
}

static void whole_texts_have_only_digits(void **state)
{
    static const char *const wrong[] = {"", "-1", "+1", " 1", "1 ", "1.", "0x1", "1e3", "/", ":"};
    uint64_t n = 42;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(br_decimal_parse(wrong[i], strlen(wrong[i]), UINT64_MAX, &n));
    assert_false(br_decimal_parse(NULL, 0, UINT64_MAX, &n));
    assert_false(br_decimal_parse("1\0", 2, UINT64_MAX, &n));
    assert_int_equal(n, 42);
    assert_true(br_decimal_parse("65535", 5, 65535, &n));
    assert_int_equal(n, 65535);
}

/* Go's strconv.ParseInt(s, 10, 64) accepts the same texts. */
static void signed_numbers_end_at_both_limits(void **state)
{
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {{"0", 0},
                 {"-0", 0},
                 {"+7", 7},
                 {"-12", -12},
                 {"9223372036854775807", INT64_MAX},
                 {"-9223372036854775808", INT64_MIN}};
    static const char *const wrong[] = {
        "", "-", "+", "+-1", "--1", "1-", "9223372036854775808", "-9223372036854775809"};
    int64_t n = 42;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(br_decimal_parse_signed(wrong[i], strlen(wrong[i]), &n));
    assert_false(br_decimal_parse_signed(NULL, 0, &n));
    assert_int_equal(n, 42);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(br_decimal_parse_signed(cases[i].text, strlen(cases[i].text), &n));
        assert_true(n == cases[i].value);
    }
}

static void fractions_are_shares_of_the_unit(void **state)
{
    static const struct {
        const char *text;
        uint64_t unit, value;
    } cases[] = {
        {"", 1000, 0},
        {"5", 1000, 500},
        {"25", 1000, 250},
        {"0019", 1000, 1},
        {"794111", 1000000000, 794111000},
        {"9999999999", 1000000000, 999999999},
        /* the fraction of an hour in nanoseconds: half an hour */
        {"5", 3600000000000, 1800000000000},
        {"999999999999999999", 1u << 30, 1073741823}, /* 2^30 * (1 - 10^-18), rounded down */
        {"1000000000000000009999", 10, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *p = cases[i].text, *end = p + strlen(p);
        assert_true(br_decimal_fraction(&p, end, cases[i].unit) == cases[i].value);
        assert_ptr_equal(p, end);
    }
    const char *p = "5s";
    assert_int_equal(br_decimal_fraction(&p, p + 2, 10), 5);
    assert_int_equal(*p, 's');
}

SUITE(decimal)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digits_are_read_up_to_the_first_other_character),
        cmocka_unit_test(numbers_above_the_maximum_are_rejected),
        cmocka_unit_test(whole_texts_have_only_digits),
        cmocka_unit_test(signed_numbers_end_at_both_limits),
        cmocka_unit_test(fractions_are_shares_of_the_unit),
    };
    return RUN(tests, NULL, NULL);
}
