/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saturating arithmetic for values that a client chose: a result that does not fit into 64 bits
 * becomes the nearest number that does.
 */
#pragma once

#include <stdint.h>

static inline int64_t br_sum(int64_t first, int64_t second)
{
    int64_t sum;
    if (!__builtin_add_overflow(first, second, &sum))
        return sum;
    return first < 0 ? INT64_MIN : INT64_MAX;
}

static inline int64_t br_difference(int64_t first, int64_t second)
{
    int64_t difference;
    if (!__builtin_sub_overflow(first, second, &difference))
        return difference;
    return first < 0 ? INT64_MIN : INT64_MAX;
}

static inline int64_t br_product(int64_t first, int64_t second)
{
    int64_t product;
    if (!__builtin_mul_overflow(first, second, &product))
        return product;
    return (first < 0) == (second < 0) ? INT64_MAX : INT64_MIN;
}

static inline uint64_t br_sum_unsigned(uint64_t first, uint64_t second)
{
    uint64_t sum;
    return __builtin_add_overflow(first, second, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t br_product_unsigned(uint64_t first, uint64_t second)
{
    uint64_t product;
    return __builtin_mul_overflow(first, second, &product) ? UINT64_MAX : product;
}
