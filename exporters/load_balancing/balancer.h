/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The balancer divides requests into parcels, each for the backend that owns its traces, and sends
 * the parcels. The parcels of a request are its pieces (br_item_adopt).
 *
 * States of a parcel:
 *
 * | state   | event                                       | next state                         |
 * |---------|---------------------------------------------|------------------------------------|
 * | (none)  | its backend fails and holds too much        | ended as BR_RETRY                  |
 * | (none)  | otherwise                                   | waiting                            |
 * | waiting | less than num_consumers parcels are sent    | sent                               |
 * | waiting | the list of backends changes                | divided again                      |
 * | sent    | accepted, or rejected for good              | ended                              |
 * | sent    | refused or no answer                        | sent again after a delay (retry.c) |
 * | sent    | retries have ended, same list of backends   | ended as BR_RETRY                  |
 * | sent    | retries have ended, another list since      | divided again                      |
 *
 * If a parcel ends as BR_RETRY and another one was accepted, the request ends as a partial success.
 * Behind a durable queue it ends as BR_RETRY, so that it stays in the log, and its backend has no
 * limit: the durable queue limits the requests in memory.
 *
 * When the list of backends changes, retries end at once, and requests in flight go on. Data is
 * therefore sent to another backend only after its own backend has failed to take it. A backend
 * that is not in the list any more is freed after its last parcel.
 */
#pragma once

#include "base/list.h"
#include "egress/otlp/grpc.h"
#include "exporters/load_balancing/ring.h"
#include "otlp/divide/divide.h"

#define LOAD_BALANCING_BACKENDS_MAX 1024u
#define LOAD_BALANCING_ENDPOINT_SIZE 512 /* bytes of an endpoint with its terminator */

struct load_balancing_backend;

struct load_balancing_config {
    enum br_route route;
    const struct br_otlp_grpc_config *otlp;
    /* number of concurrent requests to each backend, for all workers together */
    int64_t consumers;
};

struct load_balancing {
    struct br_node *node;
    struct load_balancing_config config;
    struct load_balancing_ring ring;
    /* the backends of the ring, by their index in the ring */
    struct load_balancing_backend **backends;
    uint32_t n_backends;
    struct br_list leaving; /* list of backends that are not in the ring any more */
    /* list of requests and parcels that cannot be divided yet, because no backend is known or
     * memory is short */
    struct br_list unrouted;
    struct br_timer again;    /* fires when unrouted requests are tried again; parked otherwise */
    struct br_deferred clean; /* frees leaving backends without parcels */
    uint64_t generation;      /* number of changes of the list of backends */
    unsigned consumers;       /* this worker's share of config.consumers */
    size_t backend_max;       /* size of the requests for one backend, in units of the queue */
    bool durable;             /* the queue in front of the balancer is durable */
    bool stopping;            /* failed parcels are not sent again (load_balancing_stop_retries) */
    bool closing;
};

/* Initializes a zeroed balancer without backends. Returns false if memory is short;
 * load_balancing_release may be called even then. */
bool load_balancing_init(struct load_balancing *balancer, struct br_node *node,
                         const struct load_balancing_config *config);

/* Writes the endpoint of the backend `name`: the name, with the port 4317 if it has no port. A
 * longer endpoint is cut. */
void load_balancing_add_port(const char *name, char out[LOAD_BALANCING_ENDPOINT_SIZE]);

/* Replaces the list of backends. `names` are sorted and different; a name without a port gets
 * the port 4317. At most LOAD_BALANCING_BACKENDS_MAX names are used. Returns 0, BR_ENOMEM
 * or the errors of br_host_ops.connect, with a message in `err`. On failure the old list stays. */
int load_balancing_set_backends(struct load_balancing *balancer, const char *const *names,
                                uint32_t count, struct br_err *err);

/* Takes a request, or a parcel whose backend has changed. */
void load_balancing_route(struct load_balancing *balancer, struct br_item *item);

/* Routes the unrouted requests again, and sends waiting parcels, after a short time. Called when
 * memory is short. */
void load_balancing_again(struct load_balancing *balancer);

/* Frees the leaving backends without parcels, at the end of the loop iteration. */
void load_balancing_clean(struct load_balancing *balancer);

/* Ends the unrouted requests that are older than `max_elapsed_time` of retry_on_failure with
 * BR_RETRY. */
void load_balancing_expire(struct load_balancing *balancer);

/* Ends waiting retries and unrouted requests with BR_RETRY, and later also each parcel that
 * fails. */
void load_balancing_stop_retries(struct load_balancing *balancer);

/* Finishes all requests with BR_RETRY and frees the backends. */
void load_balancing_release(struct load_balancing *balancer);
