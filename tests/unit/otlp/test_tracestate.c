/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a tracestate's members (W3C Trace Context, section 3.3.2.1). The sampler's tests
 * cover the rest, except br_tracestate_get. */
#include "base/bytes.h"
#include "base/mem.h"
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

/* The syntax is that of W3C Trace Context, section 3.3; the value of "ot" may be any value. */
static void test_values_by_key(void **state)
{
    (void)state;
    static const struct {
        const char *text, *key, *value; /* value NULL: there is none */
    } cases[] = {
        {"a=1", "a", "1"},          {"a=1,b=2", "b", "2"}, {" a=1 ,\t b=2 x\t", "b", "2 x"},
        {",,a=1,", "a", "1"},       {"t@s=1", "t@s", "1"}, {"ot=any thing", "ot", "any thing"},
        {"a=1", "b", NULL},         {"", "a", NULL},       {"a=1,a=1", "a", NULL},
        {"b=2,a=1,a=3", "b", NULL}, {"a=1,b", "a", NULL},  {"a=1, ", "a", NULL},
        {"a=1,B=2", "a", NULL},     {"a=1,b=", "a", NULL}, {"a =1", "a", NULL},
        {"a=1=2", "a", NULL},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        const void *value = NULL;
        size_t len = 0;
        bool found =
            br_tracestate_get(cases[i].text, strlen(cases[i].text), cases[i].key, &value, &len);
        bool same =
            found ? cases[i].value && br_bytes_are(value, len, cases[i].value) : !cases[i].value;
        if (!same)
            fail_msg("\"%s\" has another value of %s", cases[i].text, cases[i].key);
    }
    /* at most 32 members */
    char many[256] = "a=1";
    const void *value;
    size_t len;
    for (int n = 2; n <= 33; n++) {
        (void)snprintf(many + strlen(many), sizeof many - strlen(many), ",k%d=1", n);
        assert_int_equal(br_tracestate_get(many, strlen(many), "a", &value, &len), n <= 32);
    }
}

SUITE(tracestate)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_by_key),
        cmocka_unit_test(test_key_characters),
    };
    return RUN(tests, NULL, NULL);
}
