/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes random requests of both signals, for tests of code that rewrites requests. The requests
 * have unusual field orders, unknown fields, and lengths of five bytes. protobuf-c reads the
 * results.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "core/item.h"
#include "tests/support/wire.h"

struct gen {
    struct wire *w;
    uint64_t random;
    enum br_signal signal;
};

/* Returns a random number below `n`. */
unsigned gen_below(struct gen *g, unsigned n);

/* Writes a valid request to g->w. All indices in its samples are 0. */
void gen_request(struct gen *g);

/* gen_decode unpacks a message with protobuf-c; the caller frees it with
 * protobuf_c_message_free_unpacked. gen_encode packs a message. Both fail the test on an error. */
void *gen_decode(const ProtobufCMessageDescriptor *d, const void *data, size_t len);
struct wire gen_encode(const void *message);

/* Returns the bytes of the item. Fails the test unless their number is the item's size. For
 * dictionary additions, the number may be smaller. */
struct wire gen_written(struct br_item *item);
