/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>

#include "base/mem.h"
#include "net/addresses.h"
#include "tests/support/test.h"

static bool add(struct br_addresses *a, unsigned last)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000 + last)};
    return br_addresses_add(a, &in, sizeof in);
}

static void make(struct br_addresses *a, unsigned n)
{
    *a = (struct br_addresses){.count = 0};
    for (unsigned i = 0; i < n; i++)
        assert_true(add(a, i));
}

static int next_address(const struct br_addresses *a, uint64_t now_ms)
{
    return br_addresses_next(a, now_ms, false, NULL, NULL);
}

static int resort(const struct br_addresses *a, uint64_t now_ms)
{
    return br_addresses_next(a, now_ms, true, NULL, NULL);
}

static void addresses_are_kept_once_and_limited(void **state)
{
    struct br_addresses a;
    (void)state;
    make(&a, BR_ADDRESSES_MAX);
    assert_false(add(&a, 0));
    assert_false(add(&a, BR_ADDRESSES_MAX));
    assert_int_equal(a.count, BR_ADDRESSES_MAX);
    assert_int_equal(br_addresses_find(&a, &a.addresses[7]), 7);
    make(&a, 0);
    assert_int_equal(resort(&a, 0), -1);
    assert_false(br_addresses_add(&a, &a, sizeof(struct sockaddr_storage) + 1));
}

/* An address that works is used again. After a failure the next one is tried. */
static void addresses_are_tried_in_order(void **state)
{
    struct br_addresses a;
    (void)state;
    make(&a, 3);
    assert_int_equal(next_address(&a, 0), 0);
    assert_int_equal(next_address(&a, 0), 0);
    br_addresses_failed(&a, 0, 0, 0.5);
    assert_int_equal(next_address(&a, 0), 1);
    br_addresses_failed(&a, 1, 0, 0.5);
    assert_int_equal(next_address(&a, 0), 2);
    br_addresses_failed(&a, 2, 0, 0.5);
    assert_int_equal(next_address(&a, 999), -1);
    assert_int_equal(next_address(&a, 1000), 0);
}

/* The first delay is 1 s. Each further one is 1.6 times as long, up to 120 s. */
static void delays_grow_up_to_their_maximum(void **state)
{
    static const uint64_t delays[] = {1000,  1600,  2560,  4096,   6553,   10485,  16777,
                                      26843, 42949, 68719, 109951, 120000, 120000, 120000};
    struct br_addresses a;
    uint64_t now = 5;
    (void)state;
    make(&a, 1);
    for (size_t i = 0; i < BR_COUNT(delays); i++) {
        br_addresses_failed(&a, 0, now, 0.5);
        assert_int_equal(next_address(&a, now + delays[i] - 1), -1);
        assert_int_equal(next_address(&a, now + delays[i]), 0);
        now += delays[i];
    }
    br_addresses_worked(&a, 0);
    assert_int_equal(next_address(&a, now), 0);
    br_addresses_failed(&a, 0, now, 0.5);
    assert_int_equal(next_address(&a, now + 1000), 0);
    /* the jitter changes the delay by up to 20 % in both directions */
    br_addresses_failed(&a, 0, now, 0);
    assert_int_equal(a.addresses[0].due_ms, now + 1280);
    br_addresses_failed(&a, 0, now, 1);
    assert_int_equal(a.addresses[0].due_ms, now + 3072);
}

/* If no other address works, the address that is due first is tried, but at most once per
 * second. */
static void the_last_resort_is_paced(void **state)
{
    struct br_addresses a;
    (void)state;
    make(&a, 2);
    br_addresses_failed(&a, 0, 0, 0.5);
    br_addresses_failed(&a, 0, 0, 0.5); /* due at 1600 */
    br_addresses_failed(&a, 1, 0, 0.5); /* due at 1000 */
    assert_int_equal(next_address(&a, 1), -1);
    assert_int_equal(resort(&a, 1), 1);
    br_addresses_tried(&a, 1, 1, 0.5);
    br_addresses_failed(&a, 1, 1, 0.5); /* due at 1601 */
    assert_int_equal(resort(&a, 2), 0);
    br_addresses_tried(&a, 0, 2, 0.5);
    br_addresses_failed(&a, 0, 2, 0.5); /* due at 2562 */
    assert_int_equal(resort(&a, 3), -1);
    assert_int_equal(resort(&a, 1000), -1);
    assert_int_equal(resort(&a, 1001), 1);
}

static bool is_two(void *arg, unsigned i)
{
    (void)arg;
    return i == 2;
}

static void addresses_in_use_are_skipped(void **state)
{
    struct br_addresses a;
    (void)state;
    make(&a, 3);
    a.next = 2;
    assert_int_equal(br_addresses_next(&a, 0, false, is_two, NULL), 0);
    make(&a, 0);
    assert_int_equal(br_addresses_next(&a, 0, true, is_two, NULL), -1);
}

static void a_look_up_keeps_the_state_of_known_addresses(void **state)
{
    struct br_addresses a, fresh = {.count = 0};
    (void)state;
    make(&a, 3);
    br_addresses_failed(&a, 0, 0, 0.5);
    assert_int_equal(a.next, 1);
    assert_true(add(&fresh, 9) && add(&fresh, 1) && add(&fresh, 0));
    br_addresses_update(&a, &fresh);
    assert_int_equal(a.count, 3);
    assert_int_equal(next_address(&a, 0), 1); /* still its turn */
    br_addresses_failed(&a, 1, 0, 0.5);
    assert_int_equal(next_address(&a, 0), 0); /* the new address; the failed one is not due */
    assert_int_equal(a.addresses[2].n_failed, 1);
    fresh.count = 0;
    br_addresses_update(&a, &fresh);
    assert_int_equal(resort(&a, 1000000), -1);
}

SUITE(addresses)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_kept_once_and_limited),
        cmocka_unit_test(addresses_are_tried_in_order),
        cmocka_unit_test(delays_grow_up_to_their_maximum),
        cmocka_unit_test(the_last_resort_is_paced),
        cmocka_unit_test(addresses_in_use_are_skipped),
        cmocka_unit_test(a_look_up_keeps_the_state_of_known_addresses),
    };
    return RUN(tests, NULL, NULL);
}
