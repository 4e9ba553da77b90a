/* SPDX-License-Identifier: Apache-2.0 */
#include "net/server.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/listener.h"

#define SWEEP_MS 1000
#define SWEEP_MIN_MS 10
#define HANDSHAKE_MS 10000
#define REQUEST_MS 30000
#define BODY_MS 10000 /* over which the rate of a body is looked at */
#define BODY_RATE 1024
#define LINGER_MS 2000
#define STOP_MS 5000
#define STOP_SWEEP_MS 10
#define STOP_LINGER_MS 100 /* a stop does not wait for clients that keep idle connections */

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
#define PREFACE_LEN 24u

struct br_net_server {
    struct br_server base;
    struct br_loop *loop;
    struct br_listener *listener;
    struct br_server_config config;
    struct br_service *service;
    struct br_tls_context *tls;
    struct br_list streams;
    _Atomic unsigned load; /* connections, also those on their way here */
    double *connections;   /* those that are here */
    struct br_timer sweep;
    uint64_t sweep_ms, stop_ms;
    uint64_t body_ms;     /* by when body_progress bytes of a body have to come */
    size_t body_progress;
    bool stopping, stopped;
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;
    struct br_deferred report;
};

struct peer {
    char name[64];
    struct br_net_server *server;
    bool retired;
};

unsigned br_server_load(struct br_net_server *s)
{
    return atomic_load_explicit(&s->load, memory_order_relaxed);
}

void br_server_add_load(struct br_net_server *s, int change)
{
    atomic_fetch_add_explicit(&s->load, (unsigned)change, memory_order_relaxed);
}

struct br_loop *br_server_loop(struct br_net_server *s)
{
    return s->loop;
}

static struct br_net_server *server_of(struct br_server *s)
{
    return br_container_of(s, struct br_net_server, base);
}

static unsigned server_port(struct br_server *base)
{
    const struct br_net_server *s = server_of(base);
    return s->listener ? s->listener->port : 0;
}

static void on_report(struct br_deferred *d)
{
    struct br_net_server *s = br_container_of(d, struct br_net_server, report);
    if (s->stopped || !s->stopping || !br_list_empty(&s->streams))
        return;
    s->stopped = true;
    s->on_stopped(s->on_stopped_arg);
}

static int detect(struct br_stream *s, const uint8_t *data, size_t len)
{
    struct peer *peer = s->owner;
    struct br_net_server *server = peer->server;
    bool h2 = s->tls && strcmp(br_tls_alpn(s->tls), "h2") == 0;
    if (!h2) {
        size_t n = s->n_first;
        size_t compare = PREFACE_LEN - n < len ? PREFACE_LEN - n : len;
        h2 = memcmp(preface + n, data, compare) == 0;
        if (h2 && n + compare < PREFACE_LEN) {
            memcpy(s->first + n, data, compare);
            s->n_first += (unsigned)compare;
            return BR_EAGAIN;
        }
    }
    struct br_pool *pool = s->loop->host.pool;
    struct br_conn *conn =
        h2 ? br_h2_server_new(server->service, pool, peer->name, &server->config.limits)
           : br_h1_server_new(server->service, pool, peer->name);
    if (!conn)
        return BR_ENOMEM;
    conn->body_progress = server->body_progress;
    br_stream_set_conn(s, conn);
    if (server->stopping)
        conn->ops->shutdown(conn);
    return 0;
}

static void on_progress(struct br_stream *s)
{
    (void)s;
}

static void on_closed(struct br_stream *s, const char *why)
{
    struct peer *peer = s->owner;
    struct br_net_server *server = peer->server;
    br_debug(server->config.log, "connection of %s closed: %s", peer->name, why);
    br_list_remove(&s->link);
    br_server_add_load(server, -1);
    *server->connections -= 1;
    if (server->stopping && br_list_empty(&server->streams))
        br_host_defer(&server->loop->host, &server->report, on_report);
    br_free(peer);
}

static const struct br_stream_events events = {detect, on_progress, on_closed};

void br_server_take(struct br_net_server *s, int fd, const char *name)
{
    struct peer *peer = br_malloc(sizeof *peer);
    if (!peer || s->stopping) {
        br_free(peer);
        close(fd);
        br_server_add_load(s, -1);
        return;
    }
    *peer = (struct peer){.server = s};
    (void)snprintf(peer->name, sizeof peer->name, "%s", name);
    struct br_stream *stream = br_stream_new(s->loop, fd, &events, peer, true, false);
    if (!stream) {
        br_free(peer);
        br_server_add_load(s, -1);
        return;
    }
    br_list_append(&s->streams, &stream->link);
    *s->connections += 1;
    if (s->tls) {
        struct br_err err;
        stream->tls = br_tls_new(s->tls, NULL);
        if (br_tls_context_reload_error(s->tls, &err))
            br_warn(s->config.log, "TLS files were not reloaded, the old ones stay: %s", err.text);
        if (!stream->tls)
            br_stream_close(stream, "out of memory");
    }
}

/* Since when the client owes us something, as the protocol knows it. A connection that we do not read
 * for now owes nothing, and has all its time again when we do. */
static uint64_t protocol_since(const struct br_stream *stream, uint64_t now, enum br_owed what)
{
    if (!stream->conn || stream->ending || !br_list_empty(&stream->pause))
        return UINT64_MAX;
    uint64_t since = stream->conn->ops->owes_since(stream->conn, now, what);
    return since < stream->resumed_ms ? stream->resumed_ms : since;
}

/* The same for all but bodies. What is over BR_READ_SIZE in an unread answer shows in the socket. */
static uint64_t owes_since(const struct br_stream *stream, uint64_t now)
{
    uint64_t since = stream->full ? stream->writing.since_ms : UINT64_MAX;
    uint64_t conn = protocol_since(stream, now, BR_OWES_REST);
    return conn < since ? conn : since;
}

static bool is_late(uint64_t since, uint64_t now, uint64_t timeout_ms)
{
    return since < now && now - since > timeout_ms;
}

static bool idle(const struct br_stream *stream)
{
    return stream->conn && stream->conn->ops->idle(stream->conn) && stream->out.len == 0;
}

/* Why a connection has to end now, or NULL. */
static const char *overdue(const struct br_net_server *s, const struct br_stream *stream,
                           uint64_t now)
{
    const struct br_server_config *c = &s->config;
    if (stream->shut)
        return now - stream->shut_ms > c->linger_timeout_ms ? "done" : NULL;
    if (!stream->conn && now - stream->opened_ms > c->handshake_timeout_ms)
        return "no request came in time";
    if (is_late(protocol_since(stream, now, BR_OWES_BODY), now, s->body_ms))
        return "a body came too slowly";
    if (is_late(owes_since(stream, now), now, c->request_timeout_ms))
        return stream->full ? "the client does not read" : "a request made no progress";
    return NULL;
}

/* Ends gently: HTTP/2 clients are told that nothing they send from here on is looked at. */
static void retire(const struct br_net_server *s, struct br_stream *stream, uint64_t now)
{
    struct peer *peer = stream->owner;
    bool idled = s->config.idle_timeout_ms && now - stream->read_ms > s->config.idle_timeout_ms &&
                 idle(stream);
    bool aged = s->config.max_age_ms && now - stream->opened_ms > s->config.max_age_ms;
    if (peer->retired || !stream->conn || (!idled && !aged))
        return;
    peer->retired = true;
    stream->conn->ops->shutdown(stream->conn);
}

static void on_sweep(struct br_timer *t)
{
    struct br_net_server *s = br_container_of(t, struct br_net_server, sweep);
    uint64_t now = uv_now(&s->loop->uv);
    for (struct br_list *l = s->streams.next; l != &s->streams; l = l->next) {
        struct br_stream *stream = br_container_of(l, struct br_stream, link);
        const char *why = overdue(s, stream, now);
        if (why)
            br_stream_close(stream, why);
        else
            retire(s, stream, now);
    }
    (void)br_host_timer(&s->loop->host, &s->sweep, s->sweep_ms, on_sweep);
}

/* Why a connection ends while the server stops: nothing is under way on it, or the client kept us
 * waiting for long enough. */
static const char *dispensable(const struct br_net_server *s, const struct br_stream *stream,
                               uint64_t now)
{
    if (stream->shut)
        return now - stream->shut_ms > STOP_LINGER_MS ? "the server stops" : NULL;
    if (!stream->conn || idle(stream))
        return "the server stops";
    bool owes = owes_since(stream, now) != UINT64_MAX ||
                protocol_since(stream, now, BR_OWES_BODY) != UINT64_MAX;
    if (now - s->stop_ms > s->config.stop_timeout_ms && owes)
        return "the server stops, and the client keeps it waiting";
    return overdue(s, stream, now);
}

static void on_stop_sweep(struct br_timer *t)
{
    struct br_net_server *s = br_container_of(t, struct br_net_server, sweep);
    uint64_t now = uv_now(&s->loop->uv);
    for (struct br_list *l = s->streams.next; l != &s->streams; l = l->next) {
        struct br_stream *stream = br_container_of(l, struct br_stream, link);
        const char *why = dispensable(s, stream, now);
        if (why)
            br_stream_close(stream, why);
    }
    if (!br_list_empty(&s->streams))
        (void)br_host_timer(&s->loop->host, &s->sweep, STOP_SWEEP_MS, on_stop_sweep);
}

static void server_stop(struct br_server *base, void (*on_stopped)(void *arg), void *arg)
{
    struct br_net_server *s = server_of(base);
    s->stopping = true;
    s->stop_ms = uv_now(&s->loop->uv);
    s->on_stopped = on_stopped;
    s->on_stopped_arg = arg;
    if (s->listener && s->listener->loop == s->loop)
        br_listener_stop(s->listener);
    for (struct br_list *l = s->streams.next; l != &s->streams; l = l->next) {
        struct br_stream *stream = br_container_of(l, struct br_stream, link);
        if (stream->conn)
            stream->conn->ops->shutdown(stream->conn);
    }
    br_host_defer(&s->loop->host, &s->report, on_report);
    (void)br_host_timer(&s->loop->host, &s->sweep, STOP_SWEEP_MS, on_stop_sweep);
}

static void server_free(struct br_server *base)
{
    struct br_net_server *s = server_of(base);
    s->stopping = s->stopped = true;
    while (!br_list_empty(&s->streams))
        br_stream_end(br_container_of(s->streams.next, struct br_stream, link), "the server stops");
    br_host_timer_stop(&s->loop->host, &s->sweep);
    br_host_defer_cancel(&s->report);
    if (s->listener)
        br_listener_leave(s->listener, s);
    br_tls_context_free(s->tls);
    br_free(s);
}

static const struct br_server_ops server_ops = {server_stop, server_free, server_port};

static int make_tls(struct br_net_server *s, struct br_err *err)
{
    static const char *const alpn[] = {"h2", "http/1.1", NULL};
    if (!s->config.tls)
        return 0;
    return br_tls_context_new(s->config.tls, true, alpn, &s->tls, err);
}

/* A gauge of its own for every worker: whether connections spread is what it is for. */
static double *connections_of(struct br_host *h, const char *name)
{
    char worker[16];
    struct br_str labels = {.max = 1024};
    (void)snprintf(worker, sizeof worker, "%u", h->worker);
    br_label(&labels, "server", name);
    br_label(&labels, "worker", worker);
    double *metric =
        br_metric(h->metrics, BR_GAUGE, "braid_server_connections", labels.data ? labels.data : "");
    br_str_release(&labels);
    return metric;
}

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

static void set_times(struct br_net_server *s)
{
    struct br_server_config *c = &s->config;
    c->handshake_timeout_ms = or_default(c->handshake_timeout_ms, HANDSHAKE_MS);
    c->request_timeout_ms = or_default(c->request_timeout_ms, REQUEST_MS);
    c->linger_timeout_ms = or_default(c->linger_timeout_ms, LINGER_MS);
    c->stop_timeout_ms = or_default(c->stop_timeout_ms, STOP_MS);
    set_body_rate(s);
    const uint64_t times[] = {c->handshake_timeout_ms, s->body_ms, c->linger_timeout_ms,
                              or_default(c->idle_timeout_ms, UINT64_MAX),
                              or_default(c->max_age_ms, UINT64_MAX)};
    /* Often enough to be late by a quarter at the most. */
    s->sweep_ms = SWEEP_MS;
    for (size_t i = 0; i < BR_COUNT(times); i++)
        s->sweep_ms = times[i] / 4 < s->sweep_ms ? times[i] / 4 : s->sweep_ms;
    if (s->sweep_ms < SWEEP_MIN_MS)
        s->sweep_ms = SWEEP_MIN_MS;
}

static int open_listener(struct br_net_server *s, struct br_err *err)
{
    const char *name = s->config.name;
    unsigned worker = s->loop->host.worker;
    if (worker >= BR_WORKERS_MAX)
        return br_err_set(err, BR_EINVAL, "at most %d workers can share a listener",
                          BR_WORKERS_MAX);
    if (worker == 0)
        return br_listener_open(s->loop, &s->config, &s->listener, err);
    s->listener = br_listener_find(s->loop->net, name);
    return s->listener ? 0 : br_err_set(err, BR_ENOTFOUND, "no listener for %s", name);
}

int br_net_serve(struct br_host *h, const struct br_server_config *config,
                 struct br_service *service, struct br_server **ret, struct br_err *err)
{
    struct br_net_server *s = br_calloc(1, sizeof *s);
    if (!s)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    s->base.ops = &server_ops;
    s->loop = br_loop_of(h);
    s->config = *config;
    s->service = service;
    s->connections = connections_of(h, config->name);
    br_list_init(&s->streams);
    set_times(s);
    int rc = make_tls(s, err);
    if (!rc && !br_host_timer(h, &s->sweep, s->sweep_ms, on_sweep))
        rc = br_err_set(err, BR_ENOMEM, "out of memory");
    if (!rc)
        rc = open_listener(s, err);
    if (rc) {
        br_host_timer_stop(h, &s->sweep);
        br_tls_context_free(s->tls);
        br_free(s);
        return rc;
    }
    s->listener->targets[h->worker] = s;
    if (s->listener->n_targets <= h->worker)
        s->listener->n_targets = h->worker + 1;
    *ret = &s->base;
    return 0;
}
