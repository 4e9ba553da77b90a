/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests replies with a streamed body (wire/request.h), in HTTP/1.1 and HTTP/2. Expected chunks are
 * according to RFC 9112 section 7.1. Frames are read by Braid's HTTP/2 client.
 */
#include "base/str.h"
#include "tests/support/fault.h"
#include "tests/support/test.h"
#include "wire/exchange.h"

#define NOW_MS 1000000
#define GET_11 "GET /tail HTTP/1.1\r\nHost: h\r\n\r\n"

struct fixture {
    struct br_handler service; /* must be the first member */
    struct br_pool *pool;
    struct br_conn *server;
    struct br_request *request; /* the last request that the service received */
    struct br_str out;          /* bytes received by an HTTP/1.1 client */
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
        return; /* for other paths, the test replies later */
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

/* Returns all output of the server. */
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

static void pieces_become_chunks(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, false);
    feed(&f, GET_11);
    assert_string_equal(pull(&f), "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                  "Transfer-Encoding: chunked\r\n\r\n");
    assert_false(f.server->ops->idle(f.server));
    assert_true(br_request_write(f.request, "data: 1\n\n", 9, 100));
    /* nothing is written, because an empty chunk would end the body */
    assert_true(br_request_write(f.request, "", 0, 100));
    assert_string_equal(pull(&f), "9\r\ndata: 1\n\n\r\n");
    assert_true(br_request_write(f.request, "data: twenty seven bytes..\n", 27, 100));
    br_request_end(f.request);
    assert_string_equal(pull(&f), "1b\r\ndata: twenty seven bytes..\n\r\n0\r\n\r\n");
    assert_true(f.server->ops->idle(f.server));
    assert_false(f.server->ops->finished(f.server));
    feed(&f, GET_11); /* the connection stays open */
    assert_int_equal(f.n_bodies, 2);
    br_request_end(f.request);
    assert_non_null(strstr(pull(&f), "\r\n\r\n0\r\n\r\n"));
    assert_int_equal(f.n_gone, 0);
    end(&f);
}

/* If memory is exhausted, a request fails with a retryable status. The service never receives a
 * request without its path. */
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

static void broken_replies_have_no_last_chunk(void **state)
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

/* HTTP/1.0 does not have chunks: the body ends with the connection. */
static void an_http10_body_ends_with_the_connection(void **state)
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

/* A write that would exceed the bound of waiting bytes is rejected. */
static void waiting_bytes_are_limited(void **state)
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

static void a_closed_connection_is_reported_to_the_service(void **state)
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
    end(&f); /* the connection is freed before the reply has ended */
    assert_int_equal(f.n_gone, 1);
}

/* A service can request that a connection whose client has closed its sending side counts as
 * closed, even before the reply. If the service does not request this, the client still receives
 * the reply. */
static void a_half_closed_connection_may_count_as_closed(void **state)
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

static void pieces_become_frames(void **state)
{
    struct fixture f;
    struct call one, other;
    (void)state;
    start(&f, true);
    struct br_conn *client = br_h2_client_new(f.pool);
    client->wake = on_wake;
    call(&f, client, &one);
    struct br_request *first = f.request;
    call(&f, client, &other); /* both requests are open at the same time */
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
    /* If no data of a stream is queued, the connection does not count as waiting for its client to
     * read. */
    assert_true(f.server->ops->awaits_since(f.server, NOW_MS + 100000, BR_AWAITS_READING) ==
                UINT64_MAX);
    assert_true(br_request_write(f.request, "y", 1, 100));
    assert_false(br_request_write(f.request, "yy", 2, 2));
    assert_true(f.server->ops->awaits_since(f.server, NOW_MS + 100000, BR_AWAITS_READING) ==
                NOW_MS + 100000); /* the time at which the data was written */
    br_request_end(f.request);
    carry(&f, client);
    assert_string_equal(other.body, "xy");
    assert_int_equal(f.n_gone, 0);
    client->ops->free(client);
    end(&f);
}

/* RFC 9113 section 8.1: a complete body ends with END_STREAM, and an incomplete one with
 * RST_STREAM. */
static void broken_replies_are_reset(void **state)
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
    br_request_break(f.request); /* the reply is broken off before its data was sent */
    carry(&f, client);
    assert_true(one.done);
    assert_int_not_equal(one.exchange.error, 0);
    assert_int_equal(f.n_gone, 0);
    client->ops->free(client);
    end(&f);
}

static void a_reset_is_reported_to_the_service(void **state)
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
    call(&f, client, &one); /* this request ends with its connection */
    client->ops->free(client);
    end(&f);
    assert_int_equal(f.n_gone, 2);
}

SUITE(stream_reply)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_become_chunks),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(broken_replies_have_no_last_chunk),
        cmocka_unit_test(an_http10_body_ends_with_the_connection),
        cmocka_unit_test(a_head_has_no_body),
        cmocka_unit_test(waiting_bytes_are_limited),
        cmocka_unit_test(a_closed_connection_is_reported_to_the_service),
        cmocka_unit_test(a_half_closed_connection_may_count_as_closed),
        cmocka_unit_test(pieces_become_frames),
        cmocka_unit_test(broken_replies_are_reset),
        cmocka_unit_test(a_reset_is_reported_to_the_service),
    };
    return RUN(tests, NULL, NULL);
}
