/* SPDX-License-Identifier: Apache-2.0 */
/* Resolves the Location of a redirect against the URL that was requested (RFC 9110 section 10.2.2,
 * RFC 3986 section 5). */
#pragma once

#include "net/client.h"

#define BR_URL_PATH_MAX 1024 /* bytes of a path with its query, including the terminator */

/* An absolute http or https URL. */
struct br_url {
    struct br_endpoint server;  /* scheme, host and port; the `path` of this endpoint is empty */
    char path[BR_URL_PATH_MAX]; /* path of the URL: starts with a slash and includes the query */
};

/* Resolves `reference`, absolute or relative, against the server and `path` (with its query) of
 * the request. The fragment is removed. Returns 0 or BR_EINVAL. An invalid reference is too long or
 * is not an http or https URL. It is also invalid if it contains a user name, a space, a control
 * character or a byte above 0x7e. */
int br_url_resolve(const struct br_endpoint *server, const char *path, const char *reference,
                   struct br_url *ret);

/* Returns true if both have the same scheme, host (case-insensitive) and port. */
bool br_url_same_origin(const struct br_endpoint *one, const struct br_endpoint *other);
