/* SPDX-License-Identifier: Apache-2.0 */
/* The join's table: which samples find which spans, and how they are counted. */
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "tests/support/fake_sink.h"
#include "tests/support/join_enter.h"
#include "tests/support/join_table_rig.h"
#include "tests/support/test.h"

static void a_found_span_has_all_its_fields(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct ids i = table_rig_ids(7, 42);
    uint8_t parent[8] = {9, 8, 7, 6, 5, 4, 3, 2};
    struct join_span s = table_rig_span(&i, "POST /checkout");
    s.parent_id = parent;
    s.start_ns = 1000;
    s.end_ns = 2000;
    s.kind = 2;
    s.status = 1;
    s.attributes = (const uint8_t *)"\003/x";
    s.attributes_len = 3;
    enter_spans(t, &s, 1, 0, NULL, NOW, &tally);
    struct seen seen = {0};
    assert_int_equal(table_rig_sample(t, 7, 42, NOW, &seen, &tally), JOIN_FOUND);
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
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct seen seen = {0};
    table_rig_enter(t, 7, 42, "a", NOW, &tally);
    assert_int_equal(table_rig_look(t, 8, 42, NOW, &seen), JOIN_UNKNOWN);
    assert_int_equal(table_rig_look(t, 7, 43, NOW, &seen), JOIN_UNKNOWN);
    assert_int_equal(seen.n, 0);
    assert_int_equal(table_rig_look(t, 0, 42, NOW, &seen),
                     JOIN_FOUND); /* the span id is sufficient without a trace id */
    assert_string_equal(seen.name, "a");
    join_table_free(t);
}

static void an_id_in_two_traces_needs_the_trace(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct seen seen = {0};
    table_rig_enter(t, 7, 42, "a", NOW, &tally);
    table_rig_enter(t, 8, 42, "b", NOW, &tally);
    assert_int_equal(table_rig_look(t, 0, 42, NOW, &seen), JOIN_UNKNOWN);
    assert_int_equal(table_rig_look(t, 7, 42, NOW, &seen), JOIN_FOUND);
    assert_string_equal(seen.name, "a");
    assert_int_equal(table_rig_look(t, 8, 42, NOW, &seen), JOIN_FOUND);
    assert_string_equal(seen.name, "b");
    /* A sample that matches two spans is counted as unknown at once, and is not added to either of
     * them. */
    assert_int_equal(table_rig_sample(t, 0, 42, NOW, &seen, &tally), JOIN_UNKNOWN);
    assert_int_equal(tally.unknown[1], 1);
    struct join_totals f;
    struct ids i = table_rig_ids(7, 42);
    assert_false(join_table_totals(t, i.trace, i.span, &f, NULL));
    assert_int_equal(table_rig_stats(t, NOW).pending, 0);
    join_table_free(t);
}

static void a_span_without_a_trace_id_is_found_by_its_span_id(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct ids i = table_rig_ids(0, 5);
    struct join_span s = table_rig_span(&i, "x");
    struct seen seen = {0};
    s.trace_id = NULL;
    enter_spans(t, &s, 1, 0, NULL, NOW, &tally);
    assert_int_equal(table_rig_look(t, 9, 5, NOW, &seen), JOIN_FOUND);
    assert_false(seen.has_trace);
    join_table_free(t);
}

static void the_same_span_again_replaces_it_and_keeps_its_figures(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct join_totals f;
    struct seen seen = {0};
    struct ids i = table_rig_ids(7, 42);
    table_rig_enter(t, 7, 42, "first", NOW, &tally);
    assert_int_equal(table_rig_sample(t, 7, 42, NOW, NULL, &tally), JOIN_FOUND);
    table_rig_enter(t, 7, 42, "second", NOW, &tally);
    assert_int_equal(table_rig_look(t, 7, 42, NOW, &seen), JOIN_FOUND);
    assert_string_equal(seen.name, "second");
    assert_int_equal(table_rig_stats(t, NOW).spans, 1);
    assert_true(join_table_totals(t, i.trace, i.span, &f, NULL));
    assert_int_equal(f.count[JOIN_CPU_TIME], 1);
    assert_false(tally.any); /* no sample was late, and no record was evicted */
    join_table_free(t);
}

static void the_window_is_limited(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct seen seen = {0};
    table_rig_enter(t, 7, 42, "a", NOW, &tally);
    assert_int_equal(table_rig_sample(t, 7, 42, NOW + WINDOW_MS, &seen, &tally), JOIN_FOUND);
    /* The table's clock ticks ten times a second. */
    assert_int_equal(table_rig_sample(t, 7, 42, NOW + WINDOW_MS + 200, &seen, &tally),
                     JOIN_TOO_LATE);
    assert_int_equal(seen.n, 1);
    join_table_expire(t, NOW + WINDOW_MS + 200, &tally);
    assert_int_equal(table_rig_sample(t, 7, 42, NOW + WINDOW_MS + 200, &seen, &tally),
                     JOIN_TOO_LATE);
    join_table_expire(t, NOW + 2 * WINDOW_MS + 2000, &tally);
    assert_int_equal(table_rig_stats(t, NOW).spans, 0);
    assert_false(tally.any); /* an expired span does not count as evicted */
    assert_int_equal(table_rig_look(t, 7, 42, NOW + 2 * WINDOW_MS + 2000, &seen), JOIN_UNKNOWN);
    join_table_free(t);
}

#define TICK_MS 100 /* milliseconds of a tick of the table's clock */

/* Spans and pending records are valid for a window and not a tick longer. */
static void the_window_ends_at_its_edge(void **state)
{
    (void)state;
    for (unsigned ticks = 0; ticks < 2; ticks++) {
        const uint64_t then = NOW + WINDOW_MS + ticks * TICK_MS;
        struct join_table *t = table_rig_new(MIB);
        struct join_tally tally = {0};
        table_rig_enter(t, 7, 1, "a", NOW, &tally);
        assert_int_equal(table_rig_look(t, 7, 1, then, &(struct seen){0}),
                         ticks ? JOIN_TOO_LATE : JOIN_FOUND);
        (void)table_rig_sample(t, 7, 2, NOW, NULL, &tally);
        (void)table_rig_sample(t, 7, 2, then, NULL, &tally);
        assert_int_equal(tally.unknown[1], ticks);
        (void)table_rig_sample(t, 7, 3, NOW, NULL, &tally);
        table_rig_enter(t, 7, 3, "b", then, &tally);
        assert_int_equal(tally.late[1], 1 - ticks);
        assert_int_equal(tally.unknown[1], 2 * ticks);
        join_table_free(t);
    }
}

/* A record is kept for two windows and a second, and removed a tick later. */
static void records_expire_after_two_windows(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    table_rig_enter(t, 7, 1, "a", NOW, &tally);
    join_table_expire(t, NOW + 2 * WINDOW_MS + 1000, &tally);
    assert_int_equal(table_rig_stats(t, NOW).spans, 1);
    join_table_expire(t, NOW + 2 * WINDOW_MS + 1000 + TICK_MS, &tally);
    assert_int_equal(table_rig_stats(t, NOW).spans, 0);
    join_table_free(t);
}

static void a_late_sample_does_not_change_totals(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct join_totals f;
    struct ids i = table_rig_ids(7, 42);
    table_rig_enter(t, 7, 42, "a", NOW, &tally);
    assert_int_equal(table_rig_sample(t, 7, 42, NOW + WINDOW_MS + 200, NULL, &tally),
                     JOIN_TOO_LATE);
    assert_false(join_table_totals(t, i.trace, i.span, &f, NULL));
    join_table_free(t);
}

/* Each worker reads the clock once per loop iteration. A worker may therefore enter a record whose
 * time is later than the clock of another worker. */
static void clocks_of_workers_may_differ(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct seen seen = {0};
    table_rig_enter(t, 7, 42, "a", NOW + 150, &tally);
    assert_int_equal(table_rig_sample(t, 7, 42, NOW, &seen, &tally), JOIN_FOUND);
    join_table_expire(t, NOW, &tally);
    assert_int_equal(table_rig_stats(t, NOW).spans, 1);
    assert_int_equal(table_rig_stats(t, NOW).oldest_ms, 0);
    join_table_profiled(t, 99, NOW + 1500);
    assert_true(join_table_is_profiled(t, 99, NOW));
    assert_false(tally.any);
    join_table_free(t);
}

static void a_sample_before_its_span_is_late_once(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct join_totals f;
    struct ids i = table_rig_ids(7, 42);
    assert_int_equal(table_rig_sample(t, 7, 42, NOW, NULL, &tally), JOIN_UNKNOWN);
    assert_int_equal(table_rig_sample(t, 7, 42, NOW, NULL, &tally), JOIN_UNKNOWN);
    assert_int_equal(table_rig_stats(t, NOW).pending, 1);
    assert_int_equal(table_rig_stats(t, NOW).spans, 0);
    assert_false(tally.any);
    table_rig_enter(t, 7, 42, "a", NOW + 1000, &tally);
    assert_int_equal(tally.late[1], 2);
    assert_int_equal(tally.adopted, 1);
    assert_int_equal(table_rig_stats(t, NOW).pending, 0);
    assert_int_equal(table_rig_stats(t, NOW).spans, 1);
    assert_true(join_table_totals(t, i.trace, i.span, &f, NULL));
    assert_int_equal(f.count[JOIN_CPU_TIME], 2);
    assert_int_equal(f.time_ns[JOIN_CPU_TIME], 20);
    table_rig_enter(t, 7, 42, "a", NOW + 2000, &tally); /* sent again */
    join_table_expire(t, NOW + 3 * WINDOW_MS, &tally);
    assert_int_equal(tally.late[1], 2);
    assert_int_equal(tally.adopted, 1);
    assert_int_equal(table_rig_sum(tally.unknown), 0);
    join_table_free(t);
}

static void a_span_id_alone_is_pending_too(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    assert_int_equal(table_rig_sample(t, 0, 42, NOW, NULL, &tally), JOIN_UNKNOWN);
    table_rig_enter(t, 7, 42, "a", NOW, &tally);
    assert_int_equal(tally.late[1], 1);
    /* another span with the same id: the totals belong to the first span */
    table_rig_enter(t, 8, 42, "b", NOW, &tally);
    assert_int_equal(tally.late[1], 1);
    struct join_totals f;
    struct ids i = table_rig_ids(8, 42);
    assert_false(join_table_totals(t, i.trace, i.span, &f, NULL));
    join_table_free(t);
}

/* Samples with a span id alone are pending; a later sample determines the trace of the span. */
static void a_pending_record_adopts_a_trace(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct join_totals f;
    struct ids other = table_rig_ids(8, 42), named = table_rig_ids(7, 42);
    (void)table_rig_sample(t, 0, 42, NOW, NULL, &tally);
    (void)table_rig_sample(t, 7, 42, NOW, NULL, &tally);
    table_rig_enter(t, 8, 42, "other", NOW, &tally);
    assert_int_equal(table_rig_sum(tally.late), 0);
    assert_false(join_table_totals(t, other.trace, other.span, &f, NULL));
    table_rig_enter(t, 7, 42, "named", NOW, &tally);
    assert_int_equal(tally.late[1], 2);
    assert_true(join_table_totals(t, named.trace, named.span, &f, NULL));
    assert_int_equal(f.count[JOIN_CPU_TIME], 2);
    join_table_free(t);
}

static void a_sample_without_its_span_is_unknown_once(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    (void)table_rig_sample(t, 7, 42, NOW, NULL, &tally);
    join_table_expire(t, NOW + WINDOW_MS, &tally);
    assert_false(tally.any);
    join_table_expire(t, NOW + 3 * WINDOW_MS, &tally);
    assert_int_equal(tally.unknown[1], 1);
    join_table_expire(t, NOW + 4 * WINDOW_MS, &tally);
    assert_int_equal(tally.unknown[1], 1);
    assert_int_equal(table_rig_stats(t, NOW).pending, 0);
    join_table_free(t);
}

static void a_span_after_the_window_does_not_adopt_samples(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct join_totals f;
    struct ids i = table_rig_ids(7, 42);
    (void)table_rig_sample(t, 7, 42, NOW, NULL, &tally);
    table_rig_enter(t, 7, 42, "a", NOW + WINDOW_MS + 200, &tally);
    assert_int_equal(tally.unknown[1], 1);
    assert_int_equal(table_rig_sum(tally.late), 0);
    assert_int_equal(tally.adopted, 0);
    assert_false(join_table_totals(t, i.trace, i.span, &f, NULL));
    assert_int_equal(table_rig_stats(t, NOW).pending, 0);
    join_table_free(t);
}

static void a_sample_after_the_window_is_pending_again(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    (void)table_rig_sample(t, 7, 42, NOW, NULL, &tally);
    (void)table_rig_sample(t, 7, 42, NOW + WINDOW_MS + 200, NULL, &tally);
    assert_int_equal(tally.unknown[1], 1);
    table_rig_enter(t, 7, 42, "a", NOW + WINDOW_MS + 300, &tally);
    assert_int_equal(tally.late[1], 1);
    assert_int_equal(tally.unknown[1], 1);
    join_table_free(t);
}

static void samples_of_held_items_are_not_counted(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct join_totals f;
    struct seen seen = {0};
    struct ids i = table_rig_ids(7, 42), k = table_rig_ids(7, 43);
    struct join_sample s = {.trace_id = i.trace,
                            .span_id = i.span,
                            .measure = JOIN_WALL_TIME,
                            .time_ns = 5,
                            .count = 3,
                            .held = true};
    assert_int_equal(join_table_sample(t, &s, true, NOW, table_rig_on_found, &seen, &tally),
                     JOIN_UNKNOWN);
    table_rig_enter(t, 7, 42, "a", NOW, &tally);
    assert_int_equal(tally.adopted, 1);
    assert_int_equal(table_rig_sum(tally.late), 0);
    assert_true(join_table_totals(t, i.trace, i.span, &f, NULL));
    assert_int_equal(f.count[JOIN_WALL_TIME], 3);
    s.span_id = k.span;
    (void)join_table_sample(t, &s, true, NOW, table_rig_on_found, &seen, &tally);
    join_table_expire(t, NOW + 3 * WINDOW_MS, &tally);
    assert_int_equal(table_rig_sum(tally.unknown), 0);
    join_table_free(t);
}

static void totals_add_up_by_measure_and_saturate(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct join_totals f;
    struct seen seen = {0};
    struct ids i = table_rig_ids(7, 42);
    uint8_t profile[16] = {1, 2, 3};
    table_rig_enter(t, 7, 42, "a", NOW, &tally);
    for (uint16_t type = 0; type < JOIN_SPAN_TYPES + 2; type++) {
        struct join_sample s = {.trace_id = i.trace,
                                .span_id = i.span,
                                .measure = (enum join_measure)(type % JOIN_MEASURES),
                                .time_ns = 100,
                                .count = 2,
                                .type = type,
                                .profile_id = type == 1 ? profile : NULL};
        assert_int_equal(join_table_sample(t, &s, true, NOW, table_rig_on_found, &seen, &tally),
                         JOIN_FOUND);
    }
    assert_true(join_table_totals(t, i.trace, i.span, &f, NULL));
    for (unsigned m = 0; m < JOIN_MEASURES; m++)
        assert_int_equal(f.count[m], 4); /* 8 types of 4 measures */
    for (unsigned m = 0; m < JOIN_OTHER; m++)
        assert_int_equal(f.time_ns[m], 200);
    assert_memory_equal(f.profile_id, profile, 16);
    for (unsigned k = 0; k < JOIN_SPAN_TYPES; k++) {
        assert_true(f.types[k].used);
        assert_int_equal(f.types[k].type, k == JOIN_SPAN_TYPES - 1 ? JOIN_TYPES - 1 : k);
    }
    struct join_sample big = {
        .trace_id = i.trace, .span_id = i.span, .time_ns = UINT64_MAX, .count = UINT32_MAX};
    (void)join_table_sample(t, &big, true, NOW, table_rig_on_found, &seen, &tally);
    assert_true(join_table_totals(t, i.trace, i.span, &f, NULL));
    assert_int_equal(f.count[0], UINT32_MAX);
    assert_true(f.time_ns[0] == UINT64_MAX);
    join_table_free(t);
}

/* If a span has too many types, samples of further types that waited for the span are counted as
 * "other". */
static void types_above_a_spans_limit_are_other(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct ids i = table_rig_ids(7, 42);
    for (uint16_t type = 1; type <= JOIN_SPAN_TYPES + 3; type++)
        (void)table_rig_sample_of_type(t, i.trace, i.span, type, NOW, NULL, &tally);
    table_rig_enter(t, 7, 42, "a", NOW, &tally);
    for (unsigned type = 1; type < JOIN_SPAN_TYPES; type++)
        assert_int_equal(tally.late[type], 1);
    assert_int_equal(tally.late[JOIN_TYPES - 1], 4);
    assert_int_equal(table_rig_sum(tally.late), JOIN_SPAN_TYPES + 3);
    join_table_free(t);
}

/* A table of 1 MiB has 16 shards of 64 KiB each. An eighth of each shard is for totals. */
static void without_totals_samples_are_unknown_at_once(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    uint64_t most = MIB / 8 / sizeof(struct join_totals), n = 4 * most;
    for (uint64_t k = 1; k <= n; k++)
        (void)table_rig_sample(t, 7, k, NOW, NULL, &tally);
    uint64_t pending = table_rig_stats(t, NOW).pending;
    assert_true(pending <= most);
    assert_true(pending > most / 2);
    assert_int_equal(table_rig_sum(tally.unknown), n - pending);
    /* After the records have been removed, all totals can be used again. */
    join_table_expire(t, NOW + 3 * WINDOW_MS, &tally);
    assert_int_equal(table_rig_sum(tally.unknown), n);
    for (uint64_t k = 1; k <= n; k++)
        (void)table_rig_sample(t, 8, k, NOW + 3 * WINDOW_MS, NULL, &tally);
    assert_int_equal(table_rig_stats(t, NOW).pending, pending);
    join_table_free(t);
}

/* Deferred timestamps wait until the span to which they belong is known. If they are evicted
 * earlier, they belong to the span that the sample names. */
static void evicted_timestamps_belong_to_the_named_span(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct ids i = table_rig_ids(7, 42);
    struct join_totals f;
    struct join_deferred_cursor cursor = {0};
    const struct join_sample s = {
        .trace_id = i.trace, .span_id = i.span, .time_ns = 30, .count = 3, .deferred = true};
    const struct join_deferred deferred = {
        .unit_ns = 1, .has_value = true, .value = 30, .n_times = 3};
    (void)join_table_sample(t, &s, true, NOW, table_rig_on_found, NULL, &tally);
    join_table_defer(t, &s, &deferred, (const uint64_t[]){5, 6, 7}, NULL, NOW, &tally);
    table_rig_enter(t, 7, 42, "a", NOW + WINDOW_MS, &tally);
    assert_true(join_table_any_deferred(t, NOW + WINDOW_MS));
    assert_false(join_table_any_deferred(t, NOW + WINDOW_MS + TICK_MS));
    assert_true(join_table_next_deferred(t, i.trace, i.span, &cursor));
    assert_int_equal(cursor.deferred.n_times, 3);
    assert_true(cursor.times[2] == 7);
    assert_false(join_table_next_deferred(t, i.trace, i.span, &cursor));
    assert_true(join_table_totals(t, i.trace, i.span, &f, NULL));
    assert_int_equal(f.count[0], 0);
    assert_true(join_totals_cpu_ns(&f) == 30);
    join_table_expire(t, NOW + 2 * WINDOW_MS + 2000, &tally);
    cursor = (struct join_deferred_cursor){0};
    assert_false(join_table_next_deferred(t, i.trace, i.span, &cursor));
    assert_true(join_table_totals(t, i.trace, i.span, &f, NULL));
    assert_int_equal(f.count[0], 3);
    assert_true(f.time_ns[0] == 30);
    assert_true(join_totals_cpu_ns(&f) == 30);
    assert_int_equal(table_rig_stats(t, NOW).spans, 1);
    join_table_free(t);
}

static void statistics_match_the_contents(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct join_stats s = table_rig_stats(t, NOW);
    assert_int_equal(s.spans + s.pending + s.bytes + s.oldest_ms, 0);
    table_rig_enter(t, 7, 1, "a", NOW, &tally);
    table_rig_enter(t, 7, 2, "b", NOW + 5000, &tally);
    (void)table_rig_sample(t, 7, 3, NOW + 5000, NULL, &tally);
    s = table_rig_stats(t, NOW + 12000);
    assert_int_equal(s.spans, 2);
    assert_int_equal(s.pending, 1);
    assert_int_equal(s.oldest_ms, 12000);
    assert_true(s.bytes > 0);
    assert_true(s.max_bytes > MIB - MIB / 16);
    join_table_free(t);
}

/* --- Names ------------------------------------------------------------------------------------ */

static void types_are_numbered_by_name(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
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
    struct join_table *t = table_rig_new(MIB);
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

static void a_service_is_profiled_for_twice_the_interval_of_its_profiles(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    uint64_t interval = 5 * WINDOW_MS, last = NOW + interval;
    assert_true(join_table_profiled(t, 77, NOW));
    /* a profile of another type, which does not change the measured interval */
    assert_true(join_table_profiled(t, 77, NOW + 200));
    assert_false(join_table_is_profiled(t, 77, NOW + WINDOW_MS + 2000));
    assert_true(join_table_profiled(t, 77, last));
    assert_true(join_table_is_profiled(t, 77, last + 2 * interval - 2000));
    assert_false(join_table_is_profiled(t, 77, last + 2 * interval + 2000));
    /* the interval since the last profile is too long, so the service counts as a new one */
    assert_true(join_table_profiled(t, 77, last + 4000 * 1000));
    assert_false(join_table_is_profiled(t, 77, last + 4000 * 1000 + WINDOW_MS + 2000));
    join_table_free(t);
}

/* A new service does not displace another service. If the table has the maximum number of services,
 * it returns false for further services, until other services are no longer profiled. */
static void services_do_not_displace_each_other(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    unsigned n_cut = 0;
    for (unsigned k = 1; k <= JOIN_SERVICES_MAX; k++)
        assert_true(join_table_profiled(t, k, NOW));
    for (unsigned k = 1; k <= JOIN_SERVICES_MAX; k++)
        assert_true(join_table_is_profiled(t, k, NOW));
    for (unsigned k = 1; k <= 2 * JOIN_SERVICES_MAX; k++) {
        bool noted = join_table_profiled(t, 1000000 + k, NOW);
        n_cut += !noted;
        assert_int_equal(join_table_is_profiled(t, 1000000 + k, NOW), noted);
    }
    assert_in_range(n_cut, JOIN_SERVICES_MAX, 2 * JOIN_SERVICES_MAX);
    for (unsigned k = 1; k <= JOIN_SERVICES_MAX; k++)
        assert_true(join_table_profiled(t, 2000000 + k, NOW + 2 * WINDOW_MS));
    join_table_free(t);
}

/* The same limit for services with spans: a service for which the table has no room is not a
 * newcomer. */
static void the_number_of_new_services_is_limited(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    unsigned n_noted = 0;
    assert_true(join_table_is_newcomer(t, 7, NOW, 5000));
    assert_true(join_table_is_newcomer(t, 7, NOW + 4000, 5000));
    assert_false(join_table_is_newcomer(t, 7, NOW + 6000, 5000));
    assert_false(join_table_is_newcomer(t, 7, NOW + WINDOW_MS + 5000, 5000));
    assert_true(join_table_is_newcomer(t, 7, NOW + 3 * WINDOW_MS, 5000));
    assert_false(join_table_is_profiled(t, 7, NOW + 3 * WINDOW_MS));
    for (unsigned k = 1; k <= 4 * JOIN_SERVICES_MAX; k++)
        n_noted += join_table_is_newcomer(t, 1000000 + k, NOW + 3 * WINDOW_MS, 5000);
    assert_in_range(n_noted, JOIN_SERVICES_MAX, 2 * JOIN_SERVICES_MAX);
    join_table_free(t);
}

static void the_number_of_values_of_a_key_is_limited(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    assert_true(join_table_value(t, 0, "a", 1, 2));
    assert_true(join_table_value(t, 0, "b", 1, 2));
    assert_false(join_table_value(t, 0, "c", 1, 2));
    assert_true(join_table_value(t, 0, "a", 1, 2));
    assert_true(join_table_value(t, 1, "c", 1, 2));
    assert_false(join_table_value(t, 32, "c", 1, 2));
    join_table_free(t);
}

/* --- Memory ----------------------------------------------------------------------------------- */

static int fail_after = -1;

static void *failing_alloc(size_t n)
{
    return fail_after >= 0 && fail_after-- == 0 ? NULL : malloc(n);
}

static void *failing_resize(void *p, size_t n)
{
    return fail_after >= 0 && fail_after-- == 0 ? NULL : realloc(p, n);
}

static void without_memory_the_table_stays_consistent(void **state)
{
    (void)state;
    static const struct br_mem_hooks hooks = {failing_alloc, failing_resize, free, NULL};
    assert_null(join_table_new((size_t)1 << 60, WINDOW_MS, 0, false, table_rig_shared));
    br_mem_set_hooks(&hooks);
    unsigned n_others = 0, n_refused = 0;
    for (int n = 0; n < 20; n++) {
        fail_after = -1;
        struct join_table *t = table_rig_new(MIB);
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

/* --- A random history ------------------------------------------------------------------------- */

/* Every sample is counted once: as found, late, unknown or too late. */
static void a_random_history_counts_every_sample_once(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        uint64_t random = seed, now = NOW, n_samples = 0, found = 0, too_late = 0;
        /* If there are few ids, all cases occur for each id. If there are many, the table
         * overflows. */
        uint64_t n_ids = seed % 2 ? 50 : 30000;
        struct join_table *t = table_rig_new(MIB);
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
                table_rig_enter(t, trace, id, "some name of a span",
                                now - fake_random(&random) % 200, &tally);
                break;
            default:
                n_samples++;
                if (fake_random(&random) % 4 == 0)
                    trace = 0;
                struct ids i = table_rig_ids(trace, id);
                enum join_result r = table_rig_sample_of_type(
                    t, trace ? i.trace : NULL, i.span,
                    (uint16_t)(fake_random(&random) % JOIN_TYPES), now, &seen, &tally);
                found += r == JOIN_FOUND;
                too_late += r == JOIN_TOO_LATE;
            }
        }
        join_table_expire(t, now + 10 * WINDOW_MS, &tally);
        struct join_stats s = table_rig_stats(t, now);
        assert_int_equal(s.spans + s.pending + s.bytes, 0);
        assert_int_equal(found, seen.n);
        assert_true(found > 0 && table_rig_sum(tally.late) > 0 && table_rig_sum(tally.unknown) > 0);
        if (found + too_late + table_rig_sum(tally.late) + table_rig_sum(tally.unknown) !=
            n_samples)
            fail_msg("seed %llu: %llu samples, %llu found, %llu late, %llu unknown, %llu too late",
                     (unsigned long long)seed, (unsigned long long)n_samples,
                     (unsigned long long)found, (unsigned long long)table_rig_sum(tally.late),
                     (unsigned long long)table_rig_sum(tally.unknown),
                     (unsigned long long)too_late);
        join_table_free(t);
    }
}

/* Many records expire at the same time. They are not all removed in one loop iteration. */
static void spans_expire_in_several_steps(void **state)
{
    enum { SPANS = 20000, SORTED_MAX = 8192 };
    (void)state;
    struct join_table *t = table_rig_new(8 * MIB);
    struct join_tally tally = {0};
    for (unsigned i = 1; i <= SPANS; i++)
        table_rig_enter(t, 1, i, "a", NOW, &tally);
    unsigned n_remaining = SPANS;
    for (bool more = true; more;) {
        assert_int_equal(table_rig_stats(t, NOW).spans, n_remaining);
        more = join_table_expire(t, NOW + 3 * WINDOW_MS, &tally);
        assert_int_equal(more, n_remaining >= SORTED_MAX);
        n_remaining -= n_remaining < SORTED_MAX ? n_remaining : SORTED_MAX;
    }
    assert_int_equal(table_rig_stats(t, NOW).spans, 0);
    join_table_free(t);
}

/* Returns true if every memory page of the range is resident. */
static bool is_resident(const struct join_pages *pages)
{
    static unsigned char there[16384];
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), end = (uintptr_t)pages->at + pages->len;
    uintptr_t begin = (uintptr_t)pages->at & ~(page - 1);
    size_t n = (end - begin + page - 1) / page;
    assert_true(n <= sizeof there);
    assert_int_equal(mincore((void *)begin, end - begin, there), 0);
    for (size_t i = 0; i < n; i++)
        if (!(there[i] & 1))
            return false;
    return true;
}

/* Makes all due memory pages resident, and returns their size in bytes. */
static size_t make_pages(struct join_table *t)
{
    struct join_pages pages, other;
    size_t made = 0;
    while (join_table_pages_begin(t, &pages)) {
        /* only one range of pages can be in progress */
        assert_false(join_table_pages_begin(t, &other));
        join_table_pages_make(&pages);
        assert_true(is_resident(&pages));
        join_table_pages_end(t);
        made += pages.len;
    }
    return made;
}

static bool can_populate_pages(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *one = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool can = madvise(one, page, 23) == 0; /* MADV_POPULATE_WRITE */
    munmap(one, page);
    return can;
}

/* A span's record takes about 100 bytes. The rings for records are 12 of the table's 16 MiB. 20,000
 * records do not fill the rings, but 160,000 do. */
static void pages_are_made_before_records(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(16 * MIB);
    struct join_tally tally = {0};
    struct seen seen = {0};
    size_t made = make_pages(t), more;
    assert_true(made < MIB); /* without spans, only the array of families is made resident */
    table_rig_enter(t, 1, 1, "a", NOW, &tally);
    more = make_pages(t);
    /* After the first record, a quarter of the ring is made resident, rounded up to a large page,
     * and the hash buckets. */
    assert_in_range(more, table_rig_shared ? 1 : 4 * MIB, 7 * MIB);
    made += more;
    for (unsigned i = 2; i <= 160000; i++) {
        table_rig_enter(t, 1, i, "a", NOW, &tally);
        if (i % 500 == 0)
            made += make_pages(t);
        /* the shared table's rings are smaller than a large page */
        if (i == 20000 && !table_rig_shared)
            assert_true(made < 11 * MIB);
    }
    assert_in_range(made, 12 * MIB, 16 * MIB); /* everything except totals */
    assert_int_equal(make_pages(t), 0);
    assert_int_equal(table_rig_look(t, 1, 160000, NOW, &seen), JOIN_FOUND);
    join_table_free(t);
}

#define TIMES 100u
#define TAKEN_BYTES (152u + 8u * TIMES)

/* Returns the number of deferred records of a thread. */
static unsigned count_deferred(struct join_table *t, const struct ids *thread)
{
    struct join_deferred_cursor cursor = {0};
    unsigned n = 0;
    while (join_table_next_deferred(t, thread->trace, thread->span, &cursor))
        n++;
    return n;
}

static void expire_all(struct join_table *t, uint64_t now, struct join_tally *tally)
{
    while (join_table_expire(t, now, tally))
        ;
}

/* Timestamps of a thread without spans take at most an eighth of the rings, as long as samples of
 * the thread arrive. Afterwards they are removed. */
static void retained_timestamps_are_limited(void **state)
{
    (void)state;
    enum { N = 300, EACH_MS = 20000, WAIT_MS = 2 * WINDOW_MS + 1000 };
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    const struct ids thread = table_rig_ids(3, 4);
    const struct join_sample sample = {.trace_id = thread.trace, .span_id = thread.span};
    const struct join_deferred deferred = {.of_thread = true, .n_times = TIMES};
    const unsigned n_rings = table_rig_shared ? 16 : 1, n_fresh = WAIT_MS / EACH_MS + 2;
    uint64_t now = NOW, times[TIMES];
    for (unsigned i = 0; i < N; i++, now += EACH_MS) {
        for (unsigned k = 0; k < TIMES; k++)
            times[k] = 1000 + i;
        join_table_defer(t, &sample, &deferred, times, NULL, now, &tally);
        expire_all(t, now, &tally);
        assert_in_range(table_rig_stats(t, now).bytes, TAKEN_BYTES,
                        MIB / n_rings / 8 + n_fresh * TAKEN_BYTES);
    }
    /* The rings are slightly less than three quarters of the table. Retained timestamps fill
     * between a half and all of an eighth of the rings. */
    assert_in_range(count_deferred(t, &thread),
                    WAIT_MS / EACH_MS + MIB / n_rings / 8 / 3 / TAKEN_BYTES,
                    n_fresh + MIB / n_rings / 8 / TAKEN_BYTES);
    assert_true(join_table_evicted_after(t, thread.span, 1000));
    for (unsigned i = 0; i < 3; i++) {
        now += WAIT_MS;
        expire_all(t, now, &tally);
    }
    assert_int_equal(count_deferred(t, &thread), 0);
    assert_true(join_table_evicted_after(t, thread.span, 1000 + N - 1));
    assert_int_equal(tally.evicted, 0);
    join_table_free(t);
}

/* Timestamps that were assigned to a span are not retained. The table notes their eviction. */
static void assigned_timestamps_are_not_retained(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct join_deferred_cursor cursor = {0};
    const struct ids thread = table_rig_ids(3, 4);
    const struct join_sample sample = {.trace_id = thread.trace, .span_id = thread.span};
    struct join_deferred deferred = {
        .of_thread = true, .has_value = true, .n_times = 3, .n_values = 3};
    const uint64_t times[] = {1001, 1002, 1003}, values[] = {5, 6, 7}, spans[] = {1, 0, 2};
    join_table_defer(t, &sample, &deferred, times, values, NOW, &tally);
    assert_true(join_table_next_deferred(t, thread.trace, thread.span, &cursor));
    join_table_mark_assigned(t, thread.span, &cursor, spans);
    deferred.n_times = deferred.n_values = 1;
    join_table_defer(t, &sample, &deferred, &(uint64_t){2000}, values, NOW + 2 * WINDOW_MS, &tally);
    cursor = (struct join_deferred_cursor){0};
    assert_true(join_table_next_deferred(t, thread.trace, thread.span, &cursor));
    assert_true(join_table_next_deferred(t, thread.trace, thread.span, &cursor));
    /* the timestamps can be read until they are removed */
    assert_memory_equal(cursor.times, times, sizeof times);
    expire_all(t, NOW + 2 * WINDOW_MS + 2000, &tally);
    cursor = (struct join_deferred_cursor){0};
    assert_true(join_table_next_deferred(t, thread.trace, thread.span, &cursor));
    assert_int_equal(cursor.deferred.n_times, 1);
    assert_int_equal(cursor.deferred.n_values, 1);
    assert_int_equal(cursor.times[0], 1002);
    assert_int_equal(cursor.values[0], 6);
    assert_true(join_table_evicted_after(t, thread.span, 1003));
    assert_false(join_table_evicted_after(t, thread.span, 1004));
    join_table_free(t);
}

/* Enters a chain of spans, and removes all of them. If `sampled`, the lowest span has a sample.
 * Only the missing parent of the whole chain must then count as incomplete. Spans of one request
 * are removed at the same time, even if they are in different shards. */
static void check_eviction_below(uint64_t number, bool sampled)
{
    enum { DEPTH = 5 };
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct join_span spans[DEPTH];
    struct ids ids[DEPTH + 1];
    for (uint64_t k = 0; k <= DEPTH; k++)
        ids[k] = table_rig_ids(number, 100 * number + k);
    for (unsigned k = 0; k < DEPTH; k++) {
        spans[k] = table_rig_span(&ids[k], "a");
        spans[k].parent_id = ids[k + 1].span;
    }
    enter_spans(t, spans, DEPTH, 0, NULL, NOW, &tally);
    if (sampled)
        (void)table_rig_sample(t, number, 100 * number, NOW, NULL, &tally);
    expire_all(t, NOW + 2 * WINDOW_MS + 2000, &tally);
    assert_int_equal(table_rig_stats(t, NOW).spans, 0);
    for (unsigned k = 1; k <= DEPTH; k++)
        assert_int_equal(join_table_lost_below(t, ids[k].span), sampled && k == DEPTH);
    join_table_free(t);
}

/* Each case uses a separate table: if two spans have the same place, only the later one is
 * noted. */
static void evictions_are_noted_for_the_spans_above(void **state)
{
    (void)state;
    for (uint64_t number = 1; number <= 50; number++)
        check_eviction_below(number, number % 2);
}

SUITE(join_table)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evictions_are_noted_for_the_spans_above),
        cmocka_unit_test(retained_timestamps_are_limited),
        cmocka_unit_test(assigned_timestamps_are_not_retained),
        cmocka_unit_test(a_found_span_has_all_its_fields),
        cmocka_unit_test(ids_must_be_equal),
        cmocka_unit_test(an_id_in_two_traces_needs_the_trace),
        cmocka_unit_test(a_span_without_a_trace_id_is_found_by_its_span_id),
        cmocka_unit_test(the_same_span_again_replaces_it_and_keeps_its_figures),
        cmocka_unit_test(the_window_is_limited),
        cmocka_unit_test(the_window_ends_at_its_edge),
        cmocka_unit_test(records_expire_after_two_windows),
        cmocka_unit_test(a_late_sample_does_not_change_totals),
        cmocka_unit_test(clocks_of_workers_may_differ),
        cmocka_unit_test(a_sample_before_its_span_is_late_once),
        cmocka_unit_test(a_span_id_alone_is_pending_too),
        cmocka_unit_test(a_pending_record_adopts_a_trace),
        cmocka_unit_test(a_sample_without_its_span_is_unknown_once),
        cmocka_unit_test(a_span_after_the_window_does_not_adopt_samples),
        cmocka_unit_test(a_sample_after_the_window_is_pending_again),
        cmocka_unit_test(samples_of_held_items_are_not_counted),
        cmocka_unit_test(totals_add_up_by_measure_and_saturate),
        cmocka_unit_test(types_above_a_spans_limit_are_other),
        cmocka_unit_test(without_totals_samples_are_unknown_at_once),
        cmocka_unit_test(evicted_timestamps_belong_to_the_named_span),
        cmocka_unit_test(statistics_match_the_contents),
        cmocka_unit_test(types_are_numbered_by_name),
        cmocka_unit_test(services_are_profiled_for_a_window),
        cmocka_unit_test(a_service_is_profiled_for_twice_the_interval_of_its_profiles),
        cmocka_unit_test(services_do_not_displace_each_other),
        cmocka_unit_test(the_number_of_new_services_is_limited),
        cmocka_unit_test(the_number_of_values_of_a_key_is_limited),
        cmocka_unit_test(spans_expire_in_several_steps),
        test_if(can_populate_pages(),
                (struct CMUnitTest)cmocka_unit_test(pages_are_made_before_records)),
        cmocka_unit_test(without_memory_the_table_stays_consistent),
        cmocka_unit_test(a_random_history_counts_every_sample_once),
    };
    return RUN_VARIANTS(tests, table_rig_way);
}
