/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions for exchanges (wire/conn.h) that the HTTP/1.1 and HTTP/2 clients share. Only src/wire
 * includes this header.
 */
#pragma once

#include "wire/conn.h"

#define BR_EXCHANGE_RESPONSE_MAX (4u << 20) /* default of max_response, in bytes */

#define BR_EXCHANGE_DETAILS_MAX (8u << 10) /* largest decoded grpc-status-details-bin, in bytes */

/* Returns the value to send for a header that is also a field of the exchange. A value in `headers`
 * takes precedence; `own` is the field's value and may be NULL. `name` must be in lower case; names
 * in `headers` are compared without case. The Collector's clients do the same (Go's
 * http.Header.Set, Request.Host). */
const char *br_exchange_header(const struct br_exchange *exchange, const char *name,
                               const char *own);

/* Returns true for a header in `headers` that must not be sent from there:
 * - host, user-agent and content-type, which br_exchange_header returns
 * - content-length, transfer-encoding and trailer, and content-encoding if the exchange has one
 * - for gRPC, the names that grpc-go reserves */
bool br_exchange_skips(const struct br_exchange *exchange, const char *name);

/* Clears the result of an earlier use of the exchange. */
void br_exchange_begin(struct br_exchange *exchange);

/* Stores the Location of a response; `value` may be NULL. */
void br_exchange_set_location(struct br_exchange *exchange, const char *value);

/* Sets the error of an exchange. The error text is copied and truncated if necessary. */
void br_exchange_fail(struct br_exchange *exchange, int error, const char *text);

/* Appends received bytes to the response body, up to its maximum. Returns 0, BR_EFULL or
 * BR_ENOMEM. Errors are also stored in the exchange. */
int br_exchange_append(struct br_exchange *exchange, struct br_pool *pool, const uint8_t *data,
                       size_t len);

/* Frees the partial result of a cancelled exchange. */
void br_exchange_drop(struct br_exchange *exchange);

/* Removes an exchange from its connection and calls on_done, unless a redirect is followed. */
void br_exchange_finish(struct br_exchange *exchange);
