/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the server on real sockets. Raw clients are slow, do not read, or are too many. Further
 * tests cover how the server stops, applies backpressure and listens. */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/memory.h"
#include "net/server_internal.h"
#include "tests/support/net_served.h"
#include "tests/support/test.h"

/* --- Clients that are slow or do not read ----------------------------------------------------- */

static const struct br_server_config short_timeouts = {.handshake_timeout_ms = 200,
                                                       .request_timeout_ms = 300,
                                                       .linger_timeout_ms = 100,
                                                       .stop_timeout_ms = 200};

/* Sends `first`, and then `text` every 10 ms until the server closes the connection. Returns the
 * duration in milliseconds. */
static uint64_t send_slowly(struct fixture *f, const char *first, const char *text)
{
    struct net_peer *p = net_served_dial(f);
    net_puts(f->rig, p, first);
    uint64_t start = net_now(f->rig);
    net_start_deadline(f->rig);
    while (!net_poll(p)) {
        net_check_deadline(f->rig, "the end of a slow client", __FILE__, __LINE__);
        (void)net_try(p, text, strlen(text));
        net_idle(f->rig, 10);
    }
    uint64_t took = net_now(f->rig) - start;
    net_hang_up(p);
    return took;
}

static void slow_clients_are_closed(void **state)
{
    static const char *const firsts[] = {
        "",                                 /* nothing at all */
        "PRI * HTTP/2.0\r\n\r\nSM",         /* half a preface */
        "GET / HTTP/1.1\r\nHost: h\r\nA: ", /* a head without end */
        POST(1000000),                      /* a body, byte by byte */
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
    };
    static const char *const drips[] = {"", "", "x", "x", "1\r\na\r\n"};
    struct fixture f;
    net_served_open(&f, state, &short_timeouts);
    for (size_t i = 0; i < BR_COUNT(firsts); i++) {
        uint64_t took = send_slowly(&f, firsts[i], drips[i]);
        assert_in_range(took, i < 2 ? 150 : 250, 5000);
    }
    assert_int_equal(f.service.n_begun, 2);
    assert_int_equal(f.service.n_gone, 2);
    net_served_finish(&f);
}

static void steady_clients_are_kept(void **state)
{
    static char piece[4096];
    struct fixture f;
    net_served_open(&f, state, &short_timeouts);
    struct net_peer *p = net_served_dial(&f);
    net_puts(f.rig, p, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 40960\r\n\r\n");
    /* 4 KiB every 100 ms: the slowest rate that is allowed, for more than a second */
    for (int i = 0; i < 10; i++) {
        net_send(f.rig, p, piece, sizeof piece);
        net_idle(f.rig, 100);
    }
    NET_UNTIL(f.rig, net_count(p, OK) == 1);
    assert_int_equal(f.service.body_bytes, 40960);
    net_idle(f.rig, 700); /* idle connections are allowed without idle_timeout */
    net_puts(f.rig, p, GET);
    NET_UNTIL(f.rig, net_count(p, OK) == 2);
    net_hang_up(p);
    net_served_finish(&f);
}

/* The body makes progress, but at less than min_body_rate. */
static void bodies_below_the_least_rate_are_closed(void **state)
{
    struct fixture f;
    struct br_server_config config = short_timeouts;
    /* bytes/s, measured over request_timeout_ms: 300 KiB in 300 ms */
    config.min_body_rate = 1 << 20;
    net_served_open(&f, state, &config);
    static char piece[4097];
    memset(piece, 'x', sizeof piece - 1); /* sent every 10 ms: 400 KiB a second */
    uint64_t took = send_slowly(&f, POST(60000000), piece);
    assert_in_range(took, 250, 5000);
    assert_int_equal(f.service.n_gone, 1);
    net_served_finish(&f);
    config.min_body_rate = -1; /* any rate above zero is enough */
    net_served_open(&f, state, &config);
    struct net_peer *p = net_served_dial(&f);
    net_puts(f.rig, p, POST(400000));
    for (int i = 0; i < 100; i++) {
        net_send(f.rig, p, piece, 4000);
        net_idle(f.rig, 10);
    }
    NET_UNTIL(f.rig, net_count(p, OK) == 1);
    net_hang_up(p);
    net_served_finish(&f);
}

static void readers_that_stop_are_closed(void **state)
{
    struct fixture f;
    net_served_open(&f, state, &short_timeouts);
    f.service.answer_bytes = 32u << 20;
    struct net_peer *p = net_served_dial(&f);
    p->deaf = true;
    net_puts(f.rig, p, GET);
    NET_UNTIL(f.rig, f.service.n_bodies == 1);
    NET_UNTIL(f.rig, net_connections(f.rig) == 0);
    assert_int_equal(br_pool_live(f.rig->host->pool), 0);
    net_hang_up(p);
    net_served_finish(&f);
}

static void slow_readers_get_the_whole_answer(void **state)
{
    struct fixture f;
    net_served_open(&f, state, &short_timeouts);
    f.service.answer_bytes = 16u << 20;
    struct net_peer *p = net_served_dial(&f);
    net_puts(f.rig, p, GET);
    size_t got = 0;
    uint8_t *sip = malloc(65536);
    uint64_t start = net_now(f.rig);
    net_start_deadline(f.rig);
    while (got < f.service.answer_bytes) {
        net_check_deadline(f.rig, "a large answer", __FILE__, __LINE__);
        bool early = got > f.service.answer_bytes * (net_now(f.rig) - start) / 400;
        ssize_t n = early ? -1 : recv(p->fd, sip, 65536, 0);
        assert_true(n != 0);
        got += n > 0 ? (size_t)n : 0;
        net_step(f.rig);
    }
    /* longer than the timeout that applies without progress */
    assert_true(net_now(f.rig) - start > 300);
    free(sip);
    net_hang_up(p);
    net_served_finish(&f);
}

/* A client pipelines requests without end and does not read. The server must stop reading from
 * it. */
static void a_client_that_pipelines_and_never_reads_is_paused(void **state)
{
    struct fixture f;
    net_served_open(&f, state, NULL);
    f.service.answer_bytes = 1000;
    struct net_peer *p = net_served_dial(&f);
    p->deaf = true;
    size_t len = 0, most = 0;
    char *many = malloc(1u << 20);
    for (; len + sizeof GET < 1u << 20; len += sizeof GET - 1)
        memcpy(many + len, GET, sizeof GET - 1);
    uint64_t quiet = net_now(f.rig);
    while (net_now(f.rig) - quiet < 200) {
        /* `at` is the offset in the request: a write may send a part of a request, and the next
         * write continues there. */
        static size_t at;
        size_t n = net_try(p, many + at, len - at);
        at = (at + n) % len;
        if (n)
            quiet = net_now(f.rig);
        net_step(f.rig);
        size_t live = br_pool_live(f.rig->host->pool);
        most = live > most ? live : most;
    }
    assert_true(most < 2u << 20);
    assert_true(f.service.n_begun > 100);
    /* the server stops when the sockets' buffers are full */
    assert_true(f.service.n_begun < 100000);
    unsigned before = f.rig->n_steps;
    net_idle(f.rig, 100);
    assert_true(f.rig->n_steps - before < 200);
    /* When the client finally reads, it gets an answer to every request that the server read. */
    p->deaf = false;
    unsigned seen = 0;
    NET_UNTIL(f.rig, (net_poll(p), f.service.n_begun > 0 && (seen = f.service.n_begun) &&
                                       p->n_in > (size_t)seen * 1000));
    free(many);
    net_hang_up(p);
    net_served_finish(&f);
}

static void idle_connections_end_gently(void **state)
{
    struct br_server_config config = short_timeouts;
    struct fixture f;
    config.idle_timeout_ms = 200;
    net_served_open(&f, state, &config);
    struct net_peer *p = net_served_dial(&f);
    net_puts(f.rig, p, GET);
    NET_UNTIL(f.rig, net_poll(p));
    assert_false(p->reset);
    assert_int_equal(net_count(p, OK), 1);
    net_hang_up(p);
    net_served_finish(&f);
}

/* --- Stopping --------------------------------------------------------------------------------- */

static void on_stopped(void *arg)
{
    ++*(unsigned *)arg;
}

static void stop_waits_for_the_pipeline_only(void **state)
{
    struct fixture f;
    unsigned stopped = 0;
    net_served_open(&f, state, &short_timeouts);
    struct net_peer *idle = net_served_dial(&f), *held = net_served_dial(&f),
                    *half = net_served_dial(&f), *fresh = net_served_dial(&f);
    net_puts(f.rig, idle, GET);
    NET_UNTIL(f.rig, net_count(idle, OK) == 1);
    f.service.when = NET_LATER;
    net_puts(f.rig, held, GET);
    net_puts(f.rig, half, POST(10) "half");
    NET_UNTIL(f.rig,
              f.service.n_held == 1 && f.service.n_begun == 3 && net_connections(f.rig) == 4);

    f.rig->host->draining = true; /* the process ends */
    br_server_stop(f.server, on_stopped, &stopped);
    NET_UNTIL(f.rig, net_poll(idle) && net_poll(fresh)); /* at once */
    assert_int_equal(net_count(half, "HTTP"), 0);
    NET_UNTIL(f.rig, net_poll(half)); /* after stop_timeout */
    assert_int_equal(f.service.n_gone, 1);
    net_idle(f.rig, 400);
    /* the server waits for requests that the pipeline has not answered */
    assert_int_equal(stopped, 0);
    assert_false(net_poll(held));
    net_reply_all(&f.service);
    NET_UNTIL(f.rig, stopped == 1);
    assert_int_equal(net_count(held, OK), 1);
    assert_int_equal(net_count(held, "Connection: close"), 1);
    assert_int_equal(net_closed(f.rig, "stop"), 4); /* the server closed all four connections */
    struct net_peer *all[] = {idle, held, half, fresh};
    for (size_t i = 0; i < BR_COUNT(all); i++)
        net_hang_up(all[i]);
    net_served_finish(&f);
    assert_int_equal(stopped, 1);
}

/* A reload replaces the server while the process continues. A connection without a request so far
 * and a connection that is kept alive each get one more response. */
static void stop_answers_requests_on_their_way(void **state)
{
    const struct br_server_config config = {.stop_timeout_ms = 60000};
    struct fixture f;
    unsigned stopped = 0;
    net_served_open(&f, state, &config);
    struct net_peer *kept = net_served_dial(&f), *fresh = net_served_dial(&f);
    net_puts(f.rig, kept, GET);
    NET_UNTIL(f.rig, net_count(kept, OK) == 1 && net_connections(f.rig) == 2);
    br_server_stop(f.server, on_stopped, &stopped);
    net_puts(f.rig, kept, GET);
    net_puts(f.rig, fresh, GET);
    NET_UNTIL(f.rig, net_poll(kept) && net_poll(fresh));
    assert_int_equal(net_count(kept, OK), 2);
    assert_int_equal(net_count(kept, "Connection: close"), 1);
    assert_int_equal(net_count(fresh, OK), 1);
    assert_int_equal(net_count(fresh, "Connection: close"), 1);
    net_hang_up(kept);
    net_hang_up(fresh);
    NET_UNTIL(f.rig, stopped == 1);
    net_served_finish(&f);
}

static void stop_does_not_wait_for_a_client_that_does_not_read(void **state)
{
    struct fixture f;
    unsigned stopped = 0;
    struct br_server_config config = {.stop_timeout_ms = 200};
    net_served_open(&f, state, &config);
    f.service.answer_bytes = 32u << 20;
    struct net_peer *p = net_served_dial(&f);
    p->deaf = true;
    net_puts(f.rig, p, GET);
    NET_UNTIL(f.rig, f.service.n_bodies == 1);
    br_server_stop(f.server, on_stopped, &stopped);
    NET_UNTIL(f.rig, stopped == 1);
    net_hang_up(p);
    net_served_finish(&f);
}

static void stop_with_nothing(void **state)
{
    struct fixture f;
    unsigned stopped = 0;
    net_served_open(&f, state, NULL);
    unsigned port = br_server_port(f.server);
    assert_true(port > 0);
    br_server_stop(f.server, on_stopped, &stopped);
    assert_int_equal(stopped, 0); /* later */
    NET_UNTIL(f.rig, stopped == 1);
    net_served_finish(&f);
}

/* --- Backpressure ----------------------------------------------------------------------------- */

#define POST_MIB "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\n"
#define POST_MANY "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 60000000\r\n\r\n"

static unsigned pauses(struct fixture *f)
{
    return (unsigned)*br_metric(f->rig->host->metrics, BR_COUNTER, "braid_server_reads_paused", "");
}

/* While more bytes are buffered than the mark allows, the loop does not spin, and every client
 * makes progress. The buffered bytes stay near the mark. */
static void large_bodies_are_read_in_rotation(void **state)
{
    enum { CLIENTS = 12, BYTES = 1 << 20 };
    struct fixture f;
    static uint8_t body[BYTES];
    struct net_peer *p[CLIENTS];
    size_t at[CLIENTS] = {0}, most = 0;
    net_served_open(&f, state, NULL);
    f.service.when = NET_LATER;
    br_loop_set_mark(f.rig->loop, 256u << 10);
    for (int i = 0; i < CLIENTS; i++) {
        p[i] = net_served_dial(&f);
        net_puts(f.rig, p[i], POST_MIB);
    }
    NET_UNTIL(f.rig, f.service.n_begun == CLIENTS);
    unsigned steps = f.rig->n_steps;
    uint64_t start = net_now(f.rig);
    net_start_deadline(f.rig);
    while (f.service.n_held < CLIENTS) {
        net_check_deadline(f.rig, "bodies above the mark", __FILE__, __LINE__);
        for (int i = 0; i < CLIENTS; i++)
            at[i] += at[i] < BYTES ? net_try(p[i], body + at[i], BYTES - at[i]) : 0;
        net_step(f.rig);
        most = br_loop_held(f.rig->loop) > most ? br_loop_held(f.rig->loop) : most;
    }
    assert_true(pauses(&f) >= CLIENTS - 1);
    /* The buffers hold one whole body. Each of the other connections holds two reads and the spare
     * room of a buffer. */
    assert_in_range(most, BYTES, 2 * BYTES + (CLIENTS - 1) * (3u * BR_HELD_SMALL));
    assert_true(f.rig->n_steps - steps < (net_now(f.rig) - start) * 2 + 1000);
    assert_int_equal(f.service.body_bytes, (size_t)CLIENTS * BYTES);
    assert_int_equal(br_loop_held(f.rig->loop), 0); /* the pipeline holds the bodies */
    net_reply_all(&f.service);
    for (int i = 0; i < CLIENTS; i++) {
        NET_UNTIL(f.rig, net_count(p[i], OK) == 1);
        net_hang_up(p[i]);
    }
    net_served_finish(&f);
}

/* Sends twenty requests in sequence, and checks that none of them is delayed. */
static void check_not_paused(struct fixture *f)
{
    unsigned before = pauses(f);
    struct net_peer *p = net_served_dial(f);
    for (unsigned i = 1; i <= 20; i++) {
        net_puts(f->rig, p, GET POST(10) "0123456789");
        NET_UNTIL(f->rig, net_count(p, OK) == 2 * i);
    }
    assert_int_equal(pauses(f), before);
    net_hang_up(p);
}

/* One client sends a large part of its body and stops. The other clients do not wait for it, even
 * those with large bodies. */
static void an_unfinished_body_does_not_delay_others(void **state)
{
    enum { BYTES = 4 << 20 };
    struct fixture f;
    net_served_open(&f, state, NULL);
    br_loop_set_mark(f.rig->loop, 1u << 20);
    uint8_t *body = calloc(1, BYTES);
    struct net_peer *stuck = net_served_dial(&f), *large = net_served_dial(&f);
    net_puts(f.rig, stuck, POST_MANY);
    net_send(f.rig, stuck, body, BYTES);
    NET_UNTIL(f.rig, br_loop_held(f.rig->loop) >= BYTES);
    check_not_paused(&f);
    for (unsigned i = 1; i <= 5; i++) {
        net_puts(f.rig, large, POST_MIB);
        net_send(f.rig, large, body, 1 << 20);
        NET_UNTIL(f.rig, net_count(large, OK) == i);
    }
    check_not_paused(&f);
    free(body);
    net_hang_up(stuck);
    net_hang_up(large);
    NET_UNTIL(f.rig, br_loop_held(f.rig->loop) == 0);
    net_served_finish(&f);
}

/* Many connections buffer little data each, but more than the mark together. The server does not
 * pause any of them. */
static void small_bodies_are_never_paused(void **state)
{
    enum { CLIENTS = 100, BYTES = 30000 };
    struct fixture f;
    static uint8_t body[BYTES];
    struct net_peer *p[CLIENTS];
    net_served_open(&f, state, NULL);
    br_loop_set_mark(f.rig->loop, 1u << 20);
    for (int i = 0; i < CLIENTS; i++) {
        p[i] = net_served_dial(&f);
        net_puts(f.rig, p[i], POST(60000));
        net_send(f.rig, p[i], body, BYTES);
    }
    NET_UNTIL(f.rig, br_loop_held(f.rig->loop) >= CLIENTS * BYTES);
    check_not_paused(&f);
    assert_int_equal(pauses(&f), 0);
    for (int i = 0; i < CLIENTS; i++) {
        net_send(f.rig, p[i], body, BYTES);
        NET_UNTIL(f.rig, net_count(p[i], OK) == 1);
        net_hang_up(p[i]);
    }
    net_served_finish(&f);
}

/* A loop iteration reads only from a part of the connections, so that the exporter's socket is
 * served, too. Connections that always have more data do not delay connections that wait. */
static void many_connections_are_read_in_shares(void **state)
{
    enum {
        CLIENTS = 64,
        BYTES = 60000,
        BYTES_PER_ITERATION = (1 << 20) + BYTES + 200,
        N_ITERATIONS = 8
    };
    static const char head[] = POST(60000);
    struct fixture f;
    static uint8_t request[sizeof head - 1 + BYTES];
    struct net_peer *p[CLIENTS];
    memcpy(request, head, sizeof head - 1);
    net_served_open(&f, state, NULL);
    for (int i = 0; i < CLIENTS; i++)
        p[i] = net_served_dial(&f);
    NET_UNTIL(f.rig, net_connections(f.rig) == CLIENTS);
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(net_try(p[i], request, sizeof request), sizeof request);
    unsigned sent[CLIENTS] = {0}, n_answered = 0;
    for (int iteration = 0; iteration < N_ITERATIONS; iteration++) {
        net_step(f.rig); /* ends one loop iteration and begins the next */
        assert_true(f.service.body_bytes <= (size_t)(iteration + 2) * BYTES_PER_ITERATION);
        n_answered = 0;
        for (int i = 0; i < CLIENTS; i++) {
            unsigned n = net_count(p[i], OK);
            n_answered += n > 0;
            if (n > sent[i] && net_try(p[i], request, sizeof request) == sizeof request)
                sent[i]++;
        }
    }
    assert_int_equal(n_answered, CLIENTS);
    for (int i = 0; i < CLIENTS; i++) {
        NET_UNTIL(f.rig, net_count(p[i], OK) == sent[i] + 1);
        net_hang_up(p[i]);
    }
    net_served_finish(&f);
}

/* A connection that sends its body byte by byte does not delay whole requests of others. */
static void slow_senders_are_read_after_others(void **state)
{
    enum { CLIENTS = 200, SHARE = 64, N_ITERATIONS = CLIENTS / SHARE + 2 };
    static const char head[] = POST(60000);
    static const uint8_t bytes[300]; /* more bytes than fit into the first buffer */
    struct fixture f;
    struct net_peer *p[CLIENTS], *healthy;
    net_served_open(&f, state, NULL);
    for (int i = 0; i < CLIENTS; i++) {
        p[i] = net_served_dial(&f);
        net_puts(f.rig, p[i], head);
        net_puts(f.rig, p[i], "x");
    }
    healthy = net_served_dial(&f);
    NET_UNTIL(f.rig, net_connections(f.rig) == CLIENTS + 1);
    NET_UNTIL(f.rig, br_loop_held(f.rig->loop) >= CLIENTS * 256);
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(net_try(p[i], bytes, 1), 1);
    for (int iteration = 0; iteration < N_ITERATIONS; iteration++)
        /* Reading a head is also a small read. The connections count as slow only after these
         * iterations. */
        net_step(f.rig);
    size_t had = br_loop_held(f.rig->loop);
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(net_try(p[i], bytes, sizeof bytes), sizeof bytes);
    static const char whole[] = POST(2) "ok";
    assert_int_equal(net_try(healthy, (const uint8_t *)whole, sizeof whole - 1), sizeof whole - 1);
    net_step(f.rig); /* ends one loop iteration and begins the next */
    net_step(f.rig);
    assert_int_equal(net_count(healthy, OK), 1);
    size_t grown = br_loop_held(f.rig->loop) - had;
    for (int iteration = 0; iteration < N_ITERATIONS; iteration++)
        net_step(f.rig);
    size_t all = br_loop_held(f.rig->loop) - had;
    assert_true(all > 0 && grown * CLIENTS <= all * 2 * SHARE);
    for (int i = 0; i < CLIENTS; i++)
        net_hang_up(p[i]);
    net_hang_up(healthy);
    net_served_finish(&f);
}

/* The pipeline bounds the data that it holds, so the server does not pause connections for it. */
static void data_in_the_pipeline_does_not_pause_connections(void **state)
{
    struct fixture f;
    net_served_open(&f, state, NULL);
    br_loop_set_mark(f.rig->loop, 1000);
    struct br_buf *queue = br_buf_new(f.rig->host->pool, 1u << 20);
    assert_non_null(queue);
    check_not_paused(&f);
    br_buf_unref(queue);
    net_served_finish(&f);
}

/* --- Listeners -------------------------------------------------------------------------------- */

static int serve_unix(struct net_rig *rig, struct net_service *s, const char *path,
                      struct br_server **ret, struct br_err *err)
{
    struct br_server_config config = {
        .name = "test", .what = "test", .endpoint = path, .transport = "unix"};
    return rig->host->ops->serve(rig->host, &config, &s->service, ret, err);
}

static void unix_sockets(void **state)
{
    struct net_rig *rig = *state;
    struct net_service service;
    struct br_server *server, *second;
    struct br_err err = {0};
    char directory[] = "/tmp/net-XXXXXX", path[64];
    struct stat st;
    net_service_init(&service);
    assert_non_null(mkdtemp(directory));
    (void)snprintf(path, sizeof path, "%s/socket", directory);

    /* A socket that a killed process left behind is replaced. A socket in use, or any other
     * file, is not. */
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    memcpy(addr.sun_path, path, strlen(path) + 1);
    int abandoned = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(abandoned, (struct sockaddr *)&addr, sizeof addr), 0);
    close(abandoned);
    assert_int_equal(serve_unix(rig, &service, path, &server, &err), 0);
    assert_int_equal(br_server_port(server), 0);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(serve_unix(rig, &service, path, &second, &err), BR_EIO);

    struct br_client_config config = {.endpoint = path};
    char url[80];
    (void)snprintf(url, sizeof url, "unix://%s", path);
    config.endpoint = url;
    for (int grpc = 0; grpc < 2; grpc++) {
        struct net_call call;
        config.grpc = grpc;
        service.grpc = grpc;
        struct br_client *client = net_connect(rig, &config);
        net_call_init(rig, &call, grpc, 100000);
        net_call(rig, client, &call);
        assert_int_equal(call.error, 0);
        assert_int_equal(call.http_status, 200);
        assert_int_equal(service.body_bytes, 100000 * (grpc + 1));
        net_call_release(&call);
        br_client_free(client);
    }
    br_server_free(server);
    NET_UNTIL(rig, lstat(path, &st) != 0); /* the server removes its socket */

    int file = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(serve_unix(rig, &service, path, &server, &err), BR_EIO);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    unlink(path);
    rmdir(directory);
}

static bool has_ipv6(void)
{
    unsigned port = 0;
    int probe = net_listen(AF_INET6, &port);
    if (probe < 0)
        return false;
    close(probe);
    return true;
}

static void ipv6(void **state)
{
    struct net_rig *rig = *state;
    struct net_service service;
    struct net_call call;
    char url[64];
    struct br_server_config config = {.endpoint = "[::1]:0"};
    net_service_init(&service);
    struct br_server *server = net_serve(rig, &service, &config);
    (void)snprintf(url, sizeof url, "http://[::1]:%u", br_server_port(server));
    struct br_client *client = net_connect(rig, &(struct br_client_config){.endpoint = url});
    net_call_init(rig, &call, false, 10);
    net_call(rig, client, &call);
    assert_int_equal(call.http_status, 200);
    net_call_release(&call);
    br_client_free(client);
    br_server_free(server);
}

static void no_descriptors_left(void **state)
{
    struct fixture f;
    struct rlimit before, none;
    net_served_open(&f, state, NULL);
    struct net_peer *p = net_served_dial(&f), *late = net_served_dial(&f);
    NET_UNTIL(f.rig, net_connections(f.rig) == 2);
    struct net_peer *waiting = net_served_dial(&f);
    f.service.when = NET_LATER;
    net_puts(f.rig, p, GET);
    net_puts(f.rig, late, GET);
    NET_UNTIL(f.rig,
              f.service.n_held == 2); /* no connection is idle, so the server cannot close one */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    unsigned steps = f.rig->n_steps;
    net_idle(f.rig, 300);
    unsigned spent = f.rig->n_steps - steps;
    f.service.when = NET_IN_BODY; /* the limit does not affect other addresses */
    net_reply_all(&f.service);
    NET_UNTIL(f.rig, net_count(p, OK) == 1 && net_count(late, OK) == 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(spent < 600);
    net_puts(f.rig, waiting, GET);
    NET_UNTIL(f.rig, net_count(waiting, OK) == 1);
    net_hang_up(p);
    net_hang_up(late);
    net_hang_up(waiting);
    net_served_finish(&f);
}

/* --- Limits of connections -------------------------------------------------------------------- */

/* Sends a request on a connection and answers it, which makes the connection the last one used. */
static void use(struct fixture *f, struct net_peer *p)
{
    unsigned n = net_count(p, OK);
    net_puts(f->rig, p, GET);
    NET_UNTIL(f->rig, net_count(p, OK) == n + 1);
}

/* The connection that was idle for the longest is closed for a new one. If all have requests,
 * the new connection is closed. */
static void idle_connections_are_closed_for_new_ones(void **state)
{
    struct fixture f;
    struct net_peer *p[5];
    net_served_open(&f, state, &(struct br_server_config){.max_connections = 3});
    for (int i = 0; i < 3; i++) {
        p[i] = net_served_dial(&f);
        use(&f, p[i]);
    }
    use(&f, p[0]);
    p[3] = net_served_dial(&f);
    use(&f, p[3]);
    NET_UNTIL(f.rig, net_poll(p[1]));
    assert_false(net_poll(p[0]) || net_poll(p[2]) || net_poll(p[3]));
    assert_int_equal(net_closed(f.rig, "made_room"), 1);

    f.service.when = NET_LATER;
    net_puts(f.rig, p[0], GET);
    net_puts(f.rig, p[2], GET);
    net_puts(f.rig, p[3], GET);
    NET_UNTIL(f.rig, f.service.n_held == 3);
    p[4] = net_served_dial(&f);
    NET_UNTIL(f.rig, net_poll(p[4]));
    assert_int_equal(net_closed(f.rig, "limit"), 1);
    assert_int_equal(net_connections(f.rig), 3);
    f.service.when = NET_IN_BODY;
    net_reply_all(&f.service);
    NET_UNTIL(f.rig, net_count(p[0], OK) == 3 && net_count(p[3], OK) == 2);
    for (int i = 0; i < 5; i++)
        net_hang_up(p[i]);
    net_served_finish(&f);
}

/* While the process exceeds its memory limit, a server accepts only a few connections. */
static void few_connections_above_the_memory_limit(void **state)
{
    enum { FEW = 8 };
    struct br_memory memory = {0};
    struct fixture f;
    struct net_peer *p[FEW], *refused;
    net_served_open(&f, state, NULL);
    br_pool_set_memory(f.rig->host->pool, &memory);
    br_memory_limit(&memory, 1, 1);
    for (int i = 0; i < FEW; i++) {
        p[i] = net_served_dial(&f);
        use(&f, p[i]);
    }
    refused = net_served_dial(&f);
    NET_UNTIL(f.rig, net_poll(refused));
    net_hang_up(refused);
    assert_int_equal(net_closed(f.rig, "memory"), 1);
    assert_int_equal(net_connections(f.rig), FEW);
    use(&f, p[0]); /* existing connections continue */
    atomic_store(&memory.hard, SIZE_MAX);
    refused = net_served_dial(&f);
    use(&f, refused);
    br_pool_set_memory(f.rig->host->pool, f.rig->host->memory);
    net_hang_up(refused);
    for (int i = 0; i < FEW; i++)
        net_hang_up(p[i]);
    net_served_finish(&f);
}

/* Connects from 127.0.0.`host`. */
static struct net_peer *dial_from(struct fixture *f, unsigned host)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000u + host)};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)br_server_port(f->server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return net_peer_of(fd);
}

static void an_address_at_its_limit_closes_its_idle_connection(void **state)
{
    struct fixture f;
    net_served_open(&f, state, &(struct br_server_config){.max_connections_per_address = 2});
    struct net_peer *other = dial_from(&f, 2), *first = dial_from(&f, 3),
                    *second = dial_from(&f, 3);
    use(&f, other);
    use(&f, first);
    use(&f, second);
    for (unsigned i = 1; i <= 5; i++) {
        struct net_peer *next = dial_from(&f, 3);
        use(&f, next);
        NET_UNTIL(f.rig, net_poll(first));
        net_hang_up(first);
        first = second;
        second = next;
        assert_int_equal(net_closed(f.rig, "made_room"), i);
    }
    assert_false(net_poll(other));
    net_hang_up(first);
    net_hang_up(second);
    NET_UNTIL(f.rig, net_connections(f.rig) == 1);
    first = dial_from(&f, 3); /* the closed connections do not count any more */
    second = dial_from(&f, 3);
    use(&f, first);
    use(&f, second);
    assert_int_equal(net_closed(f.rig, "made_room"), 5);
    net_hang_up(first);
    net_hang_up(second);
    net_hang_up(other);
    net_served_finish(&f);
}

/* Idle connections use all descriptors: new connections replace them. */
static void idle_connections_release_descriptors(void **state)
{
    enum { IDLE = 8, COME = 20 };
    struct fixture f;
    struct rlimit before, none;
    struct net_peer *idle[IDLE], *p[COME];
    net_served_open(&f, state, NULL);
    for (int i = 0; i < IDLE; i++)
        idle[i] = net_served_dial(&f);
    NET_UNTIL(f.rig, net_connections(f.rig) == IDLE);
    for (int i = 0; i < COME; i++)
        p[i] = net_served_dial(&f);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int lowest = dup(0);
    assert_true(lowest >= 0);
    close(lowest);
    none = before;
    none.rlim_cur = (rlim_t)lowest;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (int i = 0; i < COME; i++)
        net_puts(f.rig, p[i], "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    NET_UNTIL(f.rig, f.service.n_replied == COME);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(net_closed(f.rig, "made_room") >= 1);
    for (int i = 0; i < COME; i++) {
        NET_UNTIL(f.rig, net_count(p[i], OK) == 1);
        net_hang_up(p[i]);
    }
    for (int i = 0; i < IDLE; i++)
        net_hang_up(idle[i]);
    net_served_finish(&f);
}

static void descriptors_are_raised(void **state)
{
    struct net_rig *rig = *state;
    struct rlimit before, low, now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = before.rlim_max / 2;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    br_net_raise_descriptors(rig->net);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(now.rlim_cur, before.rlim_max);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* The kernel detects a peer that has vanished: after 15 s and nine probes, like Go, or 30 s
 * after data that is not acknowledged. */
static void connections_have_tcp_keepalive(void **state)
{
    struct fixture f;
    net_served_open(&f, state, NULL);
    struct net_peer *p = net_served_dial(&f);
    struct sockaddr_in ours, theirs;
    socklen_t len = sizeof ours;
    NET_UNTIL(f.rig, net_connections(f.rig) == 1);
    assert_int_equal(getsockname(p->fd, (struct sockaddr *)&ours, &len), 0);
    int found = -1;
    for (int fd = 0; fd < 1024; fd++) {
        len = sizeof theirs;
        if (fd != p->fd && getpeername(fd, (struct sockaddr *)&theirs, &len) == 0 &&
            theirs.sin_family == AF_INET && theirs.sin_port == ours.sin_port)
            found = fd;
    }
    assert_true(found >= 0);
    static const int names[][3] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1},          {IPPROTO_TCP, TCP_KEEPIDLE, 15},
        {IPPROTO_TCP, TCP_KEEPINTVL, 15},       {IPPROTO_TCP, TCP_KEEPCNT, 9},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, 30000}, {IPPROTO_TCP, TCP_NODELAY, 1}};
    for (size_t i = 0; i < BR_COUNT(names); i++) {
        int value = 0;
        len = sizeof value;
        assert_int_equal(getsockopt(found, names[i][0], names[i][1], &value, &len), 0);
        assert_int_equal(value, names[i][2]);
    }
    net_hang_up(p);
    net_served_finish(&f);
}

static void thousands_of_connections(void **state)
{
    struct fixture f;
    net_served_open(&f, state, NULL);
    for (int i = 0; i < 3000; i++) {
        struct net_peer *p = net_served_dial(&f);
        static const char *const beginnings[] = {GET, POST(10) "hal",
                                                 "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"};
        net_puts(f.rig, p, beginnings[i % 3]);
        if (i % 2)
            net_step(f.rig);
        net_hang_up(p);
    }
    NET_UNTIL(f.rig, net_connections(f.rig) == 0 && br_pool_live(f.rig->host->pool) == 0);
    net_served_finish(&f);
}

/* A timer arms another timer that is due at once. Nothing else wakes the loop. */
static void on_zero(struct br_timer *t);

struct zero {
    struct br_timer timer;
    struct br_loop *loop;
    unsigned n;
};

static void on_zero(struct br_timer *t)
{
    struct zero *z = br_container_of(t, struct zero, timer);
    if (++z->n == 10)
        br_loop_stop(z->loop);
    else
        (void)br_host_timer(br_loop_host(z->loop), t, 0, on_zero);
}

static void timers_without_delay(void **state)
{
    (void)state;
    struct br_net *net = br_net_new();
    struct zero z = {0};
    struct br_err err;
    assert_int_equal(br_loop_new(net, 0, 1, &z.loop, &err), 0);
    assert_true(br_host_timer(br_loop_host(z.loop), &z.timer, 5, on_zero));
    alarm(20); /* if the loop sleeps forever, the alarm ends the test */
    br_loop_run(z.loop);
    alarm(0);
    assert_int_equal(z.n, 10);
    br_loop_free(z.loop);
    br_net_free(net);
}

/* A listener's table contains only addresses that have connections. The table has a maximum size,
 * and clients connect from many addresses. */
static void a_listener_forgets_addresses(void **state)
{
    struct br_listener listener = {.max_per_address = 2, .addresses = br_map_new(2)};
    struct br_client_address one = {.known = true, .bytes = {1}},
                             other = {.known = true, .bytes = {2}},
                             third = {.known = true, .bytes = {3}};
    unsigned n;
    (void)state;
    pthread_mutex_init(&listener.lock, NULL);
    assert_true(br_listener_note_address(&listener, &one, &n));
    assert_int_equal(n, 1);
    assert_true(br_listener_note_address(&listener, &one, &n));
    assert_int_equal(n, 2);
    assert_true(br_listener_note_address(&listener, &other, &n));
    assert_int_equal(br_map_count(listener.addresses), 2);
    assert_false(br_listener_note_address(&listener, &third, &n));
    br_listener_forget_address(&listener, &one);
    assert_int_equal(br_listener_address_count(&listener, &one), 1);
    assert_int_equal(br_map_count(listener.addresses), 2);
    br_listener_forget_address(&listener, &one);
    assert_int_equal(br_listener_address_count(&listener, &one), 0);
    assert_int_equal(br_map_count(listener.addresses), 1);
    assert_true(br_listener_note_address(&listener, &third, &n));
    assert_int_equal(n, 1);
    br_listener_forget_address(&listener, &third);
    br_listener_forget_address(&listener, &other);
    assert_int_equal(br_map_count(listener.addresses), 0);
    br_map_free(listener.addresses, NULL);
    pthread_mutex_destroy(&listener.lock);
}

SUITE(net_server)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_listener_forgets_addresses),
        NET_TEST(slow_clients_are_closed),
        NET_TEST(steady_clients_are_kept),
        NET_TEST(bodies_below_the_least_rate_are_closed),
        NET_TEST(readers_that_stop_are_closed),
        NET_TEST(slow_readers_get_the_whole_answer),
        NET_TEST(a_client_that_pipelines_and_never_reads_is_paused),
        NET_TEST(idle_connections_end_gently),
        NET_TEST(stop_waits_for_the_pipeline_only),
        NET_TEST(stop_answers_requests_on_their_way),
        NET_TEST(stop_does_not_wait_for_a_client_that_does_not_read),
        NET_TEST(stop_with_nothing),
        NET_TEST(large_bodies_are_read_in_rotation),
        NET_TEST(an_unfinished_body_does_not_delay_others),
        NET_TEST(small_bodies_are_never_paused),
        NET_TEST(data_in_the_pipeline_does_not_pause_connections),
        NET_TEST(many_connections_are_read_in_shares),
        NET_TEST(slow_senders_are_read_after_others),
        NET_TEST(unix_sockets),
        test_if(has_ipv6(), (struct CMUnitTest)NET_TEST(ipv6)),
        NET_TEST(no_descriptors_left),
        NET_TEST(idle_connections_are_closed_for_new_ones),
        NET_TEST(few_connections_above_the_memory_limit),
        NET_TEST(an_address_at_its_limit_closes_its_idle_connection),
        NET_TEST(idle_connections_release_descriptors),
        NET_TEST(descriptors_are_raised),
        NET_TEST(connections_have_tcp_keepalive),
        NET_TEST(thousands_of_connections),
        cmocka_unit_test(timers_without_delay),
    };
    return RUN(tests, NULL, NULL);
}
