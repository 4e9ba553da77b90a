/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface of a protocol (HTTP/1.1, HTTP/2) on one connection, without I/O. The owner of the
 * socket passes received bytes to `input` and fetches bytes to send from `output` whenever the
 * socket is writable. The protocol calls `wake` if it has output although nothing was received.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/request.h"

struct br_conn;
struct br_exchange;

/* Measures for how long a peer has made no progress in sending a request or in reading a
 * response. A few bytes are not progress. The default of the bytes that are progress is
 * BR_PROGRESS_BYTES. */
struct br_progress {
    uint64_t since_ms;
    size_t bytes;
};

#define BR_PROGRESS_BYTES 4096

/* The actions of the client for which a server may be waiting. */
enum br_awaited {
    BR_AWAITS_HEAD,    /* sending the rest of a request head or of a frame */
    BR_AWAITS_BODY,    /* sending the rest of a body whose head is complete */
    BR_AWAITS_READING, /* reading a response */
};

static inline void br_progress_start(struct br_progress *progress, uint64_t now_ms)
{
    *progress = (struct br_progress){.since_ms = now_ms};
}

/* Adds `bytes` to the measured bytes. The wait restarts when `enough` bytes have been added. */
static inline void br_progress_count(struct br_progress *progress, size_t bytes, size_t enough,
                                     uint64_t now_ms)
{
    progress->bytes += bytes;
    if (progress->bytes >= enough)
        br_progress_start(progress, now_ms);
}

static inline void br_progress_add(struct br_progress *progress, size_t bytes, uint64_t now_ms)
{
    br_progress_count(progress, bytes, BR_PROGRESS_BYTES, now_ms);
}

struct br_conn_ops {
    /* Processes received bytes. Returns 0 or a negative error code. After an error, the owner
     * sends the remaining output and closes the connection. */
    int (*input)(struct br_conn *conn, const uint8_t *data, size_t len, uint64_t now_ms);
    /* Reports that the peer has closed its side of the connection. A server may still have
     * responses to send: see `finished`. */
    void (*eof)(struct br_conn *conn);
    /* Appends output to `out`, up to about `max` bytes. Returns 0, BR_ENOMEM, or BR_EPROTO if
     * the protocol failed. */
    int (*output)(struct br_conn *conn, struct br_rope *out, size_t max);
    /* Returns true if nothing more will be sent and the connection can be closed. */
    bool (*finished)(const struct br_conn *conn);
    /* Returns true if no request or response is in progress. */
    bool (*idle)(const struct br_conn *conn);
    /* Servers: returns the time at which the client last made progress with `what`, in the clock
     * of `input`. Returns UINT64_MAX if the server is not waiting for `what`. */
    uint64_t (*awaits_since)(struct br_conn *conn, uint64_t now_ms, enum br_awaited what);
    /* Servers: returns the bytes of memory that incomplete requests take. */
    size_t (*held)(const struct br_conn *conn);
    /* Starts a graceful shutdown: new requests are not accepted, and requests in progress
     * finish. */
    void (*shutdown)(struct br_conn *conn);
    /* Frees `conn`; unfinished requests and exchanges end with an error. */
    void (*free)(struct br_conn *conn);
    /* Clients only: see br_conn_can_send, br_conn_send and br_conn_cancel. */
    bool (*can_send)(const struct br_conn *conn);
    int (*send)(struct br_conn *conn, struct br_exchange *exchange);
    void (*cancel)(struct br_conn *conn, struct br_exchange *exchange);
    /* Clients, and HTTP/2 servers: see br_conn_ping. NULL for HTTP/1.1 servers. */
    bool (*ping)(struct br_conn *conn);
};

/* An error of the client because of which a server closes the connection. */
enum br_conn_fault {
    BR_FAULT_NONE,
    BR_FAULT_PROTOCOL,
    /* too many frames that are cheap to send and costly to process; the server sends
     * ENHANCE_YOUR_CALM */
    BR_FAULT_FLOOD,
};

struct br_conn {
    const struct br_conn_ops *ops;
    /* called if there is output although nothing was received; set by the owner */
    void (*wake)(struct br_conn *conn, void *owner);
    void *owner;
    uint64_t n_requests; /* servers: number of requests whose head was received */
    enum br_conn_fault fault;
    /* servers: bytes of a body that count as progress; 0: BR_PROGRESS_BYTES */
    size_t body_progress;
    /* servers: close the connection at the end of the loop iteration without sending the output */
    bool cut;
    /* `input` must not be called; the protocol wakes the owner when `input` may be called again */
    bool paused;
    unsigned n_answered; /* clients: number of exchanges that had a response */
    bool leaving;        /* clients: the server accepts no further exchanges (GOAWAY) */
    /* clients: the server's GOAWAY was ENHANCE_YOUR_CALM, because of too many PINGs */
    bool calm;
    const char *why; /* text of the reason why `input` failed, valid until `free`; NULL: no text */
};

static inline void br_conn_wake(struct br_conn *conn)
{
    conn->wake(conn, conn->owner);
}

/* Closes a server's connection at the end of the loop iteration. Its unsent output is dropped. */
static inline void br_conn_cut(struct br_conn *conn)
{
    conn->cut = true;
    br_conn_wake(conn);
}

/* Servers: adds `bytes` received bytes of a body to the progress of that body. */
static inline void br_conn_body_progress(const struct br_conn *conn, struct br_progress *progress,
                                         size_t bytes, uint64_t now_ms)
{
    br_progress_count(progress, bytes,
                      conn->body_progress ? conn->body_progress : BR_PROGRESS_BYTES, now_ms);
}

/* Limits of a server's connections. For a field that is 0, the default in the field's comment
 * applies. */
struct br_conn_limits {
    uint32_t max_concurrent_streams; /* HTTP/2 streams open at the same time; default: 100 */
    uint32_t stream_window;          /* receive window of a stream, in bytes; default: 4 MiB */
    uint32_t connection_window;      /* receive window of a connection, in bytes; default: 16 MiB */
    /* HTTP/2: minimum interval of a client's PINGs (gRPC A8). The connection is closed with
     * ENHANCE_YOUR_CALM after three shorter intervals between two responses. 0: no minimum; only
     * floods of PINGs are detected. */
    uint64_t ping_min_ms;
    /* `ping_min_ms` also applies without requests in progress; otherwise the minimum is then two
     * hours */
    bool ping_without_stream;
};

/* Makes the server side of an HTTP/1.1 connection. `peer`, the client's address as text, is copied.
 * Returns NULL if memory is short. */
struct br_conn *br_h1_server_new(struct br_handler *service, struct br_pool *pool,
                                 const char *peer);

/* Makes the server side of an HTTP/2 connection. `peer`, the client's address as text, is copied.
 * Returns NULL if memory is short. */
struct br_conn *br_h2_server_new(struct br_handler *service, struct br_pool *pool, const char *peer,
                                 const struct br_conn_limits *limits);

/* --- Clients --------------------------------------------------------------------------------- */

/* The proxy of an HTTP/1.1 client whose requests contain the absolute URL (RFC 9112 section
 * 3.2.2). */
struct br_forward {
    const char *origin;        /* scheme and authority of the URL in requests */
    const char *authorization; /* value of Proxy-Authorization; NULL or "" without credentials */
    const char *proxy;         /* host:port of the proxy, for messages */
};

#define BR_LOCATION_MAX 512 /* bytes of a stored Location, including the terminator */

/* One request and its response on a client connection. The caller owns the exchange, and keeps
 * it and everything it points to until on_done. on_done is called exactly once, also if the
 * connection ends. */
struct br_exchange {
    const char *method; /* method of the request; NULL: POST */
    const char *path;
    const char *authority;
    /* value of Content-Type; NULL: not sent, for a request without a body */
    const char *content_type;
    const char *content_encoding; /* HTTP: content-encoding; gRPC: grpc-encoding; NULL: none */
    const char *user_agent;
    const struct br_header *headers;
    size_t n_headers;
    struct br_rope body; /* body of the request; for gRPC, the message without its 5-byte prefix */
    bool grpc;
    bool secure;                      /* the request is sent over TLS, so its scheme is https */
    const struct br_forward *forward; /* the proxy that forwards the request; NULL: none */
    uint64_t timeout_ms;              /* gRPC: sent as grpc-timeout; 0: none */
    size_t max_response;              /* maximum size of the response body in bytes; 0: 4 MiB */
    void (*on_done)(struct br_exchange *exchange);
    void *user;
    /* The result, valid in on_done. */
    int error; /* 0: a response was received; otherwise a BR_E code */
    char error_text[192];
    unsigned http_status;
    int grpc_status; /* status of a gRPC call; -1: not received */
    char grpc_message[160];
    /* body or gRPC message of the response; may be NULL; released after on_done */
    struct br_buf *response;
    bool response_compressed; /* gRPC: the compressed flag of the response message */
    char response_type[64];
    /* content-encoding or grpc-encoding of the response, "" if absent. A server may use an
     * encoding that the client did not offer: grpc-go uses the encoding of the request. */
    char response_encoding[32];
    uint8_t *details; /* grpc-status-details-bin, decoded; NULL if absent; freed after on_done */
    size_t details_len;
    int64_t retry_after_s;          /* seconds from the Retry-After header; -1 if absent */
    char location[BR_LOCATION_MAX]; /* Location of a 3xx response; "" if absent */
    bool location_cut;              /* `location` was truncated */
    const char *not_followed;       /* why a redirect was not followed; NULL: no reason is known */
    /* The connection that carries this exchange, set by that connection. */
    struct br_conn *conn;
    int32_t stream_id;
    void *impl;
    /* Set by the client (net/client.h) and called when the exchange ends on a connection.
     * Returns true if the exchange was sent again, so that on_done is not called yet. May be
     * NULL. */
    bool (*follow)(struct br_exchange *exchange);
    void *client;
    struct br_hops *hops; /* state of a redirected exchange; NULL: not redirected */
};

/* Writes the error text for a response other than 2xx and 3xx to `text`. It contains the status, a
 * hint if the config is wrong, the proxy, and `message`. */
void br_exchange_refusal_text(const struct br_exchange *exchange, const char *message, char *text,
                              size_t size);

/* Writes the error text for a 3xx response that was not followed, with its Location, to `text`. */
void br_exchange_redirect_text(const struct br_exchange *exchange, char *text, size_t size);

/* Parses a Retry-After value, in seconds or as an HTTP-date (RFC 9110 section 10.2.3). Returns
 * the seconds from now by the system clock, 0 for a time in the past, -1 if it is malformed. */
int64_t br_http_retry_after(const char *value);

/* Makes the client side of an HTTP/1.1 connection, ready for an exchange. Returns NULL if memory is
 * short. */
struct br_conn *br_h1_client_new(struct br_pool *pool);

/* Makes the client side of an HTTP/2 connection, ready for exchanges. Returns NULL if memory is
 * short. */
struct br_conn *br_h2_client_new(struct br_pool *pool);

/* Returns true if the connection accepts another exchange now. */
static inline bool br_conn_can_send(const struct br_conn *conn)
{
    return conn->ops->can_send(conn);
}

/* Starts an exchange. Returns 0, BR_ENOMEM or BR_EPROTO; after an error on_done is not called. */
static inline int br_conn_send(struct br_conn *conn, struct br_exchange *exchange)
{
    return conn->ops->send(conn, exchange);
}

/* Cancels an exchange, for instance after a timeout. on_done is not called. An HTTP/1.1
 * connection cannot be used afterwards. */
static inline void br_conn_cancel(struct br_conn *conn, struct br_exchange *exchange)
{
    conn->ops->cancel(conn, exchange);
}

/* Sends a PING on HTTP/2. Returns false if the previous one was not answered. HTTP/1.1 clients
 * return true. */
static inline bool br_conn_ping(struct br_conn *conn)
{
    return conn->ops->ping(conn);
}
