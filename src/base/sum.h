/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saturating arithmetic for values that a client chose: a result that does not fit into 64 bits
 * becomes the nearest number that does.
 */
#pragma once

#include <stdint.h>

static inline int64_t br_sum(int64_t a, int64_t b)
{
    int64_t sum;
    if (!__builtin_add_overflow(a, b, &sum))
        return sum;
    return a < 0 ? INT64_MIN : INT64_MAX;
}

static inline int64_t br_difference(int64_t a, int64_t b)
{
    int64_t difference;
    if (!__builtin_sub_overflow(a, b, &difference))
        return difference;
    return a < 0 ? INT64_MIN : INT64_MAX;
}

static inline int64_t br_product(int64_t a, int64_t b)
{
    int64_t product;
    if (!__builtin_mul_overflow(a, b, &product))
        return product;
    return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}

static inline uint64_t br_sum_unsigned(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t br_product_unsigned(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}
