/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adds fields to the innermost messages of a ResourceSpans or ResourceProfiles: attributes to spans
 * (ResourceSpans > ScopeSpans > Span), attributes and links to samples (ResourceProfiles >
 * ScopeProfiles > Profile > Sample).
 *
 * The additions are appended to the bytes of the message. Protobuf allows this: repeated fields
 * grow, and the last value of a scalar field counts. Only the additions and the length prefixes of
 * the enclosing messages are encoded anew.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "core/item.h"

/* Bytes to append to one innermost message. If `len` is 0, the message stays unchanged. */
struct br_addition {
    const uint8_t *data;
    size_t len;
};

/* Appends additions[i] to the innermost message number i of `part`. `additions` has `n_records`
 * elements, as many as the part has records. The result is a new buffer; part->new_resource is
 * kept. Returns 0, BR_ENOMEM, or BR_EINVAL if the part is malformed or has another number of
 * innermost messages. On failure the item is unchanged. */
int br_part_append(struct br_item *item, struct br_part *part, const struct br_addition *additions);

/* Replaces the bytes of `part` with `buf` and takes ownership of `buf`. `buf` must contain one
 * valid field of the part's kind, which br_walk would accept. Finds the position of the Resource in
 * the new bytes; part->new_resource is kept. The caller updates `n_records` of the part and the
 * item. Discards the item's list of spans. */
void br_part_set_bytes(struct br_item *item, struct br_part *part, struct br_buf *buf);

/* br_add_string encodes a KeyValue with a string, and br_add_int with an int64, as field `field` of
 * its parent. The KeyValue is appended to `addition`, whose bytes are in `arena`. Returns 0 or
 * BR_ENOMEM. */
int br_add_string(struct br_arena *arena, struct br_addition *addition, uint32_t field,
                  const char *key, const void *value, size_t len);
int br_add_int(struct br_arena *arena, struct br_addition *addition, uint32_t field,
               const char *key, int64_t value);

/* br_add_ints and br_add_texts append an attribute whose value is a list of `count` integers or
 * texts. Each text is passed as the bytes of one br_addition. Returns 0 or BR_ENOMEM. */
int br_add_ints(struct br_arena *arena, struct br_addition *addition, uint32_t field,
                const char *key, const int64_t *values, size_t count);
int br_add_texts(struct br_arena *arena, struct br_addition *addition, uint32_t field,
                 const char *key, const struct br_addition *values, size_t count);

/* --- Times (times.c) -------------------------------------------------------------------------- */

/*
 * Corrects the times of profiles that cannot be in nanoseconds since 1970. Some senders write
 * seconds, milliseconds or microseconds into the time fields, or leave the fields 0.
 */

/* 1971-01-01 in nanoseconds since 1970: a smaller time must be in another unit. */
#define BR_TIME_MIN_NS (UINT64_C(365) * 86400 * 1000000000)

/* Corrects the values of Profile.time_unix_nano and Sample.timestamps_unix_nano below
 * BR_TIME_MIN_NS in a profiles item. A value is converted if, interpreted as seconds, milliseconds
 * or microseconds, it is a time between 31 days ago and one day ahead. Any other value becomes
 * `now_ns`. A profile without a time gets the earliest timestamp of its samples, or `now_ns` if the
 * samples have no timestamps.
 *
 * `*ret_corrected` is the number of profiles that changed. Returns 0 or an error of
 * br_item_rewrite; on failure the item is unchanged. */
int br_item_correct_times(struct br_item *item, uint64_t now_ns, uint32_t *ret_corrected);
