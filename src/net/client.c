/* SPDX-License-Identifier: Apache-2.0 */
#include "net/client.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/net_internal.h"

#define HTTP_CONNECTIONS 100
#define CONNECT_MS 20000
#define IDLE_MS 90000
#define PING_TIMEOUT_MS 10000
#define SWEEP_MS 1000

/* An exchange that waits for a connection. */
struct waiting {
    struct br_list link;
    struct br_exchange *x;
};

struct link {
    struct br_list link; /* client->links */
    struct client *client;
    struct br_stream *stream;
    bool ready;     /* connected; TLS may still be shaking hands */
    bool draining;  /* takes nothing new */
    uint64_t ping_ms, used_ms;
    bool pinged;
};

struct resolve {
    uv_getaddrinfo_t request;
    struct client *client; /* NULL: given up */
};

struct client {
    struct br_client base;
    struct br_loop *loop;
    struct br_client_config config;
    struct br_endpoint endpoint;
    struct br_tls_context *tls;
    struct br_list links;
    struct br_list waiting; /* of waiting; `impl` of the exchange points at it */
    struct br_deferred pump;
    struct br_timer sweep;
    struct resolve *resolving;
    uint64_t resolving_since_ms;
    bool closing;
};

static void pump(struct br_deferred *d);

static struct client *client_of(struct br_client *c)
{
    return br_container_of(c, struct client, base);
}

static void wake(struct client *c)
{
    br_host_defer(&c->loop->host, &c->pump, pump);
}

/* Ends every exchange that waits. */
static void fail_waiting(struct client *c, int error, const char *what, const char *why)
{
    struct br_list now;
    br_list_init(&now);
    while (!br_list_empty(&c->waiting))
        br_list_append(&now, br_list_shift(&c->waiting));
    struct br_list *l;
    while ((l = br_list_shift(&now))) {
        struct waiting *w = br_container_of(l, struct waiting, link);
        struct br_exchange *x = w->x;
        br_free(w);
        x->impl = NULL;
        x->error = error;
        (void)snprintf(x->error_text, sizeof x->error_text, "%s %.60s: %.40s", what,
                       c->endpoint.authority, why);
        x->on_done(x);
    }
}

/* --- Connections ---------------------------------------------------------------------------- */

static int detect(struct br_stream *s, const uint8_t *data, size_t len)
{
    (void)s;
    (void)data;
    (void)len;
    return BR_EPROTO; /* clients have their protocol from the start */
}

static void on_progress(struct br_stream *s)
{
    struct link *link = s->owner;
    link->ready = true;
    if (!br_list_empty(&link->client->waiting))
        wake(link->client);
}

static unsigned usable(const struct client *c)
{
    unsigned n = 0;
    for (const struct br_list *l = c->links.next; l != &c->links; l = l->next)
        n += !br_container_of(l, struct link, link)->draining;
    return n;
}

static void on_closed(struct br_stream *s, const char *why)
{
    struct link *link = s->owner;
    struct client *c = link->client;
    bool was_ready = link->ready && (!s->tls || br_tls_ready(s->tls));
    br_list_remove(&link->link);
    br_debug(c->config.log, "connection to %s closed: %s", c->endpoint.authority, why);
    br_free(link);
    if (c->closing)
        return;
    /* Nothing came of it: whoever waits learns why, unless another connection can still serve. */
    if (!was_ready && usable(c) == 0)
        fail_waiting(c, BR_EIO, "cannot connect to", why);
    wake(c);
}

static const struct br_stream_events events = {detect, on_progress, on_closed};

static struct br_conn *make_conn(struct client *c)
{
    struct br_pool *pool = c->loop->host.pool;
    return c->config.grpc ? br_h2_client_new(pool) : br_h1_client_new(pool);
}

static void connect_fd(struct client *c, int fd)
{
    struct link *link = br_calloc(1, sizeof *link);
    struct br_conn *conn = make_conn(c);
    struct br_stream *s =
        link && conn ? br_stream_new(c->loop, fd, &events, link, false, true) : NULL;
    if (!s) {
        if (!link || !conn)
            close(fd);
        if (conn) {
            conn->wake = NULL;
            conn->ops->free(conn);
        }
        br_free(link);
        fail_waiting(c, BR_ENOMEM, "cannot connect to", "out of memory");
        return;
    }
    link->client = c;
    link->stream = s;
    link->used_ms = link->ping_ms = uv_now(&c->loop->uv);
    br_list_append(&c->links, &link->link);
    if (c->tls) {
        const char *name = c->config.tls && c->config.tls->server_name_override
                               ? c->config.tls->server_name_override
                               : c->endpoint.host;
        struct br_err err;
        s->tls = br_tls_new(c->tls, name);
        if (br_tls_context_reload_error(c->tls, &err))
            br_warn(c->config.log, "TLS files were not reloaded, the old ones stay: %s", err.text);
        if (!s->tls)
            br_stream_close(s, "the server's name cannot be verified, or there is no memory");
    }
    br_stream_set_conn(s, conn);
}

static void connect_to(struct client *c, const struct sockaddr *addr, socklen_t len)
{
    int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int one = 1;
    if (fd >= 0 && addr->sa_family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (fd < 0 || (connect(fd, addr, len) && errno != EINPROGRESS)) {
        int saved = errno;
        if (fd >= 0)
            close(fd);
        fail_waiting(c, BR_EIO, "cannot connect to", strerror(saved));
        return;
    }
    connect_fd(c, fd);
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct resolve *r = br_container_of(request, struct resolve, request);
    struct client *c = r->client;
    br_free(r);
    if (c) {
        c->resolving = NULL;
        const struct addrinfo *ai = found;
        /* As Go: IPv4 first where there is a choice. */
        for (const struct addrinfo *a = found; a; a = a->ai_next)
            if (a->ai_family == AF_INET) {
                ai = a;
                break;
            }
        if (status < 0 || !ai)
            fail_waiting(c, BR_EIO, "cannot resolve", status < 0 ? uv_strerror(status) : "no address");
        else
            connect_to(c, ai->ai_addr, ai->ai_addrlen);
        wake(c);
    }
    uv_freeaddrinfo(found);
}

static bool connect_numeric(struct client *c)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (uv_ip4_addr(c->endpoint.host, (int)c->endpoint.port, &v4) == 0)
        connect_to(c, (const struct sockaddr *)&v4, sizeof v4);
    else if (uv_ip6_addr(c->endpoint.host, (int)c->endpoint.port, &v6) == 0)
        connect_to(c, (const struct sockaddr *)&v6, sizeof v6);
    else
        return false;
    return true;
}

static void open_connection(struct client *c)
{
    if (c->endpoint.unix_socket) {
        struct sockaddr_un addr = {.sun_family = AF_UNIX};
        (void)snprintf(addr.sun_path, sizeof addr.sun_path, "%.107s", c->endpoint.host);
        connect_to(c, (const struct sockaddr *)&addr, sizeof addr);
        return;
    }
    if (connect_numeric(c))
        return;
    char port[8];
    (void)snprintf(port, sizeof port, "%u", c->endpoint.port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    struct resolve *r = br_calloc(1, sizeof *r);
    if (r)
        r->client = c;
    if (!r ||
        uv_getaddrinfo(&c->loop->uv, &r->request, on_resolved, c->endpoint.host, port, &hints)) {
        br_free(r);
        fail_waiting(c, BR_ENOMEM, "cannot resolve", "out of memory");
        return;
    }
    c->resolving = r;
    c->resolving_since_ms = uv_now(&c->loop->uv);
}

/* --- Exchanges ------------------------------------------------------------------------------ */

/* A connection that takes one more exchange now, or NULL. */
static struct link *free_link(struct client *c)
{
    for (struct br_list *l = c->links.next; l != &c->links; l = l->next) {
        struct link *link = br_container_of(l, struct link, link);
        struct br_stream *s = link->stream;
        if (link->ready && !link->draining && !s->closing && (!s->tls || br_tls_ready(s->tls)) &&
            br_conn_can_send(s->conn))
            return link;
    }
    return NULL;
}

/* Connections that are being made. */
static unsigned coming(const struct client *c)
{
    unsigned n = c->resolving != NULL;
    for (const struct br_list *l = c->links.next; l != &c->links; l = l->next) {
        const struct link *link = br_container_of(l, struct link, link);
        n += !link->ready || (link->stream->tls && !br_tls_ready(link->stream->tls));
    }
    return n;
}

static void note_draining(struct client *c)
{
    for (struct br_list *l = c->links.next; l != &c->links; l = l->next) {
        struct link *link = br_container_of(l, struct link, link);
        if (link->ready && !br_conn_can_send(link->stream->conn) &&
            link->stream->conn->ops->idle(link->stream->conn)) {
            link->draining = true;
            br_stream_close(link->stream, "done");
        }
    }
}

static void pump(struct br_deferred *d)
{
    struct client *c = br_container_of(d, struct client, pump);
    unsigned n_waiting = 0;
    note_draining(c);
    while (!br_list_empty(&c->waiting)) {
        struct link *link = free_link(c);
        if (!link)
            break;
        struct waiting *w =
            br_container_of(br_list_shift(&c->waiting), struct waiting, link);
        struct br_exchange *x = w->x;
        br_free(w);
        x->impl = NULL;
        link->used_ms = uv_now(&c->loop->uv);
        int rc = br_conn_send(link->stream->conn, x);
        if (rc) {
            x->error = rc;
            (void)snprintf(x->error_text, sizeof x->error_text, "cannot send: %s", br_strerror(rc));
            x->on_done(x);
        }
    }
    for (struct br_list *l = c->waiting.next; l != &c->waiting; l = l->next)
        n_waiting++;
    unsigned max = c->config.max_connections;
    for (unsigned n = coming(c); n < n_waiting && usable(c) + (c->resolving != NULL) < max; n++) {
        open_connection(c);
        if (c->resolving || br_list_empty(&c->waiting))
            break;
    }
}

static void client_send(struct br_client *base, struct br_exchange *x)
{
    struct client *c = client_of(base);
    struct waiting *w = br_malloc(sizeof *w);
    x->conn = NULL;
    x->response = NULL;
    if (!x->authority)
        x->authority = c->config.authority ? c->config.authority : c->endpoint.authority;
    x->grpc_status = -1;
    x->http_status = 0;
    x->error = 0;
    if (!w) {
        x->error = BR_ENOMEM;
        (void)snprintf(x->error_text, sizeof x->error_text, "out of memory");
        x->on_done(x);
        return;
    }
    *w = (struct waiting){.x = x};
    x->impl = w;
    br_list_append(&c->waiting, &w->link);
    wake(c);
}

static void client_cancel(struct br_client *base, struct br_exchange *x)
{
    struct client *c = client_of(base);
    if (x->conn) {
        br_conn_cancel(x->conn, x);
        wake(c);
    } else if (x->impl) {
        struct waiting *w = x->impl;
        br_list_remove(&w->link);
        br_free(w);
        x->impl = NULL;
    }
}

/* --- Timers --------------------------------------------------------------------------------- */

static void keep_alive(struct client *c, struct link *link, uint64_t now)
{
    uint64_t timeout =
        c->config.keepalive_timeout_ms ? c->config.keepalive_timeout_ms : PING_TIMEOUT_MS;
    struct br_stream *s = link->stream;
    if (link->pinged && s->read_ms >= link->ping_ms)
        link->pinged = false;
    if (link->pinged && now - link->ping_ms > timeout) {
        br_stream_close(s, "keepalive: no answer to a PING");
    } else if (!link->pinged && now - s->read_ms >= c->config.keepalive_time_ms &&
               (c->config.keepalive_without_stream || !s->conn->ops->idle(s->conn))) {
        link->pinged = br_conn_ping(s->conn);
        link->ping_ms = now;
    }
}

static void on_sweep(struct br_timer *t)
{
    struct client *c = br_container_of(t, struct client, sweep);
    uint64_t now = uv_now(&c->loop->uv);
    uint64_t connect_ms = c->config.connect_timeout_ms ? c->config.connect_timeout_ms : CONNECT_MS;
    uint64_t idle_ms = c->config.idle_timeout_ms ? c->config.idle_timeout_ms : IDLE_MS;
    for (struct br_list *l = c->links.next; l != &c->links; l = l->next) {
        struct link *link = br_container_of(l, struct link, link);
        struct br_stream *s = link->stream;
        bool up = link->ready && (!s->tls || br_tls_ready(s->tls));
        if (!up && now - s->opened_ms > connect_ms)
            br_stream_close(s, "no connection in time");
        else if (up && !c->config.grpc && now - link->used_ms > idle_ms &&
                 s->conn->ops->idle(s->conn))
            br_stream_close(s, "idle");
        else if (up && c->config.keepalive_time_ms)
            keep_alive(c, link, now);
    }
    (void)br_host_timer(&c->loop->host, &c->sweep, SWEEP_MS, on_sweep);
}

static void client_free(struct br_client *base)
{
    struct client *c = client_of(base);
    c->closing = true;
    fail_waiting(c, BR_ECLOSED, "connection to", "the client stops");
    while (!br_list_empty(&c->links)) {
        struct link *link = br_container_of(c->links.next, struct link, link);
        link->stream->conn->ops->shutdown(link->stream->conn);
        br_stream_close(link->stream, "the client stops");
        br_loop_flush(c->loop);
    }
    fail_waiting(c, BR_ECLOSED, "connection to", "the client stops");
    if (c->resolving) {
        c->resolving->client = NULL;
        (void)uv_cancel((uv_req_t *)&c->resolving->request);
    }
    br_host_defer_cancel(&c->pump);
    br_host_timer_stop(&c->loop->host, &c->sweep);
    br_tls_context_free(c->tls);
    br_free(c);
}

static const struct br_client_ops client_ops = {client_send, client_cancel, client_free};

static int make_tls(struct client *c, struct br_err *err)
{
    static const char *const h2[] = {"h2", NULL}, *const h1[] = {"http/1.1", NULL};
    static const struct br_tls_config defaults;
    const struct br_tls_config *tls = c->config.tls;
    /* As the Collector: a scheme decides; without one (gRPC) it is TLS unless `insecure`. */
    bool want = c->endpoint.tls || (!c->endpoint.has_scheme && !(tls && tls->insecure) &&
                                    !c->endpoint.unix_socket);
    if (!want)
        return 0;
    return br_tls_context_new(tls ? tls : &defaults, false, c->config.grpc ? h2 : h1, &c->tls, err);
}

int br_net_connect(struct br_host *h, const struct br_client_config *config,
                   struct br_client **ret, struct br_err *err)
{
    struct client *c = br_calloc(1, sizeof *c);
    if (!c)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    c->base.ops = &client_ops;
    c->loop = br_loop_of(h);
    c->config = *config;
    if (!c->config.max_connections)
        c->config.max_connections = config->grpc ? 1 : HTTP_CONNECTIONS;
    br_list_init(&c->links);
    br_list_init(&c->waiting);
    int rc = br_endpoint_read(config->endpoint, config->grpc, &c->endpoint, err);
    if (!rc)
        rc = make_tls(c, err);
    if (rc) {
        br_free(c);
        return rc;
    }
    (void)br_host_timer(h, &c->sweep, SWEEP_MS, on_sweep);
    *ret = &c->base;
    return 0;
}
