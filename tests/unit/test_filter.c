/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Include and exclude as the Collector's filterspan, filtermatcher and filterset document and test
 * them (internal/filter, v0.155), and their like for profiles.
 */
#include "base/mem.h"
#include "tests/support/long_text.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_filter_processor;

/* JSON with ' in place of ", which main puts right. Spans 1 to 4 of service shop, 5 of one without
 * a name, 6 of a service that is a number. */
static char spans[] =
    "{'resourceSpans':["
    "{'resource':{'attributes':[{'key':'service.name','value':{'stringValue':'shop'}},"
    "{'key':'host.name','value':{'stringValue':'h1'}}]},'scopeSpans':["
    "{'scope':{'name':'lib','version':'1.0'},'spans':["
    "{'name':'span1','kind':2,'attributes':[{'key':'db','value':{'stringValue':'redis'}},"
    "{'key':'n','value':{'intValue':'42'}}]},"
    "{'name':'span2','kind':3,'attributes':[{'key':'db','value':{'stringValue':'mysql'}},"
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

static void put_right(char *json)
{
    for (char *p = json; (p = strchr(p, '\''));)
        *p = '"';
}

/* The digits behind `mark` in what came out. */
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
                  const char *expected, size_t n_items)
{
    struct rig *r = rig_new(&br_filter_processor, yaml);
    (void)rig_run(r, signal, in);
    const char *got = numbers(r, mark);
    if (strcmp(got, expected) != 0)
        fail_msg("%s: \"%s\" stay, not \"%s\"", yaml, got, expected);
    assert_int_equal(rig_dropped(r, signal, "filtered"), n_items - strlen(expected));
    assert_int_equal(r->n_out, *expected != '\0');
    if (!*expected)
        assert_int_equal(r->outcome.verdict, BR_DONE);
    rig_free(r);
}

#define STRICT(criteria) "{match_type: strict, " criteria "}"
#define REGEXP(criteria) "{match_type: regexp, " criteria "}"

struct example {
    const char *match; /* as include */
    const char *yes;   /* what matches */
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
    /* attributes: all of them; by type, or by the text of the value */
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
    /* every criterion has to match */
    {STRICT("services: [shop], span_names: [span2, span5]"), "2"},
    {STRICT("services: [shop], attributes: [{key: db}], span_kinds: [SPAN_KIND_SERVER]"), "1"},
};

/* `all` without the digits in `some`. */
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

static void spans_in_and_out(void **state)
{
    (void)state;
    static const char mark[] = "\"name\":\"span";
    for (size_t i = 0; i < BR_COUNT(span_examples); i++) {
        const struct example *e = &span_examples[i];
        char yaml[512];
        (void)snprintf(yaml, sizeof yaml, "{spans: {include: %s}}", e->match);
        check(BR_TRACES, yaml, spans, mark, e->yes, 6);
        (void)snprintf(yaml, sizeof yaml, "{spans: {exclude: %s}}", e->match);
        check(BR_TRACES, yaml, spans, mark, without("123456", e->yes), 6);
    }
    check(BR_TRACES,
          "{spans: {include: {match_type: strict, services: [shop]},"
          " exclude: {match_type: regexp, span_names: ['[24]']}}}",
          spans, mark, "13", 6);
    check(BR_TRACES, "{}", spans, mark, "123456", 6);
    check(BR_TRACES, "{profiles: {exclude: {match_type: regexp, services: ['.*']}}}", spans, mark,
          "123456", 6);
}

/* What stays leaves as it came. */
static void untouched(void **state)
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

/* Samples 101 to 106 by their values. Profile 1 (cpu, env=prod): 1 thread=main in main>work, 2
 * thread=io in main>read, 3 without. Profile 2 (alloc_space): 4 thread=main in main>work. Service
 * 2: profile 3 (cpu, without samples), profile 4 (cpu): 5 in read inlined into work, 6 without a
 * stack. */
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

static void samples_in_and_out(void **state)
{
    (void)state;
    static const char mark[] = "\"values\":[\"10";
    for (size_t i = 0; i < BR_COUNT(sample_examples); i++) {
        const struct example *e = &sample_examples[i];
        char yaml[512];
        (void)snprintf(yaml, sizeof yaml, "{profiles: {include: %s}}", e->match);
        check(BR_PROFILES, yaml, samples, mark, e->yes, 6);
        (void)snprintf(yaml, sizeof yaml, "{profiles: {exclude: %s}}", e->match);
        check(BR_PROFILES, yaml, samples, mark, without("123456", e->yes), 6);
    }
    check(BR_PROFILES,
          "{profiles: {include: {match_type: strict, functions: [work]},"
          " exclude: {match_type: strict, functions: [main]}}}",
          samples, mark, "5", 6);
    check(BR_PROFILES, "{spans: {exclude: {match_type: regexp, services: ['.*']}}}", samples, mark,
          "123456", 6);
}

/* --- Config ---------------------------------------------------------------------------------- */

static void configs(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{}",
         "warning: test.yaml:1:1: x: neither spans nor profiles has include or exclude: nothing is "
         "dropped\n"},
        {"{spans: {}}",
         "warning: test.yaml:1:1: x: neither spans nor profiles has include or exclude: nothing is "
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
         "test.yaml:1:54: x::spans::exclude::services[1]: is no regular expression: missing "
         "closing parenthesis, at character 2\n"},
        {"{spans: {exclude: {match_type: regexp, attributes: [{key: a, value: '['}]}}}",
         "test.yaml:1:69: x::spans::exclude::attributes[0]::value: is no regular expression: "
         "missing terminating ] for character class, at character 2\n"},
        {"{spans: {exclude: {match_type: regexp, attributes: [{key: a, value: 1}]}}}",
         "test.yaml:1:69: x::spans::exclude::attributes[0]::value: needs to be a text where "
         "match_type is regexp; put it in quotes\n"},
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
         "effect: patterns are compiled and not cached\n"
         "warning: test.yaml:1:69: x::spans::include::regexp::cachemaxnumentries: is read and has "
         "no effect: patterns are compiled and not cached\n"},
        {"{traces: {span: ['attributes[\"a\"] == 1']}}",
         "test.yaml:1:10: x::traces: conditions in the Collector's expression language (OTTL) are "
         "not supported; use spans or profiles with include and exclude, of match_type strict or "
         "regexp\n"},
        {"{trace_conditions: ['span.name == \"a\"']}",
         "test.yaml:1:20: x::trace_conditions: conditions in the Collector's expression language "
         "(OTTL) are not supported; use spans or profiles with include and exclude, of match_type "
         "strict or regexp\n"},
        {"{profile_conditions: ['profile.duration > 1']}",
         "test.yaml:1:22: x::profile_conditions: conditions in the Collector's expression language "
         "(OTTL) are not supported; use spans or profiles with include and exclude, of match_type "
         "strict or regexp\n"},
        {"{profiles: {profile: ['duration > 1']}}",
         "test.yaml:1:22: x::profiles::profile: conditions in the Collector's expression language "
         "(OTTL) are not supported; use spans or profiles with include and exclude, of match_type "
         "strict or regexp\n"},
        {"{profiles: {resource: ['attributes[\"a\"] == 1']}}",
         "test.yaml:1:23: x::profiles::resource: conditions in the Collector's expression language "
         "(OTTL) are not supported; use spans or profiles with include and exclude, of match_type "
         "strict or regexp\n"},
        {"{error_mode: ignore, logs: {}, metrics: {}}",
         "warning: test.yaml:1:2: x::error_mode: is read and has no effect: of the "
         "Collector's, for its expression language\n"
         "warning: test.yaml:1:22: x::logs: is read and has no effect: of the "
         "Collector's, for a signal that is not here\n"
         "warning: test.yaml:1:32: x::metrics: is read and has no effect: of the "
         "Collector's, for a signal that is not here\n"
         "warning: test.yaml:1:1: x: neither spans nor profiles has include or exclude: nothing is "
         "dropped\n"},
        {"{spans: {exclude: {match_type: regexp, libraries: [{name: a}, {name: b, version: "
         "'('}]}}}",
         "test.yaml:1:82: x::spans::exclude::libraries[1]::version: is no regular expression: "
         "missing closing parenthesis, at character 2\n"},
        {"{profiles: {include: {match_type: regexp, resources: [{key: a, value: '*'}]}}}",
         "test.yaml:1:71: x::profiles::include::resources[0]::value: is no regular expression: "
         "quantifier does not follow a repeatable item, at character 1\n"},
        {"{profiles: {exclude: {match_type: strict, sample_types: cpu}}}", ""},
        {"{spans: {include: {match_type: strict}}, profiles: {exclude: {match_type: strict}}, "
         "traces: []}",
         "test.yaml:1:19: x::spans::include: has no criterion, such as services, attributes or "
         "resources\n"
         "test.yaml:1:62: x::profiles::exclude: has no criterion, such as services, attributes or "
         "resources\n"
         "test.yaml:1:93: x::traces: conditions in the Collector's expression language (OTTL) are "
         "not supported; use spans or profiles with include and exclude, of match_type strict or "
         "regexp\n"},
    };
    rig_expect_errors(&br_filter_processor, cases, BR_COUNT(cases));
}

/* --- Bounds ---------------------------------------------------------------------------------- */

static void hard_pattern(void **state)
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

/* Nothing matches when the time is spent; the next request has its own. */
static void matching_has_a_time(void **state)
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

static bool came(struct rig *r, void *arg)
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
                                                .came = came,
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
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_in_and_out),   cmocka_unit_test(untouched),
        cmocka_unit_test(samples_in_and_out), cmocka_unit_test(configs),
        cmocka_unit_test(hard_pattern),       cmocka_unit_test(matching_has_a_time),
        cmocka_unit_test(no_memory),
    };
    put_right(spans);
    put_right(samples);
    int failed = 0;
    for (unsigned order = 0; order < REORDERS; order++) {
        rig_set_order((enum reorder)order);
        failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed;
}
