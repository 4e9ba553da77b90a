/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types and functions of listeners and servers, for use in src/net only. A listener is a listening
 * socket, owned by the first worker. A listener distributes connections to the servers of all
 * workers.
 */
#pragma once

#include "base/map.h"
#include "net/net_internal.h"
#include "net/server.h"

/* --- Listeners (listener.c) ------------------------------------------------------------------- */

#define BR_WORKERS_MAX 256

struct br_net_server;

/* The client address by which connections are counted: an IPv4 address, or the first 64 bits of an
 * IPv6 address. All IPv6 addresses that begin with the same 64 bits belong to one site. */
struct br_client_address {
    uint8_t bytes[16];
    bool known; /* true if the client has an IP address; false for unix sockets */
};

/* An accepted socket that has not been assigned to a server's connections yet. */
struct br_arrival {
    int fd;
    char peer[64]; /* the client's address as text */
    struct br_client_address address;
    enum br_over_limit { BR_OVER_NONE, BR_OVER_SERVER, BR_OVER_ADDRESS } over_limit;
    /* number of servers visited or skipped so far in the search for an idle connection */
    unsigned n_visited;
    /* br_peer.since_ns of the oldest idle connection found so far; UINT64_MAX: none was found */
    uint64_t oldest_ns;
    unsigned oldest_at; /* index of the worker that owns the connection of `oldest_ns` */
};

struct br_listener {
    struct br_list link; /* entry in net->listeners */
    struct br_loop *loop;
    uv_poll_t poll;
    int fd;
    unsigned port;
    char name[160];
    char endpoint[300];  /* the endpoint as configured */
    unsigned generation; /* br_host.generation when the listener was opened */
    /* the socket stays open when the listener closes (br_net_take_passed, br_net_keep_sockets) */
    bool passed;
    /* path of a unix socket, which is unlinked when the listener closes; "" for TCP */
    char path[108];
    bool open;
    const struct br_log *log;
    /* timer that resumes accepting after a shortage of descriptors or memory */
    struct br_timer again;
    /* limits the rate at which failures to accept a connection are logged */
    struct br_log_limit log_limit;
    /* the servers, indexed by worker; set before threads start */
    struct br_net_server *targets[BR_WORKERS_MAX];
    unsigned n_targets, next;
    /* maximum number of connections of all workers, and per client address; 0: no limit */
    unsigned max, max_per_address;
    pthread_mutex_t lock; /* protects `addresses`, which all workers use */
    /* number of connections per client address; NULL if `max_per_address` is 0 */
    struct br_map *addresses;
};

/* Opens the listening socket in the first worker's loop. Returns 0, or BR_EINVAL, BR_EIO or
 * BR_ENOMEM with a message in `err`. */
int br_listener_open(struct br_loop *loop, const struct br_server_config *config,
                     struct br_listener **ret, struct br_err *err);

struct addrinfo;

/* Opens or checks a socket at an address. Returns 0 or an errno value. */
typedef int br_address_fn(void *arg, const struct addrinfo *ai);

/* Resolves "host:port", and calls `attempt` for one address after the other until it returns 0.
 * `verb` is the purpose for messages, such as "listen on". Returns 0, or BR_EINVAL or BR_EIO with a
 * message in `err`. */
int br_net_try_addresses(const char *endpoint, const char *verb, br_address_fn *attempt, void *arg,
                         struct br_err *err);

/* Creates a socket of a type of socket(2) and binds it to an address. An IPv6 socket for all
 * interfaces accepts IPv4 as well. Returns the descriptor, or -1 with an error in errno. */
int br_net_bind(int type, const struct sockaddr *addr, socklen_t len);

/* Returns the listener of the servers called `name`, or NULL. */
struct br_listener *br_listener_find(struct br_net *net, const char *name);

/* Stops accepting connections. Must be called in the first worker. */
void br_listener_stop(struct br_listener *listener);

/* Removes a worker's server from the listener. Frees the listener when its last server has left. */
void br_listener_leave(struct br_listener *listener, struct br_net_server *server);

/* Hands a new connection to a server of this or another worker. The connection is added to the
 * connection count of the receiving server at once. During the search for an idle connection the
 * new connection is not counted, because many new connections would then count against each other.
 * May be called in any worker. */
void br_listener_hand_over(struct br_net_server *server, const struct br_arrival *arrival);

/* Returns true if a connection limit is exceeded. The new connection must already be counted.
 * May be called in any worker. */
bool br_listener_is_full(struct br_listener *listener, const struct br_arrival *arrival);

/* --- Servers (server.c) ----------------------------------------------------------------------- */

struct br_net_server {
    struct br_server base;
    struct br_loop *loop;
    struct br_listener *listener;
    struct br_server_config config;
    /* handler to which requests are passed first: the gate or, if the server has no gate, the
     * handler given to br_net_serve */
    struct br_handler *service;
    struct br_gate gate;
    struct br_tls_context *tls;
    /* periodic reload of the TLS files; NULL if the TLS files are never reloaded */
    struct br_tls_reload *tls_reload;
    /* streams of all connections, ordered by their last request, least recent first */
    struct br_list streams;
    /* br_peer.since_ns of the first stream in `streams`; UINT64_MAX if there is no stream or no
     * connection limit */
    _Atomic uint64_t oldest_ns;
    /* number of connections, including connections handed over to this worker and not yet
     * accepted */
    _Atomic unsigned load;
    double *connections; /* value of the metric `braid_server_connections` */
    double *closed[BR_ENDINGS];
    struct br_timer sweep;
    uint64_t sweep_ms, stop_ms;
    /* time, in milliseconds, within which a client must make progress in reading a response */
    uint64_t reading_ms;
    /* time, in milliseconds, within which `body_progress` bytes of a body must arrive */
    uint64_t body_ms;
    size_t body_progress;
    bool stopping, stopped;
    /* the process goes on after the server has stopped, so that connections need not end at once */
    bool gentle;
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;
    struct br_deferred report;
    struct br_log_limit refusals, complaints;
};

/* The state of one connection of a server. A struct br_peer owns the connection's stream. */
struct br_peer {
    char name[64];
    struct br_client_address address;
    struct br_net_server *server;
    uint64_t n_requests; /* number of requests that br_server_note_use has counted so far */
    /* time, by uv_hrtime, of the last request, or of accepting the connection if it had no
     * request; 0 if the server has no connection limit */
    uint64_t since_ns;
    /* last time, in milliseconds by uv_now, at which a request arrived or was in progress */
    uint64_t used_ms;
    /* time at which the PING was sent that is not answered yet; 0: no PING is unanswered */
    uint64_t pinged_ms;
    /* time at which the graceful shutdown of the connection began (GOAWAY); 0: not begun */
    uint64_t retired_ms;
    uint64_t max_age_ms; /* maximum age of this connection; UINT64_MAX: no limit */
};

/* Closes the socket of a rejected connection and subtracts the connection from the connection
 * counts. */
void br_server_drop(struct br_net_server *server, const struct br_arrival *arrival,
                    enum br_ending why);

/* Returns true if the stream has no request or response in progress. A stream whose protocol has
 * not been detected yet is idle too. */
bool br_server_stream_idle(const struct br_stream *stream);

/* Accepts a new connection in the loop of `server`, or rejects the connection. */
void br_server_take(struct br_net_server *server, const struct br_arrival *arrival);

/* Returns the time, by uv_hrtime, of the last request on the server's least recently used
 * connection. Returns UINT64_MAX if the server has no connections. May be called in any thread. */
uint64_t br_server_oldest_ns(struct br_net_server *server);

/* Returns the number of a server's connections. May be called in any thread. */
unsigned br_server_load(struct br_net_server *server);

/* Adds `change` to the number of a server's connections. May be called in any thread. */
void br_server_add_load(struct br_net_server *server, int change);

/* Subtracts a connection from the counts of its server and of its client address. */
void br_server_uncount(struct br_net_server *server, const struct br_client_address *address);
struct br_loop *br_server_loop(struct br_net_server *server);

/* --- Times (server_times.c) ------------------------------------------------------------------- */

/* Replaces the timeouts that are 0 in the config by their defaults, and computes the times that
 * depend on them. */
void br_server_set_times(struct br_net_server *server);

/* Updates the connection's time of last use if a request has arrived or is in progress. */
void br_server_note_use(struct br_stream *stream);

/* Runs periodically: closes connections that exceed a timeout, shuts down idle and old
 * connections, and sends PINGs. Restarts its timer. */
void br_server_sweep(struct br_timer *timer);

/* Runs periodically while a server is stopping: closes each connection on which nothing is in
 * progress. */
void br_server_stop_sweep(struct br_timer *timer);

/* --- Limits (server_limits.c) ----------------------------------------------------------------- */

/* Moves a stream to the end of the eviction order, because the stream is new or has received a
 * request. */
void br_server_put_last(struct br_net_server *server, struct br_stream *stream);

/* Removes a stream from the eviction order. */
void br_server_forget(struct br_net_server *server, struct br_stream *stream);

/* Searches for an idle connection to evict in favor of a new connection. Searches all connections
 * of the listener or, if the limit per address was exceeded, the connections of the client's
 * address. Returns true if the longest idle connection belonged to this worker and was closed.
 * Returns false if the new connection was handed over to another worker, or was rejected because no
 * connection is idle. */
bool br_server_evict_idle(struct br_net_server *server, const struct br_arrival *arrival);

/* Rejects a new connection while the process is above its memory limit, unless the server has
 * few connections. Returns true if the connection was rejected. */
bool br_server_refuse_over(struct br_net_server *server, const struct br_arrival *arrival);

/* Adds one to the connection count of an address and stores the new count in `*ret`. If
 * addresses are not counted, stores 0. Returns false if memory is short. May be called in any
 * worker. */
bool br_listener_note_address(struct br_listener *listener, const struct br_client_address *address,
                              unsigned *ret);

/* Subtracts one from the connection count of an address. May be called in any worker. */
void br_listener_forget_address(struct br_listener *listener,
                                const struct br_client_address *address);

/* Returns the connection count of an address. May be called in any worker. */
unsigned br_listener_address_count(struct br_listener *listener,
                                   const struct br_client_address *address);

/* Makes the servers with the most connections close up to `count` idle connections each, because
 * descriptors are running out. Must be called in the first worker. */
void br_net_shed(struct br_loop *here, unsigned count);
