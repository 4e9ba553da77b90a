/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replies whose body comes in pieces (wire/request.h), of both HTTP versions: chunks as RFC 9112
 * section 7.1 has them, and what our own HTTP/2 client makes of the frames.
 */
#include "base/str.h"
#include "tests/support/fault.h"
#include "tests/support/test.h"
#include "wire/conn.h"

#define NOW_MS 1000000
#define GET_11 "GET /tail HTTP/1.1\r\nHost: h\r\n\r\n"

struct fixture {
    struct br_handler service; /* first */
    struct br_pool *pool;
    struct br_conn *server;
    struct br_request *request; /* that is streamed to */
    struct br_str out;          /* what an HTTP/1.1 client got */
    unsigned n_gone, n_bodies;
};

static void on_begin(struct br_handler *self, struct br_request *request)
{
    (void)self;
    assert_true(*request->path != '\0');
    request->max_body = 0;
    request->leaves_at_eof = strcmp(request->path, "/slow") == 0;
}

static void on_body(struct br_handler *self, struct br_request *request)
{
    struct fixture *f = (struct fixture *)(void *)self;
    f->n_bodies++;
    f->request = request;
    if (strcmp(request->path, "/tail") != 0)
        return; /* later */
    br_request_reply(
        request,
        &(struct br_response){.status = 200, .content_type = "text/event-stream", .stream = true});
}

static void on_gone(struct br_handler *self, struct br_request *request)
{
    struct fixture *f = (struct fixture *)(void *)self;
    assert_ptr_equal(f->request, request);
    f->n_gone++;
    f->request = NULL;
}

static void on_wake(struct br_conn *conn, void *owner)
{
    (void)conn;
    (void)owner;
}

static void start(struct fixture *f, bool http2)
{
    static const struct br_conn_limits limits;
    *f = (struct fixture){.service = {.begin = on_begin, .body = on_body, .gone = on_gone},
                          .pool = br_pool_new(0)};
    f->server = http2 ? br_h2_server_new(&f->service, f->pool, "192.0.2.1:1", &limits)
                      : br_h1_server_new(&f->service, f->pool, "192.0.2.1:1");
    assert_non_null(f->server);
    f->server->wake = on_wake;
}

static void end(struct fixture *f)
{
    f->server->ops->free(f->server);
    br_str_release(&f->out);
    assert_int_equal(br_pool_live(f->pool), 0);
    br_pool_free(f->pool);
}

static void feed(struct fixture *f, const char *text)
{
    assert_int_equal(f->server->ops->input(f->server, (const uint8_t *)text, strlen(text), NOW_MS),
                     0);
}

/* All that the server has to send. */
static const char *pull(struct fixture *f)
{
    struct br_rope rope = {0};
    br_str_clear(&f->out);
    assert_int_equal(f->server->ops->output(f->server, &rope, 1 << 20), 0);
    for (uint32_t i = 0; i < rope.count; i++)
        br_str_add(&f->out, rope.slices[i].data, rope.slices[i].len);
    br_rope_release(&rope);
    return f->out.data ? f->out.data : "";
}

static void pieces_are_chunks(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, false);
    feed(&f, GET_11);
    assert_string_equal(pull(&f), "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                  "Transfer-Encoding: chunked\r\n\r\n");
    assert_false(f.server->ops->idle(f.server));
    assert_true(br_request_write(f.request, "data: 1\n\n", 9, 100));
    assert_true(br_request_write(f.request, "", 0, 100)); /* an empty chunk would be the end */
    assert_string_equal(pull(&f), "9\r\ndata: 1\n\n\r\n");
    assert_true(br_request_write(f.request, "data: twenty seven bytes..\n", 27, 100));
    br_request_end(f.request);
    assert_string_equal(pull(&f), "1b\r\ndata: twenty seven bytes..\n\r\n0\r\n\r\n");
    assert_true(f.server->ops->idle(f.server));
    assert_false(f.server->ops->finished(f.server));
    feed(&f, GET_11); /* the connection goes on */
    assert_int_equal(f.n_bodies, 2);
    br_request_end(f.request);
    assert_non_null(strstr(pull(&f), "\r\n\r\n0\r\n\r\n"));
    assert_int_equal(f.n_gone, 0);
    end(&f);
}

/* Without memory a request fails for now: the service never sees one without its path. */
static void scenario_without_memory(void *arg)
{
    struct fixture f;
    (void)arg;
    start(&f, false);
    fault_start();
    int rc = f.server->ops->input(f.server, (const uint8_t *)GET_11, strlen(GET_11), NOW_MS);
    fault_stop();
    const char *answer = rc ? "" : pull(&f);
    if (*answer && !strstr(answer, " 200 ") && !strstr(answer, " 503 "))
        fail_msg("%s", answer);
    if (f.request)
        br_request_end(f.request);
    end(&f);
}

static void without_memory(void **state)
{
    (void)state;
    fault_each("a request", scenario_without_memory, NULL);
}

static void what_is_broken_has_no_last_chunk(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, false);
    feed(&f, GET_11);
    (void)pull(&f);
    assert_true(br_request_write(f.request, "half", 4, 100));
    br_request_break(f.request);
    assert_string_equal(pull(&f), "4\r\nhalf\r\n");
    assert_true(f.server->ops->finished(f.server));
    assert_int_equal(f.n_gone, 0);
    end(&f);
}

/* HTTP/1.0 has no chunks: the end of the connection is that of the body. */
static void the_end_of_the_connection_ends_it(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, false);
    feed(&f, "GET /tail HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_string_equal(pull(&f), "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                  "Connection: close\r\n\r\n");
    assert_true(br_request_write(f.request, "abc", 3, 100));
    assert_string_equal(pull(&f), "abc");
    assert_false(f.server->ops->finished(f.server));
    br_request_end(f.request);
    assert_string_equal(pull(&f), "");
    assert_true(f.server->ops->finished(f.server));
    end(&f);
}

static void a_head_has_no_body(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, false);
    feed(&f, "HEAD /tail HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_true(br_request_write(f.request, "abc", 3, 100));
    br_request_end(f.request);
    assert_string_equal(pull(&f), "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                  "Transfer-Encoding: chunked\r\n\r\n");
    end(&f);
}

/* What would wait beyond the bound is not taken. */
static void what_waits_has_a_bound(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, false);
    feed(&f, GET_11);
    (void)pull(&f);
    assert_true(br_request_write(f.request, "0123456789", 10, 20));
    assert_false(br_request_write(f.request, "0123456789", 10, 20));
    assert_string_equal(pull(&f), "a\r\n0123456789\r\n");
    assert_true(br_request_write(f.request, "0123456789", 10, 20));
    assert_false(br_request_write(f.request, "0123456789", 10, 9));
    br_request_end(f.request);
    end(&f);
}

static void who_goes_away_is_told_of(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, false);
    feed(&f, GET_11);
    f.server->ops->eof(f.server);
    assert_int_equal(f.n_gone, 1);
    assert_string_equal(pull(&f), "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                  "Transfer-Encoding: chunked\r\n\r\n");
    assert_true(f.server->ops->finished(f.server));
    end(&f);
    start(&f, false);
    feed(&f, GET_11);
    end(&f); /* the connection is freed */
    assert_int_equal(f.n_gone, 1);
}

/* Before the answer, too, where the service says so; otherwise a client may close its side and
 * wait.
 */
static void who_closes_its_side_may_have_left(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, false);
    feed(&f, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n");
    f.server->ops->eof(f.server);
    assert_int_equal(f.n_gone, 1);
    assert_true(f.server->ops->finished(f.server));
    end(&f);
    start(&f, false);
    feed(&f, "GET /patient HTTP/1.1\r\nHost: h\r\n\r\n");
    f.server->ops->eof(f.server);
    assert_int_equal(f.n_gone, 0);
    br_request_reply_text(f.request, 200, "here");
    assert_non_null(strstr(pull(&f), "\r\n\r\nhere"));
    end(&f);
}

/* --- HTTP/2 ----------------------------------------------------------------------------------- */

struct call {
    struct br_exchange exchange;
    bool done;
    char body[64];
};

static void on_done(struct br_exchange *exchange)
{
    struct call *call = (struct call *)(void *)exchange;
    call->done = true;
    if (exchange->response)
        memcpy(call->body, exchange->response->data, exchange->response->len);
}

static bool carry_one_way(struct br_conn *from, struct br_conn *to)
{
    struct br_rope rope = {0};
    bool any = false;
    (void)from->ops->output(from, &rope, 1 << 20);
    for (uint32_t i = 0; i < rope.count; i++, any = true)
        assert_int_equal(to->ops->input(to, rope.slices[i].data, rope.slices[i].len, NOW_MS), 0);
    br_rope_release(&rope);
    return any;
}

static void carry(struct fixture *f, struct br_conn *client)
{
    for (bool more = true; more;) {
        more = carry_one_way(client, f->server);
        more = carry_one_way(f->server, client) || more;
    }
}

static void call(struct fixture *f, struct br_conn *client, struct call *call)
{
    *call = (struct call){
        .exchange = {
            .method = "GET", .path = "/tail", .authority = "localhost", .on_done = on_done}};
    assert_int_equal(br_conn_send(client, &call->exchange), 0);
    carry(f, client);
}

static void pieces_are_frames(void **state)
{
    struct fixture f;
    struct call one, other;
    (void)state;
    start(&f, true);
    struct br_conn *client = br_h2_client_new(f.pool);
    client->wake = on_wake;
    call(&f, client, &one);
    struct br_request *first = f.request;
    call(&f, client, &other); /* beside it */
    assert_true(br_request_write(first, "data: 1\n\n", 9, 100));
    carry(&f, client);
    assert_true(br_request_write(f.request, "x", 1, 100));
    assert_true(br_request_write(first, "data: 2\n\n", 9, 100));
    assert_true(br_request_write(first, "data: 3\n\n", 9, 100));
    carry(&f, client);
    assert_false(one.done || other.done);
    br_request_end(first);
    carry(&f, client);
    assert_true(one.done && !other.done);
    assert_int_equal(one.exchange.http_status, 200);
    assert_string_equal(one.body, "data: 1\n\ndata: 2\n\ndata: 3\n\n");
    /* A stream that has nothing to send owes its reader nothing. */
    assert_true(f.server->ops->awaits_since(f.server, NOW_MS + 100000, BR_AWAITS_READING) ==
                UINT64_MAX);
    assert_true(br_request_write(f.request, "y", 1, 100));
    assert_false(br_request_write(f.request, "yy", 2, 2));
    assert_true(f.server->ops->awaits_since(f.server, NOW_MS + 100000, BR_AWAITS_READING) ==
                NOW_MS + 100000); /* when it was written */
    br_request_end(f.request);
    carry(&f, client);
    assert_string_equal(other.body, "xy");
    assert_int_equal(f.n_gone, 0);
    client->ops->free(client);
    end(&f);
}

/* RFC 9113 section 8.1: a body ends with END_STREAM; RST_STREAM says that it did not. */
static void what_is_broken_is_reset(void **state)
{
    struct fixture f;
    struct call one, other;
    (void)state;
    start(&f, true);
    struct br_conn *client = br_h2_client_new(f.pool);
    client->wake = on_wake;
    call(&f, client, &one);
    struct br_request *first = f.request;
    call(&f, client, &other);
    assert_true(br_request_write(first, "half", 4, 100));
    carry(&f, client);
    br_request_break(first);
    carry(&f, client);
    assert_true(one.done && !other.done);
    assert_int_not_equal(one.exchange.error, 0);
    br_request_end(f.request);
    carry(&f, client);
    assert_true(other.done);
    assert_int_equal(other.exchange.error, 0);
    call(&f, client, &one);
    assert_true(br_request_write(f.request, "half", 4, 100));
    br_request_break(f.request); /* before it was sent */
    carry(&f, client);
    assert_true(one.done);
    assert_int_not_equal(one.exchange.error, 0);
    assert_int_equal(f.n_gone, 0);
    client->ops->free(client);
    end(&f);
}

static void a_reset_is_told_of(void **state)
{
    struct fixture f;
    struct call one;
    (void)state;
    start(&f, true);
    struct br_conn *client = br_h2_client_new(f.pool);
    client->wake = on_wake;
    call(&f, client, &one);
    assert_true(br_request_write(f.request, "data", 4, 100));
    br_conn_cancel(client, &one.exchange);
    carry(&f, client);
    assert_int_equal(f.n_gone, 1);
    call(&f, client, &one); /* and the end of the connection */
    client->ops->free(client);
    end(&f);
    assert_int_equal(f.n_gone, 2);
}

SUITE(stream_reply)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_chunks),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(what_is_broken_has_no_last_chunk),
        cmocka_unit_test(the_end_of_the_connection_ends_it),
        cmocka_unit_test(a_head_has_no_body),
        cmocka_unit_test(what_waits_has_a_bound),
        cmocka_unit_test(who_goes_away_is_told_of),
        cmocka_unit_test(who_closes_its_side_may_have_left),
        cmocka_unit_test(pieces_are_frames),
        cmocka_unit_test(what_is_broken_is_reset),
        cmocka_unit_test(a_reset_is_told_of),
    };
    return RUN(tests, NULL, NULL);
}
