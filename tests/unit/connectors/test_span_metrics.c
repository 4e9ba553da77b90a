/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counting with destinations that refuse, and without memory. The names, labels and buckets are
 * tested in tests/e2e/test_connectors.py. Spans have the name "POST /checkout" if their number is a
 * multiple of 3, otherwise "GET /", and take 1 microsecond (items.h).
 */
#include <fcntl.h>

#include "core/metrics.h"
#include "tests/support/fault.h"
#include "tests/support/pipelines_bed.h"
#include "tests/support/test.h"

#define SERVICE                                                                                    \
    "service:\n  pipelines:\n    traces: {receivers: [in], exporters: [span_metrics, sink/0]}\n"

static struct pipelines_bed *counted(const char *settings)
{
    char yaml[2048];
    (void)snprintf(yaml, sizeof yaml, "connectors: {span_metrics: {%s}}\n" SERVICE, settings);
    return pipelines_new(yaml);
}

/* Returns the sum of a metric over all series. */
static double sum_of(const struct pipelines_bed *bed, const char *name)
{
    struct br_str text = {0};
    double sum = 0;
    size_t len = strlen(name);
    br_metrics_print(bed->h->host.metrics, BR_METRICS_PLAIN, NULL, NULL, &text);
    for (const char *line = text.data; line && *line; line = strchr(line, '\n') + 1)
        if (strncmp(line, name, len) == 0 && line[len] == '{')
            sum += strtod(strstr(line, "} ") + 2, NULL);
    br_str_release(&text);
    return sum;
}

#define CALLS "traces_span_metrics_calls_total"
#define COUNT "traces_span_metrics_duration_milliseconds_count"

static void accepted_spans_are_counted_once(void **state)
{
    (void)state;
    struct pipelines_bed *bed = counted("");
    pipelines_send(bed, BR_TRACES, 10);
    bed->sinks[0].verdict = FAKE_RETRY;
    pipelines_send(bed, BR_TRACES, 10);
    bed->sinks[0].verdict = FAKE_REJECT;
    pipelines_send(bed, BR_TRACES, 10);
    bed->sinks[0].verdict = FAKE_LATE;
    pipelines_send(bed, BR_TRACES, 5);
    fake_host_advance(bed->h, 1000);
    assert_true(sum_of(bed, CALLS) == 15);
    assert_true(sum_of(bed, COUNT) == 15);
    assert_int_equal(bed->tally.n_done, 2);
    assert_int_equal(bed->tally.n_retry, 1);
    assert_int_equal(bed->tally.n_reject, 1);
    pipelines_free(bed);
}

/* The limit applies to each metric separately. The sums remain exact. */
static void sums_are_exact_above_the_limit(void **state)
{
    (void)state;
    struct pipelines_bed *bed = counted("aggregation_cardinality_limit: 1");
    for (int i = 0; i < 5; i++)
        pipelines_send(bed, BR_TRACES, 6);
    assert_true(sum_of(bed, CALLS) == 30);
    assert_true(sum_of(bed, COUNT) == 30);
    pipelines_free(bed);
}

static void requests_in_progress_end_at_shutdown(void **state)
{
    (void)state;
    struct pipelines_bed *bed = counted("");
    bed->sinks[0].verdict = FAKE_HOLD;
    pipelines_send(bed, BR_TRACES, 10);
    pipelines_free(bed);
}

/* If memory is exhausted, spans are counted in another series, or in
 * braid_span_metrics_uncounted. */
static void count_without_memory(void *arg)
{
    struct pipelines_bed *bed =
        counted("dimensions: [{name: http.route}, {name: service.name.missing, default: a}], "
                "exemplars: {enabled: true}");
    (void)arg;
    fault_start();
    for (int i = 0; i < 3; i++)
        pipelines_send(bed, BR_TRACES, 6);
    fault_stop();
    fake_host_advance(bed->h, 1000);
    double missed = sum_of(bed, "braid_span_metrics_uncounted");
    assert_true(sum_of(bed, CALLS) + missed >= 6 * bed->tally.n_done);
    assert_true(sum_of(bed, CALLS) <= 6 * bed->tally.n_done);
    pipelines_free(bed);
}

static void without_memory_no_span_is_counted_twice(void **state)
{
    (void)state;
    fault_some("span_metrics", count_without_memory, NULL, 1);
}

SUITE(span_metrics)
{
    br_log_setup(BR_LOG_ERROR, false, open("/dev/null", O_WRONLY | O_CLOEXEC));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepted_spans_are_counted_once),
        cmocka_unit_test(sums_are_exact_above_the_limit),
        cmocka_unit_test(requests_in_progress_end_at_shutdown),
        cmocka_unit_test(without_memory_no_span_is_counted_twice),
    };
    return RUN(tests, NULL, NULL);
}
