/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys and actions are those of the Collector's redaction processor (v0.159), except for the mask.
 * In profiles, all other references keep their meaning, and the output does not contain the
 * redacted text anywhere. The hashes are from Python's hashlib and hmac.
 */
#include <time.h>

#include "base/mem.h"
#include "processors/redaction/clean.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_redaction_processor;

#define V(k, type, v) "{\"key\":\"" k "\",\"value\":{\"" type "\":" v "}}"
#define S(k, v) V(k, "stringValue", "\"" v "\"")
#define I(k, v) V(k, "intValue", "\"" v "\"")
#define L(k, v) V(k, "arrayValue", "{\"values\":[" v "]}")
#define M(k, v) V(k, "kvlistValue", "{\"values\":[" v "]}")
#define X "[REDACTED]"
#define LABELS "processor=\"redaction\""

/* Returns a request with a span that has the attributes. */
static const char *request(const char *attributes)
{
    static char text[1 << 16];
    (void)snprintf(text, sizeof text,
                   "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":\"a\"%s%s%s}]}]}]}",
                   attributes[0] ? ",\"attributes\":[" : "", attributes, attributes[0] ? "]" : "");
    return text;
}

struct example {
    const char *config, *before, *after;
};

static const struct example examples[] = {
    /* The default list of words, which are matched within keys. */
    {"", S("user.password", "x") "," S("user", "token"),
     S("user.password", X) "," S("user", "token")},
    {"", S("API_TOKEN", "x") "," S("CredentialId", "x") "," S("db.secret.name", "x"),
     S("API_TOKEN", X) "," S("CredentialId", X) "," S("db.secret.name", X)},
    {"", I("gen_ai.usage.input_tokens", "512") "," V("token.valid", "boolValue", "true"),
     I("gen_ai.usage.input_tokens", "512") "," V("token.valid", "boolValue", "true")},
    {"redact_all_types: true", I("token.n", "512"), S("token.n", X)},
    {"", S("password", ""), S("password", "")},
    {"blocked_key_words: []", S("password", "x"), S("password", "x")},
    {"blocked_key_words: [Pin, 'a.c']", S("PIN", "1") "," S("abc", "1") "," S("A.C", "1"),
     S("PIN", X) "," S("abc", "1") "," S("A.C", X)},
    {"blocked_key_words: ['a\\Eb']", S("xA\\\\ebx", "1"), S("xA\\\\ebx", X)},
    /* If a key matches, its value is masked even if it is a list, a map or bytes. Keys inside maps
     * are matched, too. */
    {"", L("tokens", "{\"stringValue\":\"x\"}"), S("tokens", X)},
    {"", M("secret", S("a", "b")), S("secret", X)},
    {"", M("a", S("password", "x") "," I("n", "1")), M("a", S("password", X) "," I("n", "1"))},
    {"", V("secret", "bytesValue", "\"AAEC\""), S("secret", X)},
    {"", L("a", "{\"kvlistValue\":{\"values\":[" S("my token", "x") "]}},{\"stringValue\":\"y\"}"),
     L("a", "{\"kvlistValue\":{\"values\":[" S("my token", X) "]}},{\"stringValue\":\"y\"}")},
    /* Key patterns mask every type. */
    {"blocked_key_patterns: ['.*api_key.*']", I("my_api_key", "1") "," S("api", "1"),
     S("my_api_key", X) "," S("api", "1")},
    /* All keys that are not in allowed_keys are removed. With an explicit allow_all_keys of false
     * and no list, every key is removed. */
    {"allowed_keys: [a, c]", S("a", "1") "," S("b", "2") "," S("c", "3"),
     S("a", "1") "," S("c", "3")},
    {"allow_all_keys: false", S("a", "1"), ""},
    {"{allow_all_keys: true, allowed_keys: [a]}", S("b", "1"), S("b", "1")},
    {"{allowed_keys: [a], ignored_keys: [b], ignored_key_patterns: ['^x']}",
     S("a", "1") "," S("b", "2") "," S("c", "3") "," S("x.token", "4"),
     S("a", "1") "," S("b", "2") "," S("x.token", "4")},
    {"allowed_keys: [a]", M("a", S("b", "1")), M("a", S("b", "1"))},
    /* Values: only the matching part is masked. */
    {"blocked_values: ['4[0-9]{12}(?:[0-9]{3})?']", S("note", "card 4111111111111111 of bob"),
     S("note", "card " X " of bob")},
    {"blocked_values: ['[0-9]+', 'bob']", S("note", "1 bob 22 bob"),
     S("note", X " " X " " X " " X)},
    {"blocked_value_words: [ACME, 'x y']", S("a", "the Acme of X Y") "," S("acme", "b"),
     S("a", "the " X " of " X) "," S("acme", "b")},
    {"blocked_values: ['[0-9]+']", I("n", "7"), I("n", "7")},
    {"{blocked_values: ['[0-9]{3}'], redact_all_types: true}",
     I("n", "1234") "," I("m", "12") "," V("d", "doubleValue", "0.125"),
     S("n", X "4") "," I("m", "12") "," S("d", "0." X)},
    {"blocked_values: ['secret']", L("a", "{\"stringValue\":\"a secret\"},{\"intValue\":\"1\"}"),
     L("a", "{\"stringValue\":\"a " X "\"},{\"intValue\":\"1\"}")},
    {"blocked_values: ['x*']", S("a", "axxb") "," S("b", "ab"), S("a", "a" X "b") "," S("b", "ab")},
    {"{blocked_values: ['mycompany.com'], allowed_values: ['support.mycompany.com']}",
     S("a", "x@mycompany.com") "," S("b", "support.mycompany.com"),
     S("a", "x@" X) "," S("b", "support.mycompany.com")},
    {"{blocked_key_patterns: ['mail'], allowed_values: ['@mycompany.com$']}",
     S("mail", "x@mycompany.com") "," S("mail2", "x@other.com"),
     S("mail", "x@mycompany.com") "," S("mail2", X)},
    /* Patterns do not match the mask that another pattern has inserted. If several patterns match
     * the same text, it is masked once. */
    {"blocked_values: ['bob', 'RED', 'ACT']", S("a", "bob") "," S("b", "a RED bob"),
     S("a", X) "," S("b", "a " X " " X)},
    {"blocked_values: ['bcd', 'abc', 'f+']", S("a", "xabcdyffbcd"), S("a", "x" X "y" X X)},
    {"{blocked_values: ['secret text', '[0-9a-f]{8}'], hash_function: md5}",
     S("a", "a secret text"), S("a", "a f6d86c00ecc4d51fe0da3f8abdb79938")},
    /* Values of type bytes are matched both as base64 and as text. The result is UTF-8. */
    {"{blocked_values: ['4[0-9]{15}'], redact_all_types: true}",
     V("a", "bytesValue", "\"//4gY2FyZCA0MTExMTExMTExMTExMTExIIA=\""),
     S("a", "\xef\xbf\xbd\xef\xbf\xbd card " X " \xef\xbf\xbd")},
    {"{blocked_values: ['^AAE'], redact_all_types: true}",
     V("a", "bytesValue", "\"AAEC\"") "," V("b", "bytesValue", "\"AQEC\""),
     S("a", X "C") "," V("b", "bytesValue", "\"AQEC\"")},
    {"{blocked_values: ['4[0-9]{15}']}",
     V("a", "bytesValue", "\"//4gY2FyZCA0MTExMTExMTExMTExMTExIIA=\""),
     V("a", "bytesValue", "\"//4gY2FyZCA0MTExMTExMTExMTExMTExIIA=\"")},
    /* A configured mask replaces parts of values and whole values. */
    {"{blocked_values: ['bob'], masking_string: '<gone>'}", S("a", "a bob") "," S("password", "x"),
     S("a", "a <gone>") "," S("password", "<gone>")},
    {"{blocked_values: ['bob'], masking_string: ''}", S("a", "a bob"), S("a", "a " X)},
    /* Hashes. */
    {"{blocked_values: ['4[0-9]{15}'], hash_function: hmac-sha256,"
     " hmac_key: 0123456789abcdef0123456789abcdef}",
     S("note", "card 4111111111111111 of bob"),
     S("note", "card 7b7e6cb2715c7b1c37110f035123abd3fe93c04fa302da2946c4bd9342d2fd2c of bob")},
    {"hash_function: md5", S("secret", "secret text"),
     S("secret", "f6d86c00ecc4d51fe0da3f8abdb79938")},
    {"hash_function: sha1", S("secret", "secret text"),
     S("secret", "43de199bc1b7196be767cce745baece4dc95fbf2")},
    {"hash_function: sha3", S("secret", "secret text"),
     S("secret", "f6f114b2b3a39e82fddc215f8fe016218d1f846cab95c9875497daab4068782a")},
    {"{hash_function: hmac-sha512,"
     " hmac_key: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}",
     S("secret", "secret text"),
     S("secret", "ecde1f8f08a5e45bdfba186867478c2aafb3439573cdb716bfba04f8031209879d84e5e1d32c3819f"
                 "65dfe3a7820bf3b64310c38257aa7f8a1f8ff94f485ebd0")},
};

static void attributes(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(examples); i++) {
        const struct example *e = &examples[i];
        struct rig *r = rig_new(&br_redaction_processor, e->config);
        /* the second request uses the results remembered from the first one */
        for (unsigned round = 0; round < 2; round++) {
            char before[1 << 16], after[1 << 16];
            (void)snprintf(before, sizeof before, "%s", request(e->before));
            (void)snprintf(after, sizeof after, "%s", request(e->after));
            assert_string_equal(rig_run(r, BR_TRACES, before), after);
        }
        rig_free(r);
    }
}

/* Every place of a traces request. */
static void places_in_traces(void **state)
{
    (void)state;
    static const char in[] = "{\"resourceSpans\":[{\"resource\":{\"attributes\":[" S(
        "token", "x") "]},"
                      "\"scopeSpans\":[{\"scope\":{\"name\":\"bob\",\"attributes\":[" S(
                          "token",
                          "x") "]},"
                               "\"spans\":[{\"name\":\"GET /user/bob\",\"attributes\":[" S(
                                   "who",
                                   "bob") "],"
                                          "\"events\":[{\"name\":\"for bob\",\"attributes\":[" S(
                                              "token", "x") "]}],"
                                                            "\"links\":[{\"attributes\":[" S(
                                                                "token",
                                                                "x") "]}],"
                                                                     "\"status\":{\"message\":\"no "
                                                                     "bob\",\"code\":2}}]}]}]}";
    static const char out[] = "{\"resourceSpans\":[{\"resource\":{\"attributes\":[" S(
        "token", X) "]},"
                    "\"scopeSpans\":[{\"scope\":{\"name\":\"bob\",\"attributes\":[" S(
                        "token", X) "]},"
                                    "\"spans\":[{\"name\":\"GET /user/" X "\",\"attributes\":[" S(
                                        "who",
                                        X) "],"
                                           "\"events\":[{\"name\":\"for " X "\",\"attributes\":[" S(
                                               "token", X) "]}],"
                                                           "\"links\":[{\"attributes\":[" S(
                                                               "token",
                                                               X) "]}],"
                                                                  "\"status\":{\"message\":\"no " X
                                                                  "\",\"code\":2}}]}]}]}";
    struct rig *r = rig_new(&br_redaction_processor, "blocked_values: [bob]");
    assert_string_equal(rig_run(r, BR_TRACES, in), out);
    assert_int_equal((int)rig_metric(r, "braid_redaction_masked", LABELS ",what=\"value\""), 5);
    assert_int_equal((int)rig_metric(r, "braid_redaction_masked", LABELS ",what=\"name\""), 3);
    rig_free(r);
}

static void span_names_have_separate_patterns(void **state)
{
    (void)state;
    struct rig *r =
        rig_new(&br_redaction_processor, "span_names: {patterns: ['/[0-9]+'], words: [Bob]}");
    assert_non_null(strstr(rig_run(r, BR_TRACES,
                                   "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":"
                                   "\"GET /7/bob\",\"attributes\":[" S("a", "/7/bob") "]}]}]}]}"),
                           "\"name\":\"GET " X "/" X "\",\"attributes\":[" S("a", "/7/bob") "]"));
    rig_free(r);
}

/* A request without a match is forwarded in its own buffer, unchanged. */
static void requests_without_a_match_are_unchanged(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_redaction_processor, "blocked_values: [bob]");
    struct br_item *item = rig_item(r, BR_TRACES, request(S("a", "alice")));
    const uint8_t *raw = item->parts[0].raw;
    struct br_buf *buf = br_buf_ref(item->parts[0].buf);
    rig_send(r, item);
    assert_ptr_equal(r->wire->data <= raw && raw < r->wire->data + r->wire->len ? buf : r->wire,
                     buf);
    br_buf_unref(buf);
    rig_free(r);
}

/* --- Profiles --------------------------------------------------------------------------------- */

/* Strings: 1 cpu, 2 nanoseconds, 3 main, 4 GetSecret, 5 /home/bob/a.go, 6 thread.token, 7 main
 * (a label, not the function), 8 host, 9 bob, 10 /usr/bin/bob. */
#define STRINGS STRINGS_BUT_END "]"
#define STRINGS_BUT_END                                                                            \
    "\"stringTable\":[\"\",\"cpu\",\"nanoseconds\",\"main\",\"GetSecret\",\"/home/bob/a.go\","     \
    "\"thread.token\",\"label\",\"host\",\"bob\",\"/usr/bin/bob\""
static const char profiles[] = "{\"resourceProfiles\":[{\"resource\":{\"attributes\":[" S(
    "service.name",
    "shop") "]},"
            "\"scopeProfiles\":[{\"profiles\":[{\"sampleType\":{\"typeStrindex\":1,"
            "\"unitStrindex\":2},"
            "\"samples\":[{\"stackIndex\":1,\"attributeIndices\":[1,2,3],\"values\":[\"5\"]},"
            "{\"stackIndex\":1,\"attributeIndices\":[2],\"values\":[\"7\"]}],"
            "\"originalPayloadFormat\":\"pprof\",\"originalPayload\":\"Ym9i\",\"attributeIndices\":"
            "[3]}]}]}],"
            "\"dictionary\":{\"mappingTable\":[{},{\"filenameStrindex\":10,\"attributeIndices\":[3]"
            "}],"
            "\"locationTable\":[{},{\"mappingIndex\":1,\"lines\":[{\"functionIndex\":1}],"
            "\"attributeIndices\":[1]},{\"lines\":[{\"functionIndex\":2}]}],"
            "\"functionTable\":[{},{\"nameStrindex\":3,\"filenameStrindex\":5},{\"nameStrindex\":4,"
            "\"systemNameStrindex\":9}],\"linkTable\":[{}]," STRINGS ","
            "\"attributeTable\":[{},{\"keyStrindex\":6,\"value\":{\"stringValueStrindex\":3}},"
            "{\"keyStrindex\":7,\"value\":{\"stringValue\":\"bob\"},\"unitStrindex\":9},"
            "{\"keyStrindex\":8,\"value\":{\"stringValueStrindex\":9}}],"
            "\"stackTable\":[{},{\"locationIndices\":[2,1]}]}}";

static const char *profiles_with(const char *config)
{
    static char out[1 << 16];
    struct rig *r = rig_new(&br_redaction_processor, config);
    (void)snprintf(out, sizeof out, "%s", rig_run(r, BR_PROFILES, profiles));
    assert_int_equal(r->n_out, 1);
    rig_free(r);
    return out;
}

static void expect(const char *text, const char *part)
{
    if (!text || !strstr(text, part))
        fail_msg("%s\nis not in\n%s", part, text ? text : "nothing");
}

static void expect_not(const char *text, const char *part)
{
    if (text && strstr(text, part))
        fail_msg("%s\nis in\n%s", part, text ? text : "nothing");
}

/* The value of a label is also the name of a function. Only the label is masked; the function keeps
 * the name. */
static void labels_are_masked_by_default(void **state)
{
    (void)state;
    const char *out = profiles_with("");
    expect(out, "{\"keyStrindex\":6,\"value\":{\"stringValueStrindex\":11}}");
    expect(out, "{\"keyStrindex\":8,\"value\":{\"stringValueStrindex\":9}}");
    expect(out, "{\"nameStrindex\":3,\"filenameStrindex\":5}");
    expect(out, STRINGS_BUT_END ",\"" X "\"]");
    expect_not(out, "originalPayload");
    expect_not(out, "Ym9i");
}

static void functions_and_paths(void **state)
{
    (void)state;
    const char *out = profiles_with("{function_names: {words: [secret, bob]},"
                                    " file_paths: {patterns: ['^/home/[^/]+']}}");
    /* The value of thread.token gets a new string. "bob" is the value of a label and also a unit,
     * so the redacted function gets a separate string. */
    expect(out, "\"stringTable\":[\"\",\"cpu\",\"nanoseconds\",\"main\",\"Get" X "\",\"" X
                "/a.go\",\"thread.token\",\"label\",\"host\",\"bob\",\"/usr/bin/bob\",\"" X
                "\",\"" X "\"]");
    expect(out, "{\"nameStrindex\":4,\"systemNameStrindex\":12}");
    expect(out, "{\"keyStrindex\":8,\"value\":{\"stringValueStrindex\":9}}");
}

static void values_are_masked_everywhere(void **state)
{
    (void)state;
    const char *out = profiles_with("{blocked_values: [bob], blocked_key_words: []}");
    expect(out, "{\"keyStrindex\":7,\"value\":{\"stringValue\":\"" X "\"},\"unitStrindex\":9}");
    expect(out, "{\"keyStrindex\":8,\"value\":{\"stringValueStrindex\":11}}");
    expect(out, "\"/home/" X "/a.go\"");
    expect(out, "\"/usr/bin/" X "\"");
    /* The string is now used only as a unit, which is not redacted. */
    expect(out, "{\"nameStrindex\":4,\"systemNameStrindex\":12}");
}

/* The name of a sample type is kept, even if a function with the same name is redacted. */
static void sample_types_are_kept(void **state)
{
    (void)state;
    static const char in[] =
        "{\"resourceProfiles\":[{\"scopeProfiles\":[{\"profiles\":[{\"sampleType\":"
        "{\"typeStrindex\":1},\"samples\":[{\"stackIndex\":1,\"values\":[\"5\"]}]}]}]}],"
        "\"dictionary\":{\"mappingTable\":[{}],\"locationTable\":[{},{\"lines\":"
        "[{\"functionIndex\":1}]}],\"functionTable\":[{},{\"nameStrindex\":1}],\"linkTable\":[{}],"
        "\"stringTable\":[\"\",\"cpu\"],\"attributeTable\":[{}],"
        "\"stackTable\":[{},{\"locationIndices\":[1]}]}}";
    struct rig *r = rig_new(&br_redaction_processor, "function_names: {words: [cpu]}");
    const char *out = rig_run(r, BR_PROFILES, in);
    expect(out, "\"sampleType\":{\"typeStrindex\":1}");
    expect(out, "\"stringTable\":[\"\",\"cpu\",\"" X "\"]");
    expect(out, "{\"nameStrindex\":2}");
    assert_int_equal((int)rig_metric(r, "braid_redaction_masked", LABELS ",what=\"function\""), 1);
    rig_free(r);
}

static void attributes_that_are_not_allowed(void **state)
{
    (void)state;
    const char *out = profiles_with("allowed_keys: [label]");
    expect(out, "\"samples\":[{\"stackIndex\":1,\"attributeIndices\":[2],\"values\":[\"5\"]},"
                "{\"stackIndex\":1,\"attributeIndices\":[2],\"values\":[\"7\"]}]");
    expect(out, "\"attributeTable\":[{},{},{\"keyStrindex\":7,");
    expect(out, "{\"mappingIndex\":1,\"lines\":[{\"functionIndex\":1}]}");
    expect(out, "\"mappingTable\":[{},{\"filenameStrindex\":10}]");
    expect_not(out, "service.name");
    expect_not(out, "thread.token"); /* unused strings are removed */
    expect(out, "\"label\"");
    expect_not(out, "\"host\"");
    expect(out, "\"main\""); /* the name of the function */
}

/* Resources that refer to the dictionary. */
static void references_are_followed(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_redaction_processor, "");
    rig_run(r, BR_PROFILES,
            "{'resourceProfiles':[{'resource':{'attributes':["
            "{'keyStrindex':1,'value':{'stringValueStrindex':2}}]}}],"
            "'dictionary':{'stringTable':['','my.password','hunter2']}}");
    expect(r->out.data, "\"value\":{\"stringValueStrindex\":3}");
    expect(r->out.data, "\"stringTable\":[\"\",\"my.password\",\"" X "\",\"" X "\"]");
    expect_not(r->out.data, "hunter2");
    rig_free(r);
}

/* --- Failure ---------------------------------------------------------------------------------- */

/* A pattern that takes exponential time always exceeds the limit of steps. */
static void exponential_patterns_mask_everything(void **state)
{
    (void)state;
    static const char a30[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!";
    struct rig *r =
        rig_new(&br_redaction_processor, "{blocked_values: ['^(a+)+$'], match_time: 1h}");
    char in[1 << 12] = "";
    for (unsigned i = 0; i < 30; i++) {
        char one[128];
        (void)snprintf(one, sizeof one, "%s{\"key\":\"k%u\",\"value\":{\"stringValue\":\"%s%u\"}}",
                       i ? "," : "", i, a30, i);
        strcat(in, one);
    }
    const char *out = rig_run(r, BR_TRACES, request(in));
    expect_not(out, "aaa");
    assert_int_equal((int)rig_metric(r, "braid_redaction_gave_up", LABELS), 30);
    /* Results are remembered. A result may replace another one in the cache, because the places in
     * it depend on a secret. The limit of steps applies to each request separately. */
    expect_not(rig_run(r, BR_TRACES, request(in)), "aaa");
    assert_in_range((int)rig_metric(r, "braid_redaction_gave_up", LABELS), 30, 45);
    expect(rig_run(r, BR_TRACES, request(S("a", "b"))), S("a", "b"));
    rig_free(r);
}

/* Exponential patterns for keys: a key that may be blocked is masked. A key that may be ignored is
 * not ignored, and its value is checked. */
static void exponential_key_patterns_mask(void **state)
{
    static const char key[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!";
    char in[256], out[256];
    (void)state;
    (void)snprintf(in, sizeof in, S("%s", "secret 1234"), key);
    struct rig *r =
        rig_new(&br_redaction_processor, "{blocked_key_patterns: ['^(a+)+$'], match_time: 1h}");
    (void)snprintf(out, sizeof out, S("%s", X), key);
    expect(rig_run(r, BR_TRACES, request(in)), out);
    assert_int_equal((int)rig_metric(r, "braid_redaction_gave_up", LABELS), 1);
    rig_free(r);
    r = rig_new(&br_redaction_processor, "{ignored_key_patterns: ['^(a+)+$'], "
                                         "blocked_values: ['[0-9]+'], match_time: 1h}");
    (void)snprintf(out, sizeof out, S("%s", "secret " X), key);
    expect(rig_run(r, BR_TRACES, request(in)), out);
    rig_free(r);
}

/* If the limit is exceeded, a value is not treated as allowed, and is checked. */
static void exponential_patterns_allow_nothing(void **state)
{
    static const char value[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 1234";
    char in[256], out[256];
    (void)state;
    struct rig *r = rig_new(&br_redaction_processor, "{allowed_values: ['^(a+)+$'], "
                                                     "blocked_values: ['[0-9]+'], match_time: 1h}");
    (void)snprintf(in, sizeof in, S("k", "%s"), value);
    (void)snprintf(out, sizeof out, S("k", "%.30s " X), value);
    expect(rig_run(r, BR_TRACES, request(in)), out);
    rig_free(r);
}

/* Returns a traces item, whose span has `n` attributes with a text of `len` bytes that repeats
 * `unit`. */
static struct br_item *long_values(struct rig *r, unsigned n, size_t len, const char *unit)
{
    struct br_str json = {0};
    char *text = malloc(len + 1);
    assert_non_null(text);
    for (size_t i = 0; i < len; i++)
        text[i] = unit[i % strlen(unit)];
    text[len] = 0;
    br_str_puts(&json, "{'resourceSpans':[{'scopeSpans':[{'spans':[{'attributes':[");
    for (unsigned i = 0; i < n; i++) {
        text[0] = (char)('a' + i % 26);
        br_str_printf(&json, "%s{'key':'k','value':{'stringValue':'%s'}}", i ? "," : "", text);
    }
    br_str_puts(&json, "]}]}]}]}");
    assert_false(json.failed);
    free(text);
    struct br_item *item = rig_item(r, BR_TRACES, json.data);
    br_str_release(&json);
    return item;
}

/* Common patterns take quadratic time for such texts. Without a limit, these texts would take half
 * an hour at a nanosecond per step. */
static void long_texts_do_not_stall(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_redaction_processor,
                            "{blocked_values: ['[a-z0-9.]+@[a-z.]+'], match_time: 1ms}");
    rig_send(r, long_values(r, 4, 1 << 20, "abcd"));
    assert_true(rig_metric(r, "braid_redaction_gave_up", LABELS) >= 1);
    expect_not(r->out.data, "abcd");
    expect(r->out.data, S("k", X) "," S("k", X) "," S("k", X) "," S("k", X));
    rig_free(r);
}

/* A long text is searched in overlapping parts: a match is found wherever it begins and ends. */
static void matches_are_found_anywhere_in_long_texts(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_redaction_processor,
                            "{blocked_values: ['(?<=<)[0-9]+(?=>)', '\u00e4{3}'], match_time: 1h}");
    for (size_t at = 0; at < 700; at++) {
        char in[2000] = "", out[2000] = "";
        for (size_t i = 0; i < at; i++)
            strcat(in, i % 3 ? "." : "\u00f6");
        strcpy(out, in);
        strcat(in, "<12345>\u00e4\u00e4\u00e4.");
        strcat(out, "<" X ">" X ".");
        char all_in[2100], all_out[2100];
        (void)snprintf(all_in, sizeof all_in, S("a", "%s"), in);
        (void)snprintf(all_out, sizeof all_out, S("a", "%s"), out);
        expect(rig_run(r, BR_TRACES, request(all_in)), all_out);
    }
    assert_int_equal((int)rig_metric(r, "braid_redaction_gave_up", LABELS), 0);
    rig_free(r);
}

/* The result would be larger than the buffer, so the whole text is masked. */
static void the_size_of_results_is_limited(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_redaction_processor,
                            "{blocked_values: ['[0-9]'], hash_function: md5, match_time: 1h}");
    rig_send(r, long_values(r, 1, 2 << 20, "1"));
    assert_int_equal(r->n_out, 1);
    assert_true(r->out_size < 100);
    assert_int_equal((int)rig_metric(r, "braid_redaction_gave_up", LABELS), 1);
    rig_free(r);
}

/* Many attributes refer to one long string: it is masked once, and all refer to the result. */
static void a_string_is_masked_once(void **state)
{
    (void)state;
    static const char card[] = "4111111111111111 ";
    struct br_str json = {0};
    char *text = malloc(20000);
    assert_non_null(text);
    for (size_t i = 0; i < 19999; i++)
        text[i] = card[i % (sizeof card - 1)];
    text[19999] = 0;
    br_str_printf(&json, "{'dictionary':{'stringTable':['','k','%s'],'attributeTable':[{}", text);
    for (unsigned i = 1; i < 50; i++)
        br_str_puts(&json, ",{'keyStrindex':1,'value':{'stringValueStrindex':2}}");
    br_str_puts(&json, "]}}");
    assert_false(json.failed);
    free(text);
    struct rig *r =
        rig_new(&br_redaction_processor, "{blocked_values: ['4[0-9]{15}'], match_time: 1h}");
    struct br_item *item = rig_item(r, BR_PROFILES, json.data);
    br_str_release(&json);
    size_t before = item->size;
    rig_send(r, item);
    assert_int_equal(r->n_out, 1);
    assert_int_equal((int)rig_metric(r, "braid_redaction_gave_up", LABELS), 0);
    assert_int_equal((int)rig_metric(r, "braid_redaction_masked", LABELS ",what=\"value\""), 49);
    expect_not(r->out.data, "4111111111111111");
    assert_true(r->out_size < before + 20);
    rig_free(r);
}

/* Any content that the walk accepts is handled. */
static void unusual_requests(void **state)
{
    (void)state;
    static const char *const both[] = {
        "{allowed_keys: [label, thread.token, a], blocked_values: ['[a-g]+'], redact_all_types: "
        "true}",
        "{blocked_key_patterns: ['.'], function_names: {patterns: ['.']}, hash_function: md5}",
    };
    char spans[1 << 16];
    (void)snprintf(spans, sizeof spans, "%s",
                   request(S("a", "x") "," M("a", S("password", "x") "," I("n", "1")) "," L(
                       "b", "{\"stringValue\":\"a\"}") "," V("c", "bytesValue", "\"AAEC\"")));
    for (size_t i = 0; i < BR_COUNT(both); i++) {
        struct rig *r = rig_new(&br_redaction_processor, both[i]);
        assert_in_range(rig_send_mutants(r, BR_PROFILES, profiles, 3000), 300, 2900);
        assert_in_range(rig_send_mutants(r, BR_TRACES, spans, 3000), 300, 2900);
        assert_int_equal(r->n_out, r->n_ended);
        rig_free(r);
    }
}

#define SIXTY "123456789 123456789 123456789 123456789 123456789 123456789 x"

static void configs(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"blocked_values: [a, '(']",
         "blocked_values[1]: is not a valid regular expression: missing closing"},
        {"function_names: {patterns: ['[']}",
         "function_names::patterns[0]: is not a valid regular"},
        {"allowed_values: '*'", "allowed_values[0]: is not a valid regular expression"},
        {"hash_function: md4", "hash_function: must be one of md5"},
        {"hash_function: hmac-sha256", "hmac_key: hmac-sha256 needs at least 32 bytes"},
        {"{hash_function: hmac-sha512, hmac_key: 0123456789abcdef0123456789abcdef}",
         "hmac-sha512 needs at least 64 bytes"},
        {"{hash_function: md5, masking_string: x}",
         "masking_string: must not be set together with hash_function"},
        {"masking_string: " SIXTY SIXTY "1234567", "masking_string: must have at most 128 bytes"},
        {"summary: debug", "summary: is read and has no effect"},
        {"db_sanitizer: {mysql: {enabled: true}}", "unknown key \"mysql\""},
    };
    rig_expect_errors_in(&br_redaction_processor, bad, BR_COUNT(bad));
    expect_not(rig_errors(&br_redaction_processor,
                          "{hash_function: hmac-sha256, hmac_key: short-and-bad}"),
               "short-and-bad");
    /* The line and column of the pattern. */
    expect(rig_errors(&br_redaction_processor,
                      "allow_all_keys: true\nblocked_values:\n  - a\n  - '('"),
           ":4:5:");
}

static bool check_output(struct rig *r, void *arg)
{
    (void)arg;
    if (!r->n_out)
        return false;
    expect_not(r->out.data, "GetSecret");
    expect_not(r->out.data, "/home/bob");
    return true;
}

static void without_memory(void **state)
{
    (void)state;
    const struct rig_shortage s = {&br_redaction_processor,
                                   "{allowed_keys: [label, thread.token], blocked_values: [bob],"
                                   " function_names: {words: [secret]}}",
                                   BR_PROFILES, profiles, .came = check_output};
    assert_in_range(rig_run_short(&s), 10, 200);
}

/* For any statement, the parser does not read past its end, and the result fits into its buffer. */
static void statements_of_any_form(void **state)
{
    (void)state;
    static const char letters[] = "'\"`\\$-/*\n\r\t {}[]:,.0x19eEaT_?#;=+@\xc3";
    unsigned seed = 11;
    for (unsigned round = 0; round < 60000; round++) {
        size_t len = round % 24;
        uint8_t *text = malloc(len ? len : 1), *out = malloc(redact_db_size_max(len) + 1);
        assert_true(text && out);
        for (size_t i = 0; i < len; i++) {
            seed = seed * 1664525u + 1013904223u;
            text[i] = (uint8_t)letters[(seed >> 16) % (sizeof letters - 1)];
        }
        out[redact_db_size_max(len)] = 0x5a;
        enum redact_db db = (enum redact_db)(round / 24 % REDACT_DBS);
        size_t cleaned_len = redact_db_clean(db, round & 1, text, len, out);
        assert_true(cleaned_len == SIZE_MAX || cleaned_len <= redact_db_size_max(len));
        assert_int_equal(out[redact_db_size_max(len)], 0x5a);
        free(text);
        free(out);
    }
}

/* Deep nesting must not overflow the stack. */
static void deep_statements(void **state)
{
    (void)state;
    static uint8_t text[100000], out[3 * sizeof text];
    memset(text, '[', sizeof text);
    assert_true(redact_db_clean(REDACT_DB_MONGO, false, text, sizeof text, out) == SIZE_MAX);
    memset(text + 100, ']', 100);
    assert_int_equal(redact_db_clean(REDACT_DB_ES, false, text, 200, out), 200);
}

/* In SQL, `_` and bytes from 0x80 on are part of a word, so the text next to them is not a separate
 * literal. */
static void test_sql_words_with_underscores_and_umlauts(void **state)
{
    static const char text[] = "SELECT _true, null_ FROM \xc3\xbctrue";
    uint8_t out[3 * sizeof text];
    (void)state;
    for (int mysql = 0; mysql < 2; mysql++) {
        size_t len =
            redact_db_clean(REDACT_DB_SQL, mysql, (const uint8_t *)text, strlen(text), out);
        assert_int_equal(len, strlen(text));
        assert_memory_equal(out, text, len);
    }
}

/* A hexadecimal segment of seven digits may be an abbreviated commit id and is masked. One of six
 * digits may be an English word and is kept. */
static void test_hex_segments_of_urls(void **state)
{
    static const char *const cases[][2] = {{"/facade", "/facade"},
                                           {"/defaced", "/*"},
                                           {"/defacer", "/defacer"},
                                           {"/facades/x", "/facades/x"}};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        uint8_t out[32];
        const char *text = cases[i][0], *clean = cases[i][1];
        size_t len = redact_url_clean((const uint8_t *)text, strlen(text), out);
        assert_int_equal(len, strlen(clean));
        assert_memory_equal(out, clean, len);
    }
}

SUITE(redaction)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attributes),
        cmocka_unit_test(places_in_traces),
        cmocka_unit_test(span_names_have_separate_patterns),
        cmocka_unit_test(requests_without_a_match_are_unchanged),
        cmocka_unit_test(labels_are_masked_by_default),
        cmocka_unit_test(functions_and_paths),
        cmocka_unit_test(values_are_masked_everywhere),
        cmocka_unit_test(sample_types_are_kept),
        cmocka_unit_test(attributes_that_are_not_allowed),
        cmocka_unit_test(references_are_followed),
        cmocka_unit_test(exponential_patterns_mask_everything),
        cmocka_unit_test(exponential_key_patterns_mask),
        cmocka_unit_test(exponential_patterns_allow_nothing),
        cmocka_unit_test(long_texts_do_not_stall),
        cmocka_unit_test(matches_are_found_anywhere_in_long_texts),
        cmocka_unit_test(the_size_of_results_is_limited),
        cmocka_unit_test(a_string_is_masked_once),
        cmocka_unit_test(unusual_requests),
        cmocka_unit_test(statements_of_any_form),
        cmocka_unit_test(deep_statements),
        cmocka_unit_test(test_sql_words_with_underscores_and_umlauts),
        cmocka_unit_test(test_hex_segments_of_urls),
        cmocka_unit_test(configs),
        cmocka_unit_test(without_memory),
    };
    return RUN_VARIANTS(tests, rig_order_not_rising);
}
