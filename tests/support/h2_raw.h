/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/2 by hand: frames that no library would send (RFC 9113 section 4.1), and a server on nghttp2
 * that the test drives step by step. Built on the raw peers of net_rig.h.
 */
#pragma once

#include <nghttp2/nghttp2.h>

#include "tests/support/net_rig.h"

/* --- A client by hand ------------------------------------------------------------------------- */

/* Opens a connection, and sends its preface and SETTINGS. `window` is the initial window that
 * the server may use, -1: the default. */
struct net_peer *h2_dial(struct net_rig *rig, unsigned port, int64_t window);

/* Sends one frame. h2_bytes writes one to `out` instead and returns its length. */
void h2_frame(struct net_rig *rig, struct net_peer *p, uint8_t type, uint8_t flags, uint32_t stream,
              const void *payload, size_t len);
size_t h2_bytes(uint8_t *out, uint8_t type, uint8_t flags, uint32_t stream, const void *payload,
                size_t len);

/* Encodes the header block of a POST (or `method`) to /call, uncompressed. Returns its length. */
size_t h2_block(uint8_t *out, const char *method);

/* Sends HEADERS with that block. */
void h2_request(struct net_rig *rig, struct net_peer *p, uint32_t stream, bool end);

/* Returns the number of frames of a type received on one stream (0: on any). `*ret_payload` is
 * the last one's. */
unsigned h2_count(struct net_peer *p, uint8_t type, uint32_t stream, const uint8_t **ret_payload);

/* Returns the error code of the last RST_STREAM of a stream, or GOAWAY; -1: none received. */
int64_t h2_reset_code(struct net_peer *p, uint32_t stream);
int64_t h2_goaway_code(struct net_peer *p);

/* --- A server on nghttp2 ---------------------------------------------------------------------- */

#define H2_STREAMS_MAX 512

struct h2_stream {
    int32_t id;
    bool headers, ended, closed;
    uint32_t error; /* bodies of closed streams */
    size_t bytes;
    bool intact; /* the bytes are net_byte_at's, after gRPC's prefix */
    char scheme[8];
};

struct h2_server {
    struct net_peer *peer;
    nghttp2_session *session;
    struct h2_stream streams[H2_STREAMS_MAX];
    unsigned n_streams, n_pings;
    uint32_t max_concurrent;
};

/* Starts the server on an accepted connection. With `stuck`, windows are never opened again. */
struct h2_server *h2_server_new(struct net_peer *peer, uint32_t max_concurrent, bool stuck);
void h2_server_free(struct h2_server *s);

/* Reads and writes without blocking; returns false if the client closed the connection. */
bool h2_server_turn(struct h2_server *s);

/* Sends a gRPC response: one message "abc" and trailers, or trailers only if the status is not
 * 0. */
void h2_server_answer(struct h2_server *s, int32_t id, int status);
