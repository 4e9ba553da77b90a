/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps, by name, the things that all workers of a service share: the join's table is one. Made and
 * given up while a single thread runs (nodes are created and destroyed then); what is inside takes
 * care of its threads.
 */
#pragma once

#include "core/host.h"

struct br_shared;

struct br_shared *br_shared_new(void);
void br_shared_free(struct br_shared *shared); /* everything must have been given up */

/* Returns the thing of that name, made by `make(arg)` for the first who asks; each call is one
 * reference. NULL when `make` returned NULL or there is no memory. Without host->shared every call
 * makes its own. */
void *br_shared_get(struct br_host *host, const char *name, void *(*make)(const void *arg),
                    const void *arg);

/* Gives a reference back; the last one releases the thing. */
void br_shared_put(struct br_host *host, void *thing, void (*release)(void *thing));
