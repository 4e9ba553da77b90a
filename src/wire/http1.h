/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses HTTP/1.1 messages (RFC 9112) without I/O: bytes in, events out. Strict: whatever two
 * parsers could read differently is refused with 400 and the connection closed, never guessed (both
 * lengths, two lengths, unknown transfer codings, obs-fold, bare CR or LF, space before a colon,
 * NUL, chunk sizes of 2^63 and over, no Host or two). The same parser reads requests (server) and
 * responses (client).
 *
 * How the input is cut into pieces never changes what comes out. A head takes at most
 * BR_HTTP1_HEAD_MAX bytes (a response's together with the interim ones before it), trailers the
 * same again, the line of a chunk size 1 KiB, and all chunk extensions of a message 16 KiB.
 * Trailers and extensions are checked and dropped. Between messages a parser keeps at most 12 KiB.
 *
 * The HTTP/2 preface is for the caller to look for; here it is a request of version 2.0 (505).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum br_http1_event {
    BR_HTTP1_MORE,  /* all input is used; feed more */
    BR_HTTP1_HEAD,  /* start line and headers are complete: the fields below are valid */
    BR_HTTP1_BODY,  /* `*body`, `*body_len` are the next piece of the body, inside the input */
    BR_HTTP1_DONE,  /* the message is complete; the next call starts a new one */
    BR_HTTP1_ERROR, /* the peer broke the protocol: answer `error_status`, then close */
};

struct br_http1_header {
    const char *name;  /* lower case, terminated */
    const char *value; /* without surrounding white space, terminated */
};

#define BR_HTTP1_HEAD_MAX 65536
#define BR_HTTP1_HEADERS_MAX 128

struct br_http1 {
    /* Valid from HEAD until the call after DONE. */
    const char *method; /* requests: "POST" */
    const char *target; /* requests, as sent: origin-form, or the path of an absolute-form */
    unsigned status;    /* responses */
    unsigned minor;     /* HTTP/1.x */
    const struct br_http1_header *headers;
    size_t n_headers;
    bool keep_alive; /* the connection may carry another message */
    bool chunked;
    bool has_length; /* Content-Length was there */
    uint64_t content_length;
    bool expect_continue; /* requests: a body follows, and the peer waits for "100 Continue" */

    /* Valid after ERROR. */
    unsigned error_status;  /* 400, 414, 417, 431, 501, 505; 503 when there is no memory */
    const char *error_text; /* constant; of a response, only this has a meaning */
    struct br_http1_impl *impl;
};

/* Prepares a parser of requests, or of responses. Returns 0 or BR_ENOMEM. */
int br_http1_init(struct br_http1 *parser, bool responses);

/* Accepts a zeroed parser. */
void br_http1_release(struct br_http1 *parser);

/* Returns the bytes of memory that the head, and a line that is not complete, take. */
size_t br_http1_held(const struct br_http1 *parser);

/* Makes what progress it can with the `*len` bytes at `*data`, moves both past what it used, and
 * says what happened. Call again with the rest until it says MORE (or ERROR, which it says from
 * then on). Interim responses but 101 (an error) are skipped. Responses without length end at
 * br_http1_eof. What follows a message without keep_alive is used up and ignored. */
enum br_http1_event br_http1_next(struct br_http1 *parser, const uint8_t **data, size_t *len,
                                  const uint8_t **body, size_t *body_len);

/* The peer closed. Returns DONE when this completes a message, MORE when none was under way, ERROR
 * otherwise. */
enum br_http1_event br_http1_eof(struct br_http1 *parser);

/* Returns the value of a header (lower-case name), or NULL. From HEAD until the call after DONE.
 * The first, where a name came more than once. */
const char *br_http1_header(const struct br_http1 *parser, const char *name);
