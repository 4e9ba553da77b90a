/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that the HTTP/2 server and client share: they make a session safely and take its
 * output. For src/wire/h2*.c only.
 */
#pragma once

#include <nghttp2/nghttp2.h>

#include "base/buf.h"

/* Appends what the session wants to send to `out`, up to about `max` bytes; `*scratch` is a buffer
 * that small frames are gathered in, NULL before and after. Returns 0, BR_ENOMEM, or BR_EPROTO when
 * the session is broken beyond a GOAWAY. */
int br_h2_pull(nghttp2_session *session, struct br_pool *pool, struct br_buf **scratch,
               struct br_rope *out, size_t max);

/* Appends `len` bytes by way of `*scratch`. Returns 0 or BR_ENOMEM. */
int br_h2_put(struct br_pool *pool, struct br_buf **scratch, struct br_rope *out, const void *data,
              size_t len);

/* Makes a session with the limits that both sides share, whose memory counts for the connections
 * and lies in blocks of the pool; NULL when there is no memory. */
nghttp2_session *br_h2_session(bool server, const nghttp2_session_callbacks *callbacks,
                               struct br_pool *pool, void *user);

/* Opens the connection's receive window to `bytes` and sends SETTINGS. Returns 0 or BR_ENOMEM. */
int br_h2_settings(nghttp2_session *session, const nghttp2_settings_entry *settings, size_t count,
                   int32_t connection_window);

#define BR_H2_FRAME_HEADER 9
