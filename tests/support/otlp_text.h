/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests out of OTLP/JSON, for tests in which the bytes are not the point. A text without a `"`
 * has `'` for it. The fields come in the schema's order: tests of another order, of fields that
 * come twice or of what no encoder would write use tests/support/wire.h. A text that is no request
 * fails the test.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "pipeline/component.h"

/* The request's bytes, in a new buffer of the pool that the caller owns. */
struct br_buf *otlp_text(struct br_pool *pool, enum br_signal signal, const char *text);

/* The bytes of one message of that type, likewise. */
struct br_buf *otlp_text_message(struct br_pool *pool, const ProtobufCMessageDescriptor *type,
                                 const char *text);

/* The bytes of a Resource whose one attribute is service.name, likewise. */
struct br_buf *otlp_text_service(struct br_pool *pool, const char *service);

/* An item of them as a receiver would make it, not in the ledger. */
struct br_item *otlp_text_item(struct br_host *host, enum br_signal signal, const char *text);
