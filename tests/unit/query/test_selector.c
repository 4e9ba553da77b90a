/* SPDX-License-Identifier: Apache-2.0 */
#include "query/selector.h"

#include "query/id.h"
#include "tests/support/fault.h"
#include "tests/support/test.h"

static const char *const operators[] = {"=", "!=", "=~", "!~"};

/* Asserts that the parsed matchers, as `name=value|name=~value|`, are the expected ones. */
static void read_as(const char *text, const char *expected)
{
    struct br_arena arena = {0};
    struct br_selector selector;
    struct br_err err = {0};
    struct br_str out = {0};
    int rc = br_selector_parse(text, strlen(text), &arena, &selector, &err);
    if (rc)
        fail_msg("%s: %s", text, err.text);
    br_str_puts(&out, "");
    for (size_t i = 0; i < selector.n_matchers; i++)
        br_str_printf(&out, "%s%s%s|", selector.matchers[i].name,
                      operators[selector.matchers[i].type], selector.matchers[i].value);
    assert_string_equal(out.data, expected);
    br_str_release(&out);
    br_arena_release(&arena);
}

static void is_rejected(const char *text, const char *expected)
{
    struct br_arena arena = {0};
    struct br_selector selector;
    struct br_err err = {0};
    assert_int_equal(br_selector_parse(text, strlen(text), &arena, &selector, &err), BR_EINVAL);
    if (!strstr(err.text, expected))
        fail_msg("%s: %s, not: %s", text, err.text, expected);
    br_arena_release(&arena);
}

static void selectors_are_read(void **state)
{
    (void)state;
    read_as("", "");
    read_as("{}", "");
    read_as(" { } ", "");
    read_as("{service_name=\"shop\"}", "service_name=shop|");
    read_as("{a=\"1\",b!=\"2\",c=~\"3|4\",d!~`5`,}", "a=1|b!=2|c=~3|4|d!~5|");
    read_as("{ a = \"1\" # a comment, with }\n , b\n=~\t'x.*' }", "a=1|b=~x.*|");
    read_as("process_cpu{a=\"\"}", "__name__=process_cpu|a=|");
    read_as("up", "__name__=up|");
    read_as("{\"service.name\"=\"A\",'k8s.pod'!='B'}", "service.name=A|k8s.pod!=B|");
    read_as("{a=\"q\\\"\\\\\\n\\t\\x41\\101\\u00e9\\U0001f600\"}",
            "a=q\"\\\n\tAA\u00e9\U0001f600|");
    read_as("{a='it\\'s',b=`raw \\n {}`}", "a=it's|b=raw \\n {}|");
    read_as("{a=\"{b=\\\"c\\\"}\"}", "a={b=\"c\"}|");
}

static void errors_name_the_place(void **state)
{
    (void)state;
    is_rejected(
        "{bad",
        "1:5: parse error: unexpected end of the selector after a label's name, expected one of =");
    is_rejected("{a=1}", "1:4: parse error: unexpected '1', expected a string in quotes");
    is_rejected("{a=\"1\"",
                "1:7: parse error: unexpected end of the selector, expected ',' or '}'");
    is_rejected("{a=\"1\" b=\"2\"}", "1:8: parse error: unexpected 'b', expected ',' or '}'");
    is_rejected("{,}", "1:2: parse error: unexpected ',', expected a label's name");
    is_rejected("{\n  a=\"1\",\n  b.c=\"2\"}", "3:4: parse error: unexpected '.'");
    is_rejected("{a=\"1}", "1:4: parse error: a string is not terminated");
    is_rejected("{a=\"1\n\"}", "1:4: parse error: a string is not terminated on its line");
    is_rejected("{a=\"\\q\"}", "unknown escape");
    is_rejected("{a=\"\\x4\"}", "too few digits");
    is_rejected("{a=\"\\400\"}", "above 255");
    is_rejected("{a=\"\\ud800\"}", "not a Unicode character");
    is_rejected("{a=\"\\x00\"}", "contains a NUL");
    is_rejected("{a=\"\\xff\"}", "not UTF-8");
    is_rejected("{a=\"\xff\"}", "not UTF-8");
    is_rejected("{a=~\"(\"}", "1:5: parse error: invalid regular expression:");
    /* positions in a line are counted in characters, not bytes */
    is_rejected("{a=\"\u00e9\", =}", "1:9: parse error:");
    is_rejected("{a=\"1\"} x", "1:9: parse error: unexpected 'x', expected the end");
    is_rejected("9{}", "1:1: parse error: unexpected '9', expected '{'");
    is_rejected("{a==\"1\"}", "1:4: parse error: unexpected '='");
    is_rejected("order-service{}", "1:6: parse error: unexpected '-'");
    is_rejected("{\x01", "unexpected byte 0x01");
}

static void sizes_are_limited(void **state)
{
    (void)state;
    struct br_str text = {0};
    struct br_arena arena = {0};
    struct br_selector selector;
    struct br_err err = {0};
    br_str_putc(&text, '{');
    for (unsigned i = 0; i < BR_SELECTOR_MATCHERS_MAX; i++)
        br_str_printf(&text, "a%u=\"\",", i);
    br_str_putc(&text, '}');
    assert_int_equal(br_selector_parse(text.data, text.len, &arena, &selector, &err), 0);
    assert_int_equal(selector.n_matchers, BR_SELECTOR_MATCHERS_MAX);
    text.data[text.len - 1] = ' ';
    br_str_puts(&text, "b=\"\"}");
    is_rejected(text.data, "more than 64 matchers");
    br_str_clear(&text);
    br_str_puts(&text, "{a=~\"");
    for (unsigned i = 0; i <= BR_SELECTOR_REGEX_MAX; i++)
        br_str_putc(&text, 'x');
    br_str_puts(&text, "\"}");
    is_rejected(text.data, "longer than 4096 bytes");
    br_str_clear(&text);
    for (unsigned i = 0; i < BR_SELECTOR_MAX + 1; i++)
        br_str_putc(&text, '{');
    is_rejected(text.data, "65537 bytes; at most 65536");
    br_str_release(&text);
    br_arena_release(&arena);
}

static void selector_without_memory(void *arg)
{
    (void)arg;
    static const char text[] = "{a=\"1\",\"b\"=~`x|y`}";
    struct br_arena arena = {0};
    struct br_selector selector;
    struct br_err err = {0};
    fault_start();
    int rc = br_selector_parse(text, strlen(text), &arena, &selector, &err);
    fault_stop();
    assert_true(rc == 0 ? selector.n_matchers == 2 : rc == BR_ENOMEM && fault_failed());
    br_arena_release(&arena);
}

static void lack_of_memory_is_reported(void **state)
{
    (void)state;
    fault_each("selector", selector_without_memory, NULL);
}

/* --- Types ------------------------------------------------------------------------------------ */

static int type_of(const char *text, struct br_arena *arena, struct br_profile_type *ret)
{
    struct br_err err = {0};
    return br_profile_type_parse(text, strlen(text), arena, ret, &err);
}

static void types_have_three_or_five_parts(void **state)
{
    (void)state;
    struct br_arena arena = {0};
    struct br_profile_type type;
    assert_int_equal(type_of("process_cpu:cpu:nanoseconds:wall:ms", &arena, &type), 0);
    assert_true(type.whole);
    assert_string_equal(type.name, "process_cpu");
    assert_string_equal(type.type, "cpu");
    assert_string_equal(type.unit, "nanoseconds");
    assert_string_equal(type.period_type, "wall");
    assert_string_equal(type.period_unit, "ms");
    assert_int_equal(type_of("off_cpu:off_cpu:nanoseconds::", &arena, &type), 0);
    assert_true(type.whole);
    assert_string_equal(type.period_unit, "");
    assert_int_equal(type_of("process_cpu:cpu:nanoseconds", &arena, &type), 0);
    assert_false(type.whole);
    assert_string_equal(type.id, "process_cpu:cpu:nanoseconds");
    assert_int_equal(type_of("a:b:c:d:e:delta", &arena, &type), 0);
    assert_true(type.whole);
    assert_string_equal(type.id, "a:b:c:d:e");
    static const char *const bad[] = {"",     "nope",     "a:b",         "a:b:c:d",
                                      ":b:c", "a::c:d:e", "a:b:c:d:e:f", "a:b:c:d:e:delta:g"};
    for (size_t i = 0; i < BR_COUNT(bad); i++)
        assert_int_equal(type_of(bad[i], &arena, &type), BR_EINVAL);
    br_arena_release(&arena);
}

static void application_names_contain_a_type(void **state)
{
    (void)state;
    static const struct {
        const char *text, *service, *id;
    } cases[] = {{"order-service.cpu", "order-service", "process_cpu:cpu:nanoseconds"},
                 {"order-service", "order-service", "process_cpu:cpu:nanoseconds"},
                 {"shop.wall", "shop", "wall:wall:nanoseconds"},
                 {"shop.alloc_space", "shop", "memory:alloc_space:bytes"},
                 {"shop.mutex_duration", "shop", "mutex:delay:nanoseconds"},
                 {"my.weird.app", "my.weird.app", "process_cpu:cpu:nanoseconds"}};
    struct br_arena arena = {0};
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_profile_type type;
        const char *service;
        struct br_err err = {0};
        assert_int_equal(br_profile_type_app(cases[i].text, strlen(cases[i].text), &arena, &type,
                                             &service, &err),
                         0);
        assert_string_equal(service, cases[i].service);
        assert_string_equal(type.id, cases[i].id);
        assert_false(type.whole);
    }
    br_arena_release(&arena);
}

static void units_are_those_of_pyroscope(void **state)
{
    (void)state;
    uint32_t rate;
    assert_string_equal(br_profile_type_units(
                            &(struct br_profile_type){.type = "cpu", .unit = "nanoseconds"}, &rate),
                        "samples");
    assert_int_equal(rate, 1000000000);
    assert_string_equal(
        br_profile_type_units(&(struct br_profile_type){.type = "alloc_objects", .unit = "count"},
                              &rate),
        "objects");
    assert_int_equal(rate, 100);
    assert_string_equal(
        br_profile_type_units(&(struct br_profile_type){.type = "inuse_space", .unit = "bytes"},
                              &rate),
        "bytes");
    assert_int_equal(rate, 100);
}

/* --- Ids -------------------------------------------------------------------------------------- */

static void ids_are_hex_or_base64(void **state)
{
    (void)state;
    static const uint8_t span[8] = {0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31};
    static const uint8_t padded[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a, 0xbc};
    uint8_t id[16];
    uint64_t number;
    assert_true(br_id_parse("b7ad6b7169203331", 16, id, 8));
    assert_memory_equal(id, span, 8);
    assert_true(br_id_parse("B7AD6B7169203331", 16, id, 8));
    assert_memory_equal(id, span, 8);
    assert_true(br_id_parse("t61rcWkgMzE=", 12, id, 8)); /* RFC 4648 encoding of the same bytes */
    assert_memory_equal(id, span, 8);
    assert_true(br_id_parse("abc", 3, id, 16));
    assert_memory_equal(id, padded, 16);
    assert_true(br_span_id_parse("t61rcWkgMzE=", 12, &number));
    assert_memory_equal(&number, span, 8);
    static const char *const bad[] = {"",
                                      "0",
                                      "0000000000000000",
                                      "xyz",
                                      "b7ad6b7169203331b7ad6b",
                                      "AAAAAAAAAAA=",
                                      "t61rcWkgMzE=t61rcWkgMzE="};
    for (size_t i = 0; i < BR_COUNT(bad); i++)
        assert_false(br_id_parse(bad[i], strlen(bad[i]), id, 8));
}

SUITE(selector)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selectors_are_read),
        cmocka_unit_test(errors_name_the_place),
        cmocka_unit_test(sizes_are_limited),
        cmocka_unit_test(lack_of_memory_is_reported),
        cmocka_unit_test(types_have_three_or_five_parts),
        cmocka_unit_test(application_names_contain_a_type),
        cmocka_unit_test(units_are_those_of_pyroscope),
        cmocka_unit_test(ids_are_hex_or_base64),
    };
    return RUN(tests, NULL, NULL);
}
