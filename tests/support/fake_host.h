/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host for tests: no sockets, and a clock that only the test moves. Its servers take requests
 * that the test makes, its clients answer as the test says. Its own bookkeeping is in the C
 * library's memory, so that tests which count or fail br_malloc see the code under test alone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/host.h"
#include "net/client.h"
#include "net/server.h"
#include "pipeline/component.h"
#include "wire/conn.h"
#include "wire/request.h"

struct fake_request;

/* What a fake client says to an exchange. All zero is success: HTTP 200, or gRPC OK, no body. */
struct fake_answer {
    bool never;           /* stays open until it is cancelled or the client is freed */
    uint64_t delay_ms;    /* 0: at the end of the turn */
    int error;            /* a code: there is no response */
    unsigned http_status; /* 0: 200, or none with an error */
    int grpc_status;
    const char *grpc_message;
    const char *type;     /* of the body; NULL: application/x-protobuf */
    const char *encoding; /* of the body, or of gRPC's message; NULL: none */
    const void *body;
    size_t len;
    const void *details; /* grpc-status-details-bin */
    size_t details_len;
    const char *location; /* of a redirect that is not followed */
    bool has_retry_after;
    int64_t retry_after_s;
};

typedef struct fake_answer fake_answer_fn(const struct br_exchange *x, void *arg);

struct fake_host {
    struct br_host host;     /* first */
    struct br_memory memory; /* the host's budget: no limit at first */
    uint64_t now_ms;         /* starts at 1,000,000 */
    uint64_t unix_ns;        /* starts at 2026-01-01T00:00:00Z; moves with now_ms */
    uint64_t cpu_ns;         /* that the process is said to have used */
    fake_answer_fn *answer;  /* NULL: success at once */
    void *answer_arg;
    bool refuse_serve, refuse_connect; /* the next serve or connect fails with BR_EIO */
    struct br_list servers, clients;
    bool threads;             /* work waits for fake_host_work; otherwise it is done at once */
    struct br_work *works[8]; /* that waits */
    unsigned n_works;
    unsigned n_waits;                /* times that somebody waited for one of them */
    unsigned n_exchanges;            /* that clients were given */
    unsigned n_wanted;               /* that were said to be sent again (br_client_want) */
    void (*on_reachable)(void *arg); /* of the last client that was made */
    void *on_reachable_arg;
    struct br_rope last_body; /* of the last one, as slices */
    char last_path[256];
};

/* A host whose random numbers are the same in every run. Aborts without memory. */
struct fake_host *fake_host_new(void);

/* Fails the test when a buffer is still alive or a server or client was not freed. */
void fake_host_free(struct fake_host *h);

/* Runs what is due now, finished items and deferred work, until nothing is left; fails the test
 * when that does not end. */
void fake_host_turn(struct fake_host *h);

/* Asks a node to drain, and turns. */
void fake_host_drain(struct fake_host *h, struct br_node *node);

/* Ends all of a test: destroys the node, gives its state and the arena back, fails the test unless
 * the ledger closes, and frees the host. */
void fake_host_end(struct fake_host *h, struct br_node *node, struct br_arena *arena);

/* Does the work that waits, as a thread of the pool would. Returns how much there was. */
unsigned fake_host_work(struct fake_host *h);

/* Moves the clock by `ms`, stopping at each timer on the way. */
void fake_host_advance(struct fake_host *h, uint64_t ms);

/* --- The ledger ------------------------------------------------------------------------------- */

/* Sum of dropped{reason}; `reason` NULL: of all. */
double fake_host_dropped(struct fake_host *h, enum br_signal signal, const char *reason);

/* received == sent + rejected + dropped + held, for both signals. */
bool fake_host_ledger_closes(struct fake_host *h);

/* Fails the test unless the ledger closes with nothing held. */
void fake_host_check_ledger(struct fake_host *h);

/* The value of a metric as a scrape shows it; -1 when there is none. `labels` as br_metric takes
 * them. */
double fake_host_metric(struct fake_host *h, const char *name, const char *labels);

/* --- Servers ---------------------------------------------------------------------------------- */

/* The service behind a server, by a piece of its name ("grpc"); NULL when none listens. */
struct br_handler *fake_host_service(struct fake_host *h, const char *name);

/* A request for the server whose name contains `server`, or NULL when none listens; POST. What
 * follows a `?` in the path is its query. */
struct fake_request *fake_request_new(struct fake_host *h, const char *server, const char *path);
void fake_request_method(struct fake_request *r, const char *method);
void fake_request_host(struct fake_request *r,
                       const char *host); /* borrowed; "localhost" unless set */
void fake_request_header(struct fake_request *r, const char *name, const char *value);

/* Plays it: begin and, unless it was answered there, body with a copy of the bytes. */
void fake_request_send(struct fake_request *r, const void *body, size_t len);

/* begin only; and then a body that ended in an error. */
void fake_request_begin(struct fake_request *r);
void fake_request_fail(struct fake_request *r, enum br_body_error error);

/* From now on the client reads nothing: what a stream sends waits, and the body of an answer is
 * held until the client has gone. */
void fake_request_stop_reading(struct fake_request *r);

/* So many bytes of the stream wait for it. */
void fake_request_set_unread(struct fake_request *r, size_t bytes);

/* It came on this connection, whose `wake` is set. */
void fake_request_on(struct fake_request *r, struct br_conn *conn);

/* The client goes away. */
void fake_request_gone(struct fake_request *r);

/* What was answered. Answers after the client went, and second answers, fail the test. */
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
    char headers[1024]; /* "name: value\n" each */
    bool streaming;     /* the body is not at its end */
    bool broken;        /* it ended before it was whole */
    size_t unread;      /* bytes that wait for a client that does not read */
};

const struct fake_reply *fake_request_reply(const struct fake_request *r);

/* Goes away if it was not answered, and frees. Accepts NULL. */
void fake_request_free(struct fake_request *r);
