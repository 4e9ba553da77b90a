/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples that name no span are joined by thread, process and time. The expected results follow
 * from the times alone; in random worlds an oracle tries all spans.
 */
#include "base/mem.h"
#include "tests/support/fake_sink.h"
#include "tests/support/fault.h"
#include "tests/support/join_rig.h"
#include "tests/support/test.h"

#define CPU "cpu:nanoseconds"
#define INFER "{infer: true}"
#define T7 "00000000000000000000000000000007"

/* Attributes that identify the origin of a span or a sample; NULL: absent. */
struct place {
    const char *pid, *host, *container, *service;
};

static const struct place here = {"42", "h1", NULL, "shop"};

static struct open open_place(struct wire *w, const struct place *p)
{
    const char *const attributes[][2] = {{"process.pid", p->pid},
                                         {"host.id", p->host},
                                         {"container.id", p->container},
                                         {"service.name", p->service}};
    return open_resource_of(w, attributes, BR_COUNT(attributes));
}

static void put_spans(struct wire *w, const struct place *p, const struct span_in *spans,
                      unsigned n)
{
    struct open o = open_place(w, p);
    for (unsigned i = 0; i < n; i++)
        put_span(w, &spans[i]);
    close_resource(w, o);
}

static void send_spans(struct join_rig *r, const struct place *p, const struct span_in *spans,
                       unsigned n)
{
    struct wire w = {0};
    put_spans(&w, p, spans, n);
    join_rig_send(r, BR_TRACES, &w, true);
    wire_free(&w);
}

struct timed_sample {
    const char *thread;
    unsigned n;
    uint64_t times[4];
};

/* Closes the only profile of a request and sends it. */
static void send_profile(struct join_rig *r, struct wire *w, struct dict *d, size_t profile,
                         struct open resource)
{
    wire_close(w, profile);
    close_resource(w, resource);
    dict_put(w, d);
    join_rig_send(r, BR_PROFILES, w, false);
    wire_free(w);
}

static void put_samples(struct wire *w, const struct place *p, const struct timed_sample *samples,
                        unsigned n)
{
    struct dict d = {0};
    struct open o = open_place(w, p);
    size_t at = open_profile(
        w, &d, &(struct profile_in){"cpu", "nanoseconds", "cpu", "nanoseconds", 1000, NULL});
    for (unsigned i = 0; i < n; i++) {
        struct sample_in in = {
            .no_value = true, .n_times = samples[i].n, .times = samples[i].times};
        if (!samples[i].n)
            in = (struct sample_in){.value = 1000};
        if (samples[i].thread)
            in.attributes[0] =
                dict_attribute_int(&d, "thread.id", strtoll(samples[i].thread, NULL, 10));
        put_sample(w, &in);
    }
    wire_close(w, at);
    close_resource(w, o);
    dict_put(w, &d);
}

static void send_samples(struct join_rig *r, const struct place *p,
                         const struct timed_sample *samples, unsigned n)
{
    struct wire w = {0};
    put_samples(&w, p, samples, n);
    join_rig_send(r, BR_PROFILES, &w, false);
    wire_free(&w);
}

#define ID(n)                                                                                      \
    {                                                                                              \
        .trace = {[15] = 7}, .span = { [7] = (n) }                                                 \
    }
#define ON(thread)                                                                                 \
    {                                                                                              \
        "thread.id", thread                                                                        \
    }
static const struct span_in root = {
    .ids = ID(1), .name = "root", .start_ns = 1000, .end_ns = 2000, .attributes = ON("9")};
static const struct span_in work = {.ids = ID(2),
                                    .name = "work",
                                    .parent = 1,
                                    .start_ns = 1100,
                                    .end_ns = 1500,
                                    .attributes = ON("9")};
static const struct span_in query = {.ids = ID(3),
                                     .name = "query",
                                     .parent = 2,
                                     .start_ns = 1200,
                                     .end_ns = 1300,
                                     .attributes = ON("9")};

static void the_deepest_open_span_is_inferred(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {
        {"9", 1, {1050}},       {"9", 1, {1250}}, {"9", 2, {1150, 1400}}, /* root, query, work */
        {"9", 2, {1150, 1250}}, /* in work, then in query: the sample is split in two */
        {"9", 1, {2000}},       /* no span is open any more */
        {"8", 1, {1250}},       /* a thread without spans */
        {NULL, 1, {1250}},      /* without a thread */
        {"9", 0, {0}},          /* without a timestamp */
    };
    struct join_rig *r = join_rig_new(INFER, NULL, 0);
    send_spans(r, &here, (struct span_in[]){query, work, root}, 3);
    send_samples(r, &here, samples, BR_COUNT(samples));
    assert_string_equal(
        join_rig_last(r),
        "1050 " T7 "/0000000000000001: thread.id=9 span.name=root profile.join=inferred\n"
        "1250 " T7 "/0000000000000003: thread.id=9 span.name=query profile.join=inferred\n"
        "1150 " T7 "/0000000000000002: thread.id=9 span.name=work profile.join=inferred\n"
        "1150 " T7 "/0000000000000002: thread.id=9 span.name=work profile.join=inferred\n"
        "1250 " T7 "/0000000000000003: thread.id=9 span.name=query profile.join=inferred\n"
        "2000 -: thread.id=9\n"
        "1250 -: thread.id=8\n"
        "1250 -:\n"
        "1000 -: thread.id=9\n");
    /* the split sample counts once */
    assert_int_equal(join_rig_count(r, "samples_inferred", CPU), 4);
    assert_int_equal(join_rig_count(r, "samples_unlinked", CPU), 4);
    assert_int_equal(join_rig_count(r, "samples_joined", CPU), 0);
    join_rig_free(r);
}

/* Timestamps estimated from the end of the file do not identify a span. */
static void estimated_times_are_ignored(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{infer: true, local_root: {link: span}}", NULL, 0);
    struct wire w = {0};
    struct dict d = {0};
    send_spans(r, &here, (struct span_in[]){query, work, root}, 3);
    struct open o = open_place(&w, &here);
    size_t at = open_profile(
        &w, &d, &(struct profile_in){"cpu", "nanoseconds", "cpu", "nanoseconds", 1000, NULL});
    uint32_t thread = dict_attribute_int(&d, "thread.id", 9),
             estimated = dict_attribute(&d, "profile.time", "estimated"),
             other = dict_attribute(&d, "profile.time", "exact");
    static const uint64_t times[] = {1250};
    uint32_t link = dict_link(&d, root.ids.trace, root.ids.span);
    put_sample(&w,
               &(struct sample_in){
                   .value = 1, .n_times = 1, .times = times, .attributes = {thread, estimated}});
    put_sample(&w, &(struct sample_in){
                       .value = 2, .n_times = 1, .times = times, .attributes = {thread, other}});
    put_sample(
        &w, &(struct sample_in){
                .value = 4, .n_times = 1, .times = times, .link = link, .attributes = {estimated}});
    send_profile(r, &w, &d, at, o);
    const char *text = join_rig_last(r);
    assert_non_null(strstr(text, "thread.id=9 profile.time=estimated\n"));
    assert_non_null(strstr(text, "span.name=query profile.join=inferred\n"));
    assert_non_null(strstr(text, "profile.time=estimated span.name=root\n"));
    assert_int_equal((int)join_rig_count(r, "samples_inferred", CPU), 1);
    assert_int_equal((int)join_rig_count(r, "samples_unlinked", CPU), 1);
    join_rig_free(r);
}

static void a_sample_that_matches_two_spans_is_unlinked(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {{"9", 1, {1250}}, {"9", 1, {1450}}};
    struct span_in other = query;
    other.ids = join_ids(8, 4);
    for (unsigned i = 0; i < 4; i++) {
        struct span_in sibling = i / 2 ? other : query;
        sibling.ids.span[7] = 4;
        sibling.parent = i / 2 ? 0 : 2;
        struct join_rig *r = join_rig_new(INFER, NULL, 0);
        send_spans(r, &here,
                   i % 2 ? (struct span_in[]){sibling, query, work, root}
                         : (struct span_in[]){query, sibling, work, root},
                   4);
        send_samples(r, &here, samples, 2);
        /* at 1450 only work is open */
        assert_int_equal(join_rig_count(r, "samples_inferred", CPU), 1);
        assert_non_null(strstr(join_rig_last(r), "1250 -:"));
        join_rig_free(r);
    }
}

/* If the parent of a span ran on another thread, the span may not be below the other open span, so
 * its samples are not joined. */
static void a_span_with_a_remote_parent_is_not_inferred(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {{"9", 1, {1250}}};
    struct span_in away = work;
    away.attributes[1] = "10";
    struct join_rig *r = join_rig_new(INFER, NULL, 0);
    send_spans(r, &here, (struct span_in[]){query, away, root}, 3);
    send_samples(r, &here, samples, 1);
    assert_int_equal(join_rig_count(r, "samples_inferred", CPU), 0);
    join_rig_free(r);
}

static void process_and_host_must_be_the_same(void **state)
{
    (void)state;
    static const struct {
        struct place spans, samples;
        bool same;
    } cases[] = {
        {{"42", "h1", NULL, "shop"}, {"42", "h1", NULL, "shop"}, true},
        {{"42", "h1", NULL, "shop"}, {"42", "h1", NULL, NULL}, true},
        {{"42", NULL, "c1", NULL}, {"42", "h1", "c1", NULL}, true},
        {{"42", NULL, "c1", "shop"}, {"42", "h1", "c1", "shop"}, true},
        {{"42", NULL, NULL, "shop"}, {"42", "h1", "c1", "shop"}, false}, /* of any replica */
        {{"42", NULL, NULL, "shop"}, {"42", NULL, NULL, "shop"}, false},
        {{"42", "h1", NULL, "shop"}, {"42", "h2", NULL, "shop"}, false},
        {{"42", "h1", "c1", NULL}, {"42", "h1", "c2", NULL}, false},
        {{"42", "h1", NULL, "shop"}, {"42", "h1", NULL, "cart"}, false},
        {{"42", "h1", NULL, "shop"}, {"43", "h1", NULL, "shop"}, false},
        /* no common attribute of the place */
        {{"42", "h1", NULL, NULL}, {"42", NULL, NULL, "shop"}, false},
        {{"42", NULL, NULL, NULL}, {"42", NULL, NULL, NULL}, false},
        {{NULL, "h1", NULL, "shop"}, {NULL, "h1", NULL, "shop"}, false},
    };
    static const struct timed_sample samples[] = {{"9", 1, {1050}}};
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct join_rig *r = join_rig_new(INFER, NULL, 0);
        send_spans(r, &cases[i].spans, &root, 1);
        send_samples(r, &cases[i].samples, samples, 1);
        if (join_rig_count(r, "samples_inferred", CPU) != cases[i].same)
            fail_msg("case %zu: %s", i, join_rig_last(r));
        join_rig_free(r);
    }
}

static struct open open_language(struct wire *w, const char *language)
{
    const char *const attributes[][2] = {{"process.pid", "42"},
                                         {"host.id", "h1"},
                                         {"telemetry.sdk.language", language},
                                         {"service.name", "shop"}};
    return open_resource_of(w, attributes, BR_COUNT(attributes));
}

static long long count_of(struct join_rig *r, const char *span)
{
    return join_rig_said(r, span, "profile.sample_count");
}

struct thread_case {
    const char *of_span, *of_sample; /* values of telemetry.sdk.language */
    const char *span_name, *sample_name;
    const char *span_id, *sample_id;
    bool same;
};

static void send_case_span(struct join_rig *r, const struct thread_case *c)
{
    struct span_in span = root;
    struct wire w = {0};
    struct open o = open_language(&w, c->of_span);
    unsigned n = 0;
    memset(span.attributes, 0, sizeof span.attributes);
    if (c->span_id) {
        span.attributes[n++] = "thread.id";
        span.attributes[n++] = c->span_id;
    }
    if (c->span_name) {
        span.attributes[n++] = "thread.name";
        span.attributes[n++] = c->span_name;
    }
    put_span(&w, &span);
    close_resource(&w, o);
    join_rig_send(r, BR_TRACES, &w, true);
    wire_free(&w);
}

static void send_case_sample(struct join_rig *r, const struct thread_case *c)
{
    static const uint64_t time = 1050;
    struct wire w = {0};
    struct dict d = {0};
    struct open o = open_language(&w, c->of_sample);
    size_t p = open_profile(&w, &d, &(struct profile_in){.type = "cpu", .unit = "nanoseconds"});
    struct sample_in in = {.value = 1, .n_times = 1, .times = &time};
    unsigned n = 0;
    if (c->sample_id)
        in.attributes[n++] = dict_attribute_int(&d, "thread.id", strtoll(c->sample_id, NULL, 10));
    if (c->sample_name)
        in.attributes[n++] = dict_attribute(&d, "thread.name", c->sample_name);
    put_sample(&w, &in);
    send_profile(r, &w, &d, p, o);
}

/* The thread.id of a language runtime differs from that of the operating system. Then the thread
 * names decide, if the span and the sample both have a name. */
static const struct thread_case thread_cases[] = {
    {"java", "java", NULL, NULL, "9", "9", true},
    {"java", NULL, NULL, NULL, "9", "9", false},
    {NULL, "python", NULL, NULL, "9", "9", false},
    {"java", "dotnet", NULL, NULL, "9", "9", false},
    {"go", NULL, NULL, NULL, "9", "9", true},
    {"cpp", "rust", NULL, NULL, "9", "9", true},
    {"java", NULL, "main", "main", "9", "9", true},
    {"go", NULL, "main", "other", "9", "9", false},
    {"java", "java", "main", NULL, "9", "9", true},
    {"java", NULL, "main", NULL, "9", "9", false},
    /* Different ids rule out a match only if both are from a language runtime, or both from the
     * system. */
    {"java", NULL, "main", "main", "1", "4711", true},
    {NULL, "java", "main", "main", "4711", "1", true},
    {"java", NULL, "main", "other", "1", "4711", false},
    {"java", NULL, "main", NULL, "1", "4711", false},
    {"java", NULL, NULL, "main", "1", "4711", false},
    {"java", "java", "main", "main", "1", "4711", false},
    {"go", NULL, "worker", "worker", "1", "4711", false},
    /* The span or the sample, or both, have no id. */
    {"java", NULL, "main", "main", NULL, "4711", true},
    {"go", NULL, "main", "main", NULL, "4711", true},
    {"go", NULL, "main", "main", "4711", NULL, true},
    {"java", NULL, "main", "main", "1", NULL, true},
    {"go", "go", "main", "main", NULL, NULL, true},
    {"go", "go", "main", "other", NULL, NULL, false},
    {"go", NULL, NULL, NULL, NULL, "4711", false},
    {"go", NULL, "main", NULL, "1", NULL, false},
};

static void ids_of_one_origin_or_names_identify_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(thread_cases); i++) {
        struct join_rig *r = join_rig_new(INFER, NULL, 0);
        send_case_span(r, &thread_cases[i]);
        send_case_sample(r, &thread_cases[i]);
        if (join_rig_count(r, "samples_inferred", CPU) != thread_cases[i].same)
            fail_msg("case %zu: %s", i, join_rig_last(r));
        join_rig_free(r);
    }
}

/* The same cases, but the samples arrive first and are held, as is the span. The span must count
 * each sample once. */
static void held_samples_distinguish_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(thread_cases); i++) {
        struct join_rig *r = join_rig_new("{infer: true, hold: 2s, profile_hold: 1s}", NULL, 0);
        for (unsigned k = 0; k < 3; k++)
            send_case_sample(r, &thread_cases[i]);
        send_case_span(r, &thread_cases[i]);
        fake_host_advance(r->h, 5000);
        long long each = thread_cases[i].same ? 3 : 0, n_samples_of_span = count_of(r, "root");
        if (join_rig_count(r, "samples_inferred", CPU) != (double)each ||
            (n_samples_of_span > 0 ? n_samples_of_span : 0) != each)
            fail_msg("case %zu: the span has %lld samples: %s", i, n_samples_of_span,
                     join_rig_last(r));
        join_rig_free(r);
    }
}

/* The attributes of threads and places may have any position in a message. */
static void fields_may_have_any_order(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {{"9", 1, {1250}}, {"9", 1, {1050}}};
    for (unsigned order = 0; order < REORDERS; order++) {
        struct join_rig *r = join_rig_new(INFER, NULL, 0);
        r->order = (enum reorder)order;
        send_spans(r, &here, (struct span_in[]){query, work, root}, 3);
        send_samples(r, &here, samples, 2);
        if (join_rig_count(r, "samples_inferred", CPU) != 2)
            fail_msg("order %u: %s", order, join_rig_last(r));
        join_rig_free(r);
    }
}

static void off_by_default(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {{"9", 1, {1050}}};
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    send_spans(r, &here, &root, 1);
    send_samples(r, &here, samples, 1);
    assert_string_equal(join_rig_last(r), "1050 -: thread.id=9\n");
    join_rig_free(r);
}

/* A held profile is joined with the spans known at its release; its samples count once for the
 * span. */
static void held_profiles_are_joined_at_release(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {{"9", 1, {1250}}, {"9", 1, {1050}}};
    struct join_rig *r = join_rig_new("{infer: true, profile_hold: 1s, hold: 2s}", NULL, 0);
    send_spans(r, &here, (struct span_in[]){work}, 1);
    /* before query and root arrive, one sample matches work, and the other does not match a span */
    send_samples(r, &here, samples, 2);
    send_spans(r, &here, (struct span_in[]){query, root}, 2);
    fake_host_advance(r->h, 1000);
    assert_string_equal(
        join_rig_last(r),
        "1250 " T7 "/0000000000000003: thread.id=9 span.name=query profile.join=inferred\n"
        "1050 " T7 "/0000000000000001: thread.id=9 span.name=root profile.join=inferred\n");
    assert_int_equal(join_rig_count(r, "samples_inferred", CPU), 2);
    join_rig_free(r);
}

/* A service counts as profiled before any sample was inferred, and its profiles are held. */
static void services_that_are_inferred_are_profiled(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {{"9", 1, {1050}}};
    struct join_rig *r = join_rig_new("{infer: true, profile_hold: 60s, mark: likely}", NULL, 0);
    send_samples(r, &here, samples, 1);
    assert_int_equal(r->n_out, 0);
    send_spans(r, &here, &root, 1);
    assert_non_null(strstr(join_rig_last(r), "pyroscope.profile.id=0000000000000001"));
    join_rig_free(r);
    r = join_rig_new("{infer: true, profile_hold: 60s, hold: 2s, window: 60s}", NULL, 0);
    send_spans(r, &here, &root, 1);
    fake_host_advance(r->h, 5000); /* releases its first spans */
    send_spans(r, &here, &root, 1);
    assert_int_equal(r->n_out, 2);
    send_samples(r, &here, samples, 1);
    send_spans(r, &here, &root, 1);
    assert_int_equal(r->n_out, 2); /* the profile is held */
    fake_host_advance(r->h, 2000);
    assert_int_equal(join_rig_span_int(r, "root", "profile.sample_count"), 1);
    join_rig_free(r);
}

static void inferred_samples_have_figures(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {{"9", 2, {1250, 1260}}, {"9", 1, {1050}}};
    struct join_rig *r = join_rig_new("{infer: true, hold: 1s}", NULL, 0);
    send_spans(r, &here, (struct span_in[]){root}, 1);
    send_samples(r, &here, samples, 2); /* the links point to root; the service is profiled now */
    send_spans(r, &here, (struct span_in[]){query, work}, 2);
    send_samples(r, &here, samples, 2);
    fake_host_advance(r->h, 1000);
    assert_int_equal(join_rig_span_int(r, "query", "profile.sample_count"), 4);
    assert_int_equal(join_rig_span_int(r, "work", "profile.sample_count"), 0);
    assert_int_equal(join_rig_span_int(r, "work", "profile.inclusive_sample_count"), 4);
    join_rig_free(r);
}

/* An eBPF profiler sends one sample per stack and thread with all timestamps of five seconds. Here
 * its timestamps are in fifty spans. Each span gets the timestamps within it. Those before the
 * first span are not joined. */
static void a_sample_in_many_spans_is_split(void **state)
{
    (void)state;
    enum { N = 50, EACH = 10, TIMES = N * EACH + 2 };
    static uint64_t times[TIMES], values[TIMES];
    struct span_in spans[N];
    char names[N][16];
    for (unsigned held = 0; held < 2; held++) {
        struct join_rig *r = join_rig_new(held ? "{infer: true, hold: 5s, profile_hold: 2s}"
                                               : "{infer: true, hold: 5s}",
                                          NULL, 0);
        struct wire w = {0};
        struct dict d = {0};
        static const struct timed_sample first = {"77", 1, {1}};
        send_samples(r, &here, &first, 1); /* the service is profiled now */
        for (unsigned i = 0; i < N; i++) {
            (void)snprintf(names[i], sizeof names[i], "s%u", i);
            spans[i] = (struct span_in){.ids = join_ids(7, i + 1),
                                        .name = names[i],
                                        .start_ns = 1000 + 100 * i,
                                        .end_ns = 1100 + 100 * i,
                                        .attributes = ON("9")};
        }
        uint64_t sum = 0;
        for (unsigned i = 0; i < TIMES; i++) {
            times[i] =
                i < 2 ? 500 + i : 1000 + 10 * (i - 2); /* the first two are before all spans */
            values[i] = 1000 * (i + 1);
            sum += values[i];
        }
        send_spans(r, &here, spans, N);
        struct open o = open_place(&w, &here);
        size_t p = open_profile(&w, &d, &(struct profile_in){.type = "cpu", .unit = "nanoseconds"});
        struct sample_in in = {.n_times = TIMES, .times = times, .values = values};
        in.attributes[0] = dict_attribute_int(&d, "thread.id", 9);
        put_sample(&w, &in);
        send_profile(r, &w, &d, p, o);
        fake_host_advance(r->h, 6000);
        /* The sample was split into N pieces, but it counts once. */
        assert_int_equal((int)join_rig_count(r, "samples_inferred", CPU), 1);
        uint64_t us = 0;
        for (unsigned i = 0; i < N; i++) {
            assert_int_equal(count_of(r, names[i]), EACH);
            us += (uint64_t)join_rig_said(r, names[i], "profile.duration_us");
        }
        assert_true(us == (sum - values[0] - values[1]) / 1000);
        join_rig_free(r);
    }
}

/* Sends a sample whose timestamps alternate between the spans of two threads, so it has as many
 * pieces as timestamps. */
static double n_splits_cut(unsigned n_attributes, int *ret_inferred)
{
    enum { TIMES = 50 };
    static uint64_t times[TIMES];
    struct span_in inner[] = {query, root};
    struct join_rig *r = join_rig_new(INFER, NULL, 0);
    struct wire w = {0};
    struct dict d = {0};
    inner[0].parent = 1;
    send_spans(r, &here, inner, 2);
    for (unsigned i = 0; i < TIMES; i++)
        times[i] = i % 2 ? 1010 + i : 1210 + i;
    struct open o = open_place(&w, &here);
    size_t p = open_profile(&w, &d, &(struct profile_in){.type = "cpu", .unit = "nanoseconds"});
    struct sample_in in = {.no_value = true, .n_times = TIMES, .times = times};
    in.attributes[0] = dict_attribute_int(&d, "thread.id", 9);
    for (unsigned i = 1; i < n_attributes; i++)
        in.attributes[i] = dict_attribute_int(&d, "number", i);
    put_sample(&w, &in);
    send_profile(r, &w, &d, p, o);
    double cut = join_rig_count(r, "splits_cut", NULL);
    *ret_inferred = (int)join_rig_count(r, "samples_inferred", CPU);
    join_rig_free(r);
    return cut;
}

/* A sample of 512 bytes would be split into 50 pieces that repeat 62 bytes each, which is too much.
 * A sample of 453 bytes repeats only 3 bytes in each piece. */
static void samples_that_are_not_split_are_counted(void **state)
{
    (void)state;
    int inferred;
    assert_true(n_splits_cut(1, &inferred) == 0);
    assert_int_equal(inferred, 1);
    assert_true(n_splits_cut(60, &inferred) == 1);
    assert_int_equal(inferred, 0);
}

/* --- Random worlds ---------------------------------------------------------------------------- */

#define SPANS 30
#define SAMPLES 40

/* Makes spans of a few threads; some are nested. Parents precede their children. */
static void make_spans(uint64_t *random, uint64_t unit_ns, struct span_in *spans)
{
    static const char *const threads[] = {"1", "2", "3"};
    for (unsigned i = 0; i < SPANS; i++) {
        struct span_in *s = &spans[i];
        *s = (struct span_in){.ids = join_ids(7, i + 1), .name = "s"};
        s->parent = i && fake_random(random) % 3 ? 1 + fake_random(random) % i : 0;
        s->start_ns = (1000 + fake_random(random) % 400) * unit_ns;
        s->end_ns = s->start_ns + fake_random(random) % 60 * unit_ns;
        s->attributes[0] = "thread.id";
        s->attributes[1] = threads[fake_random(random) % 3];
    }
}

/* Units of time of a world. Spans last up to 60 units, in one level of durations or in several. */
static const uint64_t units_ns[] = {1, 40000, 3000000, 1000000000};

static bool is_above(const struct span_in *spans, const bool *open, unsigned above, unsigned below)
{
    for (uint64_t p = spans[below].parent; p && open[p - 1]; p = spans[p - 1].parent)
        if (p - 1 == above)
            return true;
    return false;
}

/* Returns the open span that is below all other open spans; SPANS: there is none. */
static unsigned oracle(const struct span_in *spans, const char *thread, uint64_t time)
{
    bool open[SPANS];
    for (unsigned i = 0; i < SPANS; i++)
        open[i] = strcmp(spans[i].attributes[1], thread) == 0 && spans[i].start_ns <= time &&
                  time < spans[i].end_ns;
    for (unsigned i = 0; i < SPANS; i++) {
        bool all = open[i];
        for (unsigned k = 0; k < SPANS && all; k++)
            all = !open[k] || k == i || is_above(spans, open, k, i);
        if (all)
            return i;
    }
    return SPANS;
}

static void one_world(uint64_t seed, uint64_t unit_ns, enum reorder order)
{
    uint64_t random = seed;
    struct span_in spans[SPANS];
    struct timed_sample samples[SAMPLES];
    static const char *const threads[] = {"1", "2", "3"};
    char want[SAMPLES][80], *rest = NULL;
    make_spans(&random, unit_ns, spans);
    for (unsigned i = 0; i < SAMPLES; i++) {
        struct timed_sample *t = &samples[i];
        *t = (struct timed_sample){
            threads[fake_random(&random) % 3], 1, {(1000 + fake_random(&random) % 450) * unit_ns}};
        unsigned span = oracle(spans, t->thread, t->times[0]);
        (void)snprintf(want[i], sizeof want[i], span < SPANS ? "%llu " T7 "/%016x: " : "%llu -: ",
                       (unsigned long long)t->times[0], span + 1);
    }
    struct join_rig *r = join_rig_new(INFER, NULL, 0);
    r->order = order;
    r->random = seed;
    send_spans(r, &here, spans, SPANS);
    send_samples(r, &here, samples, SAMPLES);
    char *line = strtok_r(r->out[r->n_out - 1].text, "\n", &rest);
    for (unsigned i = 0; i < SAMPLES; i++, line = strtok_r(NULL, "\n", &rest))
        if (!line || strncmp(line, want[i], strlen(want[i])) != 0)
            fail_msg("seed %llu, order %u, sample %u: %s, not %s", (unsigned long long)seed, order,
                     i, line, want[i]);
    join_rig_free(r);
}

/* Sends each span and each sample in a separate request, in random order, within a second. All of
 * them are held. */
static void one_shuffled_world(uint64_t seed, uint64_t unit_ns)
{
    static const char *const threads[] = {"1", "2", "3"};
    uint64_t random = seed;
    struct span_in spans[SPANS];
    struct timed_sample samples[SAMPLES];
    char names[SPANS][16];
    unsigned order[SPANS + SAMPLES], expected = 0, n[SPANS] = {0};
    make_spans(&random, unit_ns, spans);
    for (unsigned i = 0; i < SPANS; i++) {
        (void)snprintf(names[i], sizeof names[i], "s%u", i);
        spans[i].name = names[i];
    }
    for (unsigned i = 0; i < SAMPLES; i++) {
        samples[i] = (struct timed_sample){
            threads[fake_random(&random) % 3], 1, {(1000 + fake_random(&random) % 450) * unit_ns}};
        unsigned span = oracle(spans, samples[i].thread, samples[i].times[0]);
        if (span < SPANS)
            n[span]++;
        expected += span < SPANS;
    }
    for (unsigned i = 0; i < SPANS + SAMPLES; i++) {
        unsigned k = (unsigned)(fake_random(&random) % (i + 1));
        order[i] = order[k];
        order[k] = i;
    }
    struct join_rig *r = join_rig_new("{infer: true, hold: 5s, profile_hold: 5s}", NULL, 0);
    static const struct timed_sample first = {"77", 1, {1}};
    send_samples(r, &here, &first, 1); /* the service is profiled now */
    for (unsigned i = 0; i < SPANS + SAMPLES; i++) {
        if (order[i] < SPANS)
            send_spans(r, &here, &spans[order[i]], 1);
        else
            send_samples(r, &here, &samples[order[i] - SPANS], 1);
        fake_host_advance(r->h, 10);
    }
    fake_host_advance(r->h, 6000);
    assert_int_equal((int)join_rig_count(r, "samples_inferred", CPU), expected);
    for (unsigned i = 0; i < SPANS; i++)
        if (n[i] ? count_of(r, names[i]) != n[i] : count_of(r, names[i]) > 0)
            fail_msg("seed %llu: %s has %lld samples and not %u", (unsigned long long)seed,
                     names[i], count_of(r, names[i]), n[i]);
    join_rig_free(r);
}

static void held_spans_and_samples_join_in_any_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++)
        one_shuffled_world(seed, units_ns[seed % BR_COUNT(units_ns)]);
}

static void random_worlds_agree_with_the_oracle(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++)
        one_world(seed, units_ns[seed / REORDERS % BR_COUNT(units_ns)],
                  (enum reorder)(seed % REORDERS));
}

/* Returns true if the last output marks the span as partial. */
static bool is_partial(struct join_rig *r, const char *span)
{
    const char *line = strstr(join_rig_last(r), span);
    assert_non_null(line);
    const char *end = strchr(line, '\n'), *partial = strstr(line, " profile.partial=true");
    return partial && partial < end;
}

/* Sends 3,000 consecutive spans on thread 9. */
static void send_consecutive_spans(struct join_rig *r, uint64_t trace, uint64_t start_ns,
                                   uint64_t each_ns)
{
    struct wire w = {0};
    struct open o = open_place(&w, &here);
    for (unsigned i = 0; i < 3000; i++)
        put_span(&w, &(struct span_in){.ids = join_ids(trace, trace * 10000 + i),
                                       .name = "s",
                                       .start_ns = start_ns + i * each_ns,
                                       .end_ns = start_ns + (i + 1) * each_ns,
                                       .attributes = ON("9")});
    close_resource(&w, o);
    join_rig_send(r, BR_TRACES, &w, true);
    wire_free(&w);
}

/* If a thread has too many spans near a time, the join does not read all of them and does not join
 * samples near that time. If the spans are spread over 30 seconds, it finds each span. */
static void times_with_too_many_spans_are_not_inferred(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new(INFER, NULL, 0);
    send_consecutive_spans(r, 6, 1000, 10);
    send_consecutive_spans(r, 7, 1000000000, 10000000);
    static const struct timed_sample samples[] = {{"9", 1, {1005}},
                                                  {"9", 1, {30995}},
                                                  {"9", 1, {1005000000}},
                                                  {"9", 1, {30995000000}},
                                                  {"9", 1, {31000000000}}};
    send_samples(r, &here, samples, BR_COUNT(samples));
    assert_string_equal(join_rig_last(r),
                        "1005 -: thread.id=9\n"
                        "30995 -: thread.id=9\n"
                        "1005000000 " T7 "/0000000000011170: thread.id=9 span.name=s "
                        "profile.join=inferred\n"
                        "30995000000 " T7 "/0000000000011d27: thread.id=9 span.name=s "
                        "profile.join=inferred\n"
                        "31000000000 -: thread.id=9\n");
    assert_int_equal((int)join_rig_count(r, "samples_unknown_span", CPU), 2);
    assert_int_equal((int)join_rig_count(r, "samples_unlinked", CPU), 1);
    join_rig_free(r);
}

/* --- Marks ------------------------------------------------------------------------------------ */

/* Spans arrive up to 8 s after their samples. Samples are held for 2 s, so many are released before
 * their spans arrive. */
static void marks_lead_to_samples(void **state)
{
    (void)state;
    static const char *const threads[] = {"1", "2", "3"};
    struct join_rig_marks marks = {0};
    for (uint64_t seed = 1; seed <= 100; seed++) {
        uint64_t random = seed;
        struct span_in spans[SPANS];
        char names[SPANS][16];
        unsigned order[SPANS];
        struct join_rig *r =
            join_rig_new("{infer: true, hold: 3s, profile_hold: 2s, mark: exact}", NULL, 0);
        make_spans(&random, 1, spans);
        for (unsigned i = 0; i < SPANS; i++) {
            (void)snprintf(names[i], sizeof names[i], "s%u", i);
            spans[i].name = names[i];
        }
        for (unsigned i = 0; i < SPANS; i++) {
            unsigned k = (unsigned)(fake_random(&random) % (i + 1));
            order[i] = order[k];
            order[k] = i;
        }
        for (unsigned i = 0; i < SAMPLES; i++) {
            const struct timed_sample sample = {
                threads[fake_random(&random) % 3], 1, {1000 + fake_random(&random) % 450}};
            send_samples(r, &here, &sample, 1);
            fake_host_advance(r->h, fake_random(&random) % 160);
        }
        for (unsigned i = 0; i < SPANS; i++) {
            send_spans(r, &here, &spans[order[i]], 1);
            fake_host_advance(r->h, fake_random(&random) % 160);
        }
        fake_host_advance(r->h, 6000);
        for (unsigned i = 0; i < SPANS; i++)
            join_rig_check_mark(r, spans[i].name, i + 1, &marks);
        join_rig_free(r);
    }
    assert_in_range(marks.n, 300, 600);
    assert_in_range(marks.n_partial, 100, 300);
}

/* --- Replicas --------------------------------------------------------------------------------- */

#define REPLICAS 50

static struct open open_replica(struct wire *w, const char *key, const char *value)
{
    const char *const attributes[][2] = {
        {"process.pid", "1"}, {"service.name", "shop"}, {key, value}};
    return open_resource_of(w, attributes, BR_COUNT(attributes));
}

/* Each replica has a span at the same time, on threads with the same id. */
static void send_replicas(struct join_rig *r, const char *key)
{
    struct wire w = {0};
    for (unsigned i = 0; i < REPLICAS; i++) {
        char value[16];
        (void)snprintf(value, sizeof value, "replica-%u", i);
        struct open o = open_replica(&w, key, value);
        put_span(&w, &(struct span_in){.ids = join_ids(7, i + 1),
                                       .name = "s",
                                       .start_ns = 1000,
                                       .end_ns = 2000,
                                       .attributes = ON("9")});
        close_resource(&w, o);
    }
    join_rig_send(r, BR_TRACES, &w, true);
    wire_free(&w);
}

/* If the span and the sample both have a place, it distinguishes replicas with the same process and
 * thread ids. If the span or the sample has no place, samples are not joined. */
static void any_place_distinguishes_replicas(void **state)
{
    (void)state;
    static const char *const places[] = {"host.id", "container.id", "k8s.pod.uid",
                                         "service.instance.id"};
    static const uint64_t time = 1500;
    for (size_t k = 0; k < BR_COUNT(places) * BR_COUNT(places); k++) {
        const char *ours = places[k / BR_COUNT(places)], *theirs = places[k % BR_COUNT(places)];
        struct join_rig *r = join_rig_new(INFER, NULL, 0);
        send_replicas(r, ours);
        for (unsigned i = 0; i < REPLICAS; i++) {
            char value[16], want[128];
            struct wire w = {0};
            struct dict d = {0};
            (void)snprintf(value, sizeof value, "replica-%u", i);
            (void)snprintf(want, sizeof want,
                           ours == theirs ? "1500 " T7 "/%016x: thread.id=9 span.name=s "
                                            "profile.join=inferred\n"
                                          : "1500 -: thread.id=9\n",
                           i + 1);
            struct open o = open_replica(&w, theirs, value);
            size_t p =
                open_profile(&w, &d, &(struct profile_in){.type = "cpu", .unit = "nanoseconds"});
            struct sample_in in = {.no_value = true, .n_times = 1, .times = &time};
            in.attributes[0] = dict_attribute_int(&d, "thread.id", 9);
            put_sample(&w, &in);
            send_profile(r, &w, &d, p, o);
            assert_string_equal(join_rig_last(r), want);
        }
        join_rig_free(r);
    }
}

/* --- Evicted spans ---------------------------------------------------------------------------- */

/* Fills the table with spans of other threads, so that earlier records are evicted. */
static void fill_table(struct join_rig *r)
{
    struct wire w = {0};
    struct open o = open_place(&w, &here);
    for (unsigned i = 0; i < 10000; i++)
        put_span(&w, &(struct span_in){.ids = join_ids(8, i + 1),
                                       .name = "s",
                                       .start_ns = 5000 + i,
                                       .end_ns = 5001 + i,
                                       .attributes = ON("10")});
    close_resource(&w, o);
    join_rig_send(r, BR_TRACES, &w, true);
    wire_free(&w);
}

/* A span that was evicted because the table was full may have been the right one, so its samples
 * are not joined to the span above it. Its parent arrives later and is marked as partial. */
static void spans_evicted_early_leave_samples_unlinked(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {
        {"9", 1, {1250}}, {"9", 1, {1400}}, {"9", 1, {1600}}};
    struct join_rig *r = join_rig_new("{infer: true, max_bytes: 1048576}", NULL, 0);
    send_spans(r, &here, &query, 1); /* open until 1300 */
    fill_table(r);
    send_samples(r, &here, samples, 0);
    send_samples(r, &here, &(struct timed_sample){"9", 1, {1700}}, 1);
    send_spans(r, &here, (struct span_in[]){work, root}, 2);
    assert_true(is_partial(r, "root"));
    send_samples(r, &here, samples, BR_COUNT(samples));
    assert_string_equal(
        join_rig_last(r),
        "1250 -: thread.id=9\n"
        "1400 " T7 "/0000000000000002: thread.id=9 span.name=work profile.join=inferred\n"
        "1600 " T7 "/0000000000000001: thread.id=9 span.name=root profile.join=inferred\n");
    assert_int_equal((int)join_rig_count(r, "samples_unknown_span", CPU), 1);
    join_rig_free(r);
}

/* Sends a sample of thread 9 every 4 s, with timestamps in nanoseconds from `time` on. */
static void send_sample_with_times(struct join_rig *r, uint64_t time, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        const struct timed_sample sample = {"9", 1, {time + i}};
        send_samples(r, &here, &sample, 1);
        fake_host_advance(r->h, 4000);
    }
}

/* A span arrives when it ends. Until then, the timestamps of its thread are retained as long as
 * samples of the thread arrive. */
static void a_long_span_has_all_samples(void **state)
{
    (void)state;
    enum { N = 50 };
    struct join_rig *r = join_rig_new("{infer: true, window: 10s}", NULL, 0);
    send_sample_with_times(r, 1200, N);
    struct span_in spans[] = {work, query};
    spans[1].start_ns = 1205;
    spans[1].end_ns = 1220;
    send_spans(r, &here, spans, 2);
    assert_int_equal(join_rig_span_int(r, "work", "profile.sample_count"), N - 15);
    assert_int_equal(join_rig_span_int(r, "work", "profile.inclusive_sample_count"), N);
    assert_int_equal(join_rig_span_int(r, "query", "profile.sample_count"), 15);
    assert_false(is_partial(r, "work"));
    assert_false(is_partial(r, "query"));
    join_rig_free(r);
}

/* If no sample of the thread arrives within a window, the retained timestamps are dropped, and the
 * span is marked as partial. */
static void a_long_span_with_a_gap_is_partial(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{infer: true, window: 10s}", NULL, 0);
    send_sample_with_times(r, 1200, 20);
    fake_host_advance(r->h, 40000);
    send_sample_with_times(r, 1300, 4);
    send_spans(r, &here, (struct span_in[]){work, query}, 2);
    assert_int_equal(join_rig_span_int(r, "work", "profile.sample_count"), 4);
    assert_true(is_partial(r, "work"));
    join_rig_free(r);
}

/* Timestamps within child spans that arrived and were evicted do not count as the long span's own.
 * They are missing from its inclusive sums, so it is marked as partial. */
static void a_long_span_excludes_samples_of_spans_below(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{infer: true, window: 10s, hold: 5s}", NULL, 0);
    send_sample_with_times(r, 1120, 5);
    send_sample_with_times(r, 1210, 5);
    send_spans(r, &here, &query, 1);
    send_sample_with_times(r, 1310, 20);
    assert_int_equal(join_rig_said(r, "query", "profile.sample_count"), 5);
    send_spans(r, &here, &work, 1);
    fake_host_advance(r->h, 6000);
    assert_int_equal(join_rig_said(r, "work", "profile.sample_count"), 25);
    assert_true(is_partial(r, "work"));
    join_rig_free(r);
}

#define THREADS 1500

/* Sends a sample of each thread, by its id or by its name. */
static void send_sample_of_each(struct join_rig *r, const char *language, const char *key,
                                char (*values)[8])
{
    static const uint64_t time = 1050;
    struct wire w = {0};
    struct dict d = {0};
    struct open o = open_language(&w, language);
    size_t p = open_profile(&w, &d, &(struct profile_in){.type = "cpu", .unit = "nanoseconds"});
    for (unsigned i = 0; i < THREADS; i++) {
        struct sample_in in = {.value = 1, .n_times = 1, .times = &time};
        in.attributes[0] = dict_attribute(&d, key, values[i]);
        put_sample(&w, &in);
    }
    send_profile(r, &w, &d, p, o);
}

/* There are more threads than chains, so a lookup must follow its chain of thread ids or names to
 * the end. */
static void many_threads_are_distinguished(void **state)
{
    (void)state;
    static char ids[THREADS][8], names[THREADS][8];
    struct join_rig *r = join_rig_new("{infer: true, max_bytes: 1048576}", NULL, 0);
    struct wire w = {0};
    struct open o = open_language(&w, "java");
    r->blind = true;
    for (unsigned i = 0; i < THREADS; i++) {
        (void)snprintf(ids[i], sizeof ids[i], "%u", i + 1);
        (void)snprintf(names[i], sizeof names[i], "t%u", i);
        put_span(&w,
                 &(struct span_in){.ids = join_ids(7, i + 1),
                                   .name = "s",
                                   .start_ns = 1000,
                                   .end_ns = 2000,
                                   .attributes = {"thread.id", ids[i], "thread.name", names[i]}});
    }
    close_resource(&w, o);
    join_rig_send(r, BR_TRACES, &w, true);
    wire_free(&w);
    send_sample_of_each(r, NULL, "thread.name", names);
    send_sample_of_each(r, "java", "thread.id", ids);
    /* In one of 2,000 runs, two of the names have the same 31-bit hash. Their samples then match
     * two spans and are not joined. */
    assert_in_range((int)join_rig_count(r, "samples_inferred", CPU), 2 * THREADS - 2, 2 * THREADS);
    join_rig_free(r);
}

/* --- Without memory --------------------------------------------------------------------------- */

static void infer_with_faults(void *arg)
{
    static const struct timed_sample samples[] = {{"9", 1, {1250}}, {"9", 1, {1050}}};
    struct join_rig *r = join_rig_new(arg, NULL, 0);
    struct wire w = {0};
    send_spans(r, &here, (struct span_in[]){query, work, root}, 3);
    put_samples(&w, &here, samples, 2);
    struct br_item *item = join_rig_item(r, BR_PROFILES, &w, false);
    r->blind = true;
    fault_start();
    join_rig_consume(r, item);
    fault_stop();
    if (!fault_failed())
        assert_int_equal(join_rig_count(r, "samples_inferred", CPU), 2);
    assert_int_equal(r->n_done + r->n_retry + r->n_reject, 2);
    wire_free(&w);
    join_rig_free(r);
}

static void without_memory_samples_pass(void **state)
{
    (void)state;
    static char config[] = INFER;
    fault_each("infer", infer_with_faults, config);
}

/* Lists of spans are reused. A span without a thread must not get the thread of an earlier span. */
static void spans_without_threads_follow_spans_with_threads(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{infer: true, hold: 100ms}", NULL, 0);
    struct span_in bare[8], threaded[8];
    for (unsigned i = 0; i < BR_COUNT(bare); i++) {
        threaded[i] = root;
        threaded[i].ids = (struct ids){.span = {[7] = (uint8_t)(i + 4)}};
        bare[i] = threaded[i];
        bare[i].ids.span[7] = (uint8_t)(i + 64);
        bare[i].attributes[0] = i % 2 ? "thread.name" : "thread.kind";
    }
    for (unsigned k = 0; k < 4; k++)
        send_spans(r, &here, threaded, BR_COUNT(threaded));
    fake_host_advance(r->h, 300);
    send_spans(r, &here, bare, BR_COUNT(bare));
    fake_host_advance(r->h, 300);
    assert_int_equal(r->n_out, 5);
    join_rig_free(r);
}

SUITE(join_infer)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_deepest_open_span_is_inferred),
        cmocka_unit_test(many_threads_are_distinguished),
        cmocka_unit_test(spans_without_threads_follow_spans_with_threads),
        cmocka_unit_test(estimated_times_are_ignored),
        cmocka_unit_test(a_sample_that_matches_two_spans_is_unlinked),
        cmocka_unit_test(a_span_with_a_remote_parent_is_not_inferred),
        cmocka_unit_test(process_and_host_must_be_the_same),
        cmocka_unit_test(ids_of_one_origin_or_names_identify_threads),
        cmocka_unit_test(held_samples_distinguish_threads),
        cmocka_unit_test(fields_may_have_any_order),
        cmocka_unit_test(off_by_default),
        cmocka_unit_test(held_profiles_are_joined_at_release),
        cmocka_unit_test(services_that_are_inferred_are_profiled),
        cmocka_unit_test(inferred_samples_have_figures),
        cmocka_unit_test(a_sample_in_many_spans_is_split),
        cmocka_unit_test(samples_that_are_not_split_are_counted),
        cmocka_unit_test(random_worlds_agree_with_the_oracle),
        cmocka_unit_test(held_spans_and_samples_join_in_any_order),
        cmocka_unit_test(times_with_too_many_spans_are_not_inferred),
        cmocka_unit_test(any_place_distinguishes_replicas),
        cmocka_unit_test(marks_lead_to_samples),
        cmocka_unit_test(spans_evicted_early_leave_samples_unlinked),
        cmocka_unit_test(a_long_span_has_all_samples),
        cmocka_unit_test(a_long_span_with_a_gap_is_partial),
        cmocka_unit_test(a_long_span_excludes_samples_of_spans_below),
        cmocka_unit_test(without_memory_samples_pass),
    };
    return RUN(tests, NULL, NULL);
}
