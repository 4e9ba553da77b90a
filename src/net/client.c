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
#include "base/str.h"
#include "net/addresses.h"
#include "net/net_internal.h"
#include "net/redirect.h"
#include "net/route.h"
#include "net/signing.h"
#include "net/tls.h"

#define HTTP_CONNECTIONS 100
#define CONNECT_MS 20000
#define IDLE_MS 90000
/* default of keepalive_time_ms: time without input after which a PING is sent, while exchanges
 * are in progress */
#define PING_MS 30000
#define PING_MAX_MS 3600000
#define PING_TIMEOUT_MS 10000
#define USER_TIMEOUT_MS 20000 /* default of TCP_USER_TIMEOUT, as in gRPC (proposal A18) */
#define SWEEP_MS 1000
#define SWEEP_MIN_MS 10
/* time that a connection attempt may take before the next address is tried as well */
#define NEXT_ADDRESS_MS 2000
#define LOOK_UP_MS 1000 /* minimum time between two name resolutions */
/* age of a name resolution above which the name is resolved again before a new connection */
#define LOOK_UP_OLD_MS 30000
#define PROBE_MS 2000 /* time between connection attempts while a retry is expected */
/* PROBE_MS is varied at random by up to this fraction of itself, in both directions */
#define PROBE_JITTER 0.2
/* time after the last br_client_expect_retry at which probing ends; longer than most retry
 * delays */
#define PROBE_FOR_MS 60000
#define TIMEOUTS_MAX 2 /* number of consecutive timeouts after which a connection is abandoned */

/* A queued exchange. */
struct waiting {
    struct br_list link;
    struct br_exchange *exchange;
};

struct link {
    struct br_list link; /* entry in client->links */
    struct client *client;
    struct br_stream *stream;
    struct br_address address;
    bool ready;    /* the socket is connected; the TLS handshake may still be in progress */
    bool draining; /* the link accepts no new exchanges */
    /* the link was not connected after NEXT_ADDRESS_MS, so another address is being tried */
    bool slow;
    bool tunnelling; /* the proxy has not opened the tunnel yet */
    bool used;       /* an exchange was sent on this connection */
    bool no_reuse;   /* close_after_use is set, and the connection's only exchange was sent */
    bool h2;
    bool pinged;
    /* `n_answered`: number of responses that client_note_answers has registered; `n_timeouts`:
     * number of timeouts since the last response */
    unsigned n_answered, n_timeouts;
    uint64_t ping_ms, used_ms;
};

struct resolve {
    uv_getaddrinfo_t request;
    /* client that needs the addresses; NULL if the client was freed during the name resolution */
    struct client *client;
};

/* The protocol that ALPN selected on the last connection. */
enum alpn_result { ALPN_UNKNOWN, ALPN_H1, ALPN_H2 };

struct client {
    struct br_client base;
    struct br_loop *loop;
    struct br_client_config config;
    struct br_endpoint endpoint;
    struct br_route route;
    struct br_forward forward;
    char origin[sizeof((struct br_endpoint *)0)->authority + 16];
    struct br_tls_context *tls;
    /* periodic reload of the TLS files; NULL if the files are never reloaded */
    struct br_tls_reload *tls_reload;
    struct br_list links;
    /* queue of struct waiting; `impl` of each exchange points to its entry in the queue */
    struct br_list waiting;
    struct br_deferred pump;
    struct br_timer sweep;
    struct br_timer probe;
    struct resolve *resolving;
    /* time of the last br_client_expect_retry; 0: no retry is expected */
    uint64_t retry_expected_ms;
    uint64_t resolving_since_ms, resolved_ms, sweep_ms, ping_ms, user_timeout_ms;
    struct br_addresses addresses;
    struct br_redirects redirects;
    enum alpn_result last_alpn;
    char why[160]; /* error text of the last connection attempt; "" if the attempt has not failed */
    bool fixed;    /* the addresses are literal, so the client never resolves a name */
    bool stale;    /* a connection has ended or failed since the last name resolution */
    bool closing;
};

static void client_pump(struct br_deferred *deferred);
static void client_on_probe(struct br_timer *timer);

static struct client *client_of(struct br_client *client)
{
    return br_container_of(client, struct client, base);
}

static uint64_t client_now_of(const struct client *client)
{
    return uv_now(&client->loop->uv);
}

static void client_wake(struct client *client)
{
    br_host_defer(&client->loop->host, &client->pump, client_pump);
}

/* Returns the endpoint to connect to: the proxy's, or the server's if no proxy is used. */
static const struct br_endpoint *client_peer(const struct client *client)
{
    return client->route.kind == BR_ROUTE_DIRECT ? &client->endpoint : &client->route.proxy;
}

/* Returns a failed exchange to its owner, by calling on_done. */
static void client_end(struct br_exchange *exchange)
{
    br_redirect_end(exchange);
    exchange->on_done(exchange);
}

static void client_set_error(const struct client *client, struct br_exchange *exchange,
                             const char *what, const char *why)
{
    const struct br_route *route = &client->route;
    struct br_str text = {
        .data = exchange->error_text, .cap = sizeof exchange->error_text, .fixed = true};
    br_str_printf(&text, "%s %.50s", what, client->endpoint.authority);
    if (route->kind != BR_ROUTE_DIRECT)
        br_str_printf(&text, " through the proxy %.50s (%s)", route->proxy.authority,
                      route->setting);
    br_str_printf(&text, ": %s", why);
}

/* Ends all queued exchanges with an error. */
static void client_fail_waiting(struct client *client, int error, const char *what, const char *why)
{
    struct br_list now;
    br_list_init(&now);
    while (!br_list_empty(&client->waiting))
        br_list_append(&now, br_list_shift(&client->waiting));
    struct br_list *list;
    while ((list = br_list_shift(&now))) {
        struct waiting *waiting = br_container_of(list, struct waiting, link);
        struct br_exchange *exchange = waiting->exchange;
        br_free(waiting);
        exchange->impl = NULL;
        exchange->error = error;
        client_set_error(client, exchange, what, why);
        client_end(exchange);
    }
}

/* --- Connections ---------------------------------------------------------------------------- */

static struct br_conn *client_make_conn(struct client *client, bool h2)
{
    struct br_pool *pool = client->loop->host.pool;
    return h2 ? br_h2_client_new(pool) : br_h1_client_new(pool);
}

/* Returns true if a link is connected and its protocol is known. */
static bool client_is_up(const struct link *link)
{
    const struct br_stream *stream = link->stream;
    return link->ready && !link->tunnelling && stream->conn &&
           (!stream->tls || br_tls_ready(stream->tls));
}

/* Returns true if exchanges are distributed over all addresses of the name (round_robin). */
static bool client_spreads(const struct client *client)
{
    return client->config.grpc && !client->config.pick_first;
}

/* Sets up the protocol that ALPN selected, or HTTP/1.1 if ALPN selected no protocol. Returns 0
 * or BR_ENOMEM. */
static int client_apply_alpn(struct br_stream *stream)
{
    struct link *link = stream->owner;
    struct client *client = link->client;
    link->h2 = strcmp(br_tls_alpn(stream->tls), "h2") == 0;
    struct br_conn *conn = client_make_conn(client, link->h2);
    if (!conn)
        return BR_ENOMEM;
    client->last_alpn = link->h2 ? ALPN_H2 : ALPN_H1;
    br_stream_set_conn(stream, conn);
    return 0;
}

/* Called when the server's first bytes arrive together with the end of the TLS handshake. */
static int client_detect(struct br_stream *stream, const uint8_t *data, size_t len)
{
    (void)data;
    (void)len;
    return client_apply_alpn(stream);
}

/* Registers the responses that the link has received since the last call. */
static void client_note_answers(struct link *link)
{
    struct client *client = link->client;
    const struct br_conn *conn = link->stream->conn;
    if (!conn || conn->n_answered == link->n_answered)
        return;
    int i = link->n_answered == 0 ? br_addresses_find(&client->addresses, &link->address) : -1;
    if (i >= 0)
        br_addresses_worked(&client->addresses, (unsigned)i);
    link->n_answered = conn->n_answered;
    link->n_timeouts = 0;
}

static void client_note_reachable(struct client *client)
{
    if (!client->retry_expected_ms)
        return;
    client->retry_expected_ms = 0;
    br_host_timer_stop(&client->loop->host, &client->probe);
    if (client->config.on_reachable)
        client->config.on_reachable(client->config.on_reachable_arg);
}

static void client_leave_tunnel(struct br_stream *stream);

static void client_on_progress(struct br_stream *stream)
{
    struct link *link = stream->owner;
    bool was_up = client_is_up(link);
    link->ready = true;
    if (link->tunnelling && br_tunnel_is_open(stream->conn)) {
        /* client_leave_tunnel calls client_on_progress again if bytes follow the proxy's
         * response */
        client_leave_tunnel(stream);
        return;
    }
    client_note_answers(link);
    if (!stream->conn && stream->tls && br_tls_ready(stream->tls) && client_apply_alpn(stream))
        br_stream_close(stream, "out of memory");
    link->slow = link->slow && !client_is_up(link);
    if (!was_up && client_is_up(link))
        client_note_reachable(link->client);
    if (link->no_reuse || !br_list_empty(&link->client->waiting))
        client_wake(link->client);
}

/* Returns the number of links that are up or being connected, not counting slow and draining
 * links. */
static unsigned client_usable(const struct client *client)
{
    unsigned n = 0;
    for (const struct br_list *list = client->links.next; list != &client->links;
         list = list->next) {
        const struct link *link = br_container_of(list, struct link, link);
        n += !link->draining && !link->slow;
    }
    return n;
}

/* Returns the number of links that are being connected, not counting slow and draining links. */
static unsigned client_connecting(const struct client *client)
{
    unsigned n = 0;
    for (const struct br_list *list = client->links.next; list != &client->links;
         list = list->next) {
        const struct link *link = br_container_of(list, struct link, link);
        n += !link->draining && !link->slow && !client_is_up(link);
    }
    return n;
}

/* Returns true if at least one link is up, even if that link accepts no further exchange now. */
static bool client_serves(const struct client *client)
{
    return client_usable(client) > client_connecting(client);
}

static void client_note_why(struct client *client, const char *why)
{
    (void)snprintf(client->why, sizeof client->why, "%.*s", (int)sizeof client->why - 1, why);
}

static void client_cannot_connect(struct client *client)
{
    client_fail_waiting(client, BR_EIO, "cannot connect to",
                        client->why[0] ? client->why : "no address responds");
}

static void client_address_failed(struct client *client, const struct br_address *address)
{
    int i = br_addresses_find(&client->addresses, address);
    if (i >= 0)
        br_addresses_failed(&client->addresses, (unsigned)i, client_now_of(client),
                            br_host_random(&client->loop->host));
    client->stale = true;
}

static bool client_connect_next(struct client *client, bool last_resort);

static void client_on_closed(struct br_stream *stream, const char *why)
{
    struct link *link = stream->owner;
    struct client *client = link->client;
    struct br_address address = link->address;
    bool was_up = client_is_up(link);
    client_note_answers(link);
    bool failed = !link->draining && link->n_answered == 0 && (link->used || !was_up);
    br_list_remove(&link->link);
    br_debug(client->config.log, "connection to %s closed: %s", client->endpoint.authority, why);
    br_free(link);
    if (client->closing)
        return;
    client->stale = true;
    if (!was_up)
        client_note_why(client, why);
    if (failed)
        client_address_failed(client, &address);
    /* If no other address can be tried, end the queued exchanges with the reason of the failure.
     * Exchanges that were waiting for a busy link are also ended, because the link may stay busy
     * for long. */
    bool must_connect = !was_up && !br_list_empty(&client->waiting);
    if (must_connect && !client_connect_next(client, false) && !client_connecting(client) &&
        !(client_spreads(client) && client_serves(client)))
        client_cannot_connect(client);
    client_wake(client);
}

static const struct br_stream_events events = {client_detect, client_on_progress, client_on_closed,
                                               NULL};

/* Error texts of the client for servers that do not speak the client's protocol. */
static const char *const tls_complaints[BR_GUESSES] = {
    [BR_GUESS_NOTHING] = "the server closed the connection in the TLS handshake; if it does not "
                         "speak TLS, use http:// or tls::insecure",
    [BR_GUESS_HTTP1] = "the server does not speak TLS; use http:// or tls::insecure",
    [BR_GUESS_HTTP2] = "the server does not speak TLS; use http:// or tls::insecure"};
static const char *const grpc_complaints[BR_GUESSES] = {
    [BR_GUESS_NOTHING] = "the server closed the connection before it sent anything; if it expects "
                         "TLS, use https:// or no tls::insecure",
    [BR_GUESS_HTTP1] = "the server speaks HTTP/1.1, not gRPC; use its gRPC port (OTLP: 4317), or "
                       "the exporter otlphttp; or https://, if it is nginx with TLS",
    [BR_GUESS_TLS] = "the server speaks TLS; use https:// or no tls::insecure"};
static const char *const http_complaints[BR_GUESSES] = {
    [BR_GUESS_NOTHING] =
        "the server closed the connection before it sent anything; if it expects TLS, use https://",
    [BR_GUESS_TLS] = "the server speaks TLS; use https://",
    [BR_GUESS_HTTP2] = "the server speaks HTTP/2 only, as gRPC ports do; use its HTTP port (OTLP: "
                       "4318), or the exporter otlp"};
static const char *const proxy_complaints[BR_GUESSES] = {
    [BR_GUESS_TLS] = "the proxy speaks TLS, which is not supported"};

static const char *const *client_complaints(const struct client *client, bool tunnel)
{
    if (tunnel || client->route.kind == BR_ROUTE_FORWARD)
        return proxy_complaints;
    if (client->tls)
        return tls_complaints;
    return client->config.grpc ? grpc_complaints : http_complaints;
}

static void client_start_tls(struct client *client, struct br_stream *stream)
{
    const char *override = client->config.tls ? client->config.tls->server_name_override : NULL;
    stream->tls = br_tls_new(client->tls, override ? override : client->endpoint.host);
    if (!stream->tls)
        br_stream_close(stream, "the server's name cannot be verified, or memory is short");
}

/* Returns true if ALPN selects the protocol after the handshake. */
static bool client_uses_alpn(const struct client *client)
{
    return client->config.http2 && client->tls;
}

/* Starts TLS or the server's protocol once the proxy has opened the tunnel. */
static void client_leave_tunnel(struct br_stream *stream)
{
    struct link *link = stream->owner;
    struct client *client = link->client;
    struct br_buf *rest = br_tunnel_take_rest(stream->conn);
    bool later = client_uses_alpn(client);
    struct br_conn *conn = later ? NULL : client_make_conn(client, client->config.grpc);
    stream->conn->ops->free(stream->conn);
    stream->conn = NULL;
    stream->complaints = client_complaints(client, false);
    stream->guess = BR_GUESS_NOTHING;
    link->tunnelling = false;
    if (!conn && !later)
        br_stream_close(stream, "out of memory");
    else if (client->tls)
        client_start_tls(client, stream);
    if (conn)
        br_stream_set_conn(stream, conn);
    br_stream_wake(stream);
    if (rest && !stream->closing)
        br_stream_receive(stream, rest->data, rest->len);
    else
        client_on_progress(stream);
    br_buf_unref(rest);
}

static bool client_connect_fd(struct client *client, int fd, const struct br_address *address)
{
    bool tunnel = client->route.kind == BR_ROUTE_TUNNEL;
    bool later = !tunnel && client_uses_alpn(client);
    struct link *link = br_calloc(1, sizeof *link);
    struct br_conn *conn = NULL;
    if (tunnel)
        conn = br_tunnel_new(client->loop->host.pool, client->endpoint.authority,
                             client->route.authorization);
    else if (!later)
        conn = client_make_conn(client, client->config.grpc);
    if (!link || (!conn && !later)) {
        close(fd);
        fd = -1;
    }
    struct br_stream *stream =
        fd >= 0 ? br_stream_new(client->loop, fd, &events, link, false, true) : NULL;
    if (!stream) {
        if (conn)
            conn->ops->free(conn);
        br_free(link);
        return false;
    }
    link->client = client;
    link->stream = stream;
    link->address = *address;
    link->h2 = client->config.grpc;
    link->tunnelling = tunnel;
    stream->complaints = client_complaints(client, tunnel);
    link->used_ms = link->ping_ms = client_now_of(client);
    br_list_append(&client->links, &link->link);
    if (client->tls && !tunnel)
        client_start_tls(client, stream);
    if (conn)
        br_stream_set_conn(stream, conn);
    else
        br_stream_wake(stream);
    return true;
}

/* Sets TCP_USER_TIMEOUT, because by default the kernel retransmits for about 15 minutes. */
static void client_set_options(const struct client *client, int fd, int family)
{
    int one = 1;
    unsigned timeout_ms = (unsigned)client->user_timeout_ms;
    if (family == AF_UNIX)
        return;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

/* Starts a connection to an address. Returns false if the connection failed at once. */
static bool client_connect_to(struct client *client, const struct br_address *address)
{
    int fd = socket(address->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        client_set_options(client, fd, address->addr.ss_family);
    if (fd < 0 || (connect(fd, (const struct sockaddr *)&address->addr, address->len) &&
                   errno != EINPROGRESS)) {
        client_note_why(client, strerror(errno));
        if (fd >= 0)
            close(fd);
        return false;
    }
    if (client_connect_fd(client, fd, address))
        return true;
    client_note_why(client, "out of memory");
    return false;
}

/* Returns true if an address has the maximum number of connections. Connections that are being
 * made are counted, too. */
static bool client_address_is_used(void *arg, unsigned index)
{
    const struct client *client = arg;
    unsigned n = 0;
    for (const struct br_list *list = client->links.next; list != &client->links;
         list = list->next) {
        const struct link *link = br_container_of(list, struct link, link);
        if (!link->draining && (client_spreads(client) || link->slow))
            n += br_addresses_find(&client->addresses, &link->address) == (int)index;
    }
    return n >= (client_spreads(client) ? client->config.max_connections : 1);
}

/* Starts a connection to the next available address. Returns false if no address is available. */
static bool client_connect_next(struct client *client, bool last_resort)
{
    int i;
    while ((i = br_addresses_next(&client->addresses, client_now_of(client), last_resort,
                                  client_address_is_used, client)) >= 0) {
        double random = br_host_random(&client->loop->host);
        struct br_address address = client->addresses.addresses[i];
        br_addresses_tried(&client->addresses, (unsigned)i, client_now_of(client), random);
        if (client_connect_to(client, &address))
            return true;
        client_address_failed(client, &address);
        last_resort = false;
    }
    return false;
}

/* --- Names ---------------------------------------------------------------------------------- */

/* Returns true if the pending name resolution has taken longer than connect_timeout_ms. */
static bool client_look_up_hangs(const struct client *client)
{
    return client->resolving &&
           client_now_of(client) - client->resolving_since_ms > client->config.connect_timeout_ms;
}

/* Drains the links to addresses that the last name resolution did not return. */
static void client_drain_removed(struct client *client)
{
    for (struct br_list *list = client->links.next; list != &client->links; list = list->next) {
        struct link *link = br_container_of(list, struct link, link);
        if (br_addresses_find(&client->addresses, &link->address) < 0)
            link->draining = true;
    }
}

static void client_on_found(struct client *client, const struct addrinfo *found)
{
    static const int order[] = {AF_INET, AF_INET6}; /* the same order as in Go: IPv4 first */
    struct br_addresses fresh = {.count = 0};
    for (size_t i = 0; i < BR_COUNT(order); i++)
        for (const struct addrinfo *ai = found; ai; ai = ai->ai_next)
            if (ai->ai_family == order[i])
                (void)br_addresses_add(&fresh, ai->ai_addr, ai->ai_addrlen);
    br_addresses_update(&client->addresses, &fresh);
    if (client_spreads(client))
        client_drain_removed(client);
}

static void client_on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct resolve *resolve = br_container_of(request, struct resolve, request);
    struct client *client = resolve->client;
    br_free(resolve);
    if (client) {
        client->resolving = NULL;
        client->resolved_ms = client_now_of(client);
        client->stale = false;
        if (status == 0)
            client_on_found(client, found);
        else if (client->addresses.count)
            br_debug(client->config.log, "%s: %s; keeping the old addresses",
                     client->endpoint.authority, uv_strerror(status));
        if (client->addresses.count == 0)
            client_fail_waiting(client, BR_EIO, "cannot resolve",
                                status ? uv_strerror(status) : "no address");
        client_wake(client);
    }
    uv_freeaddrinfo(found);
}

/* Adds the address of the endpoint if it needs no name resolution. Returns false if the host is
 * a name. */
static bool client_add_fixed(struct client *client)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    const struct br_endpoint *peer = client_peer(client);
    int port = (int)peer->port;
    if (peer->unix_socket) {
        (void)snprintf(local.sun_path, sizeof local.sun_path, "%.107s", peer->host);
        return br_addresses_add(&client->addresses, &local, sizeof local);
    }
    if (uv_ip4_addr(peer->host, port, &v4) == 0)
        return br_addresses_add(&client->addresses, &v4, sizeof v4);
    return uv_ip6_addr(peer->host, port, &v6) == 0 &&
           br_addresses_add(&client->addresses, &v6, sizeof v6);
}

/* Returns true if the name should be resolved now, because its addresses are unknown, outdated,
 * or may have changed. */
static bool client_wants_look_up(const struct client *client)
{
    uint64_t age_ms = client_now_of(client) - client->resolved_ms;
    if (client->fixed || client->resolving)
        return false;
    return client->addresses.count == 0 || age_ms > (client->stale ? LOOK_UP_MS : LOOK_UP_OLD_MS);
}

static void client_look_up(struct client *client)
{
    char port[8];
    (void)snprintf(port, sizeof port, "%u", client_peer(client)->port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    struct resolve *resolve = br_calloc(1, sizeof *resolve);
    if (resolve)
        resolve->client = client;
    int rc = resolve ? uv_getaddrinfo(&client->loop->uv, &resolve->request, client_on_resolved,
                                      client_peer(client)->host, port, &hints)
                     : UV_ENOMEM;
    if (rc) {
        br_free(resolve);
        client_fail_waiting(client, BR_EIO, "cannot resolve", uv_strerror(rc));
        return;
    }
    client->resolving = resolve;
    client->resolving_since_ms = client_now_of(client);
}

/* --- Exchanges ------------------------------------------------------------------------------ */

/* Returns a link that accepts an exchange now, or NULL. For gRPC, the links are selected
 * round-robin. For HTTP, the first link that accepts an exchange is selected, so that
 * superfluous links become idle and are closed. */
static struct link *client_free_link(struct client *client)
{
    for (struct br_list *list = client->links.next; list != &client->links; list = list->next) {
        struct link *link = br_container_of(list, struct link, link);
        struct br_stream *stream = link->stream;
        if (!client_is_up(link) || link->draining || link->no_reuse || stream->closing ||
            !br_conn_can_send(stream->conn))
            continue;
        if (client_spreads(client)) {
            br_list_remove(list);
            br_list_append(&client->links, list);
        }
        return link;
    }
    return NULL;
}

/* Starts to drain links whose server has sent GOAWAY, and closes links that are drained. */
static void client_note_draining(struct client *client)
{
    for (struct br_list *list = client->links.next; list != &client->links; list = list->next) {
        struct link *link = br_container_of(list, struct link, link);
        struct br_conn *conn = link->stream->conn;
        if (!client_is_up(link))
            continue;
        if (conn->leaving && !link->draining) {
            link->draining = true;
            if (conn->calm && client->ping_ms < PING_MAX_MS)
                /* the interval is doubled after ENHANCE_YOUR_CALM, as in gRPC (proposal A8) */
                client->ping_ms *= 2;
        }
        if ((link->draining || link->no_reuse || !br_conn_can_send(conn)) &&
            conn->ops->idle(conn)) {
            link->draining = true;
            br_stream_close(link->stream, "done");
        }
    }
}

static void client_send_on(struct client *client, struct link *link, struct br_exchange *exchange)
{
    exchange->impl = NULL;
    link->used = true;
    link->no_reuse = client->config.close_after_use;
    link->used_ms = client_now_of(client);
    int rc = br_conn_send(link->stream->conn, exchange);
    if (rc) {
        exchange->error = rc;
        (void)snprintf(exchange->error_text, sizeof exchange->error_text, "cannot send: %s",
                       br_strerror(rc));
        client_end(exchange);
    }
}

/* Returns how many new connections the queued exchanges need. One connection is enough while the
 * server may select HTTP/2, which carries many exchanges. */
static unsigned client_wanted(const struct client *client)
{
    unsigned n = 0;
    if (client->config.http2 && client->tls && client->last_alpn != ALPN_H1)
        return 1;
    for (struct br_list *list = client->waiting.next; list != &client->waiting; list = list->next)
        n++;
    return n;
}

/* Resolves the name if necessary, and starts connections for queued exchanges. */
static void client_connect_more(struct client *client)
{
    unsigned n_wanted = client_wanted(client), max = client->config.max_connections;
    if (client_wants_look_up(client))
        client_look_up(client);
    if (client->resolving && (client->addresses.count == 0 || !client_look_up_hangs(client)))
        return;
    while (client_spreads(client) ||
           (client_connecting(client) < n_wanted && client_usable(client) < max))
        if (!client_connect_next(client, !client_connecting(client) && !client_serves(client)))
            break;
    if (!client_connecting(client) && !client_serves(client))
        client_cannot_connect(client);
}

static void client_pump(struct br_deferred *deferred)
{
    struct client *client = br_container_of(deferred, struct client, pump);
    client_note_draining(client);
    while (!br_list_empty(&client->waiting)) {
        struct link *link = client_free_link(client);
        if (!link)
            break;
        struct waiting *waiting =
            br_container_of(br_list_shift(&client->waiting), struct waiting, link);
        struct br_exchange *exchange = waiting->exchange;
        br_free(waiting);
        client_send_on(client, link, exchange);
    }
    if (!br_list_empty(&client->waiting))
        client_connect_more(client);
}

/* Called when an exchange ends on a connection. Implements br_exchange.follow. */
static bool client_follow(struct br_exchange *exchange)
{
    struct client *client = exchange->client;
    if (!client->closing &&
        br_redirect_follow(&client->redirects, &client->base, &client->endpoint, exchange))
        return true;
    br_redirect_end(exchange);
    return false;
}

static void client_send(struct br_client *base, struct br_exchange *exchange)
{
    struct client *client = client_of(base);
    struct waiting *waiting = br_malloc(sizeof *waiting);
    exchange->conn = NULL;
    exchange->response = NULL;
    exchange->details = NULL;
    exchange->details_len = 0;
    if (!exchange->authority)
        exchange->authority =
            client->config.authority ? client->config.authority : client->endpoint.authority;
    exchange->secure = client->tls != NULL;
    exchange->forward = client->route.kind == BR_ROUTE_FORWARD ? &client->forward : NULL;
    exchange->grpc_status = -1;
    exchange->http_status = 0;
    exchange->error = 0;
    exchange->follow = client_follow;
    exchange->client = client;
    if (!waiting) {
        exchange->error = BR_ENOMEM;
        (void)snprintf(exchange->error_text, sizeof exchange->error_text, "out of memory");
        client_end(exchange);
        return;
    }
    *waiting = (struct waiting){.exchange = exchange};
    exchange->impl = waiting;
    br_list_append(&client->waiting, &waiting->link);
    client_wake(client);
}

/* Registers a timeout. After TIMEOUTS_MAX consecutive timeouts the link is drained, because the
 * connection may be dead although it looks open. */
static void client_note_timeout(struct client *client, struct link *link)
{
    client_note_answers(link);
    link->n_timeouts++;
    /* An HTTP/1.1 connection ends with each timeout, so a second consecutive timeout happens on
     * another connection, which has had no response at all. */
    bool first = link->h2 ? link->n_timeouts < TIMEOUTS_MAX : link->n_answered > 0;
    if (first || link->draining)
        return;
    link->draining = true;
    br_debug(client->config.log, "connection to %s abandoned: consecutive timeouts",
             client->endpoint.authority);
    client_address_failed(client, &link->address);
}

static void client_cancel(struct br_client *base, struct br_exchange *exchange)
{
    (void)base; /* after a redirect, `base` may not be the client that sent the exchange */
    if (exchange->conn) {
        struct br_stream *stream = exchange->conn->owner;
        struct link *link = stream->owner;
        br_conn_cancel(exchange->conn, exchange);
        client_note_timeout(link->client, link);
        client_wake(link->client);
    } else if (exchange->impl) {
        struct waiting *waiting = exchange->impl;
        br_list_remove(&waiting->link);
        br_free(waiting);
        exchange->impl = NULL;
    }
    br_redirect_end(exchange);
}

/* --- Timers --------------------------------------------------------------------------------- */

static void client_keep_alive(struct client *client, struct link *link, uint64_t now)
{
    struct br_stream *stream = link->stream;
    if (link->pinged && stream->read_ms >= link->ping_ms)
        link->pinged = false;
    if (link->pinged && now - link->ping_ms > client->config.keepalive_timeout_ms) {
        br_stream_close(stream, "keepalive: no answer to a PING");
    } else if (!link->pinged && now - stream->read_ms >= client->ping_ms &&
               (client->config.keepalive_without_stream ||
                !stream->conn->ops->idle(stream->conn))) {
        link->pinged = br_conn_ping(stream->conn);
        link->ping_ms = now;
    }
}

static uint64_t client_next_address_ms(const struct client *client)
{
    uint64_t most = client->config.connect_timeout_ms / 4;
    return most < NEXT_ADDRESS_MS ? most : NEXT_ADDRESS_MS;
}

/* Handles a link that is not connected yet. Closes the link after the connect timeout, and tries
 * the next address if the link is not connected after NEXT_ADDRESS_MS. */
static void client_check_connecting(struct client *client, struct link *link, uint64_t age_ms)
{
    if (age_ms > client->config.connect_timeout_ms) {
        br_stream_close(link->stream, "connection timeout");
    } else if (!link->slow && !client_spreads(client) && age_ms > client_next_address_ms(client) &&
               client->addresses.count > 1 && !br_list_empty(&client->waiting)) {
        link->slow = true;
        if (!client_connect_next(client, false))
            link->slow = false;
    }
}

static void client_check_link(struct client *client, struct link *link, uint64_t now)
{
    struct br_stream *stream = link->stream;
    if (!client_is_up(link))
        client_check_connecting(client, link, now - stream->opened_ms);
    else if (!client->config.grpc && now - link->used_ms > client->config.idle_timeout_ms &&
             stream->conn->ops->idle(stream->conn))
        br_stream_close(stream, "idle");
    else if (link->h2)
        client_keep_alive(client, link, now);
}

static void client_on_sweep(struct br_timer *timer)
{
    struct client *client = br_container_of(timer, struct client, sweep);
    uint64_t now = client_now_of(client);
    for (struct br_list *list = client->links.next; list != &client->links; list = list->next)
        client_check_link(client, br_container_of(list, struct link, link), now);
    client_note_draining(client);
    if (client_serves(client) && client_spreads(client)) {
        if (client->stale && client_wants_look_up(client))
            client_look_up(client);
        /* connects to all addresses whose backoff has ended */
        while (client_connect_next(client, false))
            ;
    }
    /* A pending name resolution cannot be repeated. If the resolution takes too long, queued
     * exchanges use the old addresses. If there are no old addresses, the exchanges fail. */
    if (client_look_up_hangs(client)) {
        if (client->addresses.count == 0)
            client_fail_waiting(client, BR_EIO, "cannot resolve", "timeout");
        else if (!br_list_empty(&client->waiting))
            client_wake(client);
    }
    (void)br_host_timer(&client->loop->host, &client->sweep, client->sweep_ms, client_on_sweep);
}

/* --- Probing for a recovered backend -----------------------------------------------------------
 */

static void client_probe_later(struct client *client)
{
    double spread = PROBE_JITTER * (2 * br_host_random(&client->loop->host) - 1);
    (void)br_host_timer(&client->loop->host, &client->probe, (uint64_t)(PROBE_MS * (1 + spread)),
                        client_on_probe);
}

/* Probes for a recovered backend. Starts a connection only if no exchange is queued: for queued
 * exchanges, client_pump starts connections. */
static void client_on_probe(struct br_timer *timer)
{
    struct client *client = br_container_of(timer, struct client, probe);
    if (client_serves(client) || client_now_of(client) - client->retry_expected_ms > PROBE_FOR_MS) {
        client->retry_expected_ms = 0;
        return;
    }
    client_probe_later(client);
    if (client_wants_look_up(client))
        client_look_up(client);
    if (client_connecting(client) || !br_list_empty(&client->waiting))
        return;
    while (client_connect_next(client, true) && client_spreads(client))
        ;
}

static void client_expect_retry(struct br_client *base)
{
    struct client *client = client_of(base);
    if (client->closing)
        return;
    if (!client->retry_expected_ms)
        client_probe_later(client);
    client->retry_expected_ms = client_now_of(client);
}

static void client_free(struct br_client *base)
{
    struct client *client = client_of(base);
    client->closing = true;
    br_redirects_release(&client->redirects);
    client_fail_waiting(client, BR_ECLOSED, "connection to", "the client is stopping");
    while (!br_list_empty(&client->links)) {
        struct link *link = br_container_of(client->links.next, struct link, link);
        if (link->stream->conn)
            link->stream->conn->ops->shutdown(link->stream->conn);
        br_stream_end(link->stream, "the client is stopping");
    }
    client_fail_waiting(client, BR_ECLOSED, "connection to", "the client is stopping");
    if (client->resolving) {
        client->resolving->client = NULL;
        (void)uv_cancel((uv_req_t *)&client->resolving->request);
    }
    br_host_defer_cancel(&client->pump);
    br_host_timer_stop(&client->loop->host, &client->sweep);
    br_host_timer_stop(&client->loop->host, &client->probe);
    br_tls_reload_stop(client->tls_reload);
    br_tls_context_free(client->tls);
    br_free(client);
}

static const struct br_client_ops client_ops = {client_send, client_cancel, client_free,
                                                client_expect_retry};

static int client_make_tls(struct client *client, struct br_err *err)
{
    static const char *const h2[] = {"h2", NULL}, *const h1[] = {"http/1.1", NULL},
                             *const both[] = {"h2", "http/1.1", NULL};
    static const struct br_tls_config defaults;
    const struct br_tls_config *tls = client->config.tls;
    /* As in the Collector, the scheme decides whether to use TLS. Without a scheme (gRPC), TLS
     * is used unless `insecure` is set. */
    bool want = client->endpoint.tls || (!client->endpoint.has_scheme && !(tls && tls->insecure) &&
                                         !client->endpoint.unix_socket);
    if (!want)
        return 0;
    const char *const *alpn = client->config.http2 ? both : h1;
    if (client->config.grpc)
        alpn = h2;
    return br_tls_context_new(tls ? tls : &defaults, false, alpn, &client->tls, err);
}

const struct br_option br_client_keepalive_options[] = {
    BR_BOOL(struct br_client_keepalive, enabled, true, "reuse connections for further requests"),
    BR_DURATION(struct br_client_keepalive, idle_conn_timeout, "90s",
                "close a connection that has not been used for this time; 0: never"),
    BR_IGNORED("max_idle_conns",
               "unused connections count towards max_conns_per_host, which limits them"),
    BR_IGNORED("max_idle_conns_per_host",
               "unused connections count towards max_conns_per_host, which limits them"),
    BR_OPT_END,
};

void br_client_keepalive_apply(const struct br_client_keepalive *keepalive,
                               struct br_client_config *config)
{
    uint64_t idle_ms = keepalive->idle_conn_timeout / 1000000;
    config->close_after_use = !keepalive->enabled;
    if (!keepalive->idle_conn_timeout)
        config->idle_timeout_ms = UINT64_MAX;
    else
        config->idle_timeout_ms = idle_ms ? idle_ms : 1;
}

static uint64_t client_or_default(uint64_t value, uint64_t otherwise)
{
    return value ? value : otherwise;
}

static void client_set_defaults(struct client *client)
{
    struct br_client_config *config = &client->config;
    if (!config->max_connections)
        config->max_connections = config->grpc ? 1 : HTTP_CONNECTIONS;
    config->connect_timeout_ms = client_or_default(config->connect_timeout_ms, CONNECT_MS);
    config->idle_timeout_ms = client_or_default(config->idle_timeout_ms, IDLE_MS);
    client->user_timeout_ms = client_or_default(config->keepalive_timeout_ms, USER_TIMEOUT_MS);
    config->keepalive_timeout_ms = client_or_default(config->keepalive_timeout_ms, PING_TIMEOUT_MS);
    client->ping_ms = client_or_default(config->keepalive_time_ms, PING_MS);
    const uint64_t times[] = {config->connect_timeout_ms, config->idle_timeout_ms,
                              config->keepalive_timeout_ms, client->ping_ms};
    /* The sweep closes overdue connections. The sweep's interval is at most a quarter of the
     * shortest timeout, so that connections are closed soon enough. */
    client->sweep_ms = SWEEP_MS;
    for (size_t i = 0; i < BR_COUNT(times); i++)
        client->sweep_ms = times[i] / 4 < client->sweep_ms ? times[i] / 4 : client->sweep_ms;
    if (client->sweep_ms < SWEEP_MIN_MS)
        client->sweep_ms = SWEEP_MIN_MS;
}

static int client_choose_route(struct client *client, struct br_err *err)
{
    struct br_proxies proxies = {.proxy_url = client->config.proxy_url};
    br_proxies_read_environment(&proxies);
    int rc = br_route_choose(&proxies, &client->endpoint, client->config.grpc, &client->route, err);
    (void)snprintf(client->origin, sizeof client->origin, "http://%s", client->endpoint.authority);
    client->forward = (struct br_forward){.origin = client->origin,
                                          .authorization = client->route.authorization,
                                          .proxy = client->route.proxy.authority};
    return rc;
}

int br_client_check(const struct br_client_config *config, struct br_err *err)
{
    struct client *client = br_calloc(1, sizeof *client);
    if (!client)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    client->config = *config;
    int rc = br_endpoint_read(config->endpoint, config->grpc, &client->endpoint, err);
    if (!rc)
        rc = client_choose_route(client, err);
    if (!rc)
        rc = client_make_tls(client, err);
    br_tls_context_free(client->tls);
    br_free(client);
    return rc;
}

int br_net_connect(struct br_host *host, const struct br_client_config *config,
                   struct br_client **ret, struct br_err *err)
{
    struct client *client = br_calloc(1, sizeof *client);
    if (!client)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    client->base.ops = &client_ops;
    client->loop = br_loop_of(host);
    client->config = *config;
    client_set_defaults(client);
    br_list_init(&client->links);
    br_list_init(&client->waiting);
    br_redirects_init(&client->redirects, host, &client->config);
    int rc = br_endpoint_read(config->endpoint, config->grpc, &client->endpoint, err);
    if (!rc)
        rc = client_choose_route(client, err);
    if (!rc)
        rc = client_make_tls(client, err);
    client->fixed = !rc && client_add_fixed(client);
    if (!rc && (br_tls_reload_start(host, client->tls, config->log, &client->tls_reload) ||
                !br_host_timer(host, &client->sweep, client->sweep_ms, client_on_sweep)))
        rc = br_err_set(err, BR_ENOMEM, "out of memory");
    if (rc) {
        br_tls_reload_stop(client->tls_reload);
        br_tls_context_free(client->tls);
        br_free(client);
        return rc;
    }
    *ret = &client->base;
    return config->authenticator
               ? br_signing_client_new(host, config->authenticator, &client->base, ret, err)
               : 0;
}
