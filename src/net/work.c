/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs work in libuv's thread pool. libuv resolves names in the same threads, so work never uses
 * all of these threads. Each kind of work has a separate limit, so that quick work does not wait
 * for queries or for disks. Callers bound the number of queued work items: one per request that is
 * read, one per attempt to send a compressed body, and a fixed number of queries.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "net/net_internal.h"

#define POOL_THREADS 4u        /* default number of threads in libuv's pool */
#define POOL_THREADS_MAX 1024u /* maximum number of threads in libuv's pool */
#define SLOW_THREADS 2u        /* number of threads that are added to the pool for slow work */
/* number of threads that are added to the pool for work that waits for disks */
#define DISK_THREADS 4u
/* minimum number of disk threads per worker: if one disk hangs, another disk can still be used */
#define DISK_THREADS_LEAST 2u

struct net_work {
    uv_work_t request;
    struct br_list link; /* entry in loop->works_waiting */
    struct br_loop *loop;
    struct br_work *work;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool begun; /* the work was given to libuv */
    bool over;  /* the work's function `run` has returned */
};

unsigned br_net_works_max(unsigned n_workers, enum br_work_kind kind)
{
    static const struct {
        /* `all`: number of threads for all workers together; `least`: minimum number for one
         * worker */
        unsigned all, least;
    } threads[BR_WORK_KINDS] = {
        [BR_WORK_QUICK] = {POOL_THREADS - 1, 1},
        [BR_WORK_SLOW] = {SLOW_THREADS, 1},
        [BR_WORK_DISK] = {DISK_THREADS, DISK_THREADS_LEAST},
    };
    unsigned share = threads[kind].all / n_workers;
    return share > threads[kind].least ? share : threads[kind].least;
}

void br_net_size_pool(unsigned n_workers)
{
    char threads[16];
    unsigned n = n_workers * br_net_works_max(n_workers, BR_WORK_QUICK) + 1;
    if (n < POOL_THREADS)
        n = POOL_THREADS;
    for (enum br_work_kind kind = BR_WORK_SLOW; kind < BR_WORK_KINDS; kind++)
        n += n_workers * br_net_works_max(n_workers, kind);
    (void)snprintf(threads, sizeof threads, "%u", n);
    (void)setenv("UV_THREADPOOL_SIZE", threads, 0);
}

/* --- Starting the thread pool -------------------------------------------------------------------
 */

/* libuv creates its threads at the first work item and aborts if a thread cannot be created. A
 * trial first creates the same number of threads, so that such a failure becomes an error. */
struct pool_trial {
    pthread_mutex_t lock;
    pthread_t threads[POOL_THREADS_MAX];
};

static void *pool_on_trial(void *arg)
{
    struct pool_trial *trial = arg;
    pthread_mutex_lock(&trial->lock); /* wait here until all threads of the trial exist */
    pthread_mutex_unlock(&trial->lock);
    return NULL;
}

/* Returns the number of threads that libuv will create, computed in the same way. */
static unsigned pool_count_threads(void)
{
    const char *text = getenv("UV_THREADPOOL_SIZE");
    long n = text ? strtol(text, NULL, 10) : (long)POOL_THREADS;
    if (n < 1)
        return 1;
    return n < (long)POOL_THREADS_MAX ? (unsigned)n : POOL_THREADS_MAX;
}

/* Creates and ends `n_threads` threads as a trial. Returns 0 or an errno value. */
static int pool_try_threads(unsigned n_threads)
{
    struct pool_trial *trial = br_calloc(1, sizeof *trial);
    unsigned n = 0;
    int error = 0;
    if (!trial)
        return ENOMEM;
    pthread_mutex_init(&trial->lock, NULL);
    pthread_mutex_lock(&trial->lock);
    while (n < n_threads &&
           !(error = pthread_create(&trial->threads[n], NULL, pool_on_trial, trial)))
        n++;
    pthread_mutex_unlock(&trial->lock);
    while (n > 0)
        (void)pthread_join(trial->threads[--n], NULL);
    pthread_mutex_destroy(&trial->lock);
    br_free(trial);
    return error;
}

static void pool_on_first_work(uv_work_t *request)
{
    (void)request;
}

static void pool_on_first_done(uv_work_t *request, int status)
{
    (void)status;
    br_free(request);
}

int br_net_start_pool(struct br_loop *loop, struct br_err *err)
{
    unsigned n = pool_count_threads();
    int error = pool_try_threads(n);
    uv_work_t *first = error ? NULL : br_calloc(1, sizeof *first);
    if (!first)
        return br_err_set(err, error == EAGAIN ? BR_EIO : BR_ENOMEM,
                          "cannot start %u threads: %s; allow the "
                          "process more threads (ulimit -u, pids.max, TasksMax) or memory",
                          n, strerror(error ? error : ENOMEM));
    sigset_t all, before;
    sigfillset(&all);
    /* The pool's threads inherit the signal mask, so that only workers handle signals. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    (void)uv_queue_work(&loop->uv, first, pool_on_first_work, pool_on_first_done);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return 0;
}

/* --- Work ------------------------------------------------------------------------------------- */

static void work_count(struct net_work *work, int change)
{
    struct br_net *net = work->loop->net;
    pthread_mutex_lock(&net->works_lock);
    net->works.by_kind[work->work->kind] += (unsigned)change;
    pthread_cond_signal(&net->works_ended);
    pthread_mutex_unlock(&net->works_lock);
}

static void work_on_run(uv_work_t *request)
{
    struct net_work *work = request->data;
    work->work->run(work->work);
    br_mem_enlist();
    work_count(work, -1);
    pthread_mutex_lock(&work->lock);
    work->over = true;
    pthread_cond_signal(&work->ended);
    pthread_mutex_unlock(&work->lock);
}

static void work_end(struct net_work *net_work)
{
    struct br_work *work = net_work->work;
    pthread_cond_destroy(&net_work->ended);
    pthread_mutex_destroy(&net_work->lock);
    br_free(net_work);
    work->done(work);
}

static void work_on_done(uv_work_t *request, int status);

static void work_begin(struct net_work *work)
{
    work->begun = true;
    work_count(work, 1);
    work->loop->n_works[work->work->kind]++;
    /* uv_queue_work can only fail if work_on_run is NULL. */
    (void)uv_queue_work(&work->loop->uv, &work->request, work_on_run, work_on_done);
}

/* Starts queued work while threads are free. If work was cancelled in the queue, only its `done`
 * is called. */
static void work_next(struct br_loop *loop, enum br_work_kind kind)
{
    struct br_list *list;
    while (loop->n_works[kind] < br_net_works_max(loop->host.n_workers, kind) &&
           (list = br_list_shift(&loop->works_waiting[kind]))) {
        struct net_work *work = br_container_of(list, struct net_work, link);
        if (work->work->cancelled)
            work_end(work);
        else
            work_begin(work);
    }
}

static void work_on_done(uv_work_t *request, int status)
{
    struct net_work *work = request->data;
    struct br_loop *loop = work->loop;
    if (status == UV_ECANCELED) /* the work was cancelled before it ran */
        work_count(work, -1);
    enum br_work_kind kind = work->work->kind;
    loop->n_works[kind]--;
    work_next(loop, kind);
    work_end(work);
}

void br_net_works_init(struct br_net *net)
{
    pthread_condattr_t clock;
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&net->works_ended, &clock);
    (void)pthread_condattr_destroy(&clock);
    (void)pthread_mutex_init(&net->works_lock, NULL);
}

void br_net_works_release(struct br_net *net)
{
    (void)pthread_cond_destroy(&net->works_ended);
    (void)pthread_mutex_destroy(&net->works_lock);
}

static unsigned work_sum(const struct br_net_works *works)
{
    unsigned sum = 0;
    for (int i = 0; i < BR_WORK_KINDS; i++)
        sum += works->by_kind[i];
    return sum;
}

bool br_net_wait_works(struct br_net *net, uint64_t wait_ms, struct br_net_works *ret)
{
    struct timespec until;
    int rc = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + wait_ms % 1000 * 1000000;
    until.tv_sec += (time_t)(wait_ms / 1000 + ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&net->works_lock);
    while (work_sum(&net->works) && !rc)
        rc = pthread_cond_timedwait(&net->works_ended, &net->works_lock, &until);
    *ret = net->works;
    pthread_mutex_unlock(&net->works_lock);
    return !work_sum(ret);
}

bool br_net_work(struct br_host *host, struct br_work *work)
{
    struct net_work *net_work = br_calloc(1, sizeof *net_work);
    if (!net_work)
        return false;
    net_work->loop = br_loop_of(host);
    net_work->work = work;
    net_work->request.data = net_work;
    work->impl = net_work;
    br_list_init(&net_work->link);
    pthread_mutex_init(&net_work->lock, NULL);
    pthread_cond_init(&net_work->ended, NULL);
    if (net_work->loop->n_works[work->kind] < br_net_works_max(host->n_workers, work->kind))
        work_begin(net_work);
    else
        br_list_append(&net_work->loop->works_waiting[work->kind], &net_work->link);
    return true;
}

void br_net_work_cancel(struct br_host *host, struct br_work *work)
{
    struct net_work *net_work = work->impl;
    (void)host;
    work->cancelled = !net_work->begun || uv_cancel((uv_req_t *)&net_work->request) == 0;
}

void br_net_work_wait(struct br_host *host, struct br_work *work)
{
    struct net_work *net_work = work->impl;
    (void)host;
    if (work->cancelled)
        return;
    pthread_mutex_lock(&net_work->lock);
    while (!net_work->over)
        pthread_cond_wait(&net_work->ended, &net_work->lock);
    pthread_mutex_unlock(&net_work->lock);
}
