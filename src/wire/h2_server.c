/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implements the server side of HTTP/2 (RFC 9113) with nghttp2. This file adds the following to
 * nghttp2:
 * - Bodies are received directly into a buffer of the message's size.
 * - A token bucket counts frames that cost the server more than the client: resets that we have to
 * send, empty DATA, PRIORITY, PING, SETTINGS, WINDOW_UPDATE and unknown frames. If a connection has
 * no token left, it is closed with ENHANCE_YOUR_CALM (CVE-2025-8671, CVE-2019-9512 to -9518).
 * - The size of decoded header lists is limited (HPACK bombs).
 * - The ids of streams that the client skipped stay closed (section 5.1.1).
 *
 * nghttp2 has no callbacks for frames of unknown types or of closed streams. The headers of frames
 * of unknown types or of closed streams are therefore parsed from the input.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/decimal.h"
#include "base/err.h"
#include "base/list.h"
#include "base/mem.h"
#include "wire/conn.h"
#include "wire/grpc.h"
#include "wire/h2.h"
#include "wire/request.h"

#define GLITCH_BURST 200
#define GLITCH_PER_S 50
#define SKIPPED_MAX 64
#define ENDS_KEPT 16
/* number of further bytes of a request body after which an early response is sent although the
 * request has not ended */
#define EARLY_MAX 65536u
#define LATE_DATA_MIN 1024
/* maximum size of all unanswered request heads of a connection, in bytes */
#define HEADS_MAX (768u << 10)
#define HEAD_MIN 512
#define FIELDS_MIN 16
/* bytes of unsent responses of a connection above which new streams are refused */
#define REPLIES_MAX (192u << 10)
/* bytes that each unsent response adds to `replies`, in addition to its body */
#define REPLY_COST 1024
/* number of streams that a connection may have while the process is above its memory limit */
#define OVER_STREAMS 1
/* number of PINGs, sent too soon after the previous one, that a client may send between two
 * responses */
#define PING_STRIKES 2
/* minimum interval of a client's PINGs, in milliseconds, if no request is in progress */
#define PING_IDLE_MS 7200000u

/* Numbers of WINDOW_UPDATE frames that cost a client no token: initially, for each HEADERS frame
 * that we send, and for each DATA frame that we send. UPDATES_MAX limits the number of
 * WINDOW_UPDATE frames that cost no token. Envoy counts WINDOW_UPDATE frames in the same way. */
#define UPDATES_FIRST 5
#define UPDATES_PER_STREAM 2
#define UPDATES_PER_DATA 10
#define UPDATES_MAX 10000

struct stream {
    struct br_request request; /* the part of the stream's state that the handler uses */
    struct server *server;
    struct br_list link;
    int32_t id;
    bool begun; /* the handler's `begin` was called */
    bool ended; /* the client sent END_STREAM */
    /* the request was handed over or refused, so further body bytes are discarded */
    bool discard;
    bool refused;       /* the stream is being reset, so the handler's `begin` must not be called */
    bool waits_for_end; /* an early response waits for END_STREAM from the client */
    size_t thrown_away;
    /* progress of the client in sending the request, then in reading the response */
    struct br_progress progress;
    size_t held; /* number of bytes of server->held that belong to the stream */
    /* names and values of the request headers, each terminated; freed with the reply */
    char *head;
    size_t head_len, head_sum, reply_bytes;
    uint32_t head_cap, headers_cap;
    struct br_header *headers; /* the request headers; their strings are in `head` */
    uint8_t prefix[BR_GRPC_PREFIX];
    unsigned n_prefix;
    uint32_t message_len;
    struct br_buf *out;                 /* body of the response */
    uint8_t out_prefix[BR_GRPC_PREFIX]; /* gRPC prefix, sent before `out` */
    unsigned n_out_prefix;
    size_t out_at;         /* bytes of `out_prefix` and `out` that were sent */
    struct br_rope pieces; /* unsent body of a streamed response; used instead of `out` */
    /* the streamed body is complete or broken: further pieces will not be added */
    bool pieces_end;
    /* the streamed body ended before it was complete, so the stream must be reset */
    bool pieces_broken;
    bool waits_for_piece;
    /* the grpc-message, followed by the status details, which begin at `details_at` */
    struct br_str trailers;
    size_t details_at;
    unsigned grpc_status;
};

struct range {
    int32_t first, last;
};

/* A stream that the client has ended or reset. */
struct end {
    int32_t id;
    bool reset;
};

struct server {
    struct br_conn conn;
    nghttp2_session *session;
    struct br_handler *service;
    struct br_pool *pool;
    struct br_buf *scratch;
    struct br_rope *pulling; /* rope to which h2_server_send_data appends while br_h2_pull runs */
    struct br_list streams;
    unsigned n_streams;
    size_t held;    /* bytes of memory that incomplete requests occupy */
    size_t heads;   /* bytes of all unanswered request heads of the connection */
    size_t replies; /* bytes of unsent responses of the connection */
    char peer[64];
    uint64_t now_ms;
    double tokens;
    uint64_t tokens_at_ms;
    unsigned updates; /* number of further WINDOW_UPDATE frames that cost no token */
    size_t skip;      /* number of input bytes before the next frame header */
    uint8_t head[BR_H2_FRAME_HEADER];
    unsigned n_head;
    struct br_progress frame; /* progress in receiving an incomplete frame */
    uint64_t ping_min_ms, pinged_ms;
    unsigned ping_strikes;
    /* `ping_waits`: the client has not answered our PING */
    bool ping_without_stream, pinged, ping_waits;
    bool replied_since_ping;
    int32_t last_stream;
    struct range skipped[SKIPPED_MAX];
    unsigned n_skipped;
    /* ring of the last ENDS_KEPT streams that the client ended or reset */
    struct end ends[ENDS_KEPT];
    unsigned n_ends;
    bool broken, data_since_ping;
};

static size_t h2_server_head_bytes(const struct stream *stream)
{
    return stream->head_cap + stream->headers_cap * sizeof *stream->headers;
}

/* Updates the memory that `held` counts for a request. A request that is not `unfinished` counts
 * 0. */
static void h2_server_count_held(struct stream *stream, bool unfinished)
{
    const struct br_buf *body = stream->request.body;
    size_t now = unfinished ? h2_server_head_bytes(stream) : 0;
    if (unfinished && body)
        now += body->cap;
    stream->server->held += now - stream->held;
    stream->held = now;
}

static void h2_server_head_free(struct stream *stream)
{
    struct br_request *request = &stream->request;
    struct br_pool *pool = stream->server->pool;
    stream->server->heads -= h2_server_head_bytes(stream);
    br_block_free(pool, BR_HOLDER_CONNECTIONS, stream->head);
    br_block_free(pool, BR_HOLDER_CONNECTIONS, stream->headers);
    stream->head = NULL;
    stream->headers = NULL;
    stream->head_cap = stream->headers_cap = 0;
    request->n_headers = 0;
    request->method = request->path = request->query = request->scheme_host = "";
}

static void h2_server_stream_free(struct stream *stream)
{
    h2_server_count_held(stream, false);
    h2_server_head_free(stream);
    stream->server->replies -= stream->reply_bytes;
    br_list_remove(&stream->link);
    stream->server->n_streams--;
    br_buf_unref(stream->request.body);
    br_buf_unref(stream->out);
    br_rope_release(&stream->pieces);
    br_str_release(&stream->trailers);
    br_block_free(stream->server->pool, BR_HOLDER_CONNECTIONS, stream);
}

static void h2_server_calm_down(struct server *srv)
{
    if (srv->broken)
        return;
    srv->broken = true;
    srv->conn.fault = BR_FAULT_FLOOD;
    (void)nghttp2_session_terminate_session(srv->session, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* Takes a token for a frame that costs us more than the client. If no token is left, shuts the
 * connection down and returns false. */
static bool h2_server_take_token(struct server *srv)
{
    srv->tokens += (double)(srv->now_ms - srv->tokens_at_ms) * GLITCH_PER_S / 1000.0;
    if (srv->tokens > GLITCH_BURST)
        srv->tokens = GLITCH_BURST;
    srv->tokens_at_ms = srv->now_ms;
    srv->tokens -= 1;
    if (srv->tokens >= 0)
        return true;
    h2_server_calm_down(srv);
    return false;
}

/* Returns true if the server accepts another stream on a connection that has `others` streams.
 * Above the memory limit, a connection may still have OVER_STREAMS streams: a retryable response
 * makes well-behaved clients back off. A client that does not read the response is not sent
 * another response. */
static bool h2_server_accepts(const struct server *srv, unsigned others)
{
    return others < OVER_STREAMS || !br_pool_is_over(srv->pool);
}

/* --- Headers -------------------------------------------------------------------------------- */

/* Refuses a new stream. The client may resend its request, because no part of the request was
 * processed (RFC 9113 section 8.7). */
static int h2_server_refuse_new(nghttp2_session *session, int32_t id)
{
    return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM)
               ? NGHTTP2_ERR_CALLBACK_FAILURE
               : 0;
}

static int h2_server_on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame,
                                      void *user)
{
    struct server *srv = user;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    if (!h2_server_accepts(srv, srv->n_streams))
        return h2_server_refuse_new(session, frame->hd.stream_id);
    struct stream *stream = br_block_new(srv->pool, BR_HOLDER_CONNECTIONS, sizeof *stream);
    if (!stream)
        return h2_server_refuse_new(session, frame->hd.stream_id);
    *stream = (struct stream){.server = srv};
    stream->id = frame->hd.stream_id;
    br_progress_start(&stream->progress, srv->now_ms);
    br_list_append(&srv->streams, &stream->link);
    srv->n_streams++;
    nghttp2_session_set_stream_user_data(session, stream->id, stream);
    return 0;
}

/* Resets a stream for which the handler's `begin` was not called. If the head of the request is
 * incomplete, the caller also returns an error to nghttp2, which would otherwise process the rest
 * of the head. */
static void h2_server_refuse(struct stream *stream, uint32_t code)
{
    stream->refused = stream->discard = true;
    h2_server_head_free(stream);
    h2_server_count_held(stream, false);
    (void)nghttp2_submit_rst_stream(stream->server->session, NGHTTP2_FLAG_NONE, stream->id, code);
}

/* Enlarges `head` to `len` bytes and `headers` to `n_fields` entries. Returns false if memory is
 * short. */
static bool h2_server_head_grow(struct stream *stream, size_t len, size_t n_fields)
{
    struct br_pool *pool = stream->server->pool;
    size_t before = h2_server_head_bytes(stream);
    if (len > stream->head_cap) {
        size_t cap = len > HEAD_MIN ? len + len / 2 : HEAD_MIN;
        char *head = br_block_resize(pool, BR_HOLDER_CONNECTIONS, stream->head, cap);
        if (!head)
            return false;
        stream->head = head;
        stream->head_cap = (uint32_t)cap;
    }
    if (n_fields > stream->headers_cap) {
        size_t cap = n_fields > FIELDS_MIN ? n_fields + n_fields / 2 : FIELDS_MIN;
        struct br_header *headers =
            br_block_resize(pool, BR_HOLDER_CONNECTIONS, stream->headers, cap * sizeof *headers);
        if (headers) {
            stream->headers = headers;
            stream->headers_cap = (uint32_t)cap;
        }
    }
    stream->server->heads += h2_server_head_bytes(stream) - before;
    h2_server_count_held(stream, true);
    return n_fields <= stream->headers_cap;
}

static void h2_server_head_add(struct stream *stream, const uint8_t *text, size_t len)
{
    if (len)
        memcpy(stream->head + stream->head_len, text, len);
    stream->head[stream->head_len + len] = '\0';
    stream->head_len += len + 1;
}

/* Appends a header to the request. Stores offsets instead of pointers, because `head` may still
 * be reallocated. */
static bool h2_server_field_add(struct stream *stream, const uint8_t *name, size_t name_len,
                                const uint8_t *value, size_t value_len)
{
    struct br_request *request = &stream->request;
    uintptr_t name_at = stream->head_len, value_at = name_at + name_len + 1;
    size_t len = value_at + value_len + 1, n_fields = request->n_headers + 1;
    if ((len > stream->head_cap || n_fields > stream->headers_cap) &&
        !h2_server_head_grow(stream, len, n_fields))
        return false;
    h2_server_head_add(stream, name, name_len);
    h2_server_head_add(stream, value, value_len);
    stream->headers[request->n_headers++] =
        (struct br_header){(const char *)name_at, (const char *)value_at};
    return true;
}

static int h2_server_on_header(nghttp2_session *session, const nghttp2_frame *frame,
                               const uint8_t *name, size_t name_len, const uint8_t *value,
                               size_t value_len, uint8_t flags, void *user)
{
    (void)flags;
    struct server *srv = user;
    struct stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (!stream)
        return 0;
    stream->head_sum += name_len + value_len + 32;
    if (stream->head_sum > BR_REQUEST_HEAD_MAX ||
        stream->request.n_headers >= BR_REQUEST_HEADERS_MAX)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0; /* trailers are ignored */
    bool added = h2_server_field_add(stream, name, name_len, value, value_len);
    if (added && srv->heads <= HEADS_MAX)
        return 0;
    h2_server_refuse(stream, added ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_REFUSED_STREAM);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static void h2_server_reply(struct br_request *request, const struct br_response *response);
static bool h2_server_write(struct br_request *request, const void *data, size_t len, size_t max);
static void h2_server_end(struct br_request *request, bool whole);

/* Converts the stored offsets of all headers to pointers, and removes the pseudo-headers. */
static void h2_server_finish_head(struct stream *stream)
{
    struct br_request *request = &stream->request;
    size_t kept = 0;
    request->method = request->path = request->scheme_host = "";
    request->query = "";
    request->content_length = -1;
    for (size_t i = 0; i < request->n_headers; i++) {
        struct br_header header = {stream->head + (uintptr_t)stream->headers[i].name,
                                   stream->head + (uintptr_t)stream->headers[i].value};
        if (strcmp(header.name, ":method") == 0) {
            request->method = header.value;
        } else if (strcmp(header.name, ":path") == 0) {
            request->path = header.value;
            char *query = stream->head + (header.value - stream->head);
            query += strcspn(query, "?");
            if (*query) {
                *query = '\0';
                request->query = query + 1;
            }
        } else if (strcmp(header.name, ":authority") == 0) {
            request->scheme_host = header.value;
        } else if (header.name[0] != ':') {
            if (strcmp(header.name, "content-length") == 0) {
                uint64_t n = 0; /* nghttp2 rejects a Content-Length that is not a number */
                (void)br_decimal_parse(header.value, strlen(header.value), INT64_MAX, &n);
                request->content_length = (int64_t)n;
            }
            stream->headers[kept++] = header;
        }
    }
    request->n_headers = kept;
    request->headers = stream->headers;
}

static void h2_server_begin(struct stream *stream)
{
    struct server *srv = stream->server;
    struct br_request *request = &stream->request;
    if (stream->refused)
        return;
    /* The client may retry a refused request after it has read pending responses. */
    if (srv->replies > REPLIES_MAX || !h2_server_accepts(srv, srv->n_streams - 1)) {
        h2_server_refuse(stream, NGHTTP2_REFUSED_STREAM);
        return;
    }
    h2_server_finish_head(stream);
    request->service = srv->service;
    request->pool = srv->pool;
    request->conn = &srv->conn;
    request->http2 = true;
    request->reply = h2_server_reply;
    request->write = h2_server_write;
    request->end = h2_server_end;
    memcpy(request->peer, srv->peer, sizeof request->peer);
    stream->begun = true;
    srv->conn.n_requests++;
    request->service->begin(request->service, request);
}

/* --- Bodies --------------------------------------------------------------------------------- */

/* Passes the request to the handler once: when it is complete, or when its body has failed. */
static void h2_server_body_done(struct stream *stream)
{
    struct br_request *request = &stream->request;
    if (request->replied || stream->discard)
        return;
    stream->discard = true;
    h2_server_count_held(stream, false);
    request->service->body(request->service, request);
}

static void h2_server_grpc_add(struct stream *stream, const uint8_t *data, size_t len)
{
    struct br_request *request = &stream->request;
    while (len > 0 && stream->n_prefix < BR_GRPC_PREFIX) {
        stream->prefix[stream->n_prefix++] = *data++;
        len--;
        if (stream->n_prefix < BR_GRPC_PREFIX)
            continue;
        stream->message_len = (uint32_t)stream->prefix[1] << 24 |
                              (uint32_t)stream->prefix[2] << 16 | (uint32_t)stream->prefix[3] << 8 |
                              stream->prefix[4];
        request->grpc_compressed = stream->prefix[0] == 1;
        if (stream->prefix[0] > 1)
            br_request_body_fail(request, BR_BODY_MALFORMED);
        else if (stream->message_len > request->max_body)
            br_request_body_fail(request, BR_BODY_TOO_BIG);
    }
    if (len == 0 || request->body_error)
        return;
    if (len > stream->message_len - (request->body ? request->body->len : 0))
        br_request_body_fail(request, BR_BODY_MALFORMED);
    else
        br_request_body_add(request, data, len, stream->message_len);
}

/* Appends bytes to the body of an HTTP request. A Content-Length above the limit fails the body
 * at once. */
static void h2_server_http_add(struct stream *stream, const uint8_t *data, size_t len)
{
    struct br_request *request = &stream->request;
    size_t expected = request->content_length > 0 ? (size_t)request->content_length : 0;
    if (expected > request->max_body)
        br_request_body_fail(request, BR_BODY_TOO_BIG);
    else
        br_request_body_add(request, data, len, expected);
}

/* Sends an early response that was waiting for the end of the request. */
static void h2_server_resume(struct stream *stream)
{
    if (!stream->waits_for_end)
        return;
    stream->waits_for_end = false;
    (void)nghttp2_session_resume_data(stream->server->session, stream->id);
}

static int h2_server_on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id,
                                   const uint8_t *data, size_t len, void *user)
{
    (void)flags;
    struct server *srv = user;
    struct stream *stream = nghttp2_session_get_stream_user_data(session, id);
    /* The receive window is enlarged again at once, because backpressure is applied by not
     * reading the socket. */
    (void)nghttp2_session_consume(session, id, len);
    if (!stream)
        return 0;
    br_conn_body_progress(&srv->conn, &stream->progress, len, srv->now_ms);
    if (stream->request.replied) {
        stream->thrown_away += len;
        if (stream->thrown_away >= EARLY_MAX)
            h2_server_resume(stream);
    }
    if (stream->discard || stream->request.replied)
        return 0;
    if (stream->request.grpc)
        h2_server_grpc_add(stream, data, len);
    else
        h2_server_http_add(stream, data, len);
    h2_server_count_held(stream, true);
    if (stream->request.body_error)
        h2_server_body_done(stream);
    return 0;
}

static void h2_server_end_of_request(struct stream *stream)
{
    struct br_request *request = &stream->request;
    stream->ended = true;
    if (stream->refused)
        return;
    h2_server_resume(stream);
    if (request->grpc && (stream->n_prefix < BR_GRPC_PREFIX ||
                          (request->body ? request->body->len : 0) < stream->message_len))
        br_request_body_fail(request, BR_BODY_MALFORMED);
    h2_server_body_done(stream);
}

/* --- Frames --------------------------------------------------------------------------------- */

/* Enforces the minimum interval of a client's PINGs (gRPC A8) in the same way as grpc-go. */
static void h2_server_check_ping_policy(struct server *srv)
{
    bool busy = srv->n_streams > 0 || srv->ping_without_stream;
    uint64_t apart = busy ? srv->ping_min_ms : PING_IDLE_MS;
    if (srv->replied_since_ping)
        srv->ping_strikes = 0;
    else if (srv->pinged && srv->now_ms - srv->pinged_ms < apart)
        srv->ping_strikes++;
    srv->replied_since_ping = false;
    srv->pinged = true;
    srv->pinged_ms = srv->now_ms;
    if (srv->ping_strikes > PING_STRIKES)
        h2_server_calm_down(srv);
}

static void h2_server_on_ping(struct server *srv, bool ack)
{
    if (ack && srv->ping_waits) {
        srv->ping_waits = false;
        return;
    }
    if (!ack && srv->ping_min_ms)
        h2_server_check_ping_policy(srv);
    /* A PING after DATA costs no token, because grpc-go uses PINGs after DATA to measure the
     * bandwidth. */
    if (!ack && srv->data_since_ping)
        srv->data_since_ping = false;
    else
        (void)h2_server_take_token(srv);
}

static int h2_server_on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct server *srv = user;
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS: {
        struct stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
        if (!s)
            return 0;
        if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
            h2_server_begin(s);
        if (end)
            h2_server_end_of_request(s);
        return 0;
    }
    case NGHTTP2_DATA: {
        if (frame->hd.length <= frame->data.padlen && !end)
            (void)h2_server_take_token(srv);
        srv->data_since_ping = srv->data_since_ping || frame->hd.length > 0;
        struct stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
        if (s && end)
            h2_server_end_of_request(s);
        return 0;
    }
    case NGHTTP2_PING:
        h2_server_on_ping(srv, frame->hd.flags & NGHTTP2_FLAG_ACK);
        return 0;
    case NGHTTP2_PRIORITY:
    case NGHTTP2_RST_STREAM:
    case NGHTTP2_SETTINGS:
        if (!(frame->hd.flags & NGHTTP2_FLAG_ACK))
            (void)h2_server_take_token(srv);
        return 0;
    default:
        return 0;
    }
}

/* Returns true if the client skipped the stream id by opening a stream with a higher id first. */
static bool h2_server_was_skipped(const struct server *srv, int32_t id)
{
    for (unsigned i = 0; i < srv->n_skipped; i++)
        if (id >= srv->skipped[i].first && id <= srv->skipped[i].last)
            return true;
    return false;
}

static int h2_server_on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd,
                                    void *user)
{
    struct server *srv = user;
    if (hd->type != NGHTTP2_HEADERS || !(hd->stream_id & 1))
        return 0;
    if (hd->stream_id > srv->last_stream) {
        if (hd->stream_id > srv->last_stream + 2 && srv->n_skipped < SKIPPED_MAX)
            srv->skipped[srv->n_skipped++] =
                (struct range){srv->last_stream + 1, hd->stream_id - 1};
        srv->last_stream = hd->stream_id;
    } else if (h2_server_was_skipped(srv, hd->stream_id)) {
        srv->broken = true;
        (void)nghttp2_session_terminate_session(session, NGHTTP2_PROTOCOL_ERROR);
    }
    return 0;
}

static void h2_server_allow_updates(struct server *srv, uint8_t sent)
{
    srv->updates += sent == NGHTTP2_DATA ? UPDATES_PER_DATA : UPDATES_PER_STREAM;
    if (srv->updates > UPDATES_MAX)
        srv->updates = UPDATES_MAX;
}

static int h2_server_on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct server *srv = user;
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) {
        h2_server_allow_updates(srv, frame->hd.type);
        srv->replied_since_ping = true;
    }
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR &&
        !srv->conn.fault)
        srv->conn.fault = frame->goaway.error_code == NGHTTP2_ENHANCE_YOUR_CALM ? BR_FAULT_FLOOD
                                                                                : BR_FAULT_PROTOCOL;
    if (end && (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS)) {
        /* The response has ended before the request (section 8.1). The reset lets the client
         * stop sending the rest of the request. */
        const struct stream *stream =
            nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
        if (stream && !stream->ended)
            (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, stream->id,
                                            NGHTTP2_NO_ERROR);
    }
    /* A reset with another code than NO_ERROR was provoked by the client. A reset after an early
     * response has the code NO_ERROR. */
    if (frame->hd.type == NGHTTP2_RST_STREAM && frame->rst_stream.error_code != NGHTTP2_NO_ERROR)
        (void)h2_server_take_token(srv);
    return 0;
}

static int h2_server_on_stream_close(nghttp2_session *session, int32_t id, uint32_t error_code,
                                     void *user)
{
    (void)error_code;
    (void)user;
    struct stream *stream = nghttp2_session_get_stream_user_data(session, id);
    if (!stream)
        return 0;
    nghttp2_session_set_stream_user_data(session, id, NULL);
    if (stream->begun && br_request_is_open(&stream->request))
        stream->request.service->gone(stream->request.service, &stream->request);
    h2_server_stream_free(stream);
    return 0;
}

/* --- Replies -------------------------------------------------------------------------------- */

#define NV(n, v, vlen)                                                                             \
    ((nghttp2_nv){(uint8_t *)(uintptr_t)(n), (uint8_t *)(uintptr_t)(v), strlen(n), (vlen),         \
                  NGHTTP2_NV_FLAG_NONE})
#define TRAILERS_MAX 3

static size_t h2_server_make_trailers(struct stream *stream, nghttp2_nv nv[TRAILERS_MAX],
                                      char status[8])
{
    size_t n = 0;
    int len = 1;
    if (stream->grpc_status < 10)
        status[0] = (char)('0' + stream->grpc_status);
    else
        len = snprintf(status, 8, "%u", stream->grpc_status);
    nv[n++] = NV("grpc-status", status, (size_t)len);
    if (stream->details_at)
        nv[n++] = NV("grpc-message", stream->trailers.data, stream->details_at);
    if (stream->trailers.len > stream->details_at)
        nv[n++] = NV("grpc-status-details-bin", stream->trailers.data + stream->details_at,
                     stream->trailers.len - stream->details_at);
    return n;
}

static ssize_t h2_server_read_out(nghttp2_session *session, int32_t id, uint8_t *buf, size_t len,
                                  uint32_t *flags, nghttp2_data_source *source, void *user)
{
    (void)buf;
    (void)user;
    struct stream *stream = source->ptr;
    /* An early HTTP response waits for the end of the request, so that errors in the rest of the
     * request are still detected. The response is sent after EARLY_MAX further bytes at the
     * latest. */
    if (!stream->ended && stream->thrown_away < EARLY_MAX && !stream->request.grpc) {
        stream->waits_for_end = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    size_t left = stream->out ? stream->n_out_prefix + stream->out->len - stream->out_at : 0;
    size_t n = left < len ? left : len;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (n == left) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (stream->request.grpc) {
            nghttp2_nv nv[TRAILERS_MAX];
            char status[8];
            size_t n_nv = h2_server_make_trailers(stream, nv, status);
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            if (nghttp2_submit_trailer(session, id, nv, n_nv))
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
    }
    return (ssize_t)n;
}

/* Announces the next bytes of a streamed response to nghttp2. */
static ssize_t h2_server_read_pieces(nghttp2_session *session, int32_t id, uint8_t *buf, size_t len,
                                     uint32_t *flags, nghttp2_data_source *source, void *user)
{
    (void)session;
    (void)id;
    (void)buf;
    (void)user;
    struct stream *stream = source->ptr;
    size_t left = stream->pieces.len, n = left < len ? left : len;
    if (left == 0 && stream->pieces_broken)
        /* with this error, nghttp2 sends RST_STREAM with INTERNAL_ERROR */
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (left == 0 && !stream->pieces_end) {
        stream->waits_for_piece = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (n == left && stream->pieces_end && !stream->pieces_broken)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static int h2_server_pull_pieces(struct stream *stream, size_t len)
{
    size_t left = len;
    for (uint32_t i = 0; left > 0 && i < stream->pieces.count; i++) {
        const struct br_slice *slice = &stream->pieces.slices[i];
        size_t n = slice->len < left ? slice->len : left;
        if (br_rope_add(stream->server->pulling, slice->buf, slice->data, n))
            return BR_ENOMEM;
        left -= n;
    }
    br_rope_drop(&stream->pieces, len);
    return 0;
}

static int h2_server_pull_out(struct stream *stream, size_t len)
{
    struct server *srv = stream->server;
    size_t n_prefix = stream->n_out_prefix;
    if (stream->out_at < n_prefix) {
        size_t n = len < n_prefix - stream->out_at ? len : n_prefix - stream->out_at;
        if (br_h2_put(srv->pool, &srv->scratch, srv->pulling, stream->out_prefix + stream->out_at,
                      n))
            return BR_ENOMEM;
        stream->out_at += n;
        len -= n;
    }
    const uint8_t *data = stream->out->data + (stream->out_at - n_prefix);
    stream->out_at += len;
    return len ? br_rope_add(srv->pulling, stream->out, data, len) : 0;
}

/* Appends a DATA frame to the output. The payload consists of slices of the response, to which
 * the rope keeps references. */
static int h2_server_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
                               size_t len, nghttp2_data_source *source, void *user)
{
    (void)session;
    (void)frame;
    struct server *srv = user;
    struct stream *stream = source->ptr;
    if (br_h2_put(srv->pool, &srv->scratch, srv->pulling, head, BR_H2_FRAME_HEADER))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (len && (stream->out ? h2_server_pull_out(stream, len) : h2_server_pull_pieces(stream, len)))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    br_progress_add(&stream->progress, len, srv->now_ms);
    return 0;
}

/* Sets the body of a response: references response->body, or copies response->text with the gRPC
 * prefix to a new buffer. Returns false if memory is short. */
static bool h2_server_set_out(struct stream *stream, const struct br_response *response)
{
    const void *data = response->text;
    size_t len = data ? response->text_len : 0, prefix = stream->request.grpc ? BR_GRPC_PREFIX : 0;
    if (!data && response->body) {
        if (prefix)
            br_grpc_prefix(stream->out_prefix, false, response->body->len);
        stream->n_out_prefix = (unsigned)prefix;
        stream->out = prefix + response->body->len ? br_buf_ref(response->body) : NULL;
        return true;
    }
    if (data && !len)
        len = strlen(data);
    if (prefix + len == 0)
        return true;
    stream->out = br_buf_new(stream->request.pool, prefix + len);
    if (!stream->out)
        return false;
    if (prefix)
        br_grpc_prefix(stream->out->data, false, (uint32_t)len);
    if (len)
        memcpy(stream->out->data + prefix, data, len);
    stream->out->len = (uint32_t)(prefix + len);
    return true;
}

static bool h2_server_set_trailers(struct stream *stream, const struct br_response *response)
{
    stream->grpc_status = response->grpc_status;
    stream->trailers.max = 16384;
    if (response->grpc_status && response->grpc_message && response->grpc_message[0])
        br_grpc_encode_message(&stream->trailers, response->grpc_message);
    stream->details_at = stream->trailers.len;
    if (response->grpc_details)
        br_str_base64(&stream->trailers, response->grpc_details, response->grpc_details_len);
    return !stream->trailers.failed;
}

#define REPLY_HEADERS_MAX 24

static void h2_server_reply(struct br_request *request, const struct br_response *response)
{
    struct stream *stream = br_container_of(request, struct stream, request);
    struct server *srv = stream->server;
    nghttp2_nv nv[REPLY_HEADERS_MAX];
    char status[16], length[24], grpc_status[8];
    size_t n = 0;
    bool trailers_only = request->grpc && response->grpc_status != 0;
    int len = 3;
    if (request->grpc || response->status == 200)
        memcpy(status, "200", 3);
    else
        len = snprintf(status, sizeof status, "%u", response->status);
    nv[n++] = NV(":status", status, (size_t)len);
    const char *type = request->grpc ? "application/grpc" : response->content_type;
    if (type)
        nv[n++] = NV("content-type", type, strlen(type));
    for (size_t i = 0; i < response->n_headers && n < REPLY_HEADERS_MAX - TRAILERS_MAX - 1; i++)
        nv[n++] = NV(response->headers[i].name, response->headers[i].value,
                     strlen(response->headers[i].value));
    bool ok = !request->grpc || h2_server_set_trailers(stream, response);
    if (trailers_only) {
        n += h2_server_make_trailers(stream, nv + n, grpc_status);
    } else {
        ok = ok && h2_server_set_out(stream, response);
        if (!request->grpc && response->status != 204 && !response->stream) {
            len = snprintf(length, sizeof length, "%u", stream->out ? stream->out->len : 0);
            nv[n++] = NV("content-length", length, (size_t)len);
        }
    }
    nghttp2_data_provider provider = {
        {.ptr = stream}, response->stream ? h2_server_read_pieces : h2_server_read_out};
    bool data = (stream->out || response->stream) && strcmp(request->method, "HEAD") != 0;
    if (!ok || nghttp2_submit_response(srv->session, stream->id, nv, n, data ? &provider : NULL))
        (void)nghttp2_submit_rst_stream(srv->session, NGHTTP2_FLAG_NONE, stream->id,
                                        NGHTTP2_INTERNAL_ERROR);
    request->body = br_buf_unref(request->body);
    h2_server_head_free(stream);
    h2_server_count_held(stream, false);
    stream->reply_bytes = REPLY_COST + (stream->out ? stream->out->cap : 0) + stream->trailers.cap;
    srv->replies += stream->reply_bytes;
    br_progress_start(&stream->progress, srv->now_ms);
    br_conn_wake(&srv->conn);
}

static void h2_server_resume_pieces(struct stream *stream)
{
    if (stream->waits_for_piece)
        (void)nghttp2_session_resume_data(stream->server->session, stream->id);
    stream->waits_for_piece = false;
    br_conn_wake(&stream->server->conn);
}

static bool h2_server_write(struct br_request *request, const void *data, size_t len, size_t max)
{
    struct stream *stream = br_container_of(request, struct stream, request);
    if (len > max || stream->pieces.len > max - len)
        return false;
    struct br_buf *buf = br_buf_new(request->pool, len);
    bool ok = buf && br_buf_append(&buf, data, len, len) == 0 &&
              br_rope_add(&stream->pieces, buf, buf->data, len) == 0;
    br_buf_unref(buf);
    if (!ok)
        return false;
    if (stream->pieces.len == len)
        br_progress_start(&stream->progress, stream->server->now_ms);
    h2_server_resume_pieces(stream);
    return true;
}

static void h2_server_end(struct br_request *request, bool whole)
{
    struct stream *stream = br_container_of(request, struct stream, request);
    stream->pieces_end = true;
    stream->pieces_broken = !whole;
    h2_server_resume_pieces(stream);
}

/* --- The connection ------------------------------------------------------------------------- */

static struct server *h2_server_of(const struct br_conn *conn)
{
    return (struct server *)(uintptr_t)conn;
}

/* Returns true for a frame that nghttp2 silently drops because its stream is closed. Returns
 * false for long DATA frames, because a client may have sent them before it received our
 * refusal. */
static bool h2_server_is_late(const struct server *srv, uint8_t type, size_t len, int32_t id)
{
    return (type == NGHTTP2_HEADERS || (type == NGHTTP2_DATA && len < LATE_DATA_MIN)) &&
           id <= srv->last_stream && !nghttp2_session_get_stream_user_data(srv->session, id);
}

/* Returns true if a client sends a frame on a stream that it has ended (section 5.1). nghttp2
 * does not detect this, because it is configured not to remember closed streams. */
static bool h2_server_is_after_end(const struct server *srv, int32_t id)
{
    bool open = id > srv->last_stream || nghttp2_session_get_stream_user_data(srv->session, id);
    for (unsigned i = 0; i < ENDS_KEPT && i < srv->n_ends; i++)
        if (srv->ends[i].id == id && (srv->ends[i].reset || !open))
            return true;
    return false;
}

static void h2_server_check_end(struct server *srv, uint8_t type, uint8_t flags, int32_t id)
{
    bool reset = type == NGHTTP2_RST_STREAM;
    bool carries = type == NGHTTP2_DATA || type == NGHTTP2_HEADERS;
    if (carries && !srv->broken && h2_server_is_after_end(srv, id)) {
        srv->broken = true;
        (void)nghttp2_session_terminate_session(srv->session, NGHTTP2_STREAM_CLOSED);
    }
    if (reset || (carries && (flags & NGHTTP2_FLAG_END_STREAM)))
        srv->ends[srv->n_ends++ % ENDS_KEPT] = (struct end){id, reset};
}

/* Processes a frame header: takes a token for the frame if nghttp2 has no callback for it, and
 * checks that the client has not ended the frame's stream. */
static void h2_server_count_frame(struct server *srv, const uint8_t head[BR_H2_FRAME_HEADER])
{
    size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
    uint8_t type = head[3];
    uint32_t id =
        (uint32_t)head[5] << 24 | (uint32_t)head[6] << 16 | (uint32_t)head[7] << 8 | head[8];
    srv->skip = len;
    br_progress_start(&srv->frame, srv->now_ms);
    h2_server_check_end(srv, type, head[4], (int32_t)(id & INT32_MAX));
    if (type == NGHTTP2_WINDOW_UPDATE && srv->updates > 0)
        srv->updates--;
    else if (type == NGHTTP2_WINDOW_UPDATE || type > NGHTTP2_CONTINUATION ||
             h2_server_is_late(srv, type, len, (int32_t)(id & INT32_MAX)))
        (void)h2_server_take_token(srv);
}

/* Finds all frame headers in the input. The input may be split anywhere, even inside a frame
 * header. */
static void h2_server_count_frames(struct server *srv, const uint8_t *data, size_t len)
{
    const uint8_t *end = data + len;
    while (data < end) {
        size_t n = srv->skip < (size_t)(end - data) ? srv->skip : (size_t)(end - data);
        srv->skip -= n;
        data += n;
        if (srv->n_head == 0)
            br_progress_start(&srv->frame, srv->now_ms);
        while (srv->n_head < BR_H2_FRAME_HEADER && data < end)
            srv->head[srv->n_head++] = *data++;
        if (srv->n_head < BR_H2_FRAME_HEADER)
            return;
        srv->n_head = 0;
        h2_server_count_frame(srv, srv->head);
    }
}

static int h2_server_input(struct br_conn *conn, const uint8_t *data, size_t len, uint64_t now_ms)
{
    struct server *srv = h2_server_of(conn);
    if (srv->now_ms == 0)
        srv->tokens_at_ms = now_ms;
    srv->now_ms = now_ms;
    br_progress_add(&srv->frame, len, now_ms);
    /* Called before nghttp2_session_mem_recv, which may close the streams of later frames. */
    h2_server_count_frames(srv, data, len);
    ssize_t n = nghttp2_session_mem_recv(srv->session, data, len);
    if (n < 0 && n != NGHTTP2_ERR_NOMEM)
        (void)nghttp2_session_terminate_session(srv->session, n == NGHTTP2_ERR_BAD_CLIENT_MAGIC
                                                                  ? NGHTTP2_PROTOCOL_ERROR
                                                                  : NGHTTP2_ENHANCE_YOUR_CALM);
    if (n < 0)
        return n == NGHTTP2_ERR_NOMEM ? BR_ENOMEM : BR_EPROTO;
    return 0;
}

static void h2_server_on_eof(struct br_conn *conn)
{
    h2_server_of(conn)->broken = true;
}

static int h2_server_output(struct br_conn *conn, struct br_rope *out, size_t max)
{
    struct server *srv = h2_server_of(conn);
    srv->pulling = out;
    int rc = br_h2_pull(srv->session, srv->pool, &srv->scratch, out, max);
    srv->pulling = NULL;
    return rc;
}

static bool h2_server_finished(const struct br_conn *conn)
{
    const struct server *srv = h2_server_of(conn);
    return srv->broken ||
           (!nghttp2_session_want_read(srv->session) && !nghttp2_session_want_write(srv->session));
}

static bool h2_server_idle(const struct br_conn *conn)
{
    return h2_server_of(conn)->n_streams == 0;
}

static bool h2_server_awaits(const struct stream *stream, enum br_awaited what)
{
    if (stream->request.replied)
        return what == BR_AWAITS_READING && (!stream->request.streaming || stream->pieces.len);
    return !stream->ended && what == (stream->begun ? BR_AWAITS_BODY : BR_AWAITS_HEAD);
}

static uint64_t h2_server_awaits_since(struct br_conn *conn, uint64_t now_ms, enum br_awaited what)
{
    struct server *srv = h2_server_of(conn);
    bool half_frame = what == BR_AWAITS_HEAD && (srv->skip || srv->n_head);
    uint64_t since = half_frame ? srv->frame.since_ms : UINT64_MAX;
    srv->now_ms = now_ms;
    for (const struct br_list *list = srv->streams.next; list != &srv->streams; list = list->next) {
        const struct stream *stream = br_container_of(list, struct stream, link);
        if (h2_server_awaits(stream, what) && stream->progress.since_ms < since)
            since = stream->progress.since_ms;
    }
    return since;
}

static size_t h2_server_held(const struct br_conn *conn)
{
    return h2_server_of(conn)->held;
}

static bool h2_server_ping(struct br_conn *conn)
{
    struct server *srv = h2_server_of(conn);
    if (srv->ping_waits)
        return false;
    srv->ping_waits = nghttp2_submit_ping(srv->session, NGHTTP2_FLAG_NONE, NULL) == 0;
    br_conn_wake(conn);
    return true;
}

static void h2_server_shut_down(struct br_conn *conn)
{
    struct server *srv = h2_server_of(conn);
    (void)nghttp2_submit_shutdown_notice(srv->session);
    int32_t last = nghttp2_session_get_last_proc_stream_id(srv->session);
    (void)nghttp2_submit_goaway(srv->session, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, NULL, 0);
    br_conn_wake(conn);
}

/* Announces the shutdown with a GOAWAY that still permits new streams: the client may have sent
 * requests before it reads the GOAWAY (RFC 9113 section 6.8). */
static void h2_server_retire(struct br_conn *conn)
{
    (void)nghttp2_submit_shutdown_notice(h2_server_of(conn)->session);
    br_conn_wake(conn);
}

static void h2_server_free(struct br_conn *conn)
{
    struct server *srv = h2_server_of(conn);
    while (!br_list_empty(&srv->streams)) {
        struct stream *stream = br_container_of(srv->streams.next, struct stream, link);
        if (stream->begun && br_request_is_open(&stream->request))
            stream->request.service->gone(stream->request.service, &stream->request);
        h2_server_stream_free(stream);
    }
    nghttp2_session_del(srv->session);
    br_buf_unref(srv->scratch);
    br_free(srv);
}

static const struct br_conn_ops server_ops = {
    .input = h2_server_input,
    .eof = h2_server_on_eof,
    .output = h2_server_output,
    .finished = h2_server_finished,
    .idle = h2_server_idle,
    .awaits_since = h2_server_awaits_since,
    .held = h2_server_held,
    .shutdown = h2_server_shut_down,
    .retire = h2_server_retire,
    .ping = h2_server_ping,
    .free = h2_server_free,
};

static nghttp2_session *h2_server_make_session(struct server *srv)
{
    nghttp2_session_callbacks *cb;
    if (nghttp2_session_callbacks_new(&cb))
        return NULL;
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, h2_server_on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, h2_server_on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, h2_server_on_frame_recv);
    nghttp2_session_callbacks_set_on_begin_frame_callback(cb, h2_server_on_begin_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, h2_server_on_data_chunk);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, h2_server_on_frame_send);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, h2_server_on_stream_close);
    nghttp2_session_callbacks_set_send_data_callback(cb, h2_server_send_data);
    nghttp2_session *session = br_h2_session(true, cb, srv->pool, srv);
    nghttp2_session_callbacks_del(cb);
    return session;
}

struct br_conn *br_h2_server_new(struct br_handler *service, struct br_pool *pool, const char *peer,
                                 const struct br_conn_limits *limits)
{
    struct server *srv = br_calloc(1, sizeof *srv);
    if (!srv)
        return NULL;
    srv->conn.ops = &server_ops;
    srv->service = service;
    srv->pool = pool;
    srv->tokens = GLITCH_BURST;
    srv->updates = UPDATES_FIRST;
    srv->skip = NGHTTP2_CLIENT_MAGIC_LEN;
    srv->ping_min_ms = limits->ping_min_ms;
    srv->ping_without_stream = limits->ping_without_stream;
    br_list_init(&srv->streams);
    (void)snprintf(srv->peer, sizeof srv->peer, "%s", peer);
    uint32_t streams = limits->max_concurrent_streams ? limits->max_concurrent_streams : 100;
    uint32_t window = limits->stream_window ? limits->stream_window : 4u << 20;
    uint32_t total = limits->connection_window ? limits->connection_window : 16u << 20;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, BR_REQUEST_HEAD_MAX},
    };
    srv->session = h2_server_make_session(srv);
    if (!srv->session || br_h2_settings(srv->session, settings, 3, (int32_t)total)) {
        nghttp2_session_del(srv->session);
        br_free(srv);
        return NULL;
    }
    return &srv->conn;
}
