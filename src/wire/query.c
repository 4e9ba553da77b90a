/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/str.h"
#include "wire/multipart.h"

/* Returns true if the text, after percent-decoding, is `name`. All names that callers pass are
 * shorter than the buffer. */
static bool query_is_name(const char *text, size_t len, const char *name)
{
    char plain[64];
    if (len > 3 * strlen(name) || len > sizeof plain)
        return false;
    long n = br_percent_decode(text, len, true, plain);
    return n >= 0 && br_bytes_are(plain, (size_t)n, name);
}

int br_query_get(const char *query, const char *name, struct br_arena *arena, const char **ret,
                 size_t *ret_len)
{
    for (const char *p = query; *p;) {
        size_t len = strcspn(p, "&");
        const char *equals = memchr(p, '=', len);
        size_t name_len = equals ? (size_t)(equals - p) : len;
        if (query_is_name(p, name_len, name)) {
            const char *value = equals ? equals + 1 : p + len;
            size_t value_len = (size_t)(p + len - value);
            char *out = br_arena_alloc(arena, value_len + 1);
            if (!out)
                return BR_ENOMEM;
            long n = br_percent_decode(value, value_len, true, out);
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

/* --- Strict parsing ----------------------------------------------------------------------------
 */

#define SHOWN_MAX 64 /* number of bytes of an unknown name that an error shows */

static int query_refuse(struct br_err *err, const char *name, const char *why)
{
    int rc = br_err_set(err, BR_EINVAL, "%s", why);
    if (err)
        (void)snprintf(err->path, sizeof err->path, "%s", name);
    return rc;
}

/* Returns a text that describes why a parameter's value is invalid, or NULL if the value is
 * valid. Values must be nonempty UTF-8 without control characters. */
static const char *query_fault_of(const char *value, size_t len)
{
    if (len == 0)
        return "must not be empty";
    if (br_utf8_valid((const uint8_t *)value, len) != len)
        return "must be UTF-8";
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)value[i] < 0x20 || value[i] == 0x7f)
            return "must not contain control characters";
    return NULL;
}

static int query_read_pair(const char *pair, size_t len, struct br_query_param *params,
                           size_t count, struct br_arena *arena, struct br_err *err)
{
    const char *equals = memchr(pair, '=', len), *fault;
    size_t name_len = equals ? (size_t)(equals - pair) : len;
    struct br_query_param *p = params;
    while (p < params + count && !query_is_name(pair, name_len, p->name))
        p++;
    if (p == params + count)
        return br_err_set(err, BR_EINVAL, "unknown query parameter \"%.*s\"",
                          (int)(name_len < SHOWN_MAX ? name_len : SHOWN_MAX), pair);
    if (p->value)
        return query_refuse(err, p->name, "occurs more than once");
    const char *value = equals ? equals + 1 : pair + len;
    char *out = br_arena_alloc(arena, len + 1);
    if (!out)
        return BR_ENOMEM;
    long value_len = br_percent_decode(value, (size_t)(pair + len - value), true, out);
    if (value_len < 0)
        return query_refuse(err, p->name, "has a % that two hexadecimal digits do not follow");
    if ((fault = query_fault_of(out, (size_t)value_len)))
        return query_refuse(err, p->name, fault);
    out[value_len] = '\0';
    p->value = out;
    p->len = (size_t)value_len;
    return 0;
}

int br_query_read(const char *query, struct br_query_param *params, size_t count,
                  struct br_arena *arena, struct br_err *err)
{
    if (!*query)
        return 0;
    for (const char *p = query;; p++) {
        size_t len = strcspn(p, "&");
        int rc = query_read_pair(p, len, params, count, arena, err);
        if (rc)
            return rc;
        p += len;
        if (!*p)
            return 0;
    }
}
