/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/trace_id.h"

#include <math.h>
#include <string.h>

#include "base/str.h"
#include "wire/protobuf.h"

#define HEX_BITS 4

bool br_trace_id_valid(const uint8_t trace_id[16])
{
    return (br_load64(trace_id) | br_load64(trace_id + 8)) != 0;
}

uint64_t br_trace_randomness(const uint8_t trace_id[16])
{
    return __builtin_bswap64(br_load64(trace_id + 8)) & (BR_THRESHOLD_NEVER - 1);
}

/* Returns the number of zeros after the point of a fraction written in hex. These zeros after
 * the point are not significant digits. */
static int trace_id_leading_digits(double fraction)
{
    int exponent;
    (void)frexp(fraction, &exponent);
    return exponent < 0 ? -exponent / HEX_BITS : 0;
}

uint64_t br_threshold(double probability, unsigned precision)
{
    if (probability >= 1)
        return BR_THRESHOLD_ALWAYS;
    if (!(probability >= 0x1p-56))
        return BR_THRESHOLD_NEVER;
    int low = trace_id_leading_digits(probability), high = trace_id_leading_digits(1 - probability);
    int digits = (int)precision + (low > high ? low : high);
    uint64_t threshold = BR_THRESHOLD_NEVER - (uint64_t)round(probability * 0x1p56);
    if (digits >= BR_THRESHOLD_DIGITS)
        return threshold;
    int shift = HEX_BITS * (BR_THRESHOLD_DIGITS - digits);
    return (threshold + (UINT64_C(1) << (shift - 1))) >> shift << shift;
}

uint64_t br_percentage_threshold(double percentage, unsigned precision)
{
    double probability = (double)(float)percentage / 100;
    if (!(percentage > 0))
        return BR_THRESHOLD_NEVER;
    return br_threshold(probability < 0x1p-56 ? 0x1p-56 : probability, precision);
}

bool br_trace_sampled(const uint8_t trace_id[16], double percentage)
{
    return br_trace_randomness(trace_id) >=
           br_percentage_threshold(percentage, BR_THRESHOLD_PRECISION);
}

static bool trace_id_white(char letter)
{
    return letter == ' ' || letter == '\t' || letter == '\r' || letter == '\n';
}

bool br_trace_id_parse(const void *text, size_t len, uint8_t ret[16])
{
    const char *p = text;
    char digits[32];
    uint8_t id[16];
    while (len && trace_id_white(p[len - 1]))
        len--;
    for (; len && trace_id_white(*p); len--)
        p++;
    for (; len > sizeof digits && *p == '0'; len--)
        p++;
    if (len == 0 || len > sizeof digits)
        return false;
    memset(digits, '0', sizeof digits);
    memcpy(digits + sizeof digits - len, p, len);
    if (br_hex_decode(digits, sizeof digits, id, sizeof id) != (long)sizeof id ||
        !br_trace_id_valid(id))
        return false;
    memcpy(ret, id, sizeof id);
    return true;
}
