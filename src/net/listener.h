/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listener is a listening socket of the first worker. It shares its connections out among the
 * servers of all workers. For src/net only.
 */
#pragma once

#include "base/map.h"
#include "net/net_internal.h"
#include "net/server.h"

#define BR_WORKERS_MAX 256

struct br_net_server; /* in server.c: the struct br_server of a loop */

/* Whom connections are counted for: an IPv4 address, or the first 64 bits of an IPv6 address, which
 * are one host's or one site's. */
struct br_address {
    uint8_t bytes[16];
    bool known; /* unix sockets have none */
};

/* A connection that was accepted, on its way to its server. */
struct br_arrival {
    int fd;
    char peer[64]; /* as text */
    struct br_address address;
    enum br_room { BR_ROOM_ENOUGH, BR_ROOM_NONE, BR_ROOM_NONE_OF_ADDRESS } room;
    unsigned n_asked;   /* servers that were asked for room, or passed by */
    uint64_t oldest_ns; /* of the idle connections that they have; UINT64_MAX: of none so far */
    unsigned oldest_at; /* which worker has that one */
};

struct br_listener {
    struct br_list link; /* net->listeners */
    struct br_loop *loop;
    uv_poll_t poll;
    int fd;
    unsigned port;
    char name[160];
    char path[108]; /* of a unix socket, to be removed; "" otherwise */
    bool open;
    const struct br_log *log;
    struct br_timer again;         /* accepting was put off: no descriptors, or no memory */
    struct br_log_limit log_limit; /* of that warning */
    struct br_net_server *targets[BR_WORKERS_MAX]; /* by worker; set before threads start */
    unsigned n_targets, turn;
    unsigned max, max_per_address; /* connections; 0: any number */
    pthread_mutex_t lock;          /* of `addresses`: servers of all workers forget theirs */
    struct br_map *addresses;      /* how many connections each has; NULL without max_per_address */
};

/* Opens the socket in the first worker's loop. Returns 0, BR_EINVAL or BR_EIO with a sentence. */
int br_listener_open(struct br_loop *loop, const struct br_server_config *config,
                     struct br_listener **ret, struct br_err *err);

/* What "host:port" stands for, as freeaddrinfo takes it, and in which order its families are tried.
 * Returns 0, BR_EINVAL or BR_EIO with a sentence. */
struct addrinfo;
int br_listener_resolve(const char *endpoint, struct addrinfo **ret, int ret_order[2],
                        struct br_err *err);

/* Returns the listener of that name, or NULL. */
struct br_listener *br_listener_find(struct br_net *net, const char *name);

/* Stops accepting; in the first worker. */
void br_listener_stop(struct br_listener *listener);

/* Forgets a worker's server; frees the listener with the last one. */
void br_listener_leave(struct br_listener *listener, struct br_net_server *server);

/* Hands an arrival to a server of this or another worker. It is counted there at once, unless
 * others were asked for room before: many on their way would take all places from each other. From
 * any worker. */
void br_listener_hand_over(struct br_net_server *server, const struct br_arrival *arrival);

/* Takes an accepted socket, in the server's own loop (server.c). */
void br_server_take(struct br_net_server *server, const struct br_arrival *arrival);

/* Returns true while there is no room for an arrival that is counted already. From any worker. */
bool br_listener_is_full(struct br_listener *listener, const struct br_arrival *arrival);

/* Counts a connection of an address, and says how many it has (0: they are not counted); false
 * without memory. The other counts its end. From any worker (server_room.c). */
bool br_listener_note_address(struct br_listener *listener, const struct br_address *address,
                              unsigned *ret);
void br_listener_forget_address(struct br_listener *listener, const struct br_address *address);
unsigned br_listener_address_count(struct br_listener *listener, const struct br_address *address);

/* Makes the servers with the most connections close up to `count` idle ones each, because there
 * are too few descriptors. In the first worker (server_room.c). */
void br_net_shed(struct br_loop *here, unsigned count);

/* Returns since when the first connection of a server has been without a new request, UINT64_MAX
 * when it has none (any thread; server.c). */
uint64_t br_server_oldest_ns(struct br_net_server *server);

/* Returns how many connections a server has (any thread). The other changes that number
 * (server.c). */
unsigned br_server_load(struct br_net_server *server);
void br_server_add_load(struct br_net_server *server, int change);

/* Counts a connection no more, nor for its address. */
void br_server_uncount(struct br_net_server *server, const struct br_address *address);
struct br_loop *br_server_loop(struct br_net_server *server);
