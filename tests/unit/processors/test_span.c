/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The span processor. The expected values are from the documentation and the source of the
 * Collector's spanprocessor (0.165).
 */
#include "base/mem.h"
#include "tests/support/long_text.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_span_processor;

#define V(k, type, v) "{\"key\":\"" k "\",\"value\":{\"" type "\":" v "}}"
#define S(k, v) V(k, "stringValue", "\"" v "\"")
#define GAVE_UP "braid_span_gave_up"

/* Returns a request with one span of the service "shop". `attributes` and `status` are JSON; ""
 * means that the span does not have the field. */
static const char *span(const char *name, const char *attributes, const char *status)
{
    static char text[4][2048];
    static int next;
    char *out = text[next++ % 4];
    (void)snprintf(out, sizeof text[0],
                   "{\"resourceSpans\":[{\"resource\":{\"attributes\":[" S(
                       "service.name", "shop") "]},\"scopeSpans\":[{\"spans\":[{\"name\":\"%s\","
                                               "\"kind\":2%s%s%s%s%s}]}]}]}",
                   name, *attributes ? ",\"attributes\":[" : "", attributes, *attributes ? "]" : "",
                   *status ? ",\"status\":" : "", status);
    return out;
}

static void expect(const char *yaml, const char *in, const char *out)
{
    struct rig *r = rig_new(&br_span_processor, yaml);
    assert_string_equal(rig_run(r, BR_TRACES, in), out);
    rig_free(r);
}

/* --- Names from attributes -------------------------------------------------------------------- */

static void names_from_attributes(void **state)
{
    (void)state;
#define SOURCES S("db.svc", "location") "," S("operation", "get")
    static const char yaml[] = "name: {from_attributes: [db.svc, operation], separator: '::'}";
    expect(yaml, span("old", SOURCES, ""), span("location::get", SOURCES, ""));
    /* one attribute is missing, or the span does not have attributes: the name is kept */
    expect(yaml, span("old", S("db.svc", "location"), ""),
           span("old", S("db.svc", "location"), ""));
    expect(yaml, span("old", "", ""), span("old", "", ""));
    expect("name: {from_attributes: [operation, db.svc]}", span("old", SOURCES, ""),
           span("getlocation", SOURCES, ""));
}

/* A double is written as by Go's FormatFloat(v, 'f', -1, 64). */
static void names_from_values_of_other_types(void **state)
{
    (void)state;
    static const struct {
        const char *value, *name;
    } cases[] = {
        {V("k", "boolValue", "true"), "true"},
        {V("k", "intValue", "\"-123\""), "-123"},
        {V("k", "doubleValue", "9.14"), "9.14"},
        {V("k", "doubleValue", "1e21"), "1000000000000000000000"},
        {V("k", "bytesValue", "\"AQ==\""), "<unknown-attribute-type>"},
        {V("k", "arrayValue", "{\"values\":[]}"), "<unknown-attribute-type>"},
        {"{\"key\":\"k\",\"value\":{}}", "<unknown-attribute-type>"},
        {S("k", ""), ""},
    };
    struct rig *r = rig_new(&br_span_processor, "name: {from_attributes: [k]}");
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        const char *out = rig_run(r, BR_TRACES, span("old", cases[i].value, ""));
        char expected[64];
        (void)snprintf(expected, sizeof expected, "\"name\":\"%s\"", cases[i].name);
        assert_null(strstr(out, "\"old\""));
        if (*cases[i].name)
            assert_non_null(strstr(out, expected));
        else /* an empty field is not written */
            assert_null(strstr(out, "\"name\""));
    }
    rig_free(r);
}

/* --- Attributes from names -------------------------------------------------------------------- */

#define RULES(rules) "name: {to_attributes: {rules: [" rules "]}}"
#define DOCUMENT "'^\\/api\\/v1\\/document\\/(?P<documentId>.*)\\/update$'"
#define BOTH "'^\\/api\\/(?P<version>.*)\\/document\\/(?P<documentId>.*)\\/update$'"

static void attributes_from_names(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *name, *attributes, *new_name, *new_attributes;
    } cases[] = {
        {RULES(DOCUMENT), "/api/v1/document/12345678/update", "",
         "/api/v1/document/{documentId}/update", S("documentId", "12345678")},
        {RULES(BOTH), "/api/v1/document/321083210/update", "",
         "/api/{version}/document/{documentId}/update",
         S("version", "v1") "," S("documentId", "321083210")},
        /* an existing attribute is overwritten */
        {RULES(DOCUMENT), "/api/v1/document/7/update", S("documentId", "x") "," S("b", "c"),
         "/api/v1/document/{documentId}/update", S("documentId", "7") "," S("b", "c")},
        /* no match */
        {RULES(DOCUMENT), "/api/v2/document/7/update", S("b", "c"), "/api/v2/document/7/update",
         S("b", "c")},
        /* each rule works on the name that the previous rule produced */
        {RULES("'^/users/(?P<user>[0-9]+)', '^/users/(?P<second>[^/]+)/'"), "/users/42/orders", "",
         "/users/{second}/orders", S("user", "42") "," S("second", "{user}")},
        {"name: {to_attributes: {break_after_match: true, rules: ['^/x', '^/users/(?P<user>[0-9]+)"
         "', '^/users/(?P<second>[^/]+)/']}}",
         "/users/42/orders", "", "/users/{user}/orders", S("user", "42")},
        {"name: {to_attributes: {keep_original_name: true, rules: [" DOCUMENT "]}}",
         "/api/v1/document/7/update", "", "/api/v1/document/7/update", S("documentId", "7")},
        /* the name from from_attributes is the input of the rules */
        {"name: {from_attributes: [k], to_attributes: {rules: ['(?P<n>[0-9]+)']}}", "old",
         S("k", "a12b"), "a{n}b", S("k", "a12b") "," S("n", "12")},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++)
        expect(cases[i].yaml, span(cases[i].name, cases[i].attributes, ""),
               span(cases[i].new_name, cases[i].new_attributes, ""));
}

/* If groups are optional or nested, the Collector stops with a panic. */
static void groups_that_do_not_follow_each_other(void **state)
{
    (void)state;
    expect(RULES("'^(?P<a>x)|(?P<b>y)'"), span("y", "", ""), span("{b}", S("b", "y"), ""));
    expect(RULES("'^/(?P<outer>a(?P<inner>[0-9]))/'"), span("/a1/z", "", ""),
           span("/{outer}/z", S("outer", "a1") "," S("inner", "1"), ""));
}

static void an_empty_name_has_no_match(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_span_processor, RULES("'(?P<all>.*)'"));
    const char *out = rig_run(r, BR_TRACES, span("", "", ""));
    assert_null(strstr(out, "all"));
    rig_free(r);
}

/* --- Status ----------------------------------------------------------------------------------- */

static void statuses(void **state)
{
    (void)state;
    static const char old[] = "{\"message\":\"before\",\"code\":2}";
    expect("status: {code: Error, description: broken}", span("a", "", ""),
           span("a", "", "{\"message\":\"broken\",\"code\":2}"));
    expect("status: {code: Error, description: broken}", span("a", S("k", "v"), old),
           span("a", S("k", "v"), "{\"message\":\"broken\",\"code\":2}"));
    expect("status: {code: Error}", span("a", "", old), span("a", "", "{\"code\":2}"));
    expect("status: {code: Ok}", span("a", "", old), span("a", "", "{\"code\":1}"));
    expect("status: {code: Unset}", span("a", "", old), span("a", "", ""));
    expect("{status: {code: Ok}, name: {from_attributes: [k]}}", span("a", S("k", "v"), old),
           span("v", S("k", "v"), "{\"code\":1}"));
}

/* --- Selection -------------------------------------------------------------------------------- */

static void include_and_exclude(void **state)
{
    (void)state;
    static const struct {
        const char *criteria;
        bool a, b; /* whether spans a and b are changed */
    } cases[] = {
        {"include: {match_type: strict, services: [shop]}", true, true},
        {"include: {match_type: regexp, span_names: ['^a']}", true, false},
        {"exclude: {match_type: strict, span_names: [a]}", false, true},
        {"include: {match_type: strict, services: [shop]}, exclude: {match_type: strict, "
         "attributes: [{key: k, value: v}]}",
         false, false},
        {"include: {match_type: strict, span_kinds: [SPAN_KIND_CLIENT]}", false, false},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        char yaml[512];
        (void)snprintf(yaml, sizeof yaml, "{status: {code: Ok}, %s}", cases[i].criteria);
        for (int b = 0; b < 2; b++)
            expect(yaml, span(b ? "b" : "a", S("k", "v"), ""),
                   span(b ? "b" : "a", S("k", "v"),
                        (b ? cases[i].b : cases[i].a) ? "{\"code\":1}" : ""));
    }
}

/* --- Config and limits ------------------------------------------------------------------------ */

static void configs(void **state)
{
    (void)state;
#define NOTHING "changes nothing: set name::from_attributes, name::to_attributes::rules or status\n"
    static const char *const cases[][2] = {
        {"{}", "test.yaml:1:1: x: " NOTHING},
        {"name: {to_attributes: {rules: []}}", "test.yaml:1:1: x: " NOTHING},
        {"name: {to_attributes: {rules: [a, '(']}}",
         "test.yaml:1:7: x::name::to_attributes::rules[1]: is not a valid regular expression: "
         "missing closing parenthesis, at character 2\n"},
        {"status: {code: fine}",
         "test.yaml:1:16: x::status::code: must be one of Unset, Ok, Error, got \"fine\"\n"},
        {"status: {description: a}", "test.yaml:1:9: x::status: \"code\" is missing and has no "
                                     "default: one of Unset, Ok, Error\n"},
        {"status: {code: Ok, description: a}",
         "test.yaml:1:9: x: status::description requires the code Error, got Ok\n"},
        {"{status: {code: Ok}, include: {match_type: strict}}",
         "test.yaml:1:31: x::include: has no criterion, such as services, attributes or "
         "resources\n"},
    };
    rig_expect_errors(&br_span_processor, cases, BR_COUNT(cases));
}

/* A pattern whose match takes too long matches nothing. The next request has its own time. */
static void matching_has_a_time_limit(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_span_processor,
                            "{match_time: 50ms, name: {to_attributes: {rules: ['" LONG_TEXT_PATTERN
                            "', '(?P<n>short)']}}}");
    char *hostile =
        long_text_in("{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":\"", "\"}]}]}]}");
    (void)rig_run(r, BR_TRACES, hostile);
    assert_int_equal(r->n_out, 1);
    assert_true(rig_metric(r, GAVE_UP, "processor=\"span\"") >= 1);
    const char *out = rig_run(r, BR_TRACES, span("short", "", ""));
    assert_non_null(strstr(out, "\"{n}\""));
    free(hostile);
    rig_free(r);
}

static void no_memory(void **state)
{
    (void)state;
    const struct rig_shortage shortage = {
        .component = &br_span_processor,
        .yaml = "{name: {from_attributes: [k], to_attributes: {rules: ['(?P<n>[0-9]+)']}}, "
                "status: {code: Error, description: d}, include: {match_type: regexp, span_names: "
                "[a]}}",
        .signal = BR_TRACES,
        .json = span("a", S("k", "x12"), ""),
        .expected = span("x{n}", S("k", "x12") "," S("n", "12"), "{\"message\":\"d\",\"code\":2}"),
    };
    assert_true(rig_run_short(&shortage) > 0);
}

static void hostile_bytes(void **state)
{
    (void)state;
    struct rig *r =
        rig_new(&br_span_processor, "{name: {from_attributes: [k], to_attributes: {rules: "
                                    "['(?P<n>[0-9]+)']}}, status: {code: Ok}}");
    assert_true(rig_send_mutants(r, BR_TRACES, span("a", S("k", "x12"), "{\"code\":2}"), 2000) >
                100);
    rig_free(r);
}

SUITE(span)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_from_attributes),
        cmocka_unit_test(names_from_values_of_other_types),
        cmocka_unit_test(attributes_from_names),
        cmocka_unit_test(groups_that_do_not_follow_each_other),
        cmocka_unit_test(an_empty_name_has_no_match),
        cmocka_unit_test(statuses),
        cmocka_unit_test(include_and_exclude),
        cmocka_unit_test(configs),
        cmocka_unit_test(matching_has_a_time_limit),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(hostile_bytes),
    };
    return RUN_VARIANTS(tests, rig_order);
}
