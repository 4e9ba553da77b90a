/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/early.h"

#include "tests/support/test.h"

static void a_late_request_begins_a_pause(void **state)
{
    (void)state;
    struct br_early early = {.wait_ms = 20};
    assert_int_equal(br_early_until(&early, 100), 120);
    br_early_note(&early, false, 120);
    assert_int_equal(br_early_until(&early, 130), 130);
    assert_int_equal(br_early_until(&early, 1119), 1119);
    assert_int_equal(br_early_until(&early, 1120), 1140);
}

static void pauses_become_longer(void **state)
{
    (void)state;
    struct br_early early = {.wait_ms = 20};
    const uint64_t expected_ms[] = {1000, 2000, 4000, 8000, 16000, 32000, 64000, 64000};
    uint64_t now_ms = 0;
    for (size_t i = 0; i < sizeof expected_ms / sizeof *expected_ms; i++) {
        br_early_note(&early, false, now_ms);
        br_early_note(&early, false, now_ms + 1); /* it arrived before the pause */
        assert_int_equal(early.paused_until_ms, now_ms + expected_ms[i]);
        now_ms = early.paused_until_ms;
    }
}

static void a_few_late_requests_do_not_matter(void **state)
{
    (void)state;
    struct br_early early = {.wait_ms = 20};
    for (unsigned i = 0; i < 5000; i++)
        br_early_note(&early, i % 10 != 9, i); /* one of ten is late; one of nine is allowed */
    assert_int_equal(br_early_until(&early, 5000), 5020);
}

static void a_fast_backend_ends_long_pauses(void **state)
{
    (void)state;
    struct br_early early = {.wait_ms = 20};
    br_early_note(&early, false, 0);
    br_early_note(&early, false, 1000);
    assert_int_equal(early.pause_ms, 2000);
    for (unsigned i = 0; i < BR_EARLY_WINDOW; i++)
        br_early_note(&early, true, 3000);
    assert_int_equal(early.pause_ms, 0);
}

SUITE(early)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_request_begins_a_pause),
        cmocka_unit_test(pauses_become_longer),
        cmocka_unit_test(a_few_late_requests_do_not_matter),
        cmocka_unit_test(a_fast_backend_ends_long_pauses),
    };
    return RUN(tests, NULL, NULL);
}
