/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that the HTTP/2 server and client share. Only src/wire/h2*.c include this header.
 */
#pragma once

#include <nghttp2/nghttp2.h>

#include "base/buf.h"

/* Appends the output of the HTTP/2 session to `out`, up to about `max` bytes. Small frames are
 * collected in `*scratch`, which is NULL before and after the call. Returns 0, BR_ENOMEM, or
 * BR_EPROTO if the session cannot even send a GOAWAY. */
int br_h2_pull(nghttp2_session *session, struct br_pool *pool, struct br_buf **scratch,
               struct br_rope *out, size_t max);

/* Copies `len` bytes to `*scratch` and appends the copied bytes to `out`. Returns 0 or
 * BR_ENOMEM. */
int br_h2_put(struct br_pool *pool, struct br_buf **scratch, struct br_rope *out, const void *data,
              size_t len);

/* Makes a session with the limits that servers and clients share. The session's memory is taken
 * from blocks of the pool, in the memory category of connections. Returns NULL if memory is
 * short. */
nghttp2_session *br_h2_session(bool server, const nghttp2_session_callbacks *callbacks,
                               struct br_pool *pool, void *user);

/* Sets the connection's receive window, in bytes, and sends SETTINGS. Returns 0 or BR_ENOMEM. */
int br_h2_settings(nghttp2_session *session, const nghttp2_settings_entry *settings, size_t count,
                   int32_t connection_window);

#define BR_H2_FRAME_HEADER 9
