/* SPDX-License-Identifier: Apache-2.0 */
#include "base/secret.h"

#include <string.h>

#include "base/str.h"
#include "tests/support/test.h"

/* The example of FIPS 180-2, appendix B.1. */
static void digest_of_abc(void **state)
{
    uint8_t digest[BR_DIGEST_SIZE];
    struct br_str hex = {0};
    (void)state;
    assert_true(br_digest("abc", 3, digest));
    br_str_hex(&hex, digest, sizeof digest);
    assert_string_equal(hex.data,
                        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    br_str_release(&hex);
}

static void equal_secrets(void **state)
{
    static const char *const texts[] = {"", "a", "A", "ab", "abc", "abd", "abc "};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(texts); i++)
        for (size_t k = 0; k < BR_COUNT(texts); k++)
            assert_int_equal(br_secret_equal(texts[i], texts[k]), i == k);
}

SUITE(secret)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digest_of_abc),
        cmocka_unit_test(equal_secrets),
    };
    return RUN(tests, NULL, NULL);
}
