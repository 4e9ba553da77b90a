/* SPDX-License-Identifier: Apache-2.0 */
/* The end of redirected exchanges: an answer, a cancellation, the end of the client, and
 * redirects to more servers than a client keeps. tests/e2e/test_redirects.py tests the rules for
 * following them. */
#include <netinet/in.h>
#include <unistd.h>

#include "base/err.h"
#include "net/redirect.h"
#include "tests/support/net_rig.h"
#include "tests/support/test.h"

#define OK "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
#define N_OTHERS (BR_REDIRECT_TARGETS_MAX + 1)

struct server {
    int listener;
    unsigned port;
    struct net_peer *peer;
};

struct fixture {
    struct net_rig *rig;
    struct server first, others[N_OTHERS];
    struct br_client *client;
    char url[64];
};

static void open_server(struct server *server)
{
    *server = (struct server){.port = 0};
    server->listener = net_listen(AF_INET, &server->port);
    assert_true(server->listener >= 0);
}

static void open_all(struct fixture *f, void **state)
{
    *f = (struct fixture){.rig = *state};
    open_server(&f->first);
    for (int i = 0; i < N_OTHERS; i++)
        open_server(&f->others[i]);
    (void)snprintf(f->url, sizeof f->url, "http://127.0.0.1:%u", f->first.port);
    f->client = net_connect(f->rig, &(struct br_client_config){.endpoint = f->url});
}

static void close_server(struct server *server)
{
    if (server->peer)
        net_hang_up(server->peer);
    close(server->listener);
}

static void close_all(struct fixture *f)
{
    br_client_free(f->client);
    close_server(&f->first);
    for (int i = 0; i < N_OTHERS; i++)
        close_server(&f->others[i]);
}

/* Waits until the server receives a request. */
static void expect_request(struct fixture *f, struct server *server, const char *head)
{
    if (!server->peer)
        NET_UNTIL(f->rig, (server->peer = net_accept(server->listener)));
    NET_UNTIL(f->rig, net_count(server->peer, head));
    server->peer->n_in = 0;
}

/* Sends the call, which the first server redirects to another one. */
static void redirect(struct fixture *f, struct net_call *c, int other)
{
    char answer[160];
    br_client_send(f->client, &c->x);
    expect_request(f, &f->first, "POST /call HTTP/1.1\r\n");
    (void)snprintf(answer, sizeof answer,
                   "HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:%u/at\r\n"
                   "Content-Length: 3\r\n\r\nabc",
                   f->others[other].port);
    net_puts(f->rig, f->first.peer, answer);
}

static void the_fields_of_the_exchange_are_restored(void **state)
{
    struct fixture f;
    struct net_call c;
    open_all(&f, state);
    const struct br_header headers[] = {{"x-secret", "s"}, {"accept", "a"}};
    net_call_init(f.rig, &c, false, 5);
    c.x.headers = headers;
    c.x.n_headers = 2;
    redirect(&f, &c, 0);
    expect_request(&f, &f.others[0], "POST /at HTTP/1.1\r\n");
    net_puts(f.rig, f.others[0].peer, OK);
    NET_UNTIL(f.rig, c.n_done);
    assert_int_equal(c.http_status, 200);
    assert_string_equal(c.response, "ok");
    assert_string_equal(c.x.path, "/call");
    assert_ptr_equal(c.x.headers, headers);
    assert_int_equal(c.x.n_headers, 2);
    assert_null(c.x.hops);
    net_call_release(&c);
    close_all(&f);
}

static void cancelled_after_a_redirect(void **state)
{
    struct fixture f;
    struct net_call c;
    open_all(&f, state);
    net_call_init(f.rig, &c, false, 5);
    redirect(&f, &c, 0);
    expect_request(&f, &f.others[0], "POST /at HTTP/1.1\r\n");
    br_client_cancel(f.client, &c.x);
    NET_UNTIL(f.rig, net_poll(f.others[0].peer));
    assert_int_equal(c.n_done, 0);
    assert_null(c.x.hops);
    assert_string_equal(c.x.path, "/call");
    net_call_release(&c);
    close_all(&f);
}

/* The client is freed before or after the second connection is established. */
static void freed_after_a_redirect(void **state)
{
    for (int connected = 0; connected < 2; connected++) {
        struct fixture f;
        struct net_call c;
        open_all(&f, state);
        net_call_init(f.rig, &c, false, 5);
        redirect(&f, &c, 0);
        if (connected)
            expect_request(&f, &f.others[0], "POST /at HTTP/1.1\r\n");
        else
            NET_UNTIL(f.rig, c.x.hops);
        br_client_free(f.client);
        f.client = NULL;
        assert_int_equal(c.n_done, 1);
        assert_int_equal(c.error, BR_ECLOSED);
        assert_null(c.x.hops);
        net_call_release(&c);
        close_all(&f);
    }
}

static void more_servers_than_are_kept(void **state)
{
    struct fixture f;
    struct net_call c[N_OTHERS];
    open_all(&f, state);
    for (int i = 0; i < N_OTHERS; i++)
        net_call_init(f.rig, &c[i], false, 5);
    for (int i = 0; i < BR_REDIRECT_TARGETS_MAX; i++) {
        redirect(&f, &c[i], i);
        expect_request(&f, &f.others[i], "POST /at HTTP/1.1\r\n");
    }
    redirect(&f, &c[N_OTHERS - 1], N_OTHERS - 1); /* all connections to the servers are in use */
    NET_UNTIL(f.rig, c[N_OTHERS - 1].n_done);
    assert_int_equal(c[N_OTHERS - 1].error, BR_EFULL);
    assert_non_null(strstr(c[N_OTHERS - 1].error_text, "too many servers"));

    /* answers one exchange, whose connection becomes idle and is replaced */
    net_puts(f.rig, f.others[1].peer, OK);
    NET_UNTIL(f.rig, c[1].n_done);
    c[N_OTHERS - 1].n_done = 0;
    redirect(&f, &c[N_OTHERS - 1], N_OTHERS - 1);
    expect_request(&f, &f.others[N_OTHERS - 1], "POST /at HTTP/1.1\r\n");
    NET_UNTIL(f.rig, net_poll(f.others[1].peer));
    for (int i = 0; i < N_OTHERS; i++)
        if (i != 1)
            net_puts(f.rig, f.others[i].peer, OK);
    for (int i = 0; i < N_OTHERS; i++) {
        NET_UNTIL(f.rig, c[i].n_done);
        assert_int_equal(c[i].http_status, 200);
        net_call_release(&c[i]);
    }
    close_all(&f);
}

SUITE(net_redirect)
{
    const struct CMUnitTest tests[] = {
        NET_TEST(the_fields_of_the_exchange_are_restored),
        NET_TEST(cancelled_after_a_redirect),
        NET_TEST(freed_after_a_redirect),
        NET_TEST(more_servers_than_are_kept),
    };
    return RUN(tests, NULL, NULL);
}
