/* SPDX-License-Identifier: Apache-2.0 */
#include "core/task.h"
#include "tests/support/fake_host.h"
#include "tests/support/test.h"

struct sum {
    struct br_task task;
    bool cancel; /* cancels the task while it runs */
    unsigned n_runs, n_done;
    bool cancelled; /* value of the task's flag `cancelled` when `done` was called */
};

static void on_run(struct br_task *task)
{
    struct sum *sum = br_container_of(task, struct sum, task);
    sum->n_runs++;
    if (sum->cancel)
        br_task_cancel(task);
}

static void on_done(struct br_task *task)
{
    struct sum *sum = br_container_of(task, struct sum, task);
    sum->n_done++;
    sum->cancelled = br_task_is_cancelled(task);
    assert_int_equal(task->ran, sum->n_runs > 0);
}

static struct fake_host *start(struct sum *sum, bool threads)
{
    struct fake_host *h = fake_host_new();
    h->threads = threads;
    br_task_init(&sum->task, &h->host, on_run, on_done);
    assert_int_equal(br_task_add_pool(&sum->task, &h->memory), 0);
    br_task_start(&sum->task);
    return h;
}

static void end(struct fake_host *h, struct sum *sum)
{
    br_task_release(&sum->task);
    br_task_release(&sum->task); /* br_task_release accepts a released task */
    fake_host_free(h);
}

static void a_task_without_threads_is_done_at_once(void **state)
{
    struct sum sum = {.n_runs = 0};
    struct fake_host *h = start(&sum, false);
    (void)state;
    assert_int_equal(sum.n_runs, 1);
    assert_int_equal(sum.n_done, 1);
    end(h, &sum);
}

static void a_task_is_started_again(void **state)
{
    struct sum sum = {.n_runs = 0};
    struct fake_host *h = start(&sum, true);
    (void)state;
    assert_int_equal(sum.n_runs, 0);
    assert_int_equal(fake_host_work(h), 1);
    br_task_start(&sum.task);
    assert_int_equal(fake_host_work(h), 1);
    assert_int_equal(sum.n_runs, 2);
    assert_int_equal(sum.n_done, 2);
    assert_false(sum.cancelled);
    end(h, &sum);
}

static void a_cancelled_task_does_not_begin(void **state)
{
    (void)state;
    for (int stop = 0; stop < 2; stop++) {
        struct sum sum = {.n_runs = 0};
        struct fake_host *h = start(&sum, true);
        br_task_cancel(&sum.task);
        br_task_cancel(&sum.task);
        if (stop)
            br_task_stop(&sum.task);
        assert_int_equal(h->n_waits, stop);
        assert_int_equal(fake_host_work(h), 1);
        assert_int_equal(sum.n_runs, 0);
        assert_int_equal(sum.n_done, 1);
        assert_true(sum.cancelled);
        end(h, &sum);
    }
}

static void a_task_that_is_cancelled_late_has_run(void **state)
{
    struct sum sum = {.cancel = true};
    struct fake_host *h = start(&sum, true);
    (void)state;
    assert_int_equal(fake_host_work(h), 1);
    assert_int_equal(sum.n_runs, 1);
    assert_int_equal(sum.n_done, 1);
    assert_true(sum.cancelled);
    end(h, &sum);
}

SUITE(task)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_task_without_threads_is_done_at_once),
        cmocka_unit_test(a_task_is_started_again),
        cmocka_unit_test(a_cancelled_task_does_not_begin),
        cmocka_unit_test(a_task_that_is_cancelled_late_has_run),
    };
    return RUN(tests, NULL, NULL);
}
