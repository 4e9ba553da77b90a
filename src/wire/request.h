/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Defines a request to a server, over HTTP/1.1, HTTP/2 or gRPC, and the handler that answers it.
 *
 * A request goes through these calls:
 * - `begin`: called when the headers have been received. The handler may reply already, for
 *   instance to reject the request; then `body` is not called.
 * - `body`: called when the whole body has been received, or has failed.
 * - br_request_reply: called by the handler once, at any later time.
 *
 * If the client disconnects before the reply, `gone` is called instead. After `gone` is called, the
 * handler must not reply, and the request is freed when `gone` returns.
 *
 * A reply can be streamed (response->stream, HTTP only). br_request_reply then sends the head, each
 * br_request_write sends a part of the body, and br_request_end ends the body. br_request_break
 * ends an incomplete body. Until the body of a streamed reply ends, `gone` may be called. Over
 * HTTP/1.1 a client that only closes its sending side of the connection also counts as gone,
 * because clients that read a stream keep that side open.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct br_conn;
struct br_request;

struct br_header {
    const char *name; /* name of the header in lower case */
    const char *value;
};

struct br_response {
    /* status of an HTTP response; not used for gRPC, whose replies always have status 200 */
    unsigned status;
    const char *content_type;        /* value of Content-Type; NULL: the header is not sent */
    const struct br_header *headers; /* additional headers of the response */
    size_t n_headers;
    /* body of the response; may be NULL; br_request_reply takes its own reference */
    struct br_buf *body;
    /* body of the response as text, which is copied; if NULL, `body` is used */
    const char *text;
    size_t text_len;      /* number of bytes of `text`; 0: strlen(text) */
    unsigned grpc_status; /* gRPC: status of the call, sent in the trailers */
    /* gRPC: error message as plain text; NULL or "": no message is sent */
    const char *grpc_message;
    /* gRPC: an encoded google.rpc.Status with details; NULL: no details are sent */
    const uint8_t *grpc_details;
    size_t grpc_details_len;
    bool close; /* HTTP/1.1: close the connection after this response */
    /* br_request_write sends the body, and `text` and `body` are unused; not for gRPC */
    bool stream;
};

struct br_handler {
    /* Called when the headers have been received. Sets request->max_body, and sets request->grpc
     * if the body has gRPC framing. May reply to the request. */
    void (*begin)(struct br_handler *self, struct br_request *request);
    void (*body)(struct br_handler *self, struct br_request *request);
    void (*gone)(struct br_handler *self, struct br_request *request);
    /* HTTP/1.1: text of a 400 response to a request whose target is larger than
     * BR_REQUEST_HEAD_MAX. Set by handlers whose targets contain queries. NULL: the server responds
     * with 414 (RFC 9110 section 15.5.15). The text is not copied. */
    const char *long_target;
};

enum br_body_error {
    BR_BODY_OK,
    BR_BODY_TOO_BIG,   /* the body is larger than max_body; the received bytes were freed */
    BR_BODY_MALFORMED, /* gRPC: the framing is broken, or the body has more than one message */
    BR_BODY_NO_MEMORY,
};

#define BR_REQUEST_HEADERS_MAX 128
#define BR_REQUEST_HEAD_MAX 65536

struct br_request {
    struct br_handler *service;
    void *user; /* pointer that only the handler uses */
    struct br_pool *pool;
    const char *method;
    const char *path; /* path of the request target, without the query */
    /* query of the request target, without '?'; "" if the target has no query */
    const char *query;
    const char *scheme_host; /* value of the header Host or :authority */
    const struct br_header *headers;
    size_t n_headers;
    char peer[64];          /* the client's address as text */
    struct br_conn *conn;   /* the connection; valid until the reply was sent; may be NULL */
    int64_t content_length; /* value of Content-Length in bytes; -1: the header is absent */
    /* attributes of the authenticated client: pairs name\0value\0, ended by an empty name; NULL:
     * no attributes are known */
    const char *auth;
    bool http2;
    bool grpc;            /* set by `begin`: the body is one length-prefixed message */
    bool grpc_compressed; /* gRPC: the compressed flag of the message */
    bool replied;
    bool streaming; /* the handler has started a streamed reply and has not ended it */
    /* set by `begin` if the reply is costly: over HTTP/1.1, a client that closes its sending side
     * of the connection then counts as gone */
    bool leaves_at_eof;
    /* maximum size of the body in bytes, set by `begin`; larger bodies fail with BR_BODY_TOO_BIG */
    size_t max_body;
    /* valid from the call of the handler's `body` on; NULL if the body is empty or has failed */
    struct br_buf *body;
    enum br_body_error body_error;
    /* after BR_BODY_NO_MEMORY: number of bytes that a buffer for the whole body needs, if known */
    size_t body_wanted;
    void (*reply)(struct br_request *request, const struct br_response *response);
    bool (*write)(struct br_request *request, const void *data, size_t len, size_t max);
    void (*end)(struct br_request *request, bool whole);
};

/* Appends received bytes to the body. Called by protocols. `expected` is the announced size of
 * the body, or 0 if the size is unknown. The memory grows with the bytes received and not with
 * the announced size. Sets body_error on failure. */
void br_request_body_add(struct br_request *request, const uint8_t *data, size_t len,
                         size_t expected);

/* Frees the body and stores why it failed. Called by protocols. If the body has already failed,
 * the first error is kept. */
void br_request_body_fail(struct br_request *request, enum br_body_error error);

/* Returns the value of a header, or NULL. `name` must be in lower case. */
const char *br_request_header(const struct br_request *request, const char *name);

/* Sends the reply. Must be called exactly once; the request may be freed before br_request_reply
 * returns. Everything in `response` except `body` is copied. */
void br_request_reply(struct br_request *request, const struct br_response *response);

/* Appends bytes, which are copied, to a streamed reply. Returns false, and appends nothing, if
 * more than `max` bytes would be unsent or memory is short. */
bool br_request_write(struct br_request *request, const void *data, size_t len, size_t max);

/* Ends a streamed reply. The request may be freed before br_request_end returns. */
void br_request_end(struct br_request *request);

/* Ends an incomplete streamed reply after the bytes already written. HTTP/1.1 connections are
 * closed without a last chunk (RFC 9112 section 8); HTTP/2 streams are reset. HTTP/1.0 clients
 * cannot detect that the reply is incomplete. */
void br_request_break(struct br_request *request);

/* Returns true if the handler's `gone` must be called when the client disconnects. Called by
 * protocols. */
static inline bool br_request_is_open(const struct br_request *request)
{
    return !request->replied || request->streaming;
}

/* Sends a reply with a status and a line of plain text. */
void br_request_reply_text(struct br_request *request, unsigned status, const char *text);

/* Returns the reason phrase of a status, such as "Not Found"; "" for an unknown status. */
const char *br_http_reason(unsigned status);

/* --- Content negotiation (accept.c) ----------------------------------------------------------- */

/* The following functions implement RFC 9110 section 12.5 for servers that offer two
 * representations. */

/* Returns the weight of `name` in an Accept or Accept-Encoding header: the largest q, from 0 to 1,
 * of the elements that equal `name`. Elements with wildcards are ignored. `name` is a media type or
 * a coding in lower case, without parameters. Returns -1 if no element equals `name` or `header` is
 * NULL. */
double br_accept_quality(const char *header, const char *name);
