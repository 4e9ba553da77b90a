/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A broadcast sends a request of a component in the first worker to every worker, to set an
 * override or to query the current state. One message goes from worker to worker, from the last to
 * the first. In each worker only the thread of that worker uses the broadcast's memory. Therefore
 * the broadcast's memory needs no lock, and the workers collect their answers in it.
 */
#pragma once

#include "core/host.h"
#include "net/loop.h"

/* A request that visits all workers; a member of a structure that the sender has allocated. */
struct br_broadcast {
    /* Called in the thread of every worker, between two calls into the graph. */
    void (*visit)(struct br_broadcast *broadcast, struct br_host *host);
    /* Called in the first worker after its `visit`. From then on the sender owns the broadcast
     * again. `done` is also called at shutdown, always before nodes are destroyed. Only in tests
     * without loops, nodes can be destroyed first. */
    void (*done)(struct br_broadcast *broadcast, struct br_host *home);
    struct br_host *home; /* br_broadcast_send sets this field and the following ones */
    struct br_message message;
    struct br_deferred deferred;
};

/* Sends the broadcast from the thread of the first worker. `visit` and `done` are called only
 * after this function has returned. If too many messages are queued for the workers, returns
 * false and the caller keeps the broadcast. In tests, a host without loops is visited at the end
 * of the loop iteration. */
bool br_broadcast_send(struct br_broadcast *broadcast, struct br_host *home);
