/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The group_by_attrs processor. The expected values follow from the documentation and the source of
 * the Collector's groupbyattrsprocessor (0.165), which supports only spans.
 */
#include "base/mem.h"
#include "base/str.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_group_by_attrs_processor;

#define S(k, v) "{\"key\":\"" k "\",\"value\":{\"stringValue\":\"" v "\"}}"
#define I(k, v) "{\"key\":\"" k "\",\"value\":{\"intValue\":\"" v "\"}}"
#define RESOURCE(attributes) "{\"resource\":{\"attributes\":[" attributes "]}"

static void expect(const char *yaml, enum br_signal signal, const char *in, const char *out)
{
    struct rig *r = rig_new(&br_group_by_attrs_processor, yaml);
    const char *got = rig_run(r, signal, in);
    if (strcmp(got, out) != 0)
        fail_msg("%s:\n%s\nnot\n%s", yaml, got, out);
    rig_free(r);
}

/* --- Spans ------------------------------------------------------------------------------------ */

#define TRACES(resources) "{\"resourceSpans\":[" resources "]}"
#define SPANS(attributes, spans) RESOURCE(attributes) ",\"scopeSpans\":[{\"spans\":[" spans "]}]}"
#define SCOPES(attributes, scopes) RESOURCE(attributes) ",\"scopeSpans\":[" scopes "]}"
#define SCOPE(scope, spans) "{\"scope\":{" scope "},\"spans\":[" spans "]}"
#define SPAN(name, attributes) "{\"name\":\"" name "\",\"attributes\":[" attributes "]}"
#define PLAIN(name) "{\"name\":\"" name "\"}"
#define SHOP S("service.name", "shop")

static void spans_move_to_new_resources(void **state)
{
    (void)state;
    static const char yaml[] = "keys: [host.name, tenant]";
    /* groups are in the order of their first span, and a span without the keys keeps its
     * resource */
    expect(
        yaml, BR_TRACES,
        TRACES(SPANS(
            SHOP, SPAN("1", S("host.name", "a") "," I("n", "1")) "," SPAN(
                      "2", S("host.name", "b")) "," PLAIN("3") "," SPAN("4", S("host.name", "a")))),
        TRACES(SPANS(SHOP "," S("host.name", "a"), SPAN("1", I("n", "1")) "," PLAIN("4")) "," SPANS(
            SHOP "," S("host.name", "b"), PLAIN("2")) "," SPANS(SHOP, PLAIN("3"))));
    /* spans have both keys; the order of their attributes does not matter */
    expect(yaml, BR_TRACES,
           TRACES(SPANS(SHOP, SPAN("1", S("tenant", "t") "," S("host.name", "a")) "," SPAN(
                                  "2", S("host.name", "a") "," S("tenant", "t")))),
           TRACES(SPANS(SHOP "," S("host.name", "a") "," S("tenant", "t"),
                        PLAIN("1") "," PLAIN("2"))));
    /* the value of the span replaces that of the resource */
    expect(yaml, BR_TRACES,
           TRACES(SPANS(S("host.name", "old") "," SHOP, SPAN("1", S("host.name", "new")))),
           TRACES(SPANS(S("host.name", "new") "," SHOP, PLAIN("1"))));
    /* values of different types are different */
    expect(yaml, BR_TRACES,
           TRACES(SPANS(SHOP, SPAN("1", S("tenant", "1")) "," SPAN("2", I("tenant", "1")))),
           TRACES(SPANS(SHOP "," S("tenant", "1"), PLAIN("1")) "," SPANS(SHOP "," I("tenant", "1"),
                                                                         PLAIN("2"))));
    /* an empty resource */
    expect(yaml, BR_TRACES,
           "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[" SPAN("1", S("tenant", "t")) "]}]}]}",
           TRACES(SPANS(S("tenant", "t"), PLAIN("1"))));
}

static void equal_resources_are_merged(void **state)
{
    (void)state;
    static const char yaml[] = "keys: [host.name]";
    /* these resources differed only in the value that is replaced, so they become one */
    expect(yaml, BR_TRACES,
           TRACES(SPANS(S("host.name", "x") "," SHOP, SPAN("1", S("host.name", "a"))) "," SPANS(
               S("host.name", "y") "," SHOP,
               SPAN("2", S("host.name", "a"))) "," SPANS(S("host.name", "a") "," SHOP, PLAIN("3"))),
           TRACES(SPANS(S("host.name", "a") "," SHOP, PLAIN("1") "," PLAIN("2") "," PLAIN("3"))));
    /* without keys, the processor only merges; the order of attributes does not matter */
    expect("{}", BR_TRACES,
           TRACES(SPANS(SHOP "," I("n", "1"), SPAN("1", S("host.name", "a"))) "," SPANS(
               SHOP, PLAIN("2")) "," SPANS(I("n", "1") "," SHOP, PLAIN("3"))),
           TRACES(SPANS(SHOP "," I("n", "1"), SPAN("1", S("host.name", "a")) "," PLAIN(
                                                  "3")) "," SPANS(SHOP, PLAIN("2"))));
    /* empty and repeated keys have no effect */
    expect("keys: ['', host.name, host.name]", BR_TRACES,
           TRACES(SPANS(SHOP, SPAN("1", S("host.name", "a")))),
           TRACES(SPANS(SHOP "," S("host.name", "a"), PLAIN("1"))));
}

#define LIBRARY "\"name\":\"lib\",\"version\":\"1\""

static void equal_scopes_are_merged(void **state)
{
    (void)state;
    expect("{}", BR_TRACES,
           TRACES(SCOPES(SHOP, SCOPE(LIBRARY, PLAIN("1")) "," SCOPE(
                                   "\"name\":\"other\"",
                                   PLAIN("2"))) "," SCOPES(SHOP,
                                                           SCOPE(LIBRARY, PLAIN("3")) "," SCOPE(
                                                               "\"name\":\"lib\"", PLAIN("4")))),
           TRACES(SCOPES(SHOP, SCOPE(LIBRARY, PLAIN("1") "," PLAIN("3")) "," SCOPE(
                                   "\"name\":\"other\"", PLAIN("2")) "," SCOPE("\"name\":\"lib\"",
                                                                               PLAIN("4")))));
    /* scopes with different attributes are not merged; the Collector merges them and drops the
     * attributes */
#define WITH(attributes) LIBRARY ",\"attributes\":[" attributes "]"
    expect("{}", BR_TRACES,
           TRACES(SCOPES(SHOP, SCOPE(WITH(I("a", "1") "," I("b", "2")), PLAIN("1")) "," SCOPE(
                                   WITH(I("b", "2") "," I("a", "1")),
                                   PLAIN("2")) "," SCOPE(WITH(I("a", "1")), PLAIN("3")))),
           TRACES(SCOPES(
               SHOP, SCOPE(WITH(I("a", "1") "," I("b", "2")),
                           PLAIN("1") "," PLAIN("2")) "," SCOPE(WITH(I("a", "1")), PLAIN("3")))));
}

/* The Collector drops schema URLs. Resources with different schema URLs are not merged here. */
static void schema_urls_are_kept(void **state)
{
    (void)state;
#define SCHEMA(url, name)                                                                          \
    RESOURCE(SHOP)                                                                                 \
    ",\"scopeSpans\":[{\"spans\":[" PLAIN(name) "],\"schemaUrl\":\"s\"}],\"schemaUrl\":\"" url "\"}"
    struct rig *r = rig_new(&br_group_by_attrs_processor, "{}");
    const char *out =
        rig_run(r, BR_TRACES, TRACES(SCHEMA("u", "1") "," SCHEMA("v", "2") "," SCHEMA("u", "3")));
    unsigned n_urls = 0, n_resources = 0;
    for (const char *at = out; (at = strstr(at, "\"schemaUrl\"")); at++)
        n_urls++;
    for (const char *at = out; (at = strstr(at, "\"resource\"")); at++)
        n_resources++;
    assert_int_equal(n_urls, 4);
    assert_int_equal(n_resources, 2);
    rig_free(r);
}

static void requests_without_changes_are_forwarded_unchanged(void **state)
{
    (void)state;
    static const char in[] = TRACES(SPANS(SHOP, SPAN("1", I("n", "1"))) "," SCOPES(
        S("service.name", "cart"), SCOPE(LIBRARY, PLAIN("2"))));
    struct rig *r = rig_new(&br_group_by_attrs_processor, "keys: [host.name]");
    struct br_item *item = rig_item(r, BR_TRACES, in);
    const uint8_t *raw = item->parts[0].raw;
    size_t len = item->parts[0].raw_len;
    struct br_buf *buf = br_buf_ref(item->parts[0].buf);
    rig_send(r, item);
    assert_memory_equal(r->wire->data, raw, len);
    br_buf_unref(buf);
    assert_string_equal(rig_run(r, BR_TRACES, in), in);
    assert_int_equal((int)rig_metric(r, "otelcol_processor_groupbyattrs_num_non_grouped_spans",
                                     "processor=\"group_by_attrs\""),
                     4);
    assert_int_equal((int)rig_metric(r, "otelcol_processor_groupbyattrs_num_grouped_spans",
                                     "processor=\"group_by_attrs\""),
                     0);
    rig_free(r);
}

/* --- Profiles --------------------------------------------------------------------------------- */

/* Attributes of the dictionary: 1 tenant=a, 2 tenant=b, 3 thread=main. */
#define DICTIONARY                                                                                 \
    "\"dictionary\":{\"stringTable\":[\"\",\"tenant\",\"thread\",\"a\"],\"attributeTable\":[{},"   \
    "{\"keyStrindex\":1,\"value\":{\"stringValue\":\"a\"}},"                                       \
    "{\"keyStrindex\":1,\"value\":{\"stringValue\":\"b\"}},"                                       \
    "{\"keyStrindex\":2,\"value\":{\"stringValue\":\"main\"}}]}"
#define PROFILES(resources) "{\"resourceProfiles\":[" resources "]," DICTIONARY "}"
#define OF(attributes, profiles)                                                                   \
    RESOURCE(attributes) ",\"scopeProfiles\":[{\"profiles\":[" profiles "]}]}"
#define PROFILE(samples, more) "{\"samples\":[" samples "]" more "}"
#define SAMPLE(n, indices) "{\"attributeIndices\":[" indices "],\"values\":[\"" n "\"]}"
#define BARE(n) "{\"values\":[\"" n "\"]}"
#define TENANT(t) SHOP "," S("tenant", t)

static void samples_move_to_new_resources(void **state)
{
    (void)state;
    static const char yaml[] = "keys: [tenant]";
    expect(yaml, BR_PROFILES,
           PROFILES(OF(SHOP, PROFILE(SAMPLE("1", "1,3") "," SAMPLE("2", "2") "," BARE(
                                         "3") "," SAMPLE("4", "3,1"),
                                     ",\"periodType\":{},\"period\":\"7\""))),
           PROFILES(OF(TENANT("a"),
                       PROFILE(SAMPLE("1", "3") "," SAMPLE("4", "3"),
                               ",\"periodType\":{}"
                               ",\"period\":"
                               "\"7\"")) "," OF(TENANT("b"),
                                                PROFILE(BARE("2"),
                                                        ",\"periodType\":{},\"period\":"
                                                        "\"7\"")) "," OF(SHOP, PROFILE(BARE("3"),
                                                                                       ",\"periodTy"
                                                                                       "pe\":{},"
                                                                                       "\"period\":"
                                                                                       "\"7\""))));
    /* an attribute of the profile applies to samples without the attribute */
    expect(
        yaml, BR_PROFILES,
        PROFILES(OF(SHOP, PROFILE(BARE("1") "," SAMPLE("2", "2"), ",\"attributeIndices\":[1,3]"))),
        PROFILES(OF(TENANT("a"), PROFILE(BARE("1"), ",\"attributeIndices\":[3]")) "," OF(
            TENANT("b"), PROFILE(BARE("2"), ",\"attributeIndices\":[3]"))));
    /* profiles are not merged with each other */
    expect(yaml, BR_PROFILES,
           PROFILES(OF(SHOP, PROFILE(SAMPLE("1", "1"), "") "," PROFILE(SAMPLE("2", "1"), ""))),
           PROFILES(OF(TENANT("a"), PROFILE(BARE("1"), "") "," PROFILE(BARE("2"), ""))));
}

/* The payload describes the whole profile, so that only one of the new profiles has it. A profile
 * without samples is kept. */
static void payloads_are_kept_once(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_group_by_attrs_processor, "keys: [tenant]");
    const char *out =
        rig_run(r, BR_PROFILES,
                PROFILES(OF(SHOP, PROFILE(SAMPLE("1", "1") "," SAMPLE("2", "2"),
                                          ",\"originalPayloadFormat\":\"f\",\"originalPayload\":"
                                          "\"AQID\"") ",{\"attributeIndices\":[2],"
                                                      "\"originalPayloadFormat\":\"f\","
                                                      "\"originalPayload\":\"BAUG\"}")));
    const char *first = strstr(out, "AQID");
    assert_non_null(first);
    assert_null(strstr(first + 1, "AQID"));
    assert_non_null(strstr(out, "BAUG"));
    assert_null(strstr(out, "attributeIndices"));
    assert_int_equal((int)rig_metric(r, "otelcol_processor_groupbyattrs_num_grouped_samples",
                                     "processor=\"group_by_attrs\""),
                     2);
    rig_free(r);
}

/* Values and resources by reference to the string table are equal to the same texts. */
static void references_are_resolved(void **state)
{
    (void)state;
    expect(
        "keys: [tenant]", BR_PROFILES,
        "{\"resourceProfiles\":[" OF(
            "{\"keyStrindex\":3,\"value\":{\"stringValueStrindex\":4}}",
            PROFILE(SAMPLE("1", "1"),
                    "")) "," OF(SHOP, PROFILE(SAMPLE("2", "2"),
                                              "")) "],\"dictionary\":{\"stringTable\":[\"\","
                                                   "\"tenant\",\"a\",\"service.name\",\"shop\"],"
                                                   "\"attributeTable\":[{},{\"keyStrindex\":1,"
                                                   "\"value\":{\"stringValueStrindex\":2}},{"
                                                   "\"keyStrindex\":1,\"value\":{\"stringValue\":"
                                                   "\"a\"}}]}}",
        "{\"resourceProfiles\":[" OF(
            TENANT("a"),
            PROFILE(BARE("1"), "") "," PROFILE(
                BARE("2"),
                "")) "],"
                     "\"dictionary\":{\"stringTable\":[\"\",\"tenant\",\"a\",\"service.name\","
                     "\"shop\"],"
                     "\"attributeTable\":[{},{\"keyStrindex\":1,\"value\":{\"stringValue\":\"a\"}},"
                     "{\"keyStrindex\":1,\"value\":{\"stringValue\":\"a\"}}]}}");
}

static void equal_resources_of_profiles_are_merged(void **state)
{
    (void)state;
    expect("{}", BR_PROFILES,
           PROFILES(OF(SHOP, PROFILE(SAMPLE("1", "1"), "")) "," OF(SHOP, PROFILE(BARE("2"), ""))),
           PROFILES(OF(SHOP, PROFILE(SAMPLE("1", "1"), "") "," PROFILE(BARE("2"), ""))));
}

/* --- Limits ----------------------------------------------------------------------------------- */

/* Returns a request in which each span has another tenant and the resource has `size` bytes. */
static char *request_of_many_groups(int n_spans, int size)
{
    struct br_str json = {0};
    br_str_puts(&json, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"k\","
                       "\"value\":{\"stringValue\":\"");
    for (int i = 0; i < size; i++)
        br_str_putc(&json, 'x');
    br_str_puts(&json, "\"}}]},\"scopeSpans\":[{\"spans\":[");
    for (int i = 0; i < n_spans; i++)
        br_str_printf(&json,
                      "%s{\"attributes\":[{\"key\":\"tenant\",\"value\":{\"intValue\":%d}}]}",
                      i ? "," : "", i);
    br_str_puts(&json, "]}]}]}");
    assert_false(json.failed);
    return json.data;
}

/* Each group has a copy of the resource. A request whose groups would need much more memory than
 * the request is rejected. */
static void the_size_of_the_result_is_limited(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_group_by_attrs_processor, "keys: [tenant]");
    char *fits = request_of_many_groups(1000, 100), *large = request_of_many_groups(1000, 100000);
    (void)rig_run(r, BR_TRACES, fits);
    assert_int_equal(r->n_out, 1);
    assert_int_equal(r->outcome.verdict, BR_DONE);
    (void)rig_run(r, BR_TRACES, large);
    assert_int_equal(r->n_out, 1);
    assert_int_equal(r->outcome.verdict, BR_REJECT);
    br_free(fits);
    br_free(large);
    rig_free(r);
}

static void no_memory(void **state)
{
    (void)state;
    const struct rig_shortage spans = {
        .component = &br_group_by_attrs_processor,
        .yaml = "keys: [host.name]",
        .signal = BR_TRACES,
        .json = TRACES(SPANS(SHOP, SPAN("1", S("host.name", "a") "," I("n", "1")) "," PLAIN("2"))),
        .expected = TRACES(SPANS(SHOP "," S("host.name", "a"),
                                 SPAN("1", I("n", "1"))) "," SPANS(SHOP, PLAIN("2"))),
    };
    assert_true(rig_run_short(&spans) > 0);
    const struct rig_shortage samples = {
        .component = &br_group_by_attrs_processor,
        .yaml = "keys: [tenant]",
        .signal = BR_PROFILES,
        .json = PROFILES(
            OF(SHOP, PROFILE(BARE("1") "," SAMPLE("2", "2,3"), ",\"attributeIndices\":[1,3]"))),
        .expected =
            PROFILES(OF(TENANT("a"), PROFILE(BARE("1"), ",\"attributeIndices\":[3]")) "," OF(
                TENANT("b"), PROFILE(SAMPLE("2", "3"), ",\"attributeIndices\":[3]"))),
    };
    assert_true(rig_run_short(&samples) > 0);
}

static void hostile_bytes(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_group_by_attrs_processor, "keys: [host.name, tenant]");
    assert_true(rig_send_mutants(r, BR_TRACES,
                                 TRACES(SPANS(SHOP, SPAN("1", S("host.name", "a"))) "," SCOPES(
                                     SHOP, SCOPE(WITH(I("a", "1")), PLAIN("2")))),
                                 2000) > 100);
    assert_true(rig_send_mutants(r, BR_PROFILES,
                                 PROFILES(OF(SHOP, PROFILE(BARE("1") "," SAMPLE("2", "2,3"),
                                                           ",\"attributeIndices\":[1,3]"))),
                                 2000) > 100);
    rig_free(r);
}

SUITE(group_by_attrs)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_move_to_new_resources),
        cmocka_unit_test(equal_resources_are_merged),
        cmocka_unit_test(equal_scopes_are_merged),
        cmocka_unit_test(schema_urls_are_kept),
        cmocka_unit_test(requests_without_changes_are_forwarded_unchanged),
        cmocka_unit_test(samples_move_to_new_resources),
        cmocka_unit_test(payloads_are_kept_once),
        cmocka_unit_test(references_are_resolved),
        cmocka_unit_test(equal_resources_of_profiles_are_merged),
        cmocka_unit_test(the_size_of_the_result_is_limited),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(hostile_bytes),
    };
    return RUN_VARIANTS(tests, rig_order);
}
