/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/2 frames (RFC 9113 section 4.1) written by hand, with header fields as literals without
 * indexing (RFC 7541 section 6.2.2), for tests of the server. */
#pragma once

#include "tests/support/wire.h"

enum h2_frame_type {
    H2_DATA,
    H2_HEADERS,
    H2_PRIORITY,
    H2_RST_STREAM,
    H2_SETTINGS,
    H2_PUSH_PROMISE,
    H2_PING,
    H2_GOAWAY,
    H2_WINDOW_UPDATE,
    H2_CONTINUATION,
};

#define H2_END_STREAM 1u
#define H2_ACK 1u
#define H2_END_HEADERS 4u
#define H2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

static inline void h2_number(struct wire *w, uint32_t v, int bytes)
{
    while (bytes-- > 0)
        wire_byte(w, v >> (8 * bytes) & 0xff);
}

static inline void h2_frame(struct wire *w, unsigned type, unsigned flags, uint32_t stream,
                            const void *payload, size_t len)
{
    h2_number(w, (uint32_t)len, 3);
    wire_byte(w, type);
    wire_byte(w, flags);
    h2_number(w, stream, 4);
    wire_raw(w, payload, len);
}

/* Appends the client's preface and an empty SETTINGS frame. */
static inline void h2_preface(struct wire *w)
{
    wire_raw(w, H2_PREFACE, sizeof H2_PREFACE - 1);
    h2_frame(w, H2_SETTINGS, 0, 0, NULL, 0);
}

/* Appends one literal header field. The name and the value must be shorter than 127 bytes. */
static inline void h2_field(struct wire *w, const char *name, const char *value)
{
    wire_byte(w, 0);
    wire_byte(w, (unsigned)strlen(name));
    wire_raw(w, name, strlen(name));
    wire_byte(w, (unsigned)strlen(value));
    wire_raw(w, value, strlen(value));
}

/* Appends a header field whose value consists of `len` bytes 'a'. `len` is from 128 to 16,510. */
static inline void h2_long_field(struct wire *w, const char *name, size_t len)
{
    wire_byte(w, 0);
    wire_byte(w, (unsigned)strlen(name));
    wire_raw(w, name, strlen(name));
    wire_byte(w, 0x7f);
    /* after the prefix, the encoding is that of a varint in protobuf (RFC 7541 section 5.1) */
    wire_number(w, len - 127);
    for (size_t i = 0; i < len; i++)
        wire_byte(w, 'a');
}

/* Appends the header fields of a POST request. */
static inline void h2_request(struct wire *fields, const char *path, const char *type)
{
    h2_field(fields, ":method", "POST");
    h2_field(fields, ":scheme", "http");
    h2_field(fields, ":path", path);
    h2_field(fields, ":authority", "localhost");
    h2_field(fields, "content-type", type);
}

/* Appends a complete HEADERS frame of a POST to `path`. */
static inline void h2_headers(struct wire *w, uint32_t stream, const char *path, unsigned flags)
{
    struct wire fields = {0};
    h2_request(&fields, path, "application/grpc");
    h2_frame(w, H2_HEADERS, H2_END_HEADERS | flags, stream, fields.data, fields.len);
    wire_free(&fields);
}

/* Appends a gRPC message with its prefix. */
static inline void h2_message(struct wire *w, unsigned compressed, const void *data, size_t len)
{
    wire_byte(w, compressed);
    h2_number(w, (uint32_t)len, 4);
    wire_raw(w, data, len);
}
