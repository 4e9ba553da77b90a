/* SPDX-License-Identifier: Apache-2.0 */
/* Resolves the Location of a redirect against the URL that was requested (RFC 9110 section 10.2.2,
 * RFC 3986 section 5). */
#pragma once

#include "net/client.h"

#define BR_URL_PATH_MAX 1024 /* bytes of a path with its query, terminated */

/* An absolute URL: http or https. */
struct br_url {
    struct br_endpoint server;  /* its own path is empty */
    char path[BR_URL_PATH_MAX]; /* from the slash on, with the query */
};

/* Resolves `reference`, absolute or relative, against the server and the `path` (with its query) of
 * the request. The fragment is dropped. Returns 0, or BR_EINVAL when the reference is not an http
 * or https URL, contains a user name, a space, a control character or a byte over 0x7e, or is too
 * long. */
int br_url_resolve(const struct br_endpoint *server, const char *path, const char *reference,
                   struct br_url *ret);

/* Returns true when both name the same scheme, host (in any case) and port. */
bool br_url_same_origin(const struct br_endpoint *one, const struct br_endpoint *other);
