/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/mem.h"
#include "wire/http1.h"

#define HEAD_TEXT_MIN 512

/* Bits of `seen`: the headers that this parser interprets. */
enum {
    SEEN_LENGTH = 1,
    SEEN_CODING = 2,
    SEEN_HOST = 4,
    SEEN_CLOSE = 8,
    SEEN_KEEP_ALIVE = 16,
    SEEN_EXPECT = 32,
};

static bool http1_head_is_alnum(char letter)
{
    return br_is_digit(letter) || (letter >= 'a' && letter <= 'z') ||
           (letter >= 'A' && letter <= 'Z');
}

bool br_http1_is_tchar(char letter)
{
    return http1_head_is_alnum(letter) || letter == '-' ||
           (letter && strchr("!#$%&'*+.^_`|~", letter));
}

bool br_http1_is_space(char letter)
{
    return letter == ' ' || letter == '\t';
}

bool br_http1_is_text(char letter)
{
    return letter == '\t' || ((uint8_t)letter >= 0x20 && letter != 0x7f);
}

/* Returns true for an ASCII character that a request target may contain (RFC 3986). A request
 * target has no fragment (RFC 9112 section 3.2). */
static bool http1_head_is_target_char(char letter)
{
    return letter > 0x20 && letter < 0x7f && letter != '#';
}

/* Returns true for characters of a name, an address or a port (RFC 3986 sections 3.2.2 and
 * 3.2.3). */
static bool http1_head_is_host_char(char letter)
{
    return http1_head_is_alnum(letter) || (letter && strchr("-._~%!$&'()*+,;=:[]", letter));
}

static bool http1_head_all(const char *text, size_t len, bool (*is)(char c))
{
    for (size_t i = 0; i < len; i++) {
        if (!is(text[i]))
            return false;
    }
    return true;
}

/* Appends a string and a terminator to the head. The strings of a line are never longer than the
 * line. */
static bool http1_head_keep_text(struct br_http1 *parser, const char *text, size_t len)
{
    struct br_http1_text *http1_text = &parser->impl->head;
    size_t need = http1_text->len + len + 1;
    if (br_grow(&http1_text->data, &http1_text->cap, need > HEAD_TEXT_MIN ? need : HEAD_TEXT_MIN, 1,
                BR_HTTP1_HEAD_MAX))
        return br_http1_refuse(parser, 503, "out of memory");
    if (len)
        memcpy(http1_text->data + http1_text->len, text, len);
    http1_text->data[http1_text->len + len] = '\0';
    http1_text->len += (uint32_t)len + 1;
    return true;
}

/* Parses "HTTP/" DIGIT "." DIGIT, which is case-sensitive (RFC 9112 section 2.3). */
static bool http1_head_read_version(struct br_http1 *parser, const char *text, size_t len)
{
    if (len != 8 || memcmp(text, "HTTP/", 5) != 0 || !br_is_digit(text[5]) || text[6] != '.' ||
        !br_is_digit(text[7]))
        return br_http1_refuse(parser, 400, "the HTTP version is malformed");
    if (text[5] != '1' || text[7] > '1')
        return br_http1_refuse(parser, 505, "the HTTP version is neither 1.0 nor 1.1");
    parser->minor = (unsigned)(text[7] - '0');
    return true;
}

/* Stores the path and the authority of an absolute-form (RFC 9112 section 3.2.2). Rejects user
 * names, as RFC 9110 section 4.2.4 recommends. */
static bool http1_head_absolute_target(struct br_http1 *parser, const char *text, size_t len)
{
    size_t scheme = 0;
    if (len > 7 && strncasecmp(text, "http://", 7) == 0)
        scheme = 7;
    else if (len > 8 && strncasecmp(text, "https://", 8) == 0)
        scheme = 8;
    if (!scheme)
        return br_http1_refuse(parser, 400, "the target is not a path");
    size_t end = scheme;
    while (end < len && text[end] != '/' && text[end] != '?')
        end++;
    if (end == scheme || !http1_head_all(text + scheme, end - scheme, http1_head_is_host_char))
        return br_http1_refuse(parser, 400, "the target's host is malformed");
    bool no_path = end == len || text[end] == '?';
    if (no_path && !http1_head_keep_text(parser, "/", 1))
        return false;
    if (no_path)
        /* the URL has no path: remove the terminator, so that the query directly follows the
         * slash */
        parser->impl->head.len--;
    return http1_head_keep_text(parser, text + end, len - end) &&
           http1_head_keep_text(parser, text + scheme, end - scheme);
}

/* Stores the target, followed by the authority of an absolute-form or an empty string. */
static bool http1_head_read_target(struct br_http1 *parser, const char *text, size_t len,
                                   bool options)
{
    if (len == 0 || !http1_head_all(text, len, http1_head_is_target_char))
        return br_http1_refuse(parser, 400, "the target is malformed");
    if (text[0] == '/' || (options && len == 1 && text[0] == '*'))
        return http1_head_keep_text(parser, text, len) && http1_head_keep_text(parser, "", 0);
    return http1_head_absolute_target(parser, text, len);
}

static bool http1_head_request_line(struct br_http1 *parser, const char *line, size_t len)
{
    const char *end = line + len;
    const char *space = len ? memchr(line, ' ', len) : NULL;
    size_t method = space ? (size_t)(space - line) : 0;
    if (method == 0 || !http1_head_all(line, method, br_http1_is_tchar))
        return br_http1_refuse(parser, 400, "the request line is malformed");
    if (method == 7 && memcmp(line, "CONNECT", 7) == 0)
        return br_http1_refuse(parser, 501, "this server is not a proxy");
    const char *target = space + 1;
    space = memchr(target, ' ', (size_t)(end - target));
    if (!space) {
        bool old = target < end &&
                   http1_head_all(target, (size_t)(end - target), http1_head_is_target_char);
        return br_http1_refuse(parser, old ? 505 : 400, "the request line has no HTTP version");
    }
    bool options = method == 7 && memcmp(line, "OPTIONS", 7) == 0;
    return http1_head_read_version(parser, space + 1, (size_t)(end - space) - 1) &&
           http1_head_keep_text(parser, line, method) &&
           http1_head_read_target(parser, target, (size_t)(space - target), options);
}

/* Parses a status line (RFC 9112 section 4). Accepts a line without the space before an empty
 * reason phrase, because many servers omit that space. */
static bool http1_head_status_line(struct br_http1 *parser, const char *line, size_t len)
{
    uint64_t status;
    bool has_status = len >= 12 && line[8] == ' ' && line[9] != '0' &&
                      br_decimal_parse(line + 9, 3, 999, &status);
    bool reason_ok = has_status && (len == 12 || line[12] == ' ') &&
                     http1_head_all(line + 12, len - 12, br_http1_is_text);
    if (!reason_ok)
        return br_http1_refuse(parser, 400, "the status line is malformed");
    parser->status = (unsigned)status;
    return http1_head_read_version(parser, line, 8);
}

bool br_http1_start_line(struct br_http1 *parser, const char *line, size_t len)
{
    return parser->impl->responses ? http1_head_status_line(parser, line, len)
                                   : http1_head_request_line(parser, line, len);
}

static bool http1_head_keep_field(struct br_http1 *parser, const char *name, size_t name_len,
                                  const char *value, size_t value_len)
{
    struct br_http1_text *http1_text = &parser->impl->head;
    size_t at = http1_text->len;
    if (!http1_head_keep_text(parser, name, name_len) ||
        !http1_head_keep_text(parser, value, value_len))
        return false;
    for (size_t i = at; i < at + name_len; i++) {
        if (http1_text->data[i] >= 'A' && http1_text->data[i] <= 'Z')
            http1_text->data[i] = (char)(http1_text->data[i] | 0x20);
    }
    return true;
}

bool br_http1_field_line(struct br_http1 *parser, const char *line, size_t len, bool keep)
{
    if (br_http1_is_space(line[0]))
        return br_http1_refuse(parser, 400, "a header line is folded");
    if (++parser->impl->n_fields > BR_HTTP1_HEADERS_MAX)
        return br_http1_refuse(parser, 431, "there are more than 128 headers");
    const char *colon = memchr(line, ':', len);
    size_t name = colon ? (size_t)(colon - line) : 0;
    if (name == 0 || !http1_head_all(line, name, br_http1_is_tchar))
        return br_http1_refuse(parser, 400, "a header's name is malformed");
    const char *value = colon + 1, *end = line + len;
    if (!http1_head_all(value, (size_t)(end - value), br_http1_is_text))
        return br_http1_refuse(parser, 400, "a header's value has a control character");
    while (value < end && br_http1_is_space(*value))
        value++;
    while (value < end && br_http1_is_space(end[-1]))
        end--;
    return !keep || http1_head_keep_field(parser, line, name, value, (size_t)(end - value));
}

/* Sets a bit of `seen`, which marks a header as present. Returns false if the bit was already
 * set. */
static bool http1_head_first(struct br_http1 *parser, unsigned bit)
{
    bool again = parser->impl->seen & bit;
    parser->impl->seen |= bit;
    return !again;
}

static bool http1_head_on_content_length(struct br_http1 *parser, const char *value)
{
    if (!http1_head_first(parser, SEEN_LENGTH))
        return br_http1_refuse(parser, 400, "there are two Content-Length headers");
    if (!*value)
        return br_http1_refuse(parser, 400, "Content-Length is empty");
    const char *p = value, *end = value + strlen(value);
    bool fits = br_decimal_read(&p, end, INT64_MAX, &parser->content_length);
    if (p != end)
        return br_http1_refuse(parser, 400, "Content-Length is not a number");
    if (!fits)
        return br_http1_refuse(parser, 400, "Content-Length is 2^63 or more");
    parser->has_length = true;
    return true;
}

/* Returns true if chunked is the last coding of a list and occurs once. If the list also contains
 * an unknown coding, the end of the body is still known, and RFC 9112 section 6.1 requires the
 * status 501. */
static bool http1_head_ends_in_chunked(const char *value)
{
    size_t len = strlen(value);
    if (len < 8 || strcasecmp(value + len - 7, "chunked") != 0)
        return false;
    char before = value[len - 8];
    return (before == ',' || br_http1_is_space(before)) && strchr(value, ',') &&
           strcasestr(value, "chunked") == value + len - 7;
}

static bool http1_head_on_transfer_encoding(struct br_http1 *parser, const char *value)
{
    if (!http1_head_first(parser, SEEN_CODING))
        return br_http1_refuse(parser, 400, "there are two Transfer-Encoding headers");
    if (parser->minor == 0)
        return br_http1_refuse(parser, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (strcasecmp(value, "chunked") != 0)
        return br_http1_refuse(parser, http1_head_ends_in_chunked(value) ? 501 : 400,
                               "Transfer-Encoding must be chunked");
    parser->chunked = true;
    return true;
}

static bool http1_head_on_host(struct br_http1 *parser, const char *value)
{
    if (parser->impl->responses)
        return true;
    if (!http1_head_first(parser, SEEN_HOST))
        return br_http1_refuse(parser, 400, "there are two Host headers");
    if (!http1_head_all(value, strlen(value), http1_head_is_host_char))
        return br_http1_refuse(parser, 400, "Host is malformed");
    const char *authority = parser->target + strlen(parser->target) + 1;
    if (*authority && strcasecmp(authority, value) != 0)
        return br_http1_refuse(parser, 400, "Host is not the target's host");
    return true;
}

/* Parses the value of Connection, a list of tokens (RFC 9110 section 7.6.1). Only "close" and
 * "keep-alive" are interpreted. Empty elements of the list are legal (RFC 9110 section 5.6.1). */
static bool http1_head_on_connection(struct br_http1 *parser, const char *value)
{
    for (const char *s = value; *s;) {
        size_t len = strcspn(s, ",");
        const char *token = s;
        size_t n = len;
        while (n && br_http1_is_space(*token))
            token++, n--;
        while (n && br_http1_is_space(token[n - 1]))
            n--;
        if (!http1_head_all(token, n, br_http1_is_tchar))
            return br_http1_refuse(parser, 400, "Connection is malformed");
        if (br_bytes_are_nocase(token, n, "close"))
            parser->impl->seen |= SEEN_CLOSE;
        if (br_bytes_are_nocase(token, n, "keep-alive"))
            parser->impl->seen |= SEEN_KEEP_ALIVE;
        s += len + (s[len] == ',');
    }
    return true;
}

static bool http1_head_on_expect(struct br_http1 *parser, const char *value)
{
    if (parser->impl->responses)
        return true;
    if (!http1_head_first(parser, SEEN_EXPECT) || strcasecmp(value, "100-continue") != 0)
        return br_http1_refuse(parser, 417, "Expect must be 100-continue");
    return true;
}

static bool http1_head_on_field(struct br_http1 *parser, const struct br_http1_header *http1_header)
{
    static const struct {
        const char *name;
        bool (*on)(struct br_http1 *parser, const char *value);
    } known[] = {
        {"content-length", http1_head_on_content_length},
        {"transfer-encoding", http1_head_on_transfer_encoding},
        {"host", http1_head_on_host},
        {"connection", http1_head_on_connection},
        {"expect", http1_head_on_expect},
    };
    for (size_t i = 0; i < BR_COUNT(known); i++) {
        if (strcmp(http1_header->name, known[i].name) == 0)
            return known[i].on(parser, http1_header->value);
    }
    return true;
}

/* Sets the pointers of the public fields. Called when the strings of the head no longer move. */
static bool http1_head_point_at_fields(struct br_http1 *parser)
{
    struct br_http1_impl *i = parser->impl;
    if (br_grow(&i->headers, &i->headers_cap, i->n_fields, sizeof *i->headers,
                BR_HTTP1_HEADERS_MAX))
        return br_http1_refuse(parser, 503, "out of memory");
    const char *s = i->head.data;
    if (!i->responses) {
        parser->method = s;
        parser->target = s + strlen(s) + 1;
        const char *authority = parser->target + strlen(parser->target) + 1;
        s = authority + strlen(authority) + 1;
    }
    for (uint32_t k = 0; k < i->n_fields; k++) {
        i->headers[k].name = s;
        i->headers[k].value = s = s + strlen(s) + 1;
        s += strlen(s) + 1;
    }
    parser->headers = i->headers;
    parser->n_headers = i->n_fields;
    return true;
}

static void http1_head_frame_body(struct br_http1 *parser)
{
    struct br_http1_impl *i = parser->impl;
    bool bodyless = i->responses ? parser->status == 204 || parser->status == 304
                                 : !parser->chunked && !parser->has_length;
    i->left = parser->has_length ? parser->content_length : UINT64_MAX;
    if (bodyless)
        i->left = 0;
    if (bodyless || parser->has_length) {
        i->state = BR_HTTP1_LENGTH;
    } else if (parser->chunked) {
        i->state = BR_HTTP1_CHUNK_SIZE;
    } else {
        i->state = BR_HTTP1_UNTIL_EOF;
        parser->keep_alive = false;
    }
}

bool br_http1_finish_head(struct br_http1 *parser)
{
    struct br_http1_impl *i = parser->impl;
    if (!http1_head_point_at_fields(parser))
        return false;
    for (size_t k = 0; k < parser->n_headers; k++) {
        if (!http1_head_on_field(parser, &parser->headers[k]))
            return false;
    }
    if (parser->chunked && parser->has_length)
        return br_http1_refuse(parser, 400,
                               "there are both Content-Length and Transfer-Encoding headers");
    if (!i->responses && parser->minor > 0 && !(i->seen & SEEN_HOST))
        return br_http1_refuse(parser, 400, "there is no Host header");
    parser->keep_alive =
        !(i->seen & SEEN_CLOSE) && (parser->minor > 0 || (i->seen & SEEN_KEEP_ALIVE));
    http1_head_frame_body(parser);
    /* Expect is ignored for HTTP/1.0, and useless without a body (RFC 9110 section 10.1.1). */
    parser->expect_continue =
        (i->seen & SEEN_EXPECT) && parser->minor > 0 && (parser->chunked || parser->content_length);
    return true;
}
