/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A broadcast carries a request of a component in the first worker to every worker: to set an
 * override, or to ask what is under way. One message goes from worker to worker, from the last to
 * the first. At each worker only that worker's thread handles it, so the broadcast's own memory
 * needs no lock, and answers are gathered in it.
 */
#pragma once

#include "core/host.h"
#include "net/loop.h"

/* A member of what the sender allocated. */
struct br_broadcast {
    /* In every worker's thread, between two calls into the graph. */
    void (*visit)(struct br_broadcast *broadcast, struct br_host *host);
    /* In the first worker's, after its visit: from then on the broadcast is the sender's again.
     * Also when the end has begun, and always before nodes are destroyed, but for a sender that
     * waits without loops (a test). */
    void (*done)(struct br_broadcast *broadcast, struct br_host *home);
    struct br_host *home; /* the rest is set by br_broadcast_send */
    struct br_message message;
    struct br_deferred deferred;
};

/* Sends the broadcast, from the first worker's thread; visit and done never run before the return.
 * False when the workers have too much to do: it stays the caller's. A host without loops of others
 * (a test's) is all there is to visit, at the end of the turn. */
bool br_broadcast_send(struct br_broadcast *broadcast, struct br_host *home);
