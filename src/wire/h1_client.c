/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the client side of HTTP/1.1: one exchange at a time on a keep-alive connection. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "wire/exchange.h"
#include "wire/http1.h"

struct client {
    struct br_conn conn;
    struct br_pool *pool;
    struct br_http1 parser;
    struct br_exchange *exchange;
    struct br_rope out;
    bool answered; /* the head of the response was received */
    bool broken;
};

static struct client *h1_client_of(const struct br_conn *conn)
{
    return (struct client *)(uintptr_t)conn;
}

static void h1_client_finish(struct client *cl)
{
    struct br_exchange *exchange = cl->exchange;
    cl->exchange = NULL;
    br_exchange_finish(exchange);
}

static void h1_client_fail(struct client *cl, int error, const char *text)
{
    cl->broken = true;
    if (!cl->exchange)
        return;
    /* An error status is a usable result even if the body is truncated. */
    if (!cl->answered || cl->exchange->http_status < 400)
        br_exchange_fail(cl->exchange, error, cl->conn.why ? cl->conn.why : text);
    h1_client_finish(cl);
}

static void h1_client_on_head(struct client *cl)
{
    struct br_exchange *exchange = cl->exchange;
    const char *type = br_http1_header(&cl->parser, "content-type");
    const char *encoding = br_http1_header(&cl->parser, "content-encoding");
    const char *after = br_http1_header(&cl->parser, "retry-after");
    cl->answered = true;
    exchange->http_status = cl->parser.status;
    (void)snprintf(exchange->response_type, sizeof exchange->response_type, "%s", type ? type : "");
    (void)snprintf(exchange->response_encoding, sizeof exchange->response_encoding, "%s",
                   encoding ? encoding : "");
    exchange->retry_after_s = after ? br_http_retry_after(after) : -1;
    br_exchange_set_location(exchange, br_http1_header(&cl->parser, "location"));
    if (!cl->parser.keep_alive)
        cl->broken = true;
}

static int h1_client_input(struct br_conn *conn, const uint8_t *data, size_t len, uint64_t now_ms)
{
    struct client *cl = h1_client_of(conn);
    const uint8_t *body;
    size_t body_len;
    int rc;
    (void)now_ms;
    for (;;) {
        if (!cl->exchange)
            return len ? BR_EPROTO : 0; /* input while no exchange is in progress is an error */
        switch (br_http1_next(&cl->parser, &data, &len, &body, &body_len)) {
        case BR_HTTP1_HEAD:
            h1_client_on_head(cl);
            break;
        case BR_HTTP1_BODY:
            rc = br_exchange_append(cl->exchange, cl->pool, body, body_len);
            if (rc) {
                cl->broken = true;
                h1_client_finish(cl);
                return rc;
            }
            break;
        case BR_HTTP1_DONE:
            /* If the response arrived before the whole request was sent, the connection cannot
             * be reused. */
            if (cl->out.len > 0)
                cl->broken = true;
            h1_client_finish(cl);
            break;
        case BR_HTTP1_ERROR:
            h1_client_fail(cl, BR_EPROTO, cl->parser.error_text);
            return BR_EPROTO;
        case BR_HTTP1_MORE:
        default:
            return 0;
        }
    }
    return 0;
}

static void h1_client_on_eof(struct br_conn *conn)
{
    struct client *cl = h1_client_of(conn);
    cl->broken = true;
    if (cl->exchange && cl->answered && br_http1_eof(&cl->parser) == BR_HTTP1_DONE)
        h1_client_finish(cl);
    else
        h1_client_fail(cl, BR_ECLOSED, "the peer closed the connection");
}

/* Moves output to `out` slice by slice. If the response arrives early, `cl->out` then contains
 * exactly the bytes that were not sent. */
static int h1_client_output(struct br_conn *conn, struct br_rope *out, size_t max)
{
    struct client *cl = h1_client_of(conn);
    size_t moved = 0;
    int rc = 0;
    for (uint32_t i = 0; i < cl->out.count && out->len < max && !rc; i++) {
        const struct br_slice *slice = &cl->out.slices[i];
        size_t n = slice->len < max - out->len ? slice->len : max - out->len;
        rc = br_rope_add(out, slice->buf, slice->data, n);
        moved += n;
    }
    br_rope_drop(&cl->out, moved);
    return rc;
}

static bool h1_client_finished(const struct br_conn *conn)
{
    const struct client *cl = h1_client_of(conn);
    return cl->broken && !cl->exchange;
}

static bool h1_client_idle(const struct br_conn *conn)
{
    return !h1_client_of(conn)->exchange;
}

static void h1_client_shut_down(struct br_conn *conn)
{
    h1_client_of(conn)->broken = true;
    br_conn_wake(conn);
}

static void h1_client_free(struct br_conn *conn)
{
    struct client *cl = h1_client_of(conn);
    h1_client_fail(cl, BR_ECLOSED, "the connection was closed");
    br_rope_release(&cl->out);
    br_http1_release(&cl->parser);
    br_free(cl);
}

static bool h1_client_can_send(const struct br_conn *conn)
{
    return !h1_client_of(conn)->broken && !h1_client_of(conn)->exchange;
}

static int h1_client_send(struct br_conn *conn, struct br_exchange *exchange)
{
    struct client *cl = h1_client_of(conn);
    struct br_str head = {.max = 65536};
    const struct br_forward *forward = exchange->forward;
    br_str_printf(&head, "%s %s%s HTTP/1.1\r\nHost: %s\r\n",
                  exchange->method ? exchange->method : "POST", forward ? forward->origin : "",
                  exchange->path, br_exchange_header(exchange, "host", exchange->authority));
    if (forward && forward->authorization && forward->authorization[0])
        br_str_printf(&head, "Proxy-Authorization: %s\r\n", forward->authorization);
    const char *type = br_exchange_header(exchange, "content-type", exchange->content_type);
    const char *agent = br_exchange_header(exchange, "user-agent", exchange->user_agent);
    if (type)
        br_str_printf(&head, "Content-Type: %s\r\n", type);
    if (exchange->content_encoding)
        br_str_printf(&head, "Content-Encoding: %s\r\n", exchange->content_encoding);
    if (agent)
        br_str_printf(&head, "User-Agent: %s\r\n", agent);
    for (size_t i = 0; i < exchange->n_headers; i++)
        if (!br_exchange_skips(exchange, exchange->headers[i].name))
            br_str_printf(&head, "%s: %s\r\n", exchange->headers[i].name,
                          exchange->headers[i].value);
    /* Content-Length is not sent for a GET without a body (RFC 9110 section 8.6). */
    if (!exchange->method || exchange->body.len > 0)
        br_str_printf(&head, "Content-Length: %zu\r\n", exchange->body.len);
    br_str_puts(&head, "\r\n");
    struct br_buf *buf = head.failed ? NULL : br_buf_new(cl->pool, head.len);
    int rc = buf ? br_buf_append(&buf, head.data, head.len, head.len) : BR_ENOMEM;
    if (!rc)
        rc = br_rope_add(&cl->out, buf, buf->data, buf->len);
    if (!rc)
        rc = br_rope_cat(&cl->out, &exchange->body);
    br_buf_unref(buf);
    br_str_release(&head);
    if (rc) {
        br_rope_release(&cl->out);
        return rc;
    }
    br_exchange_begin(exchange);
    exchange->conn = conn;
    cl->exchange = exchange;
    cl->answered = false;
    br_conn_wake(conn);
    return 0;
}

static void h1_client_cancel(struct br_conn *conn, struct br_exchange *exchange)
{
    struct client *cl = h1_client_of(conn);
    br_exchange_drop(exchange);
    exchange->conn = NULL;
    cl->exchange = NULL;
    cl->broken = true;
    br_conn_wake(conn);
}

static bool h1_client_ping(struct br_conn *conn)
{
    (void)conn;
    return true;
}

static const struct br_conn_ops client_ops = {
    .input = h1_client_input,
    .eof = h1_client_on_eof,
    .output = h1_client_output,
    .finished = h1_client_finished,
    .idle = h1_client_idle,
    .shutdown = h1_client_shut_down,
    .free = h1_client_free,
    .can_send = h1_client_can_send,
    .send = h1_client_send,
    .cancel = h1_client_cancel,
    .ping = h1_client_ping,
};

struct br_conn *br_h1_client_new(struct br_pool *pool)
{
    struct client *cl = br_calloc(1, sizeof *cl);
    if (!cl)
        return NULL;
    if (br_http1_init(&cl->parser, true)) {
        br_free(cl);
        return NULL;
    }
    cl->conn.ops = &client_ops;
    cl->pool = pool;
    return &cl->conn;
}
