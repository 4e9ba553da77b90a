/* SPDX-License-Identifier: Apache-2.0 */
#include "net/server.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/server_internal.h"

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
#define PREFACE_LEN 24u

unsigned br_server_load(struct br_net_server *s)
{
    return atomic_load_explicit(&s->load, memory_order_relaxed);
}

void br_server_add_load(struct br_net_server *s, int change)
{
    atomic_fetch_add_explicit(&s->load, (unsigned)change, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->loop->net->n_connections, (unsigned)change, memory_order_relaxed);
}

struct br_loop *br_server_loop(struct br_net_server *s)
{
    return s->loop;
}

struct br_listener *br_server_listener(struct br_net_server *s)
{
    return s->listener;
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
    struct br_peer *peer = s->owner;
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
    br_server_note_use(s);
}

/* A connection that the peer was told to end, or that all was said on, may owe that to a fault. */
static enum br_ending ending_of(const struct br_stream *s)
{
    static const enum br_ending faults[] = {
        [BR_FAULT_PROTOCOL] = BR_END_PROTOCOL, [BR_FAULT_FLOOD] = BR_END_FLOOD};
    if (s->conn && s->conn->fault)
        return faults[s->conn->fault];
    return s->reason ? s->reason : BR_END_DONE;
}

static void on_closed(struct br_stream *s, const char *why)
{
    struct br_peer *peer = s->owner;
    struct br_net_server *server = peer->server;
    br_debug(server->config.log, "connection of %s closed: %s", peer->name, why);
    br_list_remove(&s->link);
    br_server_add_load(server, -1);
    br_listener_forget_address(server->listener, &peer->address);
    *server->connections -= 1;
    *server->closed[ending_of(s)] += 1;
    if (server->stopping && br_list_empty(&server->streams))
        br_host_defer(&server->loop->host, &server->report, on_report);
    br_free(peer);
}

static const struct br_stream_events events = {detect, on_progress, on_closed};

void br_server_drop(struct br_net_server *s, const struct br_arrival *a, enum br_ending why)
{
    close(a->fd);
    br_server_add_load(s, -1);
    br_listener_forget_address(s->listener, &a->address);
    *s->closed[why] += 1;
}

static struct br_peer *peer_new(struct br_net_server *s, const struct br_arrival *a)
{
    struct br_peer *peer = br_malloc(sizeof *peer);
    if (!peer)
        return NULL;
    *peer = (struct br_peer){.server = s, .address = a->address, .max_age_ms = UINT64_MAX};
    peer->used_ms = uv_now(&s->loop->uv);
    if (s->config.max_age_ms) /* so that those who came together do not go together (gRPC A9) */
        peer->max_age_ms =
            (uint64_t)((double)s->config.max_age_ms * (0.9 + 0.2 * br_host_random(&s->loop->host)));
    memcpy(peer->name, a->peer, sizeof peer->name);
    return peer;
}

static void start_tls(struct br_net_server *s, struct br_stream *stream)
{
    struct br_err err;
    stream->tls = br_tls_new(s->tls, NULL);
    if (br_tls_context_reload_error(s->tls, &err))
        br_warn(s->config.log, "TLS files were not reloaded, the old ones stay: %s", err.text);
    if (!stream->tls)
        br_stream_close_for(stream, BR_END_MEMORY, "out of memory");
}

void br_server_take(struct br_net_server *s, const struct br_arrival *a)
{
    bool of_address = a->room == BR_ROOM_NONE_OF_ADDRESS;
    if (s->stopping) {
        br_server_drop(s, a, BR_END_STOP);
        return;
    }
    if (br_listener_is_full(s->listener, a) &&
        !br_server_make_room(s, of_address ? &a->address : NULL)) {
        br_server_pass_on(s, a);
        return;
    }
    struct br_peer *peer = peer_new(s, a);
    if (!peer) {
        br_server_drop(s, a, BR_END_MEMORY);
        return;
    }
    struct br_stream *stream = br_stream_new(s->loop, a->fd, &events, peer, true, false);
    if (!stream) {
        br_free(peer);
        br_server_add_load(s, -1);
        br_listener_forget_address(s->listener, &a->address);
        *s->closed[BR_END_MEMORY] += 1;
        return;
    }
    br_list_append(&s->streams, &stream->link);
    *s->connections += 1;
    if (s->tls)
        start_tls(s, stream);
}

bool br_server_stream_idle(const struct br_stream *stream)
{
    return !stream->conn || (stream->conn->ops->idle(stream->conn) && stream->out.len == 0);
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
    (void)br_host_timer(&s->loop->host, &s->sweep, 0, br_server_stop_sweep);
}

static void server_free(struct br_server *base)
{
    struct br_net_server *s = server_of(base);
    s->stopping = s->stopped = true;
    while (!br_list_empty(&s->streams)) {
        struct br_stream *stream = br_container_of(s->streams.next, struct br_stream, link);
        br_stream_note(stream, BR_END_STOP, "the server stops");
        br_stream_end(stream, "the server stops");
    }
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

static void make_endings(struct br_net_server *s)
{
    static const char *const names[BR_ENDINGS] = {
        [BR_END_NONE] = "done",
        [BR_END_PEER] = "client",
        [BR_END_DONE] = "done",
        [BR_END_IDLE] = "idle",
        [BR_END_AGE] = "age",
        [BR_END_HANDSHAKE] = "handshake_timeout",
        [BR_END_FIRST_REQUEST] = "first_request_timeout",
        [BR_END_SLOW_REQUEST] = "slow_request",
        [BR_END_SLOW_BODY] = "slow_body",
        [BR_END_SLOW_READER] = "slow_reader",
        [BR_END_KEEPALIVE] = "keepalive_timeout",
        [BR_END_ROOM] = "made_room",
        [BR_END_LIMIT] = "limit",
        [BR_END_FLOOD] = "flood",
        [BR_END_PROTOCOL] = "protocol_error",
        [BR_END_TLS] = "tls",
        [BR_END_NETWORK] = "network",
        [BR_END_MEMORY] = "memory",
        [BR_END_STOP] = "stop",
    };
    for (int i = 0; i < BR_ENDINGS; i++) {
        struct br_str labels = {.max = 1024};
        br_label(&labels, "server", s->config.name);
        br_label(&labels, "reason", names[i]);
        s->closed[i] = br_metric(s->loop->host.metrics, BR_COUNTER,
                                 "braid_server_connections_closed", labels.data ? labels.data : "");
        br_str_release(&labels);
    }
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
                 struct br_handler *service, struct br_server **ret, struct br_err *err)
{
    struct br_net_server *s = br_calloc(1, sizeof *s);
    if (!s)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    s->base.ops = &server_ops;
    s->loop = br_loop_of(h);
    s->config = *config;
    s->service = service;
    s->connections = connections_of(h, config->name);
    make_endings(s);
    br_list_init(&s->streams);
    br_server_set_times(s);
    int rc = make_tls(s, err);
    if (!rc && !br_host_timer(h, &s->sweep, s->sweep_ms, br_server_sweep))
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
