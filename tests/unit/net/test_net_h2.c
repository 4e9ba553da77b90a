/* SPDX-License-Identifier: Apache-2.0 */
/* Tests HTTP/2 on real sockets: the server with frames that the test writes, and the client with a
 * server of nghttp2. */
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/memory.h"
#include "tests/support/h2_raw.h"
#include "tests/support/test.h"

/* --- The server ------------------------------------------------------------------------------- */

struct fixture {
    struct net_rig *rig;
    struct net_service service;
    struct br_server *server;
    struct net_peer *peer;
};

static void open_with(struct fixture *f, void **state, const struct br_server_config *config,
                      int64_t window)
{
    f->rig = *state;
    net_service_init(&f->service);
    f->server = net_serve(f->rig, &f->service, config);
    f->peer = h2_dial(f->rig, br_server_port(f->server), window);
}

static void finish(struct fixture *f)
{
    net_hang_up(f->peer);
    br_server_free(f->server);
    assert_int_equal(net_connections(f->rig), 0);
}

static void answers_in_any_order(void **state)
{
    struct fixture f;
    open_with(&f, state, NULL, -1);
    f.service.when = NET_LATER;
    for (uint32_t id = 1; id < 20; id += 2)
        h2_request(f.rig, f.peer, id, true);
    NET_UNTIL(f.rig, f.service.n_held == 10);
    for (unsigned i = 10; i-- > 0;) {
        net_reply(&f.service, f.service.held[i]);
        NET_UNTIL(f.rig, h2_count(f.peer, NGHTTP2_DATA, 2 * i + 1, NULL) == 1);
        assert_int_equal(h2_count(f.peer, NGHTTP2_DATA, 0, NULL), 10 - i);
    }
    finish(&f);
    assert_int_equal(f.service.n_gone, 0);
}

static void reset_in_every_state(void **state)
{
    static const uint8_t cancel[4] = {0, 0, 0, NGHTTP2_CANCEL};
    struct fixture f;
    open_with(&f, state, NULL, -1);
    f.service.when = NET_LATER;
    h2_request(f.rig, f.peer, 1, false); /* before its body */
    h2_request(f.rig, f.peer, 3, false); /* half of it */
    h2_frame(f.rig, f.peer, NGHTTP2_DATA, 0, 3, "half", 4);
    h2_request(f.rig, f.peer, 5, true); /* in the pipeline */
    h2_request(f.rig, f.peer, 7, true);
    NET_UNTIL(f.rig, f.service.n_held == 2 && f.service.n_begun == 4);
    for (uint32_t id = 1; id <= 5; id += 2)
        h2_frame(f.rig, f.peer, NGHTTP2_RST_STREAM, 0, id, cancel, 4);
    NET_UNTIL(f.rig, f.service.n_gone == 3);
    assert_null(f.service.held[0]);
    net_reply_all(&f.service);
    NET_UNTIL(f.rig, h2_count(f.peer, NGHTTP2_DATA, 7, NULL) == 1);
    assert_int_equal(h2_count(f.peer, NGHTTP2_DATA, 0, NULL), 1);
    finish(&f);
    assert_int_equal(f.service.n_gone, 3);
}

static void freed_with_requests_under_way(void **state)
{
    struct fixture f;
    open_with(&f, state, NULL, 0);
    f.service.when = NET_LATER;
    h2_request(f.rig, f.peer, 1, false);
    h2_request(f.rig, f.peer, 3, true);
    NET_UNTIL(f.rig, f.service.n_held == 1 && f.service.n_begun == 2);
    net_reply_all(&f.service); /* the reply cannot be sent, because the client's window is 0 */
    h2_request(f.rig, f.peer, 5, true);
    NET_UNTIL(f.rig, f.service.n_held == 1);
    finish(&f);
    assert_int_equal(f.service.n_gone, 2);
}

/* RFC 9113 section 8.1 allows a server to answer before the end of a request and to stop the
 * request with RST_STREAM. Before it sends RST_STREAM, Braid waits for 64 KiB of the remaining
 * body, or for the end of the body. */
static void early_answers(void **state)
{
    static const char rest_of_body[16384];
    struct fixture f;
    open_with(&f, state, NULL, -1);
    f.service.when = NET_IN_BEGIN;
    h2_request(f.rig, f.peer, 1, false);
    for (int i = 0; i < 4; i++)
        h2_frame(f.rig, f.peer, NGHTTP2_DATA, 0, 1, rest_of_body, sizeof rest_of_body);
    NET_UNTIL(f.rig, h2_reset_code(f.peer, 1) == NGHTTP2_NO_ERROR);
    assert_int_equal(h2_count(f.peer, NGHTTP2_DATA, 1, NULL), 1);
    /* this data was in transit when the server reset the stream */
    h2_frame(f.rig, f.peer, NGHTTP2_DATA, 0, 1, "late", 4);
    h2_request(f.rig, f.peer, 3, true);
    NET_UNTIL(f.rig, h2_count(f.peer, NGHTTP2_DATA, 3, NULL) == 1);
    assert_int_equal(h2_count(f.peer, NGHTTP2_RST_STREAM, 3, NULL), 0);
    finish(&f);
    assert_int_equal(f.service.n_bodies, 0);
    assert_int_equal(f.service.n_gone, 0);
}

static const struct br_server_config hasty = {.handshake_timeout_ms = 200,
                                              .request_timeout_ms = 300,
                                              .linger_timeout_ms = 100,
                                              .stop_timeout_ms = 200};

/* If a request has stopped, PINGs and other requests on the connection do not count as its
 * progress. */
static void stuck_requests_are_closed(void **state)
{
    struct fixture f;
    open_with(&f, state, &hasty, -1);
    h2_request(f.rig, f.peer, 1, false);
    h2_frame(f.rig, f.peer, NGHTTP2_DATA, 0, 1, "half", 4);
    uint32_t next = 3;
    uint64_t start = net_now(f.rig);
    net_start_deadline(f.rig);
    while (!net_poll(f.peer)) {
        net_check_deadline(f.rig, "the end of a stuck request", __FILE__, __LINE__);
        h2_request(f.rig, f.peer, next, true);
        h2_frame(f.rig, f.peer, NGHTTP2_PING, 0, 0, "12345678", 8);
        next += 2;
        net_idle(f.rig, 30);
    }
    assert_in_range(net_now(f.rig) - start, 200, 5000);
    assert_int_equal(f.service.n_gone, 1);
    finish(&f);
}

static void windows_that_never_open(void **state)
{
    struct fixture f;
    open_with(&f, state, &hasty, 0);
    for (uint32_t id = 1; id < 200; id += 2)
        h2_request(f.rig, f.peer, id, true);
    NET_UNTIL(f.rig, f.service.n_replied == 100);
    assert_int_equal(h2_count(f.peer, NGHTTP2_DATA, 0, NULL), 0);
    NET_UNTIL(f.rig, net_poll(f.peer));
    NET_UNTIL(f.rig, net_connections(f.rig) == 0);
    assert_int_equal(br_pool_live(f.rig->host->pool), 0);
    finish(&f);
}

/* While the process exceeds its memory limit, a connection has one request at a time. */
static void over_the_limit_a_connection_has_one_request(void **state)
{
    struct br_memory memory = {0};
    const uint8_t *code;
    struct fixture f;
    open_with(&f, state, NULL, -1);
    br_pool_set_memory(f.rig->host->pool, &memory);
    f.service.when = NET_LATER;
    h2_request(f.rig, f.peer, 1, true);
    h2_request(f.rig, f.peer, 3, true);
    NET_UNTIL(f.rig, f.service.n_held == 2);
    br_memory_limit(&memory, 1, 1);
    h2_request(f.rig, f.peer, 5, true);
    NET_UNTIL(f.rig, h2_count(f.peer, NGHTTP2_RST_STREAM, 5, &code) == 1);
    assert_memory_equal(code, ((uint8_t[4]){0, 0, 0, NGHTTP2_REFUSED_STREAM}), 4);
    assert_int_equal(f.service.n_begun, 2);
    net_reply_all(&f.service); /* requests that have begun are finished */
    NET_UNTIL(f.rig, h2_count(f.peer, NGHTTP2_DATA, 0, NULL) == 2);
    h2_request(f.rig, f.peer, 7, true);
    NET_UNTIL(f.rig, f.service.n_begun == 3);
    h2_request(f.rig, f.peer, 9, true);
    NET_UNTIL(f.rig, h2_count(f.peer, NGHTTP2_RST_STREAM, 9, NULL) == 1);
    atomic_store(&memory.hard, SIZE_MAX);
    h2_request(f.rig, f.peer, 11, true);
    NET_UNTIL(f.rig, f.service.n_begun == 4);
    assert_int_equal(h2_count(f.peer, NGHTTP2_RST_STREAM, 0, NULL), 2);
    br_pool_set_memory(f.rig->host->pool, f.rig->host->memory);
    finish(&f);
}

/* A client increases its window byte by byte. This does not count as progress of a large answer. */
static void windows_that_open_by_a_byte(void **state)
{
    static const uint8_t one[4] = {0, 0, 0, 1};
    struct fixture f;
    open_with(&f, state, &hasty, 0);
    f.service.answer_bytes = 100000;
    h2_request(f.rig, f.peer, 1, true);
    net_start_deadline(f.rig);
    while (!net_poll(f.peer)) {
        net_check_deadline(f.rig, "the end of a dripping window", __FILE__, __LINE__);
        (void)net_try(f.peer, "\0\0\4\10\0\0\0\0\1\0\0\0\1", 13);
        net_idle(f.rig, 10);
    }
    (void)one;
    assert_true(h2_count(f.peer, NGHTTP2_DATA, 1, NULL) > 2);
    finish(&f);
}

static void idle_connections_get_a_goaway(void **state)
{
    struct br_server_config config = hasty;
    struct fixture f;
    config.idle_timeout_ms = 200;
    open_with(&f, state, &config, -1);
    h2_request(f.rig, f.peer, 1, true);
    NET_UNTIL(f.rig, net_poll(f.peer));
    assert_false(f.peer->reset);
    assert_int_equal(h2_goaway_code(f.peer), NGHTTP2_NO_ERROR);
    assert_int_equal(h2_count(f.peer, NGHTTP2_DATA, 1, NULL), 1);
    finish(&f);
}

static const uint8_t no_ack[8];

/* A connection without requests is closed although it receives PINGs. */
static void idle_is_without_requests(void **state)
{
    struct br_server_config config = hasty;
    struct fixture f;
    config.idle_timeout_ms = 200;
    open_with(&f, state, &config, -1);
    h2_request(f.rig, f.peer, 1, true);
    net_start_deadline(f.rig);
    while (!net_poll(f.peer)) {
        net_check_deadline(f.rig, "the end of an idle connection", __FILE__, __LINE__);
        h2_frame(f.rig, f.peer, NGHTTP2_PING, 0, 0, no_ack, 8);
        net_idle(f.rig, 20);
    }
    assert_int_equal(h2_goaway_code(f.peer), NGHTTP2_NO_ERROR);
    NET_UNTIL(f.rig, net_connections(f.rig) == 0);
    assert_int_equal(net_closed(f.rig, "idle"), 1);
    finish(&f);
}

/* Data or silence before the first request of a connection does not count as a request. */
static void the_first_request_has_a_timeout(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } firsts[] = {
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33},   /* SETTINGS */
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\6\4\0\0\0\0\0\0", 34}, /* half of it */
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0", 26},                 /* part of a frame's header */
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0\0\0\5\1\4\0\0\0\1\x83", 43},
        {"GET / HTTP/1.1\r\nHost", 20},
    };
    struct br_server_config config = {.first_request_timeout_ms = 60, .linger_timeout_ms = 20};
    struct fixture f;
    open_with(&f, state, &config, -1);
    h2_request(f.rig, f.peer, 1, true); /* a connection that has had a request may stay open */
    for (unsigned i = 0; i < BR_COUNT(firsts); i++) {
        struct net_peer *p = net_dial(br_server_port(f.server));
        net_send(f.rig, p, firsts[i].bytes, firsts[i].len);
        NET_UNTIL(f.rig, net_poll(p));
        if (i < 5)
            assert_int_equal(h2_goaway_code(p), NGHTTP2_NO_ERROR);
        NET_UNTIL(f.rig, net_connections(f.rig) == 1);
        assert_int_equal(net_closed(f.rig, "first_request_timeout"), i + 1);
        net_hang_up(p);
    }
    assert_false(net_poll(f.peer));
    finish(&f);
}

/* If a frame has begun, all of it must arrive within the timeout, even if the connection has had
 * requests. */
static void incomplete_frames_have_a_timeout(void **state)
{
    struct fixture f;
    open_with(&f, state, &hasty, -1);
    h2_request(f.rig, f.peer, 1, true);
    NET_UNTIL(f.rig, h2_count(f.peer, NGHTTP2_DATA, 1, NULL) == 1);
    net_send(f.rig, f.peer, "\0\0\10\6\0\0\0\0\0ping", 13);
    NET_UNTIL(f.rig, net_poll(f.peer));
    NET_UNTIL(f.rig, net_connections(f.rig) == 0);
    assert_int_equal(h2_count(f.peer, NGHTTP2_PING, 0, NULL), 0); /* PINGs are off by default */
    assert_int_equal(net_closed(f.rig, "slow_request"), 1);
    finish(&f);
}

static void unanswered_pings_end_the_connection(void **state)
{
    struct br_server_config config = {.ping_time_ms = 60, .ping_timeout_ms = 120};
    struct fixture f;
    const uint8_t *payload;
    open_with(&f, state, &config, -1);
    struct net_peer *alive = h2_dial(f.rig, br_server_port(f.server), -1);
    unsigned answered = 0;
    net_start_deadline(f.rig);
    while (answered < 5 || !net_poll(f.peer)) {
        net_check_deadline(f.rig, "PINGs, and the end of who did not answer", __FILE__, __LINE__);
        if (h2_count(alive, NGHTTP2_PING, 0, &payload) > answered) {
            answered++;
            h2_frame(f.rig, alive, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, payload, 8);
        }
        net_step(f.rig);
    }
    assert_true(h2_count(f.peer, NGHTTP2_PING, 0, NULL) >= 1);
    assert_int_equal(net_closed(f.rig, "keepalive_timeout"), 1);
    assert_false(net_poll(alive));
    net_hang_up(alive);
    finish(&f);
}

/* An old connection gets a GOAWAY. Its requests may continue for the grace period. */
static void old_connections_end_after_a_grace_period(void **state)
{
    struct br_server_config config = {.max_age_ms = 100, .max_age_grace_ms = 200};
    struct fixture f;
    open_with(&f, state, &config, -1);
    f.service.when = NET_LATER;
    h2_request(f.rig, f.peer, 1, true);
    NET_UNTIL(f.rig, f.service.n_held == 1);
    NET_UNTIL(f.rig, h2_goaway_code(f.peer) == NGHTTP2_NO_ERROR);
    assert_false(net_poll(f.peer));
    assert_int_equal(f.service.n_gone, 0);
    NET_UNTIL(f.rig, net_poll(f.peer));
    assert_int_equal(f.service.n_gone, 1);
    assert_int_equal(net_closed(f.rig, "age"), 1);
    finish(&f);
}

static void on_stopped(void *arg)
{
    ++*(unsigned *)arg;
}

static void stop_waits_for_requests_in_progress(void **state)
{
    struct fixture f;
    unsigned stopped = 0;
    open_with(&f, state, &hasty, -1);
    f.service.when = NET_LATER;
    h2_request(f.rig, f.peer, 1, true);
    NET_UNTIL(f.rig, f.service.n_held == 1);
    f.rig->host->draining = true; /* the process ends */
    br_server_stop(f.server, on_stopped, &stopped);
    NET_UNTIL(f.rig, h2_goaway_code(f.peer) == NGHTTP2_NO_ERROR);
    net_idle(f.rig, 400);
    assert_int_equal(stopped, 0);
    /* this stream is too late: its number is above the last stream of the GOAWAY */
    h2_request(f.rig, f.peer, 3, true);
    net_idle(f.rig, 10);
    assert_int_equal(f.service.n_begun, 1);
    net_reply_all(&f.service);
    NET_UNTIL(f.rig, stopped == 1);
    NET_UNTIL(f.rig, net_poll(f.peer));
    assert_int_equal(h2_count(f.peer, NGHTTP2_DATA, 1, NULL), 1);
    finish(&f);
}

/* --- Floods ----------------------------------------------------------------------------------- */

struct flood {
    const char *name;
    uint8_t type, flags;
    bool streams; /* a HEADERS frame of a new stream precedes each frame */
    bool one;     /* all frames are on stream 1, which is already open */
    uint8_t payload[8];
    size_t len;
};

static const struct flood floods[] = {
    {"unknown type", 0xfa, 0, false, false, "x", 1},
    {"unknown type, empty", 0x0b, 0, false, false, "", 0},
    {"PRIORITY_UPDATE", 0x10, 0, false, false, "\0\0\0\1u=1", 7},
    {"PING", NGHTTP2_PING, 0, false, false, "12345678", 8},
    {"SETTINGS", NGHTTP2_SETTINGS, 0, false, false, "", 0},
    {"PRIORITY", NGHTTP2_PRIORITY, 0, false, false, "\0\0\0\0\1", 5},
    {"WINDOW_UPDATE", NGHTTP2_WINDOW_UPDATE, 0, false, false, "\0\0\0\1", 4},
    {"empty DATA", NGHTTP2_DATA, 0, false, true, "", 0},
    {"DATA of padding", NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, false, true, "\3abc", 4},
    {"rapid reset", NGHTTP2_RST_STREAM, 0, true, false, "\0\0\0\10", 4},
    {"MadeYouReset", NGHTTP2_WINDOW_UPDATE, 0, true, false, "\177\377\377\377", 4},
};

#define FLOOD 1000

static void flood_ends(void **state, const struct flood *flood, size_t chunk)
{
    struct fixture f;
    struct br_server_config config = {.linger_timeout_ms = 20};
    uint8_t *bytes = malloc(FLOOD * 160), block[128];
    size_t n = 0, block_len = h2_block(block, "POST");
    open_with(&f, state, &config, -1);
    if (flood->one)
        h2_request(f.rig, f.peer, 1, false);
    for (uint32_t i = 0; i < FLOOD; i++) {
        uint32_t id = flood->streams ? 2 * i + 1 : flood->one || flood->type == NGHTTP2_PRIORITY;
        if (flood->streams)
            n += h2_bytes(bytes + n, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, id, block,
                          block_len);
        n += h2_bytes(bytes + n, flood->type, flood->flags, id, flood->payload, flood->len);
    }
    for (size_t at = 0, sends = 0; at < n && !f.peer->eof; sends++) {
        size_t want = n - at < chunk ? n - at : chunk;
        at += net_try(f.peer, bytes + at, want);
        if (sends % 8 == 0)
            net_step(f.rig);
        (void)net_poll(f.peer);
    }
    net_start_deadline(f.rig);
    while (!net_poll(f.peer)) {
        net_check_deadline(f.rig, flood->name, __FILE__, __LINE__);
        net_step(f.rig);
    }
    int64_t code = h2_goaway_code(f.peer);
    if (code != NGHTTP2_ENHANCE_YOUR_CALM)
        fail_msg("%s: GOAWAY with %lld", flood->name, (long long)code);
    NET_UNTIL(f.rig, net_connections(f.rig) == 0);
    assert_int_equal(f.service.n_gone, f.service.n_begun - f.service.n_replied);
    finish(&f);
    free(bytes);
}

static void floods_end_with_a_goaway(void **state)
{
    for (size_t i = 0; i < BR_COUNT(floods); i++) {
        flood_ends(state, &floods[i], 65536);
        /* the input is divided without regard to the frames, every 37 bytes */
        flood_ends(state, &floods[i], 37);
    }
}

/* Frequent and fast but legitimate traffic does not count as a flood. */
static void legitimate_traffic_is_not_a_flood(void **state)
{
    enum { N = 1000 };
    struct fixture f;
    open_with(&f, state, NULL, -1);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t id = 2 * i + 1;
        h2_request(f.rig, f.peer, id, false);
        h2_frame(f.rig, f.peer, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, id, "data", 4);
        h2_frame(f.rig, f.peer, NGHTTP2_PING, 0, 0, "bdp_ping", 8); /* like grpc-go */
        NET_UNTIL(f.rig, h2_count(f.peer, NGHTTP2_DATA, id, NULL) == 1);
        f.peer->n_in = 0;
        /* Clients may return credit as soon as they have read data, even a few bytes. */
        h2_frame(f.rig, f.peer, NGHTTP2_WINDOW_UPDATE, 0, 0, "\0\0\0\3", 4);
    }
    assert_false(net_poll(f.peer));
    assert_int_equal(f.service.n_bodies, N);
    finish(&f);
}

static void wrong_prefaces(void **state)
{
    struct fixture f;
    open_with(&f, state, &hasty, -1);
    struct net_peer *p = net_dial(br_server_port(f.server));
    net_puts(f.rig, p,
             /* the input is parsed as HTTP/1.1 and has an unsupported version */
             "PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n");
    NET_UNTIL(f.rig, net_poll(p));
    assert_int_equal(net_count(p, "HTTP/1.1 505 "), 1);
    net_hang_up(p);
    p = net_dial(br_server_port(f.server));
    net_puts(f.rig, p, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET / HTTP/1.1\r\n\r\n");
    NET_UNTIL(f.rig, net_poll(p));
    assert_true(h2_goaway_code(p) > 0);
    net_hang_up(p);
    finish(&f);
}

/* --- The client ------------------------------------------------------------------------------- */

struct backend {
    struct net_rig *rig;
    int listener;
    char url[64];
    struct br_client *client;
    struct h2_server *h2;
};

static void backend_open(struct backend *b, void **state, struct br_client_config config)
{
    unsigned port = 0;
    *b = (struct backend){.rig = *state};
    b->listener = net_listen(AF_INET, &port);
    assert_true(b->listener >= 0);
    (void)snprintf(b->url, sizeof b->url, "http://127.0.0.1:%u", port);
    config.endpoint = b->url;
    config.grpc = true;
    b->client = net_connect(b->rig, &config);
}

static void backend_accept(struct backend *b, uint32_t max_concurrent, bool stuck)
{
    struct net_peer *p = NULL;
    NET_UNTIL(b->rig, (p = net_accept(b->listener)));
    b->h2 = h2_server_new(p, max_concurrent, stuck);
}

static void backend_close(struct backend *b)
{
    br_client_free(b->client);
    if (b->h2)
        h2_server_free(b->h2);
    close(b->listener);
}

/* Runs the client and the backend until a condition of the backend is true. */
#define BACKEND_UNTIL(b, condition) NET_UNTIL((b)->rig, (h2_server_turn((b)->h2), (condition)))

static void calls_share_a_connection(void **state)
{
    enum { N = 200, MOST = 10 };
    struct backend b;
    static struct net_call c[N];
    backend_open(&b, state, (struct br_client_config){0});
    for (int i = 0; i < N; i++) {
        net_call_init(b.rig, &c[i], true, 20000);
        if (i == 0) {
            br_client_send(b.client, &c[0].x);
            backend_accept(&b, MOST, false);
            BACKEND_UNTIL(&b, b.h2->n_streams == 1 && b.h2->streams[0].ended);
        } else {
            br_client_send(b.client, &c[i].x);
        }
    }
    for (unsigned i = 0; i < N; i++) {
        BACKEND_UNTIL(&b, b.h2->n_streams > i && b.h2->streams[i].ended);
        assert_true(b.h2->n_streams <= i + MOST);
        assert_true(b.h2->streams[i].intact);
        assert_int_equal(b.h2->streams[i].bytes, 20005);
        assert_string_equal(b.h2->streams[i].scheme, "http");
        h2_server_answer(b.h2, b.h2->streams[i].id, i % 2 ? 14 : 0);
    }
    for (int i = 0; i < N; i++) {
        BACKEND_UNTIL(&b, c[i].n_done);
        assert_int_equal(c[i].error, 0);
        assert_int_equal(c[i].grpc_status, i % 2 ? 14 : 0);
        assert_string_equal(c[i].response, i % 2 ? "" : "abc");
        net_call_release(&c[i]);
    }
    assert_null(net_accept(b.listener));
    backend_close(&b);
}

static void large_bodies_arrive_whole(void **state)
{
    struct backend b;
    struct net_call c;
    backend_open(&b, state, (struct br_client_config){0});
    net_call_init(b.rig, &c, true, 5u << 20);
    br_client_send(b.client, &c.x);
    backend_accept(&b, 100, false);
    BACKEND_UNTIL(&b, b.h2->n_streams == 1 && b.h2->streams[0].ended);
    assert_true(b.h2->streams[0].intact);
    assert_int_equal(b.h2->streams[0].bytes, (5u << 20) + 5);
    h2_server_answer(b.h2, 1, 0);
    BACKEND_UNTIL(&b, c.n_done);
    assert_int_equal(c.grpc_status, 0);
    net_call_release(&c);
    backend_close(&b);
}

enum state { WAITING, CONNECTING, SENT, HALF_SENT, HALF_READ, DONE, STATES };

static void reach(struct backend *b, struct net_call *c, enum state s)
{
    br_client_send(b->client, &c->x);
    if (s == WAITING)
        return;
    if (s == CONNECTING) {
        net_step(b->rig);
        return;
    }
    backend_accept(b, 100, s == HALF_SENT);
    if (s == HALF_SENT) {
        BACKEND_UNTIL(b, b->h2->n_streams == 1 && b->h2->streams[0].bytes == 65535);
        return;
    }
    BACKEND_UNTIL(b, b->h2->n_streams == 1 && b->h2->streams[0].ended);
    if (s == HALF_READ) { /* the backend sends headers without a body */
        nghttp2_nv nv = {(uint8_t *)(uintptr_t) ":status", (uint8_t *)(uintptr_t) "200", 7, 3, 0};
        assert_int_equal(nghttp2_submit_headers(b->h2->session, 0, 1, NULL, &nv, 1, NULL), 0);
        for (int i = 0; i < 3; i++) {
            (void)h2_server_turn(b->h2);
            net_step(b->rig);
        }
    } else if (s == DONE) {
        h2_server_answer(b->h2, 1, 0);
        BACKEND_UNTIL(b, c->n_done);
    }
}

static void cancel_in_every_state(void **state)
{
    for (int s = 0; s < STATES; s++) {
        struct backend b;
        struct net_call c, next;
        backend_open(&b, state, (struct br_client_config){0});
        net_call_init(b.rig, &c, true, s == HALF_SENT ? 4u << 20 : 1000);
        net_call_init(b.rig, &next, true, 5);
        reach(&b, &c, (enum state)s);
        br_client_cancel(b.client, &c.x);
        net_call_release(&c);
        assert_int_equal(c.n_done, s == DONE);
        /* The connection and its other calls continue. If the connection is stuck, it does not have
         * credit for any call. */
        br_client_send(b.client, &next.x);
        if (!b.h2)
            backend_accept(&b, 100, false);
        if (s == HALF_SENT) {
            BACKEND_UNTIL(&b, b.h2->streams[0].closed);
            assert_int_equal(b.h2->streams[0].error, NGHTTP2_CANCEL);
            assert_int_equal(nghttp2_session_consume_connection(b.h2->session, 65535), 0);
        }
        unsigned last = s > CONNECTING ? 1 : 0;
        BACKEND_UNTIL(&b, b.h2->n_streams > last && b.h2->streams[last].ended);
        assert_int_equal(b.h2->n_streams, last + 1);
        h2_server_answer(b.h2, b.h2->streams[last].id, 0);
        BACKEND_UNTIL(&b, next.n_done);
        assert_int_equal(next.grpc_status, 0);
        assert_int_equal(c.n_done, s == DONE);
        net_call_release(&next);
        backend_close(&b);
    }
}

static void free_in_every_state(void **state)
{
    for (int s = 0; s < STATES; s++) {
        struct backend b;
        struct net_call c;
        backend_open(&b, state, (struct br_client_config){0});
        net_call_init(b.rig, &c, true, s == HALF_SENT ? 4u << 20 : 1000);
        reach(&b, &c, (enum state)s);
        backend_close(&b);
        assert_int_equal(c.n_done, 1);
        assert_int_equal(c.error, s == DONE ? 0 : BR_ECLOSED);
        net_call_release(&c);
    }
}

static void peer_closes_in_every_state(void **state)
{
    for (int s = SENT; s < DONE; s++) {
        struct backend b;
        struct net_call c;
        backend_open(&b, state, (struct br_client_config){0});
        net_call_init(b.rig, &c, true, s == HALF_SENT ? 4u << 20 : 1000);
        reach(&b, &c, (enum state)s);
        h2_server_free(b.h2);
        b.h2 = NULL;
        NET_UNTIL(b.rig, c.n_done);
        assert_int_not_equal(c.error, 0);
        net_idle(b.rig, 5);
        assert_int_equal(c.n_done, 1);
        net_call_release(&c);
        backend_close(&b);
    }
}

/* RFC 9113 section 6.8: the server has not processed streams above the last stream of the GOAWAY.
 * The other streams are finished. */
static void goaway_with_calls_under_way(void **state)
{
    struct backend b;
    struct net_call c[3];
    backend_open(&b, state, (struct br_client_config){0});
    for (int i = 0; i < 3; i++) {
        net_call_init(b.rig, &c[i], true, 100);
        if (i < 2)
            br_client_send(b.client, &c[i].x);
    }
    backend_accept(&b, 100, false);
    BACKEND_UNTIL(&b, b.h2->n_streams == 2 && b.h2->streams[1].ended);
    assert_int_equal(nghttp2_submit_goaway(b.h2->session, 0, 1, NGHTTP2_NO_ERROR, NULL, 0), 0);
    BACKEND_UNTIL(&b, c[1].n_done);
    assert_int_equal(c[1].error, BR_EPROTO);
    assert_non_null(strstr(c[1].error_text, "REFUSED_STREAM"));
    assert_int_equal(c[0].n_done, 0);
    struct h2_server *old = b.h2;
    h2_server_answer(old, 1, 0);
    BACKEND_UNTIL(&b, c[0].n_done);
    assert_int_equal(c[0].grpc_status, 0);
    NET_UNTIL(b.rig, !h2_server_turn(old)); /* the client no longer needs the old connection */

    br_client_send(b.client, &c[2].x);
    backend_accept(&b, 100, false);
    BACKEND_UNTIL(&b, b.h2->n_streams == 1 && b.h2->streams[0].ended);
    h2_server_answer(b.h2, 1, 0);
    BACKEND_UNTIL(&b, c[2].n_done);
    assert_int_equal(c[2].grpc_status, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(c[i].n_done, 1);
        net_call_release(&c[i]);
    }
    h2_server_free(old);
    backend_close(&b);
}

/* While a connection that received a GOAWAY is drained, new calls use another connection. */
static void calls_go_on_during_a_goaway(void **state)
{
    struct backend b;
    struct net_call first, second;
    backend_open(&b, state, (struct br_client_config){.max_connections = 2});
    net_call_init(b.rig, &first, true, 100);
    net_call_init(b.rig, &second, true, 100);
    br_client_send(b.client, &first.x);
    backend_accept(&b, 100, false);
    BACKEND_UNTIL(&b, b.h2->n_streams == 1 && b.h2->streams[0].ended);
    struct h2_server *old = b.h2;
    assert_int_equal(nghttp2_submit_goaway(old->session, 0, 1, NGHTTP2_NO_ERROR, NULL, 0), 0);
    for (int i = 0; i < 5; i++) {
        (void)h2_server_turn(old);
        net_step(b.rig);
    }
    br_client_send(b.client, &second.x);
    backend_accept(&b, 100, false);
    BACKEND_UNTIL(&b, b.h2->n_streams == 1 && b.h2->streams[0].ended);
    h2_server_answer(b.h2, 1, 0);
    BACKEND_UNTIL(&b, second.n_done);
    assert_int_equal(first.n_done, 0);
    h2_server_answer(old, 1, 0);
    NET_UNTIL(b.rig, (h2_server_turn(old), first.n_done));
    assert_int_equal(first.grpc_status, 0);
    net_call_release(&first);
    net_call_release(&second);
    h2_server_free(old);
    backend_close(&b);
}

static void reset_by_the_peer(void **state)
{
    for (int s = SENT; s < DONE; s++) {
        struct backend b;
        struct net_call c, other;
        backend_open(&b, state, (struct br_client_config){0});
        net_call_init(b.rig, &c, true, s == HALF_SENT ? 4u << 20 : 1000);
        net_call_init(b.rig, &other, true, 5);
        reach(&b, &c, (enum state)s);
        assert_int_equal(nghttp2_submit_rst_stream(b.h2->session, 0, 1, NGHTTP2_INTERNAL_ERROR), 0);
        BACKEND_UNTIL(&b, c.n_done);
        assert_int_equal(c.error, BR_EPROTO);
        net_call_release(&c);
        if (s == HALF_SENT)
            assert_int_equal(nghttp2_session_consume_connection(b.h2->session, 65535), 0);
        br_client_send(b.client, &other.x);
        BACKEND_UNTIL(&b, b.h2->n_streams == 2 && b.h2->streams[1].ended);
        h2_server_answer(b.h2, 3, 0);
        BACKEND_UNTIL(&b, other.n_done);
        assert_int_equal(other.grpc_status, 0);
        net_call_release(&other);
        backend_close(&b);
    }
}

static void answer_before_the_whole_body(void **state)
{
    for (int status = 0; status < 9; status += 8) {
        struct backend b;
        struct net_call c;
        backend_open(&b, state, (struct br_client_config){0});
        net_call_init(b.rig, &c, true, 4u << 20);
        reach(&b, &c, HALF_SENT);
        h2_server_answer(b.h2, 1, status);
        BACKEND_UNTIL(&b, c.n_done);
        assert_int_equal(c.error, 0);
        assert_int_equal(c.grpc_status, status);
        BACKEND_UNTIL(&b, b.h2->streams[0].closed);
        assert_int_equal(b.h2->streams[0].error, NGHTTP2_NO_ERROR);
        assert_int_equal(c.n_done, 1);
        net_call_release(&c);
        backend_close(&b);
    }
}

static void answer_over_the_limit(void **state)
{
    struct backend b;
    struct net_call c;
    backend_open(&b, state, (struct br_client_config){0});
    net_call_init(b.rig, &c, true, 10);
    c.x.max_response = 2;
    reach(&b, &c, SENT);
    h2_server_answer(b.h2, 1, 0);
    BACKEND_UNTIL(&b, c.n_done);
    assert_int_equal(c.error, BR_EFULL);
    net_call_release(&c);
    backend_close(&b);
}

static void keepalive_detects_dead_connections(void **state)
{
    struct backend b;
    struct net_call c;
    backend_open(&b, state,
                 (struct br_client_config){.keepalive_time_ms = 50, .keepalive_timeout_ms = 100});
    net_call_init(b.rig, &c, true, 10);
    reach(&b, &c, SENT);
    /* the backend answered the PINGs, so the connection stays open */
    BACKEND_UNTIL(&b, b.h2->n_pings >= 3);
    assert_int_equal(c.n_done, 0);
    NET_UNTIL(b.rig, c.n_done); /* from now on, the backend does not answer */
    assert_int_equal(c.error, BR_ECLOSED);
    net_call_release(&c);
    backend_close(&b);
}

static void keepalive_sends_no_pings_on_idle_connections(void **state)
{
    for (int without = 0; without < 2; without++) {
        struct backend b;
        struct net_call c;
        backend_open(&b, state,
                     (struct br_client_config){.keepalive_time_ms = 50,
                                               .keepalive_timeout_ms = 100,
                                               .keepalive_without_stream = without});
        net_call_init(b.rig, &c, true, 10);
        reach(&b, &c, DONE);
        unsigned before = b.h2->n_pings;
        if (without)
            BACKEND_UNTIL(&b, b.h2->n_pings > before + 1);
        else
            net_idle(b.rig, 300);
        assert_true(h2_server_turn(b.h2));
        assert_int_equal(b.h2->n_pings > before, without);
        net_call_release(&c);
        backend_close(&b);
    }
}

/* Braid's client and Braid's server exchange bodies of about the sizes of windows, frames and
 * reads. */
static void client_and_server_exchange_bodies_of_all_sizes(void **state)
{
    static const size_t sizes[] = {0,     1,      4,      16379,   16384,   65530,
                                   65536, 262139, 262144, 1048571, 4194304, 20000000};
    struct net_rig *rig = *state;
    struct net_service service;
    char url[64];
    net_service_init(&service);
    struct br_server *server = net_serve(rig, &service, NULL);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", br_server_port(server));
    for (int grpc = 0; grpc < 2; grpc++) {
        struct br_client *client =
            net_connect(rig, &(struct br_client_config){.endpoint = url, .grpc = grpc});
        service.grpc = grpc;
        for (size_t i = 0; i < BR_COUNT(sizes); i++) {
            struct net_call c;
            service.body_bytes = 0;
            service.body_hash = 0;
            service.answer_bytes = sizes[i] < 4000000 ? sizes[i] : 0;
            net_call_init(rig, &c, grpc, sizes[i]);
            net_call(rig, client, &c);
            assert_int_equal(c.error, 0);
            assert_int_equal(c.http_status, 200);
            assert_int_equal(service.body_bytes, sizes[i]);
            assert_int_equal(c.response_bytes, service.answer_bytes ? service.answer_bytes : 3);
            uint8_t *sent = malloc(sizes[i] + 1);
            for (size_t k = 0; k < sizes[i]; k++)
                sent[k] = net_byte_at(k);
            if (sizes[i])
                assert_true(service.body_hash == net_hash(sent, sizes[i]));
            free(sent);
            net_call_release(&c);
        }
        br_client_free(client);
    }
    br_server_free(server);
}

SUITE(net_h2)
{
    const struct CMUnitTest tests[] = {
        NET_TEST(answers_in_any_order),
        NET_TEST(reset_in_every_state),
        NET_TEST(freed_with_requests_under_way),
        NET_TEST(early_answers),
        NET_TEST(stuck_requests_are_closed),
        NET_TEST(windows_that_never_open),
        NET_TEST(over_the_limit_a_connection_has_one_request),
        NET_TEST(windows_that_open_by_a_byte),
        NET_TEST(idle_connections_get_a_goaway),
        NET_TEST(idle_is_without_requests),
        NET_TEST(the_first_request_has_a_timeout),
        NET_TEST(incomplete_frames_have_a_timeout),
        NET_TEST(unanswered_pings_end_the_connection),
        NET_TEST(old_connections_end_after_a_grace_period),
        NET_TEST(stop_waits_for_requests_in_progress),
        NET_TEST(floods_end_with_a_goaway),
        NET_TEST(legitimate_traffic_is_not_a_flood),
        NET_TEST(wrong_prefaces),
        NET_TEST(calls_share_a_connection),
        NET_TEST(large_bodies_arrive_whole),
        NET_TEST(cancel_in_every_state),
        NET_TEST(free_in_every_state),
        NET_TEST(peer_closes_in_every_state),
        NET_TEST(goaway_with_calls_under_way),
        NET_TEST(calls_go_on_during_a_goaway),
        NET_TEST(reset_by_the_peer),
        NET_TEST(answer_before_the_whole_body),
        NET_TEST(answer_over_the_limit),
        NET_TEST(keepalive_detects_dead_connections),
        NET_TEST(keepalive_sends_no_pings_on_idle_connections),
        NET_TEST(client_and_server_exchange_bodies_of_all_sizes),
    };
    return RUN(tests, NULL, NULL);
}
