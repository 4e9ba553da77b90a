/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "net/server_internal.h"

#define SWEEP_MS 1000
#define SWEEP_MIN_MS 10
#define HANDSHAKE_MS 10000
#define FIRST_REQUEST_MS 20000
#define REQUEST_MS 30000
#define READING_MS 20000 /* as gRPC has for what is not acknowledged */
#define BODY_MS 10000 /* over which the rate of a body is looked at */
#define BODY_RATE 1024
#define LINGER_MS 2000
#define STOP_MS 5000
#define STOP_SWEEP_MS 10
#define STOP_LINGER_MS 100 /* a stop does not wait for clients that keep idle connections */
#define PING_TIMEOUT_MS 20000

/* --- What a client owes -------------------------------------------------------------------------
 */

/* Since when the client owes us something. A connection that we do not read for now owes nothing,
 * and has all its time again when we do. What is over BR_READ_SIZE in an unread answer shows in the
 * socket. */
static uint64_t owes_since(const struct br_stream *stream, uint64_t now, enum br_owed what)
{
    uint64_t since = UINT64_MAX;
    if (stream->conn && !stream->ending && br_list_empty(&stream->pause)) {
        since = stream->conn->ops->owes_since(stream->conn, now, what);
        since = since < stream->resumed_ms ? stream->resumed_ms : since;
    }
    bool full = what == BR_OWES_READING && stream->full;
    return full && stream->writing.since_ms < since ? stream->writing.since_ms : since;
}

static bool is_late(const struct br_stream *stream, uint64_t now, enum br_owed what,
                    uint64_t timeout_ms)
{
    uint64_t since = owes_since(stream, now, what);
    return since < now && now - since > timeout_ms;
}

static bool owes_anything(const struct br_stream *stream, uint64_t now)
{
    return owes_since(stream, now, BR_OWES_HEAD) != UINT64_MAX ||
           owes_since(stream, now, BR_OWES_BODY) != UINT64_MAX ||
           owes_since(stream, now, BR_OWES_READING) != UINT64_MAX;
}

/* Who was told to go may end what is under way, but for a first request that has no head yet. */
static bool is_past_grace(const struct br_server_config *c, const struct br_stream *stream,
                          uint64_t now)
{
    const struct br_peer *peer = stream->owner;
    if (stream->reason == BR_END_FIRST_REQUEST)
        return now - peer->retired_ms > c->linger_timeout_ms;
    return stream->reason == BR_END_AGE && c->max_age_grace_ms &&
           now - peer->retired_ms > c->max_age_grace_ms;
}

/* Closes a connection that has to end now; false when it need not. */
static bool close_overdue(const struct br_net_server *s, struct br_stream *stream, uint64_t now)
{
    const struct br_server_config *c = &s->config;
    if (stream->shut) {
        if (now - stream->shut_ms <= c->linger_timeout_ms)
            return false;
        br_stream_close(stream, "done");
    } else if (!stream->conn && now - stream->opened_ms > c->handshake_timeout_ms) {
        br_stream_close_for(stream, BR_END_HANDSHAKE, "no protocol was spoken in time");
    } else if (is_late(stream, now, BR_OWES_BODY, s->body_ms)) {
        br_stream_close_for(stream, BR_END_SLOW_BODY, "a body came too slowly");
    } else if (is_late(stream, now, BR_OWES_HEAD, c->request_timeout_ms)) {
        br_stream_close_for(stream, BR_END_SLOW_REQUEST, "a request made no progress");
    } else if (is_late(stream, now, BR_OWES_READING, s->reading_ms)) {
        br_stream_close_for(stream, BR_END_SLOW_READER, "the client does not read");
    } else if (is_past_grace(c, stream, now)) {
        br_stream_close(stream, stream->why);
    } else {
        return false;
    }
    return true;
}

/* --- Those who may go ---------------------------------------------------------------------------
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
    br_list_remove(&stream->link);
    br_list_append(&peer->server->streams, &stream->link);
}

/* Ends gently: HTTP/2 clients are told that nothing they send from here on is looked at. */
static void retire(struct br_stream *stream, enum br_ending reason, const char *why, uint64_t now)
{
    struct br_peer *peer = stream->owner;
    peer->retired_ms = now ? now : 1;
    br_stream_note(stream, reason, why);
    stream->conn->ops->shutdown(stream->conn);
}

static void retire_unused(const struct br_net_server *s, struct br_stream *stream, uint64_t now)
{
    const struct br_server_config *c = &s->config;
    const struct br_peer *peer = stream->owner;
    if (peer->retired_ms || !stream->conn || stream->ending || stream->shut)
        return;
    if (now - stream->opened_ms > peer->max_age_ms)
        retire(stream, BR_END_AGE, "it is old", now);
    else if (!stream->conn->n_requests && now - stream->opened_ms > c->first_request_timeout_ms)
        retire(stream, BR_END_FIRST_REQUEST, "no request came in time", now);
    else if (c->idle_timeout_ms && now - peer->used_ms > c->idle_timeout_ms &&
             br_server_stream_idle(stream))
        retire(stream, BR_END_IDLE, "it was idle", now);
}

/* Asks a peer that has not been heard of for long whether it is still there. Whatever comes from it
 * is an answer. */
static void keep_alive(const struct br_net_server *s, struct br_stream *stream, uint64_t now)
{
    struct br_peer *peer = stream->owner;
    struct br_conn *conn = stream->conn;
    uint64_t timeout = s->config.ping_timeout_ms;
    if (!s->config.ping_time_ms || !conn || !conn->ops->ping || stream->ending || stream->shut ||
        !br_list_empty(&stream->pause))
        return;
    if (peer->pinged_ms && stream->read_ms >= peer->pinged_ms)
        peer->pinged_ms = 0;
    if (peer->pinged_ms && now - peer->pinged_ms > timeout)
        br_stream_close_for(stream, BR_END_KEEPALIVE, "keepalive: no answer to a PING");
    else if (!peer->pinged_ms && now - stream->read_ms >= s->config.ping_time_ms &&
             conn->ops->ping(conn))
        peer->pinged_ms = now;
}

void br_server_sweep(struct br_timer *t)
{
    struct br_net_server *s = br_container_of(t, struct br_net_server, sweep);
    uint64_t now = uv_now(&s->loop->uv);
    for (struct br_list *l = s->streams.next, *next; l != &s->streams; l = next) {
        struct br_stream *stream = br_container_of(l, struct br_stream, link);
        struct br_peer *peer = stream->owner;
        next = l->next;
        if (stream->conn && !br_server_stream_idle(stream))
            peer->used_ms = now;
        if (close_overdue(s, stream, now))
            continue;
        retire_unused(s, stream, now);
        keep_alive(s, stream, now);
    }
    (void)br_host_timer(&s->loop->host, &s->sweep, s->sweep_ms, br_server_sweep);
}

/* --- The end ------------------------------------------------------------------------------------
 */

/* Why a connection ends while the server stops: nothing is under way on it, or the client kept us
 * waiting for long enough. */
static const char *dispensable(const struct br_net_server *s, const struct br_stream *stream,
                               uint64_t now)
{
    if (stream->shut)
        return now - stream->shut_ms > STOP_LINGER_MS ? "the server stops" : NULL;
    if (br_server_stream_idle(stream))
        return "the server stops";
    if (now - s->stop_ms > s->config.stop_timeout_ms && owes_anything(stream, now))
        return "the server stops, and the client keeps it waiting";
    return NULL;
}

void br_server_stop_sweep(struct br_timer *t)
{
    struct br_net_server *s = br_container_of(t, struct br_net_server, sweep);
    uint64_t now = uv_now(&s->loop->uv);
    for (struct br_list *l = s->streams.next; l != &s->streams; l = l->next) {
        struct br_stream *stream = br_container_of(l, struct br_stream, link);
        const char *why = dispensable(s, stream, now);
        if (why)
            br_stream_close_for(stream, BR_END_STOP, why);
        else
            (void)close_overdue(s, stream, now);
    }
    if (!br_list_empty(&s->streams))
        (void)br_host_timer(&s->loop->host, &s->sweep, STOP_SWEEP_MS, br_server_stop_sweep);
}

/* --- The times ----------------------------------------------------------------------------------
 */

static uint64_t or_default(uint64_t value, uint64_t otherwise)
{
    return value ? value : otherwise;
}

static void set_body_rate(struct br_net_server *s)
{
    int64_t rate = s->config.min_body_rate ? s->config.min_body_rate : BODY_RATE;
    s->body_ms = s->config.request_timeout_ms;
    if (rate < 0)
        return;
    if (s->body_ms > BODY_MS)
        s->body_ms = BODY_MS;
    s->body_progress = (size_t)rate * s->body_ms / 1000 + 1;
}

void br_server_set_times(struct br_net_server *s)
{
    struct br_server_config *c = &s->config;
    c->handshake_timeout_ms = or_default(c->handshake_timeout_ms, HANDSHAKE_MS);
    c->first_request_timeout_ms = or_default(c->first_request_timeout_ms, FIRST_REQUEST_MS);
    if (c->handshake_timeout_ms > c->first_request_timeout_ms)
        c->handshake_timeout_ms = c->first_request_timeout_ms;
    c->request_timeout_ms = or_default(c->request_timeout_ms, REQUEST_MS);
    c->linger_timeout_ms = or_default(c->linger_timeout_ms, LINGER_MS);
    c->stop_timeout_ms = or_default(c->stop_timeout_ms, STOP_MS);
    c->ping_timeout_ms = or_default(c->ping_timeout_ms, PING_TIMEOUT_MS);
    set_body_rate(s);
    s->reading_ms = c->request_timeout_ms < READING_MS ? c->request_timeout_ms : READING_MS;
    const uint64_t times[] = {c->handshake_timeout_ms,
                              c->first_request_timeout_ms,
                              s->body_ms,
                              c->linger_timeout_ms,
                              c->ping_timeout_ms,
                              or_default(c->ping_time_ms, UINT64_MAX),
                              or_default(c->idle_timeout_ms, UINT64_MAX),
                              or_default(c->max_age_ms, UINT64_MAX),
                              or_default(c->max_age_grace_ms, UINT64_MAX)};
    /* Often enough to be late by a quarter at the most. */
    s->sweep_ms = SWEEP_MS;
    for (size_t i = 0; i < BR_COUNT(times); i++)
        s->sweep_ms = times[i] / 4 < s->sweep_ms ? times[i] / 4 : s->sweep_ms;
    if (s->sweep_ms < SWEEP_MIN_MS)
        s->sweep_ms = SWEEP_MIN_MS;
}
