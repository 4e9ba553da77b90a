/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host for tests: no sockets, and a clock that only the test moves. The test creates the requests
 * to its servers and sets the answers of its clients. The host's own memory comes from the C
 * library. Tests that count or fail br_malloc therefore see only the code under test.
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

/* The answer of a fake client to an exchange. All zero is success: HTTP 200, or gRPC OK, no
 * body. */
struct fake_answer {
    bool never;           /* the exchange stays open until it is cancelled or the client is freed */
    uint64_t delay_ms;    /* delay of the answer; 0: at the end of the loop iteration */
    int error;            /* a BR_ error code instead of a response */
    unsigned http_status; /* HTTP status; 0: 200, or no response if there is an error */
    int grpc_status;
    const char *grpc_message;
    const char *type;     /* type of the body; NULL: application/x-protobuf */
    const char *encoding; /* the body, or gRPC's message; NULL: none */
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
    uint64_t now_ms;         /* starts at 1,000,000 */
    uint64_t unix_ns;        /* starts at 2026-01-01T00:00:00Z; moves with now_ms */
    uint64_t cpu_ns;         /* CPU time that the process reports */
    fake_answer_fn *answer;  /* NULL: success at once */
    void *answer_arg;
    bool refuse_serve, refuse_connect; /* the next serve or connect fails with BR_EIO */
    struct br_list servers, clients, udps;
    /* true: work is deferred until fake_host_work; otherwise it is done at once */
    bool threads;
    struct br_work *works[8]; /* deferred work */
    unsigned n_works;
    unsigned n_waits;                /* times that a caller waited for deferred work */
    unsigned n_exchanges;            /* exchanges that clients were given */
    unsigned n_wanted;               /* exchanges announced as retries (br_client_expect_retry) */
    void (*on_reachable)(void *arg); /* options of the last client that was made */
    void *on_reachable_arg;
    struct br_rope last_body; /* body of the last exchange, as slices */
    char last_path[256];
};

/* Returns a host whose random numbers are the same in every run. Aborts without memory. */
struct fake_host *fake_host_new(void);

/* Frees the host. Fails the test if a buffer is still allocated or a server or client was not
 * freed. */
void fake_host_free(struct fake_host *h);

/* Runs everything that is due now: finished items and deferred work. Returns when nothing is
 * left; fails the test if that never happens. */
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

/* Returns the sum of dropped{reason}; `reason` NULL: of all reasons. */
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

/* Returns the service of the server whose name contains the text ("grpc"), or NULL if none
 * listens. */
struct br_handler *fake_host_service(struct fake_host *h, const char *name);

/* Returns a POST request for the server whose name contains `server`, or NULL if none listens.
 * The part of the path after a `?` is the query string. */
struct fake_request *fake_request_new(struct fake_host *h, const char *server, const char *path);
void fake_request_method(struct fake_request *r, const char *method);
void fake_request_host(struct fake_request *r,
                       const char *host); /* borrowed; "localhost" unless set */
void fake_request_header(struct fake_request *r, const char *name, const char *value);

/* Runs the request: begin and, unless it was answered there, body with a copy of the bytes. */
void fake_request_send(struct fake_request *r, const void *body, size_t len);

/* Runs begin only; the second function then reports that the body ended in an error. */
void fake_request_begin(struct fake_request *r);
void fake_request_fail(struct fake_request *r, enum br_body_error error);

/* The client stops reading: data of a stream is queued, and the body of an answer is held until
 * the client disconnects. */
void fake_request_stop_reading(struct fake_request *r);

/* Returns the number of bytes of the stream that are queued for the client. */
void fake_request_set_unread(struct fake_request *r, size_t bytes);

/* Sets the connection of the request, whose `wake` is set. */
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
    char headers[1024]; /* a "name: value\n" for each */
    bool streaming;     /* the end of the body has not been sent */
    bool broken;        /* the body ended before it was complete */
    size_t unread;      /* bytes queued for a client that does not read */
};

const struct fake_reply *fake_request_reply(const struct fake_request *r);

/* Disconnects the client if the request was not answered, and frees the request. Accepts NULL. */
void fake_request_free(struct fake_request *r);
