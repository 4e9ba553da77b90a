/* SPDX-License-Identifier: Apache-2.0 */
#include "net/server.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/hosts.h"
#include "net/server_internal.h"
#include "net/tls.h"

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
#define PREFACE_LEN 24u

static const char *const tls_complaints[BR_GUESSES] = {
    [BR_GUESS_HTTP1] = "this port accepts only TLS; use https://, or remove tls::insecure"};
static const char *const plain_complaints[BR_GUESSES] = {
    [BR_GUESS_TLS] =
        "this port does not accept TLS; use http:// or tls::insecure, or give the port "
        "certificates (tls::cert_file)"};

unsigned br_server_load(struct br_net_server *server)
{
    return atomic_load_explicit(&server->load, memory_order_relaxed);
}

uint64_t br_server_oldest_ns(struct br_net_server *server)
{
    return atomic_load_explicit(&server->oldest_ns, memory_order_relaxed);
}

void br_server_add_load(struct br_net_server *server, int change)
{
    atomic_fetch_add_explicit(&server->load, (unsigned)change, memory_order_relaxed);
    atomic_fetch_add_explicit(&server->loop->net->n_connections, (unsigned)change,
                              memory_order_relaxed);
}

void br_server_uncount(struct br_net_server *server, const struct br_client_address *address)
{
    br_server_add_load(server, -1);
    br_listener_forget_address(server->listener, address);
}

struct br_loop *br_server_loop(struct br_net_server *server)
{
    return server->loop;
}

static struct br_net_server *server_of(struct br_server *server)
{
    return br_container_of(server, struct br_net_server, base);
}

static unsigned server_port(struct br_server *base)
{
    const struct br_net_server *server = server_of(base);
    return server->listener ? server->listener->port : 0;
}

static void server_on_report(struct br_deferred *deferred)
{
    struct br_net_server *server = br_container_of(deferred, struct br_net_server, report);
    if (server->stopped || !server->stopping || !br_list_empty(&server->streams))
        return;
    server->stopped = true;
    server->on_stopped(server->on_stopped_arg);
}

/* Ends a connection. If the process goes on, because only this server was replaced, a request that
 * is on its way is still answered. */
static void server_shut_down(const struct br_net_server *server, struct br_conn *conn)
{
    if (server->gentle)
        conn->ops->retire(conn);
    else
        conn->ops->shutdown(conn);
}

static int server_detect(struct br_stream *stream, const uint8_t *data, size_t len)
{
    struct br_peer *peer = stream->owner;
    struct br_net_server *server = peer->server;
    bool h2 = stream->tls && strcmp(br_tls_alpn(stream->tls), "h2") == 0;
    if (!h2) {
        size_t n = stream->n_first;
        size_t compare = PREFACE_LEN - n < len ? PREFACE_LEN - n : len;
        h2 = memcmp(preface + n, data, compare) == 0;
        if (h2 && n + compare < PREFACE_LEN) {
            memcpy(stream->first + n, data, compare);
            stream->n_first += (unsigned)compare;
            return BR_EAGAIN;
        }
    }
    struct br_pool *pool = stream->loop->host.pool;
    struct br_conn *conn =
        h2 ? br_h2_server_new(server->service, pool, peer->name, &server->config.limits)
           : br_h1_server_new(server->service, pool, peer->name);
    if (!conn)
        return BR_ENOMEM;
    conn->body_progress = server->body_progress;
    br_stream_set_conn(stream, conn);
    if (server->stopping)
        server_shut_down(server, conn);
    return 0;
}

static void server_on_progress(struct br_stream *stream)
{
    br_server_note_use(stream);
}

/* Returns why a connection ended. A protocol error of the client takes precedence over the
 * stream's reason, even if the stream then ended normally. */
static enum br_ending server_ending_of(const struct br_stream *stream)
{
    static const enum br_ending faults[] = {
        [BR_FAULT_PROTOCOL] = BR_END_PROTOCOL, [BR_FAULT_FLOOD] = BR_END_FLOOD};
    if (stream->conn && stream->conn->fault)
        return faults[stream->conn->fault];
    return stream->reason ? stream->reason : BR_END_DONE;
}

static void server_warn_of_rejection(struct br_net_server *server, const struct br_peer *peer,
                                     const char *why)
{
    br_log_limited(server->config.log, BR_LOG_WARN, &server->complaints, uv_now(&server->loop->uv),
                   BR_LOG_EVERY_MS, "%s: rejected a connection from %s: %s", server->config.what,
                   peer->name, why);
}

static void server_on_closed(struct br_stream *stream, const char *why)
{
    struct br_peer *peer = stream->owner;
    struct br_net_server *server = peer->server;
    enum br_ending ending = server_ending_of(stream);
    br_debug(server->config.log, "connection from %s closed: %s", peer->name, why);
    if (ending == BR_END_TLS && server->config.tls && server->config.tls->client_ca_file)
        server_warn_of_rejection(server, peer, why);
    br_server_forget(server, stream);
    br_server_uncount(server, &peer->address);
    *server->connections -= 1;
    *server->closed[ending] += 1;
    if (server->stopping && br_list_empty(&server->streams))
        br_host_defer(&server->loop->host, &server->report, server_on_report);
    br_free(peer);
}

static void server_on_complaint(struct br_stream *stream, const char *complaint)
{
    struct br_peer *peer = stream->owner;
    struct br_net_server *server = peer->server;
    server_warn_of_rejection(server, peer, complaint);
}

static const struct br_stream_events events = {server_detect, server_on_progress, server_on_closed,
                                               server_on_complaint};

void br_server_drop(struct br_net_server *server, const struct br_arrival *arrival,
                    enum br_ending why)
{
    close(arrival->fd);
    br_server_uncount(server, &arrival->address);
    *server->closed[why] += 1;
}

static struct br_peer *server_peer_new(struct br_net_server *server,
                                       const struct br_arrival *arrival)
{
    struct br_peer *peer = br_malloc(sizeof *peer);
    if (!peer)
        return NULL;
    *peer =
        (struct br_peer){.server = server, .address = arrival->address, .max_age_ms = UINT64_MAX};
    peer->used_ms = uv_now(&server->loop->uv);
    /* gRPC A9: the age limits of connections that were opened together must differ, or all these
     * connections would be closed together. */
    if (server->config.max_age_ms)
        peer->max_age_ms = (uint64_t)((double)server->config.max_age_ms *
                                      (0.9 + 0.2 * br_host_random(&server->loop->host)));
    memcpy(peer->name, arrival->peer, sizeof peer->name);
    return peer;
}

static void server_start_tls(struct br_net_server *server, struct br_stream *stream)
{
    stream->tls = br_tls_new(server->tls, NULL);
    if (!stream->tls)
        br_stream_close_for(stream, BR_END_MEMORY, "out of memory");
}

/* Counts a connection that was handed over during the search for an idle connection, because
 * br_listener_hand_over did not count it. If memory is short, closes the socket and returns
 * false. */
static bool server_count_again(struct br_net_server *server, const struct br_arrival *arrival)
{
    unsigned of_address;
    if (!br_listener_note_address(server->listener, &arrival->address, &of_address)) {
        close(arrival->fd);
        *server->closed[BR_END_MEMORY] += 1;
        return false;
    }
    br_server_add_load(server, 1);
    return true;
}

void br_server_take(struct br_net_server *server, const struct br_arrival *arrival)
{
    if (arrival->n_visited && !server_count_again(server, arrival))
        return;
    if (server->stopping && !server->gentle) {
        br_server_drop(server, arrival, BR_END_STOP);
        return;
    }
    if (br_server_refuse_over(server, arrival))
        return;
    if (br_listener_is_full(server->listener, arrival) && !br_server_evict_idle(server, arrival))
        return;
    struct br_peer *peer = server_peer_new(server, arrival);
    if (!peer) {
        br_server_drop(server, arrival, BR_END_MEMORY);
        return;
    }
    struct br_stream *stream = br_stream_new(server->loop, arrival->fd, &events, peer, true, false);
    if (!stream) {
        br_free(peer);
        br_server_uncount(server, &arrival->address);
        *server->closed[BR_END_MEMORY] += 1;
        return;
    }
    stream->complaints = server->tls ? tls_complaints : plain_complaints;
    br_server_put_last(server, stream);
    *server->connections += 1;
    if (server->tls)
        server_start_tls(server, stream);
}

bool br_server_stream_idle(const struct br_stream *stream)
{
    return !stream->conn || (stream->conn->ops->idle(stream->conn) && stream->out.len == 0);
}

static void server_stop(struct br_server *base, void (*on_stopped)(void *arg), void *arg)
{
    struct br_net_server *server = server_of(base);
    server->stopping = true;
    server->gentle = !server->loop->host.draining;
    server->stop_ms = uv_now(&server->loop->uv);
    server->on_stopped = on_stopped;
    server->on_stopped_arg = arg;
    if (server->listener && server->listener->loop == server->loop)
        br_listener_stop(server->listener);
    for (struct br_list *list = server->streams.next; list != &server->streams; list = list->next) {
        struct br_stream *stream = br_container_of(list, struct br_stream, link);
        if (stream->conn)
            server_shut_down(server, stream->conn);
    }
    br_host_defer(&server->loop->host, &server->report, server_on_report);
    (void)br_host_timer(&server->loop->host, &server->sweep, 0, br_server_stop_sweep);
}

static void server_release(struct br_net_server *server)
{
    br_tls_reload_stop(server->tls_reload);
    br_tls_context_free(server->tls);
    br_gate_release(&server->gate);
    br_free(server);
}

static void server_free(struct br_server *base)
{
    struct br_net_server *server = server_of(base);
    server->stopping = server->stopped = true;
    while (!br_list_empty(&server->streams)) {
        struct br_stream *stream = br_container_of(server->streams.next, struct br_stream, link);
        br_stream_note(stream, BR_END_STOP, "the server is stopping");
        br_stream_end(stream, "the server is stopping");
    }
    br_host_timer_stop(&server->loop->host, &server->sweep);
    br_host_defer_cancel(&server->report);
    if (server->listener)
        br_listener_leave(server->listener, server);
    server_release(server);
}

static const struct br_server_ops server_ops = {server_stop, server_free, server_port};

static int server_make_tls(struct br_net_server *server, struct br_err *err)
{
    static const char *const alpn[] = {"h2", "http/1.1", NULL};
    if (!server->config.tls)
        return 0;
    return br_tls_context_new(server->config.tls, true, alpn, &server->tls, err);
}

static int server_make_gate(struct br_net_server *server, struct br_err *err)
{
    const struct br_server_config *config = &server->config;
    if (!br_auth_name(config->gate.auth))
        return 0;
    if (br_gate_init(&server->gate, &server->loop->host, &config->gate, server->service,
                     config->name, config->what, config->log))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    server->service = &server->gate.handler;
    return 0;
}

/* Warns if other machines can send requests without authentication. */
static void server_warn_if_open(const struct br_net_server *server)
{
    const struct br_server_config *config = &server->config;
    bool is_unix = config->transport && strcmp(config->transport, "unix") == 0;
    bool authenticates = br_auth_name(config->gate.auth) || config->guarded ||
                         (config->tls && config->tls->client_ca_file);
    if (server->loop->host.worker || authenticates || is_unix ||
        br_endpoint_is_loopback(config->endpoint))
        return;
    br_warn(config->log,
            "%s: other machines can send requests to %s without authentication; set auth or "
            "tls::client_ca_file",
            config->what, config->endpoint);
}

/* Returns the gauge of the connections of one server on one worker. Each worker has a gauge,
 * because the gauges show whether connections are distributed evenly. */
static double *server_connections_of(struct br_host *host, const char *name)
{
    char worker[16];
    struct br_str labels = {.max = 1024};
    (void)snprintf(worker, sizeof worker, "%u", host->worker);
    br_label(&labels, "server", name);
    br_label(&labels, "worker", worker);
    double *metric = br_metric(host->metrics, BR_GAUGE, "braid_server_connections",
                               labels.data ? labels.data : "");
    br_str_release(&labels);
    return metric;
}

static void server_make_endings(struct br_net_server *server)
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
        [BR_END_EVICTED] = "made_room",
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
        br_label(&labels, "server", server->config.name);
        br_label(&labels, "reason", names[i]);
        server->closed[i] =
            br_metric(server->loop->host.metrics, BR_COUNTER, "braid_server_connections_closed",
                      labels.data ? labels.data : "");
        br_str_release(&labels);
    }
}

static int server_open_listener(struct br_net_server *server, struct br_err *err)
{
    const char *name = server->config.name;
    unsigned worker = server->loop->host.worker;
    if (worker >= BR_WORKERS_MAX)
        return br_err_set(err, BR_EINVAL, "at most %d workers can share a listener",
                          BR_WORKERS_MAX);
    if (worker == 0)
        return br_listener_open(server->loop, &server->config, &server->listener, err);
    server->listener = br_listener_find(server->loop->net, name);
    return server->listener ? 0 : br_err_set(err, BR_ENOTFOUND, "no listener for %s", name);
}

int br_net_serve(struct br_host *host, const struct br_server_config *config,
                 struct br_handler *service, struct br_server **ret, struct br_err *err)
{
    struct br_net_server *server = br_calloc(1, sizeof *server);
    if (!server)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    server->base.ops = &server_ops;
    server->loop = br_loop_of(host);
    server->config = *config;
    server->service = service;
    server->connections = server_connections_of(host, config->name);
    server_make_endings(server);
    br_list_init(&server->streams);
    server->oldest_ns = UINT64_MAX;
    br_server_set_times(server);
    int rc = server_make_tls(server, err);
    if (!rc)
        rc = server_make_gate(server, err);
    if (!rc && (br_tls_reload_start(host, server->tls, config->log, &server->tls_reload) ||
                !br_host_timer(host, &server->sweep, server->sweep_ms, br_server_sweep)))
        rc = br_err_set(err, BR_ENOMEM, "out of memory");
    if (!rc)
        rc = server_open_listener(server, err);
    if (rc) {
        br_host_timer_stop(host, &server->sweep);
        server_release(server);
        return rc;
    }
    server_warn_if_open(server);
    server->listener->targets[host->worker] = server;
    if (server->listener->n_targets <= host->worker)
        server->listener->n_targets = host->worker + 1;
    *ret = &server->base;
    return 0;
}
