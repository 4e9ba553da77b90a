/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1, server side, one request at a time: what a client sends ahead waits here, and the socket
 * is not read meanwhile. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "wire/conn.h"
#include "wire/http1.h"

#define AHEAD_MAX (1u << 20)
#define OUT_MAX (1u << 10) /* answers that wait for the socket, above which no request is begun */

struct server {
    struct br_conn conn;
    struct br_handler *service;
    struct br_pool *pool;
    struct br_http1 parser;
    struct br_request request;
    struct br_header headers[BR_REQUEST_HEADERS_MAX];
    char *path; /* copy of the target, cut at '?' */
    char peer[64];
    bool active;      /* a request was begun and not replied to */
    bool has_body;    /* a body follows its head */
    bool complete;    /* all of it was read */
    bool handed_over; /* the service got the body, or heard why there is none */
    bool is_http; /* the peer has said "HTTP/" */
    bool keep_alive;
    bool head_only;
    bool mid_message; /* a part of a request is here, the rest is not */
    bool closing;     /* send what is there, then close */
    bool eof;         /* nothing more will come */
    struct br_progress coming; /* while mid_message */
    uint64_t now_ms;
    struct br_buf *ahead; /* bytes that came before they could be used */
    uint32_t ahead_at;    /* so many of them are used */
    struct br_rope out;
};

static struct server *server_of(const struct br_conn *c)
{
    return (struct server *)(uintptr_t)c;
}

static void put(struct server *srv, const char *text, size_t len)
{
    struct br_buf *buf = br_buf_new(srv->pool, len);
    if (!buf || br_buf_append(&buf, text, len, len) || br_rope_add(&srv->out, buf, buf->data, len))
        srv->closing = true;
    br_buf_unref(buf);
}

static void put_head(struct server *srv, const struct br_response *response, size_t body_len)
{
    struct br_str head = {.max = 32768};
    br_str_printf(&head, "HTTP/1.1 %u %s\r\n", response->status, br_http_reason(response->status));
    if (response->content_type)
        br_str_printf(&head, "Content-Type: %s\r\n", response->content_type);
    for (size_t i = 0; i < response->n_headers; i++)
        br_str_printf(&head, "%s: %s\r\n", response->headers[i].name, response->headers[i].value);
    if (response->status != 204)
        br_str_printf(&head, "Content-Length: %zu\r\n", body_len);
    if (!srv->keep_alive)
        br_str_puts(&head, "Connection: close\r\n");
    br_str_puts(&head, "\r\n");
    if (head.failed)
        srv->closing = true;
    else
        put(srv, head.data, head.len);
    br_str_release(&head);
}

static void put_response(struct server *srv, const struct br_response *response)
{
    size_t len = 0;
    if (response->text)
        len = response->text_len ? response->text_len : strlen(response->text);
    else if (response->body)
        len = response->body->len;
    put_head(srv, response, len);
    /* A body without its head would be taken for another answer. */
    if (len == 0 || srv->head_only || response->status == 204 || srv->closing)
        return;
    if (response->text)
        put(srv, response->text, len);
    else if (br_rope_add(&srv->out, response->body, response->body->data, len))
        srv->closing = true;
}

/* After the peer's last byte, what is under way is answered if it is all here. */
static void settle(struct server *srv)
{
    if (srv->eof && !srv->ahead && !(srv->active && srv->complete))
        srv->closing = true;
}

static void reply(struct br_request *request, const struct br_response *response)
{
    struct server *srv = br_container_of(request, struct server, request);
    /* A body that is still coming would be read as the next request. */
    if ((srv->has_body && !srv->complete) || response->close || (srv->eof && !srv->ahead))
        srv->keep_alive = false;
    put_response(srv, response);
    if (!srv->keep_alive)
        srv->closing = true;
    request->body = br_buf_unref(request->body);
    srv->active = false;
    settle(srv);
    br_conn_wake(&srv->conn);
}

static void begin(struct server *srv)
{
    struct br_request *r = &srv->request;
    const struct br_http1 *p = &srv->parser;
    *r = (struct br_request){.service = srv->service,
                             .user = NULL,
                             .pool = srv->pool,
                             .method = p->method,
                             .query = "",
                             .scheme_host = "",
                             .headers = srv->headers,
                             .content_length = p->has_length ? (int64_t)p->content_length : -1,
                             .reply = reply};
    br_free(srv->path);
    srv->path = br_strdup(p->target);
    r->path = srv->path ? srv->path : "";
    char *query = srv->path ? strchr(srv->path, '?') : NULL;
    if (query) {
        *query = '\0';
        r->query = query + 1;
    }
    for (size_t i = 0; i < p->n_headers && i < BR_REQUEST_HEADERS_MAX; i++) {
        srv->headers[r->n_headers++] = (struct br_header){p->headers[i].name, p->headers[i].value};
        if (strcmp(p->headers[i].name, "host") == 0)
            r->scheme_host = p->headers[i].value;
    }
    memcpy(r->peer, srv->peer, sizeof r->peer);
    srv->active = true;
    srv->conn.n_requests++;
    srv->has_body = p->chunked || p->content_length > 0;
    srv->complete = false;
    srv->handed_over = false;
    srv->keep_alive = p->keep_alive;
    srv->head_only = strcmp(p->method, "HEAD") == 0;
    srv->service->begin(srv->service, r);
    if (!r->replied && r->content_length > 0 && (uint64_t)r->content_length > r->max_body)
        br_request_body_fail(r, BR_BODY_TOO_BIG);
    else if (!r->replied && p->expect_continue)
        put(srv, "HTTP/1.1 100 Continue\r\n\r\n", 25);
}

/* Hands the request over, once: whole, or as soon as it is known to be broken. */
static void hand_over(struct server *srv)
{
    if (srv->request.replied || srv->handed_over)
        return;
    srv->handed_over = true;
    srv->service->body(srv->service, &srv->request);
}

static void body_add(struct server *srv, const uint8_t *data, size_t len)
{
    struct br_request *r = &srv->request;
    br_conn_body_progress(&srv->conn, &srv->coming, len, srv->now_ms);
    if (r->replied)
        return;
    br_request_body_add(r, data, len, r->content_length > 0 ? (size_t)r->content_length : 0);
    if (r->body_error)
        hand_over(srv);
}

static void refuse(struct server *srv)
{
    srv->keep_alive = false;
    srv->head_only = false;
    if (srv->active && !srv->request.replied) {
        srv->service->gone(srv->service, &srv->request);
        srv->request.body = br_buf_unref(srv->request.body);
        srv->active = false;
    }
    srv->closing = true;
    srv->conn.fault = BR_FAULT_PROTOCOL;
    /* A peer of another protocol (a broken HTTP/2 preface, say) would take our words for its own. */
    if (!srv->is_http)
        return;
    put_response(srv, &(struct br_response){.status = srv->parser.error_status,
                                            .content_type = "text/plain; charset=utf-8",
                                            .text = srv->parser.error_text});
}

/* True when another message may begin now. */
static bool start_message(struct server *srv, size_t len)
{
    if (len == 0 || srv->out.len >= OUT_MAX)
        return false;
    srv->mid_message = true;
    br_progress_start(&srv->coming, srv->now_ms);
    return true;
}

/* Reads on until the input is used up, answers have to go out first, or the connection ends. */
static void advance(struct server *srv, const uint8_t **data, size_t *len)
{
    const uint8_t *body;
    size_t body_len;
    while (!srv->closing && !(srv->active && srv->complete)) {
        if (!srv->mid_message && !start_message(srv, *len))
            return;
        switch (br_http1_next(&srv->parser, data, len, &body, &body_len)) {
        case BR_HTTP1_HEAD:
            begin(srv);
            br_progress_start(&srv->coming, srv->now_ms);
            if (srv->request.body_error)
                hand_over(srv);
            break;
        case BR_HTTP1_BODY:
            body_add(srv, body, body_len);
            break;
        case BR_HTTP1_DONE:
            srv->mid_message = false;
            srv->complete = true;
            hand_over(srv);
            break;
        case BR_HTTP1_ERROR:
            refuse(srv);
            return;
        case BR_HTTP1_MORE:
        default:
            return;
        }
    }
}

static bool keep_ahead(struct server *srv, const uint8_t *data, size_t len)
{
    srv->ahead = br_buf_new(srv->pool, len);
    srv->ahead_at = 0;
    if (!srv->ahead || br_buf_append(&srv->ahead, data, len, len))
        return false;
    srv->conn.paused = true;
    return true;
}

static void drop_ahead(struct server *srv)
{
    srv->ahead = br_buf_unref(srv->ahead);
    srv->conn.paused = false;
}

static int input(struct br_conn *c, const uint8_t *data, size_t len, uint64_t now_ms)
{
    struct server *srv = server_of(c);
    srv->now_ms = now_ms;
    srv->is_http = srv->is_http || memmem(data, len, "HTTP/", 5);
    if (srv->ahead)
        return br_buf_append(&srv->ahead, data, len, AHEAD_MAX);
    advance(srv, &data, &len);
    if (len > 0 && !srv->closing && !keep_ahead(srv, data, len))
        return BR_ENOMEM;
    return 0;
}

static void on_eof(struct br_conn *c)
{
    struct server *srv = server_of(c);
    srv->eof = true;
    settle(srv);
}

/* What came ahead of its turn, as far as it goes now. */
static void take_ahead(struct server *srv)
{
    if (!srv->ahead || (srv->active && srv->complete) || srv->out.len >= OUT_MAX)
        return;
    const uint8_t *data = srv->ahead->data + srv->ahead_at;
    size_t len = srv->ahead->len - srv->ahead_at;
    advance(srv, &data, &len);
    srv->ahead_at = srv->ahead->len - (uint32_t)len;
    if (len == 0 || srv->closing)
        drop_ahead(srv);
    settle(srv);
}

static int output(struct br_conn *c, struct br_rope *out, size_t max)
{
    struct server *srv = server_of(c);
    (void)max;
    take_ahead(srv);
    int rc = br_rope_cat(out, &srv->out);
    br_rope_release(&srv->out);
    return rc;
}

static bool finished(const struct br_conn *c)
{
    const struct server *srv = server_of(c);
    return srv->closing && srv->out.len == 0;
}

static bool idle(const struct br_conn *c)
{
    return !server_of(c)->active && !server_of(c)->ahead;
}

/* The head has to come as a whole; a body has to go on coming. */
static uint64_t owes_since(struct br_conn *c, uint64_t now_ms, enum br_owed what)
{
    struct server *srv = server_of(c);
    enum br_owed owed = srv->has_body && !srv->complete ? BR_OWES_BODY : BR_OWES_HEAD;
    srv->now_ms = now_ms;
    if (!srv->mid_message || srv->closing || srv->conn.paused || what != owed)
        return UINT64_MAX;
    return srv->coming.since_ms;
}

static size_t held(const struct br_conn *c)
{
    const struct server *srv = server_of(c);
    size_t bytes = srv->ahead ? srv->ahead->cap : 0;
    if (srv->mid_message)
        bytes += br_http1_held(&srv->parser);
    if (srv->mid_message && srv->active && srv->request.body)
        bytes += srv->request.body->cap;
    return bytes;
}

static void shut_down(struct br_conn *c)
{
    struct server *srv = server_of(c);
    srv->keep_alive = false;
    if (!srv->active)
        srv->closing = true;
    br_conn_wake(c);
}

static void server_free(struct br_conn *c)
{
    struct server *srv = server_of(c);
    if (srv->active && !srv->request.replied)
        srv->service->gone(srv->service, &srv->request);
    br_buf_unref(srv->request.body);
    br_buf_unref(srv->ahead);
    br_rope_release(&srv->out);
    br_http1_release(&srv->parser);
    br_free(srv->path);
    br_free(srv);
}

static const struct br_conn_ops server_ops = {
    .input = input,
    .eof = on_eof,
    .output = output,
    .finished = finished,
    .idle = idle,
    .owes_since = owes_since,
    .held = held,
    .shutdown = shut_down,
    .free = server_free,
};

struct br_conn *br_h1_server_new(struct br_handler *service, struct br_pool *pool,
                                 const char *peer)
{
    struct server *srv = br_calloc(1, sizeof *srv);
    if (!srv)
        return NULL;
    if (br_http1_init(&srv->parser, false)) {
        br_free(srv);
        return NULL;
    }
    srv->conn.ops = &server_ops;
    srv->service = service;
    srv->pool = pool;
    (void)snprintf(srv->peer, sizeof srv->peer, "%s", peer);
    return &srv->conn;
}
