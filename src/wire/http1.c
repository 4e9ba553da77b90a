/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http1.h"

#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"

#define CHUNK_LINE_MAX 1024
#define CHUNK_EXT_MAX 16384 /* maximum size of all chunk extensions of a message, in bytes */
#define LINE_MIN 256        /* minimum size of the line buffer, in bytes */
#define IDLE_MAX 4096       /* largest buffer, in bytes, that is kept between messages */

int br_http1_init(struct br_http1 *parser, bool responses)
{
    struct br_http1_impl *i = br_calloc(1, sizeof *i);
    if (!i)
        return BR_ENOMEM;
    i->responses = responses;
    i->budget = BR_HTTP1_HEAD_MAX;
    *parser = (struct br_http1){.impl = i};
    return 0;
}

void br_http1_release(struct br_http1 *parser)
{
    if (parser->impl) {
        br_free(parser->impl->line.data);
        br_free(parser->impl->head.data);
        br_free(parser->impl->headers);
        br_free(parser->impl);
    }
    *parser = (struct br_http1){0};
}

size_t br_http1_held(const struct br_http1 *parser)
{
    const struct br_http1_impl *i = parser->impl;
    return i->line.cap + i->head.cap + i->headers_cap * sizeof *i->headers;
}

bool br_http1_refuse(struct br_http1 *parser, unsigned status, const char *text)
{
    parser->error_status = status;
    parser->error_text = text;
    parser->keep_alive = false;
    parser->impl->state = BR_HTTP1_FAILED;
    return false;
}

static void http1_empty(struct br_http1_text *http1_text)
{
    http1_text->len = 0;
    if (http1_text->cap > IDLE_MAX) {
        br_free(http1_text->data);
        *http1_text = (struct br_http1_text){0};
    }
}

/* Resets the parser for the next message. If the last message closes the connection, all further
 * input is ignored (RFC 9112 section 9.6). */
static void http1_begin(struct br_http1 *parser)
{
    struct br_http1_impl *i = parser->impl;
    i->state = parser->keep_alive ? BR_HTTP1_START : BR_HTTP1_CLOSED;
    i->blank = false;
    i->seen = 0;
    i->n_fields = 0;
    i->budget = BR_HTTP1_HEAD_MAX;
    http1_empty(&i->line);
    http1_empty(&i->head);
    if (i->headers_cap > IDLE_MAX / sizeof *i->headers) {
        br_free(i->headers);
        i->headers = NULL;
        i->headers_cap = 0;
    }
    *parser = (struct br_http1){.impl = i};
}

/* Reports the end of a message. The strings of the head stay valid until the next call, because
 * callers use these strings at BR_HTTP1_DONE. */
static enum br_http1_event http1_report(struct br_http1_impl *http1_impl)
{
    http1_impl->state = BR_HTTP1_REPORTED;
    return BR_HTTP1_DONE;
}

enum line_result { LINE_MORE, LINE_WHOLE, LINE_REFUSED };

struct line {
    const char *data;
    size_t len;
};

/* Appends an incomplete line to the line buffer. */
static bool http1_store_line(struct br_http1 *parser, const uint8_t *data, size_t count)
{
    struct br_http1_text *http1_text = &parser->impl->line;
    size_t need = http1_text->len + count;
    if (br_grow(&http1_text->data, &http1_text->cap, need > LINE_MIN ? need : LINE_MIN, 1,
                BR_HTTP1_HEAD_MAX))
        return br_http1_refuse(parser, 503, "out of memory");
    memcpy(http1_text->data + http1_text->len, data, count);
    http1_text->len += (uint32_t)count;
    return true;
}

/* Removes the CRLF of a line. RFC 9112 section 2.2 also allows a bare LF. A bare LF is rejected,
 * because it enables request smuggling. */
static enum line_result http1_end_line(struct br_http1 *parser, const char *data, size_t len,
                                       struct line *ret)
{
    if (len < 2 || data[len - 2] != '\r') {
        br_http1_refuse(parser, 400, "a line ends without CR");
        return LINE_REFUSED;
    }
    *ret = (struct line){data, len - 2};
    return LINE_WHOLE;
}

/* Takes a line of at most `max` bytes including its CRLF; `*ret` excludes the CRLF. If the line
 * arrived in one piece, `*ret` points into the input. If the line arrived in several pieces,
 * `*ret` points into the line buffer, and is valid until the next call. */
static enum line_result http1_take_line(struct br_http1 *parser, const uint8_t **data, size_t *len,
                                        size_t max, unsigned long_status, const char *long_text,
                                        struct line *ret)
{
    struct br_http1_text *http1_text = &parser->impl->line;
    size_t available = max - http1_text->len;
    const uint8_t *at = *data;
    size_t searched = *len < available ? *len : available;
    const uint8_t *lf = *len ? memchr(at, '\n', searched) : NULL;
    size_t n = lf ? (size_t)(lf - at) + 1 : *len;
    if (n > available) {
        br_http1_refuse(parser, long_status, long_text);
        return LINE_REFUSED;
    }
    *data += n;
    *len -= n;
    if (n && (!lf || http1_text->len) && !http1_store_line(parser, at, n))
        return LINE_REFUSED;
    if (!lf)
        return LINE_MORE;
    if (http1_text->len == 0)
        return http1_end_line(parser, (const char *)at, n, ret);
    n = http1_text->len;
    http1_text->len = 0;
    return http1_end_line(parser, http1_text->data, n, ret);
}

/* Skips an interim response (RFC 9110 section 15.2), which still counts towards the limit of the
 * head. We never request an upgrade, so 101 is an error. */
static bool http1_skip_interim(struct br_http1 *parser)
{
    struct br_http1_impl *i = parser->impl;
    if (parser->status == 101)
        return br_http1_refuse(parser, 400, "the server switched protocols without a request");
    i->state = BR_HTTP1_START;
    i->head.len = 0;
    i->n_fields = 0;
    i->seen = 0;
    *parser = (struct br_http1){.impl = i};
    return true;
}

/* Processes one line of the head. Sets `*ret_head` after the last line. */
static bool http1_head_line(struct br_http1 *parser, const struct line *line, bool *ret_head)
{
    struct br_http1_impl *i = parser->impl;
    i->budget -= line->len + 2;
    if (i->state == BR_HTTP1_START) {
        if (line->len == 0 && !i->responses && !i->blank) {
            i->blank = true; /* RFC 9112 section 2.2: a server SHOULD ignore one empty line */
            return true;
        }
        i->state = BR_HTTP1_FIELDS;
        return br_http1_start_line(parser, line->data, line->len);
    }
    if (line->len > 0)
        return br_http1_field_line(parser, line->data, line->len, true);
    if (!br_http1_finish_head(parser))
        return false;
    if (i->responses && parser->status < 200)
        return http1_skip_interim(parser);
    i->ext_budget = CHUNK_EXT_MAX;
    *ret_head = true;
    return true;
}

/* Returns true if the first byte shows that the peer speaks another protocol, such as TLS. The
 * result is needed before a line feed arrives, because the peer may never send a line feed. */
static bool http1_is_other_protocol(const struct br_http1_impl *http1_impl, const uint8_t *data,
                                    size_t len)
{
    if (http1_impl->state != BR_HTTP1_START || http1_impl->line.len > 0 || len == 0)
        return false;
    return *data != '\r' && *data != '\n' && !br_http1_is_tchar((char)*data);
}

static enum br_http1_event http1_read_head(struct br_http1 *parser, const uint8_t **data,
                                           size_t *len)
{
    struct br_http1_impl *i = parser->impl;
    bool head = false;
    while (!head) {
        /* RFC 9112 section 3: a server MUST answer a request with 414 if its target is too long. */
        unsigned long_status = i->state == BR_HTTP1_START ? 414 : 431;
        if (http1_is_other_protocol(i, *data, *len)) {
            br_http1_refuse(parser, 400, "this is not HTTP");
            return BR_HTTP1_ERROR;
        }
        struct line line;
        switch (http1_take_line(parser, data, len, i->budget, long_status,
                                "the head is over 64 KiB", &line)) {
        case LINE_MORE:
            return BR_HTTP1_MORE;
        case LINE_REFUSED:
            return BR_HTTP1_ERROR;
        case LINE_WHOLE:
            break;
        }
        if (!http1_head_line(parser, &line, &head))
            return BR_HTTP1_ERROR;
    }
    return BR_HTTP1_HEAD;
}

static size_t http1_skip_space(const char *text, size_t at, size_t len)
{
    while (at < len && br_http1_is_space(text[at]))
        at++;
    return at;
}

static size_t http1_skip_token(const char *text, size_t at, size_t len)
{
    while (at < len && br_http1_is_tchar(text[at]))
        at++;
    return at;
}

/* Returns the position after a quoted string (RFC 9110 section 5.6.4), or 0 if it is malformed. */
static size_t http1_skip_quoted(const char *text, size_t at, size_t len)
{
    for (at++; at < len && text[at] != '"'; at++) {
        if (text[at] == '\\')
            at++;
        if (at == len || !br_http1_is_text(text[at]))
            return 0;
    }
    return at < len ? at + 1 : 0;
}

/* Returns true if chunk extensions are valid. The grammar of RFC 9112 section 7.1.1 is: *( BWS
 * ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] ) */
static bool http1_valid_extensions(const char *text, size_t at, size_t len)
{
    while (at < len) {
        at = http1_skip_space(text, at, len);
        if (at == len || text[at] != ';')
            return false;
        size_t name = http1_skip_space(text, at + 1, len);
        at = http1_skip_token(text, name, len);
        if (at == name)
            return false;
        size_t equals = http1_skip_space(text, at, len);
        if (equals == len || text[equals] != '=')
            continue;
        size_t value = http1_skip_space(text, equals + 1, len);
        at = value < len && text[value] == '"' ? http1_skip_quoted(text, value, len)
                                               : http1_skip_token(text, value, len);
        if (at <= value)
            return false;
    }
    return true;
}

static bool http1_chunk_size(struct br_http1 *parser, const struct line *line)
{
    struct br_http1_impl *i = parser->impl;
    uint64_t size = 0;
    size_t n = 0;
    for (; n < line->len && br_hex_value(line->data[n]) >= 0; n++) {
        if (size >> 59)
            return br_http1_refuse(parser, 400, "a chunk size is 2^63 or more");
        size = size << 4 | (unsigned)br_hex_value(line->data[n]);
    }
    if (n == 0)
        return br_http1_refuse(parser, 400, "a chunk size is not hexadecimal");
    if (line->len - n > i->ext_budget)
        return br_http1_refuse(parser, 400, "the chunk extensions are over 16 KiB");
    i->ext_budget -= line->len - n;
    if (!http1_valid_extensions(line->data, n, line->len))
        return br_http1_refuse(parser, 400, "a chunk size is followed by invalid characters");
    i->left = size;
    i->state = size ? BR_HTTP1_CHUNK_DATA : BR_HTTP1_TRAILERS;
    i->budget = BR_HTTP1_HEAD_MAX;
    i->n_fields = 0;
    return true;
}

static enum line_result http1_read_chunk_size(struct br_http1 *parser, const uint8_t **data,
                                              size_t *len)
{
    struct line line;
    enum line_result r = http1_take_line(parser, data, len, CHUNK_LINE_MAX, 400,
                                         "the line of a chunk size is over 1 KiB", &line);
    return r == LINE_WHOLE && !http1_chunk_size(parser, &line) ? LINE_REFUSED : r;
}

static enum line_result http1_read_chunk_end(struct br_http1 *parser, const uint8_t **data,
                                             size_t *len)
{
    struct line line;
    enum line_result r =
        http1_take_line(parser, data, len, 2, 400, "a chunk is longer than its size", &line);
    if (r == LINE_WHOLE)
        parser->impl->state = BR_HTTP1_CHUNK_SIZE;
    return r;
}

static enum line_result http1_read_trailer(struct br_http1 *parser, const uint8_t **data,
                                           size_t *len)
{
    struct br_http1_impl *i = parser->impl;
    struct line line;
    enum line_result r =
        http1_take_line(parser, data, len, i->budget, 431, "the trailers are over 64 KiB", &line);
    if (r != LINE_WHOLE)
        return r;
    i->budget -= line.len + 2;
    if (line.len == 0)
        i->state = BR_HTTP1_COMPLETE;
    else if (!br_http1_field_line(parser, line.data, line.len, false))
        return LINE_REFUSED;
    return LINE_WHOLE;
}

/* Returns the part of the remaining body, or of the remaining chunk, that the input contains. */
static enum br_http1_event http1_take_body(struct br_http1_impl *http1_impl, const uint8_t **data,
                                           size_t *len, const uint8_t **body, size_t *body_len)
{
    size_t n = *len < http1_impl->left ? *len : (size_t)http1_impl->left;
    if (n == 0)
        return BR_HTTP1_MORE;
    *body = *data;
    *body_len = n;
    *data += n;
    *len -= n;
    http1_impl->left -= n;
    return BR_HTTP1_BODY;
}

/* Performs one step of the chunked coding. Returns true if `*ret_event` must be returned to the
 * caller. */
static bool http1_step_chunked(struct br_http1 *parser, const uint8_t **data, size_t *len,
                               const uint8_t **body, size_t *body_len,
                               enum br_http1_event *ret_event)
{
    struct br_http1_impl *i = parser->impl;
    enum line_result r;
    if (i->state == BR_HTTP1_CHUNK_DATA) {
        if (i->left) {
            *ret_event = http1_take_body(i, data, len, body, body_len);
            return true;
        }
        i->state = BR_HTTP1_CHUNK_END;
    }
    if (i->state == BR_HTTP1_CHUNK_SIZE)
        r = http1_read_chunk_size(parser, data, len);
    else if (i->state == BR_HTTP1_CHUNK_END)
        r = http1_read_chunk_end(parser, data, len);
    else
        r = http1_read_trailer(parser, data, len);
    *ret_event = r == LINE_REFUSED ? BR_HTTP1_ERROR : BR_HTTP1_MORE;
    return r != LINE_WHOLE;
}

enum br_http1_event br_http1_next(struct br_http1 *parser, const uint8_t **data, size_t *len,
                                  const uint8_t **body, size_t *body_len)
{
    struct br_http1_impl *i = parser->impl;
    enum br_http1_event event;
    for (;;) {
        switch (i->state) {
        case BR_HTTP1_START:
        case BR_HTTP1_FIELDS:
            return http1_read_head(parser, data, len);
        case BR_HTTP1_LENGTH:
            if (i->left)
                return http1_take_body(i, data, len, body, body_len);
            i->state = BR_HTTP1_COMPLETE;
            break;
        case BR_HTTP1_UNTIL_EOF:
            return http1_take_body(i, data, len, body, body_len);
        case BR_HTTP1_CHUNK_SIZE:
        case BR_HTTP1_CHUNK_DATA:
        case BR_HTTP1_CHUNK_END:
        case BR_HTTP1_TRAILERS:
            if (http1_step_chunked(parser, data, len, body, body_len, &event))
                return event;
            break;
        case BR_HTTP1_COMPLETE:
            return http1_report(i);
        case BR_HTTP1_REPORTED:
            http1_begin(parser);
            break;
        case BR_HTTP1_CLOSED:
            *data += *len;
            *len = 0;
            return BR_HTTP1_MORE;
        case BR_HTTP1_FAILED:
            return BR_HTTP1_ERROR;
        }
    }
}

enum br_http1_event br_http1_eof(struct br_http1 *parser)
{
    struct br_http1_impl *i = parser->impl;
    switch (i->state) {
    case BR_HTTP1_UNTIL_EOF:
    case BR_HTTP1_COMPLETE:
        return http1_report(i);
    case BR_HTTP1_REPORTED:
    case BR_HTTP1_CLOSED:
        return BR_HTTP1_MORE;
    case BR_HTTP1_LENGTH:
        if (i->left == 0)
            return http1_report(i);
        break;
    case BR_HTTP1_START:
        /* After an interim response, the end of the connection is an error: the final response
         * is missing. */
        if (i->line.len == 0 && (i->budget == BR_HTTP1_HEAD_MAX || i->blank))
            return BR_HTTP1_MORE;
        break;
    default:
        break;
    }
    if (i->state != BR_HTTP1_FAILED)
        br_http1_refuse(parser, 400, "the connection closed in the middle of a message");
    return BR_HTTP1_ERROR;
}

const char *br_http1_header(const struct br_http1 *parser, const char *name)
{
    for (size_t i = 0; i < parser->n_headers; i++) {
        if (strcmp(parser->headers[i].name, name) == 0)
            return parser->headers[i].value;
    }
    return NULL;
}
