/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies a message with changes deep inside it. A walk over the message says which messages it
 * enters and leaves and what it changes, in the order of the bytes; what lies between the changes
 * is copied in runs, with the lengths above them made right, and nothing is copied before the first
 * change.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/protobuf.h"

#define BR_SPLICE_DEPTH_MAX 4096

/* A message that the walk is in. */
struct br_frame {
    const uint8_t *at, *data, *end; /* tag, body, and behind it */
    uint32_t field;
    uint32_t out_at;   /* where it begins in the output */
    uint32_t reserved; /* bytes for its length there */
    bool open;         /* in the output */
};

struct br_splice {
    struct br_pool *pool;
    struct br_buf *out;                /* NULL: nothing changed so far */
    const uint8_t *src, *copied, *end; /* the source is in the output up to `copied` */
    struct br_frame *frames;
    uint32_t depth, cap;
};

/* Prepares a zeroed splice; allocates nothing. */
void br_splice_init(struct br_splice *splice, struct br_pool *pool);
void br_splice_release(struct br_splice *splice);

/* Begins with `len` bytes at `src`, which stay where they are until br_splice_take; forgets what
 * was before. */
void br_splice_begin(struct br_splice *splice, const uint8_t *src, size_t len);

/* The functions below return 0, BR_ENOMEM or BR_EFULL (more than BR_BUF_MAX bytes come out, or more
 * than BR_SPLICE_DEPTH_MAX frames); after a failure only begin and release are in order. */

/* Follow the walk into the message `field`, a field that ends at `next`, and out of the innermost.
 */
int br_splice_enter(struct br_splice *splice, const struct br_field *field, const uint8_t *next);
int br_splice_leave(struct br_splice *splice);

/* Follows the walk out of the innermost message, which is left out as a whole. */
int br_splice_leave_out(struct br_splice *splice);

/* Leaves out the bytes from `at` to `next`; puts the field `field` or any bytes there instead. */
int br_splice_cut(struct br_splice *splice, const uint8_t *at, const uint8_t *next);
int br_splice_replace(struct br_splice *splice, uint32_t field, const uint8_t *at,
                      const uint8_t *next, const void *data, size_t len);
int br_splice_insert(struct br_splice *splice, const uint8_t *at, const void *data, size_t len);

/* Gives in `*ret`, which the caller owns, what came out, or NULL when nothing was changed. */
int br_splice_take(struct br_splice *splice, struct br_buf **ret);
