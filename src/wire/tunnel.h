/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a tunnel to a server through an HTTP/1.1 proxy (CONNECT, RFC 9110 section 9.3.6). The
 * connection uses this protocol first. Once the tunnel is open, the owner fetches the bytes that
 * the server has already sent, frees the tunnel, and sets the server's protocol.
 *
 * Input fails with BR_EPROTO, with a text in `why`, if the proxy refuses or does not speak
 * HTTP/1.1.
 */
#pragma once

#include "wire/conn.h"

/* Makes a tunnel to `authority` (host:port). `authorization` is the value of
 * Proxy-Authorization; if it is NULL or "", the header is not sent. Returns NULL if memory is
 * short. */
struct br_conn *br_tunnel_new(struct br_pool *pool, const char *authority,
                              const char *authorization);

/* Returns true if the proxy has opened the tunnel. */
bool br_tunnel_is_open(const struct br_conn *conn);

/* Returns the bytes that followed the proxy's response, or NULL. The caller owns the buffer. */
struct br_buf *br_tunnel_take_rest(struct br_conn *conn);
