/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "net/gate.h"
#include "tests/support/test.h"

#define START_MS 1000000u

static void fail_times(struct br_failures *failures, const char *peer, unsigned n, uint64_t now_ms)
{
    for (unsigned i = 0; i < n; i++)
        br_failures_add(failures, peer, now_ms);
}

/* Ten failures reach the limit. Each second, one failure is forgiven. */
static void a_burst_and_its_end(void **state)
{
    struct br_failures failures;
    (void)state;
    assert_int_equal(br_failures_init(&failures), 0);
    assert_false(br_failures_limited(&failures, "192.0.2.1:1", START_MS));
    fail_times(&failures, "192.0.2.1:1", 9, START_MS);
    assert_false(br_failures_limited(&failures, "192.0.2.1:2", START_MS));
    fail_times(&failures, "192.0.2.1:3", 1, START_MS);
    assert_true(br_failures_limited(&failures, "192.0.2.1:4", START_MS));
    assert_true(br_failures_limited(&failures, "192.0.2.1:4", START_MS + 999));
    assert_false(br_failures_limited(&failures, "192.0.2.1:4", START_MS + 1000));
    fail_times(&failures, "192.0.2.1:3", 100, START_MS + 1000);
    assert_true(br_failures_limited(&failures, "192.0.2.1:4", START_MS + 1000));
    assert_false(br_failures_limited(&failures, "192.0.2.1:4", START_MS + 60000));
    br_failures_release(&failures);
}

/* An IPv4 address counts alone, also as an IPv6 address; IPv6 addresses count by /64. */
static void addresses_that_count_together(void **state)
{
    static const struct {
        const char *one, *other;
        bool together;
    } cases[] = {
        {"192.0.2.1:5", "192.0.2.1:6", true},
        {"192.0.2.1:5", "192.0.2.2:5", false},
        {"[::ffff:192.0.2.1]:5", "192.0.2.1:5", true},
        {"[::ffff:192.0.2.1]:5", "[::ffff:192.0.2.2]:5", false},
        {"[2001:db8::1]:5", "[2001:db8::ffff:1]:6", true},
        {"[2001:db8:0:1::1]:5", "[2001:db8::1]:5", false},
        {"[fe80::1%eth0]:5", "[fe80::2]:5", true},
        {"unix", "unix", true},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_failures failures;
        assert_int_equal(br_failures_init(&failures), 0);
        fail_times(&failures, cases[i].one, BR_FAILURES_MAX, START_MS);
        assert_true(br_failures_limited(&failures, cases[i].one, START_MS));
        assert_int_equal(br_failures_limited(&failures, cases[i].other, START_MS),
                         cases[i].together);
        br_failures_release(&failures);
    }
}

/* Many addresses displace other addresses, and need no more memory. An address that fails often is
 * not displaced. */
static void the_table_is_bounded(void **state)
{
    struct br_failures failures;
    char peer[32];
    unsigned n_limited = 0;
    (void)state;
    assert_int_equal(br_failures_init(&failures), 0);
    for (unsigned i = 0; i < 100000; i++) {
        (void)snprintf(peer, sizeof peer, "10.%u.%u.%u:1", i >> 16, i >> 8 & 255, i & 255);
        fail_times(&failures, peer, BR_FAILURES_MAX, START_MS);
        assert_true(br_failures_limited(&failures, peer, START_MS));
    }
    for (unsigned i = 0; i < 100000; i++) {
        (void)snprintf(peer, sizeof peer, "10.%u.%u.%u:1", i >> 16, i >> 8 & 255, i & 255);
        n_limited += br_failures_limited(&failures, peer, START_MS);
    }
    assert_in_range(n_limited, 1, 2 * BR_FAILURES_SETS);
    br_failures_release(&failures);
}

SUITE(failures)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_and_its_end),
        cmocka_unit_test(addresses_that_count_together),
        cmocka_unit_test(the_table_is_bounded),
    };
    return RUN(tests, NULL, NULL);
}
