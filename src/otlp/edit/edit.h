/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adds to the innermost messages of a part: attributes to spans (ResourceSpans > ScopeSpans >
 * Span), attributes and links to samples (ResourceProfiles > ScopeProfiles > Profile > Sample). In
 * protobuf an addition at the end of a message is enough: repeated fields grow, scalars take the
 * last value. New bytes are written for the additions and the length prefixes above them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "core/item.h"

/* Bytes to append to one innermost message; len 0: it stays as it is. */
struct br_addition {
    const uint8_t *data;
    size_t len;
};

/* Rewrites `part`, whose n_items innermost messages get the additions in order, into a buffer of
 * its own; a replaced Resource stays beside it. Returns 0, BR_EINVAL (the part is not what the walk
 * said) or BR_ENOMEM; on failure the item is unchanged. */
int br_part_append(struct br_item *item, struct br_part *part, const struct br_addition *additions);

/* Makes `buf`, which it takes, the bytes of `part`: one field, that a walk would accept, of the
 * part's kind. Finds its Resource again; n_items are the caller's to keep right, a replaced
 * Resource stays beside it. */
void br_part_set_bytes(struct br_item *item, struct br_part *part, struct br_buf *buf);

/* Encodes a KeyValue with a string or an int64 as field `field` of its parent, into
 * `arena`, appended to `*a`. Returns 0 or
 * BR_ENOMEM. */
int br_add_string(struct br_arena *arena, struct br_addition *addition, uint32_t field,
                  const char *key, const void *value, size_t len);
int br_add_int(struct br_arena *arena, struct br_addition *addition, uint32_t field,
               const char *key, int64_t value);

/* Add an attribute with a list of `count` values; a text is {data, len}. */
int br_add_ints(struct br_arena *arena, struct br_addition *addition, uint32_t field,
                const char *key, const int64_t *values, size_t count);
int br_add_texts(struct br_arena *arena, struct br_addition *addition, uint32_t field,
                 const char *key, const struct br_addition *values, size_t count);
