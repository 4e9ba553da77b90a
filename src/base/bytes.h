/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparisons and encodings of bytes that are given as a pointer and a length. The pointer may be
 * NULL if the length is 0. Functions named br_text_* take NUL-terminated strings.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#define BR_UTF8_MAX 4 /* length of the longest UTF-8 sequence, in bytes */

/* Returns true if both ranges have the same length and content. */
static inline bool br_bytes_equal(const void *one, size_t one_len, const void *other,
                                  size_t other_len)
{
    return one_len == other_len && (one_len == 0 || memcmp(one, other, one_len) == 0);
}

/* Returns true if the bytes are exactly the characters of `text`. */
static inline bool br_bytes_are(const void *data, size_t len, const char *text)
{
    return len == strlen(text) && (len == 0 || memcmp(data, text, strlen(text)) == 0);
}

/* Returns true if the bytes are the characters of `text`, ignoring ASCII case. */
static inline bool br_bytes_are_nocase(const void *data, size_t len, const char *text)
{
    return len == strlen(text) && (len == 0 || strncasecmp(data, text, len) == 0);
}

/* Returns true if the bytes begin with `prefix`. */
static inline bool br_bytes_start(const void *data, size_t len, const char *prefix)
{
    return len >= strlen(prefix) && (!*prefix || memcmp(data, prefix, strlen(prefix)) == 0);
}

static inline bool br_text_starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Returns true if the text begins with `prefix`, ignoring ASCII case. */
static inline bool br_text_starts_nocase(const char *text, const char *prefix)
{
    return strncasecmp(text, prefix, strlen(prefix)) == 0;
}

static inline bool br_text_ends(const char *text, const char *suffix)
{
    size_t len = strlen(text), suffix_len = strlen(suffix);
    return len >= suffix_len && memcmp(text + len - suffix_len, suffix, suffix_len) == 0;
}

/* Returns the value of a hex digit of either case, or -1 for any other character. */
static inline int br_hex_value(char letter)
{
    unsigned digit = (uint8_t)letter - (unsigned)'0';
    unsigned beyond_nine = ((uint8_t)letter | 0x20u) - (unsigned)'a';
    if (digit < 10)
        return (int)digit;
    return beyond_nine < 6 ? (int)beyond_nine + 10 : -1;
}

/* Writes `2 * len` lower-case hex digits, without a terminator, to `out`, a buffer of char or
 * uint8_t. Returns the address after the digits. */
static inline void *br_hex_encode(const uint8_t *data, size_t len, void *out)
{
    static const char digits[] = "0123456789abcdef";
    char *p = out;
    for (size_t i = 0; i < len; i++) {
        *p++ = digits[data[i] >> 4];
        *p++ = digits[data[i] & 15];
    }
    return p;
}

/* Decodes percent-encoding (RFC 3986 section 2.1). If `plus` is true, "+" becomes a blank, as in
 * HTML forms. `out` must have room for `len` bytes, and may be `text` itself. Returns the
 * decoded length, or -1 if a "%" is not followed by two hex digits. */
static inline long br_percent_decode(const char *text, size_t len, bool plus, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        char letter = plus && text[i] == '+' ? ' ' : text[i];
        if (letter == '%') {
            int high = len - i > 2 ? br_hex_value(text[i + 1]) : -1;
            int low = high >= 0 ? br_hex_value(text[i + 2]) : -1;
            if (low < 0)
                return -1;
            letter = (char)(high << 4 | low);
            i += 2;
        }
        out[n++] = letter;
    }
    return (long)n;
}

/* Returns the length of a code point in UTF-8 (RFC 3629 section 3), 1 to 4 bytes. */
static inline size_t br_utf8_size(uint32_t code_point)
{
    if (code_point < 0x80)
        return 1;
    if (code_point < 0x800)
        return 2;
    return code_point < 0x10000 ? 3 : 4;
}

/* Writes a code point of at most 0x10ffff as UTF-8. Returns the number of bytes written. */
static inline size_t br_utf8_encode(uint32_t code_point, char out[BR_UTF8_MAX])
{
    size_t n = br_utf8_size(code_point);
    if (n == 1) {
        out[0] = (char)code_point;
        return 1;
    }
    for (size_t i = n; i-- > 1; code_point >>= 6)
        out[i] = (char)(0x80 | (code_point & 0x3f));
    out[0] = (char)(0xf00 >> n | code_point);
    return n;
}
