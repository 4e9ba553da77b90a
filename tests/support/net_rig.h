/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the network layer on loopback addresses. There is one real event loop, which the test runs
 * in steps, a service that the test controls, and raw sockets for peers that misbehave. Any error
 * fails the test. Tests do not wait for a fixed time: NET_UNTIL runs the loop until a condition is
 * true, and fails the test after a deadline.
 */
#pragma once

#include "net/client.h"
#include "net/loop.h"
#include "net/server.h"
#include "tests/support/test.h"
#include "wire/exchange.h"
#include "wire/request.h"

#define NET_REQUESTS_MAX 1024

struct net_rig {
    struct br_net *net;
    struct br_loop *loop;
    struct br_host *host;
    struct br_timer tick;
    uint64_t deadline_ms;
    unsigned n_steps;
};

/* Setup and teardown of a test (cmocka). The teardown fails if a buffer was not released. */
int net_setup(void **state);
int net_teardown(void **state);

/* A test with net_setup and net_teardown. */
#define NET_TEST(name) cmocka_unit_test_setup_teardown(name, net_setup, net_teardown)

/* Runs one step of the loop, which takes a few milliseconds at most. */
void net_step(struct net_rig *rig);
uint64_t net_now(struct net_rig *rig);
void net_start_deadline(struct net_rig *rig);
void net_check_deadline(struct net_rig *rig, const char *what, const char *file, int line);

#define NET_UNTIL(rig, condition)                                                                  \
    do {                                                                                           \
        net_start_deadline(rig);                                                                   \
        while (!(condition)) {                                                                     \
            net_check_deadline(rig, #condition, __FILE__, __LINE__);                               \
            net_step(rig);                                                                         \
        }                                                                                          \
    } while (0)

/* Runs the loop for `ms` milliseconds. Tests use this to check that something does not happen. */
void net_idle(struct net_rig *rig, uint64_t ms);

/* --- A service -------------------------------------------------------------------------------- */

enum net_when { NET_IN_BODY, NET_IN_BEGIN, NET_LATER };

struct net_service {
    struct br_handler service; /* must be the first member */
    enum net_when when;
    /* length in bytes of the response body, which is "aaa..."; 0: the body is "ok\n" */
    size_t answer_bytes;
    bool close; /* true: each answer closes its connection */
    bool grpc;
    size_t max_body; /* largest request body in bytes; 0: 64 MiB */
    unsigned n_begun, n_bodies, n_gone, n_replied;
    size_t body_bytes;  /* total size of all request bodies in bytes */
    uint64_t body_hash; /* hash of the last request body (net_hash) */
    enum br_body_error body_error;
    /* requests that are not answered yet, if `when` is NET_LATER; NULL: the client has
     * disconnected */
    struct br_request *held[NET_REQUESTS_MAX];
    unsigned n_held;
    char last_method[16], last_path[64], last_query[64];
};

void net_service_init(struct net_service *s);
void net_reply(struct net_service *s, struct br_request *r);

/* Replies to every request that is held. */
void net_reply_all(struct net_service *s);

uint64_t net_hash(const void *data, size_t len);

/* Starts a server on 127.0.0.1 and a free port, with the times and limits of the config. */
struct br_server *net_serve(struct net_rig *rig, struct net_service *s,
                            const struct br_server_config *config);

/* Returns the number of the server's open connections. */
unsigned net_connections(struct net_rig *rig);

/* Returns the number of connections that were closed for a reason. `reason` is a value of the
 * metric's label. */
unsigned net_closed(struct net_rig *rig, const char *reason);

/* --- A raw peer ------------------------------------------------------------------------------- */

struct net_peer {
    int fd;
    uint8_t *in;
    size_t n_in, cap;
    bool eof; /* true: the connection was closed or reset by the server */
    bool reset;
    bool deaf; /* true: the peer does not read from its socket */
};

struct net_peer *net_dial(unsigned port);
struct net_peer *net_peer_of(int fd);
void net_hang_up(struct net_peer *p);

/* net_send and net_puts send all bytes, and run the loop meanwhile. net_try sends only as many
 * bytes as the socket accepts at once, and returns their number. */
void net_send(struct net_rig *rig, struct net_peer *p, const void *data, size_t len);
void net_puts(struct net_rig *rig, struct net_peer *p, const char *text);
size_t net_try(struct net_peer *p, const void *data, size_t len);

/* Reads the available bytes; returns true if the peer closed the connection. */
bool net_poll(struct net_peer *p);

/* Reads the available bytes. Returns how often all bytes received so far contain the text. */
unsigned net_count(struct net_peer *p, const char *text);

/* net_listen opens a listening socket. net_accept returns the next connection to it, or NULL if no
 * peer has connected. */
int net_listen(int family, unsigned *ret_port);
struct net_peer *net_accept(int listener);

/* --- An exchange ------------------------------------------------------------------------------ */

struct net_call {
    struct br_exchange x; /* must be the first member */
    unsigned n_done;
    int error;
    unsigned http_status;
    int grpc_status;
    size_t response_bytes;
    char response[64], error_text[128];
    int64_t retry_after_s;
};

/* net_call_init prepares a POST request for /call with a body of `bytes` bytes. net_byte_at returns
 * byte number `i` of this body. */
uint8_t net_byte_at(size_t i);
void net_call_init(struct net_rig *rig, struct net_call *c, bool grpc, size_t bytes);
void net_call_release(struct net_call *c);

/* Sends the request and runs the loop until the exchange has ended. */
void net_call(struct net_rig *rig, struct br_client *client, struct net_call *c);

struct br_client *net_connect(struct net_rig *rig, const struct br_client_config *config);
