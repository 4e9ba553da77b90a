/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random requests of either signal for tests of rewriting code: unusual field orders and numbers,
 * unknown fields, lengths of five bytes. protobuf-c reads the results.
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

/* Fills `w` with a valid request; all indices in samples are 0. */
void gen_request(struct gen *g);

/* Unpacks with protobuf-c, to be freed by protobuf_c_message_free_unpacked; and packs. Either
 * fails the test on an error. */
void *gen_decode(const ProtobufCMessageDescriptor *d, const void *data, size_t len);
struct wire gen_encode(const void *message);

/* Returns the item's bytes. Fails the test unless their number is the item's size (additions
 * excepted). */
struct wire gen_written(struct br_item *item);
