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

/* Returns a span with these attributes and two events. Its resource and its scope have attributes,
 * too. */
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

/* Runs the config and returns the output, which is valid until the next call. */
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

/* Applies the statements in this context to a span with these attributes. Fails the test unless the
 * output contains `expected`. */
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
    {"set(parent_span_id.string, \"00000000000000ff\")", "",
     "\"parentSpanId\":\"00000000000000ff\""},
    {"set(dropped_attributes_count, 9)", "", "\"droppedAttributesCount\":9"},
    {"set(attributes, {\"only\": 1})", S("a", "x"), "\"attributes\":[" I("only", "1") "]"},
    {"set(attributes, resource.attributes)", S("a", "x"),
     "\"attributes\":[" S("service.name", "shop") "],\"events\""},
    /* nil clears a value or a map (ottl.set.allowNil, stable since 0.162) */
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
    {"set(attributes[\"m\"][1], \"z\")", "",
     "\"arrayValue\":{\"values\":[{},{\"stringValue\":\"z\"}]}"},
    {"set(attributes[\"m\"][2], 1)", V("m", "arrayValue", "{\"values\":[{\"intValue\":\"1\"}]}"),
     "transform: index 2 is out of bounds"},
    {"set(attributes[\"m\"][\"k\"], 1)", S("m", "x"),
     "transform: a string cannot be indexed by a string"},
    {"set(attributes[\"x\"], attributes[\"m\"][\"k\"])",
     V("m", "kvlistValue", "{\"values\":[" I("k", "8") "]}"), I("x", "8")},
    /* where */
    {"set(attributes[\"a\"], 1) where name == \"GET\" and attributes[\"b\"] == nil", "",
     I("a", "1")},
    {"set(attributes[\"a\"], 1) where not IsRootSpan()", "",
     "\"endTimeUnixNano\":\"3500\",\"events\""},
    {"set(attributes[\"a\"], 1) where end_time_unix_nano - start_time_unix_nano > 2000", "",
     I("a", "1")},
    {"set(attributes[\"a\"], (1 + 2) * 3 - 4 / 2)", "", I("a", "7")},
    {"set(attributes[\"a\"], 1 / 0)", "", "transform: division by zero"},
    {"set(attributes[\"a\"], 1 + 0.5)", "", D("a", "1.5")},
    {"delete_key(name, \"a\")", "", "transform: expected a map but got a string"},
    {"set(attributes[0], 1)", "", "transform: attributes cannot be indexed by a number"},
    {"set(attributes[\"a\"], -kind)", "", I("a", "-2")},
    {"set(attributes[\"a\"], 1 + name)", "", "transform: cannot compute an int + a string"},
    {"set(attributes[\"a\"], 1) where (kind + 1) == 3 and (name == \"GET\")", "", I("a", "1")},
    /* a statement sees the changes that the previous statements made */
    {"set(name, \"x\")" NEXT "set(attributes[\"a\"], name) where name == \"x\"", "", S("a", "x")},
    {"set(attributes[\"a\"], \"x\")" NEXT "set(name, attributes[\"a\"])" NEXT
     "set(attributes[\"b\"], 2)",
     "", "\"attributes\":[" S("a", "x") "," I("b", "2") "]"},
    {"set(cache[\"x\"], name)" NEXT "set(attributes[\"a\"], cache[\"x\"])", "", S("a", "GET")},
    {"set(cache, ParseJSON(\"{\\\"k\\\":[1]}\"))" NEXT "set(attributes[\"a\"], cache[\"k\"][0])",
     "", D("a", "1")},
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
    {"replace_pattern(attributes[\"none\"], \"a\", \"b\")", "",
     "\"endTimeUnixNano\":\"3500\",\"events\""},
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

/* Each row: a value, the attributes that the value uses, and the attribute `r` after set() stored
 * the value in `r`. */
static const char *const converters[][3] = {
    {"Concat([attributes[\"a\"], 1, 1.5, true, nil], \"-\")", S("a", "x"),
     S("r", "x-1-1.5-true-<nil>")},
    {"Concat([], \"-\")", "", S("r", "")},
    {"Concat([name, kind.string], \": \")", "", S("r", "GET: Server")},
    {"Concat([name], kind)", "", "transform: Concat: delimiter must be a string but is an int"},
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
    {"Int(attributes[\"a\"])", S("a", "2.0"), "transform: Int: the text is not a number"},
    {"Int(1.0e300)", "", I("r", "-9223372036854775808")},
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
    {"Substring(\"hé水x\", 2, 3, true)", "", S("r", "")},
    {"Substring(\"hé水x\", 1, 4, true)", "", S("r", "é")},
    {"Substring(\"hé水x\", 1, 5, true)", "", S("r", "é水")},
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
    {"SHA256(kind)", "", "transform: SHA256: target must be a string but is an int"},
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

/* --- Profiles --------------------------------------------------------------------------------- */

/* JSON with ' in place of ". Sample 1 is linked to a span. Sample 2 was taken in the garbage
 * collector. */
static char profile[] =
    "{'resourceProfiles':[{'resource':{'attributes':[{'key':'service.name','value':{'stringValue':"
    "'shop'}}]},'scopeProfiles':[{'profiles':[{'sampleType':{'typeStrindex':1,'unitStrindex':2},"
    "'samples':[{'stackIndex':1,'attributeIndices':[1],'linkIndex':1,'values':['10'],"
    "'timestampsUnixNano':['7']},{'stackIndex':2,'attributeIndices':[2],'values':['20']}],"
    "'timeUnixNano':'5','durationNano':'6','period':'8','attributeIndices':[3]}]}]}],"
    "'dictionary':{'locationTable':[{},{'lines':[{'functionIndex':1}]},{'lines':[{'functionIndex':"
    "2}]}],'functionTable':[{},{'nameStrindex':3},{'nameStrindex':4}],'linkTable':[{},{'traceId':"
    "'0102030405060708090a0b0c0d0e0f10','spanId':'1112131415161718'}],'stringTable':['','cpu',"
    "'nanoseconds','main','runtime.gc','thread','env','size','bytes'],'attributeTable':[{},"
    "{'keyStrindex':5,'value':{'stringValue':'t1'}},{'keyStrindex':7,'value':{'intValue':'3'},"
    "'unitStrindex':8},{'keyStrindex':6,'value':{'stringValue':'prod'}}],'stackTable':[{},"
    "{'locationIndices':[1]},{'locationIndices':[2,1]}]}}";

#define SAMPLE_1(indices)                                                                          \
    "{\"stackIndex\":1,\"attributeIndices\":[" indices                                             \
    "],\"linkIndex\":1,\"values\":[\"10\"],\"timestampsUnixNano\":[\"7\"]}"
#define SAMPLE_2(indices)                                                                          \
    "{\"stackIndex\":2,\"attributeIndices\":[" indices "],\"values\":[\"20\"]}"
#define STRINGS                                                                                    \
    "\"\",\"cpu\",\"nanoseconds\",\"main\",\"runtime.gc\",\"thread\",\"env\",\"size\",\"bytes\""
#define ENTRY(key, type, value) "{\"keyStrindex\":" key ",\"value\":{\"" type "\":" value "}}"

/* Each row: the context, the statement, and one or two parts of the output. */
static const char *const on_profiles[][4] = {
    {"sample", "set(attributes[\"a\"], 1)", SAMPLE_1("1,4") "," SAMPLE_2("2,4"), STRINGS ",\"a\"]"},
    {"sample", "set(attributes[\"a\"], 1)", ENTRY("9", "intValue", "\"1\"") "]", ""},
    /* the attribute already has this value, so it is not changed */
    {"sample", "set(attributes[\"thread\"], \"t1\") where attributes[\"thread\"] != nil",
     SAMPLE_1("1") "," SAMPLE_2("2"), STRINGS "]"},
    {"sample", "delete_key(attributes, \"thread\")",
     "{\"stackIndex\":1,\"linkIndex\":1,\"values\":[\"10\"],", SAMPLE_2("2")},
    /* a number keeps its unit */
    {"sample", "set(attributes[\"size\"], 4) where attributes[\"size\"] == 3", SAMPLE_2("4"),
     "{\"keyStrindex\":7,\"value\":{\"intValue\":\"4\"},\"unitStrindex\":8}"},
    {"sample", "set(attributes[\"t\"], profile.sample_type.type)", SAMPLE_1("1,4"),
     ENTRY("9", "stringValue", "\"cpu\"")},
    {"sample", "set(attributes[\"gc\"], true) where IsMatch(function_names, \"runtime[.]gc\")",
     SAMPLE_1("1") "," SAMPLE_2("2,4"), ENTRY("9", "boolValue", "true")},
    {"sample", "set(attributes[\"f\"], function_names[0])", SAMPLE_2("2,5"),
     ENTRY("9", "stringValue", "\"main\"") "," ENTRY("9", "stringValue", "\"runtime.gc\"")},
    {"sample", "set(attributes[\"n\"], Len(function_names)) where Len(function_names) == 2",
     SAMPLE_2("2,4"), ENTRY("9", "intValue", "\"2\"")},
    {"sample", "set(attributes[\"s\"], link.span_id.string)",
     ENTRY("9", "stringValue", "\"1112131415161718\""),
     ENTRY("9", "stringValue", "\"0000000000000000\"")},
    {"sample", "set(attributes[\"x\"], 1) where link.trace_id.string == \"" TRACE "\"",
     SAMPLE_1("1,4") "," SAMPLE_2("2"), ""},
    {"sample", "set(attributes[\"v\"], values[0] + timestamps_unix_nano[0]) where values == [10]",
     SAMPLE_1("1,4") "," SAMPLE_2("2"), ENTRY("9", "intValue", "\"17\"")},
    {"sample", "set(resource.attributes[\"x\"], profile.attributes[\"env\"])",
     S("service.name", "shop") "," S("x", "prod"), SAMPLE_1("1") "," SAMPLE_2("2")},
    {"sample", "set(cache[\"x\"], 1)" NEXT "set(attributes[\"y\"], cache[\"x\"])", SAMPLE_1("1,4"),
     ENTRY("9", "intValue", "\"1\"")},
    {"sample", "replace_all_patterns(attributes, \"key\", \"thr\", \"Thr\")", SAMPLE_1("4"),
     ENTRY("9", "stringValue", "\"t1\"")},
    {"profile", "set(attributes[\"env\"], \"test\")", "\"attributeIndices\":[4]",
     ENTRY("6", "stringValue", "\"test\"")},
    {"profile", "set(period, 9)" NEXT "set(duration_unix_nano, 10)" NEXT "set(time_unix_nano, 11)",
     "\"period\":\"9\"", "\"durationNano\":\"10\""},
    {"profile",
     "set(sample_type.type, \"wall\")" NEXT
     "set(attributes[\"t\"], Concat([sample_type.type, sample_type.unit], \"/\"))",
     STRINGS ",\"wall\",\"t\"]", ENTRY("10", "stringValue", "\"wall/nanoseconds\"")},
    {"profile", "set(period_type.unit, \"bytes\")", "\"periodType\":{\"unitStrindex\":9}", ""},
    {"profile", "set(profile_id.string, \"" TRACE "\")", "\"profileId\":\"" TRACE "\"", ""},
    {"profile", "set(original_payload_format, \"json\")", "\"originalPayloadFormat\":\"json\"", ""},
    {"profile", "set(dropped_attributes_count, 2)" NEXT "delete_key(attributes, \"env\")",
     "\"droppedAttributesCount\":2", "\"period\":\"8\""},
    {"scope", "set(name, \"added\")", "\"scope\":{\"name\":\"added\"}", SAMPLE_1("1")},
    {"resource", "keep_keys(attributes, [])", "\"resource\":{}", SAMPLE_1("1")},
};

static void statements_change_profiles(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(on_profiles); i++) {
        char yaml[1024];
        (void)snprintf(yaml, sizeof yaml,
                       "{error_mode: propagate, profile_statements: [{context: %s, statements: "
                       "['%s']}]}",
                       on_profiles[i][0], on_profiles[i][1]);
        const char *out = run(yaml, BR_PROFILES, profile);
        for (unsigned k = 2; k < 4; k++)
            if (!strstr(out, on_profiles[i][k]))
                fail_msg("%s: the output does not contain %s: %s", on_profiles[i][1],
                         on_profiles[i][k], out);
    }
}

/* --- Groups ----------------------------------------------------------------------------------- */

/* A request with two spans in one resource and one span in another. */
static const char spans[] =
    "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":\"a\"},{\"name\":\"b\"}]}]},"
    "{\"scopeSpans\":[{\"spans\":[{\"name\":\"c\"}]}]}]}";

#define ONE "{\"resourceSpans\":[{\"resource\":{\"attributes\":["
#define FLAT(statements) "{error_mode: propagate, trace_statements: [" statements "]}"

/* Each row: a config, and parts of the output for `spans`. */
static const char *const groups[][2] = {
    /* A list of statements is one group. The context of the group is the innermost context that
     * its statements use. */
    {FLAT("'set(resource.attributes[\"n\"], span.name)',"
          "'set(span.attributes[\"n\"], resource.attributes[\"n\"])'"),
     "{\"name\":\"a\",\"attributes\":[" S("n", "a") "]},{\"name\":\"b\",\"attributes\":[" S(
         "n", "b") "]}"},
    /* In a group, all statements are applied to one span before the next span. */
    {FLAT("{statements: ['set(resource.attributes[\"n\"], span.name)',"
          "'set(span.attributes[\"n\"], resource.attributes[\"n\"])']}"),
     "{\"name\":\"a\",\"attributes\":[" S("n", "a") "]},{\"name\":\"b\",\"attributes\":[" S(
         "n", "b") "]}"},
    /* A statement that only uses the paths of scopes runs in the context scope. */
    {FLAT("'set(span.name, \"x\")','set(scope.name, \"s\")','set(span.kind, 1)'"),
     "\"scope\":{\"name\":\"s\"},\"spans\":[{\"name\":\"x\",\"kind\":1}"},
    /* Each span has a separate cache. With shared_cache, the groups of a context have one cache for
     * the whole request. */
    {FLAT("'set(span.cache[\"n\"], span.name)','set(span.attributes[\"n\"], span.cache[\"n\"])'"),
     "{\"name\":\"a\",\"attributes\":[" S("n", "a") "]}"},
    {FLAT("{shared_cache: true, statements: ['set(span.cache[\"n\"], span.name)']},"
          "{shared_cache: true, statements: ['set(span.attributes[\"n\"], span.cache[\"n\"])']}"),
     "{\"name\":\"a\",\"attributes\":[" S("n", "c") "]}"},
    {FLAT("{context: span, statements: ['set(attributes[\"n\"], cache[\"n\"]) where cache[\"n\"] "
          "!= nil', 'set(cache[\"n\"], name)']}"),
     "\"spans\":[{\"name\":\"a\"},{\"name\":\"b\"}]"},
    /* Groups are applied in order. A group applies if at least one of its conditions is true. */
    {FLAT("{context: span, conditions: ['name == \"a\"', 'name == \"c\"'], statements: "
          "['set(name, \"x\")']},{context: span, conditions: ['name == \"x\"'], statements: "
          "['set(attributes[\"y\"], 1)']}"),
     "{\"name\":\"x\",\"attributes\":[" I("y", "1") "]},{\"name\":\"b\"}"},
    {FLAT("{conditions: ['span.name == \"b\"'], statements: ['set(resource.attributes[\"n\"], "
          "1)']}"),
     ONE I("n", "1") "]}"},
    {FLAT("'set(scope.name, \"s\")'"),
     "\"scope\":{\"name\":\"s\"},\"spans\":[{\"name\":\"a\"},{\"name\":\"b\"}]"},
    {FLAT("'set(resource.attributes[\"n\"], 1)'"), ONE I("n", "1") "]}"},
    /* If a statement fails with an error, the other statements are still applied. */
    {"{trace_statements: ['set(span.name, 1)', 'set(span.name, \"z\")']}", "\"name\":\"z\""},
    {"{error_mode: propagate, trace_statements: [{error_mode: silent, statements: "
     "['set(span.name, 1)', 'set(span.name, \"z\")']}]}",
     "\"name\":\"z\""},
    {"{error_mode: ignore, trace_statements: [{error_mode: propagate, statements: "
     "['set(span.name, 1)']}]}",
     "transform: name: expected a string but got an int"},
    /* A condition that fails with an error counts as false. */
    {"{trace_statements: [{context: span, conditions: ['Len(kind) == 1', 'name == \"a\"'], "
     "statements: ['set(name, \"z\")']}]}",
     "\"name\":\"z\"},{\"name\":\"b\"}"},
    {FLAT("{context: span, conditions: ['Len(kind) == 1'], statements: ['set(name, \"z\")']}"),
     "transform: Len: unsupported type: an int"},
};

static void groups_run_in_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(groups); i++) {
        const char *out = run(groups[i][0], BR_TRACES, spans);
        if (!strstr(out, groups[i][1]))
            fail_msg("%s: the output does not contain %s: %s", groups[i][0], groups[i][1], out);
    }
}

/* Statements that do not change anything leave all bytes of the request unchanged. */
static void unchanged_data_stays_as_it_was(void **state)
{
    (void)state;
    struct rig *r = rig_new(
        &br_transform_processor,
        FLAT("'set(span.name, \"GET\")','delete_key(span.attributes, \"none\")',"
             "'limit(span.attributes, 9, [])','truncate_all(spanevent.attributes, 5)',"
             "'replace_pattern(span.name, \"x\", \"y\")','keep_keys(scope.attributes, [\"s\"])'"));
    char before[8192];
    struct rig *other = rig_new(&br_transform_processor, "{}");
    (void)snprintf(before, sizeof before, "%s", rig_run(other, BR_TRACES, span(I("a", "1"))));
    assert_string_equal(rig_run(r, BR_TRACES, span(I("a", "1"))), before);
    rig_free(other);
    rig_free(r);
}

static void failures_are_counted(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_transform_processor, "{trace_statements: ['set(span.name, 1)']}");
    (void)rig_run(r, BR_TRACES, spans);
    assert_int_equal(r->n_out, 1);
    assert_int_equal((int)rig_metric(r, "braid_transform_failed", "processor=\"transform\""), 3);
    rig_free(r);
    r = rig_new(&br_transform_processor, FLAT("'set(span.name, 1)'"));
    (void)rig_run(r, BR_TRACES, spans);
    assert_int_equal(r->n_out, 0);
    assert_int_equal(r->outcome.verdict, BR_REJECT);
    rig_free(r);
}

/* --- Config ----------------------------------------------------------------------------------- */

#define AT(col, index) "test.yaml:1:" col ": x::trace_statements[" index "]: at character "
#define TRACES(statements) "{trace_statements: [" statements "]}"

static void configs(void **state)
{
    static const char *const cases[][2] = {
        {"{}", "warning: test.yaml:1:1: x: it has no statements: nothing is changed\n"},
        {TRACES("'set(span.name, \"a\")'"), ""},
        {TRACES("'set(name, \"a\")'"),
         "test.yaml:1:21: x::trace_statements[0]: no path names a context; begin the paths with "
         "the name of one, such as span.attributes; contexts: span, spanevent, resource and "
         "scope\n"},
        {TRACES("'set(span.nam, \"a\")'"), AT("21", "0") "5: the path span.nam is unknown; paths"},
        {TRACES("'set(span.name, \"a\")', 'set(span.links, 1)'"),
         AT("44", "1") "5: the path span.links is not supported; paths of span: attributes, cache"},
        {TRACES("'set(span.name, Foo())'"), AT("21", "0") "16: the function Foo is unknown; use "
                                                          "Concat, ConvertCase, "},
        {TRACES("'set(span.name, URL(span.name))'"),
         AT("21", "0") "16: the function URL is not supported; use Concat, "},
        {TRACES("'flatten(span.attributes)'"),
         AT("21", "0") "1: the function flatten is not supported; use delete_key, "
                       "delete_matching_keys, keep_keys, limit, merge_maps, replace_all_patterns, "
                       "replace_pattern, set, truncate_all\n"},
        {TRACES("'Concat([span.name], 1)'"), AT("21", "0") "1: the function Concat is unknown"},
        {TRACES("'set(span.name)'"), AT("21", "0") "14: the argument value of set is missing\n"},
        {TRACES("'set(span.name, 1, 2)'"), AT("21", "0") "19: set has at most 2 arguments\n"},
        {TRACES("'set(\"a\", 1) where span.kind == 1'"),
         AT("21", "0") "5: the argument target of set must be a path\n"},
        {TRACES("'set(span.name, Int(\"2.0\"))'"), AT("21", "0") "20: the text is not a number\n"},
        {TRACES("'set(span.name, SHA256(1))'"),
         AT("21", "0") "23: the argument target of SHA256 must be a string\n"},
        {TRACES("'set(span.kind, - - 1)'"),
         AT("21", "0") "18: a path or a literal is required here\n"},
        {TRACES("'set(span.name, (\"a\"))'"),
         AT("21", "0") "17: a path or a literal is required here\n"},
        {TRACES("'set(span.name, Substring(target=\"a\", 0, 1))'"),
         AT("21", "0") "38: an argument after one with a name needs a name\n"},
        {TRACES("'limit(span.attributes, -1, [])'"),
         AT("21", "0") "24: the argument limit of limit must be a whole number of at least "
                       "0, without a sign\n"},
        {TRACES("'limit(span.attributes, 1, [\"a\", \"b\"])'"),
         AT("21", "0") "27: there are more priority_keys than the limit allows\n"},
        {TRACES("'keep_keys(span.attributes, \"a\")'"),
         AT("21", "0") "28: the argument keys of keep_keys must be a list of texts in double "
                       "quotes\n"},
        {TRACES("'delete_matching_keys(span.attributes, \"(\")'"),
         AT("21", "0") "39: invalid regular expression: missing closing parenthesis, at character "
                       "2\n"},
        {TRACES("'delete_matching_keys(span.attributes, span.name)'"),
         AT("21", "0") "39: the pattern of delete_matching_keys must be in double quotes\n"},
        {TRACES("'merge_maps(span.attributes, span.attributes, \"add\")'"),
         AT("21", "0") "46: the argument strategy of merge_maps must be one of \"insert\", "
                       "\"update\", \"upsert\"\n"},
        {TRACES("'set(span.name, ConvertCase(span.name, \"title\"))'"),
         AT("21", "0") "39: the argument to_case of ConvertCase must be one of \"lower\", "
                       "\"upper\", \"snake\", \"camel\"\n"},
        {TRACES("'replace_pattern(span.name, \"a\", \"b\", function=SHA256)'"),
         AT("21", "0") "38: the argument function of replace_pattern is not supported\n"},
        {TRACES("'set(span.name, \"a\") if true'"),
         AT("21", "0") "21: expected \"where\" or the end of the statement\n"},
        {TRACES("'set(span.name, \"a\") where'"), AT("21", "0") "26: a path or a literal is "},
        {TRACES("'set(span.name, \"a\") where span.name'"),
         AT("21", "0") "36: a comparison is missing"},
        {TRACES("'set(span.name, \"a\"'"), AT("21", "0") "19: a \")\" is missing\n"},
        {TRACES("'set(span.name, \"a)'"),
         AT("21", "0") "16: the quote that opens here is never closed\n"},
        {TRACES("'set(spanevent.event_index, 1)'"),
         AT("21", "0") "5: the path event_index cannot be changed\n"},
        {TRACES("'set(scope.name, span.name)'"),
         AT("21", "0") "5: a statement in the context span cannot change paths of scope; use a "
                       "group with context: scope\n"},
        {TRACES("'set(span.name[\"a\"], 1)'"), AT("21", "0") "5: the path span.name has no keys\n"},
        {TRACES("'set(span.attributes[span.name], 1)'"),
         AT("21", "0") "21: a key must be a text in double quotes, or a whole number\n"},
        {TRACES("'set(span.name, otelcol.client.addr)'"),
         AT("21", "0") "16: the path otelcol.client.addr is not supported; contexts: "},
        {TRACES("'set(span.cache[\"a\"], spanevent.name)'"),
         AT("21", "0") "5: only the cache of the context spanevent exists here\n"},
        {TRACES("{context: resource, statements: ['set(attributes[\"a\"], span.name)']}"),
         "x::trace_statements[0]::statements[0]: at character 22: the context resource has no "
         "paths of span\n"},
        {TRACES("{context: log, statements: ['set(name, 1)']}"),
         "test.yaml:1:31: x::trace_statements[0]::context: the context \"log\" is unknown; "
         "contexts: span, spanevent, resource and scope\n"},
        {TRACES("{context: span, statement: ['set(name, 1)']}"),
         "x::trace_statements[0]: a group has only the keys context, conditions, statements, "
         "error_mode and shared_cache\n"},
        {TRACES("{shared_cache: 1, statements: ['set(span.name, \"a\")']}"),
         "x::trace_statements[0]::shared_cache: must be true or false\n"},
        {TRACES("{context: span, error_mode: fail, statements: ['set(name, 1)']}"),
         "x::trace_statements[0]::error_mode: must be one of ignore, silent, propagate\n"},
        {TRACES("{context: span, conditions: ['name'], statements: ['set(name, 1)']}"),
         "x::trace_statements[0]::conditions[0]: at character 5: a comparison is missing"},
        {TRACES("'set(span.name, \"a\")', {context: span, statements: ['set(name, 1)']}"),
         "x::trace_statements[1]: a list contains either statements or groups, not both\n"},
        {TRACES("[a]"), "x::trace_statements[0]: must be a statement, or a map with a list of "},
        {"{profile_statements: ['set(span.name, 1)']}",
         "x::profile_statements[0]: no path names a context; begin the paths with the name of "
         "one, such as sample.attributes; contexts: profile, sample, resource and scope\n"},
        {"{profile_statements: ['set(sample.values, 1)']}",
         "x::profile_statements[0]: at character 5: the path values cannot be changed\n"},
        {"{profile_statements: ['set(sample.attributes[\"a\"], IsRootSpan())']}",
         "x::profile_statements[0]: at character 29: IsRootSpan is for the context span\n"},
        {"{error_mode: fail}", "x::error_mode: must be one of ignore, silent, propagate"},
        {"{log_statements: [a], metric_statements: [b], flatten_data: true, trace_statements: "
         "['set(span.name, \"a\")']}",
         "warning: test.yaml:1:2: x::log_statements: is read and has no effect: option of the "
         "Collector for a signal that Braid does not support\n"},
    };
    (void)state;
    rig_expect_errors_in(&br_transform_processor, cases, BR_COUNT(cases));
}

/* --- Limits ----------------------------------------------------------------------------------- */

/* If the patterns take too long, the request is rejected, whatever the error mode is. The time
 * limit applies to each request separately. */
static void matching_has_a_time_limit(void **state)
{
    (void)state;
    struct rig *r = rig_new(
        &br_transform_processor,
        "{match_time: 50ms, trace_statements: ['replace_pattern(span.name, \"" LONG_TEXT_PATTERN
        "\", \"x\")']}");
    char *in =
        long_text_in("{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":\"", "\"}]}]}]}");
    (void)rig_run(r, BR_TRACES, in);
    assert_int_equal(r->n_out, 0);
    assert_int_equal(r->outcome.verdict, BR_REJECT);
    assert_non_null(strstr(r->outcome.text, "takes too long for this request"));
    (void)rig_run(r, BR_TRACES, spans);
    assert_int_equal(r->n_out, 1);
    free(in);
    rig_free(r);
}

/* Ten statements that double a text make it 1024 times as long. 30 statements would make it 2^30
 * times as long. */
static void work_and_memory_are_limited(void **state)
{
    (void)state;
    char yaml[8192];
    for (unsigned n = 10; n <= 30; n += 20) {
        int len = snprintf(yaml, sizeof yaml, "{trace_statements: [{context: span, statements: [");
        for (unsigned i = 0; i < n; i++)
            len += snprintf(yaml + len, sizeof yaml - (size_t)len,
                            "'set(name, Concat([name, name], \"\"))',");
        (void)snprintf(yaml + len, sizeof yaml - (size_t)len, "]}]}");
        struct rig *r = rig_new(&br_transform_processor, yaml);
        (void)rig_run(r, BR_TRACES, span(""));
        assert_int_equal(r->n_out, n == 10);
        if (n == 10)
            assert_int_equal(strlen(strstr(r->out.data, "\"name\":\"GET")) > 3 * 1024, 1);
        else
            assert_int_equal(r->outcome.verdict, BR_REJECT);
        rig_free(r);
    }
}

/* Statements that use every function. They are applied to hostile requests, and their errors are
 * ignored. */
static const char for_spans[] =
    "{error_mode: silent, trace_statements: ["
    "'set(resource.attributes[\"n\"], ParseJSON(span.attributes[\"j\"]))',"
    "'set(spanevent.attributes[\"m\"][\"k\"][2], spanevent.name)',"
    "'merge_maps(span.attributes, resource.attributes, \"upsert\")',"
    "'replace_all_patterns(span.attributes, \"value\", \"(.)x*\", \"$1-\")',"
    "'replace_all_patterns(span.attributes, \"key\", \"[ab]\", \"c\")',"
    "'truncate_all(span.attributes, 7)', 'limit(span.attributes, 3, [\"n\"])',"
    "'set(span.trace_state[\"x\"], String(span.attributes))',"
    "'set(span.status.message, Concat([Split(span.name, \"\")], \"-\")) where true',"
    "'set(span.status.code, Len(span.attributes))', 'set(span.kind, Int(span.status.message))',"
    "'set(scope.attributes[\"c\"], ConvertCase(scope.name, \"snake\"))',"
    "'delete_matching_keys(resource.attributes, \"^s\")', 'keep_keys(scope.attributes, [\"c\"])',"
    "'set(span.name, Substring(SHA256(span.name), 1, 5, true))',"
    "'replace_pattern(span.name, \"[a-f]\", \"\")', 'delete_key(span.attributes, \"c\")']}";
static const char for_profiles[] =
    "{error_mode: silent, profile_statements: ["
    "'set(sample.attributes[\"f\"], sample.function_names)',"
    "'set(sample.attributes[\"l\"], sample.link.trace_id.string)',"
    "'set(sample.attributes[\"v\"], sample.values[0] * 2)',"
    "'set(profile.sample_type.type, Concat([profile.sample_type.type, profile.period], \"_\"))',"
    "'replace_all_patterns(sample.attributes, \"key\", \"t\", \"T\")',"
    "'truncate_all(profile.attributes, 2)', 'set(resource.attributes[\"t\"], sample.values)',"
    "'set(scope.name, \"x\")', 'delete_key(sample.attributes, \"l\")']}";

/* After a request was changed at random (rig_send_mutants), the output must still be valid. */
static void hostile_requests(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_transform_processor, for_spans);
    assert_true(rig_send_mutants(r, BR_TRACES, span(S("j", "[1]") "," I("b", "2")), 2000) > 100);
    rig_free(r);
    r = rig_new(&br_transform_processor, for_profiles);
    assert_true(rig_send_mutants(r, BR_PROFILES, profile, 2000) > 100);
    rig_free(r);
}

static bool has_output(struct rig *r, void *arg)
{
    (void)arg;
    return r->n_out > 0;
}

static void no_memory(void **state)
{
    (void)state;
    assert_in_range(
        rig_run_short(&(struct rig_shortage){&br_transform_processor, for_spans, BR_TRACES,
                                             span(S("j", "[1]")), .came = has_output}),
        10, 1000);
    assert_in_range(rig_run_short(&(struct rig_shortage){&br_transform_processor, for_profiles,
                                                         BR_PROFILES, profile, .came = has_output}),
                    10, 1000);
}

SUITE(transform)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(editors_change_spans),
        cmocka_unit_test(converters_compute_values),
        cmocka_unit_test(contexts_have_their_paths),
        cmocka_unit_test(statements_change_profiles),
        cmocka_unit_test(groups_run_in_order),
        cmocka_unit_test(unchanged_data_stays_as_it_was),
        cmocka_unit_test(failures_are_counted),
        cmocka_unit_test(configs),
        cmocka_unit_test(matching_has_a_time_limit),
        cmocka_unit_test(work_and_memory_are_limited),
        cmocka_unit_test(hostile_requests),
        cmocka_unit_test(no_memory),
    };
    for (char *p = profile; (p = strchr(p, '\''));)
        *p = '"';
    return RUN_VARIANTS(tests, rig_order);
}
