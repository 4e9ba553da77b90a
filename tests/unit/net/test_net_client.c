/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the HTTP/1.1 client on real sockets, with raw servers. Also tests connecting, which is the
 * same for HTTP/2. */
#include <netdb.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "net/client.h"
#include "tests/support/fake_libc.h"
#include "tests/support/net_rig.h"
#include "tests/support/test.h"

#define OK_3 "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nabc"

/* --- Names ------------------------------------------------------------------------------------ */

static sem_t slow;
static atomic_int n_slow; /* look-ups that wait for `slow` */

static int resolve(const char *name, uint32_t *ret_addresses)
{
    if (strcmp(name, "slow.test") == 0) {
        n_slow++;
        while (sem_wait(&slow))
            ;
        n_slow--;
        return EAI_AGAIN;
    }
    if (strcmp(name, "several.test") != 0)
        return EAI_NONAME;
    ret_addresses[0] = 0x7f000002;
    ret_addresses[1] = 0x7f000003;
    ret_addresses[2] = 0x7f000001;
    return 3;
}

struct fixture {
    struct net_rig *rig;
    int listener;
    unsigned port;
    char url[64];
    struct br_client *client;
    struct net_peer *peer;
};

static void open_with(struct fixture *f, void **state, struct br_client_config config)
{
    *f = (struct fixture){.rig = *state};
    f->listener = net_listen(AF_INET, &f->port);
    assert_true(f->listener >= 0);
    (void)snprintf(f->url, sizeof f->url,
                   config.grpc ? "http://127.0.0.1:%u" : "http://127.0.0.1:%u/", f->port);
    config.endpoint = f->url;
    f->client = net_connect(f->rig, &config);
}

static void accept_one(struct fixture *f)
{
    f->peer = NULL;
    NET_UNTIL(f->rig, (f->peer = net_accept(f->listener)));
}

/* Sends the call and accepts its connection. */
static void begin(struct fixture *f, struct net_call *c)
{
    br_client_send(f->client, &c->x);
    accept_one(f);
}

static void answer(struct fixture *f, struct net_call *c, const char *text)
{
    net_puts(f->rig, f->peer, text);
    NET_UNTIL(f->rig, c->n_done);
}

static void finish(struct fixture *f)
{
    br_client_free(f->client);
    if (f->peer)
        net_hang_up(f->peer);
    close(f->listener);
}

/* Returns true once the whole request was received, byte for byte. */
static bool request_is_complete(struct net_peer *p, size_t bytes)
{
    (void)net_poll(p);
    const uint8_t *end = p->n_in ? memmem(p->in, p->n_in, "\r\n\r\n", 4) : NULL;
    if (!end || p->n_in - (size_t)(end + 4 - p->in) < bytes)
        return false;
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(end[4 + i], net_byte_at(i));
    assert_int_equal(p->n_in, (size_t)(end + 4 - p->in) + bytes);
    return true;
}

/* --- Exchanges -------------------------------------------------------------------------------- */

static void sends_and_reuses_its_connection(void **state)
{
    struct fixture f;
    struct net_call c;
    open_with(&f, state, (struct br_client_config){0});
    for (int i = 0; i < 3; i++) {
        size_t bytes = i == 2 ? 3u << 20 : 1000;
        net_call_init(f.rig, &c, false, bytes);
        br_client_send(f.client, &c.x);
        if (i == 0)
            accept_one(&f);
        f.peer->n_in = 0;
        NET_UNTIL(f.rig, request_is_complete(f.peer, bytes));
        assert_int_equal(net_count(f.peer, "POST /call HTTP/1.1\r\n"), 1);
        assert_int_equal(net_count(f.peer, "\r\nHost: 127.0.0.1:"), 1);
        answer(&f, &c, OK_3);
        assert_int_equal(c.error, 0);
        assert_int_equal(c.http_status, 200);
        assert_string_equal(c.response, "abc");
        assert_null(net_accept(f.listener));
        net_call_release(&c);
    }
    finish(&f);
}

static void reads_answers_of_every_shape(void **state)
{
    static const struct {
        const char *text, *body;
        bool close; /* the answer ends where the server closes the connection */
    } answers[] = {
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: "
         "u\r\n\r\n",
         "abcde", false},
        {"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
         "x", false},
        {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nyz", "yz", false},
        {"HTTP/1.1 200 OK\r\n\r\nuntil the end", "until the end", true},
        {"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "", false},
    };
    for (size_t i = 0; i < BR_COUNT(answers); i++)
        /* the answer arrives in single bytes, and then in larger pieces */
        for (size_t step = 1; step < 8; step += 6) {
            struct fixture f;
            struct net_call c;
            open_with(&f, state, (struct br_client_config){0});
            net_call_init(f.rig, &c, false, 5);
            begin(&f, &c);
            NET_UNTIL(f.rig, request_is_complete(f.peer, 5));
            size_t len = strlen(answers[i].text);
            for (size_t at = 0; at < len; at += step) {
                net_send(f.rig, f.peer, answers[i].text + at, len - at < step ? len - at : step);
                net_step(f.rig);
            }
            if (answers[i].close)
                shutdown(f.peer->fd, SHUT_WR);
            NET_UNTIL(f.rig, c.n_done);
            assert_int_equal(c.error, 0);
            assert_int_equal(c.http_status, 200);
            assert_string_equal(c.response, answers[i].body);
            net_call_release(&c);
            finish(&f);
        }
}

static void broken_answers_are_errors(void **state)
{
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", /* closed after this */
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        "",
        "HTTP/1.1 200 OK\r\nContent-",
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    };
    for (size_t i = 0; i < BR_COUNT(answers); i++) {
        struct fixture f;
        struct net_call c;
        open_with(&f, state, (struct br_client_config){0});
        net_call_init(f.rig, &c, false, 5);
        begin(&f, &c);
        NET_UNTIL(f.rig, request_is_complete(f.peer, 5));
        net_puts(f.rig, f.peer, answers[i]);
        shutdown(f.peer->fd, SHUT_WR);
        NET_UNTIL(f.rig, c.n_done);
        assert_int_not_equal(c.error, 0);
        assert_true(c.error_text[0]);
        net_idle(f.rig, 5);
        assert_int_equal(c.n_done, 1);
        net_call_release(&c);
        finish(&f);
    }
}

static void answer_over_the_limit(void **state)
{
    struct fixture f;
    struct net_call c;
    open_with(&f, state, (struct br_client_config){0});
    net_call_init(f.rig, &c, false, 5);
    c.x.max_response = 2;
    begin(&f, &c);
    answer(&f, &c, OK_3);
    assert_int_equal(c.error, BR_EFULL);
    net_call_release(&c);
    finish(&f);
}

static int64_t retry_after(void **state, const char *value)
{
    struct fixture f;
    struct net_call c;
    char text[256];
    open_with(&f, state, (struct br_client_config){0});
    net_call_init(f.rig, &c, false, 5);
    begin(&f, &c);
    (void)snprintf(text, sizeof text,
                   "HTTP/1.1 503 Wait\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n", value);
    answer(&f, &c, text);
    assert_int_equal(c.http_status, 503);
    net_call_release(&c);
    finish(&f);
    return c.retry_after_s;
}

static void retry_after_is_seconds_or_a_date(void **state)
{
    /* The three forms of RFC 9110 section 5.6.7. */
    char text[3][64];
    time_t then = time(NULL) + 100;
    struct tm tm;
    assert_non_null(gmtime_r(&then, &tm));
    assert_true(strftime(text[0], sizeof text[0], "%a, %d %b %Y %H:%M:%S GMT", &tm) > 0);
    size_t day = strftime(text[1], sizeof text[1], "%A, %d-%b-", &tm);
    day += (size_t)snprintf(text[1] + day, sizeof text[1] - day, "%02d", tm.tm_year % 100);
    assert_true(strftime(text[1] + day, sizeof text[1] - day, " %H:%M:%S GMT", &tm) > 0);
    assert_true(strftime(text[2], sizeof text[2], "%a %b %e %H:%M:%S %Y", &tm) > 0);
    assert_int_equal(retry_after(state, "7"), 7);
    assert_int_equal(retry_after(state, "0"), 0);
    assert_int_equal(retry_after(state, "soon"), -1);
    assert_int_equal(retry_after(state, "-1"), -1);
    assert_int_equal(retry_after(state, "99999999999999999999"), -1);
    assert_int_equal(retry_after(state, "Fri, 31 Dec 1999 23:59:59 GMT"), 0); /* in the past */
    for (size_t i = 0; i < BR_COUNT(text); i++)
        assert_in_range(retry_after(state, text[i]), 90, 100);
}

/* A server answers before it has read the whole body, and then closes: the client uses the
 * answer. */
static void early_answers_are_read(void **state)
{
    for (int hard = 0; hard < 2; hard++) {
        struct fixture f;
        struct net_call c;
        open_with(&f, state, (struct br_client_config){0});
        net_call_init(f.rig, &c, false, 16u << 20);
        begin(&f, &c);
        f.peer->deaf = true;
        net_idle(f.rig, 20); /* the socket fills */
        net_puts(f.rig, f.peer, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n");
        if (hard) { /* closing with unread input resets the connection */
            net_hang_up(f.peer);
            f.peer = NULL;
        }
        NET_UNTIL(f.rig, c.n_done);
        assert_int_equal(c.error, 0);
        assert_int_equal(c.http_status, 413);
        net_call_release(&c);

        /* After this answer, the connection cannot be used any more. */
        net_call_init(f.rig, &c, false, 5);
        struct net_peer *old = f.peer;
        begin(&f, &c);
        answer(&f, &c, OK_3);
        assert_int_equal(c.http_status, 200);
        if (old)
            net_hang_up(old);
        net_call_release(&c);
        finish(&f);
    }
}

/* A server closes an idle connection while the next request is on its way. */
static void idle_connection_closed_under_a_request(void **state)
{
    for (int late = 0; late < 3; late++) {
        struct fixture f;
        struct net_call c;
        open_with(&f, state, (struct br_client_config){0});
        net_call_init(f.rig, &c, false, 1000);
        begin(&f, &c);
        answer(&f, &c, OK_3);
        if (late == 0) { /* closed before the request */
            net_hang_up(f.peer);
            net_idle(f.rig, 5);
        }
        c.n_done = 0;
        br_client_send(f.client, &c.x);
        if (late == 1)
            net_hang_up(f.peer); /* in the same loop iteration */
        if (late == 2) {
            f.peer->n_in = 0;
            NET_UNTIL(f.rig, request_is_complete(f.peer, 1000)); /* after the request */
            net_hang_up(f.peer);
        }
        f.peer = NULL;
        NET_UNTIL(f.rig, c.n_done || (f.peer = net_accept(f.listener)));
        if (!f.peer) { /* one error; sending the request again is the task of the retry wrapper */
            assert_int_equal(c.n_done, 1);
            assert_int_not_equal(c.error, 0);
            c.n_done = 0;
            begin(&f, &c);
        } else {
            assert_int_not_equal(late, 2);
        }
        NET_UNTIL(f.rig, request_is_complete(f.peer, 1000));
        answer(&f, &c, OK_3);
        assert_int_equal(c.http_status, 200);
        net_call_release(&c);
        finish(&f);
    }
}

static void unrequested_bytes_end_the_connection(void **state)
{
    struct fixture f;
    struct net_call c;
    open_with(&f, state, (struct br_client_config){0});
    net_call_init(f.rig, &c, false, 5);
    begin(&f, &c);
    /* the second answer would be read as the answer to the next request */
    answer(&f, &c, OK_3 OK_3);
    NET_UNTIL(f.rig, net_poll(f.peer));
    assert_int_equal(c.n_done, 1);
    net_call_release(&c);
    finish(&f);
}

/* --- Cancelling ------------------------------------------------------------------------------- */

enum state { WAITING, CONNECTING, SENT, HALF_SENT, HALF_READ, DONE, STATES };

/* Brings a call into the given state. */
static void reach(struct fixture *f, struct net_call *c, enum state s)
{
    br_client_send(f->client, &c->x);
    if (s == WAITING)
        return;
    if (s == CONNECTING) {
        net_step(f->rig);
        return;
    }
    accept_one(f);
    if (s == HALF_SENT) {
        f->peer->deaf = true;
        net_idle(f->rig, 20);
        return;
    }
    NET_UNTIL(f->rig, request_is_complete(f->peer, c->x.body.len));
    if (s == HALF_READ) {
        net_puts(f->rig, f->peer, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        net_idle(f->rig, 5);
    } else if (s == DONE) {
        answer(f, c, OK_3);
    }
}

static void cancel_in_every_state(void **state)
{
    for (int s = 0; s < STATES; s++) {
        struct fixture f;
        struct net_call c, next;
        open_with(&f, state, (struct br_client_config){0});
        net_call_init(f.rig, &c, false, s == HALF_SENT ? 16u << 20 : 1000);
        reach(&f, &c, (enum state)s);
        br_client_cancel(f.client, &c.x);
        net_call_release(&c); /* its bytes may still be in transit */
        struct net_peer *old = f.peer;
        if (s > CONNECTING && s != DONE) {
            old->deaf = false;
            /* HTTP/1.1 can only be stopped by closing the connection */
            NET_UNTIL(f.rig, net_poll(old));
        }
        net_idle(f.rig, 5);
        assert_int_equal(c.n_done, s == DONE);
        net_call_init(f.rig, &next, false, 5);
        br_client_send(f.client, &next.x);
        if (s != DONE)
            accept_one(&f);
        answer(&f, &next, OK_3);
        assert_int_equal(next.http_status, 200);
        if (old && old != f.peer)
            net_hang_up(old);
        net_call_release(&next);
        finish(&f);
    }
}

static void free_in_every_state(void **state)
{
    for (int s = 0; s < STATES; s++) {
        struct fixture f;
        struct net_call c;
        open_with(&f, state, (struct br_client_config){0});
        net_call_init(f.rig, &c, false, s == HALF_SENT ? 16u << 20 : 1000);
        reach(&f, &c, (enum state)s);
        finish(&f);
        assert_int_equal(c.n_done, 1);
        assert_int_equal(c.error, s == DONE ? 0 : BR_ECLOSED);
        net_call_release(&c);
    }
}

static void many_at_once_and_most_waiting(void **state)
{
    enum { N = 20 };
    struct fixture f;
    struct net_call c[N];
    open_with(&f, state, (struct br_client_config){.max_connections = 2});
    for (int i = 0; i < N; i++) {
        net_call_init(f.rig, &c[i], false, 100);
        br_client_send(f.client, &c[i].x);
    }
    br_client_cancel(f.client, &c[N - 1].x);
    struct net_peer *p[2] = {0};
    NET_UNTIL(f.rig, (p[0] = net_accept(f.listener)));
    NET_UNTIL(f.rig, (p[1] = net_accept(f.listener)));
    for (int i = 0; i < N - 1; i++) {
        struct net_peer *q = NULL;
        NET_UNTIL(f.rig, request_is_complete(q = p[0], 100) || request_is_complete(q = p[1], 100));
        q->n_in = 0;
        net_puts(f.rig, q, OK_3);
    }
    NET_UNTIL(f.rig, c[N - 2].n_done);
    assert_null(net_accept(f.listener));
    for (int i = 0; i < N; i++) {
        assert_int_equal(c[i].n_done, i < N - 1);
        net_call_release(&c[i]);
    }
    net_hang_up(p[0]);
    net_hang_up(p[1]);
    finish(&f);
}

/* --- Connecting ------------------------------------------------------------------------------- */

static void call_fails(struct net_rig *rig, struct br_client_config config, const char *words)
{
    for (int grpc = 0; grpc < 2; grpc++) {
        struct net_call c;
        config.grpc = grpc;
        struct br_client *client = net_connect(rig, &config);
        net_call_init(rig, &c, grpc, 10);
        net_call(rig, client, &c);
        assert_int_equal(c.error, BR_EIO);
        if (!strstr(c.error_text, words))
            fail_msg("\"%s\" is not in \"%s\"", words, c.error_text);
        net_call_release(&c);
        br_client_free(client);
    }
}

static void unreachable_servers_are_errors(void **state)
{
    struct net_rig *rig = *state;
    unsigned port = 0;
    char url[64];
    int fd = net_listen(AF_INET, &port);
    close(fd); /* the port is closed now */
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", port);
    call_fails(rig, (struct br_client_config){.endpoint = url}, "Connection refused");
    call_fails(rig, (struct br_client_config){.endpoint = "unix:///nowhere/at.all"},
               "No such file");
    call_fails(rig, (struct br_client_config){.endpoint = "http://nowhere.test:80"},
               "cannot resolve");
}

static void no_answer_to_the_handshake(void **state)
{
    struct net_rig *rig = *state;
    unsigned port = 0;
    char url[64];
    /* the kernel connects, but the server does not speak TLS */
    int fd = net_listen(AF_INET, &port);
    (void)snprintf(url, sizeof url, "https://127.0.0.1:%u", port);
    call_fails(rig, (struct br_client_config){.endpoint = url, .connect_timeout_ms = 100},
               "connection timeout");
    close(fd);
}

/* While one connection is busy, a second connection is refused. The exchange of the second one must
 * fail, and must not be retried forever. */
static void refused_beside_a_busy_one(void **state)
{
    struct fixture f;
    struct net_call busy, other;
    open_with(&f, state, (struct br_client_config){0});
    net_call_init(f.rig, &busy, false, 5);
    net_call_init(f.rig, &other, false, 5);
    begin(&f, &busy);
    close(f.listener);
    net_call(f.rig, f.client, &other);
    assert_int_equal(other.error, BR_EIO);
    answer(&f, &busy, OK_3);
    assert_int_equal(busy.http_status, 200);
    f.listener = dup(0);
    net_call_release(&busy);
    net_call_release(&other);
    finish(&f);
}

/* A name may have several addresses, of which only the last has a server. */
static void every_address_is_tried(void **state)
{
    struct fixture f;
    struct net_call c;
    open_with(&f, state, (struct br_client_config){0});
    br_client_free(f.client);
    (void)snprintf(f.url, sizeof f.url, "http://several.test:%u", f.port);
    f.client = net_connect(f.rig, &(struct br_client_config){.endpoint = f.url});
    net_call_init(f.rig, &c, false, 5);
    begin(&f, &c);
    answer(&f, &c, OK_3);
    assert_int_equal(c.http_status, 200);

    /* None of the addresses has a server. */
    net_hang_up(f.peer);
    f.peer = NULL;
    close(f.listener);
    net_idle(f.rig, 5);
    c.n_done = 0;
    net_call(f.rig, f.client, &c);
    assert_int_equal(c.error, BR_EIO);
    assert_non_null(strstr(c.error_text, "refused"));
    f.listener = dup(0);
    net_call_release(&c);
    finish(&f);
}

static void look_ups_without_end_time_out(void **state)
{
    struct net_rig *rig = *state;
    struct net_call c;
    struct br_client *client =
        net_connect(rig, &(struct br_client_config){.endpoint = "http://slow.test:1",
                                                    .connect_timeout_ms = 100});
    net_call_init(rig, &c, false, 5);
    for (int i = 0; i < 3; i++) { /* only one connection attempt is in progress at a time */
        c.n_done = 0;
        net_call(rig, client, &c);
        assert_int_equal(c.error, BR_EIO);
        assert_non_null(strstr(c.error_text, "cannot resolve"));
    }
    assert_int_equal(n_slow, 1);
    br_client_free(client);
    assert_int_equal(sem_post(&slow), 0);
    net_call_release(&c);
    NET_UNTIL(rig, n_slow == 0);
}

/* The client is freed while a thread looks up a name. */
static void free_while_resolving(void **state)
{
    struct net_rig *rig = *state;
    struct net_call c;
    struct br_client *client =
        net_connect(rig, &(struct br_client_config){.endpoint = "http://slow.test:1"});
    net_call_init(rig, &c, false, 5);
    br_client_send(client, &c.x);
    net_step(rig);
    br_client_free(client);
    assert_int_equal(c.n_done, 1);
    assert_int_not_equal(c.error, 0);
    assert_int_equal(sem_post(&slow), 0);
    net_call_release(&c);
    NET_UNTIL(rig, n_slow == 0);
}

static void idle_connections_are_closed(void **state)
{
    struct fixture f;
    struct net_call c;
    open_with(&f, state, (struct br_client_config){.idle_timeout_ms = 100});
    net_call_init(f.rig, &c, false, 5);
    begin(&f, &c);
    answer(&f, &c, OK_3);
    NET_UNTIL(f.rig, net_poll(f.peer));
    assert_int_equal(c.n_done, 1);
    net_call_release(&c);
    finish(&f);
}

/* If keep-alive is off, each exchange uses a new connection. */
static void connections_for_one_exchange(void **state)
{
    struct fixture f;
    open_with(&f, state, (struct br_client_config){.close_after_use = true, .max_connections = 1});
    for (int i = 0; i < 3; i++) {
        struct net_call c;
        net_call_init(f.rig, &c, false, 5);
        begin(&f, &c);
        answer(&f, &c, OK_3);
        /* the client closes the connection, because it cannot be used again */
        NET_UNTIL(f.rig, net_poll(f.peer));
        assert_int_equal(c.n_done, 1);
        assert_int_equal(c.error, 0);
        net_call_release(&c);
        net_hang_up(f.peer);
        f.peer = NULL;
    }
    finish(&f);
}

SUITE(net_client)
{
    assert_int_equal(sem_init(&slow, 0, 0), 0);
    fake_libc.resolve = resolve;
    const struct CMUnitTest tests[] = {
        NET_TEST(sends_and_reuses_its_connection),
        NET_TEST(reads_answers_of_every_shape),
        NET_TEST(broken_answers_are_errors),
        NET_TEST(answer_over_the_limit),
        NET_TEST(retry_after_is_seconds_or_a_date),
        NET_TEST(early_answers_are_read),
        NET_TEST(idle_connection_closed_under_a_request),
        NET_TEST(unrequested_bytes_end_the_connection),
        NET_TEST(cancel_in_every_state),
        NET_TEST(free_in_every_state),
        NET_TEST(many_at_once_and_most_waiting),
        NET_TEST(unreachable_servers_are_errors),
        NET_TEST(no_answer_to_the_handshake),
        NET_TEST(refused_beside_a_busy_one),
        NET_TEST(every_address_is_tried),
        NET_TEST(look_ups_without_end_time_out),
        NET_TEST(free_while_resolving),
        NET_TEST(idle_connections_are_closed),
        NET_TEST(connections_for_one_exchange),
    };
    return RUN(tests, NULL, NULL);
}
