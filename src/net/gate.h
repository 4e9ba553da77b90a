/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gate is a request handler that runs before the handler of a server. The gate checks the
 * credentials of each request when the headers are complete, before any byte of the body is stored.
 * Only allowed requests are passed on.
 *
 * A request without valid credentials gets 401 with WWW-Authenticate, or UNAUTHENTICATED over gRPC.
 * Failures are counted by client address (br_failures). A request from an address above the limit
 * gets 429 with Retry-After, or RESOURCE_EXHAUSTED with RetryInfo. Valid tokens, and passwords that
 * were valid before, are still accepted from an address above the limit, because several clients
 * may share the address. Other passwords from an address above the limit are rejected without being
 * hashed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cache.h"
#include "base/log.h"
#include "core/authenticator.h"
#include "core/host.h"
#include "wire/request.h"

/* --- Failures by address -----------------------------------------------------------------------
 */

/* number of pairs of entries in a server's table of failures; each entry counts the failures of one
 * address */
#define BR_FAILURES_SETS 512
/* number of recent failures from which on the requests from an address are limited */
#define BR_FAILURES_MAX 10
/* interval, in milliseconds, at which the number of failures of an address decreases by one */
#define BR_FAILURES_FORGIVE_MS 1000

/* The failures of one address: an IPv4 address, or the first 64 bits of an IPv6 address. */
struct br_failure {
    uint8_t address[16];
    /* time, in milliseconds, of the last decrease of `count` (BR_FAILURES_FORGIVE_MS) */
    uint64_t since_ms;
    uint32_t count; /* number of recent failures; 0: the entry is empty */
};

/* A table of recent failures. If the table is full, a new address replaces an older one. */
struct br_failures {
    struct br_cache cache;
    struct br_failure *entries;
};

/* Allocates the table. Returns 0 or BR_ENOMEM. */
int br_failures_init(struct br_failures *failures);
void br_failures_release(struct br_failures *failures);

/* Returns true if the client at `peer`, an address as text with a port, has reached
 * BR_FAILURES_MAX. */
bool br_failures_limited(struct br_failures *failures, const char *peer, uint64_t now_ms);

/* Adds a failure of the client at `peer`. */
void br_failures_add(struct br_failures *failures, const char *peer, uint64_t now_ms);

/* --- Gates -------------------------------------------------------------------------------------
 */

struct br_gate_config {
    const struct br_auth_config *auth; /* the config's block `auth`; NULL: the server has no gate */
    /* Returns true for requests that need no credentials. NULL: all requests need credentials. */
    bool (*is_public)(struct br_handler *handler, const struct br_request *request);
    /* Returns the credentials of a request that has no header with credentials, for example the
     * credentials that belong to its session cookie. Returns NULL if the request has no
     * credentials. `credential` may be NULL. */
    const char *(*credential)(struct br_handler *handler, const struct br_request *request);
};

enum br_gate_reason { BR_GATE_MISSING, BR_GATE_INVALID, BR_GATE_LIMITED, BR_GATE_REASONS };

struct br_gate {
    struct br_handler handler;
    struct br_handler *inner;
    struct br_host *host;
    struct br_gate_config config;
    const struct br_log *log;
    const char *what; /* name of the endpoint in log messages */
    struct br_failures failures;
    double *refused[BR_GATE_REASONS]; /* counters of rejected requests, by reason */
    struct br_log_limit log_limits[BR_GATE_REASONS];
};

/* Initializes a gate in front of `inner`. `name` is the value of the metrics' label `server`;
 * `what` and `log` are borrowed. Returns 0 or BR_ENOMEM. */
int br_gate_init(struct br_gate *gate, struct br_host *host, const struct br_gate_config *config,
                 struct br_handler *inner, const char *name, const char *what,
                 const struct br_log *log);

/* Frees the gate's memory. Accepts a gate that is all zero. */
void br_gate_release(struct br_gate *gate);
