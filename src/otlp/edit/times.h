/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Corrects times of profiles that cannot be nanoseconds since 1970: senders write seconds, milli-
 * or microseconds into these fields, or leave them 0.
 */
#pragma once

#include <stdint.h>

#include "core/item.h"

/* 1971-01-01: an earlier time is not a time in nanoseconds. */
#define BR_TIME_MIN_NS (UINT64_C(365) * 86400 * 1000000000)

/* Replaces Profile.time_unix_nano and Sample.timestamps_unix_nano before BR_TIME_MIN_NS in a
 * profiles item: by the same time in nanoseconds, if one unit makes it a time of the last 31 days;
 * otherwise by `now_ns`. A profile without a time whose samples have timestamps gets the earliest
 * of them. `*ret_corrected` is the number of profiles that changed. Returns 0, or an error of
 * br_item_rewrite, and the item is unchanged. */
int br_item_correct_times(struct br_item *item, uint64_t now_ns, uint32_t *ret_corrected);
