/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs TraceQL queries over a trace written by hand:
 *
 *     0 checkout   GET /cart      server  1000 ms  ok     (root)
 *     1   checkout   charge       client   600 ms  error  attempt 1, 1.5 ratio, retried, tags a b
 *     2     payments   charge     server   500 ms  unset  attempt 2, event exception, a link
 *     3       payments   db.query client   100 ms  unset
 *     4   checkout   render       internal 200 ms  unset  attempt "2"
 *
 * The expected results follow from this table.
 */
#include "opentelemetry/proto/trace/v1/trace.pb-c.h"
#include "query/traceql.h"
#include "tests/support/corpus.h"
#include "tests/support/fake_sink.h"
#include "tests/support/otlp_text.h"
#include "tests/support/reorder.h"
#include "tests/support/test.h"
#include "tests/support/traceql_fuzz.h"
#include "tests/support/wire.h"

#define MS 1000000u

/* The test replaces the functions of the store. The replaced functions return only this trace. */
static const uint8_t trace_id[16] = {0xaf, 0x76, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0x9c};
static struct br_stored_span rows[] = {
    {.span_id = 10,
     .parent_id = 0,
     .start_ns = 1000 * MS,
     .duration_ns = 1000 * MS,
     .service = "checkout",
     .name = "GET /cart",
     .kind = 2,
     .status = 1,
     .index = 0},
    {.span_id = 11,
     .parent_id = 10,
     .start_ns = 1100 * MS,
     .duration_ns = 600 * MS,
     .service = "checkout",
     .name = "charge",
     .kind = 3,
     .status = 2,
     .index = 1},
    {.span_id = 12,
     .parent_id = 11,
     .start_ns = 1150 * MS,
     .duration_ns = 500 * MS,
     .service = "payments",
     .name = "charge",
     .kind = 2,
     .status = 0,
     .index = 2},
    {.span_id = 13,
     .parent_id = 12,
     .start_ns = 1200 * MS,
     .duration_ns = 100 * MS,
     .service = "payments",
     .name = "db.query",
     .kind = 3,
     .status = 0,
     .index = 3},
    {.span_id = 14,
     .parent_id = 10,
     .start_ns = 1750 * MS,
     .duration_ns = 200 * MS,
     .service = "checkout",
     .name = "render",
     .kind = 1,
     .status = 0,
     .index = 4},
};
/* Two spans that are each other's parent, one that is its own parent, and a leaf. */
static const uint8_t cycle_id[16] = {0xcc};
static struct br_stored_span cycle[] = {
    {.span_id = 1, .parent_id = 2, .service = "x", .name = "one"},
    {.span_id = 2, .parent_id = 1, .service = "x", .name = "two"},
    {.span_id = 3, .parent_id = 3, .service = "x", .name = "own"},
    {.span_id = 4, .parent_id = 1, .service = "x", .name = "leaf"},
};
static const uint8_t *wanted_id = trace_id;
static unsigned n_reads; /* number of times that the bytes of a span were read */
static struct wire spans[BR_COUNT(rows)], resources[BR_COUNT(rows)], scope;

int br_store_trace(struct br_store_query *query, const uint8_t id[16], br_span_fn *fn, void *arg,
                   struct br_err *err)
{
    (void)query;
    (void)err;
    static const uint8_t any[16];
    bool ours = memcmp(id, trace_id, 16) == 0 || memcmp(id, any, 16) == 0;
    for (size_t i = 0; memcmp(id, cycle_id, 16) == 0 && i < BR_COUNT(cycle); i++)
        (void)fn(&cycle[i], arg);
    for (size_t i = 0; ours && i < BR_COUNT(rows); i++)
        if (!fn(&rows[i], arg))
            break;
    return 0;
}

int br_store_span_bytes(struct br_store_query *query, const struct br_stored_span *span,
                        struct br_span_bytes *ret, struct br_err *err)
{
    (void)query;
    (void)err;
    n_reads++;
    *ret = (struct br_span_bytes){.span = spans[span->index].data,
                                  .span_len = spans[span->index].len,
                                  .scope = scope.data,
                                  .scope_len = scope.len,
                                  .resource = resources[span->index].data,
                                  .resource_len = resources[span->index].len};
    return 0;
}

/* --- The bytes of the trace ------------------------------------------------------------------- */

/* Encodes a message whose fields are in descending order at every depth, as Go writes them. The
 * value of an attribute therefore precedes its key. */
static struct wire encode_falling(struct br_pool *pool, const ProtobufCMessageDescriptor *type,
                                  const char *text)
{
    struct wire message = {0};
    uint64_t random = 1;
    struct br_buf *buf = otlp_text_message(pool, type, text);
    wire_raw(&message, buf->data, buf->len);
    br_buf_unref(buf);
    reorder_message(&message, type, REORDER_FALLING, &random);
    return message;
}

static int make(void **state)
{
    static const char *const texts[BR_COUNT(rows)] = {
        "{}",
        "{'attributes': [{'key': 'attempt', 'value': {'intValue': '1'}},"
        "{'key': 'ratio', 'value': {'doubleValue': 1.5}},"
        "{'key': 'retried', 'value': {'boolValue': true}},"
        "{'key': 'tags', 'value': {'arrayValue': {'values': ["
        "{'stringValue': 'a'}, {'stringValue': 'b'}]}}},"
        "{'key': 'region', 'value': {'stringValue': 'span'}}],"
        "'status': {'message': 'card refused'}}",
        "{'attributes': [{'key': 'attempt', 'value': {'intValue': '2'}}],"
        /* 7 ms after the start of the span */
        "'events': [{'name': 'exception', 'timeUnixNano': '1157000000',"
        "'attributes': [{'key': 'exception.type', 'value': {'stringValue': 'Timeout'}}]}],"
        "'links': [{'traceId': 'af760102030405060708090a0b0c0d9c',"
        "'spanId': '6162636465666768'}]}",
        "{'attributes': [{'key': 'db statement', 'value': {'stringValue': 'select 1'}}]}",
        "{'attributes': [{'key': 'attempt', 'value': {'stringValue': '2'}}]}",
    };
    char resource[256];
    (void)state;
    struct br_pool *pool = br_pool_new(0);
    assert_non_null(pool);
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        memcpy(rows[i].trace_id, trace_id, sizeof trace_id);
        (void)snprintf(resource, sizeof resource,
                       "{'attributes': [{'key': 'service.name', 'value': {'stringValue': '%s'}},"
                       "{'key': 'region', 'value': {'stringValue': '%s'}}]}",
                       rows[i].service, i < 2 ? "eu" : "us");
        resources[i] = encode_falling(
            pool, &opentelemetry__proto__resource__v1__resource__descriptor, resource);
        spans[i] =
            encode_falling(pool, &opentelemetry__proto__trace__v1__span__descriptor, texts[i]);
    }
    scope =
        encode_falling(pool, &opentelemetry__proto__common__v1__instrumentation_scope__descriptor,
                       "{'name': 'net/http', 'version': '1.2'}");
    br_pool_free(pool);
    return 0;
}

static int unmake(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        free(spans[i].data);
        free(resources[i].data);
    }
    free(scope.data);
    return 0;
}

/* --- Results ---------------------------------------------------------------------------------- */

/* Returns the numbers of the spans found, as in "134", or the error. */
static const char *found(const char *text, char *out, size_t size)
{
    struct br_arena arena;
    struct br_traceql query;
    struct br_traceql_trace trace;
    struct br_err err = {0};
    bool any;
    size_t n = 0;
    br_arena_init(&arena, 0);
    struct br_store_query store = {.arena = &arena};
    int rc = br_traceql_parse(&query, text, strlen(text), &arena, &err);
    if (!rc)
        rc = br_traceql_trace_read(&trace, &store, wanted_id, 0, &err);
    if (!rc)
        rc = br_traceql_match_trace(&query, &store, &trace, &any, &err);
    out[0] = '\0';
    for (uint32_t i = 0; !rc && i < trace.n_spans && n + 1 < size; i++) {
        bool alone = false;
        struct br_traceql_span span = {.row = trace.spans[i].row};
        if (trace.spans[i].in)
            out[n++] = (char)('0' + i);
        out[n] = '\0';
        if (query.needs_trace || query.n_stages)
            continue;
        assert_int_equal(br_traceql_match_span(&query, &store, &span, &alone, &err), 0);
        if (alone != trace.spans[i].in)
            fail_msg("%s: span %u alone gives another result", text, i);
    }
    if (!rc)
        assert_true(any == (n > 0));
    if (rc)
        (void)snprintf(out, size, "%s", err.text);
    br_traceql_release(&query);
    br_arena_release(&arena);
    return out;
}

static void expect_all(const char *const (*cases)[2], size_t count)
{
    char out[600];
    unsigned wrong = 0;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(found(cases[i][0], out, sizeof out), cases[i][1]) == 0)
            continue;
        print_error("%s\n  gave \"%s\"\n  not  \"%s\"\n", cases[i][0], out, cases[i][1]);
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

static void comparisons(void **state)
{
    static const char *const cases[][2] = {
        {"{}", "01234"},
        {" \n# all of them\n{ # here\n}", "01234"},
        {"{true}", "01234"},
        {"{false}", ""},
        {"{resource.service.name=\"checkout\" && name=\"charge\"\n && duration > 500ms} # slow",
         "1"},
        {"{name = \"charge\"}", "12"},
        {"{name != \"charge\"}", "034"},
        {"{name = `charge`}", "12"},
        {"{name =~ \"char.*\"}", "12"},
        {"{name =~ \"char\"}", ""}, /* a pattern must match the whole text */
        {"{name !~ \"char.*\"}", "034"},
        {"{name =~ \"GET|render\"}", "4"},
        {"{name < \"c\"}", "0"},
        {"{duration = 0.5s}", "2"},
        {"{duration >= 500ms && duration <= 600ms}", "12"},
        {"{duration < 100ms}", ""},
        {"{duration <= 100000us}", "3"},
        {"{duration > 500\302\265s}", "01234"},
        {"{duration = 1s}", "0"},
        {"{duration > 1m}", ""},
        {"{duration > 599ms1000us}", "0"},
        {"{500ms < duration}", "01"},
        {"{status = error}", "1"},
        {"{status != unset}", "01"},
        {"{status = ok || status = error}", "01"},
        {"{kind = server}", "02"},
        {"{kind = client && resource.service.name = \"payments\"}", "3"},
        {"{span:kind = internal}", "4"},
        {"{span:id = \"0a00000000000000\"}", "0"},
        {"{span:parentID = \"0a00000000000000\"}", "14"},
        {"{trace:id = \"af760102030405060708090a0b0c0d9c\"}", "01234"},
        {"{nestedSetParent < 0}", "0"},
        {"{nestedSetParent >= 0}", "1234"},
        {"{nestedSetParent = -1}", "0"},
        {"{rootName = \"GET /cart\" && name = \"render\"}", "4"},
        {"{rootServiceName = \"payments\"}", ""},
        {"{trace:rootService = \"checkout\" && trace:rootName =~ \"GET.+\"}", "01234"},
        {"{traceDuration = 1s}", "01234"},
        {"{traceDuration > 1s}", ""},
        {"{childCount = 2}", "0"},
        {"{span:childCount = 0}", "34"},
        /* Attributes with a type, or missing. */
        {"{span.attempt = 2}", "2"},
        {"{span.attempt = \"2\"}", "4"},
        {"{.attempt = 2 || .attempt = \"2\"}", "24"},
        /* a comparison with a number ignores values that are not numbers */
        {"{span.attempt != 2}", "1"},
        {"{span.attempt > 0}", "12"},
        {"{span.attempt * 2 + 1 = 5}", "2"},
        {"{-span.attempt = -2}", "2"},
        {"{span.attempt = nil}", "03"},
        {"{span.attempt != nil}", "124"},
        {"{span.nowhere = \"x\"}", ""},
        {"{span.nowhere != \"x\"}", ""},
        {"{span.ratio = 1.5}", "1"},
        {"{span.ratio > 1}", "1"},
        {"{span.ratio < .2e1}", "1"},
        {"{span.retried}", "1"},
        {"{span.retried = true}", "1"},
        {"{!span.retried}", ""},
        {"{span.tags = \"b\"}", "1"},
        {"{span.tags != \"b\"}", ""},
        {"{span.tags != \"c\"}", "1"},
        {"{span.tags =~ \"[ab]\"}", "1"},
        {"{span.tags !~ \"[a]\"}", ""},
        {"{resource.region = \"eu\"}", "01"},
        /* the span attribute `region` of span 1 has another value and takes precedence */
        {"{.region = \"eu\"}", "0"},
        {"{.region = \"span\"}", "1"},
        {"{span.region = \"span\"}", "1"},
        {"{.service.name = \"payments\"}", "23"},
        {"{span.\"db statement\" = \"select 1\"}", "3"},
        {"{.\"db statement\" != nil}", "3"},
        {"{statusMessage = \"card refused\"}", "1"},
        {"{span:statusMessage =~ \"card .*\"}", "1"},
        {"{event:name = \"exception\"}", "2"},
        {"{event.exception.type = \"Timeout\"}", "2"},
        {"{event:timeSinceStart = 7ms}", "2"},
        {"{link:spanID = \"6162636465666768\"}", "2"},
        {"{link:traceID = \"af760102030405060708090a0b0c0d9c\"}", "2"},
        {"{instrumentation:name = \"net/http\" && instrumentation:version = \"1.2\"}", "01234"},
        /* && and || have the same precedence and associate to the left; brackets bind tighter. */
        {"{kind = server || kind = client && name = \"charge\"}", "12"},
        {"{kind = server || (kind = client && name = \"charge\")}", "012"},
        {"{!(kind = server) && !(kind = client)}", "4"},
        {"{2 + 3 * 2 = 8 && 2 ^ 3 ^ 2 = 512 && 7 % 4 = 3 && 10 - 2 - 3 = 5}", "01234"},
        {"{name = \"\\u0063harge\"}", "12"},
        {"{name = \"\\x63harge\"}", "12"},
    };
    (void)state;
    expect_all(cases, BR_COUNT(cases));
}

/* Numbers of a nested set: a walk through the tree counts each span when it enters it (left) and
 * when it leaves it (right). Here: 0 (1 (2 (3 (4 5) 6) 7) (8 9) 10) in the order of time. */
static void test_nested_sets(void **state)
{
    static const char *const cases[][2] = {
        {"{nestedSetLeft = 1}", "0"},
        {"{nestedSetLeft = 8}", "4"},
        {"{nestedSetLeft >= 3 && nestedSetLeft <= 4}", "23"},
        {"{nestedSetLeft < 1}", ""},
        {"{nestedSetRight = 10}", "0"},
        {"{nestedSetRight = 5}", "3"},
    };
    (void)state;
    expect_all(cases, BR_COUNT(cases));
}

static void test_attributes_of_links(void **state)
{
    static const char *const cases[][2] = {
        {"{link.reason = \"retry\"}", "3"},
        {"{link.reason != nil}", "3"},
        {"{event.reason != nil || span.reason != nil}", ""},
    };
    struct wire *span = &spans[3], before = *span;
    struct br_pool *pool = br_pool_new(0);
    (void)state;
    *span = encode_falling(pool, &opentelemetry__proto__trace__v1__span__descriptor,
                 "{'links': [{'attributes': [{'key': 'reason', 'value': {'stringValue': "
                 "'retry'}}]}]}");
    expect_all(cases, BR_COUNT(cases));
    free(span->data);
    *span = before;
    br_pool_free(pool);
}

static void structural_operators(void **state)
{
    static const char *const cases[][2] = {
        {"{name=\"GET /cart\"} && {name=\"db.query\"}", "03"},
        {"{name=\"GET /cart\"} && {name=\"nothing\"}", ""},
        {"{name=\"GET /cart\"} || {name=\"nothing\"}", "0"},
        {"{nestedSetParent<0} > {}", "14"},
        {"{resource.service.name=\"checkout\"} > {resource.service.name=\"payments\"}", "2"},
        {"{resource.service.name=\"checkout\"} >> {resource.service.name=\"payments\"}", "23"},
        {"{name=\"render\"} >> {}", ""},
        {"{} < {}", "012"},
        {"{name=\"db.query\"} < {}", "2"},
        {"{name=\"db.query\"} << {}", "012"},
        {"{name=\"db.query\"} << {kind=server}", "02"},
        {"{name=\"render\"} ~ {}", "1"},
        {"{} ~ {}", "14"},
        {"{name=\"render\"} ~ {name=\"render\"}", ""},
        {"{status=ok} >> {status=error} >> {kind=client}", "3"},
        {"({status=ok} > {name=\"charge\"}) > {}", "2"},
        {"{} && {name=\"render\"} ~ {status=error}", "01234"},
        /* Pipeline stages. */
        {"{} | count() > 4", "01234"},
        {"{} | count() > 5", ""},
        {"{name=\"charge\"} | count() = 2", "12"},
        {"{name=\"charge\"} | avg(duration) = 550ms", "12"},
        {"{} | max(duration) < 1s", ""},
        {"{} | max(duration) <= 1s", "01234"},
        {"{} | min(duration) = 100ms", "01234"},
        {"{} | sum(duration) = 2400ms", "01234"},
        {"{} | sum(span.attempt) = 3", "01234"},
        {"{} | avg(span.nowhere) >= 0", ""},
        {"{} | min(span.attempt) > -1", "01234"},
        {"{} | {kind=client} | count() = 2", "13"},
        {"{kind=client} | select(span.attempt, name) | count() < 3", "13"},
        {"{} | count() > 1 | {name = \"render\"}", "4"},
    };
    (void)state;
    expect_all(cases, BR_COUNT(cases));
}

static void cycles_of_parents_are_followed_once(void **state)
{
    static const char *const cases[][2] = {
        {"{} > {}", "013"},
        {"{} >> {}", "013"},
        {"{} < {}", "01"},
        {"{} << {}", "01"},
        {"{} ~ {}", "13"},
        {"{name=\"leaf\"} >> {}", ""},
        {"{name=\"leaf\"} << {}", "01"},
        {"{name=\"two\"} >> {}", "013"},
        {"{name=\"own\"} >> {}", ""},
        {"{childCount = 2}", "0"},
        {"{rootName = \"\"}", "0123"},
    };
    (void)state;
    wanted_id = cycle_id;
    expect_all(cases, BR_COUNT(cases));
    wanted_id = trace_id;
}

static void structural_operators_and_groups(void **state)
{
    static const char *const cases[][2] = {
        /* A negated operator returns the spans of the right side that have no related span on the
         * left side. */
        {"{} !>> {}", "0"},
        {"{name=\"charge\"} !>> {}", "014"},
        {"{name=\"charge\"} !> {}", "014"},
        {"{name=\"nothing\"} !>> {kind=server}", "02"},
        {"{} !>> {name=\"nothing\"}", ""},
        {"{name=\"db.query\"} !<< {}", "34"},
        {"{kind=server} !< {}", "0234"},
        {"{name=\"render\"} !~ {}", "0234"},
        /* A union operator returns the related spans of both sides. */
        {"{} &>> {name=\"db.query\"}", "0123"},
        {"{name=\"charge\"} &> {kind=client}", "23"},
        {"{name=\"db.query\"} &<< {name=\"GET /cart\"}", "03"},
        {"{name=\"db.query\"} &< {}", "23"},
        {"{name=\"render\"} &~ {}", "14"},
        {"{name=\"render\"} &> {}", ""},
        {"({} &>> {name=\"db.query\"}) && {name=\"render\"}", "01234"},
        /* Nested-set numbers. */
        {"{nestedSetLeft = 1 && nestedSetRight = 10}", "0"},
        {"{nestedSetLeft = 4 && nestedSetRight = 5 && nestedSetParent = 3}", "3"},
        {"{nestedSetLeft = 8 && nestedSetRight = 9 && nestedSetParent = 1}", "4"},
        {"{nestedSetParent < 0 && nestedSetLeft > 0}", "0"},
        /* Grouping. */
        {"{} | by(name) | count() > 1", "12"},
        {"{} | by(name) | count() > 1 | coalesce() | count() = 2", "12"},
        {"{} | by(name) | coalesce() | count() = 5", "01234"},
        {"{} | by(resource.service.name) | avg(duration) > 500ms", "014"},
        {"{} | by(resource.service.name) | sum(duration) < 1s", "23"},
        {"{} | by(kind) | by(resource.service.name) | count() = 1", "01234"},
        {"{} | by(kind) | max(duration) <= 200ms", "4"},
        {"{} | by(kind) | min(duration) = 500ms", "02"},
        {"{} | by(span.nothing) | count() = 5", "01234"},
        {"{} | by(duration > 500ms) | count() = 3", "234"},
        {"{} | by(name) | {kind=client} | count() = 1", "13"},
    };
    (void)state;
    expect_all(cases, BR_COUNT(cases));
}

/* Errors name the place and the problem. */
static void invalid_queries_are_rejected(void **state)
{
    static const char *const cases[][2] = {
        {"", "1:1: unexpected end of the query; expected '{'"},
        {"{", "1:2: unexpected end of the query; expected an attribute"},
        {"{bad",
         "1:2: unexpected bad; expected an attribute (.name, span.name, resource.name) or an "
         "intrinsic"},
        {"{ name = }", "1:10: unexpected }; expected an attribute"},
        {"{ name = \"x\"", "1:13: unexpected end of the query; expected '}'"},
        {"{\n  name = \"x\" &&\n  duration > 5q }",
         "3:14: unknown unit of time; expected ns, us, ms, s, m, h, d, w or y"},
        {"{ name = \"x }", "1:10: the string is not terminated"},
        {"{ name = \"x\n\" }", "1:10: the string is not terminated on its line"},
        {"{ name = \"\\q\" }", "1:11: unknown escape"},
        {"{ . = 1 }", "1:4: missing name of an attribute"},
        {"{ name > 3 }", "1:8: the two sides have different types"},
        {"{ duration = \"1s\" }", "1:12: the two sides have different types"},
        {"{ status > error }", "1:10: values of this type have no order; use '=' or '!='"},
        {"{ name && true }", "1:8: '&&' and '||' require booleans on both sides"},
        {"{ duration }", "1:1: the expression in braces must be a boolean"},
        {"{ !duration }", "1:3: '!' requires a boolean"},
        {"{ -name = 1 }", "1:3: '-' requires a number"},
        {"{ name + 1 = 2 }", "1:8: arithmetic requires numbers on both sides"},
        {"{ name =~ 3 }", "1:8: '=~' and '!~' require a string and a quoted regular expression"},
        {"{ duration =~ \"3\" }",
         "1:12: '=~' and '!~' require a string and a quoted regular expression"},
        {"{ .a = 99999999999999999999 }", "1:8: the number does not fit into 64 bits"},
        {"{ duration > 999999999y }", "1:14: the duration is too long"},
        {"{} {}", "1:4: unexpected {; expected '|' or the end"},
        {"{} |",
         "1:5: unexpected end of the query; expected '{', select(), an aggregate or a metric"},
        {"{} | count()",
         "1:13: unexpected end of the query; expected a comparison such as count() > 2"},
        {"{} | count() > \"x\"", "1:14: an aggregate must be compared with a number or a duration"},
        {"{} | avg(name) > 1", "1:6: expected a number in brackets"},
        {"{} | rate() | rate()", "1:15: unexpected rate; expected topk() or bottomk()"},
        {"{} | rate() | topk(0)", "1:20: unexpected 0; expected a number of series (at least 1)"},
        {"{} | rate() > \"x\"", "1:13: an aggregate must be compared with a number or a duration"},
        {"{} | topk(10)", "1:6: topk() and bottomk() must follow a metric such as rate()"},
        {"{} | by()", "1:9: unexpected ); expected an attribute"},
        {"{} | coalesce(name)", "1:15: unexpected name; expected ')'"},
        {"{} | compare({}, 0)", "1:18: unexpected 0; expected a positive integer"},
        {"{} | compare({}, 10, 20, 10)",
         "1:6: compare() requires at most 1000 values and a start before the end"},
        {"{} | quantile_over_time(duration)",
         "1:33: unexpected ); expected a quantile, as in quantile_over_time(duration, .9)"},
        {"{} | quantile_over_time(duration, 2)",
         "1:35: unexpected 2; expected a quantile from 0 to 1 (at most 8)"},
        {"{ @ }", "1:3: unexpected '@'"},
        {"{ \303\244 }", "1:3: unexpected character"},
        /* Errors that name the unsupported field or construct. */
        {"{ parent.name = \"x\" }",
         "1:3: parent. is not supported; {...} > {...} compares with the parent"},
        {"{} | rate() / {} | rate()", "1:13: arithmetic of metrics is not supported"},
        {"({} | count() > 1) && {}", "1:5: a pipeline in brackets is not supported"},
        {"{} | {} && {}", "1:9: spansets can only be combined before the first '|'"},
    };
    char out[600];
    (void)state;
    expect_all(cases, BR_COUNT(cases));
    assert_non_null(
        strstr(found("{ name =~ \"a(\" }", out, sizeof out), "1:8: invalid regular expression: "));
    assert_non_null(strstr(found("{ name =~ \"a)|(b\" }", out, sizeof out),
                           "1:8: invalid regular expression: "));
}

static const char *repeated(const char *head, const char *piece, size_t times, const char *tail,
                            char *out)
{
    char *p = stpcpy(out, head);
    for (size_t i = 0; i < times; i++)
        p = stpcpy(p, piece);
    (void)strcpy(p, tail);
    return out;
}

static void the_size_of_a_query_is_limited(void **state)
{
    char out[600];
    char *text = malloc(11u << 20);
    (void)state;
    assert_non_null(text);
    assert_string_equal(found(repeated("{name = \"", "x", 10u << 20, "\"}", text), out, sizeof out),
                        "1:1: a query may have at most 65536 bytes");
    assert_non_null(strstr(found(repeated("{", "(", 1000, "true", text), out, sizeof out),
                           "the query nests deeper than 64"));
    assert_non_null(strstr(found(repeated("{", "!", 1000, "true}", text), out, sizeof out),
                           "the query nests deeper than 64"));
    assert_non_null(strstr(found(repeated("", "(", 1000, "{}", text), out, sizeof out),
                           "the query nests deeper than 64"));
    assert_non_null(strstr(found(repeated("{ 1 = 1 ^", "2 ^ ", 1000, "2}", text), out, sizeof out),
                           "the query nests deeper than 64"));
    assert_non_null(strstr(found(repeated("{ true", " && true", 5000, "}", text), out, sizeof out),
                           "the query has more than 4096 operators and operands"));
    assert_non_null(strstr(found(repeated("{ name =~ \"", "x", 1025, "\"}", text), out, sizeof out),
                           "a regular expression may have at most 1024 bytes"));
    assert_non_null(
        strstr(found(repeated("{ true", " && name =~ \"x\"", 17, "}", text), out, sizeof out),
               "a query may have at most 16 regular expressions"));
    assert_string_equal(found(repeated("{ true", " && true", 2000, "}", text), out, sizeof out),
                        "01234");
    free(text);
}

/* A pattern that causes much backtracking ends with an error after a limited time. */
static void the_time_of_a_pattern_is_limited(void **state)
{
    static char name[200];
    char out[600];
    const char *before = rows[3].name;
    (void)state;
    memset(name, 'a', sizeof name - 2);
    rows[3].name = name;
    found("{ name =~ \"(a|aa|aaa)+[bc]\" }", out, sizeof out);
    assert_true(out[0] == '\0' || strcmp(out, "a regular expression takes too long") == 0);
    rows[3].name = before;
}

/* When the time for matching is used up, a pattern only has a result for texts with which it was
 * matched before. */
static void a_pattern_is_matched_once_with_each_text(void **state)
{
    static const char *const queries[] = {"{ name =~ \"GET.*\" }", "{ name !~ \"GET.*\" }"};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(queries); i++) {
        struct br_arena arena;
        struct br_traceql query;
        struct br_err err = {0};
        br_arena_init(&arena, 0);
        struct br_store_query store = {.arena = &arena};
        struct br_stored_span get = rows[0], post = rows[0], other = rows[0];
        get.name = "GET /", post.name = "POST /", other.name = "GET /other";
        struct br_traceql_span candidates[] = {{.row = &get}, {.row = &post}, {.row = &other}};
        bool first[2], second[2], third;
        assert_int_equal(br_traceql_parse(&query, queries[i], strlen(queries[i]), &arena, &err), 0);
        for (size_t k = 0; k < 2; k++)
            assert_int_equal(br_traceql_match_span(&query, &store, &candidates[k], &first[k], &err),
                             0);
        query.time.spent = true;
        for (size_t k = 0; k < 2; k++)
            assert_int_equal(
                br_traceql_match_span(&query, &store, &candidates[k], &second[k], &err), 0);
        assert_true(first[0] == (i == 0) && first[1] == (i == 1));
        assert_true(second[0] == first[0] && second[1] == first[1]);
        assert_int_equal(br_traceql_match_span(&query, &store, &candidates[2], &third, &err),
                         BR_ETOOBIG);
        br_traceql_release(&query);
        br_arena_release(&arena);
    }
}

static void a_span_is_read_once(void **state)
{
    char out[600];
    (void)state;
    n_reads = 0;
    found("{.attempt = 1 || .attempt = 2} >> {.attempt = 3 || .ratio = 1} | max(.attempt) > 0", out,
          sizeof out);
    assert_int_equal(n_reads, BR_COUNT(rows));
    n_reads = 0;
    found("{resource.service.name = \"checkout\" && rootName = \"x\" && duration > 1s} > {}", out,
          sizeof out);
    assert_int_equal(n_reads, 0);
}

/* --- Filters that the store applies ----------------------------------------------------------- */

static const char *filter_of(const char *text, char *out, size_t size)
{
    struct br_arena arena;
    struct br_traceql query;
    struct br_span_filter f = {0};
    size_t n;
    br_arena_init(&arena, 0);
    assert_int_equal(br_traceql_parse(&query, text, strlen(text), &arena, NULL), 0);
    assert_int_equal(br_traceql_filter(&query, &f), 0);
    n = (size_t)snprintf(out, size, "%s %s %llu-%llu%s%s", f.service ? f.service : "-",
                         f.name ? f.name : "-", (unsigned long long)(f.min_duration_ns),
                         (unsigned long long)(f.max_duration_ns), f.roots ? " roots" : "",
                         f.failed ? " failed" : "");
    for (size_t i = 0; i < f.n_needles; i++)
        n += (size_t)snprintf(out + n, size - n, " %s%s=%s", f.needles[i].resource ? "r." : "",
                              f.needles[i].key, f.needles[i].value);
    br_traceql_release(&query);
    br_arena_release(&arena);
    return out;
}

static void the_store_gets_a_filter(void **state)
{
    static const char *const cases[][2] = {
        {"{}", "- - 0-0"},
        {"{resource.service.name = \"a\" && name = \"b\" && duration > 5ns}", "a b 6-0"},
        {"{duration >= 5ns && duration >= 3ns && duration < 9ns && duration <= 20ns}", "- - 5-8"},
        {"{duration = 5ns}", "- - 5-5"},
        {"{duration < 1ns}", "- - 0-0"},
        {"{status = error && nestedSetParent < 0}", "- - 0-0 roots failed"},
        {"{nestedSetParent < 2}", "- - 0-0"},
        {"{nestedSetParent = -1}", "- - 0-0 roots"},
        {"{span.a = \"x\" && resource.b = \"y\" && span.c = true}", "- - 0-0 c=true r.b=y a=x"},
        {"{span.a = 5}", "- - 0-0"}, /* 5.0 is equal to 5, but is stored as another text */
        {"{.a = \"x\"}", "- - 0-0"}, /* the attribute may belong to the span or to the resource */
        {"{name = \"a\" || name = \"b\"}", "- - 0-0"},
        {"{(name = \"a\" || true) && status = error}", "- - 0-0 failed"},
        {"{name != \"a\" && !(name = \"b\")}", "- - 0-0"},
        {"{name = \"a\"} || {name = \"b\"}", "- - 0-0"},
        {"{name = \"a\"} >> {name = \"b\"}", "- a 0-0"},
        {"{} >> {name = \"b\"}", "- b 0-0"},
        {"{name = \"a\"} >> {name = \"b\" && duration > 1ns}", "- b 2-0"},
        {"{name = \"a\" && status = error} > {resource.service.name = \"c\"}", "- a 0-0 failed"},
        {"{.x = 1} && {status = error}", "- - 0-0 failed"},
    };
    char out[400];
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++)
        if (strcmp(filter_of(cases[i][0], out, sizeof out), cases[i][1]) != 0)
            fail_msg("%s gave \"%s\", not \"%s\"", cases[i][0], out, cases[i][1]);
}

/* --- Arbitrary bytes -------------------------------------------------------------------------- */

/* Changes, moves and cuts the bytes of each seed: a short fuzzing run in every test run. */
static void mutate(const uint8_t *data, size_t len)
{
    uint64_t seed = len;
    for (int round = 0; round < 400 && len; round++) {
        size_t kept = fake_random(&seed) % len + 1;
        uint8_t *copy = malloc(kept);
        assert_non_null(copy);
        memcpy(copy, data, kept);
        for (uint64_t k = fake_random(&seed) % 4 + 1; k > 0; k--) {
            uint64_t r = fake_random(&seed);
            copy[r % kept] = r >> 63 ? (uint8_t)(r >> 32) : copy[(r >> 32) % kept];
        }
        traceql_fuzz(copy, kept);
        free(copy);
    }
}

static void arbitrary_bytes(void **state)
{
    (void)state;
    assert_true(corpus_replay("traceql", traceql_fuzz) >= 6);
    assert_true(corpus_replay("traceql", mutate) >= 6);
}

SUITE(traceql)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comparisons),
        cmocka_unit_test(structural_operators),
        cmocka_unit_test(cycles_of_parents_are_followed_once),
        cmocka_unit_test(structural_operators_and_groups),
        cmocka_unit_test(invalid_queries_are_rejected),
        cmocka_unit_test(the_size_of_a_query_is_limited),
        cmocka_unit_test(the_time_of_a_pattern_is_limited),
        cmocka_unit_test(test_nested_sets),
        cmocka_unit_test(test_attributes_of_links),
        cmocka_unit_test(a_pattern_is_matched_once_with_each_text),
        cmocka_unit_test(a_span_is_read_once),
        cmocka_unit_test(the_store_gets_a_filter),
        cmocka_unit_test(arbitrary_bytes),
    };
    return RUN(tests, make, unmake);
}
