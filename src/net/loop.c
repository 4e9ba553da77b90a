/* SPDX-License-Identifier: Apache-2.0 */
#include "net/loop.h"

#include <limits.h>
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#include "base/mem.h"
#include "net/net_internal.h"
#include "net/udp.h"
#include "net/wake.h"

#define POOL_IDLE_MAX (24u << 20)
#define ROUNDS_MAX 16

struct br_net *br_net_new(void)
{
    struct br_net *net = br_calloc(1, sizeof *net);
    br_watchers_init();
    if (!net)
        return NULL;
    br_list_init(&net->listeners);
    br_list_init(&net->udps);
    br_net_works_init(net);
    return net;
}

void br_net_free(struct br_net *net)
{
    if (net) {
        br_net_keep_sockets(net, false);
        br_net_works_release(net);
    }
    br_free(net);
}

void br_net_raise_descriptors(struct br_net *net)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    struct rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (limit.rlim_cur < limit.rlim_max && setrlimit(RLIMIT_NOFILE, &raised) == 0)
        limit = raised;
    rlim_t mark = limit.rlim_cur - limit.rlim_cur / 4;
    net->connections_mark = mark < UINT_MAX ? (unsigned)mark : UINT_MAX;
}

struct br_list *br_net_listeners(struct br_net *net)
{
    return &net->listeners;
}

struct br_loop *br_loop_of(struct br_host *host)
{
    return br_container_of(host, struct br_loop, host);
}

struct br_host *br_loop_host(struct br_loop *loop)
{
    return &loop->host;
}

static uint64_t loop_mono_ms(struct br_host *host)
{
    return uv_now(&br_loop_of(host)->uv);
}

static uint64_t loop_unix_ns(struct br_host *host)
{
    (void)host;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t loop_cpu_ns(struct br_host *host)
{
    (void)host;
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static const struct br_host_ops host_ops = {
    .mono_ms = loop_mono_ms,
    .unix_ns = loop_unix_ns,
    .cpu_ns = loop_cpu_ns,
    .serve = br_net_serve,
    .connect = br_net_connect,
    .work = br_net_work,
    .work_cancel = br_net_work_cancel,
    .work_wait = br_net_work_wait,
    .wake = br_net_wake,
    .receive = br_net_receive,
};

/* The timer only wakes the loop; due timers run in loop_on_prepare. */
static void loop_on_timer(uv_timer_t *uv_timer)
{
    struct br_loop *loop = uv_timer->data;
    loop->timer_due = UINT64_MAX;
}

static void loop_arm(struct br_loop *loop, bool at_once)
{
    uint64_t due = at_once ? 0 : br_timers_next(&loop->host.timers);
    if (br_loop_has_many_busy(loop) && due > loop->busy_resumed_ms + 1)
        due = loop->busy_resumed_ms + 1;
    if (due == loop->timer_due)
        return;
    loop->timer_due = due;
    if (due == UINT64_MAX) {
        uv_timer_stop(&loop->timer);
        return;
    }
    uint64_t now = uv_now(&loop->uv);
    uv_timer_start(&loop->timer, loop_on_timer, due > now ? due - now : 0, 0);
}

/* Runs just before the loop waits for events, and finishes all work of the iteration. */
static void loop_on_prepare(uv_prepare_t *uv_prepare)
{
    struct br_loop *loop = uv_prepare->data;
    bool more = true;
    br_loop_read_unread(loop);
    /* Answer complete requests before timers run, because a timer callback can take a
     * millisecond. */
    (void)br_host_settle(&loop->host);
    br_loop_flush(loop);
    br_loop_read_slow_senders(loop);
    for (int i = 0; i < ROUNDS_MAX && more; i++) {
        more = br_host_iterate(&loop->host);
        br_loop_flush(loop);
        more = more || !br_list_empty(&loop->host.finished) ||
               !br_list_empty(&loop->host.deferred) || !br_list_empty(&loop->dirty);
    }
    more = br_loop_resume_busy(loop) || more;
    more = br_pool_release_some(loop->host.pool) || more;
    br_loop_resume(loop);
    loop_arm(loop, more || loop->n_unread || loop->n_slow_senders);
}

static struct br_message *loop_next_message(struct br_loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    struct br_list *list = br_list_shift(&loop->mailbox);
    if (list)
        loop->n_mail--;
    pthread_mutex_unlock(&loop->lock);
    return list ? br_container_of(list, struct br_message, link) : NULL;
}

void br_loop_read_mail(struct br_loop *loop)
{
    struct br_message *message;
    while ((message = loop_next_message(loop)))
        message->run(message, loop);
}

static void loop_on_doorbell(uv_async_t *doorbell)
{
    br_loop_read_mail(doorbell->data);
}

static bool loop_post(struct br_loop *loop, struct br_message *message, unsigned max)
{
    pthread_mutex_lock(&loop->lock);
    bool accepted = loop->n_mail < max;
    if (accepted) {
        br_list_append(&loop->mailbox, &message->link);
        loop->n_mail++;
        /* Wake the loop under the lock, so that the loop cannot be freed before uv_async_send
         * returns. */
        uv_async_send(&loop->doorbell);
    }
    pthread_mutex_unlock(&loop->lock);
    return accepted;
}

bool br_loop_post(struct br_loop *loop, struct br_message *message)
{
    return loop_post(loop, message, BR_MAILBOX_MAX);
}

void br_loop_command(struct br_loop *loop, struct br_message *message)
{
    (void)loop_post(loop, message, UINT_MAX);
}

void br_loop_set_mark(struct br_loop *loop, size_t bytes)
{
    loop->mark = bytes;
}

size_t br_loop_held(const struct br_loop *loop)
{
    return loop->held;
}

int br_loop_new(struct br_net *net, unsigned worker, unsigned n_workers, struct br_loop **ret,
                struct br_err *err)
{
    if (worker == 0)
        /* the function sets an environment variable, so it is called before other threads could
         * read the environment */
        br_net_size_pool(n_workers);
    struct br_loop *loop = br_calloc(1, sizeof *loop);
    struct br_pool *pool = br_pool_new(POOL_IDLE_MAX);
    uint8_t *buffer = br_malloc(BR_READ_SIZE);
    if (!loop || !pool || !buffer || br_host_init(&loop->host, &host_ops, pool) ||
        br_watchers_start(loop)) {
        if (loop)
            br_host_release(&loop->host);
        br_pool_free(pool);
        br_free(buffer);
        br_free(loop);
        return br_err_set(err, BR_ENOMEM, "out of memory for worker %u", worker);
    }
    br_pool_linger(pool);
    loop->net = net;
    loop->read_buffer = buffer;
    loop->host.worker = worker;
    loop->host.n_workers = n_workers;
    loop->timer_due = UINT64_MAX;
    loop->n_pauses = br_metric(loop->host.metrics, BR_COUNTER, "braid_server_reads_paused", "");
    br_list_init(&loop->mailbox);
    br_list_init(&loop->dirty);
    br_list_init(&loop->busy);
    br_list_init(&loop->paused);
    br_list_init(&loop->unread);
    br_list_init(&loop->slow_senders);
    for (int i = 0; i < BR_WORK_KINDS; i++)
        br_list_init(&loop->works_waiting[i]);
    pthread_mutex_init(&loop->lock, NULL);
    uv_prepare_init(&loop->uv, &loop->prepare);
    uv_timer_init(&loop->uv, &loop->timer);
    loop->prepare.data = loop->timer.data = loop->doorbell.data = loop;
    uv_prepare_start(&loop->prepare, loop_on_prepare);
    if (uv_async_init(&loop->uv, &loop->doorbell, loop_on_doorbell)) {
        br_loop_free(loop);
        return br_err_set(err, BR_EIO, "out of file descriptors for worker %u", worker);
    }
    *ret = loop;
    return 0;
}

void br_loop_run(struct br_loop *loop)
{
    uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void br_loop_step(struct br_loop *loop)
{
    uv_run(&loop->uv, UV_RUN_ONCE);
}

void br_loop_stop(struct br_loop *loop)
{
    uv_stop(&loop->uv);
}

static void loop_close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

void br_loop_free(struct br_loop *loop)
{
    if (!loop)
        return;
    /* Run the work that closing the nodes has queued: callbacks of items, and streams to close. */
    (void)br_host_iterate(&loop->host);
    br_loop_flush(loop);
    (void)br_host_iterate(&loop->host);
    uv_walk(&loop->uv, loop_close_handle, NULL);
    /* Call uv_run until no handle is open: the first call may return at once because of an
     * earlier uv_stop. */
    while (uv_run(&loop->uv, UV_RUN_DEFAULT))
        ;
    uv_loop_close(&loop->uv);
    pthread_mutex_destroy(&loop->lock);
    br_pool_free(loop->host.pool);
    br_host_release(&loop->host);
    br_free(loop->read_buffer);
    br_free(loop);
}
