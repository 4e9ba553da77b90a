/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores, by name, objects that all workers of a service share, for example the join's table. Nodes
 * and these objects are created and destroyed while only one thread runs. The store has no lock;
 * each object does its own locking.
 */
#pragma once

#include "core/host.h"

struct br_shared;

struct br_shared *br_shared_new(void);
/* Frees the store of shared objects. All objects must have been released. */
void br_shared_free(struct br_shared *shared);

/* Returns the object that is shared under that name. The first call creates it with `make(arg)`.
 * Each call takes one reference. Returns NULL if `make` returned NULL or if memory is short. If
 * host->shared is NULL, each call creates an object. */
void *br_shared_get(struct br_host *host, const char *name, void *(*make)(const void *arg),
                    const void *arg);

/* Releases a reference to `thing`. Calls `release(thing)` if it was the last reference. */
void br_shared_put(struct br_host *host, void *thing, void (*release)(void *thing));
