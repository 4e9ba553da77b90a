/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that the two files of the HTTP/1.1 parser share. http1.c splits input into lines and
 * bodies. http1_head.c parses the lines of a head and determines the framing of the body.
 */
#pragma once

#include "wire/http1.h"

enum br_http1_state {
    BR_HTTP1_START,      /* before a message, or in its start line */
    BR_HTTP1_FIELDS,     /* in the header lines */
    BR_HTTP1_LENGTH,     /* in a body of known length; `left` bytes remain */
    BR_HTTP1_UNTIL_EOF,  /* in a response body that ends with the connection */
    BR_HTTP1_CHUNK_SIZE, /* before or in a chunk size line */
    BR_HTTP1_CHUNK_DATA, /* in a chunk; `left` bytes remain */
    BR_HTTP1_CHUNK_END,  /* in the CRLF after a chunk */
    BR_HTTP1_TRAILERS,   /* in the trailers */
    BR_HTTP1_COMPLETE,   /* BR_HTTP1_DONE must be returned */
    BR_HTTP1_REPORTED,   /* BR_HTTP1_DONE was returned; the next call starts a message */
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
    bool blank;                /* the empty line allowed before a request was skipped */
    unsigned seen;             /* SEEN_ bits of headers that occurred */
    uint32_t n_fields;         /* header lines of the head, or of the trailers */
    size_t budget;             /* bytes that the head, or the trailers, may still have */
    size_t ext_budget;         /* bytes that the chunk extensions may still have */
    uint64_t left;             /* bytes until the end of the body or chunk */
    struct br_http1_text line; /* an incomplete line */
    /* terminated strings: of the start line, then names and values alternately */
    struct br_http1_text head;
    struct br_http1_header *headers;
    uint32_t headers_cap;
};

/* Sets the error and the state BR_HTTP1_FAILED. Always returns false. */
bool br_http1_refuse(struct br_http1 *parser, unsigned status, const char *text);

/* Parses a request line or status line without its CRLF. Returns false after an error. */
bool br_http1_start_line(struct br_http1 *parser, const char *line, size_t len);

/* Validates and counts a header line without its CRLF. Stores it if `keep` is true; trailers are
 * dropped. Returns false after an error. */
bool br_http1_field_line(struct br_http1 *parser, const char *line, size_t len, bool keep);

/* Ends the head: sets the public fields, and the state for the framing of the body. Returns
 * false after an error. */
bool br_http1_finish_head(struct br_http1 *parser);

/* Return true for characters of a class in RFC 9110: tokens (section 5.6.2), white space
 * (section 5.6.3), field values (section 5.5). Values include bytes above 0x7f. */
bool br_http1_is_tchar(char letter);
bool br_http1_is_space(char letter);
bool br_http1_is_text(char letter);
