/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of the rows, moving, copying and the default pipelines follow the Collector's routing
 * connector 0.145 (its README and ConsumeTraces). Spans with an odd number have the http.route /a,
 * the others /b; an item has its first half in the resource service-0, the rest in service-1
 * (items.h).
 */
#include <fcntl.h>

#include "base/mem.h"
#include "tests/support/fault.h"
#include "tests/support/pipelines_bed.h"
#include "tests/support/test.h"

/* The pipeline to the connector, and pipelines from it to the sinks. */
#define SERVICE                                                                                    \
    "service:\n  pipelines:\n"                                                                     \
    "    traces/in: {receivers: [in], exporters: [routing]}\n"                                     \
    "    traces/0: {receivers: [routing], exporters: [sink/0]}\n"                                  \
    "    traces/1: {receivers: [routing], exporters: [sink/1]}\n"                                  \
    "    traces/2: {receivers: [routing], exporters: [sink/2]}\n"                                  \
    "    profiles/in: {receivers: [in], exporters: [routing]}\n"                                   \
    "    profiles/0: {receivers: [routing], exporters: [sink/0]}\n"                                \
    "    profiles/1: {receivers: [routing], exporters: [sink/1]}\n"

#define ODD "condition: 'attributes[\"http.route\"] == \"/a\"'"
#define EVEN "condition: 'attributes[\"http.route\"] == \"/b\"'"
#define FIRST "condition: 'attributes[\"service.name\"] == \"service-0\"'"
#define ALWAYS "condition: 'true'"

static struct pipelines_bed *routed(const char *settings)
{
    char yaml[4096];
    (void)snprintf(yaml, sizeof yaml, "connectors: {routing: {%s}}\n" SERVICE, settings);
    return pipelines_new(yaml);
}

static size_t delivered(const struct pipelines_bed *bed, int sink, enum br_signal signal)
{
    return fake_sink_once(&bed->sinks[sink], signal, 0, bed->next[signal]);
}

static void expect(const struct pipelines_bed *bed, enum br_signal signal, size_t n0, size_t n1,
                   size_t n2)
{
    assert_int_equal(delivered(bed, 0, signal), n0);
    assert_int_equal(delivered(bed, 1, signal), n1);
    assert_int_equal(delivered(bed, 2, signal), n2);
}

static bool has(const struct pipelines_bed *bed, int sink, uint64_t number)
{
    return bed->sinks[sink].delivered[BR_TRACES][number] == 1;
}

/* --- Where records go ------------------------------------------------------------------------- */

static void spans_go_to_the_first_row_that_matches(void **state)
{
    (void)state;
    struct pipelines_bed *bed = routed("table: [{context: span, " ODD ", pipelines: [traces/0]}, "
                                       "{context: span, " ALWAYS ", pipelines: [traces/1]}], "
                                       "default_pipelines: [traces/2]");
    pipelines_send(bed, BR_TRACES, 10);
    fake_host_advance(bed->h, 100);
    expect(bed, BR_TRACES, 5, 5, 0);
    for (uint64_t i = 0; i < 10; i++)
        assert_true(has(bed, i % 2 ? 0 : 1, i));
    assert_int_equal(bed->tally.n_done, 1);
    pipelines_free(bed);
}

static void other_spans_go_to_the_default_pipelines(void **state)
{
    (void)state;
    struct pipelines_bed *bed = routed("table: [{context: span, " ODD ", pipelines: [traces/0]}], "
                                       "default_pipelines: [traces/1, traces/2]");
    pipelines_send(bed, BR_TRACES, 10);
    fake_host_advance(bed->h, 100);
    expect(bed, BR_TRACES, 5, 5, 5);
    pipelines_free(bed);
}

static void other_spans_are_dropped_without_default_pipelines(void **state)
{
    (void)state;
    struct pipelines_bed *bed = routed("table: [{context: span, " ODD ", pipelines: [traces/0]}]");
    pipelines_send(bed, BR_TRACES, 10);
    pipelines_send(bed, BR_TRACES, 1);
    fake_host_advance(bed->h, 100);
    expect(bed, BR_TRACES, 5, 0, 0);
    assert_int_equal(bed->tally.n_done, 2);
    assert_true(fake_host_dropped(bed->h, BR_TRACES, "unrouted") == 6);
    pipelines_free(bed);
}

/* A resource is the default context. */
static void resources_are_routed_with_their_records(void **state)
{
    (void)state;
    struct pipelines_bed *bed = routed("table: [{" FIRST ", pipelines: [traces/0, profiles/1]}], "
                                       "default_pipelines: [traces/1, profiles/0]");
    pipelines_send(bed, BR_TRACES, 10);
    pipelines_send(bed, BR_PROFILES, 7);
    fake_host_advance(bed->h, 100);
    expect(bed, BR_TRACES, 5, 5, 0);
    assert_true(has(bed, 0, 0) && has(bed, 0, 4) && has(bed, 1, 5));
    expect(bed, BR_PROFILES, 3, 4, 0);
    pipelines_free(bed);
}

/* If all records have the same route, the item is sent unchanged. */
static void an_item_with_one_route_is_not_divided(void **state)
{
    (void)state;
    struct pipelines_bed *bed =
        routed("table: [{statement: ' route( ) where (true)', pipelines: [traces/0]}]");
    pipelines_send(bed, BR_TRACES, 10);
    assert_int_equal(bed->sinks[0].n_items, 1);
    expect(bed, BR_TRACES, 10, 0, 0);
    pipelines_free(bed);
}

static void a_row_without_pipelines_of_the_signal_does_not_match(void **state)
{
    (void)state;
    struct pipelines_bed *bed = routed("table: [{" ALWAYS ", pipelines: [profiles/0]}, {" ALWAYS
                                       ", pipelines: [traces/1]}]");
    pipelines_send(bed, BR_TRACES, 4);
    pipelines_send(bed, BR_PROFILES, 4);
    expect(bed, BR_TRACES, 0, 4, 0);
    expect(bed, BR_PROFILES, 4, 0, 0);
    pipelines_free(bed);
}

static void copied_records_are_compared_with_further_rows(void **state)
{
    (void)state;
    struct pipelines_bed *bed =
        routed("table: [{context: span, " ODD ", action: copy, pipelines: [traces/0]}, "
               "{" FIRST ", pipelines: [traces/1]}], default_pipelines: [traces/2]");
    pipelines_send(bed, BR_TRACES, 10);
    fake_host_advance(bed->h, 100);
    expect(bed, BR_TRACES, 5, 5, 5);
    assert_int_equal(bed->tally.n_done, 1);
    pipelines_free(bed);
}

static void records_may_be_copied_only(void **state)
{
    (void)state;
    struct pipelines_bed *bed =
        routed("table: [{context: span, " ODD ", action: copy, pipelines: [traces/0]}]");
    pipelines_send(bed, BR_TRACES, 10);
    fake_host_advance(bed->h, 100);
    expect(bed, BR_TRACES, 5, 0, 0);
    assert_int_equal(bed->tally.n_done, 1);
    assert_true(fake_host_dropped(bed->h, BR_TRACES, "unrouted") == 5);
    pipelines_free(bed);
}

static void items_without_records_are_accepted(void **state)
{
    (void)state;
    struct pipelines_bed *bed = routed("table: [{" ALWAYS ", pipelines: [traces/0]}]");
    pipelines_send(bed, BR_TRACES, 0);
    assert_int_equal(bed->tally.n_done, 1);
    pipelines_free(bed);
}

/* --- Refused parts ---------------------------------------------------------------------------- */

#define TWO                                                                                        \
    "table: [{context: span, " ODD ", pipelines: [traces/0]}, "                                    \
    "{context: span, " EVEN ", pipelines: [traces/1]}]"

static void a_refused_part_is_offered_again_if_another_was_accepted(void **state)
{
    (void)state;
    struct pipelines_bed *bed = routed(TWO);
    bed->sinks[1].first_fail = 3;
    pipelines_send(bed, BR_TRACES, 10);
    fake_host_advance(bed->h, 9000);
    expect(bed, BR_TRACES, 5, 5, 0);
    assert_int_equal(bed->tally.n_done, 1);
    assert_int_equal(bed->sinks[0].n_items, 1);
    assert_int_equal(bed->tally.last.n_rejected, 0);
    pipelines_free(bed);
}

static void a_part_that_stays_refused_is_a_partial_success(void **state)
{
    (void)state;
    struct pipelines_bed *bed = routed(TWO);
    bed->sinks[1].verdict = FAKE_RETRY;
    pipelines_send(bed, BR_TRACES, 10);
    fake_host_advance(bed->h, 20000);
    expect(bed, BR_TRACES, 5, 0, 0);
    assert_int_equal(bed->tally.n_done, 1);
    assert_int_equal(bed->tally.last.n_rejected, 5);
    pipelines_free(bed);
}

static void an_item_is_refused_if_all_parts_are(void **state)
{
    (void)state;
    struct pipelines_bed *bed = routed(TWO);
    bed->sinks[0].verdict = bed->sinks[1].verdict = FAKE_RETRY;
    pipelines_send(bed, BR_TRACES, 10);
    fake_host_advance(bed->h, 100);
    assert_int_equal(bed->tally.n_retry, 1);
    pipelines_free(bed);
}

static void a_rejected_part_is_a_partial_success(void **state)
{
    (void)state;
    struct pipelines_bed *bed = routed(TWO);
    bed->sinks[0].verdict = FAKE_REJECT;
    pipelines_send(bed, BR_TRACES, 10);
    fake_host_advance(bed->h, 100);
    assert_int_equal(bed->tally.n_done, 1);
    assert_int_equal(bed->tally.last.n_rejected, 5);
    expect(bed, BR_TRACES, 0, 5, 0);
    pipelines_free(bed);
}

/* Records that no row matches are dropped once, even if the item has to be sent again. */
static void unrouted_records_are_counted_when_the_item_ends(void **state)
{
    (void)state;
    struct pipelines_bed *bed = routed("table: [{context: span, " ODD ", pipelines: [traces/0]}]");
    bed->sinks[0].verdict = FAKE_RETRY;
    pipelines_send(bed, BR_TRACES, 10);
    fake_host_advance(bed->h, 100);
    assert_int_equal(bed->tally.n_retry, 1);
    assert_true(fake_host_dropped(bed->h, BR_TRACES, NULL) == 0);
    pipelines_free(bed);
}

static void copies_end_in_any_way(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 60; seed++) {
        struct pipelines_bed *bed =
            routed("table: [{context: span, " ODD ", action: copy, pipelines: [traces/0]}, "
                   "{action: copy, " FIRST ", pipelines: [traces/1]}, "
                   "{context: span, " EVEN ", pipelines: [traces/2]}]");
        for (int i = 0; i < PIPELINES_SINKS; i++) {
            bed->sinks[i].verdict = FAKE_RANDOM;
            bed->sinks[i].seed = seed + 100u * (unsigned)i;
        }
        for (int i = 0; i < 5; i++)
            pipelines_send(bed, BR_TRACES, 10);
        fake_host_advance(bed->h, seed % 3 ? 30000 : 50);
        for (int i = 0; i < PIPELINES_SINKS; i++)
            assert_int_equal(fake_sink_twice(&bed->sinks[i], BR_TRACES), 0);
        pipelines_free(bed);
    }
}

static void parts_in_progress_end_at_shutdown(void **state)
{
    (void)state;
    struct pipelines_bed *bed = routed(TWO);
    bed->sinks[0].verdict = bed->sinks[1].verdict = FAKE_HOLD;
    pipelines_send(bed, BR_TRACES, 10);
    fake_host_advance(bed->h, 100);
    pipelines_free(bed);
}

static void send_without_memory(void *arg)
{
    struct pipelines_bed *bed =
        routed("table: [{context: span, " ODD ", action: copy, pipelines: [traces/0]}, "
               "{" FIRST ", pipelines: [traces/1, profiles/1]}], "
               "default_pipelines: [traces/2, profiles/0]");
    (void)arg;
    fault_start();
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++)
        pipelines_send(bed, s, 6);
    fault_stop();
    fake_host_advance(bed->h, 20000);
    for (int i = 0; i < PIPELINES_SINKS; i++)
        assert_int_equal(fake_sink_twice(&bed->sinks[i], BR_TRACES), 0);
    pipelines_free(bed);
}

static void without_memory_items_are_refused_or_delivered(void **state)
{
    (void)state;
    fault_some("routing", send_without_memory, NULL, 1);
}

/* --- Settings --------------------------------------------------------------------------------- */

static void wrong_settings_are_rejected(void **state)
{
    static const char *const cases[][2] = {
        {"", "connectors::routing::table: needs at least one row"},
        {"table: [{pipelines: [traces/0]}]",
         "connectors::routing::table[0]: needs a \"condition\""},
        {"table: [{" ALWAYS "}]", "connectors::routing::table[0]: \"pipelines\" is missing"},
        {"table: [{" ALWAYS ", statement: route(), pipelines: [traces/0]}]",
         "connectors::routing::table[0]: has both \"condition\" and \"statement\"; keep one"},
        {"table: [{statement: 'delete_key(attributes, \"a\") where true', pipelines: [traces/0]}]",
         "\"statement\" must be route() where CONDITION"},
        {"table: [{condition: 'attributes[', pipelines: [traces/0]}]",
         "connectors::routing::table[0]::condition: at character "},
        {"table: [{" ALWAYS ", pipelines: [traces/9]}]",
         "connectors::routing::table[0]::pipelines: must name pipelines of service::pipelines, got "
         "\"traces/9\""},
        {"table: [{" ALWAYS ", pipelines: [traces/in]}]",
         "connectors::routing::table[0]::pipelines: the pipeline \"traces/in\" does not receive "
         "from this connector; name routing under its receivers"},
        {"table: [{" ALWAYS ", pipelines: [traces/0]}], default_pipelines: [traces/9]",
         "connectors::routing::default_pipelines: must name pipelines of service::pipelines, got "
         "\"traces/9\""},
        {"table: [{context: span, " ALWAYS ", pipelines: [traces/0, profiles/0]}]",
         "a row with the context \"span\" cannot name pipelines of profiles"},
        {"table: [{context: request, condition: 'a == \"b\"', pipelines: [traces/0]}]",
         "must be request[\"KEY\"] == \"VALUE\""},
        {"table: [{context: request, condition: 'request[\"a\"] == \"b\" or true', "
         "pipelines: [traces/0]}]",
         "must be request[\"KEY\"] == \"VALUE\""},
        {"table: [{context: request, statement: 'route()', pipelines: [traces/0]}]",
         "the context \"request\" needs a \"condition\" instead"},
        {"table: [{context: log, " ALWAYS ", pipelines: [traces/0]}]",
         "connectors::routing::table[0]::context: "},
    };
    char yaml[4096];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        (void)snprintf(yaml, sizeof yaml, "connectors: {routing: {%s}}\n" SERVICE, cases[i][0]);
        const char *error = pipelines_error(yaml);
        if (!strstr(error, cases[i][1]))
            fail_msg("%s: the error is \"%s\", not \"%s\"", cases[i][0], error, cases[i][1]);
    }
}

SUITE(routing)
{
    br_log_setup(BR_LOG_ERROR, false, open("/dev/null", O_WRONLY | O_CLOEXEC));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_go_to_the_first_row_that_matches),
        cmocka_unit_test(other_spans_go_to_the_default_pipelines),
        cmocka_unit_test(other_spans_are_dropped_without_default_pipelines),
        cmocka_unit_test(resources_are_routed_with_their_records),
        cmocka_unit_test(an_item_with_one_route_is_not_divided),
        cmocka_unit_test(a_row_without_pipelines_of_the_signal_does_not_match),
        cmocka_unit_test(copied_records_are_compared_with_further_rows),
        cmocka_unit_test(records_may_be_copied_only),
        cmocka_unit_test(items_without_records_are_accepted),
        cmocka_unit_test(a_refused_part_is_offered_again_if_another_was_accepted),
        cmocka_unit_test(a_part_that_stays_refused_is_a_partial_success),
        cmocka_unit_test(an_item_is_refused_if_all_parts_are),
        cmocka_unit_test(a_rejected_part_is_a_partial_success),
        cmocka_unit_test(unrouted_records_are_counted_when_the_item_ends),
        cmocka_unit_test(copies_end_in_any_way),
        cmocka_unit_test(parts_in_progress_end_at_shutdown),
        cmocka_unit_test(without_memory_items_are_refused_or_delivered),
        cmocka_unit_test(wrong_settings_are_rejected),
    };
    return RUN(tests, NULL, NULL);
}
