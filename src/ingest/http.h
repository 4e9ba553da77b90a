/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys and functions of all receivers that listen for HTTP: the Collector's keys (confighttp's
 * server side), content codings, pages of other origins, and answers.
 */
#pragma once

#include "config/option.h"
#include "core/outcome.h"
#include "net/server.h"
#include "wire/compression.h"
#include "wire/request.h"

#define BR_BODY_MAX (64u << 20) /* largest body where the config says nothing */

struct br_cors {
    struct br_strings allowed_origins, allowed_headers, exposed_headers;
    int64_t max_age;
};

/* What a server allows its connections, where the Collector has no key for it. */
struct br_connections {
    int64_t max, max_per_address; /* 0: any number */
    int64_t min_body_rate;        /* bytes a second; 0: any */
    uint64_t first_request_timeout;
};

#define BR_CONNECTION_ROW(type, field, key)                                                        \
    .name = (key), .offset = offsetof(type, connections.field)

/* The rows of a struct with such a member, `connections`. */
#define BR_CONNECTION_ROWS(type)                                                                   \
    {BR_CONNECTION_ROW(type, max, "max_connections"), .kind = BR_OPT_INT, .max = 1e9,              \
     .help = "connections at once; a new one takes the place of the one that has been without a "  \
             "request for the longest, and is refused where all have one; 0: as many as there "    \
             "are descriptors"},                                                                   \
        {BR_CONNECTION_ROW(type, max_per_address, "max_connections_per_address"),                  \
         .kind = BR_OPT_INT, .max = 1e9,                                                           \
         .help =                                                                                   \
             "the same for one IPv4 address, or the first 64 bits of an IPv6 address; 0: any"},    \
        {BR_CONNECTION_ROW(type, min_body_rate, "min_body_rate"), .kind = BR_OPT_INT,              \
         .def.integer = 1024, .max = 1e9,                                                          \
         .help = "bytes a second that a body has to come at, over 10s; 0: any"},                   \
    {                                                                                              \
        BR_CONNECTION_ROW(type, first_request_timeout, "first_request_timeout"),                   \
            .kind = BR_OPT_DURATION, .def.string = "20s",                                          \
            .help = "close connections that have not sent the head of a request after it"          \
    }

/* Further requests on a connection. */
struct br_http_keepalive {
    bool enabled;
    uint64_t idle_timeout; /* ns */
};

extern const struct br_option br_http_keepalive_options[];

/* The rows of a struct with such a member, `keepalive`. */
#define BR_KEEPALIVE_ROWS(type)                                                                    \
    BR_STRUCT(type, keepalive, br_http_keepalive_options, "further requests on a connection"),     \
        BR_OLDER(BR_OPT_DURATION, type, keepalive.idle_timeout, uint64_t, "idle_timeout",          \
                 "keepalive::idle_timeout"),                                                       \
        BR_OLDER(BR_OPT_BOOL, type, keepalive.enabled, bool, "keep_alives_enabled",                \
                 "keepalive::enabled")

struct br_http_config {
    const char *endpoint, *transport;
    struct br_tls_config *tls;
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

/* The rows of a struct that begins with a struct br_http_config. `listens` is the default endpoint.
 */
#define BR_HTTP_ROWS(listens) BR_HTTP_ROWS_KEEPING(listens, true)

/* The same; `keeps` is the default of include_metadata, which the Collector has off. */
#define BR_HTTP_ROWS_KEEPING(listens, keeps)                                                       \
    BR_STRING(struct br_http_config, endpoint, listens, "host:port to listen on"),                 \
        BR_STRING(struct br_http_config, transport, "tcp",                                         \
                  "tcp, or unix (endpoint is then a path)"),                                       \
        BR_PRESENT(struct br_http_config, tls, struct br_tls_config, br_tls_server_options,        \
                   "TLS; absent: plaintext"),                                                      \
        BR_PRESENT(struct br_http_config, cors, struct br_cors, br_cors_options,                   \
                   "pages that may send"),                                                         \
        BR_INT(struct br_http_config, max_request_body_size, BR_BODY_MAX, 0, 255 << 20,            \
               "largest body in bytes, also after decompression; 0: 64 MiB"),                      \
        BR_HEADERS(struct br_http_config, response_headers, "further headers of every response"),  \
        BR_STRINGS(                                                                                \
            struct br_http_config, compression_algorithms,                                         \
            "content codings to take: \"\", gzip, zstd, deflate, zlib, snappy, x-snappy-framed; "  \
            "default: all of them"),                                                               \
        BR_DURATION(struct br_http_config, read_timeout, "0s",                                     \
                    "a begun request without progress; 0: 30s"),                                   \
        BR_DURATION(struct br_http_config, read_header_timeout, "0s",                              \
                    "as read_timeout; the shorter counts"),                                        \
        BR_IGNORED("write_timeout", "a client that does not read is closed after 20s"),            \
        BR_IGNORED("dialer", "a server does not dial"), BR_KEEPALIVE_ROWS(struct br_http_config),  \
        BR_CONNECTION_ROWS(struct br_http_config),                                                 \
        BR_BOOL(struct br_http_config, include_metadata, (keeps),                                  \
                "keep client metadata that processors and exporters ask for")

/* Adds an error unless transport and endpoint fit each other. `path` is that of `node`. */
void br_endpoint_check(const char *endpoint, const char *transport, const struct br_yaml *node,
                       const char *path, struct br_errs *errs);

/* Returns the largest body, and what br_host_ops.serve wants to know. */
size_t br_http_max_body(const struct br_http_config *http);
struct br_server_config br_http_server(const struct br_http_config *http);

/* Sets what the server allows its connections. */
void br_connections_apply(const struct br_connections *connections,
                          struct br_server_config *server);

/* Reads Content-Encoding; false when it is none that we (may) take. */
bool br_http_encoding(const struct br_http_config *http, const struct br_request *request,
                      enum br_encoding *ret);

/* Answers requests of web pages that end here: preflights if `cors` is on, and those of other
 * origins that it does not name (403), so that no page a user visits writes to a server that only
 * the user's machine reaches. Such requests have an Origin, or Sec-Fetch-Site (Fetch, "CORS
 * protocol"; w3.org/TR/fetch-metadata). A page is of our own origin if it is our Host, and that is
 * one that br_hosts_allow, with `allowed_hosts` (may be NULL), lets through. Returns whether it has
 * answered. */
bool br_http_answer_page(const struct br_http_config *http, const struct br_strings *allowed_hosts,
                         struct br_request *request);

#define BR_HTTP_ANSWER_HEADERS 16 /* an answer's own; further ones are not sent */

struct br_http_answer {
    unsigned status;
    uint32_t delay_ms; /* 0: no Retry-After */
    const char *type;  /* of the body; NULL: there is none */
    const void *data;  /* the body, copied */
    size_t len;
    struct br_buf *body; /* the body instead, of which a reference is taken; may be NULL */
    const char *allow;   /* 405: the methods there are; NULL: POST */
    const struct br_header *headers; /* further ones, at most BR_HTTP_ANSWER_HEADERS */
    size_t n_headers;
    bool stream; /* the body follows (br_request_write) */
    bool apart;  /* other pages can neither embed it nor read it as another type (nosniff, CORP) */
};

/* Replies with the headers that config and origin ask for. `http` may be NULL. */
void br_http_reply(const struct br_http_config *http, struct br_request *request,
                   const struct br_http_answer *answer);

/* Returns how long a client is to wait: the outcome's hint or a second; 0 unless BR_RETRY. */
uint32_t br_retry_delay_ms(const struct br_outcome *outcome);

/* --- gRPC ------------------------------------------------------------------------------------- */

/* Returns true when it is a gRPC request (not gRPC-Web, and HTTP/2). */
bool br_grpc_is(const struct br_request *request);

/* Refuses what is no call. */
void br_grpc_refuse(struct br_request *request, enum br_status status, const char *why);

/* Prepares a call: false when it was refused for its method or grpc-encoding. */
bool br_grpc_begin(struct br_request *request, enum br_encoding *ret);

/* Answers a call with an outcome, and a message where it is BR_DONE. */
void br_grpc_reply(struct br_request *request, const struct br_outcome *outcome,
                   const void *message, size_t len);
