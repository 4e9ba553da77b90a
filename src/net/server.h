/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server listens at one endpoint, speaks HTTP/1.1 and HTTP/2 (prior knowledge, or ALPN over TLS),
 * and hands requests to a handler. Every worker has one for the same name; the first worker owns
 * the listening socket and gives each new connection to the worker with the fewest.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "core/host.h"
#include "net/tls.h"
#include "wire/conn.h"

struct br_server_config {
    const char *name;                /* equal on all workers: "receiver/otlp grpc" */
    const char *what;                /* for the log: "grpc" */
    const char *endpoint;            /* "localhost:4317"; port 0 takes a free one */
    const char *transport;           /* NULL or "tcp", "unix" (then endpoint is a path) */
    const struct br_tls_config *tls; /* NULL: plaintext; borrowed for the server's life */
    struct br_conn_limits limits;
    uint64_t idle_timeout_ms;      /* without requests; 0: none */
    uint64_t handshake_timeout_ms; /* from the connection to the protocol's first bytes; 0: 10 s, or
                                      first_request_timeout_ms where that is less */
    uint64_t request_timeout_ms; /* a begun request without progress (wire/conn.h), 20 s at the most
                                    for a reply that nobody reads; the head of an HTTP/1.1 request
                                    as a whole; 0: 30 s */
    int64_t min_body_rate;       /* bytes a second of a body's rest, on an average over 10 s, or
                                    over request_timeout_ms where that is less; 0: 1024;
                                    negative: any */
    uint64_t first_request_timeout_ms; /* from the connection to the head of a request; 0: 20 s */
    uint64_t linger_timeout_ms;        /* for the client to close after our last words; 0: 2 s */
    uint64_t stop_timeout_ms;  /* once stopping, for requests to come in and replies to be read;
                                  0: 5 s. What is in the pipeline by then is waited for. */
    uint64_t max_age_ms;       /* give or take a tenth; 0: none */
    uint64_t max_age_grace_ms; /* after max_age_ms, for requests under way; 0: any time */
    uint64_t ping_time_ms;     /* HTTP/2: without a byte from the client, before a PING; 0: none */
    uint64_t ping_timeout_ms;  /* for its answer; 0: 20 s */
    /* Connections, of all workers. Above it the one that has been idle for the longest makes room;
     * a new one is refused where none is idle. 0: any number. */
    unsigned max_connections;
    unsigned max_connections_per_address; /* IPv6: per network of 64 bits */
    const struct br_log *log;
};

/* Where a server would listen. */
struct br_server_place {
    char name[160];
    char path[108];      /* of a unix socket; "" otherwise */
    uint8_t address[16]; /* IPv4 in its first four bytes */
    bool v6, every_interface;
    bool taken;    /* another process listens there now */
    unsigned port; /* 0: any free one, and for unix sockets */
};

/* Tells whether a server of this config could start here, as far as can be said while others may
 * have its port: certificates load, the name resolves, and the address is this machine's. Opens
 * nothing that others see. Returns 0, BR_EINVAL, BR_EIO or BR_ENOMEM with a sentence. */
int br_server_check(const struct br_server_config *config, struct br_server_place *ret,
                    struct br_err *err);

/* Returns true when not both can listen. */
bool br_server_places_clash(const struct br_server_place *one, const struct br_server_place *other);

/* What a server does; a test's host brings its own. */
struct br_server_ops {
    void (*stop)(struct br_server *server, void (*on_stopped)(void *arg), void *arg);
    void (*free)(struct br_server *server);
    unsigned (*port)(struct br_server *server);
};

struct br_server {
    const struct br_server_ops *ops;
};

/* Stops listening, lets requests under way finish, closes connections as they become idle, then
 * calls `on_stopped` once (later, also when there is none). Once. */
static inline void br_server_stop(struct br_server *server, void (*on_stopped)(void *arg),
                                  void *arg)
{
    server->ops->stop(server, on_stopped, arg);
}

/* Closes what is left and frees the server; services hear `gone`. Not from a callback of one of its
 * requests. Accepts NULL. */
static inline void br_server_free(struct br_server *server)
{
    if (server)
        server->ops->free(server);
}

/* Returns the port it listens on, 0 for unix sockets. */
static inline unsigned br_server_port(struct br_server *server)
{
    return server->ops->port(server);
}
