/* SPDX-License-Identifier: Apache-2.0 */
/* When spans become findable: not before somebody asks, and then at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h wants the three above */
#include <cmocka.h>

#include "processors/join/table_internal.h"
#include "tests/support/join_enter.h"
#include "tests/support/join_table_rig.h"

#define LATER (NOW + WINDOW_MS + 1000) /* nobody has asked for a window then */

static uint64_t unindexed(const struct join_table *t)
{
    uint64_t bytes = 0;
    for (unsigned k = 0; k < n_shards(t); k++)
        bytes += t->shards[k].head - t->shards[k].indexed;
    return bytes;
}

static void nothing_is_indexed_before_somebody_asks(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct seen seen = {0};
    for (uint64_t k = 1; k <= 1000; k++)
        table_rig_enter(t, 1, k, "a", NOW, &tally);
    assert_int_equal(unindexed(t), table_rig_stats(t, NOW).bytes);
    assert_int_equal(table_rig_look(t, 1, 500, NOW, &seen), JOIN_FOUND);
    assert_int_equal(unindexed(t), 0);
    table_rig_enter(t, 1, 1001, "a", NOW, &tally);
    assert_int_equal(unindexed(t), 0);
    for (uint64_t k = 1; k <= 1001; k++)
        assert_int_equal(table_rig_look(t, 1, k, NOW, &seen), JOIN_FOUND);
    join_table_free(t);
}

static void who_has_not_been_asked_for_a_window_sleeps(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct seen seen = {0};
    assert_int_equal(table_rig_look(t, 1, 1, NOW, &seen), JOIN_UNKNOWN);
    table_rig_enter(t, 1, 1, "a", NOW, &tally);
    table_rig_enter(t, 1, 2, "a", NOW + WINDOW_MS, &tally);
    assert_int_equal(unindexed(t), 0);
    for (uint64_t k = 3; k <= 1000; k++)
        table_rig_enter(t, 1, k, "a", LATER, &tally);
    assert_true(unindexed(t) > 0);
    for (uint64_t k = 2; k <= 1000; k++)
        assert_int_equal(table_rig_look(t, 1, k, LATER, &seen), JOIN_FOUND);
    assert_int_equal(table_rig_look(t, 1, 1, LATER, &seen), JOIN_TOO_LATE);
    assert_int_equal(unindexed(t), 0);
    assert_false(tally.any);
    join_table_free(t);
}

/* Each way of asking. */
static void families_and_figures_are_whole(void **state)
{
    (void)state;
    static const uint8_t service[] = "shop";
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct join_relative family[JOIN_FAMILY_MAX];
    struct join_figures figures;
    struct join_looked more;
    for (uint64_t k = 1; k <= 20; k++) {
        struct ids i = table_rig_ids(1, k);
        struct join_span s = table_rig_span(&i, "a");
        enter_spans(t, &s, 1, 77, NULL, NOW, &tally);
    }
    struct ids i = table_rig_ids(1, 7);
    assert_true(unindexed(t) > 0);
    assert_int_equal(join_table_family(t, i.trace, service, 4, 77, family, &more), 20);
    assert_int_equal(unindexed(t), 0);
    assert_int_equal(table_rig_sample(t, 1, 7, NOW, NULL, &tally), JOIN_FOUND);
    table_rig_enter(t, 1, 7, "sent again", LATER, &tally);
    assert_true(join_table_figures(t, i.trace, i.span, &figures, NULL));
    assert_int_equal(figures.count[JOIN_CPU_TIME], 1);
    join_table_free(t);
}

static void a_span_that_is_sent_again_is_one_when_somebody_asks(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct seen seen = {0};
    table_rig_enter(t, 1, 1, "first", NOW, &tally);
    table_rig_enter(t, 1, 1, "second", NOW, &tally);
    assert_int_equal(table_rig_stats(t, NOW).spans, 2);
    assert_int_equal(table_rig_look(t, 1, 1, NOW, &seen), JOIN_FOUND);
    assert_string_equal(seen.name, "second");
    assert_int_equal(table_rig_stats(t, NOW).spans, 1);
    join_table_free(t);
}

/* What came and left unseen: the ring goes round asleep. */
static void what_left_asleep_is_gone(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct seen seen = {0};
    enum { N = 50000 };
    for (uint64_t k = 1; k <= N; k++)
        table_rig_enter(t, 1, k, "a", NOW, &tally);
    uint64_t left = table_rig_stats(t, NOW).spans;
    assert_int_equal(tally.evicted + left, N);
    uint64_t n_found = 0;
    for (uint64_t k = 1; k <= N; k++)
        n_found += table_rig_look(t, 1, k, NOW, &seen) == JOIN_FOUND;
    assert_int_equal(n_found, table_rig_stats(t, NOW).spans);
    /* Full buckets, of which nobody was told then. */
    join_table_expire(t, NOW, &tally);
    assert_int_equal(tally.evicted + n_found, N);
    assert_true(left - n_found < 30);
    join_table_free(t);
}

/* 64 MiB, so that whoever asks does not wait for long. */
static void what_is_left_has_an_end(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(128 * MIB);
    struct join_tally tally = {0};
    struct seen seen = {0};
    enum { N = 900000 }; /* of 88 bytes */
    for (uint64_t k = 1; k <= N; k++)
        table_rig_enter(t, 1, k, "a", NOW, &tally);
    assert_in_range(unindexed(t), 60 * MIB, 64 * MIB);
    for (uint64_t k = 1; k <= N; k += 997)
        assert_int_equal(table_rig_look(t, 1, k, NOW, &seen), JOIN_FOUND);
    assert_false(tally.any);
    join_table_free(t);
}

static void a_shared_table_does_not_sleep(void **state)
{
    (void)state;
    table_rig_shared = true;
    struct join_table *t = table_rig_new(MIB);
    table_rig_shared = false;
    struct join_tally tally = {0};
    for (uint64_t k = 1; k <= 1000; k++)
        table_rig_enter(t, 1, k, "a", NOW + k * WINDOW_MS, &tally);
    assert_int_equal(unindexed(t), 0);
    join_table_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_indexed_before_somebody_asks),
        cmocka_unit_test(who_has_not_been_asked_for_a_window_sleeps),
        cmocka_unit_test(families_and_figures_are_whole),
        cmocka_unit_test(a_span_that_is_sent_again_is_one_when_somebody_asks),
        cmocka_unit_test(what_left_asleep_is_gone),
        cmocka_unit_test(what_is_left_has_an_end),
        cmocka_unit_test(a_shared_table_does_not_sleep),
    };
    return cmocka_run_group_tests_name("join table asleep", tests, NULL, NULL);
}
