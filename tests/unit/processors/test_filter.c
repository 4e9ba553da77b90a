/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Include and exclude according to the Collector's filterspan, filtermatcher and filterset
 * (internal/filter, v0.155) and their tests, and the same for profiles.
 */
#include "attribute/condition.h"
#include "base/mem.h"
#include "tests/support/long_text.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_filter_processor;

/* JSON with ' in place of ", which put_right() replaces. Spans 1 to 4 belong to the service
 * shop, 5 to one without a name, and 6 to one whose name is a number. */
static char spans[] =
    "{'resourceSpans':["
    "{'resource':{'attributes':[{'key':'service.name','value':{'stringValue':'shop'}},"
    "{'key':'host.name','value':{'stringValue':'h1'}}]},'scopeSpans':["
    "{'scope':{'name':'lib','version':'1.0'},'spans':["
    "{'traceId':'0102030405060708090a0b0c0d0e0f10','spanId':'1112131415161718',"
    "'status':{'code':2,'message':'bad \\u0022luck\\u0022'},'startTimeUnixNano':'2000',"
    "'endTimeUnixNano':'3000','name':'span1','kind':2,'attributes':[{'key':'db','value':{'"
    "stringValue':'redis'}},"
    "{'key':'n','value':{'intValue':'42'}}]},"
    "{'traceId':'0102030405060708090a0b0c0d0e0f10','parentSpanId':'0102030405060708',"
    "'spanId':'0102030405060708','traceState':'a=1','name':'span2','kind':3,'attributes':[{'key':'"
    "db','value':{'stringValue':'mysql'}},"
    "{'key':'d','value':{'doubleValue':0.5}}]}]},"
    "{'spans':["
    "{'name':'span3','kind':1,'attributes':[{'key':'b','value':{'boolValue':true}},"
    "{'key':'d','value':{'doubleValue':1e21}},{'key':'tiny','value':{'doubleValue':1e-7}}]},"
    "{'name':'span4','kind':0,'attributes':[{'key':'l','value':{'arrayValue':{'values':["
    "{'intValue':'1'},{'stringValue':'x'}]}}},{'key':'m','value':{'kvlistValue':{'values':["
    "{'key':'k','value':{'intValue':'1'}},{'key':'j','value':{'stringValue':'v'}}]}}}]}]}]},"
    "{'scopeSpans':[{'scope':{'name':'lib'},'spans':[{'name':'span5','kind':4}]}]},"
    "{'resource':{'attributes':[{'key':'service.name','value':{'intValue':'7'}}]},"
    "'scopeSpans':[{'spans':[{'name':'span6','kind':5,'attributes':["
    "{'key':'db','value':{'stringValue':''}}]}]}]}]}";

static void replace_quotes(char *json)
{
    for (char *p = json; (p = strchr(p, '\''));)
        *p = '"';
}

/* Returns the digits that follow `mark` in the output. */
static const char *numbers(const struct rig *r, const char *mark)
{
    static char text[32];
    size_t n = 0;
    for (const char *at = r->n_out ? r->out.data : NULL; at && (at = strstr(at, mark)); at++)
        if (n < sizeof text - 1)
            text[n++] = at[strlen(mark)];
    text[n] = '\0';
    return text;
}

static void check(enum br_signal signal, const char *yaml, const char *in, const char *mark,
                  const char *expected, size_t n_records)
{
    struct rig *r = rig_new(&br_filter_processor, yaml);
    (void)rig_run(r, signal, in);
    const char *got = numbers(r, mark);
    if (strcmp(got, expected) != 0)
        fail_msg("%s: \"%s\" remain, not \"%s\"", yaml, got, expected);
    assert_int_equal(rig_dropped(r, signal, "filtered"), n_records - strlen(expected));
    assert_int_equal(r->n_out, *expected != '\0');
    if (!*expected)
        assert_int_equal(r->outcome.verdict, BR_DONE);
    rig_free(r);
}

#define STRICT(criteria) "{match_type: strict, " criteria "}"
#define REGEXP(criteria) "{match_type: regexp, " criteria "}"

struct example {
    const char *match;    /* condition for include */
    const char *matching; /* numbers of the spans that match, as digits */
};

static const struct example span_examples[] = {
    {STRICT("services: [shop]"), "1234"},
    {STRICT("services: shop"), "1234"},
    {STRICT("services: [sho]"), ""},
    {STRICT("services: [cart, shop]"), "1234"},
    {STRICT("services: [<nil-service-name>]"), "5"},
    {STRICT("services: ['7']"), "6"},
    {REGEXP("services: [ho]"), "1234"},
    {REGEXP("services: [^ho, '^7$']"), "6"},
    {STRICT("span_names: [span1, span6]"), "16"},
    {STRICT("span_names: [span]"), ""},
    {REGEXP("span_names: ['span[1-3]']"), "123"},
    {REGEXP("span_names: ['^pan']"), ""},
    {REGEXP("span_names: ['N2$']"), ""},
    {REGEXP("span_names: ['(?i)N2$']"), "2"},
    {STRICT("span_kinds: [SPAN_KIND_INTERNAL, SPAN_KIND_SERVER]"), "13"},
    {STRICT("span_kinds: [SPAN_KIND_CLIENT]"), "2"},
    {STRICT("span_kinds: [SPAN_KIND_PRODUCER, SPAN_KIND_CONSUMER]"), "56"},
    {REGEXP("span_kinds: ['UNSPECIFIED|SERVER']"), "14"},
    /* attributes: all of them must match, by type or by the text of the value */
    {STRICT("attributes: [{key: db}]"), "126"},
    {STRICT("attributes: [{key: db}, {key: n}]"), "1"},
    {STRICT("attributes: [{key: db, value: redis}]"), "1"},
    {STRICT("attributes: [{key: db, value: ''}]"), "6"},
    {STRICT("attributes: [{key: n, value: 42}]"), "1"},
    {STRICT("attributes: [{key: n, value: '42'}]"), ""},
    {STRICT("attributes: [{key: n, value: 42.0}]"), ""},
    {STRICT("attributes: [{key: d, value: 0.5}]"), "2"},
    {STRICT("attributes: [{key: b, value: true}]"), "3"},
    {STRICT("attributes: [{key: b, value: false}]"), ""},
    {STRICT("attributes: [{key: l, value: [1, x]}]"), "4"},
    {STRICT("attributes: [{key: l, value: [1]}]"), ""},
    {STRICT("attributes: [{key: l, value: [1, x, y]}]"), ""},
    {STRICT("attributes: [{key: l, value: [x, 1]}]"), ""},
    {STRICT("attributes: [{key: m, value: {j: v, k: 1}}]"), "4"},
    {STRICT("attributes: [{key: m, value: {j: v, k: 2}}]"), ""},
    {STRICT("attributes: [{key: m, value: {j: v}}]"), ""},
    {REGEXP("attributes: [{key: db, value: 's'}]"), "12"},
    {REGEXP("attributes: [{key: db, value: '^r.*s$'}, {key: n, value: '4.'}]"), "1"},
    {REGEXP("attributes: [{key: n, value: '^42$'}]"), "1"},
    {REGEXP("attributes: [{key: b, value: tr}]"), "3"},
    {REGEXP("attributes: [{key: b, value: '^true$'}]"), "3"},
    {REGEXP("attributes: [{key: d, value: '^0[.]5$'}]"), "2"},
    {REGEXP("attributes: [{key: d, value: '^10{21}$'}]"), "3"},
    {REGEXP("attributes: [{key: tiny, value: '^0[.]0000001$'}]"), "3"},
    {REGEXP("attributes: [{key: l, value: '.*'}]"), ""},
    {STRICT("resources: [{key: host.name, value: h1}]"), "1234"},
    {REGEXP("resources: [{key: host.name, value: '[0-9]'}]"), "1234"},
    {STRICT("resources: [{key: host.name, value: h2}]"), ""},
    {STRICT("libraries: [{name: lib}]"), "125"},
    {STRICT("libraries: [{name: lib, version: '1.0'}]"), "12"},
    {STRICT("libraries: [{name: lib, version: ''}]"), "5"},
    {STRICT("libraries: [{name: ''}]"), "346"},
    {REGEXP("libraries: [{name: '^l', version: '^1[.]'}]"), "12"},
    {STRICT("libraries: [{name: lib}, {name: other}]"), ""},
    /* every criterion must match */
    {STRICT("services: [shop], span_names: [span2, span5]"), "2"},
    {STRICT("services: [shop], attributes: [{key: db}], span_kinds: [SPAN_KIND_SERVER]"), "1"},
};

/* Returns `all` without the digits in `some`. */
static const char *without(const char *all, const char *some)
{
    static char text[32];
    size_t n = 0;
    for (; *all; all++)
        if (!strchr(some, *all))
            text[n++] = *all;
    text[n] = '\0';
    return text;
}

static void spans_include_and_exclude(void **state)
{
    (void)state;
    static const char mark[] = "\"name\":\"span";
    for (size_t i = 0; i < BR_COUNT(span_examples); i++) {
        const struct example *e = &span_examples[i];
        char yaml[512];
        (void)snprintf(yaml, sizeof yaml, "{spans: {include: %s}}", e->match);
        check(BR_TRACES, yaml, spans, mark, e->matching, 6);
        (void)snprintf(yaml, sizeof yaml, "{spans: {exclude: %s}}", e->match);
        check(BR_TRACES, yaml, spans, mark, without("123456", e->matching), 6);
    }
    check(BR_TRACES,
          "{spans: {include: {match_type: strict, services: [shop]},"
          " exclude: {match_type: regexp, span_names: ['[24]']}}}",
          spans, mark, "13", 6);
    check(BR_TRACES, "{}", spans, mark, "123456", 6);
    check(BR_TRACES, "{profiles: {exclude: {match_type: regexp, services: ['.*']}}}", spans, mark,
          "123456", 6);
}

/* Records that remain are unchanged. */
static void remaining_records_are_unchanged(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_filter_processor,
                            "{spans: {exclude: {match_type: strict, services: [nobody]}}}");
    struct br_item *item = rig_item(r, BR_TRACES, spans);
    const uint8_t *raw = item->parts[0].raw;
    struct br_buf *buf = br_buf_ref(item->parts[0].buf);
    rig_send(r, item);
    assert_int_equal(r->n_out, 1);
    assert_memory_equal(r->wire->data, raw, r->wire->len);
    br_buf_unref(buf);
    rig_free(r);
}

/* --- Profiles -------------------------------------------------------------------------------- */

/* Samples 101 to 106, named by their values. Profile 1 (cpu, env=prod): 1 thread=main in
 * main>work, 2 thread=io in main>read, 3 without a thread. Profile 2 (alloc_space): 4
 * thread=main in main>work. Service 2: profile 3 (cpu, without samples), profile 4 (cpu): 5 in
 * read inlined into work, 6 without a stack. */
static char samples[] =
    "{'resourceProfiles':["
    "{'resource':{'attributes':[{'key':'service.name','value':{'stringValue':'shop'}}]},"
    "'scopeProfiles':[{'scope':{'name':'lib'},'profiles':["
    "{'sampleType':{'typeStrindex':1},'attributeIndices':[3],'samples':["
    "{'values':['101'],'stackIndex':1,'attributeIndices':[1]},"
    "{'values':['102'],'stackIndex':2,'attributeIndices':[2]},"
    "{'values':['103']}]},"
    "{'sampleType':{'typeStrindex':2},'samples':["
    "{'values':['104'],'stackIndex':1,'attributeIndices':[1]}]}]}]},"
    "{'resource':{'attributes':[{'key':'service.name','value':{'stringValue':'cart'}}]},"
    "'scopeProfiles':[{'profiles':["
    "{'sampleType':{'typeStrindex':1}},"
    "{'sampleType':{'typeStrindex':1},'samples':["
    "{'values':['105'],'stackIndex':3},"
    "{'values':['106']}]}]}]}],"
    "'dictionary':{"
    "'locationTable':[{},{'lines':[{'functionIndex':1}]},{'lines':[{'functionIndex':2}]},"
    "{'lines':[{'functionIndex':3}]},{'lines':[{'functionIndex':3},{'functionIndex':2}]}],"
    "'functionTable':[{},{'nameStrindex':3},{'nameStrindex':4},{'nameStrindex':5}],"
    "'stringTable':['','cpu','alloc_space','main','work','read','thread','io','env'],"
    "'attributeTable':[{},{'keyStrindex':6,'value':{'stringValue':'main'}},"
    "{'keyStrindex':6,'value':{'stringValueStrindex':7}},"
    "{'keyStrindex':8,'value':{'stringValue':'prod'}}],"
    "'stackTable':[{},{'locationIndices':[2,1]},{'locationIndices':[3,1]},"
    "{'locationIndices':[4]}]}}";

static const struct example sample_examples[] = {
    {STRICT("services: [shop]"), "1234"},
    {STRICT("services: [cart]"), "56"},
    {STRICT("sample_types: [cpu]"), "12356"},
    {REGEXP("sample_types: [^alloc]"), "4"},
    {STRICT("functions: [work]"), "145"},
    {STRICT("functions: [read]"), "25"},
    {STRICT("functions: [main]"), "124"},
    {STRICT("functions: [wor]"), ""},
    {REGEXP("functions: ['^r', nothing]"), "25"},
    {STRICT("attributes: [{key: thread}]"), "124"},
    {STRICT("attributes: [{key: thread, value: main}]"), "14"},
    {STRICT("attributes: [{key: thread, value: io}]"), "2"}, /* by reference */
    {STRICT("attributes: [{key: env, value: prod}]"), "123"},
    {STRICT("attributes: [{key: env}, {key: thread, value: main}]"), "1"},
    {REGEXP("attributes: [{key: thread, value: '^i'}]"), "2"},
    {STRICT("resources: [{key: service.name, value: cart}]"), "56"},
    {STRICT("libraries: [{name: lib}]"), "1234"},
    {STRICT("services: [shop], functions: [work], sample_types: [cpu]"), "1"},
};

static void samples_include_and_exclude(void **state)
{
    (void)state;
    static const char mark[] = "\"values\":[\"10";
    for (size_t i = 0; i < BR_COUNT(sample_examples); i++) {
        const struct example *e = &sample_examples[i];
        char yaml[512];
        (void)snprintf(yaml, sizeof yaml, "{profiles: {include: %s}}", e->match);
        check(BR_PROFILES, yaml, samples, mark, e->matching, 6);
        (void)snprintf(yaml, sizeof yaml, "{profiles: {exclude: %s}}", e->match);
        check(BR_PROFILES, yaml, samples, mark, without("123456", e->matching), 6);
    }
    check(BR_PROFILES,
          "{profiles: {include: {match_type: strict, functions: [work]},"
          " exclude: {match_type: strict, functions: [main]}}}",
          samples, mark, "5", 6);
    check(BR_PROFILES, "{spans: {exclude: {match_type: regexp, services: ['.*']}}}", samples, mark,
          "123456", 6);
}

/* --- Conditions ------------------------------------------------------------------------------ */

/* The spans that a condition drops, according to pkg/ottl's LANGUAGE.md, "Comparison Rules". */
static const struct example span_conditions[] = {
    {"name == \"span1\"", "1"},
    {"name != \"span1\"", "23456"},
    {"name < \"span3\"", "12"},
    {"name >= \"span5\"", "56"},
    {"\"span2\" == name", "2"},
    {"kind == SPAN_KIND_SERVER", "1"},
    {"kind == 3", "2"},
    {"kind.string == \"Internal\"", "3"},
    {"kind.deprecated_string == \"SPAN_KIND_UNSPECIFIED\"", "4"},
    {"attributes[\"db\"] == \"redis\"", "1"},
    {"attributes[\"db\"] == nil", "345"},
    {"attributes[\"db\"] != nil", "126"},
    {"nil == attributes[\"db\"]", "345"},
    {"attributes[\"db\"] == \"\"", "6"},
    {"attributes[\"n\"] == 42", "1"},
    {"attributes[\"n\"] == 42.0", "1"},
    {"attributes[\"n\"] == \"42\"", ""},
    {"attributes[\"n\"] != \"42\"", "123456"},
    {"attributes[\"n\"] < 43", "1"},
    {"attributes[\"n\"] >= 42", "1"},
    {"attributes[\"n\"] > 41.5", "1"},
    {"attributes[\"d\"] <= 0.5", "2"},
    {"attributes[\"\\x64\"] <= 5.0e-1", "2"},
    {"attributes[\"d\"] > 1", "3"},
    {"attributes[\"d\"] < nil", ""},
    {"attributes[\"x\"] <= nil", "123456"}, /* x is missing, so its value is nil, too */
    {"attributes[\"db\"] >= nil", "345"},
    {"nil <= attributes[\"db\"]", "345"},
    {"attributes[\"db\"] > nil", ""},
    {"nil >= nil and nil <= nil", "123456"},
    {"nil < nil or nil > nil or nil != nil", ""},
    {"attributes[\"b\"] == true", "3"},
    {"attributes[\"b\"] > false", "3"},
    {"attributes[\"b\"] == 1", ""},
    {"attributes[\"l\"] != nil", "4"},
    {"resource.attributes[\"service.name\"] == \"shop\"", "1234"},
    {"resource.attributes[\"service.name\"] == 7", "6"},
    {"resource.attributes[\"service.name\"] == nil", "5"},
    {"instrumentation_scope.name == \"lib\"", "125"},
    {"scope.version == \"1.0\"", "12"},
    {"scope.version == \"\"", "3456"},
    {"span.name == \"span4\"", "4"},
    {"IsMatch(name, \"^span[1-3]$\")", "123"},
    {"IsMatch(attributes[\"n\"], \"^4\")", "1"},
    {"IsMatch(attributes[\"b\"], \"^true$\")", "3"},
    {"IsMatch(attributes[\"d\"], \"^0[.]5$\")", "2"},
    {"IsMatch(attributes[\"none\"], \".*\")", ""},
    {"not IsMatch(name, \"[12]\")", "3456"},
    {"name == \"span1\" or name == \"span2\" and kind == SPAN_KIND_SERVER", "1"},
    {"(name == \"span1\" or name == \"span2\") and kind == 3", "2"},
    {"not (name == \"span1\" or name == \"span2\")", "3456"},
    {"not (not name == \"span1\")", "1"},
    {"name == \"span1\" or name == \"span2\" or name == \"span3\" or false", "123"},
    {"kind == 2 and name == \"span1\" and true", "1"},
    {"true", "123456"},
    {"false", ""},
    {"status.code == STATUS_CODE_ERROR", "1"},
    {"status.message == \"bad \\\"luck\\\"\"", "1"},
    {"IsRootSpan()", "13456"},
    {"parent_span_id.string == \"0102030405060708\"", "2"},
    {"trace_id.string == \"0102030405060708090a0b0c0d0e0f10\"", "12"},
    {"trace_id.string == span_id.string", ""},
    /* A missing id equals an id of zeros (pcommon.SpanID). */
    {"parent_span_id.string == \"0000000000000000\"", "13456"},
    {"parent_span_id.string == \"\"", ""},
    {"trace_id.string == \"00000000000000000000000000000000\"", "3456"},
    {"start_time_unix_nano > 1000 and end_time_unix_nano == 3000", "1"},
    {"trace_state == \"a=1\"", "2"},
    {"trace_state[\"a\"] == \"1\"", "2"},
    {"trace_state[\"a\"] != \"1\"", "13456"},
    {"span.trace_state[\"b\"] == \"\"", "123456"},
    {"IsMatch(name, \"^span[12]$\") == true", "12"},
    {"IsMatch(name, \"^span[12]$\") != true and name != \"span3\"", "456"},
    {"IsRootSpan() == false", "2"},
    {"not IsMatch(name, \"[12]\") == false", "12"},
};

static const struct example sample_conditions[] = {
    {"attributes[\"env\"] == \"prod\"", "123"},
    {"profile.attributes[\"env\"] == nil", "456"},
    {"sample.attributes[\"thread\"] == \"main\"", "14"},
    {"sample.attributes[\"thread\"] == \"io\"", "2"},
    {"sample.attributes[\"env\"] == \"prod\"", ""},
    {"IsMatch(sample.attributes[\"thread\"], \"^i\")", "2"},
    {"sample_type.type == \"cpu\"", "12356"},
    {"profile.sample_type.unit == \"\"", "123456"},
    {"resource.attributes[\"service.name\"] == \"cart\"", "56"},
    {"scope.name == \"lib\"", "1234"},
    {"period == 0 and duration_unix_nano == 0", "123456"},
    {"sample.attributes[\"thread\"] != nil and resource.attributes[\"service.name\"] == \"shop\"",
     "124"},
};

static const char *config_that_drops(const char *list, const char *condition)
{
    static char yaml[1024];
    char *p = yaml + sprintf(yaml, "{%s: [\"", list);
    for (; *condition; condition++) {
        if (strchr("\"\\", *condition))
            *p++ = '\\';
        *p++ = *condition;
    }
    (void)strcpy(p, strchr(list, '{') ? "\"]}}" : "\"]}");
    return yaml;
}

static void conditions(void **state)
{
    (void)state;
    static const char of_spans[] = "\"name\":\"span", of_samples[] = "\"values\":[\"10";
    for (size_t i = 0; i < BR_COUNT(span_conditions); i++)
        check(BR_TRACES, config_that_drops("traces: {span", span_conditions[i].match), spans,
              of_spans, without("123456", span_conditions[i].matching), 6);
    for (size_t i = 0; i < BR_COUNT(sample_conditions); i++)
        check(BR_PROFILES, config_that_drops("profiles: {profile", sample_conditions[i].match),
              samples, of_samples, without("123456", sample_conditions[i].matching), 6);
    check(BR_TRACES, config_that_drops("traces: {resource", "attributes[\"host.name\"] == \"h1\""),
          spans, of_spans, "56", 6);
    check(BR_PROFILES,
          config_that_drops("profiles: {resource", "attributes[\"service.name\"] == \"shop\""),
          samples, of_samples, "56", 6);
    check(BR_TRACES,
          config_that_drops("trace_conditions",
                            "span.kind == 2 and resource.attributes[\"a\"] == nil"),
          spans, of_spans, "23456", 6);
    check(BR_TRACES,
          "{trace_conditions: [{conditions: ['span.name == \"span1\"', 'span.name == \"span3\"'], "
          "error_mode: ignore}, 'span.name == \"span4\"', {context: span, conditions: "
          "['IsMatch(span.name, \"6\")']}]}",
          spans, of_spans, "25", 6);
    check(BR_PROFILES,
          config_that_drops("profile_conditions", "sample.attributes[\"thread\"] == nil"), samples,
          of_samples, "124", 6);
    /* A record is dropped if any of several conditions is true. This also applies if both forms of
     * conditions are used. */
    check(BR_TRACES,
          "{traces: {span: ['name == \"span1\"', 'name == \"span2\"'], resource: ['false']},"
          " spans: {exclude: {match_type: strict, span_names: [span3]}}}",
          spans, of_spans, "456", 6);
    check(BR_PROFILES, config_that_drops("traces: {span", "true"), samples, of_samples, "123456",
          6);
}

#define TWICE(text) text text
#define EIGHT(text) TWICE(TWICE(TWICE(text)))
#define V80 EIGHT("vvvvvvvvvv")

/* Samples 101 to 106 share values with each other and with their profiles: 72 bytes 0xab (1, 4),
 * a list of 40 numbers (2, 5), a map of a long text (3, 6); d is a double; y and z are texts.
 * Samples 1 to 3, in two profiles, have the same scope. All other samples have scopes that differ
 * from each other and from that scope. */
static char long_values[] =
    "{'resourceProfiles':[{'scopeProfiles':["
    "{'scope':{'name':'lib','version':'1','attributes':[{'key':'s','value':{'stringValue':'one'"
    "}}]},"
    "'profiles':["
    "{'attributeIndices':[1],'samples':[{'values':['101'],'attributeIndices':[1,6,7]},"
    "{'values':['102'],'attributeIndices':[2,6,8]}]},"
    "{'attributeIndices':[2],'samples':[{'values':['103'],'attributeIndices':[3,6,7]}]}]},"
    "{'profiles':[{'attributeIndices':[1],'samples':[{'values':['104'],'attributeIndices':[1,4]"
    "}]}]"
    "},"
    "{'scope':{'name':'other','attributes':[{'key':'s','value':{'stringValue':'two'}}]},'"
    "profiles':["
    "{'attributeIndices':[3],'samples':[{'values':['105'],'attributeIndices':[2,4,6]}]}]}]},"
    "{'scopeProfiles':["
    "{'scope':{'name':'lib','version':'2'},'profiles':["
    "{'samples':[{'values':['106'],'attributeIndices':[3,5,7]}]}]}]}],"
    "'dictionary':{'stringTable':['','x','d','y','z'],'stackTable':[{}],'attributeTable':[{},"
    "{'keyStrindex':1,'value':{'bytesValue':'" EIGHT(
        "q6urq6urq6ur") "'}},"
                        "{'keyStrindex':1,'value':{'arrayValue':{'values':[" EIGHT(
                            "{'intValue':'7'},{'intValue':'7'},{'intValue':'7'},{'intValue':'7'"
                            "},") "{'intValue':'7'},{'intValue':'7'},{'intValue':'7'},{'"
                                  "intValue':'7'},"
                                  "{'intValue':'7'},{'intValue':'7'},{'intValue':'7'},{'"
                                  "intValue':'8'}]}}},"
                                  "{'keyStrindex':1,'value':{'kvlistValue':{'values':["
                                  "{'key':'k','value':{'stringValue':'" V80 "'}}]}}},"
                                  "{'keyStrindex':2,'value':{'doubleValue':0.5}},{'keyStrindex'"
                                  ":2,'value':{'doubleValue':2.5}},"
                                  "{'keyStrindex':3,'value':{'stringValue':'" V80 "'}},"
                                  "{'keyStrindex':4,'value':{'stringValue':'" V80 "'}},"
                                  "{'keyStrindex':4,'value':{'stringValue':'" EIGHT(
                                      "vvvvvvvvvw") "'}}]}}";

static const struct example long_value_conditions[] = {
    {"IsMatch(sample.attributes[\"x\"], \"^(ab){72}$\")", "14"}, /* as hexadecimal text */
    {"IsMatch(sample.attributes[\"x\"], \"^[[](7,){39}8[]]$\")", "25"},
    {"IsMatch(sample.attributes[\"x\"], \"^.{2}k.:.v{80}.{2}$\")", "36"},
    {"IsMatch(sample.attributes[\"x\"], \"secret\")", ""},
    {"IsMatch(sample.attributes[\"x\"], \"ab\") or IsMatch(sample.attributes[\"x\"], \"v\")",
     "1346"},
    {"not IsMatch(sample.attributes[\"x\"], \"ab\")", "2356"},
    {"IsMatch(profile.attributes[\"x\"], \"ab\")", "124"},
    {"IsMatch(profile.attributes[\"x\"], \"7,8\")", "3"},
    {"IsMatch(profile.attributes[\"x\"], \"vv\")", "5"},
    {"IsMatch(sample.attributes[\"d\"], \"^0[.]5$\")", "45"},
    {"IsMatch(sample.attributes[\"d\"], \"^2[.]5$\")", "6"},
    {"IsMatch(sample.attributes[\"y\"], \"v{80}\")", "1235"},
    {"IsMatch(sample.attributes[\"z\"], \"w$\")", "2"},
    /* sample 4 has neither of the two attributes */
    {"sample.attributes[\"y\"] == sample.attributes[\"z\"]", "134"},
    {"sample.attributes[\"y\"] != sample.attributes[\"z\"]", "256"},
    {"sample.attributes[\"y\"] < sample.attributes[\"z\"]", "2"},
    {"sample.attributes[\"z\"] < sample.attributes[\"y\"]", ""},
    {"sample.attributes[\"x\"] == profile.attributes[\"x\"]", "14"},
    {"scope.name == \"lib\"", "1236"},
    {"scope.name == \"\"", "4"},
    {"scope.version == \"1\"", "123"},
    {"scope.version != \"1\"", "456"},
    {"IsMatch(scope.name, \"^oth\")", "5"},
    {"scope.attributes[\"s\"] == \"one\"", "123"},
    {"scope.attributes[\"s\"] == \"two\"", "5"},
    {"instrumentation_scope.attributes[\"s\"] == nil", "46"},
    {"IsMatch(scope.attributes[\"s\"], \"o\")", "1235"},
};

/* Results are remembered for each value or scope of a request. They must not be used for another
 * value, scope or request. */
static void conditions_on_shared_values(void **state)
{
    (void)state;
    static const char mark[] = "\"values\":[\"10";
    for (size_t i = 0; i < BR_COUNT(long_value_conditions); i++)
        check(BR_PROFILES, config_that_drops("profile_conditions", long_value_conditions[i].match),
              long_values, mark, without("123456", long_value_conditions[i].matching), 6);
    struct rig *r = rig_new(&br_filter_processor,
                            config_that_drops("profile_conditions",
                                              "scope.name == \"lib\" or "
                                              "IsMatch(sample.attributes[\"x\"], \"ab\")"));
    for (int i = 0; i < 3; i++) {
        (void)rig_run(r, BR_PROFILES, long_values);
        assert_string_equal(numbers(r, mark), "5");
        (void)rig_run(r, BR_PROFILES, samples);
        assert_string_equal(numbers(r, mark), "56");
    }
    rig_free(r);
}

/* A condition of the maximum depth, and one that is a level deeper. */
static void the_depth_of_conditions_is_limited(void **state)
{
    (void)state;
    struct br_arena arena;
    struct br_conditions c = {.count = 0};
    struct br_err err = {0};
    char text[200];
    br_arena_init(&arena, 0);
    for (int depth = 63; depth <= 64; depth++) {
        memset(text, '(', (size_t)depth);
        (void)strcpy(text + depth, "true");
        memset(text + depth + 4, ')', (size_t)depth);
        text[2 * depth + 4] = '\0';
        assert_int_equal(br_conditions_add(&c, text, BR_TRACES, BR_CONDITION_SPAN, &arena, &err),
                         depth == 63 ? 0 : BR_EINVAL);
    }
    assert_string_equal(err.text, "at character 65: parentheses are nested more than 64 deep");
    assert_int_equal(c.count, 1);
    br_conditions_release(&c);
    br_arena_release(&arena);
}

/* --- Config ---------------------------------------------------------------------------------- */

#define OF_SPANS                                                                                   \
    "attributes, cache, name, kind, kind.string, kind.deprecated_string, status.code, "            \
    "status.message, start_time_unix_nano, end_time_unix_nano, trace_state, trace_id.string, "     \
    "span_id.string, parent_span_id.string, dropped_attributes_count, dropped_events_count, "      \
    "dropped_links_count"
#define OF_SAMPLES                                                                                 \
    "attributes, cache, link.trace_id.string, link.span_id.string, function_names, values, "       \
    "timestamps_unix_nano"

static void configs(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{}",
         "warning: test.yaml:1:1: x: it has neither include, exclude nor conditions: nothing is "
         "dropped\n"},
        {"{spans: {}}",
         "warning: test.yaml:1:1: x: it has neither include, exclude nor conditions: nothing is "
         "dropped\n"},
        {"{spans: {include: {services: [a]}}}", "test.yaml:1:19: x::spans::include: \"match_type\" "
                                                "is missing and has no default: one of strict, "
                                                "regexp\n"},
        {"{spans: {include: {match_type: exact, services: [a]}}}",
         "test.yaml:1:32: x::spans::include::match_type: must be one of strict, regexp, got "
         "\"exact\"\n"},
        {"{spans: {include: {match_type: strict}}}",
         "test.yaml:1:19: x::spans::include: has no criterion, such as services, attributes or "
         "resources\n"},
        {"{spans: {exclude: {match_type: regexp, services: [a, '(']}}}",
         "test.yaml:1:54: x::spans::exclude::services[1]: is not a valid regular expression: "
         "missing "
         "closing parenthesis, at character 2\n"},
        {"{spans: {exclude: {match_type: regexp, attributes: [{key: a, value: '['}]}}}",
         "test.yaml:1:69: x::spans::exclude::attributes[0]::value: is not a valid regular "
         "expression: "
         "missing terminating ] for character class, at character 2\n"},
        {"{spans: {exclude: {match_type: regexp, attributes: [{key: a, value: 1}]}}}",
         "test.yaml:1:69: x::spans::exclude::attributes[0]::value: must be a text if match_type is "
         "regexp; put it in quotes\n"},
        {"{spans: {exclude: {match_type: strict, attributes: [{key: ''}]}}}",
         "test.yaml:1:59: x::spans::exclude::attributes[0]::key: must not be empty\n"},
        {"{spans: {exclude: {match_type: strict, attributes: [{value: 1}]}}}",
         "test.yaml:1:53: x::spans::exclude::attributes[0]: \"key\" is missing and has no "
         "default\n"},
        {"{spans: {exclude: {match_type: strict, span_kinds: [server]}}}",
         "test.yaml:1:53: x::spans::exclude::span_kinds[0]: must be SPAN_KIND_INTERNAL, "
         "SPAN_KIND_SERVER, SPAN_KIND_CLIENT, SPAN_KIND_PRODUCER or SPAN_KIND_CONSUMER\n"},
        {"{spans: {exclude: {match_type: regexp, span_kinds: [SERVER]}}}", ""},
        {"{spans: {exclude: {match_type: strict, functions: [a]}}}",
         "test.yaml:1:40: x::spans::exclude: unknown key \"functions\"; known here: match_type, "
         "regexp, services, span_names, span_kinds, attributes, resources, libraries\n"},
        {"{profiles: {exclude: {match_type: strict, span_names: [a]}}}",
         "test.yaml:1:43: x::profiles::exclude: unknown key \"span_names\"; known here: "
         "match_type, regexp, services, sample_types, functions, attributes, resources, "
         "libraries\n"},
        {"{profiles: {include: {match_type: strict, functions: [a]}}}", ""},
        {"{spans: {include: {match_type: regexp, regexp: {cacheenabled: true, cachemaxnumentries: "
         "5}, services: [a]}}}",
         "warning: test.yaml:1:49: x::spans::include::regexp::cacheenabled: is read and has no "
         "effect: patterns are compiled, and their results are not cached\n"
         "warning: test.yaml:1:69: x::spans::include::regexp::cachemaxnumentries: is read and "
         "has no effect: patterns are compiled, and their results are not cached\n"},
        {"{traces: {span: ['attributes[\"a\"] == 1']}}", ""},
        {"{trace_conditions: ['span.name == \"a\"', name]}",
         "test.yaml:1:41: x::trace_conditions[1]: at character 1: the path name must start with "
         "span, resource or scope\n"},
        {"{profiles: {profile: ['durations > 1'], resource: ['attributes == nil']}}",
         "test.yaml:1:23: x::profiles::profile[0]: at character 1: the path durations is "
         "unknown; paths of profile: attributes, cache, sample_type.type, sample_type.unit, "
         "period_type.type, period_type.unit, time_unix_nano, duration_unix_nano, period, "
         "profile_id.string, dropped_attributes_count, original_payload_format\n"},
        {"{profile_conditions: ['profile.period > 1', 'sample.name == 1']}",
         "test.yaml:1:45: x::profile_conditions[1]: at character 1: the path sample.name is "
         "unknown; paths of sample: " OF_SAMPLES "\n"},
        {"{trace_conditions: [{conditions: ['span.name == \"a\"', name]}, {a: b}]}",
         "test.yaml:1:63: x::trace_conditions[1]: must be conditions, or maps with a list of "
         "conditions under \"conditions\"\n"
         "test.yaml:1:55: x::trace_conditions[0]::conditions[1]: at character 1: the path name "
         "must start with span, resource or scope\n"},
        {"{traces: {span: ['kind', 'not not true']}}",
         "test.yaml:1:18: x::traces::span[0]: at character 5: a comparison is missing: ==, !=, "
         "<, <=, > or >=\n"
         "test.yaml:1:26: x::traces::span[1]: at character 5: the path not is unknown; paths of "
         "span: " OF_SPANS "\n"},
        {"{trace_conditions: ['IsRootSpan()', {conditions: ['IsRootSpan()', 'span.kind == 1']}]}",
         "test.yaml:1:21: x::trace_conditions[0]: no path names a context; begin the paths with "
         "one of span, spanevent, resource and scope\n"},
        {"{traces: {spanevent: ['name == \"a\"']}}",
         "test.yaml:1:22: x::traces::spanevent: events of spans are not dropped here; only whole "
         "spans "
         "are\n"},
        {"{trace_conditions: ['spanevent.name == \"a\"', 'span.spanevent == \"a\"']}",
         "test.yaml:1:21: x::trace_conditions[0]: at character 1: events of spans are not "
         "dropped here; only whole spans are\n"
         "test.yaml:1:46: x::trace_conditions[1]: at character 1: the path span.spanevent is "
         "unknown; paths of span: " OF_SPANS "\n"},
        {"{traces: {span: [\"name == 'a'\"]}}",
         "test.yaml:1:18: x::traces::span[0]: at character 9: a text must be in double quotes\n"},
        {"{traces: {span: ['(name == \"a\"']}}", "test.yaml:1:18: x::traces::span[0]: at character "
                                                 "13: the \"(\" at character 1 has no \")\"\n"},
        {"{traces: {span: ['end_time_unix_nano - > 5']}}",
         "test.yaml:1:18: x::traces::span[0]: at character 22: a path or a literal is required "
         "here\n"},
        {"{traces: {span: ['name == \"a\" && true']}}",
         "test.yaml:1:18: x::traces::span[0]: at character 13: expected \"and\", \"or\" or the end "
         "of the condition\n"},
        {"{profile_conditions: ['Hexx(profile.period) == \"a\"']}",
         "test.yaml:1:23: x::profile_conditions[0]: at character 1: the function Hexx is unknown; "
         "use Concat, ConvertCase, Double, HasPrefix, HasSuffix, Int, IsBool, IsDouble, IsInt, "
         "IsList, IsMap, IsMatch, IsString, Len, ParseJSON, SHA1, SHA256, Split, String, "
         "Substring, "
         "ToLowerCase, ToUpperCase\n"},
        {"{traces: {span: ['cache[\"a\"] == 1']}}",
         "test.yaml:1:18: x::traces::span[0]: at character 1: conditions have no cache\n"},
        {"{traces: {span: ['IsMatch(name, \"(\")']}}",
         "test.yaml:1:18: x::traces::span[0]: at character 15: invalid regular expression: missing "
         "closing parenthesis, at character 2\n"},
        {"{traces: {span: ['IsMatch(name, \"\\x00\")']}}",
         "test.yaml:1:18: x::traces::span[0]: at character 15: a pattern must not contain a NUL\n"},
        {"{traces: {span: ['name == \"a', 'name', '', 'name == \"\\d\"']}}",
         "test.yaml:1:18: x::traces::span[0]: at character 9: the quote that opens here is "
         "never closed\n"
         "test.yaml:1:32: x::traces::span[1]: at character 5: a comparison is missing: ==, !=, "
         "<, <=, > or >=\n"
         "test.yaml:1:40: x::traces::span[2]: at character 1: a path or a literal is required "
         "here\n"
         "test.yaml:1:44: x::traces::span[3]: at character 10: unknown escape; write \\\\ for "
         "a backslash\n"},
        {"{error_mode: fail}",
         "test.yaml:1:14: x::error_mode: must be one of ignore, silent, propagate, got "
         "\"fail\"\n"},
        {"{error_mode: ignore, logs: {}, metrics: {}}",
         "warning: test.yaml:1:22: x::logs: is read and has no effect: option of the Collector "
         "for a signal that Braid does not support\n"
         "warning: test.yaml:1:32: x::metrics: is read and has no effect: option of the "
         "Collector for a signal that Braid does not support\n"
         "warning: test.yaml:1:1: x: it has neither include, exclude nor conditions: nothing "
         "is dropped\n"},
        {"{spans: {exclude: {match_type: regexp, libraries: [{name: a}, {name: b, version: "
         "'('}]}}}",
         "test.yaml:1:82: x::spans::exclude::libraries[1]::version: is not a valid regular "
         "expression: "
         "missing closing parenthesis, at character 2\n"},
        {"{profiles: {include: {match_type: regexp, resources: [{key: a, value: '*'}]}}}",
         "test.yaml:1:71: x::profiles::include::resources[0]::value: is not a valid regular "
         "expression: "
         "quantifier does not follow a repeatable item, at character 1\n"},
        {"{profiles: {exclude: {match_type: strict, sample_types: cpu}}}", ""},
        {"{spans: {include: {match_type: strict}}, profiles: {exclude: {match_type: strict}}, "
         "traces: {span: nothing}}",
         "test.yaml:1:19: x::spans::include: has no criterion, such as services, attributes or "
         "resources\n"
         "test.yaml:1:62: x::profiles::exclude: has no criterion, such as services, attributes "
         "or resources\n"
         "test.yaml:1:100: x::traces::span[0]: at character 1: the path nothing is unknown; paths "
         "of "
         "span: " OF_SPANS "\n"},
    };
    rig_expect_errors(&br_filter_processor, cases, BR_COUNT(cases));
}

/* --- Limits ---------------------------------------------------------------------------------- */

static void exponential_patterns_are_stopped(void **state)
{
    (void)state;
    static char in[40000];
    size_t n = (size_t)snprintf(in, sizeof in,
                                "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":\"");
    memset(in + n, 'a', 30000);
    (void)snprintf(in + n + 30000, sizeof in - n - 30000, "!\"}]}]}]}");
    struct rig *r =
        rig_new(&br_filter_processor, "{match_time: 1h, spans: {exclude: {match_type: regexp, "
                                      "span_names: ['^(a|aa)*$']}}}");
    (void)rig_run(r, BR_TRACES, in);
    assert_int_equal(r->n_out, 1);
    assert_int_equal((int)rig_metric(r, "braid_filter_gave_up", "processor=\"filter\""), 1);
    rig_free(r);
}

/* After the time limit, no condition matches. The time limit applies to each request separately. */
static void matching_has_a_time_limit(void **state)
{
    (void)state;
    struct rig *r = rig_new(
        &br_filter_processor,
        "{match_time: 50ms, spans: {exclude: {match_type: regexp, span_names: ['" LONG_TEXT_PATTERN
        "', '^drop$']}}}");
    char *both = long_text_in("{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":\"",
                              "\"},{\"name\":\"drop\"}]}]}]}");
    (void)rig_run(r, BR_TRACES, both);
    assert_int_equal((int)rig_dropped(r, BR_TRACES, "filtered"), 0);
    assert_true(rig_metric(r, "braid_filter_gave_up", "processor=\"filter\"") >= 2);
    (void)rig_run(r, BR_TRACES,
                  "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":\"drop\"}]}]}]}");
    assert_int_equal((int)rig_dropped(r, BR_TRACES, "filtered"), 1);
    free(both);
    rig_free(r);
}

struct digits {
    const char *mark, *expected;
};

static bool check_output(struct rig *r, void *arg)
{
    const struct digits *d = arg;
    if (r->n_out)
        assert_string_equal(numbers(r, d->mark), d->expected);
    return r->n_out > 0;
}

static unsigned without_memory(enum br_signal signal, const char *yaml, const char *in,
                               const char *mark, const char *expected)
{
    return rig_run_short(&(struct rig_shortage){&br_filter_processor, yaml, signal, in,
                                                .came = check_output,
                                                .arg = &(struct digits){mark, expected}});
}

static void no_memory(void **state)
{
    (void)state;
    assert_in_range(without_memory(BR_TRACES,
                                   "{spans: {include: {match_type: regexp, services: ['7|s'],"
                                   " attributes: [{key: n, value: '4'}]}}}",
                                   spans, "\"name\":\"span", "1"),
                    3, 100);
    assert_in_range(without_memory(BR_PROFILES,
                                   "{profiles: {include: {match_type: strict, functions: [work],"
                                   " attributes: [{key: thread}]}}}",
                                   samples, "\"values\":[\"10", "14"),
                    3, 100);
    assert_in_range(without_memory(BR_TRACES,
                                   "{traces: {span: ['IsMatch(attributes[\"n\"], \"4\")',"
                                   " 'resource.attributes[\"service.name\"] != \"shop\"']}}",
                                   spans, "\"name\":\"span", "234"),
                    3, 100);
    assert_in_range(without_memory(BR_PROFILES,
                                   "{profile_conditions: ['sample.attributes[\"thread\"] == nil or"
                                   " profile.attributes[\"env\"] == nil']}",
                                   samples, "\"values\":[\"10", "12"),
                    3, 100);
    assert_in_range(
        without_memory(BR_PROFILES,
                       "{profile_conditions: ['IsMatch(sample.attributes[\"x\"], \"ab|7\") or "
                       "sample.attributes[\"y\"] < sample.attributes[\"z\"]']}",
                       long_values, "\"values\":[\"10", "36"),
        3, 100);
}

/* Conditions of the Collector that Braid does not support have a separate error code, because
 * --skip-unsupported accepts them. The message is that of the first such condition. */
static void test_conditions_of_events_are_unsupported(void **state)
{
    static const struct {
        const char *text;
        int rc;
    } cases[] = {
        {"spanevent.name == \"a\"", BR_EUNSUPPORTED},
        {"span.name == \"a\" and spanevent.name == \"a\"", BR_EUNSUPPORTED},
        {"span.nothing == \"a\"", BR_EINVAL},
        {"span.nothing == \"a\" and spanevent.name == \"a\"", BR_EINVAL},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_conditions conditions = {.count = 0};
        struct br_arena arena;
        struct br_err err = {0};
        br_arena_init(&arena, 0);
        int rc = br_conditions_add(&conditions, cases[i].text, BR_TRACES, BR_CONDITION_NAMED,
                                   &arena, &err);
        if (rc != cases[i].rc)
            fail_msg("%s gave %d: %s", cases[i].text, rc, err.text);
        br_conditions_release(&conditions);
        br_arena_release(&arena);
    }
}

SUITE(filter)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_include_and_exclude),
        cmocka_unit_test(remaining_records_are_unchanged),
        cmocka_unit_test(samples_include_and_exclude),
        cmocka_unit_test(configs),
        cmocka_unit_test(exponential_patterns_are_stopped),
        cmocka_unit_test(matching_has_a_time_limit),
        cmocka_unit_test(conditions),
        cmocka_unit_test(the_depth_of_conditions_is_limited),
        cmocka_unit_test(test_conditions_of_events_are_unsupported),
        cmocka_unit_test(conditions_on_shared_values),
        cmocka_unit_test(no_memory),
    };
    replace_quotes(spans);
    replace_quotes(samples);
    replace_quotes(long_values);
    return RUN_VARIANTS(tests, rig_order);
}
