/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the client side of HTTP/2 with nghttp2: gRPC unary calls and HTTP requests,
 * multiplexed on one connection. Request bodies are sent as slices of the payload without
 * copying. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "wire/exchange.h"
#include "wire/grpc.h"
#include "wire/h2.h"
#include "wire/request.h"

/* The state of one exchange that is in progress on an HTTP/2 connection. */
struct call {
    struct br_exchange *exchange; /* the exchange; NULL after h2_client_cancel */
    struct call *next, *prev;
    uint8_t prefix[BR_GRPC_PREFIX];
    /* `promised`: bytes of prefix and body that were announced to nghttp2; `sent`: bytes of
     * prefix and body that were sent */
    size_t promised, sent;
    uint32_t slice; /* index of the slice of the body that contains the next byte to send */
    size_t slice_at;
    size_t head_sum;
    /* the last :status was 1xx: the headers belong to an interim response and are ignored */
    bool interim;
    bool ended;  /* the response is complete */
    size_t n_in; /* number of received bytes of the response's gRPC prefix */
    uint8_t prefix_in[BR_GRPC_PREFIX];
};

struct client {
    struct br_conn conn;
    nghttp2_session *session;
    struct br_pool *pool;
    struct br_buf *scratch;
    struct br_rope *pulling;
    size_t pull_max;
    struct call calls; /* head of the doubly linked ring of all calls */
    /* `n_calls`: number of all calls; `n_live`: number of calls that were not cancelled */
    unsigned n_calls, n_live;
    bool broken, closing, ping_out;
    bool received; /* at least one byte was received from the server */
};

static struct client *h2_client_of(const struct br_conn *conn)
{
    return (struct client *)(uintptr_t)conn;
}

static void h2_client_call_free(struct client *cl, struct call *call)
{
    call->prev->next = call->next;
    call->next->prev = call->prev;
    cl->n_calls--;
    br_free(call);
}

/* --- Sending -------------------------------------------------------------------------------- */

static size_t h2_client_total(const struct call *call)
{
    if (!call->exchange)
        return call->promised;
    return call->exchange->body.len + (call->exchange->grpc ? BR_GRPC_PREFIX : 0);
}

static ssize_t h2_client_read_body(nghttp2_session *session, int32_t id, uint8_t *buf, size_t len,
                                   uint32_t *flags, nghttp2_data_source *source, void *user)
{
    (void)session;
    (void)id;
    (void)buf;
    (void)user;
    struct call *call = source->ptr;
    size_t left = h2_client_total(call) - call->promised;
    size_t n = left < len ? left : len;
    call->promised += n;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (n == left)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

/* Appends the next `len` bytes of the body, slice by slice. */
static int h2_client_put_slices(struct client *cl, struct call *call, size_t len)
{
    const struct br_rope *body = &call->exchange->body;
    while (len > 0) {
        const struct br_slice *slice = &body->slices[call->slice];
        size_t n = slice->len - call->slice_at < len ? slice->len - call->slice_at : len;
        if (br_rope_add(cl->pulling, slice->buf, slice->data + call->slice_at, n))
            return BR_ENOMEM;
        call->slice_at += n;
        if (call->slice_at == slice->len) {
            call->slice++;
            call->slice_at = 0;
        }
        len -= n;
    }
    return 0;
}

static int h2_client_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
                               size_t len, nghttp2_data_source *source, void *user)
{
    (void)session;
    (void)frame;
    struct client *cl = user;
    struct call *call = source->ptr;
    if (!call->exchange)
        /* the exchange was cancelled: this error ends its stream and not the connection */
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    /* Stop at `pull_max` bytes, the size of about one write. nghttp2 would otherwise continue to
     * the end of the body. */
    if (cl->pulling->len >= cl->pull_max)
        return NGHTTP2_ERR_WOULDBLOCK;
    if (br_h2_put(cl->pool, &cl->scratch, cl->pulling, head, BR_H2_FRAME_HEADER))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (call->exchange->grpc && call->sent < BR_GRPC_PREFIX) {
        size_t n = BR_GRPC_PREFIX - call->sent < len ? BR_GRPC_PREFIX - call->sent : len;
        if (br_h2_put(cl->pool, &cl->scratch, cl->pulling, call->prefix + call->sent, n))
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        call->sent += n;
        len -= n;
    }
    call->sent += len;
    return h2_client_put_slices(cl, call, len) ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/* --- Receiving ------------------------------------------------------------------------------ */

/* Decodes grpc-status-details-bin. If memory is short, the status is used without its details. */
static void h2_client_take_details(struct br_exchange *exchange, const char *value, size_t len)
{
    if (len > (BR_EXCHANGE_DETAILS_MAX + 2) / 3 * 4)
        return;
    uint8_t *decoded = br_malloc(len / 4 * 3 + 3);
    long n = decoded ? br_base64_decode(value, len, decoded) : 0;
    if (n <= 0 || n > BR_EXCHANGE_DETAILS_MAX) {
        br_free(decoded);
        return;
    }
    br_free(exchange->details);
    exchange->details = decoded;
    exchange->details_len = (size_t)n;
}

static long h2_client_number(const char *value, long otherwise)
{
    uint64_t n;
    return br_decimal_parse(value, strlen(value), INT32_MAX, &n) ? (long)n : otherwise;
}

/* Stores a :status. nghttp2 guarantees that :status comes first and that no trailers follow a
 * 1xx. */
static void h2_client_take_status(struct call *call, unsigned status)
{
    call->interim = status >= 100 && status < 200;
    if (!call->interim)
        call->exchange->http_status = status;
}

/* Stores one trailer. The gRPC status must be in Trailers or Trailers-Only, which end the stream
 * (PROTOCOL-HTTP2.md). A gRPC status in other headers is ignored, because the stream can still
 * fail. */
static void h2_client_take_trailer(struct br_exchange *exchange, const char *name,
                                   const char *value, size_t len)
{
    if (strcmp(name, "grpc-status") == 0)
        exchange->grpc_status = (int)h2_client_number(value, 2);
    else if (strcmp(name, "grpc-message") == 0)
        br_grpc_decode_message(value, len, exchange->grpc_message, sizeof exchange->grpc_message);
    else if (strcmp(name, "grpc-status-details-bin") == 0)
        h2_client_take_details(exchange, value, len);
}

static int h2_client_on_header(nghttp2_session *session, const nghttp2_frame *frame,
                               const uint8_t *name, size_t name_len, const uint8_t *value,
                               size_t value_len, uint8_t flags, void *user)
{
    (void)flags;
    (void)user;
    struct call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (!call || !call->exchange)
        return 0;
    call->head_sum += name_len + value_len + 32;
    if (call->head_sum > BR_REQUEST_HEAD_MAX)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    struct br_exchange *exchange = call->exchange;
    /* nghttp2 terminates the name and the value */
    const char *n = (const char *)name, *v = (const char *)value;
    if (strcmp(n, ":status") == 0)
        h2_client_take_status(call, (unsigned)h2_client_number(v, 0));
    else if (call->interim)
        return 0;
    else if (br_text_starts(n, "grpc-") && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        h2_client_take_trailer(exchange, n, v, value_len);
    else if (strcmp(n, "content-type") == 0)
        (void)snprintf(exchange->response_type, sizeof exchange->response_type, "%s", v);
    else if (strcmp(n, exchange->grpc ? "grpc-encoding" : "content-encoding") == 0)
        (void)snprintf(exchange->response_encoding, sizeof exchange->response_encoding, "%s", v);
    else if (strcmp(n, "retry-after") == 0)
        exchange->retry_after_s = br_http_retry_after(v);
    else if (strcmp(n, "location") == 0)
        br_exchange_set_location(exchange, v);
    return 0;
}

static int h2_client_on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id,
                                   const uint8_t *data, size_t len, void *user)
{
    (void)flags;
    struct client *cl = user;
    struct call *call = nghttp2_session_get_stream_user_data(session, id);
    (void)nghttp2_session_consume(session, id, len);
    if (!call || !call->exchange)
        return 0;
    struct br_exchange *exchange = call->exchange;
    while (exchange->grpc && len > 0 && call->n_in < BR_GRPC_PREFIX) {
        call->prefix_in[call->n_in++] = *data++;
        len--;
        exchange->response_compressed = call->prefix_in[0] & 1;
    }
    if (len == 0)
        return 0;
    if (br_exchange_append(exchange, cl->pool, data, len))
        (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    return 0;
}

static int h2_client_on_stream_close(nghttp2_session *session, int32_t id, uint32_t error_code,
                                     void *user)
{
    struct client *cl = user;
    struct call *call = nghttp2_session_get_stream_user_data(session, id);
    if (!call)
        return 0;
    nghttp2_session_set_stream_user_data(session, id, NULL);
    struct br_exchange *exchange = call->exchange;
    bool ended = call->ended;
    h2_client_call_free(cl, call);
    if (!exchange)
        return 0;
    cl->n_live--;
    bool answered =
        exchange->http_status &&
        (exchange->grpc ? exchange->grpc_status >= 0 || exchange->http_status != 200 : ended);
    if (!exchange->error && !answered) {
        exchange->error = BR_EPROTO;
        (void)snprintf(exchange->error_text, sizeof exchange->error_text,
                       "the peer reset the stream: %s", nghttp2_http2_strerror(error_code));
    }
    br_exchange_finish(exchange);
    return 0;
}

/* Handles the end of the response. If the request was not sent completely, resets the stream,
 * because the server will not read the rest (RFC 9113 section 8.1). */
static void h2_client_on_end(nghttp2_session *session, int32_t id)
{
    struct call *call = nghttp2_session_get_stream_user_data(session, id);
    if (call)
        call->ended = true;
    if (call && call->exchange && call->sent < h2_client_total(call))
        (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR);
}

static int h2_client_on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct client *cl = user;
    if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        h2_client_on_end(session, frame->hd.stream_id);
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        cl->closing = cl->conn.leaving = true;
        cl->conn.calm = frame->goaway.error_code == NGHTTP2_ENHANCE_YOUR_CALM;
    }
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK))
        cl->ping_out = false;
    return 0;
}

/* --- The connection ------------------------------------------------------------------------- */

static int h2_client_input(struct br_conn *conn, const uint8_t *data, size_t len, uint64_t now_ms)
{
    struct client *cl = h2_client_of(conn);
    (void)now_ms;
    if (!cl->received && len && br_guess(data, len) == BR_GUESS_HTTP1) {
        conn->why = "the server speaks HTTP/1.1, not gRPC; use its gRPC port (OTLP: 4317), or the "
                    "exporter otlphttp";
        return BR_EPROTO;
    }
    cl->received = true;
    ssize_t n = nghttp2_session_mem_recv(cl->session, data, len);
    return n < 0 ? BR_EPROTO : 0;
}

static void h2_client_on_eof(struct br_conn *conn)
{
    h2_client_of(conn)->broken = true;
}

static int h2_client_output(struct br_conn *conn, struct br_rope *out, size_t max)
{
    struct client *cl = h2_client_of(conn);
    cl->pulling = out;
    cl->pull_max = max;
    int rc = br_h2_pull(cl->session, cl->pool, &cl->scratch, out, max);
    cl->pulling = NULL;
    return rc;
}

static bool h2_client_finished(const struct br_conn *conn)
{
    const struct client *cl = h2_client_of(conn);
    return cl->broken ||
           (!nghttp2_session_want_read(cl->session) && !nghttp2_session_want_write(cl->session));
}

static bool h2_client_idle(const struct br_conn *conn)
{
    return h2_client_of(conn)->n_live == 0;
}

static void h2_client_shut_down(struct br_conn *conn)
{
    h2_client_of(conn)->closing = true;
    (void)nghttp2_session_terminate_session(h2_client_of(conn)->session, NGHTTP2_NO_ERROR);
    br_conn_wake(conn);
}

static void h2_client_free(struct br_conn *conn)
{
    struct client *cl = h2_client_of(conn);
    cl->broken = true;
    while (cl->n_calls > 0) {
        struct call *call = cl->calls.next;
        struct br_exchange *exchange = call->exchange;
        h2_client_call_free(cl, call);
        if (!exchange)
            continue;
        cl->n_live--;
        if (!exchange->error)
            br_exchange_fail(exchange, BR_ECLOSED,
                             cl->conn.why ? cl->conn.why : "the connection was closed");
        br_exchange_finish(exchange);
    }
    nghttp2_session_del(cl->session);
    br_buf_unref(cl->scratch);
    br_free(cl);
}

static bool h2_client_can_send(const struct br_conn *conn)
{
    const struct client *cl = h2_client_of(conn);
    uint32_t max_streams =
        nghttp2_session_get_remote_settings(cl->session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
    return !cl->broken && !cl->closing && cl->n_calls < max_streams &&
           nghttp2_session_check_request_allowed(cl->session);
}

#define NV(n, v, vlen)                                                                             \
    ((nghttp2_nv){(uint8_t *)(uintptr_t)(n), (uint8_t *)(uintptr_t)(v), strlen(n), (vlen),         \
                  NGHTTP2_NV_FLAG_NONE})
#define NVS(n, v) NV(n, v, strlen(v))
#define REQUEST_HEADERS_MAX 64

/* Returns true for the HTTP/1.1 headers that HTTP/2 forbids or replaces (RFC 9113 section
 * 8.2.2). */
static bool h2_client_is_of_http1(const char *name)
{
    static const char *const names[] = {
        "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade",
        "te",         "host"};
    for (size_t i = 0; i < BR_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

struct request_head {
    nghttp2_nv nv[REQUEST_HEADERS_MAX];
    size_t count;
    char timeout[16], length[24];
};

static void h2_client_make_http_headers(const struct br_exchange *exchange,
                                        struct request_head *head)
{
    if (exchange->content_encoding)
        head->nv[head->count++] = NVS("content-encoding", exchange->content_encoding);
    /* As over HTTP/1.1, a request without a body has no Content-Length (RFC 9110 section 8.6). */
    if (exchange->method && exchange->body.len == 0)
        return;
    (void)snprintf(head->length, sizeof head->length, "%zu", exchange->body.len);
    head->nv[head->count++] = NVS("content-length", head->length);
}

static void h2_client_make_grpc_headers(const struct br_exchange *exchange,
                                        struct request_head *head)
{
    head->nv[head->count++] = NVS("te", "trailers");
    head->nv[head->count++] = NVS("grpc-accept-encoding", "identity");
    if (exchange->content_encoding)
        head->nv[head->count++] = NVS("grpc-encoding", exchange->content_encoding);
    if (exchange->timeout_ms) {
        br_grpc_timeout(exchange->timeout_ms, head->timeout);
        head->nv[head->count++] = NVS("grpc-timeout", head->timeout);
    }
}

static void h2_client_make_headers(const struct br_exchange *exchange, struct request_head *head)
{
    head->count = 0;
    head->nv[head->count++] = NVS(":method", exchange->method ? exchange->method : "POST");
    head->nv[head->count++] = NVS(":scheme", exchange->secure ? "https" : "http");
    head->nv[head->count++] = NVS(":path", exchange->path);
    const char *authority = br_exchange_header(exchange, "host", exchange->authority);
    const char *type = exchange->content_type;
    const char *agent = br_exchange_header(exchange, "user-agent", exchange->user_agent);
    if (!exchange->grpc)
        type = br_exchange_header(exchange, "content-type", type);
    head->nv[head->count++] = NVS(":authority", authority);
    if (type)
        head->nv[head->count++] = NVS("content-type", type);
    if (exchange->grpc)
        h2_client_make_grpc_headers(exchange, head);
    else
        h2_client_make_http_headers(exchange, head);
    if (agent)
        head->nv[head->count++] = NVS("user-agent", agent);
    for (size_t i = 0; i < exchange->n_headers && head->count < REQUEST_HEADERS_MAX; i++)
        if (!br_exchange_skips(exchange, exchange->headers[i].name) &&
            (exchange->grpc || !h2_client_is_of_http1(exchange->headers[i].name)))
            head->nv[head->count++] = NVS(exchange->headers[i].name, exchange->headers[i].value);
}

static int h2_client_send(struct br_conn *conn, struct br_exchange *exchange)
{
    struct client *cl = h2_client_of(conn);
    struct call *call = br_calloc(1, sizeof *call);
    if (!call)
        return BR_ENOMEM;
    struct request_head head;
    h2_client_make_headers(exchange, &head);
    call->exchange = exchange;
    br_grpc_prefix(call->prefix, exchange->content_encoding != NULL, (uint32_t)exchange->body.len);
    br_exchange_begin(exchange);
    nghttp2_data_provider provider = {{.ptr = call}, h2_client_read_body};
    bool bodiless = exchange->method && !exchange->grpc && exchange->body.len == 0;
    exchange->stream_id = nghttp2_submit_request(cl->session, NULL, head.nv, head.count,
                                                 bodiless ? NULL : &provider, call);
    if (exchange->stream_id < 0) {
        br_free(call);
        return exchange->stream_id == NGHTTP2_ERR_NOMEM ? BR_ENOMEM : BR_EPROTO;
    }
    call->prev = cl->calls.prev;
    call->next = &cl->calls;
    cl->calls.prev->next = call;
    cl->calls.prev = call;
    cl->n_calls++;
    cl->n_live++;
    exchange->conn = conn;
    exchange->impl = call;
    br_conn_wake(conn);
    return 0;
}

static void h2_client_cancel(struct br_conn *conn, struct br_exchange *exchange)
{
    struct client *cl = h2_client_of(conn);
    struct call *call = exchange->impl;
    br_exchange_drop(exchange);
    exchange->conn = NULL;
    exchange->impl = NULL;
    call->exchange = NULL;
    cl->n_live--;
    (void)nghttp2_submit_rst_stream(cl->session, NGHTTP2_FLAG_NONE, exchange->stream_id,
                                    NGHTTP2_CANCEL);
    br_conn_wake(conn);
}

static bool h2_client_ping(struct br_conn *conn)
{
    struct client *cl = h2_client_of(conn);
    if (cl->ping_out)
        return false;
    cl->ping_out = nghttp2_submit_ping(cl->session, NGHTTP2_FLAG_NONE, NULL) == 0;
    br_conn_wake(conn);
    return true;
}

static const struct br_conn_ops client_ops = {
    .input = h2_client_input,
    .eof = h2_client_on_eof,
    .output = h2_client_output,
    .finished = h2_client_finished,
    .idle = h2_client_idle,
    .shutdown = h2_client_shut_down,
    .free = h2_client_free,
    .can_send = h2_client_can_send,
    .send = h2_client_send,
    .cancel = h2_client_cancel,
    .ping = h2_client_ping,
};

static nghttp2_session *h2_client_make_session(struct client *cl)
{
    nghttp2_session_callbacks *cb;
    if (nghttp2_session_callbacks_new(&cb))
        return NULL;
    nghttp2_session_callbacks_set_on_header_callback(cb, h2_client_on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, h2_client_on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, h2_client_on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, h2_client_on_stream_close);
    nghttp2_session_callbacks_set_send_data_callback(cb, h2_client_send_data);
    nghttp2_session *session = br_h2_session(false, cb, cl->pool, cl);
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
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, BR_EXCHANGE_RESPONSE_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, BR_REQUEST_HEAD_MAX},
    };
    cl->session = h2_client_make_session(cl);
    if (!cl->session || br_h2_settings(cl->session, settings, 3, 2 * BR_EXCHANGE_RESPONSE_MAX)) {
        nghttp2_session_del(cl->session);
        br_free(cl);
        return NULL;
    }
    return &cl->conn;
}
