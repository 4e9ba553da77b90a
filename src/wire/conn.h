/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface of a protocol on one connection, without I/O: bytes in, events out, bytes out. The
 * owner of the socket feeds what arrives, asks for what is to be sent whenever it can send, and is
 * told by `wake` that there is something to send although nothing arrived.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/request.h"

struct br_conn;
struct br_exchange;

/* How long a peer has owed us something: a request that came in part, or reading a reply. A byte
 * now and then is no progress; BR_PROGRESS_BYTES of them are. */
struct br_progress {
    uint64_t since_ms;
    size_t bytes;
};

#define BR_PROGRESS_BYTES 4096

/* What a client may owe a server. */
enum br_awaited {
    BR_AWAITS_HEAD,    /* the rest of a head, or of a frame */
    BR_AWAITS_BODY,    /* the rest of a body whose head is here */
    BR_AWAITS_READING, /* room for a reply */
};

static inline void br_progress_start(struct br_progress *progress, uint64_t now_ms)
{
    *progress = (struct br_progress){.since_ms = now_ms};
}

/* Counts `bytes` that came; `enough` of them are progress. */
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
    /* Takes bytes. Returns 0, or a negative code: send what output still gives, then close. */
    int (*input)(struct br_conn *conn, const uint8_t *data, size_t len, uint64_t now_ms);
    /* The peer sent its last byte. A server may still have an answer to give: see finished. */
    void (*eof)(struct br_conn *conn);
    /* Appends what can be sent, up to about `max` bytes. Returns 0 or BR_ENOMEM. */
    int (*output)(struct br_conn *conn, struct br_rope *out, size_t max);
    /* True when nothing more will be sent and the connection may be closed. */
    bool (*finished)(const struct br_conn *conn);
    /* True when neither a request nor a reply is under way. */
    bool (*idle)(const struct br_conn *conn);
    /* Servers: since when, in the clock of input, the client has made no progress with what it
     * owes. UINT64_MAX when it owes nothing of that kind. */
    uint64_t (*awaits_since)(struct br_conn *conn, uint64_t now_ms, enum br_awaited what);
    /* Servers: bytes of memory that requests hold which are not here as a whole. */
    size_t (*held)(const struct br_conn *conn);
    /* Take no new requests; finish those under way. */
    void (*shutdown)(struct br_conn *conn);
    /* The connection is gone (or its owner gives it up). Frees `c`. */
    void (*free)(struct br_conn *conn);
    /* Clients only: see br_conn_send and its neighbours. */
    bool (*can_send)(const struct br_conn *conn);
    int (*send)(struct br_conn *conn, struct br_exchange *exchange);
    void (*cancel)(struct br_conn *conn, struct br_exchange *exchange);
    /* Clients, and servers of HTTP/2 (NULL for those of HTTP/1.1): see br_conn_ping. */
    bool (*ping)(struct br_conn *conn);
};

/* What a server's peer did wrong, in whose answer the connection ends. */
enum br_conn_fault {
    BR_FAULT_NONE,
    BR_FAULT_PROTOCOL,
    BR_FAULT_FLOOD, /* too much that costs us more than it; ENHANCE_YOUR_CALM */
};

struct br_conn {
    const struct br_conn_ops *ops;
    void (*wake)(struct br_conn *conn, void *owner); /* set by the owner */
    void *owner;
    uint64_t n_requests; /* servers: whose head has come */
    enum br_conn_fault fault;
    size_t body_progress; /* servers: so many bytes of a body are progress; 0: BR_PROGRESS_BYTES */
    bool cut;             /* servers: closed at the end of the turn, without sending the rest */
    bool paused;          /* feed it nothing for now; it wakes the owner when it takes more */
    unsigned n_answered;  /* clients: exchanges that had a response */
    bool leaving;         /* clients: the peer takes nothing more on it (GOAWAY) ... */
    bool calm;            /* ... because there were too many PINGs (ENHANCE_YOUR_CALM) */
    const char *why;      /* a sentence on the failure of input, as long as the connection; NULL */
};

static inline void br_conn_wake(struct br_conn *conn)
{
    conn->wake(conn, conn->owner);
}

/* Ends a server's connection at the end of the turn: what waits to be sent goes. */
static inline void br_conn_cut(struct br_conn *conn)
{
    conn->cut = true;
    br_conn_wake(conn);
}

/* Notes, for servers, that `bytes` of a body came. */
static inline void br_conn_body_progress(const struct br_conn *conn, struct br_progress *progress,
                                         size_t bytes, uint64_t now_ms)
{
    br_progress_count(progress, bytes,
                      conn->body_progress ? conn->body_progress : BR_PROGRESS_BYTES, now_ms);
}

/* Limits of a server's connections. 0 everywhere means the default. */
struct br_conn_limits {
    uint32_t max_concurrent_streams; /* 100 */
    uint32_t stream_window;          /* 4 MiB */
    uint32_t connection_window;      /* 16 MiB */
    /* HTTP/2: a client whose PINGs come closer together than this is told to calm down, once it has
     * done so three times between two replies (gRPC A8); 0: floods only. */
    uint64_t ping_min_ms;
    bool ping_without_stream; /* else, without requests under way, two hours apart */
};

/* Make server sides. `peer` is copied. Return NULL when there is no memory. */
struct br_conn *br_h1_server_new(struct br_handler *service, struct br_pool *pool,
                                 const char *peer);
struct br_conn *br_h2_server_new(struct br_handler *service, struct br_pool *pool, const char *peer,
                                 const struct br_conn_limits *limits);

/* --- Clients --------------------------------------------------------------------------------- */

/* How an HTTP/1.1 request goes to a proxy: with the absolute URL (RFC 9112 section 3.2.2). */
struct br_forward {
    const char *origin;        /* scheme and authority, before the path */
    const char *authorization; /* value of Proxy-Authorization; NULL or "": none */
    const char *proxy;         /* host:port, for messages */
};

#define BR_LOCATION_MAX 512 /* bytes of a Location that is kept, terminated */

/* One exchange on a client connection. The caller owns it and keeps it, and what it points to,
 * until on_done, which is called exactly once, also when the connection ends. */
struct br_exchange {
    const char *method; /* NULL: POST */
    const char *path;
    const char *authority;
    const char *content_type;     /* NULL: none is said, where there is no body */
    const char *content_encoding; /* HTTP: NULL none. gRPC: grpc-encoding of the message */
    const char *user_agent;
    const struct br_header *headers;
    size_t n_headers;
    struct br_rope body; /* gRPC: the message without its 5-byte prefix */
    bool grpc;
    bool secure;                      /* over TLS: the scheme is https */
    const struct br_forward *forward; /* NULL: the peer is the server */
    uint64_t timeout_ms;              /* gRPC: sent as grpc-timeout; 0: none */
    size_t max_response;              /* 0: 4 MiB */
    void (*on_done)(struct br_exchange *exchange);
    void *user;
    /* The result, valid in on_done. */
    int error; /* 0: there is a response; else why there is none */
    char error_text[192];
    unsigned http_status;
    int grpc_status; /* -1: none came */
    char grpc_message[160];
    struct br_buf *response;  /* body, or the gRPC message; may be NULL; unref'd after on_done */
    bool response_compressed; /* gRPC: the message's compressed flag */
    char response_type[64];
    /* content-encoding or grpc-encoding as the peer says it, which it may do unasked: grpc-go
     * answers in the request's. "": none. */
    char response_encoding[32];
    uint8_t *details; /* grpc-status-details-bin, decoded; NULL: none; freed after on_done */
    size_t details_len;
    int64_t retry_after_s;          /* HTTP Retry-After in seconds; -1: none */
    char location[BR_LOCATION_MAX]; /* of a 3xx; "": none */
    bool location_cut;              /* it was longer */
    const char *not_followed;       /* why a redirect was not followed; NULL: not known */
    /* The connection's. */
    struct br_conn *conn;
    int32_t stream_id;
    void *impl;
    /* The client's (net/client.h), when it ends on a connection: returns true when the exchange was
     * sent again, so that on_done is not due yet. NULL: it never is. */
    bool (*follow)(struct br_exchange *exchange);
    void *client;
    struct br_hops *hops; /* NULL: it was not redirected */
};

/* Writes a sentence about an answer other than 2xx and 3xx: its status, the fix where the status or
 * the answer shows a mistake in the config, the proxy that may have answered, and `message`. */
void br_exchange_refusal_text(const struct br_exchange *exchange, const char *message, char *text,
                              size_t size);

/* Writes the sentence about an answer of 3xx, which nobody follows, with its Location. */
void br_exchange_redirect_text(const struct br_exchange *exchange, char *text, size_t size);

/* Reads a Retry-After, seconds or an HTTP-date (RFC 9110 section 10.2.3), as seconds from now on by
 * the machine's clock; 0 when it has gone by, -1 when it is neither. */
int64_t br_http_retry_after(const char *value);

/* Make client sides; `idle` is their state between exchanges. */
struct br_conn *br_h1_client_new(struct br_pool *pool);
struct br_conn *br_h2_client_new(struct br_pool *pool);

/* Returns true when the connection can take one more exchange now. */
static inline bool br_conn_can_send(const struct br_conn *conn)
{
    return conn->ops->can_send(conn);
}

/* Starts an exchange. Returns 0; otherwise on_done will not be called. */
static inline int br_conn_send(struct br_conn *conn, struct br_exchange *exchange)
{
    return conn->ops->send(conn, exchange);
}

/* Gives an exchange up (a timeout): on_done is not called. HTTP/1.1 connections end by it. */
static inline void br_conn_cancel(struct br_conn *conn, struct br_exchange *exchange)
{
    conn->ops->cancel(conn, exchange);
}

/* Sends a PING on HTTP/2; false when the last is still unanswered. On HTTP/1.1 returns true. */
static inline bool br_conn_ping(struct br_conn *conn)
{
    return conn->ops->ping(conn);
}
