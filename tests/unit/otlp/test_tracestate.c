/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a tracestate's members (W3C Trace Context, section 3.3.2.1). The sampler's tests
 * cover the rest. */
#include "otlp/tracestate.h"
#include "tests/support/test.h"

/* The characters after the first one are lower-case letters, digits, `_`, `-`, `*` and `/`. */
static void test_key_characters(void **state)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789_-*/";
    (void)state;
    for (unsigned byte = 0; byte < 256; byte++) {
        const char simple[] = {'k', (char)byte, 'y', '=', '1'};
        const char tenant[] = {'t', (char)byte, '@', 's', '=', '1'};
        const char system[] = {'t', '@', 's', (char)byte, '=', '1'};
        bool valid = byte && strchr(allowed, (int)byte);
        struct br_tracestate tracestate;
        if (byte == '=' || byte == '@' || byte == ',')
            continue; /* separators, which make other members of it */
        if (br_tracestate_read(&tracestate, simple, sizeof simple) != valid ||
            br_tracestate_read(&tracestate, tenant, sizeof tenant) != valid ||
            br_tracestate_read(&tracestate, system, sizeof system) != valid)
            fail_msg("a key with byte 0x%02x must be %s", byte, valid ? "valid" : "invalid");
    }
}

SUITE(tracestate)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key_characters),
    };
    return RUN(tests, NULL, NULL);
}
