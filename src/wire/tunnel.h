/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks an HTTP/1.1 proxy for a tunnel to a server (CONNECT, RFC 9110 section 9.3.6). A connection
 * begins with this protocol; once the tunnel is open, its owner takes what the server has sent
 * already, frees the tunnel, and gives the connection the server's protocol.
 *
 * Input fails with BR_EPROTO, and a sentence in `why`, when the proxy refuses or does not speak
 * HTTP/1.1.
 */
#pragma once

#include "wire/conn.h"

/* Makes a tunnel to `authority` (host:port). `authorization` is the value of Proxy-Authorization;
 * NULL or "": the request lacks it. Returns NULL without memory. */
struct br_conn *br_tunnel_new(struct br_pool *pool, const char *authority,
                              const char *authorization);

/* Returns true when the proxy has opened the tunnel. */
bool br_tunnel_is_open(const struct br_conn *conn);

/* Returns owned the bytes that followed the proxy's answer. NULL: none. */
struct br_buf *br_tunnel_take_rest(struct br_conn *conn);
