/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Config and functions that all HTTP receivers share: the options of the Collector's
 * confighttp.ServerConfig, content codings, CORS, and responses.
 */
#pragma once

#include "config/option.h"
#include "core/authenticator.h"
#include "core/outcome.h"
#include "net/server.h"
#include "wire/compression.h"
#include "wire/grpc.h"
#include "wire/request.h"

/* maximum size of a body, in bytes, if the config does not set a limit */
#define BR_BODY_MAX (64u << 20)

struct br_cors {
    struct br_strings allowed_origins, allowed_headers, exposed_headers;
    int64_t max_age;
};

/* Limits on the connections of a server. The Collector has no keys for these limits. */
struct br_connections {
    /* maximum number of connections in total, and from one IPv4 address or IPv6 /64 network; 0: no
     * limit */
    int64_t max, max_per_address;
    /* minimum rate at which a client must send a body, in bytes per second; 0: no limit */
    int64_t min_body_rate;
    uint64_t first_request_timeout;
};

#define BR_CONNECTION_ROW(type, field, key)                                                        \
    .name = (key), .offset = offsetof(type, connections.field)

/* Option rows for a struct with a member `connections` of type struct br_connections. */
#define BR_CONNECTION_ROWS(type)                                                                   \
    {BR_CONNECTION_ROW(type, max, "max_connections"), .kind = BR_OPT_INT, .max = 1e9,              \
     .help =                                                                                       \
         "largest number of connections; at the limit, the connection that has been idle for "     \
         "longest is closed, or, if none is idle, the new connection; 0: limited only by file "    \
         "descriptors"},                                                                           \
        {BR_CONNECTION_ROW(type, max_per_address, "max_connections_per_address"),                  \
         .kind = BR_OPT_INT, .max = 1e9,                                                           \
         .help = "largest number of connections from one IPv4 address or IPv6 /64 network; 0: "    \
                 "unlimited"},                                                                     \
        {BR_CONNECTION_ROW(type, min_body_rate, "min_body_rate"), .kind = BR_OPT_INT,              \
         .def.integer = 1024, .max = 1e9,                                                          \
         .help = "lowest accepted transfer rate of a request body, in bytes per second, measured " \
                 "over 10s; 0: no limit"},                                                         \
    {                                                                                              \
        BR_CONNECTION_ROW(type, first_request_timeout, "first_request_timeout"),                   \
            .kind = BR_OPT_DURATION, .def.string = "20s",                                          \
            .help =                                                                                \
                "close a connection that has not sent the headers of a request within this time"   \
    }

/* Limits for connections that carry several requests (keep-alive). */
struct br_http_keepalive {
    bool enabled;
    uint64_t idle_timeout; /* maximum time between two requests, in nanoseconds */
};

extern const struct br_option br_http_keepalive_options[];

/* Option rows for a struct with a member `keepalive` of type struct br_http_keepalive. */
#define BR_KEEPALIVE_ROWS(type)                                                                    \
    BR_STRUCT(type, keepalive, br_http_keepalive_options,                                          \
              "use of one connection for several requests"),                                       \
        BR_OLDER(BR_OPT_DURATION, type, keepalive.idle_timeout, uint64_t, "idle_timeout",          \
                 "keepalive::idle_timeout"),                                                       \
        BR_OLDER(BR_OPT_BOOL, type, keepalive.enabled, bool, "keep_alives_enabled",                \
                 "keepalive::enabled")

struct br_http_config {
    const char *endpoint, *transport;
    struct br_tls_config *tls;
    struct br_auth_config *auth;
    struct br_cors *cors;
    int64_t max_request_body_size;
    struct br_headers response_headers;
    struct br_strings compression_algorithms;
    uint64_t read_timeout, read_header_timeout;
    struct br_http_keepalive keepalive;
    bool include_metadata;
    struct br_connections connections;
};

extern const struct br_option br_cors_options[];

/* Option rows for a struct with the members `endpoint`, `transport` and `tls`. `listens` is the
 * default endpoint. */
#define BR_LISTEN_ROWS(type, listens)                                                              \
    BR_STRING(type, endpoint, listens, "host:port to listen on"),                                  \
        BR_STRING(type, transport, "tcp", "tcp, or unix; with unix, endpoint is a path"),          \
        BR_PRESENT(type, tls, struct br_tls_config, br_tls_server_options,                         \
                   "TLS settings; if absent, connections are not encrypted")

/* Option rows for a struct that begins with a struct br_http_config. `listens` is the default
 * endpoint. */
#define BR_HTTP_ROWS(listens) BR_HTTP_ROWS_KEEPING(listens, true)

/* The same rows as BR_HTTP_ROWS, with `keeps` as the default of include_metadata. In the Collector,
 * this default is false. */
#define BR_HTTP_ROWS_KEEPING(listens, keeps)                                                       \
    BR_LISTEN_ROWS(struct br_http_config, listens), BR_AUTH_SERVER_ROW(struct br_http_config),     \
        BR_PRESENT(struct br_http_config, cors, struct br_cors, br_cors_options,                   \
                   "web pages of other origins that may send requests"),                           \
        BR_INT_UP_TO(struct br_http_config, max_request_body_size, BR_BODY_MAX, 0, 255 << 20,      \
                     "largest request body in bytes, before and after decompression; 0: 64 MiB"),  \
        BR_HEADERS(struct br_http_config, response_headers, "headers to add to every response"),   \
        BR_STRINGS(struct br_http_config, compression_algorithms,                                  \
                   "content encodings to accept: \"\" (uncompressed), gzip, zstd, deflate, zlib, " \
                   "snappy, x-snappy-framed; default: all"),                                       \
        BR_DURATION(struct br_http_config, read_timeout, "0s",                                     \
                    "close a connection if no data of an incomplete request arrives for this "     \
                    "time; 0: 30s"),                                                               \
        BR_DURATION(struct br_http_config, read_header_timeout, "0s",                              \
                    "same meaning as read_timeout; the shorter of the two times applies"),         \
        BR_IGNORED("write_timeout",                                                                \
                   "a client that does not read its response is disconnected after 20s"),          \
        BR_IGNORED("dialer", "only clients open connections, so a server does not use this key"),  \
        BR_KEEPALIVE_ROWS(struct br_http_config), BR_CONNECTION_ROWS(struct br_http_config),       \
        BR_BOOL(struct br_http_config, include_metadata, (keeps),                                  \
                "retain the client metadata that processors and exporters use")

/* Adds an error if the transport is unknown, or if the endpoint does not have the form that the
 * transport requires. `path` is the config path of `node`. */
void br_endpoint_check(const char *endpoint, const char *transport, const struct br_yaml *node,
                       const char *path, struct br_errs *errs);

/* Returns the maximum size, in bytes, of a body that the config allows. */
size_t br_http_max_body(const struct br_http_config *http);

/* Returns the server config that corresponds to an HTTP config. If `cors` is set, the server
 * accepts CORS preflights without credentials. */
struct br_server_config br_http_server(const struct br_http_config *http);

/* Returns true for a CORS preflight: an OPTIONS request in which a browser asks for a method. */
bool br_http_is_preflight(const struct br_request *request);

/* Copies the limits for connections to the config of a server. */
void br_connections_apply(const struct br_connections *connections,
                          struct br_server_config *server);

/* Parses the Content-Encoding header. Returns false if the coding is unknown or the config does
 * not allow it. */
bool br_http_encoding(const struct br_http_config *http, const struct br_request *request,
                      enum br_encoding *ret);

/* Handles the requests of web pages that must not reach the receiver. Returns true if the request
 * was answered. If `cors` is set, answers CORS preflights. Answers 403 to requests from other
 * origins that `cors` does not allow. Without this check, any web page could write to a server that
 * only the user's machine can reach.
 *
 * A request from a web page has an Origin or a Sec-Fetch-Site header (Fetch, "CORS protocol";
 * w3.org/TR/fetch-metadata). A page has the same origin as the server if its origin is the
 * request's Host and br_hosts_allow accepts that host. `allowed_hosts` is the list for
 * br_hosts_allow, and may be NULL. */
bool br_http_answer_page(const struct br_http_config *http, const struct br_strings *allowed_hosts,
                         struct br_request *request);

/* maximum number of additional headers of a response; further headers are not sent */
#define BR_HTTP_ANSWER_HEADERS 16

struct br_http_answer {
    unsigned status;
    /* delay for the Retry-After header, in milliseconds; 0: the header is not sent */
    uint32_t delay_ms;
    const char *type; /* content type of the body; NULL: the response has no body */
    const void *data; /* the bytes of the body, which are copied */
    size_t len;
    /* buffer with the body, used instead of `data`; br_http_reply takes a separate reference; may
     * be NULL */
    struct br_buf *body;
    /* status 405: the allowed methods, for the Allow header; NULL: POST */
    const char *allow;
    const struct br_header *headers; /* additional headers, at most BR_HTTP_ANSWER_HEADERS */
    size_t n_headers;
    bool stream; /* true: the caller sends the body later with br_request_write */
    /* true: adds headers that prevent other sites from embedding the response, or from interpreting
     * it as another content type (nosniff, CORP) */
    bool apart;
};

/* Sends `answer`, with the headers that the config and the request's origin require. `http` may
 * be NULL. */
void br_http_reply(const struct br_http_config *http, struct br_request *request,
                   const struct br_http_answer *answer);

/* Returns the delay, in milliseconds, that a client should wait before a retry: the outcome's
 * delay, or one second if the outcome has no delay. Returns 0 unless the verdict is BR_RETRY. */
uint32_t br_retry_delay_ms(const struct br_outcome *outcome);

/* --- gRPC ------------------------------------------------------------------------------------- */

/* Answers a request with a gRPC error. */
void br_grpc_refuse(struct br_request *request, enum br_status status, const char *why);

/* Checks the method and the grpc-encoding header of a gRPC call. If one of them is invalid, answers
 * the call with an error and returns false. */
bool br_grpc_begin(struct br_request *request, enum br_encoding *ret);

/* Answers a gRPC call with an outcome. `message` is sent only if the verdict is BR_DONE. */
void br_grpc_reply(struct br_request *request, const struct br_outcome *outcome,
                   const void *message, size_t len);
