/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of profiles with equal series. Pyroscope's compaction keeps only one profile per time. Two
 * profiles must therefore never get the same time, and a profile that is sent again must get its
 * earlier time.
 */
#include "base/steps.h"
#include "exporters/pyroscope/pyroscope.h"
#include "tests/support/fault.h"
#include "tests/support/test.h"

#define T0 1700000000000000000u
#define STEP 1000u

static struct br_entry entry(const char *text)
{
    return (struct br_entry){(const uint8_t *)text, (uint32_t)strlen(text)};
}

static uint64_t place(struct pyroscope_times *t, const char *labels, const char *resource,
                      const char *pprof, uint64_t time_ns)
{
    const struct pyroscope_times_of of = {entry(labels), entry(resource), entry(pprof), time_ns};
    uint64_t ret;
    assert_true(pyroscope_times_place(t, &of, &ret));
    return ret;
}

static void equal_series_get_different_times(void **state)
{
    (void)state;
    struct pyroscope_times *t = pyroscope_times_new();
    assert_true(place(t, "a", "pid 1", "x", T0) == T0);
    assert_true(place(t, "a", "pid 2", "x", T0) == T0 + STEP);
    assert_true(place(t, "a", "pid 2", "y", T0) == T0 + 2 * STEP);
    /* another series, and another time */
    assert_true(place(t, "b", "pid 1", "x", T0) == T0);
    assert_true(place(t, "a", "pid 1", "x", T0 + 1) == T0 + 1);
    /* a time that another profile already got */
    assert_true(place(t, "a", "pid 1", "z", T0 + STEP) == T0 + 3 * STEP);
    pyroscope_times_free(t);
}

static void same_profile_gets_the_same_time(void **state)
{
    (void)state;
    struct pyroscope_times *t = pyroscope_times_new();
    for (unsigned i = 0; i < 3; i++) {
        assert_true(place(t, "a", "pid 1", "x", T0) == T0);
        assert_true(place(t, "a", "pid 2", "x", T0) == T0 + STEP);
    }
    pyroscope_times_free(t);
}

/* Profiles alternate between two times, so that the search for a free time passes all later times.
 * Each search looks up only a few keys of 24 bytes. */
static void lookups_stay_cheap(void **state)
{
    enum { N = 20000 };
    (void)state;
    struct pyroscope_times *t = pyroscope_times_new();
    uint8_t *seen = calloc(N, 1);
    assert_non_null(seen);
    uint64_t steps = br_steps();
    for (unsigned i = 0; i < N; i++) {
        char resource[32];
        (void)snprintf(resource, sizeof resource, "pid %u", i);
        uint64_t at = place(t, "a", resource, "x", i % 2 ? T0 + 7 * STEP : T0) - T0;
        assert_true(at % STEP == 0 && at / STEP < N && !seen[at / STEP]);
        seen[at / STEP] = 1;
    }
    assert_true(br_steps() - steps < 16 * 24 * N);
    free(seen);
    pyroscope_times_free(t);
}

/* Old profiles are forgotten, recent ones are not. */
static void recent_profiles_are_known(void **state)
{
    (void)state;
    struct pyroscope_times *t = pyroscope_times_new();
    char resource[32];
    for (unsigned i = 0; i < 4 * PYROSCOPE_TIMES_MAX; i++) {
        (void)snprintf(resource, sizeof resource, "pid %u", i);
        (void)place(t, "a", resource, "x", T0 + i);
    }
    assert_true(place(t, "a", "another", "x", T0) == T0);
    for (unsigned i = 3 * PYROSCOPE_TIMES_MAX; i < 4 * PYROSCOPE_TIMES_MAX; i++) {
        (void)snprintf(resource, sizeof resource, "other %u", i);
        assert_true(place(t, "a", resource, "x", T0 + i) != T0 + i);
    }
    pyroscope_times_free(t);
}

static void place_some(void *arg)
{
    const struct pyroscope_times_of of = {entry("a"), entry("b"), entry("c"), T0};
    uint64_t ret = 0;
    (void)arg;
    fault_start();
    struct pyroscope_times *t = pyroscope_times_new();
    bool placed = t && pyroscope_times_place(t, &of, &ret);
    fault_stop();
    assert_true(placed ? ret == T0 : fault_failed());
    pyroscope_times_free(t);
}

static void without_memory(void **state)
{
    (void)state;
    fault_each("placing a profile", place_some, NULL);
}

SUITE(pyroscope_times)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_series_get_different_times),
        cmocka_unit_test(same_profile_gets_the_same_time),
        cmocka_unit_test(lookups_stay_cheap),
        cmocka_unit_test(recent_profiles_are_known),
        cmocka_unit_test(without_memory),
    };
    return RUN(tests, NULL, NULL);
}
