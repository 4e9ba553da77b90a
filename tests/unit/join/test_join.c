/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the join as a component: its requests, its output and its metrics. Expected numbers are
 * computed by hand. */
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "core/shared.h"
#include "opentelemetry/proto/resource/v1/resource.pb-c.h"
#include "tests/support/fault.h"
#include "tests/support/join_steps.h"
#include "tests/support/otlp_text.h"
#include "tests/support/test.h"

/* --- Orders ----------------------------------------------------------------------------------- */

static void outcomes_are_counted_by_profile_type(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{window: 10s}", NULL, 0);
    struct wire w = {0};
    struct dict d = {0};
    struct ids id = join_ids(7, 1), later = join_ids(7, 2), never = join_ids(7, 3);
    join_steps_send_span(r, "shop", 7, 1, "a");
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    static const char *const types[] = {"cpu", "wall"};
    for (unsigned t = 0; t < 2; t++) {
        size_t p =
            open_profile(&w, &d, &(struct profile_in){.type = types[t], .unit = "nanoseconds"});
        for (unsigned i = 0; i <= t; i++) {
            put_sample(&w, &(struct sample_in){.link = dict_link(&d, id.trace, id.span)});
            put_sample(&w, &(struct sample_in){.link = dict_link(&d, later.trace, later.span)});
            put_sample(&w, &(struct sample_in){.link = dict_link(&d, never.trace, never.span)});
            put_sample(&w, &(struct sample_in){.value = 1});
        }
        wire_close(&w, p);
    }
    close_resource(&w, o);
    dict_put(&w, &d);
    join_rig_send(r, BR_PROFILES, &w, false);
    join_steps_check_counts(r, "cpu:nanoseconds", 1, 0, 0, 0, 1);
    join_steps_check_counts(r, "wall:nanoseconds", 2, 0, 0, 0, 2);
    fake_host_advance(r->h, 5000);
    join_steps_send_span(r, "shop", 7, 2, "b");
    join_steps_check_counts(r, "cpu:nanoseconds", 1, 1, 0, 0, 1);
    join_steps_check_counts(r, "wall:nanoseconds", 2, 2, 0, 0, 2);
    fake_host_advance(r->h, 60000);
    join_steps_check_counts(r, "cpu:nanoseconds", 1, 1, 1, 0, 1);
    join_steps_check_counts(r, "wall:nanoseconds", 2, 2, 2, 0, 2);
    join_steps_send_span(r, "shop", 7, 1, "a");
    fake_host_advance(r->h, 10500);
    join_rig_send(r, BR_PROFILES, &w, false);
    join_steps_check_counts(r, "cpu:nanoseconds", 1, 1, 1, 1, 2);
    join_steps_check_counts(r, "wall:nanoseconds", 2, 2, 2, 2, 4);
    wire_free(&w);
    join_rig_free(r);
}

static void a_span_after_its_samples_has_totals_at_once(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    join_steps_send_sample(r, "shop", 7, 42, 5);
    join_steps_send_sample(r, "shop", 7, 42, 6);
    join_steps_send_span(r, "shop", 7, 42, "GET");
    assert_string_equal(join_rig_last(r), "GET " S42 ": profile.id=" T7
                                          " profile.type=samples:count profile.sample_count=11 "
                                          "profile.inclusive_sample_count=11"
                                          " pyroscope.profile.id=" S42 "\n");
    join_steps_check_counts(r, CPU, 0, 2, 0, 0, 0);
    join_rig_free(r);
}

static void profiles_wait_for_their_spans(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{profile_hold: 10s}", NULL, 0);
    join_steps_send_span(r, "shop", 7, 1, "a");
    /* all spans that the profile names are known, so it is not held */
    join_steps_send_sample(r, "shop", 7, 1, 5);
    assert_int_equal(r->n_out, 2);
    join_steps_check_counts(r, CPU, 1, 0, 0, 0, 0);
    join_steps_send_sample(r, "shop", 7, 42, 5);
    join_steps_send_sample(r, "shop", 7, 43, 6);
    assert_int_equal(r->n_out, 2);
    assert_int_equal(r->n_done, 4); /* the sender has been answered */
    fake_host_advance(r->h, 4000);
    join_steps_send_span(r, "shop", 7, 42, "GET");
    fake_host_advance(r->h, 5999);
    assert_int_equal(r->n_out, 3);
    fake_host_advance(r->h, 1);
    assert_int_equal(r->n_out, 5);
    assert_string_equal(r->out[3].text, "5 " T7 "/" S42 ": span.name=GET\n");
    assert_string_equal(r->out[4].text, "6 " T7 "/000000000000002b:\n");
    join_steps_check_counts(r, CPU, 1, 1, 1, 0, 0);
    fake_host_advance(r->h, 600000);
    join_steps_check_counts(r, CPU, 1, 1, 1, 0, 0);
    join_rig_free(r);
}

/* If items are held for the whole window, a sample is joined whether it arrives before or after its
 * span. This includes the edges of the window: a span that was known when the sample arrived is
 * still known when the sample is released. */
static void a_hold_of_the_whole_window_joins_both_orders(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{window: 10s, profile_hold: 10s}", NULL, 0);
    struct wire w = {0};
    struct dict d = {0};
    struct ids a = join_ids(7, 1), b = join_ids(7, 2), c = join_ids(7, 3);
    join_steps_send_span(r, "shop", 7, 3, "too old");
    /* the span is now old enough to be removed before the sample is released */
    fake_host_advance(r->h, 8000);
    join_steps_send_span(r, "shop", 7, 1, "before");
    fake_host_advance(r->h, 9900);
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    size_t p = open_profile(&w, &d, &(struct profile_in){.type = "samples", .unit = "count"});
    put_sample(&w, &(struct sample_in){.value = 1, .link = dict_link(&d, a.trace, a.span)});
    put_sample(&w, &(struct sample_in){.value = 2, .link = dict_link(&d, b.trace, b.span)});
    put_sample(&w, &(struct sample_in){.value = 3, .link = dict_link(&d, c.trace, c.span)});
    wire_close(&w, p);
    close_resource(&w, o);
    dict_put(&w, &d);
    join_rig_send(r, BR_PROFILES, &w, false);
    fake_host_advance(r->h, 9900);
    join_steps_send_span(r, "shop", 7, 2, "after");
    fake_host_advance(r->h, 100);
    assert_string_equal(join_rig_last(r), "1 " T7 "/0000000000000001: span.name=before\n"
                                          "2 " T7 "/0000000000000002: span.name=after\n"
                                          "3 " T7 "/0000000000000003:\n");
    join_steps_check_counts(r, CPU, 1, 1, 0, 1, 0);
    wire_free(&w);
    join_rig_free(r);
}

/* --- Items in other shapes -------------------------------------------------------------------- */

static void items_without_a_span_list_are_walked(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{sample_attributes: [host.name]}", NULL, 0);
    struct wire w = {0};
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    put_span(&w, &(struct span_in){.ids = join_ids(7, 1), .name = "a"});
    close_resource(&w, o);
    o = open_resource(&w, "cart", NULL, NULL, NULL);
    put_span(&w, &(struct span_in){.ids = join_ids(7, 2), .name = "b"});
    put_span(&w, &(struct span_in){.ids = join_ids(7, 3), .name = "c"});
    close_resource(&w, o);
    struct br_item *item = join_rig_item(r, BR_TRACES, &w, false);
    assert_null(item->spans);
    /* Changes the resource as the resource processor does. */
    struct br_buf *buf = otlp_text_message(
        r->h->host.pool, &opentelemetry__proto__resource__v1__resource__descriptor,
        "{'attributes': [{'key': 'host.name', 'value': {'stringValue': 'h2'}}]}");
    br_item_set_resource(item, &item->parts[1], buf, buf->data, buf->len);
    br_buf_unref(buf);
    join_rig_consume(r, item);
    assert_string_equal(join_rig_last(r),
                        "a 0000000000000001:\nb 0000000000000002:\nc 0000000000000003:\n");
    assert_int_equal(*r->h->host.ledger.sent[BR_TRACES], 3);
    join_steps_send_sample(r, "cart", 7, 3, 5);
    assert_string_equal(join_rig_last(r), "5 " T7 "/0000000000000003: span.name=c host.name=h2\n");
    join_steps_send_sample(r, "shop", 7, 1, 5);
    assert_string_equal(join_rig_last(r), "5 " T7 "/0000000000000001: span.name=a\n");
    wire_free(&w);
    join_rig_free(r);
}

static void spans_without_an_id_pass(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{mark: likely, hold: 1s}", NULL, 0);
    join_steps_send_sample(r, "shop", 7, 1, 5);
    join_rig_send_text(r, BR_TRACES, true,
                       "{'resourceSpans': [{'resource': {'attributes': [{'key': 'service.name', "
                       "'value': {'stringValue': 'shop'}}]}, "
                       "'scopeSpans': [{'spans': [{'name': 'no id'}]}]}]}");
    fake_host_advance(r->h, 1000);
    assert_string_equal(join_rig_last(r), "no id :\n");
    assert_int_equal((int)join_rig_count(r, "spans_entered", NULL), 0);
    join_rig_free(r);
}

/* Captures the log from `log_begin` on. */
static int log_pipe[2];

static void log_begin(void)
{
    assert_int_equal(pipe(log_pipe), 0);
    br_log_setup(BR_LOG_WARN, false, log_pipe[1]);
}

static const char *log_end(void)
{
    static char text[4096];
    br_log_setup(BR_LOG_ERROR, false, 2);
    (void)close(log_pipe[1]);
    ssize_t n = read(log_pipe[0], text, sizeof text - 1);
    (void)close(log_pipe[0]);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void a_join_in_pipelines_of_one_signal_is_logged(void **state)
{
    (void)state;
    for (int s = 0; s < 3; s++) {
        struct join_rig *r = join_rig_prepare("{}", NULL, 0);
        if (s < BR_SIGNALS)
            r->node.in_pipeline[s] = false;
        log_begin();
        assert_true(join_rig_create(r));
        const char *text = log_end(),
                   *want[] = {"not in any traces pipeline", "not in any profiles pipeline"};
        if (s < BR_SIGNALS)
            assert_non_null(strstr(text, want[s]));
        else
            assert_string_equal(text, "");
        join_rig_free(r);
    }
}

/* Sends a wall profile with one sample in the open resource; then advances the clock by a
 * second. */
static void send_one_sample(struct join_rig *r, struct wire *w, struct dict *d, struct open o,
                            const struct sample_in *in)
{
    size_t p = open_profile(w, d, &(struct profile_in){.type = "wall", .unit = "ns"});
    put_sample(w, in);
    wire_close(w, p);
    close_resource(w, o);
    dict_put(w, d);
    join_rig_send(r, BR_PROFILES, w, false);
    wire_free(w);
    fake_host_advance(r->h, 1000);
}

/* After a window with spans and samples but no join, the most likely reason is logged once. */
static void a_window_without_a_join_is_explained(void **state)
{
    (void)state;
    static const struct {
        const char *service;
        uint64_t span; /* the span that the sample names; 0: none */
        const char *why;
    } cases[] = {
        {"shop", 0, "no sample names a span"},
        {"cart", 1, "no service.name has both spans and samples"},
        {"shop", 1, "do not arrive"},
        {"shop", 42, NULL},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct join_rig *r = join_rig_new("{window: 10s}", NULL, 0);
        log_begin();
        for (unsigned k = 0; k < 30; k++) {
            struct wire w = {0};
            struct dict d = {0};
            struct ids id = join_ids(7, cases[i].span);
            join_steps_send_span(r, "shop", 7, 42, "GET");
            struct open o = open_resource(&w, cases[i].service, NULL, NULL, NULL);
            struct sample_in in = {.value = 5};
            if (cases[i].span)
                in.link = dict_link(&d, id.trace, id.span);
            send_one_sample(r, &w, &d, o, &in);
        }
        const char *text = log_end();
        if (!cases[i].why) {
            assert_string_equal(text, "");
        } else {
            assert_non_null(strstr(text, cases[i].why));
            assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
        }
        join_rig_free(r);
    }
}

/* With `infer`, the spans and the samples have a place and a time, but their clocks differ by an
 * hour. */
static void clocks_apart_are_a_reason(void **state)
{
    (void)state;
    const char *const place[][2] = {
        {"service.name", "shop"}, {"process.pid", "42"}, {"host.id", "h1"}};
    static const uint64_t hour_ns = UINT64_C(3600000000000);
    for (unsigned apart = 0; apart < 2; apart++) {
        struct join_rig *r = join_rig_new("{infer: true, window: 10s}", NULL, 0);
        log_begin();
        for (unsigned k = 0; k < 30; k++) {
            struct wire w = {0};
            struct dict d = {0};
            uint64_t time = (k + 1) * UINT64_C(1000000000) + apart * hour_ns;
            struct open o = open_resource_of(&w, place, BR_COUNT(place));
            put_span(&w, &(struct span_in){.ids = join_ids(7, k + 1),
                                           .name = "GET",
                                           .start_ns = (k + 1) * UINT64_C(1000000000),
                                           .end_ns = (k + 2) * UINT64_C(1000000000),
                                           .attributes = {"thread.id", "9"}});
            close_resource(&w, o);
            join_rig_send(r, BR_TRACES, &w, true);
            wire_clear(&w);
            o = open_resource_of(&w, place, BR_COUNT(place));
            send_one_sample(
                r, &w, &d, o,
                &(struct sample_in){.no_value = true,
                                    .n_times = 1,
                                    .times = &time,
                                    .attributes = {dict_attribute_int(&d, "thread.id", 9)}});
        }
        const char *text = log_end();
        assert_true((strstr(text, "clocks may differ") != NULL) == apart);
        join_rig_free(r);
    }
}

/* A request has several resources, and some of them are profiled. Marks are added to the right
 * spans. */
static void marks_are_added_to_the_right_spans(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{mark: likely}", NULL, 0);
    struct wire w = {0};
    static const char *const services[] = {"a", "shop", "b", "shop"};
    join_steps_send_sample(r, "shop", 7, 100, 5);
    join_steps_send_sample(r, "b", 7, 3,
                           /* the sample arrives before its span, in a resource without further
                            * samples */
                           5);
    uint64_t id = 1;
    for (unsigned i = 0; i < 4; i++) {
        struct open o = open_resource(&w, services[i], NULL, NULL, NULL);
        for (unsigned k = 0; k < i; k++)
            put_span(&w, &(struct span_in){.ids = join_ids(7, id++), .name = services[i]});
        close_resource(&w, o);
    }
    join_rig_send(r, BR_TRACES, &w, true);
    assert_string_equal(join_rig_last(r),
                        "shop 0000000000000001: pyroscope.profile.id=0000000000000001\n"
                        "b 0000000000000002: pyroscope.profile.id=0000000000000002\n"
                        "b 0000000000000003: profile.id=" T7 " profile.type=samples:count"
                        " profile.sample_count=5 "
                        "profile.inclusive_sample_count=5 pyroscope.profile.id=0000000000000003\n"
                        "shop 0000000000000004: pyroscope.profile.id=0000000000000004\n"
                        "shop 0000000000000005: pyroscope.profile.id=0000000000000005\n"
                        "shop 0000000000000006: pyroscope.profile.id=0000000000000006\n");
    wire_free(&w);
    join_rig_free(r);
}

/* --- Workers ---------------------------------------------------------------------------------- */

static void workers_share_one_table(void **state)
{
    (void)state;
    struct br_shared *shared = br_shared_new();
    assert_non_null(shared);
    struct join_rig *a = join_rig_new("{hold: 1s}", shared, 0);
    struct join_rig *b = join_rig_new("{hold: 1s}", shared, 1);
    join_steps_send_span(a, "shop", 7, 42, "GET");
    fake_host_advance(a->h, 1000); /* the first span of its service is held */
    join_steps_send_sample(b, "shop", 7, 42, 5);
    assert_string_equal(join_rig_last(b), "5 " T7 "/" S42 ": span.name=GET\n");
    /* this span is held: worker b knows that shop is profiled */
    join_steps_send_span(a, "shop", 7, 43, "PUT");
    assert_int_equal(a->n_out, 1);
    join_steps_send_sample(b, "shop", 7, 43, 6);
    fake_host_advance(a->h, 1000);
    assert_non_null(strstr(join_rig_last(a), "profile.sample_count=6"));
    join_steps_check_counts(b, CPU, 2, 0, 0, 0, 0);
    /* The first worker maintains the table. */
    fake_host_advance(a->h, 10000);
    assert_int_equal((int)join_rig_count(a, "table_spans", NULL), 2);
    assert_int_equal((int)join_rig_count(b, "table_spans", NULL), 0);
    join_rig_free(a);
    join_rig_free(b);
    br_shared_free(shared);
}

/* --- Memory ----------------------------------------------------------------------------------- */

/* If any allocation fails, items still end, the ledger closes, and nothing leaks. */
static void join_with_faults(void *arg)
{
    struct join_rig *r = join_rig_new(arg, NULL, 0);
    struct wire spans = {0}, samples = {0};
    struct dict d = {0};
    struct ids known = join_ids(7, 1), later = join_ids(7, 2);
    struct open o = open_resource(&spans, "shop", "one", "host.name", "h1");
    put_span(&spans, &(struct span_in){.ids = known, .name = "a", .attributes = {"k", "v"}});
    close_resource(&spans, o);
    o = open_resource(&samples, "shop", "one", NULL, NULL);
    size_t p =
        open_profile(&samples, &d, &(struct profile_in){.type = "cpu", .unit = "nanoseconds"});
    uint32_t label = dict_attribute(&d, "span_id", "1");
    put_sample(&samples, &(struct sample_in){.link = dict_link(&d, known.trace, known.span)});
    put_sample(&samples, &(struct sample_in){.link = dict_link(&d, later.trace, later.span)});
    put_sample(&samples, &(struct sample_in){.attributes = {label}});
    wire_close(&samples, p);
    close_resource(&samples, o);
    dict_put(&samples, &d);
    struct br_item *items[4];
    for (unsigned i = 0; i < 4; i++)
        items[i] = join_rig_item(r, i % 2 ? BR_PROFILES : BR_TRACES, i % 2 ? &samples : &spans, i);
    r->blind = true;
    fault_start();
    for (unsigned i = 0; i < 4; i++) {
        join_rig_consume(r, items[i]);
        fake_host_advance(r->h, 400);
    }
    fake_host_advance(r->h, 10000);
    fault_stop();
    fake_host_advance(r->h, 30000);
    assert_int_equal(r->n_done + r->n_retry + r->n_reject, 4);
    if (!fault_failed()) {
        assert_int_equal(*r->h->host.ledger.sent[BR_TRACES], 2);
        assert_int_equal(*r->h->host.ledger.sent[BR_PROFILES], 6);
    }
    wire_free(&spans);
    wire_free(&samples);
    join_rig_free(r);
}

static void without_memory_items_still_end(void **state)
{
    (void)state;
    static char hold[] = "{hold: 1s, profile_hold: 1s, sample_attributes: [k, host.name]}",
                pass[] = "{mark: likely, sample_attributes: [k, host.name], top_functions: 3, "
                         "span_metrics: {enabled: true}}";
    fault_each("held", join_with_faults, hold);
    fault_each("passed at once", join_with_faults, pass);
}

static void create_with_faults(void *arg)
{
    struct join_rig *r = join_rig_prepare("{}", NULL, 0);
    (void)arg;
    fault_start();
    bool ok = join_rig_create(r);
    fault_stop();
    assert_true(ok || fault_failed());
    join_rig_destroy(r);
}

static void without_memory_it_is_not_created(void **state)
{
    (void)state;
    fault_each("create", create_with_faults, NULL);
}

/* --- Config ----------------------------------------------------------------------------------- */

static void invalid_configs_are_rejected(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{window: 999ms}", "must be at least 1s"},
        {"{window: 1s, hold: 1001ms}", "must not be longer than the window"},
        {"{window: 1s, profile_hold: 2s}", "must not be longer than the window"},
        {"{sample_attributes: [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q]}",
         "at most 16 attributes, got 17"},
        {"{max_bytes: 1000}", "max_bytes"},
        {"{max_values: 0}", "max_values"},
        {"{mark: always}", "mark"},
        {"{mark: exact}", "exact requires `hold`"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        const char *error = join_rig_error(cases[i][0]);
        if (!strstr(error, cases[i][1]))
            fail_msg("%s: %s", cases[i][0], error);
    }
    assert_string_equal(join_rig_error("{window: 1s, hold: 1s, profile_hold: 1s}"), "");
    assert_string_equal(
        join_rig_error("{sample_attributes: [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]}"),
        "");
}

SUITE(join)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outcomes_are_counted_by_profile_type),
        cmocka_unit_test(a_span_after_its_samples_has_totals_at_once),
        cmocka_unit_test(profiles_wait_for_their_spans),
        cmocka_unit_test(a_hold_of_the_whole_window_joins_both_orders),
        cmocka_unit_test(items_without_a_span_list_are_walked),
        cmocka_unit_test(spans_without_an_id_pass),
        cmocka_unit_test(marks_are_added_to_the_right_spans),
        cmocka_unit_test(a_join_in_pipelines_of_one_signal_is_logged),
        cmocka_unit_test(a_window_without_a_join_is_explained),
        cmocka_unit_test(clocks_apart_are_a_reason),
        cmocka_unit_test(workers_share_one_table),
        cmocka_unit_test(without_memory_items_still_end),
        cmocka_unit_test(without_memory_it_is_not_created),
        cmocka_unit_test(invalid_configs_are_rejected),
    };
    return RUN_VARIANTS(tests, join_rig_order);
}
