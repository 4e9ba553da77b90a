/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/redaction/clean.h"

#include <stdbool.h>
#include <string.h>

#include "base/bytes.h"
#include "base/decimal.h"

#define SEGMENT_MAX 32
#define HEX_MIN 7

static bool redact_url_is_letter(uint8_t byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

static bool redact_url_is_word(const uint8_t *text, size_t len)
{
    size_t n_hex = 0;
    if (len > SEGMENT_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        bool grace = i == 1 && br_is_digit(text[i]);
        if (!grace && !redact_url_is_letter(text[i]) && !memchr("-_.~ ", text[i], 5))
            return false;
        n_hex += br_hex_value((char)text[i]) >= 0;
    }
    return n_hex < len || len < HEX_MIN;
}

/* Returns the offset of the path, which is after the scheme and the host if the text contains
 * them. */
static size_t redact_url_path_at(const uint8_t *text, size_t len)
{
    const uint8_t *scheme = memchr(text, ':', len);
    size_t at = scheme ? (size_t)(scheme - text) : len;
    if (len - at < 3 || memcmp(text + at, "://", 3) != 0)
        return 0;
    const uint8_t *slash = memchr(text + at + 3, '/', len - at - 3);
    return slash ? (size_t)(slash - text) : len;
}

static size_t redact_url_end(const uint8_t *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (memchr("?&#", text[i], 3))
            return i;
    return len;
}

size_t redact_url_clean(const uint8_t *text, size_t len, uint8_t *out)
{
    len = redact_url_end(text, len);
    size_t at = redact_url_path_at(text, len), put = at;
    memcpy(out, text, at);
    for (unsigned n_segments = 0; at < len && n_segments < REDACT_URL_SEGMENTS_MAX;) {
        if (text[at] == '/') {
            out[put++] = text[at++];
            continue;
        }
        const uint8_t *slash = memchr(text + at, '/', len - at);
        size_t end = slash ? (size_t)(slash - text) : len;
        if (redact_url_is_word(text + at, end - at)) {
            memcpy(out + put, text + at, end - at);
            put += end - at;
        } else {
            out[put++] = '*';
        }
        at = end;
        n_segments++;
    }
    return put;
}
