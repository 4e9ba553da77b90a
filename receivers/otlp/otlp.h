/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the OTLP receiver share. */
#pragma once

#include "net/server.h"
#include "pipeline/component.h"
#include "wire/compression.h"
#include "wire/request.h"

struct otlp_keepalive_parameters {
    uint64_t max_connection_idle, max_connection_age;
};

struct otlp_keepalive {
    struct otlp_keepalive_parameters server_parameters;
};

struct otlp_grpc {
    const char *endpoint, *transport;
    struct br_tls_config *tls;
    int64_t max_recv_msg_size_mib, max_concurrent_streams;
    struct otlp_keepalive keepalive;
};

struct otlp_cors {
    struct br_strings allowed_origins, allowed_headers, exposed_headers;
    int64_t max_age;
};

struct otlp_http {
    const char *endpoint, *transport;
    struct br_tls_config *tls;
    struct otlp_cors *cors;
    int64_t max_request_body_size;
    struct br_headers response_headers;
    struct br_strings compression_algorithms;
    uint64_t read_timeout, read_header_timeout, idle_timeout;
    bool keep_alives_enabled;
    const char *traces_url_path, *profiles_url_path;
};

struct otlp_protocols {
    struct otlp_grpc *grpc;
    struct otlp_http *http;
};

struct otlp_config {
    struct otlp_protocols protocols;
    int invalid_utf8; /* enum br_utf8_policy */
    int64_t max_depth;
};

extern const struct br_option otlp_options[];
int otlp_check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
               struct br_errs *errs);

/* How a request came, which is how its answer goes. */
enum otlp_format { OTLP_GRPC, OTLP_PROTOBUF, OTLP_JSON };

struct otlp_cors_reply {
    struct br_header headers[6];
    size_t n;
};

/* Answers a request with an item's outcome. */
void otlp_reply(struct br_request *r, enum br_signal signal, enum otlp_format format,
                const struct br_outcome *outcome, const struct otlp_http *http);

/* Refuses what is no export request with an HTTP code, and says why. */
void otlp_refuse(struct br_request *r, unsigned code, enum otlp_format format, const char *why,
                 const struct otlp_http *http);

/* Answers a CORS preflight; false when it is none, or CORS is off. */
bool otlp_preflight(struct br_request *r, const struct otlp_http *http);
