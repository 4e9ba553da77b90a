/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/print/print.h"

#include "core/host.h"
#include "otlp/json/json.h"
#include "otlp/walk/walk.h"
#include "tests/support/fault.h"
#include "tests/support/otlp_text.h"
#include "tests/support/test.h"

struct fixture {
    struct br_pool *pool;
    struct br_host host;
};

static uint64_t zero_clock(struct br_host *h)
{
    (void)h;
    return 0;
}

static const struct br_host_ops ops = {.mono_ms = zero_clock, .unix_ns = zero_clock};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->pool = br_pool_new(0);
    *state = f;
    return br_host_init(&f->host, &ops, f->pool);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    br_host_release(&f->host);
    br_pool_free(f->pool);
    free(f);
    return 0;
}

static int print(const struct br_item *item, struct br_str *out)
{
    return item->signal == BR_TRACES ? br_print_traces(item, out) : br_print_profiles(item, out);
}

static void expect(struct fixture *f, enum br_signal signal, const char *json, const char *want)
{
    struct br_str out = {0};
    struct br_item *item = otlp_text_item(&f->host, signal, json);
    assert_int_equal(print(item, &out), 0);
    assert_string_equal(out.data, want);
    br_str_release(&out);
    br_item_free(item);
}

/* Expects the lines of the Collector's debug exporter (internal/otlptext). */
static void test_traces(void **state)
{
    expect(*state, BR_TRACES,
           "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"service.name\",\"value\":"
           "{\"stringValue\":\"shop\"}}],\"droppedAttributesCount\":1},\"schemaUrl\":\"https://r\","
           "\"scopeSpans\":[{\"scope\":{\"name\":\"lib\",\"version\":\"1.2\"},\"spans\":[{"
           "\"traceId\":\"5b8efff798038103d269b633813fc60c\",\"spanId\":\"eee19b7ec3c1b174\","
           "\"parentSpanId\":\"eee19b7ec3c1b173\",\"name\":\"GET /x\",\"kind\":2,"
           "\"traceState\":\"a=b\",\"startTimeUnixNano\":\"1544712660000000000\","
           "\"endTimeUnixNano\":\"1544712661000000001\","
           "\"status\":{\"code\":2,\"message\":\"no \\u001b[31mluck\\n\"},"
           "\"attributes\":[{\"key\":\"n\",\"value\":{\"intValue\":\"-5\"}},"
           "{\"key\":\"d\",\"value\":{\"doubleValue\":0.1}},{\"key\":\"e\",\"value\":{}},{\"key\":"
           "\"f\"},"
           "{\"key\":\"b\",\"value\":{\"boolValue\":true}},"
           "{\"key\":\"raw\",\"value\":{\"bytesValue\":\"AQL/\"}},"
           "{\"key\":\"l\",\"value\":{\"arrayValue\":{\"values\":[{\"stringValue\":\"x\"},{},"
           "{\"kvlistValue\":{\"values\":[{\"key\":\"k\",\"value\":{\"intValue\":1}},{\"key\":"
           "\"m\"}]}}"
           "]}}}],"
           "\"events\":[{\"timeUnixNano\":\"1581452773000000789\",\"name\":\"boom\","
           "\"attributes\":[{\"key\":\"k\",\"value\":{\"stringValue\":\"v\"}}]}],"
           "\"links\":[{\"traceId\":\"000102030405060708090a0b0c0d0e0f\",\"spanId\":"
           "\"0001020304050607\",\"droppedAttributesCount\":4}]},{}]}]}]}",
           "ResourceSpans #0\n"
           "Resource SchemaURL: https://r\n"
           "Resource attributes:\n"
           "     -> service.name: Str(shop)\n"
           "DroppedAttributesCount: 1\n"
           "ScopeSpans #0\n"
           "ScopeSpans SchemaURL: \n"
           "InstrumentationScope lib 1.2\n"
           "Span #0\n"
           "    Trace ID       : 5b8efff798038103d269b633813fc60c\n"
           "    Parent ID      : eee19b7ec3c1b173\n"
           "    ID             : eee19b7ec3c1b174\n"
           "    Name           : GET /x\n"
           "    Kind           : Server\n"
           "    TraceState     : a=b\n"
           "    Start time     : 2018-12-13 14:51:00 +0000 UTC\n"
           "    End time       : 2018-12-13 14:51:01.000000001 +0000 UTC\n"
           "    Status code    : Error\n"
           "    Status message : no \\x1b[31mluck\\n\n"
           "Attributes:\n"
           "     -> n: Int(-5)\n"
           "     -> d: Double(0.1)\n"
           "     -> e: Empty()\n"
           "     -> f: Empty()\n"
           "     -> b: Bool(true)\n"
           "     -> raw: Bytes(AQL/)\n"
           "     -> l: Slice([\"x\",null,{\"k\":1,\"m\":null}])\n"
           "Events:\n"
           "SpanEvent #0\n"
           "     -> Name: boom\n"
           "     -> Timestamp: 2020-02-11 20:26:13.000000789 +0000 UTC\n"
           "     -> DroppedAttributesCount: 0\n"
           "     -> Attributes:\n"
           "          -> k: Str(v)\n"
           "Links:\n"
           "SpanLink #0\n"
           "     -> Trace ID: 000102030405060708090a0b0c0d0e0f\n"
           "     -> ID: 0001020304050607\n"
           "     -> TraceState: \n"
           "     -> DroppedAttributesCount: 4\n"
           "Span #1\n"
           "    Trace ID       : \n"
           "    Parent ID      : \n"
           "    ID             : \n"
           "    Name           : \n"
           "    Kind           : Unspecified\n"
           "    Start time     : 1970-01-01 00:00:00 +0000 UTC\n"
           "    End time       : 1970-01-01 00:00:00 +0000 UTC\n"
           "    Status code    : Unset\n"
           "    Status message : \n");
}

#define PROFILES_JSON                                                                              \
    "{\"resourceProfiles\":[{\"resource\":{\"attributes\":[{\"keyStrindex\":14,\"value\":"         \
    "{\"stringValueStrindex\":1}}]},\"scopeProfiles\":[{\"profiles\":[{"                           \
    "\"sampleType\":{\"typeStrindex\":2,\"unitStrindex\":3},\"timeUnixNano\":"                     \
    "\"1544712660000000000\","                                                                     \
    "\"durationNano\":\"10000000000\",\"periodType\":{\"typeStrindex\":2,\"unitStrindex\":3},"     \
    "\"period\":\"10000000\",\"profileId\":\"000102030405060708090a0b0c0d0e0f\","                  \
    "\"originalPayloadFormat\":\"pprof\",\"originalPayload\":\"AQL/\",\"attributeIndices\":[1],"   \
    "\"samples\":[{\"stackIndex\":1,\"values\":[\"30\",\"-4\"],\"linkIndex\":1,"                   \
    "\"attributeIndices\":[1,2],\"timestampsUnixNano\":[\"1544712660000000000\","                  \
    "\"1544712660500000000\"]},{\"values\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18]}]}]}]}]" \
    ","                                                                                            \
    "\"dictionary\":{\"stringTable\":[\"\",\"shop\",\"cpu\",\"nanoseconds\",\"main.leaf\",\"leaf." \
    "go\","                                                                                        \
    "\"main.main\",\"main.go\",\"libc.so.6\",\"thread.name\",\"w\",\"size\",\"bytes\",\"_Zx\","    \
    "\"service.name\"],"                                                                           \
    "\"mappingTable\":[{},{\"filenameStrindex\":8}],"                                              \
    "\"locationTable\":[{},{\"lines\":[{\"functionIndex\":1,\"line\":12},{\"functionIndex\":2}]}," \
    "{\"mappingIndex\":1,\"address\":\"4660\"},{\"lines\":[{\"functionIndex\":3},{}]}],"           \
    "\"functionTable\":[{},{\"nameStrindex\":4,\"filenameStrindex\":5},"                           \
    "{\"nameStrindex\":6,\"filenameStrindex\":7},{\"systemNameStrindex\":13}],"                    \
    "\"linkTable\":[{},{\"traceId\":\"5b8efff798038103d269b633813fc60c\",\"spanId\":"              \
    "\"eee19b7ec3c1b174\"}],"                                                                      \
    "\"attributeTable\":[{},{\"keyStrindex\":9,\"value\":{\"stringValue\":\"w1\"}},"               \
    "{\"keyStrindex\":11,\"value\":{\"intValue\":4096},\"unitStrindex\":12}],"                     \
    "\"stackTable\":[{},{\"locationIndices\":[1,2,3,0]}]}}"

static void test_profiles(void **state)
{
    expect(*state, BR_PROFILES, PROFILES_JSON,
           "ResourceProfiles #0\n"
           "Resource SchemaURL: \n"
           "Resource attributes:\n"
           "     -> service.name: Str(shop)\n"
           "ScopeProfiles #0\n"
           "ScopeProfiles SchemaURL: \n"
           "Profile #0\n"
           "    Profile ID     : 000102030405060708090a0b0c0d0e0f\n"
           "    Type           : cpu (nanoseconds)\n"
           "    Start time     : 2018-12-13 14:51:00 +0000 UTC\n"
           "    Duration       : 10.000000000s\n"
           "    Period         : 10000000 cpu (nanoseconds)\n"
           "    Original format: pprof\n"
           "Attributes:\n"
           "     -> thread.name: Str(w1)\n"
           "Sample #0\n"
           "    Values         : 30, -4\n"
           "    Timestamps     : 2018-12-13 14:51:00 +0000 UTC, 2018-12-13 14:51:00.5 +0000 UTC\n"
           "    Trace ID       : 5b8efff798038103d269b633813fc60c\n"
           "    Span ID        : eee19b7ec3c1b174\n"
           "    Attributes:\n"
           "         -> thread.name: Str(w1)\n"
           "         -> size: Int(4096) bytes\n"
           "    Stack:\n"
           "        main.leaf leaf.go:12\n"
           "        main.main main.go\n"
           "        0x1234 in libc.so.6\n"
           "        _Zx\n"
           "        (unknown)\n"
           "        (unknown)\n"
           "Sample #1\n"
           "    Values         : 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, and 2 "
           "more\n");
}

/* A Resource replaced by a processor is the one that is printed. */
static void test_new_resource(void **state)
{
    struct fixture *f = *state;
    struct br_str out = {0};
    struct br_item *item = otlp_text_item(
        &f->host, BR_TRACES, "{\"resourceSpans\":[{\"resource\":{\"droppedAttributesCount\":7}}]}");
    /* Resource.attributes[0] = {key: "a", value: {bool_value: true}} */
    static const uint8_t resource[] = {0x0a, 7, 0x0a, 1, 'a', 0x12, 2, 0x10, 1};
    br_item_set_resource(item, &item->parts[0], NULL, resource, sizeof resource);
    assert_int_equal(br_print_traces(item, &out), 0);
    assert_string_equal(out.data, "ResourceSpans #0\n"
                                  "Resource SchemaURL: \n"
                                  "Resource attributes:\n"
                                  "     -> a: Bool(true)\n");
    br_str_release(&out);
    br_item_free(item);
}

/* For every maximum, the output has whole lines of the full text and then the line about the
 * cut. */
static void test_cut(void **state)
{
    static const char cut[] = "... (cut here: the rest does not fit)\n";
    struct br_str whole = {0};
    struct br_item *item =
        otlp_text_item(&((struct fixture *)*state)->host, BR_PROFILES, PROFILES_JSON);
    assert_int_equal(br_print_profiles(item, &whole), 0);
    unsigned n_cut = 0;
    const size_t least = 256; /* the smallest maximum that the header promises to respect */
    for (size_t max = least; max < whole.len + 100; max++) {
        struct br_str out = {.max = max};
        assert_int_equal(br_print_profiles(item, &out), 0);
        assert_true(out.len <= max);
        if (strcmp(out.data, whole.data) != 0) {
            n_cut++;
            size_t kept = out.len - strlen(cut);
            assert_string_equal(out.data + kept, cut);
            assert_memory_equal(out.data, whole.data, kept);
            assert_int_equal(out.data[kept - 1], '\n');
        }
        br_str_release(&out);
    }
    assert_in_range(n_cut, whole.len - least, whole.len - least + 99);
    br_str_release(&whole);
    br_item_free(item);
}

/* A value nested deeper than the printed maximum ends in dots. */
static void test_deep_value(void **state)
{
    struct br_str json = {0};
    struct br_str want = {0};
    br_str_puts(&json,
                "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"a\",\"value\":{");
    br_str_puts(&want,
                "ResourceSpans #0\nResource SchemaURL: \nResource attributes:\n     -> a: Slice(");
    for (int i = 0; i < 20; i++)
        br_str_puts(&json, "\"arrayValue\":{\"values\":[{");
    for (int i = 0; i < 20; i++)
        br_str_puts(&json, "}]}");
    br_str_puts(&json, "}}]}}]}");
    for (int i = 0; i < 17; i++)
        br_str_puts(&want, "[");
    br_str_puts(&want, "...");
    for (int i = 0; i < 17; i++)
        br_str_puts(&want, "]");
    br_str_puts(&want, ")\n");
    expect(*state, BR_TRACES, json.data, want.data);
    br_str_release(&json);
    br_str_release(&want);
}

/* If memory runs out, the text is cut, or a line reports the missing part, or BR_ENOMEM is
 * returned. */
static void test_no_memory(void **state)
{
    struct br_item *item =
        otlp_text_item(&((struct fixture *)*state)->host, BR_PROFILES, PROFILES_JSON);
    struct br_str whole = {0};
    assert_int_equal(br_print_profiles(item, &whole), 0);
    bool same = false;
    for (unsigned long n = 1; !same; n++) {
        struct br_str out = {0};
        assert_true(n <= 1000);
        fault_nth(n);
        int rc = br_print_profiles(item, &out);
        (void)fault_nth_stop();
        assert_true(rc == 0 || rc == BR_ENOMEM);
        same = rc == 0 && strcmp(out.data, whole.data) == 0;
        if (rc == 0 && !same)
            assert_true(strstr(out.data, "(cut here") || strstr(out.data, "too large to print"));
        br_str_release(&out);
    }
    br_str_release(&whole);
    br_item_free(item);
}

SUITE(print)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traces),       cmocka_unit_test(test_profiles),
        cmocka_unit_test(test_new_resource), cmocka_unit_test(test_cut),
        cmocka_unit_test(test_deep_value),   cmocka_unit_test(test_no_memory),
    };
    return RUN(tests, setup, teardown);
}
