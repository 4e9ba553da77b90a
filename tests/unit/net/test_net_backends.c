/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a client with several backends on loopback addresses. The backends hang, disappear and
 * return. The test controls name resolution and the clock. */
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "net/client.h"
#include "tests/support/fake_libc.h"
#include "tests/support/h2_raw.h"
#include "tests/support/net_rig.h"
#include "tests/support/test.h"

#define NODES 3
#define CONNECTIONS 8

/* --- Names ------------------------------------------------------------------------------------ */

static _Atomic unsigned n_addresses = NODES,
                        n_look_ups; /* n_addresses: number of addresses of backends.test */

static int resolve(const char *name, uint32_t *ret_addresses)
{
    n_look_ups++;
    bool is_own = strcmp(name, "127.0.0.1") == 0; /* the server of another test */
    if (!is_own && (strcmp(name, "backends.test") != 0 || n_addresses == 0))
        return EAI_NONAME;
    int n = is_own ? 1 : (int)n_addresses;
    for (int i = 0; i < n; i++)
        ret_addresses[i] = 0x7f000001 + (uint32_t)i;
    return n;
}

/* --- Backends --------------------------------------------------------------------------------- */

struct node {
    int listener; /* -1: not listening */
    struct h2_server *h2[CONNECTIONS];
    unsigned n_answered[CONNECTIONS];
    unsigned n; /* accepted connections */
    unsigned n_calls;
    bool unresponsive; /* does not answer */
    bool not_reading;  /* does not read, in addition to not answering */
};

struct fixture {
    struct net_rig *rig;
    struct node nodes[NODES];
    unsigned port;
    char url[64];
    struct br_client *client;
};

static int listen_at(unsigned i, unsigned *ret_port)
{
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(0x7f000001 + i),
                             .sin_port = htons((uint16_t)*ret_port)};
    socklen_t len = sizeof in;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    if (bind(fd, (struct sockaddr *)&in, len) || listen(fd, 16)) {
        close(fd);
        return -1;
    }
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    *ret_port = ntohs(in.sin_port);
    return fd;
}

/* Opens all backends on one port. One name resolves to all of their addresses. */
static void open_with(struct fixture *f, void **state, struct br_client_config config)
{
    bool all = false;
    *f = (struct fixture){.rig = *state};
    n_addresses = NODES;
    n_look_ups = 0;
    for (int tries = 0; tries < 20 && !all; tries++) {
        f->port = 0;
        all = true;
        for (unsigned i = 0; i < NODES; i++) {
            f->nodes[i].listener = all ? listen_at(i, &f->port) : -1;
            all = f->nodes[i].listener >= 0;
        }
        for (unsigned i = 0; i < NODES && !all; i++)
            if (f->nodes[i].listener >= 0)
                close(f->nodes[i].listener);
    }
    assert_true(all);
    (void)snprintf(f->url, sizeof f->url, "http://%s:%u",
                   config.endpoint ? config.endpoint : "backends.test", f->port);
    config.endpoint = f->url;
    config.grpc = true;
    f->client = net_connect(f->rig, &config);
}

static void answer_all(struct node *node, unsigned k)
{
    struct h2_server *h2 = node->h2[k];
    while (!node->unresponsive && node->n_answered[k] < h2->n_streams &&
           h2->streams[node->n_answered[k]].ended) {
        h2_server_answer(h2, h2->streams[node->n_answered[k]++].id, 0);
        node->n_calls++;
    }
}

static void node_turn(struct node *node)
{
    struct net_peer *p;
    while (node->listener >= 0 && !node->not_reading && (p = net_accept(node->listener))) {
        assert_true(node->n < CONNECTIONS);
        node->h2[node->n++] = h2_server_new(p, 100, false);
    }
    for (unsigned k = 0; k < node->n && !node->not_reading; k++) {
        if (!node->h2[k])
            continue;
        if (h2_server_turn(node->h2[k])) {
            answer_all(node, k);
            continue;
        }
        h2_server_free(node->h2[k]);
        node->h2[k] = NULL;
    }
}

static void step_nodes(struct fixture *f)
{
    for (unsigned i = 0; i < NODES; i++)
        node_turn(&f->nodes[i]);
}

#define UNTIL(f, condition) NET_UNTIL((f)->rig, (step_nodes(f), (condition)))

/* Simulates a machine that is shut down: its connections end, and it does not listen any more. */
static void node_stop(struct node *node)
{
    for (unsigned k = 0; k < node->n; k++)
        if (node->h2[k])
            h2_server_free(node->h2[k]);
    node->n = 0;
    memset(node->n_answered, 0, sizeof node->n_answered);
    if (node->listener >= 0)
        close(node->listener);
    node->listener = -1;
}

static unsigned n_open(const struct node *node)
{
    unsigned n = 0;
    for (unsigned k = 0; k < node->n; k++)
        n += node->h2[k] != NULL;
    return n;
}

static void finish(struct fixture *f)
{
    br_client_free(f->client);
    for (unsigned i = 0; i < NODES; i++)
        node_stop(&f->nodes[i]);
}

/* Advances the clock by `ms`, and lets the client handle timers and received data. */
static void pass(struct fixture *f, uint64_t ms)
{
    fake_libc.skipped_ms += ms;
    for (int i = 0; i < 20; i++) {
        step_nodes(f);
        net_step(f->rig);
    }
}

/* Sends a call that is answered. Returns the code of its error. */
static int call(struct fixture *f)
{
    struct net_call c;
    net_call_init(f->rig, &c, true, 100);
    br_client_send(f->client, &c.x);
    UNTIL(f, c.n_done);
    net_call_release(&c);
    return c.error;
}

/* Sends a call that is not answered, and cancels it. */
static void call_without_answer(struct fixture *f, struct node *node, unsigned k)
{
    struct net_call c;
    unsigned before = node->n > k && node->h2[k] ? node->h2[k]->n_streams : 0;
    net_call_init(f->rig, &c, true, 100);
    br_client_send(f->client, &c.x);
    UNTIL(f, node->n > k && node->h2[k]->n_streams > before && node->h2[k]->streams[before].ended);
    br_client_cancel(f->client, &c.x);
    assert_int_equal(c.n_done, 0);
    net_call_release(&c);
}

/* Returns TCP_USER_TIMEOUT of the client's connection to the port; 0 if it is not set. */
static unsigned user_timeout_ms(unsigned port)
{
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_in in;
        socklen_t len = sizeof in;
        unsigned value = 0;
        if (getpeername(fd, (struct sockaddr *)&in, &len) || in.sin_family != AF_INET ||
            ntohs(in.sin_port) != port)
            continue;
        len = sizeof value;
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &len), 0);
        return value;
    }
    return 0;
}

/* --- Backends that hang ----------------------------------------------------------------------- */

static void two_consecutive_timeouts_end_a_connection(void **state)
{
    struct fixture f;
    open_with(&f, state, (struct br_client_config){.endpoint = "127.0.0.1"});
    struct node *node = &f.nodes[0];
    assert_int_equal(call(&f), 0);
    for (int i = 0; i < 3; i++) { /* an answer between two timeouts keeps the connection open */
        node->unresponsive = true;
        call_without_answer(&f, node, 0);
        node->unresponsive = false;
        node->n_answered[0]++;
        assert_int_equal(call(&f), 0);
        assert_int_equal(node->n, 1);
    }
    node->unresponsive = true;
    call_without_answer(&f, node, 0);
    call_without_answer(&f, node, 0);
    UNTIL(&f, n_open(node) == 0);
    node->unresponsive = false;
    assert_int_equal(call(&f), 0); /* the client uses another connection at once */
    assert_int_equal(node->n, 2);
    finish(&f);
}

/* Requests in progress on a connection that the client does not use for new requests may still be
 * answered. */
static void other_calls_of_the_connection_may_finish(void **state)
{
    struct fixture f;
    struct net_call slow;
    open_with(&f, state, (struct br_client_config){.endpoint = "127.0.0.1"});
    struct node *node = &f.nodes[0];
    node->unresponsive = true;
    net_call_init(f.rig, &slow, true, 100);
    br_client_send(f.client, &slow.x);
    UNTIL(&f, node->n == 1 && node->h2[0]->n_streams == 1);
    call_without_answer(&f, node, 0);
    call_without_answer(&f, node, 0);
    pass(&f, 0);
    assert_int_equal(n_open(node), 1);
    h2_server_answer(node->h2[0], 1, 0);
    UNTIL(&f, slow.n_done);
    assert_int_equal(slow.error, 0);
    pass(&f, 2000);
    assert_int_equal(n_open(node), 0);
    net_call_release(&slow);
    finish(&f);
}

/* The peer has vanished and the socket is full: the connection is closed without sending
 * anything. */
static void a_full_socket_is_closed_at_once(void **state)
{
    struct fixture f;
    open_with(&f, state, (struct br_client_config){.endpoint = "127.0.0.1"});
    assert_int_equal(call(&f), 0);
    assert_int_not_equal(user_timeout_ms(f.port), 0);
    f.nodes[0].not_reading = true;
    for (int i = 0; i < 2; i++) {
        struct net_call c;
        net_call_init(f.rig, &c, true, 16u << 20);
        br_client_send(f.client, &c.x);
        pass(&f, 0);
        br_client_cancel(f.client, &c.x);
        net_call_release(&c);
    }
    pass(&f, 0);
    assert_int_equal(user_timeout_ms(f.port), 0);
    finish(&f);
}

/* With the default settings, the client sends a PING if a call is in progress and nothing was
 * received for 30 s. Without an answer, it closes the connection 10 s later. */
static void silent_connections_get_a_ping(void **state)
{
    struct fixture f;
    struct net_call c;
    open_with(&f, state, (struct br_client_config){.endpoint = "127.0.0.1"});
    struct node *node = &f.nodes[0];
    node->unresponsive = true;
    net_call_init(f.rig, &c, true, 100);
    br_client_send(f.client, &c.x);
    UNTIL(&f, node->n == 1 && node->h2[0]->n_streams == 1);
    pass(&f, 0); /* exchanges SETTINGS and their acknowledgements */
    pass(&f, 29000);
    assert_int_equal(node->h2[0]->n_pings, 0);
    pass(&f, 2000);
    UNTIL(&f, node->h2[0]->n_pings == 1); /* answered */
    pass(&f, 20000);
    assert_int_equal(c.n_done, 0);
    node->not_reading = true;
    pass(&f, 12000);
    pass(&f, 9000);
    assert_int_equal(c.n_done, 0);
    pass(&f, 3000);
    assert_int_equal(c.n_done, 1);
    assert_int_equal(c.error, BR_ECLOSED);
    net_call_release(&c);
    finish(&f);
}

static void idle_connections_get_no_pings(void **state)
{
    struct fixture f;
    open_with(&f, state, (struct br_client_config){.endpoint = "127.0.0.1"});
    assert_int_equal(call(&f), 0);
    pass(&f, 200000);
    pass(&f, 200000);
    assert_int_equal(f.nodes[0].h2[0]->n_pings, 0);
    assert_int_equal(call(&f), 0);
    assert_int_equal(f.nodes[0].n, 1);
    finish(&f);
}

/* gRPC proposal A8: if a server rejects the PINGs as too many, the client sends half as many. */
static void pings_are_halved_when_a_server_rejects_them(void **state)
{
    struct fixture f;
    struct net_call c;
    open_with(&f, state,
              (struct br_client_config){.endpoint = "127.0.0.1", .keepalive_time_ms = 10000});
    struct node *node = &f.nodes[0];
    node->unresponsive = true;
    net_call_init(f.rig, &c, true, 100);
    br_client_send(f.client, &c.x);
    UNTIL(&f, node->n == 1 && node->h2[0]->n_streams == 1);
    assert_int_equal(nghttp2_submit_goaway(node->h2[0]->session, 0, 0, NGHTTP2_ENHANCE_YOUR_CALM,
                                           (const uint8_t *)"too_many_pings", 14),
                     0);
    UNTIL(&f, c.n_done);
    c.n_done = 0;
    br_client_send(f.client, &c.x);
    UNTIL(&f, node->n == 2 && node->h2[1]->n_streams == 1);
    pass(&f, 0);
    pass(&f, 15000);
    assert_int_equal(node->h2[1]->n_pings, 0);
    pass(&f, 6000);
    UNTIL(&f, node->h2[1]->n_pings == 1);
    br_client_cancel(f.client, &c.x);
    net_call_release(&c);
    finish(&f);
}

static void tcp_user_timeout_is_set(void **state)
{
    for (unsigned timeout_ms = 0; timeout_ms <= 7000; timeout_ms += 7000) {
        struct fixture f;
        open_with(
            &f, state,
            (struct br_client_config){.endpoint = "127.0.0.1", .keepalive_timeout_ms = timeout_ms});
        assert_int_equal(call(&f), 0);
        assert_int_equal(user_timeout_ms(f.port), timeout_ms ? timeout_ms : 20000);
        finish(&f);
    }
}

/* gRPC waits as long for data that is not acknowledged. A request that has begun has half a
 * minute. */
static void a_client_that_does_not_read_is_closed_after_twenty_seconds(void **state)
{
    struct net_rig *rig = *state;
    struct net_service service;
    net_service_init(&service);
    service.answer_bytes = 32u << 20;
    struct br_server *server = net_serve(rig, &service, NULL);
    struct net_peer *p = net_dial(br_server_port(server));
    p->deaf = true;
    net_puts(rig, p, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    NET_UNTIL(rig, service.n_bodies == 1);
    net_idle(rig, 10);
    fake_libc.skipped_ms += 19000;
    net_idle(rig, 10);
    assert_int_equal(net_connections(rig), 1);
    fake_libc.skipped_ms += 2000;
    for (int i = 0; i < 20; i++)
        net_step(rig);
    assert_int_equal(net_connections(rig), 0);
    net_hang_up(p);
    br_server_free(server);
}

/* --- Several addresses ------------------------------------------------------------------------ */

/* Sends calls one after the other, and counts those that each backend received. */
static void spread(struct fixture *f, unsigned n, unsigned ret[NODES])
{
    unsigned before[NODES];
    for (unsigned i = 0; i < NODES; i++)
        before[i] = f->nodes[i].n_calls;
    for (unsigned k = 0; k < n; k++)
        assert_int_equal(call(f), 0);
    for (unsigned i = 0; i < NODES; i++)
        ret[i] = f->nodes[i].n_calls - before[i];
}

static bool all_are_up(const struct fixture *f, unsigned each)
{
    for (unsigned i = 0; i < NODES; i++)
        if (n_open(&f->nodes[i]) != each)
            return false;
    return true;
}

static void round_robin_uses_all_backends_equally(void **state)
{
    for (unsigned each = 1; each <= 2; each++) {
        struct fixture f;
        unsigned n[NODES];
        open_with(&f, state, (struct br_client_config){.max_connections = each});
        assert_int_equal(call(&f), 0);
        UNTIL(&f, all_are_up(&f, each));
        pass(&f, 0);
        spread(&f, 12, n);
        for (unsigned i = 0; i < NODES; i++)
            assert_int_equal(n[i], 4);
        assert_int_equal(n_look_ups, 1);
        finish(&f);
    }
}

static void pick_first_uses_one_backend(void **state)
{
    struct fixture f;
    unsigned n[NODES];
    open_with(&f, state, (struct br_client_config){.pick_first = true});
    spread(&f, 6, n);
    assert_int_equal(n[0], 6);
    node_stop(&f.nodes[0]);
    pass(&f, 0);
    spread(&f, 6, n); /* the client uses the next address and stays there */
    assert_int_equal(n[1], 6);
    assert_int_equal(f.nodes[2].n, 0);
    finish(&f);
}

/* While a backend is down, the other backends serve all calls. When it is back, the client sends
 * calls to it again. */
static void a_stopped_backend_is_left_and_used_again(void **state)
{
    struct fixture f;
    unsigned n[NODES];
    open_with(&f, state, (struct br_client_config){0});
    assert_int_equal(call(&f), 0);
    UNTIL(&f, all_are_up(&f, 1));
    pass(&f, 0);
    node_stop(&f.nodes[1]);
    pass(&f, 0);
    spread(&f, 12, n);
    assert_true(n[0] == 6 && n[1] == 0 && n[2] == 6);
    pass(&f, 3000);
    spread(&f, 12, n);
    assert_true(n[0] == 6 && n[1] == 0 && n[2] == 6);
    f.nodes[1].listener = listen_at(1, &f.port);
    pass(&f, 144000); /* the longest possible delay */
    UNTIL(&f, all_are_up(&f, 1));
    pass(&f, 0);
    spread(&f, 12, n);
    for (unsigned i = 0; i < NODES; i++)
        assert_int_equal(n[i], 4);
    finish(&f);
}

/* A backend that hangs causes two timeouts. Then the other backends receive all calls. */
static void a_backend_that_hangs_is_left(void **state)
{
    struct fixture f;
    unsigned n[NODES];
    open_with(&f, state, (struct br_client_config){.pick_first = true});
    assert_int_equal(call(&f), 0);
    f.nodes[0].unresponsive = true;
    call_without_answer(&f, &f.nodes[0], 0);
    call_without_answer(&f, &f.nodes[0], 0);
    spread(&f, 6, n);
    assert_true(n[0] == 0 && n[1] == 6);
    finish(&f);
}

/* If all backends are down, a call fails at once. A later call uses the backends that have
 * returned. */
static void a_call_fails_if_all_backends_are_down(void **state)
{
    struct fixture f;
    unsigned n[NODES];
    open_with(&f, state, (struct br_client_config){0});
    for (unsigned i = 0; i < NODES; i++)
        node_stop(&f.nodes[i]);
    for (int i = 0; i < 10; i++) { /* most of these calls fail without a connection attempt */
        struct net_call c;
        net_call_init(f.rig, &c, true, 100);
        net_call(f.rig, f.client, &c);
        assert_int_equal(c.error, BR_EIO);
        assert_non_null(strstr(c.error_text, "refused"));
        net_call_release(&c);
    }
    f.nodes[2].listener = listen_at(2, &f.port);
    pass(&f, 3000);
    spread(&f, 3, n);
    assert_int_equal(n[2], 3);
    finish(&f);
}

/* --- HTTP/1.1 --------------------------------------------------------------------------------- */

static struct br_client *connect_http(struct fixture *f)
{
    for (unsigned i = 0; i < NODES; i++)
        /* the backend does not read; the test itself accepts its connections */
        f->nodes[i].not_reading = true;
    br_client_free(f->client);
    return net_connect(f->rig, &(struct br_client_config){.endpoint = f->url});
}

/* Returns the next connection to a node. */
static struct net_peer *accept_at(struct fixture *f, unsigned i)
{
    struct net_peer *p = NULL;
    NET_UNTIL(f->rig, (p = net_accept(f->nodes[i].listener)));
    return p;
}

static void call_http(struct fixture *f, struct net_call *c)
{
    net_call_init(f->rig, c, false, 10);
    br_client_send(f->client, &c->x);
}

static void answer_http(struct fixture *f, struct net_call *c, struct net_peer *p)
{
    NET_UNTIL(f->rig, net_count(p, "POST /call HTTP/1.1") == 1);
    net_puts(f->rig, p, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    NET_UNTIL(f->rig, c->n_done);
    assert_int_equal(c->http_status, 200);
    net_call_release(c);
}

/* --- Connecting before a request -------------------------------------------------------------- */

static void count_reached(void *arg)
{
    unsigned *n = arg;
    ++*n;
}

/* Milliseconds, longer than the interval between two connection attempts, which is 2 s plus at most
 * 20 %. */
#define PROBE_MS 2401

static void node_start(struct fixture *f, unsigned i)
{
    unsigned port = f->port;
    f->nodes[i].listener = listen_at(i, &port);
    assert_true(f->nodes[i].listener >= 0);
}

/* After br_client_expect_retry, the client reconnects without a request, even if the back-off after
 * so many failures would be two minutes. */
static void a_wanted_backend_is_connected_without_a_request(void **state)
{
    static const char *const names[] = {"127.0.0.1", "backends.test"};
    for (unsigned k = 0; k < BR_COUNT(names); k++) {
        struct fixture f;
        unsigned n_reached = 0, n = k ? NODES : 1;
        open_with(&f, state,
                  (struct br_client_config){.endpoint = names[k],
                                            .on_reachable = count_reached,
                                            .on_reachable_arg = &n_reached});
        for (unsigned i = 0; i < NODES; i++)
            node_stop(&f.nodes[i]);
        assert_int_equal(call(&f), BR_EIO);
        br_client_expect_retry(f.client);
        for (int i = 0; i < 20; i++)
            pass(&f, PROBE_MS);
        assert_int_equal(n_reached, 0);
        for (unsigned i = 0; i < n; i++)
            node_start(&f, i);
        pass(&f, PROBE_MS);
        UNTIL(&f, n_open(&f.nodes[0]) == 1 && (n == 1 || all_are_up(&f, 1)));
        assert_int_equal(n_reached, 1);
        assert_int_equal(call(&f), 0); /* uses the connection that is already open */
        assert_int_equal(f.nodes[0].n, 1);
        finish(&f);
    }
}

/* br_client_expect_retry was not called for a minute: the client stops connecting to the backend.
 */
static void a_backend_no_longer_wanted_is_not_connected(void **state)
{
    struct fixture f;
    unsigned n_reached = 0;
    open_with(&f, state,
              (struct br_client_config){.endpoint = "127.0.0.1",
                                        .on_reachable = count_reached,
                                        .on_reachable_arg = &n_reached});
    node_stop(&f.nodes[0]);
    assert_int_equal(call(&f), BR_EIO);
    br_client_expect_retry(f.client);
    for (int i = 0; i < 26; i++)
        pass(&f, PROBE_MS);
    node_start(&f, 0);
    for (int i = 0; i < 5; i++)
        pass(&f, PROBE_MS);
    assert_int_equal(n_reached, 0);
    assert_int_equal(f.nodes[0].n, 0);
    assert_int_equal(call(&f), 0); /* not followed by br_client_expect_retry */
    assert_int_equal(n_reached, 0);
    finish(&f);
}

/* A backend that worked before hangs. The first timeout ends the connection; the second makes
 * the client use another backend. */
static void http_leaves_a_backend_that_hangs(void **state)
{
    struct fixture f;
    struct net_call c;
    struct net_peer *p[3];
    open_with(&f, state, (struct br_client_config){0});
    f.client = connect_http(&f);
    call_http(&f, &c);
    p[0] = accept_at(&f, 0);
    answer_http(&f, &c, p[0]);
    for (int i = 0; i < 2; i++) {
        call_http(&f, &c);
        p[1] = i == 0 ? p[0] : accept_at(&f, 0);
        NET_UNTIL(f.rig, net_count(p[1], "POST /call HTTP/1.1") == (i == 0 ? 2 : 1));
        br_client_cancel(f.client, &c.x);
        NET_UNTIL(f.rig, net_poll(p[1]));
        net_call_release(&c);
    }
    call_http(&f, &c);
    p[2] = accept_at(&f, 1);
    answer_http(&f, &c, p[2]);
    for (int i = 0; i < 3; i++)
        net_hang_up(p[i]);
    finish(&f);
}

/* If an address does not answer a connection attempt, the client tries the next address in
 * parallel. */
static void http_tries_the_next_address_in_parallel(void **state)
{
    struct fixture f;
    struct net_call c;
    int full[8];
    open_with(&f, state, (struct br_client_config){0});
    f.client = connect_http(&f);
    /* connections are not accepted, so SYNs are dropped */
    assert_int_equal(listen(f.nodes[0].listener, 0), 0);
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(0x7f000001),
                             .sin_port = htons((uint16_t)f.port)};
    for (size_t i = 0; i < BR_COUNT(full); i++) {
        full[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(full[i], (struct sockaddr *)&in, sizeof in);
    }
    call_http(&f, &c);
    pass(&f, 1000);
    assert_null(net_accept(f.nodes[1].listener));
    pass(&f, 2000); /* longer than the delay before the next address, shorter than the timeout */
    pass(&f, 0);
    struct net_peer *p = net_accept(f.nodes[1].listener);
    assert_non_null(p);
    answer_http(&f, &c, p);
    net_hang_up(p);
    for (size_t i = 0; i < BR_COUNT(full); i++)
        close(full[i]);
    finish(&f);
}

static void names_are_resolved_again(void **state)
{
    struct fixture f;
    unsigned n[NODES];
    open_with(&f, state, (struct br_client_config){0});
    n_addresses = 1;
    spread(&f, 3, n);
    assert_true(n[0] == 3 && n_look_ups == 1);
    /* the name now has a second address; the client does not resolve it again while the first
     * one works */
    n_addresses = 2;
    pass(&f, 2000);
    spread(&f, 4, n);
    assert_true(n[0] == 4 && n_look_ups == 1);
    node_stop(&f.nodes[0]);
    f.nodes[0].listener = listen_at(0, &f.port);
    pass(&f, 2000);
    assert_int_equal(call(&f), 0);
    assert_int_equal(n_look_ups, 2);
    UNTIL(&f, n_open(&f.nodes[0]) == 1 && n_open(&f.nodes[1]) == 1);
    pass(&f, 0);
    spread(&f, 4, n);
    assert_true(n[0] == 2 && n[1] == 2);

    /* the name no longer has the second address: the client closes that connection after its last
     * request */
    n_addresses = 1;
    node_stop(&f.nodes[0]);
    f.nodes[0].listener = listen_at(0, &f.port);
    pass(&f, 2000);
    UNTIL(&f, n_open(&f.nodes[1]) == 0);
    spread(&f, 4, n);
    assert_true(n[0] == 4 && n[1] == 0);
    n_addresses = 0; /* the name cannot be resolved: the client keeps the known addresses */
    node_stop(&f.nodes[0]);
    f.nodes[0].listener = listen_at(0, &f.port);
    pass(&f, 2000);
    spread(&f, 4, n);
    assert_int_equal(n[0], 4);
    finish(&f);
}

SUITE(net_backends)
{
    fake_libc.resolve = resolve;
    const struct CMUnitTest tests[] = {
        NET_TEST(two_consecutive_timeouts_end_a_connection),
        NET_TEST(other_calls_of_the_connection_may_finish),
        NET_TEST(a_full_socket_is_closed_at_once),
        NET_TEST(silent_connections_get_a_ping),
        NET_TEST(idle_connections_get_no_pings),
        NET_TEST(pings_are_halved_when_a_server_rejects_them),
        NET_TEST(tcp_user_timeout_is_set),
        NET_TEST(a_client_that_does_not_read_is_closed_after_twenty_seconds),
        NET_TEST(round_robin_uses_all_backends_equally),
        NET_TEST(pick_first_uses_one_backend),
        NET_TEST(a_stopped_backend_is_left_and_used_again),
        NET_TEST(a_backend_that_hangs_is_left),
        NET_TEST(a_call_fails_if_all_backends_are_down),
        NET_TEST(a_wanted_backend_is_connected_without_a_request),
        NET_TEST(a_backend_no_longer_wanted_is_not_connected),
        NET_TEST(names_are_resolved_again),
        NET_TEST(http_leaves_a_backend_that_hangs),
        NET_TEST(http_tries_the_next_address_in_parallel),
    };
    return RUN(tests, NULL, NULL);
}
