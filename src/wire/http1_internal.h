/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that the two files of the HTTP/1.1 parser share. http1.c cuts input into lines and
 * bodies; http1_head.c reads the lines of a head and decides how its body is framed.
 */
#pragma once

#include "wire/http1.h"

enum br_http1_state {
    BR_HTTP1_START,      /* before the first byte of a message, or in its start line */
    BR_HTTP1_FIELDS,     /* in the head's field lines */
    BR_HTTP1_LENGTH,     /* in a body of a known length: `left` */
    BR_HTTP1_UNTIL_EOF,  /* in a response's body that ends with the connection */
    BR_HTTP1_CHUNK_SIZE, /* before or in the line with a chunk's size */
    BR_HTTP1_CHUNK_DATA, /* in a chunk: `left` */
    BR_HTTP1_CHUNK_END,  /* in the CRLF after it */
    BR_HTTP1_TRAILERS,   /* in the field lines after the last chunk */
    BR_HTTP1_COMPLETE,   /* DONE is to be reported */
    BR_HTTP1_REPORTED,   /* it was; the next call starts anew */
    BR_HTTP1_CLOSED,     /* nothing after this message counts */
    BR_HTTP1_FAILED,
};

struct br_http1_text {
    char *data;
    uint32_t len, cap;
};

struct br_http1_impl {
    enum br_http1_state state;
    bool responses;
    bool blank;                /* the one empty line before a request was there */
    unsigned seen;             /* which of the fields with a meaning were there */
    uint32_t n_fields;         /* in the head, or in the trailers */
    size_t budget;             /* bytes that the head, or the trailers, may still take */
    size_t ext_budget;         /* bytes that a message's chunk extensions may still take */
    uint64_t left;             /* bytes until the end of the body, or of the chunk */
    struct br_http1_text line; /* a line whose end has not come yet */
    struct br_http1_text head; /* strings: of the start line, then names and values in turn */
    struct br_http1_header *headers;
    uint32_t headers_cap;
};

/* Sets the error; returns false. */
bool br_http1_refuse(struct br_http1 *parser, unsigned status, const char *text);

/* Reads a request-line or status-line without its CRLF. False when it is refused. */
bool br_http1_start_line(struct br_http1 *parser, const char *line, size_t len);

/* Checks a field line without its CRLF and counts it; `keep` it in the head or drop it (trailers).
 * False when it is refused. */
bool br_http1_field_line(struct br_http1 *parser, const char *line, size_t len, bool keep);

/* Ends the head: fills the public fields and sets the state by how the body is framed. False when
 * it is refused. */
bool br_http1_finish_head(struct br_http1 *parser);

/* Return true for what tokens are made of (RFC 9110 section 5.6.2); SP or HTAB (section 5.6.3);
 * what field values are made of: that, visible ASCII and bytes over it (section 5.5). */
bool br_http1_is_tchar(char letter);
bool br_http1_is_space(char letter);
bool br_http1_is_text(char letter);
