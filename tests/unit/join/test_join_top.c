/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the functions of a span that have the largest own values. Expected orders are counted by
 * hand. */
#include "base/mem.h"
#include "tests/support/fake_sink.h"
#include "tests/support/join_rig.h"
#include "tests/support/test.h"

#define TRACE 7
#define FUNCTIONS 7

struct timed_sample {
    uint64_t span, value;
    const char *function;
};

static void put_samples(struct wire *w, const struct profile_in *profile,
                        const struct timed_sample *samples, unsigned n)
{
    struct dict d = {0};
    struct open o = open_resource(w, "shop", NULL, NULL, NULL);
    size_t p = open_profile(w, &d, profile);
    for (unsigned i = 0; i < n; i++) {
        struct ids ids = join_ids(TRACE, samples[i].span);
        put_sample(w, &(struct sample_in){.link = dict_link(&d, ids.trace, ids.span),
                                          .stack = dict_stack(&d, samples[i].function),
                                          .value = samples[i].value});
    }
    wire_close(w, p);
    close_resource(w, o);
    dict_put(w, &d);
}

static void send_samples(struct join_rig *r, const char *type, const char *unit,
                         const struct timed_sample *samples, unsigned n)
{
    struct wire w = {0};
    put_samples(&w, &(struct profile_in){.type = type, .unit = unit}, samples, n);
    join_rig_send(r, BR_PROFILES, &w, false);
    wire_free(&w);
}

/* Sends a root with a span below it; both are exported with the samples that arrived before. */
static void send_spans(struct join_rig *r)
{
    struct wire w = {0};
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    put_span(&w, &(struct span_in){.ids = join_ids(TRACE, 2), .name = "child", .parent = 1});
    put_span(&w, &(struct span_in){.ids = join_ids(TRACE, 1), .name = "root"});
    close_resource(&w, o);
    join_rig_send(r, BR_TRACES, &w, true);
    wire_free(&w);
}

static void check(const struct join_rig *r, const char *span, const char *want)
{
    char text[512];
    const char *line = strstr(join_rig_last(r), span);
    assert_non_null(line);
    (void)snprintf(text, sizeof text, " profile.top_functions=%s pyroscope", want);
    const char *at = strstr(line, text), *end = strchr(line, '\n');
    if (!at || at > end)
        fail_msg("%s: not %s in\n%s", span, want, join_rig_last(r));
}

static void the_functions_with_the_largest_values_are_on_top(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {
        {1, 10, "read"}, {1, 7, "parse"}, {2, 30, "sort"}, {2, 6, "parse"},
        {1, 5, "write"}, {1, 5, "read"},  {2, 1, "main"},
    };
    struct join_rig *r = join_rig_new("{top_functions: 3}", NULL, 0);
    send_samples(r, "cpu", "nanoseconds", samples, BR_COUNT(samples));
    send_spans(r);
    check(r, "child", "sort,parse,main");
    check(r, "root", "sort,read,parse"); /* 30, 15, 13 */
    join_rig_free(r);
}

/* CPU time takes precedence over calls and wall time, in any order of arrival. Equal values are
 * in the order of their names. */
static void values_of_one_profile_type_count(void **state)
{
    (void)state;
    static const struct timed_sample waits[] = {{1, 900, "wait"}, {2, 900, "wait"}};
    static const struct timed_sample burns[] = {{1, 2, "b"}, {1, 2, "a"}, {2, 1, "c"}};
    for (unsigned i = 0; i < 2; i++) {
        struct join_rig *r = join_rig_new("{top_functions: 3}", NULL, 0);
        if (i == 0)
            send_samples(r, "wall", "nanoseconds", waits, 2);
        send_samples(r, "cpu", "nanoseconds", burns, 3);
        if (i == 1)
            send_samples(r, "wall", "nanoseconds", waits, 2);
        send_spans(r);
        check(r, "root", "a,b,c");
        check(r, "child", "c");
        join_rig_free(r);
    }
}

static void off_by_default(void **state)
{
    (void)state;
    static const struct timed_sample samples[] = {{1, 10, "read"}, {2, 10, "read"}};
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    send_samples(r, "cpu", "nanoseconds", samples, 2);
    send_spans(r);
    assert_null(strstr(join_rig_last(r), "top_functions"));
    join_rig_free(r);
}

/* Random samples have fewer different functions than there are counters, so the sums must be
 * exact. */
static void sums_are_exact_while_there_are_counters(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        uint64_t random = seed, sums[FUNCTIONS] = {0};
        struct timed_sample samples[60];
        static const char *const names[FUNCTIONS] = {"a", "b", "c", "d", "e", "f", "g"};
        for (unsigned i = 0; i < 60; i++) {
            unsigned f = (unsigned)(fake_random(&random) % FUNCTIONS);
            samples[i] =
                (struct timed_sample){1 + i % 2, 1 + fake_random(&random) % 1000, names[f]};
            sums[f] += samples[i].value;
        }
        char want[64] = "";
        for (unsigned n = 0; n < 2; n++) {
            unsigned best = 0;
            for (unsigned f = 1; f < FUNCTIONS; f++)
                best = sums[f] > sums[best] ? f : best;
            sums[best] = 0;
            (void)snprintf(want + strlen(want), 8, "%s%s", n ? "," : "", names[best]);
        }
        struct join_rig *r = join_rig_new("{top_functions: 2}", NULL, 0);
        send_samples(r, "cpu", "nanoseconds", samples, 60);
        send_spans(r);
        check(r, "root", want);
        join_rig_free(r);
    }
}

SUITE(join_top)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_functions_with_the_largest_values_are_on_top),
        cmocka_unit_test(values_of_one_profile_type_count),
        cmocka_unit_test(off_by_default),
        cmocka_unit_test(sums_are_exact_while_there_are_counters),
    };
    return RUN_VARIANTS(tests, join_rig_order);
}
