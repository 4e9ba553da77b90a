/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host for tests: no sockets, and a clock that only the test moves. The test creates the requests
 * to the servers of the host, and sets the answers that the clients of the host receive. The host's
 * own memory comes from the C library. Tests that count or fail br_malloc therefore see only the
 * code under test.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/host.h"
#include "net/client.h"
#include "net/server.h"
#include "net/udp.h"
#include "pipeline/component.h"
#include "wire/exchange.h"
#include "wire/request.h"

struct fake_request;

/* The answer that a fake client returns for an exchange. If all members are zero, the exchange
 * succeeds: HTTP 200, or gRPC OK, without a body. */
struct fake_answer {
    bool never; /* the exchange stays open until it is cancelled or the client is freed */
    /* delay of the answer in milliseconds; 0: at the end of the loop iteration */
    uint64_t delay_ms;
    /* a BR_ error code, with which the exchange fails; 0: there is a response */
    int error;
    unsigned http_status; /* HTTP status; 0: 200, or no response if there is an error */
    int grpc_status;
    const char *grpc_message;
    const char *type;     /* type of the body; NULL: application/x-protobuf */
    const char *encoding; /* encoding and bytes of the body, or of the gRPC message; NULL: none */
    const void *body;
    size_t len;
    const void *details; /* grpc-status-details-bin */
    size_t details_len;
    const char *location; /* target of a redirect that is not followed */
    bool has_retry_after;
    int64_t retry_after_s;
};

typedef struct fake_answer fake_answer_fn(const struct br_exchange *x, void *arg);

struct fake_host {
    struct br_host host;     /* must be the first member */
    struct br_memory memory; /* the host's memory budget: unlimited by default */
    uint64_t now_ms;         /* clock in milliseconds; starts at 1,000,000 */
    uint64_t unix_ns;        /* starts at 2026-01-01T00:00:00Z; moves with now_ms */
    uint64_t cpu_ns;         /* CPU time of the process in nanoseconds, as the host reports it */
    /* returns the answer to an exchange; NULL: every exchange succeeds at once */
    fake_answer_fn *answer;
    void *answer_arg;
    /* true: the next call of serve or connect fails with BR_EIO */
    bool refuse_serve, refuse_connect;
    struct br_list servers, clients, udps;
    /* true: work is deferred until fake_host_work; false: work is done at once */
    bool threads;
    struct br_work *works[8]; /* deferred work */
    unsigned n_works;
    unsigned n_waits;     /* how often a caller waited for deferred work */
    unsigned n_exchanges; /* number of exchanges that clients were given */
    /* number of exchanges announced as retries (br_client_expect_retry) */
    unsigned n_wanted;
    /* callback in the options of the client that was created last */
    void (*on_reachable)(void *arg);
    void *on_reachable_arg;
    struct br_rope last_body; /* body of the last exchange, as slices */
    char last_path[256];
};

/* Returns a host whose random numbers are the same in every run. Aborts without memory. */
struct fake_host *fake_host_new(void);

/* Frees the host. Fails the test if a buffer is still allocated or a server or client was not
 * freed. */
void fake_host_free(struct fake_host *h);

/* Runs loop iterations until nothing is due: no finished items, no deferred callbacks and no
 * timers. Fails the test if this never ends. */
void fake_host_iterate(struct fake_host *h);

/* Starts draining a node, and runs the loop. */
void fake_host_drain(struct fake_host *h, struct br_node *node);

/* Ends a test: destroys the node, releases its state and the arena, and frees the host. Fails
 * the test unless the ledger balances. */
void fake_host_end(struct fake_host *h, struct br_node *node, struct br_arena *arena);

/* Runs the deferred work, as a thread of the pool would. Returns the number of tasks run. */
unsigned fake_host_work(struct fake_host *h);

/* Moves the clock by `ms`, stopping at each timer on the way. */
void fake_host_advance(struct fake_host *h, uint64_t ms);

/* --- The ledger ------------------------------------------------------------------------------- */

/* Returns the number of records that the ledger counts as dropped for a reason. If `reason` is
 * NULL, returns the sum for all reasons. */
double fake_host_dropped(struct fake_host *h, enum br_signal signal, const char *reason);

/* Returns whether received == sent + rejected + dropped + held, for both signals. */
bool fake_host_ledger_closes(struct fake_host *h);

/* Fails the test unless the ledger balances and holds nothing. */
void fake_host_check_ledger(struct fake_host *h);

/* Returns the value of a metric as a scrape shows it, or -1 if it does not exist. `labels` has the
 * form that br_metric expects. */
double fake_host_metric(struct fake_host *h, const char *name, const char *labels);

/* --- Packets ---------------------------------------------------------------------------------- */

/* Gives a packet to the socket whose name contains `name`, and runs the loop. Returns false if
 * there is no such socket. */
bool fake_host_packet(struct fake_host *h, const char *name, const struct br_udp_packet *packet);

/* --- Servers ---------------------------------------------------------------------------------- */

/* Returns the service of the server whose name contains the text, such as "grpc". Returns NULL if
 * such a server does not exist. */
struct br_handler *fake_host_service(struct fake_host *h, const char *name);

/* Returns a POST request for the server whose name contains `server`. Returns NULL if such a server
 * does not exist. The part of the path after a `?` is the query string. */
struct fake_request *fake_request_new(struct fake_host *h, const char *server, const char *path);
void fake_request_method(struct fake_request *r, const char *method);
void fake_request_host(struct fake_request *r,
                       const char *host); /* borrowed; "localhost" unless set */
void fake_request_header(struct fake_request *r, const char *name, const char *value);

/* Runs the request: calls the service's `begin`. If this does not answer the request, calls the
 * service's `body` with a copy of the bytes. */
void fake_request_send(struct fake_request *r, const void *body, size_t len);

/* fake_request_begin only calls the service's `begin`. fake_request_fail then reports that the body
 * ended with an error. */
void fake_request_begin(struct fake_request *r);
void fake_request_fail(struct fake_request *r, enum br_body_error error);

/* The client stops reading: data of a stream is queued, and the body of an answer is held until
 * the client disconnects. */
void fake_request_stop_reading(struct fake_request *r);

/* Sets the number of bytes of the streamed reply that are queued for the client. */
void fake_request_set_unread(struct fake_request *r, size_t bytes);

/* Sets the connection of the request. The connection must have a callback `wake`. */
void fake_request_on(struct fake_request *r, struct br_conn *conn);

/* Disconnects the client. */
void fake_request_gone(struct fake_request *r);

/* The answer of the server. A second answer, or one after the client has disconnected, fails the
 * test. */
struct fake_reply {
    bool came, grpc;
    unsigned status;
    char type[64];
    unsigned grpc_status;
    char grpc_message[256];
    uint8_t details[512];
    size_t details_len;
    char *body; /* terminated */
    size_t body_len;
    char headers[1024]; /* "name: value\n" for each header */
    bool streaming;     /* true: the end of a streamed body has not been sent yet */
    bool broken;        /* true: a streamed body was broken off before it was complete */
    size_t unread;      /* number of bytes that are queued for a client that does not read */
};

const struct fake_reply *fake_request_reply(const struct fake_request *r);

/* Disconnects the client if the request was not answered, and frees the request. Accepts NULL. */
void fake_request_free(struct fake_request *r);
