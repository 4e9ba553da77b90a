/* SPDX-License-Identifier: Apache-2.0 */
/* Work for libuv's thread pool. Its queue is bounded by what asks: one reading for each request. */
#include <pthread.h>

#include "base/mem.h"
#include "net/net_internal.h"

struct net_work {
    uv_work_t request;
    struct br_work *work;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool over; /* it has run */
};

static void on_run(uv_work_t *request)
{
    struct net_work *n = request->data;
    n->work->run(n->work);
    pthread_mutex_lock(&n->lock);
    n->over = true;
    pthread_cond_signal(&n->ended);
    pthread_mutex_unlock(&n->lock);
}

static void on_done(uv_work_t *request, int status)
{
    struct net_work *n = request->data;
    struct br_work *work = n->work;
    (void)status; /* cancelled: it was left */
    pthread_cond_destroy(&n->ended);
    pthread_mutex_destroy(&n->lock);
    br_free(n);
    work->done(work);
}

bool br_net_work(struct br_host *h, struct br_work *work)
{
    struct net_work *n = br_calloc(1, sizeof *n);
    if (!n)
        return false;
    n->work = work;
    n->request.data = n;
    work->impl = n;
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->ended, NULL);
    if (uv_queue_work(&br_loop_of(h)->uv, &n->request, on_run, on_done) == 0)
        return true;
    pthread_cond_destroy(&n->ended);
    pthread_mutex_destroy(&n->lock);
    br_free(n);
    return false;
}

void br_net_work_leave(struct br_host *h, struct br_work *work)
{
    struct net_work *n = work->impl;
    (void)h;
    work->left = uv_cancel((uv_req_t *)&n->request) == 0;
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
