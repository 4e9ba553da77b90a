/* SPDX-License-Identifier: Apache-2.0 */
/* Percentiles of durations that are counted in ranges. */
#include "extensions/query/durations.h"

#include "base/err.h"
#include "tests/support/test.h"

static struct query_durations *add_range(struct br_arena *arena, uint64_t first, uint64_t count,
                                         uint64_t step)
{
    struct query_durations *durations = br_arena_calloc(arena, 1, sizeof *durations);
    assert_non_null(durations);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(query_durations_add(durations, arena, first + i * step), 0);
    assert_int_equal(durations->count, count);
    return durations;
}

static void assert_near(uint64_t got, uint64_t expected)
{
    uint64_t error = got > expected ? got - expected : expected - got;
    if ((double)error > (double)expected * QUERY_DURATIONS_ERROR)
        fail_msg("%llu instead of %llu", (unsigned long long)got, (unsigned long long)expected);
}

/* The percentile P of the multiples of 1 to 1000 is the multiple of 10 * P (nearest rank). */
static void test_percentiles(void **state)
{
    static const uint64_t steps[] = {1, 1000, 1000000, 77777777, 1000000000};
    static const unsigned percents[] = {1, 50, 95, 99, 100};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(steps); i++) {
        struct br_arena arena = {0};
        struct query_durations *durations = add_range(&arena, steps[i], 1000, steps[i]);
        for (size_t k = 0; k < BR_COUNT(percents); k++)
            assert_near(query_durations_percentile(durations, percents[k]),
                        10 * percents[k] * steps[i]);
        assert_int_equal(durations->max_ns, 1000 * steps[i]);
        br_arena_release(&arena);
    }
}

/* The error is at most 1/64 for every single duration, from 1 ns to the longest. */
static void test_the_error_has_a_limit(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 64; bit++)
        for (uint64_t part = 0; part < 8; part++) {
            struct br_arena arena = {0};
            uint64_t duration = (UINT64_C(1) << bit) + ((UINT64_C(1) << bit) >> 3) * part;
            struct query_durations *durations = add_range(&arena, duration, 1, 0);
            /* a longer duration, so that the result is not the exact maximum */
            assert_int_equal(query_durations_add(durations, &arena, UINT64_MAX), 0);
            assert_near(query_durations_percentile(durations, 50), duration);
            assert_int_equal(query_durations_percentile(durations, 100) <= UINT64_MAX, 1);
            br_arena_release(&arena);
        }
}

static void test_short_durations_are_exact(void **state)
{
    struct br_arena arena = {0};
    (void)state;
    struct query_durations *durations = add_range(&arena, 0, 64, 1);
    assert_int_equal(query_durations_percentile(durations, 25), 15);
    assert_int_equal(query_durations_percentile(durations, 50), 31);
    assert_int_equal(query_durations_percentile(durations, 100), 63);
    br_arena_release(&arena);
}

static void test_no_durations(void **state)
{
    const struct query_durations durations = {0};
    (void)state;
    assert_int_equal(query_durations_percentile(&durations, 50), 0);
}

static void test_without_memory(void **state)
{
    struct br_arena arena;
    struct query_durations durations = {0};
    (void)state;
    br_arena_init(&arena, 1);
    assert_int_equal(query_durations_add(&durations, &arena, 1000), BR_EFULL);
    assert_int_equal(durations.count, 0);
    br_arena_release(&arena);
}

SUITE(durations)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles),
        cmocka_unit_test(test_the_error_has_a_limit),
        cmocka_unit_test(test_short_durations_are_exact),
        cmocka_unit_test(test_no_durations),
        cmocka_unit_test(test_without_memory),
    };
    return RUN(tests, NULL, NULL);
}
