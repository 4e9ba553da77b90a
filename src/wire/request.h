/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request on a server, whatever carried it (HTTP/1.1, HTTP/2, gRPC), and the service that
 * answers.
 *
 * Life of a request: begin (headers are in) -> body (the whole body is in) -> br_request_reply
 * once, at any later time. The service may reply in begin already, for instance to refuse a body
 * that it would not take; then body is not called. gone says that the client went away before the
 * reply: the request is freed after it returns and must not be replied to.
 *
 * A reply whose body comes bit by bit (response->stream; HTTP only): br_request_reply sends the
 * head, br_request_write a piece at any later time, br_request_end the end; br_request_break ends a
 * body that is not whole. Until that, gone says that the client went away; over HTTP/1.1 also when
 * it has only closed its side, which no reader of a stream does.
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
    const char *content_type;        /* NULL: no body type */
    const struct br_header *headers; /* further ones */
    size_t n_headers;
    struct br_buf *body;         /* may be NULL; the reply takes a reference of its own */
    const char *text;            /* a body of constant or short text instead (copied); NULL: none */
    size_t text_len;             /* 0: strlen */
    unsigned grpc_status;        /* gRPC: the trailers */
    const char *grpc_message;    /* gRPC: plain text; NULL or empty: none */
    const uint8_t *grpc_details; /* gRPC: an encoded google.rpc.Status; NULL: none */
    size_t grpc_details_len;
    bool close;  /* HTTP/1.1: close the connection after it */
    bool stream; /* the body follows: br_request_write. Neither text nor body, and not gRPC */
};

struct br_handler {
    /* Sets request->max_body, and grpc where it wants message framing; may reply. */
    void (*begin)(struct br_handler *self, struct br_request *request);
    void (*body)(struct br_handler *self, struct br_request *request);
    void (*gone)(struct br_handler *self, struct br_request *request);
    /* HTTP/1.1: the sentence of a 400 for a target over BR_REQUEST_HEAD_MAX, where such a target is
     * a query; NULL: 414 (RFC 9110 section 15.5.15). Constant. */
    const char *long_target;
};

enum br_body_error {
    BR_BODY_OK,
    BR_BODY_TOO_BIG,   /* over max_body; what is there is in no buffer */
    BR_BODY_MALFORMED, /* gRPC: framing broken, or more than one message */
    BR_BODY_NO_MEMORY,
};

#define BR_REQUEST_HEADERS_MAX 128
#define BR_REQUEST_HEAD_MAX 65536

struct br_request {
    struct br_handler *service;
    void *user; /* the service's own */
    struct br_pool *pool;
    const char *method;
    const char *path;        /* without the query */
    const char *query;       /* without '?'; "" when there is none */
    const char *scheme_host; /* Host or :authority */
    const struct br_header *headers;
    size_t n_headers;
    char peer[64];          /* address of the client, as text */
    struct br_conn *conn;   /* that it came on, which is there for as long as anything of the reply
                               is; may be NULL */
    int64_t content_length; /* -1: not said */
    bool http2;
    bool grpc;            /* set by begin: the body is one length-prefixed message */
    bool grpc_compressed; /* the message's compressed flag */
    bool replied;
    bool streaming;      /* replied to, and the body is not at its end */
    bool leaves_at_eof;  /* set by begin: over HTTP/1.1, too, who closes its side has gone away. For
                            answers that cost much */
    size_t max_body;     /* set by begin; bodies over it end as BR_BODY_TOO_BIG */
    struct br_buf *body; /* valid in and after `body`; NULL when empty or in error */
    enum br_body_error body_error;
    size_t body_wanted; /* with BR_BODY_NO_MEMORY: what a buffer for all of it takes, as far as is
                           known */
    void (*reply)(struct br_request *request, const struct br_response *response);
    bool (*write)(struct br_request *request, const void *data, size_t len, size_t max);
    void (*end)(struct br_request *request, bool whole);
};

/* Appends a piece of the body; for protocols. `expected` is how long it is said to become (0: not
 * said); memory grows with what is here, not with what is promised. Sets body_error on failure. */
void br_request_body_add(struct br_request *request, const uint8_t *data, size_t len,
                         size_t expected);

/* Notes that there will be no usable body; for protocols. The first reason stays. */
void br_request_body_fail(struct br_request *request, enum br_body_error error);

/* Returns the value of a header (lower-case name), or NULL. */
const char *br_request_header(const struct br_request *request, const char *name);

/* Answers: exactly once; the request may be freed before this returns. Copies what it needs. */
void br_request_reply(struct br_request *request, const struct br_response *response);

/* Appends a piece, which is copied, to the body of a reply that is a stream. False, and nothing is
 * appended, when more than `max` bytes would wait for the client to read, or there is no memory. */
bool br_request_write(struct br_request *request, const void *data, size_t len, size_t max);

/* Ends the body of a reply that is a stream; the request may be freed before this returns. */
void br_request_end(struct br_request *request);

/* Ends a body that is not whole, after what was written: no last chunk and the end of the
 * connection (RFC 9112 section 8), or RST_STREAM. HTTP/1.0 has no way to tell. */
void br_request_break(struct br_request *request);

/* Returns true when the service has to hear it if the client goes away. For protocols. */
static inline bool br_request_is_open(const struct br_request *request)
{
    return !request->replied || request->streaming;
}

/* Answers with a status and a line of plain text. */
void br_request_reply_text(struct br_request *request, unsigned status, const char *text);

/* Returns the reason phrase of a status, as "Not Found"; "" for what is unknown. */
const char *br_http_reason(unsigned status);
