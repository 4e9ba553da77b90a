/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work for libuv's thread pool, which looks for names, too: a worker's work never has all its threads.
 * What asks bounds how much waits: one reading for each request, one packing for each attempt.
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

static void on_run(uv_work_t *request)
{
    struct net_work *n = request->data;
    n->work->run(n->work);
    pthread_mutex_lock(&n->lock);
    n->over = true;
    pthread_cond_signal(&n->ended);
    pthread_mutex_unlock(&n->lock);
}

static void work_end(struct net_work *n)
{
    struct br_work *work = n->work;
    pthread_cond_destroy(&n->ended);
    pthread_mutex_destroy(&n->lock);
    br_free(n);
    work->done(work);
}

static void on_done(uv_work_t *request, int status);

static void work_begin(struct net_work *n)
{
    n->begun = true;
    n->loop->n_works++;
    (void)uv_queue_work(&n->loop->uv, &n->request, on_run, on_done); /* fails without on_run only */
}

/* Begins what waits; what was left meanwhile has waited for its end only. */
static void work_next(struct br_loop *loop)
{
    struct br_list *l;
    while (loop->n_works < br_net_works_max(loop->host.n_workers) &&
           (l = br_list_shift(&loop->works_waiting))) {
        struct net_work *n = br_container_of(l, struct net_work, link);
        if (n->work->left)
            work_end(n);
        else
            work_begin(n);
    }
}

static void on_done(uv_work_t *request, int status)
{
    struct net_work *n = request->data;
    struct br_loop *loop = n->loop;
    (void)status; /* cancelled: it was left */
    loop->n_works--;
    work_next(loop);
    work_end(n);
}

bool br_net_work(struct br_host *h, struct br_work *work)
{
    struct net_work *n = br_calloc(1, sizeof *n);
    if (!n)
        return false;
    n->loop = br_loop_of(h);
    n->work = work;
    n->request.data = n;
    work->impl = n;
    br_list_init(&n->link);
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->ended, NULL);
    if (n->loop->n_works < br_net_works_max(h->n_workers))
        work_begin(n);
    else
        br_list_append(&n->loop->works_waiting, &n->link);
    return true;
}

void br_net_work_leave(struct br_host *h, struct br_work *work)
{
    struct net_work *n = work->impl;
    (void)h;
    work->left = !n->begun || uv_cancel((uv_req_t *)&n->request) == 0;
}

void br_net_work_wait(struct br_host *h, struct br_work *work)
{
    struct net_work *n = work->impl;
    (void)h;
    if (work->left)
        return;
    pthread_mutex_lock(&n->lock);
    while (!n->over)
        pthread_cond_wait(&n->ended, &n->lock);
    pthread_mutex_unlock(&n->lock);
}
