/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sum.h"
#include "tests/support/test.h"

static void sums_out_of_range_are_clamped(void **state)
{
    (void)state;
    assert_int_equal(br_sum(2, -5), -3);
    assert_true(br_sum(INT64_MAX, 0) == INT64_MAX && br_sum(INT64_MIN, INT64_MAX) == -1);
    assert_true(br_sum(INT64_MAX, 1) == INT64_MAX && br_sum(1, INT64_MAX) == INT64_MAX);
    assert_true(br_sum(INT64_MIN, -1) == INT64_MIN && br_sum(-1, INT64_MIN) == INT64_MIN);
}

static void differences_out_of_range_are_clamped(void **state)
{
    (void)state;
    assert_int_equal(br_difference(2, 5), -3);
    assert_true(br_difference(-1, INT64_MIN) == INT64_MAX);
    assert_true(br_difference(0, INT64_MIN) == INT64_MAX);
    assert_true(br_difference(-2, INT64_MAX) == INT64_MIN);
    assert_true(br_difference(INT64_MAX, -1) == INT64_MAX);
}

static void products_out_of_range_are_clamped(void **state)
{
    (void)state;
    assert_int_equal(br_product(-3, 7), -21);
    assert_true(br_product(INT64_MIN, 1) == INT64_MIN && br_product(INT64_MAX, 0) == 0);
    assert_true(br_product(INT64_MIN, -1) == INT64_MAX);
    assert_true(br_product(INT64_MAX, 2) == INT64_MAX && br_product(-2, INT64_MIN) == INT64_MAX);
    assert_true(br_product(INT64_MAX, -2) == INT64_MIN && br_product(2, INT64_MIN) == INT64_MIN);
}

static void unsigned_results_out_of_range_are_the_largest_number(void **state)
{
    (void)state;
    assert_int_equal(br_sum_unsigned(2, 5), 7);
    assert_true(br_sum_unsigned(UINT64_MAX, 0) == UINT64_MAX);
    assert_true(br_sum_unsigned(UINT64_MAX, 1) == UINT64_MAX);
    assert_int_equal(br_product_unsigned(3, 7), 21);
    assert_true(br_product_unsigned(1ull << 32, (1ull << 32) - 1) == UINT64_MAX - UINT32_MAX);
    assert_true(br_product_unsigned(1ull << 32, 1ull << 32) == UINT64_MAX);
}

SUITE(sum)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_out_of_range_are_clamped),
        cmocka_unit_test(differences_out_of_range_are_clamped),
        cmocka_unit_test(products_out_of_range_are_clamped),
        cmocka_unit_test(unsigned_results_out_of_range_are_the_largest_number),
    };
    return RUN(tests, NULL, NULL);
}
