/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client has one endpoint and the connections to it, which it opens when there is something to
 * send: directly, or through a proxy (route.h), whose name is then looked up instead.
 *
 * A name is looked up for the first connection, and again for a further one when one ended or
 * failed since, or half a minute has passed. gRPC's exchanges go to all of its addresses in turn
 * (round_robin), or to one that serves (pick_first, and HTTP); an address that fails is left alone
 * for a while (addresses.h).
 *
 * While what failed is to be sent again (br_client_want) and no connection is there or on the way,
 * one is tried every two seconds or so for a minute, so that a backend which is back is found by
 * more than the next request, and `on_reachable` is told when it comes about.
 *
 * A connection is left when the peer says so (GOAWAY), when two exchanges in a row were given up on
 * it without an answer, when a PING has none (HTTP/2, while something is under way), and when what
 * was sent is not acknowledged (TCP_USER_TIMEOUT). Exchanges that wait when a connection cannot be
 * made end with an error, as does one whose connection closes before its answer: trying again is
 * the business of the retry wrapper.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "config/option.h"
#include "config/yaml.h"
#include "core/host.h"
#include "net/tls.h"
#include "wire/conn.h"

/* HTTP: connections that are kept for further requests; its keys and defaults are those of the
 * Collector's confighttp. */
struct br_client_keepalive {
    bool enabled;
    uint64_t idle_conn_timeout; /* ns; 0: none */
};

extern const struct br_option br_client_keepalive_options[];

/* The rows of a struct with such a member, `keepalive`. */
#define BR_CLIENT_KEEPALIVE_ROWS(type)                                                             \
    BR_STRUCT(type, keepalive, br_client_keepalive_options, "connections kept for reuse"),         \
        BR_OLDER(BR_OPT_DURATION, type, keepalive.idle_conn_timeout, uint64_t,                     \
                 "idle_conn_timeout", "keepalive::idle_conn_timeout")

struct br_client_config {
    const char *endpoint; /* gRPC: host:port, http(s)://host:port, dns:///host:port, unix:///path;
                             HTTP: http(s)://host[:port][/...] */
    bool grpc;            /* HTTP/2; otherwise HTTP/1.1 ... */
    bool http2;           /* ... or, over TLS, HTTP/2 where the server chooses it (ALPN) */
    bool pick_first;      /* gRPC: one address; otherwise all in turn */
    const struct br_tls_config
        *tls;                   /* borrowed for the client's life; NULL: by the endpoint's scheme */
    const char *proxy_url;      /* NULL: the proxies of the environment (net/route.h) */
    const char *authority;      /* NULL: from the endpoint */
    unsigned max_connections;   /* gRPC: to each address, 0: 1; HTTP: 0: 100 */
    uint64_t keepalive_time_ms; /* HTTP/2: PING after so long without a byte; 0: 30 s */
    uint64_t keepalive_timeout_ms; /* 0: 10 s; also TCP_USER_TIMEOUT, 0: 20 s */
    bool keepalive_without_stream; /* also while nothing is under way */
    uint64_t idle_timeout_ms;      /* HTTP: 0: 90 s */
    bool close_after_use;          /* HTTP: each connection is for one exchange */
    uint64_t connect_timeout_ms;   /* for each: the name, and the connection with TLS; 0: 20 s */
    const struct br_log *log;
    void (*on_reachable)(void *arg); /* sends nothing itself; NULL: nobody asks */
    void *on_reachable_arg;
};

/* An endpoint taken apart. */
struct br_endpoint {
    char host[256];      /* or the path of a unix socket */
    char authority[300]; /* host:port as it goes into requests */
    char path[512];      /* of a URL, without trailing slash; "" when none */
    unsigned port;
    bool tls; /* https */
    bool has_scheme;
    bool unix_socket;
};

/* Sets the fields of `config` that the keys of `keepalive` determine. */
void br_client_keepalive_apply(const struct br_client_keepalive *keepalive,
                               struct br_client_config *config);

/* Reads an endpoint. Returns 0, or BR_EINVAL with a sentence. */
int br_endpoint_read(const char *text, bool grpc, struct br_endpoint *ret, struct br_err *err);

/* Warns of a URL, the value `node` at `path`, to which an exporter adds the paths of an API: when
 * it ends in one of `added` (NULL-terminated) already, or has a query string. `instead` completes
 * the sentence with the right way to give a whole URL. */
void br_endpoint_check_base(const char *url, const char *const *added, const char *instead,
                            const struct br_yaml *node, const char *path, struct br_errs *errs);

/* Warns of an endpoint with the port that the other protocol of OTLP has as a rule. */
void br_endpoint_check_otlp_port(const struct br_endpoint *endpoint, bool grpc,
                                 const struct br_yaml *node, const char *path,
                                 struct br_errs *errs);

/* Tells whether a client of this config could be made: the endpoint and the proxy can be read and
 * certificates load. Returns 0, or what br_host_ops.connect would, with a sentence. */
int br_client_check(const struct br_client_config *config, struct br_err *err);

/* What a client does; a test's host brings its own. */
struct br_client_ops {
    void (*send)(struct br_client *client, struct br_exchange *exchange);
    void (*cancel)(struct br_client *client, struct br_exchange *exchange);
    void (*free)(struct br_client *client);
    void (*want)(struct br_client *client); /* NULL: it makes no connections */
};

struct br_client {
    const struct br_client_ops *ops;
};

/* Hands an exchange over; on_done is called once, later, or at once when there is no memory.
 * x->authority may be NULL. */
static inline void br_client_send(struct br_client *client, struct br_exchange *exchange)
{
    client->ops->send(client, exchange);
}

/* Gives an exchange up, wherever it is, because its time is over; on_done is not called. */
static inline void br_client_cancel(struct br_client *client, struct br_exchange *exchange)
{
    client->ops->cancel(client, exchange);
}

/* Says that an exchange which ended without an answer will be sent again. From on_done, too. */
static inline void br_client_want(struct br_client *client)
{
    if (client->ops->want)
        client->ops->want(client);
}

/* Closes all connections and frees the client; exchanges under way end with BR_ECLOSED first. Not
 * from on_done. Accepts NULL. */
static inline void br_client_free(struct br_client *client)
{
    if (client)
        client->ops->free(client);
}
