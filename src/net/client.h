/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client sends exchanges (requests, each with its response) to one endpoint, and owns the
 * connections to it. A client connects when it has something to send. A client's connection is
 * direct or goes through a proxy (route.h). With a proxy, the client resolves the proxy's name
 * instead of the server's.
 *
 * A name is resolved before the first connection. Before a new connection, the name is resolved
 * again if a connection has ended or failed since the last resolution, or if the last resolution is
 * more than 30 seconds old. gRPC distributes exchanges over all addresses (round_robin). Clients
 * that use HTTP, or gRPC with pick_first, use one address that works. A failed address is avoided
 * for a while (addresses.h).
 *
 * After br_client_expect_retry, a client without a connection tries to connect about every two
 * seconds, for up to one minute. A client that connects in this way calls `on_reachable`, so a
 * recovered backend is noticed before the next retry.
 *
 * A connection is abandoned when the peer sends GOAWAY, and when two exchanges in a row time out
 * without a response. A connection is also abandoned when a PING is not answered (HTTP/2, while
 * exchanges are in progress), or when sent data is not acknowledged (TCP_USER_TIMEOUT).
 *
 * Queued exchanges end with an error if no connection can be made. An exchange also ends with an
 * error if its connection closes before the response. A client never sends an exchange again after
 * a failure. The exporter's retry_on_failure sends failed requests again.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "config/option.h"
#include "config/yaml.h"
#include "core/authenticator.h"
#include "core/host.h"
#include "net/tls.h"
#include "wire/exchange.h"

/* HTTP keep-alive settings: whether, and for how long, idle connections are kept for reuse. The
 * keys and defaults are the same as in the Collector's confighttp. */
struct br_client_keepalive {
    bool enabled;
    /* close a connection on which no exchange was in progress for this time, in nanoseconds; 0:
     * never */
    uint64_t idle_conn_timeout;
};

extern const struct br_option br_client_keepalive_options[];

/* Rows of an option table for a struct `type` that has a member `keepalive` of type struct
 * br_client_keepalive. */
#define BR_CLIENT_KEEPALIVE_ROWS(type)                                                             \
    BR_STRUCT(type, keepalive, br_client_keepalive_options,                                        \
              "reuse of connections for further requests"),                                        \
        BR_OLDER(BR_OPT_DURATION, type, keepalive.idle_conn_timeout, uint64_t,                     \
                 "idle_conn_timeout", "keepalive::idle_conn_timeout")

struct br_client_config {
    const char *endpoint; /* gRPC: host:port, http(s)://host:port, dns:///host:port, unix:///path;
                             HTTP: http(s)://host[:port][/...] */
    bool grpc;            /* use HTTP/2 with gRPC framing; otherwise HTTP/1.1 */
    bool http2;           /* HTTP without gRPC: use HTTP/2 if the server selects it by ALPN (TLS) */
    /* gRPC: use only one of the addresses to which the name resolves; otherwise exchanges are
     * distributed over all of them */
    bool pick_first;
    /* TLS settings, borrowed until the client is freed; NULL: default TLS settings, and the
     * endpoint's scheme decides whether TLS is used */
    const struct br_tls_config *tls;
    /* URL of an HTTP proxy; NULL: use the proxies of the environment (net/route.h) */
    const char *proxy_url;
    /* id of the extension that adds credentials to exchanges (net/signing.h); NULL: no
     * credentials are added */
    const char *authenticator;
    const char *authority; /* value of Host or :authority; NULL: the endpoint's authority is used */
    /* maximum number of connections. gRPC: per address, and 0 means 1. HTTP: for all addresses
     * together, and 0 means 100. */
    unsigned max_connections;
    /* HTTP/2: send a PING if nothing was received for this number of milliseconds; 0: 30 s */
    uint64_t keepalive_time_ms;
    /* time limit for the answer to a PING (0: 10 s), and value of TCP_USER_TIMEOUT (0: 20 s) */
    uint64_t keepalive_timeout_ms;
    bool keepalive_without_stream; /* send PINGs also while no exchange is in progress */
    /* HTTP: close a connection after it was unused for this number of milliseconds; 0: 90 s */
    uint64_t idle_timeout_ms;
    bool close_after_use; /* HTTP: use each connection for one exchange only */
    /* time limit for a name resolution, and a separate limit, of the same length, for a connection
     * with its TLS handshake; 0: 20 s */
    uint64_t connect_timeout_ms;
    const struct br_log *log;
    /* called when the client has connected after br_client_expect_retry; must not send an exchange;
     * may be NULL */
    void (*on_reachable)(void *arg);
    void *on_reachable_arg;
};

/* A parsed endpoint. */
struct br_endpoint {
    char host[256];      /* host name, IP address, or path of a unix socket */
    char authority[300]; /* host:port, as used in requests */
    char path[512];      /* path of the URL without a trailing slash; may be "" */
    unsigned port;
    bool tls; /* the scheme is https */
    bool has_scheme;
    bool unix_socket;
};

/* Sets the fields of `config` that depend on the HTTP keep-alive settings in `keepalive`. */
void br_client_keepalive_apply(const struct br_client_keepalive *keepalive,
                               struct br_client_config *config);

/* Parses an endpoint. Returns 0, or BR_EINVAL with a message in `err`. */
int br_endpoint_read(const char *text, bool grpc, struct br_endpoint *ret, struct br_err *err);

/* Warns about a base URL that is probably wrong, because it has a query string or ends in one of
 * the paths in `added` (NULL-terminated). The exporter itself appends the paths in `added`. `node`
 * is the config node of the URL, and `path` is its path. The message ends with `instead`, which
 * describes the correct way to configure a full URL. */
void br_endpoint_check_base(const char *url, const char *const *added, const char *instead,
                            const struct br_yaml *node, const char *path, struct br_errs *errs);

/* Warns about an endpoint whose port is the default port of the other OTLP protocol (the gRPC port
 * for HTTP, or the reverse). */
void br_endpoint_check_otlp_port(const struct br_endpoint *endpoint, bool grpc,
                                 const struct br_yaml *node, const char *path,
                                 struct br_errs *errs);

/* Checks whether a client can be made from a config: the endpoint and the proxy must be valid,
 * and the certificates must load. Returns 0, or the same errors as br_host_ops.connect, with a
 * message in `err`. */
int br_client_check(const struct br_client_config *config, struct br_err *err);

/* The operations of a client. Tests provide their own implementation of these operations. */
struct br_client_ops {
    void (*send)(struct br_client *client, struct br_exchange *exchange);
    void (*cancel)(struct br_client *client, struct br_exchange *exchange);
    void (*free)(struct br_client *client);
    /* see br_client_expect_retry; NULL if the client makes no connections, as in tests */
    void (*expect_retry)(struct br_client *client);
};

struct br_client {
    const struct br_client_ops *ops;
};

/* Sends an exchange. Calls `exchange->on_done` once: usually after br_client_send has returned, but
 * before it returns if memory is short. If `exchange->authority` is NULL, the client's authority is
 * used. */
static inline void br_client_send(struct br_client *client, struct br_exchange *exchange)
{
    client->ops->send(client, exchange);
}

/* Cancels a queued or sent exchange. If the exchange was sent, the cancellation counts as a
 * timeout. on_done is not called. */
static inline void br_client_cancel(struct br_client *client, struct br_exchange *exchange)
{
    client->ops->cancel(client, exchange);
}

/* Announces that a failed exchange will be retried, so that the client tries to connect to the
 * backend before the retry. May be called from on_done. */
static inline void br_client_expect_retry(struct br_client *client)
{
    if (client->ops->expect_retry)
        client->ops->expect_retry(client);
}

/* Closes all connections and frees the client. Unfinished exchanges end with BR_ECLOSED first.
 * Must not be called from on_done. Accepts NULL. */
static inline void br_client_free(struct br_client *client)
{
    if (client)
        client->ops->free(client);
}
