/* SPDX-License-Identifier: Apache-2.0 */
/* The attributes processor. test_resource.c tests the effects of the actions. These tests check
 * which attributes the actions change: attributes of spans, as in the Collector's
 * attributesprocessor (v0.155), and attributes of samples and profiles in the dictionary. */
#include "base/mem.h"
#include "otlp/dictionary/additions.h"
#include "otlp/dictionary/dictionary.h"
#include "tests/support/long_text.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"
#include "wire/protobuf.h"

extern const struct br_component br_attributes_processor;

#define V(k, type, v) "{\"key\":\"" k "\",\"value\":{\"" type "\":" v "}}"
#define S(k, v) V(k, "stringValue", "\"" v "\"")
#define I(k, v) V(k, "intValue", "\"" v "\"")
#define SHA_1                                                                                      \
    "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b" /* SHA-1 of "1"             \
                                                                        */

/* --- Spans ----------------------------------------------------------------------------------- */

static const char *span(const char *name, const char *attributes)
{
    static char text[4][2048];
    static int next;
    char *out = text[next++ % 4];
    (void)snprintf(out, sizeof text[0],
                   "{\"resourceSpans\":[{\"resource\":{\"attributes\":[" S(
                       "service.name", "shop") "]},\"scopeSpans\":[{\"spans\":[{\"name\":\"%s\","
                                               "\"kind\":2%s%s%s,\"events\":[{\"name\":\"e\","
                                               "\"attributes\":[" S("key", "1") "]}]}]}]}]}",
                   name, *attributes ? ",\"attributes\":[" : "", attributes,
                   *attributes ? "]" : "");
    return out;
}

/* The examples of the Collector's README and of its tests: one span with its attributes before
 * and after. */
static void spans(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"{key: attribute1, value: 123, action: insert}", "", I("attribute1", "123")},
        {"{key: attribute1, value: 123, action: insert}", S("attribute1", "x"),
         S("attribute1", "x")},
        {"{key: string key, from_attribute: anotherkey, action: insert}", S("anotherkey", "bob"),
         S("anotherkey", "bob") "," S("string key", "bob")},
        {"{key: db.secret, value: redacted, action: update}", S("db.secret", "p") "," I("n", "1"),
         S("db.secret", "redacted") "," I("n", "1")},
        {"{key: boo, from_attribute: foo, action: update}", S("boo", "1") "," S("foo", "2"),
         S("boo", "2") "," S("foo", "2")},
        {"{key: region, value: planet-earth, action: upsert}", S("region", "moon"),
         S("region", "planet-earth")},
        {"{key: credit_card, action: delete}", S("credit_card", "1") "," S("a", "b"), S("a", "b")},
        {"{pattern: '^cred', action: delete}", S("credit_card", "1"), ""},
        {"{key: user.email, action: hash}", S("user.email", "1"), S("user.email", SHA_1)},
        {"{key: http.url, pattern: '^(?P<http_protocol>.*):\\/\\/(?P<http_domain>.*)\\/"
         "(?P<http_path>.*)(\\?|\\&)(?P<http_query_params>.*)', action: extract}",
         S("http.url", "http://example.com/path?queryParam1=value1"), NULL},
        {"{key: http.url, pattern: '^(?P<scheme>.*):\\/\\/(?P<domain>[^/]*)', action: extract}",
         S("http.url", "http://example.com/path"),
         S("http.url", "http://example.com/path") "," S("scheme", "http") "," S("domain",
                                                                                "example.com")},
        {"{key: http.status_code, converted_type: int, action: convert}",
         S("http.status_code", "200"), I("http.status_code", "200")},
        {"{key: a, value: 1, action: insert}, {key: b, from_attribute: a, action: insert}", "",
         I("a", "1") "," I("b", "1")},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        char yaml[512];
        (void)snprintf(yaml, sizeof yaml, "actions: [%s]", cases[i][0]);
        if (!cases[i][2]) { /* a group without a name */
            assert_non_null(strstr(rig_errors(&br_attributes_processor, yaml), "without a name"));
            continue;
        }
        struct rig *r = rig_new(&br_attributes_processor, yaml);
        assert_string_equal(rig_run(r, BR_TRACES, span("s", cases[i][1])), span("s", cases[i][2]));
        rig_free(r);
    }
}

/* The attributes of the resource and of events do not belong to the span. */
static void other_attributes_are_unchanged(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_attributes_processor,
                            "actions: [{key: service.name, action: delete}, {key: key, action: "
                            "delete}]");
    const char *in = span("s", S("a", "b"));
    assert_string_equal(rig_run(r, BR_TRACES, in), in);
    rig_free(r);
}

static void include_and_exclude(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        bool a, b; /* true if span a or span b is changed */
    } cases[] = {
        {"include: {match_type: strict, services: [shop]}", true, true},
        {"include: {match_type: strict, services: [cart]}", false, false},
        {"include: {match_type: regexp, span_names: ['^a']}", true, false},
        {"exclude: {match_type: regexp, span_names: ['^a']}", false, true},
        {"include: {match_type: strict, services: [shop]}, exclude: {match_type: strict, "
         "span_names: [b]}",
         true, false},
        {"include: {match_type: strict, attributes: [{key: k, value: v}]}", true, true},
        {"exclude: {match_type: strict, attributes: [{key: k}]}", false, false},
        {"include: {match_type: strict, functions: [main]}", false, false},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        char yaml[512];
        (void)snprintf(yaml, sizeof yaml, "{actions: [{key: new, value: 1, action: insert}], %s}",
                       cases[i].yaml);
        struct rig *r = rig_new(&br_attributes_processor, yaml);
        for (int b = 0; b < 2; b++) {
            bool changed = b ? cases[i].b : cases[i].a;
            const char *name = b ? "b" : "a";
            assert_string_equal(rig_run(r, BR_TRACES, span(name, S("k", "v"))),
                                span(name, changed ? S("k", "v") "," I("new", "1") : S("k", "v")));
        }
        rig_free(r);
    }
}

static void values_from_context(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_attributes_processor,
                            "actions: [{key: t, from_context: metadata.tenant, action: insert},"
                            " {key: u, from_context: auth.username, action: insert}]");
    const struct br_strings *keys = br_attributes_processor.metadata_keys(r->node.config);
    assert_int_equal(keys->count, 2);
    assert_string_equal(keys->items[0], "tenant");
    assert_string_equal(keys->items[1], "auth.username");
    struct br_item *item = rig_item(r, BR_TRACES, span("s", ""));
    item->metadata = "tenant\0acme\0auth.username\0alice\0\0";
    rig_send(r, item);
    assert_string_equal(r->out.data, span("s", S("t", "acme") "," S("u", "alice")));
    rig_free(r);
}

/* --- Profiles -------------------------------------------------------------------------------- */

#define STRINGS "\"\",\"thread\",\"main\",\"bytes\",\"size\",\"env\",\"user\""
/* Attributes: 1 thread=main, 2 size=5 bytes, 3 env=prod, 4 user="1". Samples 1 and 2 share a
 * list, 3 has another list, and 4 does not have one. */
static const char *profiles(const char *samples, const char *profile, const char *more_strings,
                            const char *more_attributes)
{
    static char text[4][4096];
    static int next;
    char *out = text[next++ % 4];
    (void)snprintf(
        out, sizeof text[0],
        "{\"resourceProfiles\":[{\"resource\":{\"attributes\":[" S(
            "service.name",
            "shop") "]},\"scopeProfiles\":[{\"profiles\":[{\"samples\":[%s]%s}]}]}],\"dictionary\":"
                    "{\"stringTable\":[" STRINGS "%s],\"attributeTable\":[{},"
                    "{\"keyStrindex\":1,\"value\":{\"stringValue\":\"main\"}},"
                    "{\"keyStrindex\":4,\"value\":{\"intValue\":\"5\"},\"unitStrindex\":3},"
                    "{\"keyStrindex\":5,\"value\":{\"stringValue\":\"prod\"}},"
                    "{\"keyStrindex\":6,\"value\":{\"stringValue\":\"1\"}}%s]}}",
        samples, profile, more_strings, more_attributes);
    return out;
}

#define SAMPLE(n, indices) "{\"attributeIndices\":[" indices "],\"values\":[\"" n "\"]}"
#define BARE(n) "{\"values\":[\"" n "\"]}"
#define PROFILE(indices) ",\"attributeIndices\":[" indices "]"
#define ENTRY(key, value) ",{\"keyStrindex\":" key ",\"value\":{" value "}}"

static const char before[] =
    SAMPLE("1", "1,4") "," SAMPLE("2", "1,4") "," SAMPLE("3", "2") "," BARE("4");

static const struct {
    const char *yaml, *samples, *profile, *strings, *attributes;
} on_profiles[] = {
    /* no action has an effect, so the output is identical */
    {"actions: [{key: nobody, action: delete}]", before, PROFILE("3"), "", ""},
    {"actions: [{key: user, action: delete}]",
     SAMPLE("1", "1") "," SAMPLE("2", "1") "," SAMPLE("3", "2") "," BARE("4"), PROFILE("3"), "",
     ""},
    {"actions: [{key: thread, action: delete}, {key: user, action: delete}]",
     BARE("1") "," BARE("2") "," SAMPLE("3", "2") "," BARE("4"), PROFILE("3"), "", ""},
    {"actions: [{key: env, action: delete}]", before, "", "", ""},
    /* each new attribute is added once, with the string of its key */
    {"actions: [{key: user, action: hash}]",
     SAMPLE("1", "1,5") "," SAMPLE("2", "1,5") "," SAMPLE("3", "2") "," BARE("4"), PROFILE("3"), "",
     ENTRY("6", "\"stringValue\":\"" SHA_1 "\"")},
    {"{actions: [{key: n, value: 7, action: insert}], apply_to: samples}",
     SAMPLE("1", "1,4,5") "," SAMPLE("2", "1,4,5") "," SAMPLE("3", "2,5") "," SAMPLE("4", "5"),
     PROFILE("3"), ",\"n\"", ENTRY("7", "\"intValue\":\"7\"")},
    {"{actions: [{key: n, value: 7, action: insert}], apply_to: profiles}", before, PROFILE("3,5"),
     ",\"n\"", ENTRY("7", "\"intValue\":\"7\"")},
    {"{actions: [{key: n, value: 7, action: insert}]}",
     SAMPLE("1", "1,4,5") "," SAMPLE("2", "1,4,5") "," SAMPLE("3", "2,5") "," SAMPLE("4", "5"),
     PROFILE("3,5"), ",\"n\"", ENTRY("7", "\"intValue\":\"7\"")},
    /* a number keeps its unit */
    {"actions: [{key: size, converted_type: double, action: convert}]",
     SAMPLE("1", "1,4") "," SAMPLE("2", "1,4") "," SAMPLE("3", "5") "," BARE("4"), PROFILE("3"), "",
     ",{\"keyStrindex\":4,\"value\":{\"doubleValue\":5},\"unitStrindex\":3}"},
    {"actions: [{key: size, converted_type: string, action: convert}]",
     SAMPLE("1", "1,4") "," SAMPLE("2", "1,4") "," SAMPLE("3", "5") "," BARE("4"), PROFILE("3"), "",
     ENTRY("4", "\"stringValue\":\"5\"")},
    {"{actions: [{key: copy, from_attribute: thread, action: upsert}], apply_to: samples}",
     SAMPLE("1", "1,4,5") "," SAMPLE("2", "1,4,5") "," SAMPLE("3", "2") "," BARE("4"), PROFILE("3"),
     ",\"copy\"", ENTRY("7", "\"stringValue\":\"main\"")},
    /* only some samples match */
    {"{actions: [{key: n, value: 7, action: insert}], include: {match_type: strict, attributes: "
     "[{key: thread, value: main}]}}",
     SAMPLE("1", "1,4,5") "," SAMPLE("2", "1,4,5") "," SAMPLE("3", "2") "," BARE("4"), PROFILE("3"),
     ",\"n\"", ENTRY("7", "\"intValue\":\"7\"")},
    {"{actions: [{key: user, action: delete}], exclude: {match_type: strict, services: [shop]}}",
     before, PROFILE("3"), "", ""},
    {"{actions: [{key: user, action: delete}], include: {match_type: regexp, span_names: ['']}}",
     before, PROFILE("3"), "", ""},
};

static void samples_and_profiles(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(on_profiles); i++) {
        struct rig *r = rig_new(&br_attributes_processor, on_profiles[i].yaml);
        const char *in = profiles(before, PROFILE("3"), "", "");
        const char *expected = profiles(on_profiles[i].samples, on_profiles[i].profile,
                                        on_profiles[i].strings, on_profiles[i].attributes);
        const char *got = rig_run(r, BR_PROFILES, in);
        if (strcmp(got, expected) != 0)
            fail_msg("%s:\n%s\nnot\n%s", on_profiles[i].yaml, got, expected);
        rig_free(r);
    }
}

/* The tables of a new dictionary begin with their zero entries. */
static void requests_without_a_dictionary(void **state)
{
    (void)state;
    static const char in[] = "{\"resourceProfiles\":[{\"scopeProfiles\":[{\"profiles\":[{"
                             "\"samples\":[{\"values\":[\"1\"]}]}]}]}]}";
    struct rig *r = rig_new(&br_attributes_processor,
                            "{actions: [{key: a, value: x, action: insert}], apply_to: samples}");
    assert_string_equal(
        rig_run(r, BR_PROFILES, in),
        "{\"resourceProfiles\":[{\"scopeProfiles\":[{\"profiles\":[{\"samples\":[{"
        "\"attributeIndices\":[1],\"values\":[\"1\"]}]}]}]}],\"dictionary\":{\"stringTable\":[\"\","
        "\"a\"],\"attributeTable\":[{},{\"keyStrindex\":1,\"value\":{\"stringValue\":\"x\"}}]}}");
    rig_free(r);
}

/* The processor can read a value that is a reference. It keeps the reference if something else of
 * the sample changes. */
static void values_by_reference(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_attributes_processor, "actions: [{key: k, action: hash}]");
    static const char in[] =
        "{\"resourceProfiles\":[{\"scopeProfiles\":[{\"profiles\":[{\"samples\":[{"
        "\"attributeIndices\":[1],\"values\":[\"1\"]}]}]}]}],\"dictionary\":{\"stringTable\":[\"\","
        "\"k\",\"1\"],\"attributeTable\":[{},{\"keyStrindex\":1,\"value\":{"
        "\"stringValueStrindex\":2}}]}}";
    const char *out = rig_run(r, BR_PROFILES, in);
    assert_non_null(strstr(out, "\"attributeIndices\":[2]"));
    assert_non_null(strstr(out, SHA_1));
    rig_free(r);
}

/* There are many samples with different lists. The number of entries is limited. A list that was
 * seen before is not computed again. */
static void equal_lists_are_computed_once(void **state)
{
    (void)state;
    enum { N = 3000, KEYS = 50 };
    struct br_str json = {0};
    struct rig *r = rig_new(&br_attributes_processor, "actions: [{key: k, action: hash}]");
    br_str_puts(&json, "{'resourceProfiles':[{'scopeProfiles':[{'profiles':[{'samples':[");
    for (int i = 0; i < N; i++)
        br_str_printf(&json, "%s{'attributeIndices':[%d],'values':[1]}", i ? "," : "",
                      1 + i % KEYS);
    br_str_puts(&json, "]}]}]}],'dictionary':{'stringTable':['','k'],'attributeTable':[{}");
    for (int i = 0; i < KEYS; i++)
        br_str_printf(&json, ",{'keyStrindex':1,'value':{'stringValue':'%d'}}", i);
    br_str_puts(&json, "]}}");
    assert_false(json.failed);
    (void)rig_run(r, BR_PROFILES, json.data);
    assert_int_equal(r->n_out, 1);
    size_t n_hashes = 0;
    for (const char *at = strstr(r->out.data, "\"attributeTable\""); at;
         at = strstr(at + 1, "\"stringValue\""))
        n_hashes++;
    assert_int_equal(n_hashes - 1, 2 * KEYS);
    rig_free(r);
    br_str_release(&json);
}

/* --- Config and limits ----------------------------------------------------------------------- */

static void configs(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{}", "test.yaml:1:1: x: \"actions\" is missing: a list of actions, such as [{key: "
               "service.name, value: shop, action: upsert}]\n"},
        {"actions: [{key: a, action: insert}]",
         "test.yaml:1:11: x::actions[0]: insert needs one of value, from_attribute, from_context, "
         "default_value\n"},
        {"actions: [{key: a, action: delete}, {key: b, action: extract, pattern: '('}]",
         "test.yaml:1:72: x::actions[1]::pattern: is not a valid regular expression: missing "
         "closing "
         "parenthesis, at character 2\n"},
        {"{actions: [{key: a, action: delete}], include: {match_type: strict}}",
         "test.yaml:1:48: x::include: has no criterion, such as services, attributes or "
         "resources\n"},
        {"{actions: [{key: a, action: delete}], exclude: {match_type: regexp, services: ['[']}}",
         "test.yaml:1:80: x::exclude::services[0]: is not a valid regular expression: missing "
         "terminating ] "
         "for character class, at character 2\n"},
        {"{actions: [{key: a, action: delete}], apply_to: spans}",
         "test.yaml:1:49: x::apply_to: must be one of both, samples, profiles, got \"spans\"\n"},
        {"{actions: [{key: a, action: delete}], include: {match_type: strict, log_bodies: [a]}}",
         "test.yaml:1:69: x::include: unknown key \"log_bodies\"; known here: match_type, regexp, "
         "services, span_names, span_kinds, sample_types, functions, attributes, resources, "
         "libraries\n"},
        {"{actions: [{key: a, action: delete}], include: {match_type: strict, services: [a]}}", ""},
        {"{actions: [{key: a, action: drop}]}",
         "test.yaml:1:29: x::actions[0]::action: must be one of insert, update, upsert, delete, "
         "hash, extract, convert, got \"drop\"\n"},
        {"{actions: [{action: insert, value: 1}]}",
         "test.yaml:1:12: x::actions[0]: insert needs a key\n"},
        {"{actions: [{action: hash}]}",
         "test.yaml:1:12: x::actions[0]: hash needs a key or a pattern\n"},
        {"{actions: [{key: a, action: upsert, value: 1, from_attribute: b}]}",
         "test.yaml:1:12: x::actions[0]: only one of value, from_attribute, from_context may be "
         "set\n"},
        {"{actions: [{key: a, action: update, value: 1, pattern: b}]}",
         "test.yaml:1:56: x::actions[0]::pattern: does not belong to update; remove it\n"},
        {"{actions: [{key: a, action: insert, from_context: client.address}]}",
         "test.yaml:1:51: x::actions[0]::from_context: client.address is not supported, only "
         "metadata.NAME and auth.NAME are\n"},
        {"{actions: [{key: a, action: delete, value: 1}]}",
         "test.yaml:1:44: x::actions[0]::value: does not belong to delete; remove it\n"},
        {"{actions: [{key: a, action: extract}]}",
         "test.yaml:1:12: x::actions[0]: extract needs a pattern\n"},
        {"{actions: [{key: a, action: extract, pattern: '(.*)'}]}",
         "test.yaml:1:47: x::actions[0]::pattern: has no named group, such as (?P<name>...)\n"},
        {"{actions: [{key: a, action: extract, pattern: a}]}",
         "test.yaml:1:47: x::actions[0]::pattern: has no named group, such as (?P<name>...)\n"},
        {"{actions: [{key: a, action: convert}]}",
         "test.yaml:1:12: x::actions[0]: convert needs a converted_type: string, int or double\n"},
        {"{actions: [{key: a, action: convert, converted_type: bool}]}",
         "test.yaml:1:54: x::actions[0]::converted_type: must be string, int or double, got "
         "\"bool\"\n"},
        {"{actions: [{key: a, action: insert}, {key: b, action: hash}, {key: c, action: convert}]}",
         "test.yaml:1:12: x::actions[0]: insert needs one of value, from_attribute, from_context, "
         "default_value\n"
         "test.yaml:1:62: x::actions[2]: convert needs a converted_type: string, int or double\n"},
        {"{actions: [{key: a, action: delete}], include: {services: [a]}}",
         "test.yaml:1:48: x::include: \"match_type\" is missing and has no default: one of strict, "
         "regexp\n"},
        {"{actions: [{key: a, action: delete}], include: {match_type: strict, span_kinds: "
         "[SERVER]}}",
         "test.yaml:1:82: x::include::span_kinds[0]: must be SPAN_KIND_INTERNAL, SPAN_KIND_SERVER, "
         "SPAN_KIND_CLIENT, SPAN_KIND_PRODUCER or SPAN_KIND_CONSUMER\n"},
    };
    rig_expect_errors(&br_attributes_processor, cases, BR_COUNT(cases));
}

/* An attribute that cannot be matched in time is deleted. The next request has its own time
 * limit. */
static void matching_has_a_time_limit(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_attributes_processor,
                            "{match_time: 50ms, actions: [{pattern: '" LONG_TEXT_PATTERN
                            "', action: delete}]}");
    char *hostile = long_text_in("{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":"
                                 "\"a\",\"attributes\":[{\"key\":\"",
                                 "\",\"value\":{}}," I("unseen", "1") "]}]}]}]}");
    const char *out = rig_run(r, BR_TRACES, hostile);
    assert_null(strstr(out, "abcd"));
    assert_null(strstr(out, "unseen"));
    assert_true(rig_metric(r, "braid_attributes_gave_up", "processor=\"attributes\"") >= 2);
    double gave_up = rig_metric(r, "braid_attributes_gave_up", "processor=\"attributes\"");
    out = rig_run(r, BR_TRACES, span("a", I("unseen", "1") "," I("a@b", "1")));
    assert_non_null(strstr(out, "unseen"));
    assert_null(strstr(out, "a@b"));
    assert_true(rig_metric(r, "braid_attributes_gave_up", "processor=\"attributes\"") == gave_up);
    free(hostile);
    rig_free(r);
}

/* A pattern takes exponential time for one key. Only this key counts as not decided. */
static void exponential_patterns_are_stopped(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_attributes_processor,
                            "{match_time: 1h, actions: [{pattern: '^(b+)+$', action: delete}]}");
    const char *out =
        rig_run(r, BR_TRACES,
                span("a", I("bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb!", "1") "," I("other", "1")));
    assert_null(strstr(out, "bbb"));
    assert_non_null(strstr(out, "other"));
    assert_int_equal((int)rig_metric(r, "braid_attributes_gave_up", "processor=\"attributes\""), 1);
    rig_free(r);
}

static unsigned without_memory(enum br_signal signal, const char *yaml, const char *in,
                               const char *expected)
{
    return rig_run_short(
        &(struct rig_shortage){&br_attributes_processor, yaml, signal, in, .expected = expected});
}

static void no_memory(void **state)
{
    (void)state;
    assert_in_range(
        without_memory(BR_TRACES,
                       "{actions: [{key: a, action: hash}, {key: b, value: 1, action: upsert}], "
                       "include: {match_type: regexp, services: [s], attributes: [{key: a}]}}",
                       span("s", S("a", "1")), span("s", S("a", SHA_1) "," I("b", "1"))),
        3, 100);
    char in[4096], out[4096];
    (void)snprintf(in, sizeof in, "%s", profiles(before, PROFILE("3"), "", ""));
    (void)snprintf(out, sizeof out, "%s",
                   profiles(SAMPLE("1", "1,5,6") "," SAMPLE("2", "1,5,6") "," SAMPLE(
                                "3", "2,6") "," SAMPLE("4", "6"),
                            PROFILE("3,6"), ",\"n\"",
                            ENTRY("6", "\"stringValue\":\"" SHA_1 "\"")
                                ENTRY("7", "\"intValue\":\"7\"")));
    assert_in_range(without_memory(BR_PROFILES,
                                   "{actions: [{key: user, action: hash}, {key: n, value: 7, "
                                   "action: insert}]}",
                                   in, out),
                    5, 100);
}

/* Equal entries have the same number if their tables are the same. */
static void additions_are_distinct(void **state)
{
    (void)state;
    struct br_additions e;
    struct br_dictionary_view view = {.count = {[BR_TABLE_STRING] = 4}};
    char big[5000];
    memset(big, 'a', sizeof big);
    br_additions_init(&e, &view);
    assert_int_equal(br_additions_add(&e, BR_TABLE_STRING, "a", 1), 4);
    assert_int_equal(br_additions_add(&e, BR_TABLE_STRING, "b", 1), 5);
    assert_int_equal(br_additions_add(&e, BR_TABLE_STRING, "a", 1), 4);
    assert_int_equal(br_additions_add(&e, BR_TABLE_ATTRIBUTE, "a", 1), 1); /* after entry 0 */
    assert_int_equal(br_additions_add(&e, BR_TABLE_STRING, big, sizeof big), 6);
    static const uint8_t start[] = {5 << 3 | 2, 1, 'a',        5 << 3 | 2, 1,  'b',
                                    6 << 3 | 2, 0, 6 << 3 | 2, 1,          'a'};
    assert_memory_equal(e.fields.data, start, sizeof start);
    assert_int_equal(e.fields.len, sizeof start + 1 + 2 + sizeof big);
    assert_int_equal(br_additions_add(&e, BR_TABLE_STRING, big, sizeof big), 6);
    br_additions_release(&e);
}

SUITE(attributes)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans),
        cmocka_unit_test(other_attributes_are_unchanged),
        cmocka_unit_test(include_and_exclude),
        cmocka_unit_test(values_from_context),
        cmocka_unit_test(samples_and_profiles),
        cmocka_unit_test(requests_without_a_dictionary),
        cmocka_unit_test(values_by_reference),
        cmocka_unit_test(equal_lists_are_computed_once),
        cmocka_unit_test(configs),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(matching_has_a_time_limit),
        cmocka_unit_test(exponential_patterns_are_stopped),
        cmocka_unit_test(additions_are_distinct),
    };
    return RUN_VARIANTS(tests, rig_order);
}
