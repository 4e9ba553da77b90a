/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the same request with its fields in another order. Protobuf allows any order: most
 * encoders write fields in rising order, Go's pdata, and with it every Collector, in falling order.
 * Source: protobuf.dev/programming-guides/encoding, "Field Order".
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "core/item.h"
#include "tests/support/wire.h"

enum reorder { REORDER_NOT, REORDER_RISING, REORDER_FALLING, REORDER_SHUFFLED, REORDERS };

/* Returns the name of an order, or NULL from REORDERS on. */
const char *reorder_name(enum reorder order);

/* Writes every message of `*w`, a message of that type, with its fields in that order, at every
 * depth. The meaning of the message does not change: fields of one number, and those of a oneof,
 * keep their relative order. `*random` is the state of the shuffle. Fails the test if `*w` is
 * malformed. */
void reorder_message(struct wire *w, const ProtobufCMessageDescriptor *type, enum reorder order,
                     uint64_t *random);

/* As above, for an export request. */
void reorder_request(struct wire *w, enum br_signal signal, enum reorder order, uint64_t *random);
