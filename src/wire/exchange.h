/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Defines the client side of a connection (conn.h), without I/O. An exchange is a request and its
 * response.
 */
#pragma once

#include "wire/conn.h"

/* The proxy of an HTTP/1.1 client whose requests contain the absolute URL (RFC 9112 section
 * 3.2.2). */
struct br_forward {
    const char *origin; /* scheme and authority of the URL in requests */
    /* value of Proxy-Authorization; NULL or "": the header is not sent */
    const char *authorization;
    const char *proxy; /* host:port of the proxy, for messages */
};

#define BR_LOCATION_MAX 512 /* maximum bytes of a stored Location, including the terminator */

/* One request and its response on a client connection. The caller owns the exchange, and keeps
 * it and everything it points to until on_done. on_done is called exactly once, also if the
 * connection ends. */
struct br_exchange {
    const char *method; /* method of the request; NULL: POST */
    const char *path;
    const char *authority;
    /* value of Content-Type; NULL for a request without a body: the header is not sent */
    const char *content_type;
    /* value of content-encoding (HTTP) or grpc-encoding (gRPC); NULL: the header is not sent */
    const char *content_encoding;
    const char *user_agent;
    const struct br_header *headers;
    size_t n_headers;
    struct br_rope body; /* body of the request; for gRPC, the message without its 5-byte prefix */
    bool grpc;
    bool secure;      /* the request is sent over TLS, so its scheme is https */
    bool secret_body; /* the body contains credentials: no other server may receive it */
    /* the proxy that forwards the request; NULL: the request is not sent to a forwarding proxy */
    const struct br_forward *forward;
    /* gRPC: time limit that is sent as grpc-timeout; 0: the header is not sent */
    uint64_t timeout_ms;
    size_t max_response; /* maximum size of the response body in bytes; 0: 4 MiB */
    /* client metadata of the item that is sent (br_item.metadata), for headers that authenticators
     * add; NULL: the item has no metadata */
    const char *metadata;
    void (*on_done)(struct br_exchange *exchange);
    void *user;
    /* state of a signed exchange (net/signing.h); NULL: the exchange is not signed */
    void *signing;
    /* The fields below are the result of the exchange, and are valid in on_done. */
    int error; /* 0: a response was received; otherwise a BR_E code */
    char error_text[192];
    unsigned http_status;
    int grpc_status; /* gRPC: status of the call; -1: no status was received */
    char grpc_message[160];
    /* body or gRPC message of the response; may be NULL; released after on_done */
    struct br_buf *response;
    bool response_compressed; /* gRPC: compressed flag in the prefix of the response message */
    char response_type[64];
    /* content-encoding or grpc-encoding of the response, "" if absent. A server may use an
     * encoding that the client did not offer: grpc-go uses the encoding of the request. */
    char response_encoding[32];
    /* grpc-status-details-bin, decoded; NULL: the response has no details; freed after on_done */
    uint8_t *details;
    size_t details_len;
    int64_t retry_after_s;          /* seconds from the Retry-After header; -1 if absent */
    char location[BR_LOCATION_MAX]; /* Location of a 3xx response; "" if absent */
    bool location_cut;              /* `location` was truncated */
    const char *not_followed;       /* why a redirect was not followed; NULL: no reason is known */
    /* The connection on which the exchange is sent. The connection sets this field. */
    struct br_conn *conn;
    int32_t stream_id;
    void *impl;
    /* Callback that the client (net/client.h) sets; may be NULL. Called when a connection has
     * finished with the exchange. Returns true if the exchange was sent again on a connection, so
     * that on_done is not called yet. */
    bool (*follow)(struct br_exchange *exchange);
    void *client;
    /* state of a redirected exchange; NULL: the exchange was not redirected */
    struct br_hops *hops;
};

/* Writes the error text for a response other than 2xx and 3xx to `text`. The text contains the
 * status, a hint if the config may be wrong, the proxy, and `message`. */
void br_exchange_refusal_text(const struct br_exchange *exchange, const char *message, char *text,
                              size_t size);

/* Writes the error text for a 3xx response that was not followed, with its Location, to `text`. */
void br_exchange_redirect_text(const struct br_exchange *exchange, char *text, size_t size);

/* Parses a Retry-After value, in seconds or as an HTTP-date (RFC 9110 section 10.2.3). Returns
 * the number of seconds from now by the system clock, 0 for a time in the past, or -1 if the
 * value is malformed. */
int64_t br_http_retry_after(const char *value);

/* Makes the client side of an HTTP/1.1 connection, ready for an exchange. Returns NULL if memory is
 * short. */
struct br_conn *br_h1_client_new(struct br_pool *pool);

/* Makes the client side of an HTTP/2 connection, ready for exchanges. Returns NULL if memory is
 * short. */
struct br_conn *br_h2_client_new(struct br_pool *pool);

/* Returns true if the connection can accept another exchange at this time. */
static inline bool br_conn_can_send(const struct br_conn *conn)
{
    return conn->ops->can_send(conn);
}

/* Starts an exchange. Returns 0, BR_ENOMEM or BR_EPROTO. After an error, on_done is not called. */
static inline int br_conn_send(struct br_conn *conn, struct br_exchange *exchange)
{
    return conn->ops->send(conn, exchange);
}

/* Cancels an exchange, for instance after a timeout. on_done is not called. An HTTP/1.1
 * connection cannot be used after a cancellation. */
static inline void br_conn_cancel(struct br_conn *conn, struct br_exchange *exchange)
{
    conn->ops->cancel(conn, exchange);
}

/* Sends a PING on HTTP/2. Returns false if the previous PING was not answered. HTTP/1.1 clients
 * always return true. */
static inline bool br_conn_ping(struct br_conn *conn)
{
    return conn->ops->ping(conn);
}

/* --- Tunnels (tunnel.c) ----------------------------------------------------------------------- */

/*
 * A tunnel to a server through an HTTP/1.1 proxy (CONNECT, RFC 9110 section 9.3.6). A connection
 * uses the tunnel as its first protocol. Once the tunnel is open, the owner fetches the bytes that
 * the server has already sent, frees the tunnel, and sets the server's protocol.
 *
 * The tunnel's `input` fails with BR_EPROTO, with a text in `why`, if the proxy refuses or does not
 * speak HTTP/1.1.
 */

/* Makes a tunnel to `authority` (host:port). `authorization` is the value of
 * Proxy-Authorization; if it is NULL or "", the header is not sent. Returns NULL if memory is
 * short. */
struct br_conn *br_tunnel_new(struct br_pool *pool, const char *authority,
                              const char *authorization);

/* Returns true if the proxy has opened the tunnel. */
bool br_tunnel_is_open(const struct br_conn *conn);

/* Returns the bytes that followed the proxy's response, or NULL if no bytes followed. The caller
 * owns the buffer. */
struct br_buf *br_tunnel_take_rest(struct br_conn *conn);

/* --- For src/wire only (exchange.c) ----------------------------------------------------------- */

/* The HTTP/1.1 and HTTP/2 clients share the functions below. */

#define BR_EXCHANGE_RESPONSE_MAX (4u << 20) /* default of max_response, in bytes */

#define BR_EXCHANGE_DETAILS_MAX (8u << 10) /* largest decoded grpc-status-details-bin, in bytes */

/* Returns the value of a header that may be in `headers` or in a field of the exchange. A value in
 * `headers` takes precedence; `own` is the field's value and may be NULL. `name` must be in lower
 * case; names in `headers` are compared without regard to case. The Collector's clients treat these
 * headers in the same way (Go's http.Header.Set, Request.Host). */
const char *br_exchange_header(const struct br_exchange *exchange, const char *name,
                               const char *own);

/* Returns true if a header in `headers` must be skipped when `headers` are sent. The headers to
 * skip are:
 * - host, user-agent and content-type, which br_exchange_header returns
 * - content-length, transfer-encoding and trailer, and content-encoding if
 *   `exchange->content_encoding` is set
 * - for gRPC, the names that grpc-go reserves */
bool br_exchange_skips(const struct br_exchange *exchange, const char *name);

/* Clears the result of an earlier use of the exchange. */
void br_exchange_begin(struct br_exchange *exchange);

/* Stores the Location of a response; `value` may be NULL. */
void br_exchange_set_location(struct br_exchange *exchange, const char *value);

/* Sets the error of an exchange. The error text is copied and truncated if necessary. */
void br_exchange_fail(struct br_exchange *exchange, int error, const char *text);

/* Appends received bytes to the response body, up to `max_response`. Returns 0, or stores an
 * error in the exchange and returns it: BR_EFULL or BR_ENOMEM. */
int br_exchange_append(struct br_exchange *exchange, struct br_pool *pool, const uint8_t *data,
                       size_t len);

/* Frees the partial result of a cancelled exchange. */
void br_exchange_drop(struct br_exchange *exchange);

/* Removes an exchange from its connection. Calls on_done, unless `follow` sends the exchange
 * again. */
void br_exchange_finish(struct br_exchange *exchange);
