/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests written as OTLP/JSON, for tests that do not depend on the exact bytes. A text without a
 * `"` may use `'` instead. Fields are encoded in the schema's order. Tests of another order, of
 * repeated fields or of bytes that no encoder would write use tests/support/wire.h. An invalid text
 * fails the test.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "pipeline/component.h"

/* Returns the request's bytes, in a new buffer of the pool that the caller owns. */
struct br_buf *otlp_text(struct br_pool *pool, enum br_signal signal, const char *text);

/* Returns the bytes of one message of that type, in a new buffer that the caller owns. */
struct br_buf *otlp_text_message(struct br_pool *pool, const ProtobufCMessageDescriptor *type,
                                 const char *text);

/* Returns the bytes of a Resource whose one attribute is service.name, in a new buffer that the
 * caller owns. */
struct br_buf *otlp_text_service(struct br_pool *pool, const char *service);

/* Returns an item of these bytes as a receiver would make it, not in the ledger. */
struct br_item *otlp_text_item(struct br_host *host, enum br_signal signal, const char *text);
