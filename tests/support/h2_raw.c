/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/h2_raw.h"

#include "tests/support/test.h"

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define HEAD 9u

/* --- The client by hand ----------------------------------------------------------------------- */

size_t h2_bytes(uint8_t *out, uint8_t type, uint8_t flags, uint32_t stream, const void *payload,
                size_t len)
{
    const uint8_t head[HEAD] = {(uint8_t)(len >> 16),
                                (uint8_t)(len >> 8),
                                (uint8_t)len,
                                type,
                                flags,
                                (uint8_t)(stream >> 24),
                                (uint8_t)(stream >> 16),
                                (uint8_t)(stream >> 8),
                                (uint8_t)stream};
    memcpy(out, head, HEAD);
    if (len)
        memcpy(out + HEAD, payload, len);
    return HEAD + len;
}

void h2_frame(struct net_rig *rig, struct net_peer *p, uint8_t type, uint8_t flags, uint32_t stream,
              const void *payload, size_t len)
{
    uint8_t *frame = malloc(HEAD + len);
    assert_non_null(frame);
    net_send(rig, p, frame, h2_bytes(frame, type, flags, stream, payload, len));
    free(frame);
}

struct net_peer *h2_dial(struct net_rig *rig, unsigned port, int64_t window)
{
    struct net_peer *p = net_dial(port);
    const uint8_t setting[6] = {0,
                                NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE,
                                (uint8_t)(window >> 24),
                                (uint8_t)(window >> 16),
                                (uint8_t)(window >> 8),
                                (uint8_t)window};
    net_puts(rig, p, PREFACE);
    h2_frame(rig, p, NGHTTP2_SETTINGS, 0, 0, setting, window < 0 ? 0 : sizeof setting);
    return p;
}

/* RFC 7541 section 6.2.2: a literal without indexing, with a new name. */
static size_t literal(uint8_t *out, const char *name, const char *value)
{
    size_t n = strlen(name), v = strlen(value), at = 0;
    assert_true(n < 127 && v < 127);
    out[at++] = 0;
    out[at++] = (uint8_t)n;
    memcpy(out + at, name, n);
    at += n;
    out[at++] = (uint8_t)v;
    memcpy(out + at, value, v);
    return at + v;
}

size_t h2_block(uint8_t *out, const char *method)
{
    size_t n = literal(out, ":method", method);
    n += literal(out + n, ":scheme", "http");
    n += literal(out + n, ":path", "/call");
    n += literal(out + n, ":authority", "h");
    return n;
}

void h2_request(struct net_rig *rig, struct net_peer *p, uint32_t stream, bool end)
{
    uint8_t block[256];
    size_t n = h2_block(block, "POST");
    uint8_t flags = NGHTTP2_FLAG_END_HEADERS | (end ? NGHTTP2_FLAG_END_STREAM : 0);
    h2_frame(rig, p, NGHTTP2_HEADERS, flags, stream, block, n);
}

unsigned h2_count(struct net_peer *p, uint8_t type, uint32_t stream, const uint8_t **ret_payload)
{
    unsigned count = 0;
    (void)net_poll(p);
    for (size_t at = 0; at + HEAD <= p->n_in;) {
        const uint8_t *f = p->in + at;
        size_t len = (size_t)f[0] << 16 | (size_t)f[1] << 8 | f[2];
        uint32_t id = (uint32_t)f[5] << 24 | (uint32_t)f[6] << 16 | (uint32_t)f[7] << 8 | f[8];
        if (at + HEAD + len > p->n_in)
            break;
        if (f[3] == type && (stream == 0 || id == stream)) {
            count++;
            if (ret_payload)
                *ret_payload = f + HEAD;
        }
        at += HEAD + len;
    }
    return count;
}

static int64_t number(const uint8_t *p)
{
    return (int64_t)p[0] << 24 | (int64_t)p[1] << 16 | (int64_t)p[2] << 8 | p[3];
}

int64_t h2_reset_code(struct net_peer *p, uint32_t stream)
{
    const uint8_t *payload = NULL;
    return h2_count(p, NGHTTP2_RST_STREAM, stream, &payload) ? number(payload) : -1;
}

int64_t h2_goaway_code(struct net_peer *p)
{
    const uint8_t *payload = NULL;
    return h2_count(p, NGHTTP2_GOAWAY, 0, &payload) ? number(payload + 4) : -1;
}

/* --- The server ------------------------------------------------------------------------------- */

static struct h2_stream *find(struct h2_server *s, int32_t id)
{
    for (unsigned i = 0; i < s->n_streams; i++)
        if (s->streams[i].id == id)
            return &s->streams[i];
    assert_true(s->n_streams < H2_STREAMS_MAX);
    s->streams[s->n_streams] = (struct h2_stream){.id = id, .intact = true};
    return &s->streams[s->n_streams++];
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    struct h2_stream *st = find(user, frame->hd.stream_id);
    (void)session;
    (void)flags;
    if (name_len == 7 && memcmp(name, ":scheme", 7) == 0)
        (void)snprintf(st->scheme, sizeof st->scheme, "%.*s", (int)value_len, (const char *)value);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct h2_server *s = user;
    (void)session;
    if (frame->hd.type == NGHTTP2_PING && !(frame->hd.flags & NGHTTP2_FLAG_ACK))
        s->n_pings++;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    struct h2_stream *st = find(s, frame->hd.stream_id);
    st->headers = true;
    st->ended = st->ended || (frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t len, void *user)
{
    struct h2_stream *st = find(user, id);
    (void)session;
    (void)flags;
    for (size_t i = 0; i < len; i++, st->bytes++)
        st->intact = st->intact && (st->bytes < 5 || data[i] == net_byte_at(st->bytes - 5));
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t error, void *user)
{
    struct h2_stream *st = find(user, id);
    (void)session;
    st->closed = true;
    st->error = error;
    return 0;
}

struct h2_server *h2_server_new(struct net_peer *peer, uint32_t max_concurrent, bool stuck)
{
    struct h2_server *s = calloc(1, sizeof *s);
    nghttp2_session_callbacks *cb;
    nghttp2_option *option;
    assert_non_null(s);
    s->peer = peer;
    assert_int_equal(nghttp2_session_callbacks_new(&cb), 0);
    assert_int_equal(nghttp2_option_new(&option), 0);
    nghttp2_option_set_no_auto_window_update(option, stuck);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    assert_int_equal(nghttp2_session_server_new2(&s->session, cb, s, option), 0);
    nghttp2_session_callbacks_del(cb);
    nghttp2_option_del(option);
    const nghttp2_settings_entry setting = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
                                            max_concurrent};
    assert_int_equal(nghttp2_submit_settings(s->session, 0, &setting, 1), 0);
    return s;
}

void h2_server_free(struct h2_server *s)
{
    nghttp2_session_del(s->session);
    net_hang_up(s->peer);
    free(s);
}

bool h2_server_turn(struct h2_server *s)
{
    bool eof = net_poll(s->peer);
    if (s->peer->n_in)
        assert_true(nghttp2_session_mem_recv(s->session, s->peer->in, s->peer->n_in) >= 0);
    s->peer->n_in = 0;
    const uint8_t *data;
    ssize_t n;
    while (!eof && (n = nghttp2_session_mem_send(s->session, &data)) > 0)
        /* the data is small and fits into the socket's buffer */
        (void)net_try(s->peer, data, (size_t)n);
    return !eof;
}

static ssize_t read_answer(nghttp2_session *session, int32_t id, uint8_t *buf, size_t len,
                           uint32_t *flags, nghttp2_data_source *source, void *user)
{
    static const uint8_t message[] = {0, 0, 0, 0, 3, 'a', 'b', 'c'};
    nghttp2_nv trailer = {(uint8_t *)(uintptr_t) "grpc-status", (uint8_t *)(uintptr_t) "0", 11, 1,
                          0};
    (void)source;
    (void)user;
    assert_true(len >= sizeof message);
    memcpy(buf, message, sizeof message);
    *flags = NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    assert_int_equal(nghttp2_submit_trailer(session, id, &trailer, 1), 0);
    return sizeof message;
}

void h2_server_answer(struct h2_server *s, int32_t id, int status)
{
    char text[8];
    int n = snprintf(text, sizeof text, "%d", status);
    nghttp2_nv nv[] = {
        {(uint8_t *)(uintptr_t) ":status", (uint8_t *)(uintptr_t) "200", 7, 3, 0},
        {(uint8_t *)(uintptr_t) "content-type", (uint8_t *)(uintptr_t) "application/grpc", 12, 16,
         0},
        {(uint8_t *)(uintptr_t) "grpc-status", (uint8_t *)text, 11, (size_t)n, 0},
    };
    nghttp2_data_provider provider = {.read_callback = read_answer};
    assert_int_equal(
        nghttp2_submit_response(s->session, id, nv, status ? 3 : 2, status ? NULL : &provider), 0);
}
