/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transform processor. Expected results are those of the Collector's documentation
 * (pkg/ottl/LANGUAGE.md, pkg/ottl/ottlfuncs/README.md, processor/transformprocessor/README.md,
 * 0.165), of its tests, and of the specifications that these refer to (Go's regexp and strings,
 * RFC 8259, FIPS 180-4).
 */
#include "attribute/statement.h"
#include "base/mem.h"
#include "tests/support/long_text.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_transform_processor;

#define V(k, type, v) "{\"key\":\"" k "\",\"value\":{\"" type "\":" v "}}"
#define S(k, v) V(k, "stringValue", "\"" v "\"")
#define I(k, v) V(k, "intValue", "\"" v "\"")
#define D(k, v) V(k, "doubleValue", v)
#define B(k, v) V(k, "boolValue", v)
#define E(k) "{\"key\":\"" k "\",\"value\":{}}"
#define TRACE "0102030405060708090a0b0c0d0e0f10"

/* A span with these attributes, whose resource and scope have attributes, and with two events. */
static const char *span(const char *attributes)
{
    static char text[8192];
    (void)snprintf(
        text, sizeof text,
        "{\"resourceSpans\":[{\"resource\":{\"attributes\":[" S(
            "service.name", "shop") "]},\"scopeSpans\":[{\"scope\":{\"name\":\"lib\",\"version\":"
                                    "\"1.0\",\"attributes\":[" S(
                                        "s", "one") "]},\"spans\":[{\"traceId\":\"" TRACE
                                                    "\",\"spanId\":\"1112131415161718\","
                                                    "\"traceState\":\"a=1,b=2\",\"name\":\"GET\","
                                                    "\"kind\":2,\"startTimeUnixNano\":\"1000\","
                                                    "\"endTimeUnixNano\":\"3500\",\"attributes\":[%"
                                                    "s],\"events\":[{\"timeUnixNano\":\"7\","
                                                    "\"name\":\"e\",\"attributes\":[" S(
                                                        "k", "1") "]},{\"name\":\"f\"}],"
                                                                  "\"status\":{\"message\":\"m\","
                                                                  "\"code\":2}}]}]}]}",
        attributes);
    return text;
}

/* Runs the config and returns the output; it lives until the next call. */
static const char *run(const char *yaml, enum br_signal signal, const char *in)
{
    static char out[65536];
    struct rig *r = rig_new(&br_transform_processor, yaml);
    (void)snprintf(out, sizeof out, "%s", rig_run(r, signal, in));
    if (!r->n_out)
        (void)snprintf(out, sizeof out, "%s", r->outcome.text);
    rig_free(r);
    return out;
}

static const char *group(const char *context, const char *statements)
{
    static char yaml[4096];
    (void)snprintf(yaml, sizeof yaml,
                   "{error_mode: propagate, trace_statements: [{context: %s, statements: ['%s']}]}",
                   context, statements);
    return yaml;
}

/* Statements of the context span, the attributes before, and a part of the output. */
static void expect(const char *context, const char *statements, const char *attributes,
                   const char *expected)
{
    const char *out = run(group(context, statements), BR_TRACES, span(attributes));
    if (!strstr(out, expected))
        fail_msg("%s: the output does not contain %s: %s", statements, expected, out);
}

#define NEXT "', '"

static const char *const editors[][3] = {
    /* set */
    {"set(attributes[\"http.path\"], \"/foo\")", "", "\"attributes\":[" S("http.path", "/foo") "]"},
    {"set(attributes[\"a\"], 1)", S("a", "x"), "\"attributes\":[" I("a", "1") "]"},
    {"set(attributes[\"a\"], 1.5)", "", D("a", "1.5")},
    {"set(attributes[\"a\"], true)", "", B("a", "true")},
    {"set(attributes[\"a\"], 0x0aff)", "", V("a", "bytesValue", "\"Cv8=\"")},
    {"set(attributes[\"a\"], [1, \"x\", true])", "",
     "\"arrayValue\":{\"values\":[{\"intValue\":\"1\"},{\"stringValue\":\"x\"},{\"boolValue\":"
     "true}]}"},
    {"set(attributes[\"a\"], {\"b\": {\"c\": attributes[\"x\"]}})", I("x", "7"),
     "\"kvlistValue\":{\"values\":[{\"key\":\"b\",\"value\":{\"kvlistValue\":{\"values\":[" I(
         "c", "7") "]}}}]}"},
    {"set(attributes[\"b\"], attributes[\"a\"])", S("a", "x"), S("a", "x") "," S("b", "x")},
    {"set(attributes[\"source\"], trace_state[\"b\"])", "", S("source", "2")},
    {"set(trace_state[\"svc\"], \"example\")", "", "\"traceState\":\"svc=example,a=1,b=2\""},
    {"set(trace_state[\"b\"], \"3\")", "", "\"traceState\":\"b=3,a=1\""},
    {"set(trace_state[\"B\"], \"3\")", "", "\"traceState\":\"a=1,b=2\""},
    {"set(name, \"n\")", "", "\"name\":\"n\""},
    {"set(name, attributes[\"r\"])", S("r", "/x"), "\"name\":\"/x\""},
    {"set(kind, SPAN_KIND_CLIENT)", "", "\"kind\":3"},
    {"set(kind.string, \"Producer\")", "", "\"kind\":4"},
    {"set(status.code, STATUS_CODE_OK)", "", "\"status\":{\"message\":\"m\",\"code\":1}"},
    {"set(status.message, \"\")", "", "\"status\":{\"code\":2}"},
    {"set(start_time_unix_nano, 5)", "", "\"startTimeUnixNano\":\"5\""},
    {"set(parent_span_id.string, \"00000000000000ff\")", "", "\"parentSpanId\":\"00000000000000ff\""},
    {"set(dropped_attributes_count, 9)", "", "\"droppedAttributesCount\":9"},
    {"set(attributes, {\"only\": 1})", S("a", "x"), "\"attributes\":[" I("only", "1") "]"},
    {"set(attributes, resource.attributes)", S("a", "x"),
     "\"attributes\":[" S("service.name", "shop") "],\"events\""},
    /* nil empties a value or a map (ottl.set.allowNil, stable since 0.162) */
    {"set(attributes[\"a\"], nil)", S("a", "x"), "\"attributes\":[" E("a") "]"},
    {"set(attributes[\"a\"], attributes[\"none\"])", "", "\"attributes\":[" E("a") "]"},
    {"set(attributes, nil)", S("a", "x"), "\"endTimeUnixNano\":\"3500\",\"events\""},
    {"set(name, nil)", "", "transform: name: expected a string but got nil"},
    {"set(kind, \"x\")", "", "transform: kind: expected an int but got a string"},
    {"set(attributes, 1)", "", "transform: expected a map but got an int"},
    /* keys inside values */
    {"set(attributes[\"m\"][\"k\"], 1)", "", "\"kvlistValue\":{\"values\":[" I("k", "1") "]}"},
    {"set(attributes[\"m\"][1], \"z\")",
     V("m", "arrayValue", "{\"values\":[{\"stringValue\":\"x\"},{\"stringValue\":\"y\"}]}"),
     "\"values\":[{\"stringValue\":\"x\"},{\"stringValue\":\"z\"}]"},
    {"set(attributes[\"m\"][1], \"z\")", "", "\"arrayValue\":{\"values\":[{},{\"stringValue\":\"z\"}]}"},
    {"set(attributes[\"m\"][2], 1)", V("m", "arrayValue", "{\"values\":[{\"intValue\":\"1\"}]}"),
     "transform: index 2 is out of bounds"},
    {"set(attributes[\"m\"][\"k\"], 1)", S("m", "x"),
     "transform: a string cannot be indexed by a string"},
    {"set(attributes[\"x\"], attributes[\"m\"][\"k\"])",
     V("m", "kvlistValue", "{\"values\":[" I("k", "8") "]}"), I("x", "8")},
    /* where */
    {"set(attributes[\"a\"], 1) where name == \"GET\" and attributes[\"b\"] == nil", "",
     I("a", "1")},
    {"set(attributes[\"a\"], 1) where not IsRootSpan()", "", "\"endTimeUnixNano\":\"3500\",\"events\""},
    {"set(attributes[\"a\"], 1) where end_time_unix_nano - start_time_unix_nano > 2000", "",
     I("a", "1")},
    {"set(attributes[\"a\"], (1 + 2) * 3 - 4 / 2)", "", I("a", "7")},
    {"set(attributes[\"a\"], 1 / 0)", "", "transform: division by zero"},
    {"set(attributes[\"a\"], 1 + 0.5)", "", "transform: cannot compute an int + a float"},
    {"set(attributes[\"a\"], 1) where (kind + 1) == 3 and (name == \"GET\")", "", I("a", "1")},
    /* statements see the changes of those before */
    {"set(name, \"x\")" NEXT "set(attributes[\"a\"], name) where name == \"x\"", "", S("a", "x")},
    {"set(attributes[\"a\"], \"x\")" NEXT "set(name, attributes[\"a\"])" NEXT
     "set(attributes[\"b\"], 2)",
     "", "\"attributes\":[" S("a", "x") "," I("b", "2") "]"},
    {"set(cache[\"x\"], name)" NEXT "set(attributes[\"a\"], cache[\"x\"])", "", S("a", "GET")},
    {"set(cache, ParseJSON(\"{\\\"k\\\":[1]}\"))" NEXT "set(attributes[\"a\"], cache[\"k\"][0])", "",
     D("a", "1")},
    /* keys */
    {"delete_key(attributes, \"a\")", S("a", "x") "," S("b", "y"),
     "\"attributes\":[" S("b", "y") "]"},
    {"delete_key(resource.attributes, \"service.name\")", "", "{\"resource\":{},"},
    {"delete_key(attributes[\"m\"], \"k\")",
     V("m", "kvlistValue", "{\"values\":[" I("k", "8") "," I("l", "9") "]}"),
     "{\"values\":[" I("l", "9") "]}"},
    {"delete_key(attributes[\"none\"], \"k\")", "", "transform: expected a map but got nil"},
    {"delete_matching_keys(attributes, \"^http\\\\.\")", S("http.a", "x") "," S("b", "y"),
     "\"attributes\":[" S("b", "y") "]"},
    {"keep_keys(attributes, [\"a\", \"c\"])", S("a", "x") "," S("b", "y") "," S("c", "z"),
     "\"attributes\":[" S("a", "x") "," S("c", "z") "]"},
    {"keep_keys(attributes, [])", S("a", "x"), "\"endTimeUnixNano\":\"3500\",\"events\""},
    {"limit(attributes, 2, [\"c\"])", S("a", "x") "," S("b", "y") "," S("c", "z"),
     "\"attributes\":[" S("a", "x") "," S("c", "z") "]"},
    {"limit(attributes, 3, [])", S("a", "x") "," S("b", "y"), S("a", "x") "," S("b", "y")},
    {"limit(attributes, 0, [])", S("a", "x"), "\"endTimeUnixNano\":\"3500\",\"events\""},
    /* texts are cut between characters: é has two bytes, and 水 has three */
    {"truncate_all(attributes, 3)", S("a", "hello") "," I("n", "12345") "," S("b", "hé水"),
     S("a", "hel") "," I("n", "12345") "," S("b", "hé")},
    {"truncate_all(attributes, 2)", S("b", "hé水"), S("b", "h")},
    {"truncate_all(attributes, 0)", S("a", "hello"), S("a", "")},
    /* merge_maps */
    {"merge_maps(attributes, {\"a\": 1, \"b\": 2}, \"insert\")", S("a", "x"),
     "\"attributes\":[" S("a", "x") "," I("b", "2") "]"},
    {"merge_maps(attributes, {\"a\": 1, \"b\": 2}, \"update\")", S("a", "x"),
     "\"attributes\":[" I("a", "1") "]"},
    {"merge_maps(attributes, {\"a\": 1, \"b\": 2}, \"upsert\")", S("a", "x"),
     "\"attributes\":[" I("a", "1") "," I("b", "2") "]"},
    {"merge_maps(attributes, resource.attributes, \"insert\")", "", S("service.name", "shop")},
    {"merge_maps(attributes, ParseJSON(attributes[\"j\"]), strategy=\"upsert\")",
     S("j", "{\\\"k\\\":\\\"v\\\"}"), S("k", "v")},
    {"merge_maps(attributes, attributes[\"none\"], \"insert\")", "",
     "transform: merge_maps: source must be a map but is nil"},
    /* replace_pattern: the examples of the documentation, and Go's templates */
    {"replace_pattern(attributes[\"cmd\"], \"password\\\\=[^\\\\s]*(\\\\s?)\", \"password=***\")",
     S("cmd", "x password=secret y"), S("cmd", "x password=***y")},
    {"replace_pattern(name, \"^(G)(?P<rest>.*)$\", \"${rest}-$1\")", "", "\"name\":\"ET-G\""},
    {"replace_pattern(name, \"E\", \"$1x|$$|$0|${9}|$\")", "", "\"name\":\"G|$|E||$T\""},
    {"replace_pattern(name, \"x*\", \"-\")", "", "\"name\":\"-G-E-T-\""},
    {"replace_pattern(attributes[\"none\"], \"a\", \"b\")", "", "\"endTimeUnixNano\":\"3500\",\"events\""},
    {"replace_pattern(attributes[\"n\"], \"1\", \"b\")", I("n", "1"), I("n", "1")},
    {"replace_pattern(name, \"E\", attributes[\"n\"])", I("n", "1"),
     "transform: replace_pattern: replacement must be a string but is an int"},
    {"replace_all_patterns(attributes, \"value\", \"/account/\\\\d{4}\", \"/account/{accountId}\")",
     S("a", "/account/1234/x") "," I("n", "1234") "," S("b", "y"),
     S("a", "/account/{accountId}/x") "," I("n", "1234") "," S("b", "y")},
    {"replace_all_patterns(attributes, \"key\", \"^kube_([0-9A-Za-z]+_)\", \"k8s.$1.\")",
     S("kube_pod_x", "1") "," S("other", "2"), S("k8s.pod_.x", "1") "," S("other", "2")},
    {"replace_all_patterns(attributes, \"key\", \"a|b\", \"c\")", S("a", "1") "," S("b", "2"),
     "\"attributes\":[" S("c", "2") "]"},
};

static void editors_change_spans(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(editors); i++)
        expect("span", editors[i][0], editors[i][1], editors[i][2]);
}

/* A value, the attributes that it uses, and the attribute `r` that set() makes of it. */
static const char *const converters[][3] = {
    {"Concat([attributes[\"a\"], 1, 1.5, true, nil], \"-\")", S("a", "x"),
     S("r", "x-1-1.5-true-<nil>")},
    {"Concat([], \"-\")", "", S("r", "")},
    {"Concat([name, kind.string], \": \")", "", S("r", "GET: Server")},
    {"Concat([name], 1)", "", "transform: Concat: delimiter must be a string but is an int"},
    {"ConvertCase(\"MY_Metric\", \"lower\")", "", S("r", "my_metric")},
    {"ConvertCase(\"my_metric é\", \"upper\")", "", S("r", "MY_METRIC É")},
    {"ConvertCase(\"myMetric\", \"snake\")", "", S("r", "my_metric")},
    {"ConvertCase(\"JSONData\", \"snake\")", "", S("r", "json_data")},
    {"ConvertCase(\"some-name.x y\", \"snake\")", "", S("r", "some_name_x_y")},
    {"ConvertCase(\"my_metric\", \"camel\")", "", S("r", "MyMetric")},
    {"ConvertCase(attributes[\"none\"], \"lower\")", "",
     "transform: ConvertCase: target must be a string but is nil"},
    {"Int(\"12\")", "", I("r", "12")},
    {"Int(\"-12\")", "", I("r", "-12")},
    {"Int(\"2.0\")", "", E("r")},
    {"Int(2.9)", "", I("r", "2")},
    {"Int(-2.9)", "", I("r", "-2")},
    {"Int(true)", "", I("r", "1")},
    {"Int(attributes[\"none\"])", "", E("r")},
    {"Double(\"1.5\")", "", D("r", "1.5")},
    {"String(1)", "", S("r", "1")},
    {"String(0.000001)", "", S("r", "0.000001")},
    {"String(false)", "", S("r", "false")},
    {"String(0x0aff)", "", S("r", "0aff")},
    {"String({\"a\": [1, \"x\"]})", "", S("r", "{\\\"a\\\":[1,\\\"x\\\"]}")},
    {"String(nil)", "", E("r")},
    {"IsString(name)", "", B("r", "true")},
    {"IsString(kind)", "", B("r", "false")},
    {"IsString(attributes[\"none\"])", "", B("r", "false")},
    {"IsMatch(name, \"^G.T$\")", "", B("r", "true")},
    {"IsMatch(1.5, \"[.]\")", "", B("r", "true")},
    {"IsMatch(attributes[\"none\"], \".*\")", "", B("r", "false")},
    {"IsMap(attributes)", "", B("r", "true")},
    {"IsList([1])", "", B("r", "true")},
    {"Len(\"hé\")", "", I("r", "3")},
    {"Len([1, 2])", "", I("r", "2")},
    {"Len(attributes)", S("a", "x"), I("r", "1")},
    {"Len(1)", "", "transform: Len: unsupported type: an int"},
    {"Substring(\"abcdef\", 1, 3)", "", S("r", "bcd")},
    {"Substring(\"abcdef\", 5, 2)", "", "transform: Substring: the range goes beyond the end"},
    {"Substring(\"abcdef\", -1, 2)", "", "transform: Substring: start must not be negative"},
    {"Substring(\"abcdef\", 0, 0)", "", "transform: Substring: length must be positive"},
    {"Substring(\"hé水x\", 1, 2, true)", "", S("r", "é水")},
    {"Split(\"A|B|C\", \"|\")", "",
     "{\"values\":[{\"stringValue\":\"A\"},{\"stringValue\":\"B\"},{\"stringValue\":\"C\"}]}"},
    {"Split(\"|A|\", \"|\")", "",
     "{\"values\":[{\"stringValue\":\"\"},{\"stringValue\":\"A\"},{\"stringValue\":\"\"}]}"},
    {"Split(\"\", \"|\")", "", "{\"values\":[{\"stringValue\":\"\"}]}"},
    {"Split(\"aé\", \"\")", "", "{\"values\":[{\"stringValue\":\"a\"},{\"stringValue\":\"é\"}]}"},
    {"Split(\"A|B|C\", \"|\")[1]", "", S("r", "B")},
    {"Split(\"A|B|C\", \"|\")[3]", "", "transform: index 3 is out of bounds"},
    {"SHA256(\"abc\")", "",
     S("r", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")},
    {"SHA1(\"abc\")", "", S("r", "a9993e364706816aba3e25717850c26c9cd0d89d")},
    {"SHA256(1)", "", "transform: SHA256: target must be a string but is an int"},
    {"ParseJSON(attributes[\"j\"])", S("j", "{\\\"a\\\":1,\\\"b\\\":[true,null,\\\"x\\\"]}"),
     "\"kvlistValue\":{\"values\":[" D("a", "1") ",{\"key\":\"b\",\"value\":{\"arrayValue\":{"
                                                  "\"values\":[{\"boolValue\":true},{},{"
                                                  "\"stringValue\":\"x\"}]}}}]}"},
    {"ParseJSON(\"{\\\"a\\\":1,\\\"b\\\":2,\\\"a\\\":3}\")", "",
     "{\"values\":[" D("b", "2") "," D("a", "3") "]}"},
    {"ParseJSON(\"[\\\"\\\\u00e9\\\"]\")[0]", "", S("r", "é")},
    {"ParseJSON(\"{\\\"a\\\":{\\\"b\\\":\\\"c\\\"}}\")[\"a\"][\"b\"]", "", S("r", "c")},
    {"ParseJSON(\"{\")", "", "transform: ParseJSON: not JSON"},
    {"ParseJSON(\"1\")", "", "transform: ParseJSON: the text is not an object or an array"},
    {"ParseJSON(kind)", "", "transform: ParseJSON: target must be a string but is an int"},
    {"ToUpperCase(\"x\")", "", S("r", "X")},
    {"HasPrefix(name, \"GE\")", "", B("r", "true")},
    {"HasSuffix(name, \"GE\")", "", B("r", "false")},
};

static void converters_compute_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(converters); i++) {
        char statement[1024];
        (void)snprintf(statement, sizeof statement, "set(attributes[\"r\"], %s)", converters[i][0]);
        expect("span", statement, converters[i][1], converters[i][2]);
    }
}

static const char *const contexts[][3] = {
    {"resource", "set(attributes[\"a\"], attributes[\"service.name\"])",
     "\"resource\":{\"attributes\":[" S("service.name", "shop") "," S("a", "shop") "]}"},
    {"resource", "set(dropped_attributes_count, 3)", "\"droppedAttributesCount\":3"},
    {"scope", "set(name, Concat([name, version], \"/\"))", "\"name\":\"lib/1.0\""},
    {"scope", "set(attributes[\"r\"], resource.attributes[\"service.name\"])",
     "\"attributes\":[" S("s", "one") "," S("r", "shop") "]"},
    {"span", "set(resource.attributes[\"last\"], name)",
     "\"resource\":{\"attributes\":[" S("service.name", "shop") "," S("last", "GET") "]}"},
    {"span", "set(attributes[\"a\"], scope.attributes[\"s\"])", S("a", "one")},
    {"span", "set(attributes[\"a\"], instrumentation_scope.name)", S("a", "lib")},
    {"spanevent", "set(attributes[\"i\"], event_index)",
     "\"attributes\":[" S("k", "1") "," I("i", "0") "]},{\"name\":\"f\",\"attributes\":[" I(
         "i", "1") "]}"},
    {"spanevent", "set(name, span.name) where name == \"f\"",
     "\"attributes\":[" S("k", "1") "]},{\"name\":\"GET\"}]"},
    {"spanevent", "set(span.attributes[\"n\"], Concat([span.attributes[\"n\"], name], \"\"))",
     "\"attributes\":[" S("n", "<nil>ef") "]"},
    {"spanevent", "set(time_unix_nano, 9) where time_unix_nano == 7", "\"timeUnixNano\":\"9\""},
    {"spanevent", "set(cache[\"n\"], name)" NEXT "set(attributes[\"c\"], cache[\"n\"])",
     S("c", "f")},
};

static void contexts_have_their_paths(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(contexts); i++)
        expect(contexts[i][0], contexts[i][1], "", contexts[i][2]);
}

SUITE(transform)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(editors_change_spans),
        cmocka_unit_test(converters_compute_values),
        cmocka_unit_test(contexts_have_their_paths),
    };
    return RUN_VARIANTS(tests, rig_order);
}
