/* SPDX-License-Identifier: Apache-2.0 */
/* A listening socket of the first worker, and the workers' servers that share its connections. For
 * src/net only. */
#pragma once

#include "net/net_internal.h"
#include "net/server.h"

#define BR_WORKERS_MAX 256

struct br_net_server; /* in server.c: the struct br_server of a loop */

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
    struct br_timer again; /* accepting was put off: no descriptors, or no memory */
    uint64_t warned_ms;    /* and that was said */
    struct br_net_server *targets[BR_WORKERS_MAX]; /* by worker; set before threads start */
    unsigned n_targets, turn;
};

/* Opens the socket in the first worker's loop. Returns 0, BR_EINVAL or BR_EIO with a sentence. */
int br_listener_open(struct br_loop *loop, const struct br_server_config *config,
                     struct br_listener **ret, struct br_err *err);

/* The listener of that name, or NULL. */
struct br_listener *br_listener_find(struct br_net *net, const char *name);

/* Stops accepting; in the first worker. */
void br_listener_stop(struct br_listener *l);

/* Forgets a worker's server; frees the listener with the last one. */
void br_listener_leave(struct br_listener *l, struct br_net_server *server);

/* In server.c: takes an accepted socket, in the server's own loop. */
void br_server_take(struct br_net_server *s, int fd, const char *peer);

/* In server.c: how many connections a server has (any thread), and changing that number. */
unsigned br_server_load(struct br_net_server *s);
void br_server_add_load(struct br_net_server *s, int change);
struct br_loop *br_server_loop(struct br_net_server *s);
