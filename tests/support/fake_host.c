/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fake_host.h"

#include "base/mem.h"
#include "tests/support/scrape.h"
#include "tests/support/test.h"

#define START_MS 1000000u
#define START_NS 1767225600000000000u
#define TURNS_MAX 10000

struct fake_server {
    struct br_server base;
    struct br_list link;
    struct fake_host *host;
    struct br_handler *service;
    char name[160];
    struct br_list requests; /* requests that have begun and have not ended */
    bool stopping;
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;
    struct br_deferred report;
};

struct fake_request {
    struct br_request request;
    struct br_list link; /* links the request into server->requests */
    struct fake_server *server;
    struct br_header headers[BR_REQUEST_HEADERS_MAX];
    char method[16], path[65536]; /* `path` contains the path, a byte 0, and the query string */
    struct fake_reply reply;
    bool reads_not;      /* true: the client does not read the response body */
    struct br_buf *kept; /* the response body that the client has not read yet */
    bool begun, over;
};

struct fake_client {
    struct br_client base;
    struct br_list link;
    struct fake_host *host;
    struct br_list pending;
};

struct pending {
    struct br_list link;
    struct fake_client *client;
    struct br_exchange *x;
    struct fake_answer answer;
    struct br_deferred now;
    struct br_timer later;
};

static void *take(size_t n)
{
    void *p = calloc(1, n);
    if (!p)
        abort();
    return p;
}

/* --- Clients ---------------------------------------------------------------------------------- */

static void end_pending(struct pending *p)
{
    struct br_host *h = &p->client->host->host;
    br_list_remove(&p->link);
    br_host_defer_cancel(&p->now);
    br_host_timer_stop(h, &p->later);
    p->x->impl = NULL;
    free(p);
}

static void put_answer(struct br_exchange *x, const struct fake_answer *a, struct br_pool *pool)
{
    x->error = a->error;
    (void)snprintf(x->error_text, sizeof x->error_text, "%s", a->error ? "scripted" : "");
    x->http_status = a->http_status;
    if (!a->http_status && !a->error)
        x->http_status = 200;
    x->grpc_status = x->grpc ? a->grpc_status : -1;
    (void)snprintf(x->grpc_message, sizeof x->grpc_message, "%s",
                   a->grpc_message ? a->grpc_message : "");
    (void)snprintf(x->response_type, sizeof x->response_type, "%s",
                   a->type ? a->type : "application/x-protobuf");
    (void)snprintf(x->response_encoding, sizeof x->response_encoding, "%s",
                   a->encoding ? a->encoding : "");
    x->response_compressed = x->grpc && a->encoding;
    x->details = (uint8_t *)(uintptr_t)a->details;
    x->details_len = a->details_len;
    (void)snprintf(x->location, sizeof x->location, "%s", a->location ? a->location : "");
    x->retry_after_s = a->has_retry_after ? a->retry_after_s : -1;
    x->response = a->len ? br_buf_new(pool, a->len) : NULL;
    if (x->response) {
        memcpy(x->response->data, a->body, a->len);
        x->response->len = (uint32_t)a->len;
    }
}

static void answer(struct pending *p)
{
    struct br_exchange *x = p->x;
    struct fake_answer a = p->answer;
    struct br_pool *pool = p->client->host->host.pool;
    end_pending(p);
    put_answer(x, &a, pool);
    struct br_buf *response = x->response;
    x->on_done(x);
    br_buf_unref(response);
}

static void on_now(struct br_deferred *d)
{
    answer(br_container_of(d, struct pending, now));
}

static void on_later(struct br_timer *t)
{
    answer(br_container_of(t, struct pending, later));
}

static void client_send(struct br_client *base, struct br_exchange *x)
{
    struct fake_client *c = br_container_of(base, struct fake_client, base);
    struct fake_host *h = c->host;
    struct pending *p = take(sizeof *p);
    h->n_exchanges++;
    br_rope_release(&h->last_body);
    (void)br_rope_cat(&h->last_body, &x->body);
    (void)snprintf(h->last_path, sizeof h->last_path, "%s", x->path);
    p->client = c;
    p->x = x;
    x->impl = p;
    br_list_append(&c->pending, &p->link);
    if (h->answer)
        p->answer = h->answer(x, h->answer_arg);
    if (p->answer.never)
        return;
    if (!p->answer.delay_ms || !br_host_timer(&h->host, &p->later, p->answer.delay_ms, on_later))
        br_host_defer(&h->host, &p->now, on_now);
}

static void client_cancel(struct br_client *base, struct br_exchange *x)
{
    (void)base;
    if (x->impl)
        end_pending(x->impl);
}

static void client_free(struct br_client *base)
{
    struct fake_client *c = br_container_of(base, struct fake_client, base);
    while (!br_list_empty(&c->pending)) {
        struct pending *p = br_container_of(c->pending.next, struct pending, link);
        p->answer = (struct fake_answer){.error = BR_ECLOSED};
        answer(p);
    }
    br_list_remove(&c->link);
    free(c);
}

static void client_expect_retry(struct br_client *base)
{
    struct fake_client *c = br_container_of(base, struct fake_client, base);
    c->host->n_wanted++;
}

static const struct br_client_ops client_ops = {client_send, client_cancel, client_free,
                                                client_expect_retry};

static int host_connect(struct br_host *host, const struct br_client_config *config,
                        struct br_client **ret, struct br_err *err)
{
    struct fake_host *h = (struct fake_host *)(void *)host;
    struct br_endpoint endpoint;
    int rc = br_endpoint_read(config->endpoint, config->grpc, &endpoint, err);
    if (rc)
        return rc;
    if (h->refuse_connect) {
        h->refuse_connect = false;
        return br_err_set(err, BR_EIO, "scripted");
    }
    struct fake_client *c = take(sizeof *c);
    c->base.ops = &client_ops;
    c->host = h;
    h->on_reachable = config->on_reachable;
    h->on_reachable_arg = config->on_reachable_arg;
    br_list_init(&c->pending);
    br_list_append(&h->clients, &c->link);
    *ret = &c->base;
    return 0;
}

/* --- Servers ---------------------------------------------------------------------------------- */

static void on_report(struct br_deferred *d)
{
    struct fake_server *s = br_container_of(d, struct fake_server, report);
    void (*fn)(void *) = s->on_stopped;
    if (!s->stopping || !br_list_empty(&s->requests))
        return;
    s->on_stopped = NULL;
    if (fn)
        fn(s->on_stopped_arg);
}

static void server_stop(struct br_server *base, void (*on_stopped)(void *arg), void *arg)
{
    struct fake_server *s = br_container_of(base, struct fake_server, base);
    s->stopping = true;
    s->on_stopped = on_stopped;
    s->on_stopped_arg = arg;
    br_host_defer(&s->host->host, &s->report, on_report);
}

static void server_free(struct br_server *base)
{
    struct fake_server *s = br_container_of(base, struct fake_server, base);
    while (!br_list_empty(&s->requests))
        fake_request_gone(br_container_of(s->requests.next, struct fake_request, link));
    br_host_defer_cancel(&s->report);
    br_list_remove(&s->link);
    free(s);
}

static unsigned server_port(struct br_server *base)
{
    (void)base;
    return 4317;
}

static const struct br_server_ops server_ops = {server_stop, server_free, server_port};

static int host_serve(struct br_host *host, const struct br_server_config *config,
                      struct br_handler *service, struct br_server **ret, struct br_err *err)
{
    struct fake_host *h = (struct fake_host *)(void *)host;
    if (h->refuse_serve) {
        h->refuse_serve = false;
        return br_err_set(err, BR_EIO, "scripted");
    }
    struct fake_server *s = take(sizeof *s);
    s->base.ops = &server_ops;
    s->host = h;
    s->service = service;
    (void)snprintf(s->name, sizeof s->name, "%s", config->name);
    br_list_init(&s->requests);
    br_list_append(&h->servers, &s->link);
    *ret = &s->base;
    return 0;
}

struct fake_udp {
    struct br_udp base;
    struct br_list link;
    char name[160];
    br_udp_fn *fn;
    void *arg;
};

static void udp_close(struct br_udp *base)
{
    struct fake_udp *u = br_container_of(base, struct fake_udp, base);
    br_list_remove(&u->link);
    free(u);
}

static const struct br_udp_ops udp_ops = {udp_close};

static int host_receive(struct br_host *host, const struct br_udp_config *config, br_udp_fn *fn,
                        void *arg, struct br_udp **ret, struct br_err *err)
{
    struct fake_host *h = (struct fake_host *)(void *)host;
    if (h->refuse_serve) {
        h->refuse_serve = false;
        return br_err_set(err, BR_EIO, "scripted");
    }
    struct fake_udp *u = take(sizeof *u);
    u->base.ops = &udp_ops;
    u->fn = fn;
    u->arg = arg;
    (void)snprintf(u->name, sizeof u->name, "%s", config->name);
    br_list_append(&h->udps, &u->link);
    *ret = &u->base;
    return 0;
}

bool fake_host_packet(struct fake_host *h, const char *name, const struct br_udp_packet *packet)
{
    for (struct br_list *l = h->udps.next; l != &h->udps; l = l->next) {
        struct fake_udp *u = br_container_of(l, struct fake_udp, link);
        if (!strstr(u->name, name))
            continue;
        u->fn(u->arg, packet);
        fake_host_iterate(h);
        return true;
    }
    return false;
}

static struct fake_server *find_server(struct fake_host *h, const char *name)
{
    for (struct br_list *l = h->servers.next; l != &h->servers; l = l->next) {
        struct fake_server *s = br_container_of(l, struct fake_server, link);
        if (strstr(s->name, name) && !s->stopping)
            return s;
    }
    return NULL;
}

struct br_handler *fake_host_service(struct fake_host *h, const char *name)
{
    struct fake_server *s = find_server(h, name);
    return s ? s->service : NULL;
}

/* --- Requests --------------------------------------------------------------------------------- */

/* Ends the request for its server, because it was answered or its client has disconnected. */
static void leave(struct fake_request *r)
{
    struct fake_server *s = r->server;
    r->over = true;
    r->request.body = br_buf_unref(r->request.body);
    br_list_remove(&r->link);
    if (s && s->stopping)
        br_host_defer(&s->host->host, &s->report, on_report);
    r->server = NULL;
}

static void on_reply(struct br_request *request, const struct br_response *response)
{
    struct fake_request *r = (struct fake_request *)(void *)request;
    struct fake_reply *o = &r->reply;
    assert_false(r->over);
    assert_false(o->came);
    o->came = true;
    o->grpc = request->grpc;
    o->status = request->grpc ? 200 : response->status;
    (void)snprintf(o->type, sizeof o->type, "%s",
                   response->content_type ? response->content_type : "");
    o->grpc_status = response->grpc_status;
    (void)snprintf(o->grpc_message, sizeof o->grpc_message, "%s",
                   response->grpc_message ? response->grpc_message : "");
    assert_true(response->grpc_details_len <= sizeof o->details);
    o->details_len = response->grpc_details ? response->grpc_details_len : 0;
    if (o->details_len)
        memcpy(o->details, response->grpc_details, o->details_len);
    const void *data = response->text;
    size_t len = 0;
    if (data)
        len = response->text_len ? response->text_len : strlen(response->text);
    if (!data && response->body) {
        data = response->body->data;
        len = response->body->len;
    }
    o->body = take(len + 1);
    o->body_len = len;
    if (len)
        memcpy(o->body, data, len);
    if (r->reads_not && response->body)
        r->kept = br_buf_ref(response->body);
    size_t at = 0;
    for (size_t i = 0; i < response->n_headers && at < sizeof o->headers; i++)
        at += (size_t)snprintf(o->headers + at, sizeof o->headers - at, "%s: %s\n",
                               response->headers[i].name, response->headers[i].value);
    o->streaming = response->stream;
    if (!response->stream)
        leave(r);
}

static bool on_write(struct br_request *request, const void *data, size_t len, size_t max)
{
    struct fake_request *r = (struct fake_request *)(void *)request;
    struct fake_reply *o = &r->reply;
    assert_false(r->over);
    if (len > max || o->unread > max - len)
        return false;
    o->body = realloc(o->body, o->body_len + len + 1);
    assert_non_null(o->body);
    memcpy(o->body + o->body_len, data, len);
    o->body_len += len;
    o->body[o->body_len] = '\0';
    o->unread += r->reads_not ? len : 0;
    return true;
}

static void on_end(struct br_request *request, bool whole)
{
    struct fake_request *r = (struct fake_request *)(void *)request;
    assert_false(r->over);
    r->reply.streaming = false;
    r->reply.broken = !whole;
    leave(r);
}

void fake_request_stop_reading(struct fake_request *r)
{
    r->reads_not = true;
}

struct fake_request *fake_request_new(struct fake_host *h, const char *server, const char *path)
{
    struct fake_server *s = find_server(h, server);
    if (!s)
        return NULL;
    struct fake_request *r = take(sizeof *r);
    r->server = s;
    (void)snprintf(r->method, sizeof r->method, "POST");
    (void)snprintf(r->path, sizeof r->path, "%s", path);
    char *query = strchr(r->path, '?');
    if (query)
        *query++ = '\0';
    r->request = (struct br_request){.service = s->service,
                                     .pool = h->host.pool,
                                     .method = r->method,
                                     .path = r->path,
                                     .query = query ? query : "",
                                     .scheme_host = "localhost",
                                     .headers = r->headers,
                                     .peer = "192.0.2.1:1234",
                                     .content_length = -1,
                                     .http2 = true,
                                     .reply = on_reply,
                                     .write = on_write,
                                     .end = on_end};
    br_list_append(&s->requests, &r->link);
    return r;
}

void fake_request_method(struct fake_request *r, const char *method)
{
    (void)snprintf(r->method, sizeof r->method, "%s", method);
}

void fake_request_host(struct fake_request *r, const char *host)
{
    r->request.scheme_host = host;
}

void fake_request_header(struct fake_request *r, const char *name, const char *value)
{
    assert_true(r->request.n_headers < BR_REQUEST_HEADERS_MAX);
    r->headers[r->request.n_headers++] = (struct br_header){name, value};
}

void fake_request_begin(struct fake_request *r)
{
    r->begun = true;
    r->request.service->begin(r->request.service, &r->request);
}

void fake_request_send(struct fake_request *r, const void *body, size_t len)
{
    if (!r->begun)
        fake_request_begin(r);
    if (r->over)
        return;
    if (len > r->request.max_body) {
        fake_request_fail(r, BR_BODY_TOO_BIG);
        return;
    }
    r->request.body = len ? br_buf_new(r->request.pool, len) : NULL;
    if (len && !r->request.body) {
        fake_request_fail(r, BR_BODY_NO_MEMORY);
        return;
    }
    if (len) {
        memcpy(r->request.body->data, body, len);
        r->request.body->len = (uint32_t)len;
    }
    r->request.service->body(r->request.service, &r->request);
}

void fake_request_fail(struct fake_request *r, enum br_body_error error)
{
    if (!r->begun)
        fake_request_begin(r);
    if (r->over)
        return;
    r->request.body_error = error;
    r->request.service->body(r->request.service, &r->request);
}

void fake_request_set_unread(struct fake_request *r, size_t bytes)
{
    r->reply.unread = bytes;
}

void fake_request_on(struct fake_request *r, struct br_conn *conn)
{
    r->request.conn = conn;
}

void fake_request_gone(struct fake_request *r)
{
    r->kept = br_buf_unref(r->kept);
    if (r->over)
        return;
    if (r->begun)
        r->request.service->gone(r->request.service, &r->request);
    leave(r);
}

const struct fake_reply *fake_request_reply(const struct fake_request *r)
{
    return &r->reply;
}

void fake_request_free(struct fake_request *r)
{
    if (!r)
        return;
    fake_request_gone(r);
    free(r->reply.body);
    free(r);
}

/* --- The host --------------------------------------------------------------------------------- */

static uint64_t mono_ms(struct br_host *h)
{
    return ((struct fake_host *)(void *)h)->now_ms;
}

static uint64_t unix_ns(struct br_host *h)
{
    return ((struct fake_host *)(void *)h)->unix_ns;
}

static uint64_t cpu_ns(struct br_host *h)
{
    return ((struct fake_host *)(void *)h)->cpu_ns;
}

static bool host_work(struct br_host *base, struct br_work *w)
{
    struct fake_host *h = (struct fake_host *)(void *)base;
    if (!h->threads)
        return false;
    assert_true(h->n_works < BR_COUNT(h->works));
    h->works[h->n_works++] = w;
    return true;
}

/* Cancels work that has not begun. */
static void host_work_cancel(struct br_host *base, struct br_work *w)
{
    (void)base;
    w->cancelled = true;
}

static void host_work_wait(struct br_host *base, struct br_work *w)
{
    struct fake_host *h = (struct fake_host *)(void *)base;
    assert_true(w->cancelled);
    h->n_waits++;
}

unsigned fake_host_work(struct fake_host *h)
{
    unsigned n = h->n_works;
    h->n_works = h->n_waits = 0;
    for (unsigned i = 0; i < n; i++) {
        if (!h->works[i]->cancelled)
            h->works[i]->run(h->works[i]);
        h->works[i]->done(h->works[i]);
    }
    return n;
}

static const struct br_host_ops host_ops = {.mono_ms = mono_ms,
                                            .unix_ns = unix_ns,
                                            .cpu_ns = cpu_ns,
                                            .serve = host_serve,
                                            .receive = host_receive,
                                            .connect = host_connect,
                                            .work = host_work,
                                            .work_cancel = host_work_cancel,
                                            .work_wait = host_work_wait};

struct fake_host *fake_host_new(void)
{
    struct fake_host *h = take(sizeof *h);
    struct br_pool *pool = br_pool_new(0);
    if (!pool || br_host_init(&h->host, &host_ops, pool))
        abort();
    br_host_set_memory(&h->host, &h->memory);
    h->host.random_state = 0x9e3779b97f4a7c15u;
    h->now_ms = START_MS;
    h->unix_ns = START_NS;
    br_list_init(&h->servers);
    br_list_init(&h->udps);
    br_list_init(&h->clients);
    return h;
}

void fake_host_free(struct fake_host *h)
{
    fake_host_iterate(h);
    (void)fake_host_work(h);
    br_rope_release(&h->last_body);
    assert_true(br_list_empty(&h->servers));
    assert_true(br_list_empty(&h->udps));
    assert_true(br_list_empty(&h->clients));
    assert_int_equal(br_pool_live(h->host.pool), 0);
    br_pool_free(h->host.pool);
    br_host_release(&h->host);
    free(h);
}

void fake_host_iterate(struct fake_host *h)
{
    for (int i = 0; i < TURNS_MAX; i++) {
        bool more = br_host_iterate(&h->host);
        if (!more && br_timers_next(&h->host.timers) > h->now_ms)
            return;
    }
    fail_msg("the host does not come to rest");
}

void fake_host_drain(struct fake_host *h, struct br_node *node)
{
    node->draining = true;
    if (node->component->drain)
        node->component->drain(node);
    else
        br_node_drained(node);
    fake_host_iterate(h);
}

void fake_host_end(struct fake_host *h, struct br_node *node, struct br_arena *arena)
{
    if (node->component->destroy)
        node->component->destroy(node);
    fake_host_iterate(h);
    br_free(node->state);
    br_arena_release(arena);
    fake_host_check_ledger(h);
    fake_host_free(h);
}

void fake_host_advance(struct fake_host *h, uint64_t ms)
{
    uint64_t until = h->now_ms + ms;
    for (;;) {
        fake_host_iterate(h);
        uint64_t due = br_timers_next(&h->host.timers);
        if (h->now_ms >= until)
            return;
        uint64_t next = due < until ? due : until;
        h->unix_ns += (next - h->now_ms) * 1000000u;
        h->now_ms = next;
    }
}

/* --- The ledger ------------------------------------------------------------------------------- */

double fake_host_metric(struct fake_host *h, const char *name, const char *labels)
{
    return scrape_metric(&h->host, name, labels);
}

double fake_host_dropped(struct fake_host *h, enum br_signal signal, const char *reason)
{
    return scrape_dropped(&h->host, signal, reason);
}

static double missing(struct fake_host *h, enum br_signal s)
{
    const struct br_ledger *l = &h->host.ledger;
    return *l->received[s] + *l->restored[s] - *l->sent[s] - *l->rejected[s] - *l->stored[s] -
           *l->held[s] - fake_host_dropped(h, s, NULL);
}

bool fake_host_ledger_closes(struct fake_host *h)
{
    double traces = missing(h, BR_TRACES), profiles = missing(h, BR_PROFILES);
    return traces > -0.5 && traces < 0.5 && profiles > -0.5 && profiles < 0.5;
}

void fake_host_check_ledger(struct fake_host *h)
{
    for (int s = 0; s < BR_SIGNALS; s++) {
        const struct br_ledger *l = &h->host.ledger;
        if (missing(h, (enum br_signal)s) != 0 || *l->held[s] != 0)
            fail_msg(
                "ledger of %s: received %.0f, sent %.0f, rejected %.0f, dropped %.0f, held %.0f",
                br_signal_name((enum br_signal)s), *l->received[s], *l->sent[s], *l->rejected[s],
                fake_host_dropped(h, (enum br_signal)s, NULL), *l->held[s]);
    }
}
