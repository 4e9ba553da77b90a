/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "wire/http1_internal.h"

#define HEAD_TEXT_MIN 512

/* Fields with a meaning for framing, as bits of `seen`. */
enum {
    SEEN_LENGTH = 1,
    SEEN_CODING = 2,
    SEEN_HOST = 4,
    SEEN_CLOSE = 8,
    SEEN_KEEP_ALIVE = 16,
    SEEN_EXPECT = 32,
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alnum(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool br_http1_is_tchar(char c)
{
    return is_alnum(c) || c == '-' || (c && strchr("!#$%&'*+.^_`|~", c));
}

bool br_http1_is_space(char c)
{
    return c == ' ' || c == '\t';
}

bool br_http1_is_text(char c)
{
    return c == '\t' || ((uint8_t)c >= 0x20 && c != 0x7f);
}

/* RFC 3986 is ASCII without spaces; a fragment is not part of a request's target (RFC 9112
 * section 3.2). */
static bool is_target_char(char c)
{
    return c > 0x20 && c < 0x7f && c != '#';
}

/* RFC 3986 section 3.2.2 and 3.2.3: a name, an address, a port. */
static bool is_host_char(char c)
{
    return is_alnum(c) || (c && strchr("-._~%!$&'()*+,;=:[]", c));
}

static bool all(const char *s, size_t len, bool (*is)(char c))
{
    for (size_t i = 0; i < len; i++) {
        if (!is(s[i]))
            return false;
    }
    return true;
}

/* Appends a terminated string to the head. The strings of a line are shorter than the line. */
static bool keep_text(struct br_http1 *p, const char *s, size_t len)
{
    struct br_http1_text *t = &p->impl->head;
    size_t need = t->len + len + 1;
    if (br_grow(&t->data, &t->cap, need > HEAD_TEXT_MIN ? need : HEAD_TEXT_MIN, 1,
                BR_HTTP1_HEAD_MAX))
        return br_http1_refuse(p, 503, "out of memory");
    if (len)
        memcpy(t->data + t->len, s, len);
    t->data[t->len + len] = '\0';
    t->len += (uint32_t)len + 1;
    return true;
}

/* RFC 9112 section 2.3: "HTTP/" DIGIT "." DIGIT, case-sensitive. */
static bool read_version(struct br_http1 *p, const char *s, size_t len)
{
    if (len != 8 || memcmp(s, "HTTP/", 5) != 0 || !is_digit(s[5]) || s[6] != '.' || !is_digit(s[7]))
        return br_http1_refuse(p, 400, "the HTTP version is malformed");
    if (s[5] != '1' || s[7] > '1')
        return br_http1_refuse(p, 505, "the HTTP version is neither 1.0 nor 1.1");
    p->minor = (unsigned)(s[7] - '0');
    return true;
}

/* absolute-form (RFC 9112 section 3.2.2): keeps the path and the authority; user names in it are
 * refused as RFC 9110 section 4.2.4 advises. */
static bool absolute_target(struct br_http1 *p, const char *s, size_t len)
{
    size_t scheme = len > 7 && strncasecmp(s, "http://", 7) == 0    ? 7
                    : len > 8 && strncasecmp(s, "https://", 8) == 0 ? 8
                                                                    : 0;
    if (!scheme)
        return br_http1_refuse(p, 400, "the target is not a path");
    size_t end = scheme;
    while (end < len && s[end] != '/' && s[end] != '?')
        end++;
    if (end == scheme || !all(s + scheme, end - scheme, is_host_char))
        return br_http1_refuse(p, 400, "the target's host is malformed");
    bool no_path = end == len || s[end] == '?';
    if (no_path && !keep_text(p, "/", 1))
        return false;
    if (no_path)
        p->impl->head.len--; /* the query goes on where the slash ends */
    return keep_text(p, s + end, len - end) && keep_text(p, s + scheme, end - scheme);
}

/* Keeps the target and, after it, the authority of an absolute-form or an empty string. */
static bool read_target(struct br_http1 *p, const char *s, size_t len, bool options)
{
    if (len == 0 || !all(s, len, is_target_char))
        return br_http1_refuse(p, 400, "the target is malformed");
    if (s[0] == '/' || (options && len == 1 && s[0] == '*'))
        return keep_text(p, s, len) && keep_text(p, "", 0);
    return absolute_target(p, s, len);
}

static bool request_line(struct br_http1 *p, const char *line, size_t len)
{
    const char *end = line + len;
    const char *space = len ? memchr(line, ' ', len) : NULL;
    size_t method = space ? (size_t)(space - line) : 0;
    if (method == 0 || !all(line, method, br_http1_is_tchar))
        return br_http1_refuse(p, 400, "the request line is malformed");
    if (method == 7 && memcmp(line, "CONNECT", 7) == 0)
        return br_http1_refuse(p, 501, "this server is not a proxy");
    const char *target = space + 1;
    space = memchr(target, ' ', (size_t)(end - target));
    if (!space) {
        bool old = target < end && all(target, (size_t)(end - target), is_target_char);
        return br_http1_refuse(p, old ? 505 : 400, "the request line has no HTTP version");
    }
    bool options = method == 7 && memcmp(line, "OPTIONS", 7) == 0;
    return read_version(p, space + 1, (size_t)(end - space) - 1) && keep_text(p, line, method) &&
           read_target(p, target, (size_t)(space - target), options);
}

/* RFC 9112 section 4. The space before an empty reason is missing often, and harmless. */
static bool status_line(struct br_http1 *p, const char *line, size_t len)
{
    if (len < 12 || line[8] != ' ' || !all(line + 9, 3, is_digit) || line[9] == '0' ||
        (len > 12 && line[12] != ' ') || !all(line + 12, len - 12, br_http1_is_text))
        return br_http1_refuse(p, 400, "the status line is malformed");
    p->status = (unsigned)((line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0'));
    return read_version(p, line, 8);
}

bool br_http1_start_line(struct br_http1 *p, const char *line, size_t len)
{
    return p->impl->responses ? status_line(p, line, len) : request_line(p, line, len);
}

static bool keep_field(struct br_http1 *p, const char *name, size_t name_len, const char *value,
                       size_t value_len)
{
    struct br_http1_text *t = &p->impl->head;
    size_t at = t->len;
    if (!keep_text(p, name, name_len) || !keep_text(p, value, value_len))
        return false;
    for (size_t i = at; i < at + name_len; i++) {
        if (t->data[i] >= 'A' && t->data[i] <= 'Z')
            t->data[i] = (char)(t->data[i] | 0x20);
    }
    return true;
}

bool br_http1_field_line(struct br_http1 *p, const char *line, size_t len, bool keep)
{
    if (br_http1_is_space(line[0]))
        return br_http1_refuse(p, 400, "a header line is folded");
    if (++p->impl->n_fields > BR_HTTP1_HEADERS_MAX)
        return br_http1_refuse(p, 431, "there are more than 128 headers");
    const char *colon = memchr(line, ':', len);
    size_t name = colon ? (size_t)(colon - line) : 0;
    if (name == 0 || !all(line, name, br_http1_is_tchar))
        return br_http1_refuse(p, 400, "a header's name is malformed");
    const char *value = colon + 1, *end = line + len;
    if (!all(value, (size_t)(end - value), br_http1_is_text))
        return br_http1_refuse(p, 400, "a header's value has a control character");
    while (value < end && br_http1_is_space(*value))
        value++;
    while (value < end && br_http1_is_space(end[-1]))
        end--;
    return !keep || keep_field(p, line, name, value, (size_t)(end - value));
}

/* Notes that a field was there; false when it was there before. */
static bool first(struct br_http1 *p, unsigned bit)
{
    bool again = p->impl->seen & bit;
    p->impl->seen |= bit;
    return !again;
}

static bool on_content_length(struct br_http1 *p, const char *value)
{
    if (!first(p, SEEN_LENGTH))
        return br_http1_refuse(p, 400, "there are two Content-Length headers");
    uint64_t n = 0;
    for (const char *s = value; *s; s++) {
        if (!is_digit(*s))
            return br_http1_refuse(p, 400, "Content-Length is not a number");
        if (n > ((uint64_t)INT64_MAX - (uint64_t)(*s - '0')) / 10)
            return br_http1_refuse(p, 400, "Content-Length is 2^63 or more");
        n = n * 10 + (uint64_t)(*s - '0');
    }
    if (!*value)
        return br_http1_refuse(p, 400, "Content-Length is empty");
    p->has_length = true;
    p->content_length = n;
    return true;
}

/* True when the last coding of the list is chunked, and no other one is: then the framing is clear
 * and only the coding unknown, which RFC 9112 section 6.1 answers with 501. */
static bool ends_in_chunked(const char *value)
{
    size_t len = strlen(value);
    if (len < 8 || strcasecmp(value + len - 7, "chunked") != 0)
        return false;
    char before = value[len - 8];
    return (before == ',' || br_http1_is_space(before)) && strchr(value, ',') &&
           strcasestr(value, "chunked") == value + len - 7;
}

static bool on_transfer_encoding(struct br_http1 *p, const char *value)
{
    if (!first(p, SEEN_CODING))
        return br_http1_refuse(p, 400, "there are two Transfer-Encoding headers");
    if (p->minor == 0)
        return br_http1_refuse(p, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (strcasecmp(value, "chunked") != 0)
        return br_http1_refuse(p, ends_in_chunked(value) ? 501 : 400,
                               "Transfer-Encoding is not chunked alone");
    p->chunked = true;
    return true;
}

static bool on_host(struct br_http1 *p, const char *value)
{
    if (p->impl->responses)
        return true;
    if (!first(p, SEEN_HOST))
        return br_http1_refuse(p, 400, "there are two Host headers");
    if (!all(value, strlen(value), is_host_char))
        return br_http1_refuse(p, 400, "Host is malformed");
    const char *authority = p->target + strlen(p->target) + 1;
    if (*authority && strcasecmp(authority, value) != 0)
        return br_http1_refuse(p, 400, "Host is not the target's host");
    return true;
}

/* RFC 9110 section 7.6.1: a list of tokens, of which two matter; empty elements are legal (5.6.1).
 */
static bool on_connection(struct br_http1 *p, const char *value)
{
    for (const char *s = value; *s;) {
        size_t len = strcspn(s, ",");
        const char *token = s;
        size_t n = len;
        while (n && br_http1_is_space(*token))
            token++, n--;
        while (n && br_http1_is_space(token[n - 1]))
            n--;
        if (!all(token, n, br_http1_is_tchar))
            return br_http1_refuse(p, 400, "Connection is malformed");
        if (n == 5 && strncasecmp(token, "close", 5) == 0)
            p->impl->seen |= SEEN_CLOSE;
        if (n == 10 && strncasecmp(token, "keep-alive", 10) == 0)
            p->impl->seen |= SEEN_KEEP_ALIVE;
        s += len + (s[len] == ',');
    }
    return true;
}

static bool on_expect(struct br_http1 *p, const char *value)
{
    if (p->impl->responses)
        return true;
    if (!first(p, SEEN_EXPECT) || strcasecmp(value, "100-continue") != 0)
        return br_http1_refuse(p, 417, "only 100-continue can be expected");
    return true;
}

static bool on_upgrade(struct br_http1 *p, const char *value)
{
    (void)value;
    p->upgrade = true;
    return true;
}

static bool on_field(struct br_http1 *p, const struct br_http1_header *h)
{
    static const struct {
        const char *name;
        bool (*on)(struct br_http1 *p, const char *value);
    } known[] = {
        {"content-length", on_content_length},
        {"transfer-encoding", on_transfer_encoding},
        {"host", on_host},
        {"connection", on_connection},
        {"expect", on_expect},
        {"upgrade", on_upgrade},
    };
    for (size_t i = 0; i < BR_COUNT(known); i++) {
        if (strcmp(h->name, known[i].name) == 0)
            return known[i].on(p, h->value);
    }
    return true;
}

/* The strings of the head no longer move: points at them. */
static bool point_at_fields(struct br_http1 *p)
{
    struct br_http1_impl *i = p->impl;
    if (br_grow(&i->headers, &i->headers_cap, i->n_fields, sizeof *i->headers,
                BR_HTTP1_HEADERS_MAX))
        return br_http1_refuse(p, 503, "out of memory");
    const char *s = i->head.data;
    if (!i->responses) {
        p->method = s;
        p->target = s + strlen(s) + 1;
        const char *authority = p->target + strlen(p->target) + 1;
        s = authority + strlen(authority) + 1;
    }
    for (uint32_t k = 0; k < i->n_fields; k++) {
        i->headers[k].name = s;
        i->headers[k].value = s = s + strlen(s) + 1;
        s += strlen(s) + 1;
    }
    p->headers = i->headers;
    p->n_headers = i->n_fields;
    return true;
}

static void frame_body(struct br_http1 *p)
{
    struct br_http1_impl *i = p->impl;
    bool bodyless =
        i->responses ? p->status == 204 || p->status == 304 : !p->chunked && !p->has_length;
    i->left = bodyless ? 0 : p->has_length ? p->content_length : UINT64_MAX;
    if (bodyless || p->has_length) {
        i->state = BR_HTTP1_LENGTH;
    } else if (p->chunked) {
        i->state = BR_HTTP1_CHUNK_SIZE;
    } else {
        i->state = BR_HTTP1_UNTIL_EOF;
        p->keep_alive = false;
    }
}

bool br_http1_finish_head(struct br_http1 *p)
{
    struct br_http1_impl *i = p->impl;
    if (!point_at_fields(p))
        return false;
    for (size_t k = 0; k < p->n_headers; k++) {
        if (!on_field(p, &p->headers[k]))
            return false;
    }
    if (p->chunked && p->has_length)
        return br_http1_refuse(p, 400, "there are Content-Length and Transfer-Encoding");
    if (!i->responses && p->minor > 0 && !(i->seen & SEEN_HOST))
        return br_http1_refuse(p, 400, "there is no Host header");
    p->keep_alive = !(i->seen & SEEN_CLOSE) && (p->minor > 0 || (i->seen & SEEN_KEEP_ALIVE));
    frame_body(p);
    /* RFC 9110 section 10.1.1: ignored in HTTP/1.0, and pointless without a body. */
    p->expect_continue =
        (i->seen & SEEN_EXPECT) && p->minor > 0 && (p->chunked || p->content_length);
    return true;
}
