/* SPDX-License-Identifier: Apache-2.0 */
/* Runs bytes through the HTTP/1.1 parser and records its events as text, for the unit test and
 * the fuzz target. The text must not depend on how the bytes are divided. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "wire/http1.h"

enum http1_kind {
    HTTP1_REQUESTS = 'q',
    HTTP1_RESPONSES = 'r',
};

static inline void http1_write_head(const struct br_http1 *p, struct br_str *out)
{
    if (p->method)
        br_str_printf(out, "%s %s", p->method, p->target);
    else
        br_str_printf(out, "%u", p->status);
    br_str_printf(out, " 1.%u %s", p->minor, p->keep_alive ? "keep" : "close");
    if (p->chunked)
        br_str_puts(out, " chunked");
    if (p->has_length)
        br_str_printf(out, " length=%llu", (unsigned long long)p->content_length);
    br_str_puts(out, p->expect_continue ? " continue" : "");
    for (size_t i = 0; i < p->n_headers; i++)
        br_str_printf(out, "|%s:%s", p->headers[i].name, p->headers[i].value);
    br_str_puts(out, "\n");
}

static inline bool http1_write_event(const struct br_http1 *p, enum br_http1_event event,
                                     struct br_str *out)
{
    if (event == BR_HTTP1_HEAD)
        http1_write_head(p, out);
    else if (event == BR_HTTP1_DONE)
        br_str_puts(out, ";\n");
    else if (event == BR_HTTP1_ERROR)
        br_str_printf(out, "!%u %s\n", p->error_status, p->error_text);
    return event != BR_HTTP1_ERROR && event != BR_HTTP1_MORE;
}

/* Feeds one piece to the parser. The piece is copied to a block of exactly its size, so that a
 * sanitizer detects reads beyond it. Returns false if the parser has failed. */
static inline bool http1_feed(struct br_http1 *p, const uint8_t *piece, size_t len,
                              struct br_str *out)
{
    uint8_t *block = malloc(len ? len : 1);
    if (!block)
        abort();
    if (len)
        memcpy(block, piece, len);
    const uint8_t *data = block, *body = NULL;
    size_t left = len, body_len = 0, calls = 0;
    enum br_http1_event event;
    do {
        event = br_http1_next(p, &data, &left, &body, &body_len);
        if (event == BR_HTTP1_BODY) {
            if (body_len == 0 || body < block || body + body_len != data)
                /* a piece of the body lies in the input, at the end of the bytes just consumed */
                abort();
            br_str_add(out, body, body_len);
        }
        if (data + left != block + len || (event == BR_HTTP1_MORE && left) || ++calls > len * 2 + 8)
            /* the result MORE means that all bytes were consumed; any other result must have
             * consumed bytes */
            abort();
    } while (http1_write_event(p, event, out));
    free(block);
    return event != BR_HTTP1_ERROR;
}

/* Feeds `first` bytes, then pieces of `step` bytes (0: the rest at once), and then the end of the
 * connection. Appends the events as text to `out`, which the caller releases. */
static inline void http1_events(enum http1_kind kind, const uint8_t *data, size_t len, size_t first,
                                size_t step, struct br_str *out)
{
    struct br_http1 p;
    if (br_http1_init(&p, kind != HTTP1_REQUESTS))
        abort();
    bool good = true;
    for (size_t at = 0; good && at < len;) {
        size_t want = step ? step : len;
        if (at == 0 && first)
            want = first;
        size_t n = want < len - at ? want : len - at;
        good = http1_feed(&p, data + at, n, out);
        at += n;
    }
    if (good)
        (void)http1_write_event(&p, br_http1_eof(&p), out);
    br_http1_release(&p);
}
