/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OTLP over gRPC to one server: the options of the otlp exporter, and a client with its sender made
 * from them. Shared by the exporters that send OTLP over gRPC.
 */
#pragma once

#include "egress/otlp/sender.h"

struct br_otlp_grpc_keepalive {
    uint64_t time, timeout; /* in nanoseconds */
    bool permit_without_stream;
};

/* The options of the otlp exporter. */
struct br_otlp_grpc_config {
    const char *endpoint; /* address of the server, see BR_OTLP_GRPC_ROWS */
    const char *compression, *authority, *user_agent;
    struct br_tls_config tls;
    struct br_auth_config *auth;
    struct br_headers headers;
    struct br_otlp_grpc_keepalive *keepalive;
    int balancer_name;
    int64_t connections;
    struct br_exporter_config common;
};

extern const struct br_option br_otlp_grpc_keepalive_options[];
extern const char *const br_otlp_grpc_balancers[];

/* Option rows for a struct br_otlp_grpc_config: all options except `endpoint`. */
#define BR_OTLP_GRPC_ROWS                                                                          \
    BR_STRUCT(struct br_otlp_grpc_config, tls, br_tls_client_options,                              \
              "TLS settings of the connection"),                                                   \
        BR_AUTH_CLIENT_ROW(struct br_otlp_grpc_config),                                            \
        BR_STRING(struct br_otlp_grpc_config, compression, "gzip",                                 \
                  "compression of requests: gzip, zstd or none"),                                  \
        BR_HEADERS(struct br_otlp_grpc_config, headers, "metadata to add to every request"),       \
        BR_PRESENT(struct br_otlp_grpc_config, keepalive, struct br_otlp_grpc_keepalive,           \
                   br_otlp_grpc_keepalive_options,                                                 \
                   "pings that detect broken connections; if absent, a ping is sent after 30s "    \
                   "without data, and only during requests"),                                      \
        BR_ENUM(struct br_otlp_grpc_config, balancer_name, "round_robin", br_otlp_grpc_balancers,  \
                "round_robin: use all addresses of the host in turn; pick_first: use one "         \
                "reachable address"),                                                              \
        BR_INT(struct br_otlp_grpc_config, connections, 1, 1, 100,                                 \
               "number of connections that each worker opens to each address of the host"),        \
        BR_STRING(struct br_otlp_grpc_config, authority, NULL,                                     \
                  ":authority header of requests; default: the host and port of the endpoint"),    \
        BR_STRING(struct br_otlp_grpc_config, user_agent, "Braid/" BR_VERSION,                     \
                  "user-agent header of requests"),                                                \
        BR_IGNORED("read_buffer_size", "Braid chooses the buffer sizes of its connections"),       \
        BR_IGNORED("write_buffer_size", "Braid chooses the buffer sizes of its connections"),      \
        BR_IGNORED("wait_for_ready", "requests that cannot be sent are retried"),                  \
        BR_EXPORTER_OPTIONS(struct br_otlp_grpc_config, common, "5s")

/* Adds errors for an endpoint that is not valid, and warns about the port of OTLP over HTTP.
 * `node` is the endpoint's value in the config, and `path` its key. */
void br_otlp_grpc_check_endpoint(const char *endpoint, const struct br_yaml *node, const char *path,
                                 struct br_errs *errs);

/* Adds errors for conditions that the option table cannot express, except those of the endpoint.
 * `node` is the map of the options at `path`. */
void br_otlp_grpc_check(struct br_otlp_grpc_config *config, const struct br_yaml *node,
                        const char *path, struct br_errs *errs);

/* A server and the means to send to it. The owner embeds the struct, which must not move. */
struct br_otlp_grpc {
    struct br_otlp_target target;
    struct br_client *client;
    struct br_otlp_sender *sender;
};

/* Initializes a zeroed struct without I/O. `config` and `node` are borrowed. Returns false if
 * memory is short; br_otlp_grpc_release may be called even then. */
bool br_otlp_grpc_init(struct br_otlp_grpc *grpc, struct br_node *node,
                       const struct br_otlp_grpc_config *config);

/* Makes the client for `endpoint`. The node's retries are told when the server is reachable
 * again. Returns 0, or the errors of br_host_ops.connect with a message in `err`. */
int br_otlp_grpc_connect(struct br_otlp_grpc *grpc, struct br_node *node,
                         const struct br_otlp_grpc_config *config, const char *endpoint,
                         struct br_err *err);

/* Finishes all items that are being sent with BR_RETRY, and frees sender and client. Accepts a
 * zeroed struct. */
void br_otlp_grpc_release(struct br_otlp_grpc *grpc);
