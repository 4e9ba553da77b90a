/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request to a server, over HTTP/1.1, HTTP/2 or gRPC, and the handler that answers it.
 *
 * A request goes through these calls:
 * - `begin`: the headers were received. The handler may reply already, for instance to reject the
 * request; then `body` is not called.
 * - `body`: the whole body was received, or has failed.
 * - br_request_reply: called by the handler once, at any later time.
 *
 * `gone` is called instead if the client disconnects before the reply. The handler must not reply
 * then, and the request is freed when `gone` returns.
 *
 * A reply can be streamed (response->stream, HTTP only). br_request_reply then sends the head,
 * br_request_write a part of the body, and br_request_end ends it; br_request_break ends an
 * incomplete body. Until then `gone` may be called. Over HTTP/1.1 a client that only closes its
 * side also counts as gone, because readers of a stream do not do that.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct br_conn;
struct br_request;

struct br_header {
    const char *name; /* lower case */
    const char *value;
};

struct br_response {
    unsigned status;                 /* HTTP; gRPC replies are always 200 */
    const char *content_type;        /* NULL: not sent */
    const struct br_header *headers; /* additional headers */
    size_t n_headers;
    struct br_buf *body;         /* may be NULL; the reply takes another reference */
    const char *text;            /* copied; used instead of `body`; NULL: none */
    size_t text_len;             /* 0: strlen(text) */
    unsigned grpc_status;        /* gRPC: sent in the trailers */
    const char *grpc_message;    /* gRPC: plain text; NULL or "": none */
    const uint8_t *grpc_details; /* gRPC: an encoded google.rpc.Status; NULL: none */
    size_t grpc_details_len;
    bool close;  /* HTTP/1.1: close the connection after this response */
    bool stream; /* br_request_write sends the body; not for gRPC; `text` and `body` are unused */
};

struct br_handler {
    /* Sets request->max_body, and request->grpc for gRPC framing. May reply. */
    void (*begin)(struct br_handler *self, struct br_request *request);
    void (*body)(struct br_handler *self, struct br_request *request);
    void (*gone)(struct br_handler *self, struct br_request *request);
    /* HTTP/1.1: text of a 400 response for a target above BR_REQUEST_HEAD_MAX, used where
     * targets contain queries. NULL: respond with 414 (RFC 9110 section 15.5.15). Not copied. */
    const char *long_target;
};

enum br_body_error {
    BR_BODY_OK,
    BR_BODY_TOO_BIG,   /* above max_body; the received part was freed */
    BR_BODY_MALFORMED, /* gRPC: broken framing, or more than one message */
    BR_BODY_NO_MEMORY,
};

#define BR_REQUEST_HEADERS_MAX 128
#define BR_REQUEST_HEAD_MAX 65536

struct br_request {
    struct br_handler *service;
    void *user; /* for the handler */
    struct br_pool *pool;
    const char *method;
    const char *path;        /* without the query */
    const char *query;       /* without '?'; "" if there is none */
    const char *scheme_host; /* Host or :authority */
    const struct br_header *headers;
    size_t n_headers;
    char peer[64];          /* the client's address as text */
    struct br_conn *conn;   /* the connection; valid until the reply was sent; may be NULL */
    int64_t content_length; /* -1: unknown */
    bool http2;
    bool grpc;            /* set by `begin`: the body is one length-prefixed message */
    bool grpc_compressed; /* the compressed flag of the message */
    bool replied;
    bool streaming; /* a streamed reply has not ended */
    /* set by `begin` if the reply is costly: over HTTP/1.1, a client that closes its side counts
     * as gone */
    bool leaves_at_eof;
    size_t max_body;     /* set by `begin`, in bytes; larger bodies fail with BR_BODY_TOO_BIG */
    struct br_buf *body; /* valid from the handler's `body` on; NULL if it is empty or has failed */
    enum br_body_error body_error;
    /* with BR_BODY_NO_MEMORY: bytes that a buffer for the whole body needs, if known */
    size_t body_wanted;
    void (*reply)(struct br_request *request, const struct br_response *response);
    bool (*write)(struct br_request *request, const void *data, size_t len, size_t max);
    void (*end)(struct br_request *request, bool whole);
};

/* Appends received bytes to the body. For protocols. `expected` is the announced size, 0 if
 * unknown; memory grows with the bytes received and not with the announced size. Sets body_error
 * on failure. */
void br_request_body_add(struct br_request *request, const uint8_t *data, size_t len,
                         size_t expected);

/* Frees the body and stores why it failed. For protocols. Keeps the first error. */
void br_request_body_fail(struct br_request *request, enum br_body_error error);

/* Returns the value of a header, or NULL. `name` must be in lower case. */
const char *br_request_header(const struct br_request *request, const char *name);

/* Sends the reply. Must be called exactly once; the request may be freed before the return.
 * Everything in `response` except `body` is copied. */
void br_request_reply(struct br_request *request, const struct br_response *response);

/* Appends bytes, which are copied, to a streamed reply. Returns false, and appends nothing, if
 * more than `max` bytes would be unsent or memory is short. */
bool br_request_write(struct br_request *request, const void *data, size_t len, size_t max);

/* Ends a streamed reply. The request may be freed before the return. */
void br_request_end(struct br_request *request);

/* Ends an incomplete streamed reply, after the bytes already written. HTTP/1.1 connections are
 * closed without a last chunk (RFC 9112 section 8); HTTP/2 streams are reset. HTTP/1.0 clients
 * cannot detect it. */
void br_request_break(struct br_request *request);

/* Returns true if the handler's `gone` must be called when the client disconnects. For
 * protocols. */
static inline bool br_request_is_open(const struct br_request *request)
{
    return !request->replied || request->streaming;
}

/* Sends a reply with a status and a line of plain text. */
void br_request_reply_text(struct br_request *request, unsigned status, const char *text);

/* Returns the reason phrase of a status, such as "Not Found"; "" for an unknown status. */
const char *br_http_reason(unsigned status);
