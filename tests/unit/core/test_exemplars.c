/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exemplars, and how a scrape prints them. The expected texts follow OpenMetrics 1.0.0, sections
 * "Exemplars", "Counter" and "Histogram".
 */
#include "base/err.h"
#include "base/mem.h"
#include "core/metrics.h"
#include "tests/support/fault.h"
#include "tests/support/test.h"

#define SECOND UINT64_C(1000000000)

static const double bounds[] = {1, 2.5, 10};

static int setup(void **state)
{
    *state = br_metrics_new();
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    br_metrics_free(*state);
    return 0;
}

/* Returns an exemplar whose ids consist of the byte `id`. */
static struct br_exemplar exemplar_of(uint8_t id, double value, uint64_t time_ns)
{
    struct br_exemplar exemplar = {.value = value, .time_ns = time_ns};
    memset(exemplar.trace_id, id, sizeof exemplar.trace_id);
    memset(exemplar.span_id, id, sizeof exemplar.span_id);
    return exemplar;
}

/* Counts a value in the histogram `h`, with an exemplar. `max` is the largest number of
 * exemplars. */
static void observe(struct br_metrics *metrics, size_t max, struct br_exemplar exemplar)
{
    exemplar.bucket =
        br_histogram_add(br_histogram(metrics, "h", "", bounds, 3), exemplar.value, 1);
    br_exemplars_add(br_metric_exemplars(metrics, "h", "", max), &exemplar);
}

static void assert_printed(const struct br_metrics *metrics, enum br_metrics_format format,
                           const char *expected)
{
    struct br_str text = {0};
    br_metrics_print(metrics, format, NULL, NULL, &text);
    assert_string_equal(text.data, expected);
    br_str_release(&text);
}

static void samples_have_exemplars_only_in_openmetrics(void **state)
{
    struct br_exemplar call = exemplar_of(0xab, 0.5, 1520879607 * SECOND + 789000000);
    *br_metric(*state, BR_TOTAL, "calls", "x=\"1\"") = 3;
    br_exemplars_add(br_metric_exemplars(*state, "calls", "x=\"1\"", 5), &call);
    observe(*state, 5, exemplar_of(1, 2.5, 7 * SECOND));
    observe(*state, 5, exemplar_of(2, 11, 8 * SECOND));
    assert_printed(*state, BR_METRICS_TEXT,
                   "# TYPE calls_total counter\ncalls_total{x=\"1\"} 3\n# TYPE h histogram\n"
                   "h_bucket{le=\"1\"} 0\nh_bucket{le=\"2.5\"} 1\nh_bucket{le=\"10\"} 1\n"
                   "h_bucket{le=\"+Inf\"} 2\nh_sum 13.5\nh_count 2\n");
    assert_printed(*state, BR_METRICS_OPENMETRICS,
                   "# TYPE calls counter\n"
                   "calls_total{x=\"1\"} 3 # {trace_id=\"abababababababababababababababab\","
                   "span_id=\"abababababababab\"} 0.5 1520879607.789\n"
                   "# TYPE h histogram\n"
                   "h_bucket{le=\"1.0\"} 0\n"
                   "h_bucket{le=\"2.5\"} 1 # {trace_id=\"01010101010101010101010101010101\","
                   "span_id=\"0101010101010101\"} 2.5 7.000\n"
                   "h_bucket{le=\"10.0\"} 1\n"
                   "h_bucket{le=\"+Inf\"} 2 # {trace_id=\"02020202020202020202020202020202\","
                   "span_id=\"0202020202020202\"} 11 8.000\n"
                   "h_sum 13.5\nh_count 2\n");
}

static void an_unknown_span_id_is_not_printed(void **state)
{
    struct br_exemplar exemplar = exemplar_of(1, 2, 0);
    memset(exemplar.span_id, 0, sizeof exemplar.span_id);
    *br_metric(*state, BR_TOTAL, "calls", "") = 1;
    br_exemplars_add(br_metric_exemplars(*state, "calls", "", 1), &exemplar);
    assert_printed(*state, BR_METRICS_OPENMETRICS,
                   "# TYPE calls counter\n"
                   "calls_total 1 # {trace_id=\"01010101010101010101010101010101\"} 2 0.000\n");
}

/* OpenMetrics requires the suffix _total for the type `counter`. */
static void counters_without_suffix_are_unknown_in_openmetrics(void **state)
{
    *br_metric(*state, BR_COUNTER, "a", "") = 3;
    *br_metric(*state, BR_TOTAL, "calls", "") = 4;
    assert_false(br_metrics_have_exemplars(*state));
    assert_printed(*state, BR_METRICS_OPENMETRICS_PLAIN,
                   "# TYPE a unknown\na 3\n# TYPE calls counter\ncalls_total 4\n");
}

/* A bucket keeps the newest exemplar. A full set drops the oldest exemplar. */
static void the_newest_exemplars_are_kept(void **state)
{
    struct br_exemplars *set;
    observe(*state, 2, exemplar_of(1, 1, 10));
    observe(*state, 2, exemplar_of(2, 0.5, 11));
    observe(*state, 2, exemplar_of(3, 0.7, 9)); /* older than the exemplar of its bucket */
    set = br_metric_exemplars(*state, "h", "", 2);
    assert_int_equal(set->count, 1);
    assert_int_equal(br_exemplars_find(set, 0)->trace_id[0], 2);
    observe(*state, 2, exemplar_of(4, 2, 12));
    observe(*state, 2, exemplar_of(5, 5, 13));
    observe(*state, 2, exemplar_of(6, 50, 8)); /* older than all exemplars of the full set */
    assert_int_equal(set->count, 2);
    assert_null(br_exemplars_find(set, 0));
    assert_int_equal(br_exemplars_find(set, 1)->trace_id[0], 4);
    assert_int_equal(br_exemplars_find(set, 2)->trace_id[0], 5);
    assert_null(br_exemplars_find(set, 3));
    assert_null(br_exemplars_find(NULL, 0));
}

/* The memory of a set depends on the number of buckets, not on the configured maximum. */
static void a_set_has_room_for_one_exemplar_of_each_bucket(void **state)
{
    (void)br_histogram(*state, "h", "", bounds, 3);
    (void)br_metric(*state, BR_TOTAL, "calls", "");
    assert_int_equal(br_metric_exemplars(*state, "h", "", 1000000)->max, 4);
    assert_int_equal(br_metric_exemplars(*state, "calls", "", 1000000)->max, 1);
    assert_null(br_metric_exemplars(*state, "calls", "", 0));
    assert_null(br_metric_exemplars(*state, "missing", "", 1));
    assert_true(br_metrics_have_exemplars(*state));
}

static void snapshots_keep_the_newest_exemplars_of_all_workers(void **state)
{
    struct br_metrics *one = br_metrics_new(), *two = br_metrics_new();
    observe(one, 5, exemplar_of(1, 1, 20));
    observe(one, 5, exemplar_of(2, 2, 20));
    observe(two, 5, exemplar_of(3, 1, 21));
    observe(two, 5, exemplar_of(4, 2, 19));
    observe(two, 5, exemplar_of(5, 50, 1));
    assert_int_equal(br_metrics_add(*state, one), 0);
    assert_int_equal(br_metrics_add(*state, two), 0);
    assert_true(br_metrics_have_exemplars(*state));
    const struct br_exemplars *sum = br_metric_exemplars(*state, "h", "", 5);
    assert_int_equal(sum->count, 3);
    assert_int_equal(br_exemplars_find(sum, 0)->trace_id[0], 3);
    assert_int_equal(br_exemplars_find(sum, 1)->trace_id[0], 2);
    assert_int_equal(br_exemplars_find(sum, 3)->trace_id[0], 5);
    br_metrics_free(one);
    br_metrics_free(two);
}

/* OpenMetrics: the value of an exemplar is within its bucket, also if a worker's histogram has
 * other bounds. */
static void an_exemplar_stays_in_the_bucket_of_its_value(void **state)
{
    struct br_metrics *other = br_metrics_new();
    observe(other, 5, exemplar_of(1, 20, 1)); /* bucket 3 */
    (void)br_histogram(*state, "h", "", (const double[]){30, 40, 50}, 3);
    assert_int_equal(br_metrics_add(*state, other), 0);
    const struct br_exemplars *sum = br_metric_exemplars(*state, "h", "", 5);
    assert_non_null(br_exemplars_find(sum, 0));
    assert_null(br_exemplars_find(sum, 3));
    br_metrics_free(other);
}

static void a_snapshot_without_memory_is_an_error(void **state)
{
    observe(*state, 5, exemplar_of(1, 1, 1));
    for (unsigned n = 1;; n++) {
        struct br_metrics *sum = br_metrics_new();
        fault_nth(n);
        int rc = br_metrics_add(sum, *state);
        bool failed = fault_nth_stop();
        assert_int_equal(rc, failed ? BR_ENOMEM : 0);
        br_metrics_free(sum);
        if (!failed)
            return;
    }
}

SUITE(exemplars)
{
    const struct CMUnitTest tests[] = {
        TEST(samples_have_exemplars_only_in_openmetrics),
        TEST(an_unknown_span_id_is_not_printed),
        TEST(counters_without_suffix_are_unknown_in_openmetrics),
        TEST(the_newest_exemplars_are_kept),
        TEST(a_set_has_room_for_one_exemplar_of_each_bucket),
        TEST(snapshots_keep_the_newest_exemplars_of_all_workers),
        TEST(an_exemplar_stays_in_the_bucket_of_its_value),
        TEST(a_snapshot_without_memory_is_an_error),
    };
    return RUN(tests, NULL, NULL);
}
