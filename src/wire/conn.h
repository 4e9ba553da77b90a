/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Defines the interface of a protocol (HTTP/1.1, HTTP/2) on one connection, without I/O. The owner
 * of the socket passes received bytes to `input` and fetches bytes to send from `output` whenever
 * the socket is writable. The protocol calls `wake` if it has output although nothing was received.
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
 * response. Fewer bytes than a minimum (by default BR_PROGRESS_BYTES) are not progress. */
struct br_progress {
    uint64_t since_ms;
    size_t bytes;
};

#define BR_PROGRESS_BYTES 4096

/* The actions of the client for which a server may be waiting. */
enum br_awaited {
    BR_AWAITS_HEAD,    /* the client sends the rest of a request head or of a frame */
    BR_AWAITS_BODY,    /* the client sends the rest of a body whose head is complete */
    BR_AWAITS_READING, /* the client reads a response */
};

static inline void br_progress_start(struct br_progress *progress, uint64_t now_ms)
{
    *progress = (struct br_progress){.since_ms = now_ms};
}

/* Adds `bytes` to the bytes counted since the last progress. When `enough` bytes have been
 * added, the peer has made progress: the count and the time start again. */
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
    /* Called when the peer has closed its side of the connection. A server may still have
     * responses to send: see `finished`. */
    void (*eof)(struct br_conn *conn);
    /* Appends output to `out`, up to about `max` bytes. Returns 0, BR_ENOMEM, or BR_EPROTO if
     * the protocol failed. */
    int (*output)(struct br_conn *conn, struct br_rope *out, size_t max);
    /* Returns true if nothing more will be sent and the connection can be closed. */
    bool (*finished)(const struct br_conn *conn);
    /* Returns true if no request or response is in progress. */
    bool (*idle)(const struct br_conn *conn);
    /* Servers: returns the time, by the clock of `now_ms`, at which the client last made
     * progress with `what`. Returns UINT64_MAX if the server is not waiting for `what`. */
    uint64_t (*awaits_since)(struct br_conn *conn, uint64_t now_ms, enum br_awaited what);
    /* Servers: returns the bytes of memory that incomplete requests occupy. */
    size_t (*held)(const struct br_conn *conn);
    /* Starts a graceful shutdown: new requests are not accepted, and requests in progress
     * finish. */
    void (*shutdown)(struct br_conn *conn);
    /* Servers: asks the client to use another connection. Requests that arrive before `shutdown` is
     * called are still answered. Over HTTP/1.1, only one more request is answered, with
     * "Connection: close". */
    void (*retire)(struct br_conn *conn);
    /* Frees `conn`; unfinished requests and exchanges end with an error. */
    void (*free)(struct br_conn *conn);
    /* Clients only: see br_conn_can_send, br_conn_send and br_conn_cancel. */
    bool (*can_send)(const struct br_conn *conn);
    int (*send)(struct br_conn *conn, struct br_exchange *exchange);
    void (*cancel)(struct br_conn *conn, struct br_exchange *exchange);
    /* Clients, and HTTP/2 servers: see br_conn_ping. NULL for HTTP/1.1 servers. */
    bool (*ping)(struct br_conn *conn);
};

/* The kind of client error that makes a server close the connection. */
enum br_conn_fault {
    BR_FAULT_NONE,
    BR_FAULT_PROTOCOL,
    /* too many frames that are cheap to send and costly to process; the server sends
     * ENHANCE_YOUR_CALM */
    BR_FAULT_FLOOD,
};

struct br_conn {
    const struct br_conn_ops *ops;
    /* called if there is output although `input` was not called; set by the owner */
    void (*wake)(struct br_conn *conn, void *owner);
    void *owner;
    uint64_t n_requests; /* servers: number of requests whose head was received so far */
    enum br_conn_fault fault;
    /* servers: number of bytes of a body that count as progress; 0: BR_PROGRESS_BYTES */
    size_t body_progress;
    /* servers: close the connection at the end of the loop iteration without sending the output */
    bool cut;
    /* `input` must not be called until the protocol wakes the owner */
    bool paused;
    unsigned n_answered; /* clients: number of exchanges that have had a response */
    bool leaving;        /* clients: the server accepts no further exchanges (GOAWAY) */
    /* clients: the server's GOAWAY was ENHANCE_YOUR_CALM, because of too many PINGs */
    bool calm;
    const char *why; /* text of the reason why `input` failed, valid until `free`; NULL: no text */
};

static inline void br_conn_wake(struct br_conn *conn)
{
    conn->wake(conn, conn->owner);
}

/* Closes a server's connection at the end of the loop iteration. Drops the unsent output. */
static inline void br_conn_cut(struct br_conn *conn)
{
    conn->cut = true;
    br_conn_wake(conn);
}

/* Servers: adds `bytes` received bytes of a body to `progress`, the progress of that body. */
static inline void br_conn_body_progress(const struct br_conn *conn, struct br_progress *progress,
                                         size_t bytes, uint64_t now_ms)
{
    br_progress_count(progress, bytes,
                      conn->body_progress ? conn->body_progress : BR_PROGRESS_BYTES, now_ms);
}

/* Limits of a server's connections. If a field is 0, the default in the field's comment applies. */
struct br_conn_limits {
    /* maximum number of HTTP/2 streams that are open at the same time; default: 100 */
    uint32_t max_concurrent_streams;
    uint32_t stream_window;     /* receive window of a stream, in bytes; default: 4 MiB */
    uint32_t connection_window; /* receive window of a connection, in bytes; default: 16 MiB */
    /* HTTP/2: minimum interval, in milliseconds, between a client's PINGs (gRPC A8). If three
     * intervals are shorter while the server sends no response, the connection is closed with
     * ENHANCE_YOUR_CALM. 0: no minimum; only floods of PINGs are detected. */
    uint64_t ping_min_ms;
    /* true: `ping_min_ms` also applies while no request is in progress; false: while no request is
     * in progress, the minimum is two hours */
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

/* --- The peer's protocol (guess.c) ------------------------------------------------------------ */

/* The server or client guesses which protocol its peer speaks. With the guess, an error message can
 * explain that the peer speaks another protocol than expected. */

enum br_guess {
    BR_GUESS_NOTHING, /* the peer has not sent a byte */
    BR_GUESS_OTHER,
    /* the peer sent text: a request line, the HTTP/2 preface, a status line, or an HTML page
     * without a status line, which some servers send in response to the preface */
    BR_GUESS_HTTP1,
    BR_GUESS_HTTP2, /* the peer sent a SETTINGS frame, which is the first frame of a server */
    /* the peer sent a TLS record, or the HTTP/1.1 response of a TLS port to plaintext */
    BR_GUESS_TLS,
    BR_GUESSES,
};

/* Returns the guessed protocol of a peer that has sent these first bytes. */
enum br_guess br_guess(const uint8_t *data, size_t len);
