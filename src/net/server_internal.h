/* SPDX-License-Identifier: Apache-2.0 */
/* The types and functions that server.c, server_times.c and server_room.c share. */
#pragma once

#include "net/listener.h"

struct br_net_server {
    struct br_server base;
    struct br_loop *loop;
    struct br_listener *listener;
    struct br_server_config config;
    struct br_handler *service;
    struct br_tls_context *tls;
    struct br_tls_reload *tls_reload; /* NULL: its files are never reloaded */
    struct br_list streams;           /* who had a request the longest ago comes first */
    _Atomic uint64_t oldest_ns; /* of the first of them; UINT64_MAX: none, or without a limit */
    _Atomic unsigned load;      /* connections, also those on their way here */
    double *connections;        /* those that are here */
    double *closed[BR_ENDINGS];
    struct br_timer sweep;
    uint64_t sweep_ms, stop_ms;
    uint64_t reading_ms; /* without progress in what a client has to read */
    uint64_t body_ms;    /* by when body_progress bytes of a body have to come */
    size_t body_progress;
    bool stopping, stopped;
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;
    struct br_deferred report;
    struct br_log_limit refusals, complaints;
};

/* The owner of a server's stream. */
struct br_peer {
    char name[64];
    struct br_address address;
    struct br_net_server *server;
    uint64_t n_requests; /* that had come when it was last looked at */
    uint64_t since_ns;   /* when the last of them came, or else it itself; 0 without a limit */
    uint64_t used_ms;    /* when a request came or was under way */
    uint64_t pinged_ms;  /* 0: no PING waits for its answer */
    uint64_t retired_ms; /* 0: it has not been told to go */
    uint64_t max_age_ms; /* UINT64_MAX: none */
};

/* Closes a socket that is not to become a connection, and forgets it. */
void br_server_drop(struct br_net_server *server, const struct br_arrival *arrival,
                    enum br_ending why);

/* Returns true when neither a request nor a reply is under way, or it has no protocol yet. */
bool br_server_stream_idle(const struct br_stream *stream);

/* --- server_times.c --------------------------------------------------------------------------- */

/* Fills in the times that the config leaves to us. */
void br_server_set_times(struct br_net_server *server);

/* Notes that the peer uses its connection, if it does. */
void br_server_note_use(struct br_stream *stream);

/* Does what has to be done from time to time: closes what is overdue, tells those to go who are
 * idle or old, sends PINGs. Arms itself again. */
void br_server_sweep(struct br_timer *timer);

/* Does the same while the server stops. */
void br_server_stop_sweep(struct br_timer *timer);

/* --- server_room.c ---------------------------------------------------------------------------- */

/* Notes that a stream has come or has a request: it is the last that makes room. The other forgets
 * it. */
void br_server_put_last(struct br_net_server *server, struct br_stream *stream);
void br_server_forget(struct br_net_server *server, struct br_stream *stream);

/* Closes the connection of the listener (or of the arrival's address) that has been idle for the
 * longest, if it is here. Otherwise passes on the arrival to where it may be, or refuses it when
 * none is idle anywhere, and returns false. */
bool br_server_evict_idle(struct br_net_server *server, const struct br_arrival *arrival);

/* Refuses an arrival while the process holds more than it may, unless the server has few
 * connections. True when it is refused. */
bool br_server_refuse_over(struct br_net_server *server, const struct br_arrival *arrival);
