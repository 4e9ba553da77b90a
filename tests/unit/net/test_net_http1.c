/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the server's HTTP/1.1 (RFC 9110 and RFC 9112) on real sockets, with raw clients. */
#include <sys/socket.h>

#include "tests/support/net_served.h"
#include "tests/support/test.h"

#define PIPELINE                                                                                   \
    POST(5)                                                                                        \
    "hello"                                                                                        \
    "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "                                           \
    "chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n" GET

static void check_pipeline(struct fixture *f, struct net_peer *p)
{
    NET_UNTIL(f->rig, net_count(p, OK) == 3);
    assert_int_equal(f->service.n_begun, 3);
    assert_int_equal(f->service.n_bodies, 3);
    assert_int_equal(f->service.body_bytes, 10);
    assert_string_equal(f->service.last_path, "/a");
    assert_string_equal(f->service.last_query, "b=c");
    assert_int_equal(net_count(p, "Connection: close"), 0);
    f->service.n_begun = f->service.n_bodies = 0;
    f->service.body_bytes = 0;
}

static void three_requests_in_one_segment(void **state)
{
    struct fixture f;
    net_served_open(&f, state, NULL);
    struct net_peer *p = net_served_dial(&f);
    net_puts(f.rig, p, PIPELINE);
    check_pipeline(&f, p);
    net_hang_up(p);
    net_served_finish(&f);
}

/* A service that lets another client send a request while the first ones are served. */
static struct interleaving {
    void (*begin)(struct br_handler *service, struct br_request *request);
    struct net_peer *single;
    unsigned n_when_sent, n_when_begun;
} interleaving;

static void interleaving_begin(struct br_handler *service, struct br_request *request)
{
    const struct net_service *s = (struct net_service *)(void *)service;
    if (s->n_begun == interleaving.n_when_sent)
        assert_int_equal(net_try(interleaving.single, "GET /b HTTP/1.1\r\nHost: h\r\n\r\n", 28),
                         28);
    if (strcmp(request->path, "/b") == 0)
        interleaving.n_when_begun = s->n_begun;
    interleaving.begin(service, request);
}

/* Thousands of pipelined requests of one client are served after other clients' requests. Each
 * client has a share of a loop iteration: at most three times 1 KiB of answers, about a dozen
 * each. */
static void pipelined_requests_do_not_delay_other_clients(void **state)
{
    enum { N_PIPELINING = 8, EACH = 1000 };
    static char many[EACH * (sizeof GET - 1) + 1];
    struct fixture f;
    struct net_peer *greedy[N_PIPELINING];
    net_served_open(&f, state, NULL);
    for (size_t i = 0; i < EACH; i++)
        memcpy(many + i * (sizeof GET - 1), GET, sizeof GET - 1);
    interleaving = (struct interleaving){f.service.service.begin, net_served_dial(&f), 100, 0};
    f.service.service.begin = interleaving_begin;
    for (int i = 0; i < N_PIPELINING; i++)
        greedy[i] = net_served_dial(&f);
    NET_UNTIL(f.rig, net_connections(f.rig) == N_PIPELINING + 1);
    for (int i = 0; i < N_PIPELINING; i++)
        assert_int_equal(net_try(greedy[i], many, sizeof many - 1), sizeof many - 1);
    NET_UNTIL(f.rig, net_count(interleaving.single, OK) == 1);
    if (interleaving.n_when_begun > N_PIPELINING * 50)
        fail_msg("%u requests were served first", interleaving.n_when_begun);
    for (int i = 0; i < N_PIPELINING; i++)
        NET_UNTIL(f.rig, net_count(greedy[i], OK) == EACH);
    for (int i = 0; i < N_PIPELINING; i++)
        net_hang_up(greedy[i]);
    net_hang_up(interleaving.single);
    net_served_finish(&f);
}

/* Many such clients have a few shares per millisecond, of 1 KiB of answers each. The loop sleeps
 * in between, and is free for new requests. */
static void pipelined_requests_have_a_small_share_of_each_millisecond(void **state)
{
    enum { N_PIPELINING = 40, EACH = 1000, SHARES = 8 };
    enum { OF_SHARE = 1024 / 64 + 1 }; /* an answer has more than 64 bytes */
    static char many[EACH * (sizeof GET - 1) + 1];
    struct fixture f;
    struct net_peer *greedy[N_PIPELINING];
    net_served_open(&f, state, NULL);
    for (size_t i = 0; i < EACH; i++)
        memcpy(many + i * (sizeof GET - 1), GET, sizeof GET - 1);
    for (int i = 0; i < N_PIPELINING; i++)
        greedy[i] = net_served_dial(&f);
    NET_UNTIL(f.rig, net_connections(f.rig) == N_PIPELINING);
    for (int i = 0; i < N_PIPELINING; i++)
        assert_int_equal(net_try(greedy[i], many, sizeof many - 1), sizeof many - 1);
    NET_UNTIL(f.rig, f.service.n_begun >= N_PIPELINING * 3 * OF_SHARE);
    uint64_t now = 0;
    for (unsigned i = 0, before = 0; i < 100 && f.service.n_begun < N_PIPELINING * EACH / 2; i++) {
        if (br_host_mono_ms(f.rig->host) != now)
            before = f.service.n_begun;
        now = br_host_mono_ms(f.rig->host);
        net_step(f.rig);
        if (f.service.n_begun - before > 2 * SHARES * OF_SHARE)
            fail_msg("%u requests began within a millisecond", f.service.n_begun - before);
    }
    for (int i = 0; i < N_PIPELINING; i++)
        NET_UNTIL(f.rig, net_count(greedy[i], OK) == EACH);
    for (int i = 0; i < N_PIPELINING; i++)
        net_hang_up(greedy[i]);
    net_served_finish(&f);
}

static void split_at_every_byte(void **state)
{
    static const char text[] = PIPELINE;
    struct fixture f;
    net_served_open(&f, state, NULL);
    for (size_t at = 1; at < sizeof text - 1; at++) {
        struct net_peer *p = net_served_dial(&f);
        net_send(f.rig, p, text, at);
        net_step(f.rig);
        net_step(f.rig);
        net_send(f.rig, p, text + at, sizeof text - 1 - at);
        check_pipeline(&f, p);
        net_hang_up(p);
    }
    net_served_finish(&f);
}

static void answers_later_keep_their_order(void **state)
{
    struct fixture f;
    net_served_open(&f, state, NULL);
    f.service.when = NET_LATER;
    struct net_peer *p = net_served_dial(&f);
    net_puts(f.rig, p, PIPELINE);
    for (unsigned i = 1; i <= 3; i++) {
        NET_UNTIL(f.rig, f.service.n_held == 1);
        net_idle(f.rig, 10);
        /* the server processes one request of the connection at a time */
        assert_int_equal(f.service.n_begun, i);
        net_reply_all(&f.service);
        NET_UNTIL(f.rig, net_count(p, OK) == i);
    }
    net_hang_up(p);
    net_served_finish(&f);
}

static void expect_continue_is_answered(void **state)
{
    struct fixture f;
    net_served_open(&f, state, NULL);
    struct net_peer *p = net_served_dial(&f);
    net_puts(f.rig, p,
             "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    NET_UNTIL(f.rig, net_count(p, "HTTP/1.1 100 Continue\r\n\r\n") == 1);
    assert_int_equal(f.service.n_bodies, 0);
    net_puts(f.rig, p, "abc");
    NET_UNTIL(f.rig, net_count(p, OK) == 1);
    /* RFC 9110 section 10.1.1: the server does not send 100 if it does not want the body. */
    f.service.when = NET_IN_BEGIN;
    net_puts(f.rig, p,
             "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    NET_UNTIL(f.rig, net_poll(p));
    assert_int_equal(net_count(p, "100 Continue"), 1);
    assert_int_equal(net_count(p, OK), 2);
    assert_int_equal(net_count(p, "Connection: close"), 1);
    net_hang_up(p);
    net_served_finish(&f);
}

static void head_has_a_length_and_no_body(void **state)
{
    struct fixture f;
    net_served_open(&f, state, NULL);
    struct net_peer *p = net_served_dial(&f);
    net_puts(f.rig, p, "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n" GET);
    NET_UNTIL(f.rig, net_count(p, OK) == 2);
    assert_int_equal(net_count(p, "Content-Length: 3\r\n"), 2);
    assert_int_equal(net_count(p, "ok\n"), 1);
    net_hang_up(p);
    net_served_finish(&f);
}

static void connections_close_as_specified(void **state)
{
    static const char *const requests[] = {
        "GET / HTTP/1.0\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"};
    struct fixture f;
    net_served_open(&f, state, NULL);
    for (int i = 0; i < 3; i++) {
        struct net_peer *p = net_served_dial(&f);
        f.service.close = i == 2;
        net_puts(f.rig, p, i == 2 ? GET : requests[i]);
        NET_UNTIL(f.rig, net_poll(p));
        assert_false(p->reset);
        assert_int_equal(net_count(p, OK), 1);
        assert_int_equal(net_count(p, "Connection: close"), 1);
        net_hang_up(p);
    }
    net_served_finish(&f);
}

static void early_answers(void **state)
{
    struct fixture f;
    net_served_open(&f, state, NULL);
    f.service.when = NET_IN_BEGIN;
    struct net_peer *p = net_served_dial(&f);
    /* If a request does not have a body, the following bytes cannot be mistaken for a request. */
    net_puts(f.rig, p, GET GET);
    NET_UNTIL(f.rig, net_count(p, OK) == 2);
    assert_int_equal(net_count(p, "Connection: close"), 0);
    net_puts(f.rig, p, POST(100000) "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n");
    NET_UNTIL(f.rig, net_poll(p));
    assert_false(p->reset); /* the client can read the reason for the rejection */
    assert_int_equal(net_count(p, OK), 3);
    assert_int_equal(f.service.n_begun, 3);
    assert_int_equal(f.service.n_bodies, 0);
    net_hang_up(p);
    net_served_finish(&f);
}

static void answers_arrive_despite_unread_input(void **state)
{
    struct fixture f;
    net_served_open(&f, state, NULL);
    struct net_peer *p = net_served_dial(&f);
    char *junk = malloc(1u << 20);
    memset(junk, 'x', 1u << 20);
    net_puts(f.rig, p, "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: +5\r\n\r\n");
    net_send(f.rig, p, junk, 1u << 20);
    NET_UNTIL(f.rig, net_poll(p));
    assert_int_equal(net_count(p, "HTTP/1.1 400 Bad Request\r\n"), 1);
    assert_int_equal(net_count(p, "\r\n\r\nContent-Length is not a number"), 1);
    assert_int_equal(f.service.n_begun, 0);
    free(junk);
    net_hang_up(p);
    net_served_finish(&f);
}

/* RFC 9110 section 15.5.15; 400 if such a target is a query. "HTTP/" never arrives. */
static void long_targets_are_answered(void **state)
{
    static char line[1u << 20];
    struct fixture f;
    net_served_open(&f, state, NULL);
    memset(line, 'x', sizeof line);
    memcpy(line, "GET /?q=", 8);
    for (int is_query = 0; is_query < 2; is_query++) {
        f.service.service.long_target = is_query ? "the query is too long" : NULL;
        struct net_peer *p = net_served_dial(&f);
        net_send(f.rig, p, line, sizeof line);
        NET_UNTIL(f.rig, net_poll(p));
        assert_int_equal(net_count(p, is_query ? "HTTP/1.1 400 Bad Request\r\n"
                                               : "HTTP/1.1 414 URI Too Long\r\n"),
                         1);
        assert_int_equal(net_count(p, "the query is too long"), is_query);
        net_hang_up(p);
    }
    assert_int_equal(f.service.n_begun, 0);
    net_served_finish(&f);
}

static void half_closed_clients_get_their_answers(void **state)
{
    struct fixture f;
    net_served_open(&f, state, NULL);
    f.service.when = NET_LATER;
    struct net_peer *p = net_served_dial(&f);
    net_puts(f.rig, p, PIPELINE);
    assert_int_equal(shutdown(p->fd, SHUT_WR), 0);
    for (unsigned i = 1; i <= 3; i++) {
        NET_UNTIL(f.rig, f.service.n_held == 1);
        unsigned before = f.rig->n_steps;
        net_idle(f.rig, 50);
        assert_true(f.rig->n_steps - before < 100); /* the loop does not spin at the end of input */
        net_reply_all(&f.service);
    }
    NET_UNTIL(f.rig, net_poll(p));
    assert_int_equal(net_count(p, OK), 3);
    net_hang_up(p);

    /* An incomplete request can no longer be completed. */
    p = net_served_dial(&f);
    net_puts(f.rig, p, POST(10) "half");
    NET_UNTIL(f.rig, f.service.n_begun == 4);
    assert_int_equal(shutdown(p->fd, SHUT_WR), 0);
    NET_UNTIL(f.rig, f.service.n_gone == 1);
    assert_int_equal(f.service.n_bodies, 3);
    net_hang_up(p);
    net_served_finish(&f);
}

static void body_over_the_limit(void **state)
{
    struct fixture f;
    net_served_open(&f, state, NULL);
    f.service.max_body = 4;
    struct net_peer *p = net_served_dial(&f);
    net_puts(f.rig, p, POST(5));
    NET_UNTIL(f.rig, f.service.n_bodies == 1); /* before it arrives */
    assert_int_equal(f.service.body_error, BR_BODY_TOO_BIG);
    net_hang_up(p);
    p = net_served_dial(&f);
    f.service.body_error = BR_BODY_OK;
    net_puts(f.rig, p,
             "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n");
    NET_UNTIL(f.rig, f.service.n_bodies == 2);
    assert_int_equal(f.service.body_error, BR_BODY_TOO_BIG);
    net_hang_up(p);
    net_served_finish(&f);
}

/* The service may also answer an error late. Meanwhile the rest of the body is discarded. */
static void late_answer_to_a_body_over_the_limit(void **state)
{
    struct fixture f;
    net_served_open(&f, state, NULL);
    f.service.max_body = 4;
    f.service.when = NET_LATER;
    struct net_peer *p = net_served_dial(&f);
    net_puts(f.rig, p, POST(10) "12345");
    NET_UNTIL(f.rig, f.service.n_held == 1);
    net_puts(f.rig, p, "67890");
    net_idle(f.rig, 20);
    assert_int_equal(f.service.n_bodies, 1);
    net_reply_all(&f.service);
    NET_UNTIL(f.rig, net_count(p, OK) == 1);
    net_hang_up(p);
    net_served_finish(&f);
}

static void clients_may_disconnect_before_the_answer(void **state)
{
    struct fixture f;
    net_served_open(&f, state, NULL);
    f.service.when = NET_LATER;
    struct net_peer *p = net_served_dial(&f);
    struct linger hard = {.l_onoff = 1};
    net_puts(f.rig, p, GET);
    NET_UNTIL(f.rig, f.service.n_held == 1);
    assert_int_equal(setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard), 0);
    net_hang_up(p);
    NET_UNTIL(f.rig, f.service.n_gone == 1);
    assert_null(f.service.held[0]);
    net_served_finish(&f);
    assert_int_equal(f.service.n_gone, 1);
}

static void freed_with_requests_under_way(void **state)
{
    struct fixture f;
    net_served_open(&f, state, NULL);
    f.service.when = NET_LATER;
    struct net_peer *p[3] = {net_served_dial(&f), net_served_dial(&f), net_served_dial(&f)};
    net_puts(f.rig, p[0], GET GET);
    net_puts(f.rig, p[1], POST(10) "half");
    net_puts(f.rig, p[2], "GET / HTT");
    NET_UNTIL(f.rig, f.service.n_begun == 2 && net_connections(f.rig) == 3);
    net_served_finish(&f);
    assert_int_equal(f.service.n_gone, 2);
    for (int i = 0; i < 3; i++) {
        NET_UNTIL(f.rig, net_poll(p[i]));
        net_hang_up(p[i]);
    }
}

SUITE(net_http1)
{
    const struct CMUnitTest tests[] = {
        NET_TEST(three_requests_in_one_segment),
        NET_TEST(pipelined_requests_do_not_delay_other_clients),
        NET_TEST(pipelined_requests_have_a_small_share_of_each_millisecond),
        NET_TEST(split_at_every_byte),
        NET_TEST(answers_later_keep_their_order),
        NET_TEST(expect_continue_is_answered),
        NET_TEST(head_has_a_length_and_no_body),
        NET_TEST(connections_close_as_specified),
        NET_TEST(early_answers),
        NET_TEST(answers_arrive_despite_unread_input),
        NET_TEST(long_targets_are_answered),
        NET_TEST(half_closed_clients_get_their_answers),
        NET_TEST(body_over_the_limit),
        NET_TEST(late_answer_to_a_body_over_the_limit),
        NET_TEST(clients_may_disconnect_before_the_answer),
        NET_TEST(freed_with_requests_under_way),
    };
    return RUN(tests, NULL, NULL);
}
