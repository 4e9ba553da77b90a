/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the changes that the join makes to spans: marks and totals. Expected numbers are computed
 * by hand. */
#include "base/mem.h"
#include "tests/support/join_steps.h"
#include "tests/support/test.h"

/* --- Spans ------------------------------------------------------------------------------------ */

static void spans_of_profiled_services_are_held_for_totals(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{hold: 10s}", NULL, 0);
    join_steps_send_span(r, "cart", 7, 2, "b");
    fake_host_advance(r->h, 10000);
    assert_int_equal(r->n_out, 1); /* it was not known yet whether cart is profiled */
    join_steps_send_span(r, "cart", 7, 2, "b");
    assert_int_equal(r->n_out, 2);
    join_steps_send_sample(r, "shop", 7, 1, 5);
    assert_int_equal(r->n_out, 3);
    join_steps_send_span(r, "shop", 7, 42, "GET");
    join_steps_send_span(r, "shop", 7, 43, "PUT");
    assert_int_equal(r->n_out, 3);
    fake_host_advance(r->h, 9000);
    join_steps_send_sample(r, "shop", 7, 42, 9);
    fake_host_advance(r->h, 999);
    assert_int_equal(r->n_out, 4);
    fake_host_advance(r->h, 1);
    assert_int_equal(r->n_out, 6);
    assert_string_equal(r->out[4].text, "GET " S42 ": profile.id=" T7
                                        " profile.type=samples:count profile.sample_count=9 "
                                        "profile.inclusive_sample_count=9"
                                        " pyroscope.profile.id=" S42 "\n");
    assert_string_equal(r->out[5].text, "PUT 000000000000002b:\n");
    assert_int_equal((int)join_rig_count(r, "spans_marked", NULL), 1);
    join_rig_free(r);
}

/* The first spans of a service are held, too, because it is not known yet whether the service is
 * profiled. If no profile arrives, later spans are not held, until the service has sent no spans
 * for a window. */
static void the_first_spans_of_a_service_are_held(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{hold: 10s, window: 30s}", NULL, 0);
    join_steps_send_span(r, "shop", 7, 42, "first");
    fake_host_advance(r->h, 9000);
    join_steps_send_span(r, NULL, 7, 1, "of nobody");
    assert_int_equal(r->n_out, 1);
    join_steps_send_sample(r, "shop", 7, 42, 5);
    fake_host_advance(r->h, 1000);
    assert_int_equal(join_rig_span_int(r, "first", "profile.sample_count"), 5);
    assert_int_equal(r->n_out, 3);
    unsigned n_at_once[2] = {0};
    /* cart sends spans for 20 seconds, pauses for more than a window, and sends spans for 20
     * seconds */
    for (unsigned i = 0; i < 40; i++) {
        unsigned before = r->n_out;
        join_steps_send_span(r, "cart", 7, 100 + i, "cart");
        n_at_once[i / 20] += r->n_out > before;
        fake_host_advance(r->h, i == 19 ? 40000 : 1000);
    }
    assert_int_equal(n_at_once[0], 10);
    assert_int_equal(n_at_once[1], 10);
    join_rig_free(r);
}

static void send_marked_span(struct join_rig *r, uint64_t span, const char *mark)
{
    struct wire w = {0};
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    put_span(&w, &(struct span_in){.ids = join_ids(7, span),
                                   .name = "GET",
                                   .attributes = {"k", "v", "pyroscope.profile.id", mark}});
    close_resource(&w, o);
    join_rig_send(r, BR_TRACES, &w, true);
    wire_free(&w);
}

/* A bridge (profiler integration of an SDK) marks each local root, with or without samples. After a
 * hold, it is known which roots have samples, and the other marks are removed. */
static void marks_without_samples_are_removed(void **state)
{
    (void)state;
    for (unsigned exact = 0; exact < 2; exact++) {
        struct join_rig *r =
            join_rig_new(exact ? "{hold: 10s, mark: exact}" : "{hold: 10s}", NULL, 0);
        send_marked_span(r, 42, S42);                /* has samples */
        send_marked_span(r, 43, "000000000000002b"); /* has no samples */
        /* this value is not a mark that a bridge writes */
        send_marked_span(r, 44, "mine");
        join_steps_send_sample(r, "shop", 7, 42, 5);
        fake_host_advance(r->h, 10000);
        assert_int_equal(r->n_out, 4);
        assert_non_null(strstr(r->out[1].text, " pyroscope.profile.id=" S42));
        assert_string_equal(r->out[2].text, exact ? "GET 000000000000002b: k=v\n"
                                                  : "GET 000000000000002b: k=v "
                                                    "pyroscope.profile.id=000000000000002b\n");
        assert_string_equal(r->out[3].text,
                            "GET 000000000000002c: k=v pyroscope.profile.id=mine\n");
        join_rig_free(r);
    }
}

/* Samples of a span that was not held may still arrive. Lost samples may be in the profile store.
 * In both cases, the mark is kept. */
static void marks_that_may_have_samples_are_kept(void **state)
{
    (void)state;
    struct join_rig *r =
        join_rig_new("{hold: 1s, window: 10s, mark: exact, hold_max_bytes: 0}", NULL, 0);
    send_marked_span(r, 42, S42);
    assert_non_null(strstr(join_rig_last(r), "pyroscope.profile.id=" S42));
    join_rig_free(r);
    r = join_rig_new("{hold: 1s, window: 10s, mark: exact}", NULL, 0);
    join_steps_send_sample(r, "shop", 7, 42, 5);
    fake_host_advance(r->h, 40000);
    send_marked_span(r, 42, S42);
    fake_host_advance(r->h, 1000);
    assert_non_null(strstr(join_rig_last(r), "pyroscope.profile.id=" S42));
    join_rig_free(r);
}

/* There is a request every 150 s and a profile every 15 s. The samples in between do not name a
 * span. The service must count as profiled all the time. */
static void rare_requests_are_likely(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{mark: likely}", NULL, 0);
    unsigned n_marked = 0;
    for (unsigned i = 0; i < 120; i++) {
        struct wire w = {0};
        struct dict d = {0};
        struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
        size_t p = open_profile(&w, &d, &(struct profile_in){.type = "samples", .unit = "count"});
        put_sample(&w, &(struct sample_in){.value = 1});
        wire_close(&w, p);
        close_resource(&w, o);
        dict_put(&w, &d);
        join_rig_send(r, BR_PROFILES, &w, false);
        wire_free(&w);
        fake_host_advance(r->h, 15000);
        if (i % 10 == 5) {
            join_steps_send_span(r, "shop", 7, i + 1, "GET");
            n_marked += strstr(join_rig_last(r), "pyroscope.profile.id=") != NULL;
        }
    }
    assert_int_equal(n_marked, 12);
    join_rig_free(r);
}

static void likely_spans_are_marked_at_once(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{mark: likely, window: 10s}", NULL, 0);
    join_steps_send_span(r, "shop", 7, 1, "a");
    assert_string_equal(join_rig_last(r), "a 0000000000000001:\n");
    join_steps_send_sample(r, "shop", 7, 1, 5);
    join_steps_send_span(r, "shop", 7, 42, "GET");
    assert_string_equal(join_rig_last(r), "GET " S42 ": pyroscope.profile.id=" S42 "\n");
    join_steps_send_span(r, "cart", 7, 43, "b");
    assert_string_equal(join_rig_last(r), "b 000000000000002b:\n");
    fake_host_advance(r->h, 12000);
    join_steps_send_span(r, "shop", 7, 44, "late");
    assert_string_equal(join_rig_last(r), "late 000000000000002c:\n");
    assert_int_equal((int)join_rig_count(r, "spans_marked", NULL), 1);
    join_rig_free(r);
}

static void wait_and_sample(struct join_rig *r, unsigned n, uint64_t each_ms)
{
    for (unsigned i = 0; i < n; i++) {
        join_steps_send_sample(r, "shop", 7, 42, 1);
        fake_host_advance(r->h, each_ms);
    }
}

/* A span arrives when it ends. Until then its samples are remembered, as long as further samples of
 * it arrive. */
static void a_span_of_many_windows_has_all_samples(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{window: 10s}", NULL, 0);
    wait_and_sample(r, 50, 4000);
    join_steps_send_span(r, "shop", 7, 42, "long");
    assert_int_equal(join_rig_span_int(r, "long", "profile.sample_count"), 50);
    assert_null(strstr(join_rig_last(r), "profile.partial"));
    assert_int_equal((int)join_rig_count(r, "samples_joined_late", CPU), 50);
    assert_int_equal((int)join_rig_count(r, "samples_unknown_span", CPU), 0);
    join_rig_free(r);
}

/* If no sample of a span arrives for a window, its earlier samples are forgotten, and the span is
 * marked as partial. */
static void a_span_that_lost_samples_is_partial(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{window: 10s}", NULL, 0);
    wait_and_sample(r, 3, 4000);
    fake_host_advance(r->h, 40000);
    wait_and_sample(r, 2, 4000);
    join_steps_send_span(r, "shop", 7, 42, "long");
    assert_int_equal(join_rig_span_int(r, "long", "profile.sample_count"), 2);
    assert_non_null(strstr(join_rig_last(r), " profile.partial=true"));
    assert_int_equal((int)join_rig_count(r, "samples_unknown_span", CPU), 3);
    assert_int_equal((int)join_rig_count(r, "samples_joined_late", CPU), 2);
    join_rig_free(r);
}

/* Samples name only local roots. A mark on any other span would lead to an empty profile, so only
 * local roots are marked as likely. */
static void only_spans_that_samples_can_name_are_likely(void **state)
{
    (void)state;
    static const struct {
        struct span_in span;
        bool marked;
    } cases[] = {
        {{.name = "no parent"}, true},
        {{.name = "child", .parent = 9, .kind = 1}, false},
        {{.name = "client", .parent = 9, .kind = 3}, false},
        {{.name = "server", .parent = 9, .kind = 2}, true},
        {{.name = "consumer", .parent = 9, .kind = 5}, true},
        {{.name = "remote parent", .parent = 9, .kind = 1, .flags = 0x301}, true},
        {{.name = "local parent", .parent = 9, .kind = 1, .flags = 0x101}, false},
        {{.name = "unknown", .parent = 9, .kind = 1, .flags = 0x201}, false},
    };
    struct join_rig *r = join_rig_new("{mark: likely}", NULL, 0);
    join_steps_send_sample(r, "shop", 7, 1, 5);
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct wire w = {0};
        struct span_in span = cases[i].span;
        span.ids = join_ids(7, 42);
        struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
        put_span(&w, &span);
        close_resource(&w, o);
        join_rig_send(r, BR_TRACES, &w, true);
        wire_free(&w);
        if ((strstr(join_rig_last(r), "pyroscope.profile.id=" S42) != NULL) != cases[i].marked)
            fail_msg("%s", join_rig_last(r));
    }
    join_rig_free(r);
}

/* If the profile's resource has an instance id, only spans of that instance are marked as likely.
 * The id may also be a reference to a string. */
static void instances_are_distinguished(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{mark: likely}", NULL, 0);
    struct wire w = {0};
    join_rig_send_text(
        r, BR_PROFILES, false,
        "{'resourceProfiles': [{'resource': {'attributes': ["
        "{'keyStrindex': 1, 'value': {'stringValueStrindex': 2}},"
        "{'keyStrindex': 3, 'value': {'stringValueStrindex': 4}}]},"
        "'scopeProfiles': [{'profiles': [{'sampleType': {'typeStrindex': 5, 'unitStrindex': 6},"
        "'samples': [{'linkIndex': 1, 'values': ['1']}]}]}]}],"
        "'dictionary': {'mappingTable': [{}], 'locationTable': [{}], 'functionTable': [{}],"
        "'stackTable': [{}], 'attributeTable': [{}],"
        "'linkTable': [{}, {'traceId': '" T7 "', 'spanId': '0000000000000001'}],"
        "'stringTable': ['', 'service.name', 'shop', 'service.instance.id', 'one', 'samples',"
        "'count']}}");
    static const char *const instances[] = {"one", "two", NULL};
    for (unsigned i = 0; i < 3; i++) {
        struct open o = open_resource(&w, "shop", instances[i], NULL, NULL);
        put_span(&w, &(struct span_in){.ids = join_ids(7, 2 + i), .name = "a"});
        close_resource(&w, o);
    }
    join_rig_send(r, BR_TRACES, &w, true);
    assert_string_equal(join_rig_last(r),
                        "a 0000000000000002: pyroscope.profile.id=0000000000000002\n"
                        "a 0000000000000003:\n"
                        "a 0000000000000004:\n");
    wire_free(&w);
    join_rig_free(r);
}

/* Some profilers do not report the service. The join then takes it from the spans of the
 * samples. */
static void profiles_without_a_service_use_their_spans_service(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{mark: likely}", NULL, 0);
    join_steps_send_span(r, "shop", 7, 1, "a");
    join_steps_send_sample(r, NULL, 7, 1, 5);
    join_steps_send_span(r, "shop", 7, 42, "GET");
    assert_string_equal(join_rig_last(r), "GET " S42 ": pyroscope.profile.id=" S42 "\n");
    join_steps_send_span(r, NULL, 7, 43, "PUT");
    assert_string_equal(join_rig_last(r), "PUT 000000000000002b:\n");
    join_rig_free(r);
}

static void an_existing_mark_is_kept(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{mark: likely}", NULL, 0);
    struct wire w = {0};
    join_steps_send_sample(r, "shop", 7, 1, 5);
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    put_span(&w, &(struct span_in){.ids = join_ids(7, 42),
                                   .name = "GET",
                                   .attributes = {"pyroscope.profile.id", "mine"}});
    close_resource(&w, o);
    join_rig_send(r, BR_TRACES, &w, true);
    assert_string_equal(join_rig_last(r), "GET " S42 ": pyroscope.profile.id=mine\n");
    assert_int_equal(r->out[1].bytes.len, w.len);
    wire_free(&w);
    join_rig_free(r);
}

/* --- Figures ---------------------------------------------------------------------------------- */

struct figure_case {
    struct profile_in profile;
    struct sample_in samples[3];
    unsigned n;
    const char *want; /* type, count and duration that the span must get */
};

static void figures_follow_type_unit_and_period(void **state)
{
    (void)state;
    static const uint8_t id[16] = {0xab, 0xcd};
    static const struct figure_case cases[] = {
        /* The values are nanoseconds. With one sample every 10 ms, 30 ms and 24 ms are 3 and 2
         * samples. */
        {{"cpu", "nanoseconds", "cpu", "nanoseconds", 10000000, NULL},
         {{.value = 30000000}, {.value = 24000000}},
         2,
         "cpu:nanoseconds profile.sample_count=5 profile.duration_us=54000 "
         "profile.inclusive_sample_count=5 profile.inclusive_duration_us=54000"},
        /* Without a period, each sample counts as one. */
        {{"cpu", "nanoseconds", NULL, NULL, 0, NULL},
         {{.value = 30000000}, {.value = 24000000}},
         2,
         "cpu:nanoseconds profile.sample_count=2 profile.duration_us=54000 "
         "profile.inclusive_sample_count=2 profile.inclusive_duration_us=54000"},
        /* The timestamps are counted. The time is their number multiplied by the period. */
        {{"cpu", "nanoseconds", "cpu", "nanoseconds", 10000000, NULL},
         {{.no_value = true, .n_times = 4}},
         1,
         "cpu:nanoseconds profile.sample_count=4 profile.duration_us=40000 "
         "profile.inclusive_sample_count=4 profile.inclusive_duration_us=40000"},
        {{"cpu", "nanoseconds", "cpu", "nanoseconds", 10000000, NULL},
         {{.value = 70000000, .n_times = 3}},
         1,
         "cpu:nanoseconds profile.sample_count=3 profile.duration_us=70000 "
         "profile.inclusive_sample_count=3 profile.inclusive_duration_us=70000"},
        {{"cpu", "microseconds", NULL, NULL, 0, NULL},
         {{.value = 1500}},
         1,
         "cpu:microseconds profile.sample_count=1 profile.duration_us=1500 "
         "profile.inclusive_sample_count=1 profile.inclusive_duration_us=1500"},
        /* The values are numbers of periods: 3 + 1 + 2 periods of 1/19 s. */
        {{"samples", "count", "cpu", "nanoseconds", 52631578, NULL},
         {{.value = 3}, {.value = 1}, {.no_value = true, .n_times = 2}},
         3,
         "samples:count profile.sample_count=6 profile.duration_us=315789 "
         "profile.inclusive_sample_count=6 profile.inclusive_duration_us=315789"},
        {{"samples", "count", "cpu", "milliseconds", 10, NULL},
         {{.value = 3}},
         1,
         "samples:count profile.sample_count=3 profile.duration_us=30000 "
         "profile.inclusive_sample_count=3 profile.inclusive_duration_us=30000"},
        /* A count without a period, or with a period of another kind than CPU time, does not give a
         * time. */
        {{"samples", "count", NULL, NULL, 0, NULL},
         {{.value = 3}, {.value = 4}},
         2,
         "samples:count profile.sample_count=7 "
         "profile.inclusive_sample_count=7"},
        {{"samples", "count", "space", "bytes", 524288, NULL},
         {{.value = 3}},
         1,
         "samples:count profile.sample_count=3 "
         "profile.inclusive_sample_count=3"},
        {{"alloc_space", "bytes", "space", "bytes", 524288, NULL},
         {{.value = 1000000}, {.value = 1}},
         2,
         "alloc_space:bytes profile.sample_count=2 "
         "profile.inclusive_sample_count=2"},
        {{"wall", "nanoseconds", "wall", "nanoseconds", 20000000, NULL},
         {{.value = 40000000}},
         1,
         "wall:nanoseconds profile.sample_count=2 profile.duration_us=40000 "
         "profile.inclusive_sample_count=2 profile.inclusive_duration_us=40000"},
        {{"off_cpu", "nanoseconds", NULL, NULL, 0, NULL},
         {{.value = 1234567}},
         1,
         "off_cpu:nanoseconds profile.sample_count=1 profile.duration_us=1234 "
         "profile.inclusive_sample_count=1 profile.inclusive_duration_us=1234"},
        /* Negative values (deltas of some profilers) and extremely large numbers have no undefined
         * effect. */
        {{"cpu", "nanoseconds", NULL, NULL, 0, NULL},
         {{.value = (uint64_t)-5}, {.value = 2000}},
         2,
         "cpu:nanoseconds profile.sample_count=2 profile.duration_us=2 "
         "profile.inclusive_sample_count=2 profile.inclusive_duration_us=2"},
        {{"cpu", "seconds", "cpu", "seconds", INT64_MAX, NULL},
         {{.value = INT64_MAX}},
         1,
         "cpu:seconds profile.sample_count=1 profile.duration_us=18446744073709551 "
         "profile.inclusive_sample_count=1 profile.inclusive_duration_us=18446744073709551"},
        {{"samples", "count", "cpu", "nanoseconds", 10000000, id},
         {{.value = 1}},
         1,
         "samples:count profile.sample_count=1 profile.duration_us=10000 "
         "profile.inclusive_sample_count=1 profile.inclusive_duration_us=10000"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        const struct figure_case *c = &cases[i];
        struct join_rig *r = join_rig_new("{}", NULL, 0);
        struct wire w = {0};
        struct dict d = {0};
        struct ids ids = join_ids(7, 42);
        char want[512];
        struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
        size_t p = open_profile(&w, &d, &c->profile);
        uint32_t link = dict_link(&d, ids.trace, ids.span);
        for (unsigned s = 0; s < c->n; s++) {
            struct sample_in sample = c->samples[s];
            sample.link = link;
            put_sample(&w, &sample);
        }
        wire_close(&w, p);
        close_resource(&w, o);
        dict_put(&w, &d);
        join_rig_send(r, BR_PROFILES, &w, false);
        join_steps_send_span(r, "shop", 7, 42, "GET");
        (void)snprintf(want, sizeof want,
                       "GET " S42 ": profile.id=%s profile.type=%s pyroscope.profile.id=" S42 "\n",
                       c->profile.id ? "abcd0000000000000000000000000000" : T7, c->want);
        if (strcmp(join_rig_last(r), want) != 0)
            fail_msg("case %zu: %s, not %s", i, join_rig_last(r), want);
        wire_free(&w);
        join_rig_free(r);
    }
}

/* Go's CPU profiles contain the same samples twice, as samples:count and as cpu:nanoseconds. Their
 * CPU time counts only once. The time of a wall profile of the same span is not added to it. */
static void profile_types_of_one_span_do_not_add_up(void **state)
{
    (void)state;
    static const struct profile_in profiles[] = {
        {"samples", "count", "cpu", "nanoseconds", 10000000, NULL},
        {"cpu", "nanoseconds", "cpu", "nanoseconds", 10000000, NULL},
        {"wall", "nanoseconds", NULL, NULL, 0, NULL},
    };
    static const uint64_t values[] = {3, 30000000, 900000000};
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    struct ids ids = join_ids(7, 42);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < 3; i++) {
            struct wire w = {0};
            struct dict d = {0};
            struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
            size_t p = open_profile(&w, &d, &profiles[i]);
            put_sample(&w, &(struct sample_in){.value = values[i],
                                               .link = dict_link(&d, ids.trace, ids.span)});
            wire_close(&w, p);
            close_resource(&w, o);
            dict_put(&w, &d);
            join_rig_send(r, BR_PROFILES, &w, false);
            wire_free(&w);
        }
    }
    join_steps_send_span(r, "shop", 7, 42, "GET");
    assert_string_equal(join_rig_last(r),
                        "GET " S42 ": profile.id=" T7
                        " profile.type=samples:count,cpu:nanoseconds,wall:nanoseconds"
                        " profile.sample_count=6 profile.duration_us=60000 "
                        "profile.inclusive_sample_count=6 profile.inclusive_duration_us=60000"
                        " pyroscope.profile.id=" S42 "\n");
    join_rig_free(r);
}

SUITE(join_spans)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_of_profiled_services_are_held_for_totals),
        cmocka_unit_test(the_first_spans_of_a_service_are_held),
        cmocka_unit_test(marks_without_samples_are_removed),
        cmocka_unit_test(marks_that_may_have_samples_are_kept),
        cmocka_unit_test(rare_requests_are_likely),
        cmocka_unit_test(likely_spans_are_marked_at_once),
        cmocka_unit_test(a_span_of_many_windows_has_all_samples),
        cmocka_unit_test(a_span_that_lost_samples_is_partial),
        cmocka_unit_test(only_spans_that_samples_can_name_are_likely),
        cmocka_unit_test(instances_are_distinguished),
        cmocka_unit_test(profiles_without_a_service_use_their_spans_service),
        cmocka_unit_test(an_existing_mark_is_kept),
        cmocka_unit_test(figures_follow_type_unit_and_period),
        cmocka_unit_test(profile_types_of_one_span_do_not_add_up),
    };
    return RUN_VARIANTS(tests, join_rig_order);
}
