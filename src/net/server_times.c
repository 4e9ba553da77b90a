/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "net/server_internal.h"

#define SWEEP_MS 1000
#define SWEEP_MIN_MS 10
#define HANDSHAKE_MS 10000
#define FIRST_REQUEST_MS 20000
#define REQUEST_MS 30000
/* time limit for a response that the client does not read, in milliseconds; the same as gRPC's
 * limit for unacknowledged data */
#define READING_MS 20000
#define BODY_MS 10000 /* milliseconds over which the rate of a body is averaged */
#define BODY_RATE 1024
#define LINGER_MS 2000
#define STOP_MS 5000
#define STOP_SWEEP_MS 10
/* milliseconds for which a stopping server leaves idle connections open if the server that replaces
 * it cannot start earlier */
#define KEPT_GENTLE_MS 100
/* how long a stopping server waits for a client to close; shorter than LINGER_MS, so that
 * clients do not delay the stop */
#define STOP_LINGER_MS 100
#define PING_TIMEOUT_MS 20000

/* --- Timeouts ----------------------------------------------------------------------------------
 */

/* Returns the time since which the server has been waiting for `what`, or UINT64_MAX. The server
 * does not wait for a paused connection; the timeout restarts when the connection is resumed. If
 * a large unread response has filled the socket, `stream->writing` determines the time. */
static uint64_t server_times_awaits_since(const struct br_stream *stream, uint64_t now,
                                          enum br_awaited what)
{
    uint64_t since = UINT64_MAX;
    if (stream->conn && !stream->ending && br_list_empty(&stream->pause)) {
        since = stream->conn->ops->awaits_since(stream->conn, now, what);
        since = since < stream->resumed_ms ? stream->resumed_ms : since;
    }
    bool full = what == BR_AWAITS_READING && stream->full;
    return full && stream->writing.since_ms < since ? stream->writing.since_ms : since;
}

static bool server_times_is_late(const struct br_stream *stream, uint64_t now, enum br_awaited what,
                                 uint64_t timeout_ms)
{
    uint64_t since = server_times_awaits_since(stream, now, what);
    return since < now && now - since > timeout_ms;
}

static bool server_times_awaits_anything(const struct br_stream *stream, uint64_t now)
{
    return server_times_awaits_since(stream, now, BR_AWAITS_HEAD) != UINT64_MAX ||
           server_times_awaits_since(stream, now, BR_AWAITS_BODY) != UINT64_MAX ||
           server_times_awaits_since(stream, now, BR_AWAITS_READING) != UINT64_MAX;
}

/* Returns true if a connection must be closed although requests may be in progress. A connection
 * past its maximum age may finish its requests within the grace period. A connection that never
 * completed a request head gets only the linger timeout. */
static bool server_times_is_past_grace(const struct br_server_config *config,
                                       const struct br_stream *stream, uint64_t now)
{
    const struct br_peer *peer = stream->owner;
    if (stream->reason == BR_END_FIRST_REQUEST)
        return now - peer->retired_ms > config->linger_timeout_ms;
    return stream->reason == BR_END_AGE && config->max_age_grace_ms &&
           now - peer->retired_ms > config->max_age_grace_ms;
}

/* Closes a connection that exceeds a timeout. Returns false if no timeout is exceeded. */
static bool server_times_close_overdue(const struct br_net_server *server, struct br_stream *stream,
                                       uint64_t now)
{
    const struct br_server_config *config = &server->config;
    if (stream->half_closed) {
        if (now - stream->half_closed_ms <= config->linger_timeout_ms)
            return false;
        br_stream_close(stream, "done");
    } else if (!stream->conn && now - stream->opened_ms > config->handshake_timeout_ms) {
        br_stream_close_for(stream, BR_END_HANDSHAKE, "timeout before the protocol was detected");
    } else if (server_times_is_late(stream, now, BR_AWAITS_BODY, server->body_ms)) {
        br_stream_close_for(stream, BR_END_SLOW_BODY, "the body arrived too slowly");
    } else if (server_times_is_late(stream, now, BR_AWAITS_HEAD, config->request_timeout_ms)) {
        br_stream_close_for(stream, BR_END_SLOW_REQUEST, "the request made no progress");
    } else if (server_times_is_late(stream, now, BR_AWAITS_READING, server->reading_ms)) {
        br_stream_close_for(stream, BR_END_SLOW_READER, "the client did not read its response");
    } else if (server_times_is_past_grace(config, stream, now)) {
        br_stream_close(stream, stream->why);
    } else {
        return false;
    }
    return true;
}

/* --- Graceful shutdown of single connections ----------------------------------------------------
 */

void br_server_note_use(struct br_stream *stream)
{
    struct br_peer *peer = stream->owner;
    if (!stream->conn)
        return;
    if (stream->conn->n_requests == peer->n_requests && br_server_stream_idle(stream))
        return;
    peer->used_ms = uv_now(&stream->loop->uv);
    if (stream->conn->n_requests == peer->n_requests)
        return;
    peer->n_requests = stream->conn->n_requests;
    br_server_put_last(peer->server, stream);
}

/* Begins the graceful shutdown of a connection. HTTP/2 clients receive a GOAWAY, which states
 * that later streams are ignored. */
static void server_times_retire(struct br_stream *stream, enum br_ending reason, const char *why,
                                uint64_t now)
{
    struct br_peer *peer = stream->owner;
    peer->retired_ms = now ? now : 1;
    br_stream_note(stream, reason, why);
    stream->conn->ops->shutdown(stream->conn);
}

static void server_times_retire_unused(const struct br_net_server *server, struct br_stream *stream,
                                       uint64_t now)
{
    const struct br_server_config *config = &server->config;
    const struct br_peer *peer = stream->owner;
    if (peer->retired_ms || !stream->conn || stream->ending || stream->half_closed)
        return;
    if (now - stream->opened_ms > peer->max_age_ms)
        server_times_retire(stream, BR_END_AGE, "it reached its maximum age", now);
    else if (!stream->conn->n_requests &&
             now - stream->opened_ms > config->first_request_timeout_ms)
        server_times_retire(stream, BR_END_FIRST_REQUEST, "timeout before the first request", now);
    else if (config->idle_timeout_ms && now - peer->used_ms > config->idle_timeout_ms &&
             br_server_stream_idle(stream))
        server_times_retire(stream, BR_END_IDLE, "it was idle", now);
}

/* Sends a PING to a client that has been silent for ping_time_ms. Any input from the client
 * counts as the answer to the PING. */
static void server_times_keep_alive(const struct br_net_server *server, struct br_stream *stream,
                                    uint64_t now)
{
    struct br_peer *peer = stream->owner;
    struct br_conn *conn = stream->conn;
    uint64_t timeout = server->config.ping_timeout_ms;
    if (!server->config.ping_time_ms || !conn || !conn->ops->ping)
        return;
    if (stream->ending || stream->half_closed || !br_list_empty(&stream->pause))
        return;
    if (peer->pinged_ms && stream->read_ms >= peer->pinged_ms)
        peer->pinged_ms = 0;
    if (peer->pinged_ms && now - peer->pinged_ms > timeout)
        br_stream_close_for(stream, BR_END_KEEPALIVE, "keepalive: no answer to a PING");
    else if (!peer->pinged_ms && now - stream->read_ms >= server->config.ping_time_ms &&
             conn->ops->ping(conn))
        peer->pinged_ms = now;
}

void br_server_sweep(struct br_timer *timer)
{
    struct br_net_server *server = br_container_of(timer, struct br_net_server, sweep);
    uint64_t now = uv_now(&server->loop->uv);
    for (struct br_list *list = server->streams.next, *next; list != &server->streams;
         list = next) {
        struct br_stream *stream = br_container_of(list, struct br_stream, link);
        struct br_peer *peer = stream->owner;
        next = list->next;
        if (stream->conn && !br_server_stream_idle(stream))
            peer->used_ms = now;
        if (server_times_close_overdue(server, stream, now))
            continue;
        server_times_retire_unused(server, stream, now);
        server_times_keep_alive(server, stream, now);
    }
    (void)br_host_timer(&server->loop->host, &server->sweep, server->sweep_ms, br_server_sweep);
}

/* --- Stopping ----------------------------------------------------------------------------------
 */

/* Returns the reason why a stopping server closes a connection, or NULL if the server must wait
 * for the connection. */
static const char *server_times_stop_reason(const struct br_net_server *server,
                                            const struct br_stream *stream, uint64_t now)
{
    if (stream->half_closed)
        return now - stream->half_closed_ms > STOP_LINGER_MS ? "the server is stopping" : NULL;
    if (br_server_stream_idle(stream) && !server->gentle)
        return "the server is stopping";
    if (now - server->stop_ms > server->config.stop_timeout_ms &&
        server_times_awaits_anything(stream, now))
        return "the server is stopping, and the client did not finish in time";
    return NULL;
}

/* Begins to shut down the connections that are still open after the time in which clients could
 * change to other connections. */
static void server_times_end_gently(struct br_net_server *server)
{
    server->gentle = false;
    for (struct br_list *list = server->streams.next; list != &server->streams; list = list->next) {
        struct br_stream *stream = br_container_of(list, struct br_stream, link);
        if (stream->conn)
            stream->conn->ops->shutdown(stream->conn);
    }
}

void br_server_stop_sweep(struct br_timer *timer)
{
    struct br_net_server *server = br_container_of(timer, struct br_net_server, sweep);
    uint64_t now = uv_now(&server->loop->uv);
    uint64_t gentle_ms =
        server->loop->net->keeps_sockets ? KEPT_GENTLE_MS : server->config.stop_timeout_ms;
    if (server->gentle && now - server->stop_ms > gentle_ms)
        server_times_end_gently(server);
    for (struct br_list *list = server->streams.next; list != &server->streams; list = list->next) {
        struct br_stream *stream = br_container_of(list, struct br_stream, link);
        const char *why = server_times_stop_reason(server, stream, now);
        if (why)
            br_stream_close_for(stream, BR_END_STOP, why);
        else
            (void)server_times_close_overdue(server, stream, now);
    }
    if (!br_list_empty(&server->streams))
        (void)br_host_timer(&server->loop->host, &server->sweep, STOP_SWEEP_MS,
                            br_server_stop_sweep);
}

/* --- Defaults ----------------------------------------------------------------------------------
 */

static uint64_t server_times_or_default(uint64_t value, uint64_t otherwise)
{
    return value ? value : otherwise;
}

static void server_times_set_body_rate(struct br_net_server *server)
{
    int64_t rate = server->config.min_body_rate ? server->config.min_body_rate : BODY_RATE;
    server->body_ms = server->config.request_timeout_ms;
    if (rate < 0)
        return;
    if (server->body_ms > BODY_MS)
        server->body_ms = BODY_MS;
    server->body_progress = (size_t)rate * server->body_ms / 1000 + 1;
}

void br_server_set_times(struct br_net_server *server)
{
    struct br_server_config *config = &server->config;
    config->handshake_timeout_ms =
        server_times_or_default(config->handshake_timeout_ms, HANDSHAKE_MS);
    config->first_request_timeout_ms =
        server_times_or_default(config->first_request_timeout_ms, FIRST_REQUEST_MS);
    if (config->handshake_timeout_ms > config->first_request_timeout_ms)
        config->handshake_timeout_ms = config->first_request_timeout_ms;
    config->request_timeout_ms = server_times_or_default(config->request_timeout_ms, REQUEST_MS);
    config->linger_timeout_ms = server_times_or_default(config->linger_timeout_ms, LINGER_MS);
    config->stop_timeout_ms = server_times_or_default(config->stop_timeout_ms, STOP_MS);
    config->ping_timeout_ms = server_times_or_default(config->ping_timeout_ms, PING_TIMEOUT_MS);
    server_times_set_body_rate(server);
    server->reading_ms =
        config->request_timeout_ms < READING_MS ? config->request_timeout_ms : READING_MS;
    const uint64_t times[] = {config->handshake_timeout_ms,
                              config->first_request_timeout_ms,
                              server->body_ms,
                              config->linger_timeout_ms,
                              config->ping_timeout_ms,
                              server_times_or_default(config->ping_time_ms, UINT64_MAX),
                              server_times_or_default(config->idle_timeout_ms, UINT64_MAX),
                              server_times_or_default(config->max_age_ms, UINT64_MAX),
                              server_times_or_default(config->max_age_grace_ms, UINT64_MAX)};
    /* The sweep enforces the timeouts. The sweep's interval is at most a quarter of the shortest
     * timeout, so that timeouts are enforced soon enough. */
    server->sweep_ms = SWEEP_MS;
    for (size_t i = 0; i < BR_COUNT(times); i++)
        server->sweep_ms = times[i] / 4 < server->sweep_ms ? times[i] / 4 : server->sweep_ms;
    if (server->sweep_ms < SWEEP_MIN_MS)
        server->sweep_ms = SWEEP_MIN_MS;
}
