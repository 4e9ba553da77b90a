/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/mem.h"
#include "base/timer.h"
#include "tests/support/fake_sink.h"
#include "tests/support/test.h"

struct thing {
    struct br_timer timer;
    struct br_timers *ts;
    unsigned n;
    uint64_t again_ms;   /* delay after which the callback arms the timer again; 0: it does not */
    struct thing *other; /* the timer that the callback disarms; NULL: none */
};

static uint64_t last_due;

static void on_timer(struct br_timer *t)
{
    struct thing *s = br_container_of(t, struct thing, timer);
    assert_int_equal(t->slot, 0);
    assert_true(t->due_ms >= last_due);
    last_due = t->due_ms;
    s->n++;
    if (s->again_ms)
        assert_int_equal(br_timers_arm(s->ts, t, s->again_ms, on_timer), 0);
    if (s->other)
        br_timers_disarm(s->ts, &s->other->timer);
}

static int reset(void **state)
{
    (void)state;
    last_due = 0;
    return 0;
}

static int nothing(void **state)
{
    (void)state;
    return 0;
}

#define setup reset
#define teardown nothing

static void without_timers_none_is_due(void **state)
{
    (void)state;
    struct br_timers ts = {0};
    struct br_timer t = {0};
    assert_true(br_timers_next(&ts) == UINT64_MAX);
    br_timers_run(&ts, UINT64_MAX);
    br_timers_disarm(&ts, &t);
    br_timers_release(&ts);
    br_timers_release(&ts);
}

static void a_timer_fires_once_when_due(void **state)
{
    (void)state;
    struct br_timers ts = {0};
    struct thing a = {.ts = &ts};
    assert_int_equal(br_timers_arm(&ts, &a.timer, 100, on_timer), 0);
    assert_int_equal(br_timers_next(&ts), 100);
    br_timers_run(&ts, 99);
    assert_int_equal(a.n, 0);
    br_timers_run(&ts, 100);
    br_timers_run(&ts, 1000);
    assert_int_equal(a.n, 1);
    br_timers_release(&ts);
}

static void arming_again_moves_a_timer(void **state)
{
    (void)state;
    struct br_timers ts = {0};
    struct thing a = {.ts = &ts};
    br_timers_arm(&ts, &a.timer, 100, on_timer);
    br_timers_arm(&ts, &a.timer, 50, on_timer);
    assert_int_equal(ts.count, 1);
    assert_int_equal(br_timers_next(&ts), 50);
    br_timers_arm(&ts, &a.timer, 200, on_timer);
    br_timers_run(&ts, 199);
    assert_int_equal(a.n, 0);
    br_timers_run(&ts, 200);
    assert_int_equal(a.n, 1);
    br_timers_release(&ts);
}

static void a_timer_armed_in_its_callback_fires_in_the_next_run(void **state)
{
    (void)state;
    struct br_timers ts = {0};
    struct thing a = {.ts = &ts, .again_ms = 10}, b = {.ts = &ts};
    br_timers_arm(&ts, &a.timer, 10, on_timer);
    br_timers_arm(&ts, &b.timer, 10, on_timer);
    br_timers_run(&ts, 10);
    assert_in_range(a.n, 1, 2);
    assert_int_equal(a.n + b.n, 2);
    br_timers_run(&ts, 10);
    assert_int_equal(b.n, 1);
    br_timers_release(&ts);
}

static void a_timer_may_disarm_another(void **state)
{
    (void)state;
    struct br_timers ts = {0};
    struct thing b = {.ts = &ts}, a = {.ts = &ts, .other = &b};
    br_timers_arm(&ts, &a.timer, 10, on_timer);
    br_timers_arm(&ts, &b.timer, 11, on_timer);
    br_timers_run(&ts, 20);
    assert_int_equal(a.n, 1);
    assert_int_equal(b.n, 0);
    assert_true(br_timers_next(&ts) == UINT64_MAX);
    br_timers_release(&ts);
}

static void releasing_the_heap_disarms_its_timers(void **state)
{
    (void)state;
    struct br_timers ts = {0};
    struct thing a = {.ts = &ts};
    br_timers_arm(&ts, &a.timer, 10, on_timer);
    br_timers_release(&ts);
    br_timers_disarm(&ts, &a.timer);
    br_timers_run(&ts, 100);
    assert_int_equal(a.n, 0);
}

/* Compares the timers with an array. Timers are armed, moved and disarmed in any order. Due times
 * must never decrease. */
static void timers_fire_in_order_of_time(void **state)
{
    (void)state;
    enum { N = 200 };
    static struct thing things[N];
    static uint64_t due[N]; /* 0: not armed */
    struct br_timers ts = {0};
    uint64_t seed = 7, now = 1000;
    memset(things, 0, sizeof things);
    memset(due, 0, sizeof due);
    for (int round = 0; round < 2000; round++) {
        for (int k = 0; k < 20; k++) {
            uint64_t r = fake_random(&seed);
            size_t i = r % N;
            if (r >> 63) {
                due[i] = now + 1 + (r >> 32) % 500;
                assert_int_equal(br_timers_arm(&ts, &things[i].timer, due[i], on_timer), 0);
            } else {
                due[i] = 0;
                br_timers_disarm(&ts, &things[i].timer);
            }
        }
        uint64_t first = UINT64_MAX;
        for (size_t i = 0; i < N; i++)
            if (due[i] && due[i] < first)
                first = due[i];
        assert_true(br_timers_next(&ts) == first);
        now += fake_random(&seed) % 100;
        for (size_t i = 0; i < N; i++)
            things[i].n = 0;
        br_timers_run(&ts, now);
        for (size_t i = 0; i < N; i++) {
            bool fires = due[i] && due[i] <= now;
            assert_int_equal(things[i].n, fires);
            if (fires)
                due[i] = 0;
        }
    }
    br_timers_release(&ts);
}

static void *no_resize(void *p, size_t size)
{
    (void)p;
    (void)size;
    return NULL;
}

static const struct br_mem_hooks refuse = {malloc, no_resize, free, NULL};

static void without_memory_a_timer_is_not_armed(void **state)
{
    (void)state;
    struct br_timers ts = {0};
    struct thing a = {.ts = &ts};
    br_mem_set_hooks(&refuse);
    int rc = br_timers_arm(&ts, &a.timer, 10, on_timer);
    br_mem_set_hooks(NULL);
    assert_int_equal(rc, BR_ENOMEM);
    assert_int_equal(a.timer.slot, 0);
    br_timers_release(&ts);
}

SUITE(timer)
{
    const struct CMUnitTest tests[] = {
        TEST(without_timers_none_is_due),
        TEST(a_timer_fires_once_when_due),
        TEST(arming_again_moves_a_timer),
        TEST(a_timer_armed_in_its_callback_fires_in_the_next_run),
        TEST(a_timer_may_disarm_another),
        TEST(releasing_the_heap_disarms_its_timers),
        TEST(timers_fire_in_order_of_time),
        TEST(without_memory_a_timer_is_not_armed),
    };
    return RUN(tests, NULL, NULL);
}
