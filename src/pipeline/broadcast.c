/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/broadcast.h"

#include "base/mem.h"

static void at_home(struct br_broadcast *e)
{
    e->visit(e, e->home);
    e->done(e, e->home);
}

static void on_deferred(struct br_deferred *d)
{
    at_home(br_container_of(d, struct br_broadcast, deferred));
}

/* Downwards, because that is the order in which mail is read for the last time: an broadcast that is
 * under way at the end still comes home. */
static void on_message(struct br_message *m, struct br_loop *loop)
{
    struct br_broadcast *e = br_container_of(m, struct br_broadcast, message);
    struct br_host *host = br_loop_host(loop);
    if (host == e->home) {
        at_home(e);
        return;
    }
    e->visit(e, host);
    br_loop_command(host->loops[host->worker - 1], m);
}

bool br_broadcast_send(struct br_broadcast *e, struct br_host *home)
{
    e->home = home;
    if (!home->loops) {
        e->deferred = (struct br_deferred){0};
        br_host_defer(home, &e->deferred, on_deferred);
        return true;
    }
    e->message.run = on_message;
    return br_loop_post(home->loops[home->n_workers - 1], &e->message);
}
