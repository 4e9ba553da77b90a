/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random requests of either signal for tests of what is rewritten: fields in odd orders and
 * numbers, unknown ones, lengths of five bytes; and protobuf-c, which reads what came of them.
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

/* A random number below `n`. */
unsigned gen_below(struct gen *g, unsigned n);

/* Makes `w` a valid request; all indices in samples are 0. */
void gen_request(struct gen *g);

/* What protobuf-c unpacks, to be freed by protobuf_c_message_free_unpacked; and packs. The test
 * fails where it does not. */
void *gen_decode(const ProtobufCMessageDescriptor *d, const void *data, size_t len);
struct wire gen_encode(const void *message);

/* The item's bytes. The test fails unless they are as many as the item says (additions apart). */
struct wire gen_written(struct br_item *item);
