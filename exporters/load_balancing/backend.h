/* SPDX-License-Identifier: Apache-2.0 */
/* One backend of a balancer, and the parcels for it. */
#pragma once

#include "exporters/load_balancing/balancer.h"

struct load_balancing_parcel {
    struct br_list link;
    struct load_balancing_backend *backend;
    struct br_item *item;
    size_t weight;       /* size of the request that contains the parcel, in units of the queue */
    uint64_t generation; /* generation of the balancer in which the parcel was made */
};

struct load_balancing_backend {
    struct br_list link; /* in load_balancing.leaving */
    struct load_balancing *balancer;
    char *endpoint; /* with a port */
    char *log_name;
    struct br_node node; /* the exporter's node with the log and the retries of the backend */
    struct br_otlp_grpc grpc;
    struct br_retry *retry;
    struct br_consumer sender; /* makes one attempt to send a parcel; called by `retry` */
    struct br_list waiting;    /* list of struct load_balancing_parcel that are not sent yet */
    unsigned n_parcels, n_sending;
    size_t weight; /* sum of the weights of all parcels */
    bool leaving;  /* the backend is not in the ring any more */
    bool failing;  /* the last request failed temporarily, or was not answered */
    double *succeeded, *failed;
    struct br_histogram *latency;
};

/* Returns a backend for an endpoint with a port, or NULL with an error in `err`. */
struct load_balancing_backend *load_balancing_backend_new(struct load_balancing *balancer,
                                                          const char *endpoint, struct br_err *err);

/* Takes a parcel with its item. Ends the item with BR_RETRY if the backend is failing
 * and has too many parcels. */
void load_balancing_backend_add(struct load_balancing_backend *backend,
                                struct load_balancing_parcel *parcel);

/* Sends waiting parcels, up to the limit of concurrent requests. */
void load_balancing_backend_send(struct load_balancing_backend *backend);

/* Divides the waiting parcels again, and those that wait for a retry. Called after the list of
 * backends has changed. */
void load_balancing_backend_return(struct load_balancing_backend *backend);

/* Finishes all parcels with BR_RETRY and frees the backend. Runs the host's callbacks. Accepts
 * NULL. */
void load_balancing_backend_free(struct load_balancing_backend *backend);
