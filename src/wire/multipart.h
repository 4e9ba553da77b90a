/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses multipart/form-data (RFC 7578, by the grammar of RFC 2046 section 5.1) and the query part
 * of URLs (application/x-www-form-urlencoded, WHATWG URL section 5.1).
 *
 * Strict where bytes could mean two things: lines end with CRLF, every part is a form-data with a
 * name, the end has to be there, and encodings of a part that RFC 7578 section 4.7 gave up are
 * refused. Preamble and epilogue are skipped; white space behind a boundary is none of it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

#define BR_BOUNDARY_MAX 70     /* RFC 2046 section 5.1.1 */
#define BR_FORM_NAME_MAX 63    /* bytes of a field's name */
#define BR_FORM_HEAD_MAX 4096  /* bytes of a part's headers ... */
#define BR_FORM_HEADERS_MAX 16 /* ... and lines */

/* Returns true when a Content-Type is multipart/form-data, whatever its parameters. */
bool br_multipart_is(const char *type);

/* Finds the boundary of such a Content-Type. Returns 0, or BR_EINVAL with a sentence: there is
 * none, more than one, or it has no boundary's length or characters. */
int br_multipart_boundary(const char *type, char ret[BR_BOUNDARY_MAX + 1], struct br_err *err);

struct br_form_field {
    char name[BR_FORM_NAME_MAX + 1];
    const uint8_t *data; /* inside the body */
    size_t len;
};

/* Finds the fields of a form, in the body's order, without copying their data. Returns 0, or
 * BR_EINVAL with a sentence, when the body is no form or has more than `max` fields. */
int br_multipart_parse(const char *boundary, const uint8_t *data, size_t len,
                       struct br_form_field *ret, size_t max, size_t *ret_n, struct br_err *err);

/* Returns the first field of the name, or NULL. */
const struct br_form_field *br_form_find(const struct br_form_field *fields, size_t count,
                                         const char *name);

/* Finds the first value of a name in the query part of a URL, with %XX and `+` decoded,
 * terminated, in the arena. A pair with a broken escape is none. Returns 0, BR_ENOTFOUND or
 * BR_ENOMEM. */
int br_query_get(const char *query, const char *name, struct br_arena *arena, const char **ret,
                 size_t *ret_len);

/* A parameter that a query may have. */
struct br_query_param {
    const char *name;
    const char *value; /* NULL: it is not there; else terminated, in the arena */
    size_t len;
};

/* Reads a query that may have nothing but `params`, whose values are NULL before: each at most
 * once, with a value of UTF-8 without control characters that is not empty. For requests that would
 * do more than was meant where a filter is overlooked. Returns 0, BR_ENOMEM, or BR_EINVAL with a
 * sentence, and the name in err->path where it is one of `params`. */
int br_query_read(const char *query, struct br_query_param *params, size_t count,
                  struct br_arena *arena, struct br_err *err);
