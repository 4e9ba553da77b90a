/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Corrects the times of profiles that cannot be in nanoseconds since 1970. Some senders write
 * seconds, milliseconds or microseconds into the time fields, or leave the fields 0.
 */
#pragma once

#include <stdint.h>

#include "core/item.h"

/* 1971-01-01 in nanoseconds since 1970: a smaller time must be in another unit. */
#define BR_TIME_MIN_NS (UINT64_C(365) * 86400 * 1000000000)

/* Corrects the values of Profile.time_unix_nano and Sample.timestamps_unix_nano below
 * BR_TIME_MIN_NS in a profiles item. A value is converted if, read as seconds, milliseconds or
 * microseconds, it is between 31 days ago and one day ahead. Otherwise it becomes `now_ns`. A
 * profile without a time gets the earliest timestamp of its samples, or `now_ns` if they have
 * none.
 *
 * `*ret_corrected` is the number of profiles that changed. Returns 0 or an error of
 * br_item_rewrite; on failure the item is unchanged. */
int br_item_correct_times(struct br_item *item, uint64_t now_ns, uint32_t *ret_corrected);
