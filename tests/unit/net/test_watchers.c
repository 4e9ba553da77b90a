/* SPDX-License-Identifier: Apache-2.0 */
/* Memory is exhausted where libuv's table of descriptors grows (net/watchers.c). Braid must
 * reject the descriptor before libuv would abort the process. */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "net/net_internal.h"
#include "tests/support/fault.h"
#include "tests/support/test.h"

#define HIGH 300 /* a descriptor that needs a larger table than a new loop has */

struct bench {
    struct br_net *net;
    struct br_loop *loop;
    int ours, theirs;
    bool closed;
};

static void on_closed(struct br_stream *s, const char *why)
{
    (void)why;
    *(bool *)s->owner = true;
}

static void on_progress(struct br_stream *s)
{
    (void)s;
}

static const struct br_stream_events events = {.on_progress = on_progress, .on_closed = on_closed};

static void bench_open(struct bench *b)
{
    struct br_err err;
    int pair[2];
    *b = (struct bench){.net = br_net_new()};
    assert_non_null(b->net);
    assert_int_equal(br_loop_new(b->net, 0, 1, &b->loop, &err), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    b->theirs = pair[0];
    b->ours = fcntl(pair[1], F_DUPFD_CLOEXEC, HIGH);
    assert_true(b->ours >= HIGH);
    close(pair[1]);
}

/* Closes the bench. If `streams` is true, waits until the stream reports that the peer has closed
 * the connection. */
static void bench_close(struct bench *b, bool streams)
{
    close(b->theirs);
    while (streams && !b->closed)
        br_loop_step(b->loop);
    assert_int_equal(fcntl(b->ours, F_GETFD), -1);
    br_loop_free(b->loop);
    br_net_free(b->net);
}

static struct br_stream *bench_stream(struct bench *b)
{
    return br_stream_new(b->loop, b->ours, &events, &b->closed, false, false);
}

static void run_loop(void *arg)
{
    struct br_loop *loop = NULL;
    struct br_err err;
    struct br_net *net = br_net_new();
    (void)arg;
    assert_non_null(net);
    fault_start();
    int rc = br_loop_new(net, 0, 1, &loop, &err);
    fault_stop();
    assert_true(rc == 0 || fault_failed());
    br_loop_free(loop);
    br_net_free(net);
}

static void a_loop_without_memory_is_an_error(void **state)
{
    (void)state;
    fault_each("a loop", run_loop, NULL);
}

static void run_stream(void *arg)
{
    struct bench b;
    (void)arg;
    bench_open(&b);
    fault_start();
    struct br_stream *s = bench_stream(&b);
    fault_stop();
    assert_true(s || fault_failed());
    bench_close(&b, s);
}

static void a_stream_without_memory_is_an_error(void **state)
{
    (void)state;
    fault_each("a stream", run_stream, NULL);
}

/* The allocation of the test itself fails, then the reserve; libuv's allocation then succeeds. */
static void only_the_growth_of_the_table_fails(void **state)
{
    static const bool refused[] = {true, true, false};
    (void)state;
    for (unsigned i = 0; i < BR_COUNT(refused); i++) {
        struct bench b;
        bench_open(&b);
        fault_nth(i + 1);
        struct br_stream *s = bench_stream(&b);
        assert_true(fault_nth_stop());
        assert_int_equal(s == NULL, refused[i]);
        bench_close(&b, s);
    }
}

/* A descriptor that fits into the table does not need a reserve. */
static void a_table_grows_once(void **state)
{
    struct bench b;
    int pair[2];
    bool closed = false;
    (void)state;
    bench_open(&b);
    struct br_stream *first = bench_stream(&b);
    assert_non_null(first);
    assert_true(b.loop->watchable > HIGH);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    fault_nth(2);
    struct br_stream *second = br_stream_new(b.loop, pair[1], &events, &closed, false, false);
    assert_false(fault_nth_stop());
    assert_non_null(second);
    close(pair[0]);
    while (!closed)
        br_loop_step(b.loop);
    bench_close(&b, true);
}

SUITE(watchers)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loop_without_memory_is_an_error),
        cmocka_unit_test(a_stream_without_memory_is_an_error),
        cmocka_unit_test(only_the_growth_of_the_table_fails),
        cmocka_unit_test(a_table_grows_once),
    };
    br_log_setup(BR_LOG_ERROR, false, 2);
    return RUN(tests, NULL, NULL);
}
