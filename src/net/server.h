/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server listens at one endpoint, speaks HTTP/1.1 and HTTP/2 (prior knowledge, or ALPN over TLS)
 * and passes requests to a handler. Each worker has a server with the same name. The first worker
 * owns the listening socket and hands each new connection to the worker with the fewest
 * connections.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "core/host.h"
#include "net/gate.h"
#include "net/tls.h"
#include "wire/conn.h"

struct br_server_config {
    /* name of the listener, the same on all workers, such as "receiver/otlp grpc" */
    const char *name;
    const char *what; /* name for the endpoint in log messages, such as "grpc" */
    /* address to listen at, such as "localhost:4317"; port 0 selects a free port */
    const char *endpoint;
    const char *transport; /* NULL, "tcp" or "unix"; with "unix", `endpoint` is a path */
    /* TLS settings, borrowed until the server is freed; NULL: plaintext */
    const struct br_tls_config *tls;
    struct br_gate_config gate; /* authentication of requests; all zero: no authentication */
    /* the handler itself authenticates requests, or none of its responses needs protection; if
     * false, the server warns if other machines can send requests without authentication */
    bool guarded;
    struct br_conn_limits limits;
    /* close a connection after it had no request for this number of milliseconds; 0: never */
    uint64_t idle_timeout_ms;
    /* time limit, from accepting a connection, for the detection of its protocol; 0: 10 s, or
     * first_request_timeout_ms if that is less */
    uint64_t handshake_timeout_ms;
    /* time limit for a request without progress (struct br_progress), and for a whole HTTP/1.1
     * head; 0: 30 s. For a response that the client does not read, the limit is request_timeout_ms
     * or 20 s, whichever is less. */
    uint64_t request_timeout_ms;
    /* minimum bytes per second of a body, averaged over 10 s or request_timeout_ms, whichever is
     * less; 0: 1024; negative: no minimum */
    int64_t min_body_rate;
    /* time limit, from accepting a connection, for the head of its first request; 0: 20 s */
    uint64_t first_request_timeout_ms;
    /* how long the server waits for the client to close after the last response of a connection;
     * 0: 2 s */
    uint64_t linger_timeout_ms;
    /* how long a stopping server waits for clients to complete requests and read responses; 0: 5
     * s. The server waits without a limit for requests that are in the pipeline. */
    uint64_t stop_timeout_ms;
    uint64_t max_age_ms; /* maximum age of a connection, varied by 10 % at random; 0: no limit */
    /* time within which requests in progress must finish after max_age_ms; 0: no limit */
    uint64_t max_age_grace_ms;
    /* HTTP/2: send a PING if nothing was received for this number of milliseconds; 0: never */
    uint64_t ping_time_ms;
    uint64_t ping_timeout_ms; /* how long the server waits for the answer to a PING; 0: 20 s */
    /* Maximum number of connections of all workers together. Above this number, a new connection
     * evicts the connection that has been idle longest. If no connection is idle, the new
     * connection is rejected. 0: no limit. */
    unsigned max_connections;
    /* maximum number of connections per client address, or per /64 network for IPv6 */
    unsigned max_connections_per_address;
    const struct br_log *log;
};

/* The address at which a server would listen. */
struct br_server_place {
    char name[160];
    char path[108];      /* path of a unix socket; "" for TCP */
    uint8_t address[16]; /* the IP address; an IPv4 address is in the first four bytes */
    bool v6, every_interface;
    bool udp;      /* the address is for packets (br_udp_check) */
    bool taken;    /* another process already listens at this address */
    bool unknown;  /* the check failed because this machine cannot resolve the host name */
    unsigned port; /* the port; 0 if any free port is used, and for unix sockets */
};

/* Checks whether a server with this config could start here: the certificates must load, the name
 * must resolve, and the address must belong to this machine. A port that is in use sets `taken` and
 * is not an error. Does not listen, so other processes cannot connect. Returns 0, or BR_EINVAL,
 * BR_EIO or BR_ENOMEM with a message in `err`. Sets `*ret` also after a failure. */
int br_server_check(const struct br_server_config *config, struct br_server_place *ret,
                    struct br_err *err);

/* Returns true if servers at the addresses `one` and `other` cannot run at the same time. */
bool br_server_places_clash(const struct br_server_place *one, const struct br_server_place *other);

/* The operations of a server. Tests provide their own implementation of these operations. */
struct br_server_ops {
    void (*stop)(struct br_server *server, void (*on_stopped)(void *arg), void *arg);
    void (*free)(struct br_server *server);
    unsigned (*port)(struct br_server *server);
};

struct br_server {
    const struct br_server_ops *ops;
};

/* Stops a server: closes the listening socket, lets requests in progress finish, and closes
 * connections as they become idle. If the process continues to run (br_host.draining is false),
 * clients first get stop_timeout_ms to change to other connections, and their requests are
 * answered. When all connections are closed, calls `on_stopped` once, after br_server_stop has
 * returned. Must be called exactly once for each server. */
static inline void br_server_stop(struct br_server *server, void (*on_stopped)(void *arg),
                                  void *arg)
{
    server->ops->stop(server, on_stopped, arg);
}

/* Closes the remaining connections and frees the server. For each unfinished request, the
 * handler's `gone` is called. Must not be called from a callback of an unfinished request.
 * Accepts NULL. */
static inline void br_server_free(struct br_server *server)
{
    if (server)
        server->ops->free(server);
}

/* Returns the port at which the server listens; 0 for unix sockets. */
static inline unsigned br_server_port(struct br_server *server)
{
    return server->ops->port(server);
}
