/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/exchange.h"

#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "wire/http1.h"

struct tunnel {
    struct br_conn conn;
    struct br_pool *pool;
    struct br_http1 parser;
    struct br_rope out;
    struct br_buf *rest;
    bool open, failed;
    char why[96];
};

static struct tunnel *tunnel_of(const struct br_conn *conn)
{
    return (struct tunnel *)(uintptr_t)conn;
}

static int tunnel_fail(struct tunnel *tunnel, const char *why)
{
    tunnel->failed = true;
    tunnel->conn.why = why;
    return BR_EPROTO;
}

/* Handles the head of the proxy's response. A 2xx response to CONNECT has no body, even with a
 * Content-Length. The bytes after the head are from the server, not from the proxy. */
static int tunnel_on_head(struct tunnel *tunnel, const uint8_t *data, size_t len)
{
    unsigned status = tunnel->parser.status;
    if (status >= 200 && status < 300) {
        tunnel->open = true;
        tunnel->rest = len ? br_buf_new(tunnel->pool, len) : NULL;
        return len && (!tunnel->rest || br_buf_append(&tunnel->rest, data, len, len)) ? BR_ENOMEM
                                                                                      : 0;
    }
    const char *hint = "";
    if (status == 407 || status == 401)
        hint = "; set user:password@ in its URL";
    else if (status == 403)
        hint = "; it does not allow this host and port";
    (void)snprintf(tunnel->why, sizeof tunnel->why, "the proxy rejects CONNECT with HTTP %u%s",
                   status, hint);
    return tunnel_fail(tunnel, tunnel->why);
}

static int tunnel_input(struct br_conn *conn, const uint8_t *data, size_t len, uint64_t now_ms)
{
    struct tunnel *tunnel = tunnel_of(conn);
    const uint8_t *body;
    size_t body_len;
    (void)now_ms;
    switch (br_http1_next(&tunnel->parser, &data, &len, &body, &body_len)) {
    case BR_HTTP1_MORE:
        return 0;
    case BR_HTTP1_HEAD:
        return tunnel_on_head(tunnel, data, len);
    default:
        return tunnel_fail(tunnel, "the proxy does not speak HTTP/1.1");
    }
}

static void tunnel_on_eof(struct br_conn *conn)
{
    tunnel_of(conn)->failed = true;
}

static int tunnel_output(struct br_conn *conn, struct br_rope *out, size_t max)
{
    struct tunnel *tunnel = tunnel_of(conn);
    (void)max;
    int rc = br_rope_cat(out, &tunnel->out);
    br_rope_release(&tunnel->out);
    return rc;
}

static bool tunnel_finished(const struct br_conn *conn)
{
    return tunnel_of(conn)->failed;
}

static bool tunnel_idle(const struct br_conn *conn)
{
    (void)conn;
    return false;
}

static void tunnel_shut_down(struct br_conn *conn)
{
    tunnel_of(conn)->failed = true;
}

static void tunnel_free(struct br_conn *conn)
{
    struct tunnel *tunnel = tunnel_of(conn);
    br_rope_release(&tunnel->out);
    br_buf_unref(tunnel->rest);
    br_http1_release(&tunnel->parser);
    br_free(tunnel);
}

static bool tunnel_can_send(const struct br_conn *conn)
{
    (void)conn;
    return false;
}

static const struct br_conn_ops tunnel_ops = {
    .input = tunnel_input,
    .eof = tunnel_on_eof,
    .output = tunnel_output,
    .finished = tunnel_finished,
    .idle = tunnel_idle,
    .shutdown = tunnel_shut_down,
    .free = tunnel_free,
    .can_send = tunnel_can_send,
};

static int tunnel_write_head(struct tunnel *tunnel, const char *authority,
                             const char *authorization)
{
    struct br_str head = {.max = 4096};
    br_str_printf(&head, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", authority, authority);
    if (authorization && authorization[0])
        br_str_printf(&head, "Proxy-Authorization: %s\r\n", authorization);
    br_str_puts(&head, "\r\n");
    struct br_buf *buf = head.failed ? NULL : br_buf_new(tunnel->pool, head.len);
    int rc = buf ? br_buf_append(&buf, head.data, head.len, head.len) : BR_ENOMEM;
    if (!rc)
        rc = br_rope_add(&tunnel->out, buf, buf->data, buf->len);
    br_buf_unref(buf);
    br_str_release(&head);
    return rc;
}

struct br_conn *br_tunnel_new(struct br_pool *pool, const char *authority,
                              const char *authorization)
{
    struct tunnel *tunnel = br_calloc(1, sizeof *tunnel);
    if (!tunnel)
        return NULL;
    tunnel->conn.ops = &tunnel_ops;
    tunnel->pool = pool;
    if (br_http1_init(&tunnel->parser, true) ||
        tunnel_write_head(tunnel, authority, authorization)) {
        tunnel_free(&tunnel->conn);
        return NULL;
    }
    return &tunnel->conn;
}

bool br_tunnel_is_open(const struct br_conn *conn)
{
    return tunnel_of(conn)->open;
}

struct br_buf *br_tunnel_take_rest(struct br_conn *conn)
{
    struct tunnel *tunnel = tunnel_of(conn);
    struct br_buf *rest = tunnel->rest;
    tunnel->rest = NULL;
    return rest;
}
