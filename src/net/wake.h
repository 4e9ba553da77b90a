/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A wake lets threads of a library notify a worker: any thread rings it, and the worker calls a
 * function soon after. Several rings before that call count as one.
 */
#pragma once

#include "core/host.h"

struct br_wake;

/* Returns a wake that calls `fn(arg)` in the worker of `host`. Returns NULL if memory is short or
 * if the host has no loop. The caller owns the result. */
struct br_wake *br_wake_new(struct br_host *host, void (*fn)(void *arg), void *arg);

/* Notifies the worker, from any thread. */
void br_wake_ring(struct br_wake *wake);

/* Frees a wake, in its worker. No thread may ring the wake any more. Accepts NULL. */
void br_wake_free(struct br_wake *wake);

/* Implements br_host_ops.wake for loops. Returns as br_wake_new does. */
struct br_wake *br_net_wake(struct br_host *host, void (*fn)(void *arg), void *arg);
