/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What both HTTP versions do with an exchange (wire/conn.h) on a client's connection. For
 * src/wire/ only.
 */
#pragma once

#include "wire/conn.h"

#define BR_EXCHANGE_RESPONSE_MAX (4u << 20) /* bytes, where an exchange says none */

/* Clears the result of what was exchanged before. */
void br_exchange_begin(struct br_exchange *exchange);

/* Sets why there is no response. The text is copied, and cut off when longer. */
void br_exchange_fail(struct br_exchange *exchange, int error, const char *text);

/* Appends to the response, within its maximum. Returns 0, BR_EFULL or BR_ENOMEM, which then is the
 * exchange's error. */
int br_exchange_append(struct br_exchange *exchange, struct br_pool *pool, const uint8_t *data,
                       size_t len);

/* Takes the exchange off its connection, and calls on_done. */
void br_exchange_finish(struct br_exchange *exchange);
