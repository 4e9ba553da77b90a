/* SPDX-License-Identifier: Apache-2.0 */
/* Work in libuv's thread pool (net/work.c): names are resolved even if all threads for other
 * work are busy. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "net/net_internal.h"
#include "tests/support/fake_libc.h"
#include "tests/support/test.h"

#define WORKS 8

struct bench;

struct job {
    struct br_work work;
    struct bench *bench;
    bool ran, done;
};

struct bench {
    struct br_net *net;
    struct br_loop *loop;
    struct br_host *host;
    sem_t begun, may_end;
    _Atomic unsigned n_begun, n_over;
    _Atomic bool too_many; /* true if more work had begun than allowed, before any of it ended */
    unsigned max, n_done;
    struct job jobs[WORKS];
    bool found;
};

static void let_all_end(struct bench *b)
{
    for (int i = 0; i < WORKS; i++)
        sem_post(&b->may_end);
}

static void on_run(struct br_work *w)
{
    struct job *job = br_container_of(w, struct job, work);
    struct bench *b = job->bench;
    job->ran = true;
    if (++b->n_begun > b->max && b->n_over == 0) {
        b->too_many = true;
        let_all_end(b);
    }
    sem_post(&b->begun);
    sem_wait(&b->may_end);
    b->n_over++;
}

static void on_done(struct br_work *w)
{
    struct job *job = br_container_of(w, struct job, work);
    assert_false(job->done);
    job->done = true;
    job->bench->n_done++;
}

static void on_found(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct bench *b = request->data;
    assert_int_equal(status, 0);
    uv_freeaddrinfo(found);
    b->found = true;
}

static int setup(void **state)
{
    struct bench *b = calloc(1, sizeof *b);
    struct br_err err;
    assert_non_null(b);
    b->net = br_net_new();
    assert_int_equal(br_loop_new(b->net, 0, 1, &b->loop, &err), 0);
    b->host = br_loop_host(b->loop);
    b->max = 3;
    sem_init(&b->begun, 0, 0);
    sem_init(&b->may_end, 0, 0);
    for (int i = 0; i < WORKS; i++) {
        b->jobs[i].bench = b;
        b->jobs[i].work = (struct br_work){.run = on_run, .done = on_done};
    }
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;
    br_loop_free(b->loop);
    br_net_free(b->net);
    sem_destroy(&b->begun);
    sem_destroy(&b->may_end);
    free(b);
    return 0;
}

/* Makes all threads for quick work busy. */
static void make_busy(struct bench *b)
{
    for (int i = 0; i < WORKS; i++)
        br_host_work(b->host, &b->jobs[i].work);
    for (unsigned i = 0; i < b->max; i++)
        sem_wait(&b->begun);
}

/* libuv would abort at the first use of its pool. Here the pool does not have threads yet. */
static void too_few_threads_are_an_error_at_the_start(void **state)
{
    struct bench *b = *state;
    struct br_err err = {0};
    for (fake_libc.threads_left = 9; fake_libc.threads_left >= 0; fake_libc.threads_left--) {
        int n_threads = fake_libc.threads_left;
        assert_int_equal(br_net_start_pool(b->loop, &err), BR_EIO);
        assert_non_null(strstr(err.text, "cannot start 10 threads"));
        assert_non_null(strstr(err.text, strerror(EAGAIN)));
        fake_libc.threads_left = n_threads;
    }
    fake_libc.threads_left = 1000;
    assert_int_equal(br_net_start_pool(b->loop, &err), 0);
    while (fake_libc.threads_left > 1000 - 20) /* the threads of the trial, and libuv's */
        br_loop_step(b->loop);
}

static void names_are_resolved_while_threads_are_busy(void **state)
{
    struct bench *b = *state;
    uv_getaddrinfo_t request = {.data = b};
    make_busy(b);
    assert_int_equal(uv_getaddrinfo(&b->loop->uv, &request, on_found, "127.0.0.1", "1", NULL), 0);
    while (!b->found)
        br_loop_step(b->loop);
    assert_int_equal(b->n_done, 0);
    assert_int_equal(b->n_begun, 3);
    assert_false(b->too_many);
    let_all_end(b);
    while (b->n_done < WORKS)
        br_loop_step(b->loop);
    assert_int_equal(b->n_begun, WORKS);
}

/* Each kind of work has reserved threads, even if there is a lot of work of another kind. */
static void slow_work_leaves_threads_to_quick_work(void **state)
{
    struct bench *b = *state;
    for (int i = 0; i < 4; i++) {
        b->jobs[i].work.kind = BR_WORK_SLOW;
        br_host_work(b->host, &b->jobs[i].work);
    }
    for (int i = 0; i < 2; i++)
        sem_wait(&b->begun);
    b->max = 5;
    for (int i = 4; i < WORKS; i++)
        br_host_work(b->host, &b->jobs[i].work);
    for (int i = 0; i < 3; i++)
        sem_wait(&b->begun);
    assert_int_equal(b->n_begun, 5);
    assert_false(b->jobs[2].ran || b->jobs[3].ran || b->jobs[7].ran);
    let_all_end(b);
    while (b->n_done < WORKS)
        br_loop_step(b->loop);
    assert_false(b->too_many);
}

/* A disk that hangs blocks only the threads for disks. */
static void disks_leave_threads_to_quick_work(void **state)
{
    struct bench *b = *state;
    b->max = 4;
    for (int i = 0; i < 5; i++) {
        b->jobs[i].work.kind = BR_WORK_DISK;
        br_host_work(b->host, &b->jobs[i].work);
    }
    for (int i = 0; i < 4; i++)
        sem_wait(&b->begun);
    b->max = 7;
    for (int i = 5; i < WORKS; i++)
        br_host_work(b->host, &b->jobs[i].work);
    for (int i = 0; i < 3; i++)
        sem_wait(&b->begun);
    assert_int_equal(b->n_begun, 7);
    assert_false(b->jobs[4].ran);
    let_all_end(b);
    while (b->n_done < WORKS)
        br_loop_step(b->loop);
    assert_false(b->too_many);
}

/* Work that still waits for a thread at the end never begins. Its callback is called once, after
 * the callbacks of earlier work. */
static void waiting_work_never_begins_after_the_end(void **state)
{
    struct bench *b = *state;
    make_busy(b);
    for (int i = 4; i < WORKS; i++) {
        br_host_work_cancel(b->host, &b->jobs[i].work);
        br_host_work_wait(b->host, &b->jobs[i].work);
    }
    let_all_end(b);
    while (b->n_done < WORKS)
        br_loop_step(b->loop);
    for (int i = 0; i < WORKS; i++)
        assert_int_equal(b->jobs[i].ran, i < 4);
}

/* The loop is freed while some work waits for a thread and some work runs. */
static void freeing_the_loop_ends_all_work(void **state)
{
    struct bench *b = *state;
    make_busy(b);
    let_all_end(b);
    br_loop_free(b->loop);
    b->loop = NULL;
    assert_int_equal(b->n_done, WORKS);
}

/* Work counts until its thread has finished, also after the loop has stopped. */
static void unfinished_work_is_counted(void **state)
{
    struct bench *b = *state;
    struct br_net_works works;
    assert_true(br_net_wait_works(b->net, 0, &works));
    b->jobs[7].work.kind = BR_WORK_DISK;
    b->max = 4;
    make_busy(b);
    assert_false(br_net_wait_works(b->net, 1, &works));
    assert_int_equal(works.by_kind[BR_WORK_QUICK], 3);
    assert_int_equal(works.by_kind[BR_WORK_SLOW], 0);
    assert_int_equal(works.by_kind[BR_WORK_DISK], 1);
    let_all_end(b);
    assert_true(br_net_wait_works(b->net, UINT32_MAX, &works));
    while (b->n_done < WORKS)
        br_loop_step(b->loop);
    assert_true(br_net_wait_works(b->net, 0, &works));
}

static void many_workers_leave_a_thread_for_names(void **state)
{
    (void)state;
    assert_int_equal(br_net_works_max(1, BR_WORK_QUICK), 3);
    for (unsigned n = 1; n <= 3; n++)
        assert_in_range(n * br_net_works_max(n, BR_WORK_QUICK), 1, 3);
    assert_int_equal(br_net_works_max(64, BR_WORK_QUICK), 1);
    assert_int_equal(br_net_works_max(1, BR_WORK_SLOW), 2);
    assert_int_equal(br_net_works_max(64, BR_WORK_SLOW), 1);
    assert_int_equal(br_net_works_max(1, BR_WORK_DISK), 4);
    assert_int_equal(br_net_works_max(64, BR_WORK_DISK), 2);
    assert_string_equal(getenv("UV_THREADPOOL_SIZE"), "10");
    unsetenv("UV_THREADPOOL_SIZE");
    br_net_size_pool(16);
    assert_string_equal(getenv("UV_THREADPOOL_SIZE"), "65");
    br_net_size_pool(1);
    assert_string_equal(getenv("UV_THREADPOOL_SIZE"), "65"); /* the user's setting is kept */
}

SUITE(net_work)
{
    const struct CMUnitTest tests[] = {
        TEST(too_few_threads_are_an_error_at_the_start),
        TEST(names_are_resolved_while_threads_are_busy),
        TEST(slow_work_leaves_threads_to_quick_work),
        TEST(disks_leave_threads_to_quick_work),
        TEST(waiting_work_never_begins_after_the_end),
        TEST(freeing_the_loop_ends_all_work),
        TEST(unfinished_work_is_counted),
        cmocka_unit_test(many_workers_leave_a_thread_for_names),
    };
    (void)unsetenv("UV_THREADPOOL_SIZE");
    return RUN(tests, NULL, NULL);
}
