/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Include and exclude as the Collector's filterspan, filtermatcher and filterset document and test
 * them (internal/filter, v0.155), and their like for profiles.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/support/rig.h"

extern const struct br_component br_filter_processor;

#define V(k, type, v) "{\"key\":\"" k "\",\"value\":{\"" type "\":" v "}}"
#define S(k, v) V(k, "stringValue", "\"" v "\"")
#define I(k, v) V(k, "intValue", "\"" v "\"")
#define D(k, v) V(k, "doubleValue", v)
#define B(k, v) V(k, "boolValue", v)
#define L(k, v) V(k, "arrayValue", "{\"values\":[" v "]}")
#define M(k, v) V(k, "kvlistValue", "{\"values\":[" v "]}")

#define SPAN(name, kind, attributes)                                                               \
    "{\"name\":\"" name "\",\"kind\":" kind ",\"attributes\":[" attributes "]}"

/* Spans 1 to 4 of service shop, 5 of one without a name, 6 of a service that is a number. */
static const char spans[] =
    "{\"resourceSpans\":[{\"resource\":{\"attributes\":[" S("service.name", "shop") "," S(
        "host.name",
        "h1") "]},\"scopeSpans\":[{\"scope\":{\"name\":\"lib\",\"version\":\"1.0\"},"
              "\"spans\":[" SPAN("span1", "2", S("db", "redis") "," I("n", "42")) "," SPAN(
                  "span2", "3",
                  S("db", "mysql") "," D(
                      "d",
                      "0.5")) "]},"
                              "{\"spans\":[" SPAN(
                                  "span3", "1",
                                  B("b", "true") "," D("d", "1e21") "," D(
                                      "tiny",
                                      "1e-7")) "," SPAN("span4", "0",
                                                        L("l", "{\"intValue\":\"1\"},{"
                                                               "\"stringValue\":\"x\"}") "," M(
                                                            "m",
                                                            I("k", "1") "," S(
                                                                "j",
                                                                "v"))) "]}]},{\"scopeSpans\":[{"
                                                                       "\"scope\":{\"name\":"
                                                                       "\"lib\"},\"spans\":[" SPAN(
                                                                           "span5", "4",
                                                                           "") "]}]},{"
                                                                               "\"resource\":{"
                                                                               "\"attributes\":"
                                                                               "[" I(
                                                                                   "service."
                                                                                   "name",
                                                                                   "7") "]},"
                                                                                        "\"sco"
                                                                                        "peSpa"
                                                                                        "ns\":"
                                                                                        "[{"
                                                                                        "\"spa"
                                                                                        "ns\":"
                                                                                        "[" SPAN(
                                                                                            "span6",
                                                                                            "5",
                                                                                            S("db",
                                                                                              "")) "]}]}]}";

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
    for (size_t i = 0; i < sizeof span_examples / sizeof *span_examples; i++) {
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
#define SAMPLE(n, rest) "{\"values\":[\"10" n "\"]" rest "}"
static const char samples[] = "{\"resourceProfiles\":[{\"resource\":{\"attributes\":[" S(
    "service.name",
    "shop") "]},"
            "\"scopeProfiles\":[{\"scope\":{\"name\":\"lib\"},\"profiles\":["
            "{\"sampleType\":{\"typeStrindex\":1},\"attributeIndices\":[3],\"samples\":"
            "[" SAMPLE("1", ",\"stackIndex\":1,\"attributeIndices\":[1]") "," SAMPLE(
                "2",
                ",\"stackIndex\":2,"
                "\"attributeIndices\":["
                "2]") "," SAMPLE("3",
                                 "") "]},{\"sampleType\":{\"typeStrindex\":2},\"samples\":"
                                     "[" SAMPLE(
                                         "4",
                                         ",\"stackIndex\":1,"
                                         "\"attributeIndices\":[1]") "]}]}]},{"
                                                                     "\"resource\":{"
                                                                     "\"attributes\":"
                                                                     "[" S(
                                                                         "service."
                                                                         "name",
                                                                         "cart") "]},"
                                                                                 "\"sc"
                                                                                 "opeP"
                                                                                 "rofi"
                                                                                 "les"
                                                                                 "\":["
                                                                                 "{"
                                                                                 "\"pr"
                                                                                 "ofil"
                                                                                 "es\""
                                                                                 ":[{"
                                                                                 "\"sa"
                                                                                 "mple"
                                                                                 "Type"
                                                                                 "\":{"
                                                                                 "\"ty"
                                                                                 "peSt"
                                                                                 "rind"
                                                                                 "ex\""
                                                                                 ":1}}"
                                                                                 ",{"
                                                                                 "\"sa"
                                                                                 "mple"
                                                                                 "Type"
                                                                                 "\":{"
                                                                                 "\"ty"
                                                                                 "peSt"
                                                                                 "rind"
                                                                                 "ex\""
                                                                                 ":1},"
                                                                                 "\"sa"
                                                                                 "mple"
                                                                                 "s\":"
                                                                                 "[" SAMPLE("5", ","
                                                                                                 "\"stackIndex\":3") "," SAMPLE(
                                                                                     "6",
                                                                                     "") "]}]}]}],"
                                                                                         "\"diction"
                                                                                         "ary\":{"
                                                                                         "\"locatio"
                                                                                         "nTable\":"
                                                                                         "[{},{"
                                                                                         "\"lines\""
                                                                                         ":[{"
                                                                                         "\"functio"
                                                                                         "nIndex\":"
                                                                                         "1}]},"
                                                                                         "{\"lines"
                                                                                         "\":[{"
                                                                                         "\"functio"
                                                                                         "nIndex\":"
                                                                                         "2}]},{"
                                                                                         "\"lines\""
                                                                                         ":[{"
                                                                                         "\"functio"
                                                                                         "nIndex\":"
                                                                                         "3}]},"
                                                                                         "{\"lines"
                                                                                         "\":[{"
                                                                                         "\"functio"
                                                                                         "nIndex\":"
                                                                                         "3},{"
                                                                                         "\"functio"
                                                                                         "nIndex\":"
                                                                                         "2}]}],"
                                                                                         "\"functio"
                                                                                         "nTable\":"
                                                                                         "[{},{"
                                                                                         "\"nameStr"
                                                                                         "index\":"
                                                                                         "3},{"
                                                                                         "\"nameStr"
                                                                                         "index\":"
                                                                                         "4},{"
                                                                                         "\"nameStr"
                                                                                         "index\":"
                                                                                         "5}],"
                                                                                         "\"stringT"
                                                                                         "able\":["
                                                                                         "\"\","
                                                                                         "\"cpu\","
                                                                                         "\"alloc_"
                                                                                         "space\","
                                                                                         "\"main\","
                                                                                         "\"work\","
                                                                                         "\"read\","
                                                                                         "\"thread"
                                                                                         "\","
                                                                                         "\"io\","
                                                                                         "\"env\"],"
                                                                                         "\"attribu"
                                                                                         "teTable\""
                                                                                         ":[{},"
                                                                                         "{\"keyStr"
                                                                                         "index\":"
                                                                                         "6,"
                                                                                         "\"value\""
                                                                                         ":{"
                                                                                         "\"stringV"
                                                                                         "alue\":"
                                                                                         "\"main\"}"
                                                                                         "},"
                                                                                         "{\"keyStr"
                                                                                         "index\":"
                                                                                         "6,"
                                                                                         "\"value\""
                                                                                         ":{"
                                                                                         "\"stringV"
                                                                                         "alueStrin"
                                                                                         "dex\":7}}"
                                                                                         ","
                                                                                         "{\"keyStr"
                                                                                         "index\":"
                                                                                         "8,"
                                                                                         "\"value\""
                                                                                         ":{"
                                                                                         "\"stringV"
                                                                                         "alue\":"
                                                                                         "\"prod\"}"
                                                                                         "}],"
                                                                                         "\"stackTa"
                                                                                         "ble\":[{}"
                                                                                         ",{"
                                                                                         "\"locatio"
                                                                                         "nIndices"
                                                                                         "\":[2,1]}"
                                                                                         ",{"
                                                                                         "\"locatio"
                                                                                         "nIndices"
                                                                                         "\":[3,1]}"
                                                                                         ","
                                                                                         "{\"locati"
                                                                                         "onIndices"
                                                                                         "\":[4]}]}"
                                                                                         "}";

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
    for (size_t i = 0; i < sizeof sample_examples / sizeof *sample_examples; i++) {
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
        {"{}", ""},
        {"{spans: {include: {services: [a]}}}", "match_type"},
        {"{spans: {include: {match_type: exact, services: [a]}}}", "strict"},
        {"{spans: {include: {match_type: strict}}}", "x::spans::include: has no criterion"},
        {"{spans: {exclude: {match_type: regexp, services: [a, '(']}}}",
         "x::spans::exclude::services[1]: is no regular expression"},
        {"{spans: {exclude: {match_type: regexp, attributes: [{key: a, value: '['}]}}}",
         "x::spans::exclude::attributes[0]::value: is no regular expression"},
        {"{spans: {exclude: {match_type: regexp, attributes: [{key: a, value: 1}]}}}",
         "needs to be a text"},
        {"{spans: {exclude: {match_type: strict, attributes: [{key: ''}]}}}", "must not be empty"},
        {"{spans: {exclude: {match_type: strict, attributes: [{value: 1}]}}}", "key"},
        {"{spans: {exclude: {match_type: strict, span_kinds: [server]}}}", "SPAN_KIND_SERVER"},
        {"{spans: {exclude: {match_type: regexp, span_kinds: [SERVER]}}}", ""},
        {"{spans: {exclude: {match_type: strict, functions: [a]}}}", "functions"},
        {"{profiles: {exclude: {match_type: strict, span_names: [a]}}}", "span_names"},
        {"{profiles: {include: {match_type: strict, functions: [a]}}}", ""},
        {"{spans: {include: {match_type: regexp, regexp: {cacheenabled: true, cachemaxnumentries: "
         "5}, services: [a]}}}",
         "warning"},
        {"{traces: {span: ['attributes[\"a\"] == 1']}}", "OTTL"},
        {"{trace_conditions: ['span.name == \"a\"']}", "OTTL"},
        {"{profile_conditions: ['profile.duration > 1']}", "OTTL"},
        {"{profiles: {profile: ['duration > 1']}}", "OTTL"},
        {"{profiles: {resource: ['attributes[\"a\"] == 1']}}", "OTTL"},
        {"{error_mode: ignore, logs: {}, metrics: {}}", "warning"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = rig_errors(&br_filter_processor, cases[i][0]);
        printf("@@%s@@%s@@\n", cases[i][0], got);
    }
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
    struct rig *r = rig_new(&br_filter_processor,
                            "{spans: {exclude: {match_type: regexp, span_names: ['^(a|aa)*$']}}}");
    (void)rig_run(r, BR_TRACES, in);
    assert_int_equal(r->n_out, 1);
    rig_free(r);
}

static size_t left;

static bool fails(void)
{
    return left && --left == 0;
}

static void *failing_alloc(size_t size)
{
    return fails() ? NULL : malloc(size);
}

static void *failing_resize(void *p, size_t size)
{
    return fails() ? NULL : realloc(p, size);
}

static const struct br_mem_hooks failing = {failing_alloc, failing_resize, free};

static unsigned without_memory(enum br_signal signal, const char *yaml, const char *in,
                               const char *mark, const char *expected)
{
    unsigned refused = 0;
    for (size_t n = 1;; n++) {
        struct rig *r = rig_new(&br_filter_processor, yaml);
        struct br_item *item = rig_item(r, signal, in);
        br_mem_set_hooks(&failing);
        left = n;
        r->node.component->consume(&r->node, item);
        bool failed = left == 0;
        left = 0;
        br_mem_set_hooks(NULL);
        rig_turn(r);
        assert_int_equal(r->n_ended, 1);
        if (r->n_out)
            assert_string_equal(numbers(r, mark), expected);
        else
            assert_int_equal(r->outcome.verdict, BR_RETRY);
        refused += !r->n_out;
        rig_free(r);
        if (!failed)
            return refused;
    }
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
        cmocka_unit_test(hard_pattern),       cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
