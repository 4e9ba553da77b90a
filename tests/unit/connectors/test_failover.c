/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Levels are used as by the Collector's failover connector 0.145 (traces.go, pipeline_selector.go).
 * If the current level fails, the next level is used. After retry_interval, one request tries the
 * levels from the first one.
 */
#include <fcntl.h>

#include "tests/support/fault.h"
#include "tests/support/pipelines_bed.h"
#include "tests/support/test.h"

#define SERVICE                                                                                    \
    "service:\n  pipelines:\n"                                                                     \
    "    traces/in: {receivers: [in], exporters: [failover]}\n"                                    \
    "    traces/0: {receivers: [failover], exporters: [sink/0]}\n"                                 \
    "    traces/1: {receivers: [failover], exporters: [sink/1]}\n"                                 \
    "    traces/2: {receivers: [failover], exporters: [sink/2]}\n"                                 \
    "    profiles/in: {receivers: [in], exporters: [failover]}\n"                                  \
    "    profiles/1: {receivers: [failover], exporters: [sink/1]}\n"                               \
    "    profiles/2: {receivers: [failover], exporters: [sink/2]}\n"

#define THREE "priority_levels: [traces/0, [traces/1, profiles/1], [traces/2, profiles/2]]"
#define INTERVAL_MS 60000

static struct pipelines_bed *levels(const char *settings)
{
    char yaml[4096];
    (void)snprintf(yaml, sizeof yaml, "connectors: {failover: {%s}}\n" SERVICE, settings);
    return pipelines_new(yaml);
}

/* Sends one item of traces, and checks that the sink `expected` is the only one that accepted it.
 * `expected` is -1 if none may accept it. */
static void expect(struct pipelines_bed *bed, int expected)
{
    unsigned n_done[PIPELINES_SINKS];
    for (int i = 0; i < PIPELINES_SINKS; i++)
        n_done[i] = bed->sinks[i].n_done;
    pipelines_send(bed, BR_TRACES, 3);
    fake_host_advance(bed->h, 10);
    for (int i = 0; i < PIPELINES_SINKS; i++)
        assert_int_equal(bed->sinks[i].n_done - n_done[i], i == expected);
}

static void the_first_level_is_used_while_it_works(void **state)
{
    (void)state;
    struct pipelines_bed *bed = levels(THREE);
    for (int i = 0; i < 5; i++)
        expect(bed, 0);
    assert_int_equal(bed->tally.n_done, 5);
    pipelines_free(bed);
}

static void a_refused_request_goes_to_the_next_level(void **state)
{
    (void)state;
    struct pipelines_bed *bed = levels(THREE);
    bed->sinks[0].verdict = FAKE_RETRY;
    expect(bed, 1);
    assert_int_equal(bed->sinks[0].n_items, 1);
    /* the first level is not tried again before the interval is over */
    expect(bed, 1);
    assert_int_equal(bed->sinks[0].n_items, 1);
    bed->sinks[1].verdict = FAKE_RETRY;
    expect(bed, 2);
    assert_int_equal(bed->tally.n_done, 3);
    pipelines_free(bed);
}

static void after_the_interval_a_request_tries_the_first_level(void **state)
{
    (void)state;
    struct pipelines_bed *bed = levels(THREE ", retry_interval: 60s");
    bed->sinks[0].verdict = FAKE_RETRY;
    expect(bed, 1);
    fake_host_advance(bed->h, INTERVAL_MS);
    expect(bed, 1);
    expect(bed, 1);
    assert_int_equal(bed->sinks[0].n_items, 2);
    bed->sinks[0].verdict = FAKE_DONE;
    expect(bed, 1);
    fake_host_advance(bed->h, INTERVAL_MS);
    expect(bed, 0);
    expect(bed, 0);
    pipelines_free(bed);
}

/* A probe stops at the first level that works. */
static void a_level_in_between_is_found_again(void **state)
{
    (void)state;
    struct pipelines_bed *bed = levels(THREE ", retry_interval: 60s");
    bed->sinks[0].verdict = bed->sinks[1].verdict = FAKE_RETRY;
    expect(bed, 2);
    bed->sinks[1].verdict = FAKE_DONE;
    expect(bed, 2);
    fake_host_advance(bed->h, INTERVAL_MS);
    expect(bed, 1);
    expect(bed, 1);
    assert_int_equal(bed->sinks[0].n_items, 2);
    pipelines_free(bed);
}

/* A request was sent to the first level, which answers late. Its answer does not make the first
 * level the current one again. */
static void only_a_probe_raises_the_level(void **state)
{
    (void)state;
    struct pipelines_bed *bed = levels(THREE);
    bed->sinks[0].verdict = FAKE_HOLD;
    pipelines_send(bed, BR_TRACES, 3);
    bed->sinks[0].verdict = FAKE_RETRY;
    expect(bed, 1);
    fake_sink_release(&bed->sinks[0], FAKE_DONE);
    fake_host_advance(bed->h, 10);
    bed->sinks[0].verdict = FAKE_DONE;
    expect(bed, 1);
    assert_int_equal(bed->tally.n_done, 3);
    pipelines_free(bed);
}

static void a_request_that_all_levels_refuse_is_refused(void **state)
{
    (void)state;
    struct pipelines_bed *bed = levels(THREE ", retry_interval: 60s");
    for (int i = 0; i < PIPELINES_SINKS; i++)
        bed->sinks[i].verdict = FAKE_RETRY;
    expect(bed, -1);
    assert_int_equal(bed->tally.n_retry, 1);
    /* a second later, all levels are tried again */
    bed->sinks[0].verdict = FAKE_DONE;
    fake_host_advance(bed->h, 1000);
    expect(bed, 0);
    pipelines_free(bed);
}

/* A rejected request may be wrong, so the level is used for the next one. */
static void a_rejected_request_does_not_change_the_level(void **state)
{
    (void)state;
    struct pipelines_bed *bed = levels(THREE);
    bed->sinks[0].verdict = FAKE_REJECT;
    expect(bed, 1);
    bed->sinks[0].verdict = FAKE_DONE;
    expect(bed, 0);
    for (int i = 0; i < PIPELINES_SINKS; i++)
        bed->sinks[i].verdict = FAKE_REJECT;
    expect(bed, -1);
    assert_int_equal(bed->tally.n_reject, 1);
    pipelines_free(bed);
}

/* The first level does not have a pipeline of profiles. Each signal has a separate current
 * level. */
static void levels_without_the_signal_are_skipped(void **state)
{
    (void)state;
    struct pipelines_bed *bed = levels(THREE);
    pipelines_send(bed, BR_PROFILES, 3);
    assert_int_equal(fake_sink_once(&bed->sinks[1], BR_PROFILES, 0, 3), 3);
    bed->sinks[1].verdict = FAKE_RETRY;
    pipelines_send(bed, BR_PROFILES, 3);
    fake_host_advance(bed->h, 10);
    assert_int_equal(fake_sink_once(&bed->sinks[2], BR_PROFILES, 3, 3), 3);
    expect(bed, 0);
    pipelines_free(bed);
}

static void any_answers_deliver_each_request_once(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 60; seed++) {
        struct pipelines_bed *bed = levels(THREE ", retry_interval: 1s");
        for (int i = 0; i < PIPELINES_SINKS; i++) {
            bed->sinks[i].verdict = FAKE_RANDOM;
            bed->sinks[i].seed = seed + 100u * (unsigned)i;
        }
        for (int i = 0; i < 20; i++) {
            pipelines_send(bed, i % 3 ? BR_TRACES : BR_PROFILES, 5);
            fake_host_advance(bed->h, 200);
        }
        fake_host_advance(bed->h, seed % 3 ? 30000 : 0);
        size_t n = 0;
        for (int i = 0; i < PIPELINES_SINKS; i++)
            for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++)
                n += fake_sink_once(&bed->sinks[i], s, 0, bed->next[s]);
        if (seed % 3)
            assert_int_equal(n, 5 * bed->tally.n_done);
        pipelines_free(bed);
    }
}

static void send_without_memory(void *arg)
{
    struct pipelines_bed *bed = levels(THREE);
    (void)arg;
    bed->sinks[0].verdict = FAKE_RETRY;
    fault_start();
    for (int i = 0; i < 3; i++)
        pipelines_send(bed, BR_TRACES, 6);
    fault_stop();
    fake_host_advance(bed->h, 1000);
    pipelines_free(bed);
}

static void without_memory_requests_are_refused_or_delivered(void **state)
{
    (void)state;
    fault_some("failover", send_without_memory, NULL, 1);
}

static void requests_in_progress_end_at_shutdown(void **state)
{
    (void)state;
    struct pipelines_bed *bed = levels(THREE);
    bed->sinks[0].verdict = bed->sinks[1].verdict = bed->sinks[2].verdict = FAKE_HOLD;
    pipelines_send(bed, BR_TRACES, 10);
    pipelines_free(bed);
}

static void wrong_settings_are_rejected(void **state)
{
    static const char *const cases[][2] = {
        {"", "connectors::failover: \"priority_levels\" is missing"},
        {"priority_levels: []", "connectors::failover::priority_levels: must be a list of levels"},
        {"priority_levels: [[traces/0], []]",
         "connectors::failover::priority_levels[1]: a level needs at least one pipeline"},
        {"priority_levels: [[{a: b}]]",
         "connectors::failover::priority_levels[0]: must be a list of ids of pipelines, got a map"},
        {"priority_levels: [[traces/0], [traces/9]]",
         "connectors::failover::priority_levels[1]: must name pipelines of service::pipelines, got "
         "\"traces/9\""},
        {"priority_levels: [[traces/in]]",
         "connectors::failover::priority_levels[0]: the pipeline \"traces/in\" does not receive "
         "from this connector"},
        {"priority_levels: [[traces/0]], retry_interval: 0s",
         "connectors::failover::retry_interval: must be longer than 0s"},
    };
    char yaml[4096];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        (void)snprintf(yaml, sizeof yaml, "connectors: {failover: {%s}}\n" SERVICE, cases[i][0]);
        const char *error = pipelines_error(yaml);
        if (!strstr(error, cases[i][1]))
            fail_msg("%s: the error is \"%s\", not \"%s\"", cases[i][0], error, cases[i][1]);
    }
}

SUITE(failover)
{
    br_log_setup(BR_LOG_ERROR, false, open("/dev/null", O_WRONLY | O_CLOEXEC));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_level_is_used_while_it_works),
        cmocka_unit_test(a_refused_request_goes_to_the_next_level),
        cmocka_unit_test(after_the_interval_a_request_tries_the_first_level),
        cmocka_unit_test(a_level_in_between_is_found_again),
        cmocka_unit_test(only_a_probe_raises_the_level),
        cmocka_unit_test(a_request_that_all_levels_refuse_is_refused),
        cmocka_unit_test(a_rejected_request_does_not_change_the_level),
        cmocka_unit_test(levels_without_the_signal_are_skipped),
        cmocka_unit_test(any_answers_deliver_each_request_once),
        cmocka_unit_test(without_memory_requests_are_refused_or_delivered),
        cmocka_unit_test(requests_in_progress_end_at_shutdown),
        cmocka_unit_test(wrong_settings_are_rejected),
    };
    return RUN(tests, NULL, NULL);
}
