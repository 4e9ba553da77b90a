/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes requests that are written as OTLP/JSON, for tests that do not depend on the exact bytes.
 * If a text does not contain any `"`, each `'` stands for a `"`. The encoder writes fields in the
 * order of the schema. Tests of another order, of repeated fields, or of bytes that no encoder
 * would write use tests/support/wire.h instead. An invalid text fails the test.
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

/* Returns an item that is parsed from the request, as a receiver does it. The item is not counted
 * in the ledger. */
struct br_item *otlp_text_item(struct br_host *host, enum br_signal signal, const char *text);
