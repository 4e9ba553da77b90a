/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network layer on loopback: one real loop, run in steps by the test; a service that the test
 * controls; and raw sockets for peers that misbehave. Any failure fails the test. Nothing waits for
 * a fixed time: NET_UNTIL runs the loop until a condition holds, or fails after a deadline.
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

/* cmocka's setup and teardown of a test. Teardown fails if a buffer is still held. */
int net_setup(void **state);
int net_teardown(void **state);

/* A test between these two. */
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

/* Runs the loop for `ms`, for tests that something does not happen. */
void net_idle(struct net_rig *rig, uint64_t ms);

/* --- A service -------------------------------------------------------------------------------- */

enum net_when { NET_IN_BODY, NET_IN_BEGIN, NET_LATER };

struct net_service {
    struct br_handler service; /* must be the first member */
    enum net_when when;
    size_t answer_bytes; /* length of a text "aaa..."; 0: "ok\n" */
    bool close;          /* answers end the connection */
    bool grpc;
    size_t max_body; /* largest body; 0: 64 MiB */
    unsigned n_begun, n_bodies, n_gone, n_replied;
    size_t body_bytes;  /* bytes of all request bodies */
    uint64_t body_hash; /* net_hash of the last body */
    enum br_body_error body_error;
    /* NET_LATER: the held requests; NULL: its client has disconnected */
    struct br_request *held[NET_REQUESTS_MAX];
    unsigned n_held;
    char last_method[16], last_path[64], last_query[64];
};

void net_service_init(struct net_service *s);
void net_reply(struct net_service *s, struct br_request *r);

/* Replies to every request that is held. */
void net_reply_all(struct net_service *s);

uint64_t net_hash(const void *data, size_t len);

/* Starts a server on 127.0.0.1:0 with the config's times and limits. */
struct br_server *net_serve(struct net_rig *rig, struct net_service *s,
                            const struct br_server_config *config);

/* Returns the number of the server's open connections. */
unsigned net_connections(struct net_rig *rig);

/* Returns the number of connections that ended for a reason, as named by the metric. */
unsigned net_closed(struct net_rig *rig, const char *reason);

/* --- A raw peer ------------------------------------------------------------------------------- */

struct net_peer {
    int fd;
    uint8_t *in;
    size_t n_in, cap;
    bool eof; /* closed or reset */
    bool reset;
    bool deaf; /* the peer does not read */
};

struct net_peer *net_dial(unsigned port);
struct net_peer *net_peer_of(int fd);
void net_hang_up(struct net_peer *p);

/* Sends everything, and runs the loop meanwhile. net_try sends as much as the socket accepts. */
void net_send(struct net_rig *rig, struct net_peer *p, const void *data, size_t len);
void net_puts(struct net_rig *rig, struct net_peer *p, const char *text);
size_t net_try(struct net_peer *p, const void *data, size_t len);

/* Reads the available bytes; returns true if the peer closed the connection. */
bool net_poll(struct net_peer *p);

/* Reads, and returns how often the received bytes contain the text. */
unsigned net_count(struct net_peer *p, const char *text);

/* Open a listening socket of the test; return the next connection to it, or NULL. */
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

/* Prepares a POST to /call with a body of `bytes` bytes, each from net_byte_at. */
uint8_t net_byte_at(size_t i);
void net_call_init(struct net_rig *rig, struct net_call *c, bool grpc, size_t bytes);
void net_call_release(struct net_call *c);

/* Sends it and runs the loop until it is done. */
void net_call(struct net_rig *rig, struct br_client *client, struct net_call *c);

struct br_client *net_connect(struct net_rig *rig, const struct br_client_config *config);
