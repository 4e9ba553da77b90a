/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implements a client that adds credentials to its requests. The client asks its authenticator to
 * sign each exchange, and passes the signed exchange to another client. If the authenticator has no
 * credentials yet, the exchange waits for them. The exchange also stops waiting if it is cancelled
 * or the authenticator reports an error.
 */
#pragma once

#include "base/arena.h"
#include "core/authenticator.h"
#include "net/client.h"
#include "wire/conn.h"

#define BR_SIGNING_HEADERS_MAX 128 /* maximum number of headers of a signed request */

/* The headers of an exchange while an authenticator changes them. */
struct br_signing {
    /* the exchange, whose headers are those that the exporter has set */
    const struct br_exchange *exchange;
    struct br_arena arena; /* memory of the names and values of changed headers */
    struct br_header headers[BR_SIGNING_HEADERS_MAX];
    size_t n_headers;
    int error; /* 0, or BR_ENOMEM */
};

/* Returns the value of a header, or NULL. `name` is compared without regard to case. */
const char *br_signing_get(const struct br_signing *signing, const char *name);

/* Sets a header and removes other headers of this name. Copies the name in lower case, and the
 * value. If memory is short, sets `error`. */
void br_signing_set(struct br_signing *signing, const char *name, const char *value);

/* Removes all headers that have this name. */
void br_signing_remove(struct br_signing *signing, const char *name);

/* Makes a client that signs with the authenticator of the extension `id` and sends with `inner`.
 * Takes ownership of `inner`, also on failure. Returns 0 or BR_ENOMEM. */
int br_signing_client_new(struct br_host *host, const char *id, struct br_client *inner,
                          struct br_client **ret, struct br_err *err);
