/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listening socket, owned by the first worker, that distributes connections to the servers of all
 * workers. Only src/net includes this header.
 */
#pragma once

#include "base/map.h"
#include "net/net_internal.h"
#include "net/server.h"

#define BR_WORKERS_MAX 256

struct br_net_server; /* in server.c: implements struct br_server for one loop */

/* The client address for which connections are counted: an IPv4 address, or the first 64 bits of
 * an IPv6 address, which belong to one site. */
struct br_address {
    uint8_t bytes[16];
    bool known; /* whether the client has an IP address; false for unix sockets */
};

/* An accepted socket that has not been assigned to a server's connections yet. */
struct br_arrival {
    int fd;
    char peer[64]; /* the client's address as text */
    struct br_address address;
    enum br_over_limit { BR_OVER_NONE, BR_OVER_SERVER, BR_OVER_ADDRESS } over_limit;
    unsigned n_visited; /* servers visited or skipped in the search for an idle connection */
    uint64_t oldest_ns; /* br_peer.since_ns of the oldest idle connection found; UINT64_MAX: none */
    unsigned oldest_at; /* index of the worker that owns the connection of `oldest_ns` */
};

struct br_listener {
    struct br_list link; /* in net->listeners */
    struct br_loop *loop;
    uv_poll_t poll;
    int fd;
    unsigned port;
    char name[160];
    /* path of a unix socket, which is unlinked when the listener closes; "" for TCP */
    char path[108];
    bool open;
    const struct br_log *log;
    struct br_timer again; /* resumes accepting after a shortage of descriptors or memory */
    /* limits how often the warning about a failed accept is logged */
    struct br_log_limit log_limit;
    /* the servers, indexed by worker; set before threads start */
    struct br_net_server *targets[BR_WORKERS_MAX];
    unsigned n_targets, next;
    /* maximum number of connections in total, and per client address; 0: no limit */
    unsigned max, max_per_address;
    pthread_mutex_t lock;     /* protects `addresses`, which all workers use */
    struct br_map *addresses; /* connections per address; NULL without max_per_address */
};

/* Opens the listening socket in the first worker's loop. Returns 0, or BR_EINVAL, BR_EIO or
 * BR_ENOMEM with a message in `err`. */
int br_listener_open(struct br_loop *loop, const struct br_server_config *config,
                     struct br_listener **ret, struct br_err *err);

/* Resolves "host:port". The caller frees `*ret` with freeaddrinfo. `ret_order` receives the
 * address families in the order in which to try them. Returns 0, or BR_EINVAL or BR_EIO with a
 * message in `err`. */
struct addrinfo;
int br_listener_resolve(const char *endpoint, struct addrinfo **ret, int ret_order[2],
                        struct br_err *err);

/* Returns the listener of the servers called `name`, or NULL. */
struct br_listener *br_listener_find(struct br_net *net, const char *name);

/* Stops accepting connections. Must be called in the first worker. */
void br_listener_stop(struct br_listener *listener);

/* Removes a worker's server, and frees the listener after the last one. */
void br_listener_leave(struct br_listener *listener, struct br_net_server *server);

/* Hands a new connection to a server of this or another worker. The connection is added to that
 * server's count at once. It is not added during the search for an idle connection, because many
 * new connections would then count against each other. May be called in any worker. */
void br_listener_hand_over(struct br_net_server *server, const struct br_arrival *arrival);

/* Accepts a new connection in the server's own loop, or rejects it (server.c). */
void br_server_take(struct br_net_server *server, const struct br_arrival *arrival);

/* Returns true if a connection limit is exceeded although the new connection is already counted.
 * May be called in any worker. */
bool br_listener_is_full(struct br_listener *listener, const struct br_arrival *arrival);

/* Adds one to the connection count of an address and stores the new count in `*ret` (0 if addresses
 * are not counted). Returns false if memory is short. May be called in any worker
 * (server_room.c). */
bool br_listener_note_address(struct br_listener *listener, const struct br_address *address,
                              unsigned *ret);

/* Subtracts one from the connection count of an address. May be called in any worker
 * (server_room.c). */
void br_listener_forget_address(struct br_listener *listener, const struct br_address *address);

/* Returns the connection count of an address. May be called in any worker (server_room.c). */
unsigned br_listener_address_count(struct br_listener *listener, const struct br_address *address);

/* Makes the most loaded servers close up to `count` idle connections each, because descriptors
 * are running out. Must be called in the first worker (server_room.c). */
void br_net_shed(struct br_loop *here, unsigned count);

/* Returns the time of the last request on the server's least recently used connection, by
 * uv_hrtime, or UINT64_MAX without connections. May be called in any thread (server.c). */
uint64_t br_server_oldest_ns(struct br_net_server *server);

/* Returns the number of a server's connections. May be called in any thread (server.c). */
unsigned br_server_load(struct br_net_server *server);

/* Adds `change` to the number of a server's connections. May be called in any thread (server.c). */
void br_server_add_load(struct br_net_server *server, int change);

/* Removes a connection from the counts of its server and its address. */
void br_server_uncount(struct br_net_server *server, const struct br_address *address);
struct br_loop *br_server_loop(struct br_net_server *server);
