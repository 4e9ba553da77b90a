/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration of the OTLP receiver, shared by its files. */
#pragma once

#include "ingest/http.h"

struct otlp_keepalive_parameters {
    uint64_t max_connection_idle, max_connection_age, max_connection_age_grace, time, timeout;
};

struct otlp_keepalive_policy {
    uint64_t min_time;
    bool permit_without_stream;
};

struct otlp_keepalive {
    /* If NULL, all fields of struct otlp_keepalive_parameters are treated as 0. */
    struct otlp_keepalive_parameters *server_parameters;
    /* If NULL, all fields of struct otlp_keepalive_policy are treated as 0. */
    struct otlp_keepalive_policy *enforcement_policy;
};

struct otlp_grpc {
    const char *endpoint, *transport;
    struct br_tls_config *tls;
    struct br_auth_config *auth;
    int64_t max_recv_msg_size_mib, max_concurrent_streams;
    /* If NULL, all fields of struct otlp_keepalive are treated as 0. */
    struct otlp_keepalive *keepalive;
    struct br_connections connections;
    bool include_metadata;
};

struct otlp_http {
    /* must be the first field, because BR_HTTP_ROWS_KEEPING requires it */
    struct br_http_config server;
    const char *traces_url_path, *profiles_url_path;
};

struct otlp_protocols {
    struct otlp_grpc *grpc;
    struct otlp_http *http;
};

struct otlp_config {
    struct otlp_protocols protocols;
    int invalid_utf8; /* policy for strings with invalid UTF-8, an enum br_utf8_policy */
    int64_t max_depth;
};

extern const struct br_option otlp_options[];
int otlp_check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
               struct br_errs *errs);
