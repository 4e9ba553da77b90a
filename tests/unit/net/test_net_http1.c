/* SPDX-License-Identifier: Apache-2.0 */
/* The server's HTTP/1.1 on real sockets, with raw clients: RFC 9110 and 9112. */
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

/* A service that has a request sent by another client while it serves the first ones. */
static struct crowd {
    void (*begin)(struct br_handler *service, struct br_request *request);
    struct net_peer *modest;
    unsigned n_when_sent, n_when_begun;
} crowd;

static void crowd_begin(struct br_handler *service, struct br_request *request)
{
    const struct net_service *s = (struct net_service *)(void *)service;
    if (s->n_begun == crowd.n_when_sent)
        assert_int_equal(net_try(crowd.modest, "GET /b HTTP/1.1\r\nHost: h\r\n\r\n", 28), 28);
    if (strcmp(request->path, "/b") == 0)
        crowd.n_when_begun = s->n_begun;
    crowd.begin(service, request);
}

/* Thousands of requests that came at once wait for those who have one: each client has its share of
 * a turn, of three times 1 KiB of answers (about a dozen each) at the most. */
static void who_sends_much_ahead_does_not_hold_up_others(void **state)
{
    enum { GREEDY = 8, EACH = 1000 };
    static char many[EACH * (sizeof GET - 1) + 1];
    struct fixture f;
    struct net_peer *greedy[GREEDY];
    net_served_open(&f, state, NULL);
    for (size_t i = 0; i < EACH; i++)
        memcpy(many + i * (sizeof GET - 1), GET, sizeof GET - 1);
    crowd = (struct crowd){f.service.service.begin, net_served_dial(&f), 100, 0};
    f.service.service.begin = crowd_begin;
    for (int i = 0; i < GREEDY; i++)
        greedy[i] = net_served_dial(&f);
    NET_UNTIL(f.rig, net_connections(f.rig) == GREEDY + 1);
    for (int i = 0; i < GREEDY; i++)
        assert_int_equal(net_try(greedy[i], many, sizeof many - 1), sizeof many - 1);
    NET_UNTIL(f.rig, net_count(crowd.modest, OK) == 1);
    if (crowd.n_when_begun > GREEDY * 50)
        fail_msg("%u requests came first", crowd.n_when_begun);
    for (int i = 0; i < GREEDY; i++)
        NET_UNTIL(f.rig, net_count(greedy[i], OK) == EACH);
    for (int i = 0; i < GREEDY; i++)
        net_hang_up(greedy[i]);
    net_hang_up(crowd.modest);
    net_served_finish(&f);
}

/* A crowd of such clients has a few shares a millisecond, of 1 KiB of answers each: between them
 * the loop sleeps, and whoever comes finds it free. */
static void a_crowd_of_them_has_little_of_each_millisecond(void **state)
{
    enum { GREEDY = 40, EACH = 1000, SHARES = 8 };
    enum { OF_SHARE = 1024 / 64 + 1 }; /* an answer has more than 64 bytes */
    static char many[EACH * (sizeof GET - 1) + 1];
    struct fixture f;
    struct net_peer *greedy[GREEDY];
    net_served_open(&f, state, NULL);
    for (size_t i = 0; i < EACH; i++)
        memcpy(many + i * (sizeof GET - 1), GET, sizeof GET - 1);
    for (int i = 0; i < GREEDY; i++)
        greedy[i] = net_served_dial(&f);
    NET_UNTIL(f.rig, net_connections(f.rig) == GREEDY);
    for (int i = 0; i < GREEDY; i++)
        assert_int_equal(net_try(greedy[i], many, sizeof many - 1), sizeof many - 1);
    NET_UNTIL(f.rig, f.service.n_begun >= GREEDY * 3 * OF_SHARE);
    uint64_t now = 0;
    for (unsigned i = 0, before = 0; i < 100 && f.service.n_begun < GREEDY * EACH / 2; i++) {
        if (br_host_mono_ms(f.rig->host) != now)
            before = f.service.n_begun;
        now = br_host_mono_ms(f.rig->host);
        net_step(f.rig);
        if (f.service.n_begun - before > 2 * SHARES * OF_SHARE)
            fail_msg("%u requests were begun in a millisecond", f.service.n_begun - before);
    }
    for (int i = 0; i < GREEDY; i++)
        NET_UNTIL(f.rig, net_count(greedy[i], OK) == EACH);
    for (int i = 0; i < GREEDY; i++)
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
        assert_int_equal(f.service.n_begun, i); /* one at a time */
        net_reply_all(&f.service);
        NET_UNTIL(f.rig, net_count(p, OK) == i);
    }
    net_hang_up(p);
    net_served_finish(&f);
}

static void continues_when_asked(void **state)
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
    /* A body that is not wanted is not asked for: RFC 9110 section 10.1.1. */
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

static void closes_when_it_should(void **state)
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
    /* Without a body nothing is left to be mistaken for a request. */
    net_puts(f.rig, p, GET GET);
    NET_UNTIL(f.rig, net_count(p, OK) == 2);
    assert_int_equal(net_count(p, "Connection: close"), 0);
    net_puts(f.rig, p, POST(100000) "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n");
    NET_UNTIL(f.rig, net_poll(p));
    assert_false(p->reset); /* it can read why */
    assert_int_equal(net_count(p, OK), 3);
    assert_int_equal(f.service.n_begun, 3);
    assert_int_equal(f.service.n_bodies, 0);
    net_hang_up(p);
    net_served_finish(&f);
}

static void last_words_survive_unread_input(void **state)
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

/* RFC 9110 section 15.5.15; 400 where such a target is a query. "HTTP/" never comes. */
static void long_targets_are_answered(void **state)
{
    static char line[1u << 20];
    struct fixture f;
    net_served_open(&f, state, NULL);
    memset(line, 'x', sizeof line);
    memcpy(line, "GET /?q=", 8);
    for (int turn = 0; turn < 2; turn++) {
        f.service.service.long_target = turn ? "the query is too long" : NULL;
        struct net_peer *p = net_served_dial(&f);
        net_send(f.rig, p, line, sizeof line);
        NET_UNTIL(f.rig, net_poll(p));
        assert_int_equal(
            net_count(p, turn ? "HTTP/1.1 400 Bad Request\r\n" : "HTTP/1.1 414 URI Too Long\r\n"),
            1);
        assert_int_equal(net_count(p, "the query is too long"), turn);
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
        assert_true(f.rig->n_steps - before < 100); /* the end of input keeps nobody busy */
        net_reply_all(&f.service);
    }
    NET_UNTIL(f.rig, net_poll(p));
    assert_int_equal(net_count(p, OK), 3);
    net_hang_up(p);

    /* What is not all there never will be. */
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
    NET_UNTIL(f.rig, f.service.n_bodies == 1); /* before it comes */
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

/* The service may take its time over an error too; the rest of the body goes nowhere meanwhile. */
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

static void client_goes_before_the_answer(void **state)
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
        NET_TEST(who_sends_much_ahead_does_not_hold_up_others),
        NET_TEST(a_crowd_of_them_has_little_of_each_millisecond),
        NET_TEST(split_at_every_byte),
        NET_TEST(answers_later_keep_their_order),
        NET_TEST(continues_when_asked),
        NET_TEST(head_has_a_length_and_no_body),
        NET_TEST(closes_when_it_should),
        NET_TEST(early_answers),
        NET_TEST(last_words_survive_unread_input),
        NET_TEST(long_targets_are_answered),
        NET_TEST(half_closed_clients_get_their_answers),
        NET_TEST(body_over_the_limit),
        NET_TEST(late_answer_to_a_body_over_the_limit),
        NET_TEST(client_goes_before_the_answer),
        NET_TEST(freed_with_requests_under_way),
    };
    return RUN(tests, NULL, NULL);
}
