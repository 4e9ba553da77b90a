/* SPDX-License-Identifier: Apache-2.0 */
#include "base/time.h"
#include "tests/support/test.h"

/* The first two are examples of RFC 3339 section 5.8, in UTC. */
static void times_are_written_as_in_rfc_3339(void **state)
{
    (void)state;
    char out[BR_RFC3339_SIZE];
    assert_string_equal(br_rfc3339(482196050520000000, 2, out), "1985-04-12T23:20:50.52Z");
    assert_string_equal(br_rfc3339(851042397000000000, 0, out), "1996-12-20T00:39:57Z");
    assert_string_equal(br_rfc3339(0, 3, out), "1970-01-01T00:00:00.000Z");
    assert_string_equal(br_rfc3339(951782399999999999, 3, out), "2000-02-28T23:59:59.999Z");
    assert_string_equal(br_rfc3339(951868799000000001, 9, out), "2000-02-29T23:59:59.000000001Z");
    assert_string_equal(br_rfc3339(UINT64_MAX, 9, out), "2554-07-21T23:34:33.709551615Z");
}

SUITE(time)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_written_as_in_rfc_3339),
    };
    return RUN(tests, NULL, NULL);
}
