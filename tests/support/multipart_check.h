/* SPDX-License-Identifier: Apache-2.0 */
/* Checks properties of the form parser that hold for any bytes, for the unit test and the fuzz
 * target. The first line of the input is the content type, and the rest is the body. Every field
 * must be inside the body and must not contain a delimiter. The fields must be in the order of the
 * body. If the fields are written as a new form, parsing it must return the same fields. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "wire/multipart.h"

#define MULTIPART_FIELDS 8

static inline void multipart_require(bool ok)
{
    if (!ok)
        abort();
}

static inline size_t multipart_put(uint8_t *out, size_t at, const void *data, size_t len)
{
    if (len)
        memcpy(out + at, data, len);
    return at + len;
}

static inline size_t multipart_puts(uint8_t *out, size_t at, const char *text)
{
    return multipart_put(out, at, text, strlen(text));
}

/* Writes a quoted name: a backslash precedes each quote and each backslash (RFC 2183, to which RFC
 * 7578 section 2 refers). */
static inline size_t multipart_put_name(uint8_t *out, size_t at, const char *name)
{
    for (; *name; name++) {
        if (*name == '"' || *name == '\\')
            out[at++] = '\\';
        out[at++] = (uint8_t)*name;
    }
    return at;
}

static inline void multipart_again(const char *boundary, const struct br_form_field *fields,
                                   size_t n, size_t len)
{
    struct br_form_field again[MULTIPART_FIELDS];
    uint8_t *out = malloc(len + 1024 + n * 512);
    size_t at = 0, found;
    multipart_require(out != NULL);
    for (size_t i = 0; i < n; i++) {
        at = multipart_puts(out, at, "--");
        at = multipart_puts(out, at, boundary);
        at = multipart_puts(out, at, "\r\nContent-Disposition: form-data; name=\"");
        at = multipart_put_name(out, at, fields[i].name);
        at = multipart_puts(out, at, "\"\r\n\r\n");
        at = multipart_put(out, at, fields[i].data, fields[i].len);
        at = multipart_puts(out, at, "\r\n");
    }
    at = multipart_puts(out, at, "--");
    at = multipart_puts(out, at, boundary);
    at = multipart_puts(out, at, "--");
    multipart_require(
        br_multipart_parse(boundary, out, at, again, MULTIPART_FIELDS, &found, NULL) == 0);
    multipart_require(found == n);
    for (size_t i = 0; i < n; i++) {
        multipart_require(strcmp(again[i].name, fields[i].name) == 0);
        multipart_require(again[i].len == fields[i].len);
        multipart_require(!again[i].len ||
                          memcmp(again[i].data, fields[i].data, again[i].len) == 0);
    }
    free(out);
}

static inline void multipart_query(const char *text)
{
    struct br_arena arena;
    const char *value = NULL;
    size_t len = 0;
    br_arena_init(&arena, 0);
    int rc = br_query_get(text, "name", &arena, &value, &len);
    multipart_require(rc == 0 || rc == BR_ENOTFOUND);
    multipart_require(rc || (len <= strlen(text) && value[len] == '\0'));
    br_arena_release(&arena);
}

static inline void multipart_check(const uint8_t *data, size_t len)
{
    const uint8_t *eol = len ? memchr(data, '\n', len) : NULL;
    char type[256], boundary[BR_BOUNDARY_MAX + 1];
    struct br_form_field fields[MULTIPART_FIELDS];
    struct br_err err = {0};
    size_t n = 0;
    if (!eol || (size_t)(eol - data) >= sizeof type || memchr(data, '\0', (size_t)(eol - data)))
        return;
    memcpy(type, data, (size_t)(eol - data));
    type[eol - data] = '\0';
    multipart_query(type);
    if (br_multipart_boundary(type, boundary, &err)) {
        multipart_require(err.text[0]);
        return;
    }
    const uint8_t *body = eol + 1;
    size_t body_len = len - (size_t)(body - data);
    if (br_multipart_parse(boundary, body, body_len, fields, MULTIPART_FIELDS, &n, &err)) {
        multipart_require(err.text[0]);
        return;
    }
    const uint8_t *last = body;
    for (size_t i = 0; i < n; i++) {
        multipart_require(fields[i].data >= last);
        last = fields[i].data + fields[i].len;
        multipart_require(last <= body + body_len);
    }
    multipart_again(boundary, fields, n, body_len);
}
