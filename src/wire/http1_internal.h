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
    bool blank;        /* the one empty line that is allowed before a request was skipped */
    unsigned seen;     /* SEEN_ bits of the headers that occurred in the head */
    uint32_t n_fields; /* number of header lines of the head, or of the trailers */
    /* bytes left for the head, or for the trailers, within BR_HTTP1_HEAD_MAX */
    size_t budget;
    size_t ext_budget;         /* bytes left for chunk extensions, within the limit of a message */
    uint64_t left;             /* bytes until the end of the body or chunk */
    struct br_http1_text line; /* received bytes of an incomplete line */
    /* terminated strings: those of the start line, then header names and values alternately */
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

/* Returns true for a character of a token (RFC 9110 section 5.6.2). */
bool br_http1_is_tchar(char letter);

/* Returns true for white space (RFC 9110 section 5.6.3). */
bool br_http1_is_space(char letter);

/* Returns true for a character of a field value (RFC 9110 section 5.5). Bytes above 0x7f are
 * included. */
bool br_http1_is_text(char letter);
