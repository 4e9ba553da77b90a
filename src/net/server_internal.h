/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions that server.c, server_times.c and server_room.c share. */
#pragma once

#include "net/listener.h"

struct br_net_server {
    struct br_server base;
    struct br_loop *loop;
    struct br_listener *listener;
    struct br_server_config config;
    struct br_handler *service;
    struct br_tls_context *tls;
    struct br_tls_reload *tls_reload; /* NULL if the TLS files are never reloaded */
    /* streams of all connections, ordered by their last request, least recent first */
    struct br_list streams;
    /* `since_ns` of the first stream; UINT64_MAX: no streams, or no connection limit */
    _Atomic uint64_t oldest_ns;
    /* number of connections, including those handed over to this worker and not yet accepted */
    _Atomic unsigned load;
    double *connections; /* gauge of accepted connections */
    double *closed[BR_ENDINGS];
    struct br_timer sweep;
    uint64_t sweep_ms, stop_ms;
    /* time limit, in milliseconds, for a client that does not read its response */
    uint64_t reading_ms;
    uint64_t body_ms; /* time within which `body_progress` bytes of a body must arrive */
    size_t body_progress;
    bool stopping, stopped;
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;
    struct br_deferred report;
    struct br_log_limit refusals, complaints;
};

/* The state of one server connection, and the owner of its stream. */
struct br_peer {
    char name[64];
    struct br_address address;
    struct br_net_server *server;
    uint64_t n_requests; /* requests that br_server_note_use has counted so far */
    /* time of the last request, by uv_hrtime, or of the connection if it had none; 0 if the
     * server has no connection limit */
    uint64_t since_ns;
    uint64_t used_ms;   /* time of the last request that arrived or was in progress, by uv_now */
    uint64_t pinged_ms; /* time of the PING that is not answered yet; 0: no PING is unanswered */
    /* time at which the graceful shutdown of the connection began (GOAWAY); 0: not begun */
    uint64_t retired_ms;
    uint64_t max_age_ms; /* maximum age of this connection; UINT64_MAX: no limit */
};

/* Closes the socket of a rejected connection and removes it from the counts. */
void br_server_drop(struct br_net_server *server, const struct br_arrival *arrival,
                    enum br_ending why);

/* Returns true if the stream has no request or response in progress. That includes a stream
 * whose protocol was not detected yet. */
bool br_server_stream_idle(const struct br_stream *stream);

/* --- server_times.c --------------------------------------------------------------------------- */

/* Sets the timeouts that are 0 in the config to their defaults, and computes the times that
 * depend on them. */
void br_server_set_times(struct br_net_server *server);

/* Updates the time of last use if a request has arrived or is in progress. */
void br_server_note_use(struct br_stream *stream);

/* Runs periodically: closes connections that exceed a timeout, shuts down idle and old ones, and
 * sends PINGs. Restarts its timer. */
void br_server_sweep(struct br_timer *timer);

/* The sweep of a stopping server: closes connections as soon as nothing is in progress on them. */
void br_server_stop_sweep(struct br_timer *timer);

/* --- server_room.c ---------------------------------------------------------------------------- */

/* Moves a stream to the end of the eviction order, because the stream is new or has received a
 * request. */
void br_server_put_last(struct br_net_server *server, struct br_stream *stream);

/* Removes a stream from the eviction order. */
void br_server_forget(struct br_net_server *server, struct br_stream *stream);

/* Searches for an idle connection to evict in favor of a new one, among all connections of the
 * listener or those of the client's address. Returns true if the longest idle connection
 * belonged to this worker and was closed. Otherwise returns false: the new connection was handed
 * over to another worker, or was rejected because no connection is idle. */
bool br_server_evict_idle(struct br_net_server *server, const struct br_arrival *arrival);

/* Rejects a new connection while the process is above its memory limit, unless the server has
 * few connections. Returns true if it was rejected. */
bool br_server_refuse_over(struct br_net_server *server, const struct br_arrival *arrival);
