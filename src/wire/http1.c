/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http1.h"

#include <string.h>

#include "base/mem.h"
#include "wire/http1_internal.h"

#define CHUNK_LINE_MAX 1024
#define CHUNK_EXT_MAX 16384 /* of all chunks of a message */
#define LINE_MIN 256        /* the smallest line buffer */
#define IDLE_MAX 4096       /* larger buffers are not kept between messages */

int br_http1_init(struct br_http1 *p, bool responses)
{
    struct br_http1_impl *i = br_calloc(1, sizeof *i);
    if (!i)
        return BR_ENOMEM;
    i->responses = responses;
    i->budget = BR_HTTP1_HEAD_MAX;
    *p = (struct br_http1){.impl = i};
    return 0;
}

void br_http1_release(struct br_http1 *p)
{
    if (p->impl) {
        br_free(p->impl->line.data);
        br_free(p->impl->head.data);
        br_free(p->impl->headers);
        br_free(p->impl);
    }
    *p = (struct br_http1){0};
}

size_t br_http1_held(const struct br_http1 *p)
{
    const struct br_http1_impl *i = p->impl;
    return i->line.cap + i->head.cap + i->headers_cap * sizeof *i->headers;
}

bool br_http1_refuse(struct br_http1 *p, unsigned status, const char *text)
{
    p->error_status = status;
    p->error_text = text;
    p->keep_alive = false;
    p->impl->state = BR_HTTP1_FAILED;
    return false;
}

static void empty(struct br_http1_text *t)
{
    t->len = 0;
    if (t->cap > IDLE_MAX) {
        br_free(t->data);
        *t = (struct br_http1_text){0};
    }
}

/* Forgets the message that was reported. What follows one that closes the connection is not looked
 * at: RFC 9112 section 9.6. */
static void begin(struct br_http1 *p)
{
    struct br_http1_impl *i = p->impl;
    i->state = p->keep_alive ? BR_HTTP1_START : BR_HTTP1_CLOSED;
    i->blank = false;
    i->seen = 0;
    i->n_fields = 0;
    i->budget = BR_HTTP1_HEAD_MAX;
    empty(&i->line);
    empty(&i->head);
    if (i->headers_cap > IDLE_MAX / sizeof *i->headers) {
        br_free(i->headers);
        i->headers = NULL;
        i->headers_cap = 0;
    }
    *p = (struct br_http1){.impl = i};
}

/* The strings stay until the next call, because DONE is when a caller acts on them. */
static enum br_http1_event report(struct br_http1_impl *i)
{
    i->state = BR_HTTP1_REPORTED;
    return BR_HTTP1_DONE;
}

enum line_result { LINE_MORE, LINE_WHOLE, LINE_REFUSED };

struct line {
    const char *data;
    size_t len;
};

/* Keeps the start of a line for when the rest comes. */
static bool hold(struct br_http1 *p, const uint8_t *data, size_t n)
{
    struct br_http1_text *t = &p->impl->line;
    size_t need = t->len + n;
    if (br_grow(&t->data, &t->cap, need > LINE_MIN ? need : LINE_MIN, 1, BR_HTTP1_HEAD_MAX))
        return br_http1_refuse(p, 503, "out of memory");
    memcpy(t->data + t->len, data, n);
    t->len += (uint32_t)n;
    return true;
}

/* Cuts off the CRLF, the only end that a line may have: RFC 9112 section 2.2 allows to take a bare
 * LF for one, and that is what requests are smuggled with. */
static enum line_result end_line(struct br_http1 *p, const char *data, size_t len, struct line *ret)
{
    if (len < 2 || data[len - 2] != '\r') {
        br_http1_refuse(p, 400, "a line ends without CR");
        return LINE_REFUSED;
    }
    *ret = (struct line){data, len - 2};
    return LINE_WHOLE;
}

/* Takes a line of at most `max` bytes with its CRLF, of which the result is free. It lies in the
 * input where it came in one piece, else in the line buffer, until the next call. */
static enum line_result take_line(struct br_http1 *p, const uint8_t **data, size_t *len, size_t max,
                                  unsigned long_status, const char *long_text, struct line *ret)
{
    struct br_http1_text *t = &p->impl->line;
    size_t room = max - t->len;
    const uint8_t *at = *data;
    const uint8_t *lf = *len ? memchr(at, '\n', *len < room ? *len : room) : NULL;
    size_t n = lf ? (size_t)(lf - at) + 1 : *len;
    if (n > room) {
        br_http1_refuse(p, long_status, long_text);
        return LINE_REFUSED;
    }
    *data += n;
    *len -= n;
    if (n && (!lf || t->len) && !hold(p, at, n))
        return LINE_REFUSED;
    if (!lf)
        return LINE_MORE;
    if (t->len == 0)
        return end_line(p, (const char *)at, n, ret);
    n = t->len;
    t->len = 0;
    return end_line(p, t->data, n, ret);
}

/* An interim response (RFC 9110 section 15.2) is skipped; the budget of heads goes on. 101 answers
 * a request that we never make. */
static bool skip_interim(struct br_http1 *p)
{
    struct br_http1_impl *i = p->impl;
    if (p->status == 101)
        return br_http1_refuse(p, 400, "the server switched protocols unasked");
    i->state = BR_HTTP1_START;
    i->head.len = 0;
    i->n_fields = 0;
    i->seen = 0;
    *p = (struct br_http1){.impl = i};
    return true;
}

/* One line of the head. `*ret_head` when it was the last. */
static bool head_line(struct br_http1 *p, const struct line *line, bool *ret_head)
{
    struct br_http1_impl *i = p->impl;
    i->budget -= line->len + 2;
    if (i->state == BR_HTTP1_START) {
        if (line->len == 0 && !i->responses && !i->blank) {
            i->blank = true; /* RFC 9112 section 2.2: a server SHOULD ignore one */
            return true;
        }
        i->state = BR_HTTP1_FIELDS;
        return br_http1_start_line(p, line->data, line->len);
    }
    if (line->len > 0)
        return br_http1_field_line(p, line->data, line->len, true);
    if (!br_http1_finish_head(p))
        return false;
    if (i->responses && p->status < 200)
        return skip_interim(p);
    i->ext_budget = CHUNK_EXT_MAX;
    *ret_head = true;
    return true;
}

/* Another protocol (TLS, say) is told at its first byte, not when a line feed comes. */
static bool looks_alien(const struct br_http1_impl *i, const uint8_t *data, size_t len)
{
    return i->state == BR_HTTP1_START && i->line.len == 0 && len > 0 && *data != '\r' &&
           *data != '\n' && !br_http1_is_tchar((char)*data);
}

static enum br_http1_event read_head(struct br_http1 *p, const uint8_t **data, size_t *len)
{
    struct br_http1_impl *i = p->impl;
    bool head = false;
    while (!head) {
        /* RFC 9112 section 3: 414 is a MUST for a target that is too long to read. */
        unsigned long_status = i->state == BR_HTTP1_START ? 414 : 431;
        if (looks_alien(i, *data, *len)) {
            br_http1_refuse(p, 400, "this is not HTTP");
            return BR_HTTP1_ERROR;
        }
        struct line line;
        switch (take_line(p, data, len, i->budget, long_status, "the head is over 64 KiB", &line)) {
        case LINE_MORE:
            return BR_HTTP1_MORE;
        case LINE_REFUSED:
            return BR_HTTP1_ERROR;
        case LINE_WHOLE:
            break;
        }
        if (!head_line(p, &line, &head))
            return BR_HTTP1_ERROR;
    }
    return BR_HTTP1_HEAD;
}

static size_t skip_space(const char *s, size_t at, size_t len)
{
    while (at < len && br_http1_is_space(s[at]))
        at++;
    return at;
}

static size_t skip_token(const char *s, size_t at, size_t len)
{
    while (at < len && br_http1_is_tchar(s[at]))
        at++;
    return at;
}

/* RFC 9110 section 5.6.4, from the opening quote; 0 when it is malformed. */
static size_t skip_quoted(const char *s, size_t at, size_t len)
{
    for (at++; at < len && s[at] != '"'; at++) {
        if (s[at] == '\\')
            at++;
        if (at == len || !br_http1_is_text(s[at]))
            return 0;
    }
    return at < len ? at + 1 : 0;
}

/* RFC 9112 section 7.1.1: *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] ) */
static bool valid_extensions(const char *s, size_t at, size_t len)
{
    while (at < len) {
        at = skip_space(s, at, len);
        if (at == len || s[at] != ';')
            return false;
        size_t name = skip_space(s, at + 1, len);
        at = skip_token(s, name, len);
        if (at == name)
            return false;
        size_t equals = skip_space(s, at, len);
        if (equals == len || s[equals] != '=')
            continue;
        size_t value = skip_space(s, equals + 1, len);
        at =
            value < len && s[value] == '"' ? skip_quoted(s, value, len) : skip_token(s, value, len);
        if (at <= value)
            return false;
    }
    return true;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool chunk_size(struct br_http1 *p, const struct line *line)
{
    struct br_http1_impl *i = p->impl;
    uint64_t size = 0;
    size_t n = 0;
    for (; n < line->len && hex_value(line->data[n]) >= 0; n++) {
        if (size >> 59)
            return br_http1_refuse(p, 400, "a chunk size is 2^63 or more");
        size = size << 4 | (unsigned)hex_value(line->data[n]);
    }
    if (n == 0)
        return br_http1_refuse(p, 400, "a chunk size is not hexadecimal");
    if (line->len - n > i->ext_budget)
        return br_http1_refuse(p, 400, "the chunk extensions are over 16 KiB");
    i->ext_budget -= line->len - n;
    if (!valid_extensions(line->data, n, line->len))
        return br_http1_refuse(p, 400, "a chunk size is followed by something else");
    i->left = size;
    i->state = size ? BR_HTTP1_CHUNK_DATA : BR_HTTP1_TRAILERS;
    i->budget = BR_HTTP1_HEAD_MAX;
    i->n_fields = 0;
    return true;
}

static enum line_result read_chunk_size(struct br_http1 *p, const uint8_t **data, size_t *len)
{
    struct line line;
    enum line_result r = take_line(p, data, len, CHUNK_LINE_MAX, 400,
                                   "the line of a chunk size is over 1 KiB", &line);
    return r == LINE_WHOLE && !chunk_size(p, &line) ? LINE_REFUSED : r;
}

static enum line_result read_chunk_end(struct br_http1 *p, const uint8_t **data, size_t *len)
{
    struct line line;
    enum line_result r = take_line(p, data, len, 2, 400, "a chunk is longer than its size", &line);
    if (r == LINE_WHOLE)
        p->impl->state = BR_HTTP1_CHUNK_SIZE;
    return r;
}

static enum line_result read_trailer(struct br_http1 *p, const uint8_t **data, size_t *len)
{
    struct br_http1_impl *i = p->impl;
    struct line line;
    enum line_result r =
        take_line(p, data, len, i->budget, 431, "the trailers are over 64 KiB", &line);
    if (r != LINE_WHOLE)
        return r;
    i->budget -= line.len + 2;
    if (line.len == 0)
        i->state = BR_HTTP1_COMPLETE;
    else if (!br_http1_field_line(p, line.data, line.len, false))
        return LINE_REFUSED;
    return LINE_WHOLE;
}

/* Hands out what there is of the `left` bytes. */
static enum br_http1_event take_body(struct br_http1_impl *i, const uint8_t **data, size_t *len,
                                     const uint8_t **body, size_t *body_len)
{
    size_t n = *len < i->left ? *len : (size_t)i->left;
    if (n == 0)
        return BR_HTTP1_MORE;
    *body = *data;
    *body_len = n;
    *data += n;
    *len -= n;
    i->left -= n;
    return BR_HTTP1_BODY;
}

/* One step inside chunked framing; true when `*ret_event` is to be returned. */
static bool step_chunked(struct br_http1 *p, const uint8_t **data, size_t *len,
                         const uint8_t **body, size_t *body_len, enum br_http1_event *ret_event)
{
    struct br_http1_impl *i = p->impl;
    enum line_result r;
    if (i->state == BR_HTTP1_CHUNK_DATA) {
        if (i->left) {
            *ret_event = take_body(i, data, len, body, body_len);
            return true;
        }
        i->state = BR_HTTP1_CHUNK_END;
    }
    if (i->state == BR_HTTP1_CHUNK_SIZE)
        r = read_chunk_size(p, data, len);
    else if (i->state == BR_HTTP1_CHUNK_END)
        r = read_chunk_end(p, data, len);
    else
        r = read_trailer(p, data, len);
    *ret_event = r == LINE_REFUSED ? BR_HTTP1_ERROR : BR_HTTP1_MORE;
    return r != LINE_WHOLE;
}

enum br_http1_event br_http1_next(struct br_http1 *p, const uint8_t **data, size_t *len,
                                  const uint8_t **body, size_t *body_len)
{
    struct br_http1_impl *i = p->impl;
    enum br_http1_event event;
    for (;;) {
        switch (i->state) {
        case BR_HTTP1_START:
        case BR_HTTP1_FIELDS:
            return read_head(p, data, len);
        case BR_HTTP1_LENGTH:
            if (i->left)
                return take_body(i, data, len, body, body_len);
            i->state = BR_HTTP1_COMPLETE;
            break;
        case BR_HTTP1_UNTIL_EOF:
            return take_body(i, data, len, body, body_len);
        case BR_HTTP1_CHUNK_SIZE:
        case BR_HTTP1_CHUNK_DATA:
        case BR_HTTP1_CHUNK_END:
        case BR_HTTP1_TRAILERS:
            if (step_chunked(p, data, len, body, body_len, &event))
                return event;
            break;
        case BR_HTTP1_COMPLETE:
            return report(i);
        case BR_HTTP1_REPORTED:
            begin(p);
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

enum br_http1_event br_http1_eof(struct br_http1 *p)
{
    struct br_http1_impl *i = p->impl;
    switch (i->state) {
    case BR_HTTP1_UNTIL_EOF:
    case BR_HTTP1_COMPLETE:
        return report(i);
    case BR_HTTP1_REPORTED:
    case BR_HTTP1_CLOSED:
        return BR_HTTP1_MORE;
    case BR_HTTP1_LENGTH:
        if (i->left == 0)
            return report(i);
        break;
    case BR_HTTP1_START:
        /* After an interim response the final one is still owed. */
        if (i->line.len == 0 && (i->budget == BR_HTTP1_HEAD_MAX || i->blank))
            return BR_HTTP1_MORE;
        break;
    default:
        break;
    }
    if (i->state != BR_HTTP1_FAILED)
        br_http1_refuse(p, 400, "the connection closed in the middle of a message");
    return BR_HTTP1_ERROR;
}

const char *br_http1_header(const struct br_http1 *p, const char *name)
{
    for (size_t i = 0; i < p->n_headers; i++) {
        if (strcmp(p->headers[i].name, name) == 0)
            return p->headers[i].value;
    }
    return NULL;
}
