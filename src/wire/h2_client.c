/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/2, client side, on nghttp2: gRPC unary calls and HTTP's requests, many on one connection. Request
 * bodies leave as slices of the payload's own buffers. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "wire/conn.h"
#include "wire/grpc.h"
#include "wire/h2.h"
#include "wire/request.h"

#define RESPONSE_MAX (4u << 20)

/* What the connection keeps of an exchange under way. */
struct call {
    struct br_exchange *x; /* NULL once given up */
    struct call *next, *prev;
    uint8_t prefix[BR_GRPC_PREFIX];
    size_t promised, sent; /* bytes of prefix and body: told to nghttp2, and handed out */
    uint32_t slice;        /* where `sent` is in the body */
    size_t slice_at;
    size_t head_sum;
    bool ended;  /* the response is complete */
    size_t n_in; /* response bytes of prefix seen */
    uint8_t prefix_in[BR_GRPC_PREFIX];
};

struct client {
    struct br_conn conn;
    nghttp2_session *session;
    struct br_pool *pool;
    struct br_buf *scratch;
    struct br_rope *pulling;
    size_t pull_max;
    struct call calls; /* ring */
    unsigned n_calls, n_live; /* those under way, and of these not given up */
    bool broken, closing, ping_out;
};

static struct client *client_of(const struct br_conn *c)
{
    return (struct client *)(uintptr_t)c;
}

static void call_free(struct client *cl, struct call *call)
{
    call->prev->next = call->next;
    call->next->prev = call->prev;
    cl->n_calls--;
    br_free(call);
}

/* --- Sending -------------------------------------------------------------------------------- */

static size_t total(const struct call *call)
{
    return call->x ? call->x->body.len + (call->x->grpc ? BR_GRPC_PREFIX : 0) : call->promised;
}

static ssize_t read_body(nghttp2_session *session, int32_t id, uint8_t *buf, size_t len,
                         uint32_t *flags, nghttp2_data_source *source, void *user)
{
    (void)session;
    (void)id;
    (void)buf;
    (void)user;
    struct call *call = source->ptr;
    size_t left = total(call) - call->promised;
    size_t n = left < len ? left : len;
    call->promised += n;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (n == left)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

/* Appends the next `len` bytes of the body, slice by slice. */
static int put_slices(struct client *cl, struct call *call, size_t len)
{
    const struct br_rope *body = &call->x->body;
    while (len > 0) {
        const struct br_slice *s = &body->v[call->slice];
        size_t n = s->len - call->slice_at < len ? s->len - call->slice_at : len;
        if (br_rope_add(cl->pulling, s->buf, s->data + call->slice_at, n))
            return BR_ENOMEM;
        call->slice_at += n;
        if (call->slice_at == s->len) {
            call->slice++;
            call->slice_at = 0;
        }
        len -= n;
    }
    return 0;
}

static int send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
                     size_t len, nghttp2_data_source *source, void *user)
{
    (void)session;
    (void)frame;
    struct client *cl = user;
    struct call *call = source->ptr;
    if (!call->x)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* given up; only this stream ends */
    /* nghttp2 would go on for the whole body; the socket takes about a mebibyte a write. */
    if (cl->pulling->len >= cl->pull_max)
        return NGHTTP2_ERR_WOULDBLOCK;
    if (br_h2_put(cl->pool, &cl->scratch, cl->pulling, head, BR_H2_FRAME_HEADER))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (call->x->grpc && call->sent < BR_GRPC_PREFIX) {
        size_t n = BR_GRPC_PREFIX - call->sent < len ? BR_GRPC_PREFIX - call->sent : len;
        if (br_h2_put(cl->pool, &cl->scratch, cl->pulling, call->prefix + call->sent, n))
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        call->sent += n;
        len -= n;
    }
    call->sent += len;
    return put_slices(cl, call, len) ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/* --- Receiving ------------------------------------------------------------------------------ */

static void take_details(struct br_exchange *x, const char *value, size_t len)
{
    uint8_t decoded[2048];
    if (len / 4 * 3 + 3 > sizeof decoded)
        return;
    long n = br_base64_decode(value, len, decoded);
    if (n > 0 && (size_t)n <= sizeof x->details) {
        memcpy(x->details, decoded, (size_t)n);
        x->details_len = (size_t)n;
    }
}

static long number(const char *value, long otherwise)
{
    long n = 0;
    if (!*value)
        return otherwise;
    for (; *value; value++) {
        if (*value < '0' || *value > '9' || n > 100000000)
            return otherwise;
        n = n * 10 + (*value - '0');
    }
    return n;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    (void)flags;
    (void)user;
    struct call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (!call || !call->x)
        return 0;
    call->head_sum += name_len + value_len + 32;
    if (call->head_sum > BR_REQUEST_HEAD_MAX)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    struct br_exchange *x = call->x;
    const char *n = (const char *)name, *v = (const char *)value; /* nghttp2 terminates both */
    if (strcmp(n, ":status") == 0)
        x->http_status = (unsigned)number(v, 0);
    else if (strcmp(n, "grpc-status") == 0)
        x->grpc_status = (int)number(v, 2);
    else if (strcmp(n, "grpc-message") == 0)
        br_grpc_decode_message(v, value_len, x->grpc_message, sizeof x->grpc_message);
    else if (strcmp(n, "grpc-status-details-bin") == 0)
        take_details(x, v, value_len);
    else if (strcmp(n, "content-type") == 0)
        (void)snprintf(x->response_type, sizeof x->response_type, "%s", v);
    else if (strcmp(n, "retry-after") == 0)
        x->retry_after_s = br_http_retry_after(v);
    return 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                         size_t len, void *user)
{
    (void)flags;
    struct client *cl = user;
    struct call *call = nghttp2_session_get_stream_user_data(session, id);
    (void)nghttp2_session_consume(session, id, len);
    if (!call || !call->x)
        return 0;
    struct br_exchange *x = call->x;
    while (x->grpc && len > 0 && call->n_in < BR_GRPC_PREFIX) {
        call->prefix_in[call->n_in++] = *data++;
        len--;
        x->response_compressed = call->prefix_in[0] & 1;
    }
    if (len == 0)
        return 0;
    size_t max = x->max_response ? x->max_response : RESPONSE_MAX;
    if (!x->response)
        x->response = br_buf_new(cl->pool, len);
    int rc = x->response ? br_buf_append(&x->response, data, len, max) : BR_ENOMEM;
    if (rc) {
        x->error = rc;
        (void)snprintf(x->error_text, sizeof x->error_text, "the response is %s",
                       rc == BR_EFULL ? "too large" : "too much for the memory there is");
        (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    }
    return 0;
}

static void finish(struct br_exchange *x)
{
    x->conn->n_answered += !x->error;
    x->conn = NULL;
    x->impl = NULL;
    struct br_buf *response = x->response;
    x->on_done(x);
    br_buf_unref(response);
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error_code, void *user)
{
    struct client *cl = user;
    struct call *call = nghttp2_session_get_stream_user_data(session, id);
    if (!call)
        return 0;
    nghttp2_session_set_stream_user_data(session, id, NULL);
    struct br_exchange *x = call->x;
    bool ended = call->ended;
    call_free(cl, call);
    if (!x)
        return 0;
    cl->n_live--;
    bool answered =
        x->http_status && (x->grpc ? x->grpc_status >= 0 || x->http_status != 200 : ended);
    if (!x->error && !answered) {
        x->error = BR_EPROTO;
        (void)snprintf(x->error_text, sizeof x->error_text, "the peer reset the stream: %s",
                       nghttp2_http2_strerror(error_code));
    }
    finish(x);
    return 0;
}

/* The answer is complete. While our body is not, nobody will read the rest (RFC 9113 section 8.1). */
static void on_end(nghttp2_session *session, int32_t id)
{
    struct call *call = nghttp2_session_get_stream_user_data(session, id);
    if (call)
        call->ended = true;
    if (call && call->x && call->sent < total(call))
        (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR);
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct client *cl = user;
    if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        on_end(session, frame->hd.stream_id);
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        cl->closing = cl->conn.leaving = true;
        cl->conn.calm = frame->goaway.error_code == NGHTTP2_ENHANCE_YOUR_CALM;
    }
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK))
        cl->ping_out = false;
    return 0;
}

/* --- The connection ------------------------------------------------------------------------- */

static int input(struct br_conn *c, const uint8_t *data, size_t len, uint64_t now_ms)
{
    (void)now_ms;
    ssize_t n = nghttp2_session_mem_recv(client_of(c)->session, data, len);
    return n < 0 ? BR_EPROTO : 0;
}

static void on_eof(struct br_conn *c)
{
    client_of(c)->broken = true;
}

static int output(struct br_conn *c, struct br_rope *out, size_t max)
{
    struct client *cl = client_of(c);
    cl->pulling = out;
    cl->pull_max = max;
    int rc = br_h2_pull(cl->session, cl->pool, &cl->scratch, out, max);
    cl->pulling = NULL;
    return rc;
}

static bool finished(const struct br_conn *c)
{
    const struct client *cl = client_of(c);
    return cl->broken || (!nghttp2_session_want_read(cl->session) &&
                          !nghttp2_session_want_write(cl->session));
}

static bool idle(const struct br_conn *c)
{
    return client_of(c)->n_live == 0;
}

static void shut_down(struct br_conn *c)
{
    client_of(c)->closing = true;
    (void)nghttp2_session_terminate_session(client_of(c)->session, NGHTTP2_NO_ERROR);
    br_conn_wake(c);
}

static void client_free(struct br_conn *c)
{
    struct client *cl = client_of(c);
    cl->broken = true;
    while (cl->n_calls > 0) {
        struct call *call = cl->calls.next;
        struct br_exchange *x = call->x;
        call_free(cl, call);
        if (!x)
            continue;
        cl->n_live--;
        if (!x->error) {
            x->error = BR_ECLOSED;
            (void)snprintf(x->error_text, sizeof x->error_text, "the connection was closed");
        }
        finish(x);
    }
    nghttp2_session_del(cl->session);
    br_buf_unref(cl->scratch);
    br_free(cl);
}

static bool can_send(const struct br_conn *c)
{
    const struct client *cl = client_of(c);
    uint32_t most = nghttp2_session_get_remote_settings(
        cl->session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
    return !cl->broken && !cl->closing && cl->n_calls < most &&
           nghttp2_session_check_request_allowed(cl->session);
}

#define NV(n, v, vlen)                                                                             \
    ((nghttp2_nv){(uint8_t *)(uintptr_t)(n), (uint8_t *)(uintptr_t)(v), strlen(n), (vlen),         \
                  NGHTTP2_NV_FLAG_NONE})
#define NVS(n, v) NV(n, v, strlen(v))
#define REQUEST_HEADERS_MAX 64

/* What HTTP/2 has in its frames instead (RFC 9113 section 8.2.2). */
static bool is_of_http1(const char *name)
{
    static const char *const names[] = {"connection", "keep-alive", "proxy-connection",
                                        "transfer-encoding", "upgrade", "te", "host"};
    for (size_t i = 0; i < BR_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

struct made {
    nghttp2_nv nv[REQUEST_HEADERS_MAX];
    size_t n;
    char timeout[16], length[24];
};

static void make_http_headers(const struct br_exchange *x, struct made *m)
{
    if (x->content_encoding)
        m->nv[m->n++] = NVS("content-encoding", x->content_encoding);
    if (x->method && x->body.len == 0) /* as over HTTP/1.1 */
        return;
    (void)snprintf(m->length, sizeof m->length, "%zu", x->body.len);
    m->nv[m->n++] = NVS("content-length", m->length);
}

static void make_grpc_headers(const struct br_exchange *x, struct made *m)
{
    m->nv[m->n++] = NVS("te", "trailers");
    m->nv[m->n++] = NVS("grpc-accept-encoding", "identity");
    if (x->content_encoding)
        m->nv[m->n++] = NVS("grpc-encoding", x->content_encoding);
    if (x->timeout_ms) {
        br_grpc_timeout(x->timeout_ms, m->timeout);
        m->nv[m->n++] = NVS("grpc-timeout", m->timeout);
    }
}

static void make_headers(const struct br_exchange *x, struct made *m)
{
    m->n = 0;
    m->nv[m->n++] = NVS(":method", x->method ? x->method : "POST");
    m->nv[m->n++] = NVS(":scheme", x->secure ? "https" : "http");
    m->nv[m->n++] = NVS(":path", x->path);
    m->nv[m->n++] = NVS(":authority", x->authority);
    if (x->content_type)
        m->nv[m->n++] = NVS("content-type", x->content_type);
    if (x->grpc)
        make_grpc_headers(x, m);
    else
        make_http_headers(x, m);
    if (x->user_agent)
        m->nv[m->n++] = NVS("user-agent", x->user_agent);
    for (size_t i = 0; i < x->n_headers && m->n < REQUEST_HEADERS_MAX; i++)
        if (x->grpc || !is_of_http1(x->headers[i].name))
            m->nv[m->n++] = NVS(x->headers[i].name, x->headers[i].value);
}

static int client_send(struct br_conn *c, struct br_exchange *x)
{
    struct client *cl = client_of(c);
    struct call *call = br_calloc(1, sizeof *call);
    if (!call)
        return BR_ENOMEM;
    struct made head;
    make_headers(x, &head);
    call->x = x;
    br_grpc_prefix(call->prefix, x->content_encoding != NULL, (uint32_t)x->body.len);
    x->error = 0;
    x->http_status = 0;
    x->grpc_status = -1;
    x->grpc_message[0] = x->response_type[0] = '\0';
    x->response = NULL;
    x->response_compressed = false;
    x->details_len = 0;
    x->retry_after_s = -1;
    nghttp2_data_provider provider = {{.ptr = call}, read_body};
    bool bodiless = x->method && !x->grpc && x->body.len == 0;
    x->stream_id = nghttp2_submit_request(cl->session, NULL, head.nv, head.n,
                                          bodiless ? NULL : &provider, call);
    if (x->stream_id < 0) {
        br_free(call);
        return x->stream_id == NGHTTP2_ERR_NOMEM ? BR_ENOMEM : BR_EPROTO;
    }
    call->prev = cl->calls.prev;
    call->next = &cl->calls;
    cl->calls.prev->next = call;
    cl->calls.prev = call;
    cl->n_calls++;
    cl->n_live++;
    x->conn = c;
    x->impl = call;
    br_conn_wake(c);
    return 0;
}

static void client_cancel(struct br_conn *c, struct br_exchange *x)
{
    struct client *cl = client_of(c);
    struct call *call = x->impl;
    x->response = br_buf_unref(x->response);
    x->conn = NULL;
    x->impl = NULL;
    call->x = NULL;
    cl->n_live--;
    (void)nghttp2_submit_rst_stream(cl->session, NGHTTP2_FLAG_NONE, x->stream_id, NGHTTP2_CANCEL);
    br_conn_wake(c);
}

static bool client_ping(struct br_conn *c)
{
    struct client *cl = client_of(c);
    if (cl->ping_out)
        return false;
    cl->ping_out = nghttp2_submit_ping(cl->session, NGHTTP2_FLAG_NONE, NULL) == 0;
    br_conn_wake(c);
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

static nghttp2_session *make_session(struct client *cl)
{
    nghttp2_session_callbacks *cb;
    if (nghttp2_session_callbacks_new(&cb))
        return NULL;
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    nghttp2_session_callbacks_set_send_data_callback(cb, send_data);
    nghttp2_session *session = br_h2_session(false, cb, cl);
    nghttp2_session_callbacks_del(cb);
    return session;
}

struct br_conn *br_h2_client_new(struct br_pool *pool)
{
    struct client *cl = br_calloc(1, sizeof *cl);
    if (!cl)
        return NULL;
    cl->conn.ops = &client_ops;
    cl->pool = pool;
    cl->calls.next = cl->calls.prev = &cl->calls;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, RESPONSE_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, BR_REQUEST_HEAD_MAX},
    };
    cl->session = make_session(cl);
    if (!cl->session || br_h2_settings(cl->session, settings, 3, 2 * RESPONSE_MAX)) {
        nghttp2_session_del(cl->session);
        br_free(cl);
        return NULL;
    }
    return &cl->conn;
}
