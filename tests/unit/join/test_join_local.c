/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The samples here name the root of a local tree. The tests check to which spans these samples
 * belong, and the sums of the spans above those. Expected figures are counted by hand, or by an
 * oracle that tries all spans.
 */
#include "base/mem.h"
#include "base/steps.h"
#include "processors/join/infer/infer.h"
#include "tests/support/fake_sink.h"
#include "tests/support/join_rig.h"
#include "tests/support/test.h"

#define OWN "profile.sample_count"
#define ALL "profile.inclusive_sample_count"
#define OWN_US "profile.duration_us"
#define ALL_US "profile.inclusive_duration_us"
#define STORED_AT "pyroscope.profile.id"

/* A sample of a wall profile. Each timestamp stands for 10 ms. */
struct timed_sample {
    uint64_t span; /* id of the span that the sample names */
    const char *thread, *thread_name;
    unsigned n;
    uint64_t times[8], values[8];
    /* the sample has one value for each timestamp; otherwise one value for all */
    bool values_apart;
};

static void put_spans(struct wire *w, const struct span_in *spans, unsigned n)
{
    struct open o = open_resource(w, "shop", NULL, NULL, NULL);
    for (unsigned i = 0; i < n; i++)
        put_span(w, &spans[i]);
    close_resource(w, o);
}

static void put_samples(struct wire *w, uint64_t trace, const struct timed_sample *samples,
                        unsigned n)
{
    struct dict d = {0};
    struct open o = open_resource(w, "shop", NULL, NULL, NULL);
    size_t p = open_profile(w, &d,
                            &(struct profile_in){.type = "wall",
                                                 .unit = "nanoseconds",
                                                 .period_type = "wall",
                                                 .period_unit = "nanoseconds",
                                                 .period = 10000000});
    for (unsigned i = 0; i < n; i++) {
        const struct timed_sample *t = &samples[i];
        struct ids ids = join_ids(trace, t->span);
        struct sample_in in = {.link = dict_link(&d, ids.trace, ids.span),
                               .no_value = t->n && !t->values_apart,
                               .value = 10000000,
                               .n_times = t->n,
                               .times = t->times,
                               .values = t->values_apart ? t->values : NULL};
        unsigned k = 0;
        if (t->thread)
            in.attributes[k++] = dict_attribute(&d, "thread.id", t->thread);
        if (t->thread_name)
            in.attributes[k++] = dict_attribute(&d, "thread.name", t->thread_name);
        put_sample(w, &in);
    }
    wire_close(w, p);
    close_resource(w, o);
    dict_put(w, &d);
}

/* Sends the spans, then the samples. The last output contains the totals of the spans. */
static struct join_rig *run(const struct span_in *spans, unsigned n_spans,
                            const struct timed_sample *samples, unsigned n_samples)
{
    struct join_rig *r = join_rig_new("{hold: 1s}", NULL, 0);
    struct wire w = {0};
    put_samples(&w, 99, &(struct timed_sample){.span = 99}, 1); /* the service is profiled now */
    join_rig_send(r, BR_PROFILES, &w, false);
    wire_clear(&w);
    put_spans(&w, spans, n_spans);
    join_rig_send(r, BR_TRACES, &w, true);
    wire_clear(&w);
    put_samples(&w, 7, samples, n_samples);
    join_rig_send(r, BR_PROFILES, &w, false);
    fake_host_advance(r->h, 1000);
    wire_free(&w);
    assert_int_equal(r->out[r->n_out - 1].signal, BR_TRACES);
    return r;
}

static void check(struct join_rig *r, const char *span, long long own, long long all)
{
    if (join_rig_span_int(r, span, OWN) != own || join_rig_span_int(r, span, ALL) != all)
        fail_msg("%s: not %lld, %lld in\n%s", span, own, all, join_rig_last(r));
}

/* root 1000-2000
 *   work 1100-1500, thread 1
 *     query 1200-1300, thread 1
 *   other 1100-1500, thread 2 */
#define ID(n)                                                                                      \
    {                                                                                              \
        .trace = {[15] = 7}, .span = { [7] = (n) }                                                 \
    }
static const struct span_in tree[] = {
    {.ids = ID(3),
     .name = "query",
     .parent = 2,
     .start_ns = 1200,
     .end_ns = 1300,
     .attributes = {"db", "x", "thread.id", "1"}},
    {.ids = ID(2),
     .name = "work",
     .parent = 1,
     .start_ns = 1100,
     .end_ns = 1500,
     .attributes = {"thread.id", "1"}},
    {.ids = ID(4),
     .name = "other",
     .parent = 1,
     .start_ns = 1100,
     .end_ns = 1500,
     .attributes = {"thread.name", "two", "thread.id", "2"}},
    {.ids = ID(1), .name = "root", .parent = 50, .start_ns = 1000, .end_ns = 2000, .kind = 2},
};

static void a_timestamp_belongs_to_the_deepest_open_span(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {
        {.span = 1, .thread = "1", .n = 1, .times = {1050}}, /* root */
        {.span = 1, .thread = "1", .n = 1, .times = {1150}}, /* work */
        /* query: from its first nanosecond ... */
        {.span = 1, .thread = "1", .n = 1, .times = {1200}},
        {.span = 1, .thread = "1", .n = 1, .times = {1299}}, /* query */
        /* work: ... up to its last, exclusive */
        {.span = 1, .thread = "1", .n = 1, .times = {1300}},
        {.span = 1, .thread = "2", .n = 1, .times = {1250}}, /* other */
        /* root: the thread has no other span */
        {.span = 1, .thread = "3", .n = 1, .times = {1250}},
        {.span = 1, .thread = "1", .n = 1, .times = {5000}}, /* root: no span is open */
    };
    struct join_rig *r = run(tree, 4, samples, BR_COUNT(samples));
    check(r, "root", 3, 8);
    check(r, "work", 2, 4);
    check(r, "query", 2, 2);
    check(r, "other", 1, 1);
    assert_int_equal(join_rig_span_int(r, "work", OWN_US), 20000);
    assert_int_equal(join_rig_span_int(r, "work", ALL_US), 40000);
    /* The samples are stored under the span that they name. */
    assert_int_equal(join_rig_span_int(r, "query", STORED_AT), 1);
    assert_int_equal(join_rig_span_int(r, "root", STORED_AT), 1);
    assert_int_equal(join_rig_count(r, "samples_joined", "wall:nanoseconds"), 8);
    join_rig_free(r);
}

/* If the sample or the spans have no thread, a sample that matches two siblings belongs to their
 * parent. */
static void samples_that_match_siblings_belong_to_the_parent(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {
        /* matches work and other, so it belongs to root */
        {.span = 1, .n = 1, .times = {1150}},
        {.span = 1, .n = 1, .times = {1250}}, /* query is the deepest */
        /* work has no thread name, so the sample belongs to root */
        {.span = 1, .thread_name = "two", .n = 1, .times = {1150}},
        {.span = 1, .thread = "9", .thread_name = "two", .n = 1, .times = {1150}}, /* other */
        {.span = 1, .thread = "1", .thread_name = "one", .n = 1, .times = {1150}}, /* work */
    };
    struct join_rig *r = run(tree, 4, samples, BR_COUNT(samples));
    check(r, "root", 2, 5);
    check(r, "work", 1, 2);
    check(r, "query", 1, 1);
    check(r, "other", 1, 1);
    join_rig_free(r);
}

static void a_sample_is_divided_by_its_timestamps(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {
        {.span = 1,
         .thread = "1",
         .n = 5,
         .times = {1050, 1150, 1160, 1250, 1700},
         .values = {1000, 2000, 4000, 8000, 16000},
         .values_apart = true},
    };
    struct join_rig *r = run(tree, 4, samples, BR_COUNT(samples));
    check(r, "root", 2, 5);
    check(r, "work", 2, 3);
    check(r, "query", 1, 1);
    assert_int_equal(join_rig_span_int(r, "root", OWN_US), 17);
    assert_int_equal(join_rig_span_int(r, "root", ALL_US), 31);
    assert_int_equal(join_rig_span_int(r, "work", OWN_US), 6);
    assert_int_equal(join_rig_span_int(r, "work", ALL_US), 14);
    join_rig_free(r);
}

static void a_root_without_direct_samples_keeps_its_mark(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {
        {.span = 1, .thread = "1", .n = 1, .times = {1250}}};
    struct join_rig *r = run(tree, 4, samples, 1);
    check(r, "root", 0, 1);
    check(r, "work", 0, 1);
    check(r, "query", 1, 1);
    assert_int_equal(join_rig_span_int(r, "root", STORED_AT), 1);
    assert_int_equal(join_rig_span_int(r, "work", STORED_AT), -1);
    join_rig_free(r);
}

/* Each sample gets the link and the name of the span in which it was taken, if it is a single
 * one. */
static void samples_can_get_the_deepest_spans_link(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {
        {.span = 1, .thread = "1", .n = 1, .times = {1250}},
        {.span = 1, .thread = "1", .n = 2, .times = {1150, 1160}},
        {.span = 1, .thread = "1", .n = 1, .times = {1050}},
        /* in root, then in work: the sample is split in two */
        {.span = 1, .thread = "1", .n = 2, .times = {1050, 1150}},
    };
    struct join_rig *r =
        join_rig_new("{hold: 1s, mark: likely, local_root: {link: span}}", NULL, 0);
    struct wire w = {0};
    struct dict d = {0};
    put_samples(&w, 99, &(struct timed_sample){.span = 99}, 1); /* the service is profiled now */
    join_rig_send(r, BR_PROFILES, &w, false);
    wire_clear(&w);
    put_spans(&w, tree, 4);
    join_rig_send(r, BR_TRACES, &w, true);
    wire_clear(&w);
    put_samples(&w, 7, samples, BR_COUNT(samples));
    join_rig_send(r, BR_PROFILES, &w, false);
#define TRACE "00000000000000000000000000000007/000000000000000"
    assert_string_equal(join_rig_last(r), "1250 " TRACE "3: thread.id=1 span.name=query\n"
                                          "1150 " TRACE "2: thread.id=1 span.name=work\n"
                                          "1050 " TRACE "1: thread.id=1 span.name=root\n"
                                          "1050 " TRACE "1: thread.id=1 span.name=root\n"
                                          "1150 " TRACE "2: thread.id=1 span.name=work\n");
    /* If a sample gets the link of a deeper span, its label with the id of the root is removed. */
    wire_clear(&w);
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    size_t p = open_profile(&w, &d, &(struct profile_in){.type = "wall", .unit = "nanoseconds"});
    static const uint64_t time = 1250;
    uint32_t label = dict_attribute(&d, "span_id", "1");
    uint32_t thread = dict_attribute(&d, "thread.id", "1");
    put_sample(&w, &(struct sample_in){
                       .attributes = {label, thread}, .value = 5, .n_times = 1, .times = &time});
    wire_close(&w, p);
    close_resource(&w, o);
    dict_put(&w, &d);
    join_rig_send(r, BR_PROFILES, &w, false);
    assert_non_null(strstr(join_rig_last(r), TRACE "3: thread.id=1 span.name=query\n"));
    fake_host_advance(r->h, 1000);
    check(r, "query", 2, 2);
    assert_int_equal(join_rig_span_int(r, "query", STORED_AT), 3);
    assert_int_equal(join_rig_span_int(r, "work", STORED_AT), 2);
    assert_int_equal(join_rig_span_int(r, "root", STORED_AT), 1);
    assert_int_equal(join_rig_span_int(r, "other", STORED_AT), 4); /* mark: likely */
    wire_free(&w);
    join_rig_free(r);
}

/* If a sample names a span below a root, its service labels every span. Samples that name the
 * root then belong to the root itself. Their times, which may come from another clock, do not
 * matter. */
static void naming_a_span_below_makes_roots_exact(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {
        {.span = 1, .thread = "1", .n = 1, .times = {1250}},
        {.span = 3, .thread = "1", .n = 1, .times = {1050}},
        {.span = 1, .thread = "1", .n = 2, .times = {1150, 1400}},
    };
    static const char *const configs[] = {"{hold: 1s, profile_hold: 1s}",
                                          "{hold: 1s, profile_hold: 1s, local_root: {link: span}}"};
    for (size_t i = 0; i < BR_COUNT(configs); i++) {
        struct join_rig *r = join_rig_new(configs[i], NULL, 0);
        struct wire w = {0};
        put_samples(&w, 99, &(struct timed_sample){.span = 99},
                    1); /* the service is profiled now */
        join_rig_send(r, BR_PROFILES, &w, false);
        wire_clear(&w);
        put_spans(&w, tree, 4);
        join_rig_send(r, BR_TRACES, &w, true);
        wire_clear(&w);
        put_samples(&w, 7, samples, BR_COUNT(samples));
        join_rig_send(r, BR_PROFILES, &w, false);
        fake_host_advance(r->h, 2000);
        assert_int_equal(r->out[r->n_out - 1].signal, BR_TRACES);
        check(r, "root", 3, 4);
        check(r, "query", 1, 1);
        check(r, "work", 0, 1);
        wire_free(&w);
        join_rig_free(r);
    }
}

/* A sample that gets the link of the deepest span is held until that span arrives, even if the root
 * has already arrived. Exported samples then do not name the root, so the root has no mark. */
static void links_to_the_deepest_span_wait_for_it(void **state)
{
    (void)state;
    static const struct timed_sample below = {.span = 1, .thread = "1", .n = 1, .times = {1250}};
    struct join_rig *r = join_rig_new(
        "{hold: 5s, profile_hold: 5s, mark: exact, local_root: {link: span}}", NULL, 0);
    struct wire w = {0};
    put_spans(&w, &tree[3], 1); /* root */
    join_rig_send(r, BR_TRACES, &w, true);
    wire_clear(&w);
    put_samples(&w, 7, &below, 1);
    join_rig_send(r, BR_PROFILES, &w, false);
    wire_clear(&w);
    put_spans(&w, tree, 2); /* query, work */
    join_rig_send(r, BR_TRACES, &w, true);
    assert_int_equal(r->n_out, 0);
    fake_host_advance(r->h, 5000);
    assert_int_equal(r->n_out, 3);
    assert_int_equal(r->out[0].signal, BR_PROFILES);
    assert_string_equal(r->out[0].text, "1250 " TRACE "3: thread.id=1 span.name=query\n");
    assert_int_equal(join_rig_said(r, "query", STORED_AT), 3);
    assert_int_equal(join_rig_said(r, "query", OWN), 1);
    assert_int_equal(join_rig_said(r, "root", STORED_AT), -1);
    assert_int_equal(join_rig_said(r, "root", OWN), 0);
    assert_int_equal(join_rig_said(r, "root", ALL), 1);
    wire_free(&w);
    join_rig_free(r);
}

static void without_timestamps_all_is_the_roots(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {{.span = 1, .thread = "1"},
                                                  {.span = 2, .thread = "1"}};
    struct join_rig *r = run(tree, 4, samples, 2);
    check(r, "root", 1, 2);
    check(r, "work", 1, 1);
    check(r, "query", -1, -1);
    join_rig_free(r);
}

/* An SDK that labels a span that is not a root labels the current span. */
static void samples_of_a_span_below_the_root_belong_to_it(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {
        {.span = 2, .thread = "1", .n = 1, .times = {1250}}};
    struct join_rig *r = run(tree, 4, samples, 1);
    check(r, "root", 0, 1);
    check(r, "work", 1, 1);
    check(r, "query", -1, -1);
    join_rig_free(r);
}

/* A service that calls itself has two local trees in a trace. */
static void a_server_span_below_is_a_root(void **state)
{
    (void)state;
    static const struct span_in spans[] = {
        {.ids = ID(1), .name = "root", .start_ns = 1000, .end_ns = 2000},
        {.ids = ID(2), .name = "call", .parent = 1, .kind = 3, .start_ns = 1100, .end_ns = 1900},
        {.ids = ID(3), .name = "serve", .parent = 2, .kind = 2, .start_ns = 1200, .end_ns = 1800},
        {.ids = ID(4), .name = "inner", .parent = 3, .start_ns = 1300, .end_ns = 1700},
    };
    static const struct timed_sample samples[] = {{.span = 1, .n = 1, .times = {1400}},
                                                  {.span = 3, .n = 1, .times = {1400}}};
    struct join_rig *r = run(spans, 4, samples, 2);
    check(r, "root", 0, 1);
    check(r, "call", 1, 1);
    check(r, "serve", 0, 1);
    check(r, "inner", 1, 1);
    join_rig_free(r);
}

/* Parents form a cycle, or a span is its own parent: every sample still counts once. */
static void cycles_of_parents_end(void **state)
{
    (void)state;
    static const struct span_in spans[] = {
        {.ids = ID(1), .name = "a", .parent = 3, .start_ns = 1000, .end_ns = 2000},
        {.ids = ID(2), .name = "b", .parent = 1, .start_ns = 1000, .end_ns = 2000},
        {.ids = ID(3), .name = "c", .parent = 2, .start_ns = 1000, .end_ns = 2000},
        {.ids = ID(4), .name = "d", .parent = 4, .start_ns = 1000, .end_ns = 2000},
    };
    static const struct timed_sample samples[] = {{.span = 1, .n = 1, .times = {1400}},
                                                  {.span = 2, .n = 1, .times = {1400}},
                                                  {.span = 3, .n = 1, .times = {1400}},
                                                  {.span = 4, .n = 1, .times = {1400}}};
    struct join_rig *r = run(spans, 4, samples, 4);
    long long sum = 0;
    for (unsigned i = 0; i < 4; i++) {
        long long own = join_rig_span_int(r, spans[i].name, OWN);
        sum += own > 0 ? own : 0;
    }
    assert_int_equal(sum, 4);
    check(r, "d", 1, 1);
    join_rig_free(r);
}

/* From each trace, only the newest spans of a service are read, up to the configured number. */
static void spans_that_are_not_read_are_counted(void **state)
{
    (void)state;
    enum { MOST = 20 };
    for (unsigned n = MOST; n <= MOST + 1; n++) {
        struct join_rig *r = join_rig_new("{local_root: {max_spans: 20}}", NULL, 0);
        struct wire w = {0};
        struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
        for (uint64_t i = 1; i <= n; i++)
            put_span(&w, &(struct span_in){.ids = join_ids(7, i),
                                           .name = "work",
                                           .parent = i == n ? 0 : n,
                                           .start_ns = 1000,
                                           .end_ns = 2000});
        close_resource(&w, o);
        join_rig_send(r, BR_TRACES, &w, true);
        wire_clear(&w);
        put_samples(&w, 7, &(struct timed_sample){.span = n, .n = 1, .times = {1500}}, 1);
        join_rig_send(r, BR_PROFILES, &w, false);
        assert_true(join_rig_count(r, "trace_spans_cut", NULL) == (n > MOST ? 1.0 : 0.0));
        wire_free(&w);
        join_rig_free(r);
    }
}

/* Reading 256 spans takes 257 lookups. Each timestamp takes 257 steps. With one timestamp more than
 * the limit allows, all timestamps belong to the root and are counted as cut. */
static void steps_of_an_item_are_limited(void **state)
{
    (void)state;
    enum { FAMILY = 256, MOST = JOIN_STEPS_MAX / (FAMILY + 1) - JOIN_STEPS_PER_LOOKUP };
    uint64_t *times = malloc((MOST + 1) * sizeof *times);
    assert_non_null(times);
    for (unsigned i = 0; i <= MOST; i++)
        times[i] = 1500;
    for (unsigned more = 0; more < 2; more++) {
        struct join_rig *r = join_rig_new("{span_metrics: {enabled: true}}", NULL, 0);
        struct wire w = {0};
        struct dict d = {0};
        struct ids root = join_ids(7, 1);
        struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
        for (unsigned i = 1; i <= FAMILY; i++)
            put_span(&w, &(struct span_in){.ids = join_ids(7, i),
                                           .name = i == 1 ? "root" : "child",
                                           .parent = i / 2,
                                           .start_ns = 1000,
                                           .end_ns = i < 3 ? 2000 : 1001});
        close_resource(&w, o);
        join_rig_send(r, BR_TRACES, &w, true);
        wire_clear(&w);
        o = open_resource(&w, "shop", NULL, NULL, NULL);
        size_t p =
            open_profile(&w, &d, &(struct profile_in){.type = "wall", .unit = "nanoseconds"});
        put_sample(&w, &(struct sample_in){.link = dict_link(&d, root.trace, root.span),
                                           .no_value = true,
                                           .n_times = MOST + more,
                                           .times = times});
        wire_close(&w, p);
        close_resource(&w, o);
        dict_put(&w, &d);
        join_rig_send(r, BR_PROFILES, &w, false);
        const char *whose = more ? "root" : "child";
        char labels[128];
        (void)snprintf(labels, sizeof labels,
                       "processor=\"join\",service=\"shop\",span_name=\"%s\"", whose);
        assert_int_equal((int)fake_host_metric(r->h, "braid_join_span_samples", labels),
                         MOST + more);
        assert_int_equal((int)join_rig_count(r, "steps_cut", NULL), more);
        wire_free(&w);
        join_rig_free(r);
    }
    free(times);
}

/* Spans with the same id and no service could each match all timestamps. The number of records read
 * for a request is limited. */
static void reads_of_deferred_samples_are_limited(void **state)
{
    (void)state;
    enum { TAKEN = 3000, COPIES = 1000 };
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    struct wire w = {0};
    static struct timed_sample samples[TAKEN];
    r->blind = true;
    for (unsigned i = 0; i < TAKEN; i++)
        samples[i] = (struct timed_sample){.span = 1, .n = 1, .times = {1000 + i}};
    put_samples(&w, 7, samples, TAKEN);
    join_rig_send(r, BR_PROFILES, &w, false);
    wire_clear(&w);
    struct open o = open_resource(&w, NULL, NULL, NULL, NULL);
    for (unsigned i = 0; i < COPIES; i++)
        put_span(&w, &(struct span_in){.ids = ID(1), .name = "work"});
    close_resource(&w, o);
    uint64_t before = br_steps();
    join_rig_send(r, BR_TRACES, &w, true);
    assert_in_range(br_steps() - before, JOIN_STEPS_MAX, JOIN_STEPS_MAX + JOIN_STEPS_MAX / 4);
    assert_true(join_rig_count(r, "steps_cut", NULL) > 0);
    wire_free(&w);
    join_rig_free(r);
}

/* Sends a chain of 256 spans in each of `n_traces` traces, roots first, and samples of the roots
 * in turn. */
static struct join_rig *send_chains(unsigned n_traces, unsigned n_samples)
{
    struct join_rig *r = join_rig_new("{span_metrics: {enabled: true}}", NULL, 0);
    struct wire w = {0};
    struct dict d = {0};
    uint32_t links[256] = {0};
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    for (uint64_t i = 1; i <= 256; i++)
        for (uint64_t trace = 0; trace < n_traces; trace++)
            put_span(&w, &(struct span_in){.ids = join_ids(trace + 1, trace << 16 | i),
                                           .name = "work",
                                           .parent = i == 1 ? 0 : trace << 16 | (i - 1),
                                           .start_ns = 1000,
                                           .end_ns = 2000});
    close_resource(&w, o);
    join_rig_send(r, BR_TRACES, &w, true);
    wire_clear(&w);
    r->blind = true;
    for (uint64_t trace = 0; trace < n_traces; trace++) {
        struct ids root = join_ids(trace + 1, trace << 16 | 1);
        links[trace] = dict_link(&d, root.trace, root.span);
    }
    o = open_resource(&w, "shop", NULL, NULL, NULL);
    size_t p = open_profile(&w, &d, &(struct profile_in){.type = "wall", .unit = "nanoseconds"});
    static const uint64_t time = 1500;
    for (unsigned i = 0; i < n_samples; i++)
        put_sample(
            &w, &(struct sample_in){
                    .link = links[i % n_traces], .no_value = true, .n_times = 1, .times = &time});
    wire_close(&w, p);
    close_resource(&w, o);
    dict_put(&w, &d);
    join_rig_send(r, BR_PROFILES, &w, false);
    wire_free(&w);
    return r;
}

static void a_family_is_read_once_for_an_item(void **state)
{
    (void)state;
    enum { SAMPLES_OF_CHAINS = 20000 };
    for (unsigned n = 1; n <= 8; n *= 2) {
        uint64_t before = br_steps();
        struct join_rig *r = send_chains(n, SAMPLES_OF_CHAINS);
        /* Each sample is compared with 256 spans, and each family is read once. */
        assert_in_range(br_steps() - before, SAMPLES_OF_CHAINS * 257,
                        SAMPLES_OF_CHAINS * 400 + n * 257 * (JOIN_STEPS_PER_LOOKUP + 100));
        assert_true(join_rig_count(r, "steps_cut", NULL) < 0.5);
        assert_int_equal((int)join_rig_count(r, "samples_joined", "wall:nanoseconds"),
                         SAMPLES_OF_CHAINS);
        join_rig_free(r);
    }
}

/* There are more families (spans of one trace and service) than fit into the cache. Reading them
 * again takes steps. Samples beyond the limit of steps are counted as cut. */
static void reads_of_families_are_limited(void **state)
{
    (void)state;
    enum { SAMPLES_OF_CHAINS = 20000, CHAINS = 200 };
    uint64_t before = br_steps();
    struct join_rig *r = send_chains(CHAINS, SAMPLES_OF_CHAINS);
    assert_in_range(br_steps() - before, JOIN_STEPS_MAX / 2, JOIN_STEPS_MAX * 3 / 2);
    /* Each sample takes 257 lookups and 257 steps, or fewer if its family is cached. */
    double least = SAMPLES_OF_CHAINS - (double)(JOIN_STEPS_MAX / (257 * JOIN_STEPS_PER_LOOKUP));
    assert_true(join_rig_count(r, "steps_cut", NULL) > least - CHAINS);
    assert_int_equal((int)join_rig_count(r, "samples_joined", "wall:nanoseconds"),
                     SAMPLES_OF_CHAINS);
    join_rig_free(r);
}

/* --- Random trees ----------------------------------------------------------------------------- */

#define SPANS 40
#define SAMPLES 60

struct world {
    struct span_in spans[SPANS]; /* a span's parent precedes it */
    char names[SPANS][16];
    unsigned n;
    long long own[SPANS], all[SPANS];
};

static bool is_below(const struct world *w, unsigned span, unsigned top, unsigned *ret_depth)
{
    for (*ret_depth = 0; span > top; ++*ret_depth)
        span = (unsigned)w->spans[span].parent - 1;
    return span == top;
}

static bool matches(const struct span_in *s, uint64_t time, const char *thread)
{
    return s->start_ns <= time && time < s->end_ns &&
           (!thread || !s->attributes[1] || strcmp(thread, s->attributes[1]) == 0);
}

/* Returns the deepest matching span. If several have this depth, returns their nearest common
 * ancestor. Compares all spans. */
static unsigned oracle(const struct world *w, uint64_t time, const char *thread)
{
    unsigned deepest = 0, depth, best = 0;
    for (unsigned i = 0; i < w->n; i++)
        if (matches(&w->spans[i], time, thread) && is_below(w, i, 0, &depth) && depth > deepest)
            deepest = depth;
    for (unsigned top = 0; top < w->n; top++) {
        bool all = true;
        for (unsigned i = 0; i < w->n && all; i++) {
            (void)is_below(w, i, 0, &depth);
            unsigned unused;
            if (depth == deepest && matches(&w->spans[i], time, thread))
                all = is_below(w, i, top, &unused);
        }
        if (all)
            best = top; /* parents precede their children, so the last one is the deepest */
    }
    return deepest ? best : 0;
}

static struct world *make_world(uint64_t *state, struct timed_sample samples[SAMPLES])
{
    static const char *const threads[] = {"1", "2", NULL};
    struct world *w = calloc(1, sizeof *w);
    uint64_t seed = *state;
    assert_non_null(w);
    w->n = 1 + (unsigned)(fake_random(&seed) % SPANS);
    for (unsigned i = 0; i < w->n; i++) {
        struct span_in *s = &w->spans[i];
        (void)snprintf(w->names[i], sizeof w->names[i], "s%u", i);
        *s = (struct span_in){.ids = join_ids(7, i + 1), .name = w->names[i]};
        s->parent = i ? 1 + fake_random(&seed) % i : 0;
        s->start_ns = 1000 + (i ? fake_random(&seed) % 80 : 0);
        s->end_ns = i ? s->start_ns + fake_random(&seed) % 60 : 1200;
        s->attributes[1] = threads[fake_random(&seed) % 3];
        s->attributes[0] = s->attributes[1] ? "thread.id" : NULL;
    }
    for (unsigned k = 0; k < SAMPLES; k++) {
        struct timed_sample *t = &samples[k];
        *t = (struct timed_sample){.span = 1, .thread = threads[fake_random(&seed) % 3]};
        t->n = 1 + (unsigned)(fake_random(&seed) % 8);
        for (unsigned i = 0; i < t->n; i++) {
            t->times[i] = 1000 + fake_random(&seed) % 150;
            w->own[oracle(w, t->times[i], t->thread)]++;
        }
    }
    for (unsigned i = w->n; i-- > 0;) {
        w->all[i] += w->own[i];
        if (i)
            w->all[w->spans[i].parent - 1] += w->all[i];
    }
    *state = seed;
    return w;
}

static void one_world(uint64_t seed)
{
    struct timed_sample samples[SAMPLES];
    struct world *w = make_world(&seed, samples);
    struct join_rig *r = run(w->spans, w->n, samples, SAMPLES);
    for (unsigned i = 0; i < w->n; i++)
        check(r, w->names[i], w->all[i] ? w->own[i] : -1, w->all[i] ? w->all[i] : -1);
    join_rig_free(r);
    free(w);
}

static void shuffle(uint64_t *seed, unsigned *order, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        unsigned k = (unsigned)(fake_random(seed) % (i + 1));
        order[i] = order[k];
        order[k] = i;
    }
}

/* Sends each span and each sample in a separate request, in random order, within a second. */
static void one_shuffled_world(uint64_t seed, const char *config)
{
    struct timed_sample samples[SAMPLES];
    unsigned order[SPANS + SAMPLES];
    struct world *w = make_world(&seed, samples);
    struct join_rig *r = join_rig_new(config, NULL, 0);
    struct wire out = {0};
    shuffle(&seed, order, w->n + SAMPLES);
    put_samples(&out, 99, &(struct timed_sample){.span = 99}, 1); /* the service is profiled now */
    join_rig_send(r, BR_PROFILES, &out, false);
    for (unsigned i = 0; i < w->n + SAMPLES; i++) {
        bool span = order[i] < w->n;
        wire_clear(&out);
        if (span)
            put_spans(&out, &w->spans[order[i]], 1);
        else
            put_samples(&out, 7, &samples[order[i] - w->n], 1);
        join_rig_send(r, span ? BR_TRACES : BR_PROFILES, &out, true);
        fake_host_advance(r->h, 10);
    }
    fake_host_advance(r->h, 6000);
    for (unsigned i = 0; i < w->n; i++) {
        long long own = join_rig_said(r, w->names[i], OWN),
                  all = join_rig_said(r, w->names[i], ALL);
        if (own != (w->all[i] ? w->own[i] : -1) || all != (w->all[i] ? w->all[i] : -1))
            fail_msg("%s: %lld, %lld and not %lld, %lld", w->names[i], own, all, w->own[i],
                     w->all[i]);
    }
    wire_free(&out);
    join_rig_free(r);
    free(w);
}

static void random_trees_add_up_in_any_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        one_shuffled_world(seed, "{hold: 5s, profile_hold: 5s}");
        one_shuffled_world(seed, "{hold: 5s}");
    }
}

/* With `link: span`, spans arrive up to 8 s after their samples, which are held for 2 s. Each span
 * with a mark must have as many samples under its id as its attribute reports, or be marked as
 * partial. */
static void marks_lead_to_samples(void **state)
{
    (void)state;
    struct join_rig_marks marks = {0};
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct timed_sample samples[SAMPLES];
        unsigned order[SPANS];
        uint64_t random = seed;
        struct world *w = make_world(&random, samples);
        struct join_rig *r = join_rig_new(
            "{hold: 3s, profile_hold: 2s, mark: exact, local_root: {link: span}}", NULL, 0);
        struct wire out = {0};
        shuffle(&random, order, w->n);
        put_samples(&out, 99, &(struct timed_sample){.span = 99},
                    1); /* the service is profiled now */
        join_rig_send(r, BR_PROFILES, &out, false);
        for (unsigned i = 0; i < SAMPLES + w->n; i++) {
            bool span = i >= SAMPLES;
            wire_clear(&out);
            if (span) {
                put_spans(&out, &w->spans[order[i - SAMPLES]], 1);
            } else {
                samples[i].n = 1;
                put_samples(&out, 7, &samples[i], 1);
            }
            join_rig_send(r, span ? BR_TRACES : BR_PROFILES, &out, true);
            fake_host_advance(r->h, fake_random(&random) % 160);
        }
        fake_host_advance(r->h, 6000);
        for (unsigned i = 0; i < w->n; i++)
            join_rig_check_mark(r, w->names[i], i + 1, &marks);
        wire_free(&out);
        join_rig_free(r);
        free(w);
    }
    assert_in_range(marks.n, 300, 600);
    assert_in_range(marks.n_partial, 100, marks.n - 20);
}

/* If `hold` is 0, the root has all samples until a span below it arrives. That span then gets the
 * samples that were taken in it. */
static void samples_move_from_the_root_to_a_later_span(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {
        {.span = 1, .thread = "1", .n = 1, .times = {1050}},
        {.span = 1, .thread = "1", .n = 2, .times = {1150, 1250}}};
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    struct wire w = {0};
    put_samples(&w, 7, samples, 2);
    join_rig_send(r, BR_PROFILES, &w, false);
    wire_clear(&w);
    put_spans(&w, &tree[3], 1); /* root */
    join_rig_send(r, BR_TRACES, &w, true);
    check(r, "root", 3, 3);
    wire_clear(&w);
    put_spans(&w, &tree[1], 1); /* work */
    join_rig_send(r, BR_TRACES, &w, true);
    check(r, "work", 2, 2);
    wire_clear(&w);
    put_spans(&w, &tree[0], 1); /* query */
    join_rig_send(r, BR_TRACES, &w, true);
    check(r, "query", 1, 1);
    assert_int_equal(join_rig_span_int(r, "query", STORED_AT), 1);
    wire_free(&w);
    join_rig_free(r);
}

/* Returns true if the line of the last output about this span marks it as partial. */
static bool is_partial(struct join_rig *r, const char *span)
{
    const char *line = strstr(join_rig_last(r), span);
    assert_non_null(line);
    const char *end = strchr(line, '\n'), *partial = strstr(line, " profile.partial=true");
    return partial && partial < end;
}

/* Spans arrive when they end. Samples of a span below a root that lasts for many windows are
 * remembered as long as those of the root, or the spans are marked as partial. */
static void a_span_below_a_long_root_is_complete_or_partial(void **state)
{
    (void)state;
    enum { N = 50 };
    struct join_rig *r = join_rig_new("{window: 10s}", NULL, 0);
    struct wire w = {0};
    for (unsigned i = 0; i < N; i++) {
        wire_clear(&w);
        put_samples(&w, 7, &(struct timed_sample){.span = 1, .n = 1, .times = {1200 + i}}, 1);
        join_rig_send(r, BR_PROFILES, &w, false);
        fake_host_advance(r->h, 4000);
    }
    const struct span_in spans[] = {
        {.ids = ID(1), .name = "root", .start_ns = 1000, .end_ns = 2000},
        {.ids = ID(2), .name = "long", .parent = 1, .start_ns = 1100, .end_ns = 1900},
        {.ids = ID(3), .name = "short", .parent = 2, .start_ns = 1245, .end_ns = 1900},
    };
    wire_clear(&w);
    put_spans(&w, spans, 3);
    join_rig_send(r, BR_TRACES, &w, true);
    assert_int_equal(join_rig_span_int(r, "root", ALL), N);
    assert_true(join_rig_span_int(r, "long", ALL) == N || is_partial(r, "long"));
    check(r, "short", 5, 5);
    assert_false(is_partial(r, "short"));
    wire_free(&w);
    join_rig_free(r);
}

static void send_sample_at(struct join_rig *r, uint64_t span, uint64_t time)
{
    struct wire w = {0};
    put_samples(&w, 7, &(struct timed_sample){.span = span, .n = 1, .times = {time}}, 1);
    join_rig_send(r, BR_PROFILES, &w, false);
    wire_free(&w);
}

/* Samples before a gap longer than the window are forgotten, in the metrics and in the totals. */
static void samples_before_a_gap_are_not_counted(void **state)
{
    (void)state;
    /* in the second round, the memory of the samples before the gap has been reused */
    for (unsigned rest_ms = 0; rest_ms <= 8000; rest_ms += 8000) {
        struct join_rig *r = join_rig_new("{window: 10s}", NULL, 0);
        struct wire w = {0};
        send_sample_at(r, 1, 1050);
        fake_host_advance(r->h, 15000);
        send_sample_at(r, 1, 1150);
        send_sample_at(r, 1, 1250);
        fake_host_advance(r->h, rest_ms);
        put_spans(&w, (struct span_in[]){tree[3], tree[1]}, 2);
        join_rig_send(r, BR_TRACES, &w, true);
        check(r, "root", 0, 2);
        check(r, "work", 2, 2);
        assert_true(is_partial(r, "root"));
        assert_int_equal((int)join_rig_count(r, "samples_unknown_span", "wall:nanoseconds"), 1);
        assert_int_equal((int)join_rig_count(r, "samples_joined_late", "wall:nanoseconds"), 2);
        wire_free(&w);
        join_rig_free(r);
    }
}

/* A span with samples was evicted before the spans above it arrived: their sums are incomplete. */
static void evicted_spans_below_make_a_long_span_partial(void **state)
{
    (void)state;
    static const struct span_in spans[] = {
        {.ids = ID(1), .name = "top", .start_ns = 1000, .end_ns = 2000},
        {.ids = ID(3), .name = "beside", .parent = 1, .start_ns = 1000, .end_ns = 2000},
        {.ids = ID(2), .name = "above", .parent = 1, .start_ns = 1000, .end_ns = 2000},
    };
    static const struct span_in below = {
        .ids = ID(4), .name = "below", .parent = 2, .start_ns = 1100, .end_ns = 1200};
    /* the span "above" may arrive and be evicted together with "below" */
    for (unsigned i = 0; i < 4; i++) {
        unsigned is_evicted = i % 2, with = i / 2;
        struct join_rig *r = join_rig_new("{window: 10s}", NULL, 0);
        struct wire w = {0};
        put_samples(&w, 7, &(struct timed_sample){.span = 4}, 1);
        join_rig_send(r, BR_PROFILES, &w, false);
        wire_clear(&w);
        put_spans(&w, (struct span_in[]){below, spans[2]}, 1 + with);
        join_rig_send(r, BR_TRACES, &w, true);
        for (unsigned k = 0; k < (is_evicted ? 10 : 2); k++) {
            wire_clear(&w);
            put_samples(&w, 7, (struct timed_sample[]){{.span = 1}, {.span = 3}}, 2);
            join_rig_send(r, BR_PROFILES, &w, false);
            fake_host_advance(r->h, 4000);
        }
        wire_clear(&w);
        put_spans(&w, spans, 3 - with);
        join_rig_send(r, BR_TRACES, &w, true);
        check(r, "top", is_evicted ? 10 : 2, is_evicted ? 20 : 5);
        check(r, "beside", is_evicted ? 10 : 2, is_evicted ? 10 : 2);
        assert_int_equal(is_partial(r, "top"), is_evicted);
        assert_false(is_partial(r, "beside"));
        wire_free(&w);
        join_rig_free(r);
    }
}

/* The same for a span that is already held when the span below it is evicted. */
static void evictions_during_a_hold_make_a_span_partial(void **state)
{
    (void)state;
    static const struct span_in spans[] = {
        {.ids = ID(2), .name = "below", .parent = 1, .start_ns = 1100, .end_ns = 1200},
        {.ids = ID(1), .name = "top", .start_ns = 1000, .end_ns = 2000},
    };
    struct join_rig *r = join_rig_new("{window: 10s, hold: 5s}", NULL, 0);
    struct wire w = {0};
    put_samples(&w, 7, &(struct timed_sample){.span = 2}, 1);
    join_rig_send(r, BR_PROFILES, &w, false);
    for (unsigned i = 0; i < 2; i++) {
        wire_clear(&w);
        put_spans(&w, &spans[i], 1);
        join_rig_send(r, BR_TRACES, &w, true);
        for (unsigned k = 0; k < 5 && i == 0; k++) {
            fake_host_advance(r->h, 4000);
            wire_clear(&w);
            put_samples(&w, 7, &(struct timed_sample){.span = 1}, 1);
            join_rig_send(r, BR_PROFILES, &w, false);
        }
    }
    fake_host_advance(r->h, 6000);
    check(r, "top", 5, 5);
    assert_true(is_partial(r, "top"));
    wire_free(&w);
    join_rig_free(r);
}

static void random_trees_add_up(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++)
        one_world(seed);
}

SUITE(join_local)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_timestamp_belongs_to_the_deepest_open_span),
        cmocka_unit_test(samples_that_match_siblings_belong_to_the_parent),
        cmocka_unit_test(a_sample_is_divided_by_its_timestamps),
        cmocka_unit_test(a_root_without_direct_samples_keeps_its_mark),
        cmocka_unit_test(samples_can_get_the_deepest_spans_link),
        cmocka_unit_test(naming_a_span_below_makes_roots_exact),
        cmocka_unit_test(links_to_the_deepest_span_wait_for_it),
        cmocka_unit_test(without_timestamps_all_is_the_roots),
        cmocka_unit_test(samples_of_a_span_below_the_root_belong_to_it),
        cmocka_unit_test(a_server_span_below_is_a_root),
        cmocka_unit_test(cycles_of_parents_end),
        cmocka_unit_test(spans_that_are_not_read_are_counted),
        cmocka_unit_test(steps_of_an_item_are_limited),
        cmocka_unit_test(reads_of_deferred_samples_are_limited),
        cmocka_unit_test(a_family_is_read_once_for_an_item),
        cmocka_unit_test(reads_of_families_are_limited),
        cmocka_unit_test(random_trees_add_up),
        cmocka_unit_test(random_trees_add_up_in_any_order),
        cmocka_unit_test(marks_lead_to_samples),
        cmocka_unit_test(samples_move_from_the_root_to_a_later_span),
        cmocka_unit_test(a_span_below_a_long_root_is_complete_or_partial),
        cmocka_unit_test(samples_before_a_gap_are_not_counted),
        cmocka_unit_test(evicted_spans_below_make_a_long_span_partial),
        cmocka_unit_test(evictions_during_a_hold_make_a_span_partial),
    };
    return RUN_VARIANTS(tests, join_rig_order_falling);
}
