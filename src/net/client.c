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
#define SWEEP_MIN_MS 10
#define ADDRESSES_MAX 8

/* An exchange that waits for a connection. */
struct waiting {
    struct br_list link;
    struct br_exchange *x;
};

struct link {
    struct br_list link; /* client->links */
    struct client *client;
    struct br_stream *stream;
    bool ready;       /* connected; TLS may still be shaking hands */
    bool draining;    /* takes nothing new */
    unsigned address; /* which of the client's */
    uint64_t ping_ms, used_ms;
    bool pinged;
};

struct address {
    struct sockaddr_storage addr;
    socklen_t len;
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
    uint64_t resolving_since_ms, sweep_ms;
    struct address addresses[ADDRESSES_MAX]; /* of the last look-up */
    unsigned n_addresses;
    bool closing;
};

static void pump(struct br_deferred *d);
static bool try_next(struct client *c, unsigned address, const char **why);

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
        int used = snprintf(x->error_text, sizeof x->error_text, "%s %.50s: ", what,
                            c->endpoint.authority);
        (void)snprintf(x->error_text + used, sizeof x->error_text - (size_t)used, "%.*s",
                       (int)sizeof x->error_text - used - 1, why);
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
    unsigned address = link->address;
    br_list_remove(&link->link);
    br_debug(c->config.log, "connection to %s closed: %s", c->endpoint.authority, why);
    br_free(link);
    if (c->closing)
        return;
    /* Nothing came of it, nor of any other address: whoever waits learns why. Also when another
     * connection serves: trying again at once would have no end while that one is busy. */
    if (!was_ready && !try_next(c, address, &why))
        fail_waiting(c, BR_EIO, "cannot connect to", why);
    wake(c);
}

static const struct br_stream_events events = {detect, on_progress, on_closed};

static struct br_conn *make_conn(struct client *c)
{
    struct br_pool *pool = c->loop->host.pool;
    return c->config.grpc ? br_h2_client_new(pool) : br_h1_client_new(pool);
}

static void start_tls(struct client *c, struct br_stream *s)
{
    const char *override = c->config.tls ? c->config.tls->server_name_override : NULL;
    struct br_err err;
    s->tls = br_tls_new(c->tls, override ? override : c->endpoint.host);
    if (br_tls_context_reload_error(c->tls, &err))
        br_warn(c->config.log, "TLS files were not reloaded, the old ones stay: %s", err.text);
    if (!s->tls)
        br_stream_close(s, "the server's name cannot be verified, or there is no memory");
}

static bool connect_fd(struct client *c, int fd, unsigned address)
{
    struct link *link = br_calloc(1, sizeof *link);
    struct br_conn *conn = make_conn(c);
    if (!link || !conn) {
        close(fd);
        fd = -1;
    }
    struct br_stream *s = fd >= 0 ? br_stream_new(c->loop, fd, &events, link, false, true) : NULL;
    if (!s) {
        if (conn)
            conn->ops->free(conn);
        br_free(link);
        return false;
    }
    link->client = c;
    link->stream = s;
    link->address = address;
    link->used_ms = link->ping_ms = uv_now(&c->loop->uv);
    br_list_append(&c->links, &link->link);
    if (c->tls)
        start_tls(c, s);
    br_stream_set_conn(s, conn);
    return true;
}

/* Begins to connect. False, and why, when that failed at once. */
static bool connect_to(struct client *c, unsigned address, const char **why)
{
    const struct address *a = &c->addresses[address];
    int fd = socket(a->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int one = 1;
    if (fd >= 0 && a->addr.ss_family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (fd < 0 ||
        (connect(fd, (const struct sockaddr *)&a->addr, a->len) && errno != EINPROGRESS)) {
        *why = strerror(errno);
        if (fd >= 0)
            close(fd);
        return false;
    }
    if (connect_fd(c, fd, address))
        return true;
    *why = "out of memory";
    return false;
}

/* The addresses after one that did not answer. */
static bool try_next(struct client *c, unsigned address, const char **why)
{
    while (++address < c->n_addresses && !br_list_empty(&c->waiting))
        if (connect_to(c, address, why))
            return true;
    return false;
}

static void try_all(struct client *c)
{
    const char *why = "no address";
    if (c->n_addresses && connect_to(c, 0, &why))
        return;
    if (!try_next(c, 0, &why))
        fail_waiting(c, BR_EIO, "cannot connect to", why);
}

static void add_address(struct client *c, const void *addr, socklen_t len)
{
    if (c->n_addresses == ADDRESSES_MAX || len > sizeof c->addresses[0].addr)
        return;
    struct address *a = &c->addresses[c->n_addresses++];
    memset(a, 0, sizeof *a);
    memcpy(&a->addr, addr, len);
    a->len = len;
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    static const int order[] = {AF_INET, AF_INET6}; /* as Go: IPv4 first where there is a choice */
    struct resolve *r = br_container_of(request, struct resolve, request);
    struct client *c = r->client;
    br_free(r);
    if (c) {
        c->resolving = NULL;
        c->n_addresses = 0;
        for (size_t i = 0; i < BR_COUNT(order); i++)
            for (const struct addrinfo *a = found; a; a = a->ai_next)
                if (a->ai_family == order[i])
                    add_address(c, a->ai_addr, a->ai_addrlen);
        if (status < 0)
            fail_waiting(c, BR_EIO, "cannot resolve", uv_strerror(status));
        else if (!br_list_empty(&c->waiting))
            try_all(c);
        wake(c);
    }
    uv_freeaddrinfo(found);
}

/* Addresses that need no look-up. */
static bool numeric(struct client *c)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    int port = (int)c->endpoint.port;
    c->n_addresses = 0;
    if (c->endpoint.unix_socket) {
        (void)snprintf(local.sun_path, sizeof local.sun_path, "%.107s", c->endpoint.host);
        add_address(c, &local, sizeof local);
    } else if (uv_ip4_addr(c->endpoint.host, port, &v4) == 0) {
        add_address(c, &v4, sizeof v4);
    } else if (uv_ip6_addr(c->endpoint.host, port, &v6) == 0) {
        add_address(c, &v6, sizeof v6);
    }
    return c->n_addresses > 0;
}

static void look_up(struct client *c)
{
    char port[8];
    (void)snprintf(port, sizeof port, "%u", c->endpoint.port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    struct resolve *r = br_calloc(1, sizeof *r);
    if (r)
        r->client = c;
    int rc =
        r ? uv_getaddrinfo(&c->loop->uv, &r->request, on_resolved, c->endpoint.host, port, &hints)
          : UV_ENOMEM;
    if (rc) {
        br_free(r);
        fail_waiting(c, BR_EIO, "cannot resolve", uv_strerror(rc));
        return;
    }
    c->resolving = r;
    c->resolving_since_ms = uv_now(&c->loop->uv);
}

static void open_connection(struct client *c)
{
    if (numeric(c))
        try_all(c);
    else
        look_up(c);
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
        struct waiting *w = br_container_of(br_list_shift(&c->waiting), struct waiting, link);
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
    x->secure = c->tls != NULL;
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
    uint64_t timeout = c->config.keepalive_timeout_ms;
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
    for (struct br_list *l = c->links.next; l != &c->links; l = l->next) {
        struct link *link = br_container_of(l, struct link, link);
        struct br_stream *s = link->stream;
        bool up = link->ready && (!s->tls || br_tls_ready(s->tls));
        if (!up && now - s->opened_ms > c->config.connect_timeout_ms)
            br_stream_close(s, "no connection in time");
        else if (up && !c->config.grpc && now - link->used_ms > c->config.idle_timeout_ms &&
                 s->conn->ops->idle(s->conn))
            br_stream_close(s, "idle");
        else if (up && c->config.keepalive_time_ms)
            keep_alive(c, link, now);
    }
    /* The look-up goes on; until it ends there is no other. */
    if (c->resolving && now - c->resolving_since_ms > c->config.connect_timeout_ms)
        fail_waiting(c, BR_EIO, "cannot resolve", "no answer in time");
    (void)br_host_timer(&c->loop->host, &c->sweep, c->sweep_ms, on_sweep);
}

static void client_free(struct br_client *base)
{
    struct client *c = client_of(base);
    c->closing = true;
    fail_waiting(c, BR_ECLOSED, "connection to", "the client stops");
    while (!br_list_empty(&c->links)) {
        struct link *link = br_container_of(c->links.next, struct link, link);
        link->stream->conn->ops->shutdown(link->stream->conn);
        br_stream_end(link->stream, "the client stops");
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
    bool want = c->endpoint.tls ||
                (!c->endpoint.has_scheme && !(tls && tls->insecure) && !c->endpoint.unix_socket);
    if (!want)
        return 0;
    return br_tls_context_new(tls ? tls : &defaults, false, c->config.grpc ? h2 : h1, &c->tls, err);
}

static uint64_t or_default(uint64_t value, uint64_t otherwise)
{
    return value ? value : otherwise;
}

static void set_defaults(struct client *c)
{
    struct br_client_config *config = &c->config;
    if (!config->max_connections)
        config->max_connections = config->grpc ? 1 : HTTP_CONNECTIONS;
    config->connect_timeout_ms = or_default(config->connect_timeout_ms, CONNECT_MS);
    config->idle_timeout_ms = or_default(config->idle_timeout_ms, IDLE_MS);
    config->keepalive_timeout_ms = or_default(config->keepalive_timeout_ms, PING_TIMEOUT_MS);
    const uint64_t times[] = {config->connect_timeout_ms, config->idle_timeout_ms,
                              config->keepalive_timeout_ms,
                              or_default(config->keepalive_time_ms, UINT64_MAX)};
    /* Often enough to be late by a quarter at the most. */
    c->sweep_ms = SWEEP_MS;
    for (size_t i = 0; i < BR_COUNT(times); i++)
        c->sweep_ms = times[i] / 4 < c->sweep_ms ? times[i] / 4 : c->sweep_ms;
    if (c->sweep_ms < SWEEP_MIN_MS)
        c->sweep_ms = SWEEP_MIN_MS;
}

int br_net_connect(struct br_host *h, const struct br_client_config *config, struct br_client **ret,
                   struct br_err *err)
{
    struct client *c = br_calloc(1, sizeof *c);
    if (!c)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    c->base.ops = &client_ops;
    c->loop = br_loop_of(h);
    c->config = *config;
    set_defaults(c);
    br_list_init(&c->links);
    br_list_init(&c->waiting);
    int rc = br_endpoint_read(config->endpoint, config->grpc, &c->endpoint, err);
    if (!rc)
        rc = make_tls(c, err);
    if (!rc && !br_host_timer(h, &c->sweep, c->sweep_ms, on_sweep))
        rc = br_err_set(err, BR_ENOMEM, "out of memory");
    if (rc) {
        br_tls_context_free(c->tls);
        br_free(c);
        return rc;
    }
    *ret = &c->base;
    return 0;
}
