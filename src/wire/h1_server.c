/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the server side of HTTP/1.1. Requests are handled one at a time. Pipelined requests
 * are buffered until the current request is answered, and the socket is not read meanwhile. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "wire/conn.h"
#include "wire/http1.h"

#define PIPELINED_MAX (1u << 20)
/* bytes of unsent responses above which the server does not begin the next request */
#define OUT_MAX (1u << 10)

struct server {
    struct br_conn conn;
    struct br_handler *service;
    struct br_pool *pool;
    struct br_http1 parser;
    struct br_request request;
    struct br_header headers[BR_REQUEST_HEADERS_MAX];
    char *path; /* copy of the request target, cut at '?' */
    char peer[64];
    bool active;      /* a request has begun and its response is not complete */
    bool has_body;    /* the request has a body */
    bool complete;    /* the whole request was read */
    bool handed_over; /* the handler's `body` has been called for the current request */
    bool is_http;     /* the peer was detected to speak HTTP */
    bool keep_alive;
    bool retired; /* the connection is closed after the next response */
    bool head_only;
    /* a streamed response is sent in chunks; otherwise it ends with the connection */
    bool chunked;
    bool mid_message; /* the first part of a request was received */
    bool closing;     /* the connection is closed after the output is sent */
    bool eof;         /* the client has closed its side of the connection */
    /* progress in receiving the current request; valid if `mid_message` */
    struct br_progress coming;
    uint64_t now_ms;
    /* input of pipelined requests, which is processed after the current response */
    struct br_buf *pipelined;
    uint32_t pipelined_used; /* number of bytes of `pipelined` that were already processed */
    struct br_rope out;
};

static struct server *h1_server_of(const struct br_conn *conn)
{
    return (struct server *)(uintptr_t)conn;
}

static void h1_server_put(struct server *srv, const char *text, size_t len)
{
    struct br_buf *buf = br_buf_new(srv->pool, len);
    if (!buf || br_buf_append(&buf, text, len, len) || br_rope_add(&srv->out, buf, buf->data, len))
        srv->closing = true;
    br_buf_unref(buf);
}

static void h1_server_put_head(struct server *srv, const struct br_response *response,
                               size_t body_len)
{
    struct br_str head = {.max = 32768};
    br_str_printf(&head, "HTTP/1.1 %u %s\r\n", response->status, br_http_reason(response->status));
    if (response->content_type)
        br_str_printf(&head, "Content-Type: %s\r\n", response->content_type);
    for (size_t i = 0; i < response->n_headers; i++)
        br_str_printf(&head, "%s: %s\r\n", response->headers[i].name, response->headers[i].value);
    if (response->stream)
        br_str_puts(&head, srv->chunked ? "Transfer-Encoding: chunked\r\n" : "");
    else if (response->status != 204)
        br_str_printf(&head, "Content-Length: %zu\r\n", body_len);
    if (!srv->keep_alive)
        br_str_puts(&head, "Connection: close\r\n");
    br_str_puts(&head, "\r\n");
    if (head.failed)
        srv->closing = true;
    else
        h1_server_put(srv, head.data, head.len);
    br_str_release(&head);
}

static void h1_server_put_response(struct server *srv, const struct br_response *response)
{
    size_t len = 0;
    if (response->text)
        len = response->text_len ? response->text_len : strlen(response->text);
    else if (response->body)
        len = response->body->len;
    h1_server_put_head(srv, response, len);
    /* If the head could not be appended, the body is not sent: without the head, the client
     * would read the body as another response. */
    if (len == 0 || srv->head_only || response->status == 204 || srv->closing)
        return;
    if (response->text)
        h1_server_put(srv, response->text, len);
    else if (br_rope_add(&srv->out, response->body, response->body->data, len))
        srv->closing = true;
}

/* If the client has closed its side, closes the connection unless a complete request or
 * pipelined input remains. */
static void h1_server_close_if_done(struct server *srv)
{
    if (srv->eof && !srv->pipelined && !(srv->active && srv->complete))
        srv->closing = true;
}

/* Called when the whole response is in srv->out. */
static void h1_server_end_reply(struct server *srv)
{
    if (!srv->keep_alive)
        srv->closing = true;
    srv->active = false;
    h1_server_close_if_done(srv);
    br_conn_wake(&srv->conn);
}

static void h1_server_reply(struct br_request *request, const struct br_response *response)
{
    struct server *srv = br_container_of(request, struct server, request);
    srv->chunked = response->stream && srv->parser.minor > 0;
    /* If the request body was not read completely, the connection cannot be reused: its rest
     * would be parsed as the next request. */
    bool body_pending = srv->has_body && !srv->complete;
    bool ends_with_connection = response->stream && !srv->chunked;
    if (body_pending || ends_with_connection || response->close)
        srv->keep_alive = false;
    if (srv->eof && !srv->pipelined)
        srv->keep_alive = false;
    h1_server_put_response(srv, response);
    request->body = br_buf_unref(request->body);
    if (response->stream)
        br_conn_wake(&srv->conn);
    else
        h1_server_end_reply(srv);
}

/* Writes a piece of a streamed response: a chunk (RFC 9112 section 7.1), or raw bytes for
 * HTTP/1.0. */
static bool h1_server_write(struct br_request *request, const void *data, size_t len, size_t max)
{
    struct server *srv = br_container_of(request, struct server, request);
    char size[24];
    if (srv->closing || len > max || srv->out.len > max - len)
        return false;
    if (srv->head_only)
        return true;
    if (srv->chunked)
        h1_server_put(srv, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", len));
    h1_server_put(srv, data, len);
    if (srv->chunked)
        h1_server_put(srv, "\r\n", 2);
    br_conn_wake(&srv->conn);
    return !srv->closing;
}

static void h1_server_end(struct br_request *request, bool whole)
{
    struct server *srv = br_container_of(request, struct server, request);
    srv->keep_alive = srv->keep_alive && whole;
    if (srv->chunked && !srv->head_only && whole)
        h1_server_put(srv, "0\r\n\r\n", 5);
    h1_server_end_reply(srv);
}

static void h1_server_begin(struct server *srv)
{
    struct br_request *request = &srv->request;
    const struct br_http1 *p = &srv->parser;
    *request =
        (struct br_request){.service = srv->service,
                            .user = NULL,
                            .pool = srv->pool,
                            .conn = &srv->conn,
                            .method = p->method,
                            .query = "",
                            .scheme_host = "",
                            .headers = srv->headers,
                            .content_length = p->has_length ? (int64_t)p->content_length : -1,
                            .reply = h1_server_reply,
                            .write = h1_server_write,
                            .end = h1_server_end};
    br_free(srv->path);
    srv->path = br_strdup(p->target);
    request->path = srv->path ? srv->path : "";
    char *query = srv->path ? strchr(srv->path, '?') : NULL;
    if (query) {
        *query = '\0';
        request->query = query + 1;
    }
    for (size_t i = 0; i < p->n_headers && i < BR_REQUEST_HEADERS_MAX; i++) {
        srv->headers[request->n_headers++] =
            (struct br_header){p->headers[i].name, p->headers[i].value};
        if (strcmp(p->headers[i].name, "host") == 0)
            request->scheme_host = p->headers[i].value;
    }
    memcpy(request->peer, srv->peer, sizeof request->peer);
    srv->active = true;
    srv->conn.n_requests++;
    srv->has_body = p->chunked || p->content_length > 0;
    srv->complete = false;
    srv->handed_over = false;
    srv->keep_alive = p->keep_alive && !srv->retired;
    srv->head_only = strcmp(p->method, "HEAD") == 0;
    if (!srv->path) {
        static const struct br_header later = {"retry-after", "1"};
        br_request_reply(request, &(struct br_response){.status = 503,
                                                        .content_type = "text/plain; charset=utf-8",
                                                        .text = "out of memory",
                                                        .headers = &later,
                                                        .n_headers = 1});
        return;
    }
    request->service->begin(request->service, request);
    if (!request->replied && request->content_length > 0 &&
        (uint64_t)request->content_length > request->max_body)
        br_request_body_fail(request, BR_BODY_TOO_BIG);
    else if (!request->replied && p->expect_continue)
        h1_server_put(srv, "HTTP/1.1 100 Continue\r\n\r\n", 25);
}

/* Passes the request to the handler once: when it is complete, or when its body has failed. */
static void h1_server_hand_over(struct server *srv)
{
    if (srv->request.replied || srv->handed_over)
        return;
    srv->handed_over = true;
    srv->request.service->body(srv->request.service, &srv->request);
}

static void h1_server_body_add(struct server *srv, const uint8_t *data, size_t len)
{
    struct br_request *request = &srv->request;
    br_conn_body_progress(&srv->conn, &srv->coming, len, srv->now_ms);
    if (request->replied)
        return;
    br_request_body_add(request, data, len,
                        request->content_length > 0 ? (size_t)request->content_length : 0);
    if (request->body_error)
        h1_server_hand_over(srv);
}

/* If a request is in progress, ends it and calls the handler's `gone`. */
static void h1_server_abandon(struct server *srv)
{
    if (srv->active && br_request_is_open(&srv->request))
        srv->request.service->gone(srv->request.service, &srv->request);
    srv->request.streaming = false;
    srv->request.body = br_buf_unref(srv->request.body);
    srv->active = false;
}

/* Sends an error response to a malformed request. A peer that does not speak HTTP/1.1 would
 * misread the response, so nothing is sent to it. */
static void h1_server_put_refusal(struct server *srv)
{
    const char *long_target = srv->parser.error_status == 414 ? srv->service->long_target : NULL;
    if (!srv->is_http)
        return;
    h1_server_put_response(
        srv, &(struct br_response){.status = long_target ? 400 : srv->parser.error_status,
                                   .content_type = "text/plain; charset=utf-8",
                                   .text = long_target ? long_target : srv->parser.error_text});
}

static void h1_server_refuse(struct server *srv)
{
    bool mid_reply = srv->active && srv->request.streaming;
    srv->keep_alive = false;
    srv->head_only = false;
    if (srv->active && br_request_is_open(&srv->request))
        h1_server_abandon(srv);
    srv->conn.fault = BR_FAULT_PROTOCOL;
    if (!mid_reply)
        h1_server_put_refusal(srv);
    srv->closing = true;
}

/* Starts to receive the next request. Returns false if the input is empty (`len` is 0), or if at
 * least OUT_MAX bytes of responses are unsent. */
static bool h1_server_start_message(struct server *srv, size_t len)
{
    if (len == 0 || srv->out.len >= OUT_MAX)
        return false;
    srv->mid_message = true;
    br_progress_start(&srv->coming, srv->now_ms);
    return true;
}

/* Processes input until all input is used, until responses must be sent before more input can be
 * processed, or until the connection ends. */
static void h1_server_advance(struct server *srv, const uint8_t **data, size_t *len)
{
    const uint8_t *body;
    size_t body_len;
    while (!srv->closing && !(srv->active && srv->complete)) {
        if (!srv->mid_message && !h1_server_start_message(srv, *len))
            return;
        switch (br_http1_next(&srv->parser, data, len, &body, &body_len)) {
        case BR_HTTP1_HEAD:
            h1_server_begin(srv);
            br_progress_start(&srv->coming, srv->now_ms);
            if (srv->request.body_error)
                h1_server_hand_over(srv);
            break;
        case BR_HTTP1_BODY:
            h1_server_body_add(srv, body, body_len);
            break;
        case BR_HTTP1_DONE:
            srv->mid_message = false;
            srv->complete = true;
            h1_server_hand_over(srv);
            break;
        case BR_HTTP1_ERROR:
            h1_server_refuse(srv);
            return;
        case BR_HTTP1_MORE:
        default:
            return;
        }
    }
}

static bool h1_server_store_pipelined(struct server *srv, const uint8_t *data, size_t len)
{
    srv->pipelined = br_buf_new(srv->pool, len);
    srv->pipelined_used = 0;
    if (!srv->pipelined || br_buf_append(&srv->pipelined, data, len, len))
        return false;
    srv->conn.paused = true;
    return true;
}

static void h1_server_drop_pipelined(struct server *srv)
{
    srv->pipelined = br_buf_unref(srv->pipelined);
    srv->conn.paused = false;
}

/* Returns true if the input contains "HTTP/", or begins with any method and " /". The second
 * test detects a request line that is too long to contain the version. */
static bool h1_server_looks_like_http(const struct server *srv, const uint8_t *data, size_t len)
{
    size_t letters = 0;
    while (letters < len && data[letters] >= 'A' && data[letters] <= 'Z')
        letters++;
    bool begins = !srv->mid_message && letters > 0 && len - letters >= 2;
    return (begins && memcmp(data + letters, " /", 2) == 0) || memmem(data, len, "HTTP/", 5);
}

static int h1_server_input(struct br_conn *conn, const uint8_t *data, size_t len, uint64_t now_ms)
{
    struct server *srv = h1_server_of(conn);
    srv->now_ms = now_ms;
    srv->is_http = srv->is_http || h1_server_looks_like_http(srv, data, len);
    if (srv->pipelined)
        return br_buf_append(&srv->pipelined, data, len, PIPELINED_MAX);
    h1_server_advance(srv, &data, &len);
    if (len > 0 && !srv->closing && !h1_server_store_pipelined(srv, data, len))
        return BR_ENOMEM;
    return 0;
}

static void h1_server_on_eof(struct br_conn *conn)
{
    struct server *srv = h1_server_of(conn);
    srv->eof = true;
    if (srv->active && (srv->request.streaming || srv->request.leaves_at_eof)) {
        h1_server_abandon(srv);
        srv->closing = true;
    }
    h1_server_close_if_done(srv);
}

/* Processes buffered input of pipelined requests as far as possible. */
static void h1_server_resume_pipelined(struct server *srv)
{
    if (!srv->pipelined || (srv->active && srv->complete) || srv->out.len >= OUT_MAX)
        return;
    const uint8_t *data = srv->pipelined->data + srv->pipelined_used;
    size_t len = srv->pipelined->len - srv->pipelined_used;
    h1_server_advance(srv, &data, &len);
    srv->pipelined_used = srv->pipelined->len - (uint32_t)len;
    if (len == 0 || srv->closing)
        h1_server_drop_pipelined(srv);
    h1_server_close_if_done(srv);
}

static int h1_server_output(struct br_conn *conn, struct br_rope *out, size_t max)
{
    struct server *srv = h1_server_of(conn);
    (void)max;
    h1_server_resume_pipelined(srv);
    int rc = br_rope_cat(out, &srv->out);
    br_rope_release(&srv->out);
    return rc;
}

static bool h1_server_finished(const struct br_conn *conn)
{
    const struct server *srv = h1_server_of(conn);
    return srv->closing && srv->out.len == 0;
}

static bool h1_server_idle(const struct br_conn *conn)
{
    return !h1_server_of(conn)->active && !h1_server_of(conn)->pipelined;
}

/* Implements awaits_since. The timeout of a head begins with its first byte, so the whole head
 * must arrive within the timeout. The timeout of a body restarts when the body makes progress. */
static uint64_t h1_server_awaits_since(struct br_conn *conn, uint64_t now_ms, enum br_awaited what)
{
    struct server *srv = h1_server_of(conn);
    enum br_awaited awaited = srv->has_body && !srv->complete ? BR_AWAITS_BODY : BR_AWAITS_HEAD;
    srv->now_ms = now_ms;
    if (!srv->mid_message || srv->closing || srv->conn.paused || what != awaited)
        return UINT64_MAX;
    return srv->coming.since_ms;
}

static size_t h1_server_held(const struct br_conn *conn)
{
    const struct server *srv = h1_server_of(conn);
    size_t bytes = srv->pipelined ? srv->pipelined->cap : 0;
    if (srv->mid_message)
        bytes += br_http1_held(&srv->parser);
    if (srv->mid_message && srv->active && srv->request.body)
        bytes += srv->request.body->cap;
    return bytes;
}

static void h1_server_shut_down(struct br_conn *conn)
{
    struct server *srv = h1_server_of(conn);
    srv->keep_alive = false;
    if (!srv->active)
        srv->closing = true;
    br_conn_wake(conn);
}

static void h1_server_retire(struct br_conn *conn)
{
    struct server *srv = h1_server_of(conn);
    srv->keep_alive = false;
    srv->retired = true;
}

static void h1_server_free(struct br_conn *conn)
{
    struct server *srv = h1_server_of(conn);
    h1_server_abandon(srv);
    br_buf_unref(srv->pipelined);
    br_rope_release(&srv->out);
    br_http1_release(&srv->parser);
    br_free(srv->path);
    br_free(srv);
}

static const struct br_conn_ops server_ops = {
    .input = h1_server_input,
    .eof = h1_server_on_eof,
    .output = h1_server_output,
    .finished = h1_server_finished,
    .idle = h1_server_idle,
    .awaits_since = h1_server_awaits_since,
    .held = h1_server_held,
    .shutdown = h1_server_shut_down,
    .retire = h1_server_retire,
    .free = h1_server_free,
};

struct br_conn *br_h1_server_new(struct br_handler *service, struct br_pool *pool, const char *peer)
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
