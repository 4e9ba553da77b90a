/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/2, server side (RFC 9113), on nghttp2. Beyond the library: bodies go straight into a buffer of
 * the message's own size; whatever a client can do for free and often (resets that we have to send,
 * empty DATA, PRIORITY, PING, SETTINGS, WINDOW_UPDATE, unknown frames) is counted in a token bucket, at
 * whose end the connection is told to calm down (CVE-2025-8671, CVE-2019-9512 to -9518); header
 * lists are summed (HPACK bombs); ids of streams that were skipped stay closed (section 5.1.1).
 *
 * nghttp2 says nothing about frames of unknown types nor about those of streams that are closed, so
 * the frames' headers are looked for in the bytes.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
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
#define EARLY_MAX 65536u /* bytes that are awaited and thrown away after an early answer */
#define LATE_DATA_MIN 1024
#define HEADS_MAX (768u << 10) /* bytes of a connection's heads that are not answered */
#define HEAD_MIN 512
#define FIELDS_MIN 16
#define REPLIES_MAX (192u << 10) /* bytes of replies that wait, above which no request is begun */
#define REPLY_COST 1024          /* of one that waits, beside its body */
#define PING_STRIKES 2           /* that are forgiven between two replies */
#define PING_IDLE_MS 7200000u    /* between PINGs of a client that has no request under way */

/* WINDOW_UPDATEs that a client may send for what we do, as Envoy counts them. */
#define UPDATES_FIRST 5
#define UPDATES_PER_STREAM 2
#define UPDATES_PER_DATA 10
#define UPDATES_MAX 10000

struct stream {
    struct br_request request; /* first: the service's view */
    struct server *server;
    struct br_list link;
    int32_t id;
    bool begun;       /* the service knows it */
    bool ended;       /* the client sent everything */
    bool discard;     /* handed over or refused: what still comes is thrown away */
    bool refused;     /* it is being reset; the service never hears of it */
    bool waits_for_end; /* an early answer is deferred */
    size_t thrown_away;
    struct br_progress progress; /* of the request, then of the reply */
    size_t held;                 /* our part of server->held */
    char *head;                  /* headers: names and values, terminated; until the reply */
    size_t head_len, head_sum, reply_bytes;
    uint32_t head_cap, headers_cap;
    struct br_header *headers; /* the same as pointers */
    uint8_t prefix[BR_GRPC_PREFIX];
    unsigned n_prefix;
    uint32_t message_len;
    struct br_buf *out; /* the reply's body */
    size_t out_at;
    struct br_str trailers; /* grpc-message and details, for the trailers */
    size_t details_at;
    unsigned grpc_status;
};

struct range {
    int32_t first, last;
};

/* A stream that the client ended. */
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
    struct br_rope *pulling; /* where output goes while it is asked for */
    struct br_list streams;
    unsigned n_streams;
    size_t held;    /* by requests that are not here as a whole */
    size_t heads;   /* bytes of all heads */
    size_t replies; /* bytes of replies that wait for the client */
    char peer[64];
    uint64_t now_ms;
    double tokens;
    uint64_t tokens_at_ms;
    unsigned updates; /* WINDOW_UPDATEs that are still for free */
    size_t skip;      /* input bytes before the next frame header */
    uint8_t head[BR_H2_FRAME_HEADER];
    unsigned n_head;
    struct br_progress frame; /* of the one that is here in part */
    uint64_t ping_min_ms, pinged_ms;
    unsigned ping_strikes;
    bool ping_without_stream, pinged, ping_waits; /* waits: our own, for its answer */
    bool replied_since_ping;
    int32_t last_stream;
    struct range skipped[SKIPPED_MAX];
    unsigned n_skipped;
    struct end ends[ENDS_KEPT]; /* the last ones */
    unsigned n_ends;
    bool broken, data_since_ping;
};

static size_t head_bytes(const struct stream *s)
{
    return s->head_cap + s->headers_cap * sizeof *s->headers;
}

/* Brings what an unfinished request holds up to date. */
static void count_held(struct stream *s, bool unfinished)
{
    size_t now = unfinished ? head_bytes(s) + (s->request.body ? s->request.body->cap : 0) : 0;
    s->server->held += now - s->held;
    s->held = now;
}

static void head_free(struct stream *s)
{
    struct br_request *r = &s->request;
    s->server->heads -= head_bytes(s);
    br_free(s->head);
    br_free(s->headers);
    s->head = NULL;
    s->headers = NULL;
    s->head_cap = s->headers_cap = 0;
    r->n_headers = 0;
    r->method = r->path = r->query = r->scheme_host = "";
}

static void stream_free(struct stream *s)
{
    count_held(s, false);
    head_free(s);
    s->server->replies -= s->reply_bytes;
    br_list_remove(&s->link);
    s->server->n_streams--;
    br_buf_unref(s->request.body);
    br_buf_unref(s->out);
    br_str_release(&s->trailers);
    br_free(s);
}

static void calm_down(struct server *srv)
{
    if (srv->broken)
        return;
    srv->broken = true;
    srv->conn.fault = BR_FAULT_FLOOD;
    (void)nghttp2_session_terminate_session(srv->session, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* Takes a token for something that costs us more than the client; false when it is too much. */
static bool afford(struct server *srv)
{
    srv->tokens += (double)(srv->now_ms - srv->tokens_at_ms) * GLITCH_PER_S / 1000.0;
    if (srv->tokens > GLITCH_BURST)
        srv->tokens = GLITCH_BURST;
    srv->tokens_at_ms = srv->now_ms;
    srv->tokens -= 1;
    if (srv->tokens >= 0)
        return true;
    calm_down(srv);
    return false;
}

/* --- Headers -------------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct server *srv = user;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct stream *s = br_calloc(1, sizeof *s);
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    s->server = srv;
    s->id = frame->hd.stream_id;
    br_progress_start(&s->progress, srv->now_ms);
    br_list_append(&srv->streams, &s->link);
    srv->n_streams++;
    nghttp2_session_set_stream_user_data(session, s->id, s);
    return 0;
}

/* Resets a stream before the service has heard of it. Of a head whose rest is still coming nghttp2
 * has to be told, too, or it goes on to read it. */
static void refuse(struct stream *s, uint32_t code)
{
    s->refused = s->discard = true;
    head_free(s);
    count_held(s, false);
    (void)nghttp2_submit_rst_stream(s->server->session, NGHTTP2_FLAG_NONE, s->id, code);
}

static bool head_add(struct stream *s, const uint8_t *text, size_t len)
{
    size_t need = s->head_len + len + 1;
    if (br_grow(&s->head, &s->head_cap, need > HEAD_MIN ? need : HEAD_MIN, 1,
                2 * BR_REQUEST_HEAD_MAX))
        return false;
    if (len)
        memcpy(s->head + s->head_len, text, len);
    s->head[s->head_len + len] = '\0';
    s->head_len = need;
    return true;
}

/* Keeps a field. Offsets for now: the block may move while it grows. */
static bool field_add(struct stream *s, const uint8_t *name, size_t name_len, const uint8_t *value,
                      size_t value_len)
{
    struct br_request *r = &s->request;
    size_t before = head_bytes(s), need = r->n_headers + 1;
    uintptr_t name_at = s->head_len, value_at = s->head_len + name_len + 1;
    bool ok = br_grow(&s->headers, &s->headers_cap, need > FIELDS_MIN ? need : FIELDS_MIN,
                      sizeof *s->headers, BR_REQUEST_HEADERS_MAX) == 0 &&
              head_add(s, name, name_len) && head_add(s, value, value_len);
    s->server->heads += head_bytes(s) - before;
    count_held(s, true);
    if (ok)
        s->headers[r->n_headers++] =
            (struct br_header){(const char *)name_at, (const char *)value_at};
    return ok;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    (void)flags;
    struct server *srv = user;
    struct stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (!s)
        return 0;
    s->head_sum += name_len + value_len + 32;
    if (s->head_sum > BR_REQUEST_HEAD_MAX || s->request.n_headers >= BR_REQUEST_HEADERS_MAX)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0; /* trailers */
    if (!field_add(s, name, name_len, value, value_len))
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (srv->heads <= HEADS_MAX)
        return 0;
    refuse(s, NGHTTP2_ENHANCE_YOUR_CALM);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static void reply(struct br_request *request, const struct br_response *response);

/* Turns offsets into pointers and takes the pseudo-headers out. */
static void finish_head(struct stream *s)
{
    struct br_request *r = &s->request;
    size_t kept = 0;
    r->method = r->path = r->scheme_host = "";
    r->query = "";
    r->content_length = -1;
    for (size_t i = 0; i < r->n_headers; i++) {
        struct br_header h = {s->head + (uintptr_t)s->headers[i].name,
                              s->head + (uintptr_t)s->headers[i].value};
        if (strcmp(h.name, ":method") == 0) {
            r->method = h.value;
        } else if (strcmp(h.name, ":path") == 0) {
            r->path = h.value;
            char *query = s->head + (h.value - s->head);
            query += strcspn(query, "?");
            if (*query) {
                *query = '\0';
                r->query = query + 1;
            }
        } else if (strcmp(h.name, ":authority") == 0) {
            r->scheme_host = h.value;
        } else if (h.name[0] != ':') {
            if (strcmp(h.name, "content-length") == 0) {
                int64_t n = 0;
                for (const char *c = h.value; *c >= '0' && *c <= '9' && n < INT64_MAX / 20; c++)
                    n = n * 10 + (*c - '0');
                r->content_length = n;
            }
            s->headers[kept++] = h;
        }
    }
    r->n_headers = kept;
    r->headers = s->headers;
}

static void begin(struct stream *s)
{
    struct server *srv = s->server;
    struct br_request *r = &s->request;
    if (s->refused)
        return;
    if (srv->replies > REPLIES_MAX) { /* the client may send it again, when it has read them */
        refuse(s, NGHTTP2_REFUSED_STREAM);
        return;
    }
    finish_head(s);
    r->service = srv->service;
    r->pool = srv->pool;
    r->http2 = true;
    r->reply = reply;
    memcpy(r->peer, srv->peer, sizeof r->peer);
    s->begun = true;
    srv->conn.n_requests++;
    r->service->begin(r->service, r);
}

/* --- Bodies --------------------------------------------------------------------------------- */

/* Hands the request over, once: whole, or as soon as it is known to be broken. */
static void body_done(struct stream *s)
{
    struct br_request *r = &s->request;
    if (r->replied || s->discard)
        return;
    s->discard = true;
    count_held(s, false);
    r->service->body(r->service, r);
}

static void grpc_add(struct stream *s, const uint8_t *data, size_t len)
{
    struct br_request *r = &s->request;
    while (len > 0 && s->n_prefix < BR_GRPC_PREFIX) {
        s->prefix[s->n_prefix++] = *data++;
        len--;
        if (s->n_prefix < BR_GRPC_PREFIX)
            continue;
        s->message_len = (uint32_t)s->prefix[1] << 24 | (uint32_t)s->prefix[2] << 16 |
                         (uint32_t)s->prefix[3] << 8 | s->prefix[4];
        r->grpc_compressed = s->prefix[0] == 1;
        if (s->prefix[0] > 1)
            br_request_body_fail(r, BR_BODY_MALFORMED);
        else if (s->message_len > r->max_body)
            br_request_body_fail(r, BR_BODY_TOO_BIG);
    }
    if (len == 0 || r->body_error)
        return;
    if (len > s->message_len - (r->body ? r->body->len : 0))
        br_request_body_fail(r, BR_BODY_MALFORMED);
    else
        br_request_body_add(r, data, len, s->message_len);
}

/* A body over the limit is refused by what its head says, where that says something. */
static void http_add(struct stream *s, const uint8_t *data, size_t len)
{
    struct br_request *r = &s->request;
    size_t expected = r->content_length > 0 ? (size_t)r->content_length : 0;
    if (expected > r->max_body)
        br_request_body_fail(r, BR_BODY_TOO_BIG);
    else
        br_request_body_add(r, data, len, expected);
}

/* Lets an early answer go. */
static void resume(struct stream *s)
{
    if (!s->waits_for_end)
        return;
    s->waits_for_end = false;
    (void)nghttp2_session_resume_data(s->server->session, s->id);
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                         size_t len, void *user)
{
    (void)flags;
    struct server *srv = user;
    struct stream *s = nghttp2_session_get_stream_user_data(session, id);
    /* Credit is given back as bytes are taken; a connection that holds too much
     * is not read from. */
    (void)nghttp2_session_consume(session, id, len);
    if (!s)
        return 0;
    br_conn_body_progress(&srv->conn, &s->progress, len, srv->now_ms);
    if (s->request.replied) {
        s->thrown_away += len;
        if (s->thrown_away >= EARLY_MAX)
            resume(s);
    }
    if (s->discard || s->request.replied)
        return 0;
    if (s->request.grpc)
        grpc_add(s, data, len);
    else
        http_add(s, data, len);
    count_held(s, true);
    if (s->request.body_error)
        body_done(s);
    return 0;
}

static void end_of_request(struct stream *s)
{
    struct br_request *r = &s->request;
    s->ended = true;
    if (s->refused)
        return;
    resume(s);
    if (r->grpc && (s->n_prefix < BR_GRPC_PREFIX || (r->body ? r->body->len : 0) < s->message_len))
        br_request_body_fail(r, BR_BODY_MALFORMED);
    body_done(s);
}

/* --- Frames --------------------------------------------------------------------------------- */

/* What a client's keepalive may cost us (gRPC A8, as grpc-go keeps it). */
static void check_ping_policy(struct server *srv)
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
        calm_down(srv);
}

static void on_ping(struct server *srv, bool ack)
{
    if (ack && srv->ping_waits) {
        srv->ping_waits = false;
        return;
    }
    if (!ack && srv->ping_min_ms)
        check_ping_policy(srv);
    /* grpc-go measures the path with a PING after data; those are part of the traffic. */
    if (!ack && srv->data_since_ping)
        srv->data_since_ping = false;
    else
        (void)afford(srv);
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct server *srv = user;
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS: {
        struct stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
        if (!s)
            return 0;
        if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
            begin(s);
        if (end)
            end_of_request(s);
        return 0;
    }
    case NGHTTP2_DATA: {
        if (frame->hd.length <= frame->data.padlen && !end)
            (void)afford(srv);
        srv->data_since_ping = srv->data_since_ping || frame->hd.length > 0;
        struct stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
        if (s && end)
            end_of_request(s);
        return 0;
    }
    case NGHTTP2_PING:
        on_ping(srv, frame->hd.flags & NGHTTP2_FLAG_ACK);
        return 0;
    case NGHTTP2_PRIORITY:
    case NGHTTP2_RST_STREAM:
    case NGHTTP2_SETTINGS:
        if (!(frame->hd.flags & NGHTTP2_FLAG_ACK))
            (void)afford(srv);
        return 0;
    default:
        return 0;
    }
}

/* True when the client skipped this id, by opening a higher one first. */
static bool was_skipped(const struct server *srv, int32_t id)
{
    for (unsigned i = 0; i < srv->n_skipped; i++)
        if (id >= srv->skipped[i].first && id <= srv->skipped[i].last)
            return true;
    return false;
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user)
{
    struct server *srv = user;
    if (hd->type != NGHTTP2_HEADERS || !(hd->stream_id & 1))
        return 0;
    if (hd->stream_id > srv->last_stream) {
        if (hd->stream_id > srv->last_stream + 2 && srv->n_skipped < SKIPPED_MAX)
            srv->skipped[srv->n_skipped++] = (struct range){srv->last_stream + 1, hd->stream_id - 1};
        srv->last_stream = hd->stream_id;
    } else if (was_skipped(srv, hd->stream_id)) {
        srv->broken = true;
        (void)nghttp2_session_terminate_session(session, NGHTTP2_PROTOCOL_ERROR);
    }
    return 0;
}

static void allow_updates(struct server *srv, uint8_t sent)
{
    srv->updates += sent == NGHTTP2_DATA ? UPDATES_PER_DATA : UPDATES_PER_STREAM;
    if (srv->updates > UPDATES_MAX)
        srv->updates = UPDATES_MAX;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct server *srv = user;
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) {
        allow_updates(srv, frame->hd.type);
        srv->replied_since_ping = true;
    }
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR &&
        !srv->conn.fault)
        srv->conn.fault = frame->goaway.error_code == NGHTTP2_ENHANCE_YOUR_CALM ? BR_FAULT_FLOOD
                                                                                : BR_FAULT_PROTOCOL;
    if (end && (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS)) {
        /* Answered before the client had sent all (section 8.1): the rest is not wanted. */
        const struct stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
        if (s && !s->ended)
            (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_NO_ERROR);
    }
    /* A reset that a client provoked; our own after an early reply carry NO_ERROR. */
    if (frame->hd.type == NGHTTP2_RST_STREAM && frame->rst_stream.error_code != NGHTTP2_NO_ERROR)
        (void)afford(srv);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error_code, void *user)
{
    (void)error_code;
    (void)user;
    struct stream *s = nghttp2_session_get_stream_user_data(session, id);
    if (!s)
        return 0;
    nghttp2_session_set_stream_user_data(session, id, NULL);
    if (s->begun && !s->request.replied)
        s->request.service->gone(s->request.service, &s->request);
    stream_free(s);
    return 0;
}

/* --- Replies -------------------------------------------------------------------------------- */

#define NV(n, v, vlen)                                                                             \
    ((nghttp2_nv){(uint8_t *)(uintptr_t)(n), (uint8_t *)(uintptr_t)(v), strlen(n), (vlen),         \
                  NGHTTP2_NV_FLAG_NONE})
#define TRAILERS_MAX 3

static size_t make_trailers(struct stream *s, nghttp2_nv nv[TRAILERS_MAX], char status[8])
{
    size_t n = 0;
    int len = 1;
    if (s->grpc_status < 10)
        status[0] = (char)('0' + s->grpc_status);
    else
        len = snprintf(status, 8, "%u", s->grpc_status);
    nv[n++] = NV("grpc-status", status, (size_t)len);
    if (s->details_at)
        nv[n++] = NV("grpc-message", s->trailers.data, s->details_at);
    if (s->trailers.len > s->details_at)
        nv[n++] = NV("grpc-status-details-bin", s->trailers.data + s->details_at,
                     s->trailers.len - s->details_at);
    return n;
}

static ssize_t read_out(nghttp2_session *session, int32_t id, uint8_t *buf, size_t len,
                        uint32_t *flags, nghttp2_data_source *source, void *user)
{
    (void)buf;
    (void)user;
    struct stream *s = source->ptr;
    /* An answer that came before the request was over waits for its end, so that what is wrong with
     * the rest is still noticed; but not for the whole of a large body. */
    if (!s->ended && s->thrown_away < EARLY_MAX && !s->request.grpc) {
        s->waits_for_end = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    size_t left = s->out ? s->out->len - s->out_at : 0;
    size_t n = left < len ? left : len;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (n == left) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (s->request.grpc) {
            nghttp2_nv nv[TRAILERS_MAX];
            char status[8];
            size_t n_nv = make_trailers(s, nv, status);
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            if (nghttp2_submit_trailer(session, id, nv, n_nv))
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
    }
    return (ssize_t)n;
}

/* Takes the frame's bytes as slices of the reply; they stay alive as long as the rope has them. */
static int send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
                     size_t len, nghttp2_data_source *source, void *user)
{
    (void)session;
    (void)frame;
    struct server *srv = user;
    struct stream *s = source->ptr;
    if (br_h2_put(srv->pool, &srv->scratch, srv->pulling, head, BR_H2_FRAME_HEADER))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (len && br_rope_add(srv->pulling, s->out, s->out->data + s->out_at, len))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    s->out_at += len;
    br_progress_add(&s->progress, len, srv->now_ms);
    return 0;
}

/* Puts the reply's body, with gRPC's prefix, into a buffer of the stream's own. */
static bool set_out(struct stream *s, const struct br_response *response)
{
    const void *data = response->text;
    size_t len = response->text_len, prefix = s->request.grpc ? BR_GRPC_PREFIX : 0;
    if (!data && response->body) {
        data = response->body->data;
        len = response->body->len;
    } else if (data && !len) {
        len = strlen(data);
    }
    if (prefix + len == 0)
        return true;
    s->out = br_buf_new(s->request.pool, prefix + len);
    if (!s->out)
        return false;
    if (prefix)
        br_grpc_prefix(s->out->data, false, (uint32_t)len);
    if (len)
        memcpy(s->out->data + prefix, data, len);
    s->out->len = (uint32_t)(prefix + len);
    return true;
}

static bool set_trailers(struct stream *s, const struct br_response *response)
{
    s->grpc_status = response->grpc_status;
    s->trailers.max = 16384;
    if (response->grpc_status && response->grpc_message && response->grpc_message[0])
        br_grpc_encode_message(&s->trailers, response->grpc_message);
    s->details_at = s->trailers.len;
    if (response->grpc_details)
        br_str_base64(&s->trailers, response->grpc_details, response->grpc_details_len);
    return !s->trailers.failed;
}

#define REPLY_HEADERS_MAX 24

static void reply(struct br_request *request, const struct br_response *response)
{
    struct stream *s = br_container_of(request, struct stream, request);
    struct server *srv = s->server;
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
    bool ok = !request->grpc || set_trailers(s, response);
    if (trailers_only) {
        n += make_trailers(s, nv + n, grpc_status);
    } else {
        ok = ok && set_out(s, response);
        if (!request->grpc && response->status != 204) {
            len = snprintf(length, sizeof length, "%u", s->out ? s->out->len : 0);
            nv[n++] = NV("content-length", length, (size_t)len);
        }
    }
    nghttp2_data_provider provider = {{.ptr = s}, read_out};
    bool data = s->out && strcmp(request->method, "HEAD") != 0;
    if (!ok || nghttp2_submit_response(srv->session, s->id, nv, n, data ? &provider : NULL))
        (void)nghttp2_submit_rst_stream(srv->session, NGHTTP2_FLAG_NONE, s->id,
                                        NGHTTP2_INTERNAL_ERROR);
    request->body = br_buf_unref(request->body);
    head_free(s);
    count_held(s, false);
    s->reply_bytes = REPLY_COST + (s->out ? s->out->cap : 0) + s->trailers.cap;
    srv->replies += s->reply_bytes;
    br_progress_start(&s->progress, srv->now_ms);
    br_conn_wake(&srv->conn);
}

/* --- The connection ------------------------------------------------------------------------- */

static struct server *server_of(const struct br_conn *c)
{
    return (struct server *)(uintptr_t)c;
}

/* True for a frame that nghttp2 drops without a word, because its stream is closed. Full DATA frames of
 * a body that was refused are on their way for as long as the client does not know. */
static bool is_late(const struct server *srv, uint8_t type, size_t len, int32_t id)
{
    return (type == NGHTTP2_HEADERS || (type == NGHTTP2_DATA && len < LATE_DATA_MIN)) &&
           id <= srv->last_stream && !nghttp2_session_get_stream_user_data(srv->session, id);
}

/* Who has ended a stream may not go on with it (section 5.1): true when it does, and nghttp2, which
 * does not remember closed streams, would not notice. */
static bool is_after_end(const struct server *srv, int32_t id)
{
    bool open = id > srv->last_stream || nghttp2_session_get_stream_user_data(srv->session, id);
    for (unsigned i = 0; i < ENDS_KEPT && i < srv->n_ends; i++)
        if (srv->ends[i].id == id && (srv->ends[i].reset || !open))
            return true;
    return false;
}

static void check_end(struct server *srv, uint8_t type, uint8_t flags, int32_t id)
{
    bool reset = type == NGHTTP2_RST_STREAM;
    bool carries = type == NGHTTP2_DATA || type == NGHTTP2_HEADERS;
    if (carries && !srv->broken && is_after_end(srv, id)) {
        srv->broken = true;
        (void)nghttp2_session_terminate_session(srv->session, NGHTTP2_STREAM_CLOSED);
    }
    if (reset || (carries && (flags & NGHTTP2_FLAG_END_STREAM)))
        srv->ends[srv->n_ends++ % ENDS_KEPT] = (struct end){id, reset};
}

/* Counts what nghttp2's callbacks do not tell of, by the frame's header. */
static void count_frame(struct server *srv, const uint8_t head[BR_H2_FRAME_HEADER])
{
    size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
    uint8_t type = head[3];
    uint32_t id = (uint32_t)head[5] << 24 | (uint32_t)head[6] << 16 | (uint32_t)head[7] << 8 | head[8];
    srv->skip = len;
    br_progress_start(&srv->frame, srv->now_ms);
    check_end(srv, type, head[4], (int32_t)(id & INT32_MAX));
    if (type == NGHTTP2_WINDOW_UPDATE && srv->updates > 0)
        srv->updates--;
    else if (type == NGHTTP2_WINDOW_UPDATE || type > NGHTTP2_CONTINUATION ||
             is_late(srv, type, len, (int32_t)(id & INT32_MAX)))
        (void)afford(srv);
}

/* Goes from frame header to frame header, wherever the input is cut. */
static void count_frames(struct server *srv, const uint8_t *data, size_t len)
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
        count_frame(srv, srv->head);
    }
}

static int input(struct br_conn *c, const uint8_t *data, size_t len, uint64_t now_ms)
{
    struct server *srv = server_of(c);
    if (srv->now_ms == 0)
        srv->tokens_at_ms = now_ms;
    srv->now_ms = now_ms;
    br_progress_add(&srv->frame, len, now_ms);
    count_frames(srv, data, len); /* before: a stream may be closed by what comes after its frame */
    ssize_t n = nghttp2_session_mem_recv(srv->session, data, len);
    if (n < 0 && n != NGHTTP2_ERR_NOMEM)
        (void)nghttp2_session_terminate_session(srv->session, n == NGHTTP2_ERR_BAD_CLIENT_MAGIC
                                                                  ? NGHTTP2_PROTOCOL_ERROR
                                                                  : NGHTTP2_ENHANCE_YOUR_CALM);
    if (n < 0)
        return n == NGHTTP2_ERR_NOMEM ? BR_ENOMEM : BR_EPROTO;
    return 0;
}

static void on_eof(struct br_conn *c)
{
    server_of(c)->broken = true;
}

static int output(struct br_conn *c, struct br_rope *out, size_t max)
{
    struct server *srv = server_of(c);
    srv->pulling = out;
    int rc = br_h2_pull(srv->session, srv->pool, &srv->scratch, out, max);
    srv->pulling = NULL;
    return rc;
}

static bool finished(const struct br_conn *c)
{
    const struct server *srv = server_of(c);
    return srv->broken ||
           (!nghttp2_session_want_read(srv->session) && !nghttp2_session_want_write(srv->session));
}

static bool idle(const struct br_conn *c)
{
    return server_of(c)->n_streams == 0;
}

static bool owes(const struct stream *s, enum br_owed what)
{
    if (s->request.replied)
        return what == BR_OWES_READING;
    return !s->ended && what == (s->begun ? BR_OWES_BODY : BR_OWES_HEAD);
}

static uint64_t owes_since(struct br_conn *c, uint64_t now_ms, enum br_owed what)
{
    struct server *srv = server_of(c);
    bool half_frame = what == BR_OWES_HEAD && (srv->skip || srv->n_head);
    uint64_t since = half_frame ? srv->frame.since_ms : UINT64_MAX;
    srv->now_ms = now_ms;
    for (const struct br_list *l = srv->streams.next; l != &srv->streams; l = l->next) {
        const struct stream *s = br_container_of(l, struct stream, link);
        if (owes(s, what) && s->progress.since_ms < since)
            since = s->progress.since_ms;
    }
    return since;
}

static size_t held(const struct br_conn *c)
{
    return server_of(c)->held;
}

static bool ping(struct br_conn *c)
{
    struct server *srv = server_of(c);
    if (srv->ping_waits)
        return false;
    srv->ping_waits = nghttp2_submit_ping(srv->session, NGHTTP2_FLAG_NONE, NULL) == 0;
    br_conn_wake(c);
    return true;
}

static void shut_down(struct br_conn *c)
{
    struct server *srv = server_of(c);
    (void)nghttp2_submit_shutdown_notice(srv->session);
    int32_t last = nghttp2_session_get_last_proc_stream_id(srv->session);
    (void)nghttp2_submit_goaway(srv->session, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, NULL, 0);
    br_conn_wake(c);
}

static void server_free(struct br_conn *c)
{
    struct server *srv = server_of(c);
    while (!br_list_empty(&srv->streams)) {
        struct stream *s = br_container_of(srv->streams.next, struct stream, link);
        if (s->begun && !s->request.replied)
            s->request.service->gone(s->request.service, &s->request);
        stream_free(s);
    }
    nghttp2_session_del(srv->session);
    br_buf_unref(srv->scratch);
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
    .ping = ping,
    .free = server_free,
};

static nghttp2_session *make_session(struct server *srv)
{
    nghttp2_session_callbacks *cb;
    if (nghttp2_session_callbacks_new(&cb))
        return NULL;
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
    nghttp2_session_callbacks_set_on_begin_frame_callback(cb, on_begin_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data_chunk);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    nghttp2_session_callbacks_set_send_data_callback(cb, send_data);
    nghttp2_session *session = br_h2_session(true, cb, srv);
    nghttp2_session_callbacks_del(cb);
    return session;
}

struct br_conn *br_h2_server_new(struct br_handler *service, struct br_pool *pool,
                                 const char *peer, const struct br_conn_limits *limits)
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
    srv->session = make_session(srv);
    if (!srv->session || br_h2_settings(srv->session, settings, 3, (int32_t)total)) {
        nghttp2_session_del(srv->session);
        br_free(srv);
        return NULL;
    }
    return &srv->conn;
}
