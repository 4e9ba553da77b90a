/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a request again with its fields in another order. Protobuf allows any order
 * (protobuf.dev/programming-guides/encoding, "Field Order"). Most encoders write fields in rising
 * order of their numbers. Go's pdata, which every Collector uses, writes them in falling order.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "core/item.h"
#include "tests/support/wire.h"

enum reorder { REORDER_NOT, REORDER_RISING, REORDER_FALLING, REORDER_SHUFFLED, REORDERS };

/* Returns the name of an order, or NULL if `order` is REORDERS or greater. */
const char *reorder_name(enum reorder order);

/* `*w` contains a message of this type. Writes it again with the fields of all messages, at every
 * depth, in this order. The meaning of the message does not change: fields with the same number
 * keep their relative order, and so do the fields of a oneof. `*random` is the state of the
 * shuffle. Fails the test if `*w` is malformed. */
void reorder_message(struct wire *w, const ProtobufCMessageDescriptor *type, enum reorder order,
                     uint64_t *random);

/* Does the same for an export request. */
void reorder_request(struct wire *w, enum br_signal signal, enum reorder order, uint64_t *random);
