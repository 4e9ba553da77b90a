/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resolver finds the backends of a balancer: a fixed list, the addresses of a host name, or the
 * lines of a file. A host name is looked up, or a file is read, again after each interval, in a
 * thread of the pool. If a lookup or a read fails, the balancer keeps its backends.
 */
#pragma once

#include "exporters/load_balancing/balancer.h"

struct load_balancing_static {
    struct br_strings hostnames;
};

struct load_balancing_dns {
    const char *hostname, *port;
    uint64_t interval, timeout; /* in nanoseconds */
};

struct load_balancing_file {
    const char *path;
    uint64_t interval; /* in nanoseconds */
};

/* The options of a resolver. Exactly one of the pointers is not NULL. */
struct load_balancing_resolver_config {
    struct load_balancing_static *fixed;
    struct load_balancing_dns *dns;
    struct load_balancing_file *file;
};

/* The names of backends, sorted and without duplicates. */
struct load_balancing_names {
    char **items;
    uint32_t count, cap;
};

struct load_balancing_lookup;

struct load_balancing_resolver {
    struct load_balancing *balancer;
    const struct load_balancing_resolver_config *config;
    struct load_balancing_names names;    /* current names of the balancer's backends */
    struct load_balancing_lookup *lookup; /* running lookup; NULL: none */
    bool late;                            /* the running lookup has exceeded the timeout */
    struct br_timer next, timeout;
    /* metrics of the list; NULL except in the first worker, because all workers have the same
     * list */
    double *n_backends, *n_updates, *succeeded, *failed;
    struct br_log_limit limit;
};

/* Starts a zeroed resolver. Sets the backends at once if the config has a fixed list. Borrows
 * `balancer` and `config` until load_balancing_resolver_stop, which may be called even after a
 * failure. Returns 0, or BR_ENOMEM or an error of br_host_ops.connect with a message in `err`. */
int load_balancing_resolver_start(struct load_balancing_resolver *resolver,
                                  struct load_balancing *balancer,
                                  const struct load_balancing_resolver_config *config,
                                  struct br_err *err);

/* Stops the resolver and waits for its thread. Accepts a zeroed resolver. */
void load_balancing_resolver_stop(struct load_balancing_resolver *resolver);
