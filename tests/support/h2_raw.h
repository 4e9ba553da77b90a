/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/2 peers for tests of the network layer: a client that sends frames that no library would
 * send (RFC 9113 section 4.1), and a server on nghttp2, which the test runs step by step. Both use
 * the raw sockets of net_rig.h.
 */
#pragma once

#include <nghttp2/nghttp2.h>

#include "tests/support/net_rig.h"

/* --- A client by hand ------------------------------------------------------------------------- */

/* Opens a connection, and sends its preface and SETTINGS. `window` is the initial window size for
 * data from the server, in bytes; -1: the default. */
struct net_peer *h2_dial(struct net_rig *rig, unsigned port, int64_t window);

/* h2_frame sends one frame. h2_bytes writes a frame to `out` and returns its length. */
void h2_frame(struct net_rig *rig, struct net_peer *p, uint8_t type, uint8_t flags, uint32_t stream,
              const void *payload, size_t len);
size_t h2_bytes(uint8_t *out, uint8_t type, uint8_t flags, uint32_t stream, const void *payload,
                size_t len);

/* Writes the uncompressed header block of a request for /call. The method is POST if `method` is
 * NULL. Returns its length. */
size_t h2_block(uint8_t *out, const char *method);

/* Sends a HEADERS frame with the header block of a POST. */
void h2_request(struct net_rig *rig, struct net_peer *p, uint32_t stream, bool end);

/* Returns the number of received frames of a type on one stream, or on all streams if `stream` is
 * 0. Sets `*ret_payload` to the payload of the last of these frames. */
unsigned h2_count(struct net_peer *p, uint8_t type, uint32_t stream, const uint8_t **ret_payload);

/* Return the error code of the last received RST_STREAM of a stream, or of the last GOAWAY; -1: not
 * received. */
int64_t h2_reset_code(struct net_peer *p, uint32_t stream);
int64_t h2_goaway_code(struct net_peer *p);

/* --- A server on nghttp2 ---------------------------------------------------------------------- */

#define H2_STREAMS_MAX 512

struct h2_stream {
    int32_t id;
    bool headers, ended, closed;
    uint32_t error; /* error code with which the stream was closed */
    size_t bytes;
    bool intact; /* true: after gRPC's prefix, all bytes of the body are those of net_byte_at */
    char scheme[8];
};

struct h2_server {
    struct net_peer *peer;
    nghttp2_session *session;
    struct h2_stream streams[H2_STREAMS_MAX];
    unsigned n_streams, n_pings;
    uint32_t max_concurrent;
};

/* Starts the server on an accepted connection. If `stuck`, the server does not send window
 * updates. */
struct h2_server *h2_server_new(struct net_peer *peer, uint32_t max_concurrent, bool stuck);
void h2_server_free(struct h2_server *s);

/* Reads and writes without blocking; returns false if the client closed the connection. */
bool h2_server_turn(struct h2_server *s);

/* Sends a gRPC response. If the status is 0, it consists of one message "abc" and trailers,
 * otherwise only of trailers. */
void h2_server_answer(struct h2_server *s, int32_t id, int status);
