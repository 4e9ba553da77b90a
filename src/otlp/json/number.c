/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/json/number.h"

#include <math.h>
#include <stdlib.h>

#include "base/decimal.h"
#include "base/double.h"

static size_t json_number_digits(const char *text, size_t len, size_t at)
{
    while (at < len && br_is_digit(text[at]))
        at++;
    return at;
}

size_t br_number_scan(const char *text, size_t len)
{
    size_t at = len > 0 && text[0] == '-';
    size_t start = at;
    at = json_number_digits(text, len, at);
    if (at == start)
        return 0;
    if (text[start] == '0')
        at = start + 1;
    if (at + 1 < len && text[at] == '.' && br_is_digit(text[at + 1]))
        at = json_number_digits(text, len, at + 1);
    if (at + 1 < len && (text[at] == 'e' || text[at] == 'E')) {
        size_t sign = at + 1 + (text[at + 1] == '-' || text[at + 1] == '+');
        size_t end = json_number_digits(text, len, sign);
        if (end > sign)
            at = end;
    }
    return at;
}

bool br_number_digits(const char *text, size_t len, uint64_t *ret)
{
    return len <= 19 && (len <= 1 || text[0] != '0') &&
           br_decimal_parse(text, len, UINT64_MAX, ret);
}

/* Returns the exponent of a number; its letter "e" is at text[at]. The result is limited to a
 * magnitude of 2^40, which exceeds the number of digits of any text. */
static long json_number_exponent(const char *text, size_t len, size_t at)
{
    const long most = 1L << 40;
    if (at >= len)
        return 0;
    bool negative = text[at + 1] == '-';
    long e = 0;
    at += negative || text[at + 1] == '+' ? 2 : 1;
    for (; at < len; at++)
        e = e < most ? e * 10 + (text[at] - '0') : most;
    return negative ? -e : e;
}

static bool json_number_append_digit(uint64_t *values, unsigned digit)
{
    return !__builtin_mul_overflow(*values, (uint64_t)10, values) &&
           !__builtin_add_overflow(*values, (uint64_t)digit, values);
}

bool br_number_integer(const char *text, size_t len, bool *ret_negative, uint64_t *ret_magnitude)
{
    size_t first = text[0] == '-';
    size_t letter = first;
    long n_whole = -1; /* number of digits before the decimal point */
    long n_digits = 0;
    for (; letter < len && text[letter] != 'e' && text[letter] != 'E'; letter++) {
        if (text[letter] == '.')
            n_whole = n_digits;
        else
            n_digits++;
    }
    if (n_whole < 0)
        n_whole = n_digits;
    n_whole += json_number_exponent(text, len, letter);

    uint64_t v = 0;
    long i = 0;
    for (size_t at = first; at < letter; at++) {
        if (text[at] == '.')
            continue;
        unsigned digit = (unsigned)(text[at] - '0');
        if (i++ >= n_whole ? digit != 0 : !json_number_append_digit(&v, digit))
            return false;
    }
    for (; v != 0 && i < n_whole; i++) {
        if (!json_number_append_digit(&v, 0))
            return false;
    }
    *ret_negative = first != 0;
    *ret_magnitude = v;
    return true;
}

bool br_number_double(const char *text, double *ret)
{
    double v = strtod(text, NULL);
    if (isinf(v))
        return false;
    *ret = v;
    return true;
}

void br_number_print(struct br_str *out, double value)
{
    if (isnan(value))
        br_str_puts(out, "\"NaN\"");
    else if (isinf(value))
        br_str_puts(out, value < 0 ? "\"-Infinity\"" : "\"Infinity\"");
    else
        br_double_print(out, value);
}
