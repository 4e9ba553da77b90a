/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/str.h"
#include "wire/multipart.h"

/* Decodes in place of `out`, which has `len` bytes; the length, or -1 when an escape is broken. */
static long decode(const char *text, size_t len, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] != '%') {
            out[n++] = text[i] == '+' ? ' ' : text[i];
            continue;
        }
        uint8_t byte;
        if (len - i < 3 || br_hex_decode(text + i + 1, 2, &byte, 1) != 1)
            return -1;
        out[n++] = (char)byte;
        i += 2;
    }
    return (long)n;
}

/* True when an encoded name is `name`; no name that we ask for is longer than the buffer. */
static bool is_name(const char *text, size_t len, const char *name)
{
    char plain[64];
    if (len > 3 * strlen(name) || len > sizeof plain)
        return false;
    long n = decode(text, len, plain);
    return n >= 0 && (size_t)n == strlen(name) && memcmp(plain, name, (size_t)n) == 0;
}

int br_query_get(const char *query, const char *name, struct br_arena *arena, const char **ret,
                 size_t *ret_len)
{
    for (const char *p = query; *p;) {
        size_t len = strcspn(p, "&");
        const char *equals = memchr(p, '=', len);
        size_t name_len = equals ? (size_t)(equals - p) : len;
        if (is_name(p, name_len, name)) {
            const char *value = equals ? equals + 1 : p + len;
            size_t value_len = (size_t)(p + len - value);
            char *out = br_arena_alloc(arena, value_len + 1);
            if (!out)
                return BR_ENOMEM;
            long n = decode(value, value_len, out);
            if (n >= 0) {
                out[n] = '\0';
                *ret = out;
                *ret_len = (size_t)n;
                return 0;
            }
        }
        p += len + (p[len] == '&');
    }
    return BR_ENOTFOUND;
}
