/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the digits of doubles with printf and strtod. The text reads back as the double, no text
 * with fewer digits does, and none with as many digits is nearer.
 */
#include <math.h>

#include "base/double.h"
#include "tests/support/test.h"

#define RANDOM_COUNT 300000

static double of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t to_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Returns the digits of `value` rounded to `count`, as a number, and the exponent of its last
 * digit. */
static long long rounded(double value, int count, int *ret_exponent)
{
    char text[40], digits[24] = "", *e;
    (void)snprintf(text, sizeof text, "%.*e", count - 1, value);
    e = strchr(text, 'e');
    digits[0] = text[0];
    if (count > 1)
        memcpy(digits + 1, text + 2, (size_t)count - 1);
    *ret_exponent = (int)strtol(e + 1, NULL, 10) - (count - 1);
    return strtoll(digits, NULL, 10);
}

static bool reads_back(long long digits, int exponent, double value)
{
    char text[40];
    (void)snprintf(text, sizeof text, "%llde%d", digits, exponent);
    return to_bits(strtod(text, NULL)) == to_bits(value);
}

/* If the nearest text of `count` digits does not read back, the next one may do so above a power
 * of two. There, the interval of texts that read back extends twice as far up as down. */
static bool has_digits(double value, int count, long long *ret_digits, int *ret_exponent)
{
    long long nearest = rounded(value, count, ret_exponent);
    for (int i = 0; i < 3; i++) {
        *ret_digits = nearest + (long long[]){0, 1, -1}[i];
        if (reads_back(*ret_digits, *ret_exponent, value))
            return true;
    }
    return false;
}

static void check(double value)
{
    char digits[BR_DOUBLE_DIGITS_MAX + 1] = "";
    int point, exponent, n = br_double_shortest(value, digits, &point);
    long long want, got;
    assert_in_range(n, 1, BR_DOUBLE_DIGITS_MAX);
    digits[n] = '\0';
    got = strtoll(digits, NULL, 10);
    bool same = has_digits(value, n, &want, &exponent);
    if (!same || got != want || point - n != exponent)
        fail_msg("%.17g (%llx): %se%d instead of %llde%d", value,
                 (unsigned long long)to_bits(value), digits, point - n, want, exponent);
    if (n > 1 && has_digits(value, n - 1, &want, &exponent))
        fail_msg("%.17g (%llx): %se%d instead of %llde%d", value,
                 (unsigned long long)to_bits(value), digits, point - n, want, exponent);
}

/* Checks the value and its two neighbours. */
static void check_around(double value)
{
    for (uint64_t bits = to_bits(value), i = 0; i < 5; i++) {
        double near = of_bits(bits - 2 + i);
        if (bits - 2 + i < bits + 3 && isfinite(near) && near > 0)
            check(near);
    }
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void random_patterns(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < RANDOM_COUNT; i++) {
        double value = of_bits(next_random(&seed) >> 1);
        if (isfinite(value) && value > 0)
            check(value);
    }
}

static void random_subnormals(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (int i = 0; i < RANDOM_COUNT / 10; i++)
        check(of_bits(1 + (next_random(&seed) >> 12 >> i % 52)));
    for (uint64_t bits = 1; bits < 3000; bits++)
        check(of_bits(bits));
}

static void random_decimals_of_few_digits(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int i = 0; i < RANDOM_COUNT / 3; i++) {
        char text[40];
        uint64_t digits = 1 + (next_random(&seed) >> (4 + i % 59));
        (void)snprintf(text, sizeof text, "%llue%d", (unsigned long long)digits,
                       (int)(next_random(&seed) % 640) - 340);
        double value = strtod(text, NULL);
        if (isfinite(value) && value > 0)
            check_around(value);
    }
}

static void powers_and_their_neighbours(void **state)
{
    (void)state;
    for (int i = -1074; i < 1024; i++)
        check_around(ldexp(1, i));
    for (int i = -323; i <= 308; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "1e%d", i);
        check_around(strtod(text, NULL));
    }
    check_around(of_bits(UINT64_C(0x7fefffffffffffff))); /* the largest */
}

static void integers(void **state)
{
    (void)state;
    uint64_t seed = 4;
    for (int i = 1; i <= 100000; i++)
        check(i);
    for (int i = 0; i < RANDOM_COUNT / 3; i++)
        check((double)(1 + (next_random(&seed) >> (1 + i % 62))));
    for (int i = 0; i < 63; i++)
        check_around((double)(UINT64_C(1) << i));
}

/* Texts as printed by Go's strconv with precision -1 and ECMAScript's toString. */
static void known_texts(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text, *plain;
    } cases[] = {
        {0, "0", "0"},
        {-0.0, "-0", "-0"},
        {1, "1", "1"},
        {-1.5, "-1.5", "-1.5"},
        {0.1 + 0.2, "0.30000000000000004", "0.30000000000000004"},
        {1e-6, "0.000001", "0.000001"},
        {1e-7, "1e-7", "0.0000001"},
        {1.25e-7, "1.25e-7", "0.000000125"},
        {123456789012345680000.0, "123456789012345680000", "123456789012345680000"},
        {1e21, "1e+21", "1000000000000000000000"},
        {1.5e100, "1.5e+100",
         "15000000000000000000000000000000000000000000000000"
         "000000000000000000000000000000000000000000000000000"},
        {5e-324, "5e-324", NULL},
        {1e-323, "1e-323", NULL},
        {2.2250738585072014e-308, "2.2250738585072014e-308", NULL},
        {1.7976931348623157e308, "1.7976931348623157e+308", NULL},
        {0x1p-44, "5.684341886080802e-14", "0.00000000000005684341886080802"},
        {9007199254740993.0, "9007199254740992", "9007199254740992"},
        {2e23, "2e+23", "200000000000000000000000"},
        {9.5e-3, "0.0095", "0.0095"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_str out = {0};
        br_double_print(&out, cases[i].value);
        assert_string_equal(out.data, cases[i].text);
        br_str_clear(&out);
        br_double_print_plain(&out, cases[i].value);
        if (cases[i].plain)
            assert_string_equal(out.data, cases[i].plain);
        assert_true(to_bits(strtod(out.data, NULL)) == to_bits(cases[i].value));
        br_str_release(&out);
    }
}

static void the_longest_texts(void **state)
{
    (void)state;
    struct br_str out = {0};
    br_double_print_plain(&out, -2.2250738585072014e-308);
    assert_int_equal(out.len, strlen("-0.") + 307 + 17);
    br_str_clear(&out);
    br_double_print_plain(&out, -2.4703282292062327e-320 * 1.5); /* a subnormal */
    assert_true(out.len < 345);
    br_str_clear(&out);
    br_double_print_plain(&out, -1.7976931348623157e308);
    assert_int_equal(out.len, 1 + 309);
    br_str_release(&out);
}

SUITE(double)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_patterns),
        cmocka_unit_test(random_subnormals),
        cmocka_unit_test(random_decimals_of_few_digits),
        cmocka_unit_test(powers_and_their_neighbours),
        cmocka_unit_test(integers),
        cmocka_unit_test(known_texts),
        cmocka_unit_test(the_longest_texts),
    };
    return RUN(tests, NULL, NULL);
}
