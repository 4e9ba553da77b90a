/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resolver finds the backends of a balancer: a fixed list, the addresses of a host name, or the
 * lines of a file. Names and files are read again after each interval, in a thread of the pool. If
 * that fails, the balancer keeps its backends.
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

/* The options of a resolver; one of the pointers is not NULL. */
struct load_balancing_resolver_config {
    struct load_balancing_static *fixed;
    struct load_balancing_dns *dns;
    struct load_balancing_file *file;
};

/* A list of the names of backends, sorted and without duplicates. */
struct load_balancing_names {
    char **items;
    uint32_t count, cap;
};

struct load_balancing_lookup;

struct load_balancing_resolver {
    struct load_balancing *balancer;
    const struct load_balancing_resolver_config *config;
    struct load_balancing_names names;    /* the backends of the balancer */
    struct load_balancing_lookup *lookup; /* lookup in a thread; NULL: none is running */
    bool late;                            /* the lookup has exceeded the timeout */
    struct br_timer next, timeout;
    /* metrics, in the first worker only; NULL in the others, which have the same backends */
    double *n_backends, *n_updates, *succeeded, *failed;
    struct br_log_limit limit;
};

/* Starts a zeroed resolver, and sets the backends of a fixed list. `balancer` and `config` are
 * borrowed. Returns 0, or BR_ENOMEM with a message in `err`; load_balancing_resolver_stop may be
 * called even then. */
int load_balancing_resolver_start(struct load_balancing_resolver *resolver,
                                  struct load_balancing *balancer,
                                  const struct load_balancing_resolver_config *config,
                                  struct br_err *err);

/* Stops the resolver and waits for its thread. Accepts a zeroed resolver. */
void load_balancing_resolver_stop(struct load_balancing_resolver *resolver);
