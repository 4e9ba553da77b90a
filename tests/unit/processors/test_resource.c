/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the actions of the resource processor. Expected values follow from the documentation and
 * the source of the Collector's attributes and resource processors
 * (internal/coreinternal/attraction, v0.159). */
#include "base/mem.h"
#include "tests/support/long_text.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_resource_processor;

#define V(k, type, v) "{\"key\":\"" k "\",\"value\":{\"" type "\":" v "}}"
#define S(k, v) V(k, "stringValue", "\"" v "\"")
#define I(k, v) V(k, "intValue", "\"" v "\"")
#define D(k, v) V(k, "doubleValue", v)
#define B(k, v) V(k, "boolValue", v)
#define X(k, v) V(k, "bytesValue", "\"" v "\"")
#define L(k, v) V(k, "arrayValue", "{\"values\":[" v "]}")
#define M(k, v) V(k, "kvlistValue", "{\"values\":[" v "]}")
#define EMPTY(k) "{\"key\":\"" k "\",\"value\":{}}"

/* Returns a request with a Resource that has the attributes. */
static const char *request(const char *attributes)
{
    static char text[1 << 16];
    (void)snprintf(
        text, sizeof text,
        "{\"resourceSpans\":[{\"resource\":{%s%s%s},\"scopeSpans\":[{\"spans\":[{\"name\":"
        "\"a\"}]}]}]}",
        attributes[0] ? "\"attributes\":[" : "", attributes, attributes[0] ? "]" : "");
    return text;
}

struct example {
    const char *rules, *before, *after;
};

static const struct example examples[] = {
    /* insert: only if the key is missing */
    {"{key: a, value: x, action: insert}", "", S("a", "x")},
    {"{key: a, value: x, action: insert}", S("a", "old"), S("a", "old")},
    {"{key: a, from_attribute: b, action: insert}", S("b", "y"), S("b", "y") "," S("a", "y")},
    {"{key: a, from_attribute: b, action: insert}", S("c", "y"), S("c", "y")},
    /* update: only if the key exists */
    {"{key: a, value: x, action: update}", S("a", "old"), S("a", "x")},
    {"{key: a, value: x, action: update}", S("b", "old"), S("b", "old")},
    {"{key: a, from_attribute: b, action: update}", S("a", "1") "," I("b", "7"),
     I("a", "7") "," I("b", "7")},
    /* upsert: both */
    {"{key: a, value: x, action: UPSERT}", S("a", "old"), S("a", "x")},
    {"{key: a, value: x, action: Upsert}", S("b", "y"), S("b", "y") "," S("a", "x")},
    {"{key: service.name, from_attribute: service.name, action: upsert}", S("service.name", "shop"),
     S("service.name", "shop")},
    {"{key: a, from_attribute: l, action: upsert}", L("l", "{\"intValue\":\"1\"}"),
     L("l", "{\"intValue\":\"1\"}") "," L("a", "{\"intValue\":\"1\"}")},
    {"{key: a, from_attribute: e, action: upsert}", EMPTY("e"), EMPTY("e") "," EMPTY("a")},
    /* defaults */
    {"{key: a, from_attribute: b, default_value: 5, action: insert}", S("c", "y"),
     S("c", "y") "," I("a", "5")},
    {"{key: a, from_attribute: b, default_value: 5, action: insert}", S("b", "y"),
     S("b", "y") "," S("a", "y")},
    {"{key: a, default_value: x, action: insert}", "", S("a", "x")},
    {"{key: a, from_context: metadata.tenant, default_value: none, action: insert}", "",
     S("a", "none")},
    {"{key: a, from_context: metadata.tenant, action: insert}", "", ""},
    /* types of value */
    {"{key: a, value: 42, action: insert}", "", I("a", "42")},
    {"{key: a, value: -0x10, action: insert}", "", I("a", "-16")},
    {"{key: a, value: 0o17, action: insert}", "", I("a", "15")},
    {"{key: a, value: 010, action: insert}", "", I("a", "8")},
    {"{key: a, value: 0b101, action: insert}", "", I("a", "5")},
    {"{key: a, value: 1_000, action: insert}", "", I("a", "1000")},
    {"{key: a, value: -9223372036854775808, action: insert}", "", I("a", "-9223372036854775808")},
    {"{key: a, value: \"42\", action: insert}", "", S("a", "42")},
    {"{key: a, value: 1.5, action: insert}", "", D("a", "1.5")},
    {"{key: a, value: 1e3, action: insert}", "", D("a", "1000")},
    {"{key: a, value: .inf, action: insert}", "", D("a", "\"Infinity\"")},
    {"{key: a, value: -.INF, action: insert}", "", D("a", "\"-Infinity\"")},
    {"{key: a, value: .nan, action: insert}", "", D("a", "\"NaN\"")},
    {"{key: a, value: 1.2.3, action: insert}", "", S("a", "1.2.3")},
    {"{key: a, value: 2001-01-01, action: insert}", "", S("a", "2001-01-01")},
    {"{key: a, value: true, action: insert}", "", B("a", "true")},
    {"{key: a, value: False, action: insert}", "", B("a", "false")},
    {"{key: a, value: 'true', action: insert}", "", S("a", "true")},
    {"{key: a, value: '', action: insert}", "", S("a", "")},
    {"{key: a, value: [x, 1, [true]], action: insert}", "",
     L("a", "{\"stringValue\":\"x\"},{\"intValue\":\"1\"},"
            "{\"arrayValue\":{\"values\":[{\"boolValue\":true}]}}")},
    {"{key: a, value: {k: 1, l: ~}, action: insert}", "", M("a", I("k", "1") "," EMPTY("l"))},
    /* delete */
    {"{key: b, action: delete}", S("a", "1") "," S("b", "2") "," S("c", "3"),
     S("a", "1") "," S("c", "3")},
    {"{key: z, action: delete}", S("a", "1"), S("a", "1")},
    {"{key: a, action: delete}", S("a", "1"), ""},
    {"{key: a, action: delete}", S("a", "1") "," S("a", "2") "," S("b", "3"), S("b", "3")},
    {"{pattern: 'k8s\\.', action: delete}", S("k8s.pod", "1") "," S("b", "2") "," S("x-k8s.y", "3"),
     S("b", "2")},
    {"{pattern: '^k8s$', action: delete}", S("k8s\\n", "1") "," S("k8s", "2"), S("k8s\\n", "1")},
    {"{key: b, pattern: '^k8s', action: delete}", S("k8s.pod", "1") "," S("b", "2"), ""},
    /* hash: SHA-256 of the bytes of the value */
    {"{key: a, action: hash}", S("a", "abc"),
     S("a", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")},
    {"{key: a, action: hash}", B("a", "true"),
     S("a", "4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a")},
    {"{key: a, action: hash}", I("a", "42"),
     S("a", "ed049108bc18f2c64369e8d0ea42850bdd1a7d1dd340cfde716315579702a76c")},
    {"{key: a, action: hash}", D("a", "1.5"),
     S("a", "e163f8cb0f7067a7fc78ca859a77f849aea3214f38fb75b884e4a16be725c905")},
    {"{key: a, action: hash}", L("a", "{\"intValue\":\"1\"}"), S("a", "")},
    {"{key: a, action: hash}", X("a", "AQI="), S("a", "")},
    {"{key: a, action: hash}", EMPTY("a"), S("a", "")},
    {"{pattern: '^[ab]$', action: hash}", S("a", "abc") "," S("c", "abc"),
     S("a", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") "," S("c", "abc")},
    /* extract */
    {"{key: url, pattern: '^(?P<scheme>.*)://(?P<host>[^/]*)(?P<rest>/.*)?$', action: extract}",
     S("url", "http://x/y"),
     S("url", "http://x/y") "," S("scheme", "http") "," S("host", "x") "," S("rest", "/y")},
    {"{key: url, pattern: '^(?P<scheme>.*)://(?P<host>[^/]*)(?P<rest>/.*)?$', action: extract}",
     S("host", "old") "," S("url", "http://x"),
     S("host", "x") "," S("url", "http://x") "," S("scheme", "http") "," S("rest", "")},
    {"{key: url, pattern: '^(?<a>x)', action: extract}", S("url", "y"), S("url", "y")},
    {"{key: url, pattern: '(?P<a>.)', action: extract}", I("url", "12"), I("url", "12")},
    {"{key: url, pattern: '^(?P<a>\\w+)$', action: extract}", S("url", "\u00e9"),
     S("url", "\u00e9")},
    {"{key: url, pattern: '^(?P<a>.)$', action: extract}", S("url", "\u00e9"),
     S("url", "\u00e9") "," S("a", "\u00e9")},
    {"{key: url, pattern: '(?P<a>x*)', action: extract}", S("url", ""),
     S("url", "") "," S("a", "")},
    /* convert */
    {"{key: a, converted_type: string, action: convert}", I("a", "-5"), S("a", "-5")},
    {"{key: a, converted_type: string, action: convert}", B("a", "true"), S("a", "true")},
    {"{key: a, converted_type: string, action: convert}", D("a", "0.1"), S("a", "0.1")},
    {"{key: a, converted_type: string, action: convert}", D("a", "100"), S("a", "100")},
    {"{key: a, converted_type: string, action: convert}", D("a", "1e20"),
     S("a", "100000000000000000000")},
    {"{key: a, converted_type: string, action: convert}", D("a", "1e21"), S("a", "1e+21")},
    {"{key: a, converted_type: string, action: convert}", D("a", "1.25e-7"), S("a", "1.25e-7")},
    {"{key: a, converted_type: string, action: convert}", D("a", "0.000001"), S("a", "0.000001")},
    {"{key: a, converted_type: string, action: convert}", D("a", "-123.456"), S("a", "-123.456")},
    {"{key: a, converted_type: string, action: convert}", D("a", "\"NaN\""), S("a", "NaN")},
    {"{key: a, converted_type: string, action: convert}", D("a", "\"-Infinity\""),
     S("a", "-Infinity")},
    {"{key: a, converted_type: string, action: convert}", X("a", "AQI="), S("a", "AQI=")},
    {"{key: a, converted_type: string, action: convert}", EMPTY("a"), S("a", "")},
    {"{key: a, converted_type: string, action: convert}",
     L("a", "{\"intValue\":\"1\"},{\"stringValue\":\"<x>\"},{\"bytesValue\":\"AQI=\"},{}"),
     S("a", "[1,\\\"<x>\\\",\\\"AQI=\\\",null]")},
    {"{key: a, converted_type: string, action: convert}",
     M("a", I("b", "1") "," I("a", "2") "," B("b", "true")),
     S("a", "{\\\"a\\\":2,\\\"b\\\":true}")},
    {"{key: a, converted_type: int, action: convert}", S("a", "+12"), I("a", "12")},
    {"{key: a, converted_type: int, action: convert}", S("a", "007"), I("a", "7")},
    {"{key: a, converted_type: int, action: convert}", S("a", "9223372036854775808"),
     S("a", "9223372036854775808")},
    {"{key: a, converted_type: int, action: convert}", S("a", " 1"), S("a", " 1")},
    {"{key: a, converted_type: int, action: convert}", S("a", "1.5"), S("a", "1.5")},
    {"{key: a, converted_type: int, action: convert}", S("a", ""), S("a", "")},
    {"{key: a, converted_type: int, action: convert}", D("a", "-1.9"), I("a", "-1")},
    {"{key: a, converted_type: int, action: convert}", D("a", "1e30"), D("a", "1e+30")},
    {"{key: a, converted_type: int, action: convert}", B("a", "true"), I("a", "1")},
    {"{key: a, converted_type: int, action: convert}", B("a", "false"), I("a", "0")},
    {"{key: a, converted_type: int, action: convert}", L("a", "{\"intValue\":\"1\"}"),
     L("a", "{\"intValue\":\"1\"}")},
    {"{key: a, converted_type: double, action: convert}", S("a", "1e5"), D("a", "100000")},
    {"{key: a, converted_type: double, action: convert}", S("a", "0x1p-2"), D("a", "0.25")},
    {"{key: a, converted_type: double, action: convert}", S("a", "0x1"), S("a", "0x1")},
    {"{key: a, converted_type: double, action: convert}", S("a", "+Infinity"),
     D("a", "\"Infinity\"")},
    {"{key: a, converted_type: double, action: convert}", S("a", "-nan"), S("a", "-nan")},
    {"{key: a, converted_type: double, action: convert}", S("a", "nan(1)"), S("a", "nan(1)")},
    {"{key: a, converted_type: double, action: convert}", S("a", "1e400"), S("a", "1e400")},
    {"{key: a, converted_type: double, action: convert}", S("a", " 1"), S("a", " 1")},
    {"{key: a, converted_type: double, action: convert}", I("a", "3"), D("a", "3")},
    {"{key: a, converted_type: double, action: convert}", B("a", "true"), D("a", "1")},
    /* actions run in order, and each action sees the result of the previous action */
    {"{key: a, value: 5, action: insert}, {key: b, from_attribute: a, action: upsert},"
     "{key: a, action: delete}, {key: b, converted_type: string, action: convert},"
     "{key: b, pattern: '(?P<c>.)', action: extract}",
     "", S("b", "5") "," S("c", "5")},
    {"{key: a, action: delete}, {key: a, value: x, action: insert}", S("a", "y") "," S("b", "z"),
     S("b", "z") "," S("a", "x")},
};

/* Asserts that the output is a request with these attributes. The caller must not call request()
 * for it: two calls in one expression would share the static text. */
static void expect(const char *got, const char *attributes)
{
    assert_string_equal(got, request(attributes));
}

static void actions(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(examples); i++) {
        const struct example *e = &examples[i];
        char yaml[1024], want[1 << 16];
        (void)snprintf(yaml, sizeof yaml, "attributes: [%s]", e->rules);
        struct rig *r = rig_new(&br_resource_processor, yaml);
        /* from the second time on, the result comes from the cache */
        for (int again = 0; again < 3; again++) {
            (void)snprintf(want, sizeof want, "%s", request(e->after));
            const char *got = rig_run(r, BR_TRACES, request(e->before));
            if (strcmp(got, want) != 0)
                fail_msg("%s\n%s\nbecame %s\nnot    %s", e->rules, e->before, got, want);
        }
        rig_free(r);
    }
}

static void wrong_configs(void **state)
{
    static const char *const configs[][2] = {
        {"", "x: \"attributes\" is missing"},
        {"attributes: []", "\"attributes\" is missing"},
        {"attributes: [{key: a, value: 1}]", "attributes[0]: \"action\" is missing"},
        {"attributes: [{key: a, action: nope}]", "attributes[0]::action: must be one of insert,"},
        {"attributes: [{action: insert, value: 1}]", "insert needs a key"},
        {"attributes: [{action: delete}]", "delete needs a key or a pattern"},
        {"attributes: [{action: insert, key: a}]", "insert needs one of value"},
        {"attributes: [{action: insert, key: a, value: 1, from_attribute: b}]",
         "only one of value"},
        {"attributes: [{action: insert, key: a, value: 1, pattern: x}]",
         "pattern: does not belong"},
        {"attributes: [{action: upsert, key: a, value: 1, converted_type: int}]",
         "converted_type: does not belong"},
        {"attributes: [{action: upsert, key: a, from_context: client.address}]",
         "from_context: client.address is not supported"},
        {"attributes: [{action: hash, key: a, value: 1}]", "value: does not belong to hash"},
        {"attributes: [{action: delete, key: a, from_attribute: b}]", "from_attribute: does not"},
        {"attributes: [{action: delete, pattern: '('}]",
         "pattern: is not a valid regular expression"},
        {"attributes: [{action: extract, key: a}]", "extract needs a pattern"},
        {"attributes: [{action: extract, key: a, pattern: '(?P<b>x)', value: 1}]",
         "value: does not"},
        {"attributes: [{action: extract, key: a, pattern: 'x'}]", "has no named group"},
        {"attributes: [{action: extract, key: a, pattern: '(x)(?P<b>y)'}]", "group without a name"},
        {"attributes: [{action: convert, key: a}]", "convert needs a converted_type"},
        {"attributes: [{action: convert, key: a, converted_type: bool}]",
         "converted_type: must be string, int or double, got \"bool\""},
        {"attributes: [{action: convert, key: a, converted_type: int, pattern: x}]",
         "pattern: does not belong to convert"},
        {"attributes: [{action: insert, key: a, value: 1},\n {action: insert, key: b}]",
         "test.yaml:2:2: x::attributes[1]: insert needs"},
    };
    (void)state;
    rig_expect_errors_in(&br_resource_processor, configs, BR_COUNT(configs));
}

/* A Resource without changes keeps its bytes, including unknown fields. */
static void unchanged_resources_keep_their_bytes(void **state)
{
    static const uint8_t body[] = {
        0x0a, 0x1b,                                               /* ResourceSpans, 27 bytes */
        0x0a, 0x15,                                               /* Resource, 21 */
        0x10, 0x83, 0x80, 0x00,                                   /* dropped: 3, overlong */
        0x0a, 0x08, 0x0a, 0x01, 'a', 0x12, 0x03, 0x0a, 0x01, '1', /* a=1 */
        0x9a, 0x06, 0x01, 'x',                                    /* unknown field 99 */
        0xa8, 0x06, 0x05,                                         /* unknown field 101 */
        0x12, 0x02, 0x12, 0x00, /* ScopeSpans with an empty span */
    };
    (void)state;
    const char *const rules[] = {"{key: b, action: delete}",
                                 "{key: a, value: '2', action: update}"};
    for (int i = 0; i < 2; i++) {
        char yaml[128];
        (void)snprintf(yaml, sizeof yaml, "attributes: [%s]", rules[i]);
        struct rig *r = rig_new(&br_resource_processor, yaml);
        for (int again = 0; again < 2; again++) {
            struct br_item *item = rig_item(r, BR_TRACES, "{}");
            struct br_buf *buf = br_buf_new(r->pool, sizeof body);
            memcpy(buf->data, body, sizeof body);
            struct br_part part = {.kind = BR_PART_RESOURCE,
                                   .n_records = 1,
                                   .buf = buf,
                                   .raw = buf->data,
                                   .raw_len = sizeof body,
                                   .body_at = 2,
                                   .res_at = 2,
                                   .res_len = 23,
                                   .res_body_at = 4};
            assert_int_equal(br_item_add_part(item, &part), 0);
            br_buf_unref(buf);
            rig_send(r, item);
            uint8_t want[sizeof body];
            memcpy(want, body, sizeof body);
            want[17] = i ? '2' : '1';
            assert_int_equal(r->out_size, sizeof body);
            assert_memory_equal(r->wire->data, want, sizeof body);
        }
        rig_free(r);
    }
}

static void requests_without_a_resource(void **state)
{
    (void)state;
    struct rig *r =
        rig_new(&br_resource_processor, "attributes: [{key: a, value: x, action: insert}]");
    assert_string_equal(
        rig_run(r, BR_TRACES, "{\"resourceSpans\":[{\"scopeSpans\":[{}]}]}"),
        "{\"resourceSpans\":[{\"resource\":{\"attributes\":[" S("a", "x") "]},"
                                                                          "\"scopeSpans\":[{}]}]}");
    assert_string_equal(rig_run(r, BR_TRACES, "{}"), "{}");
    rig_free(r);
}

#define DICTIONARY "\"dictionary\":{\"stringTable\":[\"\",\"host\",\"box-1\",\"a\"]}"
#define PROFILES(attributes)                                                                       \
    "{\"resourceProfiles\":[{\"resource\":{\"attributes\":[" attributes "]}}]," DICTIONARY "}"

/* Two Resources with the same bytes but different dictionaries are different. */
static void values_by_reference(void **state)
{
    (void)state;
    static const char in[] = PROFILES("{\"value\":{\"stringValueStrindex\":2},\"keyStrindex\":1}");
    static const char out[] = PROFILES(S("host", "box-1") "," S("copy", "box-1"));
    struct rig *r = rig_new(&br_resource_processor,
                            "attributes: [{key: copy, from_attribute: host, action: insert}]");
    assert_string_equal(rig_run(r, BR_PROFILES, in), out);
    assert_string_equal(rig_run(r, BR_PROFILES, in), out);
    assert_string_equal(
        rig_run(
            r, BR_PROFILES,
            "{\"resourceProfiles\":[{\"resource\":{\"attributes\":[{\"keyStrindex\":1,\"value\":{"
            "\"stringValueStrindex\":2}}]}}],\"dictionary\":{\"stringTable\":[\"\",\"host\","
            "\"box-2\"]}}"),
        "{\"resourceProfiles\":[{\"resource\":{\"attributes\":[" S("host", "box-2") "," S(
            "copy", "box-2") "]}}],\"dictionary\":{\"stringTable\":[\"\",\"host\",\"box-2\"]}}");
    rig_free(r);
    /* If the rules do not change anything, keys and values remain references to the dictionary. */
    r = rig_new(&br_resource_processor, "attributes: [{key: nobody, action: delete}]");
    assert_string_equal(rig_run(r, BR_PROFILES, in), in);
    rig_free(r);
}

static const char *item_with_metadata(struct rig *r, const char *metadata)
{
    struct br_item *item = rig_item(r, BR_TRACES, request(""));
    item->metadata = metadata;
    rig_send(r, item);
    return r->out.data;
}

static void values_from_context(void **state)
{
    (void)state;
    struct rig *r =
        rig_new(&br_resource_processor,
                "attributes: [{key: t, from_context: metadata.X-Tenant, action: insert},"
                " {key: p, from_context: plain, action: insert}]");
    const struct br_strings *keys = br_resource_processor.metadata_keys(r->node.config);
    assert_int_equal(keys->count, 2);
    assert_string_equal(keys->items[0], "X-Tenant");
    assert_string_equal(keys->items[1], "plain");
    for (int again = 0; again < 2; again++) {
        expect(item_with_metadata(r, "x-tenant\0one\0X-Tenant\0two\0\0"), S("t", "one;two"));
        expect(item_with_metadata(r, "x-tenant\0three\0plain\0\0\0"),
               S("t", "three") "," S("p", ""));
        expect(item_with_metadata(r, NULL), "");
    }
    rig_free(r);
}

/* Sends more different Resources than the cache can hold, and a Resource that is too large for the
 * cache. */
static void many_resources(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_resource_processor,
                            "attributes: [{key: b, from_attribute: a, action: insert}]");
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2000; i++) {
            char before[64], after[128];
            (void)snprintf(before, sizeof before, S("a", "%d"), i);
            (void)snprintf(after, sizeof after, S("a", "%d") "," S("b", "%d"), i, i);
            expect(rig_run(r, BR_TRACES, request(before)), after);
        }
    }
    /* The memory of the cache is limited for any input. */
    br_buf_unref(r->wire);
    r->wire = NULL;
    assert_in_range(br_pool_live(r->pool), 0, 256 * 8192 * 5 / 4);
    char large[12000], before[13000], after[26000];
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    (void)snprintf(before, sizeof before, S("a", "%s"), large);
    (void)snprintf(after, sizeof after, S("a", "%s") "," S("b", "%s"), large, large);
    for (int again = 0; again < 2; again++)
        expect(rig_run(r, BR_TRACES, request(before)), after);
    rig_free(r);
}

static void too_many_attributes(void **state)
{
    (void)state;
    struct rig *r =
        rig_new(&br_resource_processor, "attributes: [{key: a, value: x, action: insert}]");
    struct br_str json = {0};
    br_str_puts(&json, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{}");
    for (int i = 1; i < 70000; i++)
        br_str_puts(&json, ",{}");
    br_str_puts(&json, "]},\"scopeSpans\":[{\"spans\":[{}]}]}]}");
    assert_string_equal(rig_run(r, BR_TRACES, json.data), "");
    assert_int_equal(r->outcome.verdict, BR_REJECT);
    assert_int_equal(r->outcome.status, BR_STATUS_INVALID_ARGUMENT);
    br_str_release(&json);
    rig_free(r);
}

/* A pattern that takes exponential time is stopped, and counts as not matching. */
static void exponential_patterns_are_stopped(void **state)
{
    (void)state;
    struct rig *r = rig_new(
        &br_resource_processor,
        "{match_time: 1h, attributes: [{key: a, pattern: '^(?P<x>(?:b+)+)+$', action: extract}]}");
    static const char in[] = S("a", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbc");
    expect(rig_run(r, BR_TRACES, request(in)), in);
    rig_free(r);
}

/* An attribute that cannot be matched in time is deleted. This result is not cached. */
static void matching_has_a_time_limit(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_resource_processor,
                            "{match_time: 50ms, attributes: [{pattern: '" LONG_TEXT_PATTERN
                            "', action: delete}]}");
    char *hostile =
        long_text_in("{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"",
                     "\",\"value\":{}}]},\"scopeSpans\":[{\"spans\":[{\"name\":\"a\"}]}]},"
                     "{\"resource\":{\"attributes\":[" S(
                         "unseen", "1") "]},"
                                        "\"scopeSpans\":[{\"spans\":[{\"name\":\"b\"}]}]}]}");
    const char *out = rig_run(r, BR_TRACES, hostile);
    assert_null(strstr(out, "abcd"));
    assert_null(strstr(out, "unseen"));
    assert_true(rig_metric(r, "braid_resource_gave_up", "processor=\"resource\"") >= 2);
    expect(rig_run(r, BR_TRACES, request(S("unseen", "1"))), S("unseen", "1"));
    free(hostile);
    rig_free(r);
}

/* --- No memory ------------------------------------------------------------------------------- */

static struct br_item *make(struct rig *r, void *arg)
{
    (void)arg;
    struct br_item *item = rig_item(r, BR_TRACES, request(S("a", "1") "," M("b", I("k", "1"))));
    item->metadata = "t\0v\0\0";
    return item;
}

static bool check_output(struct rig *r, void *arg)
{
    (void)arg;
    if (r->n_out)
        expect(r->out.data,
               S("a", "1") "," S("b", "{\\\"k\\\":1}") "," S(
                   "x",
                   "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b") "," S("c",
                                                                                             "v"));
    return r->n_out > 0;
}

static void no_memory(void **state)
{
    (void)state;
    const struct rig_shortage s = {
        &br_resource_processor,
        "attributes: [{key: a, pattern: '(?P<x>1)', action: extract}, {pattern: x, action: hash},"
        " {key: b, converted_type: string, action: convert},"
        " {key: c, from_context: t, action: insert}]",
        .make = make, .came = check_output};
    assert_in_range(rig_run_short(&s), 3, 100);
}

SUITE(resource)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actions),
        cmocka_unit_test(wrong_configs),
        cmocka_unit_test(unchanged_resources_keep_their_bytes),
        cmocka_unit_test(requests_without_a_resource),
        cmocka_unit_test(values_by_reference),
        cmocka_unit_test(values_from_context),
        cmocka_unit_test(many_resources),
        cmocka_unit_test(too_many_attributes),
        cmocka_unit_test(exponential_patterns_are_stopped),
        cmocka_unit_test(matching_has_a_time_limit),
        cmocka_unit_test(no_memory),
    };
    return RUN_VARIANTS(tests, rig_order);
}
