/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The balancer divides each request into parcels, one for each backend, and sends each parcel to
 * its backend. A backend gets all traces whose ids it owns on the hash ring. The parcels are the
 * child items of the request (br_item_adopt).
 *
 * States of a parcel:
 *
 * | state   | event                                       | next state                         |
 * |---------|---------------------------------------------|------------------------------------|
 * | (none)  | its backend fails and has too many parcels  | finished as BR_RETRY               |
 * | (none)  | otherwise                                   | waiting                            |
 * | waiting | fewer than num_consumers requests in flight | sent                               |
 * | waiting | the list of backends changes                | divided again                      |
 * | sent    | accepted or rejected by the backend         | finished                           |
 * | sent    | failed temporarily, or no response          | sent again after a delay (retry.c) |
 * | sent    | retries expired, list of backends unchanged | finished as BR_RETRY               |
 * | sent    | retries expired, list of backends changed   | divided again                      |
 *
 * If a parcel finishes as BR_RETRY and another parcel of the request was accepted, the request
 * finishes as a partial success. Behind a durable queue, the request finishes as BR_RETRY instead,
 * so that it stays in the queue's log. The number of parcels of a failing backend is then
 * unlimited, because the durable queue limits the requests in memory.
 *
 * When the list of backends changes, retries end immediately, but requests in flight continue. Data
 * is therefore sent to another backend only after the attempt to send it to the old backend has
 * failed. A backend that is no longer in the list is freed when it has no parcels left.
 */
#pragma once

#include "base/list.h"
#include "egress/otlp/grpc.h"
#include "exporters/load_balancing/ring.h"
#include "otlp/divide/divide.h"

#define LOAD_BALANCING_BACKENDS_MAX 1024u
/* maximum size of an endpoint in bytes, with the terminating NUL */
#define LOAD_BALANCING_ENDPOINT_SIZE 512

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
    /* the backends on the ring; load_balancing_point.backend is an index into this array */
    struct load_balancing_backend **backends;
    uint32_t n_backends;
    /* list of backends that are no longer on the ring but still have parcels */
    struct br_list leaving;
    /* list of items that cannot be divided yet, because no backend is known or memory is short */
    struct br_list unrouted;
    /* fires when the unrouted items are to be divided again; parked otherwise */
    struct br_timer again;
    struct br_deferred clean; /* callback that frees the leaving backends without parcels */
    uint64_t generation;      /* number of times that the list of backends has changed */
    unsigned consumers;       /* this worker's share of config.consumers */
    size_t backend_max;       /* maximum total weight of a failing backend's parcels */
    bool durable;             /* the exporter's queue is durable */
    bool stopping; /* load_balancing_stop_retries was called; failed parcels are not sent again */
    bool closing;
};

/* Initializes a zeroed balancer without backends. Returns false if memory is short. The caller may
 * call load_balancing_release in both cases. */
bool load_balancing_init(struct load_balancing *balancer, struct br_node *node,
                         const struct load_balancing_config *config);

/* Writes the endpoint of the backend `name` to `out`. Appends the port 4317 if `name` contains no
 * port. Truncates an endpoint that is too long for `out`. */
void load_balancing_add_port(const char *name, char out[LOAD_BALANCING_ENDPOINT_SIZE]);

/* Replaces the list of backends. `names` must be sorted and contain no duplicates. A name without a
 * port gets the port 4317. Only the first LOAD_BALANCING_BACKENDS_MAX names are used. Returns 0,
 * BR_ENOMEM or an error of br_host_ops.connect, with a message in `err`. On failure, the list of
 * backends does not change. */
int load_balancing_set_backends(struct load_balancing *balancer, const char *const *names,
                                uint32_t count, struct br_err *err);

/* Divides an item into parcels and sends them. Takes the item, which is a request, or a parcel that
 * must be sent to another backend. */
void load_balancing_route(struct load_balancing *balancer, struct br_item *item);

/* Schedules another attempt to divide the unrouted items and to send the waiting parcels. Called
 * when memory is short. */
void load_balancing_again(struct load_balancing *balancer);

/* Frees the leaving backends that have no parcels, at the end of the loop iteration. */
void load_balancing_clean(struct load_balancing *balancer);

/* Finishes unrouted items with BR_RETRY if they are older than `max_elapsed_time` of
 * retry_on_failure, or if retries are disabled. */
void load_balancing_expire(struct load_balancing *balancer);

/* Finishes all items that wait for a retry or are unrouted with BR_RETRY. After this call, a parcel
 * that fails is not retried and also finishes with BR_RETRY. */
void load_balancing_stop_retries(struct load_balancing *balancer);

/* Finishes all items with BR_RETRY and frees the backends. */
void load_balancing_release(struct load_balancing *balancer);
