/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client: one endpoint, and the connections to it. Connections are opened when there is something to
 * send; the name is resolved again each time, and its addresses are tried in turn. Exchanges that wait
 * when a connection cannot be made end with an error, as does one whose connection closes before its
 * answer: trying again is the business of the retry wrapper.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "net/tls.h"
#include "pipeline/host.h"
#include "wire/conn.h"

struct br_client_config {
    const char *endpoint; /* gRPC: host:port, http(s)://host:port, dns:///host:port, unix:///path;
                             HTTP: http(s)://host[:port][/...] */
    bool grpc;            /* HTTP/2; otherwise HTTP/1.1 */
    const struct br_tls_config *tls; /* borrowed for the client's life; NULL: by the endpoint's scheme */
    const char *authority;           /* NULL: from the endpoint */
    unsigned max_connections;        /* 0: 1 for gRPC, 100 for HTTP */
    uint64_t keepalive_time_ms;      /* 0: none */
    uint64_t keepalive_timeout_ms;   /* 0: 10 s */
    bool keepalive_without_stream;
    uint64_t idle_timeout_ms;        /* HTTP: 0: 90 s */
    uint64_t connect_timeout_ms;     /* for each: the name, and the connection with TLS; 0: 20 s */
    const struct br_log *log;
};

/* An endpoint taken apart. */
struct br_endpoint {
    char host[256]; /* or the path of a unix socket */
    char authority[300]; /* host:port as it goes into requests */
    char path[512]; /* of a URL, without trailing slash; "" when none */
    unsigned port;
    bool tls;       /* https */
    bool has_scheme;
    bool unix_socket;
};

/* Reads an endpoint. Returns 0, or BR_EINVAL with a sentence. */
int br_endpoint_read(const char *text, bool grpc, struct br_endpoint *ret, struct br_err *err);

/* What a client does; a test's host brings its own. */
struct br_client_ops {
    void (*send)(struct br_client *c, struct br_exchange *x);
    void (*cancel)(struct br_client *c, struct br_exchange *x);
    void (*free)(struct br_client *c);
};

struct br_client {
    const struct br_client_ops *ops;
};

/* Hands an exchange over; on_done is called once, later, or at once when there is no memory.
 * x->authority may be NULL. */
static inline void br_client_send(struct br_client *c, struct br_exchange *x)
{
    c->ops->send(c, x);
}

/* Gives an exchange up, wherever it is; on_done is not called. */
static inline void br_client_cancel(struct br_client *c, struct br_exchange *x)
{
    c->ops->cancel(c, x);
}

/* Closes all connections and frees the client; exchanges under way end with BR_ECLOSED first. Not from
 * on_done. Accepts NULL. */
static inline void br_client_free(struct br_client *c)
{
    if (c)
        c->ops->free(c);
}
