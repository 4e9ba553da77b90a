/* SPDX-License-Identifier: Apache-2.0 */
/* One backend of a balancer, and its parcels: the parts of requests that are sent to this
 * backend. */
#pragma once

#include "exporters/load_balancing/balancer.h"

struct load_balancing_parcel {
    struct br_list link;
    struct load_balancing_backend *backend;
    struct br_item *item;
    /* size of the whole request that the parcel is a part of, in the unit of the queue's sizer */
    size_t weight;
    uint64_t generation; /* value of load_balancing.generation when the parcel was made */
};

struct load_balancing_backend {
    struct br_list link; /* in load_balancing.leaving */
    struct load_balancing *balancer;
    char *endpoint; /* with a port */
    char *log_name;
    /* copy of the exporter's node, with the backend's own log name and retries */
    struct br_node node;
    struct br_otlp_grpc grpc;
    struct br_retry *retry;
    struct br_consumer sender; /* makes one attempt to send a parcel; `retry` calls it */
    struct br_list waiting; /* list of struct load_balancing_parcel whose sending has not started */
    unsigned n_parcels, n_sending;
    size_t weight; /* sum of the weights of the backend's parcels */
    bool leaving;  /* the backend is not in the ring any more */
    bool failing;  /* the last request to the backend failed temporarily or was not answered */
    double *succeeded, *failed;
    struct br_histogram *latency;
};

/* Returns a new backend for an endpoint, which must contain a port. Returns NULL with an error in
 * `err` on failure. */
struct load_balancing_backend *load_balancing_backend_new(struct load_balancing *balancer,
                                                          const char *endpoint, struct br_err *err);

/* Takes a parcel and its item. If the backend is failing and has too many parcels, finishes the
 * item with BR_RETRY. */
void load_balancing_backend_add(struct load_balancing_backend *backend,
                                struct load_balancing_parcel *parcel);

/* Sends waiting parcels until the limit of concurrent requests is reached. */
void load_balancing_backend_send(struct load_balancing_backend *backend);

/* Divides the backend's waiting parcels again, including the parcels that wait for a retry. Called
 * after the list of backends has changed. */
void load_balancing_backend_return(struct load_balancing_backend *backend);

/* Finishes all parcels with BR_RETRY and frees the backend. Runs the callbacks of finished items.
 * Accepts NULL. */
void load_balancing_backend_free(struct load_balancing_backend *backend);
