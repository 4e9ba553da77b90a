/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/h2.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define SCRATCH 16384

int br_h2_put(struct br_pool *pool, struct br_buf **scratch, struct br_rope *out, const void *data,
              size_t len)
{
    if (!*scratch || (*scratch)->cap - (*scratch)->len < len) {
        struct br_buf *fresh = br_buf_new(pool, len > SCRATCH ? len : SCRATCH);
        if (!fresh)
            return BR_ENOMEM;
        br_buf_unref(*scratch);
        *scratch = fresh;
    }
    struct br_buf *buf = *scratch;
    uint8_t *at = buf->data + buf->len;
    memcpy(at, data, len);
    buf->len += (uint32_t)len;
    return br_rope_add(out, buf, at, len);
}

static int h2_pull(nghttp2_session *session, struct br_pool *pool, struct br_buf **scratch,
                   struct br_rope *out, size_t max)
{
    while (out->len < max) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(session, &data);
        if (n == 0)
            return 0;
        if (n < 0)
            return n == NGHTTP2_ERR_NOMEM ? BR_ENOMEM : BR_EPROTO;
        int rc = br_h2_put(pool, scratch, out, data, (size_t)n);
        if (rc)
            return rc;
    }
    return 0;
}

int br_h2_pull(nghttp2_session *session, struct br_pool *pool, struct br_buf **scratch,
               struct br_rope *out, size_t max)
{
    int rc = h2_pull(session, pool, scratch, out, max);
    /* the buffer of 16 KiB is released, so that an idle connection does not keep it */
    *scratch = br_buf_unref(*scratch);
    return rc;
}

/* The following functions allocate memory for an nghttp2 session; `user` is the pool. */

static void *h2_mem_malloc(size_t size, void *user)
{
    return br_block_new(user, BR_HOLDER_CONNECTIONS, size);
}

static void h2_mem_free(void *memory, void *user)
{
    br_block_free(user, BR_HOLDER_CONNECTIONS, memory);
}

static void *h2_mem_calloc(size_t count, size_t size, void *user)
{
    size_t total;
    if (!br_size_mul(count, size, &total))
        return NULL;
    void *block = br_block_new(user, BR_HOLDER_CONNECTIONS, total);
    if (block)
        memset(block, 0, total);
    return block;
}

static void *h2_mem_realloc(void *memory, size_t size, void *user)
{
    return br_block_resize(user, BR_HOLDER_CONNECTIONS, memory, size);
}

nghttp2_session *br_h2_session(bool server, const nghttp2_session_callbacks *callbacks,
                               struct br_pool *pool, void *user)
{
    nghttp2_mem mem = {pool, h2_mem_malloc, h2_mem_free, h2_mem_calloc, h2_mem_realloc};
    nghttp2_option *option;
    if (nghttp2_option_new(&option))
        return NULL;
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_max_outbound_ack(option, 100);
    nghttp2_option_set_max_settings(option, 32);
    nghttp2_option_set_max_continuations(option, 4);
    /* With the default option nghttp2 keeps 224 bytes for each of the last hundred closed
     * streams. */
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_peer_max_concurrent_streams(option, server ? 100 : 1000);
    nghttp2_session *session = NULL;
    int rc = server ? nghttp2_session_server_new3(&session, callbacks, user, option, &mem)
                    : nghttp2_session_client_new3(&session, callbacks, user, option, &mem);
    nghttp2_option_del(option);
    return rc ? NULL : session;
}

int br_h2_settings(nghttp2_session *session, const nghttp2_settings_entry *settings, size_t count,
                   int32_t connection_window)
{
    if (nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, count) ||
        nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, connection_window))
        return BR_ENOMEM;
    return 0;
}
