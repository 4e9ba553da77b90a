/* SPDX-License-Identifier: Apache-2.0 */
/* Output of `braid query` for responses of the query API. */
#include <jansson.h>
#include <stdint.h>
#include <string.h>

#include "app/query_command.h"
#include "tests/support/test.h"

static json_t *parse(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    return json;
}

static void assert_amount(double value, const char *unit, const char *expected)
{
    struct br_str out = {0};
    br_query_output_amount(&out, value, unit);
    assert_string_equal(out.data, expected);
    br_str_release(&out);
}

static void amounts_have_three_digits_and_a_unit(void **state)
{
    (void)state;
    assert_amount(0, "nanoseconds", "0 ns");
    assert_amount(999, "nanoseconds", "999 ns");
    assert_amount(1500, "nanoseconds", "1.50 µs");
    assert_amount(310e6, "nanoseconds", "310 ms");
    assert_amount(12.34e9, "nanoseconds", "12.3 s");
    assert_amount(-1.5e6, "nanoseconds", "-1.50 ms");
    assert_amount(90e9, "nanoseconds", "1.50 min");
    assert_amount(2048, "bytes", "2.00 KiB");
    assert_amount(123456, "count", "123k");
}

static void spans_are_printed_as_a_table(void **state)
{
    struct br_str out = {0};
    (void)state;
    json_t *answer = parse(
        "{\"spans\":[{\"trace_id\":\"0af7651916cd43dd8448eb211c80319c\",\"span_id\":"
        "\"b7ad6b7169203331\",\"service\":\"shop\",\"name\":\"POST "
        "/checkout\",\"status\":\"error\","
        "\"start_unix_ns\":\"0\",\"duration_ns\":310000000,\"profile\":{\"samples\":3,\"cpu_ns\":"
        "30000000}},{\"service\":\"a\\u001b[31m\",\"name\":\"\\u009b1\",\"duration_ns\":1,"
        "\"profile\":{\"samples\":0,\"cpu_ns\":0}}]}");
    assert_true(br_query_output_spans(&out, answer));
    assert_non_null(
        strstr(out.data, "   310 ms    30.0 ms  shop                  POST /checkout "));
    assert_non_null(
        strstr(out.data, "  0af7651916cd43dd8448eb211c80319c/b7ad6b7169203331  error\n"));
    assert_non_null(strstr(out.data, "     1 ns          -  a?[31m                ?1 "));
    assert_null(strchr(out.data, '\033'));
    json_decref(answer);
    br_str_release(&out);
}

/* The trace has a root from 0 to 100, a child in the second half of the root, and a span whose
 * parent is missing. */
static void traces_are_printed_as_waterfalls(void **state)
{
    struct br_str out = {0};
    (void)state;
    json_t *answer = parse(
        "{\"spans\":[{\"span_id\":\"02\",\"parent_id\":\"01\",\"service\":\"b\",\"name\":\"child\","
        "\"start_unix_ns\":\"50\",\"duration_ns\":50},{\"span_id\":\"01\",\"parent_id\":\"\","
        "\"service\":\"a\",\"name\":\"root\",\"start_unix_ns\":\"0\",\"duration_ns\":100},"
        "{\"span_id\":\"03\",\"parent_id\":\"99\",\"service\":\"c\",\"name\":\"lost\","
        "\"start_unix_ns\":\"75\",\"duration_ns\":25}]}");
    assert_true(br_query_output_trace(&out, answer));
    assert_string_equal(out.data, "     TOOK     ON CPU\n"
                                  "   100 ns          -  ████████████████████████  a: root\n"
                                  "    50 ns          -  ············████████████    b: child\n"
                                  "    25 ns          -  ··················██████  c: lost\n");
    json_decref(answer);
    br_str_release(&out);
}

static void cycles_of_parents_end(void **state)
{
    struct br_str out = {0};
    (void)state;
    json_t *answer =
        parse("{\"spans\":[{\"span_id\":\"01\",\"parent_id\":\"02\"},{\"span_id\":\"02\","
              "\"parent_id\":\"01\"},{\"span_id\":\"03\",\"parent_id\":\"03\"}]}");
    assert_true(br_query_output_trace(&out, answer));
    json_decref(answer);
    br_str_release(&out);
}

static void functions_have_a_percentage(void **state)
{
    struct br_str out = {0};
    (void)state;
    json_t *answer =
        parse("{\"unit\":\"nanoseconds\",\"total\":4000000,\"functions\":[{\"name\":\"f\","
              "\"self\":3000000,\"total\":4000000}]}");
    assert_true(br_query_output_top(&out, answer));
    assert_non_null(strstr(out.data, "  3.00 ms   75.0%    4.00 ms  100.0%  f\n"));
    json_decref(answer);
    br_str_release(&out);
}

/* The tree is total(10) -> a(6: b(4)), c(4: b(4)). The second b is below c, four columns after the
 * end of the first b. */
static void flame_graphs_are_printed_as_trees(void **state)
{
    struct br_str out = {0};
    (void)state;
    json_t *answer = parse(
        "{\"type\":\"cpu\",\"unit\":\"samples\",\"samples\":10,\"flamebearer\":{\"numTicks\":10,"
        "\"names\":[\"total\",\"a\",\"b\",\"c\"],\"levels\":[[0,10,0,0],[0,6,2,1,0,4,0,3],[0,4,4,2,"
        "2,4,"
        "4,2]]}}");
    assert_true(br_query_output_profile(&out, answer, 100, SIZE_MAX));
    assert_string_equal(out.data, "cpu of 10 samples\n"
                                  "            TOTAL       SELF  FUNCTION\n"
                                  "100.0%         10          0  total\n"
                                  " 60.0%          6          2    a\n"
                                  " 40.0%          4          4      b\n"
                                  " 40.0%          4          0    c\n"
                                  " 40.0%          4          4      b\n");
    br_str_clear(&out);
    assert_true(br_query_output_profile(&out, answer, 100, 2));
    assert_string_equal(out.data, "cpu of 10 samples\n"
                                  "            TOTAL       SELF  FUNCTION\n"
                                  "100.0%         10          0  total\n"
                                  " 60.0%          6          2    a\n");
    json_decref(answer);
    br_str_release(&out);
}

static void empty_flame_graphs_state_the_reason(void **state)
{
    struct br_str out = {0};
    (void)state;
    json_t *answer = parse("{\"flamebearer\":{\"numTicks\":0,\"names\":[\"total\"],\"levels\":[]},"
                           "\"why_empty\":\"this span lasted 4 ms\"}");
    assert_true(br_query_output_profile(&out, answer, 100, SIZE_MAX));
    assert_string_equal(out.data, "this span lasted 4 ms\n");
    json_decref(answer);
    br_str_release(&out);
}

/* a has half of the 10 samples in the left graph, and 30 of the 40 samples in the right graph. */
static void differences_are_in_percent_of_totals(void **state)
{
    struct br_str out = {0};
    (void)state;
    json_t *answer = parse(
        "{\"type\":\"cpu\",\"unit\":\"samples\",\"left\":{\"total\":10},\"right\":{\"total\":40},"
        "\"flamebearer\":{\"names\":[\"total\",\"a\"],\"levels\":[[0,10,5,0,40,10,0],[0,5,5,0,30,"
        "30,1]]}"
        "}");
    assert_true(br_query_output_difference(&out, answer, 100, SIZE_MAX));
    assert_non_null(strstr(out.data, "  100.0%    100.0%     +0.0  total\n"));
    assert_non_null(strstr(out.data, "   50.0%     75.0%    +25.0    a\n"));
    json_decref(answer);
    br_str_release(&out);
}

static void unexpected_responses_are_rejected(void **state)
{
    struct br_str out = {0};
    (void)state;
    json_t *answer = parse("{\"spans\":1,\"functions\":{},\"flamebearer\":{\"levels\":[]}}");
    assert_false(br_query_output_spans(&out, answer));
    assert_false(br_query_output_trace(&out, answer));
    assert_false(br_query_output_top(&out, answer));
    assert_false(br_query_output_profile(&out, answer, 100, SIZE_MAX));
    assert_false(br_query_output_difference(&out, answer, 100, SIZE_MAX));
    json_decref(answer);
    br_str_release(&out);
}

SUITE(query_output)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(amounts_have_three_digits_and_a_unit),
        cmocka_unit_test(spans_are_printed_as_a_table),
        cmocka_unit_test(traces_are_printed_as_waterfalls),
        cmocka_unit_test(cycles_of_parents_end),
        cmocka_unit_test(functions_have_a_percentage),
        cmocka_unit_test(flame_graphs_are_printed_as_trees),
        cmocka_unit_test(empty_flame_graphs_state_the_reason),
        cmocka_unit_test(differences_are_in_percent_of_totals),
        cmocka_unit_test(unexpected_responses_are_rejected),
    };
    return RUN(tests, NULL, NULL);
}
