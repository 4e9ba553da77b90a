/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A broadcast runs a function in every worker, for example to apply an override or to query the
 * current state. A component in the first worker starts the broadcast. One message passes from
 * worker to worker, from the last to the first. Only the thread that currently has the message uses
 * the broadcast's memory, so the workers can collect their answers there without a lock.
 */
#pragma once

#include "core/host.h"
#include "net/loop.h"

/* A broadcast. The sender embeds this struct in a struct of its request. */
struct br_broadcast {
    /* Called in the thread of every worker, while no component of that worker is running. */
    void (*visit)(struct br_broadcast *broadcast, struct br_host *host);
    /* Called in the first worker after its `visit`, and returns the broadcast to the sender. At
     * shutdown, `done` is called before nodes are destroyed, except in tests without event
     * loops. */
    void (*done)(struct br_broadcast *broadcast, struct br_host *home);
    struct br_host *home; /* set by br_broadcast_send, like the following fields */
    struct br_message message;
    struct br_deferred deferred;
};

/* Sends the broadcast. Must be called in the thread of the first worker. `visit` and `done` are
 * called only after this function has returned. Returns false if the message queue of the last
 * worker is full; `visit` and `done` are then not called. In tests without event loops, `visit` and
 * `done` are called at the end of the loop iteration. */
bool br_broadcast_send(struct br_broadcast *broadcast, struct br_host *home);
