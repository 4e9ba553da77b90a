/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and steps of JSON conversion are proportional to the text, whatever its shape. */
#include "otlp/json/json.h"

#include "base/steps.h"
#include "otlp/json/tree.h"
#include "tests/support/mem_meter.h"
#include "tests/support/test.h"
#include "tests/support/worst.h"

#define MIB (1u << 20)
#define STEPS_MAX 8 /* per byte */

#define SPANS "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":["
#define SPANS_END "]}]}]}"
#define VALUE "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"value\":{"
#define VALUE_END "}}]}}]}"
#define SAMPLE                                                                                     \
    "{\"resourceProfiles\":[{\"scopeProfiles\":[{\"profiles\":[{\"samples\":[{\"values\":[1],"
#define SAMPLE_END "}]}]}]}]}"
#define STRINGS "{\"dictionary\":{\"stringTable\":["
#define STRINGS_END "]}}"

struct shape {
    enum br_signal signal;
    /* the text of a shape: `before`, `unit` as often as possible, `after` */
    const char *before, *unit, *after;
    int rc; /* expected result for texts of 1 MiB and more */
};

static const struct shape shapes[] = {
    /* Unknown fields. */
    {BR_TRACES, "{\"x\":[", "0,", "0]}", 0},
    {BR_TRACES, "{\"x\":[", "{},", "0]}", 0},
    {BR_TRACES, "{\"x\":[", "[],", "0]}", 0},
    {BR_TRACES, "{\"x\":[", "\"\",", "0]}", 0},
    {BR_TRACES, "{\"x\":[", "[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]],", "0]}", 0},
    {BR_TRACES, "{\"x\":\"", "\\u00e9", "\"}", 0},
    {BR_TRACES, "{\"x\":", "9", "}", 0},
    {BR_TRACES, "{", "\"x\":0,", "\"x\":0}", 0},
    {BR_TRACES, "{", "\"resourceSpan\":null,", "\"x\":0}", 0},
    {BR_TRACES, "{\"", "resourceSpans", "\":0}", 0},
    {BR_TRACES, "{\"", "\\u0072", "\":0}", 0},
    {BR_TRACES, "{", " \n", "}", 0},
    /* Messages. */
    {BR_TRACES, "{\"resourceSpans\":[", "{},", "{}]}", 0},
    {BR_TRACES, SPANS, "{},", "{}" SPANS_END, 0},
    {BR_TRACES, SPANS, "{\"kind\":-1},", "{}" SPANS_END, 0},
    {BR_TRACES, SPANS, "{\"kind\":1,\"name\":\"a\",\"status\":{},\"flags\":7},", "{}" SPANS_END, 0},
    {BR_TRACES, SPANS "{", "\"status\":{},", "\"kind\":0}" SPANS_END, 0},
    {BR_TRACES, SPANS "{", "\"kind\":-1,", "\"kind\":0}" SPANS_END, 0},
    {BR_TRACES, SPANS "{", "\"name\":\"abcd\",", "\"kind\":0}" SPANS_END, 0},
    {BR_TRACES, SPANS "{", "\"name\":null,", "\"kind\":0}" SPANS_END, 0},
    {BR_TRACES, SPANS "{", "\"x\":0,", "\"kind\":0}" SPANS_END, 0},
    {BR_TRACES, SPANS "{", "\"dropped\":0,", "\"kind\":0}" SPANS_END, 0},
    {BR_TRACES, SPANS "{", "\"links\":[{},{},{}],", "\"kind\":0}" SPANS_END, 0},
    {BR_TRACES, "{", "\"resourceSpans\":[{}],", "\"x\":0}", 0},
    {BR_TRACES, VALUE "\"arrayValue\":{\"values\":[", "{},", "{}]}" VALUE_END, 0},
    {BR_TRACES, VALUE "\"arrayValue\":{\"values\":[", "{\"doubleValue\":1},", "{}]}" VALUE_END, 0},
    {BR_TRACES, VALUE "\"arrayValue\":{\"values\":[",
     "{\"arrayValue\":{\"values\":[{\"arrayValue\":{\"values\":[{\"intValue\":1}]}}]}},",
     "{}]}" VALUE_END, 0},
    /* Strings and bytes. */
    {BR_PROFILES, STRINGS, "\"\",", "\"\"" STRINGS_END, 0},
    {BR_PROFILES, STRINGS, "\"abcd\",", "\"\"" STRINGS_END, 0},
    {BR_PROFILES, STRINGS, "\"abcde\",", "\"\"" STRINGS_END, 0},
    {BR_PROFILES, STRINGS, "\"\\n\",", "\"\"" STRINGS_END, 0},
    {BR_PROFILES, STRINGS, "\"\\n\\n\\n\\n\\n\",", "\"\"" STRINGS_END, 0},
    {BR_PROFILES, STRINGS "\"", "a", "\"" STRINGS_END, 0},
    {BR_PROFILES, STRINGS "\"\\n", "a", "\"" STRINGS_END, 0},
    {BR_PROFILES, STRINGS "\"", "\\n", "\"" STRINGS_END, 0},
    {BR_PROFILES, STRINGS "\"", "\\ud83d\\ude00", "\"" STRINGS_END, 0},
    {BR_TRACES, VALUE "\"bytesValue\":\"", "AQIDBAUG", "\"" VALUE_END, 0},
    {BR_TRACES, VALUE "\"bytesValue\":\"", "AQIDBAU\\/", "\"" VALUE_END, 0},
    {BR_TRACES, SPANS, "{\"spanId\":\"0123456789abcdef\"},", "{}" SPANS_END, 0},
    /* Numbers. The last two are rejected because they take too much memory for the size of their
     * text. */
    {BR_PROFILES, SAMPLE "\"attributeIndices\":[", "0,", "0]" SAMPLE_END, 0},
    {BR_PROFILES, SAMPLE "\"attributeIndices\":[", "1234567,", "0]" SAMPLE_END, 0},
    {BR_PROFILES, SAMPLE "\"timestampsUnixNano\":[", "1700000000000000000,", "0]" SAMPLE_END, 0},
    {BR_PROFILES, SAMPLE "\"values\":[", "-1000000,", "0]" SAMPLE_END, 0},
    {BR_TRACES, VALUE "\"doubleValue\":1.", "123456789", VALUE_END, 0},
    {BR_TRACES, VALUE "\"intValue\":1.", "0", VALUE_END, 0},
    {BR_PROFILES, SAMPLE "\"timestampsUnixNano\":[", "0,", "0]" SAMPLE_END, BR_ETOOBIG},
    {BR_PROFILES, SAMPLE "\"values\":[", "9e18,", "0]" SAMPLE_END, BR_ETOOBIG},
};

/* Returns the shape as a text of about `size` bytes, allocated with malloc. */
static char *make(const struct shape *shape, size_t size, size_t *ret_len)
{
    size_t before = strlen(shape->before), unit = strlen(shape->unit), after = strlen(shape->after);
    char *text = malloc(before + size + unit + after);
    assert_non_null(text);
    memcpy(text, shape->before, before);
    char *end = text + before;
    for (; (size_t)(end - text) < size; end += unit)
        memcpy(end, shape->unit, unit);
    memcpy(end, shape->after, after);
    *ret_len = (size_t)(end - text) + after;
    return text;
}

struct cost {
    size_t peak;
    uint64_t steps;
};

static struct cost decode(enum br_signal signal, const char *text, size_t len, int want)
{
    struct br_buf *got = NULL;
    struct br_err err = {0};
    mem_meter = (struct mem_meter){0};
    br_mem_set_hooks(&mem_meter_hooks);
    struct br_pool *pool = br_pool_new(0);
    assert_non_null(pool);
    uint64_t before = br_steps();
    int rc = br_json_decode(br_otlp_request(signal), text, len, 64, 64 * MIB, pool, &got, &err);
    struct cost cost = {mem_meter.peak, br_steps() - before};
    br_buf_unref(got);
    br_pool_free(pool);
    br_mem_set_hooks(NULL);
    if (rc != want)
        fail_msg("%.60s: %d, %s", text, rc, err.text);
    return cost;
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(shapes); i++) {
        for (size_t size = MIB; size <= 4 * worst_mib_max() * MIB; size *= 2) {
            size_t len;
            char *text = make(&shapes[i], size, &len);
            struct cost cost = decode(shapes[i].signal, text, len, shapes[i].rc);
            free(text);
            if (cost.peak > 2 * len + MIB)
                fail_msg("%s%s: %zu bytes of memory for %zu", shapes[i].before, shapes[i].unit,
                         cost.peak, len);
            if (cost.steps > STEPS_MAX * len)
                fail_msg("%s%s: %zu steps for %zu bytes", shapes[i].before, shapes[i].unit,
                         (size_t)cost.steps, len);
        }
    }
}

/* Unknown fields take only the memory of the parser. */
static void test_unknown_fields_take_no_memory(void **state)
{
    (void)state;
    static const struct shape unknown = {BR_TRACES, "{\"x\":[", "{\"a\":[0]},", "0]}", 0};
    size_t len;
    char *text = make(&unknown, 4 * MIB, &len);
    struct cost cost = decode(BR_TRACES, text, len, 0);
    assert_true(cost.peak <= len / 2 + 4096);
    free(text);
}

/* Returns `n` nested messages around a string of `size` bytes. At every level, the fields beside
 * the string are in the wrong order. */
static char *make_deep(unsigned n, size_t size, size_t *ret_len)
{
    struct br_str text = {.max = 2 * size + 65536};
    br_str_puts(&text, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    for (unsigned i = 0; i < n; i++)
        br_str_puts(&text, "{\"value\":{\"kvlistValue\":{\"values\":[");
    br_str_puts(&text, "{\"value\":{\"stringValue\":\"");
    for (size_t i = 0; i < size; i += 8)
        br_str_puts(&text, "\\n234567");
    br_str_puts(&text, "\"}}");
    for (unsigned i = 0; i < n; i++)
        br_str_puts(&text, "]}},\"key\":\"k\"}");
    br_str_puts(&text, "]}}]}");
    assert_false(text.failed);
    char *copy = malloc(text.len);
    assert_non_null(copy);
    memcpy(copy, text.data, text.len);
    *ret_len = text.len;
    br_str_release(&text);
    return copy;
}

/* The number of steps does not depend on the depth of the string. */
static void test_depth(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 19; n += 18) {
        size_t len;
        char *text = make_deep(n, MIB, &len);
        struct cost cost = decode(BR_TRACES, text, len, 0);
        free(text);
        assert_true(cost.steps <= STEPS_MAX * len);
        assert_true(cost.peak <= 2 * len + MIB);
    }
}

/* A small number of values may take more memory than their text: here 100,000 bytes of "0,"
 * decoded as fixed64. */
static void test_dense_numbers(void **state)
{
    (void)state;
    struct shape zeros = {BR_PROFILES, SAMPLE "\"timestampsUnixNano\":[", "0,", "0]" SAMPLE_END, 0};
    size_t len;
    char *text = make(&zeros, 100000, &len);
    struct cost cost = decode(BR_PROFILES, text, len, 0);
    assert_true(cost.peak > 4 * (len - 200));
    free(text);
}

/* Each allocation fails once, including those that grow the parser's tables. */
static void test_no_memory(void **state)
{
    (void)state;
    const struct shape shape = {BR_PROFILES, STRINGS, "\"abcd\",", "\"\"" STRINGS_END, 0};
    size_t len;
    char *text = make(&shape, 100000, &len);
    int rc = BR_ENOMEM;
    long n = 0;
    while (rc != 0) {
        struct br_buf *got = NULL;
        mem_meter = (struct mem_meter){0};
        br_mem_set_hooks(&mem_meter_hooks);
        struct br_pool *pool = br_pool_new(0);
        assert_non_null(pool);
        mem_meter.fail_at = ++n;
        rc = br_json_decode(br_otlp_request(BR_PROFILES), text, len, 64, MIB, pool, &got, NULL);
        assert_true(rc == 0 || (rc == BR_ENOMEM && !got));
        br_buf_unref(got);
        br_pool_free(pool);
        br_mem_set_hooks(NULL);
        assert_true(n < 20);
    }
    assert_true(n > 4);
    free(text);
}

/* The tree takes at most 16 bytes for every two bytes of text, whatever the text contains. */
static void test_tree(void **state)
{
    (void)state;
    static const char *const units[] = {"{},", "[],", "1,", "\"\","};
    for (size_t i = 0; i < BR_COUNT(units); i++) {
        const struct shape shape = {BR_TRACES, "{\"x\":[", units[i], "0]}", 0};
        struct br_json_tree tree;
        size_t len;
        char *text = make(&shape, MIB, &len);
        assert_int_equal(br_json_parse(&tree, text, len, 32, 0, NULL), 0);
        assert_true(tree.count > len / 3);
        assert_true((size_t)tree.cap * sizeof *tree.nodes <= len * 8 + 16);
        br_json_tree_release(&tree);
        free(text);
    }
}

SUITE(json_bounds)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),    cmocka_unit_test(test_unknown_fields_take_no_memory),
        cmocka_unit_test(test_depth),     cmocka_unit_test(test_dense_numbers),
        cmocka_unit_test(test_no_memory), cmocka_unit_test(test_tree),
    };
    return RUN(tests, NULL, NULL);
}
