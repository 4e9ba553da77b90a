/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums and differences of values that a peer chose. One that does not fit into 64 bits becomes the
 * nearest number that does: only hostile profiles have such values.
 */
#pragma once

#include <stdint.h>

static inline int64_t br_sum(int64_t left, int64_t right)
{
    int64_t sum;
    return __builtin_add_overflow(left, right, &sum) ? left < 0 ? INT64_MIN : INT64_MAX : sum;
}

static inline int64_t br_difference(int64_t left, int64_t right)
{
    int64_t rest;
    return __builtin_sub_overflow(left, right, &rest) ? left < 0 ? INT64_MIN : INT64_MAX : rest;
}
