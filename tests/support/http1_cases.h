/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1 messages that must be rejected, because they are used for request smuggling or are
 * malformed. `section` is the number and section of the RFC that forbids the message. `status` is
 * the status with which the server must answer. The unit test parses the messages with Braid's
 * parser, and tests/conformance/http_parser_compare.c with another parser. */
#pragma once

#include <stddef.h>

struct http1_case {
    char kind; /* q: request, r: response */
    unsigned status;
    const char *section;
    const char *what;
    const char *bytes;
    size_t len;
};

#define Q(status, section, what, bytes)                                                            \
    {                                                                                              \
        'q', status, section, what, bytes, sizeof(bytes) - 1                                       \
    }
#define R(section, what, bytes)                                                                    \
    {                                                                                              \
        'r', 400, section, what, bytes, sizeof(bytes) - 1                                          \
    }
#define GET "GET / HTTP/1.1\r\nHost: a\r\n"
#define POST "POST / HTTP/1.1\r\nHost: a\r\n"
#define CHUNKED "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
#define OK_CHUNKED "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

static const struct http1_case http1_invalid[] = {
    /* Messages with two lengths, or with an ambiguous length. */
    Q(400, "9112 6.1", "Content-Length, then chunked",
      POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    Q(400, "9112 6.1", "chunked, then Content-Length",
      POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
    Q(400, "9112 6.3", "two Content-Lengths",
      POST "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
    Q(400, "9110 8.6", "two equal Content-Lengths",
      POST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
    Q(400, "9110 8.6", "Content-Length as a list", POST "Content-Length: 3, 3\r\n\r\nabc"),
    Q(400, "9110 8.6", "Content-Length with a plus", POST "Content-Length: +3\r\n\r\nabc"),
    Q(400, "9110 8.6", "Content-Length with a minus", POST "Content-Length: -3\r\n\r\nabc"),
    Q(400, "9110 8.6", "Content-Length in hexadecimal", POST "Content-Length: 0x3\r\n\r\nabc"),
    Q(400, "9110 8.6", "Content-Length with a space inside", POST "Content-Length: 1 2\r\n\r\nabc"),
    Q(400, "9110 8.6", "Content-Length with a letter behind", POST "Content-Length: 3a\r\n\r\nabc"),
    Q(400, "9110 8.6", "Content-Length with a fraction", POST "Content-Length: 3.0\r\n\r\nabc"),
    Q(400, "9110 8.6", "empty Content-Length", POST "Content-Length:\r\n\r\nabc"),
    Q(400, "9112 6.3", "Content-Length of 2^63",
      POST "Content-Length: 9223372036854775808\r\n\r\nabc"),
    Q(400, "9112 6.3", "Content-Length of 2^64 + 3",
      POST "Content-Length: 18446744073709551619\r\n\r\nabc"),
    Q(400, "9112 6.3", "transfer coding xchunked",
      POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    Q(400, "9112 6.3", "transfer coding identity",
      POST "Transfer-Encoding: identity\r\n\r\n0\r\n\r\n"),
    Q(400, "9112 6.3", "chunked is not the last coding",
      POST "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
    Q(400, "9112 6.1", "chunked twice in a list",
      POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    Q(400, "9112 6.1", "chunked twice in two lines",
      POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    Q(400, "9112 6.1", "identity and chunked in two lines",
      POST "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    Q(501, "9112 6.1", "a coding that we do not know, then chunked",
      POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    Q(400, "9112 7", "chunked with a parameter",
      POST "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n"),
    Q(400, "9112 7", "chunked in quotes", POST "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"),
    Q(400, "9110 5.5", "vertical tab before chunked",
      POST "Transfer-Encoding: \x0b"
           "chunked\r\n\r\n0\r\n\r\n"),
    Q(400, "9112 6.1", "empty Transfer-Encoding", POST "Transfer-Encoding:\r\n\r\n0\r\n\r\n"),
    Q(400, "9112 6.1", "chunked in HTTP/1.0",
      "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    /* Lines. */
    Q(400, "9112 2.2", "bare LF after the request line", "GET / HTTP/1.1\nHost: a\r\n\r\n"),
    Q(400, "9112 2.2", "bare LF after a field line", "GET / HTTP/1.1\r\nHost: a\n\r\n"),
    Q(400, "9112 2.2", "bare LF ends the head", GET "\n"),
    Q(400, "9112 2.2", "bare CR in a value", GET "X: a\rContent-Length: 3\r\n\r\nabc"),
    Q(400, "9112 2.2", "bare CR ends the head", GET "X: a\r\n\rContent-Length: 3\r\n\r\n"),
    Q(400, "9112 2.2", "bare CR in the request line", "GET /\rx HTTP/1.1\r\nHost: a\r\n\r\n"),
    Q(400, "9112 2.2", "CR twice before LF", GET "X: a\r\r\n\r\n"),
    Q(400, "9112 2.2", "space before the first field line",
      "GET / HTTP/1.1\r\n Host: a\r\nHost: a\r\n\r\n"),
    Q(400, "9112 2.2", "two empty lines before the request", "\r\n\r\n" GET "\r\n"),
    Q(400, "9112 5.2", "line folded by a space", GET "X: a\r\n b\r\n\r\n"),
    Q(400, "9112 5.2", "line folded by a tab", POST "Content-Length: 3\r\n\t4\r\n\r\nabc"),
    Q(400, "9112 5.2", "Transfer-Encoding folded",
      POST "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    Q(400, "9112 5.1", "space before the colon", POST "Content-Length : 3\r\n\r\nabc"),
    Q(400, "9112 5.1", "tab before the colon",
      POST "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n"),
    Q(400, "9112 5", "no colon", GET "X\r\n\r\n"),
    Q(400, "9112 5", "no name", GET ": x\r\n\r\n"),
    Q(400, "9110 5.1", "space in a name", GET "X Y: z\r\n\r\n"),
    Q(400, "9110 5.1", "bracket in a name", GET "X(: z\r\n\r\n"),
    Q(400, "9110 5.1", "NUL in a name", POST "Content-Length\0: 3\r\n\r\nabc"),
    Q(400, "9110 5.1", "a byte over ASCII in a name", GET "X\xe9: z\r\n\r\n"),
    Q(400, "9110 5.5", "NUL in a value", GET "X: a\0b\r\n\r\n"),
    Q(400, "9110 5.5", "NUL behind a length", POST "Content-Length: 3\0\r\n\r\nabc"),
    Q(400, "9110 5.5", "BEL in a value", GET "X: a\ab\r\n\r\n"),
    Q(400, "9110 5.5", "DEL in a value", GET "X: a\177b\r\n\r\n"),
    /* The authority of a request. */
    Q(400, "9112 3.2", "no Host", "GET / HTTP/1.1\r\nX: a\r\n\r\n"),
    Q(400, "9112 3.2", "two Hosts", GET "Host: b\r\n\r\n"),
    Q(400, "9112 3.2", "two equal Hosts", GET "Host: a\r\n\r\n"),
    Q(400, "9112 3.2", "two Hosts in HTTP/1.0", "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"),
    Q(400, "9112 3.2", "space in Host", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    Q(400, "9112 3.2", "path in Host", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    Q(400, "9112 3.2", "user in Host", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"),
    Q(400, "9112 3.2.2", "absolute-form and Host differ",
      "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    Q(400, "9110 4.2.4", "user in an absolute-form", "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    Q(400, "9110 4.2.1", "absolute-form without a host",
      "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n"),
    Q(400, "9112 3.2.2", "absolute-form of another scheme",
      "GET ftp://a/x HTTP/1.1\r\nHost: a\r\n\r\n"),
    Q(400, "9112 3.2.4", "asterisk-form with GET", "GET * HTTP/1.1\r\nHost: a\r\n\r\n"),
    Q(400, "9112 3.2.3", "authority-form with GET", "GET a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n"),
    Q(501, "9110 9.3.6", "CONNECT", "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n"),
    /* The request line. */
    Q(505, "9112 3", "HTTP/0.9", "GET /\r\n"),
    Q(505, "9110 2.5", "HTTP/2.0", "GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
    Q(505, "9110 2.5", "HTTP/1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n"),
    Q(505, "9113 3.4", "the HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    Q(400, "9112 2.3", "version in lower case", "GET / http/1.1\r\nHost: a\r\n\r\n"),
    Q(400, "9112 2.3", "version 1.10", "GET / HTTP/1.10\r\nHost: a\r\n\r\n"),
    Q(400, "9112 2.3", "version 1", "GET / HTTP/1\r\nHost: a\r\n\r\n"),
    Q(400, "9112 2.3", "another protocol", "GET / RTSP/1.0\r\nHost: a\r\n\r\n"),
    Q(400, "9112 3", "two spaces before the target", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
    Q(400, "9112 3", "two spaces before the version", "GET /  HTTP/1.1\r\nHost: a\r\n\r\n"),
    Q(400, "9112 3", "space behind the version", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n"),
    Q(400, "9112 3", "tab between method and target", "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    Q(400, "9112 3", "space before the method", " GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    Q(400, "9112 3", "space in the target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"),
    Q(400, "9110 9.1", "bracket in the method", "G(T / HTTP/1.1\r\nHost: a\r\n\r\n"),
    Q(400, "9112 3.2", "fragment in the target", "GET /#x HTTP/1.1\r\nHost: a\r\n\r\n"),
    Q(400, "9112 3.2", "NUL in the target", "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n"),
    Q(400, "9112 3.2", "a byte over ASCII in the target", "GET /\xe9 HTTP/1.1\r\nHost: a\r\n\r\n"),
    Q(400, "9112 3", "a TLS handshake", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    Q(417, "9110 10.1.1", "an expectation that we do not know", POST "Expect: 200-ok\r\n\r\n"),
    Q(417, "9110 10.1.1", "two expectations",
      POST "Expect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx"),
    Q(400, "9110 7.6.1", "Connection is not a list of tokens", GET "Connection: close;x\r\n\r\n"),
    /* Chunks. */
    Q(400, "9112 7.1", "empty chunk size", CHUNKED "\r\n\r\n"),
    Q(400, "9112 7.1", "chunk size with a prefix", CHUNKED "0x3\r\nabc\r\n0\r\n\r\n"),
    Q(400, "9112 7.1", "chunk size with a plus", CHUNKED "+3\r\nabc\r\n0\r\n\r\n"),
    Q(400, "9112 7.1", "chunk size with a minus", CHUNKED "-1\r\nabc\r\n0\r\n\r\n"),
    Q(400, "9112 7.1", "space before a chunk size", CHUNKED " 3\r\nabc\r\n0\r\n\r\n"),
    Q(400, "9112 7.1", "space behind a chunk size", CHUNKED "3 \r\nabc\r\n0\r\n\r\n"),
    Q(400, "9112 7.1", "NUL behind a chunk size", CHUNKED "3\0\r\nabc\r\n0\r\n\r\n"),
    Q(400, "9112 7.1", "chunk size of 2^63", CHUNKED "8000000000000000\r\nabc\r\n0\r\n\r\n"),
    Q(400, "9112 7.1", "chunk size of 2^64 + 3", CHUNKED "10000000000000003\r\nabc\r\n0\r\n\r\n"),
    Q(400, "9112 7.1", "bare LF behind a chunk size", CHUNKED "3\nabc\r\n0\r\n\r\n"),
    Q(400, "9112 7.1", "bare CR behind a chunk size", CHUNKED "3\rabc\r\n0\r\n\r\n"),
    Q(400, "9112 7.1.1", "bare LF in a chunk extension", CHUNKED "3;a\nabc\r\n0\r\n\r\n"),
    Q(400, "9112 7.1.1", "bare LF in a quoted chunk extension",
      CHUNKED "3;a=\"\n\"\r\nabc\r\n0\r\n\r\n"),
    Q(400, "9112 7.1.1", "bare CR in a chunk extension", CHUNKED "3;a\rb\r\nabc\r\n0\r\n\r\n"),
    Q(400, "9112 7.1.1", "NUL in a chunk extension", CHUNKED "3;a\0b\r\nabc\r\n0\r\n\r\n"),
    Q(400, "9112 7.1.1", "chunk extension without a name", CHUNKED "3;\r\nabc\r\n0\r\n\r\n"),
    Q(400, "9112 7.1.1", "chunk extension without a value", CHUNKED "3;a=\r\nabc\r\n0\r\n\r\n"),
    Q(400, "9112 7.1.1", "chunk extension with an open quote",
      CHUNKED "3;a=\"b\r\nabc\r\n0\r\n\r\n"),
    Q(400, "9112 7.1", "chunk longer than its size", CHUNKED "3\r\nabcd\r\n0\r\n\r\n"),
    Q(400, "9112 7.1", "chunk ended by a bare LF", CHUNKED "3\r\nabc\n0\r\n\r\n"),
    Q(400, "9112 7.1", "chunk without an end", CHUNKED "3\r\nabc0\r\n\r\n"),
    Q(400, "9112 7.1.2", "bare LF ends the trailers", CHUNKED "0\r\n\n"),
    Q(400, "9112 7.1.2", "bare LF in the trailers", CHUNKED "0\r\nX: a\nY: b\r\n\r\n"),
    Q(400, "9112 7.1.2", "folded trailer", CHUNKED "0\r\nX: a\r\n b\r\n\r\n"),
    Q(400, "9112 7.1.2", "NUL in a trailer", CHUNKED "0\r\nX: a\0\r\n\r\n"),
    Q(400, "9112 7.1.2", "trailer without a colon", CHUNKED "0\r\nGET / HTTP/1.1\r\n\r\n"),
    /* Bytes after a message. */
    Q(400, "9112 3", "garbage behind a request", GET "\r\n\0\0\0\0"),
    Q(400, "9112 2.2", "a body without a length, two empty lines", POST "\r\n\r\n\r\nabc"),
    /* Responses. */
    R("9112 6.3", "Content-Length and chunked",
      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    R("9112 6.3", "two Content-Lengths",
      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef"),
    R("9112 6.3", "transfer coding gzip", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc"),
    R("9112 6.1", "chunked in HTTP/1.0",
      "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    R("9112 2.2", "empty line before the response", "\r\nHTTP/1.1 200 OK\r\n\r\n"),
    R("9112 2.2", "bare LF after the status line", "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n"),
    R("9112 2.2", "bare CR in the reason", "HTTP/1.1 200 O\rK\r\nContent-Length: 0\r\n\r\n"),
    R("9112 4", "NUL in the reason", "HTTP/1.1 200 O\0K\r\nContent-Length: 0\r\n\r\n"),
    R("9112 4", "status of two digits", "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n"),
    R("9112 4", "status of four digits", "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n"),
    R("9110 15", "status under 100", "HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n"),
    R("9112 4", "two spaces before the status", "HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n"),
    R("9112 4", "another protocol", "ICY 200 OK\r\nContent-Length: 0\r\n\r\n"),
    R("9110 15.2.2", "101 that nobody asked for",
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n"),
    R("9112 6.3", "connection closes in the body",
      "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc"),
    R("9112 7.1", "connection closes before the last chunk", OK_CHUNKED "3\r\nabc\r\n"),
    R("9112 7.1", "bare LF behind a chunk size", OK_CHUNKED "3\nabc\r\n0\r\n\r\n"),
    R("9110 15.2", "connection closes after an interim response", "HTTP/1.1 100 Continue\r\n\r\n"),
};
