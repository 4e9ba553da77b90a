/* SPDX-License-Identifier: Apache-2.0 */
#include "base/decimal.h"

/* every number with this many digits fits into 64 bits */
#define SAFE_DIGITS 19
#define FRACTION_SCALE 1000000000000000000u /* 10 to the power of 18 */

__extension__ typedef unsigned __int128 wide;

bool br_decimal_read(const char **p, const char *end, uint64_t max, uint64_t *ret)
{
    const char *at = *p, *safe = end - at > SAFE_DIGITS ? at + SAFE_DIGITS : end;
    uint64_t value = 0;
    for (; at < safe && br_is_digit(*at); at++)
        value = value * 10 + (uint64_t)(*at - '0');
    bool fits = at > *p;
    for (; at < end && br_is_digit(*at); at++)
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            fits = false;
    *p = at;
    if (!fits || value > max)
        return false;
    *ret = value;
    return true;
}

bool br_decimal_parse(const char *text, size_t len, uint64_t max, uint64_t *ret)
{
    uint64_t value;
    if (!len)
        return false;
    const char *p = text, *end = text + len;
    if (!br_decimal_read(&p, end, max, &value) || p != end)
        return false;
    *ret = value;
    return true;
}

bool br_decimal_parse_signed(const char *text, size_t len, int64_t *ret)
{
    bool negative = len && *text == '-', sign = negative || (len && *text == '+');
    uint64_t value;
    if (len == sign ||
        !br_decimal_parse(text + sign, len - sign, (uint64_t)INT64_MAX + negative, &value))
        return false;
    *ret = (int64_t)(negative ? 0 - value : value);
    return true;
}

uint64_t br_decimal_fraction(const char **p, const char *end, uint64_t unit)
{
    uint64_t value = 0, scale = 1;
    for (; *p < end && br_is_digit(**p); ++*p) {
        if (scale == FRACTION_SCALE)
            continue;
        value = value * 10 + (uint64_t)(**p - '0');
        scale *= 10;
    }
    return (uint64_t)((wide)value * unit / scale);
}
