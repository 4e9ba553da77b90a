/* SPDX-License-Identifier: Apache-2.0 */
#include "net/wake.h"

#include "base/mem.h"
#include "net/net_internal.h"

struct br_wake {
    struct br_message message;
    struct br_loop *loop;
    bool queued; /* the message is in the mailbox; protected by loop->lock */
    void (*fn)(void *arg);
    void *arg;
};

struct br_wake *br_wake_new(struct br_host *host, void (*fn)(void *arg), void *arg)
{
    return host->ops->wake ? host->ops->wake(host, fn, arg) : NULL;
}

static void wake_on_message(struct br_message *message, struct br_loop *loop)
{
    struct br_wake *wake = br_container_of(message, struct br_wake, message);
    pthread_mutex_lock(&loop->lock);
    wake->queued = false;
    pthread_mutex_unlock(&loop->lock);
    wake->fn(wake->arg);
}

struct br_wake *br_net_wake(struct br_host *host, void (*fn)(void *arg), void *arg)
{
    struct br_wake *wake = br_calloc(1, sizeof *wake);
    if (!wake)
        return NULL;
    *wake = (struct br_wake){
        .message.run = wake_on_message, .loop = br_loop_of(host), .fn = fn, .arg = arg};
    return wake;
}

void br_wake_ring(struct br_wake *wake)
{
    struct br_loop *loop = wake->loop;
    pthread_mutex_lock(&loop->lock);
    if (!wake->queued) {
        wake->queued = true;
        br_list_append(&loop->mailbox, &wake->message.link);
        loop->n_mail++;
        uv_async_send(&loop->doorbell);
    }
    pthread_mutex_unlock(&loop->lock);
}

void br_wake_free(struct br_wake *wake)
{
    if (!wake)
        return;
    pthread_mutex_lock(&wake->loop->lock);
    if (wake->queued) {
        br_list_remove(&wake->message.link);
        wake->loop->n_mail--;
    }
    pthread_mutex_unlock(&wake->loop->lock);
    br_free(wake);
}
