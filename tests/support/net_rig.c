/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/net_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "tests/support/test.h"

#define DEADLINE_MS 20000
#define TICK_MS 2

/* --- The loop --------------------------------------------------------------------------------- */

static void on_tick(struct br_timer *t)
{
    struct net_rig *rig = br_container_of(t, struct net_rig, tick);
    assert_true(br_host_timer(rig->host, t, TICK_MS, on_tick));
}

int net_setup(void **state)
{
    struct net_rig *rig = calloc(1, sizeof *rig);
    struct br_err err = {0};
    assert_non_null(rig);
    br_log_setup(BR_LOG_ERROR, false, 2);
    rig->net = br_net_new();
    assert_non_null(rig->net);
    assert_int_equal(br_loop_new(rig->net, 0, 1, &rig->loop, &err), 0);
    rig->host = br_loop_host(rig->loop);
    on_tick(&rig->tick);
    *state = rig;
    return 0;
}

int net_teardown(void **state)
{
    struct net_rig *rig = *state;
    for (int i = 0; i < 3; i++)
        net_step(rig);
    assert_int_equal(br_pool_live(rig->host->pool), 0);
    br_host_timer_stop(rig->host, &rig->tick);
    br_loop_free(rig->loop);
    br_net_free(rig->net);
    free(rig);
    return 0;
}

void net_step(struct net_rig *rig)
{
    br_loop_step(rig->loop);
    rig->n_steps++;
}

uint64_t net_now(struct net_rig *rig)
{
    return br_host_mono_ms(rig->host);
}

void net_start_deadline(struct net_rig *rig)
{
    rig->deadline_ms = net_now(rig) + DEADLINE_MS;
}

void net_check_deadline(struct net_rig *rig, const char *what, const char *file, int line)
{
    if (net_now(rig) < rig->deadline_ms)
        return;
    print_error("waited in vain for %s\n", what);
    _fail(file, line);
}

void net_idle(struct net_rig *rig, uint64_t ms)
{
    uint64_t end = net_now(rig) + ms;
    while (net_now(rig) < end)
        net_step(rig);
}

/* --- The service ------------------------------------------------------------------------------ */

uint64_t net_hash(const void *data, size_t len)
{
    const uint8_t *p = data;
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h;
}

void net_reply(struct net_service *s, struct br_request *r)
{
    char *text = NULL;
    if (s->answer_bytes) {
        text = malloc(s->answer_bytes);
        assert_non_null(text);
        memset(text, 'a', s->answer_bytes);
    }
    s->n_replied++;
    br_request_reply(r, &(struct br_response){.status = 200,
                                              .content_type = "text/plain",
                                              .text = text ? text : "ok\n",
                                              .text_len = s->answer_bytes,
                                              .close = s->close});
    free(text);
}

static void on_begin(struct br_handler *self, struct br_request *r)
{
    struct net_service *s = (struct net_service *)self;
    s->n_begun++;
    r->grpc = s->grpc;
    r->max_body = s->max_body;
    (void)snprintf(s->last_method, sizeof s->last_method, "%s", r->method);
    (void)snprintf(s->last_path, sizeof s->last_path, "%s", r->path);
    (void)snprintf(s->last_query, sizeof s->last_query, "%s", r->query);
    if (s->when == NET_IN_BEGIN)
        net_reply(s, r);
}

static void on_body(struct br_handler *self, struct br_request *r)
{
    struct net_service *s = (struct net_service *)self;
    s->n_bodies++;
    s->body_error = r->body_error;
    if (r->body) {
        s->body_bytes += r->body->len;
        s->body_hash = net_hash(r->body->data, r->body->len);
    }
    if (s->when == NET_IN_BODY) {
        net_reply(s, r);
        return;
    }
    assert_true(s->n_held < NET_REQUESTS_MAX);
    r->user = &s->held[s->n_held];
    s->held[s->n_held++] = r;
}

static void on_gone(struct br_handler *self, struct br_request *r)
{
    struct net_service *s = (struct net_service *)self;
    struct br_request **slot = r->user;
    s->n_gone++;
    assert_false(r->replied);
    if (slot)
        *slot = NULL;
}

void net_service_init(struct net_service *s)
{
    *s = (struct net_service){.service = {.begin = on_begin, .body = on_body, .gone = on_gone},
                              .max_body = 64u << 20};
}

void net_reply_all(struct net_service *s)
{
    for (unsigned i = 0; i < s->n_held; i++) {
        struct br_request *r = s->held[i];
        s->held[i] = NULL;
        if (r)
            net_reply(s, r);
    }
    s->n_held = 0;
}

struct br_server *net_serve(struct net_rig *rig, struct net_service *s,
                            const struct br_server_config *config)
{
    struct br_server_config c = config ? *config : (struct br_server_config){0};
    struct br_server *server = NULL;
    struct br_err err = {0};
    c.name = c.name ? c.name : "test";
    c.what = "test";
    c.endpoint = c.endpoint ? c.endpoint : "127.0.0.1:0";
    int rc = rig->host->ops->serve(rig->host, &c, &s->service, &server, &err);
    if (rc)
        fail_msg("%s", err.text);
    return server;
}

unsigned net_connections(struct net_rig *rig)
{
    const double *n = br_metric(rig->host->metrics, BR_GAUGE, "braid_server_connections",
                                "server=\"test\",worker=\"0\"");
    return (unsigned)*n;
}

unsigned net_closed(struct net_rig *rig, const char *reason)
{
    char labels[80];
    (void)snprintf(labels, sizeof labels, "server=\"test\",reason=\"%s\"", reason);
    return (unsigned)*br_metric(rig->host->metrics, BR_COUNTER, "braid_server_connections_closed",
                                labels);
}

/* --- The raw peer ----------------------------------------------------------------------------- */

struct net_peer *net_peer_of(int fd)
{
    struct net_peer *p = calloc(1, sizeof *p);
    assert_non_null(p);
    int one = 1;
    /* a unix socket does not have a port */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    p->fd = fd;
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return p;
}

struct net_peer *net_dial(unsigned port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    return net_peer_of(fd);
}

void net_hang_up(struct net_peer *p)
{
    close(p->fd);
    free(p->in);
    free(p);
}

size_t net_try(struct net_peer *p, const void *data, size_t len)
{
    ssize_t n = send(p->fd, data, len, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN)
        p->eof = p->reset = true;
    return n < 0 ? 0 : (size_t)n;
}

void net_send(struct net_rig *rig, struct net_peer *p, const void *data, size_t len)
{
    size_t at = 0;
    NET_UNTIL(rig, (at += net_try(p, (const uint8_t *)data + at, len - at)) == len || p->eof);
}

void net_puts(struct net_rig *rig, struct net_peer *p, const char *text)
{
    net_send(rig, p, text, strlen(text));
}

bool net_poll(struct net_peer *p)
{
    while (!p->eof && !p->deaf) {
        if (p->cap - p->n_in < 65536) {
            p->cap = p->cap ? p->cap * 2 : 131072;
            p->in = realloc(p->in, p->cap);
            assert_non_null(p->in);
        }
        ssize_t n = recv(p->fd, p->in + p->n_in, p->cap - p->n_in, 0);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            p->eof = true;
            p->reset = n < 0;
        } else {
            p->n_in += (size_t)n;
        }
    }
    return p->eof;
}

unsigned net_count(struct net_peer *p, const char *text)
{
    unsigned n = 0;
    size_t len = strlen(text);
    (void)net_poll(p);
    for (size_t i = 0; i + len <= p->n_in; i++)
        n += memcmp(p->in + i, text, len) == 0;
    return n;
}

int net_listen(int family, unsigned *ret_port)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr *addr = family == AF_INET ? (void *)&v4 : (void *)&v6;
    socklen_t len = family == AF_INET ? sizeof v4 : sizeof v6;
    v4.sin_port = v6.sin6_port = htons((uint16_t)*ret_port);
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, addr, len) || listen(fd, 128) || getsockname(fd, addr, &len)) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    *ret_port = ntohs(family == AF_INET ? v4.sin_port : v6.sin6_port);
    return fd;
}

struct net_peer *net_accept(int listener)
{
    int fd = accept(listener, NULL, NULL);
    return fd < 0 ? NULL : net_peer_of(fd);
}

/* --- The exchange ----------------------------------------------------------------------------- */

static void on_done(struct br_exchange *x)
{
    struct net_call *c = (struct net_call *)x;
    c->n_done++;
    c->error = x->error;
    c->http_status = x->http_status;
    c->grpc_status = x->grpc_status;
    c->retry_after_s = x->retry_after_s;
    memcpy(c->error_text, x->error_text, sizeof c->error_text);
    if (!x->error && x->response) {
        c->response_bytes = x->response->len;
        (void)snprintf(c->response, sizeof c->response, "%.*s",
                       (int)(x->response->len < 60 ? x->response->len : 60),
                       (const char *)x->response->data);
    }
}

uint8_t net_byte_at(size_t i)
{
    return (uint8_t)(i * 31 + i / 251);
}

void net_call_init(struct net_rig *rig, struct net_call *c, bool grpc, size_t bytes)
{
    *c = (struct net_call){.x = {.path = "/call",
                                 .content_type = grpc ? "application/grpc" : "text/plain",
                                 .grpc = grpc,
                                 .on_done = on_done}};
    /* The body is sent in slices, like the bodies of real requests. */
    for (size_t at = 0; at < bytes;) {
        size_t n = bytes - at < 10007 ? bytes - at : 10007;
        struct br_buf *buf = br_buf_new(rig->host->pool, n);
        assert_non_null(buf);
        for (size_t i = 0; i < n; i++)
            buf->data[i] = net_byte_at(at + i);
        buf->len = (uint32_t)n;
        assert_int_equal(br_rope_add(&c->x.body, buf, buf->data, n), 0);
        br_buf_unref(buf);
        at += n;
    }
}

void net_call_release(struct net_call *c)
{
    br_rope_release(&c->x.body);
}

void net_call(struct net_rig *rig, struct br_client *client, struct net_call *c)
{
    unsigned before = c->n_done;
    br_client_send(client, &c->x);
    NET_UNTIL(rig, c->n_done > before);
    assert_int_equal(c->n_done, before + 1);
}

struct br_client *net_connect(struct net_rig *rig, const struct br_client_config *config)
{
    struct br_client *client = NULL;
    struct br_err err = {0};
    if (rig->host->ops->connect(rig->host, config, &client, &err))
        fail_msg("%s", err.text);
    return client;
}
