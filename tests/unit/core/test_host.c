/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "core/host.h"
#include "core/item.h"
#include "tests/support/fake_host.h"
#include "tests/support/test.h"

struct work {
    struct br_deferred deferred;
    struct br_timer timer;
    struct fake_host *h;
    struct work *other;
    unsigned n, again;
    uint64_t at_ms;
};

static int setup(void **state)
{
    *state = fake_host_new();
    return 0;
}

static int teardown(void **state)
{
    fake_host_free(*state);
    return 0;
}

static void on_deferred(struct br_deferred *d)
{
    struct work *w = br_container_of(d, struct work, deferred);
    w->n++;
    if (w->again) {
        w->again--;
        br_host_defer(&w->h->host, &w->deferred, on_deferred);
    }
}

static void on_timer(struct br_timer *t)
{
    struct work *w = br_container_of(t, struct work, timer);
    w->n++;
    w->at_ms = br_host_mono_ms(&w->h->host);
    if (w->again) {
        w->again--;
        assert_true(br_host_timer(&w->h->host, &w->timer, 10, on_timer));
    }
}

static void the_shares_of_all_workers_add_up_to_the_total(void **state)
{
    (void)state;
    static const struct {
        size_t total, shares[3];
    } known[] = {{10, {4, 3, 3}}, {11, {4, 4, 3}}, {9, {3, 3, 3}}, {2, {1, 1, 0}}, {0, {0, 0, 0}}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        for (unsigned worker = 0; worker < 3; worker++) {
            struct br_host host = {.worker = worker, .n_workers = 3};
            assert_int_equal(br_host_share(&host, known[i].total), known[i].shares[worker]);
        }
    assert_int_equal(br_host_share(&(struct br_host){.n_workers = 0}, 7), 7);
}

static void deferred_work_runs_once_per_iteration(void **state)
{
    struct fake_host *h = *state;
    struct work w = {.h = h};
    br_host_defer(&h->host, &w.deferred, on_deferred);
    br_host_defer(&h->host, &w.deferred, on_deferred);
    assert_int_equal(w.n, 0);
    assert_false(br_host_iterate(&h->host));
    assert_int_equal(w.n, 1);
    assert_false(br_host_iterate(&h->host));
    assert_int_equal(w.n, 1);
}

static void work_deferred_by_deferred_work_runs_in_the_same_iteration(void **state)
{
    struct fake_host *h = *state;
    struct work w = {.h = h, .again = 3};
    br_host_defer(&h->host, &w.deferred, on_deferred);
    assert_false(br_host_iterate(&h->host));
    assert_int_equal(w.n, 4);
}

static void endless_deferred_work_continues_in_the_next_iteration(void **state)
{
    struct fake_host *h = *state;
    struct work w = {.h = h, .again = 1000000};
    br_host_defer(&h->host, &w.deferred, on_deferred);
    assert_true(br_host_iterate(&h->host));
    assert_in_range(w.n, 1, 999999);
    br_host_defer_cancel(&w.deferred);
    assert_false(br_host_iterate(&h->host));
}

static void cancelled_work_does_not_run(void **state)
{
    struct fake_host *h = *state;
    struct work w = {.h = h};
    br_host_defer_cancel(&w.deferred); /* has no effect, because it was never queued */
    br_host_defer(&h->host, &w.deferred, on_deferred);
    br_host_defer_cancel(&w.deferred);
    assert_false(br_host_iterate(&h->host));
    assert_int_equal(w.n, 0);
}

static void timers_fire_at_their_time(void **state)
{
    struct fake_host *h = *state;
    struct work a = {.h = h}, b = {.h = h, .again = 2};
    uint64_t start = h->now_ms;
    assert_true(br_host_timer(&h->host, &a.timer, 25, on_timer));
    assert_true(br_host_timer(&h->host, &b.timer, 10, on_timer));
    fake_host_advance(h, 9);
    assert_int_equal(a.n + b.n, 0);
    fake_host_advance(h, 1);
    assert_int_equal(b.n, 1);
    fake_host_advance(h, 90);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.at_ms, start + 25);
    assert_int_equal(b.n, 3); /* the callback ran at 10, 20 and 30 ms */
    assert_int_equal(b.at_ms, start + 30);
}

static void a_stopped_timer_does_not_fire(void **state)
{
    struct fake_host *h = *state;
    struct work w = {.h = h};
    br_host_timer_stop(&h->host, &w.timer);
    assert_true(br_host_timer(&h->host, &w.timer, 5, on_timer));
    br_host_timer_stop(&h->host, &w.timer);
    fake_host_advance(h, 100);
    assert_int_equal(w.n, 0);
}

static void on_item(struct br_item *item, void *arg)
{
    struct work *w = arg;
    assert_int_equal(item->state, BR_ITEM_FINISHED);
    w->n++;
    br_host_defer(&w->h->host, &w->deferred, on_deferred);
}

static void callbacks_of_finished_items_run_in_the_iteration(void **state)
{
    struct fake_host *h = *state;
    struct work w = {.h = h};
    struct br_item *item = br_item_new(&h->host, BR_TRACES);
    item->done = on_item;
    item->done_arg = &w;
    br_item_done(item);
    assert_int_equal(w.n, 0);
    assert_false(br_host_iterate(&h->host));
    assert_int_equal(w.n, 2); /* the item, and the work that its callback deferred */
}

static void the_limit_counts_all_held_memory(void **state)
{
    struct fake_host *h = *state;
    size_t before = br_mem_live();
    struct br_buf *buf = br_buf_new(h->host.pool, 10000);
    assert_false(br_host_over_limit(&h->host)); /* without a limit */
    br_memory_limit(&h->memory, before + 9999, before + 20000);
    assert_true(br_host_over_limit(&h->host));
    br_buf_unref(buf);
    assert_false(br_host_over_limit(&h->host));
}

static void random_numbers_are_spread_over_zero_to_one(void **state)
{
    struct fake_host *h = *state;
    double sum = 0;
    unsigned low = 0;
    enum { N = 100000 };
    for (int i = 0; i < N; i++) {
        double r = br_host_random(&h->host);
        assert_true(r >= 0 && r < 1);
        sum += r;
        low += r < 0.25;
    }
    /* The tolerance is five standard deviations: 0.2887 / sqrt(N) for the mean, and sqrt(N * 0.25 *
     * 0.75) for the count. */
    assert_true(sum / N > 0.5 - 0.0046 && sum / N < 0.5 + 0.0046);
    assert_in_range(low, N / 4 - 685, N / 4 + 685);
}

static struct fake_answer answer_503(const struct br_exchange *x, void *arg)
{
    (void)x;
    (void)arg;
    return (struct fake_answer){.delay_ms = 30, .http_status = 503};
}

static void on_exchange(struct br_exchange *x)
{
    struct work *w = x->user;
    w->n = x->error ? 1000 : x->http_status;
}

static void a_fake_client_answers_as_scripted(void **state)
{
    struct fake_host *h = *state;
    struct work w = {.h = h};
    struct br_client *c = NULL;
    struct br_client_config config = {.endpoint = "http://localhost:4318"};
    assert_int_equal(h->host.ops->connect(&h->host, &config, &c, NULL), 0);
    struct br_exchange x = {.path = "/x", .on_done = on_exchange, .user = &w};
    br_client_send(c, &x);
    assert_int_equal(w.n, 0);
    fake_host_iterate(h);
    assert_int_equal(w.n, 200);
    h->answer = answer_503;
    br_client_send(c, &x);
    fake_host_advance(h, 29);
    assert_int_equal(w.n, 200);
    fake_host_advance(h, 1);
    assert_int_equal(w.n, 503);
    br_client_send(c, &x);
    br_client_cancel(c, &x);
    fake_host_advance(h, 100);
    assert_int_equal(w.n, 503);
    br_client_send(c, &x);
    br_client_free(c);
    assert_int_equal(w.n, 1000);
    assert_int_equal(h->n_exchanges, 4);
}

/* Allocates and releases `mib` mebibytes, one mebibyte at a time. */
static void work(struct fake_host *h, unsigned mib)
{
    for (unsigned i = 0; i < mib; i++)
        br_buf_unref(br_buf_new(h->host.pool, 1 << 20));
}

/* Makes the pool keep released buffers. */
static void keep_buffers(struct fake_host *h)
{
    br_pool_free(h->host.pool);
    h->host.pool = br_pool_new(24 << 20);
    assert_non_null(h->host.pool);
}

static void idle_pools_release_memory(void **state)
{
    struct fake_host *h = *state;
    struct br_trimmer t;
    keep_buffers(h);
    br_trimmer_start(&t, &h->host);
    for (int i = 0; i < 10; i++) { /* 8 MiB in ten seconds: too busy to trim */
        work(h, 8);
        fake_host_advance(h, BR_TRIM_LOOK_MS);
        assert_int_equal(br_pool_idle(h->host.pool), 1 << 20);
    }
    assert_true(fake_host_metric(h, "braid_memory_trims", "") == 0);
    struct br_buf *held = br_buf_new(h->host.pool, 1 << 20);
    work(h, 1);
    fake_host_advance(h, BR_TRIM_LOOK_MS); /* the last check with work */
    assert_int_equal(br_pool_idle(h->host.pool), 1 << 20);
    fake_host_advance(h, BR_TRIM_LOOK_MS); /* the first check without work */
    assert_int_equal(br_pool_idle(h->host.pool), 0);
    assert_int_equal(br_pool_live(h->host.pool), 1 << 20);
    br_buf_unref(held);
    fake_host_advance(h, 100 * BR_TRIM_LOOK_MS); /* trimmed only once */
    assert_true(fake_host_metric(h, "braid_memory_trims", "") == 1);
    br_trimmer_stop(&t);
    br_trimmer_stop(&(struct br_trimmer){0});
}

/* If requests are occasional, such as scrapes, the pool is trimmed after 8 MiB of allocations, not
 * after each pause. */
static void occasional_requests_trim_the_pool_seldom(void **state)
{
    struct fake_host *h = *state;
    struct br_trimmer t;
    keep_buffers(h);
    br_trimmer_start(&t, &h->host);
    for (int i = 0; i < 64; i++) {
        br_buf_unref(br_buf_new(h->host.pool, 512 << 10));
        fake_host_advance(h, BR_TRIM_LOOK_MS);
    }
    assert_true(fake_host_metric(h, "braid_memory_trims", "") == 64 * 512 / 8192);
    br_trimmer_stop(&t);
}

SUITE(host)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shares_of_all_workers_add_up_to_the_total),
        TEST(deferred_work_runs_once_per_iteration),
        TEST(work_deferred_by_deferred_work_runs_in_the_same_iteration),
        TEST(endless_deferred_work_continues_in_the_next_iteration),
        TEST(cancelled_work_does_not_run),
        TEST(timers_fire_at_their_time),
        TEST(a_stopped_timer_does_not_fire),
        TEST(callbacks_of_finished_items_run_in_the_iteration),
        TEST(the_limit_counts_all_held_memory),
        TEST(idle_pools_release_memory),
        TEST(occasional_requests_trim_the_pool_seldom),
        TEST(random_numbers_are_spread_over_zero_to_one),
        TEST(a_fake_client_answers_as_scripted),
    };
    return RUN(tests, NULL, NULL);
}
