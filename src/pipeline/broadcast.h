/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A broadcast sends a request of a component in the first worker to every worker, to set an
 * override or to query the current state. One message goes from worker to worker, from the last to
 * the first. In each worker only the thread of that worker handles it, so the broadcast's memory
 * needs no lock, and answers are collected there.
 */
#pragma once

#include "core/host.h"
#include "net/loop.h"

/* A request that visits all workers, a member of a structure that the sender has allocated. */
struct br_broadcast {
    /* Called in the thread of every worker, between two calls into the graph. */
    void (*visit)(struct br_broadcast *broadcast, struct br_host *host);
    /* Called in the first worker after its `visit`. From then on the sender owns the broadcast
     * again. Also called at shutdown. It is always called before nodes are destroyed, except in
     * tests without loops. */
    void (*done)(struct br_broadcast *broadcast, struct br_host *home);
    struct br_host *home; /* the other fields are set by br_broadcast_send */
    struct br_message message;
    struct br_deferred deferred;
};

/* Sends the broadcast from the thread of the first worker. `visit` and `done` are called only
 * after this function has returned. If the workers have too many messages, returns false and the
 * caller keeps the broadcast. A host without loops (in tests) is visited at the end of the loop
 * iteration. */
bool br_broadcast_send(struct br_broadcast *broadcast, struct br_host *home);
