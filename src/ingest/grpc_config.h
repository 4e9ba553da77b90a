/* SPDX-License-Identifier: Apache-2.0 */
/* Config that all gRPC receivers share: the Collector's keys (the server side of configgrpc). */
#pragma once

#include "ingest/http.h"

struct br_grpc_keepalive_parameters {
    uint64_t max_connection_idle, max_connection_age, max_connection_age_grace, time, timeout;
};

struct br_grpc_keepalive_policy {
    uint64_t min_time;
    bool permit_without_stream;
};

struct br_grpc_keepalive {
    /* If NULL, all fields of struct br_grpc_keepalive_parameters are treated as 0. */
    struct br_grpc_keepalive_parameters *server_parameters;
    /* If NULL, all fields of struct br_grpc_keepalive_policy are treated as 0. */
    struct br_grpc_keepalive_policy *enforcement_policy;
};

struct br_grpc_config {
    const char *endpoint, *transport;
    struct br_tls_config *tls;
    struct br_auth_config *auth;
    int64_t max_recv_msg_size_mib, max_concurrent_streams;
    /* If NULL, all fields of struct br_grpc_keepalive are treated as 0. */
    struct br_grpc_keepalive *keepalive;
    struct br_connections connections;
    bool include_metadata;
};

extern const struct br_option br_grpc_keepalive_options[];

/* Option rows for a struct br_grpc_config. `listens` is the default endpoint. */
#define BR_GRPC_ROWS(listens)                                                                      \
    BR_LISTEN_ROWS(struct br_grpc_config, listens), BR_AUTH_SERVER_ROW(struct br_grpc_config),     \
        BR_INT_UP_TO(struct br_grpc_config, max_recv_msg_size_mib, 64, 0, 255,                     \
                     "largest message in MiB, before and after decompression; 0: 64"),             \
        BR_INT(struct br_grpc_config, max_concurrent_streams, 0, 0, 4294967295.0,                  \
               "largest number of concurrent requests on a connection; 0: 100"),                   \
        BR_PRESENT(struct br_grpc_config, keepalive, struct br_grpc_keepalive,                     \
                   br_grpc_keepalive_options, "lifetime of connections, and pings on them"),       \
        BR_CONNECTION_ROWS(struct br_grpc_config),                                                 \
        BR_IGNORED("read_buffer_size", "the server chooses buffer sizes"),                         \
        BR_IGNORED("write_buffer_size", "the server chooses buffer sizes"),                        \
        BR_IGNORED("dialer", "only clients open connections, so a server does not use this key"),  \
        BR_BOOL(struct br_grpc_config, include_metadata, false,                                    \
                "retain the client metadata that processors and exporters use")

/* Returns the maximum size, in bytes, of a message that the config allows. */
size_t br_grpc_max_message(const struct br_grpc_config *grpc);

/* Returns the config of a server. */
struct br_server_config br_grpc_server(const struct br_grpc_config *grpc);
