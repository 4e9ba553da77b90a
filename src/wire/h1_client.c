/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1, client side: one request at a time on a kept-alive connection. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "wire/conn.h"
#include "wire/http1.h"

#define RESPONSE_MAX (4u << 20)

struct client {
    struct br_conn conn;
    struct br_pool *pool;
    struct br_http1 parser;
    struct br_exchange *x;
    struct br_rope out;
    bool answered; /* the response's head came */
    bool broken;
};

static struct client *client_of(const struct br_conn *c)
{
    return (struct client *)(uintptr_t)c;
}

static void finish(struct client *cl)
{
    struct br_exchange *x = cl->x;
    cl->x = NULL;
    cl->conn.n_answered += !x->error;
    x->conn = NULL;
    struct br_buf *response = x->response;
    x->on_done(x);
    br_buf_unref(response);
}

static void fail(struct client *cl, int error, const char *text)
{
    cl->broken = true;
    if (!cl->x)
        return;
    cl->x->error = error;
    (void)snprintf(cl->x->error_text, sizeof cl->x->error_text, "%s", text);
    finish(cl);
}

static void on_head(struct client *cl)
{
    struct br_exchange *x = cl->x;
    const char *type = br_http1_header(&cl->parser, "content-type");
    const char *after = br_http1_header(&cl->parser, "retry-after");
    cl->answered = true;
    x->http_status = cl->parser.status;
    (void)snprintf(x->response_type, sizeof x->response_type, "%s", type ? type : "");
    x->retry_after_s = after ? br_http_retry_after(after) : -1;
    if (!cl->parser.keep_alive)
        cl->broken = true;
}

static int on_body(struct client *cl, const uint8_t *data, size_t len)
{
    struct br_exchange *x = cl->x;
    size_t max = x->max_response ? x->max_response : RESPONSE_MAX;
    if (!x->response)
        x->response = br_buf_new(cl->pool, len);
    return x->response ? br_buf_append(&x->response, data, len, max) : BR_ENOMEM;
}

static int input(struct br_conn *c, const uint8_t *data, size_t len, uint64_t now_ms)
{
    struct client *cl = client_of(c);
    const uint8_t *body;
    size_t body_len;
    int rc;
    (void)now_ms;
    for (;;) {
        if (!cl->x)
            return len ? BR_EPROTO : 0; /* nobody asked */
        switch (br_http1_next(&cl->parser, &data, &len, &body, &body_len)) {
        case BR_HTTP1_HEAD:
            on_head(cl);
            break;
        case BR_HTTP1_BODY:
            rc = on_body(cl, body, body_len);
            if (rc) {
                fail(cl, rc,
                     rc == BR_EFULL ? "the response is too large"
                                    : "the response is too much for the memory there is");
                return rc;
            }
            break;
        case BR_HTTP1_DONE:
            /* An answer before the whole request went out leaves the connection unusable. */
            if (cl->out.len > 0)
                cl->broken = true;
            finish(cl);
            break;
        case BR_HTTP1_ERROR:
            fail(cl, BR_EPROTO, cl->parser.error_text);
            return BR_EPROTO;
        case BR_HTTP1_MORE:
        default:
            return 0;
        }
    }
    return 0;
}

static void on_eof(struct br_conn *c)
{
    struct client *cl = client_of(c);
    cl->broken = true;
    if (cl->x && cl->answered && br_http1_eof(&cl->parser) == BR_HTTP1_DONE)
        finish(cl);
    else
        fail(cl, BR_ECLOSED, "the peer closed the connection");
}

/* Slice by slice, so that what is not out yet can be told when the answer comes first. */
static int output(struct br_conn *c, struct br_rope *out, size_t max)
{
    struct client *cl = client_of(c);
    size_t moved = 0;
    int rc = 0;
    for (uint32_t i = 0; i < cl->out.n && out->len < max && !rc; i++) {
        const struct br_slice *s = &cl->out.v[i];
        size_t n = s->len < max - out->len ? s->len : max - out->len;
        rc = br_rope_add(out, s->buf, s->data, n);
        moved += n;
    }
    br_rope_drop(&cl->out, moved);
    return rc;
}

static bool finished(const struct br_conn *c)
{
    const struct client *cl = client_of(c);
    return cl->broken && !cl->x;
}

static bool idle(const struct br_conn *c)
{
    return !client_of(c)->x;
}

static void shut_down(struct br_conn *c)
{
    client_of(c)->broken = true;
    br_conn_wake(c);
}

static void client_free(struct br_conn *c)
{
    struct client *cl = client_of(c);
    fail(cl, BR_ECLOSED, "the connection was closed");
    br_rope_release(&cl->out);
    br_http1_release(&cl->parser);
    br_free(cl);
}

static bool can_send(const struct br_conn *c)
{
    return !client_of(c)->broken && !client_of(c)->x;
}

static int client_send(struct br_conn *c, struct br_exchange *x)
{
    struct client *cl = client_of(c);
    struct br_str head = {.max = 65536};
    br_str_printf(&head, "%s %s HTTP/1.1\r\nHost: %s\r\n", x->method ? x->method : "POST", x->path,
                  x->authority);
    if (x->content_type)
        br_str_printf(&head, "Content-Type: %s\r\n", x->content_type);
    if (x->content_encoding)
        br_str_printf(&head, "Content-Encoding: %s\r\n", x->content_encoding);
    if (x->user_agent)
        br_str_printf(&head, "User-Agent: %s\r\n", x->user_agent);
    for (size_t i = 0; i < x->n_headers; i++)
        br_str_printf(&head, "%s: %s\r\n", x->headers[i].name, x->headers[i].value);
    if (!x->method || x->body.len > 0) /* RFC 9110 section 8.6: a GET without a body says none */
        br_str_printf(&head, "Content-Length: %zu\r\n", x->body.len);
    br_str_puts(&head, "\r\n");
    struct br_buf *buf = head.failed ? NULL : br_buf_new(cl->pool, head.len);
    int rc = buf ? br_buf_append(&buf, head.data, head.len, head.len) : BR_ENOMEM;
    if (!rc)
        rc = br_rope_add(&cl->out, buf, buf->data, buf->len);
    if (!rc)
        rc = br_rope_cat(&cl->out, &x->body);
    br_buf_unref(buf);
    br_str_release(&head);
    if (rc) {
        br_rope_release(&cl->out);
        return rc;
    }
    x->error = 0;
    x->http_status = 0;
    x->grpc_status = -1;
    x->grpc_message[0] = x->response_type[0] = '\0';
    x->response = NULL;
    x->details_len = 0;
    x->retry_after_s = -1;
    x->conn = c;
    cl->x = x;
    cl->answered = false;
    br_conn_wake(c);
    return 0;
}

static void client_cancel(struct br_conn *c, struct br_exchange *x)
{
    struct client *cl = client_of(c);
    x->response = br_buf_unref(x->response);
    x->conn = NULL;
    cl->x = NULL;
    cl->broken = true;
    br_conn_wake(c);
}

static bool client_ping(struct br_conn *c)
{
    (void)c;
    return true;
}

static const struct br_conn_ops client_ops = {
    .input = input,
    .eof = on_eof,
    .output = output,
    .finished = finished,
    .idle = idle,
    .shutdown = shut_down,
    .free = client_free,
    .can_send = can_send,
    .send = client_send,
    .cancel = client_cancel,
    .ping = client_ping,
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
