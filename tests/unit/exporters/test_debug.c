/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "base/mem.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_debug_exporter;

#define TRACES                                                                                     \
    "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"service.name\",\"value\":{"     \
    "\"stringValue\":\"shop\"}}]},\"schemaUrl\":\"https://x/"                                      \
    "1\",\"scopeSpans\":[{\"scope\":{\"name\":"                                                    \
    "\"lib\",\"version\":\"2\"},\"spans\":[{\"traceId\":\"0102030405060708090a0b0c0d0e0f10\","     \
    "\"spanId\":\"a1a2a3a4a5a6a7a8\",\"name\":\"GET /\",\"startTimeUnixNano\":\"1000000000\","     \
    "\"endTimeUnixNano\":\"1001500000\",\"attributes\":[{\"key\":\"n\",\"value\":{\"intValue\":"   \
    "\"7\""                                                                                        \
    "}},{\"key\":\"evil\",\"value\":{\"stringValue\":\"a\\nb\"}}]},{\"name\":\"b\","               \
    "\"endTimeUnixNano\":\"3000000000\"}]}]},{\"resource\":{}}]}"
#define PROFILES                                                                                   \
    "{\"resourceProfiles\":[{\"scopeProfiles\":[{\"profiles\":[{\"sampleType\":{\"typeStrindex\":" \
    "1,"                                                                                           \
    "\"unitStrindex\":2},\"samples\":[{\"stackIndex\":1,\"values\":[\"5\"]},{\"values\":[\"6\"]}]" \
    ","                                                                                            \
    "\"durationNano\":\"10000000250\",\"profileId\":\"0102030405060708090a0b0c0d0e0f10\","         \
    "\"attributeIndices\":[1]},{}]},{\"profiles\":[{}]}]}],\"dictionary\":{\"locationTable\":[{}," \
    "{"                                                                                            \
    "\"lines\":[{\"functionIndex\":1}]}],\"functionTable\":[{},{\"nameStrindex\":4}],"             \
    "\"stringTable\":[\"\",\"cpu\",\"nanoseconds\",\"host\",\"main\"],\"attributeTable\":[{},{"    \
    "\"keyStrindex\":3,\"value\":{\"stringValue\":\"box\"}}],\"stackTable\":[{},{"                 \
    "\"locationIndices\":[1]}]}}"

static char path[] = "/tmp/test_debug.XXXXXX";

static struct rig *start(const char *more)
{
    char yaml[512];
    (void)snprintf(yaml, sizeof yaml, "{output_paths: [\"%s\"], %s}", path, more);
    assert_int_equal(truncate(path, 0), 0);
    return rig_new(&br_debug_exporter, yaml);
}

static const char *written(void)
{
    static char text[4 << 20];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    (void)fclose(f);
    return text;
}

static void send(struct rig *r, enum br_signal signal, const char *json)
{
    rig_send(r, rig_item(r, signal, json));
    assert_int_equal(r->outcome.verdict, BR_DONE);
}

static void basic(void **state)
{
    (void)state;
    struct rig *r = start("");
    send(r, BR_TRACES, TRACES);
    send(r, BR_PROFILES, PROFILES);
    send(r, BR_TRACES, "{}");
    assert_string_equal(written(), "Traces: resource spans 2, spans 2\n"
                                   "Profiles: resource profiles 1, profiles 3, samples 2\n"
                                   "Traces: resource spans 0, spans 0\n");
    rig_free(r);
}

/* The output has the Collector's layout, and durations in addition. Control characters cannot forge
 * lines. */
static void normal(void **state)
{
    (void)state;
    struct rig *r = start("verbosity: normal");
    send(r, BR_TRACES, TRACES);
    send(r, BR_PROFILES, PROFILES);
    assert_string_equal(
        written(),
        "Traces: resource spans 2, spans 2\n"
        "ResourceTraces #0 [https://x/1] service.name=shop\n"
        "ScopeTraces #0 lib@2\n"
        "GET / 0102030405060708090a0b0c0d0e0f10 a1a2a3a4a5a6a7a8 1.5ms n=7 evil=a\\nb\n"
        "b   3s\n"
        "ResourceTraces #1\n"
        "Profiles: resource profiles 1, profiles 3, samples 2\n"
        "ResourceProfiles #0\n"
        "ScopeProfiles #0\n"
        "0102030405060708090a0b0c0d0e0f10 cpu (nanoseconds) 10.00000025s samples=2 host=box\n"
        " 0ns samples=0\n"
        "ScopeProfiles #1\n"
        " 0ns samples=0\n");
    rig_free(r);
}

static void detailed(void **state)
{
    (void)state;
    struct rig *r = start("verbosity: Detailed");
    send(r, BR_TRACES, TRACES);
    assert_non_null(strstr(written(), "Traces: resource spans 2, spans 2\nResourceSpans #0\n"));
    assert_non_null(strstr(written(), "\n    Name           : GET /\n"));
    send(r, BR_PROFILES, PROFILES);
    assert_non_null(strstr(written(), "\n    Stack:\n        main\n"));
    rig_free(r);
}

/* The text of one item is cut at the end of a line. */
static void cut(void **state)
{
    (void)state;
    struct rig *r = start("verbosity: normal");
    struct br_str json = {0};
    br_str_puts(&json, "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":\"0\"}");
    for (int i = 0; i < 100000; i++)
        br_str_puts(&json, ",{\"name\":\"abcdefghijklmno\"}");
    br_str_puts(&json, "]}]}]}");
    send(r, BR_TRACES, json.data);
    const char *text = written();
    static const char end[] = "abcdefghijklmno   0ns\n... (cut here: the rest does not fit)\n";
    size_t len = strlen(text);
    assert_in_range(len, 1000000, 1 << 20);
    assert_string_equal(text + len - strlen(end), end);
    br_str_release(&json);
    rig_free(r);
}

/* In each second, the first two requests are written, and then every third request. Traces and
 * profiles are counted separately. */
static void sampling(void **state)
{
    (void)state;
    struct rig *r = start("sampling_initial: 2, sampling_thereafter: 3");
    static const char t[] = "Traces: resource spans 0, spans 0\n";
    for (int i = 0; i < 9; i++)
        send(r, BR_TRACES, "{}");
    assert_int_equal(strlen(written()), 4 * strlen(t)); /* the 1st, 2nd, 5th and 8th request */
    send(r, BR_PROFILES, "{}");
    assert_non_null(strstr(written(), "Profiles: "));
    r->now_ms += 1000;
    assert_int_equal(truncate(path, 0), 0);
    for (int i = 0; i < 3; i++)
        send(r, BR_TRACES, "{}");
    assert_int_equal(strlen(written()), 2 * strlen(t));
    rig_free(r);
    r = start("sampling_initial: 1, sampling_thereafter: 0");
    for (int i = 0; i < 9; i++)
        send(r, BR_TRACES, "{}");
    assert_int_equal(strlen(written()), strlen(t));
    rig_free(r);
}

/* A file is appended to. If an output fails, only its text is lost. */
static void outputs(void **state)
{
    (void)state;
    struct rig *r = start("");
    send(r, BR_TRACES, "{}");
    rig_free(r);
    char yaml[256];
    (void)snprintf(yaml, sizeof yaml, "output_paths: [/dev/full, %s]", path);
    r = rig_new(&br_debug_exporter, yaml);
    send(r, BR_TRACES, "{}");
    send(r, BR_TRACES, "{}");
    assert_int_equal(strlen(written()), 3 * strlen("Traces: resource spans 0, spans 0\n"));
    rig_free(r);
}

static void cannot_open(void **state)
{
    (void)state;
    assert_non_null(strstr(rig_start_error(&br_debug_exporter, "output_paths: [stdout, /none/x]"),
                           "cannot open /none/x: No such file"));
}

static void wrong_configs(void **state)
{
    (void)state;
    assert_non_null(strstr(rig_errors(&br_debug_exporter, "output_paths: []"),
                           "x::output_paths: must not be empty"));
    assert_non_null(strstr(rig_errors(&br_debug_exporter, "verbosity: none"),
                           "must be one of basic, normal, detailed"));
    assert_string_equal(rig_errors(&br_debug_exporter, "output_paths: stderr"), "");
}

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 || close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

SUITE(debug)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(basic),       cmocka_unit_test(normal),        cmocka_unit_test(detailed),
        cmocka_unit_test(cut),         cmocka_unit_test(sampling),      cmocka_unit_test(outputs),
        cmocka_unit_test(cannot_open), cmocka_unit_test(wrong_configs),
    };
    return RUN(tests, make_file, remove_file);
}
