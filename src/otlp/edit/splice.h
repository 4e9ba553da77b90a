/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies a message and applies changes to fields that are nested deep inside it. A walk over the
 * message reports the messages that it enters and leaves, and its changes, in the order of the
 * bytes. The bytes between changes are copied in runs, and the length prefixes of the messages that
 * contain changes are corrected. Nothing is copied before the first change.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/protobuf.h"

#define BR_SPLICE_DEPTH_MAX 4096

/* A message that the walk has entered and not left yet. */
struct br_frame {
    const uint8_t *at, *data, *end; /* tag, start of the body, and end of the body in the source */
    uint32_t field;
    uint32_t out_at;   /* offset of the message's tag in the output */
    uint32_t reserved; /* number of bytes reserved for the message's length in the output */
    bool open;         /* the message's tag and length have been written to the output */
};

struct br_splice {
    struct br_pool *pool;
    struct br_buf *out;                /* output; NULL: nothing has changed so far */
    const uint8_t *src, *copied, *end; /* start, next byte to copy, and end of the source */
    struct br_frame *frames;
    uint32_t depth, cap;
};

/* Initialises a splice whose output is empty. Allocates nothing. */
void br_splice_init(struct br_splice *splice, struct br_pool *pool);
void br_splice_release(struct br_splice *splice);

/* Begins a copy of the `len` bytes at `src`, which the caller keeps until br_splice_take.
 * Discards the previous output. */
void br_splice_begin(struct br_splice *splice, const uint8_t *src, size_t len);

/* The functions below return 0, BR_ENOMEM or BR_EFULL (the output exceeds BR_BUF_MAX bytes, or
 * there are more than BR_SPLICE_DEPTH_MAX frames). After a failure only br_splice_begin and
 * br_splice_release may be called. */

/* Records that the walk enters the message `field`, which ends at `next`. */
int br_splice_enter(struct br_splice *splice, const struct br_field *field, const uint8_t *next);

/* Records that the walk leaves the innermost message. */
int br_splice_leave(struct br_splice *splice);

/* Records that the walk leaves the innermost message, and omits that message from the output. */
int br_splice_leave_out(struct br_splice *splice);

/* Omits the source bytes from `at` to `next` from the output. */
int br_splice_cut(struct br_splice *splice, const uint8_t *at, const uint8_t *next);

/* Replaces the source bytes from `at` to `next` with a field `field` that has the `len` bytes at
 * `data` as its body. */
int br_splice_replace(struct br_splice *splice, uint32_t field, const uint8_t *at,
                      const uint8_t *next, const void *data, size_t len);

/* Inserts the `len` bytes at `data` into the output before the source byte `at`. */
int br_splice_insert(struct br_splice *splice, const uint8_t *at, const void *data, size_t len);

/* Stores the output in `*ret` and passes its ownership to the caller. Stores NULL if nothing
 * changed. */
int br_splice_take(struct br_splice *splice, struct br_buf **ret);
