/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/json/scan.h"

#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/steps.h"
#include "base/str.h"
#include "otlp/json/number.h"

#define EACH_BYTE 0x0101010101010101u

int br_json_scan_fail(struct br_json_scan *scan, const char *what)
{
    return br_err_set(scan->err, BR_EINVAL, "not JSON: %s at byte %zu", what,
                      (size_t)(scan->at - scan->text));
}

/* --- Characters ----------------------------------------------------------------------------- */

static inline bool scan_is_white(char letter)
{
    if ((unsigned char)letter > ' ')
        return false;
    return letter == ' ' || letter == '\t' || letter == '\n' || letter == '\r';
}

/* Skips white space and returns the next byte without consuming it, or 0 at the end of the text.
 * A NUL byte in the text returns 0 too, but is never valid JSON. */
static inline char scan_peek(struct br_json_scan *scan)
{
    const char *p = scan->at;
    while (p < scan->end && scan_is_white(*p))
        p++;
    scan->at = p;
    return p < scan->end ? *p : '\0';
}

/* Returns the value of the four hex digits of a \u escape, or -1 if one of them is invalid. */
static long scan_hex4(const char *p, const char *end)
{
    long v = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int d = br_hex_value(p[i]);
        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

#define REPLACEMENT 0xfffd

/* Parses the escape whose backslash is at `p`. Returns the byte after the escape, or NULL if the
 * escape is invalid. A surrogate pair counts as one escape. A lone surrogate becomes U+FFFD,
 * because some SDKs truncate texts within a pair. */
static const char *scan_escape(const char *p, const char *end, uint32_t *ret)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (end - p < 2)
        return NULL;
    if (p[1] != 'u') {
        const char *letter = memchr(letters, p[1], sizeof letters - 1);
        if (!letter)
            return NULL;
        *ret = (unsigned char)meanings[letter - letters];
        return p + 2;
    }
    long high = scan_hex4(p + 2, end), low = -1;
    if (high < 0)
        return NULL;
    if (high < 0xd800 || high > 0xdfff) {
        *ret = (uint32_t)high;
        return p + 6;
    }
    if (high < 0xdc00 && end - p >= 12 && p[6] == '\\' && p[7] == 'u')
        low = scan_hex4(p + 8, end);
    if (low < 0xdc00 || low > 0xdfff) {
        *ret = REPLACEMENT;
        return p + 6;
    }
    *ret = 0x10000u + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
    return p + 12;
}

size_t br_json_plain(const char *text, size_t len, char *out)
{
    const char *end = br_mem_end(text, len);
    size_t n = 0;
    br_steps_add(len);
    while (text < end) {
        const char *stop = memchr(text, '\\', (size_t)(end - text));
        size_t run = (size_t)((stop ? stop : end) - text);
        uint32_t c;
        memcpy(out + n, text, run);
        n += run;
        if (!stop)
            break;
        text = scan_escape(stop, end, &c);
        if (!text)
            break; /* unreachable: the scan has accepted the escapes */
        n += br_utf8_encode(c, out + n);
    }
    return n;
}

/* Returns the first byte from `p` on that ends a run of ordinary characters of a string: a
 * quote, a backslash or a control character. Eight bytes are tested at once; a set high bit
 * marks a match. Only the lowest mark is reliable, because carries can set higher marks. */
static const char *scan_run(const char *p, const char *end)
{
    for (; end - p >= 8; p += 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        uint64_t quote = word ^ EACH_BYTE * '"', backslash = word ^ EACH_BYTE * '\\';
        uint64_t hit = ((quote - EACH_BYTE) & ~quote) | ((backslash - EACH_BYTE) & ~backslash) |
                       ((word - EACH_BYTE * 0x20) & ~word);
        hit &= EACH_BYTE * 0x80;
        if (hit)
            return p + __builtin_ctzll(hit) / 8;
    }
    while (p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20)
        p++;
    return p;
}

/* --- Values --------------------------------------------------------------------------------- */

static int scan_string(struct br_json_scan *scan, struct br_json_token *ret)
{
    const char *start = scan->at + 1;
    size_t saved = 0; /* number of bytes by which the escapes are longer than their characters */
    scan->at = scan_run(start, scan->end);
    while (scan->at < scan->end && *scan->at != '"') {
        uint32_t c;
        if (*scan->at != '\\')
            return br_json_scan_fail(scan, "control character in a string");
        const char *after = scan_escape(scan->at, scan->end, &c);
        if (!after)
            return br_json_scan_fail(scan, "invalid escape");
        saved += (size_t)(after - scan->at) - br_utf8_size(c);
        scan->at = scan_run(after, scan->end);
    }
    if (scan->at == scan->end)
        return br_json_scan_fail(scan, "unterminated string");
    size_t len = (size_t)(scan->at - start);
    scan->at++;
    br_steps_add(len + 2);
    *ret = (struct br_json_token){.text = start,
                                  .len = (uint32_t)len,
                                  .plain_len = (uint32_t)(len - saved),
                                  .type = BR_JSON_STRING,
                                  .escaped = saved > 0};
    return 0;
}

static int scan_number(struct br_json_scan *scan, struct br_json_token *ret)
{
    size_t len = br_number_scan(scan->at, (size_t)(scan->end - scan->at));
    if (len == 0)
        return br_json_scan_fail(scan, scan->at == scan->end ? "unexpected end of text"
                                                             : "unexpected character");
    *ret = (struct br_json_token){.text = scan->at, .len = (uint32_t)len, .type = BR_JSON_NUMBER};
    scan->at += len;
    br_steps_add(len);
    if (scan->at == scan->end && scan->depth > 0)
        return br_json_scan_fail(scan, "unexpected end of text");
    return 0;
}

static int scan_word(struct br_json_scan *scan, const char *word, enum br_json_type type,
                     struct br_json_token *ret)
{
    size_t len = strlen(word);
    if ((size_t)(scan->end - scan->at) < len || memcmp(scan->at, word, len) != 0)
        return br_json_scan_fail(scan, "unexpected character");
    *ret = (struct br_json_token){.type = (uint8_t)type};
    scan->at += len;
    br_steps_add(len);
    return 0;
}

int br_json_scan_value(struct br_json_scan *scan, struct br_json_token *ret)
{
    const char *start = scan->at;
    char c = scan_peek(scan);
    br_steps_add((size_t)(scan->at - start) + 1);
    switch (c) {
    case '{':
        *ret = (struct br_json_token){.type = BR_JSON_OBJECT};
        return 0;
    case '[':
        *ret = (struct br_json_token){.type = BR_JSON_ARRAY};
        return 0;
    case '"':
        return scan_string(scan, ret);
    case 't':
        return scan_word(scan, "true", BR_JSON_TRUE, ret);
    case 'f':
        return scan_word(scan, "false", BR_JSON_FALSE, ret);
    case 'n':
        return scan_word(scan, "null", BR_JSON_NULL, ret);
    default:
        return scan_number(scan, ret);
    }
}

/* --- Objects and arrays --------------------------------------------------------------------- */

int br_json_scan_enter(struct br_json_scan *scan)
{
    if (scan->depth >= scan->max_depth)
        return br_err_set(scan->err, BR_EINVAL, "JSON nests deeper than %u brackets",
                          scan->max_depth);
    scan->depth++;
    scan->at++;
    return 0;
}

int br_json_scan_more(struct br_json_scan *scan, char close, bool first, bool *ret)
{
    const char *start = scan->at;
    char c = scan_peek(scan);
    br_steps_add((size_t)(scan->at - start) + 1);
    *ret = c != close;
    if (c == close) {
        scan->at++;
        scan->depth--;
        return 0;
    }
    if (first)
        return 0;
    if (c != ',')
        return br_json_scan_fail(scan, "missing comma");
    scan->at++;
    return 0;
}

int br_json_scan_name(struct br_json_scan *scan, struct br_json_token *ret)
{
    const char *start = scan->at;
    if (scan_peek(scan) != '"')
        return br_json_scan_fail(scan, "missing name");
    br_steps_add((size_t)(scan->at - start) + 1);
    int rc = scan_string(scan, ret);
    if (rc)
        return rc;
    if (scan_peek(scan) != ':')
        return br_json_scan_fail(scan, "missing colon");
    scan->at++;
    return 0;
}

int br_json_scan_skip(struct br_json_scan *scan, const struct br_json_token *value)
{
    bool object = value->type == BR_JSON_OBJECT, more = true;
    if (!object && value->type != BR_JSON_ARRAY)
        return 0;
    int rc = br_json_scan_enter(scan);
    for (bool first = true; !rc; first = false) {
        struct br_json_token inner;
        rc = br_json_scan_more(scan, object ? '}' : ']', first, &more);
        if (rc || !more)
            break;
        rc = object ? br_json_scan_name(scan, &inner) : 0;
        rc = rc ? rc : br_json_scan_value(scan, &inner);
        rc = rc ? rc : br_json_scan_skip(scan, &inner);
    }
    return rc;
}

/* --- The text ------------------------------------------------------------------------------- */

int br_json_scan_init(struct br_json_scan *scan, const char *text, size_t len, unsigned max_depth,
                      struct br_err *err)
{
    *scan = (struct br_json_scan){text, text, text + len, 0, max_depth, err};
    if (len > BR_JSON_TEXT_MAX)
        return br_err_set(err, BR_ETOOBIG, "JSON is larger than %u bytes", BR_JSON_TEXT_MAX);
    scan->at += br_utf8_valid((const uint8_t *)text, len);
    if (scan->at != scan->end)
        return br_json_scan_fail(scan, "invalid UTF-8");
    scan->at = text;
    return 0;
}

void br_json_scan_rewind(struct br_json_scan *scan)
{
    scan->at = scan->text;
    scan->depth = 0;
}

int br_json_scan_end(struct br_json_scan *scan)
{
    (void)scan_peek(scan);
    return scan->at == scan->end ? 0 : br_json_scan_fail(scan, "unexpected text after the value");
}
