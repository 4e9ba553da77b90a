/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that adds credentials to its requests. It is in front of another client and asks its
 * authenticator to sign each exchange. If the credentials are not there yet, the exchange waits
 * until they are, until it is cancelled, or until the authenticator reports an error.
 */
#pragma once

#include "base/arena.h"
#include "core/authenticator.h"
#include "net/client.h"
#include "wire/conn.h"

#define BR_SIGNING_HEADERS_MAX 128 /* most headers of a signed request */

/* The headers of an exchange while an authenticator changes them. */
struct br_signing {
    const struct br_exchange *exchange; /* the exchange, with the headers of the exporter */
    struct br_arena arena;              /* memory of the names and values of changed headers */
    struct br_header headers[BR_SIGNING_HEADERS_MAX];
    size_t n_headers;
    int error; /* 0, or BR_ENOMEM */
};

/* Returns the value of a header, or NULL. The case of `name` is ignored. */
const char *br_signing_get(const struct br_signing *signing, const char *name);

/* Sets a header and removes other headers of this name. The name, which becomes lower case, and the
 * value are copied. A failure sets `error`. */
void br_signing_set(struct br_signing *signing, const char *name, const char *value);

/* Removes all headers of this name. */
void br_signing_remove(struct br_signing *signing, const char *name);

/* Makes a client that signs with the authenticator of the extension `id` and sends with `inner`,
 * which it owns also after a failure. Returns 0 or BR_ENOMEM. */
int br_signing_client_new(struct br_host *host, const char *id, struct br_client *inner,
                          struct br_client **ret, struct br_err *err);
