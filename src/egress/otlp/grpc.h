/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code for exporters that send OTLP over gRPC: the options of the otlp exporter, and a client and a
 * sender for one server, which are made from these options.
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

/* Adds an error if the endpoint is invalid, and a warning if its port is the usual port of OTLP
 * over HTTP. `node` is the endpoint's value in the config, and `path` is its place in the
 * config. */
void br_otlp_grpc_check_endpoint(const char *endpoint, const struct br_yaml *node, const char *path,
                                 struct br_errs *errs);

/* Checks conditions that the option table cannot express, and adds errors. Does not check the
 * endpoint. `node` is the map of the options in the config, and `path` is the place of this map. */
void br_otlp_grpc_check(struct br_otlp_grpc_config *config, const struct br_yaml *node,
                        const char *path, struct br_errs *errs);

/* A client and a sender for one server. The struct must not be moved in memory. */
struct br_otlp_grpc {
    struct br_otlp_target target;
    struct br_client *client;
    struct br_otlp_sender *sender;
};

/* Initializes a zeroed struct without I/O. Borrows `config` and `node` until br_otlp_grpc_release.
 * Returns false if memory is short. The caller may call br_otlp_grpc_release in both cases. */
bool br_otlp_grpc_init(struct br_otlp_grpc *grpc, struct br_node *node,
                       const struct br_otlp_grpc_config *config);

/* Creates the client for `endpoint`. When the server becomes reachable again, the client notifies
 * the node's retries. Returns 0, or an error of br_host_ops.connect with a message in `err`. */
int br_otlp_grpc_connect(struct br_otlp_grpc *grpc, struct br_node *node,
                         const struct br_otlp_grpc_config *config, const char *endpoint,
                         struct br_err *err);

/* Finishes all items that are being sent with BR_RETRY, and frees the sender and the client.
 * Accepts a zeroed struct. */
void br_otlp_grpc_release(struct br_otlp_grpc *grpc);
