/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions for an exchange (wire/conn.h) that the clients of both HTTP versions share. For
 * src/wire/ only.
 */
#pragma once

#include "wire/conn.h"

#define BR_EXCHANGE_RESPONSE_MAX (4u << 20) /* bytes, where an exchange says none */

#define BR_EXCHANGE_DETAILS_MAX (8u << 10) /* bytes of grpc-status-details-bin, decoded */

/* Returns what is sent of a header that the exchange has a field for: the value of the one in
 * `headers`, which replaces the field, else `own`, which may be NULL. `name` is in lower case;
 * names in `headers` may be in any. The Collector's clients do the same (Go's http.Header.Set,
 * Request.Host). */
const char *br_exchange_header(const struct br_exchange *exchange, const char *name,
                               const char *own);

/* Returns true for a header in `headers` that is not sent as it stands: what replaces a field, and
 * what frames the body and is said by the connection alone (content-length, transfer-encoding,
 * trailer; content-encoding where the exchange has one; of gRPC what grpc-go reserves). */
bool br_exchange_skips(const struct br_exchange *exchange, const char *name);

/* Clears the result of what was exchanged before. */
void br_exchange_begin(struct br_exchange *exchange);

/* Keeps the Location of an answer; NULL: it has none. */
void br_exchange_set_location(struct br_exchange *exchange, const char *value);

/* Sets why there is no response. The text is copied, and cut off when longer. */
void br_exchange_fail(struct br_exchange *exchange, int error, const char *text);

/* Appends to the response, within its maximum. Returns 0, BR_EFULL or BR_ENOMEM, which then is the
 * exchange's error. */
int br_exchange_append(struct br_exchange *exchange, struct br_pool *pool, const uint8_t *data,
                       size_t len);

/* Gives back what a result holds, for an exchange that is given up. */
void br_exchange_drop(struct br_exchange *exchange);

/* Takes the exchange off its connection, and calls on_done unless a redirect is followed. */
void br_exchange_finish(struct br_exchange *exchange);
