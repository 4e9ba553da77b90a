/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work for libuv's thread pool, which looks for names, too: a worker's work never has all its
 * threads. What asks bounds how much waits: one reading for each request, one packing for each
 * attempt.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "net/net_internal.h"

#define POOL_THREADS 4u /* libuv's default */

struct net_work {
    uv_work_t request;
    struct br_list link; /* the loop's works_waiting */
    struct br_loop *loop;
    struct br_work *work;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool begun; /* libuv has it */
    bool over;  /* it has run */
};

unsigned br_net_works_max(unsigned n_workers)
{
    unsigned share = (POOL_THREADS - 1) / n_workers;
    return share ? share : 1;
}

void br_net_size_pool(unsigned n_workers)
{
    char threads[16];
    unsigned n = n_workers * br_net_works_max(n_workers) + 1;
    (void)snprintf(threads, sizeof threads, "%u", n < POOL_THREADS ? POOL_THREADS : n);
    (void)setenv("UV_THREADPOOL_SIZE", threads, 0);
}

static void work_on_run(uv_work_t *request)
{
    struct net_work *work = request->data;
    work->work->run(work->work);
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
    work->loop->n_works++;
    (void)uv_queue_work(&work->loop->uv, &work->request, work_on_run,
                        work_on_done); /* fails without work_on_run only */
}

/* Begins what waits; what was left meanwhile has waited for its end only. */
static void work_next(struct br_loop *loop)
{
    struct br_list *list;
    while (loop->n_works < br_net_works_max(loop->host.n_workers) &&
           (list = br_list_shift(&loop->works_waiting))) {
        struct net_work *work = br_container_of(list, struct net_work, link);
        if (work->work->left)
            work_end(work);
        else
            work_begin(work);
    }
}

static void work_on_done(uv_work_t *request, int status)
{
    struct net_work *work = request->data;
    struct br_loop *loop = work->loop;
    (void)status; /* cancelled: it was left */
    loop->n_works--;
    work_next(loop);
    work_end(work);
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
    if (net_work->loop->n_works < br_net_works_max(host->n_workers))
        work_begin(net_work);
    else
        br_list_append(&net_work->loop->works_waiting, &net_work->link);
    return true;
}

void br_net_work_leave(struct br_host *host, struct br_work *work)
{
    struct net_work *net_work = work->impl;
    (void)host;
    work->left = !net_work->begun || uv_cancel((uv_req_t *)&net_work->request) == 0;
}

void br_net_work_wait(struct br_host *host, struct br_work *work)
{
    struct net_work *net_work = work->impl;
    (void)host;
    if (work->left)
        return;
    pthread_mutex_lock(&net_work->lock);
    while (!net_work->over)
        pthread_cond_wait(&net_work->ended, &net_work->lock);
    pthread_mutex_unlock(&net_work->lock);
}
