/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "core/outcome.h"
#include "tests/support/test.h"

static void messages_are_formatted_and_truncated(void **state)
{
    (void)state;
    struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 250, "%d of %s", 1, "x");
    assert_int_equal(o.verdict, BR_RETRY);
    assert_int_equal(o.status, BR_STATUS_UNAVAILABLE);
    assert_int_equal(o.delay_ms, 250);
    assert_string_equal(o.text, "1 of x");
    o = br_outcome_reject(BR_STATUS_INTERNAL, "%500d", 7);
    assert_int_equal(o.verdict, BR_REJECT);
    assert_int_equal(strlen(o.text), sizeof o.text - 1);
}

static struct br_outcome fold(struct br_outcome a, struct br_outcome b)
{
    br_outcome_fold(&a, &b);
    return a;
}

static void the_worst_verdict_wins_in_any_order(void **state)
{
    (void)state;
    const struct br_outcome done = BR_OUTCOME_DONE,
                            retry = br_outcome_retry(BR_STATUS_UNAVAILABLE, 100, "retry"),
                            reject = br_outcome_reject(BR_STATUS_INVALID_ARGUMENT, "reject");
    const struct br_outcome *all[] = {&done, &retry, &reject};
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++) {
            struct br_outcome o = fold(*all[i], *all[k]);
            const struct br_outcome *worst = all[i > k ? i : k];
            assert_int_equal(o.verdict, worst->verdict);
            assert_int_equal(o.status, worst->status);
            assert_string_equal(o.text, worst->text);
            assert_int_equal(o.delay_ms, i == 1 || k == 1 ? 100 : 0);
        }
    }
}

static void the_first_message_wins_among_equal_verdicts(void **state)
{
    (void)state;
    struct br_outcome a = br_outcome_reject(BR_STATUS_INTERNAL, "a");
    struct br_outcome b = br_outcome_reject(BR_STATUS_DATA_LOSS, "b");
    assert_string_equal(fold(a, b).text, "a");
    a.text[0] = '\0';
    assert_string_equal(fold(a, b).text, "b");
}

static void rejected_counts_add_up_and_delays_are_kept(void **state)
{
    (void)state;
    struct br_outcome a = {.verdict = BR_DONE, .n_rejected = 3};
    struct br_outcome b = {.verdict = BR_DONE, .n_rejected = 4, .text = "some were too old"};
    assert_int_equal(fold(a, b).n_rejected, 7);
    assert_string_equal(fold(a, b).text, "some were too old");
    assert_int_equal(fold(b, a).n_rejected, 7);
    b.n_rejected = UINT32_MAX;
    assert_int_equal(fold(a, b).n_rejected, UINT32_MAX); /* not 2 */
    struct br_outcome x = br_outcome_retry(BR_STATUS_UNAVAILABLE, 300, "x");
    struct br_outcome y = br_outcome_retry(BR_STATUS_UNAVAILABLE, 200, "y");
    assert_int_equal(fold(x, y).delay_ms, 300);
    assert_int_equal(fold(y, x).delay_ms, 300);
}

/* OTLP: retryable failures are UNAVAILABLE. Other statuses are unchanged, and never OK. */
static void grpc_statuses(void **state)
{
    (void)state;
    struct br_outcome done = BR_OUTCOME_DONE;
    assert_int_equal(br_outcome_grpc(&done), BR_STATUS_OK);
    for (int s = 0; s <= 16; s++) {
        struct br_outcome retry = br_outcome_retry((enum br_status)s, 0, "x");
        struct br_outcome reject = br_outcome_reject((enum br_status)s, "x");
        assert_int_equal(br_outcome_grpc(&retry), s == BR_STATUS_RESOURCE_EXHAUSTED
                                                      ? BR_STATUS_RESOURCE_EXHAUSTED
                                                      : BR_STATUS_UNAVAILABLE);
        assert_int_equal(br_outcome_grpc(&reject), s == 0 ? BR_STATUS_INTERNAL : s);
    }
}

/* OTLP/HTTP: clients retry only on 429, 502, 503 and 504. */
static void http_codes(void **state)
{
    (void)state;
    static const struct {
        enum br_status status;
        unsigned http;
    } cases[] = {
        {BR_STATUS_INVALID_ARGUMENT, 400},  {BR_STATUS_UNAUTHENTICATED, 401},
        {BR_STATUS_PERMISSION_DENIED, 403}, {BR_STATUS_NOT_FOUND, 404},
        {BR_STATUS_UNIMPLEMENTED, 404},     {BR_STATUS_RESOURCE_EXHAUSTED, 413},
        {BR_STATUS_INTERNAL, 500},          {BR_STATUS_UNKNOWN, 500},
    };
    struct br_outcome done = BR_OUTCOME_DONE;
    assert_int_equal(br_outcome_http(&done), 200);
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_outcome o = br_outcome_reject(cases[i].status, "x");
        assert_int_equal(br_outcome_http(&o), cases[i].http);
    }
    for (int s = 0; s <= 20; s++) {
        struct br_outcome retry = br_outcome_retry((enum br_status)s, 0, "x");
        struct br_outcome reject = br_outcome_reject((enum br_status)s, "x");
        assert_int_equal(br_outcome_http(&retry), s == BR_STATUS_RESOURCE_EXHAUSTED ? 429 : 503);
        unsigned http = br_outcome_http(&reject);
        assert_true(http >= 400 && http <= 500 && http != 429);
    }
}

/* opentelemetry-proto docs/specification.md, the table in "OTLP/gRPC Response", "Failures". */
static void retryable_statuses(void **state)
{
    (void)state;
    static const enum br_status retryable[] = {BR_STATUS_CANCELLED,   BR_STATUS_DEADLINE_EXCEEDED,
                                               BR_STATUS_ABORTED,     BR_STATUS_OUT_OF_RANGE,
                                               BR_STATUS_UNAVAILABLE, BR_STATUS_DATA_LOSS};
    for (int s = -1; s <= 20; s++) {
        bool expected = false;
        for (size_t i = 0; i < BR_COUNT(retryable); i++)
            expected = expected || (int)retryable[i] == s;
        assert_int_equal(br_status_retryable((enum br_status)s, false), expected);
        assert_int_equal(br_status_retryable((enum br_status)s, true),
                         expected || s == BR_STATUS_RESOURCE_EXHAUSTED);
    }
}

static void names(void **state)
{
    (void)state;
    assert_string_equal(br_status_name(BR_STATUS_OK), "OK");
    assert_string_equal(br_status_name(BR_STATUS_UNAUTHENTICATED), "UNAUTHENTICATED");
    assert_string_equal(br_status_name((enum br_status)17), "UNKNOWN");
    assert_string_equal(br_status_name((enum br_status) - 1), "UNKNOWN");
}

SUITE(outcome)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_formatted_and_truncated),
        cmocka_unit_test(the_worst_verdict_wins_in_any_order),
        cmocka_unit_test(the_first_message_wins_among_equal_verdicts),
        cmocka_unit_test(rejected_counts_add_up_and_delays_are_kept),
        cmocka_unit_test(grpc_statuses),
        cmocka_unit_test(http_codes),
        cmocka_unit_test(retryable_statuses),
        cmocka_unit_test(names),
    };
    return RUN(tests, NULL, NULL);
}
