/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses HTTP/1.1 messages (RFC 9112), requests or responses, without I/O. The parser is strict:
 * input that two parsers could interpret differently is rejected with 400, and the connection must
 * be closed. Examples:
 * - Content-Length together with Transfer-Encoding, or Content-Length twice, is rejected
 * - unknown transfer codings, and chunk sizes of 2^63 and above, are rejected
 * - obs-fold, a bare CR or LF, a space before the colon, and NUL are rejected
 * - a request without a Host header, or with two Host headers, is rejected
 *
 * The result does not depend on how the input is split. A head has at most BR_HTTP1_HEAD_MAX bytes,
 * including interim responses before it. Trailers have at most BR_HTTP1_HEAD_MAX bytes too. A chunk
 * size line has at most 1 KiB, and all chunk extensions of a message 16 KiB. Trailers and
 * extensions are validated and dropped. Between messages a parser keeps at most 12 KiB.
 *
 * Callers must detect the HTTP/2 preface; this parser rejects it as a request of version 2.0 (505).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum br_http1_event {
    BR_HTTP1_MORE, /* all input was used; the message is incomplete and needs more input */
    BR_HTTP1_HEAD, /* the start line and headers are complete, and the fields below are valid */
    BR_HTTP1_BODY, /* `*body` and `*body_len` are the next part of the body, inside the input */
    BR_HTTP1_DONE, /* the message is complete; the next call starts the next message */
    /* the input is invalid: respond with `error_status`, then close the connection */
    BR_HTTP1_ERROR,
};

struct br_http1_header {
    const char *name;  /* name of the header in lower case, terminated */
    const char *value; /* value of the header without surrounding white space, terminated */
};

#define BR_HTTP1_HEAD_MAX 65536
#define BR_HTTP1_HEADERS_MAX 128

struct br_http1 {
    /* The following fields are valid from BR_HTTP1_HEAD until the call after BR_HTTP1_DONE. */
    const char *method; /* requests: the method, such as "POST" */
    /* requests: the target as sent (origin-form), or the path of an absolute-form target */
    const char *target;
    unsigned status; /* responses: the status code */
    unsigned minor;  /* minor version of the message: x in HTTP/1.x */
    const struct br_http1_header *headers;
    size_t n_headers;
    bool keep_alive; /* the connection may be used for another message */
    bool chunked;
    bool has_length; /* Content-Length was present */
    uint64_t content_length;
    /* requests: the request has a body, and the client waits for "100 Continue" before sending
     * it */
    bool expect_continue;

    /* The following fields are valid after BR_HTTP1_ERROR. */
    /* status of the error response to a request: 400, 414, 417, 431, 501 or 505, or 503 if
     * memory is short */
    unsigned error_status;
    /* description of the error, for requests and responses; a constant string */
    const char *error_text;
    struct br_http1_impl *impl;
};

/* Initializes a parser for requests or for responses. Returns 0 or BR_ENOMEM. */
int br_http1_init(struct br_http1 *parser, bool responses);

/* Frees the parser's memory. Accepts a parser that is all zero. */
void br_http1_release(struct br_http1 *parser);

/* Returns how many bytes of memory the head and an incomplete line occupy. */
size_t br_http1_held(const struct br_http1 *parser);

/* Parses the `*len` bytes at `*data`, advances both past the input that was used, and returns an
 * event. The caller must call the function again with the rest of the input until it returns
 * BR_HTTP1_MORE. After BR_HTTP1_ERROR, all later calls return BR_HTTP1_ERROR too. Interim responses
 * are skipped, except that 101 is an error. A response without a length ends at br_http1_eof. If
 * `keep_alive` is false for a message, all input after the message is ignored. */
enum br_http1_event br_http1_next(struct br_http1 *parser, const uint8_t **data, size_t *len,
                                  const uint8_t **body, size_t *body_len);

/* Reports that the peer has closed its side of the connection. Returns BR_HTTP1_DONE if the end of
 * the input completes a message, BR_HTTP1_MORE if no message was in progress, and BR_HTTP1_ERROR
 * otherwise. */
enum br_http1_event br_http1_eof(struct br_http1 *parser);

/* Returns the first value of a header, or NULL. `name` must be in lower case. Valid from
 * BR_HTTP1_HEAD until the call after BR_HTTP1_DONE. */
const char *br_http1_header(const struct br_http1 *parser, const char *name);

/* --- For http1*.c only ------------------------------------------------------------------------ */

/* http1.c splits input into lines and bodies. http1_head.c parses the lines of a head and
 * determines the framing of the body. */

enum br_http1_state {
    BR_HTTP1_START,      /* the parser is before a message, or in its start line */
    BR_HTTP1_FIELDS,     /* the parser is in the header lines */
    BR_HTTP1_LENGTH,     /* the parser is in a body of known length; `left` bytes remain */
    BR_HTTP1_UNTIL_EOF,  /* the parser is in a response body that ends with the connection */
    BR_HTTP1_CHUNK_SIZE, /* the parser is before or in a chunk size line */
    BR_HTTP1_CHUNK_DATA, /* the parser is in a chunk; `left` bytes remain */
    BR_HTTP1_CHUNK_END,  /* the parser is in the CRLF after a chunk */
    BR_HTTP1_TRAILERS,   /* the parser is in the trailers */
    BR_HTTP1_COMPLETE,   /* BR_HTTP1_DONE must be returned */
    BR_HTTP1_REPORTED,   /* BR_HTTP1_DONE was returned; the next call starts the next message */
    BR_HTTP1_CLOSED,     /* all further input is ignored */
    BR_HTTP1_FAILED,
};

struct br_http1_text {
    char *data;
    uint32_t len, cap;
};

struct br_http1_impl {
    enum br_http1_state state;
    bool responses;
    /* an empty line before the request was skipped; a second empty line is an error */
    bool blank;
    unsigned seen;     /* SEEN_ bits of the headers that occurred in the head */
    uint32_t n_fields; /* number of header lines of the head, or of the trailers */
    /* number of bytes left for the head, or for the trailers, within BR_HTTP1_HEAD_MAX */
    size_t budget;
    /* number of bytes left for the chunk extensions of this message, within their limit */
    size_t ext_budget;
    uint64_t left;             /* number of bytes until the end of the body or chunk */
    struct br_http1_text line; /* the received bytes of a line that is still incomplete */
    /* terminated strings: the strings of the start line, then each header's name and value */
    struct br_http1_text head;
    struct br_http1_header *headers;
    uint32_t headers_cap;
};

/* Sets the error and the state BR_HTTP1_FAILED. Always returns false. */
bool br_http1_refuse(struct br_http1 *parser, unsigned status, const char *text);

/* Parses a request line or status line without its CRLF. Returns false after an error. */
bool br_http1_start_line(struct br_http1 *parser, const char *line, size_t len);

/* Validates and counts a header line without its CRLF. Stores the header if `keep` is true;
 * trailers are dropped. Returns false after an error. */
bool br_http1_field_line(struct br_http1 *parser, const char *line, size_t len, bool keep);

/* Ends the head: sets the public fields, and the state for the framing of the body. Returns
 * false after an error. */
bool br_http1_finish_head(struct br_http1 *parser);

/* Returns true if a token may contain the character (RFC 9110 section 5.6.2). */
bool br_http1_is_tchar(char letter);

/* Returns true for a space or a tab (RFC 9110 section 5.6.3). */
bool br_http1_is_space(char letter);

/* Returns true if a field value may contain the character (RFC 9110 section 5.5). A field value may
 * contain bytes above 0x7f. */
bool br_http1_is_text(char letter);
