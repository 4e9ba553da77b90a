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
#include "net/addresses.h"
#include "net/net_internal.h"

#define HTTP_CONNECTIONS 100
#define CONNECT_MS 20000
#define IDLE_MS 90000
#define PING_MS 30000 /* while something is under way, where the config says nothing */
#define PING_MAX_MS 3600000
#define PING_TIMEOUT_MS 10000
#define USER_TIMEOUT_MS 20000 /* as gRPC's (proposal A18) */
#define SWEEP_MS 1000
#define SWEEP_MIN_MS 10
#define PATIENCE_MS                                                                                \
    2000 /* with a connection that does not come about, while there are other addresses */
#define LOOK_UP_MS 1000      /* between two look-ups */
#define LOOK_UP_OLD_MS 30000 /* older ones are made again for a new connection */
#define PROBE_MS 2000        /* between two connections that are tried while one is wanted */
#define PROBE_JITTER 0.2     /* of it, more or less */
#define WANT_MS 60000        /* longer than most delays of those who send again */
#define TIMEOUTS_MAX 2       /* in a row; then the connection is given up */

/* An exchange that waits for a connection. */
struct waiting {
    struct br_list link;
    struct br_exchange *x;
};

struct link {
    struct br_list link; /* client->links */
    struct client *client;
    struct br_stream *stream;
    struct br_address address;
    bool ready;    /* connected; TLS may still be shaking hands */
    bool draining; /* takes nothing new */
    bool passed;   /* takes its time; another address is tried meanwhile */
    bool used;     /* an exchange was sent on it */
    bool h2;
    bool pinged;
    unsigned n_answered, n_timeouts; /* answers seen; time-outs since the last */
    uint64_t ping_ms, used_ms;
};

struct resolve {
    uv_getaddrinfo_t request;
    struct client *client; /* NULL: given up */
};

/* What a server chose by ALPN, the last time. */
enum spoken { SPOKEN_UNKNOWN, SPOKEN_H1, SPOKEN_H2 };

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
    struct br_timer probe;
    struct resolve *resolving;
    uint64_t wanted_ms; /* what failed is to be sent again: the last time that it was said; 0: no */
    uint64_t resolving_since_ms, resolved_ms, sweep_ms, ping_ms, user_timeout_ms;
    struct br_addresses addresses;
    enum spoken spoken;
    char why[96]; /* the last connection that was tried did not come about; "": none */
    bool fixed;   /* the addresses need no look-up */
    bool stale;   /* something went wrong since the last look-up */
    bool closing;
};

static void pump(struct br_deferred *d);
static void on_probe(struct br_timer *t);

static struct client *client_of(struct br_client *c)
{
    return br_container_of(c, struct client, base);
}

static uint64_t now_of(const struct client *c)
{
    return uv_now(&c->loop->uv);
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

static struct br_conn *make_conn(struct client *c, bool h2)
{
    struct br_pool *pool = c->loop->host.pool;
    return h2 ? br_h2_client_new(pool) : br_h1_client_new(pool);
}

/* Connected, and the protocol is known. */
static bool is_up(const struct link *link)
{
    const struct br_stream *s = link->stream;
    return link->ready && s->conn && (!s->tls || br_tls_ready(s->tls));
}

/* Every connection to all addresses of a name is used in turn. */
static bool spreads(const struct client *c)
{
    return c->config.grpc && !c->config.pick_first;
}

/* ALPN chose. What it did not choose is HTTP/1.1. */
static int choose(struct br_stream *s)
{
    struct link *link = s->owner;
    struct client *c = link->client;
    link->h2 = strcmp(br_tls_alpn(s->tls), "h2") == 0;
    struct br_conn *conn = make_conn(c, link->h2);
    if (!conn)
        return BR_ENOMEM;
    c->spoken = link->h2 ? SPOKEN_H2 : SPOKEN_H1;
    br_stream_set_conn(s, conn);
    return 0;
}

/* The first bytes came together with the end of the handshake. */
static int detect(struct br_stream *s, const uint8_t *data, size_t len)
{
    (void)data;
    (void)len;
    return choose(s);
}

/* What the peer has answered since it was looked at last. */
static void note_answers(struct link *link)
{
    struct client *c = link->client;
    const struct br_conn *conn = link->stream->conn;
    if (!conn || conn->n_answered == link->n_answered)
        return;
    int i = link->n_answered == 0 ? br_addresses_find(&c->addresses, &link->address) : -1;
    if (i >= 0)
        br_addresses_worked(&c->addresses, (unsigned)i);
    link->n_answered = conn->n_answered;
    link->n_timeouts = 0;
}

static void note_reachable(struct client *c)
{
    if (!c->wanted_ms)
        return;
    c->wanted_ms = 0;
    br_host_timer_stop(&c->loop->host, &c->probe);
    if (c->config.on_reachable)
        c->config.on_reachable(c->config.on_reachable_arg);
}

static void on_progress(struct br_stream *s)
{
    struct link *link = s->owner;
    bool was_up = is_up(link);
    link->ready = true;
    note_answers(link);
    if (!s->conn && s->tls && br_tls_ready(s->tls) && choose(s))
        br_stream_close(s, "out of memory");
    link->passed = link->passed && !is_up(link);
    if (!was_up && is_up(link))
        note_reachable(link->client);
    if (!br_list_empty(&link->client->waiting))
        wake(link->client);
}

/* Connections that are there or being made. */
static unsigned usable(const struct client *c)
{
    unsigned n = 0;
    for (const struct br_list *l = c->links.next; l != &c->links; l = l->next) {
        const struct link *link = br_container_of(l, struct link, link);
        n += !link->draining && !link->passed;
    }
    return n;
}

/* Connections that are being made. */
static unsigned coming(const struct client *c)
{
    unsigned n = 0;
    for (const struct br_list *l = c->links.next; l != &c->links; l = l->next) {
        const struct link *link = br_container_of(l, struct link, link);
        n += !link->draining && !link->passed && !is_up(link);
    }
    return n;
}

/* Something takes exchanges, if not now then when it has answered. */
static bool serves(const struct client *c)
{
    return usable(c) > coming(c);
}

static void note_why(struct client *c, const char *why)
{
    (void)snprintf(c->why, sizeof c->why, "%.*s", (int)sizeof c->why - 1, why);
}

static void cannot_connect(struct client *c)
{
    fail_waiting(c, BR_EIO, "cannot connect to", c->why[0] ? c->why : "no address answers");
}

static void address_failed(struct client *c, const struct br_address *address)
{
    int i = br_addresses_find(&c->addresses, address);
    if (i >= 0)
        br_addresses_failed(&c->addresses, (unsigned)i, now_of(c), br_host_random(&c->loop->host));
    c->stale = true;
}

static bool connect_next(struct client *c, bool last_resort);

static void on_closed(struct br_stream *s, const char *why)
{
    struct link *link = s->owner;
    struct client *c = link->client;
    struct br_address address = link->address;
    bool was_up = is_up(link);
    note_answers(link);
    bool of_no_use = !link->draining && link->n_answered == 0 && (link->used || !was_up);
    br_list_remove(&link->link);
    br_debug(c->config.log, "connection to %s closed: %s", c->endpoint.authority, why);
    br_free(link);
    if (c->closing)
        return;
    c->stale = true;
    if (!was_up)
        note_why(c, why);
    if (of_no_use)
        address_failed(c, &address);
    /* Nothing came of it, nor of any other address: whoever waits learns why. Also when another
     * connection serves: it may be busy for long. */
    if (!was_up && !br_list_empty(&c->waiting) && !connect_next(c, false) && !coming(c) &&
        !(spreads(c) && serves(c)))
        cannot_connect(c);
    wake(c);
}

static const struct br_stream_events events = {detect, on_progress, on_closed};

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

static bool connect_fd(struct client *c, int fd, const struct br_address *address)
{
    bool later = c->config.http2 && c->tls; /* ALPN will say */
    struct link *link = br_calloc(1, sizeof *link);
    struct br_conn *conn = later ? NULL : make_conn(c, c->config.grpc);
    if (!link || (!conn && !later)) {
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
    link->address = *address;
    link->h2 = c->config.grpc;
    link->used_ms = link->ping_ms = now_of(c);
    br_list_append(&c->links, &link->link);
    if (c->tls)
        start_tls(c, s);
    if (conn)
        br_stream_set_conn(s, conn);
    else
        br_stream_wake(s);
    return true;
}

/* What is sent and not acknowledged for so long breaks the connection: without it the kernel goes
 * on for a quarter of an hour. */
static void set_options(const struct client *c, int fd, int family)
{
    int one = 1;
    unsigned timeout_ms = (unsigned)c->user_timeout_ms;
    if (family == AF_UNIX)
        return;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

/* Begins to connect. False when that failed at once. */
static bool connect_to(struct client *c, const struct br_address *a)
{
    int fd = socket(a->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        set_options(c, fd, a->addr.ss_family);
    if (fd < 0 ||
        (connect(fd, (const struct sockaddr *)&a->addr, a->len) && errno != EINPROGRESS)) {
        note_why(c, strerror(errno));
        if (fd >= 0)
            close(fd);
        return false;
    }
    if (connect_fd(c, fd, a))
        return true;
    note_why(c, "out of memory");
    return false;
}

/* The address has its connections already, or one on the way. */
static bool is_taken(void *arg, unsigned i)
{
    const struct client *c = arg;
    unsigned n = 0;
    for (const struct br_list *l = c->links.next; l != &c->links; l = l->next) {
        const struct link *link = br_container_of(l, struct link, link);
        if (!link->draining && (spreads(c) || link->passed))
            n += br_addresses_find(&c->addresses, &link->address) == (int)i;
    }
    return n >= (spreads(c) ? c->config.max_connections : 1);
}

/* Begins a connection to the next address that may have one. False when there is none. */
static bool connect_next(struct client *c, bool last_resort)
{
    int i;
    while ((i = br_addresses_pick(&c->addresses, now_of(c), last_resort, is_taken, c)) >= 0) {
        double random = br_host_random(&c->loop->host);
        struct br_address address = c->addresses.v[i];
        br_addresses_tried(&c->addresses, (unsigned)i, now_of(c), random);
        if (connect_to(c, &address))
            return true;
        address_failed(c, &address);
        last_resort = false;
    }
    return false;
}

/* --- Names ---------------------------------------------------------------------------------- */

/* The look-up takes longer than anybody should wait for it. */
static bool look_up_hangs(const struct client *c)
{
    return c->resolving && now_of(c) - c->resolving_since_ms > c->config.connect_timeout_ms;
}

/* Connections to addresses that the name no longer has finish what they are at. */
static void leave_the_gone(struct client *c)
{
    for (struct br_list *l = c->links.next; l != &c->links; l = l->next) {
        struct link *link = br_container_of(l, struct link, link);
        if (br_addresses_find(&c->addresses, &link->address) < 0)
            link->draining = true;
    }
}

static void on_found(struct client *c, const struct addrinfo *found)
{
    static const int order[] = {AF_INET, AF_INET6}; /* as Go: IPv4 first where there is a choice */
    struct br_addresses fresh = {.n = 0};
    for (size_t i = 0; i < BR_COUNT(order); i++)
        for (const struct addrinfo *a = found; a; a = a->ai_next)
            if (a->ai_family == order[i])
                (void)br_addresses_add(&fresh, a->ai_addr, a->ai_addrlen);
    br_addresses_update(&c->addresses, &fresh);
    if (spreads(c))
        leave_the_gone(c);
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct resolve *r = br_container_of(request, struct resolve, request);
    struct client *c = r->client;
    br_free(r);
    if (c) {
        c->resolving = NULL;
        c->resolved_ms = now_of(c);
        c->stale = false;
        if (status == 0)
            on_found(c, found);
        else if (c->addresses.n)
            br_debug(c->config.log, "%s: %s; the old addresses stay", c->endpoint.authority,
                     uv_strerror(status));
        if (c->addresses.n == 0)
            fail_waiting(c, BR_EIO, "cannot resolve", status ? uv_strerror(status) : "no address");
        wake(c);
    }
    uv_freeaddrinfo(found);
}

/* Addresses that need no look-up. */
static bool add_fixed(struct client *c)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    int port = (int)c->endpoint.port;
    if (c->endpoint.unix_socket) {
        (void)snprintf(local.sun_path, sizeof local.sun_path, "%.107s", c->endpoint.host);
        return br_addresses_add(&c->addresses, &local, sizeof local);
    }
    if (uv_ip4_addr(c->endpoint.host, port, &v4) == 0)
        return br_addresses_add(&c->addresses, &v4, sizeof v4);
    return uv_ip6_addr(c->endpoint.host, port, &v6) == 0 &&
           br_addresses_add(&c->addresses, &v6, sizeof v6);
}

/* The addresses are not known, may have changed, or are of long ago. */
static bool wants_look_up(const struct client *c)
{
    uint64_t age_ms = now_of(c) - c->resolved_ms;
    if (c->fixed || c->resolving)
        return false;
    return c->addresses.n == 0 || age_ms > (c->stale ? LOOK_UP_MS : LOOK_UP_OLD_MS);
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
    c->resolving_since_ms = now_of(c);
}

/* --- Exchanges ------------------------------------------------------------------------------ */

/* A connection that takes one more exchange now, or NULL. gRPC's take turns; HTTP's do not, so that
 * those which are too many become idle. */
static struct link *free_link(struct client *c)
{
    for (struct br_list *l = c->links.next; l != &c->links; l = l->next) {
        struct link *link = br_container_of(l, struct link, link);
        struct br_stream *s = link->stream;
        if (!is_up(link) || link->draining || s->closing || !br_conn_can_send(s->conn))
            continue;
        if (spreads(c)) {
            br_list_remove(l);
            br_list_append(&c->links, l);
        }
        return link;
    }
    return NULL;
}

/* Connections that the peer, or we, want to leave are closed when nothing is under way. */
static void note_draining(struct client *c)
{
    for (struct br_list *l = c->links.next; l != &c->links; l = l->next) {
        struct link *link = br_container_of(l, struct link, link);
        struct br_conn *conn = link->stream->conn;
        if (!is_up(link))
            continue;
        if (conn->leaving && !link->draining) {
            link->draining = true;
            if (conn->calm && c->ping_ms < PING_MAX_MS)
                c->ping_ms *= 2; /* as gRPC does (proposal A8) */
        }
        if ((link->draining || !br_conn_can_send(conn)) && conn->ops->idle(conn)) {
            link->draining = true;
            br_stream_close(link->stream, "done");
        }
    }
}

static void send_on(struct client *c, struct link *link, struct br_exchange *x)
{
    x->impl = NULL;
    link->used = true;
    link->used_ms = now_of(c);
    int rc = br_conn_send(link->stream->conn, x);
    if (rc) {
        x->error = rc;
        (void)snprintf(x->error_text, sizeof x->error_text, "cannot send: %s", br_strerror(rc));
        x->on_done(x);
    }
}

/* How many connections are wanted at once. Until it is known that a server has HTTP/1.1 only, one
 * may do for all that wait. */
static unsigned wanted(const struct client *c)
{
    unsigned n = 0;
    if (c->config.http2 && c->tls && c->spoken != SPOKEN_H1)
        return 1;
    for (struct br_list *l = c->waiting.next; l != &c->waiting; l = l->next)
        n++;
    return n;
}

/* More connections for what waits. */
static void connect_more(struct client *c)
{
    unsigned n_wanted = wanted(c), max = c->config.max_connections;
    if (wants_look_up(c))
        look_up(c);
    if (c->resolving && (c->addresses.n == 0 || !look_up_hangs(c)))
        return;
    while (spreads(c) || (coming(c) < n_wanted && usable(c) < max))
        if (!connect_next(c, !coming(c) && !serves(c)))
            break;
    if (!coming(c) && !serves(c))
        cannot_connect(c);
}

static void pump(struct br_deferred *d)
{
    struct client *c = br_container_of(d, struct client, pump);
    note_draining(c);
    while (!br_list_empty(&c->waiting)) {
        struct link *link = free_link(c);
        if (!link)
            break;
        struct waiting *w = br_container_of(br_list_shift(&c->waiting), struct waiting, link);
        struct br_exchange *x = w->x;
        br_free(w);
        send_on(c, link, x);
    }
    if (!br_list_empty(&c->waiting))
        connect_more(c);
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

/* A connection on which nothing is answered may be one that only looks alive. */
static void note_timeout(struct client *c, struct link *link)
{
    note_answers(link);
    link->n_timeouts++;
    /* With HTTP/1.1 each time-out ends the connection: the second in a row is that of one which had
     * no answer at all. */
    bool first = link->h2 ? link->n_timeouts < TIMEOUTS_MAX : link->n_answered > 0;
    if (first || link->draining)
        return;
    link->draining = true;
    br_debug(c->config.log, "connection to %s given up: time-outs in a row", c->endpoint.authority);
    address_failed(c, &link->address);
}

static void client_cancel(struct br_client *base, struct br_exchange *x)
{
    struct client *c = client_of(base);
    if (x->conn) {
        struct br_stream *s = x->conn->owner;
        br_conn_cancel(x->conn, x);
        note_timeout(c, s->owner);
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
    struct br_stream *s = link->stream;
    if (link->pinged && s->read_ms >= link->ping_ms)
        link->pinged = false;
    if (link->pinged && now - link->ping_ms > c->config.keepalive_timeout_ms) {
        br_stream_close(s, "keepalive: no answer to a PING");
    } else if (!link->pinged && now - s->read_ms >= c->ping_ms &&
               (c->config.keepalive_without_stream || !s->conn->ops->idle(s->conn))) {
        link->pinged = br_conn_ping(s->conn);
        link->ping_ms = now;
    }
}

static uint64_t patience_ms(const struct client *c)
{
    uint64_t most = c->config.connect_timeout_ms / 4;
    return most < PATIENCE_MS ? most : PATIENCE_MS;
}

/* A connection that is not there yet. While it takes its time, the next address is tried. */
static void look_at_coming(struct client *c, struct link *link, uint64_t age_ms)
{
    if (age_ms > c->config.connect_timeout_ms) {
        br_stream_close(link->stream, "no connection in time");
    } else if (!link->passed && !spreads(c) && age_ms > patience_ms(c) && c->addresses.n > 1 &&
               !br_list_empty(&c->waiting)) {
        link->passed = true;
        if (!connect_next(c, false))
            link->passed = false;
    }
}

static void look_at(struct client *c, struct link *link, uint64_t now)
{
    struct br_stream *s = link->stream;
    if (!is_up(link))
        look_at_coming(c, link, now - s->opened_ms);
    else if (!c->config.grpc && now - link->used_ms > c->config.idle_timeout_ms &&
             s->conn->ops->idle(s->conn))
        br_stream_close(s, "idle");
    else if (link->h2)
        keep_alive(c, link, now);
}

static void on_sweep(struct br_timer *t)
{
    struct client *c = br_container_of(t, struct client, sweep);
    uint64_t now = now_of(c);
    for (struct br_list *l = c->links.next; l != &c->links; l = l->next)
        look_at(c, br_container_of(l, struct link, link), now);
    note_draining(c);
    if (serves(c) && spreads(c)) {
        if (c->stale && wants_look_up(c))
            look_up(c);
        while (connect_next(c, false)) /* those that failed before */
            ;
    }
    /* The look-up goes on; until it ends there is no other. */
    if (look_up_hangs(c)) {
        if (c->addresses.n == 0)
            fail_waiting(c, BR_EIO, "cannot resolve", "no answer in time");
        else if (!br_list_empty(&c->waiting))
            wake(c);
    }
    (void)br_host_timer(&c->loop->host, &c->sweep, c->sweep_ms, on_sweep);
}

/* --- A backend that may be back --------------------------------------------------------------- */

static void probe_later(struct client *c)
{
    double spread = PROBE_JITTER * (2 * br_host_random(&c->loop->host) - 1);
    (void)br_host_timer(&c->loop->host, &c->probe, (uint64_t)(PROBE_MS * (1 + spread)), on_probe);
}

/* What waits by itself is seen to by the pump. */
static void on_probe(struct br_timer *t)
{
    struct client *c = br_container_of(t, struct client, probe);
    if (serves(c) || now_of(c) - c->wanted_ms > WANT_MS) {
        c->wanted_ms = 0;
        return;
    }
    probe_later(c);
    if (wants_look_up(c))
        look_up(c);
    if (coming(c) || !br_list_empty(&c->waiting))
        return;
    while (connect_next(c, true) && spreads(c))
        ;
}

static void client_want(struct br_client *base)
{
    struct client *c = client_of(base);
    if (c->closing)
        return;
    if (!c->wanted_ms)
        probe_later(c);
    c->wanted_ms = now_of(c);
}

static void client_free(struct br_client *base)
{
    struct client *c = client_of(base);
    c->closing = true;
    fail_waiting(c, BR_ECLOSED, "connection to", "the client stops");
    while (!br_list_empty(&c->links)) {
        struct link *link = br_container_of(c->links.next, struct link, link);
        if (link->stream->conn)
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
    br_host_timer_stop(&c->loop->host, &c->probe);
    br_tls_context_free(c->tls);
    br_free(c);
}

static const struct br_client_ops client_ops = {client_send, client_cancel, client_free,
                                                client_want};

static int make_tls(struct client *c, struct br_err *err)
{
    static const char *const h2[] = {"h2", NULL}, *const h1[] = {"http/1.1", NULL},
                             *const both[] = {"h2", "http/1.1", NULL};
    static const struct br_tls_config defaults;
    const struct br_tls_config *tls = c->config.tls;
    /* As the Collector: a scheme decides; without one (gRPC) it is TLS unless `insecure`. */
    bool want = c->endpoint.tls ||
                (!c->endpoint.has_scheme && !(tls && tls->insecure) && !c->endpoint.unix_socket);
    if (!want)
        return 0;
    return br_tls_context_new(tls ? tls : &defaults, false,
                              c->config.grpc    ? h2
                              : c->config.http2 ? both
                                                : h1,
                              &c->tls, err);
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
    c->user_timeout_ms = or_default(config->keepalive_timeout_ms, USER_TIMEOUT_MS);
    config->keepalive_timeout_ms = or_default(config->keepalive_timeout_ms, PING_TIMEOUT_MS);
    c->ping_ms = or_default(config->keepalive_time_ms, PING_MS);
    const uint64_t times[] = {config->connect_timeout_ms, config->idle_timeout_ms,
                              config->keepalive_timeout_ms, c->ping_ms};
    /* Often enough to be late by a quarter at the most. */
    c->sweep_ms = SWEEP_MS;
    for (size_t i = 0; i < BR_COUNT(times); i++)
        c->sweep_ms = times[i] / 4 < c->sweep_ms ? times[i] / 4 : c->sweep_ms;
    if (c->sweep_ms < SWEEP_MIN_MS)
        c->sweep_ms = SWEEP_MIN_MS;
}

int br_client_check(const struct br_client_config *config, struct br_err *err)
{
    struct client *c = br_calloc(1, sizeof *c);
    if (!c)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    c->config = *config;
    int rc = br_endpoint_read(config->endpoint, config->grpc, &c->endpoint, err);
    if (!rc)
        rc = make_tls(c, err);
    br_tls_context_free(c->tls);
    br_free(c);
    return rc;
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
    c->fixed = !rc && add_fixed(c);
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
