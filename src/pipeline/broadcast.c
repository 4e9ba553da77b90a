/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/broadcast.h"

#include "base/mem.h"

static void broadcast_at_home(struct br_broadcast *broadcast)
{
    broadcast->visit(broadcast, broadcast->home);
    broadcast->done(broadcast, broadcast->home);
}

static void broadcast_on_deferred(struct br_deferred *deferred)
{
    broadcast_at_home(br_container_of(deferred, struct br_broadcast, deferred));
}

/* Visits the workers from the last to the first. At shutdown the workers process their remaining
 * messages in the same order, so a broadcast that has begun is still completed. */
static void broadcast_on_message(struct br_message *message, struct br_loop *loop)
{
    struct br_broadcast *broadcast = br_container_of(message, struct br_broadcast, message);
    struct br_host *host = br_loop_host(loop);
    if (host == broadcast->home) {
        broadcast_at_home(broadcast);
        return;
    }
    broadcast->visit(broadcast, host);
    br_loop_command(host->loops[host->worker - 1], message);
}

bool br_broadcast_send(struct br_broadcast *broadcast, struct br_host *home)
{
    broadcast->home = home;
    if (!home->loops) {
        broadcast->deferred = (struct br_deferred){0};
        br_host_defer(home, &broadcast->deferred, broadcast_on_deferred);
        return true;
    }
    broadcast->message.run = broadcast_on_message;
    return br_loop_post(home->loops[home->n_workers - 1], &broadcast->message);
}
