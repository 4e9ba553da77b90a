/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/metrics.h"
#include "tests/support/fault.h"
#include "tests/support/test.h"

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

static void assert_printed(const struct br_metrics *m, const char *expected)
{
    struct br_str text = {0};
    br_str_puts(&text, "");
    br_metrics_print(m, BR_METRICS_TEXT, NULL, NULL, &text);
    assert_false(text.failed);
    assert_string_equal(text.data, expected);
    br_str_release(&text);
}

static void a_metric_is_one_number(void **state)
{
    double *a = br_metric(*state, BR_COUNTER, "a", "");
    double *b = br_metric(*state, BR_COUNTER, "a", "x=\"1\"");
    assert_true(*a == 0 && *b == 0);
    assert_ptr_not_equal(a, b);
    assert_ptr_equal(br_metric(*state, BR_COUNTER, "a", ""), a);
    for (int i = 0; i < 1000; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "other_%d", i);
        (void)br_metric(*state, BR_GAUGE, name, "");
    }
    *b = 5;
    /* the value of the first metric has the same address as before */
    assert_ptr_equal(br_metric(*state, BR_COUNTER, "a", "x=\"1\""), b);
}

/* prometheus.io/docs/instrumenting/exposition_formats: one TYPE line before a metric's samples. */
static void printed_as_prometheus_text(void **state)
{
    assert_printed(*state, "");
    *br_metric(*state, BR_GAUGE, "b_size", "") = 2.5;
    *br_metric(*state, BR_COUNTER, "a", "x=\"2\"") = 7;
    *br_metric(*state, BR_COUNTER, "a", "x=\"1\"") = 123456789012345;
    assert_printed(*state, "# TYPE a_total counter\n"
                           "a_total{x=\"1\"} 123456789012345\n"
                           "a_total{x=\"2\"} 7\n"
                           "# TYPE b_size gauge\n"
                           "b_size 2.5\n");
}

/* The same as above, without the suffix of counters. */
static void printed_without_suffixes(void **state)
{
    struct br_str text = {0};
    *br_metric(*state, BR_COUNTER, "a", "x=\"1\"") = 7;
    *br_metric(*state, BR_GAUGE, "b_size", "") = 2.5;
    br_metrics_print(*state, BR_METRICS_PLAIN, NULL, NULL, &text);
    br_metrics_print_target("l=\"v\"", BR_METRICS_PLAIN, &text);
    assert_string_equal(text.data, "# TYPE a counter\na{x=\"1\"} 7\n"
                                   "# TYPE b_size gauge\nb_size 2.5\n"
                                   "# HELP target_info Target metadata\n"
                                   "# TYPE target_info gauge\ntarget_info{l=\"v\"} 1\n");
    br_str_release(&text);
}

static bool is_a(const char *name)
{
    return strcmp(name, "a") == 0;
}

static void hidden_metrics_are_omitted(void **state)
{
    struct br_str text = {0};
    *br_metric(*state, BR_COUNTER, "a", "x=\"1\"") = 7;
    *br_metric(*state, BR_COUNTER, "a", "x=\"2\"") = 7;
    *br_metric(*state, BR_GAUGE, "b", "") = 1;
    br_metrics_print(*state, BR_METRICS_PLAIN, NULL, is_a, &text);
    assert_string_equal(text.data, "# TYPE b gauge\nb 1\n");
    br_str_release(&text);
}

static const char *help_of(const char *name)
{
    return strcmp(name, "a") == 0 ? "How many." : NULL;
}

/* OpenMetrics 1.0.0, "Counter" and "Histogram": the family has no suffix, bounds are floats. */
static void printed_as_openmetrics(void **state)
{
    static const double bounds[] = {1, 2.5};
    struct br_str text = {0};
    *br_metric(*state, BR_COUNTER, "a", "x=\"1\"") = 3;
    struct br_histogram *h = br_histogram(*state, "size", "x=\"1\"", bounds, 2);
    const double values[] = {1, 2, 2.5, 100};
    for (size_t i = 0; i < BR_COUNT(values); i++)
        br_histogram_observe(h, values[i]);
    br_metrics_print(*state, BR_METRICS_OPENMETRICS, help_of, NULL, &text);
    assert_string_equal(text.data, "# HELP a How many.\n# TYPE a counter\n"
                                   "a_total{x=\"1\"} 3\n"
                                   "# TYPE size histogram\n"
                                   "size_bucket{x=\"1\",le=\"1.0\"} 1\n"
                                   "size_bucket{x=\"1\",le=\"2.5\"} 3\n"
                                   "size_bucket{x=\"1\",le=\"+Inf\"} 4\n"
                                   "size_sum{x=\"1\"} 105.5\n"
                                   "size_count{x=\"1\"} 4\n");
    br_str_release(&text);
}

/* A total has the suffix in every format. In OpenMetrics, the name of its family has none. */
static void totals_have_the_suffix_in_every_format(void **state)
{
    static const char *const expected[] = {
        [BR_METRICS_PLAIN] = "# TYPE calls_total counter\ncalls_total{x=\"1\"} 2.5\n",
        [BR_METRICS_TEXT] = "# TYPE calls_total counter\ncalls_total{x=\"1\"} 2.5\n",
        [BR_METRICS_OPENMETRICS] = "# TYPE calls counter\ncalls_total{x=\"1\"} 2.5\n"};
    size_t room = br_metrics_room(*state);
    *br_metric(*state, BR_TOTAL, "calls", "x=\"1\"") = 2.5;
    assert_int_equal(br_metrics_room(*state), room - 1);
    for (int format = BR_METRICS_PLAIN; format <= BR_METRICS_OPENMETRICS; format++) {
        struct br_str text = {0};
        br_metrics_print(*state, (enum br_metrics_format)format, NULL, NULL, &text);
        assert_string_equal(text.data, expected[format]);
        br_str_release(&text);
    }
}

/* The bounds of a histogram are copied, and do not change. */
static void a_histogram_keeps_its_bounds(void **state)
{
    double bounds[] = {1, 2}, other[] = {5};
    struct br_histogram *h = br_histogram(*state, "h", "", bounds, 2);
    bounds[0] = 100;
    assert_ptr_equal(br_histogram(*state, "h", "", other, 1), h);
    br_histogram_observe(h, 1.5);
    assert_printed(*state, "# TYPE h histogram\nh_bucket{le=\"1\"} 0\nh_bucket{le=\"2\"} 1\n"
                           "h_bucket{le=\"+Inf\"} 1\nh_sum 1.5\nh_count 1\n");
}

static void histograms_add_up(void **state)
{
    static const double bounds[] = {10};
    struct br_metrics *one = br_metrics_new();
    br_histogram_observe(br_histogram(one, "h", "", bounds, 1), 5);
    br_histogram_observe(br_histogram(one, "h", "", bounds, 1), 50);
    assert_int_equal(br_metrics_add(*state, one), 0);
    assert_int_equal(br_metrics_add(*state, one), 0);
    assert_printed(*state, "# TYPE h histogram\nh_bucket{le=\"10\"} 2\nh_bucket{le=\"+Inf\"} 4\n"
                           "h_sum 110\nh_count 4\n");
    br_metrics_free(one);
}

static void printed_numbers_can_be_read_back(void **state)
{
    static const double values[] = {0, -1, 0.1, 1e300, 1e-300, 9007199254740993.0, 3.0000000001};
    for (size_t i = 0; i < BR_COUNT(values); i++) {
        struct br_str text = {0};
        *br_metric(*state, BR_GAUGE, "v", "") = values[i];
        br_metrics_print(*state, BR_METRICS_TEXT, NULL, NULL, &text);
        assert_true(strtod(strchr(strchr(text.data, '\n'), ' ') + 1, NULL) == values[i]);
        br_str_release(&text);
    }
}

static void infinity_has_prometheus_notation(void **state)
{
    *br_metric(*state, BR_GAUGE, "a", "") = INFINITY;
    *br_metric(*state, BR_GAUGE, "b", "") = -INFINITY;
    *br_metric(*state, BR_GAUGE, "c", "") = NAN;
    assert_printed(*state,
                   "# TYPE a gauge\na +Inf\n# TYPE b gauge\nb -Inf\n# TYPE c gauge\nc NaN\n");
}

static void label_values_are_escaped(void **state)
{
    (void)state;
    struct br_str s = {0};
    br_label(&s, "a", "x");
    br_label(&s, "b", "q\"b\\n\nl");
    assert_string_equal(s.data, "a=\"x\",b=\"q\\\"b\\\\n\\nl\"");
    br_str_release(&s);
}

static void snapshots_add_up_by_name_and_labels(void **state)
{
    struct br_metrics *sum = *state, *one = br_metrics_new(), *two = br_metrics_new();
    *br_metric(one, BR_COUNTER, "a", "x=\"1\"") = 1;
    *br_metric(two, BR_COUNTER, "a", "x=\"1\"") = 10;
    *br_metric(two, BR_COUNTER, "a", "x=\"2\"") = 100;
    assert_int_equal(br_metrics_add(sum, one), 0);
    assert_int_equal(br_metrics_add(sum, two), 0);
    assert_printed(sum, "# TYPE a_total counter\na_total{x=\"1\"} 11\na_total{x=\"2\"} 100\n");
    br_metrics_free(one);
    br_metrics_free(two);
    br_metrics_free(NULL);
}

/* The histograms of two workers after a reload that changed the bounds. The numbers at the bounds
 * 1 and 4 count only values that are certainly not larger. */
static void histograms_with_different_bounds_add_up(void **state)
{
    static const double old[] = {1, 2, 4, 8}, new[] = {1, 4};
    struct br_metrics *sum = *state, *one = br_metrics_new(), *two = br_metrics_new();
    struct br_histogram *few = br_histogram(one, "d", "", new, 2);
    struct br_histogram *many = br_histogram(two, "d", "", old, 4);
    br_histogram_observe(few, 0.5);
    br_histogram_observe(few, 9);
    for (unsigned i = 0; i < 5; i++)
        br_histogram_add(many, (double[]){1, 1.5, 3, 7, 100}[i], 1 << i);
    assert_int_equal(br_metrics_add(sum, one), 0);
    assert_int_equal(br_metrics_add(sum, two), 0);
    assert_printed(sum, "# TYPE d histogram\n"
                        "d_bucket{le=\"1\"} 2\nd_bucket{le=\"4\"} 8\nd_bucket{le=\"+Inf\"} 33\n"
                        "d_sum 1681.5\nd_count 33\n");
    br_metrics_free(one);
    br_metrics_free(two);
}

static void metrics_above_the_maximum_are_not_stored(void **state)
{
    char labels[32];
    for (int i = 0; i < BR_METRICS_MAX; i++) {
        (void)snprintf(labels, sizeof labels, "n=\"%d\"", i);
        *br_metric(*state, BR_COUNTER, "a", labels) = 1;
    }
    double *lost = br_metric(*state, BR_COUNTER, "a", "n=\"more\"");
    assert_non_null(lost);
    *lost += 5;
    struct br_str text = {0};
    br_metrics_print(*state, BR_METRICS_TEXT, NULL, NULL, &text);
    assert_null(strstr(text.data, "more"));
    br_str_release(&text);
    struct br_metrics *sum = br_metrics_new();
    assert_int_equal(br_metrics_add(sum, *state), 0); /* a full set is still summed */
    br_metrics_free(sum);
}

/* --- The ledger ------------------------------------------------------------------------------- */

static void the_ledger_counts_each_reason(void **state)
{
    struct br_ledger l;
    assert_int_equal(br_ledger_init(&l, *state, NULL), 0);
    br_ledger_dropped(&l, BR_TRACES, "queue_full", 3);
    br_ledger_dropped(&l, BR_TRACES, "queue_full", 4);
    br_ledger_dropped(&l, BR_PROFILES, "shutdown", 1);
    assert_true(*br_metric(*state, BR_COUNTER, "braid_ledger_dropped",
                           "signal=\"traces\",reason=\"queue_full\"") == 7);
    assert_true(*br_metric(*state, BR_COUNTER, "braid_ledger_dropped",
                           "signal=\"profiles\",reason=\"shutdown\"") == 1);
    assert_ptr_equal(l.received[BR_PROFILES],
                     br_metric(*state, BR_COUNTER, "braid_ledger_received", "signal=\"profiles\""));
}

static void *no_alloc(size_t size)
{
    (void)size;
    return NULL;
}

static void *no_resize(void *p, size_t size)
{
    (void)p;
    (void)size;
    return NULL;
}

static const struct br_mem_hooks nothing = {no_alloc, no_resize, free, NULL};

static void drops_are_counted_without_memory(void **state)
{
    struct br_ledger l;
    assert_int_equal(br_ledger_init(&l, *state, NULL), 0);
    br_ledger_dropped(&l, BR_TRACES, "rejected", 1);
    br_mem_set_hooks(&nothing);
    br_ledger_dropped(&l, BR_TRACES, "rejected", 2);
    br_ledger_dropped(&l, BR_TRACES, "never seen before", 5);
    br_mem_set_hooks(NULL);
    double sum = 0;
    struct br_str text = {0};
    br_metrics_print(*state, BR_METRICS_TEXT, NULL, NULL, &text);
    for (const char *at = text.data; (at = strstr(at, "braid_ledger_dropped_total{")); at++)
        sum += strtod(strchr(at, ' ') + 1, NULL);
    br_str_release(&text);
    assert_true(sum == 8);
}

/* If several counters shared one memory location, none of them would be right. */
static void a_ledger_without_memory_is_an_error(void **state)
{
    struct br_ledger l;
    br_mem_set_hooks(&nothing);
    assert_int_equal(br_ledger_init(&l, *state, NULL), BR_ENOMEM);
    br_mem_set_hooks(NULL);
    for (unsigned n = 1;; n++) {
        struct br_metrics *m = br_metrics_new();
        fault_nth(n);
        int rc = br_ledger_init(&l, m, "otlp");
        bool failed = fault_nth_stop();
        assert_int_equal(rc, failed ? BR_ENOMEM : 0);
        br_metrics_free(m);
        if (!failed)
            return;
    }
}

SUITE(metrics)
{
    const struct CMUnitTest tests[] = {
        TEST(a_metric_is_one_number),
        TEST(printed_as_prometheus_text),
        TEST(printed_as_openmetrics),
        TEST(printed_without_suffixes),
        TEST(hidden_metrics_are_omitted),
        TEST(histograms_add_up),
        TEST(totals_have_the_suffix_in_every_format),
        TEST(a_histogram_keeps_its_bounds),
        TEST(printed_numbers_can_be_read_back),
        TEST(infinity_has_prometheus_notation),
        TEST(label_values_are_escaped),
        TEST(snapshots_add_up_by_name_and_labels),
        TEST(histograms_with_different_bounds_add_up),
        TEST(metrics_above_the_maximum_are_not_stored),
        TEST(the_ledger_counts_each_reason),
        TEST(drops_are_counted_without_memory),
        TEST(a_ledger_without_memory_is_an_error),
    };
    return RUN(tests, NULL, NULL);
}
