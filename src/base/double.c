/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The digits are found by the algorithm in Giulietti, "The Schubfach way to render doubles" (2020).
 * A decimal reads back as the double c * 2^q if it lies between the midpoints to the double's
 * neighbours. Let k be the largest number for which that interval certainly contains a multiple of
 * 10^k. The interval then contains at most one multiple of 10^(k+1), and every shorter decimal is
 * such a multiple. It is therefore enough to examine the multiples of 10^(k+1) and of 10^k on both
 * sides of the value.
 *
 * The value and both midpoints are multiplied by four, divided by 10^k and compared with those
 * multiples as integers. Only the significant bits are kept; the lowest bit indicates whether the
 * bits cut off contained a 1. Section 9.10 shows that 126 bits of the power of ten are enough; this
 * file uses 128.
 */
#include "base/double.h"

#include <math.h>
#include <string.h>

#include "base/double_powers.h"

#define MANTISSA_BITS 52
#define MANTISSA_MASK ((UINT64_C(1) << MANTISSA_BITS) - 1)
#define EXPONENT_MASK 0x7ff
#define EXPONENT_LEAST (-1074) /* exponent of the smallest subnormal number */
/* largest size of a number as text, in bytes: a sign, "0.", 323 zeros and 17 digits */
#define TEXT_SIZE 352

__extension__ typedef unsigned __int128 double_product;

/* Returns the floor of log10(2^exponent). The result is exact for all exponents of doubles:
 * scripts/powers tries them all during the build. */
static int double_floor_log10_pow2(int exponent)
{
    return (exponent * 1262611) >> 22;
}

static int double_floor_log10_three_quarters_pow2(int exponent)
{
    return (exponent * 1262611 - 524031) >> 22;
}

static int double_floor_log2_pow10(int exponent)
{
    return (exponent * 1741647) >> 19;
}

/* Returns power * factor / 2^128, with the lowest bit set if the result is not an integer.
 * `power` may be too large by less than its last bit. The last of the discarded bits can
 * therefore be 1 even if the exact result is an integer. */
static uint64_t double_round_to_odd(const uint64_t power[2], uint64_t factor)
{
    double_product low = (double_product)power[1] * factor;
    double_product high = (double_product)power[0] * factor + (uint64_t)(low >> 64);
    return (uint64_t)(high >> 64) | ((uint64_t)high > 1);
}

/* Returns the shortest decimal that reads back as mantissa * 2^exponent, and among those the
 * nearest, as a multiple of 10^k. */
static uint64_t double_decimal(uint64_t mantissa, int exponent, bool near_below, int *ret_k)
{
    int k = near_below ? double_floor_log10_three_quarters_pow2(exponent)
                       : double_floor_log10_pow2(exponent);
    int shift = exponent + double_floor_log2_pow10(-k) + 1;
    const uint64_t *power = double_powers[-k - POWERS_FIRST];
    /* 1 if the mantissa is odd: the midpoints then read back as the neighbour, whose mantissa is
     * even */
    uint64_t odd = mantissa & 1;
    uint64_t least =
        double_round_to_odd(power, (4 * mantissa - (near_below ? 1 : 2)) << shift) + odd;
    uint64_t value = double_round_to_odd(power, 4 * mantissa << shift);
    uint64_t most = double_round_to_odd(power, (4 * mantissa + 2) << shift) - odd;
    uint64_t below = value / 4, tens = below / 10;
    *ret_k = k + 1;
    bool is_below = least <= 40 * tens, is_above = 40 * tens + 40 <= most;
    if (tens && is_below != is_above)
        return tens + is_above;
    *ret_k = k;
    is_below = least <= 4 * below;
    is_above = 4 * below + 4 <= most;
    if (is_below != is_above)
        return below + is_above;
    uint64_t middle = 4 * below + 2;
    return below + (value > middle || (value == middle && (below & 1)));
}

int br_double_shortest(double value, char digits[BR_DOUBLE_DIGITS_MAX], int *ret_point)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint64_t c = bits & MANTISSA_MASK;
    int exponent = (int)(bits >> MANTISSA_BITS) & EXPONENT_MASK, k, n = 0;
    /* Below a power of two, the next double is half as far away as above it. */
    bool near_below = c == 0 && exponent > 1;
    if (exponent)
        c |= UINT64_C(1) << MANTISSA_BITS;
    uint64_t decimal =
        double_decimal(c, EXPONENT_LEAST + exponent - (exponent > 0), near_below, &k);
    for (; decimal % 10 == 0; k++)
        decimal /= 10;
    char backwards[20];
    for (; decimal; decimal /= 10)
        backwards[n++] = (char)('0' + decimal % 10);
    for (int i = 0; i < n; i++)
        digits[i] = backwards[n - 1 - i];
    *ret_point = n + k;
    return n;
}

/* --- Texts ----------------------------------------------------------------------------------- */

static char *double_put(char *p, const char *digits, int count)
{
    memcpy(p, digits, (size_t)count);
    return p + count;
}

static char *double_put_zeros(char *p, int count)
{
    memset(p, '0', (size_t)count);
    return p + count;
}

static char *double_put_plain(char *p, const char *digits, int count, int point)
{
    if (point >= count)
        return double_put_zeros(double_put(p, digits, count), point - count);
    if (point > 0) {
        p = double_put(p, digits, point);
        *p++ = '.';
        return double_put(p, digits + point, count - point);
    }
    p = double_put_zeros(double_put(p, "0.", 2), -point);
    return double_put(p, digits, count);
}

static char *double_put_exponent(char *p, const char *digits, int count, int point)
{
    int exponent = point - 1, size = exponent < 0 ? -exponent : exponent;
    *p++ = digits[0];
    if (count > 1)
        *p++ = '.';
    p = double_put(p, digits + 1, count - 1);
    *p++ = 'e';
    *p++ = exponent < 0 ? '-' : '+';
    if (size >= 100)
        *p++ = (char)('0' + size / 100);
    if (size >= 10)
        *p++ = (char)('0' + size / 10 % 10);
    *p++ = (char)('0' + size % 10);
    return p;
}

static void double_print(struct br_str *out, double value, int least_point, int most_point)
{
    char text[TEXT_SIZE], digits[BR_DOUBLE_DIGITS_MAX], *p = text;
    int point;
    if (signbit(value))
        *p++ = '-';
    if (fpclassify(value) == FP_ZERO) {
        *p++ = '0';
    } else {
        int n = br_double_shortest(fabs(value), digits, &point);
        p = point < least_point || point > most_point ? double_put_exponent(p, digits, n, point)
                                                      : double_put_plain(p, digits, n, point);
    }
    br_str_add(out, text, (size_t)(p - text));
}

void br_double_print(struct br_str *out, double value)
{
    double_print(out, value, -5, 21);
}

void br_double_print_plain(struct br_str *out, double value)
{
    double_print(out, value, -400, 400);
}
