/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store for named objects that all workers of a service share, for example the table of `join`.
 * The store has no lock, because nodes and shared objects are created and destroyed while only one
 * thread runs. Each object must protect its own data with locks.
 */
#pragma once

#include "core/host.h"

struct br_shared;

struct br_shared *br_shared_new(void);
/* Frees the store of shared objects. All objects must have been released. */
void br_shared_free(struct br_shared *shared);

/* Returns the shared object with this name. The first call creates it with `make(arg)`. Each call
 * takes one reference. Returns NULL if `make` returned NULL or if memory is short. If host->shared
 * is NULL, each call creates an object. */
void *br_shared_get(struct br_host *host, const char *name, void *(*make)(const void *arg),
                    const void *arg);

/* Releases a reference to `thing`. Calls `release(thing)` if it was the last reference. */
void br_shared_put(struct br_host *host, void *thing, void (*release)(void *thing));
