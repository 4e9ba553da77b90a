/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same request with its fields in another order. Protobuf lets a sender write a message's
 * fields in any: most write them rising; Go's pdata, and with it every Collector, writes them
 * falling. Source: protobuf.dev/programming-guides/encoding, "Field Order".
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "core/item.h"
#include "tests/support/wire.h"

enum reorder { REORDER_NOT, REORDER_RISING, REORDER_FALLING, REORDER_SHUFFLED, REORDERS };

/* Returns the name of an order, or NULL from REORDERS on. */
const char *reorder_name(enum reorder order);

/* Writes every message of `*w`, a message of that type, with its fields in that order, at every
 * depth. What a message means stays: fields of one number, and those of a oneof, keep their order
 * among each other. `*random` is the state of what shuffles. The test fails when `*w` is malformed.
 */
void reorder_message(struct wire *w, const ProtobufCMessageDescriptor *type, enum reorder order,
                     uint64_t *random);

/* The same for an export request. */
void reorder_request(struct wire *w, enum br_signal signal, enum reorder order, uint64_t *random);
