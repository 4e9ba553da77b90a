/* SPDX-License-Identifier: Apache-2.0 */
/* Counters by service and span name. Expected figures are counted by hand. */
#include "base/mem.h"
#include "core/shared.h"
#include "tests/support/join_rig.h"
#include "tests/support/test.h"

struct timed_sample {
    const char *type, *unit;
    uint64_t value;
};

static const struct timed_sample go[] = {{"samples", "count", 3}, {"cpu", "nanoseconds", 30000000}};
static const struct timed_sample heap[] = {
    {"alloc_objects", "count", 7}, {"alloc_space", "bytes", 4096}, {"inuse_space", "bytes", 1024}};
static const struct timed_sample wall[] = {{"wall", "nanoseconds", 50000000}};
static const struct timed_sample counts[] = {{"samples", "count", 4}};

/* Sends one resource with a profile for each sample. */
static void send_samples(struct join_rig *r, uint64_t span, const struct timed_sample *t,
                         unsigned n)
{
    struct wire w = {0};
    struct dict d = {0};
    struct ids ids = join_ids(7, span);
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    for (unsigned i = 0; i < n; i++) {
        size_t p = open_profile(&w, &d,
                                &(struct profile_in){.type = t[i].type,
                                                     .unit = t[i].unit,
                                                     .period_type = "cpu",
                                                     .period_unit = "nanoseconds",
                                                     .period = 10000000});
        put_sample(&w, &(struct sample_in){.link = dict_link(&d, ids.trace, ids.span),
                                           .value = t[i].value});
        wire_close(&w, p);
    }
    close_resource(&w, o);
    dict_put(&w, &d);
    join_rig_send(r, BR_PROFILES, &w, false);
    wire_free(&w);
}

static void send_span(struct join_rig *r, uint64_t span, const char *name)
{
    struct wire w = {0};
    put_one_span(&w, "shop", 7, span, name);
    join_rig_send(r, BR_TRACES, &w, true);
    wire_free(&w);
}

static void check(struct join_rig *r, const char *what, const char *service, const char *name,
                  double want)
{
    char metric[128], labels[256];
    (void)snprintf(metric, sizeof metric, "braid_join_span_%s", what);
    (void)snprintf(labels, sizeof labels, "processor=\"join\",service=\"%s\",span_name=\"%s\"",
                   service, name);
    double is = fake_host_metric(r->h, metric, labels);
    if (is - want > 1e-9 || want - is > 1e-9)
        fail_msg("%s{%s} is %g, not %g", metric, labels, is, want);
}

#define NOT_THERE (-1.0)

/* Go reports the same samples twice, as counts and as nanoseconds. */
static void a_spans_samples_are_counted_once(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{span_metrics: {enabled: true}}", NULL, 0);
    send_span(r, 1, "GET");
    send_samples(r, 1, go, 2);
    send_samples(r, 1, go, 2);
    send_samples(r, 1, heap, 3);
    check(r, "cpu_seconds", "shop", "GET", 0.06);
    check(r, "samples", "shop", "GET", 6);
    check(r, "allocated_bytes", "shop", "GET", 4096);
    send_span(r, 2, "PUT \"x\"");
    send_samples(r, 2, counts, 1);
    check(r, "cpu_seconds", "shop", "PUT \\\"x\\\"", 0.04);
    check(r, "allocated_bytes", "shop", "PUT \\\"x\\\"", NOT_THERE);
    send_span(r, 3, "WAIT");
    send_samples(r, 3, wall, 1);
    check(r, "cpu_seconds", "shop", "WAIT", NOT_THERE);
    check(r, "samples", "shop", "WAIT", 5);
    join_rig_free(r);
}

static void pending_samples_are_counted_when_the_span_arrives(void **state)
{
    (void)state;
    static const char *const configs[] = {"{span_metrics: {enabled: true}}",
                                          "{span_metrics: {enabled: true}, profile_hold: 1s}"};
    for (unsigned i = 0; i < 2; i++) {
        struct join_rig *r = join_rig_new(configs[i], NULL, 0);
        send_samples(r, 1, go, 2);
        check(r, "cpu_seconds", "shop", "GET", NOT_THERE);
        send_span(r, 1, "GET");
        fake_host_advance(r->h, 2000);
        check(r, "cpu_seconds", "shop", "GET", 0.03);
        check(r, "samples", "shop", "GET", 3);
        join_rig_free(r);
    }
}

/* Two workers share a table. The first two names have separate counters. All further names share
 * one counter. */
static void series_are_bounded(void **state)
{
    (void)state;
    struct br_shared *shared = br_shared_new();
    static const char config[] = "{span_metrics: {enabled: true, max_series: 2}}";
    struct join_rig *a = join_rig_new(config, shared, 0), *b = join_rig_new(config, shared, 1);
    static const char *const names[] = {"A", "B", "C", "D"};
    for (unsigned i = 0; i < 4; i++)
        send_span(a, i + 1, names[i]);
    send_samples(a, 1, go, 2);
    send_samples(b, 2, go, 2);
    send_samples(a, 3, go, 2);
    send_samples(a, 4, go, 2);
    send_samples(a, 2, go, 2);
    send_samples(b, 4, go, 2);
    check(a, "samples", "shop", "A", 3);
    check(a, "samples", "shop", "B", 3);
    check(b, "samples", "shop", "B", 3);
    check(a, "samples", "shop", "C", NOT_THERE);
    check(a, "samples", "_other", "_other", 6);
    check(b, "samples", "_other", "_other", 3);
    join_rig_free(a);
    join_rig_free(b);
    br_shared_free(shared);
}

/* A timestamp within a span below the root counts for that span. */
static void samples_count_for_the_spans_they_belong_to(void **state)
{
    (void)state;
    static const uint64_t times[] = {1050, 1150, 1160};
    struct join_rig *r = join_rig_new("{span_metrics: {enabled: true}}", NULL, 0);
    struct wire w = {0};
    struct dict d = {0};
    struct ids root = join_ids(7, 1);
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    put_span(
        &w,
        &(struct span_in){
            .ids = join_ids(7, 2), .name = "work", .parent = 1, .start_ns = 1100, .end_ns = 1500});
    put_span(&w, &(struct span_in){.ids = root, .name = "root", .start_ns = 1000, .end_ns = 2000});
    close_resource(&w, o);
    join_rig_send(r, BR_TRACES, &w, true);
    wire_clear(&w);
    o = open_resource(&w, "shop", NULL, NULL, NULL);
    size_t p = open_profile(
        &w, &d, &(struct profile_in){"cpu", "nanoseconds", "cpu", "nanoseconds", 10000000, NULL});
    put_sample(&w, &(struct sample_in){.link = dict_link(&d, root.trace, root.span),
                                       .no_value = true,
                                       .n_times = 3,
                                       .times = times});
    wire_close(&w, p);
    close_resource(&w, o);
    dict_put(&w, &d);
    join_rig_send(r, BR_PROFILES, &w, false);
    wire_free(&w);
    check(r, "cpu_seconds", "shop", "root", 0.01);
    check(r, "cpu_seconds", "shop", "work", 0.02);
    join_rig_free(r);
}

static void off_by_default(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    send_span(r, 1, "GET");
    send_samples(r, 1, go, 2);
    check(r, "samples", "shop", "GET", NOT_THERE);
    join_rig_free(r);
}

SUITE(join_metrics)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spans_samples_are_counted_once),
        cmocka_unit_test(pending_samples_are_counted_when_the_span_arrives),
        cmocka_unit_test(series_are_bounded),
        cmocka_unit_test(samples_count_for_the_spans_they_belong_to),
        cmocka_unit_test(off_by_default),
    };
    return RUN_VARIANTS(tests, join_rig_order);
}
