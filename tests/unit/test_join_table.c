/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h wants the three above */
#include <cmocka.h>

#include "base/mem.h"
#include "processors/join/slots.h"
#include "tests/support/fake_sink.h"
#include "tests/support/join_enter.h"

#define WINDOW_MS 120000u
#define NOW 5000000u
#define MIB (1u << 20)

/* What a test says of a span, and what it sees of one that was found. */
struct seen {
    unsigned n;
    char name[300], service[300], attributes[300];
    uint8_t trace[16], id[8], parent[8];
    bool has_trace, has_parent;
    uint64_t start, end;
    uint8_t kind, status;
};

static void put64(uint8_t *out, uint64_t v)
{
    memcpy(out, &v, 8);
}

struct ids {
    uint8_t trace[16], span[8];
};

/* As SDKs make them: numbers one after the other would be spread less evenly. Different for
 * different numbers, and 0 for 0. */
static uint64_t look_random(uint64_t n)
{
    n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9u;
    n = (n ^ n >> 27) * 0x94d049bb133111ebu;
    return n ^ n >> 31;
}

static struct ids ids(uint64_t trace, uint64_t span)
{
    struct ids i = {.trace = {0xaa}};
    put64(i.trace + 8, trace);
    put64(i.span, look_random(span));
    return i;
}

static void on_found(void *arg, const struct join_span *span)
{
    struct seen *s = arg;
    s->n++;
    (void)snprintf(s->name, sizeof s->name, "%.*s", (int)span->name_len, (const char *)span->name);
    (void)snprintf(s->service, sizeof s->service, "%.*s", (int)span->service_len,
                   (const char *)span->service);
    (void)snprintf(s->attributes, sizeof s->attributes, "%.*s", (int)span->attributes_len,
                   (const char *)span->attributes);
    s->has_trace = span->trace_id != NULL;
    if (span->trace_id)
        memcpy(s->trace, span->trace_id, 16);
    memcpy(s->id, span->span_id, 8);
    s->has_parent = span->parent_id != NULL;
    if (span->parent_id)
        memcpy(s->parent, span->parent_id, 8);
    s->start = span->start_ns;
    s->end = span->end_ns;
    s->kind = span->kind;
    s->status = span->status;
}

static struct join_span span_of(const struct ids *i, const char *name)
{
    return (struct join_span){.trace_id = i->trace,
                              .span_id = i->span,
                              .name = (const uint8_t *)name,
                              .name_len = strlen(name),
                              .service = (const uint8_t *)"shop",
                              .service_len = 4};
}

static void enter(struct join_table *t, uint64_t trace, uint64_t span, const char *name,
                  uint64_t now, struct join_tally *tally)
{
    struct ids i = ids(trace, span);
    struct join_span s = span_of(&i, name);
    enter_spans(t, &s, 1, 0, NULL, now, tally);
}

static enum join_result sample_of_type(struct join_table *t, const uint8_t *trace,
                                       const uint8_t *span, uint16_t type, uint64_t now,
                                       struct seen *seen, struct join_tally *tally)
{
    struct join_sample s = {.trace_id = trace,
                            .span_id = span,
                            .measure = JOIN_CPU_TIME,
                            .time_ns = 10,
                            .count = 1,
                            .type = type};
    struct seen unused = {0};
    return join_table_sample(t, &s, true, now, on_found, seen ? seen : &unused, tally);
}

static enum join_result sample(struct join_table *t, uint64_t trace, uint64_t span, uint64_t now,
                               struct seen *seen, struct join_tally *tally)
{
    struct ids i = ids(trace, span);
    return sample_of_type(t, trace ? i.trace : NULL, i.span, 1, now, seen, tally);
}

/* As a sample, but only looked up. */
static enum join_result look(struct join_table *t, uint64_t trace, uint64_t span, uint64_t now,
                             struct seen *seen)
{
    struct ids i = ids(trace, span);
    struct join_sample s = {.trace_id = trace ? i.trace : NULL, .span_id = i.span};
    struct join_tally tally = {0};
    enum join_result r = join_table_sample(t, &s, false, now, on_found, seen, &tally);
    assert_false(tally.any);
    return r;
}

static uint64_t sum(const uint64_t *by_type)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < JOIN_TYPES; i++)
        n += by_type[i];
    return n;
}

static struct join_stats stats(struct join_table *t, uint64_t now)
{
    struct join_stats s;
    join_table_stats(t, now, &s);
    return s;
}

static bool shared; /* every test runs with either */

static struct join_table *make(size_t bytes)
{
    struct join_table *t = join_table_new(bytes, WINDOW_MS, 0, false, shared);
    assert_non_null(t);
    return t;
}

static void a_span_is_found_with_all_that_was_said(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    struct ids i = ids(7, 42);
    uint8_t parent[8] = {9, 8, 7, 6, 5, 4, 3, 2};
    struct join_span s = span_of(&i, "POST /checkout");
    s.parent_id = parent;
    s.start_ns = 1000;
    s.end_ns = 2000;
    s.kind = 2;
    s.status = 1;
    s.attributes = (const uint8_t *)"\003/x";
    s.attributes_len = 3;
    enter_spans(t, &s, 1, 0, NULL, NOW, &tally);
    struct seen seen = {0};
    assert_int_equal(sample(t, 7, 42, NOW, &seen, &tally), JOIN_FOUND);
    assert_int_equal(seen.n, 1);
    assert_string_equal(seen.name, "POST /checkout");
    assert_string_equal(seen.service, "shop");
    assert_string_equal(seen.attributes, "\003/x");
    assert_true(seen.has_trace);
    assert_memory_equal(seen.trace, i.trace, 16);
    assert_memory_equal(seen.id, i.span, 8);
    assert_memory_equal(seen.parent, parent, 8);
    assert_int_equal(seen.start, 1000);
    assert_int_equal(seen.end, 2000);
    assert_int_equal(seen.kind, 2);
    assert_int_equal(seen.status, 1);
    assert_false(tally.any);
    join_table_free(t);
}

static void ids_must_be_equal(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    struct seen seen = {0};
    enter(t, 7, 42, "a", NOW, &tally);
    assert_int_equal(look(t, 8, 42, NOW, &seen), JOIN_UNKNOWN);
    assert_int_equal(look(t, 7, 43, NOW, &seen), JOIN_UNKNOWN);
    assert_int_equal(seen.n, 0);
    assert_int_equal(look(t, 0, 42, NOW, &seen), JOIN_FOUND); /* a span id alone is enough */
    assert_string_equal(seen.name, "a");
    join_table_free(t);
}

static void a_span_id_of_two_traces_needs_the_trace(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    struct seen seen = {0};
    enter(t, 7, 42, "a", NOW, &tally);
    enter(t, 8, 42, "b", NOW, &tally);
    assert_int_equal(look(t, 0, 42, NOW, &seen), JOIN_UNKNOWN);
    assert_int_equal(look(t, 7, 42, NOW, &seen), JOIN_FOUND);
    assert_string_equal(seen.name, "a");
    assert_int_equal(look(t, 8, 42, NOW, &seen), JOIN_FOUND);
    assert_string_equal(seen.name, "b");
    /* A sample that cannot be told apart is unknown at once, and adds to neither. */
    assert_int_equal(sample(t, 0, 42, NOW, &seen, &tally), JOIN_UNKNOWN);
    assert_int_equal(tally.unknown[1], 1);
    struct join_figures f;
    struct ids i = ids(7, 42);
    assert_false(join_table_figures(t, i.trace, i.span, &f, NULL));
    assert_int_equal(stats(t, NOW).pending, 0);
    join_table_free(t);
}

static void a_span_without_a_trace_id_is_found_by_its_own(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    struct ids i = ids(0, 5);
    struct join_span s = span_of(&i, "x");
    struct seen seen = {0};
    s.trace_id = NULL;
    enter_spans(t, &s, 1, 0, NULL, NOW, &tally);
    assert_int_equal(look(t, 9, 5, NOW, &seen), JOIN_FOUND);
    assert_false(seen.has_trace);
    join_table_free(t);
}

static void the_same_span_again_replaces_it_and_keeps_its_figures(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    struct join_figures f;
    struct seen seen = {0};
    struct ids i = ids(7, 42);
    enter(t, 7, 42, "first", NOW, &tally);
    assert_int_equal(sample(t, 7, 42, NOW, NULL, &tally), JOIN_FOUND);
    enter(t, 7, 42, "second", NOW, &tally);
    assert_int_equal(look(t, 7, 42, NOW, &seen), JOIN_FOUND);
    assert_string_equal(seen.name, "second");
    assert_int_equal(stats(t, NOW).spans, 1);
    assert_true(join_table_figures(t, i.trace, i.span, &f, NULL));
    assert_int_equal(f.count[JOIN_CPU_TIME], 1);
    assert_false(tally.any); /* nothing was late, nothing left */
    join_table_free(t);
}

static void the_window_has_an_edge(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    struct seen seen = {0};
    enter(t, 7, 42, "a", NOW, &tally);
    assert_int_equal(sample(t, 7, 42, NOW + WINDOW_MS, &seen, &tally), JOIN_FOUND);
    /* The clock of the table ticks ten times a second. */
    assert_int_equal(sample(t, 7, 42, NOW + WINDOW_MS + 200, &seen, &tally), JOIN_TOO_LATE);
    assert_int_equal(seen.n, 1);
    join_table_expire(t, NOW + WINDOW_MS + 200, &tally);
    assert_int_equal(sample(t, 7, 42, NOW + WINDOW_MS + 200, &seen, &tally), JOIN_TOO_LATE);
    join_table_expire(t, NOW + 2 * WINDOW_MS + 2000, &tally);
    assert_int_equal(stats(t, NOW).spans, 0);
    assert_false(tally.any); /* what left after its time is not missed */
    assert_int_equal(look(t, 7, 42, NOW + 2 * WINDOW_MS + 2000, &seen), JOIN_UNKNOWN);
    join_table_free(t);
}

static void a_late_sample_adds_nothing(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    struct join_figures f;
    struct ids i = ids(7, 42);
    enter(t, 7, 42, "a", NOW, &tally);
    assert_int_equal(sample(t, 7, 42, NOW + WINDOW_MS + 200, NULL, &tally), JOIN_TOO_LATE);
    assert_false(join_table_figures(t, i.trace, i.span, &f, NULL));
    join_table_free(t);
}

/* Workers read the clock once a loop turn: one may enter what for another lies ahead. */
static void clocks_of_workers_may_differ(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    struct seen seen = {0};
    enter(t, 7, 42, "a", NOW + 150, &tally);
    assert_int_equal(sample(t, 7, 42, NOW, &seen, &tally), JOIN_FOUND);
    join_table_expire(t, NOW, &tally);
    assert_int_equal(stats(t, NOW).spans, 1);
    assert_int_equal(stats(t, NOW).oldest_ms, 0);
    join_table_profiled(t, 99, NOW + 1500);
    assert_true(join_table_is_profiled(t, 99, NOW));
    assert_false(tally.any);
    join_table_free(t);
}

static void a_sample_before_its_span_is_late_once(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    struct join_figures f;
    struct ids i = ids(7, 42);
    assert_int_equal(sample(t, 7, 42, NOW, NULL, &tally), JOIN_UNKNOWN);
    assert_int_equal(sample(t, 7, 42, NOW, NULL, &tally), JOIN_UNKNOWN);
    assert_int_equal(stats(t, NOW).pending, 1);
    assert_int_equal(stats(t, NOW).spans, 0);
    assert_false(tally.any);
    enter(t, 7, 42, "a", NOW + 1000, &tally);
    assert_int_equal(tally.late[1], 2);
    assert_int_equal(tally.adopted, 1);
    assert_int_equal(stats(t, NOW).pending, 0);
    assert_int_equal(stats(t, NOW).spans, 1);
    assert_true(join_table_figures(t, i.trace, i.span, &f, NULL));
    assert_int_equal(f.count[JOIN_CPU_TIME], 2);
    assert_int_equal(f.time_ns[JOIN_CPU_TIME], 20);
    enter(t, 7, 42, "a", NOW + 2000, &tally); /* sent again */
    join_table_expire(t, NOW + 3 * WINDOW_MS, &tally);
    assert_int_equal(tally.late[1], 2);
    assert_int_equal(tally.adopted, 1);
    assert_int_equal(sum(tally.unknown), 0);
    join_table_free(t);
}

static void a_label_alone_waits_too(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    assert_int_equal(sample(t, 0, 42, NOW, NULL, &tally), JOIN_UNKNOWN);
    enter(t, 7, 42, "a", NOW, &tally);
    assert_int_equal(tally.late[1], 1);
    enter(t, 8, 42, "b", NOW, &tally); /* another span: they are given away */
    assert_int_equal(tally.late[1], 1);
    struct join_figures f;
    struct ids i = ids(8, 42);
    assert_false(join_table_figures(t, i.trace, i.span, &f, NULL));
    join_table_free(t);
}

static void a_sample_whose_span_never_comes_is_unknown_once(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    (void)sample(t, 7, 42, NOW, NULL, &tally);
    join_table_expire(t, NOW + WINDOW_MS, &tally);
    assert_false(tally.any);
    join_table_expire(t, NOW + 3 * WINDOW_MS, &tally);
    assert_int_equal(tally.unknown[1], 1);
    join_table_expire(t, NOW + 4 * WINDOW_MS, &tally);
    assert_int_equal(tally.unknown[1], 1);
    assert_int_equal(stats(t, NOW).pending, 0);
    join_table_free(t);
}

static void a_span_after_the_window_does_not_take_samples_over(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    struct join_figures f;
    struct ids i = ids(7, 42);
    (void)sample(t, 7, 42, NOW, NULL, &tally);
    enter(t, 7, 42, "a", NOW + WINDOW_MS + 200, &tally);
    assert_int_equal(tally.unknown[1], 1);
    assert_int_equal(sum(tally.late), 0);
    assert_int_equal(tally.adopted, 0);
    assert_false(join_table_figures(t, i.trace, i.span, &f, NULL));
    assert_int_equal(stats(t, NOW).pending, 0);
    join_table_free(t);
}

static void a_sample_after_the_window_begins_anew(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    (void)sample(t, 7, 42, NOW, NULL, &tally);
    (void)sample(t, 7, 42, NOW + WINDOW_MS + 200, NULL, &tally);
    assert_int_equal(tally.unknown[1], 1);
    enter(t, 7, 42, "a", NOW + WINDOW_MS + 300, &tally);
    assert_int_equal(tally.late[1], 1);
    assert_int_equal(tally.unknown[1], 1);
    join_table_free(t);
}

static void samples_of_items_that_wait_are_not_counted_here(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    struct join_figures f;
    struct seen seen = {0};
    struct ids i = ids(7, 42), k = ids(7, 43);
    struct join_sample s = {.trace_id = i.trace,
                            .span_id = i.span,
                            .measure = JOIN_WALL_TIME,
                            .time_ns = 5,
                            .count = 3,
                            .held = true};
    assert_int_equal(join_table_sample(t, &s, true, NOW, on_found, &seen, &tally), JOIN_UNKNOWN);
    enter(t, 7, 42, "a", NOW, &tally);
    assert_int_equal(tally.adopted, 1);
    assert_int_equal(sum(tally.late), 0);
    assert_true(join_table_figures(t, i.trace, i.span, &f, NULL));
    assert_int_equal(f.count[JOIN_WALL_TIME], 3);
    s.span_id = k.span;
    (void)join_table_sample(t, &s, true, NOW, on_found, &seen, &tally);
    join_table_expire(t, NOW + 3 * WINDOW_MS, &tally);
    assert_int_equal(sum(tally.unknown), 0);
    join_table_free(t);
}

static void figures_add_up_by_measure_and_stop_at_their_limits(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    struct join_figures f;
    struct seen seen = {0};
    struct ids i = ids(7, 42);
    uint8_t profile[16] = {1, 2, 3};
    enter(t, 7, 42, "a", NOW, &tally);
    for (uint16_t type = 0; type < JOIN_SPAN_TYPES + 2; type++) {
        struct join_sample s = {.trace_id = i.trace,
                                .span_id = i.span,
                                .measure = (enum join_measure)(type % JOIN_MEASURES),
                                .time_ns = 100,
                                .count = 2,
                                .type = type,
                                .profile_id = type == 1 ? profile : NULL};
        assert_int_equal(join_table_sample(t, &s, true, NOW, on_found, &seen, &tally), JOIN_FOUND);
    }
    assert_true(join_table_figures(t, i.trace, i.span, &f, NULL));
    for (unsigned m = 0; m < JOIN_MEASURES; m++)
        assert_int_equal(f.count[m], 4); /* 8 types on 4 measures */
    for (unsigned m = 0; m < JOIN_OTHER; m++)
        assert_int_equal(f.time_ns[m], 200);
    assert_memory_equal(f.profile_id, profile, 16);
    for (unsigned k = 0; k < JOIN_SPAN_TYPES; k++) {
        assert_true(f.types[k].used);
        assert_int_equal(f.types[k].type, k == JOIN_SPAN_TYPES - 1 ? JOIN_TYPES - 1 : k);
    }
    struct join_sample big = {
        .trace_id = i.trace, .span_id = i.span, .time_ns = UINT64_MAX, .count = UINT32_MAX};
    (void)join_table_sample(t, &big, true, NOW, on_found, &seen, &tally);
    assert_true(join_table_figures(t, i.trace, i.span, &f, NULL));
    assert_int_equal(f.count[0], UINT32_MAX);
    assert_true(f.time_ns[0] == UINT64_MAX);
    join_table_free(t);
}

/* Past the types of one span, samples that wait are still counted, as "other". */
static void types_past_a_spans_limit_are_other(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    struct ids i = ids(7, 42);
    for (uint16_t type = 1; type <= JOIN_SPAN_TYPES + 3; type++)
        (void)sample_of_type(t, i.trace, i.span, type, NOW, NULL, &tally);
    enter(t, 7, 42, "a", NOW, &tally);
    for (unsigned type = 1; type < JOIN_SPAN_TYPES; type++)
        assert_int_equal(tally.late[type], 1);
    assert_int_equal(tally.late[JOIN_TYPES - 1], 4);
    assert_int_equal(sum(tally.late), JOIN_SPAN_TYPES + 3);
    join_table_free(t);
}

/* A table of 1 MiB has 16 shards with figures for an eighth of their 64 KiB each. */
static void without_room_for_figures_samples_are_unknown_at_once(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    uint64_t most = MIB / 8 / sizeof(struct join_figures), n = 4 * most;
    for (uint64_t k = 1; k <= n; k++)
        (void)sample(t, 7, k, NOW, NULL, &tally);
    uint64_t pending = stats(t, NOW).pending;
    assert_true(pending <= most);
    assert_true(pending > most / 2);
    assert_int_equal(sum(tally.unknown), n - pending);
    /* Everything is free again once they have left. */
    join_table_expire(t, NOW + 3 * WINDOW_MS, &tally);
    assert_int_equal(sum(tally.unknown), n);
    for (uint64_t k = 1; k <= n; k++)
        (void)sample(t, 8, k, NOW + 3 * WINDOW_MS, NULL, &tally);
    assert_int_equal(stats(t, NOW).pending, pending);
    join_table_free(t);
}

/* Hashes differ with each run, and now and then a bucket and its neighbour are full: mostly of
 * none, a few spans at most of the thousands here. */
#define FULL_BUCKETS_MAX 30

/* Spans of one shard: those whose arrival moves the same ring. */
static void the_oldest_leave_first(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    enum { N = 20000 };
    for (uint64_t k = 1; k <= N; k++)
        enter(t, 7, k, "GET /a/name/of/some/length", NOW + k / 100, &tally);
    struct join_stats s = stats(t, NOW + N / 100);
    assert_int_equal(s.spans + tally.evicted, N);
    assert_true(s.bytes <= s.max_bytes);
    assert_true(s.max_bytes <= MIB);
    assert_true(tally.evicted > N / 4);
    assert_int_equal(sum(tally.unknown) + sum(tally.late), 0);
    /* Shards fill alike, so that what is left is the newest, but for a fringe. */
    struct seen seen = {0};
    uint64_t n_found = 0, n_lost = 0;
    for (uint64_t k = 1; k <= N; k++) {
        bool found = look(t, 7, k, NOW + N / 100, &seen) == JOIN_FOUND;
        n_found += found;
        if (k <= tally.evicted / 2)
            assert_false(found);
        n_lost += k > N - s.spans / 2 && !found;
    }
    assert_int_equal(n_found, s.spans);
    assert_true(n_lost < FULL_BUCKETS_MAX);
    assert_int_equal(seen.n, n_found);
    join_table_free(t);
}

/* Records of every size go round the ring many times, so that what is left at its end takes every
 * size. */
static void records_of_every_size_go_round(void **state)
{
    (void)state;
    static char text[JOIN_ATTRIBUTES_BYTES_MAX];
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    uint64_t seed = 3;
    memset(text, 'x', sizeof text);
    uint64_t n = 0, entered_bytes = 0;
    for (; entered_bytes < 16u * MIB; n++) {
        struct ids i = ids(1, n + 1);
        struct join_span s = span_of(&i, "");
        s.name = (const uint8_t *)text;
        s.name_len = fake_random(&seed) % (JOIN_VALUE_MAX + 1);
        s.service = (const uint8_t *)text;
        s.service_len = fake_random(&seed) % (JOIN_VALUE_MAX + 1);
        s.attributes = (const uint8_t *)text;
        s.attributes_len = fake_random(&seed) % 8 ? fake_random(&seed) % 16
                                                  : fake_random(&seed) % (sizeof text + 1);
        enter_spans(t, &s, 1, 0, NULL, NOW, &tally);
        struct seen seen = {0};
        assert_int_equal(look(t, 1, n + 1, NOW, &seen), JOIN_FOUND);
        assert_int_equal(strlen(seen.name), s.name_len);
        assert_int_equal(strlen(seen.service), s.service_len);
        entered_bytes += s.name_len + s.service_len + s.attributes_len;
    }
    assert_int_equal(stats(t, NOW).spans + tally.evicted, n);
    join_table_free(t);
}

/* A bucket and its neighbour have room for twenty. With some 9,700 of the shortest records in
 * 20,000 slots they are full now and then, and the oldest span leaves although the ring has room:
 * its record lies dead there. */
static void full_buckets_lose_their_oldest(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    enum { N = 100000, RECORD = 80 };
    uint64_t n_dead = 0;
    for (uint64_t k = 1; k <= N; k++) {
        struct ids i = ids(1, k);
        struct join_span span = {.span_id = i.span};
        enter_spans(t, &span, 1, 0, NULL, NOW, &tally);
        struct join_stats s = stats(t, NOW);
        assert_int_equal(s.spans + tally.evicted, k);
        n_dead += s.bytes / RECORD - s.spans;
    }
    assert_true(n_dead > 0);
    struct seen seen = {0};
    uint64_t n_found = 0;
    for (uint64_t k = 1; k <= N; k++)
        n_found += look(t, 0, k, NOW, &seen) == JOIN_FOUND;
    assert_int_equal(n_found, stats(t, NOW).spans);
    join_table_free(t);
}

/* Goes on at a later position, after spans that have all left. */
static void jump(struct join_table *t, uint64_t position)
{
    for (unsigned k = 0; k < n_shards(t); k++) {
        struct shard *s = &t->shards[k];
        assert_true(s->head == s->tail && s->head < position);
        s->head = s->tail = position;
    }
}

/* What is kept of a position are its low bits, and those come round: in a family after months. */
static void positions_come_round(void **state)
{
    (void)state;
    static const uint8_t service[] = "shop";
    for (unsigned bits = 44 + 3; bits <= 48 + 3; bits += 4) {
        struct join_table *t = make(MIB);
        struct join_tally tally = {0};
        jump(t, (1ull << bits) - 2048);
        for (unsigned k = 0; k < n_shards(t); k++)
            t->shards[k].sweep_at = t->shards[k].head - SWEEP_BYTES;
        for (uint64_t n = 1; n <= 2000; n++) {
            struct ids i = ids(1 + n / 8, n);
            struct join_span s = span_of(&i, "x");
            struct seen seen = {0};
            enter_spans(t, &s, 1, 77, NULL, NOW, &tally);
            assert_int_equal(look(t, 1 + n / 8, n, NOW, &seen), JOIN_FOUND);
            if (n % 8 == 7) {
                struct join_relative family[JOIN_FAMILY_MAX];
                unsigned size = join_table_family(t, i.trace, service, 4, 77, family);
                assert_int_equal(size, n == 7 ? 7 : 8);
            }
        }
        assert_int_equal(stats(t, NOW).spans, 2000);
        join_table_free(t);
    }
}

static uint64_t live_slots(const struct join_table *t)
{
    uint64_t n = 0;
    for (unsigned k = 0; k < n_shards(t); k++) {
        const struct shard *s = &t->shards[k];
        for (uint64_t b = 0; b < s->n_buckets; b++)
            for (unsigned slot = 0; slot < WAYS; slot++)
                n += live(s, &s->buckets[b], slot);
    }
    return n;
}

/* In a slot they come round after 32 GiB, here in eight steps: what has left must not seem to be
 * there again, where by then another record is, or the middle of one. */
static void what_has_left_does_not_come_round(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    enum { STEPS = 40, N = 600 };
    for (uint64_t step = 0; step < STEPS; step++) {
        struct seen seen = {0};
        uint64_t now = NOW + step * 10 * WINDOW_MS;
        for (uint64_t k = step * N + 1; k <= (step + 1) * N; k++)
            enter(t, 1, k, "a", now, &tally);
        assert_int_equal(stats(t, now).spans, N);
        assert_int_equal(live_slots(t), N);
        assert_int_equal(look(t, 1, (step + 1) * N, now, &seen), JOIN_FOUND);
        assert_int_equal(look(t, 1, step * N, now, &seen), JOIN_UNKNOWN);
        join_table_expire(t, now + 5 * WINDOW_MS, &tally);
        assert_int_equal(stats(t, now).spans, 0);
        jump(t, (step + 1) << 32 | RESERVED);
    }
    assert_int_equal(tally.evicted, 0);
    join_table_free(t);
}

/* A record of these takes 88 bytes, and 12/16 of 31/32 of the table are ring: 8,600 fit. */
static void what_left_after_its_window_was_not_evicted(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    for (uint64_t k = 1; k <= 6000; k++)
        enter(t, 1, k, "a", NOW, &tally);
    for (uint64_t k = 1; k <= 4500; k++)
        enter(t, 2, 10000 + k, "a", NOW + WINDOW_MS + 200, &tally);
    assert_true(stats(t, NOW).spans < 9000);
    assert_true(tally.evicted < FULL_BUCKETS_MAX);
    for (uint64_t k = 1; k <= 8000; k++)
        enter(t, 3, 20000 + k, "a", NOW + WINDOW_MS + 200, &tally);
    assert_in_range(tally.evicted, 3000, 5500);
    uint64_t before = tally.evicted;
    join_table_expire(t, NOW + 9 * WINDOW_MS, &tally);
    assert_int_equal(tally.evicted, before);
    assert_int_equal(stats(t, NOW).spans, 0);
    assert_int_equal(stats(t, NOW).bytes, 0);
    join_table_free(t);
}

static void statistics_say_what_is_there(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    struct join_tally tally = {0};
    struct join_stats s = stats(t, NOW);
    assert_int_equal(s.spans + s.pending + s.bytes + s.oldest_ms, 0);
    enter(t, 7, 1, "a", NOW, &tally);
    enter(t, 7, 2, "b", NOW + 5000, &tally);
    (void)sample(t, 7, 3, NOW + 5000, NULL, &tally);
    s = stats(t, NOW + 12000);
    assert_int_equal(s.spans, 2);
    assert_int_equal(s.pending, 1);
    assert_int_equal(s.oldest_ms, 12000);
    assert_true(s.bytes > 0);
    assert_true(s.max_bytes > MIB - MIB / 16);
    join_table_free(t);
}

/* --- Names --------------------------------------------------------------------------------------
 */

static void types_are_numbered_by_name(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    assert_int_equal(join_table_type(t, "cpu:nanoseconds", 15), 0);
    assert_int_equal(join_table_type(t, "wall:nanoseconds", 16), 1);
    assert_int_equal(join_table_type(t, "cpu:nanoseconds", 15), 0);
    assert_int_equal(join_table_type(t, "cpu\0poison", 10), 2);
    assert_int_equal(join_table_type(t, "cpu\0poison", 10), 2);
    assert_string_equal(join_table_type_name(t, 1), "wall:nanoseconds");
    assert_string_equal(join_table_type_name(t, 2), "cpu");
    char name[16];
    for (unsigned i = 3; i < JOIN_TYPES + 10; i++) {
        int n = snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(join_table_type(t, name, (size_t)n), i < JOIN_TYPES ? i : JOIN_TYPES - 1);
    }
    assert_string_equal(join_table_type_name(t, JOIN_TYPES - 1), "other");
    join_table_free(t);
}

static void services_are_profiled_for_a_window(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    assert_false(join_table_is_profiled(t, 17, NOW));
    join_table_profiled(t, 17, NOW);
    assert_true(join_table_is_profiled(t, 17, NOW));
    assert_true(join_table_is_profiled(t, 17, NOW + WINDOW_MS));
    assert_false(join_table_is_profiled(t, 17, NOW + WINDOW_MS + 2000));
    assert_false(join_table_is_profiled(t, 18, NOW));
    join_table_profiled(t, 17, NOW + WINDOW_MS);
    assert_true(join_table_is_profiled(t, 17, NOW + WINDOW_MS + 2000));
    join_table_free(t);
}

static void each_key_has_so_many_values(void **state)
{
    (void)state;
    struct join_table *t = make(MIB);
    assert_true(join_table_value(t, 0, "a", 1, 2));
    assert_true(join_table_value(t, 0, "b", 1, 2));
    assert_false(join_table_value(t, 0, "c", 1, 2));
    assert_true(join_table_value(t, 0, "a", 1, 2));
    assert_true(join_table_value(t, 1, "c", 1, 2));
    assert_false(join_table_value(t, 32, "c", 1, 2));
    join_table_free(t);
}

/* --- Memory -------------------------------------------------------------------------------------
 */

static int fail_after = -1;

static void *failing_alloc(size_t n)
{
    return fail_after >= 0 && fail_after-- == 0 ? NULL : malloc(n);
}

static void *failing_resize(void *p, size_t n)
{
    return fail_after >= 0 && fail_after-- == 0 ? NULL : realloc(p, n);
}

static void without_memory_nothing_breaks(void **state)
{
    (void)state;
    static const struct br_mem_hooks hooks = {failing_alloc, failing_resize, free};
    assert_null(join_table_new((size_t)1 << 60, WINDOW_MS, 0, false, shared));
    br_mem_set_hooks(&hooks);
    unsigned n_others = 0, n_refused = 0;
    for (int n = 0; n < 20; n++) {
        fail_after = -1;
        struct join_table *t = make(MIB);
        fail_after = n;
        uint16_t type = join_table_type(t, "cpu", 3);
        assert_true(type == 0 || type == JOIN_TYPES - 1);
        n_others += type != 0;
        n_refused += !join_table_value(t, 0, "a", 1, 2);
        fail_after = -1;
        assert_int_equal(join_table_type(t, "cpu", 3), 0);
        assert_true(join_table_value(t, 0, "a", 1, 2));
        join_table_free(t);
    }
    br_mem_set_hooks(NULL);
    assert_int_equal(n_others, 1);
    assert_true(n_refused > 1);
}

/* --- A random history
 * ----------------------------------------------------------------------------- */

/* Every sample ends in exactly one of found, late, unknown and too late. */
static void a_random_history_counts_every_sample_once(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        uint64_t random = seed, now = NOW, n_samples = 0, found = 0, too_late = 0;
        /* Few ids: everything happens to them. Many: the table overflows. */
        uint64_t n_ids = seed % 2 ? 50 : 30000;
        struct join_table *t = make(MIB);
        struct join_tally tally = {0};
        struct seen seen = {0};
        for (unsigned step = 0; step < 60000; step++) {
            uint64_t trace = 1 + fake_random(&random) % 2, id = 1 + fake_random(&random) % n_ids;
            if (n_ids > 50)
                trace = 1 + id % 2;
            switch (fake_random(&random) % 20) {
            case 0:
                now += fake_random(&random) % 3000;
                break;
            case 1:
                if (fake_random(&random) % 50 == 0)
                    join_table_expire(t, now, &tally);
                break;
            case 2:
            case 3:
            case 4:
            case 5:
            case 6:
            case 7:
            case 8:
                enter(t, trace, id, "some name of a span", now - fake_random(&random) % 200,
                      &tally);
                break;
            default:
                n_samples++;
                if (fake_random(&random) % 4 == 0)
                    trace = 0;
                struct ids i = ids(trace, id);
                enum join_result r = sample_of_type(t, trace ? i.trace : NULL, i.span,
                                                    (uint16_t)(fake_random(&random) % JOIN_TYPES),
                                                    now, &seen, &tally);
                found += r == JOIN_FOUND;
                too_late += r == JOIN_TOO_LATE;
            }
        }
        join_table_expire(t, now + 10 * WINDOW_MS, &tally);
        struct join_stats s = stats(t, now);
        assert_int_equal(s.spans + s.pending + s.bytes, 0);
        assert_int_equal(found, seen.n);
        assert_true(found > 0 && sum(tally.late) > 0 && sum(tally.unknown) > 0);
        if (found + too_late + sum(tally.late) + sum(tally.unknown) != n_samples)
            fail_msg("seed %llu: %llu samples, %llu found, %llu late, %llu unknown, %llu too late",
                     (unsigned long long)seed, (unsigned long long)n_samples,
                     (unsigned long long)found, (unsigned long long)sum(tally.late),
                     (unsigned long long)sum(tally.unknown), (unsigned long long)too_late);
        join_table_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_span_is_found_with_all_that_was_said),
        cmocka_unit_test(ids_must_be_equal),
        cmocka_unit_test(a_span_id_of_two_traces_needs_the_trace),
        cmocka_unit_test(a_span_without_a_trace_id_is_found_by_its_own),
        cmocka_unit_test(the_same_span_again_replaces_it_and_keeps_its_figures),
        cmocka_unit_test(the_window_has_an_edge),
        cmocka_unit_test(a_late_sample_adds_nothing),
        cmocka_unit_test(clocks_of_workers_may_differ),
        cmocka_unit_test(a_sample_before_its_span_is_late_once),
        cmocka_unit_test(a_label_alone_waits_too),
        cmocka_unit_test(a_sample_whose_span_never_comes_is_unknown_once),
        cmocka_unit_test(a_span_after_the_window_does_not_take_samples_over),
        cmocka_unit_test(a_sample_after_the_window_begins_anew),
        cmocka_unit_test(samples_of_items_that_wait_are_not_counted_here),
        cmocka_unit_test(figures_add_up_by_measure_and_stop_at_their_limits),
        cmocka_unit_test(types_past_a_spans_limit_are_other),
        cmocka_unit_test(without_room_for_figures_samples_are_unknown_at_once),
        cmocka_unit_test(the_oldest_leave_first),
        cmocka_unit_test(records_of_every_size_go_round),
        cmocka_unit_test(full_buckets_lose_their_oldest),
        cmocka_unit_test(positions_come_round),
        cmocka_unit_test(what_has_left_does_not_come_round),
        cmocka_unit_test(what_left_after_its_window_was_not_evicted),
        cmocka_unit_test(statistics_say_what_is_there),
        cmocka_unit_test(types_are_numbered_by_name),
        cmocka_unit_test(services_are_profiled_for_a_window),
        cmocka_unit_test(each_key_has_so_many_values),
        cmocka_unit_test(without_memory_nothing_breaks),
        cmocka_unit_test(a_random_history_counts_every_sample_once),
    };
    int failed = cmocka_run_group_tests_name("join table of one thread", tests, NULL, NULL);
    shared = true;
    return failed + cmocka_run_group_tests_name("join table, shared", tests, NULL, NULL);
}
