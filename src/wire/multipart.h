/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses multipart/form-data (RFC 7578, with the grammar of RFC 2046 section 5.1). Also parses the
 * query part of URLs (application/x-www-form-urlencoded, WHATWG URL section 5.1).
 *
 * The form parser rejects ambiguous input. Lines must end with CRLF, every part must be form-data
 * with a name, and the closing delimiter must be present. Content-Transfer-Encoding, which RFC 7578
 * section 4.7 deprecates, must not change the bytes. Preamble, epilogue and white space after a
 * boundary are skipped.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

#define BR_BOUNDARY_MAX 70     /* largest length of a boundary, in bytes (RFC 2046 section 5.1.1) */
#define BR_FORM_NAME_MAX 63    /* largest length of a field name, in bytes */
#define BR_FORM_HEAD_MAX 4096  /* largest size of the headers of a part, in bytes */
#define BR_FORM_HEADERS_MAX 16 /* maximum number of header lines of a part */

/* Returns true if a Content-Type is multipart/form-data, with any parameters. Accepts NULL. */
bool br_multipart_is(const char *type);

/* Copies the boundary of a multipart/form-data Content-Type. Returns 0, or BR_EINVAL with a
 * message in `err` if the type has no boundary, more than one boundary, or an invalid boundary. */
int br_multipart_boundary(const char *type, char ret[BR_BOUNDARY_MAX + 1], struct br_err *err);

struct br_form_field {
    char name[BR_FORM_NAME_MAX + 1];
    const uint8_t *data; /* content of the field, `len` bytes inside the body of the request */
    size_t len;
};

/* Finds the fields of a form, in order, without copying their data. Returns 0, or BR_EINVAL with
 * a message in `err` if the form is malformed or has more than `max` fields. */
int br_multipart_parse(const char *boundary, const uint8_t *data, size_t len,
                       struct br_form_field *ret, size_t max, size_t *ret_n, struct br_err *err);

/* Returns the first field called `name`, or NULL. */
const struct br_form_field *br_form_find(const struct br_form_field *fields, size_t count,
                                         const char *name);

/* Finds the first value of the parameter `name` in the query part of a URL. The value is decoded
 * (%XX and `+`), terminated, and allocated in the arena. A parameter with a malformed escape is
 * ignored. Returns 0, BR_ENOTFOUND or BR_ENOMEM. */
int br_query_get(const char *query, const char *name, struct br_arena *arena, const char **ret,
                 size_t *ret_len);

/* A parameter that a query may contain. */
struct br_query_param {
    const char *name;
    /* decoded and terminated value of the parameter, allocated in the arena; NULL if the parameter
     * is absent */
    const char *value;
    size_t len;
};

/* Parses a query that may only contain `params`, whose values must be NULL before the call. Each
 * parameter may occur once, with a nonempty UTF-8 value without control characters. This function
 * is intended for requests where ignoring an unknown parameter, such as a filter, would be harmful.
 * Returns 0, BR_ENOMEM, or BR_EINVAL with a message in `err`. If the error concerns one of
 * `params`, `err->path` is the name of that parameter. */
int br_query_read(const char *query, struct br_query_param *params, size_t count,
                  struct br_arena *arena, struct br_err *err);
